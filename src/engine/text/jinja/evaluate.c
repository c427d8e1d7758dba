/* A tree-walking interpreter. Names are looked up in a chain of scopes (loop body, macro
 * parameters, template), then in the template's input, then among the global functions. */
#include "engine/text/jinja/evaluate.h"

#include "engine/text/jinja/library.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { MAX_DEPTH = 300, MAX_ARGUMENTS = 256 };

typedef struct jv_scope {
    struct jv_scope *outer;
    jv names; /* a dictionary of variables */
} jv_scope;

/* A function with the value it belongs to, or a macro with the scope it was defined in. */
typedef struct jv_callable {
    jv self;
    const jv_entry *function; /* NULL: a macro */
    const ji_node *macro;
    jv_scope *closure;
} jv_callable;

typedef enum flow { GO_ON, BREAK_LOOP, NEXT_ITEM } flow;

static jv evaluate(jv_run *run, const ji_node *node);
static flow evaluate_execute(jv_run *run, const ji_node *node);

/* ---- scopes ---- */

static jv_scope *push_scope(jv_run *run, jv_scope *outer)
{
    jv_scope *made = jv_alloc(run, 1, sizeof *made);
    if (!made) return NULL;
    made->outer = outer;
    made->names = jv_dict_new(run);
    return run->failed ? NULL : made;
}

static jv name_value(jv_run *run, const char *name)
{
    return jv_bytes(run, name, NULL, strlen(name));
}

static void evaluate_assign(jv_run *run, const char *name, jv value)
{
    if (!run->failed) jv_dict_set(run, run->scope->names, name_value(run, name), value);
}

static jv function_value(jv_run *run, const jv_entry *function, jv self)
{
    jv_callable *made = jv_alloc(run, 1, sizeof *made);
    if (!made) return jv_undefined(NULL);
    *made = (jv_callable){.self = self, .function = function};
    return (jv){.kind = JV_CALLABLE, .callable = made};
}

static jv macro_value(jv_run *run, const ji_node *node)
{
    jv_callable *made = jv_alloc(run, 1, sizeof *made);
    if (!made) return jv_undefined(NULL);
    *made = (jv_callable){.macro = node, .closure = run->scope};
    return (jv){.kind = JV_CALLABLE, .callable = made};
}

/* ---- global functions ---- */

static jv g_range(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < a->count && i < 3; i++)
        if (!jv_integer(a->items[i], &bounds[i]))
            return jv_fail(run, PJ_E_INVALID, "range takes integers, not %s",
                           jv_type_name(a->items[i]));
    if (a->count == 0 || a->count > 3)
        return jv_fail(run, PJ_E_INVALID, "range takes 1 to 3 numbers");
    int64_t begin = a->count == 1 ? 0 : bounds[0], end = a->count == 1 ? bounds[0] : bounds[1];
    int64_t step = bounds[2];
    if (step == 0) return jv_fail(run, PJ_E_INVALID, "range() arg 3 must not be zero");
    jv list = jv_list_new(run, 0);
    for (int64_t i = begin; (step > 0 ? i < end : i > end) && jv_step(run, 1);) {
        jv_list_add(run, list, jv_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return jv_list_as(list, JV_VIEW);
}

static jv g_dict(jv_run *run, jv self, const jv_arguments *a)
{
    jv dict = jv_dict_new(run);
    if (a->count && a->items[0].kind == JV_DICT)
        jv_dict_update(run, dict, a->items[0].dict);
    else if (a->count) {
        const jv_list *pairs = jv_iterate(run, a->items[0]);
        for (size_t i = 0; i < pairs->count && !run->failed; i++) {
            const jv_list *pair = jv_iterate(run, pairs->items[i]);
            if (pair->count == 2)
                jv_dict_set(run, dict, pair->items[0], pair->items[1]);
            else if (!run->failed)
                jv_fail(run, PJ_E_INVALID, "dict takes pairs");
        }
    }
    jv_dict_update(run, dict, a->named);
    return dict;
}

static jv g_namespace(jv_run *run, jv self, const jv_arguments *a)
{
    jv made = g_dict(run, self, a);
    if (!run->failed) made.kind = JV_NAMESPACE;
    return made;
}

static jv g_raise_exception(jv_run *run, jv self, const jv_arguments *a)
{
    jv message = jv_to_string(run, jv_needed(run, a, 0, "message"));
    if (run->failed) return message;
    return jv_fail(run, PJ_E_INVALID, "it rejects this conversation: %.*s",
                   (int)(message.string->bytes < 200 ? message.string->bytes : 200),
                   message.string->text);
}

static jv g_strftime_now(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *format = jv_needed_string(run, a, 0, "format");
    char pattern[128], text[512];
    time_t seconds = (time_t)run->now;
    struct tm local;
    if (run->failed || format->bytes >= sizeof pattern || !localtime_r(&seconds, &local))
        return jv_fail(run, PJ_E_INVALID, "strftime_now has no usable format");
    memcpy(pattern, format->text, format->bytes);
    pattern[format->bytes] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t bytes = strftime(text, sizeof text, pattern, &local);
#pragma GCC diagnostic pop
    const char *copy = pj_arena_strndup(&run->arena, text, bytes);
    return copy ? jv_text(run, copy) : jv_fail(run, PJ_E_FULL, "it needs too much memory");
}

static const jv_entry globals[] = {
    {"range", g_range},
    {"dict", g_dict},
    {"namespace", g_namespace},
    {"raise_exception", g_raise_exception},
    {"strftime_now", g_strftime_now},
    {NULL},
};

static jv evaluate_look_up(jv_run *run, const char *name)
{
    for (const jv_scope *s = run->scope; s; s = s->outer) {
        const jv *found = jv_dict_get(s->names.dict, name);
        if (found) return *found;
    }
    const jv *given = jv_dict_get(run->input, name);
    if (given) return *given;
    const jv_entry *global = jv_find(globals, name);
    if (global) return function_value(run, global, jv_undefined(NULL));
    static const char *const missing[] = {"lipsum", "cycler", "joiner", "self"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (strcmp(missing[i], name) == 0)
            return jv_fail(run, PJ_E_UNSUPPORTED, "\"%s\" is not supported", name);
    return jv_undefined(name);
}

/* ---- the loop variable ---- */

static jv loop_cycle(jv_run *run, jv self, const jv_arguments *a)
{
    return a->count ? a->items[self.loop->index % a->count]
                    : jv_fail(run, PJ_E_INVALID, "no items for cycling given");
}

static jv loop_changed(jv_run *run, jv self, const jv_arguments *a)
{
    jv now = jv_list_of(run, a->items, a->count), before = self.loop->changed;
    self.loop->changed = now;
    return jv_bool(before.kind == JV_UNDEFINED || !jv_equal(run, before, now));
}

static const jv_entry loop_functions[] = {{"cycle", loop_cycle}, {"changed", loop_changed}, {NULL}};

static jv loop_member(jv_run *run, jv_loop *loop, const char *name)
{
    size_t count = loop->items->count, index = loop->index;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"index", (int64_t)index + 1},
        {"index0", (int64_t)index},
        {"revindex", (int64_t)(count - index)},
        {"revindex0", (int64_t)(count - index) - 1},
        {"length", (int64_t)count},
        {"depth", loop->depth},
        {"depth0", loop->depth - 1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0) return jv_int(numbers[i].value);
    if (strcmp(name, "first") == 0) return jv_bool(index == 0);
    if (strcmp(name, "last") == 0) return jv_bool(index + 1 == count);
    if (strcmp(name, "previtem") == 0)
        return index ? loop->items->items[index - 1] : jv_undefined("there is no previous item");
    if (strcmp(name, "nextitem") == 0)
        return index + 1 < count ? loop->items->items[index + 1]
                                 : jv_undefined("there is no next item");
    const jv_entry *function = jv_find(loop_functions, name);
    if (function) return function_value(run, function, (jv){.kind = JV_LOOP, .loop = loop});
    return jv_undefined(name);
}

/* ---- calls ---- */

/* Adds an argument with a name. */
static void name_argument(jv_run *run, jv_dict *named, jv name, jv value)
{
    if (name.kind != JV_STRING)
        jv_fail(run, PJ_E_INVALID, "keywords must be strings");
    else if (jv_dict_find(run, named, name))
        jv_fail(run, PJ_E_INVALID, "multiple values for keyword argument '%.*s'",
                (int)name.string->bytes, name.string->text);
    else
        jv_dict_set(run, (jv){.kind = JV_DICT, .dict = named}, name, value);
}

/* The arguments f(*b, **c): items of a list, members of a dictionary. */
static void add_starred(jv_run *run, const ji_node *node, jv items, jv_dict *named)
{
    jv more = node->b ? evaluate(run, node->b) : jv_none();
    jv names = node->c ? evaluate(run, node->c) : jv_none();
    if (more.kind == JV_UNDEFINED || names.kind == JV_UNDEFINED)
        jv_fail(run, PJ_E_INVALID, "an argument with * is undefined");
    else if (node->c && names.kind != JV_DICT)
        jv_fail(run, PJ_E_INVALID, "argument after ** must be a mapping, not %s",
                jv_type_name(names));
    const jv_list *list = node->b && !run->failed ? jv_iterate(run, more) : NULL;
    if (list) jv_list_extend(run, items, list->items, list->count);
    for (size_t i = 0; node->c && !run->failed && i < names.dict->count; i++)
        name_argument(run, named, names.dict->keys[i], names.dict->values[i]);
}

/* The arguments of a call, filter or test; false: failed. */
static bool evaluate_collect(jv_run *run, const ji_node *node, jv_arguments *arguments)
{
    jv items = jv_list_new(run, node->count);
    jv_dict *named = jv_alloc(run, 1, sizeof *named);
    for (size_t i = 0; i < node->count && !run->failed; i++) {
        const ji_node *item = node->items[i];
        if (item->kind == JI_NAMED)
            name_argument(run, named, name_value(run, item->text), evaluate(run, item->a));
        else
            jv_list_add(run, items, evaluate(run, item));
    }
    if (node->kind == JI_CALL && !run->failed) add_starred(run, node, items, named);
    if (run->failed) return false;
    *arguments = (jv_arguments){items.list->items, items.list->count, named};
    if (arguments->count + named->count > MAX_ARGUMENTS)
        jv_fail(run, PJ_E_FULL, "a call has too many arguments");
    return !run->failed;
}

/* Whether a macro has parameters for all arguments. One that mentions `varargs` takes any number,
 * one that mentions `kwargs` any names, of which the unknown ones are added to `rest`. */
static bool takes(jv_run *run, const ji_node *macro, const jv_arguments *a, jv rest)
{
    size_t count = macro->count / 2;
    if (a->count > count && !(macro->integer & JI_VARARGS))
        jv_fail(run, PJ_E_INVALID, "macro '%s' takes not more than %zu arguments", macro->text,
                count);
    for (size_t i = 0; i < a->named->count && !run->failed; i++) {
        jv name = a->named->keys[i];
        size_t at = 0;
        while (at < count && !jv_is_text(name, macro->items[2 * at]->text)) at++;
        if (at == count ? !(macro->integer & JI_KWARGS) : at < a->count)
            jv_fail(run, PJ_E_INVALID, "macro '%s' %s the argument '%.*s'", macro->text,
                    at == count ? "does not have" : "gets twice", (int)name.string->bytes,
                    name.string->text);
        else if (at == count)
            jv_dict_set(run, rest, name, a->named->values[i]);
    }
    return !run->failed;
}

/* The output of a body as text; names that it sets are those of `scope`. */
static jv capture(jv_run *run, const ji_node *body, jv_scope *scope)
{
    jv_builder text = {.run = run}, *out = run->out;
    jv_scope *outer = run->scope;
    run->out = &text;
    run->scope = scope;
    if (!run->failed) evaluate_execute(run, body);
    run->scope = outer;
    run->out = out;
    return jv_built(&text);
}

static jv call_macro(jv_run *run, const jv_callable *callee, const jv_arguments *a,
                     const jv *caller)
{
    const ji_node *macro = callee->macro;
    jv_scope *saved = run->scope;
    jv rest = jv_dict_new(run);
    if (!takes(run, macro, a, rest) || !(run->scope = push_scope(run, callee->closure)))
        return jv_undefined(NULL);
    for (size_t i = 0; i < macro->count && !run->failed; i += 2) {
        const char *name = macro->items[i]->text;
        jv value = jv_argument(a, i / 2, name, jv_undefined(name));
        if (value.kind == JV_UNDEFINED && macro->items[i + 1])
            value = evaluate(run, macro->items[i + 1]);
        evaluate_assign(run, name, value);
    }
    size_t known = macro->count / 2, extra = a->count > known ? a->count - known : 0;
    evaluate_assign(run, "varargs", jv_tuple_of(run, extra ? a->items + known : NULL, extra));
    if (macro->integer & JI_KWARGS) evaluate_assign(run, "kwargs", rest);
    if (caller) evaluate_assign(run, "caller", *caller);
    jv text = capture(run, macro->a, run->scope);
    run->scope = saved;
    return text;
}

static jv capture_loop(jv_run *run, const jv_loop *loop, jv iterable);

static jv call_value(jv_run *run, jv callee, const jv_arguments *a, const jv *caller)
{
    if (callee.kind == JV_UNDEFINED) return jv_fail_undefined(run, callee, "what is called");
    if (callee.kind == JV_LOOP && callee.loop->body)
        return a->count == 1 && a->named->count == 0
                   ? capture_loop(run, callee.loop, a->items[0])
                   : jv_fail(run, PJ_E_INVALID, "a loop is called with the items of the next");
    if (callee.kind == JV_LOOP)
        return jv_fail(run, PJ_E_INVALID, "the loop is not \"recursive\" and cannot be called");
    if (callee.kind != JV_CALLABLE)
        return jv_fail(run, PJ_E_INVALID, "'%s' object is not callable", jv_type_name(callee));
    const jv_callable *c = callee.callable;
    return c->macro ? call_macro(run, c, a, caller) : jv_call(run, c->function, c->self, a);
}

/* obj.name: a method of the type takes precedence over a member of the same name. */
static jv evaluate_attribute(jv_run *run, jv self, const char *name)
{
    if (self.kind == JV_LOOP) return loop_member(run, self.loop, name);
    const jv_entry *method = jv_method(self, name);
    if (method) return function_value(run, method, self);
    return jv_member(run, self, name_value(run, name));
}

/* Calls of unsupported string methods are rejected by name, not as "undefined". */
static jv evaluate_call(jv_run *run, const ji_node *node, const jv *caller)
{
    jv callee = evaluate(run, node->a);
    jv_arguments arguments;
    if (run->failed || !evaluate_collect(run, node, &arguments)) return jv_undefined(NULL);
    run->line = node->line;
    if (callee.kind == JV_UNDEFINED && node->a->kind == JI_ATTRIBUTE)
        return jv_fail(run, PJ_E_UNSUPPORTED, "the method \"%s\" is not supported", node->a->text);
    return call_value(run, callee, &arguments, caller);
}

/* ---- operators ---- */

static jv concatenate(jv_run *run, jv a, jv b)
{
    return jv_join(run, &(jv_list){.items = (jv[]){a, b}, .count = 2}, &jv_empty);
}

/* A safe string makes the result safe, and the other operand is escaped. */
static jv add_strings(jv_run *run, jv a, jv b)
{
    if (!a.string->safe && !b.string->safe) return concatenate(run, a, b);
    jv left = jv_escape(run, a), right = jv_escape(run, b);
    return run->failed ? left : jv_mark_safe(run, concatenate(run, left, right));
}

static jv evaluate_repeat(jv_run *run, jv text, int64_t count)
{
    jv_builder out = {.run = run};
    for (int64_t i = 0; i < count && jv_step(run, 1); i++) jv_add_value(&out, text);
    return jv_built(&out);
}

static jv repeat_list(jv_run *run, jv value, int64_t count)
{
    jv list = jv_list_new(run, 0);
    for (int64_t i = 0; i < count && jv_step(run, 1 + value.list->count); i++)
        jv_list_extend(run, list, value.list->items, value.list->count);
    if (list.kind == JV_LIST) list.list->tuple = value.list->tuple;
    return list;
}

static jv operands(jv_run *run, char op, jv a, jv b)
{
    jv culprit = a.kind == JV_UNDEFINED ? a : b;
    if (culprit.kind == JV_UNDEFINED) return jv_fail_undefined(run, culprit, "an operand");
    return jv_fail(run, PJ_E_INVALID, "unsupported operand types for %s: %s and %s",
                   op == 'f'   ? "//"
                   : op == 'p' ? "**"
                               : (char[2]){op, 0},
                   jv_type_name(a), jv_type_name(b));
}

static bool integer_result(char op, int64_t x, int64_t y, int64_t *out)
{
    switch (op) {
    case '+': return !__builtin_add_overflow(x, y, out);
    case '-': return !__builtin_sub_overflow(x, y, out);
    case '*': return !__builtin_mul_overflow(x, y, out);
    case 'f':
    case '%':
        if (y == -1) return op == '%' ? (*out = 0, true) : !__builtin_sub_overflow(0, x, out);
        *out = op == 'f' ? x / y - (x % y != 0 && (x < 0) != (y < 0))
                         : x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
        return true;
    case 'p':
        if (y < 0 || y > 64) return false;
        for (*out = 1; y > 0; y--)
            if (__builtin_mul_overflow(*out, x, out)) return false;
        return true;
    default: return false;
    }
}

static jv arithmetic(jv_run *run, char op, jv a, jv b)
{
    int64_t x, y, result;
    bool whole = jv_integer(a, &x) && jv_integer(b, &y);
    double p = jv_number(a), q = jv_number(b);
    if ((op == '/' || op == 'f' || op == '%') && q == 0)
        return jv_fail(run, PJ_E_INVALID, "division by zero");
    if (whole && op != '/') {
        if (integer_result(op, x, y, &result)) return jv_int(result);
        if (op != 'p' || y >= 0) return jv_fail(run, PJ_E_INVALID, "a number is too large");
    }
    switch (op) {
    case '+': return jv_float(p + q);
    case '-': return jv_float(p - q);
    case '*': return jv_float(p * q);
    case '/': return jv_float(p / q);
    case 'f': return jv_float(floor(p / q));
    case '%': return jv_float(p - q * floor(p / q));
    default: return jv_float(pow(p, q));
    }
}

static jv binary(jv_run *run, char op, jv a, jv b)
{
    int64_t count;
    if (run->failed) return jv_undefined(NULL);
    if (op == '~') return concatenate(run, a, b);
    if (jv_is_number(a) && jv_is_number(b)) return arithmetic(run, op, a, b);
    if (op == '+' && a.kind == JV_STRING && b.kind == JV_STRING) return add_strings(run, a, b);
    if (op == '*' && jv_is_plain_list(a) && jv_integer(b, &count))
        return repeat_list(run, a, count);
    if (op == '*' && jv_is_plain_list(b) && jv_integer(a, &count))
        return repeat_list(run, b, count);
    if (op == '+' && jv_is_plain_list(a) && jv_is_plain_list(b) && a.list->tuple == b.list->tuple)
        return jv_list_joined(run, a.list, b.list);
    if (op == '*' && a.kind == JV_STRING && jv_integer(b, &count))
        return evaluate_repeat(run, a, count);
    if (op == '*' && b.kind == JV_STRING && jv_integer(a, &count))
        return evaluate_repeat(run, b, count);
    if (op == '%' && a.kind == JV_STRING && !a.string->safe) return jv_percent(run, a.string, b);
    if (op == '%' && a.kind == JV_STRING)
        return jv_fail(run, PJ_E_UNSUPPORTED, "formatting a safe text with %% is not supported");
    return operands(run, op, a, b);
}

static jv evaluate_chain(jv_run *run, const ji_node *node)
{
    jv left = evaluate(run, node->a);
    for (size_t i = 0; i < node->count && !run->failed; i++) {
        jv right = evaluate(run, node->items[i]->a);
        if (run->failed || !jv_holds(run, node->items[i]->op, left, right)) return jv_bool(false);
        left = right;
    }
    return jv_bool(!run->failed);
}

static jv unary(jv_run *run, const ji_node *node)
{
    jv value = evaluate(run, node->a);
    int64_t integer;
    if (node->op == '!') return jv_bool(!jv_true(value));
    if (!jv_is_number(value)) return operands(run, node->op, value, value);
    if (!jv_integer(value, &integer))
        return jv_float(node->op == '-' ? -value.number : value.number);
    if (node->op == '-' && __builtin_sub_overflow((int64_t)0, integer, &integer))
        return jv_fail(run, PJ_E_INVALID, "a number is too large");
    return jv_int(integer);
}

/* ---- slices ---- */

static bool slice_bound(jv_run *run, const ji_node *node, size_t which, int64_t missing,
                        int64_t *bound)
{
    const ji_node *part = which < node->count ? node->items[which] : NULL;
    jv value = part ? evaluate(run, part) : jv_none();
    *bound = missing;
    if (run->failed) return false;
    if (value.kind == JV_NONE || jv_integer(value, bound)) return value.kind != JV_NONE;
    jv_fail(run, PJ_E_INVALID, "slice indices must be integers, not %s", jv_type_name(value));
    return false;
}

/* Python's clamping of a slice bound. */
static int64_t clamp(int64_t at, int64_t count, bool forward)
{
    if (at < 0) at += count;
    if (at < 0) return forward ? 0 : -1;
    return at >= count ? (forward ? count : count - 1) : at;
}

static jv evaluate_slice(jv_run *run, const ji_node *node)
{
    jv self = evaluate(run, node->a);
    int64_t begin, end, step;
    if (run->failed) return self;
    if ((self.kind != JV_LIST || jv_is_generator(self)) && self.kind != JV_STRING)
        return self.kind == JV_UNDEFINED
                   ? jv_fail_undefined(run, self, "what is sliced")
                   : jv_fail(run, PJ_E_INVALID, "a %s cannot be sliced", jv_type_name(self));
    const jv_list *items = jv_iterate(run, self);
    int64_t count = (int64_t)items->count;
    slice_bound(run, node, 2, 1, &step);
    if (step == 0) return jv_fail(run, PJ_E_INVALID, "slice step cannot be zero");
    bool forward = step > 0;
    begin = slice_bound(run, node, 0, 0, &begin) ? clamp(begin, count, forward)
            : forward                            ? 0
                                                 : count - 1;
    end = slice_bound(run, node, 1, 0, &end) ? clamp(end, count, forward) : forward ? count : -1;
    jv list = jv_list_new(run, 0);
    for (int64_t i = begin; (forward ? i < end : i > end) && jv_step(run, 1);) {
        jv_list_add(run, list, items->items[i]);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    if (run->failed) return list;
    list.list->tuple = self.kind == JV_LIST && self.list->tuple;
    return self.kind == JV_STRING ? jv_join(run, list.list, &jv_empty) : list;
}

/* ---- expressions ---- */

static jv evaluate_items(jv_run *run, const ji_node *node)
{
    jv list = jv_list_new(run, node->count);
    for (size_t i = 0; i < node->count && !run->failed; i++)
        jv_list_add(run, list, evaluate(run, node->items[i]));
    if (list.kind == JV_LIST) list.list->tuple = node->kind == JI_TUPLE;
    return list;
}

static jv evaluate_dict(jv_run *run, const ji_node *node)
{
    jv dict = jv_dict_new(run);
    for (size_t i = 0; i + 1 < node->count && !run->failed; i += 2) {
        jv key = evaluate(run, node->items[i]), value = evaluate(run, node->items[i + 1]);
        if (!run->failed) jv_dict_set(run, dict, key, value);
    }
    return dict;
}

static jv evaluate_apply(jv_run *run, const ji_node *node, jv value, const jv_entry *function,
                         const char *what)
{
    jv_arguments arguments;
    if (!function)
        return jv_fail(run, PJ_E_UNSUPPORTED, "the %s \"%s\" is not supported", what, node->text);
    if (!evaluate_collect(run, node, &arguments)) return jv_undefined(NULL);
    run->line = node->line;
    return jv_call(run, function, value, &arguments);
}

/* Applies a chain of filters; the innermost one, if it has no operand, gets `content`. */
static jv apply_chain(jv_run *run, const ji_node *chain, jv content)
{
    if (!chain) return content;
    jv value = chain->a ? apply_chain(run, chain->a, content) : content;
    if (run->failed || chain->kind != JI_FILTER) return value;
    return evaluate_apply(run, chain, value, jv_filter(chain->text), "filter");
}

/* obj[key]: a member, or else a method of that name, as in the reference. */
static jv subscript(jv_run *run, jv self, jv key)
{
    jv found = jv_member(run, self, key);
    if (found.kind != JV_UNDEFINED || key.kind != JV_STRING || run->failed) return found;
    const char *name = pj_arena_strndup(&run->arena, key.string->text, key.string->bytes);
    return name && jv_method(self, name) ? evaluate_attribute(run, self, name) : found;
}

static jv evaluate_node(jv_run *run, const ji_node *node)
{
    jv a;
    switch (node->kind) {
    case JI_TEXT: return jv_bytes(run, node->text, NULL, node->bytes);
    case JI_INTEGER: return jv_int(node->integer);
    case JI_FLOAT: return jv_float(node->number);
    case JI_CONSTANT: return node->integer ? jv_bool(node->integer == 2) : jv_none();
    case JI_NAME: return evaluate_look_up(run, node->text);
    case JI_LIST:
    case JI_TUPLE: return evaluate_items(run, node);
    case JI_DICT: return evaluate_dict(run, node);
    case JI_ATTRIBUTE:
        a = evaluate(run, node->a);
        return run->failed ? a : evaluate_attribute(run, a, node->text);
    case JI_ITEM: {
        a = evaluate(run, node->a);
        jv key = evaluate(run, node->b);
        return run->failed ? a : subscript(run, a, key);
    }
    case JI_SLICE: return evaluate_slice(run, node);
    case JI_CALL: return evaluate_call(run, node, NULL);
    case JI_FILTER:
        a = evaluate(run, node->a);
        return run->failed ? a : evaluate_apply(run, node, a, jv_filter(node->text), "filter");
    case JI_TEST:
        a = evaluate(run, node->a);
        return run->failed ? a : evaluate_apply(run, node, a, jv_test(node->text), "test");
    case JI_UNARY: return unary(run, node);
    case JI_BINARY:
        a = evaluate(run, node->a);
        if (run->failed) return a;
        if (node->op == '&') return jv_true(a) ? evaluate(run, node->b) : a;
        if (node->op == '|') return jv_true(a) ? a : evaluate(run, node->b);
        return binary(run, node->op, a, evaluate(run, node->b));
    case JI_CHAIN: return evaluate_chain(run, node);
    case JI_CONDITION:
        if (jv_true(evaluate(run, node->b))) return evaluate(run, node->a);
        return node->c ? evaluate(run, node->c) : jv_undefined("a value without else");
    default: return jv_fail(run, PJ_E_INTERNAL, "a statement inside an expression");
    }
}

static jv evaluate(jv_run *run, const ji_node *node)
{
    jv value = jv_undefined(NULL);
    if (!jv_step(run, 1)) return value;
    if (++run->depth > MAX_DEPTH) {
        jv_fail(run, PJ_E_FULL, "it is nested too deeply");
    } else {
        run->line = node->line;
        value = evaluate_node(run, node);
    }
    run->depth--;
    return run->failed ? jv_undefined(NULL) : value;
}

/* ---- statements ---- */

static void assign_target(jv_run *run, const ji_node *target, jv value)
{
    if (run->failed) return;
    if (target->kind == JI_NAME) {
        evaluate_assign(run, target->text, value);
    } else if (target->kind == JI_ATTRIBUTE) {
        jv space = evaluate(run, target->a);
        if (space.kind == JV_NAMESPACE)
            jv_dict_set(run, space, name_value(run, target->text), value);
        else
            jv_fail(run, PJ_E_INVALID, "only members of a namespace can be set");
    } else {
        const jv_list *items = jv_iterate(run, value);
        if (!run->failed && items->count != target->count)
            jv_fail(run, PJ_E_INVALID, "%zu values cannot be unpacked into %zu names", items->count,
                    target->count);
        for (size_t i = 0; i < target->count && !run->failed; i++)
            assign_target(run, target->items[i], items->items[i]);
    }
}

/* Items that satisfy the loop's condition, which sees the target. */
static const jv_list *loop_items(jv_run *run, const ji_node *node, jv iterable)
{
    const jv_list *all = jv_iterate(run, iterable);
    if (run->failed || !node->items[2]) return all;
    jv kept = jv_list_new(run, all->count);
    jv_scope *outer = run->scope;
    for (size_t i = 0; i < all->count && !run->failed; i++) {
        run->scope = push_scope(run, outer);
        assign_target(run, node->items[0], all->items[i]);
        if (!run->failed && jv_true(evaluate(run, node->items[2])))
            jv_list_add(run, kept, all->items[i]);
    }
    run->scope = outer;
    return run->failed ? all : kept.list;
}

static flow execute_loop(jv_run *run, const ji_node *node, jv iterable, int depth)
{
    const jv_list *items = loop_items(run, node, iterable);
    jv_scope *outer = run->scope;
    jv_loop *loop = jv_alloc(run, 1, sizeof *loop);
    if (run->failed) return GO_ON;
    loop->items = items;
    loop->depth = depth;
    loop->body = node->integer ? node : NULL;
    loop->scope = outer;
    if (items->count == 0) return node->c ? evaluate_execute(run, node->c) : GO_ON;
    for (; loop->index < items->count && !run->failed; loop->index++) {
        run->scope = push_scope(run, outer);
        if (!run->scope) break;
        evaluate_assign(run, "loop", (jv){.kind = JV_LOOP, .loop = loop});
        assign_target(run, node->items[0], items->items[loop->index]);
        if (!run->failed && evaluate_execute(run, node->a) == BREAK_LOOP) break;
    }
    run->scope = outer;
    return GO_ON;
}

/* loop(iterable): the output of a recursive loop over other items, in the scope around it. */
static jv capture_loop(jv_run *run, const jv_loop *loop, jv iterable)
{
    jv_builder text = {.run = run}, *out = run->out;
    jv_scope *outer = run->scope;
    run->out = &text;
    run->scope = loop->scope;
    execute_loop(run, loop->body, iterable, loop->depth + 1);
    run->scope = outer;
    run->out = out;
    return jv_built(&text);
}

static void execute_with(jv_run *run, const ji_node *node)
{
    jv_scope *outer = run->scope, *inner = push_scope(run, outer);
    for (size_t i = 0; i + 1 < node->count && !run->failed; i += 2) {
        jv value = evaluate(run, node->items[i + 1]); /* sees only outer names */
        run->scope = inner;
        assign_target(run, node->items[i], value);
        run->scope = outer;
    }
    run->scope = inner;
    if (!run->failed) evaluate_execute(run, node->a);
    run->scope = outer;
}

static flow execute_block(jv_run *run, const ji_node *node)
{
    for (size_t i = 0; i < node->count && !run->failed; i++) {
        flow next = evaluate_execute(run, node->items[i]);
        if (next != GO_ON) return next;
    }
    return GO_ON;
}

static void evaluate_write_value(jv_run *run, jv value)
{
    if (!run->failed) jv_add_value(run->out, value);
}

static flow execute_node(jv_run *run, const ji_node *node)
{
    jv caller;
    switch (node->kind) {
    case JI_DATA: jv_add(run->out, node->text, NULL, node->bytes); return GO_ON;
    case JI_PRINT: evaluate_write_value(run, evaluate(run, node->a)); return GO_ON;
    case JI_BLOCK: return execute_block(run, node);
    case JI_IF:
        if (jv_true(evaluate(run, node->b))) return evaluate_execute(run, node->a);
        return node->c && !run->failed ? evaluate_execute(run, node->c) : GO_ON;
    case JI_FOR: return execute_loop(run, node, evaluate(run, node->items[1]), 1);
    case JI_SET: assign_target(run, node->a, evaluate(run, node->b)); return GO_ON;
    case JI_CAPTURE:
        assign_target(
            run, node->a,
            apply_chain(run, node->c, capture(run, node->b, push_scope(run, run->scope))));
        return GO_ON;
    case JI_MACRO: evaluate_assign(run, node->text, macro_value(run, node)); return GO_ON;
    case JI_CALL_BLOCK:
        caller = macro_value(run, node->b);
        evaluate_write_value(run, evaluate_call(run, node->a, &caller));
        return GO_ON;
    case JI_FILTER_BLOCK:
        evaluate_write_value(
            run, apply_chain(run, node->c, capture(run, node->a, push_scope(run, run->scope))));
        return GO_ON;
    case JI_WITH: execute_with(run, node); return GO_ON;
    case JI_BREAK: return BREAK_LOOP;
    case JI_CONTINUE: return NEXT_ITEM;
    default: jv_fail(run, PJ_E_INTERNAL, "an expression outside of a statement"); return GO_ON;
    }
}

static flow evaluate_execute(jv_run *run, const ji_node *node)
{
    flow next = GO_ON;
    if (!jv_step(run, 1)) return next;
    if (++run->depth > MAX_DEPTH) {
        jv_fail(run, PJ_E_FULL, "it is nested too deeply");
    } else {
        run->line = node->line;
        next = execute_node(run, node);
    }
    run->depth--;
    return next;
}

void jv_execute(jv_run *run, const ji_node *root, jv variables, jv_builder *out)
{
    run->input = variables.dict;
    run->out = out;
    run->scope = push_scope(run, NULL);
    if (run->scope) evaluate_execute(run, root);
}
