/* Gathers the runs of an ablated cell and of its whole cell, and the sums of the latter's rows. */
#include "experiment/experiment_parts.h"

#include "store/aggregate.h"

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

static double experiment_parts_tokens_of(const pj_run_info *info)
{
    return info->output_tokens ? (double)info->output_tokens : NAN;
}

static pj_part_run *runs_of(pj_arena *arena, const pj_cell_runs *cell)
{
    pj_part_run *runs = pj_arena_alloc(arena, cell->count + 1, sizeof *runs);
    for (uint32_t i = 0; runs && i < cell->count; i++) {
        const pj_run_info *info = cell->runs[i];
        double random = (double)info->total_sd.random_mj / 1e3 / experiment_parts_tokens_of(info);
        runs[i] = (pj_part_run){info->request_mj / 1e3 / experiment_parts_tokens_of(info),
                                cell->blocks[i], isfinite(random) ? random : 0};
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

/* The layers that were cut off, or the components missing from a run without the part. */
static bool is_missing(const pj_sum_nodes *nodes, const pj_sum_node *n, const char *ablate,
                       const pj_sum_nodes *without)
{
    static const char layers[] = "layers=";
    if (strncmp(ablate, layers, sizeof layers - 1) == 0)
        return n->component == PJ_NO_NAME && n->layer >= atoi(ablate + sizeof layers - 1);
    const char *name = component_of(nodes, n);
    return name && !has_component(without, name);
}

/* Rows of one class share the error of its power; errors of classes are independent. */
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
        double tokens = experiment_parts_tokens_of(whole->runs[i]) * 1e3;
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

static const char *words_of(pj_part_outcome outcome)
{
    switch (outcome) {
    case PJ_PART_AGREE: return "The difference and attribution agree within their intervals.";
    case PJ_PART_DISAGREE:
        return "The difference and attribution disagree: ablation changed the rest "
               "(caches, clocks), or the attribution is wrong.";
    case PJ_PART_TOO_SHORT:
        return "Too short: the difference of two runs is below what the sensor resolves; "
               "generate more tokens per run.";
    case PJ_PART_UNCLEAR:
        return "The difference is not distinguishable from zero, so it confirms nothing: run more "
               "blocks, on an idle machine.";
    case PJ_PART_OPEN: break;
    }
    return "Open: at least two blocks with both runs and their energy are needed.";
}

static pj_status measure_ablation(pj_experiment_result *r, uint32_t index, pj_error *err)
{
    gathered g = {.planted = NAN};
    pj_sum_nodes nodes = {0};
    uint32_t whole_index = pj_plan_whole_cell(&r->plan, index);
    const pj_cell_runs *whole = &r->runs.cells[whole_index], *without = &r->runs.cells[index];
    pj_arena_init(&g.arena, 0);
    g.whole = runs_of(&g.arena, whole);
    g.without = runs_of(&g.arena, without);
    pj_status status = g.whole && g.without ? PJ_OK : pj_fail_memory(err, "an experiment");
    if (status == PJ_OK && without->count) {
        status = pj_store_nodes(r->store, without->runs[0]->id, &g.arena, &nodes, err);
        if (status == PJ_OK)
            status = gather_shares(&g, r->store, whole, &nodes, r->cells[index].cell.ablate, err);
    }
    if (status == PJ_OK) {
        pj_ablated_part *a = &r->ablations[r->ablation_count++];
        *a = (pj_ablated_part){.cell = index, .whole_cell = whole_index, .planted = g.planted};
        pj_part_cost_get(&(pj_part_query){g.whole, g.without, g.shares, whole->count,
                                          without->count, g.share_count},
                         &a->cost);
        a->text = words_of(a->cost.outcome);
    }
    pj_arena_fini(&g.arena);
    return status;
}

pj_status pj_experiment_ablations(pj_experiment_result *r, pj_error *err)
{
    pj_status status = PJ_OK;
    r->ablations = pj_arena_alloc(&r->arena, r->count + 1, sizeof *r->ablations);
    if (!r->ablations) return pj_fail_memory(err, "an experiment");
    for (uint32_t i = 0; i < r->count && status == PJ_OK; i++)
        if (pj_plan_whole_cell(&r->plan, i) != i) status = measure_ablation(r, i, err);
    return status;
}
