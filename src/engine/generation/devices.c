#include "engine/generation/devices.h"

#include "engine/cpu/device.h"
#include "engine/vulkan/gpu.h"

#include <strings.h>

/* The first is the default. */
static const pj_backend *const backends[] = {&pj_backend_cpu, &pj_backend_vulkan};

static pj_status devices_find(const char *device, const pj_backend **backend, pj_error *err)
{
    *backend = backends[0];
    if (!device) return PJ_OK;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        *backend = backends[i];
        if (backends[i]->has(device)) return PJ_OK;
    }
    return pj_fail(
        err, PJ_E_INVALID,
        "there is no device \"%.60s\": use auto, cpu, gpu, gpu:N, or a name or UUID that "
        "`perjoule devices` lists",
        device);
}

/* A GPU that is hardware, if there is one that takes the model; else the CPU. */
static pj_status devices_load_best(pj_loaded *loaded, pj_load_request *request, pj_error *err)
{
    request->device = "gpu";
    pj_status status = pj_load(loaded, &pj_backend_vulkan, request, err);
    if (status == PJ_OK || status == PJ_E_CANCELLED) return status;
    request->device = "cpu";
    return pj_load(loaded, &pj_backend_cpu, request, err);
}

pj_status pj_device_load(pj_loaded *loaded, pj_load_request *request, pj_error *err)
{
    const pj_backend *backend;
    if (request->device && strcasecmp(request->device, "auto") == 0)
        return devices_load_best(loaded, request, err);
    pj_status status = devices_find(request->device, &backend, err);
    return status == PJ_OK ? pj_load(loaded, backend, request, err) : status;
}

pj_status pj_device_check(const char *device, pj_error *err)
{
    const pj_backend *backend;
    return device && strcasecmp(device, "auto") == 0 ? PJ_OK : devices_find(device, &backend, err);
}
