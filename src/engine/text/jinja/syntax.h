/* The syntax tree of a template, and its scanner. Nodes are in one arena; names and texts are
 * slices of the template's copy. */
#ifndef PJ_TEXT_JINJA_SYNTAX_H
#define PJ_TEXT_JINJA_SYNTAX_H

#include "base/error.h"
#include "base/memory.h"

typedef enum ji_kind {
    /* expressions */
    JI_TEXT,      /* text, bytes */
    JI_INTEGER,   /* integer */
    JI_FLOAT,     /* number */
    JI_CONSTANT,  /* integer: 0 none, 1 false, 2 true */
    JI_NAME,      /* text */
    JI_LIST,      /* items */
    JI_TUPLE,     /* items */
    JI_DICT,      /* items: key, value, key, value ... */
    JI_ATTRIBUTE, /* a.text */
    JI_ITEM,      /* a[b] */
    JI_SLICE,     /* items: begin, end, step; NULL where left out */
    JI_CALL,      /* a(items, *b, **c) */
    JI_NAMED,     /* an argument: text=a */
    JI_FILTER,    /* a | text(items); a NULL: the content of a filter block */
    JI_TEST,      /* a is text(items) */
    JI_UNARY,     /* op a: '-', '+', '!' for not */
    JI_BINARY,    /* a op b: + - * / f(//) % p(**) ~ & (and) | (or) */
    JI_CHAIN,     /* a < b < c: the first operand, items: compares */
    JI_COMPARE,   /* in a chain: op a: = ! < > l(<=) g(>=) i(in) n(not in) */
    JI_CONDITION, /* a if b else c; c NULL: undefined */
    /* statements */
    JI_DATA,    /* text, bytes: written as they are */
    JI_PRINT,   /* a */
    JI_BLOCK,   /* items in order */
    JI_IF,      /* b: condition, a: then, c: else or NULL */
    JI_FOR,     /* items[0]: target, items[1]: iterable, items[2]: filter or NULL; a: body, c: else;
                   integer: 1 if recursive */
    JI_SET,     /* a: target, b: value */
    JI_CAPTURE, /* a: target, b: body, c: chain of filters or NULL */
    JI_MACRO,   /* text: name; items: names, then defaults or NULL; a: body; integer: JI_VARARGS,
                   JI_KWARGS */
    JI_CALL_BLOCK,   /* a: the call, b: a macro named caller */
    JI_FILTER_BLOCK, /* a: body, c: chain of filters */
    JI_WITH,         /* items: target, value ...; a: body */
    JI_BREAK,
    JI_CONTINUE
} ji_kind;

/* What a macro's body mentions, and therefore takes. */
enum { JI_VARARGS = 1, JI_KWARGS = 2 };

typedef struct ji_node {
    ji_kind kind;
    int line;
    char op;
    const char *text;
    size_t bytes;
    int64_t integer;
    double number;
    struct ji_node *a, *b, *c;
    struct ji_node **items;
    size_t count;
} ji_node;

typedef enum ji_token_kind {
    JI_T_END = 0, /* of the template */
    JI_T_DATA,
    JI_T_PRINT_BEGIN,
    JI_T_PRINT_END,
    JI_T_BLOCK_BEGIN,
    JI_T_BLOCK_END,
    JI_T_NAME,
    JI_T_TEXT,
    JI_T_INTEGER,
    JI_T_FLOAT,
    JI_T_OPERATOR /* text: the operator */
} ji_token_kind;

typedef struct ji_token {
    ji_token_kind kind;
    int line;
    const char *text; /* NUL-terminated for names, texts and operators */
    size_t bytes;
    int64_t integer;
    double number;
} ji_token;

/* Tokenises the whole template. PJ_E_INVALID names the line. */
pj_status ji_scan(const char *text, size_t bytes, const char *name, pj_arena *arena,
                  ji_token **tokens, size_t *count, pj_error *err);
pj_status ji_parse(const ji_token *tokens, size_t count, const char *name, pj_arena *arena,
                   ji_node **root, pj_error *err);

#endif
