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
    ji_node spare; /* what every function gives after an error, so that none has to check */
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
    return &p->spare;
}

static void parse_advance(parser *p)
{
    if (p->at + 1 < p->count) p->at++;
}

/* Whether the next token is this operator or word. */
static bool is(const parser *p, const char *text)
{
    bool spelled = now(p)->kind == JI_T_OPERATOR || now(p)->kind == JI_T_NAME;
    return spelled && strcmp(now(p)->text, text) == 0;
}

static bool take(parser *p, const char *text)
{
    if (!is(p, text)) return false;
    parse_advance(p);
    return true;
}

static bool expect(parser *p, const char *text)
{
    if (take(p, text)) return true;
    parse_fail(p, PJ_E_INVALID, "\"%s\" is missing", text);
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
    if (p->status != PJ_OK) return &p->spare;
    ji_node *made = pj_arena_alloc(p->arena, 1, sizeof *made);
    if (!made) return parse_fail(p, PJ_E_FULL, "the template is too large");
    made->kind = kind;
    made->line = now(p)->line;
    return made;
}

static ji_node *with(parser *p, ji_kind kind, ji_node *a, ji_node *b)
{
    ji_node *made = node(p, kind);
    made->a = a;
    made->b = b;
    if (a) made->line = a->line;
    return made;
}

static ji_node *with_op(parser *p, ji_kind kind, char op, ji_node *a, ji_node *b)
{
    ji_node *made = with(p, kind, a, b);
    made->op = op;
    return made;
}

static ji_node *parse_name(parser *p)
{
    ji_node *name = node(p, JI_NAME);
    name->text = expect_name(p);
    return name;
}

static ji_node *parse_attribute(parser *p, ji_node *value)
{
    ji_node *attribute = with(p, JI_ATTRIBUTE, value, NULL);
    attribute->text = expect_name(p);
    return attribute;
}

/* Appends to a node's items, whose capacity is a power of two. */
static void parse_append(parser *p, ji_node *to, ji_node *item)
{
    if (p->status != PJ_OK) return;
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

/* False: nested too deeply, or after an error. */
static bool parse_enter(parser *p)
{
    if (p->status == PJ_OK && ++p->depth <= MAX_NESTING) return true;
    parse_fail(p, PJ_E_FULL, "it is nested too deeply");
    return false;
}

/* ---- expressions ---- */

static ji_node *parse_expression(parser *p, bool conditional);
static ji_node *parse_unary(parser *p, bool filtered);
static ji_node *parse_postfix(parser *p, ji_node *value);

static ji_node *parse_named(parser *p)
{
    ji_node *named = node(p, JI_NAMED);
    named->text = expect_name(p);
    expect(p, "=");
    named->a = parse_expression(p, true);
    return named;
}

/* Arguments of a call, filter or test up to ")"; the opening was consumed. */
static void parse_arguments(parser *p, ji_node *call)
{
    bool named = false;
    while (p->status == PJ_OK && !take(p, ")")) {
        bool more = call->count || call->b || call->c;
        if (more && !expect(p, ",")) return;
        if (more && take(p, ")")) return;
        bool star = is(p, "*");
        if (star || is(p, "**")) {
            if (call->kind != JI_CALL || call->c || (star && (call->b || named)))
                parse_fail(p, PJ_E_UNSUPPORTED, "arguments with * are not supported here");
            parse_advance(p);
            *(star ? &call->b : &call->c) = parse_expression(p, true);
            continue;
        }
        const ji_token *next = now(p) + 1;
        bool has_name = now(p)->kind == JI_T_NAME && next->kind == JI_T_OPERATOR &&
                        strcmp(next->text, "=") == 0;
        if (call->c)
            parse_fail(p, PJ_E_INVALID, "an argument follows one with **");
        else if (!has_name && (named || call->b))
            parse_fail(p, PJ_E_INVALID, "a positional argument follows a named one");
        named = has_name;
        parse_append(p, call, named ? parse_named(p) : parse_expression(p, true));
    }
}

static ji_node *parse_call(parser *p, ji_node *callee)
{
    ji_node *call = with(p, JI_CALL, callee, NULL);
    parse_arguments(p, call);
    return call;
}

static ji_node *parse_filter(parser *p, ji_node *value)
{
    ji_node *filter = with(p, JI_FILTER, value, NULL);
    filter->text = expect_name(p);
    if (take(p, "(")) parse_arguments(p, filter);
    return filter;
}

static bool begins_argument(const parser *p)
{
    ji_token_kind kind = now(p)->kind;
    if (kind == JI_T_NAME) {
        static const char *const words[] = {"else", "or", "and", "if", "in", "not"};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (is(p, words[i])) return false;
        return true;
    }
    return kind == JI_T_TEXT || kind == JI_T_INTEGER || kind == JI_T_FLOAT || is(p, "(") ||
           is(p, "[") || is(p, "{");
}

static ji_node *parse_primary(parser *p);

static ji_node *parse_test(parser *p, ji_node *value)
{
    bool negated = take(p, "not");
    ji_node *test = with(p, JI_TEST, value, NULL);
    test->text = expect_name(p);
    if (take(p, "("))
        parse_arguments(p, test);
    else if (is(p, "is"))
        return parse_fail(p, PJ_E_INVALID, "tests cannot be chained with \"is\"");
    else if (begins_argument(p))
        parse_append(p, test, parse_postfix(p, parse_primary(p)));
    return negated ? with_op(p, JI_UNARY, '!', test, NULL) : test;
}

static ji_node *parse_subscript(parser *p, ji_node *value)
{
    ji_node *parts[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (p->status == PJ_OK && !take(p, "]")) {
        if (take(p, ":")) {
            if (++colons > 2) return parse_fail(p, PJ_E_INVALID, "a slice has too many parts");
        } else if (is(p, ","))
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

static ji_node *parse_number(parser *p)
{
    ji_node *number = node(p, now(p)->kind == JI_T_INTEGER ? JI_INTEGER : JI_FLOAT);
    number->integer = now(p)->integer;
    number->number = now(p)->number;
    parse_advance(p);
    return number;
}

static ji_node *parse_dot(parser *p, ji_node *value)
{
    if (now(p)->kind != JI_T_INTEGER) return parse_attribute(p, value);
    return with(p, JI_ITEM, value, parse_number(p));
}

static ji_node *parse_postfix(parser *p, ji_node *value)
{
    while (p->status == PJ_OK) {
        if (take(p, "."))
            value = parse_dot(p, value);
        else if (take(p, "["))
            value = parse_subscript(p, value);
        else if (take(p, "("))
            value = parse_call(p, value);
        else
            break;
    }
    return value;
}

static ji_node *parse_filters(parser *p, ji_node *value)
{
    while (p->status == PJ_OK) {
        if (take(p, "|"))
            value = parse_filter(p, value);
        else if (take(p, "is"))
            value = parse_test(p, value);
        else if (take(p, "("))
            value = parse_call(p, value);
        else
            break;
    }
    return value;
}

/* Items up to `closing`; a trailing comma is allowed. */
static void parse_items(parser *p, ji_node *to, const char *closing, bool pairs)
{
    while (p->status == PJ_OK && !take(p, closing)) {
        if (to->count && !expect(p, ",")) return;
        if (to->count && take(p, closing)) return;
        if (to->count > MAX_ITEMS) {
            parse_fail(p, PJ_E_FULL, "a list is too long");
            return;
        }
        parse_append(p, to, parse_expression(p, true));
        if (!pairs) continue;
        if (!expect(p, ":")) return;
        parse_append(p, to, parse_expression(p, true));
    }
}

/* After "(": an expression in parentheses or a tuple. */
static ji_node *parse_parentheses(parser *p)
{
    ji_node *tuple = node(p, JI_TUPLE);
    if (take(p, ")")) return tuple;
    ji_node *first = parse_expression(p, true);
    if (take(p, ")")) return first;
    parse_append(p, tuple, first);
    parse_items(p, tuple, ")", false);
    return tuple;
}

static ji_node *parse_text(parser *p)
{
    ji_node *text = node(p, JI_TEXT);
    size_t bytes = 0, first = p->at;
    for (; now(p)->kind == JI_T_TEXT; parse_advance(p)) bytes += now(p)->bytes;
    char *joined = pj_arena_alloc(p->arena, bytes + 1, 1);
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
        if (is(p, constants[i])) {
            ji_node *constant = node(p, JI_CONSTANT);
            constant->integer = i / 2;
            parse_advance(p);
            return constant;
        }
    if (is(p, "varargs")) p->mentioned |= JI_VARARGS;
    if (is(p, "kwargs")) p->mentioned |= JI_KWARGS;
    return parse_name(p);
}

/* The items of a list or dictionary, whose bracket was consumed. */
static ji_node *parse_container(parser *p, ji_kind kind, const char *closing)
{
    ji_node *made = node(p, kind);
    parse_items(p, made, closing, kind == JI_DICT);
    return made;
}

static ji_node *parse_primary(parser *p)
{
    ji_token_kind kind = now(p)->kind;
    if (p->status != PJ_OK) return &p->spare;
    if (kind == JI_T_NAME) return parse_word(p);
    if (kind == JI_T_TEXT) return parse_text(p);
    if (kind == JI_T_INTEGER || kind == JI_T_FLOAT) return parse_number(p);
    if (take(p, "(")) return parse_parentheses(p);
    if (take(p, "[")) return parse_container(p, JI_LIST, "]");
    if (take(p, "{")) return parse_container(p, JI_DICT, "}");
    return parse_fail(p, PJ_E_INVALID, "an expression is missing");
}

static ji_node *parse_unary(parser *p, bool filtered)
{
    if (!parse_enter(p)) return &p->spare;
    ji_node *value;
    if (take(p, "-"))
        value = with_op(p, JI_UNARY, '-', parse_unary(p, false), NULL);
    else if (take(p, "+"))
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
    const char *operators[8];
    char ops[8];
} level;

/* `not`, and below it the comparisons, have functions of their own. */
enum { NOT_LEVEL = 2, LEVELS = 7 };

static const level levels[LEVELS] = {
    [0] = {{"or"}, "|"},
    [1] = {{"and"}, "&"},
    [3] = {{"+", "-"}, "+-"},
    [4] = {{"~"}, "~"},
    [5] = {{"*", "/", "//", "%"}, "*/f%"},
    [6] = {{"**"}, "p"},
};

static char take_operator(parser *p, const level *of)
{
    for (int i = 0; of->operators[i]; i++)
        if (take(p, of->operators[i])) return of->ops[i];
    return 0;
}

static ji_node *parse_not(parser *p);

static ji_node *parse_level(parser *p, size_t which)
{
    if (which == NOT_LEVEL) return parse_not(p);
    if (which == LEVELS) return parse_unary(p, true);
    ji_node *left = parse_level(p, which + 1);
    for (char op; p->status == PJ_OK && (op = take_operator(p, &levels[which]));)
        left = with_op(p, JI_BINARY, op, left, parse_level(p, which + 1));
    return left;
}

static char take_comparison(parser *p)
{
    static const level comparisons = {{"==", "!=", "<=", ">=", "<", ">", "in"}, "=!lg<>i"};
    char op = take_operator(p, &comparisons);
    if (op) return op;
    const ji_token *next = &p->tokens[p->at + (p->at + 1 < p->count)];
    if (is(p, "not") && next->kind == JI_T_NAME && strcmp(next->text, "in") == 0) {
        parse_advance(p);
        parse_advance(p);
        return 'n';
    }
    return 0;
}

static ji_node *parse_comparison(parser *p)
{
    ji_node *first = parse_level(p, NOT_LEVEL + 1), *chain = NULL;
    for (char op; p->status == PJ_OK && (op = take_comparison(p));) {
        if (!chain) chain = with(p, JI_CHAIN, first, NULL);
        parse_append(p, chain, with_op(p, JI_COMPARE, op, parse_level(p, NOT_LEVEL + 1), NULL));
    }
    return chain ? chain : first;
}

static ji_node *parse_not(parser *p)
{
    if (!parse_enter(p)) return &p->spare;
    ji_node *value =
        take(p, "not") ? with_op(p, JI_UNARY, '!', parse_not(p), NULL) : parse_comparison(p);
    p->depth--;
    return value;
}

static ji_node *parse_expression(parser *p, bool conditional)
{
    if (!parse_enter(p)) return &p->spare;
    ji_node *value = parse_level(p, 0);
    while (conditional && p->status == PJ_OK && take(p, "if")) {
        ji_node *made = with(p, JI_CONDITION, value, parse_level(p, 0));
        if (take(p, "else")) made->c = parse_expression(p, true);
        value = made;
    }
    p->depth--;
    return value;
}

/* An expression, or a tuple without parentheses. */
static ji_node *parse_tuple(parser *p, bool conditional)
{
    ji_node *first = parse_expression(p, conditional);
    if (!is(p, ",")) return first;
    ji_node *tuple = node(p, JI_TUPLE);
    tuple->line = first->line;
    parse_append(p, tuple, first);
    while (take(p, ",") && p->status == PJ_OK) {
        if (now(p)->kind == JI_T_PRINT_END || now(p)->kind == JI_T_BLOCK_END || is(p, "=")) break;
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

/* The rest of a tag, and the body up to the tag `end`, which is consumed. */
static ji_node *parse_block(parser *p, const char *end)
{
    expect_block_end(p);
    ji_node *body = parse_body(p, (const char *const[]){end, NULL});
    parse_advance(p);
    expect_block_end(p);
    return body;
}

/* After a body: the one of its else, or NULL; the tag `end` is consumed. */
static ji_node *parse_else(parser *p, const char *end)
{
    if (take(p, "else")) return parse_block(p, end);
    parse_advance(p);
    expect_block_end(p);
    return NULL;
}

static ji_node *parse_target(parser *p, bool member);

static ji_node *parse_one_target(parser *p)
{
    if (!take(p, "(")) return parse_name(p);
    if (!parse_enter(p)) return &p->spare;
    ji_node *inner = parse_target(p, false);
    expect(p, ")");
    p->depth--;
    return inner;
}

/* A name, a tuple of names, or a namespace's member. */
static ji_node *parse_target(parser *p, bool member)
{
    ji_node *first = parse_one_target(p);
    if (member && take(p, ".")) return parse_attribute(p, first);
    if (!is(p, ",")) return first;
    ji_node *tuple = node(p, JI_TUPLE);
    parse_append(p, tuple, first);
    while (p->status == PJ_OK && take(p, ",") && (now(p)->kind == JI_T_NAME || is(p, "(")))
        parse_append(p, tuple, parse_one_target(p));
    return tuple;
}

static ji_node *parse_if(parser *p)
{
    static const char *const stops[] = {"elif", "else", "endif", NULL};
    ji_node *made = node(p, JI_IF);
    if (!parse_enter(p)) return made;
    made->b = parse_tuple(p, true);
    expect_block_end(p);
    made->a = parse_body(p, stops);
    made->c = take(p, "elif") ? parse_if(p) : parse_else(p, "endif");
    p->depth--;
    return made;
}

static ji_node *parse_for(parser *p)
{
    static const char *const stops[] = {"else", "endfor", NULL};
    ji_node *made = node(p, JI_FOR);
    parse_append(p, made, parse_target(p, false));
    expect(p, "in");
    parse_append(p, made, parse_tuple(p, false));
    parse_append(p, made, take(p, "if") ? parse_expression(p, true) : NULL);
    made->integer = take(p, "recursive");
    expect_block_end(p);
    p->loops++;
    made->a = parse_body(p, stops);
    p->loops--;
    made->c = parse_else(p, "endfor");
    return made;
}

static ji_node *parse_set(parser *p)
{
    ji_node *made = with(p, JI_SET, parse_target(p, true), NULL);
    if (take(p, "=")) {
        made->b = parse_tuple(p, true);
        expect_block_end(p);
        return made;
    }
    made->kind = JI_CAPTURE;
    if (is(p, "|")) made->c = parse_filters(p, NULL);
    made->b = parse_block(p, "endset");
    return made;
}

/* Parameters with their defaults, as items: name, default or NULL, ... */
static void parse_parameters(parser *p, ji_node *macro)
{
    if (!expect(p, "(")) return;
    while (p->status == PJ_OK && !take(p, ")")) {
        if (macro->count && !expect(p, ",")) return;
        if (macro->count && take(p, ")")) return;
        parse_append(p, macro, parse_name(p));
        parse_append(p, macro, take(p, "=") ? parse_expression(p, true) : NULL);
    }
}

static ji_node *parse_macro(parser *p)
{
    ji_node *made = node(p, JI_MACRO);
    made->text = expect_name(p);
    parse_parameters(p, made);
    int loops = p->loops, mentioned = p->mentioned;
    p->loops = p->mentioned = 0;
    made->a = parse_block(p, "endmacro");
    made->integer = p->mentioned;
    p->loops = loops;
    p->mentioned = mentioned;
    return made;
}

static ji_node *parse_call_block(parser *p)
{
    ji_node *made = node(p, JI_CALL_BLOCK), *caller = node(p, JI_MACRO);
    caller->text = "caller";
    if (is(p, "(")) parse_parameters(p, caller);
    made->a = parse_expression(p, true);
    made->b = caller;
    if (made->a->kind != JI_CALL) parse_fail(p, PJ_E_INVALID, "a call block calls nothing");
    caller->a = parse_block(p, "endcall");
    return made;
}

static ji_node *parse_filter_block(parser *p)
{
    ji_node *made = node(p, JI_FILTER_BLOCK);
    made->c = parse_filters(p, parse_filter(p, NULL));
    made->a = parse_block(p, "endfilter");
    return made;
}

static ji_node *parse_with(parser *p)
{
    ji_node *made = node(p, JI_WITH);
    while (p->status == PJ_OK && now(p)->kind != JI_T_BLOCK_END) {
        if (made->count) expect(p, ",");
        parse_append(p, made, parse_target(p, false));
        expect(p, "=");
        parse_append(p, made, parse_expression(p, true));
    }
    made->a = parse_block(p, "endwith");
    return made;
}

static ji_node *parse_jump(parser *p, ji_kind kind)
{
    ji_node *made = node(p, kind);
    if (!p->loops) parse_fail(p, PJ_E_INVALID, "break or continue outside of a loop");
    expect_block_end(p);
    return made;
}

static ji_node *parse_statement(parser *p)
{
    if (take(p, "if")) return parse_if(p);
    if (take(p, "for")) return parse_for(p);
    if (take(p, "set")) return parse_set(p);
    if (take(p, "macro")) return parse_macro(p);
    if (take(p, "call")) return parse_call_block(p);
    if (take(p, "filter")) return parse_filter_block(p);
    if (take(p, "with")) return parse_with(p);
    /* marks the assistant's text for training; its content is output unchanged */
    if (take(p, "generation")) return parse_block(p, "endgeneration");
    if (take(p, "break")) return parse_jump(p, JI_BREAK);
    if (take(p, "continue")) return parse_jump(p, JI_CONTINUE);
    bool name = now(p)->kind == JI_T_NAME;
    return parse_fail(p, PJ_E_UNSUPPORTED, "the statement \"%s\" is not supported",
                      name ? now(p)->text : "?");
}

static bool is_stop(const parser *p, const char *const *stops)
{
    for (; stops && *stops; stops++)
        if (is(p, *stops)) return true;
    return false;
}

/* Parses up to a tag with one of these words, which is not consumed. */
static ji_node *parse_body(parser *p, const char *const *stops)
{
    ji_node *body = node(p, JI_BLOCK);
    if (!parse_enter(p)) return body;
    while (p->status == PJ_OK) {
        const ji_token *token = now(p);
        if (token->kind == JI_T_END) {
            if (stops) parse_fail(p, PJ_E_INVALID, "\"%s\" is missing", stops[0]);
            break;
        }
        parse_advance(p);
        if (token->kind == JI_T_DATA) {
            ji_node *data = node(p, JI_DATA);
            data->text = token->text;
            data->bytes = token->bytes;
            parse_append(p, body, data);
        } else if (token->kind == JI_T_PRINT_BEGIN) {
            ji_node *print = node(p, JI_PRINT);
            print->a = parse_tuple(p, true);
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
