/* "cpu 61 °C, 3.90 GHz, 41 % busy; gpu0 72 °C, throttled by power 12 % of the time". */
#include "cli/conditions_line.h"

#include "trace/device_conditions.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct line {
    char *text;
    size_t bytes, used;
    bool first; /* nothing of its device was written yet */
} line;

static void conditions_line_add(line *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void conditions_line_add(line *l, const char *format, ...)
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

static void add_device(line *l, const pj_device_conditions *d)
{
    if (!isnan(d->temperature_max_c)) conditions_line_add(l, "%.0f °C", d->temperature_max_c);
    if (!isnan(d->clock_mhz)) conditions_line_add(l, "%.2f GHz", d->clock_mhz * 1e-3);
    if (!isnan(d->utilisation)) conditions_line_add(l, "%.0f %% busy", d->utilisation * 100);
    if (!isnan(d->power_limit_mw)) conditions_line_add(l, "limit %.4g W", d->power_limit_mw * 1e-3);
    if (!isnan(d->tdp_share))
        conditions_line_add(l, "%.0f %% of its TDP of %.4g W", d->tdp_share * 100,
                            d->tdp_mw * 1e-3);
    if (d->throttled_share > 0)
        conditions_line_add(l, "throttled (%s) %.0f %% of the time",
                            d->throttle_known ? d->throttle : "unknown", d->throttled_share * 100);
}

void pj_conditions_line(const char *conditions_json, const char *between, char *text, size_t bytes)
{
    line l = {.text = text, .bytes = bytes};
    pj_device_conditions devices[PJ_DEVICES_MAX];
    uint32_t count = pj_device_conditions_read(conditions_json, devices);
    text[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t before = l.used;
        if (l.used < bytes)
            l.used += (size_t)snprintf(text + l.used, bytes - l.used, "%s%s", l.used ? between : "",
                                       devices[i].device);
        l.first = true;
        add_device(&l, &devices[i]);
        if (l.first && before < bytes) text[l.used = before] = 0; /* nothing reported */
    }
}
