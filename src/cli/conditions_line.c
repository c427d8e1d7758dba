/* "cpu 61 °C, 3.90 GHz, 41 % busy; gpu0 72 °C, throttled by power 12 % of the time". */
#include "cli/conditions_line.h"

#include "trace/json_member.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct line {
    char *text;
    size_t bytes, used;
    bool first; /* nothing of its device was written yet */
} line;

static void add(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(line *l, const char *format, ...)
{
    va_list args;
    if (l->used >= l->bytes) return;
    l->used += (size_t)snprintf(l->text + l->used, l->bytes - l->used, l->first ? " " : ", ");
    l->first = false;
    if (l->used >= l->bytes) return;
    va_start(args, format);
    l->used += (size_t)vsnprintf(l->text + l->used, l->bytes - l->used, format, args);
    va_end(args);
}

static void add_device(line *l, const json_t *device)
{
    double celsius = pj_member_number(device, "temperature_max_c"),
           mhz = pj_member_number(device, "clock_mhz");
    double use = pj_member_number(device, "utilisation"),
           limit = pj_member_number(device, "power_limit_mw");
    double throttled = pj_member_number(device, "throttled_share"),
           tdp = pj_member_number(device, "tdp_share");
    const char *why = json_string_value(json_object_get(device, "throttle"));
    if (!isnan(celsius)) add(l, "%.0f °C", celsius);
    if (!isnan(mhz)) add(l, "%.2f GHz", mhz * 1e-3);
    if (!isnan(use)) add(l, "%.0f %% busy", use * 100);
    if (!isnan(limit)) add(l, "limit %.4g W", limit * 1e-3);
    if (!isnan(tdp))
        add(l, "%.0f %% of its TDP of %.4g W", tdp * 100,
            pj_member_number(device, "tdp_mw") * 1e-3);
    if (throttled > 0)
        add(l, "throttled (%s) %.0f %% of the time", why ? why : "unknown", throttled * 100);
}

void pj_conditions_line(const char *conditions_json, const char *between, char *text, size_t bytes)
{
    line l = {.text = text, .bytes = bytes};
    json_t *root = conditions_json ? json_loads(conditions_json, 0, NULL) : NULL;
    const char *name;
    const json_t *device;
    text[0] = 0;
    json_object_foreach(root, name, device)
    {
        size_t before = l.used;
        if (l.used < bytes)
            l.used += (size_t)snprintf(text + l.used, bytes - l.used, "%s%s", l.used ? between : "",
                                       name);
        l.first = true;
        add_device(&l, device);
        if (l.first && before < bytes) text[l.used = before] = 0; /* nothing reported */
    }
    json_decref(root);
}
