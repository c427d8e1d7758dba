/* Gathers the runs of an ablated cell and of its whole cell, and the sums of the latter's rows. */
#include "experiment/experiment_parts.h"

#include "analysis/part_cost.h"
#include "store/aggregate.h"
#include "trace/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 64, MAX_PARTS = 256 }; /* runs of a cell whose rows are read */

typedef struct gathered {
    pj_arena arena;
    pj_part_run *whole, *without;
    pj_part_share *shares;
    uint32_t share_count;
    double planted; /* joules per token of a simulation, mean; NAN: not simulated */
} gathered;

static double tokens_of(const pj_run_info *info)
{
    return info->output_tokens ? (double)info->output_tokens : NAN;
}

static pj_part_run *runs_of(pj_arena *arena, const pj_cell_runs *cell)
{
    pj_part_run *runs = pj_arena_alloc(arena, cell->count + 1, sizeof *runs);
    for (uint32_t i = 0; runs && i < cell->count; i++) {
        const pj_run_info *info = cell->runs[i];
        double random = (double)info->total_sd.random_mj / 1e3 / tokens_of(info);
        runs[i] = (pj_part_run){info->request_mj / 1e3 / tokens_of(info), cell->blocks[i],
                                isfinite(random) ? random : 0};
    }
    return runs;
}

/* ---- which rows belong to the ablated part --------------------------------------------------- */

static const char *component_of(const pj_sum_nodes *nodes, const pj_sum_node *n)
{
    if (n->component == PJ_NO_NAME || n->operation != PJ_NO_NAME) return NULL;
    return nodes->names[n->component];
}

static bool has_component(const pj_sum_nodes *nodes, const char *name)
{
    for (uint32_t i = 0; i < nodes->node_count; i++) {
        const char *other = component_of(nodes, &nodes->nodes[i]);
        if (other && strcmp(other, name) == 0) return true;
    }
    return false;
}

/* The layers that were cut off, or the components that a run without the part does not have. */
static bool is_missing(const pj_sum_nodes *nodes, const pj_sum_node *n, const char *ablate,
                       const pj_sum_nodes *without)
{
    static const char layers[] = "layers=";
    if (strncmp(ablate, layers, sizeof layers - 1) == 0)
        return n->component == PJ_NO_NAME && n->layer >= atoi(ablate + sizeof layers - 1);
    const char *name = component_of(nodes, n);
    return name && !has_component(without, name);
}

/* Rows of one class share the error of its power; classes err independently. */
typedef struct part_sums {
    double mj, planted_mj, sd[MAX_PARTS];
    uint16_t names[MAX_PARTS];
    uint8_t phases[MAX_PARTS];
    uint32_t count;
} part_sums;

static void add_sd(part_sums *p, const pj_sum_node *n)
{
    uint32_t i = 0;
    while (i < p->count && (p->names[i] != n->component || p->phases[i] != n->phase)) i++;
    if (i == MAX_PARTS) i--;
    if (i == p->count) {
        p->names[i] = n->component;
        p->phases[i] = n->phase;
        p->sd[p->count++] = 0;
    }
    p->sd[i] += isfinite(n->sd_mj) ? n->sd_mj : 0;
}

static double sd_of(const part_sums *p)
{
    double squares = 0;
    for (uint32_t i = 0; i < p->count; i++) squares += p->sd[i] * p->sd[i];
    return sqrt(squares);
}

static void sum_part(const pj_sum_nodes *nodes, const char *ablate, const pj_sum_nodes *without,
                     part_sums *p)
{
    *p = (part_sums){0};
    for (uint32_t i = 0; i < nodes->node_count; i++) {
        const pj_sum_node *n = &nodes->nodes[i];
        if (!is_missing(nodes, n, ablate, without)) continue;
        p->mj += pj_mj_of_nj(n->gross_nj);
        p->planted_mj += pj_mj_of_nj(n->planted_nj);
        add_sd(p, n);
    }
}

static pj_status gather_shares(gathered *g, pj_store *store, const pj_cell_runs *whole,
                               const pj_sum_nodes *without, const char *ablate, pj_error *err)
{
    uint32_t count = whole->count < MOST_RUNS ? whole->count : MOST_RUNS;
    pj_status status = PJ_OK;
    double planted = 0;
    g->shares = pj_arena_alloc(&g->arena, count + 1, sizeof *g->shares);
    if (!g->shares) return pj_fail_memory(err, "an experiment");
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        pj_arena arena;
        pj_sum_nodes nodes;
        part_sums p;
        double tokens = tokens_of(whole->runs[i]) * 1e3;
        pj_arena_init(&arena, 0);
        status = pj_store_nodes(store, whole->runs[i]->id, &arena, &nodes, err);
        if (status == PJ_OK) {
            sum_part(&nodes, ablate, without, &p);
            g->shares[g->share_count++] = (pj_part_share){p.mj / tokens, sd_of(&p) / tokens};
            planted += p.planted_mj / tokens;
        }
        pj_arena_fini(&arena);
    }
    g->planted = g->share_count ? planted / g->share_count : NAN;
    return status;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void write_estimate(pj_json *json, const char *name, const pj_estimate *e)
{
    pj_json_key(json, name);
    pj_json_object_begin(json);
    pj_json_kv_double(json, "joules_per_token", e->value);
    pj_json_kv_double(json, "joules_per_token_lo", e->lo);
    pj_json_kv_double(json, "joules_per_token_hi", e->hi);
    pj_json_object_end(json);
}

static const char *words_of(pj_part_outcome outcome)
{
    switch (outcome) {
    case PJ_PART_AGREE: return "The difference and attribution agree within their intervals.";
    case PJ_PART_DISAGREE:
        return "The difference and attribution disagree: leaving the part out changed the rest "
               "(caches, clocks), or attribution is wrong about it.";
    case PJ_PART_TOO_SHORT:
        return "Too short: the difference of two runs is below what the sensor resolves; "
               "generate more tokens per run.";
    case PJ_PART_OPEN: break;
    }
    return "Open: at least two blocks with both runs and their energy are needed.";
}

static void write_part(pj_json *json, uint32_t cell, uint32_t whole, const char *ablate,
                       const pj_part_cost *c, double planted)
{
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "cell", cell);
    pj_json_kv_uint(json, "whole_cell", whole);
    pj_json_kv_string(json, "ablate", ablate);
    pj_json_kv_uint(json, "pairs", c->pairs);
    write_estimate(json, "difference", &c->difference);
    write_estimate(json, "attributed", &c->attributed);
    pj_json_kv_double(json, "planted_joules_per_token", planted);
    pj_json_kv_double(json, "resolution_joules_per_token", c->resolution);
    pj_json_kv_string(json, "outcome", pj_part_outcome_name(c->outcome));
    pj_json_kv_string(json, "text", words_of(c->outcome));
    pj_json_object_end(json);
}

static pj_status write_cell(pj_store *store, const pj_plan *plan, const pj_experiment_runs *runs,
                            uint32_t index, pj_json *json, pj_error *err)
{
    gathered g = {.planted = NAN};
    pj_cell cell;
    pj_sum_nodes nodes = {0};
    uint32_t whole_index = pj_plan_whole_cell(plan, index);
    const pj_cell_runs *whole = &runs->cells[whole_index], *without = &runs->cells[index];
    pj_plan_cell(plan, index, &cell);
    pj_arena_init(&g.arena, 0);
    g.whole = runs_of(&g.arena, whole);
    g.without = runs_of(&g.arena, without);
    pj_status status = g.whole && g.without ? PJ_OK : pj_fail_memory(err, "an experiment");
    if (status == PJ_OK && without->count) {
        status = pj_store_nodes(store, without->runs[0]->id, &g.arena, &nodes, err);
        if (status == PJ_OK) status = gather_shares(&g, store, whole, &nodes, cell.ablate, err);
    }
    if (status == PJ_OK) {
        pj_part_cost cost;
        pj_part_cost_get(&(pj_part_ask){g.whole, g.without, g.shares, whole->count, without->count,
                                        g.share_count},
                         &cost);
        write_part(json, index, whole_index, cell.ablate, &cost, g.planted);
    }
    pj_arena_fini(&g.arena);
    return status;
}

pj_status pj_experiment_write_parts(pj_store *store, const pj_plan *plan,
                                    const pj_experiment_runs *runs, pj_json *json, pj_error *err)
{
    pj_status status = PJ_OK;
    pj_json_key(json, "ablations");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < pj_plan_cells(plan) && status == PJ_OK; i++)
        if (pj_plan_whole_cell(plan, i) != i) status = write_cell(store, plan, runs, i, json, err);
    pj_json_array_end(json);
    return status;
}
