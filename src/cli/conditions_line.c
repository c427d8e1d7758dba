/* "cpu 61 °C, 3.90 GHz, 41 % busy; gpu0 72 °C, throttled by power 12 % of the time". */
#include "cli/conditions_line.h"

#include "base/buffer.h"
#include "trace/device_conditions.h"

#include <math.h>
#include <stdio.h>

/* Conditions, each followed by ", ". */
static void conditions_line_device(pj_buffer *out, const pj_device_conditions *d)
{
    if (!isnan(d->temperature_max_c)) pj_buffer_printf(out, "%.0f °C, ", d->temperature_max_c);
    if (!isnan(d->clock_mhz)) pj_buffer_printf(out, "%.2f GHz, ", d->clock_mhz * 1e-3);
    if (!isnan(d->utilisation)) pj_buffer_printf(out, "%.0f %% busy, ", d->utilisation * 100);
    if (!isnan(d->power_limit_mw))
        pj_buffer_printf(out, "limit %.4g W, ", d->power_limit_mw * 1e-3);
    if (!isnan(d->tdp_share))
        pj_buffer_printf(out, "%.0f %% of its TDP of %.4g W, ", d->tdp_share * 100,
                         d->tdp_mw * 1e-3);
    if (d->throttled_share > 0)
        pj_buffer_printf(out, "throttled (%s) %.0f %% of the time, ",
                         d->throttle_known ? d->throttle : "unknown", d->throttled_share * 100);
}

void pj_conditions_line(const char *conditions_json, const char *between, char *text, size_t bytes)
{
    pj_device_conditions devices[PJ_DEVICES_MAX];
    uint32_t count = pj_device_conditions_read(conditions_json, devices);
    pj_buffer device;
    size_t used = 0;
    pj_buffer_init(&device, bytes);
    text[0] = 0;
    for (uint32_t i = 0; i < count && used < bytes; i++) {
        pj_buffer_clear(&device);
        conditions_line_device(&device, &devices[i]);
        if (!device.length) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %.*s", used ? between : "",
                                 devices[i].device, (int)device.length - 2, device.data);
    }
    pj_buffer_fini(&device);
}
