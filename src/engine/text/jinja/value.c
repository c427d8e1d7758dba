/* Values: construction, comparison and output. */
#include "engine/text/jinja/value.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRITE_DEPTH = 100 };
enum { MAX_EQUAL_DEPTH = 400 }; /* beyond the evaluator's own */

const jv_string jv_empty = {.text = ""};

/* ---- failing and allocating ---- */

jv jv_fail(jv_run *run, pj_status status, const char *format, ...)
{
    if (!run->failed) {
        char text[300];
        va_list list;
        va_start(list, format);
        vsnprintf(text, sizeof text, format, list);
        va_end(list);
        run->failed = true;
        pj_fail(run->err, status, "%s, line %d: %s", run->template_name, run->line, text);
    }
    return jv_undefined(NULL);
}

jv jv_fail_undefined(jv_run *run, jv value, const char *what)
{
    return jv_fail(run, PJ_E_INVALID, "'%s' is undefined", value.name ? value.name : what);
}

void *jv_alloc(jv_run *run, size_t count, size_t size)
{
    void *block = run->failed ? NULL : pj_arena_alloc(&run->arena, count ? count : 1, size);
    if (!block && !run->failed) jv_fail(run, PJ_E_FULL, "it needs too much memory");
    return block;
}

bool jv_step(jv_run *run, size_t count)
{
    if (run->failed) return false;
    if (run->steps < count) {
        jv_fail(run, PJ_E_FULL, "it takes too many steps");
        return false;
    }
    run->steps -= count;
    return true;
}

bool jv_look(jv_run *run, size_t bytes)
{
    return jv_step(run, 1 + bytes / 16);
}

/* ---- making ---- */

jv jv_bytes(jv_run *run, const char *text, const uint8_t *marks, size_t n)
{
    jv_string *string = jv_alloc(run, 1, sizeof *string);
    if (!string) return jv_undefined(NULL);
    *string = (jv_string){text, marks, n, false};
    return (jv){.kind = JV_STRING, .string = string};
}

jv jv_text(jv_run *run, const char *text)
{
    return jv_bytes(run, text, NULL, strlen(text));
}

jv jv_slice(jv_run *run, const jv_string *of, size_t begin, size_t end)
{
    if (end < begin) end = begin;
    return jv_bytes(run, of->text + begin, of->marks ? of->marks + begin : NULL, end - begin);
}

jv jv_list_new(jv_run *run, size_t capacity)
{
    jv_list *list = jv_alloc(run, 1, sizeof *list);
    if (!list) return jv_undefined(NULL);
    list->capacity = capacity;
    list->items = capacity ? jv_alloc(run, capacity, sizeof *list->items) : NULL;
    return list->items || !capacity ? (jv){.kind = JV_LIST, .list = list} : jv_undefined(NULL);
}

void jv_list_add(jv_run *run, jv value, jv item)
{
    if (run->failed || value.kind != JV_LIST) return;
    jv_list *list = value.list;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        jv *items = jv_alloc(run, capacity, sizeof *items);
        if (!items) return;
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

void jv_list_extend(jv_run *run, jv list, const jv *items, size_t count)
{
    for (size_t i = 0; i < count; i++) jv_list_add(run, list, items[i]);
}

jv jv_list_of(jv_run *run, const jv *items, size_t count)
{
    jv list = jv_list_new(run, count);
    jv_list_extend(run, list, items, count);
    return list;
}

jv jv_tuple_of(jv_run *run, const jv *items, size_t count)
{
    jv list = jv_list_of(run, items, count);
    if (list.kind == JV_LIST) list.list->tuple = true;
    return list;
}

jv jv_list_joined(jv_run *run, const jv_list *a, const jv_list *b)
{
    jv list = jv_list_new(run, a->count + b->count);
    jv_list_extend(run, list, a->items, a->count);
    jv_list_extend(run, list, b->items, b->count);
    if (list.kind == JV_LIST) list.list->tuple = a->tuple;
    return list;
}

jv jv_list_as(jv list, jv_list_kind kind)
{
    if (list.kind == JV_LIST) list.list->is = kind;
    return list;
}

bool jv_is_generator(jv value)
{
    return value.kind == JV_LIST && value.list->is == JV_GENERATOR;
}

bool jv_is_plain_list(jv value)
{
    return value.kind == JV_LIST && value.list->is == JV_PLAIN;
}

jv jv_dict_new(jv_run *run)
{
    jv_dict *dict = jv_alloc(run, 1, sizeof *dict);
    return dict ? (jv){.kind = JV_DICT, .dict = dict} : jv_undefined(NULL);
}

const jv *jv_dict_find(jv_run *run, const jv_dict *dict, jv key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (jv_equal(run, dict->keys[i], key)) return &dict->values[i];
    return NULL;
}

const jv *jv_dict_get(const jv_dict *dict, const char *key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (jv_is_text(dict->keys[i], key)) return &dict->values[i];
    return NULL;
}

static bool dict_grow(jv_run *run, jv_dict *dict)
{
    size_t capacity = dict->capacity ? 2 * dict->capacity : 8;
    jv *keys = jv_alloc(run, capacity, sizeof *keys);
    jv *values = jv_alloc(run, capacity, sizeof *values);
    if (!keys || !values) return false;
    if (dict->count) {
        memcpy(keys, dict->keys, dict->count * sizeof *keys);
        memcpy(values, dict->values, dict->count * sizeof *values);
    }
    dict->keys = keys;
    dict->values = values;
    dict->capacity = capacity;
    return true;
}

/* Lists and dictionaries cannot be keys; nor can tuples that hold one, which is not checked. */
static bool jv_hashable(jv_run *run, jv key)
{
    bool good = key.kind != JV_DICT && (key.kind != JV_LIST || key.list->tuple);
    if (!good) jv_fail(run, PJ_E_INVALID, "unhashable type: '%s'", jv_type_name(key));
    return good;
}

void jv_dict_set(jv_run *run, jv to, jv key, jv value)
{
    if (run->failed) return;
    jv_dict *dict = to.dict;
    if (!jv_hashable(run, key)) return;
    jv *old = (jv *)(uintptr_t)jv_dict_find(run, dict, key);
    if (run->failed) return;
    if (old) {
        *old = value;
        return;
    }
    if (dict->count == dict->capacity && !dict_grow(run, dict)) return;
    dict->keys[dict->count] = key;
    dict->values[dict->count++] = value;
}

void jv_dict_update(jv_run *run, jv dict, const jv_dict *from)
{
    for (size_t i = 0; i < from->count && !run->failed; i++)
        jv_dict_set(run, dict, from->keys[i], from->values[i]);
}

/* ---- building strings ---- */

/* Makes room for `more` bytes, and for marks once a byte is data. */
static bool builder_room(jv_builder *b, size_t more, bool marked)
{
    size_t need = b->bytes + more;
    if (need > b->capacity) {
        size_t capacity = b->capacity ? b->capacity : 64;
        while (capacity < need) capacity *= 2;
        char *text = jv_alloc(b->run, capacity, 1);
        if (!text) return false;
        if (b->bytes) memcpy(text, b->text, b->bytes);
        if (b->marks) {
            uint8_t *marks = jv_alloc(b->run, capacity, 1);
            if (!marks) return false;
            memcpy(marks, b->marks, b->bytes);
            b->marks = marks;
        }
        b->text = text;
        b->capacity = capacity;
    }
    if (marked && !b->marks) b->marks = jv_alloc(b->run, b->capacity, 1); /* zeroed */
    return !marked || b->marks;
}

void jv_add(jv_builder *b, const char *text, const uint8_t *marks, size_t bytes)
{
    if (bytes == 0 || !jv_step(b->run, bytes / 64) || !builder_room(b, bytes, marks != NULL))
        return;
    memcpy(b->text + b->bytes, text, bytes);
    if (marks)
        memcpy(b->marks + b->bytes, marks, bytes);
    else if (b->marks)
        memset(b->marks + b->bytes, 0, bytes);
    b->bytes += bytes;
}

void jv_add_text(jv_builder *b, const char *text)
{
    jv_add(b, text, NULL, strlen(text));
}

void jv_add_part(jv_builder *b, const jv_string *string, size_t begin, size_t end)
{
    const uint8_t *marks = string->marks ? string->marks + begin : NULL;
    jv_add(b, string->text + begin, marks, end - begin);
}

void jv_add_string(jv_builder *b, const jv_string *string)
{
    jv_add_part(b, string, 0, string->bytes);
}

jv jv_built(jv_builder *b)
{
    return jv_bytes(b->run, b->text ? b->text : "", b->marks, b->bytes);
}

/* ---- telling about ---- */

const char *jv_type_name(jv value)
{
    switch (value.kind) {
    case JV_UNDEFINED: return "Undefined";
    case JV_NONE: return "NoneType";
    case JV_BOOL: return "bool";
    case JV_INT: return "int";
    case JV_FLOAT: return "float";
    case JV_STRING: return "str";
    case JV_LIST:
        return value.list->is == JV_GENERATOR ? "generator"
               : value.list->is == JV_VIEW    ? "range or view"
               : value.list->tuple            ? "tuple"
                                              : "list";
    case JV_DICT: return "dict";
    case JV_NAMESPACE: return "Namespace";
    case JV_LOOP: return "LoopContext";
    case JV_CALLABLE: return "function";
    }
    return "?";
}

bool jv_true(jv value)
{
    switch (value.kind) {
    case JV_UNDEFINED:
    case JV_NONE: return false;
    case JV_BOOL: return value.boolean;
    case JV_INT: return value.integer != 0;
    case JV_FLOAT: return value.number != 0;
    case JV_STRING: return value.string->bytes > 0;
    case JV_LIST: return value.list->is == JV_GENERATOR || value.list->count > 0;
    case JV_DICT: return value.dict->count > 0;
    default: return true;
    }
}

bool jv_is_number(jv value)
{
    return value.kind == JV_BOOL || value.kind == JV_INT || value.kind == JV_FLOAT;
}

double jv_number(jv value)
{
    if (value.kind == JV_FLOAT) return value.number;
    return value.kind == JV_BOOL ? value.boolean : (double)value.integer;
}

bool jv_integer(jv value, int64_t *out)
{
    if (value.kind != JV_INT && value.kind != JV_BOOL) return false;
    *out = value.kind == JV_BOOL ? value.boolean : value.integer;
    return true;
}

bool jv_is_text(jv value, const char *text)
{
    return value.kind == JV_STRING && strlen(text) == value.string->bytes &&
           memcmp(value.string->text, text, value.string->bytes) == 0;
}

static bool lists_equal(jv_run *run, const jv_list *a, const jv_list *b)
{
    if (a == b) return true;
    if (a->is == JV_GENERATOR || b->is == JV_GENERATOR) return false;
    if (a->count != b->count || a->tuple != b->tuple) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!jv_equal(run, a->items[i], b->items[i])) return false;
    return true;
}

static bool dicts_equal(jv_run *run, const jv_dict *a, const jv_dict *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const jv *other = jv_dict_find(run, b, a->keys[i]);
        if (!other || !jv_equal(run, a->values[i], *other)) return false;
    }
    return true;
}

/* Containers may be nested deeply, and hold the same value many times over. */
static bool containers_equal(jv_run *run, jv a, jv b)
{
    bool equal = false;
    if (++run->depth > MAX_EQUAL_DEPTH)
        jv_fail(run, PJ_E_FULL, "values are nested too deeply");
    else
        equal =
            a.kind == JV_LIST ? lists_equal(run, a.list, b.list) : dicts_equal(run, a.dict, b.dict);
    run->depth--;
    return equal && !run->failed;
}

bool jv_equal(jv_run *run, jv a, jv b)
{
    if (!jv_step(run, 1)) return false;
    if (jv_is_number(a) && jv_is_number(b)) {
        int64_t x, y;
        if (jv_integer(a, &x) && jv_integer(b, &y)) return x == y;
        return jv_number(a) == jv_number(b);
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JV_UNDEFINED:
    case JV_NONE: return true;
    case JV_STRING:
        return a.string->bytes == b.string->bytes && jv_step(run, a.string->bytes / 64) &&
               memcmp(a.string->text, b.string->text, a.string->bytes) == 0;
    case JV_LIST:
    case JV_DICT: return containers_equal(run, a, b);
    case JV_NAMESPACE: return a.dict == b.dict;
    case JV_LOOP: return a.loop == b.loop;
    default: return a.callable == b.callable;
    }
}

static int compare_bytes(const jv_string *a, const jv_string *b)
{
    size_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    /* UTF-8 preserves code point order */
    int order = common ? memcmp(a->text, b->text, common) : 0;
    if (order) return order < 0 ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

int jv_compare(jv_run *run, jv a, jv b)
{
    int64_t x, y;
    if (jv_integer(a, &x) && jv_integer(b, &y)) return x < y ? -1 : x > y;
    if (jv_is_number(a) && jv_is_number(b)) {
        double p = jv_number(a), q = jv_number(b);
        return p < q ? -1 : p > q;
    }
    if (a.kind == JV_STRING && b.kind == JV_STRING) return compare_bytes(a.string, b.string);
    if (jv_is_plain_list(a) && jv_is_plain_list(b) && a.list->tuple == b.list->tuple) {
        for (size_t i = 0; i < a.list->count && i < b.list->count; i++)
            if (!jv_equal(run, a.list->items[i], b.list->items[i])) {
                if (run->failed) return 0;
                if (++run->depth > 64) break;
                int order = jv_compare(run, a.list->items[i], b.list->items[i]);
                run->depth--;
                return order;
            }
        return a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
    }
    jv_fail(run, PJ_E_INVALID, "%s and %s cannot be ordered", jv_type_name(a), jv_type_name(b));
    return 0;
}

/* ---- characters ---- */

static size_t character_bytes(const jv_string *s, size_t at)
{
    uint32_t code;
    return pj_utf8_step(s->text + at, s->bytes - at, &code);
}

size_t jv_length(const jv_string *string)
{
    size_t count = 0;
    for (size_t at = 0; at < string->bytes; count++) at += character_bytes(string, at);
    return count;
}

size_t jv_offset(const jv_string *string, size_t index)
{
    size_t at = 0;
    while (index-- && at < string->bytes) at += character_bytes(string, at);
    return at;
}

const jv_list *jv_iterate(jv_run *run, jv value)
{
    static const jv_list empty = {0};
    jv list;
    if (value.kind == JV_LIST) {
        if (value.list->used) {
            jv_fail(run, PJ_E_UNSUPPORTED,
                    "iterating twice over the result of map, select or reverse is not supported");
            return &empty;
        }
        value.list->used = value.list->is == JV_GENERATOR;
        return value.list;
    }
    if (value.kind == JV_UNDEFINED) return &empty;
    if (value.kind == JV_DICT) {
        list = jv_list_of(run, value.dict->keys, value.dict->count);
    } else if (value.kind == JV_STRING) {
        const jv_string *s = value.string;
        if (!jv_step(run, s->bytes)) return &empty;
        list = jv_list_new(run, jv_length(s));
        for (size_t at = 0, next; at < s->bytes && !run->failed; at = next) {
            next = at + character_bytes(s, at);
            jv_list_add(run, list, jv_slice(run, s, at, next));
        }
    } else {
        jv_fail(run, PJ_E_INVALID, "'%s' object is not iterable", jv_type_name(value));
        return &empty;
    }
    return run->failed ? &empty : list.list;
}

bool jv_contains(jv_run *run, jv container, jv item)
{
    if (container.kind == JV_STRING) {
        if (item.kind != JV_STRING) {
            jv_fail(run, PJ_E_INVALID, "'in <string>' requires string as left operand, not %s",
                    jv_type_name(item));
            return false;
        }
        const jv_string *a = container.string, *b = item.string;
        if (!jv_look(run, a->bytes)) return false;
        return b->bytes == 0 || memmem(a->text, a->bytes, b->text, b->bytes) != NULL;
    }
    if (container.kind == JV_DICT || container.kind == JV_NAMESPACE)
        return jv_hashable(run, item) && jv_dict_find(run, container.dict, item) != NULL;
    const jv_list *list = jv_iterate(run, container);
    for (size_t i = 0; i < list->count; i++)
        if (jv_equal(run, list->items[i], item)) return true;
    return false;
}

bool jv_holds(jv_run *run, char op, jv a, jv b)
{
    switch (op) {
    case '=': return jv_equal(run, a, b);
    case '!': return !jv_equal(run, a, b);
    case 'i': return jv_contains(run, b, a);
    case 'n': return !jv_contains(run, b, a);
    case '<': return jv_compare(run, a, b) < 0;
    case 'l': return jv_compare(run, a, b) <= 0;
    case '>': return jv_compare(run, a, b) > 0;
    default: return jv_compare(run, a, b) >= 0;
    }
}

/* ---- writing ---- */

/* Python's repr of a float: shortest digits that read back equal, exponent from 1e16 on. */
static void value_add_float(jv_builder *b, double value, bool json)
{
    char text[40];
    if (isnan(value) || isinf(value)) {
        jv_add_text(b, isnan(value) ? (json ? "NaN" : "nan")
                       : value < 0  ? (json ? "-Infinity" : "-inf")
                                    : (json ? "Infinity" : "inf"));
        return;
    }
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        double back = 0;
        if (sscanf(text, "%lf", &back) == 1 && back == value) break;
    }
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int after = digits - 1 - exponent;
        snprintf(text, sizeof text, "%.*f", after > 1 ? after : 1, value);
    }
    jv_add_text(b, text);
}

static void value_add_integer(jv_builder *b, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    jv_add_text(b, text);
}

/* Python's repr of a string: single quotes, unless it contains one and no double quote. */
static void add_quoted(jv_builder *b, const jv_string *s)
{
    bool apostrophe = memchr(s->text, '\'', s->bytes) && !memchr(s->text, '"', s->bytes);
    char quote = apostrophe ? '"' : '\'';
    jv_add(b, &quote, NULL, 1);
    for (size_t i = 0; i < s->bytes && !b->run->failed; i++) {
        unsigned char c = (unsigned char)s->text[i];
        char text[8];
        if (c == '\n' || c == '\r' || c == '\t')
            snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c == '\\' || c == (unsigned char)quote)
            snprintf(text, sizeof text, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            snprintf(text, sizeof text, "\\x%02x", c);
        else {
            jv_add_part(b, s, i, i + 1);
            continue;
        }
        jv_add_text(b, text);
    }
    jv_add(b, &quote, NULL, 1);
}

static void json_escape(jv_builder *out, uint32_t code)
{
    char text[16];
    if (code >= 0x10000) {
        code -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (code >> 10),
                 0xdc00 + (code & 0x3ff));
    } else
        snprintf(text, sizeof text, "\\u%04x", code);
    jv_add_text(out, text);
}

static void json_string(jv_builder *out, const jv_string *s, bool ascii)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    jv_add_text(out, "\"");
    for (size_t at = 0, used; at < s->bytes && !out->run->failed; at += used) {
        uint32_t code;
        used = pj_utf8_step(s->text + at, s->bytes - at, &code);
        const char *found = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
        if (found) {
            char text[3] = {'\\', letters[found - plain], 0};
            jv_add_text(out, text);
        } else if (code < 0x20 || (ascii && code > 0x7e))
            json_escape(out, code);
        else
            jv_add_part(out, s, at, at + used);
    }
    jv_add_text(out, "\"");
}

static void json_newline(jv_builder *out, const jv_style *style, int level)
{
    if (!style->indented) return;
    jv_add_text(out, "\n");
    for (int i = 0; i < level * style->indent; i++) jv_add_text(out, " ");
}

/* Indices of a dictionary's members, sorted by key if the style requires it. */
static const size_t *json_order(jv_run *run, const jv_dict *dict, bool sorted)
{
    size_t *order = jv_alloc(run, dict->count, sizeof *order);
    if (!order || !jv_step(run, dict->count * (sorted ? dict->count : 1))) return NULL;
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        while (sorted && at > 0 && jv_compare(run, dict->keys[i], dict->keys[order[at - 1]]) < 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    return order;
}

static void json_key(jv_builder *out, jv key, const jv_style *style)
{
    jv text = key.kind == JV_STRING ? key
              : key.kind == JV_NONE ? jv_text(out->run, "null")
              : key.kind == JV_BOOL ? jv_text(out->run, key.boolean ? "true" : "false")
                                    : jv_to_string(out->run, key);
    if (text.kind == JV_STRING) json_string(out, text.string, style->ensure_ascii);
}

static void write_value(jv_builder *out, jv value, const jv_style *style, int level);

static void write_unsupported(jv_builder *out, jv value, const jv_style *style, const char *remedy)
{
    if (style->python)
        jv_fail(out->run, PJ_E_UNSUPPORTED, "a %s cannot be printed%s", jv_type_name(value),
                remedy);
    else
        jv_fail(out->run, PJ_E_INVALID, "a value of type %s cannot be written as JSON",
                jv_type_name(value));
}

static void write_container(jv_builder *out, jv value, const jv_style *style, int level)
{
    bool list = value.kind == JV_LIST, tuple = list && value.list->tuple && style->python;
    if (list && !jv_is_plain_list(value)) {
        write_unsupported(out, value, style, "; \"| list\" is missing");
        return;
    }
    size_t count = list ? value.list->count : value.dict->count;
    const size_t *order = list ? NULL : json_order(out->run, value.dict, style->sort_keys);
    jv_add_text(out, tuple ? "(" : list ? "[" : "{");
    for (size_t i = 0; i < count && !out->run->failed; i++) {
        if (i) jv_add_text(out, style->item_separator);
        json_newline(out, style, level + 1);
        if (!list && style->python)
            write_value(out, value.dict->keys[order[i]], style, level + 1);
        else if (!list)
            json_key(out, value.dict->keys[order[i]], style);
        if (!list) jv_add_text(out, style->key_separator);
        write_value(out, list ? value.list->items[i] : value.dict->values[order[i]], style,
                    level + 1);
    }
    if (count) json_newline(out, style, level);
    if (tuple && count == 1) jv_add_text(out, ",");
    jv_add_text(out, tuple ? ")" : list ? "]" : "}");
}

static void write_value(jv_builder *out, jv value, const jv_style *style, int level)
{
    bool python = style->python;
    if (!jv_step(out->run, 1)) return;
    if (level > MAX_WRITE_DEPTH) {
        jv_fail(out->run, PJ_E_FULL, "values are nested too deeply");
        return;
    }
    switch (value.kind) {
    case JV_NONE: jv_add_text(out, python ? "None" : "null"); break;
    case JV_BOOL:
        if (python)
            jv_add_text(out, value.boolean ? "True" : "False");
        else
            jv_add_text(out, value.boolean ? "true" : "false");
        break;
    case JV_INT: value_add_integer(out, value.integer); break;
    case JV_FLOAT: value_add_float(out, value.number, !python); break;
    case JV_STRING:
        if (python)
            add_quoted(out, value.string);
        else
            json_string(out, value.string, style->ensure_ascii);
        break;
    case JV_LIST:
    case JV_DICT: write_container(out, value, style, level); break;
    default:
        if (python && value.kind == JV_UNDEFINED)
            jv_add_text(out, "Undefined");
        else
            write_unsupported(out, value, style, "");
    }
}

void jv_write(jv_builder *out, jv value, const jv_style *style)
{
    write_value(out, value, style, 0);
}

static const jv_style repr_style = {.python = true, .item_separator = ", ", .key_separator = ": "};

void jv_add_value(jv_builder *b, jv value)
{
    if (value.kind == JV_STRING)
        jv_add_string(b, value.string);
    else if (value.kind != JV_UNDEFINED)
        jv_write(b, value, &repr_style);
}

jv jv_to_string(jv_run *run, jv value)
{
    if (value.kind == JV_STRING) return value;
    jv_builder b = {.run = run};
    jv_add_value(&b, value);
    return jv_built(&b);
}

jv jv_repr(jv_run *run, jv value)
{
    jv_builder b = {.run = run};
    jv_write(&b, value, &repr_style);
    return jv_built(&b);
}
