/* Containment across sources. A source knows which of its own rails contain each other. That an
 * APU's package power (hwmon) contains the CPU measured by RAPL, or a Grace Hopper module (hwmon)
 * the GPU measured by NVML, can be seen only with all rails together. A contained rail is never
 * added to the one that contains it. */
#include "power/containment.h"

#include <string.h>

typedef struct group { /* rails by index, in order */
    uint32_t items[PJ_MAX_RAILS];
    uint32_t count;
} group;

static bool from(const pj_rail *rail, const char *source)
{
    return strcmp(rail->source, source) == 0;
}

/* The whole-machine rail (psys) contains every package; it does not make others contained here. */
static bool outermost(const pj_rail *rails, uint32_t i)
{
    int parent = rails[i].parent;
    return parent < 0 || (rails[parent].rail_class == PJ_RAIL_PLATFORM &&
                          rails[parent].scope == PJ_SCOPE_MACHINE);
}

/* Assigns members to holders in order: one each if the numbers are equal, several to one if there
 * are more members (two GPUs on a module). */
static void containment_adopt(pj_rail *rails, const group *holders, const group *members)
{
    for (uint32_t i = 0; i < members->count && holders->count > 0; i++) {
        pj_rail *member = &rails[members->items[i]];
        uint32_t h = members->count > holders->count ? i * holders->count / members->count : i;
        pj_rail *holder = &rails[holders->items[h]];
        if (holder->parent < 0) holder->parent = member->parent; /* psys now contains the holder */
        member->parent = (int)holders->items[h];
    }
}

/* A module's sensor contains the GPUs on it, and CPUs measured by another source. */
static void fill_modules(pj_rail *rails, uint32_t count)
{
    group modules = {.count = 0}, gpus = {.count = 0};
    for (uint32_t i = 0; i < count; i++) {
        const pj_rail *r = &rails[i];
        bool module = r->rail_class == PJ_RAIL_TOTAL && r->scope == PJ_SCOPE_MODULE;
        if (module && from(r, "hwmon") && strstr(r->name, "power_meter"))
            modules.items[modules.count++] = i;
        if (r->rail_class == PJ_RAIL_GPU && from(r, "nvml") && outermost(rails, i))
            gpus.items[gpus.count++] = i;
    }
    containment_adopt(rails, &modules, &gpus);
}

/* A GPU sensor of module scope contains the CPU: an APU's package power, or NVML on a Grace Hopper
 * that offers nothing narrower. */
static void fill_apus(pj_rail *rails, uint32_t count)
{
    group holders = {.count = 0}, processors = {.count = 0};
    for (uint32_t i = 0; i < count; i++) {
        const pj_rail *r = &rails[i];
        if (r->rail_class == PJ_RAIL_GPU && r->scope == PJ_SCOPE_MODULE && outermost(rails, i))
            holders.items[holders.count++] = i;
        if (r->rail_class == PJ_RAIL_CPU && outermost(rails, i))
            processors.items[processors.count++] = i;
    }
    containment_adopt(rails, &holders, &processors);
}

void pj_rails_contain(pj_rail *rails, uint32_t count)
{
    fill_modules(rails, count);
    fill_apus(rails, count);
}

int pj_rails_misplaced(const pj_rail *rails, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int parent = rails[i].parent;
        for (uint32_t hops = 0; parent >= 0; hops++) {
            if (parent >= (int)count || hops == count) return (int)i;
            parent = rails[parent].parent;
        }
    }
    return -1;
}
