/* Results of an experiment: figures of its cells, the optimum, knees, and whether a repetition
 * confirmed it. */
#include "experiment/experiment_view.h"

#include "analysis/compare.h"
#include "analysis/front.h"
#include "experiment/experiment_parts.h"
#include "experiment/quality.h"
#include "insight/sides.h"
#include "store/experiments.h"
#include "trace/model_figures.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double knee_saving = 0.10; /* minimum relative saving of a doubling before the knee */

/* ---- figures of a cell ---------------------------------------------------------------------- */

/* Adds to the sums from which means are made. */
static void experiment_view_add_run(pj_cell_figures *f, const pj_run_info *info, uint32_t primary)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    uint32_t batch = info->batch_size ? info->batch_size : 1;
    f->joules[f->n++] = pj_figure_of(info, primary);
    f->disturbed += pj_run_is_disturbed(info);
    f->speed += r.tokens_per_second;
    f->ttft_ms += info->prefill_ms;
    f->latency_ms += batch / r.tokens_per_second * 1e3;
    f->power_mw += info->request_mj / info->request_ms * 1e3;
    f->mj_per_million_active += r.mj_per_million_active_parameters;
}

static void divide_sums(pj_cell_figures *f)
{
    double *const sums[] = {&f->speed, &f->ttft_ms, &f->latency_ms, &f->power_mw,
                            &f->mj_per_million_active};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) *sums[i] /= f->n ? f->n : NAN;
}

static pj_mean cell_mean(const pj_cell_runs *cell, uint32_t figure)
{
    const pj_side side = {.runs = cell->runs, .run_count = cell->count};
    return pj_side_mean_of(&side, figure);
}

static pj_status set_quality(pj_experiment_result *r, uint32_t index, const json_t *known,
                             pj_error *err)
{
    pj_cell_figures *f = &r->cells[index];
    const json_t *loss = pj_quality_loss(known, index);
    const char *outcomes = pj_quality_outcomes(known, index);
    f->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    if (outcomes) f->outcomes = pj_arena_strndup(&r->arena, outcomes, strlen(outcomes));
    if (outcomes && !f->outcomes) return pj_fail_memory(err, "an experiment");
    f->score = pj_score_of(outcomes);
    return PJ_OK;
}

static pj_status cell_figures(pj_experiment_result *r, uint32_t index, const json_t *known,
                              pj_error *err)
{
    const pj_cell_runs *cell = &r->runs.cells[index];
    pj_cell_figures *f = &r->cells[index];
    pj_plan_cell(&r->plan, index, &f->cell);
    pj_plan_cell_name(&r->plan, index, f->name, sizeof f->name);
    f->joules = pj_arena_alloc(&r->arena, cell->count + 1, sizeof *f->joules);
    if (!f->joules) return pj_fail_memory(err, "an experiment");
    for (uint32_t i = 0; i < cell->count; i++)
        experiment_view_add_run(f, cell->runs[i], r->primary);
    divide_sums(f);
    f->mean = cell_mean(cell, pj_primary_figure(false));
    f->typical = cell_mean(cell, pj_primary_figure(true));
    f->primary = cell_mean(cell, r->primary);
    f->experts.experts = f->context.limit = f->weight_bytes = NAN;
    pj_status status = set_quality(r, index, known, err);
    if (!cell->count || status != PJ_OK) return status;
    pj_model_figures model;
    pj_model_figures_read(cell->runs[0]->model_json, &model);
    f->weight_bytes = model.decode_weight_bytes;
    status = pj_context_use_get(r->store, cell->runs[0], &f->context, err);
    if (status == PJ_OK) status = pj_expert_use_get(r->store, cell->runs[0], &f->experts, err);
    return status;
}

static void note_all_typical(const pj_experiment_runs *runs, uint32_t count, bool *all)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < runs->cells[i].count; k++)
            pj_note_typical(all, runs->cells[i].runs[k]);
}

static uint32_t experiment_view_primary(const pj_experiment_result *r)
{
    bool all = true;
    note_all_typical(&r->runs, r->count, &all);
    if (r->plan.round > 0) note_all_typical(&r->former, r->count, &all);
    return pj_primary_figure(all);
}

/* ---- conclusions --------------------------------------------------------------------------- */

/* Why two collections of runs are not comparable; NULL: they are, or one is empty. */
static const char *refusal_of(const pj_cell_runs *a, const pj_cell_runs *b)
{
    pj_side x = {.runs = a->runs, .run_count = a->count};
    pj_side y = {.runs = b->runs, .run_count = b->count};
    return a->count && b->count ? pj_sides_refusal(&x, &y) : NULL;
}

const char *pj_cell_partial(const pj_cell_runs *runs, char *text, size_t bytes)
{
    pj_side side = {.runs = runs->runs, .run_count = runs->count};
    return pj_side_partial(&side, text, bytes);
}

/* Why the cells are not comparable: an experiment continued with other sensors, or an engine
 * measured by others. */
static const char *refusal(const pj_experiment_result *r)
{
    pj_likeness l = {0};
    for (uint32_t i = 0; i < r->count; i++)
        for (uint32_t k = 0; k < r->runs.cells[i].count; k++)
            pj_likeness_add(&l, r->runs.cells[i].runs[k]);
    return pj_likeness_refusal(&l);
}

/* The number of threads of runs that used all of them. */
static uint32_t all_threads(const pj_experiment_result *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (!r->cells[i].cell.threads && r->runs.cells[i].count)
            return r->runs.cells[i].runs[0]->threads;
    return 0;
}

static double joules_of_cell(const pj_experiment_result *r, uint32_t index)
{
    return r->cells[index].primary.value;
}

static bool may_be_best(const pj_experiment_result *r, uint32_t index)
{
    const pj_cell_figures *f = &r->cells[index];
    return !isnan(f->primary.value) && pj_plan_whole_cell(&r->plan, index) == index &&
           !(r->plan.max_latency_ms > 0 && !(f->latency_ms <= r->plan.max_latency_ms));
}

/* The energies of two cells, paired by block, so that drift between blocks is not taken for
 * a difference of cells. Cells without two common blocks are compared unpaired. */
static void compare_cells(const pj_experiment_result *r, uint32_t a, uint32_t b, pj_ratio *ratio)
{
    const pj_cell_figures *x = &r->cells[a], *y = &r->cells[b];
    pj_ratio_paired(&(pj_blocked){x->joules, r->runs.cells[a].blocks, x->n},
                    &(pj_blocked){y->joules, r->runs.cells[b].blocks, y->n}, ratio);
    if (ratio->n_a < 2) pj_ratio_compare(x->joules, x->n, y->joules, y->n, 0, ratio);
}

/* Cells that are not distinguishable from the optimum, corrected by Benjamini and Hochberg. */
static pj_status find_ties(pj_experiment_result *r, pj_error *err)
{
    double *p = pj_arena_alloc(&r->arena, 2 * (size_t)r->count, sizeof *p);
    r->ties = pj_arena_alloc(&r->arena, r->count, sizeof *r->ties);
    if (!p || !r->ties) return pj_fail_memory(err, "an experiment");
    if (r->optimum == PJ_NO_CELL) return PJ_OK;
    double *adjusted = p + r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        pj_ratio ratio = {.p = NAN};
        if (i != r->optimum && may_be_best(r, i)) compare_cells(r, r->optimum, i, &ratio);
        p[i] = ratio.p;
    }
    pj_benjamini_hochberg(p, r->count, adjusted);
    for (uint32_t i = 0; i < r->count; i++)
        if (i != r->optimum && may_be_best(r, i) && !(adjusted[i] < PJ_LEVEL))
            r->ties[r->tie_count++] = i;
    return PJ_OK;
}

/* The cell with the least energy among those within the latency limit, and its ties. */
static pj_status find_optimum(pj_experiment_result *r, pj_error *err)
{
    r->optimum = PJ_NO_CELL;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->refusal || !may_be_best(r, i)) continue;
        if (r->optimum == PJ_NO_CELL || joules_of_cell(r, i) < joules_of_cell(r, r->optimum))
            r->optimum = i;
    }
    return find_ties(r, err);
}

/* Each cell against the first, corrected by Benjamini and Hochberg over all of them. */
static pj_status compare_with_first(pj_experiment_result *r, pj_error *err)
{
    double *p = pj_arena_alloc(&r->arena, 2 * (size_t)r->count, sizeof *p);
    r->against_first = pj_arena_alloc(&r->arena, r->count, sizeof *r->against_first);
    if (!p || !r->against_first) return pj_fail_memory(err, "an experiment");
    p[0] = NAN;
    for (uint32_t i = 1; i < r->count; i++) {
        pj_cell_ratio *c = &r->against_first[r->first_count++];
        c->cell = i;
        compare_cells(r, 0, i, &c->ratio);
        p[i] = refusal_of(&r->runs.cells[0], &r->runs.cells[i]) ? NAN : c->ratio.p;
    }
    pj_benjamini_hochberg(p, r->count, p + r->count);
    for (uint32_t i = 0; i < r->first_count; i++) {
        r->against_first[i].p = p[r->count + i + 1];
        r->against_first[i].different = r->against_first[i].p < PJ_LEVEL;
    }
    return PJ_OK;
}

/* The saving of a doubling of the batch beyond the knee. Its interval decides whether it is
 * significantly below the limit. */
static void describe_saving(pj_batch_knee *knee, const pj_ratio *step, double doublings,
                            const char *first)
{
    char most[48] = "";
    knee->saves = 1 - pow(step->ratio, 1 / doublings);
    knee->saves_lo = 1 - pow(step->hi, 1 / doublings);
    knee->saves_hi = 1 - pow(step->lo, 1 / doublings);
    knee->settled = knee->saves_hi < knee_saving;
    if (!isnan(knee->saves_hi))
        snprintf(most, sizeof most, ", up to %.2g %% by the interval", 100 * knee->saves_hi);
    if (knee->settled)
        snprintf(knee->text, sizeof knee->text,
                 "From %s on, a batch beyond %u saves less than %.0f %% per doubling.", first,
                 knee->batch, 100 * knee_saving);
    else
        snprintf(knee->text, sizeof knee->text,
                 "From %s on, a batch beyond %u saved %.2g %% per doubling in these runs%s: more "
                 "blocks are needed to decide whether it is worth it.",
                 first, knee->batch, 100 * knee->saves, most);
}

/* Along the batches from cell `first` on. Where the largest batch still saved more, the knee was
 * not reached. */
static void find_knee(pj_experiment_result *r, uint32_t first)
{
    const pj_plan *plan = &r->plan;
    uint32_t stride = plan->thread_count * plan->output_count * plan->input_count;
    uint32_t knee = first, beyond = first;
    double doublings = 0;
    bool reached = false;
    for (uint32_t k = 1; k < plan->batch_count && !reached; k++) {
        uint32_t at = first + k * stride;
        doublings = log2((double)r->cells[at].cell.batch / r->cells[knee].cell.batch);
        double saved = 1 - pow(joules_of_cell(r, at) / joules_of_cell(r, knee), 1 / doublings);
        if (isnan(saved)) break;
        reached = saved < knee_saving;
        beyond = at;
        if (!reached) knee = at;
    }
    if (!reached) return;
    pj_ratio step;
    pj_batch_knee *found = &r->knees[r->knee_count++];
    *found = (pj_batch_knee){first, knee, r->cells[knee].cell.batch};
    compare_cells(r, knee, beyond, &step);
    describe_saving(found, &step, doublings, r->cells[first].name);
}

/* Knees require comparable cells. */
static pj_status find_knees(pj_experiment_result *r, pj_error *err)
{
    r->knees = pj_arena_alloc(&r->arena, r->count, sizeof *r->knees);
    if (!r->knees) return pj_fail_memory(err, "an experiment");
    if (r->plan.batch_count < 2 || r->refusal) return PJ_OK;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->cells[i].cell.batch == r->plan.batches[0] && !r->cells[i].cell.ablate[0])
            find_knee(r, i);
    return PJ_OK;
}

/* A cell of equal cost whose energy is not told from that of one on the front follows it there. */
static size_t add_front_ties(const pj_experiment_result *r, const double *cost,
                             const double *joules, uint32_t *cells, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t on = cells[i];
        for (uint32_t k = 0; k < r->count; k++) {
            pj_ratio ratio;
            if (k == on || isnan(joules[k]) || cost[k] != cost[on]) continue;
            compare_cells(r, on, k, &ratio);
            if (ratio.p < PJ_LEVEL) continue;
            memmove(&cells[i + 2], &cells[i + 1], (count - i - 1) * sizeof *cells);
            cells[++i] = k;
            count++;
        }
    }
    return count;
}

/* The Pareto front of the unablated cells: energy per token against a cost (less is better). */
static void find_front(pj_experiment_result *r, const char *over, const double *cost,
                       const double *joules, uint32_t *cells)
{
    size_t count = pj_pareto_front(cost, joules, r->count, cells);
    size_t at = pj_pareto_knee(cost, joules, cells, count);
    uint32_t knee = at == SIZE_MAX ? PJ_NO_CELL : cells[at];
    count = add_front_ties(r, cost, joules, cells, count);
    if (count) r->fronts[r->front_count++] = (pj_cell_front){over, cells, (uint32_t)count, knee};
}

/* Fronts over quality (loss, answers) and speed (seconds per token). Ablated cells are a different
 * model and on no front. */
static pj_status find_fronts(pj_experiment_result *r, pj_error *err)
{
    double *joules = pj_arena_alloc(&r->arena, 4 * (size_t)r->count, sizeof *joules);
    uint32_t *cells = pj_arena_alloc(&r->arena, 3 * (size_t)r->count, sizeof *cells);
    if (!joules || !cells) return pj_fail_memory(err, "an experiment");
    bool solved = false; /* of no use: the cheapest of cells that answer nothing */
    for (uint32_t i = 0; i < r->count; i++) solved |= r->cells[i].score.right > 0;
    double *loss = joules + r->count, *seconds = loss + r->count, *wrong = seconds + r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        bool is_whole = pj_plan_whole_cell(&r->plan, i) == i;
        joules[i] = is_whole && !r->refusal ? joules_of_cell(r, i) : NAN;
        loss[i] = r->cells[i].loss;
        wrong[i] = solved ? 1 - r->cells[i].score.share : NAN;
        seconds[i] = 1 / r->cells[i].speed;
    }
    find_front(r, "loss", loss, joules, cells);
    find_front(r, "score", wrong, joules, cells + r->count);
    find_front(r, "seconds_per_token", seconds, joules, cells + 2 * (size_t)r->count);
    return PJ_OK;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* The cell with the most tasks solved, of several the one with the least energy. */
static uint32_t best_score(const pj_experiment_result *r)
{
    uint32_t best = PJ_NO_CELL;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!r->cells[i].score.tasks) continue;
        bool is_cheaper = best != PJ_NO_CELL && joules_of_cell(r, i) < joules_of_cell(r, best);
        if (best == PJ_NO_CELL || r->cells[i].score.right > r->cells[best].score.right ||
            (r->cells[i].score.right == r->cells[best].score.right && is_cheaper))
            best = i;
    }
    return best;
}

static void describe_answers(pj_experiment_result *r)
{
    pj_cell_answers *a = &r->answers;
    const pj_cell_figures *least = &r->cells[a->least], *best = &r->cells[a->best];
    uint32_t differ = least->against_best.only_a + least->against_best.only_b;
    char tell[64] = "";
    if (!best->score.right) {
        snprintf(a->text, sizeof a->text,
                 "No cell solves any of the %u tasks: they do not tell which energy is well spent.",
                 a->tasks);
        a->least = PJ_NO_CELL;
        return;
    }
    if (least->score.right == best->score.right && !differ) {
        snprintf(a->text, sizeof a->text,
                 "Least energy with the best answers (%u of %u tasks): %s.", best->score.right,
                 a->tasks, least->name);
        return;
    }
    if (differ < PJ_SCORE_LEAST_DIFFERENT)
        snprintf(tell, sizeof tell, ", and fewer than %d never tell", PJ_SCORE_LEAST_DIFFERENT);
    snprintf(a->text, sizeof a->text,
             "Least energy without a certain loss of answers: %s, %u of %u tasks. The best, %s, "
             "solves %u; they differ in %u%s.",
             least->name, least->score.right, a->tasks, best->name, best->score.right, differ,
             tell);
}

/* Cells are left out as soon as the test says that they answer worse, uncorrected: to keep a worse
 * one costs answers, to leave out a good one only joules. */
static void judge_answers(pj_experiment_result *r)
{
    pj_cell_answers *a = &r->answers;
    a->least = PJ_NO_CELL;
    a->best = best_score(r);
    if (a->best == PJ_NO_CELL) return;
    a->tasks = r->cells[a->best].score.tasks;
    for (uint32_t i = 0; i < r->count; i++) {
        pj_cell_figures *f = &r->cells[i];
        f->against_best = pj_score_compare(r->cells[a->best].outcomes, f->outcomes);
        if (!f->score.tasks || f->against_best.p < PJ_LEVEL || r->refusal || !may_be_best(r, i))
            continue;
        if (a->least == PJ_NO_CELL || joules_of_cell(r, i) < joules_of_cell(r, a->least))
            a->least = i;
    }
    if (a->least != PJ_NO_CELL) describe_answers(r);
}

/* Each cell against itself in the previous round. */
static pj_status compare_with_former(pj_experiment_result *r, pj_error *err)
{
    r->against_former = pj_arena_alloc(&r->arena, r->count, sizeof *r->against_former);
    for (uint32_t i = 0; i < r->count && r->plan.round > 0; i++) {
        const pj_cell_runs *old = &r->former.cells[i];
        double *joules = pj_arena_alloc(&r->arena, old->count + 1, sizeof *joules);
        if (!joules || !r->against_former) return pj_fail_memory(err, "an experiment");
        for (uint32_t k = 0; k < old->count; k++)
            joules[k] = pj_figure_of(old->runs[k], r->primary);
        pj_cell_ratio *c = &r->against_former[r->former_count++];
        c->cell = i;
        pj_ratio_compare(joules, old->count, r->cells[i].joules, r->cells[i].n, 0, &c->ratio);
        c->p = refusal_of(old, &r->runs.cells[i]) ? NAN : c->ratio.p;
        c->different = c->p < PJ_LEVEL / r->count;
    }
    return PJ_OK;
}

/* ---- the result ----------------------------------------------------------------------------- */

static void experiment_view_count_runs(pj_experiment_result *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_cell_figures *f = &r->cells[i];
        r->done += f->n;
        r->total += pj_plan_is_enough(&r->plan, f->joules, f->n) ? f->n : r->plan.repeat;
    }
}

const char *pj_experiment_state(const char *live, const char *stored, bool complete)
{
    if (live) return live;
    if (complete) return "completed";
    return stored && strcmp(stored, "completed") != 0 ? stored : "unfinished";
}

static pj_status experiment_view_load(pj_experiment_result *r, const char *name, pj_error *err)
{
    const char *plan = NULL, *text = NULL;
    pj_status status = pj_store_experiment_get(r->store, name, &r->arena, &plan, &text, err);
    if (status == PJ_OK) status = pj_plan_parse(plan, &r->arena, &r->plan, err);
    if (status == PJ_OK)
        status =
            pj_store_experiment_get_state(r->store, name, &r->arena, &r->state, &r->error, err);
    if (status != PJ_OK) return status;
    r->plan.name = pj_arena_strndup(&r->arena, name, strlen(name));
    r->count = pj_plan_cells(&r->plan);
    r->cells = pj_arena_alloc(&r->arena, r->count, sizeof *r->cells);
    if (!r->cells || !r->plan.name) return pj_fail_memory(err, "an experiment");
    status = pj_experiment_runs_load(r->store, &r->plan, r->plan.round, &r->runs, err);
    if (status == PJ_OK && r->plan.round > 0)
        status = pj_experiment_runs_load(r->store, &r->plan, r->plan.round - 1, &r->former, err);
    if (status == PJ_OK) r->primary = experiment_view_primary(r);
    json_t *known = text ? json_loads(text, 0, NULL) : NULL;
    for (uint32_t i = 0; i < r->count && status == PJ_OK; i++)
        status = cell_figures(r, i, known, err);
    json_decref(known);
    return status;
}

static pj_status draw_conclusions(pj_experiment_result *r, pj_error *err)
{
    r->refusal = refusal(r);
    r->all_threads = all_threads(r);
    experiment_view_count_runs(r);
    r->state = pj_experiment_state(r->live.state, r->state, r->done >= r->total);
    pj_status status = find_optimum(r, err);
    if (status == PJ_OK) status = find_knees(r, err);
    if (status == PJ_OK) status = find_fronts(r, err);
    judge_answers(r);
    if (status == PJ_OK) status = compare_with_first(r, err);
    if (status == PJ_OK) status = compare_with_former(r, err);
    if (status == PJ_OK) status = pj_experiment_ablations(r, err);
    return status;
}

pj_status pj_experiment_result_get(pj_store *store, const char *name,
                                   const pj_experiment_live *live, pj_experiment_result **result,
                                   pj_error *err)
{
    *result = NULL;
    pj_experiment_result *r = pj_alloc(1, sizeof *r);
    if (!r) return pj_fail_memory(err, "an experiment");
    pj_arena_init(&r->arena, 0);
    r->store = store;
    if (live) r->live = *live;
    pj_status status = experiment_view_load(r, name, err);
    if (status == PJ_OK) status = draw_conclusions(r, err);
    if (status == PJ_OK)
        *result = r;
    else
        pj_experiment_result_free(r);
    return status;
}

void pj_experiment_result_free(pj_experiment_result *r)
{
    if (!r) return;
    pj_experiment_runs_fini(&r->runs);
    pj_experiment_runs_fini(&r->former);
    pj_arena_fini(&r->arena);
    pj_free(r);
}
