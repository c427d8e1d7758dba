/* Values of a running template: Python's types, as far as templates use them. Everything is in the
 * arena of one rendering and immutable, except lists and dictionaries under construction, and
 * namespaces. Failure is sticky: the first error is kept in the run, every function then returns
 * quickly with an undefined value, and loops check `failed`. */
#ifndef PJ_TEXT_JINJA_VALUE_H
#define PJ_TEXT_JINJA_VALUE_H

#include "base/error.h"
#include "base/memory.h"

typedef enum jv_kind {
    JV_UNDEFINED = 0,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STRING,
    JV_LIST, /* and tuples */
    JV_DICT,
    JV_NAMESPACE, /* a dictionary with assignable members */
    JV_LOOP,      /* the `loop` of a for block */
    JV_CALLABLE   /* a macro, a bound method, a global function */
} jv_kind;

/* A UTF-8 string. marks[i] is 1 where byte i is data; NULL: none is. */
typedef struct jv_string {
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    bool safe; /* result of `safe` or `escape`: "+" HTML-escapes the other operand */
} jv_string;

extern const jv_string jv_empty;

struct jv_list;
struct jv_dict;
struct jv_callable;
struct jv_loop;

typedef struct jv {
    jv_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const jv_string *string;
        struct jv_list *list;
        struct jv_dict *dict;
        const struct jv_callable *callable;
        struct jv_loop *loop;
        const char *name; /* for an undefined value: what was looked up; or NULL */
    };
} jv;

/* What Python's value is, where not a list. Filters such as `map` give generators: true even if
 * empty, without length or members, and gone once iterated over. */
typedef enum jv_list_kind {
    JV_PLAIN = 0,
    JV_VIEW /* range(), dict.items() */,
    JV_GENERATOR
} jv_list_kind;

typedef struct jv_list {
    jv *items;
    size_t count, capacity;
    bool tuple;
    bool used; /* a generator that was iterated over */
    jv_list_kind is;
    bool group; /* of groupby: a tuple whose items are also .grouper and .list */
} jv_list;

typedef struct jv_dict {
    jv *keys, *values;
    size_t count, capacity;
} jv_dict;

typedef struct jv_loop {
    const jv_list *items;
    size_t index;               /* from 0 */
    int depth;                  /* of recursion, from 1 */
    const struct ji_node *body; /* of a recursive loop, with the scope around it; NULL otherwise */
    void *scope;
    jv changed; /* arguments of the last loop.changed(), a tuple; undefined: none yet */
} jv_loop;

/* One rendering. */
typedef struct jv_run {
    pj_arena arena;
    const char *template_name;
    uint64_t steps; /* remaining steps */
    int depth;      /* nesting of evaluation */
    int line;       /* current line, for messages */
    int64_t now;
    bool failed;
    pj_error *err;
    struct jv_scope *scope;      /* innermost variables */
    const struct jv_dict *input; /* variables that the caller gave */
    struct jv_builder *out;      /* where output goes */
} jv_run;

typedef struct jv_builder { /* zeroed but for `run`: a string under construction */
    jv_run *run;
    char *text;
    uint8_t *marks; /* NULL while there is no data */
    size_t bytes, capacity;
} jv_builder;

/* Arguments of a call, filter or test. */
typedef struct jv_arguments {
    const jv *items;
    size_t count;
    const jv_dict *named; /* NULL: none */
    int how;              /* which of the names of its function was called: jv_entry */
} jv_arguments;

/* "chat template of NAME, line N: ..."; returns an undefined value. */
jv jv_fail(jv_run *run, pj_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "'NAME' is undefined", with `what` for a value without a name. */
jv jv_fail_undefined(jv_run *run, jv value, const char *what);
void *jv_alloc(jv_run *run, size_t count, size_t size); /* NULL: failed */
bool jv_step(jv_run *run, size_t count);                /* false: failed, or too many steps */
/* Steps for looking at this many bytes. */
bool jv_look(jv_run *run, size_t bytes);

static inline jv jv_none(void)
{
    return (jv){.kind = JV_NONE};
}
static inline jv jv_undefined(const char *name)
{
    return (jv){.kind = JV_UNDEFINED, .name = name};
}
static inline jv jv_bool(bool value)
{
    return (jv){.kind = JV_BOOL, .boolean = value};
}
static inline jv jv_int(int64_t value)
{
    return (jv){.kind = JV_INT, .integer = value};
}
static inline jv jv_float(double value)
{
    return (jv){.kind = JV_FLOAT, .number = value};
}
jv jv_text(jv_run *run, const char *text);                                  /* borrowed, trusted */
jv jv_bytes(jv_run *run, const char *text, const uint8_t *marks, size_t n); /* borrowed */
jv jv_slice(jv_run *run, const jv_string *of, size_t begin, size_t end);    /* by bytes */
jv jv_list_new(jv_run *run, size_t capacity);
void jv_list_add(jv_run *run, jv list, jv item);
void jv_list_extend(jv_run *run, jv list, const jv *items, size_t count);
jv jv_list_of(jv_run *run, const jv *items, size_t count);
jv jv_tuple_of(jv_run *run, const jv *items, size_t count);
/* The items of two lists, as a list of the first one's kind. */
jv jv_list_joined(jv_run *run, const jv_list *a, const jv_list *b);
jv jv_list_as(jv list, jv_list_kind kind); /* the list, marked as this kind */
bool jv_is_generator(jv value);
bool jv_is_plain_list(jv value); /* a list or tuple */
jv jv_dict_new(jv_run *run);
void jv_dict_set(jv_run *run, jv to, jv key, jv value);
void jv_dict_update(jv_run *run, jv dict, const jv_dict *from);
const jv *jv_dict_find(jv_run *run, const jv_dict *dict, jv key); /* NULL: not there */
const jv *jv_dict_get(const jv_dict *dict, const char *key);

void jv_add(jv_builder *builder, const char *text, const uint8_t *marks, size_t bytes);
/* Bytes [begin, end) of a string, with their marks. */
void jv_add_part(jv_builder *builder, const jv_string *string, size_t begin, size_t end);
void jv_add_text(jv_builder *builder, const char *text);
void jv_add_string(jv_builder *builder, const jv_string *string);
void jv_add_value(jv_builder *builder, jv value); /* as str() would */
jv jv_built(jv_builder *builder);

const char *jv_type_name(jv value); /* Python's: "str", "NoneType" */
bool jv_true(jv value);
bool jv_equal(jv_run *run, jv a, jv b); /* false also when it fails */
bool jv_is_text(jv value, const char *text);
/* One of the comparisons of JI_COMPARE. */
bool jv_holds(jv_run *run, char op, jv a, jv b);
/* -1, 0, 1; fails for types without an order. */
int jv_compare(jv_run *run, jv a, jv b);
jv jv_to_string(jv_run *run, jv value); /* str() */
jv jv_repr(jv_run *run, jv value);
/* The items of anything that can be iterated over; fails otherwise. */
const jv_list *jv_iterate(jv_run *run, jv value);
bool jv_contains(jv_run *run, jv container, jv item);
bool jv_is_number(jv value); /* int, float or bool */
double jv_number(jv value);
bool jv_integer(jv value, int64_t *out); /* int or bool */

/* How a value is written: as json.dumps does, or as repr(). */
typedef struct jv_style {
    bool python; /* repr() */
    bool indented, ensure_ascii, sort_keys;
    int indent;
    const char *item_separator, *key_separator;
} jv_style;
void jv_write(jv_builder *out, jv value, const jv_style *style);

/* Length in characters, not bytes. */
size_t jv_length(const jv_string *string);
/* Byte offset of character `index` (at most the length). */
size_t jv_offset(const jv_string *string, size_t index);

#endif
