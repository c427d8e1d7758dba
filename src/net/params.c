#include "net/params.h"

#include "base/clock.h"
#include "base/decimal.h"
#include "base/nearest.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- decoding ------------------------------------------------------------------------------ */

/* Percent-decodes into the arena; NULL for invalid escapes, a decoded NUL, or out of memory. */
static char *params_decode(const char *text, size_t bytes, bool plus_is_space, pj_arena *arena)
{
    char *out = pj_arena_alloc(arena, bytes + 1, 1);
    size_t n = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '%') {
            bool whole = bytes - i > 2;
            int high = whole ? pj_hex_digit(text[i + 1]) : -1,
                low = whole ? pj_hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0) return NULL;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_space)
            c = ' ';
        if (c == 0) return NULL;
        out[n++] = c;
    }
    out[n] = 0;
    return out;
}

/* Valid UTF-8 without control characters. */
static bool is_plain_text(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f) return false;
    return pj_utf8_valid(text, strlen(text));
}

static pj_status parse_query(const char *text, size_t bytes, pj_params *params, pj_arena *arena,
                             pj_error *err)
{
    while (bytes > 0) {
        const char *end = memchr(text, '&', bytes);
        size_t length = end ? (size_t)(end - text) : bytes;
        const char *equals = memchr(text, '=', length);
        size_t name_bytes = equals ? (size_t)(equals - text) : length;
        if (length > 0) {
            if (params->count == PJ_PARAMS_MAX)
                return pj_fail(err, PJ_E_INVALID, "more than %d query parameters", PJ_PARAMS_MAX);
            pj_param *param = &params->items[params->count++];
            param->name = params_decode(text, name_bytes, true, arena);
            param->value =
                equals ? params_decode(equals + 1, length - name_bytes - 1, true, arena) : "";
            if (!param->name || !param->value || !is_plain_text(param->name) ||
                !is_plain_text(param->value))
                return pj_fail(err, PJ_E_INVALID,
                               "the query is not valid: values are percent-encoded UTF-8 without "
                               "control characters");
        }
        text += end ? length + 1 : length;
        bytes -= end ? length + 1 : length;
    }
    return PJ_OK;
}

/* Takes "http://authority" off the target; an empty path after it is "/". */
static pj_status take_authority(const char **raw, size_t *bytes, pj_target *target, pj_arena *arena,
                                pj_error *err)
{
    static const char scheme[] = "http://";
    enum { SCHEME_BYTES = sizeof scheme - 1 };
    if (*bytes < SCHEME_BYTES || strncasecmp(*raw, scheme, SCHEME_BYTES) != 0) return PJ_OK;
    size_t n = SCHEME_BYTES;
    while (n < *bytes && (*raw)[n] != '/' && (*raw)[n] != '?') n++;
    target->authority = pj_arena_strndup(arena, *raw + SCHEME_BYTES, n - SCHEME_BYTES);
    if (!target->authority) return pj_fail(err, PJ_E_INVALID, "the address is too long");
    *raw += n;
    *bytes -= n;
    return PJ_OK;
}

pj_status pj_target_parse(const char *raw, pj_target *target, pj_arena *arena, pj_error *err)
{
    size_t bytes = strlen(raw);
    *target = (pj_target){0};
    if (bytes > PJ_TARGET_MAX_BYTES)
        return pj_fail(err, PJ_E_INVALID, "the address is longer than %d bytes",
                       PJ_TARGET_MAX_BYTES);
    for (size_t i = 0; i < bytes; i++)
        if (raw[i] <= ' ' || raw[i] > '~')
            return pj_fail(err, PJ_E_INVALID,
                           "the address contains a byte that must be percent-encoded");
    pj_status status = take_authority(&raw, &bytes, target, arena, err);
    if (status != PJ_OK) return status;
    const char *question = memchr(raw, '?', bytes);
    size_t path_bytes = question ? (size_t)(question - raw) : bytes;
    bool root = target->authority && path_bytes == 0;
    target->path = root ? "/" : params_decode(raw, path_bytes, false, arena);
    if (!target->path || target->path[0] != '/' || !is_plain_text(target->path))
        return pj_fail(err, PJ_E_INVALID, "the path of the address is not valid");
    if (!question) return PJ_OK;
    return parse_query(question + 1, bytes - path_bytes - 1, &target->params, arena, err);
}

/* ---- checking ------------------------------------------------------------------------------ */

/* Whether `text` is one of "a|b|c". */
static bool params_is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (n == length && strncmp(p, text, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static pj_status unknown(const char *name, const pj_param_rule *rules, pj_error *err)
{
    pj_nearest nearest;
    char hint[128];
    pj_nearest_begin(&nearest, name);
    for (const pj_param_rule *r = rules; r && r->name; r++)
        pj_nearest_offer(&nearest, r->name, strlen(r->name));
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    if (*hint) return pj_fail(err, PJ_E_INVALID, "unknown query parameter %.60s%s", name, hint);
    if (!rules || !rules[0].name)
        return pj_fail(err, PJ_E_INVALID, "%.60s: this address takes no query parameters", name);
    return pj_fail(err, PJ_E_INVALID, "unknown query parameter %.60s (known: %s, ...)", name,
                   rules[0].name);
}

static bool params_parse_number(const char *text, double *number)
{
    char *end;
    if (!*text || *text == ' ') return false;
    *number = strtod(text, &end);
    return *end == 0 && isfinite(*number) && !strpbrk(text, "xXnN");
}

static bool parse_int(const char *text, int64_t *number)
{
    char *end;
    if (!*text || *text == ' ') return false;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return *end == 0 && errno == 0;
}

static pj_status check_number(const pj_param_rule *rule, const char *value, pj_error *err)
{
    double number = 0;
    int64_t whole = 0;
    bool ok =
        rule->type == PJ_PARAM_INT ? parse_int(value, &whole) : params_parse_number(value, &number);
    if (rule->type == PJ_PARAM_INT) number = (double)whole;
    bool bounded = rule->min != 0 || rule->max != 0;
    if (ok && (!bounded || (number >= rule->min && number <= rule->max))) return PJ_OK;
    const char *kind = rule->type == PJ_PARAM_INT ? "an integer" : "a number";
    if (!bounded) return pj_fail(err, PJ_E_INVALID, "%s must be %s", rule->name, kind);
    return pj_fail(err, PJ_E_INVALID, "%s must be %s from %.15g to %.15g", rule->name, kind,
                   rule->min, rule->max);
}

static pj_status check_value(const pj_param_rule *rule, const char *value, pj_error *err)
{
    int64_t when;
    switch (rule->type) {
    case PJ_PARAM_INT:
    case PJ_PARAM_NUMBER: return check_number(rule, value, err);
    case PJ_PARAM_CHOICE:
        if (params_is_choice(rule->choices, value)) return PJ_OK;
        return pj_fail(err, PJ_E_INVALID, "%s must be one of %s", rule->name, rule->choices);
    case PJ_PARAM_TIME:
        if (pj_clock_parse_iso(value, &when)) return PJ_OK;
        return pj_fail(err, PJ_E_INVALID,
                       "%s must be a date or time such as 2026-01-31 or 2026-01-31T12:00:00+00:00 "
                       "(a plus sign is written %%2B in a query)",
                       rule->name);
    default: return PJ_OK;
    }
}

pj_status pj_params_check(const pj_params *params, const pj_param_rule *rules, pj_error *err)
{
    for (uint32_t i = 0; i < params->count; i++) {
        const char *name = params->items[i].name;
        const pj_param_rule *rule = rules;
        while (rule && rule->name && strcmp(rule->name, name) != 0) rule++;
        if (!rule || !rule->name) return unknown(name, rules, err);
        for (uint32_t k = 0; k < i && !rule->repeatable; k++)
            if (strcmp(params->items[k].name, name) == 0)
                return pj_fail(err, PJ_E_INVALID, "%s is given twice", name);
        pj_status status = check_value(rule, params->items[i].value, err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

const char *pj_params_text(const pj_params *params, const char *name)
{
    for (uint32_t i = 0; i < params->count; i++)
        if (strcmp(params->items[i].name, name) == 0) return params->items[i].value;
    return NULL;
}

bool pj_params_is(const pj_params *params, const char *name, const char *value)
{
    const char *text = pj_params_text(params, name);
    return text && strcmp(text, value) == 0;
}

int64_t pj_params_int(const pj_params *params, const char *name, int64_t otherwise)
{
    const char *text = pj_params_text(params, name);
    int64_t value;
    return text && parse_int(text, &value) ? value : otherwise;
}

double pj_params_number(const pj_params *params, const char *name, double otherwise)
{
    const char *text = pj_params_text(params, name);
    double value;
    return text && params_parse_number(text, &value) ? value : otherwise;
}
