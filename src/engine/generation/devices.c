#include "engine/generation/devices.h"

#include "engine/cpu/device.h"
#include "engine/vulkan/gpu.h"

#include <strings.h>

/* The first is the default. */
static const pj_backend *const backends[] = {&pj_backend_cpu, &pj_backend_vulkan};

static bool devices_is_numbered(const char *device)
{
    return strncasecmp(device, "gpu", 3) == 0 && (!device[3] || device[3] == ':');
}

/* Why a GPU that is wanted by its number is not there; false: it is one of too few. */
static bool devices_lack_gpus(pj_error *why)
{
    pj_vk_info infos[PJ_VK_MAX_DEVICES];
    uint32_t count = 0;
    if (pj_vk_list(infos, &count, why) != PJ_OK) return true;
    for (uint32_t i = 0; i < count; i++)
        if (pj_vk_is_hardware(&infos[i])) return false;
    if (!count) return false;
    pj_fail(why, PJ_E_NOT_FOUND, "%.80s computes on the CPU and is used only if named",
            infos[0].name);
    return true;
}

/* The same for any other name. */
static bool devices_lack_name(const char *device, pj_error *why)
{
    pj_vk_info infos[PJ_VK_MAX_DEVICES];
    uint32_t count = 0;
    pj_error reason = {0};
    if (pj_vk_list(infos, &count, &reason) != PJ_OK)
        pj_fail(why, PJ_E_INVALID, "there is no device \"%.60s\", only the CPU: %s", device,
                reason.text);
    else if (pj_vk_select(infos, count, device) == PJ_VK_SEVERAL)
        pj_fail(why, PJ_E_INVALID,
                "there are several devices \"%.60s\": use gpu:N, or a UUID that is one device's "
                "alone, as `perjoule devices` lists them",
                device);
    else
        return false;
    return true;
}

static pj_status devices_fail(const char *device, pj_error *err)
{
    pj_error why = {0};
    if (devices_is_numbered(device) && devices_lack_gpus(&why))
        return pj_fail(err, PJ_E_INVALID, "there is no device \"%.60s\": %s", device, why.text);
    if (devices_lack_name(device, &why)) {
        if (err) *err = why;
        return why.status;
    }
    return pj_fail(
        err, PJ_E_INVALID,
        "there is no device \"%.60s\": use auto, cpu, gpu, gpu:N, or a name or UUID that "
        "`perjoule devices` lists",
        device);
}

static pj_status devices_find(const char *device, const pj_backend **backend, pj_error *err)
{
    *backend = backends[0];
    if (!device) return PJ_OK;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        *backend = backends[i];
        if (backends[i]->has(device)) return PJ_OK;
    }
    return devices_fail(device, err);
}

/* A GPU that is hardware, if there is one that takes the model; else the CPU. */
static pj_status devices_load_best(pj_loaded *loaded, pj_load_request *request, pj_error *err)
{
    pj_error why = {0};
    if (!devices_lack_gpus(&why)) {
        request->device = "gpu";
        pj_status status = pj_load(loaded, &pj_backend_vulkan, request, &why);
        if (status == PJ_E_CANCELLED && err) *err = why;
        if (status == PJ_OK || status == PJ_E_CANCELLED) return status;
    }
    if (request->declined) *request->declined = why;
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
