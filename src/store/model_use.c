/* Reading the rows of routers and of tokens. In the rows of component `router`, a pass of few
 * tokens lists the experts of each token; a larger one has the share of each expert, which counts
 * by the pass's FLOPs: they are proportional to its tokens. */
#include "store/model_use.h"

#include "store/extras.h"
#include "store/view.h"

#include <math.h>
#include <string.h>

enum { MOST_LAYERS = 4096 };

typedef struct reading {
    pj_run_view view;
    uint32_t *layer_of; /* by index of the row in layer_metrics */
    pj_expert_load *load;
    pj_extra_list extras;
    pj_arena scratch;
} reading;

static pj_status model_use_read_layers(reading *r, pj_arena *arena, pj_error *err)
{
    pj_row_range rows = r->view.ranges[PJ_TABLE_LAYERS];
    r->layer_of = pj_arena_alloc(arena, rows.count + 1, sizeof *r->layer_of);
    if (!r->layer_of) return pj_fail_memory(err, "the layers of a run");
    for (uint32_t i = 0; i < rows.count; i++) r->layer_of[i] = UINT32_MAX;
    pj_sql *sql = pj_view_select(&r->view, PJ_TABLE_LAYERS, "id, layer_index", "", err);
    while (pj_sql_step(sql)) {
        int64_t at = pj_sql_get_int(sql, 0) - rows.first, layer = pj_sql_get_int(sql, 1);
        if (at < 0 || at >= rows.count || layer < 0 || layer >= MOST_LAYERS) continue;
        r->layer_of[at] = (uint32_t)layer;
        if ((uint32_t)layer >= r->load->layers) r->load->layers = (uint32_t)layer + 1;
    }
    return pj_sql_end(sql, err);
}

/* Adds one pass, weighted by its tokens. */
static void add_pass(reading *r, uint32_t layer, double weight)
{
    uint32_t listed = 0, experts = r->load->experts;
    double *share = r->load->share + (size_t)layer * experts;
    for (uint32_t i = 0; i < r->extras.count; i++)
        listed += strcmp(r->extras.rows[i].name, "expert") == 0;
    for (uint32_t i = 0; i < r->extras.count; i++) {
        const pj_extra_row *e = &r->extras.rows[i];
        bool is_choice = strcmp(e->name, "expert") == 0 && e->value >= 0 && e->value < experts;
        if (is_choice) share[(uint32_t)e->value] += weight / listed;
        if (strcmp(e->name, "expert_load") == 0 && e->index < experts && isfinite(e->value))
            share[e->index] += weight * e->value;
    }
}

static bool model_use_take_row(reading *r, pj_sql *sql)
{
    size_t bytes;
    int64_t at = pj_sql_get_int(sql, 0) - r->view.ranges[PJ_TABLE_LAYERS].first;
    double flops = pj_sql_get_double(sql, 2);
    const char *json = pj_sql_get_text(sql, 1, &bytes);
    if (!json || at < 0 || at >= r->view.ranges[PJ_TABLE_LAYERS].count ||
        r->layer_of[at] == UINT32_MAX)
        return true;
    r->extras.count = 0;
    if (!pj_extras_read(json, bytes, &r->extras, &r->scratch)) return false;
    add_pass(r, r->layer_of[at], flops > 0 ? flops : 1);
    return true;
}

static void model_use_normalise(pj_expert_load *load)
{
    for (uint32_t l = 0; l < load->layers; l++) {
        double sum = 0, *share = load->share + (size_t)l * load->experts;
        for (uint32_t e = 0; e < load->experts; e++) sum += share[e];
        for (uint32_t e = 0; e < load->experts; e++) share[e] = sum > 0 ? share[e] / sum : NAN;
    }
}

static pj_status read_routers(reading *r, pj_error *err)
{
    bool ok = true;
    pj_sql *sql = pj_view_select(
        &r->view, PJ_TABLE_COMPONENTS, "layer_metric_id, extra_metrics, flops_estimate",
        "AND component_name = 'router' AND layer_metric_id IS NOT NULL", err);
    while (ok && pj_sql_step(sql)) ok = model_use_take_row(r, sql);
    pj_status status = pj_sql_end(sql, err);
    if (status == PJ_OK && !ok) return pj_fail(err, PJ_E_IO, "a router's figures are damaged");
    return status;
}

pj_status pj_store_expert_load(pj_store *store, const char *id, uint32_t experts, pj_arena *arena,
                               pj_expert_load *load, pj_error *err)
{
    reading r = {.load = load};
    *load = (pj_expert_load){.experts = experts};
    pj_arena_init(&r.scratch, 0);
    pj_status status = pj_view_open(&r.view, store, id, NULL, err);
    if (status == PJ_OK) status = model_use_read_layers(&r, arena, err);
    if (status == PJ_OK) {
        load->share = pj_arena_alloc(arena, (size_t)load->layers * experts + 1, sizeof(double));
        if (!load->share) status = pj_fail_memory(err, "the load of experts");
    }
    if (status == PJ_OK) status = read_routers(&r, err);
    if (status == PJ_OK) model_use_normalise(load);
    pj_free(r.extras.rows);
    pj_arena_fini(&r.scratch);
    return pj_view_close(&r.view, status);
}

pj_status pj_store_contexts(pj_store *store, const char *id, uint32_t *positions, uint32_t capacity,
                            uint32_t *count, pj_error *err)
{
    pj_run_view view;
    *count = 0;
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) {
        pj_sql *sql = pj_view_select(
            &view, PJ_TABLE_TOKENS, "sequence, max(context_tokens)",
            "AND context_tokens IS NOT NULL GROUP BY sequence ORDER BY sequence", err);
        while (pj_sql_step(sql)) {
            int64_t attended = pj_sql_get_int(sql, 1);
            if (*count < capacity && attended > 0 && attended < UINT32_MAX)
                positions[(*count)++] = (uint32_t)attended;
        }
        status = pj_sql_end(sql, err);
    }
    return pj_view_close(&view, status);
}
