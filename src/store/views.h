/* Stored runs as JSON, reduced to what a screen can show: one function per route of docs/api.md,
 * which documents the output. `id` is resolved by pj_store_resolve. On failure the JSON is
 * incomplete: discard it and answer with `err`. */
#ifndef PJ_STORE_VIEWS_H
#define PJ_STORE_VIEWS_H

#include "base/json.h"
#include "store/store.h"
#include "trace/statistics.h"
#include "trace/summary.h"

/* An array of summaries; *total: number of all matches. */
pj_status pj_view_runs(pj_store *store, const pj_run_query *query, const pj_cost_rates *rates,
                       pj_json *json, uint64_t *total, pj_error *err);
/* The array begins with runs that are not stored yet; neither limit nor total counts them. */
pj_status pj_view_runs_after(const pj_run_info *const *first, uint32_t first_count, pj_store *store,
                             const pj_run_query *query, const pj_cost_rates *rates, pj_json *json,
                             uint64_t *total, pj_error *err);
pj_status pj_view_facets(pj_store *store, pj_json *json, pj_error *err);

typedef struct pj_view_page {
    const char *include; /* comma-separated tables, "none", NULL: all */
    uint32_t limit;      /* 0: 1000 */
    uint64_t offset;
} pj_view_page;

pj_status pj_view_run(pj_store *store, const char *id, const pj_view_page *page,
                      const pj_cost_rates *rates, pj_json *json, pj_error *err);

/* Figures of a run that are expensive to compute: an array of structs that `make` appends on the
 * first request, stored with the run's other charts as `chart` and read into the arena from then
 * on. Valid because stored runs never change; a struct that changes needs another name. What cannot
 * be stored (read-only database, full disk) is recomputed each time. */
typedef pj_status pj_view_make(void *context, pj_buffer *items, pj_error *err);
typedef struct pj_view_chart {
    const char *name;
    size_t item_bytes;
    pj_view_make *make;
} pj_view_chart;
pj_status pj_view_kept(pj_store *store, const char *id, const pj_view_chart *chart, void *context,
                       pj_arena *arena, void **items, uint32_t *count, pj_error *err);

/* Writes the members of /summary except `anomalies` into the caller's object. */
pj_status pj_view_summary_members(pj_store *store, const char *id, const pj_cost_rates *rates,
                                  pj_json *json, pj_error *err);

typedef struct pj_view_window {
    const char *phase;     /* NULL: any */
    double from_ms, to_ms; /* both 0: everything */
    uint32_t limit;        /* 0: the route's default */
} pj_view_window;

pj_status pj_view_pipeline(pj_store *store, const char *id, const pj_view_window *window,
                           pj_json *json, pj_error *err);
/* window->limit is the parameter `points`. */
pj_status pj_view_power(pj_store *store, const char *id, const pj_view_window *window, bool rails,
                        pj_json *json, pj_error *err);
pj_status pj_view_tokens(pj_store *store, const char *id, uint64_t offset, uint32_t limit,
                         pj_json *json, pj_error *err);

/* What devices reported about themselves over time: one object per device, columns over its rows.
 */
pj_status pj_view_conditions(pj_store *store, const char *id, pj_json *json, pj_error *err);

/* Single layers, components and operations in a window of time, as they were measured. */
typedef struct pj_span_window {
    double from_ms, to_ms; /* to_ms not above from_ms: everything */
    const char *deepest;   /* "layer", "component", "operation"; NULL: operation */
    const char *name;      /* components and operations whose names contain it; NULL: all */
    uint32_t limit;        /* spans of each level; 0: 5000 */
    bool is_grouped;       /* sums by name instead of single spans */
} pj_span_window;
pj_status pj_view_spans(pj_store *store, const char *id, const pj_span_window *window,
                        pj_json *json, pj_error *err);

enum { PJ_ANY = -2 }; /* any token or layer */

typedef struct pj_view_choice {
    pj_metric metric;
    int64_t token;         /* PJ_ANY: all */
    int32_t layer;         /* PJ_ANY: all; -1: outside the layers */
    const char *component; /* NULL: all */
    const char *phase;     /* NULL: all */
} pj_view_choice;

pj_status pj_view_heatmap(pj_store *store, const char *id, const pj_view_choice *choice,
                          pj_json *json, pj_error *err);
/* The same as a matrix. */
typedef struct pj_heatmap {
    pj_run_list run; /* owns everything here */
    uint32_t tokens, layers, components;
    const char **names; /* [components] */
    bool *inside;       /* [components]: some layer has it */
    double *values;     /* [layers + 1][components], the last row for what lies outside the layers;
                           NULL: not recorded */
    double min, max;    /* of components inside layers; NAN: unavailable */
} pj_heatmap;
pj_status pj_heatmap_get(pj_store *store, const char *id, const pj_view_choice *choice,
                         pj_heatmap *map, pj_error *err);
void pj_heatmap_fini(pj_heatmap *map); /* may run twice */
/* The binary cube of all tokens, without disturbances, appended to `out`. `outside`: with a last
 * layer for what lies outside the layers, and then with all components as columns. */
pj_status pj_view_cube(pj_store *store, const char *id, pj_metric metric, bool outside,
                       pj_buffer *out, pj_error *err);
/* levels: 1 to 4 below the run; 0: 4. */
pj_status pj_view_tree(pj_store *store, const char *id, pj_metric metric, uint32_t levels,
                       pj_json *json, pj_error *err);
pj_status pj_view_operations(pj_store *store, const char *id, const pj_view_choice *choice,
                             pj_json *json, pj_error *err);

/* The components of a choice, or their operations: rows of one token, sums over all tokens. */
typedef struct pj_part_figures {
    const char *component, *operation; /* operation: NULL for a component */
    int32_t layer;                     /* PJ_ANY: a sum; -1: outside the layers */
    uint32_t count;
    double time_ms, energy_mj, net_energy_mj, self_energy_mj, energy_sd_mj, planted_mj;
    double net_energy_sd_mj; /* of a sum an upper bound */
    double flops, bytes;
    double statistics[PJ_STATISTIC_SHOWN];
    const char *extras; /* scalars as a JSON object */
    size_t extras_bytes;
} pj_part_figures;
typedef void pj_part_fn(void *context, const pj_part_figures *part);
pj_status pj_view_each_part(pj_store *store, const char *id, const pj_view_choice *choice,
                            bool operations, pj_part_fn *each, void *context, pj_error *err);

/* ---- samples for statistics, not JSON -------------------------------------------------------- */

/* Figures of one run per token (decode only, one row per step) or per sample, in the arena. NAN:
 * unavailable. */
typedef struct pj_token_series {
    uint32_t count;
    uint32_t *token;
    double *start_ms, *duration_ms, *energy_mj, *energy_sd_mj;
} pj_token_series;

typedef struct pj_power_series {
    uint32_t count;
    double *t_ms;
    uint8_t *phase;
    double *columns[PJ_RAIL_TOTAL + 1]; /* never NULL when count > 0 */
} pj_power_series;

pj_status pj_view_token_series(pj_store *store, const char *id, pj_arena *arena,
                               pj_token_series *series, pj_error *err);
pj_status pj_view_power_series(pj_store *store, const char *id, pj_arena *arena,
                               pj_power_series *series, pj_error *err);

/* For each token of the series, the clock of the slowest device / its median over the run, in the
 * arena. NULL: no device reports its clock. */
pj_status pj_view_token_clocks(pj_store *store, const char *id, pj_arena *arena,
                               const pj_token_series *tokens, double **share, pj_error *err);

/* Sums per component over a whole run, highest energy first. */
typedef struct pj_component_sum {
    const char *name;
    uint32_t count;
    double time_ms, energy_mj, energy_sd_mj, flops, bytes;
    double share; /* of the run's energy; of its time where energy is unavailable */
} pj_component_sum;

pj_status pj_view_component_sums(pj_store *store, const char *id, pj_arena *arena,
                                 pj_component_sum **sums, uint32_t *count, pj_error *err);

/* Sections of a run by phase and name, in order. */
typedef struct pj_section_sum {
    uint32_t phase; /* index of the phase row */
    uint32_t count;
    const char *name;
    double duration_ms, energy_mj;
    double energy_sd_mj; /* without the sensor's calibration; NAN: unknown */
    /* Without disturbances, of a section that consists of no components; NAN: it does. */
    double own_ms, own_mj, own_net_mj;
} pj_section_sum;

pj_status pj_view_section_sums(pj_store *store, const char *id, pj_arena *arena,
                               pj_section_sum **sums, uint32_t *count, pj_error *err);

/* Sums per layer over a whole run, by index. */
typedef struct pj_layer_sum {
    double time_ms, attention_ms, mlp_ms;
    double energy_mj, attention_mj, mlp_mj, other_mj;
    double energy_sd_mj, attention_sd_mj, mlp_sd_mj;
} pj_layer_sum;

pj_status pj_view_layer_sums(pj_store *store, const char *id, pj_arena *arena, pj_layer_sum **sums,
                             uint32_t *count, pj_error *err);

#endif
