#include "generate/devices.h"

#include "base/memory.h"
#include "engine/kernels/kernels.h"
#include "power/source.h"
#include "record/machine.h"
#include "trace/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- rails ---- */

typedef struct devices_rails {
    pj_rail rails[PJ_MAX_RAILS];
    uint32_t count;
} devices_rails;

/* Of one source, if it opens. */
static void devices_add_rails(devices_rails *all, const pj_power_choice *choice,
                              const pj_power_env *env)
{
    const pj_power_source *source = choice->source;
    pj_source_report report = {0};
    pj_rail rails[PJ_MAX_RAILS];
    if (source->flags & (PJ_SOURCE_REMOTE | PJ_SOURCE_MODEL)) return;
    if (source->flags & PJ_SOURCE_STREAM && !choice->by_name) return;
    void *state = pj_alloc(1, source->state_bytes);
    if (!state) return;
    if (source->open(state, env, choice->argument, &report) == PJ_OK) {
        memset(rails, 0, sizeof rails);
        uint32_t count = source->rails(state, rails);
        for (uint32_t i = 0; i < count && all->count < PJ_MAX_RAILS; i++)
            all->rails[all->count++] = rails[i];
        if (source->close) source->close(state);
    }
    pj_free(state);
}

static void devices_find_rails(devices_rails *all, const char *power)
{
    pj_power_env env;
    pj_power_list list;
    all->count = 0;
    pj_power_env_get(&env);
    if (pj_power_list_parse(power ? power : pj_power_default(), &list, NULL) != PJ_OK) return;
    for (uint32_t i = 0; i < list.count; i++) devices_add_rails(all, &list.choices[i], &env);
}

/* NULL: it has none that tells it from others. */
static const char *devices_uuid(const pj_device_entry *device)
{
    return device->uuid_is_shared ? NULL : device->uuid;
}

/* NVML's rails begin with the UUID, those of hwmon end with the PCI address. */
static bool devices_rail_is_of(const pj_rail *rail, const pj_device_entry *device)
{
    return pj_device_has_uuid(rail->device, devices_uuid(device)) ||
           pj_device_has_pci(rail->device, device->pci);
}

static void devices_take_rail(pj_device_entry *device, const pj_rail *rail)
{
    snprintf(device->rail, sizeof device->rail, "%s", rail->name);
    snprintf(device->rail_source, sizeof device->rail_source, "%s", rail->source);
    device->rail_reason = NULL;
}

static const pj_rail *devices_only_gpu_rail(const devices_rails *all)
{
    const pj_rail *only = NULL;
    for (uint32_t i = 0; i < all->count; i++) {
        const pj_rail *rail = &all->rails[i];
        if (rail->rail_class != PJ_RAIL_GPU || rail->parent >= 0) continue;
        if (only) return NULL;
        only = rail;
    }
    return only;
}

static void devices_match_gpu(pj_device_entry *device, const devices_rails *all, bool only_gpu)
{
    device->rail_reason = "no power source reads this device";
    for (uint32_t i = 0; i < all->count; i++) {
        const pj_rail *rail = &all->rails[i];
        if (rail->rail_class != PJ_RAIL_GPU || !devices_rail_is_of(rail, device)) continue;
        devices_take_rail(device, rail);
        return;
    }
    const pj_rail *only = only_gpu ? devices_only_gpu_rail(all) : NULL;
    if (only &&
        !pj_device_differs(only->device, devices_uuid(device), device->pci[0] ? device->pci : NULL))
        devices_take_rail(device, only);
}

static void devices_match_cpu(pj_device_entry *device, const devices_rails *all)
{
    device->rail_reason = "no power source reads the CPU";
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->rails[i].rail_class != PJ_RAIL_CPU) continue;
        devices_take_rail(device, &all->rails[i]);
        return;
    }
}

/* ---- devices ---- */

static const char *devices_vendor(uint32_t id)
{
    static const struct {
        uint32_t id;
        const char *name;
    } known[] = {{0x10de, "NVIDIA"},      {0x1002, "AMD"},      {0x8086, "Intel"},
                 {0x106b, "Apple"},       {0x13b5, "Arm"},      {0x5143, "Qualcomm"},
                 {0x1010, "Imagination"}, {0x14e4, "Broadcom"}, {0x10005, "Mesa"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == id) return known[i].name;
    return NULL;
}

static const char *devices_kind(pj_vk_kind kind)
{
    static const char *const names[] = {[PJ_VK_OTHER] = "other",
                                        [PJ_VK_INTEGRATED] = "integrated",
                                        [PJ_VK_DISCRETE] = "discrete",
                                        [PJ_VK_VIRTUAL] = "virtual",
                                        [PJ_VK_SOFTWARE] = "software"};
    return names[kind];
}

static void devices_add_path(char *list, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void devices_add_path(char *list, size_t bytes, const char *format, ...)
{
    size_t used = strlen(list);
    va_list args;
    if (used) used += (size_t)snprintf(list + used, bytes - used, ", ");
    va_start(args, format);
    vsnprintf(list + used, bytes - used, format, args);
    va_end(args);
}

/* What the driver switches on, with the names that people search for. */
static void devices_list_paths(const pj_vk_info *info, char *list, size_t bytes)
{
    list[0] = 0;
    if (info->float16) devices_add_path(list, bytes, "float16");
    if (info->packed_dot) devices_add_path(list, bytes, "int8 dot products");
    if (info->cooperative_matrix) devices_add_path(list, bytes, "cooperative matrices");
    if (info->subgroup_arithmetic && info->subgroup_min == info->subgroup_max)
        devices_add_path(list, bytes, "subgroups of %u", info->subgroup_size);
    else if (info->subgroup_arithmetic)
        devices_add_path(list, bytes, "subgroups of %u to %u", info->subgroup_min,
                         info->subgroup_max);
    if (info->calibrated_clock) devices_add_path(list, bytes, "calibrated clock");
}

static void devices_write_uuid(const uint8_t uuid[16], char text[40])
{
    size_t n = 0;
    for (int i = 0; i < 16; i++)
        n += (size_t)snprintf(text + n, 40 - n, "%s%02x",
                              i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void devices_describe_vulkan(const pj_vk_info *info, uint32_t gpus, pj_device_entry *e)
{
    bool hardware = pj_vk_is_hardware(info);
    *e = (pj_device_entry){.kind = devices_kind(info->kind),
                           .vendor = devices_vendor(info->vendor_id),
                           .memory_bytes = info->memory_bytes,
                           .free_bytes = info->free_bytes,
                           .usable = info->usable};
    if (hardware)
        snprintf(e->id, sizeof e->id, "gpu:%u", gpus);
    else
        snprintf(e->id, sizeof e->id, "%.*s", (int)strcspn(info->name, " "), info->name);
    snprintf(e->name, sizeof e->name, "%s", info->name);
    snprintf(e->driver, sizeof e->driver, "%s", info->driver);
    snprintf(e->api, sizeof e->api, "vulkan %u.%u.%u", info->api_major, info->api_minor,
             info->api_patch);
    snprintf(e->reason, sizeof e->reason, "%s",
             info->usable && !hardware ? "computes on the CPU; used only if named" : info->reason);
    devices_write_uuid(info->uuid, e->uuid);
    e->uuid_is_shared = info->uuid_is_shared;
    if (info->has_pci)
        snprintf(e->pci, sizeof e->pci, "%04x:%02x:%02x.%u", info->pci_domain, info->pci_bus,
                 info->pci_device, info->pci_function);
    devices_list_paths(info, e->fast_paths, sizeof e->fast_paths);
}

static void devices_add_cpu(pj_device_list *list, const devices_rails *rails)
{
    pj_device_entry *e = &list->items[list->count++];
    char name[PJ_CPU_NAME_BYTES];
    pj_power_env env;
    const char *sets[16];
    size_t count = pj_kernels_list(sets, sizeof sets / sizeof *sets);
    *e = (pj_device_entry){.id = "cpu", .kind = "cpu", .usable = true};
    pj_power_env_get(&env);
    pj_machine_cpu(env.procfs_root, name);
    snprintf(e->name, sizeof e->name, "%s", name);
    e->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < count; i++)
        devices_add_path(e->fast_paths, sizeof e->fast_paths, "%s", sets[i]);
    devices_match_cpu(e, rails);
}

static void devices_add_vulkan(pj_device_list *list, const devices_rails *rails)
{
    pj_vk_info infos[PJ_VK_MAX_DEVICES];
    uint32_t count = 0, gpus = 0;
    pj_error err;
    if (pj_vk_list(infos, &count, &err) != PJ_OK)
        snprintf(list->no_vulkan, sizeof list->no_vulkan, "%s", err.text);
    for (uint32_t i = 0; i < count; i++) gpus += pj_vk_is_hardware(&infos[i]);
    bool only_gpu = gpus == 1;
    gpus = 0;
    for (uint32_t i = 0; i < count; i++) {
        pj_device_entry *e = &list->items[list->count++];
        devices_describe_vulkan(&infos[i], gpus, e);
        if (pj_vk_is_hardware(&infos[i])) {
            gpus++;
            devices_match_gpu(e, rails, only_gpu);
        } else {
            devices_match_cpu(e, rails);
        }
    }
}

void pj_device_list_read(pj_device_list *list, const char *power)
{
    devices_rails rails;
    *list = (pj_device_list){0};
    devices_find_rails(&rails, power);
    devices_add_cpu(list, &rails);
    devices_add_vulkan(list, &rails);
}

/* ---- JSON ---- */

static void devices_kv_text(pj_json *json, const char *key, const char *text)
{
    pj_json_kv_string(json, key, text && *text ? text : NULL);
}

static void devices_kv_bytes(pj_json *json, const char *key, uint64_t bytes)
{
    pj_json_key(json, key);
    if (bytes)
        pj_json_uint(json, bytes);
    else
        pj_json_null(json);
}

static void devices_write_entry(const pj_device_entry *e, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "id", e->id);
    pj_json_kv_string(json, "name", e->name);
    pj_json_kv_string(json, "kind", e->kind);
    devices_kv_text(json, "vendor", e->vendor);
    devices_kv_text(json, "driver", e->driver);
    devices_kv_text(json, "api", e->api);
    devices_kv_text(json, "uuid", e->uuid);
    devices_kv_text(json, "pci", e->pci);
    devices_kv_bytes(json, "memory_bytes", e->memory_bytes);
    devices_kv_bytes(json, "free_bytes", e->free_bytes);
    devices_kv_text(json, "fast_paths", e->fast_paths);
    pj_json_kv_bool(json, "usable", e->usable);
    devices_kv_text(json, "reason", e->reason);
    devices_kv_text(json, "rail", e->rail);
    devices_kv_text(json, "rail_source", e->rail_source);
    devices_kv_text(json, "rail_reason", e->rail_reason);
    pj_json_object_end(json);
}

void pj_device_list_json(const pj_device_list *list, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_key(json, "devices");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < list->count; i++) devices_write_entry(&list->items[i], json);
    pj_json_array_end(json);
    devices_kv_text(json, "no_vulkan", list->no_vulkan);
    pj_json_object_end(json);
}
