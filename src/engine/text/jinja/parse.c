/* Parser: recursive descent with the reference's precedences. Statements that load other templates
 * are rejected by name. */
#include "engine/text/jinja/syntax.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 120, MAX_ITEMS = 4096 };

typedef struct parser {
    const ji_token *tokens;
    size_t count, at;
    const char *name;
    pj_arena *arena;
    int depth, loops;
    int mentioned; /* of JI_VARARGS and JI_KWARGS, by the macro being parsed */
    pj_error *err;
    pj_status status;
} parser;

static ji_node *parse_fail(parser *p, pj_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static const ji_token *now(const parser *p)
{
    return &p->tokens[p->at];
}

static ji_node *parse_fail(parser *p, pj_status status, const char *format, ...)
{
    if (p->status == PJ_OK) {
        char text[200];
        va_list list;
        va_start(list, format);
        vsnprintf(text, sizeof text, format, list);
        va_end(list);
        p->status = pj_fail(p->err, status, "%s, line %d: %s", p->name, now(p)->line, text);
    }
    return NULL;
}

static void parse_advance(parser *p)
{
    if (p->at + 1 < p->count) p->at++;
}

static bool is_op(const parser *p, const char *op)
{
    return now(p)->kind == JI_T_OPERATOR && strcmp(now(p)->text, op) == 0;
}

static bool is_word(const parser *p, const char *word)
{
    return now(p)->kind == JI_T_NAME && strcmp(now(p)->text, word) == 0;
}

static bool take_op(parser *p, const char *op)
{
    if (!is_op(p, op)) return false;
    parse_advance(p);
    return true;
}

static bool parse_take_word(parser *p, const char *word)
{
    if (!is_word(p, word)) return false;
    parse_advance(p);
    return true;
}

static bool expect_op(parser *p, const char *op)
{
    if (take_op(p, op)) return true;
    parse_fail(p, PJ_E_INVALID, "\"%s\" is missing", op);
    return false;
}

static const char *expect_name(parser *p)
{
    if (now(p)->kind != JI_T_NAME) {
        parse_fail(p, PJ_E_INVALID, "a name is missing");
        return "";
    }
    const char *text = now(p)->text;
    parse_advance(p);
    return text;
}

static ji_node *node(parser *p, ji_kind kind)
{
    if (p->status != PJ_OK) return NULL;
    ji_node *made = pj_arena_alloc(p->arena, 1, sizeof *made);
    if (!made) return parse_fail(p, PJ_E_FULL, "the template is too large");
    made->kind = kind;
    made->line = now(p)->line;
    return made;
}

static ji_node *with(parser *p, ji_kind kind, ji_node *a, ji_node *b)
{
    ji_node *made = node(p, kind);
    if (made) {
        made->a = a;
        made->b = b;
        if (a) made->line = a->line;
    }
    return made;
}

static ji_node *with_op(parser *p, ji_kind kind, char op, ji_node *a, ji_node *b)
{
    ji_node *made = with(p, kind, a, b);
    if (made) made->op = op;
    return made;
}

/* Appends to a node's items, whose capacity is a power of two. */
static void parse_append(parser *p, ji_node *to, ji_node *item)
{
    if (!to || p->status != PJ_OK) return;
    size_t n = to->count;
    if ((n & (n - 1)) == 0) { /* full at 0, 1, 2, 4, 8, ... */
        ji_node **items = pj_arena_alloc(p->arena, n ? 2 * n : 1, sizeof *items);
        if (!items) {
            parse_fail(p, PJ_E_FULL, "the template is too large");
            return;
        }
        if (n) memcpy(items, to->items, n * sizeof *items);
        to->items = items;
    }
    to->items[to->count++] = item;
}

static bool parse_enter(parser *p)
{
    if (++p->depth <= MAX_NESTING) return true;
    parse_fail(p, PJ_E_FULL, "it is nested too deeply");
    return false;
}

/* ---- expressions ---- */

static ji_node *parse_expression(parser *p, bool conditional);
static ji_node *parse_unary(parser *p, bool filtered);
static ji_node *parse_postfix(parser *p, ji_node *value);

/* Arguments of a call, filter or test up to ")"; the opening was consumed. */
static void parse_arguments(parser *p, ji_node *call)
{
    const char *names[64];
    bool after_star = false;
    while (p->status == PJ_OK && !take_op(p, ")")) {
        bool more = call->count || after_star;
        if (more && !expect_op(p, ",")) return;
        if (more && take_op(p, ")")) break;
        bool star = is_op(p, "*"), stars = is_op(p, "**");
        if (star || stars) {
            if (call->kind != JI_CALL || call->c || (star && (call->b || call->name_count))) {
                parse_fail(p, PJ_E_UNSUPPORTED, "arguments with * are not supported here");
                return;
            }
            parse_advance(p);
            *(star ? &call->b : &call->c) = parse_expression(p, true);
            after_star = true;
            continue;
        }
        if (call->c) {
            parse_fail(p, PJ_E_INVALID, "an argument follows one with **");
            return;
        }
        bool named = now(p)->kind == JI_T_NAME && p->tokens[p->at + 1].kind == JI_T_OPERATOR &&
                     strcmp(p->tokens[p->at + 1].text, "=") == 0;
        if (named) {
            if (call->name_count == 64) {
                parse_fail(p, PJ_E_FULL, "a call has too many arguments");
                return;
            }
            names[call->name_count++] = expect_name(p);
            parse_advance(p);
        } else if (call->name_count || call->b) {
            parse_fail(p, PJ_E_INVALID, "a positional argument follows a named one");
            return;
        }
        parse_append(p, call, parse_expression(p, true));
    }
    if (call->name_count == 0 || p->status != PJ_OK) return;
    call->names = pj_arena_alloc(p->arena, call->name_count, sizeof *call->names);
    if (call->names)
        memcpy(call->names, names, call->name_count * sizeof *names);
    else
        parse_fail(p, PJ_E_FULL, "the template is too large");
}

static ji_node *parse_call(parser *p, ji_node *callee)
{
    ji_node *call = with(p, JI_CALL, callee, NULL);
    if (call) parse_arguments(p, call);
    return call;
}

static ji_node *parse_filter(parser *p, ji_node *value)
{
    ji_node *filter = with(p, JI_FILTER, value, NULL);
    if (!filter) return NULL;
    filter->text = expect_name(p);
    if (take_op(p, "(")) parse_arguments(p, filter);
    return filter;
}

static bool begins_argument(const parser *p)
{
    ji_token_kind kind = now(p)->kind;
    if (kind == JI_T_NAME) {
        static const char *const words[] = {"else", "or", "and", "if", "in", "not"};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (is_word(p, words[i])) return false;
        return true;
    }
    return kind == JI_T_TEXT || kind == JI_T_INTEGER || kind == JI_T_FLOAT || is_op(p, "(") ||
           is_op(p, "[") || is_op(p, "{");
}

static ji_node *parse_primary(parser *p);

static ji_node *parse_test(parser *p, ji_node *value)
{
    bool negated = parse_take_word(p, "not");
    ji_node *test = with(p, JI_TEST, value, NULL);
    if (!test) return NULL;
    test->text = expect_name(p);
    if (take_op(p, "("))
        parse_arguments(p, test);
    else if (is_word(p, "is"))
        return parse_fail(p, PJ_E_INVALID, "tests cannot be chained with \"is\"");
    else if (begins_argument(p))
        parse_append(p, test, parse_postfix(p, parse_primary(p)));
    return negated ? with_op(p, JI_UNARY, '!', test, NULL) : test;
}

static ji_node *parse_subscript(parser *p, ji_node *value)
{
    ji_node *parts[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (p->status == PJ_OK && !take_op(p, "]")) {
        if (take_op(p, ":")) {
            if (++colons > 2) return parse_fail(p, PJ_E_INVALID, "a slice has too many parts");
        } else if (is_op(p, ","))
            return parse_fail(p, PJ_E_UNSUPPORTED, "subscripts with commas are not supported");
        else if (parts[colons])
            return parse_fail(p, PJ_E_INVALID, "\"]\" is missing");
        else
            parts[colons] = parse_expression(p, true);
    }
    if (colons == 0 && !parts[0]) return parse_fail(p, PJ_E_INVALID, "a subscript is empty");
    if (colons == 0) return with(p, JI_ITEM, value, parts[0]);
    ji_node *slice = with(p, JI_SLICE, value, NULL);
    for (int i = 0; i < 3; i++) parse_append(p, slice, parts[i]);
    return slice;
}

static ji_node *parse_dot(parser *p, ji_node *value)
{
    if (now(p)->kind == JI_T_INTEGER) {
        ji_node *index = node(p, JI_INTEGER);
        if (index) index->integer = now(p)->integer;
        parse_advance(p);
        return with(p, JI_ITEM, value, index);
    }
    ji_node *attribute = with(p, JI_ATTRIBUTE, value, NULL);
    if (attribute) attribute->text = expect_name(p);
    return attribute;
}

static ji_node *parse_postfix(parser *p, ji_node *value)
{
    while (p->status == PJ_OK) {
        if (take_op(p, "."))
            value = parse_dot(p, value);
        else if (take_op(p, "["))
            value = parse_subscript(p, value);
        else if (take_op(p, "("))
            value = parse_call(p, value);
        else
            break;
    }
    return value;
}

static ji_node *parse_filters(parser *p, ji_node *value)
{
    while (p->status == PJ_OK) {
        if (take_op(p, "|"))
            value = parse_filter(p, value);
        else if (parse_take_word(p, "is"))
            value = parse_test(p, value);
        else if (take_op(p, "("))
            value = parse_call(p, value);
        else
            break;
    }
    return value;
}

/* Items up to `closing`; a trailing comma is allowed. */
static void parse_items(parser *p, ji_node *to, const char *closing, bool pairs)
{
    while (p->status == PJ_OK && !take_op(p, closing)) {
        if (to->count && !expect_op(p, ",")) return;
        if (to->count && take_op(p, closing)) return;
        if (to->count > MAX_ITEMS) {
            parse_fail(p, PJ_E_FULL, "a list is too long");
            return;
        }
        parse_append(p, to, parse_expression(p, true));
        if (!pairs) continue;
        if (!expect_op(p, ":")) return;
        parse_append(p, to, parse_expression(p, true));
    }
}

/* After "(": an expression in parentheses or a tuple. */
static ji_node *parse_parentheses(parser *p)
{
    ji_node *tuple = node(p, JI_TUPLE);
    if (!tuple || take_op(p, ")")) return tuple;
    ji_node *first = parse_expression(p, true);
    if (take_op(p, ")")) return first;
    parse_append(p, tuple, first);
    parse_items(p, tuple, ")", false);
    return tuple;
}

static ji_node *parse_text(parser *p)
{
    ji_node *text = node(p, JI_TEXT);
    size_t bytes = 0, first = p->at;
    for (; now(p)->kind == JI_T_TEXT; parse_advance(p)) bytes += now(p)->bytes;
    char *joined = text ? pj_arena_alloc(p->arena, bytes + 1, 1) : NULL;
    if (!joined) return parse_fail(p, PJ_E_FULL, "the template is too large");
    text->text = joined;
    for (size_t i = first; i < p->at; i++) {
        memcpy(joined + text->bytes, p->tokens[i].text, p->tokens[i].bytes);
        text->bytes += p->tokens[i].bytes;
    }
    return text;
}

static ji_node *parse_word(parser *p)
{
    static const char *const constants[] = {"none", "None", "false", "False", "true", "True"};
    for (int i = 0; i < 6; i++)
        if (is_word(p, constants[i])) {
            ji_node *constant = node(p, JI_CONSTANT);
            if (constant) constant->integer = i / 2;
            parse_advance(p);
            return constant;
        }
    if (is_word(p, "varargs")) p->mentioned |= JI_VARARGS;
    if (is_word(p, "kwargs")) p->mentioned |= JI_KWARGS;
    ji_node *name = node(p, JI_NAME);
    if (name) name->text = expect_name(p);
    return name;
}

static ji_node *parse_primary(parser *p)
{
    const ji_token *token = now(p);
    ji_node *made = NULL;
    if (p->status != PJ_OK) return NULL;
    if (token->kind == JI_T_NAME) return parse_word(p);
    if (token->kind == JI_T_TEXT) return parse_text(p);
    if (token->kind == JI_T_INTEGER || token->kind == JI_T_FLOAT) {
        made = node(p, token->kind == JI_T_INTEGER ? JI_INTEGER : JI_FLOAT);
        if (made) {
            made->integer = token->integer;
            made->number = token->number;
        }
        parse_advance(p);
    } else if (take_op(p, "(")) {
        made = parse_parentheses(p);
    } else if (take_op(p, "[")) {
        if ((made = node(p, JI_LIST))) parse_items(p, made, "]", false);
    } else if (take_op(p, "{")) {
        if ((made = node(p, JI_DICT))) parse_items(p, made, "}", true);
    } else
        return parse_fail(p, PJ_E_INVALID, "an expression is missing");
    return made;
}

static ji_node *parse_unary(parser *p, bool filtered)
{
    if (!parse_enter(p)) return NULL;
    ji_node *value;
    if (take_op(p, "-"))
        value = with_op(p, JI_UNARY, '-', parse_unary(p, false), NULL);
    else if (take_op(p, "+"))
        value = with_op(p, JI_UNARY, '+', parse_unary(p, false), NULL);
    else
        value = parse_primary(p);
    value = parse_postfix(p, value);
    if (filtered) value = parse_filters(p, value);
    p->depth--;
    return value;
}

/* The binary operators of one level, left to right. */
typedef struct level {
    const char *operators[5];
    char ops[5];
} level;

static const level levels[] = {{{"+", "-", NULL}, "+-"},
                               {{"~", NULL}, "~"},
                               {{"*", "/", "//", "%", NULL}, "*/f%"},
                               {{"**", NULL}, "p"}};

static ji_node *parse_level(parser *p, size_t which)
{
    if (which == sizeof levels / sizeof *levels) return parse_unary(p, true);
    ji_node *left = parse_level(p, which + 1);
    for (bool more = true; more && p->status == PJ_OK;) {
        more = false;
        for (int i = 0; levels[which].operators[i] && !more; i++)
            if (take_op(p, levels[which].operators[i])) {
                left = with_op(p, JI_BINARY, levels[which].ops[i], left, parse_level(p, which + 1));
                more = true;
            }
    }
    return left;
}

static char take_comparison(parser *p)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (int i = 0; i < 6; i++)
        if (take_op(p, operators[i])) return "=!lg<>"[i];
    if (parse_take_word(p, "in")) return 'i';
    const ji_token *next = &p->tokens[p->at + (p->at + 1 < p->count)];
    if (is_word(p, "not") && next->kind == JI_T_NAME && strcmp(next->text, "in") == 0) {
        parse_advance(p);
        parse_advance(p);
        return 'n';
    }
    return 0;
}

static ji_node *parse_comparison(parser *p)
{
    ji_node *left = parse_level(p, 0), *chain = NULL, *last = NULL;
    for (char op; p->status == PJ_OK && (op = take_comparison(p));) {
        ji_node *right = parse_level(p, 0);
        ji_node *compare = with_op(p, JI_COMPARE, op, left, right);
        if (last && !chain) {
            chain = with(p, JI_CHAIN, NULL, NULL);
            parse_append(p, chain, last);
        }
        if (chain) parse_append(p, chain, compare);
        last = compare;
        left = right;
    }
    return chain ? chain : last ? last : left;
}

static ji_node *parse_not(parser *p)
{
    if (!parse_enter(p)) return NULL;
    ji_node *value = parse_take_word(p, "not") ? with_op(p, JI_UNARY, '!', parse_not(p), NULL)
                                               : parse_comparison(p);
    p->depth--;
    return value;
}

static ji_node *parse_and(parser *p)
{
    ji_node *left = parse_not(p);
    while (p->status == PJ_OK && parse_take_word(p, "and"))
        left = with_op(p, JI_BINARY, '&', left, parse_not(p));
    return left;
}

static ji_node *parse_or(parser *p)
{
    ji_node *left = parse_and(p);
    while (p->status == PJ_OK && parse_take_word(p, "or"))
        left = with_op(p, JI_BINARY, '|', left, parse_and(p));
    return left;
}

static ji_node *parse_expression(parser *p, bool conditional)
{
    if (!parse_enter(p)) return NULL;
    ji_node *value = parse_or(p);
    while (conditional && p->status == PJ_OK && parse_take_word(p, "if")) {
        ji_node *made = with(p, JI_CONDITION, value, parse_or(p));
        if (made && parse_take_word(p, "else")) made->c = parse_expression(p, true);
        value = made;
    }
    p->depth--;
    return value;
}

/* An expression, or a tuple without parentheses. */
static ji_node *parse_tuple(parser *p, bool conditional)
{
    ji_node *first = parse_expression(p, conditional);
    if (!is_op(p, ",")) return first;
    ji_node *tuple = with(p, JI_TUPLE, first, NULL);
    if (!tuple) return NULL;
    tuple->a = NULL;
    parse_append(p, tuple, first);
    while (take_op(p, ",") && p->status == PJ_OK) {
        if (now(p)->kind == JI_T_PRINT_END || now(p)->kind == JI_T_BLOCK_END || is_op(p, "="))
            break;
        parse_append(p, tuple, parse_expression(p, conditional));
    }
    return tuple;
}

/* ---- statements ---- */

static ji_node *parse_body(parser *p, const char *const *stops);

static void expect_block_end(parser *p)
{
    if (now(p)->kind != JI_T_BLOCK_END)
        parse_fail(p, PJ_E_INVALID, "unexpected text at the end of a tag");
    else
        parse_advance(p);
}

/* A name, a tuple of names, or a namespace's member. */
static ji_node *parse_target(parser *p, bool member)
{
    ji_node *first = NULL, *tuple = NULL;
    do {
        if (tuple && now(p)->kind != JI_T_NAME) break;
        bool parenthesis = take_op(p, "(");
        ji_node *name = parenthesis ? parse_target(p, false) : node(p, JI_NAME);
        if (!name) return NULL;
        if (parenthesis) {
            if (!expect_op(p, ")")) return NULL;
        } else
            name->text = expect_name(p);
        if (member && !first && take_op(p, ".")) {
            ji_node *attribute = with(p, JI_ATTRIBUTE, name, NULL);
            if (attribute) attribute->text = expect_name(p);
            return attribute;
        }
        if (!first) {
            first = name;
        } else {
            if (!tuple) parse_append(p, tuple = node(p, JI_TUPLE), first);
            parse_append(p, tuple, name);
        }
        if (is_op(p, ",") && !tuple) parse_append(p, tuple = node(p, JI_TUPLE), first);
    } while (p->status == PJ_OK && take_op(p, ","));
    return tuple ? tuple : first;
}

static ji_node *parse_if(parser *p)
{
    static const char *const stops[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    ji_node *made = node(p, JI_IF);
    if (!made || !parse_enter(p)) return NULL;
    made->b = parse_tuple(p, true);
    expect_block_end(p);
    made->a = parse_body(p, stops);
    if (parse_take_word(p, "elif"))
        made->c = parse_if(p);
    else if (parse_take_word(p, "else")) {
        expect_block_end(p);
        made->c = parse_body(p, last);
        parse_advance(p);
        expect_block_end(p);
    } else {
        parse_advance(p);
        expect_block_end(p);
    }
    p->depth--;
    return made;
}

static ji_node *parse_for(parser *p)
{
    static const char *const stops[] = {"else", "endfor", NULL};
    static const char *const last[] = {"endfor", NULL};
    ji_node *made = node(p, JI_FOR);
    if (!made) return NULL;
    parse_append(p, made, parse_target(p, false));
    if (!parse_take_word(p, "in")) return parse_fail(p, PJ_E_INVALID, "\"in\" is missing");
    parse_append(p, made, parse_tuple(p, false));
    parse_append(p, made, parse_take_word(p, "if") ? parse_expression(p, true) : NULL);
    made->integer = parse_take_word(p, "recursive");
    expect_block_end(p);
    p->loops++;
    made->a = parse_body(p, stops);
    p->loops--;
    if (parse_take_word(p, "else")) {
        expect_block_end(p);
        made->c = parse_body(p, last);
    }
    parse_advance(p);
    expect_block_end(p);
    return made;
}

static ji_node *parse_set(parser *p)
{
    static const char *const stops[] = {"endset", NULL};
    ji_node *target = parse_target(p, true), *made = with(p, JI_SET, target, NULL);
    if (!made) return NULL;
    if (take_op(p, "=")) {
        made->b = parse_tuple(p, true);
        expect_block_end(p);
        return made;
    }
    made->kind = JI_CAPTURE;
    if (is_op(p, "|")) made->c = parse_filters(p, NULL);
    expect_block_end(p);
    made->b = parse_body(p, stops);
    parse_advance(p);
    expect_block_end(p);
    return made;
}

/* Parameters with their defaults, as items: name, default or NULL, ... */
static void parse_parameters(parser *p, ji_node *macro)
{
    if (!expect_op(p, "(")) return;
    while (p->status == PJ_OK && !take_op(p, ")")) {
        if (macro->count && !expect_op(p, ",")) return;
        if (macro->count && take_op(p, ")")) return;
        ji_node *name = node(p, JI_NAME);
        if (name) name->text = expect_name(p);
        parse_append(p, macro, name);
        parse_append(p, macro, take_op(p, "=") ? parse_expression(p, true) : NULL);
    }
}

static ji_node *parse_macro(parser *p)
{
    static const char *const stops[] = {"endmacro", NULL};
    ji_node *made = node(p, JI_MACRO);
    if (!made) return NULL;
    made->text = expect_name(p);
    parse_parameters(p, made);
    expect_block_end(p);
    int loops = p->loops;
    int mentioned = p->mentioned;
    p->loops = 0;
    p->mentioned = 0;
    made->a = parse_body(p, stops);
    made->integer = p->mentioned;
    p->loops = loops;
    p->mentioned = mentioned;
    parse_advance(p);
    expect_block_end(p);
    return made;
}

static ji_node *parse_call_block(parser *p)
{
    static const char *const stops[] = {"endcall", NULL};
    ji_node *made = node(p, JI_CALL_BLOCK), *caller = node(p, JI_MACRO);
    if (!made || !caller) return NULL;
    caller->text = "caller";
    if (is_op(p, "(")) parse_parameters(p, caller);
    made->a = parse_expression(p, true);
    made->b = caller;
    if (made->a && made->a->kind != JI_CALL)
        return parse_fail(p, PJ_E_INVALID, "a call block calls nothing");
    expect_block_end(p);
    caller->a = parse_body(p, stops);
    parse_advance(p);
    expect_block_end(p);
    return made;
}

static ji_node *parse_filter_block(parser *p)
{
    static const char *const stops[] = {"endfilter", NULL};
    ji_node *made = node(p, JI_FILTER_BLOCK);
    if (!made) return NULL;
    made->c = parse_filters(p, parse_filter(p, NULL));
    expect_block_end(p);
    made->a = parse_body(p, stops);
    parse_advance(p);
    expect_block_end(p);
    return made;
}

static ji_node *parse_with(parser *p)
{
    static const char *const stops[] = {"endwith", NULL};
    ji_node *made = node(p, JI_WITH);
    if (!made) return NULL;
    while (p->status == PJ_OK && now(p)->kind != JI_T_BLOCK_END) {
        if (made->count && !expect_op(p, ",")) return NULL;
        parse_append(p, made, parse_target(p, false));
        if (!expect_op(p, "=")) return NULL;
        parse_append(p, made, parse_expression(p, true));
    }
    expect_block_end(p);
    made->a = parse_body(p, stops);
    parse_advance(p);
    expect_block_end(p);
    return made;
}

/* {% generation %} marks the assistant's text for training; its content is output unchanged. */
static ji_node *parse_generation(parser *p)
{
    static const char *const stops[] = {"endgeneration", NULL};
    expect_block_end(p);
    ji_node *body = parse_body(p, stops);
    parse_advance(p);
    expect_block_end(p);
    return body;
}

static ji_node *parse_jump(parser *p, ji_kind kind)
{
    ji_node *made = node(p, kind);
    if (!p->loops) return parse_fail(p, PJ_E_INVALID, "break or continue outside of a loop");
    expect_block_end(p);
    return made;
}

static ji_node *parse_statement(parser *p)
{
    if (parse_take_word(p, "if")) return parse_if(p);
    if (parse_take_word(p, "for")) return parse_for(p);
    if (parse_take_word(p, "set")) return parse_set(p);
    if (parse_take_word(p, "macro")) return parse_macro(p);
    if (parse_take_word(p, "call")) return parse_call_block(p);
    if (parse_take_word(p, "filter")) return parse_filter_block(p);
    if (parse_take_word(p, "with")) return parse_with(p);
    if (parse_take_word(p, "generation")) return parse_generation(p);
    if (parse_take_word(p, "break")) return parse_jump(p, JI_BREAK);
    if (parse_take_word(p, "continue")) return parse_jump(p, JI_CONTINUE);
    bool name = now(p)->kind == JI_T_NAME;
    return parse_fail(p, PJ_E_UNSUPPORTED, "the statement \"%s\" is not supported",
                      name ? now(p)->text : "?");
}

static bool is_stop(const parser *p, const char *const *stops)
{
    for (; stops && *stops; stops++)
        if (is_word(p, *stops)) return true;
    return false;
}

/* Parses up to a tag with one of these words, which is not consumed. */
static ji_node *parse_body(parser *p, const char *const *stops)
{
    ji_node *body = node(p, JI_BLOCK);
    if (!body || !parse_enter(p)) return NULL;
    while (p->status == PJ_OK) {
        const ji_token *token = now(p);
        if (token->kind == JI_T_END) {
            if (stops) parse_fail(p, PJ_E_INVALID, "\"%s\" is missing", stops[0]);
            break;
        }
        parse_advance(p);
        if (token->kind == JI_T_DATA) {
            ji_node *data = node(p, JI_DATA);
            if (data) {
                data->text = token->text;
                data->bytes = token->bytes;
            }
            parse_append(p, body, data);
        } else if (token->kind == JI_T_PRINT_BEGIN) {
            ji_node *print = node(p, JI_PRINT);
            if (print) print->a = parse_tuple(p, true);
            if (now(p)->kind != JI_T_PRINT_END)
                parse_fail(p, PJ_E_INVALID, "unexpected text at the end of an expression");
            parse_advance(p);
            parse_append(p, body, print);
        } else {
            if (is_stop(p, stops)) break;
            parse_append(p, body, parse_statement(p));
        }
    }
    p->depth--;
    return body;
}

pj_status ji_parse(const ji_token *tokens, size_t count, const char *name, pj_arena *arena,
                   ji_node **root, pj_error *err)
{
    parser p = {.tokens = tokens, .count = count, .name = name, .arena = arena, .err = err};
    *root = parse_body(&p, NULL);
    return p.status;
}
