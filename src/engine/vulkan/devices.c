/* What the physical devices are and can do. */
#include "engine/vulkan/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool devices_have(const VkExtensionProperties *found, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(found[i].extensionName, name) == 0) return true;
    return false;
}

enum { DEVICES_MAX_EXTENSIONS = 512 };

typedef struct devices_extensions {
    VkExtensionProperties list[DEVICES_MAX_EXTENSIONS];
    uint32_t count;
} devices_extensions;

static void devices_read_extensions(const pj_vk_instance *instance, VkPhysicalDevice device,
                                    devices_extensions *e)
{
    e->count = DEVICES_MAX_EXTENSIONS;
    if (instance->fn.EnumerateDeviceExtensionProperties(device, NULL, &e->count, e->list) < 0)
        e->count = 0;
}

bool pj_vk_has_extension(const pj_vk_instance *instance, VkPhysicalDevice device, const char *name)
{
    devices_extensions e;
    devices_read_extensions(instance, device, &e);
    return devices_have(e.list, e.count, name);
}

static pj_vk_kind devices_kind(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return PJ_VK_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return PJ_VK_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return PJ_VK_VIRTUAL;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return PJ_VK_SOFTWARE;
    default: return PJ_VK_OTHER;
    }
}

/* Properties in one chain. Members of later versions or of extensions are read only if the device
 * has them. */
typedef struct devices_properties {
    VkPhysicalDeviceProperties2 core;
    VkPhysicalDeviceVulkan11Properties v11;
    VkPhysicalDeviceVulkan12Properties v12;
    VkPhysicalDeviceVulkan13Properties v13;
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci;
} devices_properties;

static void devices_read_properties(const pj_vk_instance *instance, VkPhysicalDevice device,
                                    bool v13, bool pci, devices_properties *p)
{
    *p = (devices_properties){
        .core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p->v11},
        .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &p->v12},
        .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES},
        .v13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES},
        .pci = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT},
    };
    void **tail = &p->v12.pNext;
    if (v13) {
        *tail = &p->v13;
        tail = &p->v13.pNext;
    }
    if (pci) *tail = &p->pci;
    instance->fn.GetPhysicalDeviceProperties2(device, &p->core);
}

static void devices_describe(const devices_properties *p, bool v13, bool pci, pj_vk_info *info)
{
    const VkPhysicalDeviceProperties *core = &p->core.properties;
    snprintf(info->name, sizeof info->name, "%s", core->deviceName);
    snprintf(info->driver, sizeof info->driver, "%.120s %.120s", p->v12.driverName,
             p->v12.driverInfo);
    info->kind = devices_kind(core->deviceType);
    info->vendor_id = core->vendorID;
    info->device_id = core->deviceID;
    info->api_major = VK_API_VERSION_MAJOR(core->apiVersion);
    info->api_minor = VK_API_VERSION_MINOR(core->apiVersion);
    info->api_patch = VK_API_VERSION_PATCH(core->apiVersion);
    memcpy(info->uuid, p->v11.deviceUUID, sizeof info->uuid);
    info->has_pci = pci;
    info->pci_domain = p->pci.pciDomain;
    info->pci_bus = p->pci.pciBus;
    info->pci_device = p->pci.pciDevice;
    info->pci_function = p->pci.pciFunction;
    info->allocation_bytes = p->v11.maxMemoryAllocationSize;
    info->buffer_bytes = v13 ? p->v13.maxBufferSize : 0;
    info->subgroup_size = p->v11.subgroupSize;
    info->subgroup_min = v13 ? p->v13.minSubgroupSize : p->v11.subgroupSize;
    info->subgroup_max = v13 ? p->v13.maxSubgroupSize : p->v11.subgroupSize;
    info->subgroup_arithmetic =
        p->v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
        p->v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    info->packed_dot = v13 && p->v13.integerDotProduct4x8BitPackedSignedAccelerated;
    info->shared_bytes = core->limits.maxComputeSharedMemorySize;
    info->max_threads = core->limits.maxComputeWorkGroupInvocations;
    info->max_groups_x = core->limits.maxComputeWorkGroupCount[0];
    info->tick_ns = core->limits.timestampPeriod;
}

typedef struct devices_features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
} devices_features;

static void devices_read_features(const pj_vk_instance *instance, VkPhysicalDevice device, bool v13,
                                  devices_features *f)
{
    *f = (devices_features){
        .core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f->v11},
        .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f->v12},
        .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES},
        .v13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES},
    };
    if (v13) f->v12.pNext = &f->v13;
    instance->fn.GetPhysicalDeviceFeatures2(device, &f->core);
}

static void devices_judge(const devices_features *f, pj_vk_info *info)
{
    info->float16 = f->v12.shaderFloat16;
    info->int8 = f->v12.shaderInt8;
    info->int16 = f->core.features.shaderInt16;
    info->storage16 = f->v11.storageBuffer16BitAccess;
    info->storage8 = f->v12.storageBuffer8BitAccess;
    info->subgroup_control = f->v13.subgroupSizeControl && f->v13.computeFullSubgroups;
    const char *lacks = !f->v12.bufferDeviceAddress     ? "buffer addresses"
                        : !f->core.features.shaderInt64 ? "64-bit integers"
                        : !f->v12.timelineSemaphore     ? "timeline semaphores"
                        : !f->v12.hostQueryReset        ? "resets of queries by the host"
                        : !f->v12.scalarBlockLayout     ? "scalar block layout"
                        : !info->storage16              ? "16-bit storage"
                        : !info->storage8               ? "8-bit storage"
                        : !info->int16                  ? "16-bit integers"
                        : !info->int8                   ? "8-bit integers"
                                                        : NULL;
    if (lacks) snprintf(info->reason, sizeof info->reason, "its driver lacks %s", lacks);
}

/* ---- matrices ---- */

static bool devices_fit(const VkCooperativeMatrixPropertiesKHR *p)
{
    return p->MSize == 16 && p->NSize == 16 && p->KSize == 16 &&
           p->AType == VK_COMPONENT_TYPE_FLOAT16_KHR && p->BType == p->AType &&
           p->CType == VK_COMPONENT_TYPE_FLOAT32_KHR && p->ResultType == p->CType &&
           p->scope == VK_SCOPE_SUBGROUP_KHR;
}

/* Whether a product of the shape that our kernel multiplies is offered. */
static bool devices_have_shape(const pj_vk_instance *instance, VkPhysicalDevice device)
{
    enum { MAX_SHAPES = 128 };
    VkCooperativeMatrixPropertiesKHR shapes[MAX_SHAPES];
    uint32_t count = MAX_SHAPES;
    if (!instance->fn.GetPhysicalDeviceCooperativeMatrixPropertiesKHR) return false;
    for (uint32_t i = 0; i < MAX_SHAPES; i++)
        shapes[i] = (VkCooperativeMatrixPropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    if (instance->fn.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &count, shapes) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (devices_fit(&shapes[i])) return true;
    return false;
}

/* The kernel's subgroups have a size that is known when it is compiled. */
static bool devices_have_matrices(const pj_vk_instance *instance, VkPhysicalDevice device,
                                  const devices_properties *p, const devices_features *f,
                                  const pj_vk_info *info)
{
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &matrices};
    if (!info->subgroup_control || !info->float16 || !f->v12.vulkanMemoryModel ||
        !(p->v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT))
        return false;
    instance->fn.GetPhysicalDeviceFeatures2(device, &features);
    return matrices.cooperativeMatrix && devices_have_shape(instance, device);
}

static void devices_read_memory(const pj_vk_instance *instance, bool budget,
                                pj_vk_physical *physical)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT free = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = budget ? &free : NULL};
    instance->fn.GetPhysicalDeviceMemoryProperties2(physical->handle, &all);
    physical->memory = all.memoryProperties;
    for (uint32_t i = 0; i < all.memoryProperties.memoryHeapCount; i++) {
        VkMemoryHeap heap = all.memoryProperties.memoryHeaps[i];
        if (!(heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) continue;
        if (heap.size <= physical->info.memory_bytes) continue;
        physical->info.memory_bytes = heap.size;
        physical->info.free_bytes =
            free.heapBudget[i] > free.heapUsage[i] ? free.heapBudget[i] - free.heapUsage[i] : 0;
    }
}

/* The first family that computes and has timestamps: on common drivers the one of graphics, which
 * is nowhere slower. Without them the device's work would be the host's, in time and energy. */
static bool devices_find_queue(const pj_vk_instance *instance, pj_vk_physical *physical)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = sizeof families / sizeof *families;
    instance->fn.GetPhysicalDeviceQueueFamilyProperties(physical->handle, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
        if (!families[i].timestampValidBits) continue;
        physical->family = i;
        physical->stamp_bits = families[i].timestampValidBits;
        return true;
    }
    return false;
}

static void devices_read(const pj_vk_instance *instance, VkPhysicalDevice handle,
                         pj_vk_physical *physical)
{
    devices_extensions e;
    devices_properties p;
    devices_features f;
    VkPhysicalDeviceProperties2 first = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    *physical = (pj_vk_physical){.handle = handle};
    pj_vk_info *info = &physical->info;
    instance->fn.GetPhysicalDeviceProperties2(handle, &first);
    uint32_t version = first.properties.apiVersion;
    if (version < VK_API_VERSION_1_2) {
        snprintf(info->name, sizeof info->name, "%s", first.properties.deviceName);
        info->kind = devices_kind(first.properties.deviceType);
        snprintf(info->reason, sizeof info->reason, "its driver has Vulkan %u.%u, 1.2 is needed",
                 VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
        return;
    }
    devices_read_extensions(instance, handle, &e);
    bool v13 = version >= VK_API_VERSION_1_3;
    bool pci = devices_have(e.list, e.count, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME);
    devices_read_properties(instance, handle, v13, pci, &p);
    devices_describe(&p, v13, pci, info);
    memcpy(physical->cache_uuid, p.core.properties.pipelineCacheUUID, VK_UUID_SIZE);
    devices_read_features(instance, handle, v13, &f);
    devices_judge(&f, info);
    info->memory_budget = devices_have(e.list, e.count, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    info->device_fault = devices_have(e.list, e.count, VK_EXT_DEVICE_FAULT_EXTENSION_NAME);
    info->cooperative_matrix = devices_have(e.list, e.count, "VK_KHR_cooperative_matrix") &&
                               devices_have_matrices(instance, handle, &p, &f, info);
    info->calibrated_clock =
        devices_have(e.list, e.count, VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME) ||
        devices_have(e.list, e.count, "VK_KHR_calibrated_timestamps");
    devices_read_memory(instance, info->memory_budget, physical);
    if (!devices_find_queue(instance, physical))
        snprintf(info->reason, sizeof info->reason,
                 "it has no queue that computes and has timestamps");
    info->usable = !info->reason[0];
}

static int devices_rank(const pj_vk_physical *device)
{
    return (device->info.usable ? 0 : 2) + (device->info.kind == PJ_VK_SOFTWARE ? 1 : 0);
}

/* Keeps the driver's order among equals. */
static void devices_sort(pj_vk_physical *devices, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i; j > 0 && devices_rank(&devices[j]) < devices_rank(&devices[j - 1]);
             j--) {
            pj_vk_physical other = devices[j];
            devices[j] = devices[j - 1];
            devices[j - 1] = other;
        }
}

/* ---- UUIDs ---- */

/* One card is listed twice if two drivers serve it. */
static bool devices_are_one_card(const pj_vk_info *a, const pj_vk_info *b)
{
    return a->has_pci && b->has_pci && a->pci_domain == b->pci_domain && a->pci_bus == b->pci_bus &&
           a->pci_device == b->pci_device && a->pci_function == b->pci_function;
}

/* Cards of one UUID are told apart by their places. */
static void devices_make_key(pj_vk_info *info)
{
    memcpy(info->key, info->uuid, sizeof info->key);
    if (!info->uuid_is_shared) return;
    const uint32_t place[] = {info->pci_domain, info->pci_bus, info->pci_device,
                              info->has_pci ? info->pci_function : info->namesakes};
    for (size_t i = 0; i < sizeof info->key; i++)
        info->key[i] ^= (uint8_t)(place[i / 4] >> 8 * (i % 4));
}

/* Some drivers report the same UUID for several cards, or none. */
static void devices_compare_uuids(pj_vk_physical *devices, uint32_t count)
{
    static const uint8_t none[VK_UUID_SIZE];
    for (uint32_t i = 0; i < count; i++) {
        pj_vk_info *info = &devices[i].info;
        info->uuid_is_shared = memcmp(info->uuid, none, sizeof none) == 0;
        for (uint32_t j = 0; j < count; j++) {
            const pj_vk_info *other = &devices[j].info;
            if (j == i || memcmp(other->uuid, info->uuid, sizeof none) != 0) continue;
            info->namesakes += j < i;
            info->uuid_is_shared |= !devices_are_one_card(info, other);
        }
        devices_make_key(info);
    }
}

pj_status pj_vk_physical_list(const pj_vk_instance *instance,
                              pj_vk_physical devices[PJ_VK_MAX_DEVICES], uint32_t *count,
                              pj_error *err)
{
    VkPhysicalDevice handles[PJ_VK_MAX_DEVICES];
    *count = PJ_VK_MAX_DEVICES;
    VkResult result = instance->fn.EnumeratePhysicalDevices(instance->handle, count, handles);
    if (result < 0 || *count == 0) {
        *count = 0;
        return pj_fail(err, PJ_E_UNAVAILABLE, "no Vulkan driver finds a device");
    }
    for (uint32_t i = 0; i < *count; i++) devices_read(instance, handles[i], &devices[i]);
    devices_sort(devices, *count);
    devices_compare_uuids(devices, *count);
    return PJ_OK;
}

pj_status pj_vk_list(pj_vk_info infos[PJ_VK_MAX_DEVICES], uint32_t *count, pj_error *err)
{
    pj_vk_instance instance;
    pj_vk_physical devices[PJ_VK_MAX_DEVICES];
    *count = 0;
    pj_status status = pj_vk_instance_open(&instance, false, err);
    if (status != PJ_OK) return status;
    status = pj_vk_physical_list(&instance, devices, count, err);
    for (uint32_t i = 0; i < *count; i++) infos[i] = devices[i].info;
    pj_vk_instance_close(&instance);
    return status;
}

uint64_t pj_vk_heap_free(const pj_vk *vk, uint32_t heap)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    if (!vk->physical.info.memory_budget) return UINT64_MAX;
    vk->instance.fn.GetPhysicalDeviceMemoryProperties2(vk->physical.handle, &all);
    uint64_t limit = budget.heapBudget[heap], used = budget.heapUsage[heap];
    return limit == 0 ? UINT64_MAX : limit > used ? limit - used : 0;
}
