/* What can compute on this machine, and what measures it: the CPU and every Vulkan device. Printed
 * by `perjoule devices` and the API's devices route. */
#ifndef PJ_GENERATE_DEVICES_H
#define PJ_GENERATE_DEVICES_H

#include "base/json.h"
#include "engine/vulkan/vk.h"
#include "trace/rail.h"

typedef struct pj_device_entry {
    char id[40];        /* "cpu", "gpu:0"; of software its name's first word */
    const char *kind;   /* "cpu", "discrete", "integrated", "virtual", "software", "other" */
    const char *vendor; /* NULL: unknown */
    char name[256], driver[256], fast_paths[256];
    char uuid[40], pci[24];            /* "": it has none */
    bool uuid_is_shared;               /* with another card, which it does not tell apart */
    char api[32];                      /* "vulkan 1.3.230"; of the CPU "" */
    uint64_t memory_bytes, free_bytes; /* 0: not known */
    bool usable;
    char reason[128]; /* why it is not usable, or only by name */
    /* The rail that measures it; "": none, and why. */
    char rail[PJ_RAIL_NAME_BYTES], rail_source[16];
    const char *rail_reason;
} pj_device_entry;

typedef struct pj_device_list {
    pj_device_entry items[1 + PJ_VK_MAX_DEVICES];
    uint32_t count;
    char no_vulkan[PJ_ERROR_TEXT_BYTES]; /* why there are no Vulkan devices; "": there are */
} pj_device_list;

/* Never fails. `power` is a --power list, whose sources are opened for their rails but not read;
 * those that are processes are not started. */
void pj_device_list_read(pj_device_list *list, const char *power);
void pj_device_list_json(const pj_device_list *list, pj_json *json); /* an object */

#endif
