#include "attach/energy_fields.h"

#include "base/decimal.h"

#include <math.h>
#include <string.h>

static const char *const figure_names[PJ_FIGURE_COUNT] = {"total", "input", "output", "lo", "hi"};

static const struct {
    const char *name;
    double per_joule;
} units[] = {{"J", 1},          {"mJ", 1e3},      {"uJ", 1e6},       {"kJ", 1e-3},
             {"Wh", 1 / 3600.}, {"mWh", 1 / 3.6}, {"kWh", 1 / 3.6e6}};

static bool is_text(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* A name becomes a member of a JSON object as it is, beside those of the server's answer. */
static bool is_name(const char *text, size_t length)
{
    static const char *const taken[] = {"energy_joules", "prompt_tokens", "completion_tokens",
                                        "total_tokens",  "input_tokens",  "output_tokens"};
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (length == 0 || length >= PJ_ENERGY_FIELD_NAME_BYTES) return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (is_text(text, length, taken[i])) return false;
    return strspn(text, allowed) >= length;
}

static uint32_t place_of(const pj_energy_fields *fields, const char *name, size_t length)
{
    uint32_t i = 0;
    while (i < fields->count && !is_text(name, length, fields->items[i].name)) i++;
    return i;
}

static bool add_one(pj_energy_fields *fields, const char *item, size_t length)
{
    const char *equals = memchr(item, '=', length);
    if (!equals || !is_name(item, (size_t)(equals - item))) return false;
    const char *figure = equals + 1, *end = item + length;
    const char *colon = memchr(figure, ':', (size_t)(end - figure));
    const char *unit = colon ? colon + 1 : "J";
    size_t name_length = (size_t)(equals - item), unit_length = colon ? (size_t)(end - unit) : 1;
    int f = 0, u = 0, unit_count = sizeof units / sizeof *units;
    while (f < PJ_FIGURE_COUNT &&
           !is_text(figure, (size_t)((colon ? colon : end) - figure), figure_names[f]))
        f++;
    while (u < unit_count && !is_text(unit, unit_length, units[u].name)) u++;
    uint32_t place = place_of(fields, item, name_length);
    if (f == PJ_FIGURE_COUNT || u == unit_count || place == PJ_ENERGY_FIELDS) return false;
    memcpy(fields->items[place].name, item, name_length);
    fields->items[place].name[name_length] = 0;
    fields->items[place].figure = (pj_energy_figure)f;
    fields->items[place].per_joule = units[u].per_joule;
    if (place == fields->count) fields->count++;
    return true;
}

pj_status pj_energy_fields_add(pj_energy_fields *fields, const char *list, pj_error *err)
{
    for (const char *at = list; *at;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ", ");
        if (!add_one(fields, at, length))
            return pj_fail(err, PJ_E_INVALID,
                           "energy field %.*s is not NAME=FIGURE[:UNIT] with a figure of total, "
                           "input, output, lo, hi and a unit of J, mJ, uJ, kJ, Wh, mWh, kWh (at "
                           "most %d of them, no name of the server's own)",
                           (int)(length < 80 ? length : 80), at, PJ_ENERGY_FIELDS);
        at += length;
        at += strspn(at, ", ");
    }
    return PJ_OK;
}

void pj_energy_fields_write(const pj_energy_fields *fields, const double figures[PJ_FIGURE_COUNT],
                            pj_buffer *to)
{
    for (uint32_t i = 0; i < fields->count; i++) {
        char text[PJ_DECIMAL_BYTES];
        double value = figures[fields->items[i].figure] * fields->items[i].per_joule;
        pj_buffer_printf(to, ",\"%s\":", fields->items[i].name);
        if (isfinite(value))
            pj_buffer_append(to, text, pj_decimal_double(value, text));
        else
            pj_buffer_text(to, "null");
    }
}
