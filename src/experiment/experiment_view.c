/* Results of an experiment: a table of cells, the optimum, knees, and whether a repetition
 * confirmed it. */
#include "experiment/experiment_view.h"

#include "analysis/compare.h"
#include "analysis/front.h"
#include "analysis/ratio.h"
#include "base/clock.h"
#include "experiment/experiment_done.h"
#include "experiment/experiment_parts.h"
#include "insight/model_use.h"
#include "insight/sides.h"
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
    double mj_per_million_active; /* parameters */
    pj_context_use context;       /* of the first run: all runs of a cell have one length */
    pj_expert_use experts;
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
    uint32_t all_threads;      /* of cells that name no number of threads; 0: none has run */
    const char *refusal;       /* of a verdict over all cells; NULL: they are comparable */
    const pj_experiment_live *live;
} result;

/* ---- figures of a cell ---------------------------------------------------------------------- */

static double mean_of(double sum, uint32_t n)
{
    return n ? sum / n : NAN;
}

/* Adds to the sums from which means are made. */
static void add_run(figures *f, const pj_run_info *info)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    uint32_t batch = info->batch_size ? info->batch_size : 1;
    f->joules[f->n++] = r.joules_per_token;
    f->disturbed += pj_run_is_disturbed(info);
    f->mean += r.joules_per_token;
    f->typical += r.joules_per_token_typical;
    f->speed += r.tokens_per_second;
    f->ttft_ms += info->prefill_ms;
    f->latency_ms += batch / r.tokens_per_second * 1e3;
    f->power_mw += info->request_mj / info->request_ms * 1e3;
    f->mj_per_million_active += r.mj_per_million_active_parameters;
}

static void divide_sums(figures *f)
{
    double *const sums[] = {&f->mean,
                            &f->typical,
                            &f->speed,
                            &f->ttft_ms,
                            &f->latency_ms,
                            &f->power_mw,
                            &f->mj_per_million_active};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) *sums[i] = mean_of(*sums[i], f->n);
}

static pj_status cell_figures(result *r, uint32_t index, pj_error *err)
{
    const pj_cell_runs *cell = &r->runs.cells[index];
    figures *f = &r->cells[index];
    double squares = 0;
    char key[32];
    f->joules = pj_arena_alloc(&r->arena, cell->count + 1, sizeof *f->joules);
    if (!f->joules) return pj_fail_memory(err, "an experiment");
    for (uint32_t i = 0; i < cell->count; i++) add_run(f, cell->runs[i]);
    divide_sums(f);
    for (uint32_t i = 0; i < f->n; i++)
        squares += (f->joules[i] - f->mean) * (f->joules[i] - f->mean);
    double reach =
        f->n > 1 ? pj_student_quantile(0.975, f->n - 1) * sqrt(squares / (f->n - 1) / f->n) : NAN;
    f->lo = f->mean - reach;
    f->hi = f->mean + reach;
    snprintf(key, sizeof key, "%u", index);
    const json_t *loss = json_object_get(r->losses, key);
    f->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    f->experts.experts = f->context.limit = NAN;
    if (!cell->count) return PJ_OK;
    pj_status status = pj_context_use_get(r->store, cell->runs[0], &f->context, err);
    if (status == PJ_OK) status = pj_expert_use_get(r->store, cell->runs[0], &f->experts, err);
    return status;
}

/* How the cell used its model: the context's share and the experts of a step. */
static void write_use(const figures *f, pj_json *json)
{
    bool has_experts = f->experts.experts > 0, has_context = f->context.limit > 0;
    pj_json_kv_double(json, "energy_per_million_active_parameters_mj", f->mj_per_million_active);
    pj_json_kv_double(json, "kv_megabytes", has_context ? f->context.kv_bytes / 1e6 : NAN);
    pj_json_kv_double(json, "context_share", has_context ? f->context.share : NAN);
    pj_json_kv_double(json, "experts_per_step", has_experts ? f->experts.per_step : NAN);
    pj_json_kv_double(json, "load_balance", has_experts ? f->experts.balance : NAN);
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
    pj_json_kv_uint(json, "threads", cell.threads ? cell.threads : r->all_threads);
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
    write_use(f, json);
    pj_json_key(json, "ids");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < runs->count && i < 100; i++) pj_json_string(json, runs->runs[i]->id);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- conclusions --------------------------------------------------------------------------- */

/* Why two collections of runs are not comparable; NULL: they are, or one is empty. */
static const char *refusal_of(const pj_cell_runs *a, const pj_cell_runs *b)
{
    pj_side x = {.runs = a->runs, .run_count = a->count};
    pj_side y = {.runs = b->runs, .run_count = b->count};
    return a->count && b->count ? pj_sides_refusal(&x, &y) : NULL;
}

/* Why the cells are not comparable: an experiment that went on with other sensors, or an engine
 * that is seen by others. */
static const char *refusal(const result *r)
{
    pj_likeness l = {0};
    for (uint32_t i = 0; i < r->count; i++)
        for (uint32_t k = 0; k < r->runs.cells[i].count; k++)
            pj_likeness_add(&l, r->runs.cells[i].runs[k]);
    return pj_likeness_refusal(&l);
}

/* The threads of the runs that took all of them. */
static uint32_t all_threads(const result *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        pj_cell cell;
        pj_plan_cell(&r->plan, i, &cell);
        if (!cell.threads && r->runs.cells[i].count) return r->runs.cells[i].runs[0]->threads;
    }
    return 0;
}

static bool may_be_best(const result *r, uint32_t index)
{
    const figures *f = &r->cells[index];
    return !isnan(f->mean) && pj_plan_whole_cell(&r->plan, index) == index &&
           !(r->plan.max_latency_ms > 0 && !(f->latency_ms <= r->plan.max_latency_ms));
}

/* The energies of two cells, by the blocks that have both: drift from block to block is no
 * difference of cells. Cells without two blocks in common are compared as they are. */
static void compare_cells(const result *r, uint32_t a, uint32_t b, pj_ratio *ratio)
{
    const figures *x = &r->cells[a], *y = &r->cells[b];
    pj_ratio_paired(&(pj_blocked){x->joules, r->runs.cells[a].blocks, x->n},
                    &(pj_blocked){y->joules, r->runs.cells[b].blocks, y->n}, ratio);
    if (ratio->n_a < 2) pj_ratio_compare(x->joules, x->n, y->joules, y->n, 0, ratio);
}

/* Cells that are not distinguishable from the best one. */
static void write_ties(const result *r, uint32_t best, pj_json *json)
{
    pj_json_key(json, "ties");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < r->count; i++) {
        pj_ratio ratio;
        if (i == best || !may_be_best(r, i)) continue;
        compare_cells(r, best, i, &ratio);
        if (!(ratio.p < PJ_LEVEL)) pj_json_uint(json, i);
    }
    pj_json_array_end(json);
}

/* The cell with the least energy among those within the latency limit. */
static void write_best(const result *r, pj_json *json)
{
    uint32_t best = r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->refusal || !may_be_best(r, i)) continue;
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
    for (uint32_t i = 0; i < r->count; i++) {
        compare_cells(r, 0, i, &ratios[i]);
        p[i] = i && !refusal_of(&r->runs.cells[0], &r->runs.cells[i]) ? ratios[i].p : NAN;
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
        pj_json_kv_string(json, "method", ratios[i].method);
        pj_json_kv_double(json, "p_adjusted", p[r->count + i]);
        pj_json_kv_bool(json, "different", p[r->count + i] < PJ_LEVEL);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return PJ_OK;
}

/* What a doubling of the batch beyond the knee saves. A small saving in few runs is no knee yet:
 * the interval says whether the true one is surely below the limit. */
static void write_saving(const pj_ratio *step, double doublings, const char *first, uint32_t batch,
                         pj_json *json)
{
    char text[320], most[48] = "";
    double saves = 1 - pow(step->ratio, 1 / doublings), hi = 1 - pow(step->lo, 1 / doublings);
    bool settled = hi < knee_saving;
    if (!isnan(hi)) snprintf(most, sizeof most, ", up to %.2g %% by the interval", 100 * hi);
    if (settled)
        snprintf(text, sizeof text,
                 "From %s on, a batch beyond %u saves less than %.0f %% per doubling.", first,
                 batch, 100 * knee_saving);
    else
        snprintf(text, sizeof text,
                 "From %s on, a batch beyond %u saved %.2g %% per doubling in these runs%s: more "
                 "blocks would tell whether it is worth it.",
                 first, batch, 100 * saves, most);
    pj_json_kv_double(json, "saves", saves);
    pj_json_kv_double(json, "saves_lo", 1 - pow(step->hi, 1 / doublings));
    pj_json_kv_double(json, "saves_hi", hi);
    pj_json_kv_bool(json, "settled", settled);
    pj_json_kv_string(json, "text", text);
}

/* Along the batches of one cell: where a doubling begins to save less than a tenth. Where the
 * largest batch still saved more, the knee was not reached, and nothing is said; neither is where
 * the cells are not comparable. */
static void write_knees(const result *r, pj_json *json)
{
    const pj_plan *plan = &r->plan;
    uint32_t stride = plan->thread_count * plan->output_count * plan->input_count;
    pj_json_key(json, "knees");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < r->count && plan->batch_count > 1 && !r->refusal; i++) {
        char name[160];
        pj_ratio step;
        pj_cell cell, next;
        pj_plan_cell(plan, i, &cell);
        if (cell.batch != plan->batches[0] || cell.ablate[0]) continue;
        uint32_t knee = i, beyond = i;
        double doublings = 0;
        bool reached = false;
        for (uint32_t k = 1; k < plan->batch_count; k++) {
            uint32_t at = i + k * stride;
            pj_plan_cell(plan, knee, &cell);
            pj_plan_cell(plan, at, &next);
            doublings = log2((double)next.batch / cell.batch);
            double saved = 1 - pow(r->cells[at].mean / r->cells[knee].mean, 1 / doublings);
            if (isnan(saved)) break;
            reached = saved < knee_saving;
            beyond = at;
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
        compare_cells(r, knee, beyond, &step);
        pj_plan_cell_name(plan, i, name, sizeof name);
        write_saving(&step, doublings, name, cell.batch, json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* One Pareto front over the whole cells: energy per token beside another cost (less is better). */
static void write_front(const result *r, const char *over, const double *cost, const double *joules,
                        uint32_t *front, pj_json *json)
{
    size_t count = pj_pareto_front(cost, joules, r->count, front);
    size_t knee = pj_pareto_knee(cost, joules, front, count);
    if (!count) return;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "over", over);
    pj_json_key(json, "cells");
    pj_json_array_begin(json);
    for (size_t i = 0; i < count; i++) pj_json_uint(json, front[i]);
    pj_json_array_end(json);
    pj_json_key(json, "knee");
    if (knee == SIZE_MAX)
        pj_json_null(json);
    else
        pj_json_uint(json, front[knee]);
    pj_json_object_end(json);
}

/* Fronts over quality (loss) and speed (seconds per token). Cells that leave a part of the model
 * out are another model, and on no front. */
static pj_status write_fronts(result *r, pj_json *json, pj_error *err)
{
    double *joules = pj_arena_alloc(&r->arena, 3 * (size_t)r->count, sizeof *joules);
    uint32_t *front = pj_arena_alloc(&r->arena, r->count, sizeof *front);
    if (!joules || !front) return pj_fail_memory(err, "an experiment");
    double *loss = joules + r->count, *seconds = loss + r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        bool is_whole = pj_plan_whole_cell(&r->plan, i) == i;
        joules[i] = is_whole && !r->refusal ? r->cells[i].mean : NAN;
        loss[i] = r->cells[i].loss;
        seconds[i] = 1 / r->cells[i].speed;
    }
    pj_json_key(json, "fronts");
    pj_json_array_begin(json);
    write_front(r, "loss", loss, joules, front, json);
    write_front(r, "seconds_per_token", seconds, joules, front, json);
    pj_json_array_end(json);
    return PJ_OK;
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
        double p = refusal_of(old, &r->runs.cells[i]) ? NAN : ratio.p;
        pj_json_kv_double(json, "p", p);
        pj_json_kv_bool(json, "different", p < PJ_LEVEL / r->count);
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
    pj_json_kv_string(json, "refusal", r->refusal);
    write_best(r, json);
    write_knees(r, json);
    pj_status status = write_fronts(r, json, err);
    if (status == PJ_OK) status = write_comparisons(r, json, err);
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
    if (status == PJ_OK) r->refusal = refusal(r);
    r->all_threads = all_threads(r);
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
