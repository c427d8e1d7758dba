/* Runs the cells of a plan one step at a time. */
#include "experiment/experiment.h"

#include "experiment/experiment_claim.h"

#include "base/nearest.h"
#include "experiment/experiment_done.h"
#include "experiment/quality.h"
#include "generate/find_model.h"
#include "generate/preflight.h"
#include "store/experiments.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

enum { WARM_TOKENS = 4, LISTEN_MS = 200 };

/* Weights that runs of the experiment had. */
typedef struct experiment_weights {
    char *path;
    uint64_t stamp;
} experiment_weights;

typedef struct progress {
    double *joules; /* figures of `count` completed runs */
    uint32_t *blocks;
    uint32_t count;
    size_t joules_room, blocks_room;
} progress;

struct pj_experiment {
    pj_experiment_options o;
    const pj_plan *plan;
    progress *cells;
    uint32_t cell_count;
    uint32_t block, next, *order; /* the cell at order[next] of `block` comes next */
    uint32_t last_cell;           /* cell whose model is warmed up; UINT32_MAX: none */
    uint32_t done, done_here;
    int64_t spent_ns; /* time of the `done_here` runs of this process */
    int32_t *ids;     /* of the prompts of the cell */
    pj_prompt *prompts;
    uint32_t largest_batch;
    pj_quality quality;
    char path[4096]; /* of the model of this name and dtype of the plan: */
    const char *found_model, *found_dtype;
    experiment_weights *weights;
    uint32_t weights_count;
    size_t weights_room;
};
typedef pj_experiment experiment;

/* ---- completed runs ------------------------------------------------------------------------- */

static bool experiment_note(progress *p, double joules, uint32_t block)
{
    double *more = pj_grow(p->joules, p->count, &p->joules_room, sizeof *more);
    if (more) p->joules = more;
    uint32_t *blocks = pj_grow(p->blocks, p->count, &p->blocks_room, sizeof *blocks);
    if (blocks) p->blocks = blocks;
    if (!more || !blocks) return false;
    p->joules[p->count] = joules;
    p->blocks[p->count++] = block;
    return true;
}

static bool experiment_is_done(const progress *p, uint32_t block)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->blocks[i] == block) return true;
    return false;
}

static double joules_of(const pj_run_info *info)
{
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    return pj_run_ratios_primary(&ratios);
}

static const char *named_sources(const char *sources)
{
    return sources && *sources ? sources : "no power source";
}

/* Runs that other sensors measured are not repetitions. `auto` may find others than last time. */
static pj_status check_sources(const experiment *e, const pj_experiment_runs *runs, pj_error *err)
{
    const pj_meter *meter = e->o.session->meter;
    const char *now = named_sources(meter ? pj_meter_sources(meter) : NULL);
    for (uint32_t c = 0; c < e->cell_count; c++)
        for (uint32_t i = 0; i < runs->cells[c].count; i++) {
            const char *then = named_sources(runs->cells[c].runs[i]->power_sources);
            if (strcmp(then, now) != 0)
                return pj_fail(err, PJ_E_INVALID,
                               "the experiment %.200s was measured with %.100s, and now %.100s "
                               "would measure it; choose another name",
                               e->plan->name, then, now);
        }
    return PJ_OK;
}

/* Cells that set no number of threads go on with that of their runs: today's default may be
 * another, in a container with another quota, say. */
static void keep_threads(experiment *e, const pj_experiment_runs *runs)
{
    for (uint32_t c = 0; c < e->cell_count; c++) {
        pj_cell cell;
        pj_plan_cell(e->plan, c, &cell);
        bool is_default = !cell.threads && !cell.engine[0];
        for (uint32_t i = 0; is_default && i < runs->cells[c].count; i++)
            if (runs->cells[c].runs[i]->threads) e->o.threads = runs->cells[c].runs[i]->threads;
    }
}

/* A further round is compared with the one before it. */
static pj_status check_former(experiment *e, pj_error *err)
{
    pj_experiment_runs runs;
    if (e->plan->round == 0) return PJ_OK;
    pj_status status =
        pj_experiment_runs_load(e->o.session->store, e->plan, e->plan->round - 1, &runs, err);
    if (status == PJ_OK) status = check_sources(e, &runs, err);
    if (status == PJ_OK) keep_threads(e, &runs);
    pj_experiment_runs_fini(&runs);
    return status;
}

static pj_status read_done(experiment *e, pj_error *err)
{
    pj_experiment_runs runs;
    pj_status status =
        pj_experiment_runs_load(e->o.session->store, e->plan, e->plan->round, &runs, err);
    if (status == PJ_OK) status = check_sources(e, &runs, err);
    if (status == PJ_OK) keep_threads(e, &runs);
    for (uint32_t c = 0; c < e->cell_count && status == PJ_OK; c++)
        for (uint32_t i = 0; i < runs.cells[c].count; i++) {
            const pj_cell_runs *cell = &runs.cells[c];
            if (experiment_is_done(&e->cells[c], cell->blocks[i])) continue;
            if (!experiment_note(&e->cells[c], joules_of(cell->runs[i]), cell->blocks[i]))
                status = pj_fail_memory(err, "an experiment");
            e->done++;
        }
    pj_experiment_runs_fini(&runs);
    return status;
}

/* ---- a cell --------------------------------------------------------------------------------- */

static const char prompt_text[] =
    "The meter on the wall counted slowly through the night. In the morning the engineer wrote "
    "down "
    "what each machine had drawn, which of them had been idle, and how warm the room had become. "
    "Then she asked the same question of every one of them, and waited for their answers. ";

/* Token ids for prompts of an exact length. Each sequence of a batch starts one token later in the
 * text, because equal ones would all use the same experts of a mixture. */
static pj_status make_prompts(experiment *e, uint32_t tokens, pj_error *err)
{
    uint32_t length = tokens + e->largest_batch - 1;
    int32_t *ids = NULL;
    uint32_t count = 0;
    pj_status status =
        pj_engine_encode(e->o.slot->engine, prompt_text, sizeof prompt_text - 1, &ids, &count, err);
    if (status != PJ_OK) return status;
    int32_t *whole = count ? pj_resize(e->ids, length, sizeof *whole) : NULL;
    if (whole) {
        e->ids = whole;
        for (uint32_t i = 0; i < length; i++) whole[i] = ids[i % count];
    }
    pj_free(ids);
    return whole ? PJ_OK : pj_fail_memory(err, "a prompt");
}

/* Writes e->path; consecutive cells of one model and dtype share it. */
static pj_status experiment_find_model(experiment *e, const pj_cell *cell, pj_error *err)
{
    const char *model = cell->model[0] ? cell->model : NULL;
    const char *dtype = cell->dtype[0] ? cell->dtype : NULL;
    if (e->found_model == cell->model && e->found_dtype == cell->dtype) return PJ_OK;
    e->found_model = NULL;
    pj_status status = e->o.find
                           ? e->o.find(e->o.context, model, dtype, e->path, sizeof e->path, err)
                           : pj_model_find(model, NULL, e->path, sizeof e->path, err);
    if (status != PJ_OK) return status;
    e->found_model = cell->model;
    e->found_dtype = cell->dtype;
    return PJ_OK;
}

static pj_status experiment_set_options(experiment *e, uint32_t index, pj_profile_options *o,
                                        pj_error *err)
{
    pj_cell cell;
    pj_plan_cell(e->plan, index, &cell);
    pj_status status = experiment_find_model(e, &cell, err);
    pj_generation_request request;
    pj_generation_request_init(&request);
    request.model = e->path;
    if (cell.dtype[0]) request.dtype = cell.dtype;
    request.batch = cell.batch;
    request.max_tokens = cell.output;
    request.ignore_eos = true;
    request.depth = e->plan->depth;
    request.device = e->plan->device;
    request.experiment = e->plan->name;
    *o = (pj_profile_options){.engine = {.threads = cell.threads ? cell.threads : e->o.threads,
                                         .any_tokenizer = !e->plan->prompt},
                              .request.prompts = e->prompts,
                              .request.prompt_count = e->plan->prompt ? 1 : cell.batch,
                              .request.is_private = e->o.is_private,
                              .request.cancel = e->o.cancel};
    pj_profile_options_set(o, &request);
    if (cell.ablate[0]) o->ablate = cell.ablate;
    for (uint32_t i = 0; i < o->request.prompt_count; i++)
        e->prompts[i] = (pj_prompt){.ids = e->ids + i, .id_count = cell.input};
    if (e->plan->prompt)
        e->prompts[0] = (pj_prompt){.text = e->plan->prompt, .bytes = strlen(e->plan->prompt)};
    return status;
}

/* For cells whose runs were complete when the text or the tasks were added to the plan. */
static pj_status measure_missing_quality(experiment *e, pj_error *err)
{
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < e->cell_count && status == PJ_OK; i++) {
        pj_profile_options options;
        if (!pj_quality_is_open(&e->quality, i)) continue;
        status = experiment_set_options(e, i, &options, err);
        if (status == PJ_OK) status = pj_model_slot_open(e->o.slot, &options.engine, err);
        if (status == PJ_OK)
            status = pj_quality_measure(&e->quality, e->o.slot->engine, i, e->o.cancel, err);
        pj_model_slot_check(e->o.slot, status);
    }
    return status;
}

/* A model whose weights were exchanged while the experiment ran is not what was measured before. */
static pj_status check_weights(experiment *e, pj_error *err)
{
    uint64_t stamp = pj_engine_stamp(e->o.slot->engine);
    for (uint32_t i = 0; i < e->weights_count; i++) {
        if (strcmp(e->weights[i].path, e->path) != 0) continue;
        if (e->weights[i].stamp == stamp) return PJ_OK;
        return pj_fail(err, PJ_E_INVALID,
                       "the weights of %s have changed since runs of the experiment %.200s; choose "
                       "another name",
                       e->path, e->plan->name);
    }
    experiment_weights *more =
        pj_grow(e->weights, e->weights_count, &e->weights_room, sizeof *more);
    if (more) e->weights = more;
    char *path = more ? pj_strdup(e->path) : NULL;
    if (!path) return pj_fail_memory(err, "an experiment");
    e->weights[e->weights_count++] = (experiment_weights){path, stamp};
    return PJ_OK;
}

/* Loads the cell's model and warms it up with a few unrecorded tokens. */
static pj_status experiment_warm(experiment *e, uint32_t index, pj_error *err)
{
    pj_cell cell;
    pj_profile_options options;
    pj_generate_result result = {0};
    pj_status status = experiment_set_options(e, index, &options, err);
    if (status == PJ_OK && !pj_model_slot_holds(e->o.slot, &options.engine))
        pj_experiment_forget_warmth(e);
    if (status == PJ_OK) status = pj_model_slot_open(e->o.slot, &options.engine, err);
    if (status == PJ_OK) status = check_weights(e, err);
    pj_plan_cell(e->plan, index, &cell);
    if (status == PJ_OK && !e->plan->prompt) status = make_prompts(e, cell.input, err);
    if (status != PJ_OK || e->last_cell == index) return status;
    status = pj_quality_measure(&e->quality, e->o.slot->engine, index, e->o.cancel, err);
    pj_model_slot_check(e->o.slot, status);
    if (status == PJ_OK) status = experiment_set_options(e, index, &options, err);
    if (options.request.max_tokens > WARM_TOKENS) options.request.max_tokens = WARM_TOKENS;
    if (status == PJ_OK) status = pj_profile_bare(e->o.slot, &options, &result, err);
    pj_generate_result_fini(&result);
    e->last_cell = index;
    return status;
}

static double experiment_sum_of(const pj_baseline *b, const double *values)
{
    double sum = 0;
    for (uint32_t i = 0; i < b->rail_count; i++)
        if (!isnan(values[i])) sum += values[i];
    return sum;
}

/* Waits until power is within two standard deviations of the idle baseline. */
static pj_status cool_down(experiment *e, pj_error *err)
{
    pj_session *s = e->o.session;
    int64_t until = pj_clock_ns() + (int64_t)(e->plan->cool_down_s * 1e9);
    if (!(e->plan->cool_down_s > 0) || !s->meter || !s->has_cold) return PJ_OK;
    double limit = experiment_sum_of(&s->cold, s->cold.mw) +
                   2 * fmax(experiment_sum_of(&s->cold, s->cold.sd_mw),
                            0.01 * experiment_sum_of(&s->cold, s->cold.mw));
    pj_status status = pj_meter_start(s->meter, err);
    if (status != PJ_OK) return status;
    pj_meter_set_activity(s->meter, 0);
    while (status == PJ_OK && pj_clock_ns() < until && !(e->o.cancel && *e->o.cancel)) {
        pj_baseline now;
        status = pj_meter_baseline(s->meter, LISTEN_MS * 1000000, &now, err);
        if (status == PJ_OK && experiment_sum_of(&now, now.mw) <= limit) break;
    }
    pj_meter_stop(s->meter);
    return status;
}

static void experiment_report(const experiment *e, uint32_t block, uint32_t cell, double joules)
{
    pj_experiment_progress p = {.done = e->done,
                                .total = e->cell_count * e->plan->repeat,
                                .block = block,
                                .cell = cell,
                                .joules_per_token = joules,
                                .left_s = NAN};
    if (!e->o.progress) return;
    if (e->done_here) p.left_s = (double)e->spent_ns * 1e-9 / e->done_here * (p.total - p.done);
    pj_plan_cell_name(e->plan, cell, p.name, sizeof p.name);
    e->o.progress(e->o.context, &p);
}

static pj_status experiment_measure(experiment *e, pj_profile_options *options, uint32_t block,
                                    uint32_t index, pj_error *err)
{
    pj_profile_result result = {0};
    if (e->o.begin) e->o.begin(e->o.context, options);
    pj_status status = pj_profile_generate(e->o.session, e->o.slot, options, &result, err);
    double joules = joules_of(&result.data.info);
    if (status == PJ_OK && !result.stored)
        status = pj_fail(err, PJ_E_IO, "a run of the experiment could not be stored");
    if (e->o.end) e->o.end(e->o.context, status, &result, err);
    if (status == PJ_OK && !experiment_note(&e->cells[index], joules, block))
        status = pj_fail_memory(err, "an experiment");
    pj_profile_result_fini(&result);
    return status;
}

static pj_status run_ours(experiment *e, uint32_t block, uint32_t index, pj_error *err)
{
    pj_profile_options options;
    pj_status status = experiment_warm(e, index, err);
    if (status == PJ_OK) status = cool_down(e, err);
    if (status == PJ_OK) status = experiment_set_options(e, index, &options, err);
    if (status != PJ_OK) return status;
    pj_experiment_cell cell_id = {index, block, e->plan->round};
    options.cell_id = &cell_id;
    return experiment_measure(e, &options, block, index, err);
}

/* Another engine loads and warms its model itself. */
static pj_status run_foreign(experiment *e, uint32_t block, uint32_t index, pj_error *err)
{
    double joules = NAN;
    pj_foreign_cell cell = {
        .plan = e->plan, .cell_id = {index, block, e->plan->round}, .cancel = e->o.cancel};
    pj_plan_cell(e->plan, index, &cell.cell);
    pj_status status = cool_down(e, err);
    if (status == PJ_OK) status = e->o.foreign(e->o.foreign_context, &cell, &joules, err);
    e->last_cell = index;
    if (status == PJ_OK && !experiment_note(&e->cells[index], joules, block))
        status = pj_fail_memory(err, "an experiment");
    return status;
}

static bool experiment_is_foreign(const experiment *e, uint32_t index)
{
    pj_cell cell;
    pj_plan_cell(e->plan, index, &cell);
    return cell.engine[0] != 0;
}

static pj_status run_cell(experiment *e, uint32_t block, uint32_t index, pj_error *err)
{
    int64_t began_ns = pj_clock_ns();
    experiment_report(e, block, index, NAN);
    pj_status status = experiment_is_foreign(e, index) ? run_foreign(e, block, index, err)
                                                       : run_ours(e, block, index, err);
    if (status != PJ_OK) return status;
    e->done++;
    e->done_here++;
    e->spent_ns += pj_clock_ns() - began_ns;
    experiment_report(e, block, index, e->cells[index].joules[e->cells[index].count - 1]);
    return PJ_OK;
}

/* ---- the experiment ------------------------------------------------------------------------- */

static pj_status check_dtypes(const pj_plan *plan, pj_error *err)
{
    static const char *const known[] = {"", "f32", "f16", "bf16", "q8_0", "q4_0", NULL};
    for (uint32_t i = 0; i < plan->dtype_count; i++) {
        int k = 0;
        while (known[k] && strcmp(known[k], plan->dtypes[i]) != 0) k++;
        if (!known[k]) {
            char hint[80];
            pj_nearest_hint(plan->dtypes[i], PJ_REQUEST_DTYPES, hint, sizeof hint);
            return pj_fail(err, PJ_E_INVALID,
                           "unknown dtype %.32s: use f32, f16, bf16, q8_0 or q4_0%s",
                           plan->dtypes[i], hint);
        }
    }
    return PJ_OK;
}

static uint32_t largest(const uint32_t *values, uint32_t count)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < count; i++)
        if (values[i] > most) most = values[i];
    return most;
}

/* Rejects impossible plans before anything is stored. */
static pj_status check_cells(experiment *e, pj_error *err)
{
    uint32_t longest = largest(e->plan->inputs, e->plan->input_count);
    e->largest_batch = largest(e->plan->batches, e->plan->batch_count);
    e->ids = pj_alloc(longest + e->largest_batch - 1, sizeof *e->ids);
    e->prompts = pj_alloc(e->largest_batch, sizeof *e->prompts);
    if (!e->ids || !e->prompts) return pj_fail_memory(err, "an experiment");
    if (pj_depth_parse(e->plan->depth) <= PJ_DEPTH_OFF)
        return pj_fail(err, PJ_E_INVALID, "the plan's depth must be module or deep");
    pj_status status = check_dtypes(e->plan, err);
    for (uint32_t i = 0; i < e->cell_count && status == PJ_OK; i++) {
        pj_profile_options options;
        if (experiment_is_foreign(e, i)) {
            if (e->o.foreign) continue;
            return pj_fail(err, PJ_E_INVALID,
                           "engines are allowed on the command line only: a plan sent to a server "
                           "runs no programs and opens no connections");
        }
        status = experiment_set_options(e, i, &options, err);
        if (status == PJ_OK) status = pj_profile_preflight(&options, err);
    }
    if (status == PJ_OK) status = pj_quality_open(&e->quality, e->plan, err);
    return status;
}

pj_status pj_experiment_store(pj_store *store, const pj_plan *plan, pj_error *err)
{
    pj_json json;
    pj_json_open(&json, 1 << 20);
    pj_plan_write(plan, &json);
    pj_status status = pj_buffer_status(&json.own, "a plan", err);
    if (status == PJ_OK)
        status = pj_store_experiment_put(store, plan->name, pj_json_whole(&json), err);
    pj_json_close(&json);
    return status;
}

/* Whether a run remains; its cell is then order[next] of `block`. */
static bool find_next(experiment *e)
{
    for (; e->block < e->plan->repeat; e->block++, e->next = 0) {
        if (e->next == 0) pj_plan_order(e->plan, e->block, e->order);
        for (; e->next < e->cell_count; e->next++) {
            const progress *p = &e->cells[e->order[e->next]];
            if (!experiment_is_done(p, e->block) &&
                !pj_plan_is_enough(e->plan, p->joules, p->count))
                return true;
        }
    }
    return false;
}

static experiment *new_experiment(const pj_experiment_options *o, pj_error *err)
{
    experiment *e = pj_alloc(1, sizeof *e);
    if (!e) {
        pj_fail_memory(err, "an experiment");
        return NULL;
    }
    e->o = *o;
    e->plan = o->plan;
    e->cell_count = pj_plan_cells(o->plan);
    e->cells = pj_alloc(e->cell_count, sizeof *e->cells);
    e->order = pj_alloc(e->cell_count, sizeof *e->order);
    e->last_cell = UINT32_MAX;
    if (e->cells && e->order) return e;
    pj_experiment_close(e);
    pj_fail_memory(err, "an experiment");
    return NULL;
}

pj_status pj_experiment_check(const pj_experiment_options *o, pj_error *err)
{
    experiment *e = new_experiment(o, err);
    if (!e) return PJ_E_NO_MEMORY;
    pj_status status = check_cells(e, err);
    pj_experiment_close(e);
    return status;
}

pj_status pj_experiment_open(const pj_experiment_options *o, pj_experiment **out, pj_error *err)
{
    *out = NULL;
    if (!o->session->store) return pj_fail(err, PJ_E_INVALID, "an experiment needs a database");
    experiment *e = new_experiment(o, err);
    if (!e) return PJ_E_NO_MEMORY;
    pj_status status = check_cells(e, err);
    if (status == PJ_OK) status = check_former(e, err);
    if (status == PJ_OK) status = read_done(e, err);
    if (status == PJ_OK) status = pj_experiment_store(o->session->store, o->plan, err);
    if (status == PJ_OK) status = pj_quality_load(&e->quality, o->session->store, err);
    if (status == PJ_OK)
        *out = e;
    else
        pj_experiment_close(e);
    return status;
}

void pj_experiment_close(pj_experiment *e)
{
    if (!e) return;
    for (uint32_t i = 0; e->cells && i < e->cell_count; i++) {
        pj_free(e->cells[i].joules);
        pj_free(e->cells[i].blocks);
    }
    for (uint32_t i = 0; i < e->weights_count; i++) pj_free(e->weights[i].path);
    pj_free(e->weights);
    pj_quality_close(&e->quality);
    pj_free(e->cells);
    pj_free(e->order);
    pj_free(e->prompts);
    pj_free(e->ids);
    pj_free(e);
}

pj_status pj_experiment_step(pj_experiment *e, bool *more, pj_error *err)
{
    *more = find_next(e);
    if (!*more) return measure_missing_quality(e, err);
    if (e->o.cancel && *e->o.cancel)
        return pj_fail(err, PJ_E_CANCELLED, "stopped; run the same command to resume");
    pj_status status = run_cell(e, e->block, e->order[e->next], err);
    if (status == PJ_OK) *more = find_next(e);
    return status == PJ_OK && !*more ? measure_missing_quality(e, err) : status;
}

void pj_experiment_forget_warmth(pj_experiment *e)
{
    e->last_cell = UINT32_MAX;
}

pj_status pj_experiment_run(const pj_experiment_options *o, pj_error *err)
{
    experiment *e;
    bool more = true;
    pj_store *store = o->session->store;
    /* before its plan is stored, which may replace one of that name, and for good after it */
    pj_status status = pj_experiment_claim(o->session, store, o->plan->name, err);
    if (status == PJ_OK) status = pj_experiment_open(o, &e, err);
    if (status != PJ_OK) return status;
    status = pj_experiment_claim(o->session, store, o->plan->name, err);
    if (status == PJ_OK)
        status = pj_store_experiment_set_state(store, o->plan->name, NULL, NULL, err);
    while (status == PJ_OK && more) status = pj_experiment_step(e, &more, err);
    if (status == PJ_OK)
        status = pj_store_experiment_set_state(store, o->plan->name, "completed", NULL, err);
    pj_experiment_release(o->session, store, o->plan->name);
    pj_experiment_close(e);
    return status;
}
