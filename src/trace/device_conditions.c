#include "trace/device_conditions.h"

#include "trace/json_member.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MEMBER(name)                                \
    {                                               \
#name, offsetof(pj_device_conditions, name) \
    }
static const struct {
    const char *name;
    size_t offset;
} numbers[] = {MEMBER(temperature_c), MEMBER(temperature_max_c), MEMBER(clock_mhz),
               MEMBER(clock_min_mhz), MEMBER(clock_max_mhz),     MEMBER(memory_clock_mhz),
               MEMBER(utilisation),   MEMBER(power_limit_mw),    MEMBER(throttled_share),
               MEMBER(tdp_mw),        MEMBER(tdp_share)};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

void pj_device_conditions_write(const pj_device_conditions *d, pj_json *json)
{
    pj_json_key(json, d->device);
    pj_json_object_begin(json);
    for (int i = 0; i < NUMBERS; i++) {
        double value;
        memcpy(&value, (const char *)d + numbers[i].offset, sizeof value);
        pj_json_kv_double(json, numbers[i].name, value);
    }
    pj_json_kv_bool(json, "power_limit_changed", d->power_limit_changed);
    pj_json_kv_string(json, "throttle", d->throttle_known ? d->throttle : NULL);
    pj_json_object_end(json);
}

static void read_device(const json_t *object, pj_device_conditions *d)
{
    for (int i = 0; i < NUMBERS; i++) {
        double value = pj_member_number(object, numbers[i].name);
        memcpy((char *)d + numbers[i].offset, &value, sizeof value);
    }
    d->power_limit_changed = json_is_true(json_object_get(object, "power_limit_changed"));
    d->throttle_known = json_is_string(json_object_get(object, "throttle"));
    snprintf(d->throttle, sizeof d->throttle, "%s", pj_member_text(object, "throttle"));
}

uint32_t pj_device_conditions_read(const char *json, pj_device_conditions devices[PJ_DEVICES_MAX])
{
    json_t *root = json ? json_loads(json, 0, NULL) : NULL, *object;
    const char *name;
    uint32_t count = 0;
    json_object_foreach(root, name, object)
    {
        if (count == PJ_DEVICES_MAX) break;
        snprintf(devices[count].device, sizeof devices[count].device, "%s", name);
        read_device(object, &devices[count++]);
    }
    json_decref(root);
    return count;
}
