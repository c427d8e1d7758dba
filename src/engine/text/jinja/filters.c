/* Filters, and the tests used by select and reject. */
#include "engine/text/jinja/library.h"

#include "base/utf8.h"
#include "engine/text/tokenizer/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tests ---- */

enum {
    NUMBERS = 1 << JV_BOOL | 1 << JV_INT | 1 << JV_FLOAT,
    SEQUENCES = 1 << JV_STRING | 1 << JV_LIST | 1 << JV_DICT | 1 << JV_UNDEFINED
};

/* Whether the value is of one of the kinds in a set. */
static jv t_kind(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_bool(a->how >> self.kind & 1);
}

static jv t_boolean(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_bool(self.kind == JV_BOOL && self.boolean == a->how);
}

static jv t_sequence(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_bool((SEQUENCES >> self.kind & 1) && !jv_is_generator(self));
}

static jv t_sameas(jv_run *run, jv self, const jv_arguments *a)
{
    jv other = jv_needed(run, a, 0, "other");
    return jv_bool(self.kind == other.kind && jv_equal(run, self, other));
}

static jv t_compare(jv_run *run, jv self, const jv_arguments *a)
{
    jv other = jv_needed(run, a, 0, a->how == 'i' ? "seq" : "other");
    return jv_bool(jv_holds(run, (char)a->how, self, other));
}

static int64_t needed_integer(jv_run *run, jv value)
{
    int64_t integer = 0;
    if (!jv_integer(value, &integer))
        jv_fail(run, PJ_E_INVALID, "an integer is needed, not %s", jv_type_name(value));
    return integer;
}

static jv t_odd(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_bool((needed_integer(run, self) % 2 != 0) == a->how);
}

static jv t_divisibleby(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t by = needed_integer(run, jv_needed(run, a, 0, "num"));
    if (by == 0) return jv_fail(run, PJ_E_INVALID, "division by zero");
    return jv_bool(by == -1 || needed_integer(run, self) % by == 0);
}

enum { FILTERS, TESTS };

/* Whether the reference has a filter or test of that name, which templates test before they use it.
 * Those that are missing here are rejected. */
static jv t_known(jv_run *run, jv self, const jv_arguments *a)
{
    static const char *const missing[] = {"escaped", "filesizeformat", "forceescape", "pprint",
                                          "random",  "striptags",      "truncate",    "urlencode",
                                          "urlize",  "wordwrap",       "xmlattr"};
    char text[32] = "";
    if (self.kind != JV_STRING || self.string->bytes >= sizeof text) return jv_bool(false);
    memcpy(text, self.string->text, self.string->bytes);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (strcmp(text, missing[i]) == 0)
            return jv_fail(run, PJ_E_UNSUPPORTED, "\"%s\" is not supported", text);
    return jv_bool((a->how == FILTERS ? jv_filter(text) : jv_test(text)) != NULL);
}

static const jv_entry test_table[] = {
    {"defined", t_kind, ~(1 << JV_UNDEFINED)},
    {"undefined", t_kind, 1 << JV_UNDEFINED},
    {"none", t_kind, 1 << JV_NONE},
    {"string", t_kind, 1 << JV_STRING},
    {"number", t_kind, NUMBERS},
    {"integer", t_kind, 1 << JV_INT},
    {"float", t_kind, 1 << JV_FLOAT},
    {"boolean", t_kind, 1 << JV_BOOL},
    {"true", t_boolean, true},
    {"false", t_boolean, false},
    {"mapping", t_kind, 1 << JV_DICT},
    {"iterable", t_kind, SEQUENCES},
    {"sequence", t_sequence},
    {"callable", t_kind, 1 << JV_CALLABLE},
    {"sameas", t_sameas},
    {"eq", t_compare, '='},
    {"==", t_compare, '='},
    {"equalto", t_compare, '='},
    {"ne", t_compare, '!'},
    {"!=", t_compare, '!'},
    {"lt", t_compare, '<'},
    {"<", t_compare, '<'},
    {"lessthan", t_compare, '<'},
    {"le", t_compare, 'l'},
    {"<=", t_compare, 'l'},
    {"gt", t_compare, '>'},
    {">", t_compare, '>'},
    {"greaterthan", t_compare, '>'},
    {"ge", t_compare, 'g'},
    {">=", t_compare, 'g'},
    {"in", t_compare, 'i'},
    {"odd", t_odd, true},
    {"even", t_odd, false},
    {"divisibleby", t_divisibleby},
    {"upper", jv_is_case, JV_UPPER},
    {"lower", jv_is_case, JV_LOWER},
    {"filter", t_known, FILTERS},
    {"test", t_known, TESTS},
    {NULL},
};

const jv_entry *jv_test(const char *name)
{
    return jv_find(test_table, name);
}

/* ---- filters of strings ---- */

static const jv_string *filters_text_of(jv_run *run, jv value)
{
    jv text = jv_to_string(run, value);
    return text.kind == JV_STRING ? text.string : &jv_empty;
}

static jv f_trim(jv_run *run, jv self, const jv_arguments *a)
{
    jv characters = jv_argument(a, 0, "chars", jv_none());
    return jv_strip(run, filters_text_of(run, self),
                    characters.kind == JV_STRING ? characters.string : NULL, JV_LEFT | JV_RIGHT);
}

static jv f_replace(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *old = filters_text_of(run, jv_needed(run, a, 0, "old"));
    const jv_string *new = filters_text_of(run, jv_needed(run, a, 1, "new"));
    jv count = jv_argument(a, 2, "count", jv_none());
    return jv_replace(run, filters_text_of(run, self), old, new,
                      count.kind == JV_NONE ? -1 : needed_integer(run, count));
}

static jv f_string(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_to_string(run, self);
}

static jv f_safe(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_mark_safe(run, jv_to_string(run, self));
}

static jv f_escape(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_escape(run, jv_to_string(run, self));
}

/* Indents all lines but the first by a number of blanks or a string. */
static jv f_indent(jv_run *run, jv self, const jv_arguments *a)
{
    if (self.kind != JV_STRING)
        return jv_fail(run, PJ_E_INVALID, "indent takes a string, not %s", jv_type_name(self));
    const jv_string *s = self.string;
    jv width = jv_argument(a, 0, "width", jv_int(4));
    bool first = jv_flag(a, 1, "first");
    bool blank = jv_flag(a, 2, "blank");
    int64_t count = width.kind == JV_STRING ? 1 : needed_integer(run, width);
    const jv_string *unit =
        width.kind == JV_STRING ? width.string : filters_text_of(run, jv_text(run, " "));
    jv_builder b = {.run = run};
    if (count > 1000) return jv_fail(run, PJ_E_FULL, "an indent is too wide");
    for (size_t at = 0, end; at <= s->bytes && !run->failed; at = end + 1) {
        const char *newline = memchr(s->text + at, '\n', s->bytes - at);
        end = newline ? (size_t)(newline - s->text) : s->bytes;
        if (at ? end > at || blank : first)
            for (int64_t i = 0; i < count; i++) jv_add_string(&b, unit);
        jv_add_part(&b, s, at, end + (newline != NULL));
    }
    return jv_built(&b);
}

/* "..."|format(a, b), or with names: the operator %. */
static jv f_format(jv_run *run, jv self, const jv_arguments *a)
{
    if (a->count && a->named->count)
        return jv_fail(run, PJ_E_INVALID, "format takes positional or named values, not both");
    jv values = a->named->count ? jv_dict_new(run) : jv_tuple_of(run, a->items, a->count);
    if (a->named->count) jv_dict_update(run, values, a->named);
    return run->failed ? values : jv_percent(run, filters_text_of(run, self), values);
}

static jv f_center(jv_run *run, jv self, const jv_arguments *a)
{
    jv width = jv_argument(a, 0, "width", jv_int(80)), text = jv_to_string(run, self);
    const jv_arguments only = {.items = &width, .count = 1};
    return run->failed ? text : jv_call(run, jv_method(text, "center"), text, &only);
}

/* An attribute, never an item: what a template can have is a namespace's or a loop's. */
static jv f_attr(jv_run *run, jv self, const jv_arguments *a)
{
    jv name = jv_needed(run, a, 0, "name");
    if (self.kind == JV_UNDEFINED) return jv_member(run, self, name); /* fails */
    if (run->failed || name.kind != JV_STRING) return jv_undefined(NULL);
    if (self.kind == JV_NAMESPACE) return jv_member(run, self, name);
    if (self.kind == JV_LOOP || self.kind == JV_CALLABLE)
        return jv_fail(run, PJ_E_UNSUPPORTED, "attr of a %s is not supported", jv_type_name(self));
    const char *text = pj_arena_strndup(&run->arena, name.string->text, name.string->bytes);
    if (text && jv_method(self, text))
        return jv_fail(run, PJ_E_UNSUPPORTED, "attr of a method is not supported");
    return jv_undefined(text);
}

/* Words are runs of letters, digits and underscores. */
static jv f_wordcount(jv_run *run, jv self, const jv_arguments *a)
{
    jv text = jv_to_string(run, self);
    int64_t words = 0;
    bool inside = false;
    if (run->failed || !jv_step(run, text.string->bytes)) return text;
    for (size_t at = 0, used; at < text.string->bytes; at += used) {
        uint32_t code;
        used = pj_utf8_step(text.string->text + at, text.string->bytes - at, &code);
        bool part = code == '_' || pj_unicode_is_letter(code) || pj_unicode_is_numeric(code);
        words += part && !inside;
        inside = part;
    }
    return jv_int(words);
}

/* ---- numbers ---- */

/* The text of a number; false: not a string, empty, or longer than any number. */
static bool number_text(jv value, char text[64])
{
    if (value.kind != JV_STRING || value.string->bytes == 0 || value.string->bytes > 60)
        return false;
    memcpy(text, value.string->text, value.string->bytes);
    text[value.string->bytes] = 0;
    return true;
}

/* Whether a number was read, up to `end`, and only white space follows. */
static bool is_number_end(const char *text, const char *end)
{
    return end != text && end[strspn(end, " \t\n\r")] == 0;
}

static jv f_float(jv_run *run, jv self, const jv_arguments *a)
{
    jv missing = jv_argument(a, 0, "default", jv_float(0));
    char text[64], *end;
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(run, self, "a number");
    if (jv_is_number(self)) return jv_float(jv_number(self));
    if (!number_text(self, text)) return missing;
    double number = strtod(text, &end);
    return is_number_end(text, end) ? jv_float(number) : missing;
}

static jv f_int(jv_run *run, jv self, const jv_arguments *a)
{
    jv missing = jv_argument(a, 0, "default", jv_int(0));
    int64_t integer, base = needed_integer(run, jv_argument(a, 1, "base", jv_int(10)));
    char text[64], *end;
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(run, self, "a number");
    if (base < 2 || base > 36)
        return jv_fail(run, PJ_E_UNSUPPORTED, "int with base %lld is not supported",
                       (long long)base);
    if (jv_integer(self, &integer)) return jv_int(integer);
    if (number_text(self, text)) {
        integer = strtoll(text, &end, (int)base);
        if (is_number_end(text, end)) return jv_int(integer);
    }
    jv number = f_float(run, self, &(jv_arguments){.items = &(jv){.kind = JV_NONE}, .count = 1});
    return number.kind == JV_FLOAT && fabs(number.number) < 9e18 ? jv_int((int64_t)number.number)
                                                                 : missing;
}

static jv f_abs(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t integer;
    if (jv_integer(self, &integer) && integer != INT64_MIN)
        return jv_int(integer < 0 ? -integer : integer);
    if (self.kind == JV_FLOAT) return jv_float(fabs(self.number));
    return jv_fail(run, PJ_E_INVALID, "abs takes a number, not %s", jv_type_name(self));
}

static jv f_round(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t digits = needed_integer(run, jv_argument(a, 0, "precision", jv_int(0)));
    jv method = jv_argument(a, 1, "method", jv_none());
    if (!jv_is_number(self) || digits < -15 || digits > 15)
        return jv_fail(run, PJ_E_INVALID, "round takes a number, not %s", jv_type_name(self));
    bool plain = method.kind == JV_NONE || jv_is_text(method, "common");
    int64_t whole;
    if (plain && digits >= 0 && jv_integer(self, &whole)) return jv_int(whole); /* round(3) is 3 */
    if (plain && digits >= 0) { /* half to even of the exact value, as in Python */
        char text[400];
        snprintf(text, sizeof text, "%.*f", (int)digits, jv_number(self));
        return jv_float(strtod(text, NULL));
    }
    double scale = pow(10, (double)digits), value = jv_number(self) * scale;
    double rounded = jv_is_text(method, "floor")  ? floor(value)
                     : jv_is_text(method, "ceil") ? ceil(value)
                                                  : nearbyint(value);
    return jv_float(rounded / scale);
}

/* ---- lists ---- */

static jv f_length(jv_run *run, jv self, const jv_arguments *a)
{
    if (self.kind == JV_STRING && !jv_look(run, self.string->bytes)) return self;
    if (jv_is_generator(self))
        return jv_fail(run, PJ_E_INVALID, "object of type 'generator' has no len()");
    switch (self.kind) {
    case JV_STRING: return jv_int((int64_t)jv_length(self.string));
    case JV_LIST: return jv_int((int64_t)self.list->count);
    case JV_DICT: return jv_int((int64_t)self.dict->count);
    case JV_UNDEFINED: return jv_int(0);
    default:
        return jv_fail(run, PJ_E_INVALID, "object of type '%s' has no len()", jv_type_name(self));
    }
}

static jv f_default(jv_run *run, jv self, const jv_arguments *a)
{
    jv value = jv_argument(a, 0, "default_value", jv_text(run, ""));
    bool falsy = jv_flag(a, 1, "boolean");
    return self.kind == JV_UNDEFINED || (falsy && !jv_true(self)) ? value : self;
}

/* attribute="a.b": dotted path; numbers are indices. `missing` replaces undefined values on the
 * way. */
static jv member_path(jv_run *run, jv value, const jv_string *path, jv missing)
{
    for (size_t at = 0; at <= path->bytes && !run->failed;) {
        const char *dot = memchr(path->text + at, '.', path->bytes - at);
        size_t end = dot ? (size_t)(dot - path->text) : path->bytes;
        bool digits = end > at;
        int64_t index = 0;
        for (size_t i = at; i < end && digits && i < at + 9; i++) {
            digits = path->text[i] >= '0' && path->text[i] <= '9';
            index = 10 * index + (path->text[i] - '0');
        }
        value = jv_member(run, value, digits ? jv_int(index) : jv_slice(run, path, at, end));
        if (value.kind == JV_UNDEFINED && missing.kind != JV_UNDEFINED) value = missing;
        at = end + 1;
    }
    return value;
}

static jv attribute_or(jv_run *run, jv value, jv attribute, jv missing)
{
    if (attribute.kind == JV_STRING) return member_path(run, value, attribute.string, missing);
    if (attribute.kind != JV_INT) return value;
    jv found = jv_member(run, value, attribute);
    return found.kind == JV_UNDEFINED && missing.kind != JV_UNDEFINED ? missing : found;
}

static jv attribute_of(jv_run *run, jv value, jv attribute)
{
    return attribute_or(run, value, attribute, jv_undefined(NULL));
}

static jv f_join(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *separator = filters_text_of(run, jv_argument(a, 0, "d", jv_text(run, "")));
    jv attribute = jv_argument(a, 1, "attribute", jv_none());
    const jv_list *items = jv_iterate(run, self);
    if (attribute.kind == JV_NONE) return jv_join(run, items, separator);
    jv list = jv_list_new(run, items->count);
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++)
        jv_list_add(run, list, attribute_of(run, items->items[i], attribute));
    return run->failed ? list : jv_join(run, list.list, separator);
}

static jv f_first(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_list *items = jv_iterate(run, self);
    return items->count ? items->items[0] : jv_undefined("the first item of an empty list");
}

static jv f_last(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_list *items = jv_iterate(run, self);
    return items->count ? items->items[items->count - 1]
                        : jv_undefined("the last item of an empty list");
}

static jv f_list(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_list *items = jv_iterate(run, self);
    return jv_list_of(run, items->items, items->count);
}

static jv f_reverse(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_list *items = jv_iterate(run, self);
    jv list = jv_list_new(run, items->count);
    for (size_t i = items->count; i-- > 0;) jv_list_add(run, list, items->items[i]);
    if (run->failed || jv_is_generator(self)) return list; /* the reference gives a list, too */
    if (self.kind != JV_STRING) return jv_list_as(list, JV_GENERATOR);
    return jv_join(run, list.list, &jv_empty);
}

static jv pairs_of(jv_run *run, jv self)
{
    if (self.kind == JV_UNDEFINED) return jv_list_new(run, 0);
    if (self.kind != JV_DICT)
        return jv_fail(run, PJ_E_INVALID, "items takes a mapping, not %s", jv_type_name(self));
    return jv_call(run, jv_method(self, "items"), self, &(jv_arguments){0});
}

static jv f_items(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_list_as(pairs_of(run, self), JV_GENERATOR);
}

static jv without_case(jv_run *run, jv key)
{
    return key.kind == JV_STRING ? jv_change_case(run, key, &(jv_arguments){.how = JV_LOWER}) : key;
}

/* Sort key: lower-cased strings unless case-sensitive. */
static jv sort_key(jv_run *run, jv item, jv attribute, bool case_sensitive)
{
    jv key = attribute_of(run, item, attribute);
    return case_sensitive ? key : without_case(run, key);
}

/* The same for `sort`, whose attribute may name several, separated by commas. */
static jv sort_keys(jv_run *run, jv item, jv attribute, bool case_sensitive)
{
    if (attribute.kind != JV_STRING ||
        !memchr(attribute.string->text, ',', attribute.string->bytes))
        return sort_key(run, item, attribute, case_sensitive);
    const jv_string *all = attribute.string;
    jv keys = jv_list_new(run, 2);
    for (size_t at = 0, end; at <= all->bytes && !run->failed; at = end + 1) {
        const char *comma = memchr(all->text + at, ',', all->bytes - at);
        end = comma ? (size_t)(comma - all->text) : all->bytes;
        jv_list_add(run, keys, sort_key(run, item, jv_slice(run, all, at, end), case_sensitive));
    }
    return keys;
}

/* Stable insertion sort by key. */
static jv sorted(jv_run *run, const jv_list *items, jv attribute, bool case_sensitive,
                 bool backwards)
{
    jv list = jv_list_new(run, items->count), keys = jv_list_new(run, items->count);
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        jv key = sort_keys(run, items->items[i], attribute, case_sensitive);
        jv_list_add(run, list, items->items[i]);
        jv_list_add(run, keys, key);
        for (size_t at = i; at > 0 && jv_step(run, 1); at--) {
            /* equal keys need no order: those of two items that lack the attribute have none */
            jv before = keys.list->items[at - 1];
            int order = jv_equal(run, before, key) ? 0 : jv_compare(run, before, key);
            if (backwards ? order >= 0 : order <= 0) break;
            list.list->items[at] = list.list->items[at - 1];
            keys.list->items[at] = keys.list->items[at - 1];
            list.list->items[at - 1] = items->items[i];
            keys.list->items[at - 1] = key;
        }
    }
    return list;
}

static jv f_sort(jv_run *run, jv self, const jv_arguments *a)
{
    return sorted(run, jv_iterate(run, self), jv_argument(a, 2, "attribute", jv_none()),
                  jv_flag(a, 1, "case_sensitive"), jv_flag(a, 0, "reverse"));
}

static jv f_dictsort(jv_run *run, jv self, const jv_arguments *a)
{
    bool by_value = jv_is_text(jv_argument(a, 1, "by", jv_none()), "value");
    jv pairs = pairs_of(run, self);
    if (run->failed) return pairs;
    return sorted(run, pairs.list, jv_int(by_value), jv_flag(a, 0, "case_sensitive"),
                  jv_flag(a, 2, "reverse"));
}

/* Tuples (grouper, list) of items with equal attributes, sorted by it. */
static jv f_groupby(jv_run *run, jv self, const jv_arguments *a)
{
    jv attribute = jv_needed(run, a, 0, "attribute");
    jv missing = jv_argument(a, 1, "default", jv_undefined(NULL));
    bool case_sensitive = jv_flag(a, 2, "case_sensitive");
    const jv_list *items = jv_iterate(run, self);
    jv pairs = jv_list_new(run, items->count), groups = jv_list_new(run, 0),
       last = jv_undefined(NULL);
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++) {
        jv key = attribute_or(run, items->items[i], attribute, missing);
        if (key.kind == JV_UNDEFINED && items->count > 1) /* it has no order */
            return jv_fail_undefined(run, key, "a value");
        jv row[] = {case_sensitive ? key : without_case(run, key), key, items->items[i]};
        jv_list_add(run, pairs, jv_list_of(run, row, 3));
    }
    if (run->failed) return groups;
    jv order = sorted(run, pairs.list, jv_int(0), true, false);
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        const jv *of = order.list->items[i].list->items;
        if (i == 0 || !jv_equal(run, of[0], last)) {
            jv group = jv_tuple_of(run, (jv[]){of[1], jv_list_new(run, 1)}, 2);
            if (run->failed) break;
            group.list->group = true;
            jv_list_add(run, groups, group);
        }
        last = of[0];
        if (run->failed) break;
        jv_list_add(run, groups.list->items[groups.list->count - 1].list->items[1], of[2]);
    }
    return groups;
}

static jv f_unique(jv_run *run, jv self, const jv_arguments *a)
{
    bool case_sensitive = jv_flag(a, 0, "case_sensitive");
    jv attribute = jv_argument(a, 1, "attribute", jv_none());
    const jv_list *items = jv_iterate(run, self);
    jv list = jv_list_new(run, 0), keys = jv_list_new(run, 0);
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        jv key = sort_key(run, items->items[i], attribute, case_sensitive);
        if (jv_contains(run, keys, key)) continue;
        jv_list_add(run, keys, key);
        jv_list_add(run, list, items->items[i]);
    }
    return jv_list_as(list, JV_GENERATOR);
}

static jv f_extreme(jv_run *run, jv self, const jv_arguments *a)
{
    bool case_sensitive = jv_flag(a, 0, "case_sensitive");
    jv attribute = jv_argument(a, 1, "attribute", jv_none());
    const jv_list *items = jv_iterate(run, self);
    size_t best = 0;
    if (items->count == 0) return jv_undefined("the extreme of an empty list");
    for (size_t i = 1; i < items->count && jv_step(run, 1); i++)
        if (jv_holds(run, (char)a->how, sort_key(run, items->items[i], attribute, case_sensitive),
                     sort_key(run, items->items[best], attribute, case_sensitive)))
            best = i;
    return items->items[best];
}

/* Of numbers, or of lists if `start` is one. */
static jv f_sum(jv_run *run, jv self, const jv_arguments *a)
{
    jv attribute = jv_argument(a, 0, "attribute", jv_none());
    jv total = jv_argument(a, 1, "start", jv_int(0));
    const jv_list *items = jv_iterate(run, self);
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++) {
        jv item = attribute_of(run, items->items[i], attribute);
        int64_t x, y, sum;
        if (jv_is_plain_list(item) && jv_is_plain_list(total) &&
            item.list->tuple == total.list->tuple) {
            if (!jv_step(run, total.list->count)) break;
            total = jv_list_joined(run, total.list, item.list);
            continue;
        }
        if (!jv_is_number(item) || !jv_is_number(total))
            return jv_fail(run, PJ_E_INVALID, "sum takes numbers, not %s", jv_type_name(item));
        if (jv_integer(item, &x) && jv_integer(total, &y) && !__builtin_add_overflow(x, y, &sum))
            total = jv_int(sum);
        else
            total = jv_float(jv_number(item) + jv_number(total));
    }
    return total;
}

/* A number of lists of about equal length; the first ones have one item more. */
static jv f_slice(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t slices = needed_integer(run, jv_needed(run, a, 0, "slices"));
    jv fill = jv_argument(a, 1, "fill_with", jv_none());
    const jv_list *items = jv_iterate(run, self);
    jv list = jv_list_new(run, 0);
    if (slices < 1 || slices > 1 << 20) return jv_fail(run, PJ_E_INVALID, "slice takes a number");
    size_t each = items->count / (size_t)slices, more = items->count % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices && jv_step(run, 1); i++) {
        jv row = jv_list_new(run, each + 1);
        for (size_t n = each + (i < more); n > 0 && jv_step(run, 1); n--)
            jv_list_add(run, row, items->items[at++]);
        if (fill.kind != JV_NONE && i >= more) jv_list_add(run, row, fill);
        jv_list_add(run, list, row);
    }
    return jv_list_as(list, JV_GENERATOR);
}

static jv f_batch(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t size = needed_integer(run, jv_needed(run, a, 0, "linecount"));
    jv fill = jv_argument(a, 1, "fill_with", jv_none());
    const jv_list *items = jv_iterate(run, self);
    jv list = jv_list_new(run, 0), row = jv_undefined(NULL);
    if (size < 1 || size > 1 << 20) return jv_fail(run, PJ_E_INVALID, "batch takes a size");
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++) {
        if (i % (size_t)size == 0) jv_list_add(run, list, row = jv_list_new(run, 0));
        jv_list_add(run, row, items->items[i]);
    }
    while (fill.kind != JV_NONE && row.kind == JV_LIST && row.list->count < (size_t)size &&
           jv_step(run, 1))
        jv_list_add(run, row, fill);
    return jv_list_as(list, JV_GENERATOR);
}

/* ---- map, select, reject ---- */

static jv_arguments rest_of(const jv_arguments *a, size_t used)
{
    jv_arguments rest = *a;
    size_t n = a->count < used ? a->count : used;
    if (n) rest.items += n; /* they are NULL where there are none */
    rest.count -= n;
    return rest;
}

/* The filter or test that a value names. */
static jv call_named(jv_run *run, const jv_entry *(*find)(const char *name), const char *what,
                     jv name, jv self, const jv_arguments *a)
{
    char text[32] = "";
    if (name.kind == JV_STRING && name.string->bytes < sizeof text)
        memcpy(text, name.string->text, name.string->bytes);
    const jv_entry *entry = find(text);
    if (entry) return jv_call(run, entry, self, a);
    return jv_fail(run, PJ_E_UNSUPPORTED, "the %s \"%s\" is not supported", what, text);
}

static jv f_map(jv_run *run, jv self, const jv_arguments *a)
{
    jv attribute = a->count ? jv_none() : jv_argument(a, 99, "attribute", jv_none());
    jv missing = jv_argument(a, 99, "default", jv_undefined(NULL));
    if (!jv_true(self)) /* also for none, as in the reference */
        return jv_list_as(jv_list_new(run, 0), JV_GENERATOR);
    const jv_list *items = jv_iterate(run, self);
    jv list = jv_list_new(run, items->count);
    jv_arguments rest = rest_of(a, 1);
    jv filter = {.kind = JV_STRING};
    if (attribute.kind == JV_NONE) filter.string = jv_needed_string(run, a, 0, "filter");
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++) {
        jv item = items->items[i];
        if (attribute.kind == JV_NONE)
            item = call_named(run, jv_filter, "filter", filter, item, &rest);
        else
            item = attribute_or(run, item, attribute, missing);
        jv_list_add(run, list, item);
    }
    return jv_list_as(list, JV_GENERATOR);
}

static bool passes(jv_run *run, jv value, const jv_arguments *a, size_t test_index)
{
    if (a->count <= test_index) return jv_true(value);
    const jv_arguments rest = rest_of(a, test_index + 1);
    return jv_true(call_named(run, jv_test, "test", a->items[test_index], value, &rest));
}

enum { KEEP = 1, BY_ATTRIBUTE = 2 };

static jv f_select(jv_run *run, jv self, const jv_arguments *a)
{
    bool keep = a->how & KEEP, by_attribute = a->how & BY_ATTRIBUTE;
    if (!jv_true(self)) /* also for none, as in the reference */
        return jv_list_as(jv_list_new(run, 0), JV_GENERATOR);
    const jv_list *items = jv_iterate(run, self);
    jv list = jv_list_new(run, 0);
    jv attribute = by_attribute ? jv_needed(run, a, 0, "attribute") : jv_none();
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++) {
        jv value = by_attribute ? attribute_of(run, items->items[i], attribute) : items->items[i];
        if (passes(run, value, a, by_attribute) == keep) jv_list_add(run, list, items->items[i]);
    }
    return jv_list_as(list, JV_GENERATOR);
}

/* ---- JSON ---- */

static const char *separator(jv_run *run, jv pair, size_t index, const char *usual)
{
    if (pair.kind != JV_LIST || pair.list->count != 2 || pair.list->items[index].kind != JV_STRING)
        return usual;
    const jv_string *s = pair.list->items[index].string;
    const char *copy = pj_arena_strndup(&run->arena, s->text, s->bytes);
    return copy ? copy : usual;
}

/* The reference's filter: json.dumps, without HTML escapes. */
static jv f_tojson(jv_run *run, jv self, const jv_arguments *a)
{
    jv indent = jv_argument(a, 1, "indent", jv_none());
    jv separators = jv_argument(a, 2, "separators", jv_none());
    jv_style style = {
        .ensure_ascii = jv_flag(a, 0, "ensure_ascii"),
        .sort_keys = jv_flag(a, 3, "sort_keys"),
        .indented = indent.kind != JV_NONE,
        .item_separator = separator(run, separators, 0, indent.kind == JV_NONE ? ", " : ","),
        .key_separator = separator(run, separators, 1, ": "),
    };
    if (style.indented) {
        int64_t width = needed_integer(run, indent);
        if (width < 0 || width > 64) return jv_fail(run, PJ_E_INVALID, "an indent is too wide");
        style.indent = (int)width;
    }
    jv_builder b = {.run = run};
    jv_write(&b, self, &style);
    return jv_built(&b);
}

static const jv_entry filter_table[] = {
    {"tojson", f_tojson},
    {"trim", f_trim},
    {"upper", jv_change_case, JV_UPPER},
    {"lower", jv_change_case, JV_LOWER},
    {"title", jv_change_case, JV_WORDS},
    {"capitalize", jv_change_case, JV_CAPITAL},
    {"replace", f_replace},
    {"string", f_string},
    {"safe", f_safe},
    {"escape", f_escape},
    {"e", f_escape},
    {"indent", f_indent},
    {"wordcount", f_wordcount},
    {"int", f_int},
    {"float", f_float},
    {"abs", f_abs},
    {"round", f_round},
    {"length", f_length},
    {"count", f_length},
    {"default", f_default},
    {"d", f_default},
    {"join", f_join},
    {"first", f_first},
    {"last", f_last},
    {"list", f_list},
    {"reverse", f_reverse},
    {"items", f_items},
    {"sort", f_sort},
    {"dictsort", f_dictsort},
    {"unique", f_unique},
    {"min", f_extreme, '<'},
    {"max", f_extreme, '>'},
    {"sum", f_sum},
    {"groupby", f_groupby},
    {"slice", f_slice},
    {"attr", f_attr},
    {"format", f_format},
    {"center", f_center},
    {"batch", f_batch},
    {"map", f_map},
    {"select", f_select, KEEP},
    {"reject", f_select},
    {"selectattr", f_select, KEEP | BY_ATTRIBUTE},
    {"rejectattr", f_select, BY_ATTRIBUTE},
    {NULL},
};

const jv_entry *jv_filter(const char *name)
{
    return jv_find(filter_table, name);
}
