/* Opens libvulkan at run time, and makes an instance, with the validation layer on request. */
#include "engine/vulkan/api.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
static const char *const library_names[] = {"libvulkan.1.dylib", "libMoltenVK.dylib",
                                            "/opt/homebrew/lib/libvulkan.1.dylib",
                                            "/opt/homebrew/lib/libMoltenVK.dylib", NULL};
#else
static const char *const library_names[] = {"libvulkan.so.1", "libvulkan.so", NULL};
#endif

/* PERJOULE_VULKAN names another library. */
static void *loader_open_library(void)
{
    const char *wanted = getenv("PERJOULE_VULKAN");
    if (wanted && *wanted) return dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    void *library = NULL;
    for (size_t i = 0; library_names[i] && !library; i++)
        library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

#define LOAD(name, needed)                                                \
    fn->name = (PFN_vk##name)fn->GetInstanceProcAddr(handle, "vk" #name); \
    if (needed && !fn->name) return false;

static bool loader_load_global(pj_vk_functions *fn)
{
    VkInstance handle = NULL;
    PJ_VK_GLOBAL_FUNCTIONS(LOAD)
    return true;
}

static bool loader_load_instance(pj_vk_functions *fn, VkInstance handle)
{
    PJ_VK_INSTANCE_FUNCTIONS(LOAD)
    return true;
}
#undef LOAD

bool pj_vk_load_device_functions(pj_vk_instance *instance, VkDevice device)
{
    pj_vk_functions *fn = &instance->fn;
#define LOAD(name, needed)                                              \
    fn->name = (PFN_vk##name)fn->GetDeviceProcAddr(device, "vk" #name); \
    if (needed && !fn->name) return false;
    PJ_VK_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
    if (!fn->GetCalibratedTimestampsEXT)
        fn->GetCalibratedTimestampsEXT = (PFN_vkGetCalibratedTimestampsEXT)fn->GetDeviceProcAddr(
            device, "vkGetCalibratedTimestampsKHR");
    return true;
}

static bool loader_has_instance_extension(const pj_vk_functions *fn, const char *layer,
                                          const char *name)
{
    VkExtensionProperties found[128];
    uint32_t count = sizeof found / sizeof *found;
    if (fn->EnumerateInstanceExtensionProperties(layer, &count, found) < 0) return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(found[i].extensionName, name) == 0) return true;
    return false;
}

static bool loader_has_layer(const pj_vk_functions *fn, const char *name)
{
    VkLayerProperties found[64];
    uint32_t count = sizeof found / sizeof *found;
    if (fn->EnumerateInstanceLayerProperties(&count, found) < 0) return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(found[i].layerName, name) == 0) return true;
    return false;
}

static VKAPI_ATTR VkBool32 VKAPI_CALL loader_count_message(
    VkDebugUtilsMessageSeverityFlagBitsEXT severity, VkDebugUtilsMessageTypeFlagsEXT types,
    const VkDebugUtilsMessengerCallbackDataEXT *data, void *context)
{
    pj_vk_instance *instance = context;
    instance->messages++;
    strncpy(instance->last_message, data->pMessage ? data->pMessage : "",
            sizeof instance->last_message - 1);
    return VK_FALSE;
}

static const VkDebugUtilsMessengerCreateInfoEXT messenger_of_validation = {
    .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
    .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
    .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
    .pfnUserCallback = loader_count_message,
};

static VkResult loader_create(pj_vk_instance *instance, bool validate)
{
    static const char validation[] = "VK_LAYER_KHRONOS_validation";
    static const VkValidationFeatureEnableEXT synchronisation =
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
    const pj_vk_functions *fn = &instance->fn;
    const char *layer = validation, *extensions[4];
    uint32_t count = 0;
    instance->validated = validate && loader_has_layer(fn, validation);
    VkValidationFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
        .enabledValidationFeatureCount = 1,
        .pEnabledValidationFeatures = &synchronisation,
    };
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                     .pApplicationName = "perjoule",
                                     .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application,
                                 .ppEnabledExtensionNames = extensions,
                                 .ppEnabledLayerNames = &layer};
    if (instance->validated) {
        extensions[count++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
        info.enabledLayerCount = 1;
        info.pNext = &features;
    }
    if (loader_has_instance_extension(fn, NULL, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        extensions[count++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
        info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    info.enabledExtensionCount = count;
    return fn->CreateInstance(&info, NULL, &instance->handle);
}

static pj_status loader_start(pj_vk_instance *instance, bool validate, pj_error *err)
{
    pj_vk_functions *fn = &instance->fn;
    uint32_t version = 0;
    fn->GetInstanceProcAddr =
        (PFN_vkGetInstanceProcAddr)dlsym(instance->library, "vkGetInstanceProcAddr");
    if (!fn->GetInstanceProcAddr || !loader_load_global(fn))
        return pj_fail(err, PJ_E_UNAVAILABLE, "libvulkan is older than Vulkan 1.2");
    if (fn->EnumerateInstanceVersion(&version) < 0 || version < VK_API_VERSION_1_2)
        return pj_fail(err, PJ_E_UNAVAILABLE, "libvulkan has Vulkan %u.%u, 1.2 is needed",
                       VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    VkResult result = loader_create(instance, validate);
    if (result != VK_SUCCESS) {
        instance->handle = NULL;
        return pj_fail(err, PJ_E_UNAVAILABLE, "no Vulkan driver works: %s",
                       pj_vk_result_text(result));
    }
    if (!loader_load_instance(fn, instance->handle))
        return pj_fail(err, PJ_E_UNAVAILABLE, "libvulkan lacks functions of Vulkan 1.2");
    if (instance->validated && fn->CreateDebugUtilsMessengerEXT) {
        VkDebugUtilsMessengerCreateInfoEXT info = messenger_of_validation;
        info.pUserData = instance;
        fn->CreateDebugUtilsMessengerEXT(instance->handle, &info, NULL, &instance->messenger);
    }
    return PJ_OK;
}

pj_status pj_vk_instance_open(pj_vk_instance *instance, bool validate, pj_error *err)
{
    *instance = (pj_vk_instance){.library = loader_open_library()};
    if (!instance->library && getenv("PERJOULE_VULKAN"))
        return pj_fail(err, PJ_E_UNAVAILABLE, "the environment's PERJOULE_VULKAN=%s: %s",
                       getenv("PERJOULE_VULKAN"), dlerror());
    if (!instance->library)
        return pj_fail(err, PJ_E_UNAVAILABLE, "there is no libvulkan: install a Vulkan driver");
    pj_status status = loader_start(instance, validate, err);
    if (status != PJ_OK) pj_vk_instance_close(instance);
    return status;
}

/* The library stays open: drivers leave threads and handlers behind that run after dlclose. */
void pj_vk_instance_close(pj_vk_instance *instance)
{
    pj_vk_functions *fn = &instance->fn;
    if (instance->messenger)
        fn->DestroyDebugUtilsMessengerEXT(instance->handle, instance->messenger, NULL);
    if (instance->handle && fn->DestroyInstance) fn->DestroyInstance(instance->handle, NULL);
    instance->messenger = VK_NULL_HANDLE;
    instance->handle = NULL;
    instance->library = NULL;
}
