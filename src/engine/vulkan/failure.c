/* Failures of Vulkan as sentences. */
#include "engine/vulkan/api.h"

#include <stdio.h>

/* The device's own words on why it was lost; empty where it has none. */
static void failure_fault_text(const pj_vk *vk, char *text, size_t bytes)
{
    VkDeviceFaultCountsEXT counts = {.sType = VK_STRUCTURE_TYPE_DEVICE_FAULT_COUNTS_EXT};
    VkDeviceFaultInfoEXT fault = {.sType = VK_STRUCTURE_TYPE_DEVICE_FAULT_INFO_EXT};
    *text = 0;
    if (!vk->device || !vk->instance.fn.GetDeviceFaultInfoEXT) return;
    if (vk->instance.fn.GetDeviceFaultInfoEXT(vk->device, &counts, NULL) < 0) return;
    counts.addressInfoCount = counts.vendorInfoCount = 0;
    counts.vendorBinarySize = 0;
    if (vk->instance.fn.GetDeviceFaultInfoEXT(vk->device, &counts, &fault) < 0) return;
    snprintf(text, bytes, "%.200s", fault.description);
}

pj_status pj_vk_fail(const pj_vk *vk, VkResult result, pj_error *err, const char *what)
{
    char fault[300] = "";
    bool memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    bool lost = result == VK_ERROR_DEVICE_LOST || result == VK_TIMEOUT;
    if (result == VK_ERROR_DEVICE_LOST) failure_fault_text(vk, fault, sizeof fault);
    return pj_fail(err,
                   memory ? PJ_E_NO_MEMORY
                   : lost ? PJ_E_LOST
                          : PJ_E_UNAVAILABLE,
                   "%s: %s: %s%s%s", vk->physical.info.name, what, pj_vk_result_text(result),
                   *fault ? ": " : "", fault);
}

const char *pj_vk_result_text(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "the host is out of memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "the device is out of memory";
    case VK_ERROR_INITIALIZATION_FAILED: return "initialisation failed";
    case VK_ERROR_DEVICE_LOST: return "the device is lost";
    case VK_ERROR_MEMORY_MAP_FAILED: return "memory cannot be mapped";
    case VK_ERROR_LAYER_NOT_PRESENT: return "a layer is missing";
    case VK_ERROR_EXTENSION_NOT_PRESENT: return "an extension is missing";
    case VK_ERROR_FEATURE_NOT_PRESENT: return "a feature is missing";
    case VK_ERROR_INCOMPATIBLE_DRIVER: return "there is no driver for this machine's devices";
    case VK_ERROR_TOO_MANY_OBJECTS: return "too many objects";
    case VK_ERROR_INVALID_SHADER_NV: return "the driver refuses the shader";
    case VK_TIMEOUT: return "it did not finish in time";
    default: return "an unknown error of the driver";
    }
}
