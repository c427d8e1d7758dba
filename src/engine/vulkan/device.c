/* Opening and closing a device. */
#include "engine/vulkan/api.h"

#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

const pj_vk_info *pj_vk_device(const pj_vk *vk)
{
    return &vk->physical.info;
}

bool pj_vk_is_validated(const pj_vk *vk)
{
    return vk->instance.messenger != VK_NULL_HANDLE;
}

uint32_t pj_vk_validation_messages(const pj_vk *vk, const char **last)
{
    if (last) *last = vk->instance.last_message;
    return vk->instance.messages;
}

static bool device_is(const pj_vk_info *info, const pj_vk_options *wanted)
{
    return memcmp(info->uuid, wanted->uuid, sizeof info->uuid) == 0 &&
           info->namesakes == wanted->namesakes;
}

static pj_status device_choose(pj_vk *vk, pj_error *err)
{
    pj_vk_physical devices[PJ_VK_MAX_DEVICES];
    uint32_t count, chosen = 0;
    pj_status status = pj_vk_physical_list(&vk->instance, devices, &count, err);
    if (status != PJ_OK) return status;
    while (vk->options.uuid && chosen < count && !device_is(&devices[chosen].info, &vk->options))
        chosen++;
    if (chosen == count) return pj_fail(err, PJ_E_NOT_FOUND, "there is no such Vulkan device");
    vk->physical = devices[chosen];
    if (!vk->physical.info.usable)
        return pj_fail(err, PJ_E_UNSUPPORTED, "%s cannot be used: %s", vk->physical.info.name,
                       vk->physical.info.reason);
    return PJ_OK;
}

static uint32_t device_extensions(pj_vk *vk, const char **names)
{
    static const char *const wanted[] = {
        VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME, "VK_KHR_calibrated_timestamps",
        VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, VK_EXT_DEVICE_FAULT_EXTENSION_NAME,
        VK_KHR_PORTABILITY_SUBSET_EXTENSION_NAME};
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (pj_vk_has_extension(&vk->instance, vk->physical.handle, wanted[i]))
            names[count++] = wanted[i];
    if (vk->physical.info.cooperative_matrix) names[count++] = "VK_KHR_cooperative_matrix";
    return count;
}

/* Only what shaders use is switched on; what a device must have was checked before. */
static VkResult device_create(pj_vk *vk)
{
    const pj_vk_info *info = &vk->physical.info;
    bool v13 = info->api_major > 1 || info->api_minor >= 3;
    const char *extensions[8];
    const float priority = 1;
    VkPhysicalDeviceFaultFeaturesEXT fault = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT, .deviceFault = VK_TRUE};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .pNext = info->device_fault ? &fault : NULL,
        .cooperativeMatrix = VK_TRUE};
    VkPhysicalDeviceVulkan13Features f13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
        .pNext = info->cooperative_matrix ? &matrices : matrices.pNext,
        .subgroupSizeControl = info->subgroup_control,
        .computeFullSubgroups = info->subgroup_control,
        .shaderIntegerDotProduct = VK_TRUE,
        .maintenance4 = VK_TRUE};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = v13 ? (void *)&f13 : f13.pNext,
        .bufferDeviceAddress = VK_TRUE,
        .timelineSemaphore = VK_TRUE,
        .hostQueryReset = VK_TRUE,
        .scalarBlockLayout = VK_TRUE,
        .storageBuffer8BitAccess = VK_TRUE,
        .shaderInt8 = VK_TRUE,
        .shaderFloat16 = info->float16,
        .vulkanMemoryModel = info->cooperative_matrix};
    VkPhysicalDeviceVulkan11Features f11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &f12,
        .storageBuffer16BitAccess = VK_TRUE};
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = vk->physical.family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &f11,
        .features = {.shaderInt64 = VK_TRUE, .shaderInt16 = VK_TRUE}};
    VkDeviceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                 .pNext = &features,
                                 .queueCreateInfoCount = 1,
                                 .pQueueCreateInfos = &queue,
                                 .enabledExtensionCount = device_extensions(vk, extensions),
                                 .ppEnabledExtensionNames = extensions};
    return vk->instance.fn.CreateDevice(vk->physical.handle, &create, NULL, &vk->device);
}

/* Software shares the CPU with whatever else runs, and compiles kernels when they first run. */
static int64_t device_patience_ns(const pj_vk_info *info)
{
    return (pj_vk_is_hardware(info) ? 60 : 600) * PJ_NS_PER_S;
}

static pj_status device_start(pj_vk *vk, pj_error *err)
{
    pj_status status = pj_vk_instance_open(&vk->instance, vk->options.validate, err);
    if (status == PJ_OK) status = device_choose(vk, err);
    if (status != PJ_OK) return status;
    if (!vk->options.timeout_ns) vk->options.timeout_ns = device_patience_ns(&vk->physical.info);
    VkResult result = device_create(vk);
    if (result != VK_SUCCESS) {
        vk->device = NULL;
        return pj_vk_fail(vk, result, err, "it cannot be opened");
    }
    if (!pj_vk_load_device_functions(&vk->instance, vk->device))
        return pj_vk_fail(vk, VK_ERROR_FEATURE_NOT_PRESENT, err, "it cannot be opened");
    vk->instance.fn.GetDeviceQueue(vk->device, vk->physical.family, 0, &vk->queue);
    status = pj_vk_recordings_open(vk, err);
    if (status == PJ_OK) status = pj_vk_pipelines_open(vk, err);
    if (status == PJ_OK) status = pj_vk_clock_open(vk, err);
    return status;
}

pj_status pj_vk_open(pj_vk **vk, const pj_vk_options *options, pj_error *err)
{
    *vk = pj_alloc(1, sizeof **vk);
    if (!*vk) return pj_fail_memory(err, "a Vulkan device");
    if (options) (*vk)->options = *options;
    pj_status status = device_start(*vk, err);
    (*vk)->options.uuid = NULL; /* the caller's */
    (*vk)->options.cache_dir = NULL;
    if (status == PJ_OK) return PJ_OK;
    pj_vk_close(*vk);
    *vk = NULL;
    return status;
}

/* A device that hangs even now is left as it is. */
void pj_vk_close(pj_vk *vk)
{
    if (!vk || pj_vk_is_stuck(vk)) return;
    pj_vk_functions *fn = &vk->instance.fn;
    if (vk->device && fn->DestroyDevice) {
        for (int i = 0; i < 2; i++) pj_vk_buffer_free(vk, &vk->staging.buffers[i]);
        pj_vk_clock_close(vk);
        pj_vk_pipelines_close(vk);
        pj_vk_recordings_close(vk);
        fn->DestroyDevice(vk->device, NULL);
    }
    pj_vk_instance_close(&vk->instance);
    pj_free(vk);
}
