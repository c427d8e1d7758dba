/*
 * Sums over a run for its charts, computed once when it is saved, so that a chart does not read a
 * million rows. They are a cache: everything here can be recomputed from the rows. Disturbances
 * (trace/disturbance.h) are no part of a sum: they are a block of their own beside.
 *
 * Nodes: one per (phase, layer), (phase, layer, component) and (phase, layer, component, operation)
 * that occurs, summed over tokens; components outside the layers have layer -1. Planes: one float32
 * per token x layer x component, with one extra layer for components outside; NAN where there is
 * none.
 */
#ifndef PJ_STORE_AGGREGATE_H
#define PJ_STORE_AGGREGATE_H

#include "base/error.h"
#include "trace/run_data.h"
#include "trace/statistics.h"

enum { PJ_NO_NAME = 0xffff, PJ_OUTSIDE = -1 };

/* Stored as in memory, little-endian; see nodes_header in aggregate.c. */
typedef struct pj_sum_node {
    int32_t layer;
    uint16_t component, operation; /* indices of names; PJ_NO_NAME: the level above */
    uint8_t phase, method;
    uint16_t reserved;
    uint32_t count;
    uint32_t stats_count, entropy_count; /* rows that had statistics, an entropy */
    uint32_t first_extra;                /* index + 1 of the first of its extras; 0: none */
    double time_ms, attention_ms, mlp_ms;
    double flops, bytes; /* NAN: unknown in all rows */
    int64_t gross_nj, net_nj, self_nj, planted_nj;
    double sd_mj; /* parts assumed fully correlated */
    double entropy_sum;
    /* Sums or maxima, by pj_aggregate; undefined while stats_count is 0. */
    double statistics[PJ_STATISTIC_SHOWN];
} pj_sum_node;

/* Adds a node to another, e.g. one component in two phases; a `to` with count 0 becomes a copy. */
void pj_node_merge(pj_sum_node *to, const pj_sum_node *node);
/* A sum with an unknown part is unknown. */
static inline void pj_nj_add(int64_t *sum, int64_t nj)
{
    if (*sum != PJ_NJ_UNKNOWN) *sum = nj == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : *sum + nj;
}

typedef struct pj_extra_sum {
    uint16_t name, reserved;
    uint32_t count;
    uint32_t next; /* index + 1 of the node's next; 0: the last */
    double sum;
} pj_extra_sum;

typedef struct pj_sum_nodes {
    uint32_t node_count, name_count, extra_count;
    uint32_t layer_count;     /* highest layer index + 1 */
    const pj_sum_node *nodes; /* in order of first appearance */
    const pj_extra_sum *extras;
    const char *const *names;
} pj_sum_nodes;

/* After the name of a plane: without disturbances; stored of runs that have some. Nodes are without
 * them as they are. */
#define PJ_WITHOUT_DISTURBANCES "-without"

/* Names of the stored charts: "nodes", "components" (names of a plane's components, each with a
 * NUL), and pj_metric_info.plane of every metric that has one. */
typedef struct pj_plane_header {
    char magic[8];                                 /* "PJCUBE1" */
    uint32_t tokens, layers, components, reserved; /* `layers` includes the one outside */
} pj_plane_header;

typedef pj_status pj_chart_fn(void *context, const char *chart, const void *bytes, size_t count,
                              pj_error *err);
/* Computes each chart and passes it to `save`. Skips planes that are excessively large or empty. */
pj_status pj_aggregate_each_chart(const pj_run_data *data, pj_chart_fn *save, void *context,
                                  pj_error *err);
/* Validates a stored "nodes" chart and locates its parts; they point into `bytes` and the arena. */
pj_status pj_nodes_read(const void *bytes, size_t count, pj_arena *arena, pj_sum_nodes *nodes,
                        pj_error *err);
/* Those of a stored run; empty when it has none. */
struct pj_store;
pj_status pj_store_nodes(struct pj_store *store, const char *run_id, pj_arena *arena,
                         pj_sum_nodes *nodes, pj_error *err);

#endif
