/* Methods of strings, dictionaries and lists, and members of values. */
#include "engine/text/jinja/library.h"

#include "base/utf8.h"
#include "engine/text/tokenizer/parts.h"

#include <string.h>

/* ---- functions and their arguments ---- */

const jv_entry *jv_find(const jv_entry *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

jv jv_call(jv_run *run, const jv_entry *entry, jv self, const jv_arguments *arguments)
{
    jv_arguments a = *arguments;
    a.how = entry->how;
    return entry->function(run, self, &a); /* cppcheck-suppress returnDanglingLifetime; not kept */
}

jv jv_argument(const jv_arguments *arguments, size_t index, const char *name, jv missing)
{
    if (index < arguments->count) return arguments->items[index];
    const jv *named = arguments->named ? jv_dict_get(arguments->named, name) : NULL;
    return named ? *named : missing;
}

bool jv_flag(const jv_arguments *arguments, size_t index, const char *name)
{
    return jv_true(jv_argument(arguments, index, name, jv_bool(false)));
}

jv jv_needed(jv_run *run, const jv_arguments *arguments, size_t index, const char *name)
{
    if (index < arguments->count) return arguments->items[index];
    const jv *named = arguments->named ? jv_dict_get(arguments->named, name) : NULL;
    if (named) return *named;
    return jv_fail(run, PJ_E_INVALID, "the argument \"%s\" is missing", name);
}

const jv_string *jv_needed_string(jv_run *run, const jv_arguments *arguments, size_t index,
                                  const char *name)
{
    jv value = jv_needed(run, arguments, index, name);
    if (value.kind == JV_STRING) return value.string;
    jv_fail(run, PJ_E_INVALID, "the argument \"%s\" must be str, not %s", name,
            jv_type_name(value));
    return &jv_empty;
}

/* A string, or none. */
static const jv_string *optional_string(jv_run *run, const jv_arguments *arguments, size_t index,
                                        const char *name)
{
    jv value = jv_argument(arguments, index, name, jv_none());
    if (value.kind == JV_NONE) return NULL;
    return jv_needed_string(run, arguments, index, name);
}

static int64_t optional_integer(jv_run *run, const jv_arguments *arguments, size_t index,
                                const char *name, int64_t missing)
{
    jv value = jv_argument(arguments, index, name, jv_int(missing));
    int64_t integer = missing;
    if (!jv_integer(value, &integer))
        jv_fail(run, PJ_E_INVALID, "the argument \"%s\" must be int, not %s", name,
                jv_type_name(value));
    return integer;
}

/* ---- strings ---- */

static jv s_strip(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_strip(run, self.string, optional_string(run, a, 0, "chars"), a->how);
}

/* The end of the characters from `at` on that are blanks, or are none. */
static size_t methods_skip(const jv_string *s, size_t at, bool blanks)
{
    uint32_t code;
    for (size_t used; at < s->bytes; at += used) {
        used = pj_utf8_step(s->text + at, s->bytes - at, &code);
        if (jv_is_blank(code) != blanks) break;
    }
    return at;
}

/* Splits at runs of whitespace; after `max` splits the rest is the last item. */
static jv methods_split_words(jv_run *run, const jv_string *s, int64_t max)
{
    jv list = jv_list_new(run, 0);
    size_t at = 0, end;
    if (!jv_look(run, s->bytes)) return list;
    for (; jv_step(run, 1) && (at = methods_skip(s, at, true)) < s->bytes; at = end) {
        end = max == 0 ? s->bytes : methods_skip(s, at, false);
        jv_list_add(run, list, jv_slice(run, s, at, end));
        max -= max > 0;
    }
    return list;
}

enum { FIND_FIRST, FIND_LAST, FIND_NEEDED };

/* The offset of a part at or after `at`; SIZE_MAX: it does not occur. */
static size_t find_first(const jv_string *s, size_t at, const jv_string *part)
{
    const char *hit = memmem(s->text + at, s->bytes - at, part->text, part->bytes);
    return hit ? (size_t)(hit - s->text) : SIZE_MAX;
}

static jv split_at(jv_run *run, const jv_string *s, const jv_string *separator, int64_t max)
{
    jv list = jv_list_new(run, 0);
    size_t at = 0;
    if (separator->bytes == 0) return jv_fail(run, PJ_E_INVALID, "empty separator");
    if (!jv_look(run, s->bytes)) return list;
    for (size_t found; jv_step(run, 1) && max != 0; max -= max > 0) {
        found = find_first(s, at, separator);
        if (found == SIZE_MAX) break;
        jv_list_add(run, list, jv_slice(run, s, at, found));
        at = found + separator->bytes;
    }
    jv_list_add(run, list, jv_slice(run, s, at, s->bytes));
    return list;
}

static jv s_split(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *separator = optional_string(run, a, 0, "sep");
    int64_t max = optional_integer(run, a, 1, "maxsplit", -1);
    return separator ? split_at(run, self.string, separator, max)
                     : methods_split_words(run, self.string, max);
}

static size_t find_last(jv_run *run, const jv_string *s, size_t end, const jv_string *part)
{
    for (size_t at = end; at >= part->bytes && at <= end; at--)
        if (jv_step(run, at % 16 == 0) && jv_step(run, part->bytes / 64) &&
            memcmp(s->text + at - part->bytes, part->text, part->bytes) == 0)
            return at - part->bytes;
    return SIZE_MAX;
}

static jv s_rsplit(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *separator = optional_string(run, a, 0, "sep"), *s = self.string;
    int64_t max = optional_integer(run, a, 1, "maxsplit", -1);
    if (!separator && max < 0) return methods_split_words(run, s, max);
    if (!separator || separator->bytes == 0)
        return jv_fail(run, PJ_E_UNSUPPORTED, "rsplit without a separator is not supported");
    jv backwards = jv_list_new(run, 0), list = jv_list_new(run, 0);
    size_t end = s->bytes;
    for (size_t at; jv_step(run, 1 + end / 64) && max != 0; end = at, max -= max > 0) {
        at = find_last(run, s, end, separator);
        if (at == SIZE_MAX) break;
        jv_list_add(run, backwards, jv_slice(run, s, at + separator->bytes, end));
    }
    jv_list_add(run, backwards, jv_slice(run, s, 0, end));
    for (size_t i = run->failed ? 0 : backwards.list->count; i-- > 0;)
        jv_list_add(run, list, backwards.list->items[i]);
    return list;
}

static jv s_splitlines(jv_run *run, jv self, const jv_arguments *a)
{
    bool keep = jv_flag(a, 0, "keepends");
    const jv_string *s = self.string;
    jv list = jv_list_new(run, 0);
    if (!jv_look(run, s->bytes)) return list;
    for (size_t at = 0, end; at < s->bytes && jv_step(run, 1); at = end) {
        end = at;
        while (end < s->bytes && s->text[end] != '\n' && s->text[end] != '\r') end++;
        size_t stop = end;
        if (end < s->bytes)
            end += s->text[end] == '\r' && end + 1 < s->bytes && s->text[end + 1] == '\n' ? 2 : 1;
        jv_list_add(run, list, jv_slice(run, s, at, keep ? end : stop));
    }
    return list;
}

static jv s_replace(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *old = jv_needed_string(run, a, 0, "old");
    const jv_string *new = jv_needed_string(run, a, 1, "new");
    return jv_replace(run, self.string, old, new, optional_integer(run, a, 2, "count", -1));
}

static bool edge_is(const jv_string *s, const jv_string *part, bool front)
{
    return s->bytes >= part->bytes &&
           memcmp(s->text + (front ? 0 : s->bytes - part->bytes), part->text, part->bytes) == 0;
}

/* The part of a string that optional arguments 1 and 2, start and end, select; `before` is the
 * number of characters before it. False: the start is beyond the end, where nothing is found. */
static bool methods_part_of(jv_run *run, const jv_string *s, const jv_arguments *a, jv_string *part,
                            int64_t *before)
{
    *part = *s;
    *before = 0;
    if (!jv_look(run, s->bytes)) return false;
    if (a->count < 2) return true;
    int64_t count = (int64_t)jv_length(s), begin = 0, end = count;
    if (a->items[1].kind != JV_NONE) begin = optional_integer(run, a, 1, "start", 0);
    if (a->count > 2 && a->items[2].kind != JV_NONE)
        end = optional_integer(run, a, 2, "end", count);
    if (begin < 0) begin = begin + count < 0 ? 0 : begin + count;
    if (end < 0) end = end + count < 0 ? 0 : end + count;
    if (end > count) end = count;
    if (run->failed || begin > end) return false;
    size_t first = jv_offset(s, (size_t)begin), last = jv_offset(s, (size_t)end);
    *part = (jv_string){s->text + first, NULL, last - first, false};
    *before = begin;
    return true;
}

/* Tests for a prefix or suffix: a string or a tuple of strings. */
static jv s_edge(jv_run *run, jv self, const jv_arguments *a)
{
    bool front = a->how == JV_LEFT;
    jv parts = jv_needed(run, a, 0, "prefix");
    jv_string s = *self.string;
    int64_t before;
    bool inside = a->count < 2 || methods_part_of(run, self.string, a, &s, &before);
    if (parts.kind == JV_STRING) return jv_bool(inside && edge_is(&s, parts.string, front));
    if (parts.kind != JV_LIST || !parts.list->tuple)
        return jv_fail(run, PJ_E_INVALID, "startswith and endswith take str or a tuple of str");
    for (size_t i = 0; i < parts.list->count && inside; i++)
        if (parts.list->items[i].kind == JV_STRING &&
            edge_is(&s, parts.list->items[i].string, front))
            return jv_bool(true);
    return jv_bool(false);
}

static jv s_remove(jv_run *run, jv self, const jv_arguments *a)
{
    bool front = a->how == JV_LEFT;
    const jv_string *s = self.string;
    const jv_string *part = jv_needed_string(run, a, 0, front ? "prefix" : "suffix");
    if (!edge_is(s, part, front)) return self;
    return front ? jv_slice(run, s, part->bytes, s->bytes)
                 : jv_slice(run, s, 0, s->bytes - part->bytes);
}

/* The character index where a part begins; -1: it does not occur. */
static jv s_find(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *sub = jv_needed_string(run, a, 0, "sub");
    jv_string part;
    int64_t before;
    size_t found = SIZE_MAX;
    if (methods_part_of(run, self.string, a, &part, &before))
        found = a->how == FIND_LAST ? find_last(run, &part, part.bytes, sub)
                                    : find_first(&part, 0, sub);
    if (found == SIZE_MAX && a->how == FIND_NEEDED)
        return jv_fail(run, PJ_E_INVALID, "substring not found");
    part.bytes = found;
    return jv_int(found == SIZE_MAX ? -1 : before + (int64_t)jv_length(&part));
}

static jv s_count(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *sub = jv_needed_string(run, a, 0, "sub");
    jv_string s;
    int64_t count = 0, before;
    if (!methods_part_of(run, self.string, a, &s, &before)) return jv_int(0);
    if (sub->bytes == 0) return jv_int((int64_t)jv_length(&s) + 1);
    for (size_t at = 0; jv_step(run, 1); at += sub->bytes, count++)
        if ((at = find_first(&s, at, sub)) == SIZE_MAX) break;
    return jv_int(count);
}

static jv s_join(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_list *items = jv_iterate(run, jv_needed(run, a, 0, "iterable"));
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].kind != JV_STRING)
            return jv_fail(run, PJ_E_INVALID, "join expects str, found %s",
                           jv_type_name(items->items[i]));
    return jv_join(run, items, self.string);
}

static bool is_alphanumeric(uint32_t code)
{
    return pj_unicode_is_letter(code) || pj_unicode_is_numeric(code);
}

enum { DIGITS, LETTERS, LETTERS_OR_DIGITS, SPACES };

static jv s_is_all(jv_run *run, jv self, const jv_arguments *a)
{
    static bool (*const classes[])(uint32_t code) = {
        [DIGITS] = pj_unicode_is_numeric,
        [LETTERS] = pj_unicode_is_letter,
        [LETTERS_OR_DIGITS] = is_alphanumeric,
        [SPACES] = jv_is_blank,
    };
    const jv_string *s = self.string;
    if (s->bytes == 0 || !jv_step(run, s->bytes)) return jv_bool(false);
    for (size_t at = 0, used; at < s->bytes; at += used) {
        uint32_t code;
        used = pj_utf8_next(s->text + at, s->bytes - at, &code);
        if (!used || !classes[a->how](code)) return jv_bool(false);
    }
    return jv_bool(true);
}

/* The value of a replacement field: the next one, a number, or a name. */
static jv field_value(jv_run *run, const jv_arguments *a, const char *field, size_t bytes,
                      size_t *next)
{
    char name[64];
    if (bytes >= sizeof name || memchr(field, '.', bytes) || memchr(field, '[', bytes))
        return jv_fail(run, PJ_E_UNSUPPORTED, "the format field {%.*s} is not supported",
                       (int)(bytes < 60 ? bytes : 60), field);
    memcpy(name, field, bytes);
    name[bytes] = 0;
    size_t index = bytes ? 0 : (*next)++;
    for (size_t i = 0; i < bytes; i++)
        index =
            name[i] >= '0' && name[i] <= '9' ? 10 * index + (size_t)(name[i] - '0') : SIZE_MAX / 20;
    return jv_needed(run, a, index, name);
}

/* name!conversion:specification */
static void add_field(jv_builder *to, const jv_arguments *a, const char *field, size_t bytes,
                      size_t *next)
{
    const char *colon = memchr(field, ':', bytes);
    size_t name = colon ? (size_t)(colon - field) : bytes, after = colon ? name + 1 : bytes;
    const char *mark = memchr(field, '!', name);
    if (memchr(field, '{', bytes)) {
        jv_fail(to->run, PJ_E_UNSUPPORTED, "fields inside of format fields are not supported");
        return;
    }
    jv value = field_value(to->run, a, field, mark ? (size_t)(mark - field) : name, next);
    if (to->run->failed) return;
    if (mark && field + name - mark == 2 && mark[1] == 'r')
        value = jv_repr(to->run, value);
    else if (mark && field + name - mark == 2 && mark[1] == 's')
        value = jv_to_string(to->run, value);
    else if (mark)
        jv_fail(to->run, PJ_E_UNSUPPORTED, "the format conversion %.*s is not supported",
                (int)(field + name - mark), mark);
    if (!to->run->failed) jv_add_formatted(to, value, field + after, bytes - after);
}

static jv s_format(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_string *s = self.string;
    jv_builder b = {.run = run};
    for (size_t at = 0, next = 0; at < s->bytes && !run->failed; at++) {
        char c = s->text[at];
        if ((c == '{' || c == '}') && at + 1 < s->bytes && s->text[at + 1] == c) {
            jv_add(&b, s->text + at++, NULL, 1);
        } else if (c == '{') {
            const char *end = memchr(s->text + at, '}', s->bytes - at);
            if (!end) return jv_fail(run, PJ_E_INVALID, "a format field is not closed");
            size_t begin = at + 1;
            at = (size_t)(end - s->text);
            add_field(&b, a, s->text + begin, at - begin, &next);
        } else if (c == '}')
            return jv_fail(run, PJ_E_INVALID, "a format has a single '}'");
        else
            jv_add_part(&b, s, at, at + 1);
    }
    return jv_built(&b);
}

/* ---- padding and parting ---- */

static size_t missing_characters(jv_run *run, jv self, const jv_arguments *a)
{
    int64_t width = 0;
    if (!jv_integer(jv_needed(run, a, 0, "width"), &width) && !run->failed)
        jv_fail(run, PJ_E_INVALID, "a width must be an integer");
    size_t length = jv_length(self.string);
    return run->failed || width < 0 || (uint64_t)width <= length ? 0 : (size_t)width - length;
}

static void add_repeated(jv_builder *b, const jv_string *text, size_t count)
{
    for (size_t i = 0; i < count && jv_step(b->run, 1); i++) jv_add_string(b, text);
}

enum { PAD_LEFT, PAD_RIGHT, PAD_BOTH };

static jv s_pad(jv_run *run, jv self, const jv_arguments *a)
{
    size_t missing = missing_characters(run, self, a);
    jv fill = jv_argument(a, 1, "fillchar", jv_text(run, " "));
    jv_builder b = {.run = run};
    if (fill.kind != JV_STRING || jv_length(fill.string) != 1)
        return jv_fail(run, PJ_E_INVALID, "The fill character must be exactly one character long");
    /* as Python rounds: an odd number gives one more in front only if the width is odd */
    size_t before = a->how == PAD_LEFT ? missing
                    : a->how == PAD_RIGHT
                        ? 0
                        : missing / 2 + (missing & (missing + jv_length(self.string)) & 1);
    add_repeated(&b, fill.string, before);
    jv_add_string(&b, self.string);
    add_repeated(&b, fill.string, missing - before);
    return jv_built(&b);
}

/* Zeros after the sign. */
static jv s_zfill(jv_run *run, jv self, const jv_arguments *a)
{
    size_t missing = missing_characters(run, self, a);
    const jv_string *s = self.string;
    size_t sign = s->bytes && (s->text[0] == '+' || s->text[0] == '-');
    jv_builder b = {.run = run};
    jv_add_part(&b, s, 0, sign);
    add_repeated(&b, &(jv_string){.text = "0", .bytes = 1}, missing);
    jv_add_part(&b, s, sign, s->bytes);
    return jv_built(&b);
}

/* (before, separator, after), or the whole and two empty strings. */
static jv s_partition(jv_run *run, jv self, const jv_arguments *a)
{
    bool last = a->how == FIND_LAST;
    const jv_string *s = self.string, *by = jv_needed_string(run, a, 0, "sep");
    jv empty = jv_text(run, "");
    if (run->failed) return empty;
    if (by->bytes == 0) return jv_fail(run, PJ_E_INVALID, "empty separator");
    if (!jv_look(run, s->bytes)) return empty;
    size_t at = last ? find_last(run, s, s->bytes, by) : find_first(s, 0, by);
    if (at == SIZE_MAX)
        return jv_tuple_of(run, (jv[]){last ? empty : self, empty, last ? self : empty}, 3);
    return jv_tuple_of(run,
                       (jv[]){jv_slice(run, s, 0, at), jv_slice(run, s, at, at + by->bytes),
                              jv_slice(run, s, at + by->bytes, s->bytes)},
                       3);
}

/* ---- dictionaries and lists ---- */

static jv d_items(jv_run *run, jv self, const jv_arguments *a)
{
    jv list = jv_list_new(run, self.dict->count);
    for (size_t i = 0; i < self.dict->count && jv_step(run, 1); i++) {
        jv pair[] = {self.dict->keys[i], self.dict->values[i]};
        jv_list_add(run, list, jv_tuple_of(run, pair, 2));
    }
    return jv_list_as(list, JV_VIEW);
}

static jv d_keys(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_list_as(jv_list_of(run, self.dict->keys, self.dict->count), JV_VIEW);
}

static jv d_values(jv_run *run, jv self, const jv_arguments *a)
{
    return jv_list_as(jv_list_of(run, self.dict->values, self.dict->count), JV_VIEW);
}

static jv d_get(jv_run *run, jv self, const jv_arguments *a)
{
    const jv *found = jv_dict_find(run, self.dict, jv_needed(run, a, 0, "key"));
    return found ? *found : jv_argument(a, 1, "default", jv_none());
}

static jv d_copy(jv_run *run, jv self, const jv_arguments *a)
{
    jv copy = jv_dict_new(run);
    jv_dict_update(run, copy, self.dict);
    return copy;
}

static jv l_index(jv_run *run, jv self, const jv_arguments *a)
{
    if (a->count > 1)
        return jv_fail(run, PJ_E_UNSUPPORTED, "index with a start in a list is not supported");
    jv item = jv_needed(run, a, 0, "value");
    for (size_t i = 0; i < self.list->count; i++)
        if (jv_equal(run, self.list->items[i], item)) return jv_int((int64_t)i);
    return jv_fail(run, PJ_E_INVALID, "the list does not hold the value");
}

static jv l_count(jv_run *run, jv self, const jv_arguments *a)
{
    jv item = jv_needed(run, a, 0, "value");
    int64_t count = 0;
    for (size_t i = 0; i < self.list->count; i++) count += jv_equal(run, self.list->items[i], item);
    return jv_int(count);
}

/* ---- the tables ---- */

static const jv_entry string_methods[] = {
    {"strip", s_strip, JV_LEFT | JV_RIGHT},
    {"lstrip", s_strip, JV_LEFT},
    {"rstrip", s_strip, JV_RIGHT},
    {"upper", jv_change_case, JV_UPPER},
    {"lower", jv_change_case, JV_LOWER},
    {"title", jv_change_case, JV_TITLE},
    {"capitalize", jv_change_case, JV_CAPITAL},
    {"split", s_split},
    {"rsplit", s_rsplit},
    {"splitlines", s_splitlines},
    {"replace", s_replace},
    {"startswith", s_edge, JV_LEFT},
    {"endswith", s_edge, JV_RIGHT},
    {"removeprefix", s_remove, JV_LEFT},
    {"removesuffix", s_remove, JV_RIGHT},
    {"find", s_find, FIND_FIRST},
    {"rfind", s_find, FIND_LAST},
    {"index", s_find, FIND_NEEDED},
    {"count", s_count},
    {"join", s_join},
    {"isdigit", s_is_all, DIGITS},
    {"isnumeric", s_is_all, DIGITS},
    {"isalpha", s_is_all, LETTERS},
    {"isalnum", s_is_all, LETTERS_OR_DIGITS},
    {"isspace", s_is_all, SPACES},
    {"isupper", jv_is_case, JV_UPPER},
    {"islower", jv_is_case, JV_LOWER},
    {"format", s_format},
    {"center", s_pad, PAD_BOTH},
    {"ljust", s_pad, PAD_RIGHT},
    {"rjust", s_pad, PAD_LEFT},
    {"zfill", s_zfill},
    {"partition", s_partition, FIND_FIRST},
    {"rpartition", s_partition, FIND_LAST},
    {NULL},
};

static const jv_entry dict_methods[] = {
    {"items", d_items}, {"keys", d_keys}, {"values", d_values},
    {"get", d_get},     {"copy", d_copy}, {NULL},
};

static const jv_entry list_methods[] = {{"index", l_index}, {"count", l_count}, {NULL}};

const jv_entry *jv_method(jv self, const char *name)
{
    if (self.kind == JV_STRING) return jv_find(string_methods, name);
    if (self.kind == JV_DICT) return jv_find(dict_methods, name);
    return jv_is_plain_list(self) ? jv_find(list_methods, name) : NULL;
}

/* ---- members ---- */

static jv element(jv_run *run, jv self, int64_t index)
{
    if (jv_is_generator(self)) return jv_undefined(NULL);
    if (self.kind == JV_STRING && !jv_look(run, self.string->bytes)) return self;
    int64_t count = (int64_t)(self.kind == JV_LIST ? self.list->count : jv_length(self.string));
    if (index < 0) index += count;
    if (index < 0 || index >= count) return jv_undefined(NULL);
    if (self.kind == JV_LIST) return self.list->items[index];
    size_t begin = jv_offset(self.string, (size_t)index);
    jv rest = jv_slice(run, self.string, begin, self.string->bytes);
    return run->failed ? rest : jv_slice(run, rest.string, 0, jv_offset(rest.string, 1));
}

jv jv_member(jv_run *run, jv self, jv key)
{
    int64_t index;
    if (self.kind == JV_UNDEFINED) return jv_fail_undefined(run, self, "a value");
    if (self.kind == JV_DICT || self.kind == JV_NAMESPACE) {
        const jv *found = jv_dict_find(run, self.dict, key);
        if (found) return *found;
    } else if (self.kind == JV_LIST && self.list->group &&
               (jv_is_text(key, "grouper") || jv_is_text(key, "list"))) {
        return self.list->items[jv_is_text(key, "list")];
    } else if ((self.kind == JV_LIST || self.kind == JV_STRING) && jv_integer(key, &index))
        return element(run, self, index);
    if (key.kind != JV_STRING) return jv_undefined(NULL);
    return jv_undefined(pj_arena_strndup(&run->arena, key.string->text, key.string->bytes));
}
