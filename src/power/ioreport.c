/*
 * IOReport: energies of Apple Silicon, without root. The kernel's drivers add up what their power
 * models estimate; a sample shows every counter since boot. Figures are the vendor's model, the
 * same that powermetrics prints.
 *
 * How often a counter is published differs between chips, versions and channels: the GPU's on every
 * read, others after 0.1 to 1.3 s, on a machine without a display after half an hour. No period is
 * declared therefore: the meter measures it per rail. A read takes 3 to 4 ms and allocates, so it
 * is made ten times per second.
 *
 * A rail whose counters have been 0 since boot is not published on this machine and is left out:
 * what is missing is not 0.
 */
#include "power/ioreport_group.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RAILS = 40 };

typedef struct ioreport_rail {
    pj_ioreport_kind kind;
    char name[PJ_RAIL_NAME_BYTES];
} ioreport_rail;

typedef struct ioreport {
    ioreport_api api;
    pj_ioreport_group group;
    int16_t rail_of[PJ_IOREPORT_CHANNELS]; /* -1: none */
    ioreport_rail rails[MAX_RAILS];
    uint32_t rail_count;
} ioreport;

static const uint32_t ENERGIES =
    1u << PJ_IOREPORT_CPU | 1u << PJ_IOREPORT_CPU_DIE | 1u << PJ_IOREPORT_CLUSTER |
    1u << PJ_IOREPORT_GPU | 1u << PJ_IOREPORT_GPU_UNIT | 1u << PJ_IOREPORT_GPU_SRAM |
    1u << PJ_IOREPORT_ANE | 1u << PJ_IOREPORT_DRAM | 1u << PJ_IOREPORT_DCS | 1u << PJ_IOREPORT_AMCC;

static const struct {
    const char *name;
    pj_rail_class rail_class;
} words[PJ_IOREPORT_KINDS] = {
    [PJ_IOREPORT_CPU] = {"cpu", PJ_RAIL_CPU},
    [PJ_IOREPORT_CLUSTER] = {"cpu", PJ_RAIL_PLATFORM},
    [PJ_IOREPORT_GPU] = {"gpu", PJ_RAIL_GPU},
    [PJ_IOREPORT_GPU_SRAM] = {"gpu-sram", PJ_RAIL_PLATFORM},
    [PJ_IOREPORT_ANE] = {"ane", PJ_RAIL_ANE},
    [PJ_IOREPORT_DRAM] = {"dram", PJ_RAIL_DRAM},
    [PJ_IOREPORT_DCS] = {"dram-channels", PJ_RAIL_DRAM},
    [PJ_IOREPORT_AMCC] = {"dram-controllers", PJ_RAIL_DRAM},
};

/* ---- rails ---- */

static bool has_kind(const pj_ioreport_group *g, pj_ioreport_kind kind)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (g->channels[i].kind == kind) return true;
    return false;
}

/* The kind of rail that a channel adds to; OTHER: what it measures is in another channel. */
static pj_ioreport_kind adds_to(const pj_ioreport_group *g, pj_ioreport_kind kind)
{
    bool whole_cpu = has_kind(g, PJ_IOREPORT_CPU), whole_gpu = has_kind(g, PJ_IOREPORT_GPU);
    switch (kind) {
    case PJ_IOREPORT_CPU_DIE: return whole_cpu ? PJ_IOREPORT_OTHER : PJ_IOREPORT_CPU;
    case PJ_IOREPORT_GPU_UNIT: return whole_gpu ? PJ_IOREPORT_OTHER : PJ_IOREPORT_GPU;
    case PJ_IOREPORT_GPU_SRAM: return whole_gpu ? PJ_IOREPORT_GPU_SRAM : PJ_IOREPORT_GPU;
    default: return kind;
    }
}

static int rail_find(const ioreport *s, const char *name)
{
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (strcmp(s->rails[i].name, name) == 0) return (int)i;
    return -1;
}

static int rail_for(ioreport *s, const pj_ioreport_channel *channel)
{
    char name[PJ_RAIL_NAME_BYTES], cluster[16];
    pj_ioreport_kind kind = adds_to(&s->group, channel->kind);
    if (kind == PJ_IOREPORT_OTHER) return -1;
    snprintf(name, sizeof name, "%s", words[kind].name);
    if (kind == PJ_IOREPORT_CLUSTER) {
        pj_ioreport_cluster_name(channel->name, cluster, sizeof cluster);
        snprintf(name, sizeof name, "cpu-%s", cluster);
    }
    int found = rail_find(s, name);
    if (found >= 0 || s->rail_count == MAX_RAILS) return found;
    s->rails[s->rail_count].kind = kind;
    memcpy(s->rails[s->rail_count].name, name, sizeof name);
    return (int)s->rail_count++;
}

/* By rail; NAN where one of its channels has no value. */
static void add_up(const ioreport *s, const int64_t *values, double *microjoules)
{
    for (uint32_t i = 0; i < s->rail_count; i++) microjoules[i] = 0;
    for (uint32_t i = 0; i < s->group.count; i++) {
        if (s->rail_of[i] < 0) continue;
        double value = values[i] < 0 ? NAN : (double)values[i] * s->group.channels[i].scale;
        microjoules[s->rail_of[i]] += value;
    }
}

static void drop_rail(ioreport *s, uint32_t rail)
{
    memmove(&s->rails[rail], &s->rails[rail + 1], (--s->rail_count - rail) * sizeof s->rails[0]);
    for (uint32_t i = 0; i < s->group.count; i++) {
        if (s->rail_of[i] == (int16_t)rail) s->rail_of[i] = -1;
        if (s->rail_of[i] > (int16_t)rail) s->rail_of[i]--;
    }
}

static void make_rails(ioreport *s)
{
    double microjoules[MAX_RAILS];
    int64_t values[PJ_IOREPORT_CHANNELS];
    for (uint32_t i = 0; i < s->group.count; i++)
        s->rail_of[i] = (int16_t)rail_for(s, &s->group.channels[i]);
    if (pj_ioreport_group_read(&s->group, values) != PJ_OK) {
        s->rail_count = 0;
        return;
    }
    add_up(s, values, microjoules);
    for (uint32_t i = s->rail_count; i > 0; i--)
        if (!(microjoules[i - 1] > 0)) drop_rail(s, i - 1);
}

/* ---- the source ---- */

static void ioreport_close(void *state)
{
    ioreport *s = state;
    pj_ioreport_group_close(&s->group);
    pj_ioreport_unload(&s->api);
}

static pj_status ioreport_open(void *state, const pj_power_env *env, const char *argument,
                               pj_source_report *report)
{
    ioreport *s = state;
    pj_status status = pj_ioreport_load(&s->api, env, report);
    if (status != PJ_OK) return status;
    status = pj_ioreport_group_open(&s->group, &s->api, "Energy Model", ENERGIES, report);
    if (status == PJ_OK) make_rails(s);
    if (status == PJ_OK && s->rail_count > 0) return PJ_OK;
    if (status == PJ_OK)
        status =
            pj_source_explain(report, PJ_E_UNAVAILABLE, "sudo perjoule setup --write powermetrics",
                              "IOReport's %u energy channels have no values", s->group.count);
    ioreport_close(s);
    return status;
}

static int ioreport_parent(const ioreport *s, const ioreport_rail *rail)
{
    if (rail->kind == PJ_IOREPORT_CLUSTER) return rail_find(s, "cpu");
    return rail->kind == PJ_IOREPORT_GPU_SRAM ? rail_find(s, "gpu") : -1;
}

/* The smallest step: of the finest channel. */
static double resolution_of(const ioreport *s, int rail)
{
    double finest = 0;
    for (uint32_t i = 0; i < s->group.count; i++)
        if (s->rail_of[i] == rail && (finest == 0 || s->group.channels[i].scale < finest))
            finest = s->group.channels[i].scale;
    return finest;
}

static void write_field(const ioreport *s, int rail, char *field, size_t bytes)
{
    field[0] = 0;
    for (uint32_t i = 0; i < s->group.count; i++) {
        size_t used = strlen(field);
        if (s->rail_of[i] == rail)
            snprintf(field + used, bytes - used, "%s%s", used ? " + " : "",
                     s->group.channels[i].name);
    }
}

static uint32_t ioreport_rails(const void *state, pj_rail *rails)
{
    const ioreport *s = state;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        rails[i] = (pj_rail){.rail_class = words[s->rails[i].kind].rail_class,
                             .kind = PJ_RAIL_COUNTER,
                             .scope = PJ_SCOPE_DOMAIN,
                             .quality = PJ_MEASURED,
                             .parent = ioreport_parent(s, &s->rails[i]),
                             .resolution = resolution_of(s, (int)i)};
        memcpy(rails[i].name, s->rails[i].name, sizeof rails[i].name);
        snprintf(rails[i].source, sizeof rails[i].source, "ioreport");
        /* the same as powermetrics', so that the GPU is not counted twice */
        snprintf(rails[i].device, sizeof rails[i].device, "apple");
        write_field(s, (int)i, rails[i].field, sizeof rails[i].field);
    }
    return s->rail_count;
}

static pj_status ioreport_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    ioreport *s = state;
    double microjoules[MAX_RAILS];
    int64_t values[PJ_IOREPORT_CHANNELS];
    int64_t before = pj_clock_ns();
    pj_status status = pj_ioreport_group_read(&s->group, values);
    int64_t after = pj_clock_ns();
    *count = 0;
    if (status != PJ_OK) return status;
    add_up(s, values, microjoules);
    for (uint32_t i = 0; i < s->rail_count && i < max; i++) {
        pj_reading *r = &readings[(*count)++];
        *r = (pj_reading){
            .rail = (uint16_t)i, .before_ns = before, .after_ns = after, .value = microjoules[i]};
        if (isnan(r->value)) pj_source_fail_reading(r, PJ_E_UNAVAILABLE);
    }
    return PJ_OK;
}

const pj_power_source pj_source_ioreport = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "ioreport",
    .counts_for = 1u << PJ_RAIL_CPU | 1u << PJ_RAIL_GPU,
    .state_bytes = sizeof(ioreport),
    .open = ioreport_open,
    .rails = ioreport_rails,
    .read = ioreport_read,
    .close = ioreport_close,
    .min_poll_ns = 100 * PJ_NS_PER_MS,
};
