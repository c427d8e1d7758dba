/* Results of an experiment as JSON, and the list of all experiments. */
#include "base/clock.h"
#include "base/json_document.h"
#include "experiment/experiment_view.h"
#include "insight/sides.h"
#include "store/experiments.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

/* ---- cells ---------------------------------------------------------------------------------- */

/* How the cell used its model: the weights and experts of a step, the context's share. */
static void write_use(const pj_cell_figures *f, pj_json *json)
{
    bool has_experts = f->experts.experts > 0, has_context = f->context.limit > 0;
    pj_json_kv_double(json, "energy_per_million_active_parameters_mj", f->mj_per_million_active);
    pj_json_kv_double(json, "decode_weight_bytes", f->weight_bytes);
    pj_json_kv_double(json, "kv_megabytes", has_context ? f->context.kv_bytes / 1e6 : NAN);
    pj_json_kv_double(json, "context_share", has_context ? f->context.share : NAN);
    pj_json_kv_double(json, "experts_per_step", has_experts ? f->experts.per_step : NAN);
    pj_json_kv_double(json, "load_balance", has_experts ? f->experts.balance : NAN);
}

/* Tasks solved, and those that only this cell or only the best one solved. */
static void write_score(const pj_cell_figures *f, pj_json *json)
{
    bool scored = f->score.tasks > 0;
    pj_json_kv_optional(json, "tasks", scored, f->score.tasks);
    pj_json_kv_optional(json, "tasks_solved", scored, f->score.right);
    pj_json_kv_double(json, "score", f->score.share);
    pj_json_kv_double(json, "score_lo", f->score.lo);
    pj_json_kv_double(json, "score_hi", f->score.hi);
    pj_json_kv_optional(json, "solved_by_best_alone", scored, f->against_best.only_a);
    pj_json_kv_optional(json, "solved_alone", scored, f->against_best.only_b);
    pj_json_kv_double(json, "score_p", scored ? f->against_best.p : NAN);
}

static void write_cell(const pj_experiment_result *r, uint32_t index, pj_json *json)
{
    const pj_cell_figures *f = &r->cells[index];
    const pj_cell *cell = &f->cell;
    const pj_cell_runs *runs = &r->runs.cells[index];
    char partial[256];
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "cell", index);
    pj_json_kv_string(json, "name", f->name);
    pj_json_kv_string(json, "model", cell->model[0] ? cell->model : NULL);
    pj_json_kv_string(json, "dtype", cell->dtype[0] ? cell->dtype : NULL);
    pj_json_kv_uint(json, "batch", cell->batch);
    pj_json_kv_uint(json, "input", cell->input);
    pj_json_kv_uint(json, "output", cell->output);
    pj_json_kv_uint(json, "threads", cell->threads ? cell->threads : r->all_threads);
    pj_json_kv_string(json, "ablate", cell->ablate[0] ? cell->ablate : NULL);
    pj_json_kv_string(json, "engine", cell->engine[0] ? cell->engine : "perjoule");
    pj_json_kv_uint(json, "runs", f->n);
    pj_json_kv_uint(json, "disturbed_runs", f->disturbed);
    pj_json_kv_string(json, "energy_source", f->n ? pj_quality_name(runs->runs[0]->quality) : NULL);
    pj_json_kv_string(json, "partial", pj_cell_partial(runs, partial, sizeof partial));
    pj_json_kv_double(json, "joules_per_token", f->mean.value);
    pj_json_kv_double(json, "joules_per_token_lo", f->mean.lo);
    pj_json_kv_double(json, "joules_per_token_hi", f->mean.hi);
    pj_json_kv_double(json, "joules_per_token_typical", f->typical.value);
    pj_json_kv_double(json, "joules_per_token_typical_lo", f->typical.lo);
    pj_json_kv_double(json, "joules_per_token_typical_hi", f->typical.hi);
    pj_json_kv_double(json, "tokens_per_second", f->speed);
    pj_json_kv_double(json, "ttft_ms", f->ttft_ms);
    pj_json_kv_double(json, "token_latency_ms", f->latency_ms);
    pj_json_kv_double(json, "mean_power_mw", f->power_mw);
    pj_json_kv_double(json, "loss", f->loss);
    write_score(f, json);
    write_use(f, json);
    pj_json_kv_array_begin(json, "ids");
    for (uint32_t i = 0; i < runs->count && i < 100; i++) pj_json_string(json, runs->runs[i]->id);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- conclusions ---------------------------------------------------------------------------- */

static void experiment_json_write_indices(pj_json *json, const char *key, const uint32_t *cells,
                                          uint32_t count)
{
    pj_json_kv_array_begin(json, key);
    for (uint32_t i = 0; i < count; i++) pj_json_uint(json, cells[i]);
    pj_json_array_end(json);
}

static void write_optimum(const pj_experiment_result *r, pj_json *json)
{
    pj_json_key(json, "optimum");
    if (r->optimum == PJ_NO_CELL) {
        pj_json_null(json);
        return;
    }
    const pj_cell_figures *best = &r->cells[r->optimum];
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "cell", r->optimum);
    pj_json_kv_string(json, "name", best->name);
    pj_json_kv_double(json, "joules_per_token", best->mean.value);
    pj_json_kv_double(json, "joules_per_token_typical", best->typical.value);
    pj_json_kv_double(json, "token_latency_ms", best->latency_ms);
    experiment_json_write_indices(json, "ties", r->ties, r->tie_count);
    pj_json_object_end(json);
}

static void write_knees(const pj_experiment_result *r, pj_json *json)
{
    pj_json_kv_array_begin(json, "knees");
    for (uint32_t i = 0; i < r->knee_count; i++) {
        const pj_batch_knee *k = &r->knees[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "over", "batch");
        pj_json_kv_uint(json, "first_cell", k->first_cell);
        pj_json_kv_uint(json, "cell", k->cell);
        pj_json_kv_uint(json, "batch", k->batch);
        pj_json_kv_double(json, "saves", k->saves);
        pj_json_kv_double(json, "saves_lo", k->saves_lo);
        pj_json_kv_double(json, "saves_hi", k->saves_hi);
        pj_json_kv_bool(json, "settled", k->settled);
        pj_json_kv_string(json, "text", k->text);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_fronts(const pj_experiment_result *r, pj_json *json)
{
    pj_json_kv_array_begin(json, "fronts");
    for (uint32_t i = 0; i < r->front_count; i++) {
        const pj_cell_front *f = &r->fronts[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "over", f->over);
        experiment_json_write_indices(json, "cells", f->cells, f->count);
        pj_json_kv_optional(json, "knee", f->knee != PJ_NO_CELL, f->knee);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_answers(const pj_experiment_result *r, pj_json *json)
{
    const pj_cell_answers *a = &r->answers;
    pj_json_key(json, "answers");
    if (!a->tasks) {
        pj_json_null(json);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "tasks", a->tasks);
    pj_json_kv_uint(json, "best", a->best);
    pj_json_kv_optional(json, "least_energy", a->least != PJ_NO_CELL, a->least);
    pj_json_kv_string(json, "text", a->text[0] ? a->text : NULL);
    pj_json_object_end(json);
}

/* A ratio with its interval, and whether it differs significantly from 1. */
static void write_ratio(const pj_cell_ratio *c, const char *p, pj_json *json)
{
    pj_json_kv_double(json, "ratio", c->ratio.ratio);
    pj_json_kv_double(json, "ratio_lo", c->ratio.lo);
    pj_json_kv_double(json, "ratio_hi", c->ratio.hi);
    pj_json_kv_double(json, p, c->p);
    pj_json_kv_bool(json, "different", c->different);
}

static void experiment_json_write_ratios(const pj_experiment_result *r, pj_json *json)
{
    pj_json_kv_array_begin(json, "comparisons");
    for (uint32_t i = 0; i < r->first_count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "a", 0);
        pj_json_kv_uint(json, "b", r->against_first[i].cell);
        pj_json_kv_string(json, "method", r->against_first[i].ratio.method);
        write_ratio(&r->against_first[i], "p_adjusted", json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "against_former");
    for (uint32_t i = 0; i < r->former_count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "cell", r->against_former[i].cell);
        write_ratio(&r->against_former[i], "p", json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_estimate(pj_json *json, const char *name, const pj_estimate *e)
{
    pj_json_kv_object_begin(json, name);
    pj_json_kv_double(json, "joules_per_token", e->value);
    pj_json_kv_double(json, "joules_per_token_lo", e->lo);
    pj_json_kv_double(json, "joules_per_token_hi", e->hi);
    pj_json_object_end(json);
}

static void write_ablations(const pj_experiment_result *r, pj_json *json)
{
    pj_json_kv_array_begin(json, "ablations");
    for (uint32_t i = 0; i < r->ablation_count; i++) {
        const pj_ablated_part *a = &r->ablations[i];
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "cell", a->cell);
        pj_json_kv_uint(json, "whole_cell", a->whole_cell);
        pj_json_kv_string(json, "ablate", r->cells[a->cell].cell.ablate);
        pj_json_kv_uint(json, "pairs", a->cost.pairs);
        write_estimate(json, "difference", &a->cost.difference);
        write_estimate(json, "attributed", &a->cost.attributed);
        pj_json_kv_double(json, "planted_joules_per_token", a->planted);
        pj_json_kv_double(json, "resolution_joules_per_token", a->cost.resolution);
        pj_json_kv_string(json, "outcome", pj_part_outcome_name(a->cost.outcome));
        pj_json_kv_string(json, "text", a->text);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* ---- the result ----------------------------------------------------------------------------- */

static void write_progress(const pj_experiment_live *live, pj_json *json)
{
    const pj_experiment_progress *p = &live->progress;
    pj_json_key(json, "progress");
    if (!live->state || strcmp(live->state, "running") != 0) {
        pj_json_null(json);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_string(json, "run_id", live->run_id[0] ? live->run_id : NULL);
    pj_json_kv_uint(json, "done", p->done);
    pj_json_kv_uint(json, "total", p->total);
    pj_json_kv_uint(json, "block", p->block);
    pj_json_kv_uint(json, "cell", p->cell);
    pj_json_kv_string(json, "cell_name", p->name);
    pj_json_kv_double(json, "left_s", p->left_s);
    pj_json_object_end(json);
}

void pj_experiment_result_write(const pj_experiment_result *r, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", r->plan.name);
    pj_json_kv_string(json, "state", r->state);
    pj_json_kv_string(json, "error", r->error);
    write_progress(&r->live, json);
    pj_json_kv_uint(json, "round", r->plan.round);
    pj_json_kv_uint(json, "done", r->done);
    pj_json_kv_uint(json, "total", r->total);
    pj_json_kv_string(json, "metric", pj_figures[r->primary].name);
    pj_json_key(json, "plan");
    pj_plan_write(&r->plan, json);
    pj_json_kv_array_begin(json, "cells");
    for (uint32_t i = 0; i < r->count; i++) write_cell(r, i, json);
    pj_json_array_end(json);
    pj_json_kv_string(json, "refusal", r->refusal);
    write_optimum(r, json);
    write_knees(r, json);
    write_fronts(r, json);
    write_answers(r, json);
    experiment_json_write_ratios(r, json);
    write_ablations(r, json);
    pj_json_object_end(json);
}

pj_status pj_view_experiment(pj_store *store, const char *name, const pj_experiment_live *live,
                             pj_json *json, pj_error *err)
{
    pj_experiment_result *r;
    pj_status status = pj_experiment_result_get(store, name, live, &r, err);
    if (r) pj_experiment_result_write(r, json);
    pj_experiment_result_free(r);
    return status;
}

/* ---- the list ------------------------------------------------------------------------------- */

typedef struct listing {
    pj_json *json;
    pj_experiment_live_fn *live;
    void *context;
} listing;

static void experiment_json_write_line(void *context, const pj_experiment_row *row)
{
    listing *l = context;
    pj_experiment_live live = {0};
    char created[32];
    pj_clock_format_iso(row->created_ns, created);
    if (l->live) l->live(l->context, row->name, &live);
    bool complete = row->state && strcmp(row->state, "completed") == 0;
    pj_json_object_begin(l->json);
    pj_json_kv_string(l->json, "name", row->name);
    pj_json_kv_string(l->json, "created_at", created);
    pj_json_kv_string(l->json, "state", pj_experiment_state(live.state, row->state, complete));
    pj_json_kv_string(l->json, "error", row->error);
    pj_json_key(l->json, "plan");
    pj_json_document(l->json, row->plan, row->plan ? strlen(row->plan) : 0);
    pj_json_object_end(l->json);
}

pj_status pj_view_experiments(pj_store *store, pj_experiment_live_fn *live, void *context,
                              pj_json *json, pj_error *err)
{
    listing l = {json, live, context};
    pj_json_array_begin(json);
    pj_status status = pj_store_experiment_list(store, experiment_json_write_line, &l, err);
    pj_json_array_end(json);
    return status;
}
