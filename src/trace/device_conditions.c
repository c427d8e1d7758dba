#include "trace/device_conditions.h"

#include "trace/json_member.h"

#include <stdio.h>

void pj_device_conditions_write(const pj_device_conditions *d, pj_json *json)
{
    pj_json_kv_object_begin(json, d->device);
#define WRITE(name) pj_json_kv_double(json, #name, d->name);
    PJ_CONDITION_NUMBERS(WRITE)
#undef WRITE
    pj_json_kv_bool(json, "power_limit_changed", d->power_limit_changed);
    pj_json_kv_string(json, "throttle", d->throttle_known ? d->throttle : NULL);
    pj_json_object_end(json);
}

static void read_device(const json_t *object, pj_device_conditions *d)
{
#define READ(name) d->name = pj_member_number(object, #name);
    PJ_CONDITION_NUMBERS(READ)
#undef READ
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
