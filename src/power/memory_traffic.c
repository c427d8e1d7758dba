/* Sums the counters of all dies. A chip that lists the group may refuse it, or give values that
 * are no counts: then there is no figure. */
#include "power/memory_traffic.h"

#include "base/memory.h"
#include "power/ioreport_group.h"

#include <math.h>

struct pj_memory_traffic {
    ioreport_api api;
    pj_ioreport_group group;
};

pj_memory_traffic *pj_memory_traffic_open(const pj_power_env *env)
{
    double read_bytes, written_bytes;
    pj_source_report report = {0};
    pj_memory_traffic *t = pj_alloc(1, sizeof *t);
    uint32_t kinds = 1u << PJ_IOREPORT_READ | 1u << PJ_IOREPORT_WRITTEN;
    if (!t) return NULL;
    if (pj_ioreport_load(&t->api, env, &report) == PJ_OK &&
        pj_ioreport_group_open(&t->group, &t->api, "AMC Stats", kinds, &report) == PJ_OK) {
        pj_memory_traffic_read(t, &read_bytes, &written_bytes);
        if (read_bytes > 0) return t;
    }
    pj_memory_traffic_close(t);
    return NULL;
}

void pj_memory_traffic_close(pj_memory_traffic *t)
{
    if (!t) return;
    pj_ioreport_group_close(&t->group);
    pj_ioreport_unload(&t->api);
    pj_free(t);
}

void pj_memory_traffic_read(pj_memory_traffic *t, double *read_bytes, double *written_bytes)
{
    int64_t values[PJ_IOREPORT_CHANNELS];
    *read_bytes = *written_bytes = 0;
    bool failed = pj_ioreport_group_read(&t->group, values) != PJ_OK;
    for (uint32_t i = 0; i < t->group.count && !failed; i++) {
        bool is_read = t->group.channels[i].kind == PJ_IOREPORT_READ;
        *(is_read ? read_bytes : written_bytes) += (double)values[i];
        failed = values[i] < 0;
    }
    if (failed) *read_bytes = *written_bytes = NAN;
}
