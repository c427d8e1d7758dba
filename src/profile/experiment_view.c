/* Results of an experiment: a table of cells, the optimum, knees, and whether a repetition
 * confirmed it. */
#include "profile/experiment_view.h"

#include "analysis/compare.h"
#include "analysis/ratio.h"
#include "base/clock.h"
#include "profile/experiment_done.h"
#include "profile/experiment_parts.h"
#include "profile/sides.h"
#include "store/experiments.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double knee_saving = 0.10; /* minimum relative saving of a doubling before the knee */

typedef struct figures {
    uint32_t n, disturbed;
    double *joules; /* [n], in the arena */
    double mean, lo, hi, typical, speed, ttft_ms, latency_ms, power_mw, loss;
} figures;

typedef struct result {
    pj_arena arena;
    pj_store *store;
    pj_plan plan;
    pj_experiment_runs runs, former;
    uint32_t count;
    figures *cells;
    json_t *losses;
    const char *state, *error; /* state stored by a server; NULL: none */
    const pj_experiment_live *live;
} result;

/* ---- figures of a cell ---------------------------------------------------------------------- */

static double mean_of(double sum, uint32_t n)
{
    return n ? sum / n : NAN;
}

static void add_run(figures *f, const pj_run_info *info, double *typical, double *speed,
                    double *ttft, double *latency, double *power)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    uint32_t batch = info->batch_size ? info->batch_size : 1;
    f->joules[f->n++] = r.joules_per_token;
    f->disturbed += pj_run_is_disturbed(info);
    *typical += r.joules_per_token_typical;
    *speed += r.tokens_per_second;
    *ttft += info->prefill_ms;
    *latency += batch / r.tokens_per_second * 1e3;
    *power += info->request_mj / info->request_ms * 1e3;
}

static pj_status cell_figures(result *r, uint32_t index, pj_error *err)
{
    const pj_cell_runs *cell = &r->runs.cells[index];
    figures *f = &r->cells[index];
    double typical = 0, speed = 0, ttft = 0, latency = 0, power = 0, sum = 0, squares = 0;
    char key[32];
    f->joules = pj_arena_alloc(&r->arena, cell->count + 1, sizeof *f->joules);
    if (!f->joules) return pj_fail_memory(err, "an experiment");
    for (uint32_t i = 0; i < cell->count; i++)
        add_run(f, cell->runs[i], &typical, &speed, &ttft, &latency, &power);
    for (uint32_t i = 0; i < f->n; i++) sum += f->joules[i];
    f->mean = mean_of(sum, f->n);
    for (uint32_t i = 0; i < f->n; i++)
        squares += (f->joules[i] - f->mean) * (f->joules[i] - f->mean);
    double reach =
        f->n > 1 ? pj_student_quantile(0.975, f->n - 1) * sqrt(squares / (f->n - 1) / f->n) : NAN;
    f->lo = f->mean - reach;
    f->hi = f->mean + reach;
    f->typical = mean_of(typical, f->n);
    f->speed = mean_of(speed, f->n);
    f->ttft_ms = mean_of(ttft, f->n);
    f->latency_ms = mean_of(latency, f->n);
    f->power_mw = mean_of(power, f->n);
    snprintf(key, sizeof key, "%u", index);
    const json_t *loss = json_object_get(r->losses, key);
    f->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    return PJ_OK;
}

static void write_cell(const result *r, uint32_t index, pj_json *json)
{
    char name[160];
    pj_cell cell;
    const figures *f = &r->cells[index];
    const pj_cell_runs *runs = &r->runs.cells[index];
    pj_plan_cell_name(&r->plan, index, name, sizeof name);
    pj_plan_cell(&r->plan, index, &cell);
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "cell", index);
    pj_json_kv_string(json, "name", name);
    pj_json_kv_string(json, "model", cell.model[0] ? cell.model : NULL);
    pj_json_kv_string(json, "dtype", cell.dtype[0] ? cell.dtype : NULL);
    pj_json_kv_uint(json, "batch", cell.batch);
    pj_json_kv_uint(json, "input", cell.input);
    pj_json_kv_uint(json, "output", cell.output);
    pj_json_kv_uint(json, "threads", cell.threads);
    pj_json_kv_string(json, "ablate", cell.ablate[0] ? cell.ablate : NULL);
    pj_json_kv_string(json, "engine", cell.engine[0] ? cell.engine : "perjoule");
    pj_json_kv_uint(json, "runs", f->n);
    pj_json_kv_uint(json, "disturbed_runs", f->disturbed);
    pj_json_kv_string(json, "energy_source", f->n ? pj_quality_name(runs->runs[0]->quality) : NULL);
    pj_json_kv_double(json, "joules_per_token", f->mean);
    pj_json_kv_double(json, "joules_per_token_lo", f->lo);
    pj_json_kv_double(json, "joules_per_token_hi", f->hi);
    pj_json_kv_double(json, "joules_per_token_typical", f->typical);
    pj_json_kv_double(json, "tokens_per_second", f->speed);
    pj_json_kv_double(json, "ttft_ms", f->ttft_ms);
    pj_json_kv_double(json, "token_latency_ms", f->latency_ms);
    pj_json_kv_double(json, "mean_power_mw", f->power_mw);
    pj_json_kv_double(json, "loss", f->loss);
    pj_json_key(json, "ids");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < runs->count && i < 100; i++) pj_json_string(json, runs->runs[i]->id);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- conclusions --------------------------------------------------------------------------- */

static bool may_be_best(const result *r, uint32_t index)
{
    const figures *f = &r->cells[index];
    return !isnan(f->mean) && pj_plan_whole_cell(&r->plan, index) == index &&
           !(r->plan.max_latency_ms > 0 && !(f->latency_ms <= r->plan.max_latency_ms));
}

/* Cells that are not distinguishable from the best one. */
static void write_ties(const result *r, uint32_t best, pj_json *json)
{
    const figures *first = &r->cells[best];
    pj_json_key(json, "ties");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < r->count; i++) {
        pj_ratio ratio;
        if (i == best || !may_be_best(r, i)) continue;
        pj_ratio_compare(first->joules, first->n, r->cells[i].joules, r->cells[i].n, 0, &ratio);
        if (!(ratio.p < PJ_LEVEL)) pj_json_uint(json, i);
    }
    pj_json_array_end(json);
}

/* The cell with the least energy among those within the latency limit. */
static void write_best(const result *r, pj_json *json)
{
    uint32_t best = r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!may_be_best(r, i)) continue;
        if (best == r->count || r->cells[i].mean < r->cells[best].mean) best = i;
    }
    pj_json_key(json, "optimum");
    if (best == r->count) {
        pj_json_null(json);
        return;
    }
    char name[160];
    pj_plan_cell_name(&r->plan, best, name, sizeof name);
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "cell", best);
    pj_json_kv_string(json, "name", name);
    pj_json_kv_double(json, "joules_per_token", r->cells[best].mean);
    pj_json_kv_double(json, "token_latency_ms", r->cells[best].latency_ms);
    write_ties(r, best, json);
    pj_json_object_end(json);
}

/* Each cell against the first, corrected by Benjamini and Hochberg over all of them. */
static pj_status write_comparisons(result *r, pj_json *json, pj_error *err)
{
    double *p = pj_arena_alloc(&r->arena, 2 * (size_t)r->count, sizeof *p);
    pj_ratio *ratios = pj_arena_alloc(&r->arena, r->count, sizeof *ratios);
    if (!p || !ratios) return pj_fail_memory(err, "an experiment");
    const figures *first = &r->cells[0];
    for (uint32_t i = 0; i < r->count; i++) {
        pj_ratio_compare(first->joules, first->n, r->cells[i].joules, r->cells[i].n, 0, &ratios[i]);
        p[i] = i ? ratios[i].p : NAN;
    }
    pj_benjamini_hochberg(p, r->count, p + r->count);
    pj_json_key(json, "comparisons");
    pj_json_array_begin(json);
    for (uint32_t i = 1; i < r->count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "a", 0);
        pj_json_kv_uint(json, "b", i);
        pj_json_kv_double(json, "ratio", ratios[i].ratio);
        pj_json_kv_double(json, "ratio_lo", ratios[i].lo);
        pj_json_kv_double(json, "ratio_hi", ratios[i].hi);
        pj_json_kv_double(json, "p_adjusted", p[r->count + i]);
        pj_json_kv_bool(json, "different", p[r->count + i] < PJ_LEVEL);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return PJ_OK;
}

/* Along the batches of one cell: where a doubling begins to save less than a tenth. Where the
 * largest batch still saved more, the knee was not reached, and nothing is said. */
static void write_knees(const result *r, pj_json *json)
{
    const pj_plan *plan = &r->plan;
    uint32_t stride = plan->thread_count * plan->output_count * plan->input_count;
    pj_json_key(json, "knees");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < r->count && plan->batch_count > 1; i++) {
        pj_cell cell, next;
        pj_plan_cell(plan, i, &cell);
        if (cell.batch != plan->batches[0] || cell.ablate[0]) continue;
        uint32_t knee = i;
        bool reached = false;
        for (uint32_t k = 1; k < plan->batch_count; k++) {
            uint32_t at = i + k * stride;
            pj_plan_cell(plan, knee, &cell);
            pj_plan_cell(plan, at, &next);
            double doublings = log2((double)next.batch / cell.batch);
            double saved = 1 - pow(r->cells[at].mean / r->cells[knee].mean, 1 / doublings);
            if (isnan(saved)) break;
            reached = saved < knee_saving;
            if (reached) break;
            knee = at;
        }
        if (!reached) continue;
        pj_plan_cell(plan, knee, &cell);
        pj_json_object_begin(json);
        pj_json_kv_string(json, "over", "batch");
        pj_json_kv_uint(json, "first_cell", i);
        pj_json_kv_uint(json, "cell", knee);
        pj_json_kv_uint(json, "batch", cell.batch);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* The round before this one, cell by cell. */
static pj_status write_former(result *r, pj_json *json, pj_error *err)
{
    pj_json_key(json, "against_former");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < r->count && r->plan.round > 0; i++) {
        const pj_cell_runs *old = &r->former.cells[i];
        double *joules = pj_arena_alloc(&r->arena, old->count + 1, sizeof *joules);
        pj_ratio ratio;
        if (!joules) return pj_fail_memory(err, "an experiment");
        for (uint32_t k = 0; k < old->count; k++) {
            pj_run_ratios own;
            pj_run_ratios_get(old->runs[k], &own);
            joules[k] = own.joules_per_token;
        }
        pj_ratio_compare(joules, old->count, r->cells[i].joules, r->cells[i].n, 0, &ratio);
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "cell", i);
        pj_json_kv_double(json, "ratio", ratio.ratio);
        pj_json_kv_double(json, "ratio_lo", ratio.lo);
        pj_json_kv_double(json, "ratio_hi", ratio.hi);
        pj_json_kv_double(json, "p", ratio.p);
        pj_json_kv_bool(json, "different", ratio.p < PJ_LEVEL / r->count);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return PJ_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static uint32_t count_runs(const result *r, uint32_t *wanted)
{
    uint32_t done = 0;
    *wanted = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        const figures *f = &r->cells[i];
        done += f->n;
        *wanted += pj_plan_is_enough(&r->plan, f->joules, f->n) ? f->n : r->plan.repeat;
    }
    return done;
}

static void write_progress(const pj_experiment_live *live, pj_json *json)
{
    const pj_experiment_progress *p = &live->progress;
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

/* Precedence: what a server is doing now, then completed runs, then the state that a server
 * stored. */
static const char *state_of(const char *live, const char *stored, bool complete)
{
    if (live) return live;
    if (complete) return "completed";
    return stored && strcmp(stored, "completed") != 0 ? stored : "unfinished";
}

static void write_state(const result *r, bool complete, pj_json *json)
{
    const pj_experiment_live *live = r->live;
    pj_json_kv_string(json, "state", state_of(live ? live->state : NULL, r->state, complete));
    pj_json_kv_string(json, "error", r->error);
    pj_json_key(json, "progress");
    if (live && live->state && strcmp(live->state, "running") == 0)
        write_progress(live, json);
    else
        pj_json_null(json);
}

static pj_status write_all(result *r, pj_json *json, pj_error *err)
{
    uint32_t wanted, done = count_runs(r, &wanted);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", r->plan.name);
    write_state(r, done >= wanted, json);
    pj_json_kv_uint(json, "round", r->plan.round);
    pj_json_kv_uint(json, "done", done);
    pj_json_kv_uint(json, "total", wanted);
    pj_json_key(json, "plan");
    pj_plan_write(&r->plan, json);
    pj_json_key(json, "cells");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < r->count; i++) write_cell(r, i, json);
    pj_json_array_end(json);
    write_best(r, json);
    write_knees(r, json);
    pj_status status = write_comparisons(r, json, err);
    if (status == PJ_OK) status = write_former(r, json, err);
    if (status == PJ_OK)
        status = pj_experiment_write_parts(r->store, &r->plan, &r->runs, json, err);
    pj_json_object_end(json);
    return status;
}

static pj_status load(result *r, pj_store *store, const char *name, pj_error *err)
{
    const char *plan = NULL, *losses = NULL;
    pj_status status = pj_store_experiment_get(store, name, &r->arena, &plan, &losses, err);
    if (status == PJ_OK) status = pj_plan_parse(plan, &r->arena, &r->plan, err);
    if (status == PJ_OK)
        status = pj_store_experiment_get_state(store, name, &r->arena, &r->state, &r->error, err);
    if (status != PJ_OK) return status;
    r->losses = losses ? json_loads(losses, 0, NULL) : NULL;
    r->plan.name = name;
    r->count = pj_plan_cells(&r->plan);
    r->cells = pj_arena_alloc(&r->arena, r->count, sizeof *r->cells);
    if (!r->cells) return pj_fail_memory(err, "an experiment");
    status = pj_experiment_runs_load(store, &r->plan, r->plan.round, &r->runs, err);
    if (status == PJ_OK && r->plan.round > 0)
        status = pj_experiment_runs_load(store, &r->plan, r->plan.round - 1, &r->former, err);
    for (uint32_t i = 0; i < r->count && status == PJ_OK; i++) status = cell_figures(r, i, err);
    return status;
}

pj_status pj_view_experiment(pj_store *store, const char *name, const pj_experiment_live *live,
                             pj_json *json, pj_error *err)
{
    result *r = pj_alloc(1, sizeof *r);
    if (!r) return pj_fail_memory(err, "an experiment");
    pj_arena_init(&r->arena, 0);
    r->live = live;
    r->store = store;
    pj_status status = load(r, store, name, err);
    if (status == PJ_OK) status = write_all(r, json, err);
    pj_experiment_runs_fini(&r->runs);
    pj_experiment_runs_fini(&r->former);
    json_decref(r->losses);
    pj_arena_fini(&r->arena);
    pj_free(r);
    return status;
}

typedef struct listing {
    pj_json *json;
    pj_experiment_live_fn *live;
    void *context;
} listing;

static void write_line(void *context, const pj_experiment_row *row)
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
    pj_json_kv_string(l->json, "state", state_of(live.state, row->state, complete));
    pj_json_kv_string(l->json, "error", row->error);
    pj_json_key(l->json, "plan");
    pj_json_raw(l->json, row->plan, strlen(row->plan));
    pj_json_object_end(l->json);
}

pj_status pj_view_experiments(pj_store *store, pj_experiment_live_fn *live, void *context,
                              pj_json *json, pj_error *err)
{
    listing l = {json, live, context};
    pj_json_array_begin(json);
    pj_status status = pj_store_experiment_list(store, write_line, &l, err);
    pj_json_array_end(json);
    return status;
}
