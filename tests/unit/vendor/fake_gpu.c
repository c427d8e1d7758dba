/*
 * Makes the Vulkan devices of this machine, software drivers in the tests, look like cards: a
 * libvulkan that calls the real one. The variable FAKE_GPU sets what they look like, as
 * comma-separated options:
 *
 *   name=TEXT, uuid=DIGITS      what the driver calls it; 32 hexadecimal digits
 *   twice                       every device is listed twice
 *   pci                         the devices are at 0000:01:00.0, 0000:02:00.0, ...
 *   memory=N, buffer=N          bytes of its memory, and of its largest buffer
 *   lost=N                      the first device that is opened is lost at its Nth submission
 *   full=N                      from the Nth allocation of each device on, its memory is full
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

/* ---- the real library ---- */

#define WRAPPED(X)                                  \
    X(CreateDevice)                                 \
    X(EnumeratePhysicalDevices)                     \
    X(EnumerateDeviceExtensionProperties)           \
    X(GetPhysicalDeviceProperties2)                 \
    X(GetPhysicalDeviceFeatures2)                   \
    X(GetPhysicalDeviceMemoryProperties2)           \
    X(GetPhysicalDeviceQueueFamilyProperties)       \
    X(GetPhysicalDeviceCalibrateableTimeDomainsEXT) \
    X(AllocateMemory)                               \
    X(QueueSubmit)                                  \
    X(WaitSemaphores)                               \
    X(GetDeviceProcAddr)

static PFN_vkGetInstanceProcAddr real_instance_function;
#define X(name) static PFN_vk##name real_##name;
WRAPPED(X)
#undef X

static const char *option(const char *name)
{
    static _Thread_local char text[512];
    char *rest = NULL;
    const char *all = getenv("FAKE_GPU");
    snprintf(text, sizeof text, "%s", all ? all : "");
    size_t length = strlen(name);
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strncmp(word, name, length) != 0) continue;
        if (word[length] == '=') return word + length + 1;
        if (word[length] == 0) return "1";
    }
    return NULL;
}

static int number(const char *name)
{
    const char *text = option(name);
    return text ? atoi(text) : 0;
}

/* ---- what it looks like ---- */

enum { MAX_CARDS = 8 };

/* What stands for a physical device. */
typedef struct card {
    VkPhysicalDevice real;
} card;

static card cards[MAX_CARDS];

static VkPhysicalDevice real_of(VkPhysicalDevice device)
{
    return ((const card *)(const void *)device)->real;
}

static unsigned number_of(VkPhysicalDevice device)
{
    return (unsigned)((const card *)(const void *)device - cards);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_EnumeratePhysicalDevices(VkInstance instance,
                                                                    uint32_t *count,
                                                                    VkPhysicalDevice *devices)
{
    VkPhysicalDevice real[MAX_CARDS];
    uint32_t found = MAX_CARDS, times = option("twice") ? 2 : 1, room = devices ? *count : 0;
    VkResult result = real_EnumeratePhysicalDevices(instance, &found, real);
    if (result < 0) return result;
    *count = 0;
    for (uint32_t i = 0; i < found * times && i < MAX_CARDS; i++) {
        cards[i].real = real[i % found];
        if (i < room) devices[i] = (VkPhysicalDevice)(void *)&cards[i];
        if (!devices || i < room) ++*count;
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_EnumerateDeviceExtensionProperties(
    VkPhysicalDevice device, const char *layer, uint32_t *count, VkExtensionProperties *found)
{
    uint32_t room = *count;
    VkResult result = real_EnumerateDeviceExtensionProperties(real_of(device), layer, count, found);
    if (layer || !option("pci")) return result;
    if (found && *count < room)
        found[*count] = (VkExtensionProperties){.extensionName = VK_EXT_PCI_BUS_INFO_EXTENSION_NAME,
                                                .specVersion = 2};
    ++*count;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceFeatures2(VkPhysicalDevice device,
                                                                  VkPhysicalDeviceFeatures2 *found)
{
    real_GetPhysicalDeviceFeatures2(real_of(device), found);
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2 *found)
{
    real_GetPhysicalDeviceMemoryProperties2(real_of(device), found);
    VkPhysicalDeviceMemoryProperties *memory = &found->memoryProperties;
    for (uint32_t i = 0; number("memory") && i < memory->memoryHeapCount; i++)
        memory->memoryHeaps[i].size = (VkDeviceSize)number("memory");
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceQueueFamilyProperties(
    VkPhysicalDevice device, uint32_t *count, VkQueueFamilyProperties *found)
{
    real_GetPhysicalDeviceQueueFamilyProperties(real_of(device), count, found);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_GetPhysicalDeviceCalibrateableTimeDomainsEXT(
    VkPhysicalDevice device, uint32_t *count, VkTimeDomainEXT *found)
{
    return real_GetPhysicalDeviceCalibrateableTimeDomainsEXT(real_of(device), count, found);
}

static VKAPI_ATTR void VKAPI_CALL
fake_GetPhysicalDeviceProperties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *properties)
{
    unsigned digits;
    real_GetPhysicalDeviceProperties2(real_of(device), properties);
    properties->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    const char *name = option("name");
    if (name)
        snprintf(properties->properties.deviceName, VK_MAX_PHYSICAL_DEVICE_NAME_SIZE, "%s", name);
    const char *uuid = option("uuid");
    for (VkBaseOutStructure *next = properties->pNext; next; next = next->pNext) {
        VkPhysicalDeviceVulkan11Properties *v11 = (void *)next;
        VkPhysicalDevicePCIBusInfoPropertiesEXT *pci = (void *)next;
        VkPhysicalDeviceVulkan13Properties *v13 = (void *)next;
        if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES &&
            number("buffer"))
            v13->maxBufferSize = (VkDeviceSize)number("buffer");
        if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT &&
            option("pci"))
            pci->pciBus = 1 + number_of(device);
        if (next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) continue;
        for (int i = 0; uuid && i < VK_UUID_SIZE; i++)
            if (sscanf(uuid + 2 * i, "%2x", &digits) == 1) v11->deviceUUID[i] = (uint8_t)digits;
    }
}

/* ---- what happens to it ---- */

static int opened, submissions, allocations;
static VkDevice first;

static VKAPI_ATTR VkResult VKAPI_CALL fake_CreateDevice(VkPhysicalDevice physical,
                                                        const VkDeviceCreateInfo *info,
                                                        const VkAllocationCallbacks *callbacks,
                                                        VkDevice *device)
{
    VkResult result = real_CreateDevice(real_of(physical), info, callbacks, device);
    if (opened++ == 0) first = *device;
    submissions = allocations = 0;
    return result;
}

static bool is_lost(void)
{
    return opened == 1 && number("lost") && submissions >= number("lost");
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_QueueSubmit(VkQueue queue, uint32_t count,
                                                       const VkSubmitInfo *submits, VkFence fence)
{
    submissions++;
    return is_lost() ? VK_ERROR_DEVICE_LOST : real_QueueSubmit(queue, count, submits, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_WaitSemaphores(VkDevice device,
                                                          const VkSemaphoreWaitInfo *info,
                                                          uint64_t timeout)
{
    return device == first && is_lost() ? VK_ERROR_DEVICE_LOST
                                        : real_WaitSemaphores(device, info, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_AllocateMemory(VkDevice device,
                                                          const VkMemoryAllocateInfo *info,
                                                          const VkAllocationCallbacks *callbacks,
                                                          VkDeviceMemory *memory)
{
    allocations++;
    if (number("full") && allocations >= number("full")) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return real_AllocateMemory(device, info, callbacks, memory);
}

/* ---- functions by name ---- */

static PFN_vkVoidFunction fake_GetDeviceProcAddr(VkDevice device, const char *name);

static PFN_vkVoidFunction wrap(const char *name, PFN_vkVoidFunction real)
{
#define X(function)                                  \
    if (real && strcmp(name, "vk" #function) == 0) { \
        real_##function = (PFN_vk##function)real;    \
        return (PFN_vkVoidFunction)fake_##function;  \
    }
    WRAPPED(X)
#undef X
    /* of a physical device, which is not the real one here */
    return strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0 ? NULL : real;
}

static PFN_vkVoidFunction fake_GetDeviceProcAddr(VkDevice device, const char *name)
{
    return wrap(name, real_GetDeviceProcAddr(device, name));
}

__attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance,
                                                                                const char *name)
{
    if (!real_instance_function) {
        void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library) return NULL;
        real_instance_function = (PFN_vkGetInstanceProcAddr)dlsym(library, "vkGetInstanceProcAddr");
    }
    return wrap(name, real_instance_function(instance, name));
}
