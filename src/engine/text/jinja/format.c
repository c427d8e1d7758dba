/* Formatting as in Python: the operator % and the filter `format`, and str.format with its format
 * specifications. What is not covered is rejected by name. */
#include "engine/text/jinja/library.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1000, MAX_PRECISION = 60 };

/* How one value is written. */
typedef struct field {
    const char *text; /* its spelling in the format, for errors */
    size_t bytes;
    char align; /* < > ^ or = (after the sign); 0: by type */
    char fill[5];
    char sign; /* + or blank; 0: only minus */
    bool zero, alternative, grouped;
    int width, precision; /* -1: not given */
    char type;            /* 0: not given */
} field;

static jv unsupported(jv_run *run, const field *f)
{
    return jv_fail(run, PJ_E_UNSUPPORTED, "the format field %.*s is not supported",
                   (int)(f->bytes < 60 ? f->bytes : 60), f->text);
}

/* A number of at most four digits; -1: none. */
static int digits(const char **at, const char *end)
{
    int value = -1;
    for (; *at < end && **at >= '0' && **at <= '9' && value < 1000; ++*at)
        value = (value < 0 ? 0 : 10 * value) + (**at - '0');
    return value;
}

/* ---- one value ---- */

static void pad(jv_builder *out, const field *f, size_t count)
{
    for (size_t i = 0; i < count && !out->run->failed; i++) jv_add_text(out, f->fill);
}

/* `body` is a text or the digits of a number, which follow its sign. */
static void add_padded(jv_builder *out, const field *f, const char *sign, const jv_string *body,
                       char align)
{
    size_t length = strlen(sign) + jv_length(body);
    size_t width = f->width > 0 ? (size_t)f->width : 0,
           missing = width > length ? width - length : 0;
    size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    if (align != '=') pad(out, f, before);
    jv_add_text(out, sign);
    if (align == '=') pad(out, f, missing);
    jv_add_string(out, body);
    if (align == '<' || align == '^') pad(out, f, missing - before);
}

/* Thousands separated by commas; `to` has room for a third more. */
static void format_group(char *to, const char *from)
{
    size_t whole = strspn(from, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) *to++ = ',';
        *to++ = from[i];
    }
    memcpy(to, from + whole, strlen(from + whole) + 1);
}

static void add_number(jv_builder *out, const field *f, bool negative, const char *prefix,
                       const char *figures)
{
    char sign[8], grouped[1024];
    snprintf(sign, sizeof sign, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    if (f->grouped) format_group(grouped, figures);
    jv body = jv_text(out->run, f->grouped ? grouped : figures);
    if (!out->run->failed)
        add_padded(out, f, sign, body.string, f->align ? f->align : f->zero ? '=' : '>');
}

static void format_add_integer(jv_builder *out, const field *f, int64_t value)
{
    char figures[32];
    unsigned long long size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    bool small = f->type == 'x', hex = small || f->type == 'X', octal = f->type == 'o';
    const char *prefix = small ? "0x" : hex ? "0X" : octal ? "0o" : "";
    if (!f->alternative) prefix = "";
    snprintf(figures, sizeof figures,
             small   ? "%llx"
             : hex   ? "%llX"
             : octal ? "%llo"
                     : "%llu",
             size);
    add_number(out, f, value < 0, prefix, figures);
}

static void format_add_float(jv_builder *out, const field *f, double value)
{
    char figures[512];
    int precision = f->precision < 0 ? 6 : f->precision;
    double size = fabs(value);
    bool percent = f->type == '%';
    if (percent) size *= 100;
    char kind = (char)tolower(f->type);
    if (!isfinite(size))
        snprintf(figures, sizeof figures, isnan(size) ? "nan" : "inf");
    else
        snprintf(figures, sizeof figures,
                 kind == 'e'   ? "%.*e"
                 : kind == 'g' ? "%.*g"
                               : "%.*f",
                 precision, size);
    for (char *c = figures; *c && f->type != kind; c++) *c = (char)toupper(*c);
    if (percent) strcat(figures, "%");
    add_number(out, f, signbit(value) && !isnan(value), "", figures);
}

static void add_string(jv_builder *out, const field *f, const jv_string *text)
{
    jv cut = {.kind = JV_STRING, .string = text};
    if (f->precision >= 0 && jv_look(out->run, text->bytes) &&
        jv_length(text) > (size_t)f->precision)
        cut = jv_slice(out->run, text, 0, jv_offset(text, (size_t)f->precision));
    if (!out->run->failed) add_padded(out, f, "", cut.string, f->align ? f->align : '<');
}

/* ---- the operator % ---- */

/* After "%": flags, width, precision, type. False: failed. */
static bool parse_conversion(jv_run *run, const char **at, const char *end, field *f)
{
    const char *begin = f->text;
    for (; *at < end && strchr("-+ 0#", **at); ++*at) {
        if (**at == '-') f->align = '<';
        if (**at == '+' || (**at == ' ' && !f->sign)) f->sign = **at;
        if (**at == '0') f->zero = true;
        if (**at == '#') f->alternative = true;
    }
    if (f->align) f->zero = false;
    f->width = digits(at, end);
    f->precision = -1;
    if (*at < end && **at == '.') {
        ++*at;
        f->precision = digits(at, end);
        if (f->precision < 0) f->precision = 0;
    }
    f->type = *at < end ? *(*at)++ : 0;
    f->bytes = (size_t)(*at - begin);
    strcpy(f->fill, f->zero && f->type != 's' && f->type != 'r' && f->type != 'c' ? "0" : " ");
    if (f->width <= MAX_WIDTH && f->precision <= MAX_PRECISION && f->type) return true;
    unsupported(run, f);
    return false;
}

static void add_conversion(jv_builder *out, const field *f, jv value)
{
    jv_run *run = out->run;
    int64_t integer;
    if (f->type == 's' || f->type == 'r') {
        jv text = f->type == 's' ? jv_to_string(run, value) : jv_repr(run, value);
        field right = *f;
        if (!f->align) right.align = '>';
        if (!run->failed) add_string(out, &right, text.string);
    } else if (strchr("diuxXo", f->type)) {
        bool decimal = strchr("diu", f->type);
        bool whole = jv_integer(value, &integer);
        if (!whole && decimal && value.kind == JV_FLOAT && fabs(value.number) < 9e18) {
            integer = (int64_t)value.number;
            whole = true;
        }
        if (f->precision >= 0)
            unsupported(run, f);
        else if (whole)
            format_add_integer(out, f, integer);
        else
            jv_fail(run, PJ_E_INVALID, "%%%c format: %s is required, not %s", f->type,
                    decimal ? "a real number" : "an integer", jv_type_name(value));
    } else if (strchr("eEfFgG", f->type)) {
        if (f->alternative)
            unsupported(run, f);
        else if (jv_is_number(value))
            format_add_float(out, f, jv_number(value));
        else
            jv_fail(run, PJ_E_INVALID, "must be real number, not %s", jv_type_name(value));
    } else {
        unsupported(run, f);
    }
}

jv jv_percent(jv_run *run, const jv_string *format, jv values)
{
    bool many = values.kind == JV_LIST && values.list->is == JV_PLAIN && values.list->tuple;
    size_t count = many ? values.list->count : 1, used = 0;
    bool named = false;
    jv_builder out = {.run = run};
    const char *at = format->text, *end = at + format->bytes;
    while (at < end && !run->failed) {
        const char *percent = memchr(at, '%', (size_t)(end - at));
        const char *stop = percent ? percent : end;
        jv_add_part(&out, format, (size_t)(at - format->text), (size_t)(stop - format->text));
        if (!percent) break;
        at = percent + 1;
        field f = {.text = percent, .bytes = 1};
        jv value = jv_undefined(NULL);
        if (at < end && *at == '(') {
            const char *close = memchr(at, ')', (size_t)(end - at));
            if (!close || values.kind != JV_DICT)
                return jv_fail(run, PJ_E_INVALID, "format requires a mapping");
            jv key = jv_bytes(run, at + 1, NULL, (size_t)(close - at - 1));
            const jv *found = run->failed ? NULL : jv_dict_find(run, values.dict, key);
            if (!found)
                return jv_fail(run, PJ_E_INVALID, "the format's key %.*s is missing",
                               (int)(close - at - 1 < 60 ? close - at - 1 : 60), at + 1);
            value = *found;
            named = true;
            at = close + 1;
        }
        if (!parse_conversion(run, &at, end, &f)) break;
        if (f.type == '%') {
            if (f.bytes > 2) return unsupported(run, &f);
            jv_add_text(&out, "%");
            continue;
        }
        if (!named) {
            if (used == count)
                return jv_fail(run, PJ_E_INVALID, "not enough arguments for format string");
            value = many ? values.list->items[used] : values;
            used++;
        }
        add_conversion(&out, &f, value);
    }
    if (!run->failed && !named && used < count && values.kind != JV_DICT &&
        (many || values.kind != JV_LIST))
        return jv_fail(run, PJ_E_INVALID, "not all arguments converted during string formatting");
    return jv_built(&out);
}

/* ---- str.format ---- */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool parse_specification(jv_run *run, const char *at, const char *end, field *f)
{
    size_t first = 0;
    while (at + first < end && first < 4 &&
           (first == 0 || ((unsigned char)at[first] & 0xc0) == 0x80))
        first++;
    f->width = f->precision = -1;
    strcpy(f->fill, " ");
    if (first && at + first < end && is_align(at[first])) {
        memcpy(f->fill, at, first);
        f->fill[first] = 0;
        f->align = at[first];
        at += first + 1;
    } else if (at < end && is_align(*at)) {
        f->align = *at++;
    }
    if (at < end && (*at == '+' || *at == '-' || *at == ' ')) {
        f->sign = *at == '-' ? 0 : *at;
        at++;
    }
    if (at < end && *at == '#') {
        f->alternative = true;
        at++;
    }
    if (at < end && *at == '0') {
        f->zero = true;
        at++;
        if (!f->align) strcpy(f->fill, "0");
    }
    f->width = digits(&at, end);
    if (at < end && *at == ',') {
        f->grouped = true;
        at++;
    }
    if (at < end && *at == '.') {
        at++;
        f->precision = digits(&at, end);
        if (f->precision < 0) f->precision = MAX_PRECISION + 1;
    }
    if (at < end) f->type = *at++;
    if (at == end && f->width <= MAX_WIDTH && f->precision <= MAX_PRECISION &&
        !(f->grouped && f->zero))
        return true;
    unsupported(run, f);
    return false;
}

static void add_specified(jv_builder *out, const field *f, jv value)
{
    int64_t integer;
    bool whole = jv_integer(value, &integer);
    if (value.kind == JV_STRING) {
        if ((f->type && f->type != 's') || f->align == '=' || f->sign || f->zero || f->grouped ||
            f->alternative)
            unsupported(out->run, f);
        else
            add_string(out, f, value.string);
    } else if (value.kind == JV_INT && (!f->type || strchr("dxXo", f->type))) {
        if (f->precision >= 0 || (f->grouped && f->type && f->type != 'd'))
            unsupported(out->run, f);
        else
            format_add_integer(out, f, integer);
    } else if ((value.kind == JV_FLOAT || (value.kind == JV_INT && whole)) && f->type &&
               strchr("eEfFgG%", f->type) && !f->alternative) {
        format_add_float(out, f, jv_number(value));
    } else {
        unsupported(out->run, f);
    }
}

void jv_add_formatted(jv_builder *out, jv value, const char *specification, size_t bytes)
{
    field f = {.text = specification, .bytes = bytes};
    if (bytes == 0)
        jv_add_value(out, value);
    else if (parse_specification(out->run, specification, specification + bytes, &f))
        add_specified(out, &f, value);
}
