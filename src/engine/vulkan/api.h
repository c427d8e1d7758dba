/* Inside of the Vulkan room: the functions of libvulkan as a table, and an open device. */
#ifndef PJ_VULKAN_API_H
#define PJ_VULKAN_API_H

#include "engine/vulkan/vk.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

/* The extension was in beta longer than the headers of some distributions are old. */
#ifndef VK_KHR_portability_subset
#define VK_KHR_PORTABILITY_SUBSET_EXTENSION_NAME "VK_KHR_portability_subset"
#endif

/* Likewise newer than they are. */
#ifndef VK_KHR_cooperative_matrix
enum {
    VK_SCOPE_SUBGROUP_KHR = 3,
    VK_COMPONENT_TYPE_FLOAT16_KHR = 0,
    VK_COMPONENT_TYPE_FLOAT32_KHR = 1
};
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR \
    ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)

typedef struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    uint32_t AType, BType, CType, ResultType; /* enumerations */
    VkBool32 saturatingAccumulation;
    uint32_t scope;
} VkCooperativeMatrixPropertiesKHR;

typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;

typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice device, uint32_t *count, VkCooperativeMatrixPropertiesKHR *properties);
#endif

/* X(function, needed): of the loader, of an instance, of a device. */
#define PJ_VK_GLOBAL_FUNCTIONS(X)                 \
    X(CreateInstance, true)                       \
    X(EnumerateInstanceExtensionProperties, true) \
    X(EnumerateInstanceLayerProperties, true)     \
    X(EnumerateInstanceVersion, true)
#define PJ_VK_INSTANCE_FUNCTIONS(X)                           \
    X(DestroyInstance, true)                                  \
    X(EnumeratePhysicalDevices, true)                         \
    X(EnumerateDeviceExtensionProperties, true)               \
    X(GetPhysicalDeviceProperties2, true)                     \
    X(GetPhysicalDeviceFeatures2, true)                       \
    X(GetPhysicalDeviceMemoryProperties2, true)               \
    X(GetPhysicalDeviceQueueFamilyProperties, true)           \
    X(CreateDevice, true)                                     \
    X(GetDeviceProcAddr, true)                                \
    X(GetPhysicalDeviceCalibrateableTimeDomainsEXT, false)    \
    X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR, false) \
    X(CreateDebugUtilsMessengerEXT, false)                    \
    X(DestroyDebugUtilsMessengerEXT, false)
#define PJ_VK_DEVICE_FUNCTIONS(X)        \
    X(DestroyDevice, true)               \
    X(GetDeviceQueue, true)              \
    X(CreateBuffer, true)                \
    X(DestroyBuffer, true)               \
    X(GetBufferMemoryRequirements, true) \
    X(AllocateMemory, true)              \
    X(FreeMemory, true)                  \
    X(BindBufferMemory, true)            \
    X(MapMemory, true)                   \
    X(GetBufferDeviceAddress, true)      \
    X(CreateShaderModule, true)          \
    X(DestroyShaderModule, true)         \
    X(CreatePipelineLayout, true)        \
    X(DestroyPipelineLayout, true)       \
    X(CreatePipelineCache, true)         \
    X(DestroyPipelineCache, true)        \
    X(GetPipelineCacheData, true)        \
    X(CreateComputePipelines, true)      \
    X(DestroyPipeline, true)             \
    X(CreateCommandPool, true)           \
    X(DestroyCommandPool, true)          \
    X(AllocateCommandBuffers, true)      \
    X(BeginCommandBuffer, true)          \
    X(EndCommandBuffer, true)            \
    X(CmdBindPipeline, true)             \
    X(CmdPushConstants, true)            \
    X(CmdDispatch, true)                 \
    X(CmdDispatchIndirect, true)         \
    X(CmdPipelineBarrier, true)          \
    X(CmdCopyBuffer, true)               \
    X(CmdFillBuffer, true)               \
    X(CmdWriteTimestamp, true)           \
    X(ResetQueryPool, true)              \
    X(CreateQueryPool, true)             \
    X(DestroyQueryPool, true)            \
    X(GetQueryPoolResults, true)         \
    X(QueueSubmit, true)                 \
    X(CreateSemaphore, true)             \
    X(DestroySemaphore, true)            \
    X(WaitSemaphores, true)              \
    X(GetSemaphoreCounterValue, true)    \
    X(GetCalibratedTimestampsEXT, false) \
    X(GetDeviceFaultInfoEXT, false)

#define PJ_VK_MEMBER(name, needed) PFN_vk##name name;
typedef struct pj_vk_functions {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    PJ_VK_GLOBAL_FUNCTIONS(PJ_VK_MEMBER)
    PJ_VK_INSTANCE_FUNCTIONS(PJ_VK_MEMBER)
    PJ_VK_DEVICE_FUNCTIONS(PJ_VK_MEMBER)
} pj_vk_functions;
#undef PJ_VK_MEMBER

/* ---- the library and an instance (loader.c) ---- */

typedef struct pj_vk_instance {
    void *library; /* NULL: closed */
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    bool validated;
    uint32_t messages; /* of the validation layer */
    char last_message[512];
    pj_vk_functions fn;
} pj_vk_instance;

/* The instance must stay where it is until it is closed. */
pj_status pj_vk_instance_open(pj_vk_instance *instance, bool validate, pj_error *err);
void pj_vk_instance_close(pj_vk_instance *instance); /* may run twice */
bool pj_vk_load_device_functions(pj_vk_instance *instance, VkDevice device);

/* ---- what a physical device is (devices.c) ---- */

typedef struct pj_vk_physical {
    VkPhysicalDevice handle;
    VkPhysicalDeviceMemoryProperties memory;
    uint8_t cache_uuid[VK_UUID_SIZE]; /* changes with the driver */
    uint32_t family;                  /* of queues that compute */
    uint32_t stamp_bits;              /* valid ones of a timestamp; 0: none */
    pj_vk_info info;
} pj_vk_physical;

/* Usable hardware first, software last. */
pj_status pj_vk_physical_list(const pj_vk_instance *instance,
                              pj_vk_physical devices[PJ_VK_MAX_DEVICES], uint32_t *count,
                              pj_error *err);
bool pj_vk_has_extension(const pj_vk_instance *instance, VkPhysicalDevice device, const char *name);
/* Free bytes of the heap as the driver reports now; UINT64_MAX where it does not. */
uint64_t pj_vk_heap_free(const pj_vk *vk, uint32_t heap);

/* ---- an open device (device.c) ---- */

enum {
    PJ_VK_RECORDINGS = 16, /* command buffers in turn */
    PJ_VK_STAGING_BYTES = 8 << 20,
    PJ_VK_CLOCK_POINTS = 16
};

/* Stages between which barriers order. */
typedef enum pj_vk_stage {
    PJ_VK_COMPUTES,
    PJ_VK_TRANSFERS,
    PJ_VK_HOST_READS,
    PJ_VK_STAGES
} pj_vk_stage;

/* Two buffers for copies: the host fills one while the device copies the other. */
typedef struct pj_vk_staging {
    pj_vk_buffer buffers[2];
    uint64_t values[2]; /* submissions that read them */
    uint32_t turn;
    uint64_t used;
} pj_vk_staging;

struct pj_vk_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
};

typedef struct pj_vk_recording {
    VkCommandBuffer commands;
    uint64_t value; /* of the semaphore once it is done */
} pj_vk_recording;

/* Both clocks at one time. */
typedef struct pj_vk_clock_point {
    uint64_t ticks;
    int64_t host_ns;
    double deviation_ns;
} pj_vk_clock_point;

/* What a point is taken with, the best first. */
typedef enum pj_vk_clock_source {
    PJ_VK_CLOCK_MONOTONIC,     /* the driver reads both clocks at once */
    PJ_VK_CLOCK_MONOTONIC_RAW, /* it reads the device's and this, whose offset is measured */
    PJ_VK_CLOCK_BRACKET,       /* it reads the device's, between two readings of ours */
    PJ_VK_CLOCK_SUBMISSION     /* a submission of its own, between two readings of ours */
} pj_vk_clock_source;

typedef struct pj_vk_clock {
    pj_vk_clock_source source;
    uint64_t mask;  /* of a timestamp's valid bits; 0: the device has no clock */
    double tick_ns; /* as the driver states it */
    pj_vk_clock_point points[PJ_VK_CLOCK_POINTS]; /* a ring */
    uint32_t count;                               /* taken so far */
    double least_deviation_ns;
    /* The line through them, relative to the newest: ns = offset + slope * ticks. */
    bool has_line;
    double slope, offset, residual_ns;
} pj_vk_clock;

struct pj_vk {
    pj_vk_instance instance;
    pj_vk_physical physical;
    pj_vk_options options;
    char cache_path[1024]; /* of the pipeline cache; empty: none */
    VkDevice device;
    VkQueue queue;
    /* memory */
    uint64_t used_bytes;
    pj_vk_staging staging;
    /* pipelines */
    VkPipelineLayout layout;
    VkPipelineCache cache;
    struct pj_vk_pipeline **pipelines;
    size_t pipeline_count, pipeline_capacity;
    bool cache_changed;
    /* recorded work */
    VkCommandPool pool;
    VkSemaphore semaphore; /* a timeline: submissions done */
    pj_vk_recording recordings[PJ_VK_RECORDINGS];
    pj_vk_recording *recording; /* the open one; NULL: none */
    uint64_t submitted;         /* submissions so far */
    uint64_t work;              /* of the open recording */
    uint32_t commands;
    uint32_t recorded;                /* stages since the last barrier, as bits */
    uint32_t unordered[PJ_VK_STAGES]; /* stages that this one must still wait for */
    const pj_vk_pipeline *bound;
    pj_error failure; /* status PJ_OK: none */
    bool lost;
    bool stuck; /* it was lost, and still works on what was submitted */
    /* time */
    VkQueryPool queries;
    uint32_t stamps;
    pj_vk_clock clock;
};

struct pj_vk_pipeline {
    VkPipeline handle;
    const pj_vk_shader *shader;
    uint32_t count, constants[PJ_VK_MAX_CONSTANTS];
};

/* One line: device, what was tried, the reason. */
pj_status pj_vk_fail(const pj_vk *vk, VkResult result, pj_error *err, const char *what);
/* Keeps the first failure of a recording. */
void pj_vk_fail_recording(pj_vk *vk, VkResult result, const char *what);
const char *pj_vk_result_text(VkResult result);

/* Command buffer for one more command of this stage, after the barriers it needs; NULL once the
 * recording has failed. */
VkCommandBuffer pj_vk_command(pj_vk *vk, pj_vk_stage stage);
/* The same for a command that needs no later barrier. */
VkCommandBuffer pj_vk_command_after(pj_vk *vk, pj_vk_stage stage);
/* Waits for a submission by its number. */
pj_status pj_vk_wait_for(pj_vk *vk, uint64_t value, pj_error *err);

/* Whether what was submitted does not finish even now, after a last wait: what it uses must not be
 * freed. A lost device has finished. */
bool pj_vk_is_stuck(pj_vk *vk);

pj_status pj_vk_recordings_open(pj_vk *vk, pj_error *err);
void pj_vk_recordings_close(pj_vk *vk);
pj_status pj_vk_pipelines_open(pj_vk *vk, pj_error *err);
void pj_vk_pipelines_close(pj_vk *vk);
pj_status pj_vk_clock_open(pj_vk *vk, pj_error *err);
void pj_vk_clock_close(pj_vk *vk);
VkPipelineStageFlagBits pj_vk_stamp_stage(const pj_vk_info *info);
/* Pure functions over the points, for tests. */
void pj_vk_clock_add(pj_vk_clock *clock, pj_vk_clock_point point);
int64_t pj_vk_clock_map(const pj_vk_clock *clock, uint64_t ticks);
double pj_vk_clock_error(const pj_vk_clock *clock);

#endif
