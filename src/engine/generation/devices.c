#include "engine/generation/devices.h"

#include "base/error.h"
#include "engine/cpu/device.h"

/* The first is the default. */
static const pj_backend *const backends[] = {&pj_backend_cpu};

pj_status pj_device_find(const char *device, const pj_backend **backend, pj_error *err)
{
    *backend = backends[0];
    if (!device) return PJ_OK;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        *backend = backends[i];
        if (backends[i]->has(device)) return PJ_OK;
    }
    return pj_fail(err, PJ_E_INVALID, "unknown device \"%.40s\": use cpu", device);
}
