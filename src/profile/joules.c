/*
 * Energies of a run: where spans and sensors meet. For every rail that counts in the total: an
 * energy curve from its readings, a fit of class powers over its windows, and the measured energy
 * shared out over the leaves of the run in whole nanojoules. Then sums, bottom up, so that parts
 * add up exactly at every level.
 *
 * A sensor's first and last window reach out of the run. The machine is taken as idle there: two
 * more leaves of the class `idle` stand for that time, so that fit and shares work on whole windows
 * and nothing is interpolated at the edges of a short run.
 *
 * With simulated sensors the truth (one power for each class of leaf) is made here, the readings
 * are drawn from it, and the planted energy stands beside the attributed one.
 */
#include "energy/attribute.h"
#include "power/meter.h"
#include "profile/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct rail_result {
    uint32_t rail;
    int64_t begin_ns, end_ns;        /* the run, extended to whole windows */
    double phase_mj[PJ_PHASE_COUNT]; /* gross */
    double weight_mj;                /* net energy, to find the rail that matters most */
    pj_fit fit;
    bool has_fit;
} rail_result;

typedef struct joules {
    const pj_tree *tree;
    const pj_build_options *options;
    pj_run_data *d;
    pj_curve *curves[PJ_MAX_RAILS];
    char (*class_names)[128];
    double *sim_mw; /* [class] planted net power, NULL: nothing is simulated */
    pj_leaf *leaves;
    int64_t *gross, *net;           /* [leaf] over all rails */
    int64_t *rail_gross, *rail_net; /* [leaf + 2] of the rail at hand */
    double *equal;                  /* [class] 1: energy by time, where there is no fit */
    pj_energy *nodes;               /* [node] */
    uint32_t *leaf_begin, *leaf_of; /* leaves grouped by node */
    rail_result results[PJ_MAX_RAILS];
    uint32_t result_count;
    bool replayed; /* a calibration was the prior */
} joules;

/* ---- truth and readings of simulated rails ------------------------------------------------- */

static bool is_simulated(const joules *j, uint32_t rail)
{
    return j->options->sim && strcmp(j->d->rails[rail].source, "sim") == 0;
}

static bool plant_powers(joules *j)
{
    const pj_tree *tree = j->tree;
    j->sim_mw = pj_alloc(tree->class_count, sizeof *j->sim_mw);
    for (uint32_t c = 0; j->sim_mw && c < tree->class_count; c++)
        j->sim_mw[c] = tree->classes[c].phase == PJ_PHASE_IDLE
                           ? 0
                           : pj_sim_class_mw(j->options->sim, j->class_names[c],
                                             (pj_phase)tree->classes[c].phase);
    return j->sim_mw != NULL;
}

typedef struct edge {
    int64_t at_ns;
    double change_mw;
} edge;

static int by_time(const void *a, const void *b)
{
    int64_t x = ((const edge *)a)->at_ns, y = ((const edge *)b)->at_ns;
    return x < y ? -1 : x > y;
}

/* Net power over time: the sum of the leaves that are active. Leaves of one thread do not overlap
 * and give a segment each; those of several threads are swept. */
static pj_sim_segment *make_truth(const joules *j, size_t *count)
{
    const pj_tree *tree = j->tree;
    size_t n = tree->leaf_count, used = 0;
    pj_sim_segment *segments = pj_alloc(2 * n + 1, sizeof *segments);
    *count = 0;
    if (!segments || !tree->overlaps) {
        for (size_t i = 0; segments && i < n; i++)
            segments[(*count)++] =
                (pj_sim_segment){tree->leaves[i].begin_ns, tree->leaves[i].end_ns,
                                 j->sim_mw[tree->leaves[i].class_]};
        return segments;
    }
    edge *edges = pj_alloc(2 * n, sizeof *edges);
    for (size_t i = 0; edges && i < n; i++) {
        double mw = j->sim_mw[tree->leaves[i].class_];
        edges[used++] = (edge){tree->leaves[i].begin_ns, mw};
        edges[used++] = (edge){tree->leaves[i].end_ns, -mw};
    }
    if (!edges) {
        pj_free(segments);
        return NULL;
    }
    qsort(edges, used, sizeof *edges, by_time);
    double mw = 0;
    for (size_t i = 0; i + 1 < used; i++) {
        mw += edges[i].change_mw;
        if (edges[i + 1].at_ns > edges[i].at_ns)
            segments[(*count)++] =
                (pj_sim_segment){edges[i].at_ns, edges[i + 1].at_ns, mw > 0 ? mw : 0};
    }
    pj_free(edges);
    return segments;
}

static pj_status feed(pj_curve *curve, const pj_reading *readings, size_t count, pj_error *err)
{
    for (size_t i = 0; i < count; i++) {
        pj_status status = pj_curve_add(curve, &readings[i], err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

static pj_status feed_simulated(joules *j, uint32_t rail, uint32_t sim_rail,
                                const pj_sim_segment *truth, size_t count, pj_error *err)
{
    const pj_rail *r = &j->d->rails[rail];
    int64_t margin = 3 * (r->period_ns + r->window_ns + r->delay_ns + r->lag_ns) + 100000000;
    pj_reading *readings;
    size_t n;
    pj_status status =
        pj_sim_read(j->options->sim, sim_rail, truth, count, j->tree->begin_ns - margin,
                    j->tree->end_ns + margin, &readings, &n, err);
    if (status != PJ_OK) return status;
    status = feed(j->curves[rail], readings, n, err);
    pj_free(readings);
    return status;
}

static pj_status make_curves(joules *j, const pj_readings *readings, pj_error *err)
{
    pj_run_data *d = j->d;
    pj_sim_segment *truth = NULL;
    size_t truth_count = 0;
    pj_status status = PJ_OK;
    uint32_t sim_rail = 0;
    for (uint32_t r = 0; r < d->rail_count && status == PJ_OK; r++) {
        j->curves[r] = pj_curve_new(&d->rails[r]);
        if (!j->curves[r]) status = pj_fail_memory(err, "an energy curve");
        if (status == PJ_OK && is_simulated(j, r)) {
            if (!truth && (!plant_powers(j) || !(truth = make_truth(j, &truth_count))))
                status = pj_fail_memory(err, "the simulated truth");
            if (status == PJ_OK) status = feed_simulated(j, r, sim_rail++, truth, truth_count, err);
        } else if (status == PJ_OK) {
            status = feed(j->curves[r], readings->items + readings->begin[r],
                          readings->begin[r + 1] - readings->begin[r], err);
        }
        if (status == PJ_OK) status = pj_curve_finish(j->curves[r], err);
    }
    pj_free(truth);
    return status;
}

/* ---- one rail: fit and share --------------------------------------------------------------- */

static pj_status get_windows(const joules *j, rail_result *result, pj_window **windows,
                             size_t *count, pj_error *err)
{
    const pj_curve *curve = j->curves[result->rail];
    size_t n = pj_curve_windows(curve, j->tree->begin_ns, j->tree->end_ns, NULL, 0);
    pj_curve_window *seen = pj_alloc(n, sizeof *seen);
    *windows = pj_alloc(n, sizeof **windows);
    if (!seen || !*windows) {
        pj_free(seen);
        return pj_fail_memory(err, "the windows of a sensor");
    }
    pj_curve_windows(curve, j->tree->begin_ns, j->tree->end_ns, seen, n);
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        double q = seen[i].resolution_mj, sd = seen[i].sd_mj;
        if (isnan(seen[i].energy_mj)) continue;
        if (result->begin_ns > seen[i].begin_ns) result->begin_ns = seen[i].begin_ns;
        if (result->end_ns < seen[i].end_ns) result->end_ns = seen[i].end_ns;
        (*windows)[(*count)++] =
            (pj_window){seen[i].begin_ns, seen[i].end_ns, seen[i].energy_mj,
                        sqrt((isnan(sd) ? 0 : sd * sd) + (isnan(q) ? 0 : q * q / 6))};
    }
    pj_free(seen);
    return PJ_OK;
}

/* The time cut where the sensor published: inside a piece only the fit knows how energy went. */
static pj_status get_segments(const joules *j, const rail_result *result, pj_segment **segments,
                              size_t *count, pj_error *err)
{
    const pj_curve *curve = j->curves[result->rail];
    int64_t begin = result->begin_ns, end = result->end_ns;
    size_t n = pj_curve_points(curve, begin, end, NULL, 0);
    pj_curve_point *points = pj_alloc(n, sizeof *points);
    *segments = pj_alloc(n + 1, sizeof **segments);
    if (!points || !*segments) {
        pj_free(points);
        return pj_fail_memory(err, "the segments of a sensor");
    }
    n = pj_curve_points(curve, begin, end, points, n);
    *count = 0;
    for (size_t i = 0; i <= n; i++) {
        int64_t to = i < n ? points[i].end_ns : end;
        if (to > end) to = end;
        if (to <= begin) continue;
        (*segments)[(*count)++] = (pj_segment){begin, to, pj_curve_energy_mj(curve, begin, to)};
        begin = to;
    }
    pj_free(points);
    return PJ_OK;
}

/* Does the time before and after the run, as far as windows reach, belong to leaves of its own. */
static void set_outside(joules *j, const rail_result *result)
{
    uint32_t idle = j->tree->idle_class;
    j->leaves[0] = (pj_leaf){result->begin_ns, j->tree->begin_ns, idle};
    j->leaves[j->tree->leaf_count + 1] = (pj_leaf){j->tree->end_ns, result->end_ns, idle};
}

/* What is known of a class beforehand: a calibration's word, or that an idle machine draws its
 * baseline and nothing above it. */
static pj_class_prior prior_of(joules *j, uint32_t rail, uint32_t class_)
{
    const pj_tree_class *c = &j->tree->classes[class_];
    pj_class_prior prior = {NAN, NAN};
    double spread = j->d->baseline_sd_mw[rail];
    if (j->options->prior &&
        j->options->prior(j->options->context, &j->d->rails[rail], j->class_names[class_],
                          (pj_phase)c->phase, &prior.power_mw, &prior.sd_mw))
        j->replayed = true;
    else if (c->phase == PJ_PHASE_IDLE && !c->component && !isnan(j->d->baseline_mw[rail]))
        prior =
            (pj_class_prior){0, fmax(isnan(spread) ? 0 : spread, 0.01 * j->d->baseline_mw[rail])};
    return prior;
}

static pj_status fit_rail(joules *j, rail_result *result, const pj_window *windows, size_t count,
                          const pj_curve_energy *total, pj_error *err)
{
    const pj_tree *tree = j->tree;
    pj_class_prior *priors = pj_alloc(tree->class_count, sizeof *priors);
    if (!priors) return pj_fail_memory(err, "the priors of a fit");
    for (uint32_t c = 0; c < tree->class_count; c++) priors[c] = prior_of(j, result->rail, c);
    pj_fit_input input = {.windows = windows,
                          .window_count = count,
                          .leaves = j->leaves,
                          .leaf_count = (size_t)tree->leaf_count + 2,
                          .class_count = tree->class_count,
                          .idle_mw = j->d->baseline_mw[result->rail],
                          .total_mj = total->energy_mj,
                          .total_sd_mj = hypot(total->random_sd_mj, total->bias_sd_mj),
                          .begin_ns = result->begin_ns,
                          .end_ns = result->end_ns,
                          .priors = priors};
    pj_status status = pj_fit_run(&input, &result->fit, err);
    result->has_fit = status == PJ_OK;
    for (uint32_t c = 0; j->options->observe && result->has_fit && c < tree->class_count; c++) {
        size_t diagonal = (size_t)c * tree->class_count + c;
        j->options->observe(j->options->observe_context, &j->d->rails[result->rail],
                            j->class_names[c], (pj_phase)tree->classes[c].phase,
                            result->fit.power_mw[c],
                            sqrt(fmax(result->fit.covariance[diagonal], 0)));
    }
    pj_free(priors);
    return status;
}

static void add_known(int64_t *sum, int64_t value)
{
    *sum = *sum == PJ_NJ_UNKNOWN || value == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : *sum + value;
}

static void share_rail(joules *j, rail_result *result, const pj_segment *segments, size_t count)
{
    const pj_tree *tree = j->tree;
    double idle_mw = j->d->baseline_mw[result->rail];
    pj_share_result shared = {.gross_nj = j->rail_gross, .net_nj = j->rail_net};
    pj_share_run(segments, count, j->leaves, (size_t)tree->leaf_count + 2,
                 result->has_fit ? result->fit.power_mw : j->equal, idle_mw, &shared);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        double *phase_mj = &result->phase_mj[tree->classes[tree->leaves[i].class_].phase];
        *phase_mj += pj_mj_of_nj(j->rail_gross[i + 1]);
        add_known(&j->gross[i], j->rail_gross[i + 1]);
        add_known(&j->net[i], isnan(idle_mw) ? PJ_NJ_UNKNOWN : j->rail_net[i + 1]);
    }
}

static pj_status attribute_rail(joules *j, uint32_t rail, pj_error *err)
{
    rail_result *result = &j->results[j->result_count++];
    *result = (rail_result){.rail = rail, .begin_ns = j->tree->begin_ns, .end_ns = j->tree->end_ns};
    pj_window *windows = NULL;
    pj_segment *segments = NULL;
    size_t window_count = 0, segment_count = 0;
    pj_status status = get_windows(j, result, &windows, &window_count, err);
    if (status == PJ_OK) status = get_segments(j, result, &segments, &segment_count, err);
    if (status == PJ_OK) {
        pj_curve_energy total;
        pj_curve_query(j->curves[rail], result->begin_ns, result->end_ns, &total);
        set_outside(j, result);
        result->weight_mj = isnan(total.energy_mj) ? 0 : total.energy_mj;
        /* Without a fit energy goes by time, which is equal power. */
        if (!isnan(total.energy_mj))
            status = fit_rail(j, result, windows, window_count, &total, err);
        if (status == PJ_E_INVALID || status == PJ_E_UNAVAILABLE) status = PJ_OK;
    }
    if (status == PJ_OK) share_rail(j, result, segments, segment_count);
    pj_free(windows);
    pj_free(segments);
    return status;
}

/* Rails of the total: those that know the whole run; when none does, all of them, so that what was
 * known before a sensor died stays known. */
static pj_status attribute_rails(joules *j, pj_error *err)
{
    pj_run_data *d = j->d;
    bool in_total[PJ_MAX_RAILS], whole[PJ_MAX_RAILS], any = false, any_whole = false;
    for (uint32_t r = 0; r < d->rail_count; r++) {
        in_total[r] = pj_rail_in_column(d->rails, d->rail_count, r, PJ_RAIL_TOTAL);
        whole[r] = in_total[r] &&
                   !isnan(pj_curve_energy_mj(j->curves[r], j->tree->begin_ns, j->tree->end_ns));
        any |= in_total[r];
        any_whole |= whole[r];
    }
    for (uint32_t i = 0; i < j->tree->leaf_count; i++)
        j->gross[i] = j->net[i] = any ? 0 : PJ_NJ_UNKNOWN;
    for (uint32_t r = 0; r < d->rail_count; r++) {
        if (!(any_whole ? whole[r] : in_total[r])) {
            d->info.total_is_partial |= in_total[r] && any_whole;
            continue;
        }
        pj_status status = attribute_rail(j, r, err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

/* ---- sums, bottom up ----------------------------------------------------------------------- */

/* Planted energy of a leaf: all rails of a simulation together. mW x ns = pJ. */
static int64_t planted(const joules *j, const pj_tree_leaf *leaf)
{
    double ns = (double)(leaf->end_ns - leaf->begin_ns);
    return llround((j->sim_mw[leaf->class_] + j->options->sim->idle_mw) * ns * 1e-3);
}

static void start_node(pj_energy *node, bool known, bool has_planted)
{
    int64_t zero = known ? 0 : PJ_NJ_UNKNOWN;
    *node = (pj_energy){zero, zero, zero, has_planted ? 0 : PJ_NJ_UNKNOWN, NAN, PJ_METHOD_NONE};
}

static void sum_children(joules *j, uint32_t index)
{
    const pj_tree *tree = j->tree;
    pj_energy *node = &j->nodes[index];
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++) {
        const pj_energy *child = &j->nodes[tree->children[k]];
        sum_children(j, tree->children[k]);
        add_known(&node->gross_nj, child->gross_nj);
        add_known(&node->net_nj, child->net_nj);
        add_known(&node->planted_nj, child->planted_nj);
    }
}

static void sum_nodes(joules *j)
{
    const pj_tree *tree = j->tree;
    bool has_planted = j->sim_mw && !tree->overlaps;
    for (uint32_t i = 0; i < tree->node_count; i++)
        start_node(&j->nodes[i], j->result_count > 0, has_planted);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_tree_leaf *leaf = &tree->leaves[i];
        pj_energy *node = &j->nodes[leaf->node];
        add_known(&node->gross_nj, j->gross[i]);
        add_known(&node->self_nj, j->gross[i]);
        add_known(&node->net_nj, j->net[i]);
        if (has_planted) node->planted_nj += planted(j, leaf);
    }
    sum_children(j, 0);
}

/* ---- uncertainty and method ---------------------------------------------------------------- */

/* From the curves alone: for what is longer than the sensor's period. */
static double curve_sd_mj(const joules *j, int64_t begin_ns, int64_t end_ns)
{
    double variance = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        pj_curve_energy e;
        pj_curve_query(j->curves[j->results[i].rail], begin_ns, end_ns, &e);
        variance += e.sd_mj * e.sd_mj;
    }
    return sqrt(variance);
}

/* Relative sd of the whole windows' total: gain and resolution, which all parts share. */
static double common_sd(const joules *j)
{
    double variance = 0, total = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const rail_result *result = &j->results[i];
        pj_curve_energy e;
        pj_curve_query(j->curves[result->rail], result->begin_ns, result->end_ns, &e);
        if (isnan(e.energy_mj)) continue;
        variance += e.sd_mj * e.sd_mj;
        total += e.energy_mj;
    }
    return total > 0 ? sqrt(variance) / total : 0;
}

/* 1 sigma in mJ of a part that spent times[c] ms in class c: the covariance of the fit. */
static double fit_sd_mj(const joules *j, const uint32_t *classes, const double *times_ms,
                        uint32_t count)
{
    double variance = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_fit *fit = &j->results[i].fit;
        if (!j->results[i].has_fit) return NAN;
        for (uint32_t a = 0; a < count; a++)
            for (uint32_t b = 0; b < count; b++)
                variance += times_ms[a] * times_ms[b] *
                            fit->covariance[(size_t)classes[a] * fit->class_count + classes[b]];
    }
    return variance > 0 ? sqrt(variance) * 1e-3 : 0; /* mW ms = uJ */
}

typedef struct class_times {
    uint32_t *classes; /* [class_count], those that occur */
    double *times_ms;  /* by position in `classes` */
    uint32_t *where;   /* [class_count] position + 1, 0: not there */
    uint32_t count;
} class_times;

static void add_class_time(class_times *t, const pj_tree_leaf *leaf)
{
    uint32_t *where = &t->where[leaf->class_];
    if (!*where) {
        t->classes[t->count] = leaf->class_;
        t->times_ms[t->count] = 0;
        *where = ++t->count;
    }
    t->times_ms[*where - 1] += (double)(leaf->end_ns - leaf->begin_ns) * 1e-6;
}

static void collect_times(const joules *j, uint32_t index, class_times *t)
{
    const pj_tree *tree = j->tree;
    for (uint32_t k = j->leaf_begin[index]; k < j->leaf_begin[index + 1]; k++)
        add_class_time(t, &tree->leaves[j->leaf_of[k]]);
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++)
        collect_times(j, tree->children[k], t);
}

static void forget_times(class_times *t)
{
    for (uint32_t i = 0; i < t->count; i++) t->where[t->classes[i]] = 0;
    t->count = 0;
}

static bool is_integrated(const joules *j, const pj_node *node)
{
    if (node->kind > PJ_SPAN_TOKEN && node->kind != PJ_NODE_ROOT) return false;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_rail *rail = &j->d->rails[j->results[i].rail];
        int64_t least = rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns;
        if (node->end_ns - node->begin_ns < least) return false;
    }
    return true;
}

/* What is longer than the sensor's period is integrated; the fit may still know its edges better
 * than the curve does, which spreads power evenly over a window. */
static void judge(joules *j, class_times *times)
{
    const pj_tree *tree = j->tree;
    double common = common_sd(j);
    for (uint32_t i = 0; i < tree->node_count; i++) {
        pj_energy *e = &j->nodes[i];
        if (e->gross_nj == PJ_NJ_UNKNOWN) continue;
        collect_times(j, i, times);
        double sd = fit_sd_mj(j, times->classes, times->times_ms, times->count);
        sd = hypot(sd, common * pj_mj_of_nj(e->gross_nj));
        forget_times(times);
        e->method = j->replayed ? PJ_METHOD_REPLAY : PJ_METHOD_FIT;
        if (is_integrated(j, &tree->nodes[i])) {
            e->method = PJ_METHOD_INTEGRATE;
            sd = fmin(sd, curve_sd_mj(j, tree->nodes[i].begin_ns, tree->nodes[i].end_ns));
        }
        e->sd_mj = (float)sd;
    }
}

static bool group_leaves(joules *j)
{
    const pj_tree *tree = j->tree;
    j->leaf_begin = pj_alloc((size_t)tree->node_count + 2, sizeof *j->leaf_begin);
    j->leaf_of = pj_alloc(tree->leaf_count, sizeof *j->leaf_of);
    if (!j->leaf_begin || !j->leaf_of) return false;
    uint32_t *at = j->leaf_begin + 1, sum = 0;
    for (uint32_t i = 0; i < tree->leaf_count; i++) at[tree->leaves[i].node]++;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        uint32_t count = at[i];
        at[i] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++) j->leaf_of[at[tree->leaves[i].node]++] = i;
    return true;
}

static pj_status judge_all(joules *j, pj_error *err)
{
    size_t classes = j->tree->class_count;
    class_times times = {pj_alloc(classes, sizeof *times.classes),
                         pj_alloc(classes, sizeof *times.times_ms),
                         pj_alloc(classes, sizeof *times.where), 0};
    bool ok = times.classes && times.times_ms && times.where && group_leaves(j);
    if (ok) judge(j, &times);
    pj_free(times.classes);
    pj_free(times.times_ms);
    pj_free(times.where);
    return ok ? PJ_OK : pj_fail_memory(err, "the uncertainties of a run");
}

/* ---- into the rows ------------------------------------------------------------------------- */

/* A batch shares a step equally, in whole nanojoules; layers and self stay with the first row. */
static void fill_token(joules *j, const pj_node *node, const pj_energy *e, uint32_t rows)
{
    double seconds = (double)(node->end_ns - node->begin_ns) * 1e-9;
    for (uint32_t i = 0; i < rows; i++) {
        pj_token_row *row = &j->d->tokens[node->row + i];
        row->energy = *e;
        if (e->gross_nj != PJ_NJ_UNKNOWN && seconds > 0)
            row->power_mw = pj_mj_of_nj(e->gross_nj) / seconds;
        if (rows == 1) return;
        int64_t *amounts[] = {&row->energy.gross_nj, &row->energy.net_nj, &row->energy.planted_nj};
        for (int k = 0; k < 3; k++)
            if (*amounts[k] != PJ_NJ_UNKNOWN) {
                int64_t part = *amounts[k] / rows, rest = *amounts[k] - part * rows;
                *amounts[k] = part + (i == 0 ? rest : 0);
            }
        if (i > 0 && row->energy.self_nj != PJ_NJ_UNKNOWN) row->energy.self_nj = 0;
        row->energy.sd_mj = e->sd_mj / (float)rows;
        if (row->energy.method != PJ_METHOD_NONE) row->energy.method = PJ_METHOD_ALLOCATED;
    }
}

static uint32_t rows_of_token(const pj_tree *tree, const pj_node *node)
{
    uint32_t count = 0;
    for (uint32_t t = node->text; t != UINT32_MAX; t = tree->texts[t].next) count++;
    return count ? count : 1;
}

static void fill_rows(joules *j)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const pj_node *node = &tree->nodes[i];
        const pj_energy *e = &j->nodes[i];
        switch (node->kind) {
        case PJ_SPAN_PHASE: d->phases[node->row].energy = *e; break;
        case PJ_SPAN_SECTION: d->sections[node->row].energy = *e; break;
        case PJ_SPAN_TOKEN: fill_token(j, node, e, rows_of_token(tree, node)); break;
        case PJ_SPAN_LAYER: d->layers[node->row].energy = *e; break;
        case PJ_SPAN_COMPONENT: d->components[node->row].energy = *e; break;
        default: d->operations[node->row].energy = *e; break;
        }
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_node *node = &tree->nodes[tree->leaves[i].node];
        if (tree->child_begin[tree->leaves[i].node] != tree->child_begin[tree->leaves[i].node + 1])
            continue; /* the time between its children is of another class */
        if (node->kind == PJ_SPAN_COMPONENT)
            d->components[node->row].class_ = tree->leaves[i].class_;
        if (node->kind == PJ_SPAN_OPERATION)
            d->operations[node->row].class_ = tree->leaves[i].class_;
    }
}

/* Time outside the phases becomes rows of phase `idle`, so that the phases add up to the run. */
static pj_status fill_idle(joules *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    uint32_t extra = 0;
    for (uint32_t i = 0; i < tree->leaf_count; i++) extra += tree->leaves[i].node == 0;
    if (!extra) return PJ_OK;
    pj_phase_row *rows = pj_arena_alloc(&d->arena, d->phase_count + extra, sizeof *rows);
    if (!rows) return pj_fail_memory(err, "the phases of a run");
    if (d->phase_count) memcpy(rows, d->phases, d->phase_count * sizeof *rows);
    d->phases = rows;
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_tree_leaf *leaf = &tree->leaves[i];
        if (leaf->node != 0) continue;
        pj_phase_row *row = &d->phases[d->phase_count++];
        *row = (pj_phase_row){PJ_PHASE_IDLE, (double)(leaf->begin_ns - tree->begin_ns) / 1e6,
                              (double)(leaf->end_ns - leaf->begin_ns) / 1e6, j->nodes[0]};
        row->energy.gross_nj = row->energy.self_nj = j->gross[i];
        row->energy.net_nj = j->net[i];
        if (row->energy.planted_nj != PJ_NJ_UNKNOWN) row->energy.planted_nj = planted(j, leaf);
        row->energy.sd_mj = (float)curve_sd_mj(j, leaf->begin_ns, leaf->end_ns);
    }
    return PJ_OK;
}

/* ---- classes, rails, the run as a whole ----------------------------------------------------- */

static const rail_result *main_rail(const joules *j)
{
    const rail_result *best = NULL;
    for (uint32_t i = 0; i < j->result_count; i++)
        if (j->results[i].has_fit && (!best || j->results[i].weight_mj > best->weight_mj))
            best = &j->results[i];
    return best;
}

static pj_status fill_classes(joules *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    const rail_result *leading = main_rail(j);
    d->classes = pj_arena_alloc(&d->arena, tree->class_count, sizeof *d->classes);
    if (!d->classes) return pj_fail_memory(err, "the classes of a run");
    d->class_count = tree->class_count;
    for (uint32_t c = 0; c < tree->class_count; c++) {
        pj_class_row *row = &d->classes[c];
        *row = (pj_class_row){.phase = tree->classes[c].phase,
                              .flops = tree->classes[c].flops,
                              .bytes = tree->classes[c].bytes,
                              .power_mw = leading ? 0 : NAN,
                              .power_sd_mw = NAN,
                              .energy_mj = NAN,
                              .energy_sd_mj = NAN,
                              .data_share = leading ? leading->fit.data_share[c] : NAN};
        row->name = pj_arena_strndup(&d->arena, j->class_names[c], strlen(j->class_names[c]));
        if (!row->name) return pj_fail_memory(err, "the classes of a run");
        double variance = 0;
        for (uint32_t i = 0; i < j->result_count; i++) {
            const pj_fit *fit = &j->results[i].fit;
            if (!j->results[i].has_fit) continue;
            row->power_mw += fit->power_mw[c];
            variance += fit->covariance[(size_t)c * fit->class_count + c];
            row->truncated |= fit->truncated[c];
        }
        if (leading) row->power_sd_mw = sqrt(variance > 0 ? variance : 0);
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        pj_class_row *row = &d->classes[tree->leaves[i].class_];
        row->time_ms += (double)(tree->leaves[i].end_ns - tree->leaves[i].begin_ns) * 1e-6;
        if (j->gross[i] != PJ_NJ_UNKNOWN)
            row->energy_mj =
                (isnan(row->energy_mj) ? 0 : row->energy_mj) + (double)j->gross[i] * 1e-6;
    }
    for (uint32_t c = 0; c < d->class_count; c++)
        d->classes[c].energy_sd_mj = d->classes[c].power_sd_mw * d->classes[c].time_ms * 1e-3;
    return PJ_OK;
}

static double add_if_known(double sum, double value)
{
    return isnan(value) ? sum : (isnan(sum) ? 0 : sum) + value;
}

static pj_rail_energy rail_energy(const joules *j, uint32_t rail, uint8_t phase)
{
    pj_rail_energy row = {phase, (uint16_t)rail, NAN, NAN, NAN, NAN};
    const pj_tree *tree = j->tree;
    double baseline = j->d->baseline_mw[rail], ms = 0;
    for (uint32_t k = tree->child_begin[0]; k <= tree->child_begin[1]; k++) {
        bool whole = phase == PJ_PHASE_COUNT; /* the run: one interval, its own node */
        if (k == tree->child_begin[1] && !whole) break;
        const pj_node *node = &tree->nodes[whole ? 0 : tree->children[k]];
        if (!whole && node->phase != phase) continue;
        pj_curve_energy e;
        pj_curve_query(j->curves[rail], node->begin_ns, node->end_ns, &e);
        row.gross_mj = add_if_known(row.gross_mj, e.energy_mj);
        row.sd_mj = isnan(row.sd_mj) ? e.sd_mj : hypot(row.sd_mj, e.sd_mj);
        ms += (double)(node->end_ns - node->begin_ns) * 1e-6;
        if (whole) break;
    }
    for (uint32_t i = 0; i < j->result_count; i++) { /* as the rows have it, where it was shared */
        if (j->results[i].rail != rail) continue;
        double whole = 0;
        for (int p = 0; p < PJ_PHASE_COUNT; p++) whole += j->results[i].phase_mj[p];
        row.gross_mj = phase < PJ_PHASE_COUNT ? j->results[i].phase_mj[phase] : whole;
    }
    row.idle_mj = isnan(row.gross_mj) ? NAN : baseline * ms * 1e-3;
    row.net_mj = row.gross_mj - row.idle_mj;
    return row;
}

static pj_status fill_rail_energy(joules *j, pj_error *err)
{
    pj_run_data *d = j->d;
    bool present[PJ_PHASE_COUNT + 1] = {[PJ_PHASE_COUNT] = true};
    for (uint32_t k = j->tree->child_begin[0]; k < j->tree->child_begin[1]; k++)
        present[j->tree->nodes[j->tree->children[k]].phase] = true;
    d->rail_energy = pj_arena_alloc(&d->arena, (size_t)(PJ_PHASE_COUNT + 1) * d->rail_count,
                                    sizeof *d->rail_energy);
    if (!d->rail_energy) return pj_fail_memory(err, "the rails of a run");
    for (int p = 0; p <= PJ_PHASE_COUNT; p++)
        for (uint32_t r = 0; present[p] && r < d->rail_count; r++)
            d->rail_energy[d->rail_energy_count++] = rail_energy(j, r, (uint8_t)p);
    return PJ_OK;
}

/* What `calibrate` would bring: two seconds of a class alone are 2 s / period readings, each with
 * the noise that the evidence found (at least 0.2 %). Never worse than what there is. */
static double calibrated_interval(const joules *j, const rail_result *leading, double now)
{
    const pj_rail *rail = &j->d->rails[leading->rail];
    double period_s =
        (double)(rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns) * 1e-9;
    double readings = period_s > 0 ? 2 / period_s : 20;
    double noise = leading->fit.noise > 0.002 ? leading->fit.noise : 0.002;
    double then = 1.96 * noise / sqrt(readings > 1 ? readings : 1);
    return then < 0.001 ? fmin(now, 0.001) : fmin(now, then);
}

static void fill_attribution(joules *j, pj_run_info *info)
{
    const rail_result *leading = main_rail(j);
    info->condition_number = info->pj_per_flop = info->pj_per_flop_sd = NAN;
    info->pj_per_byte = info->pj_per_byte_sd = info->attribution_interval = NAN;
    info->attribution_interval_calibrated = info->calibration_gap = NAN;
    info->method = PJ_METHOD_NONE;
    if (!leading) return;
    double *flops = pj_alloc(j->tree->class_count, sizeof *flops);
    double *bytes = pj_alloc(j->tree->class_count, sizeof *bytes);
    for (uint32_t c = 0; flops && bytes && c < j->tree->class_count; c++) {
        flops[c] = j->tree->classes[c].flops;
        bytes[c] = j->tree->classes[c].bytes;
    }
    if (flops && bytes) {
        pj_unit_costs costs;
        pj_unit_costs_fit(&leading->fit, flops, bytes, &costs);
        info->pj_per_flop = costs.pj_per_flop;
        info->pj_per_flop_sd = costs.pj_per_flop_sd;
        info->pj_per_byte = costs.pj_per_byte;
        info->pj_per_byte_sd = costs.pj_per_byte_sd;
    }
    pj_free(flops);
    pj_free(bytes);
    info->method = j->replayed ? PJ_METHOD_REPLAY : PJ_METHOD_FIT;
    info->condition_number = leading->fit.condition_number;
    info->attribution_interval = pj_fit_interval(&leading->fit);
    info->attribution_interval_calibrated =
        j->replayed ? info->attribution_interval
                    : calibrated_interval(j, leading, info->attribution_interval);
    if (j->replayed && leading->fit.predicted_mj > 0)
        info->calibration_gap = leading->weight_mj / leading->fit.predicted_mj - 1;
}

static void fill_info(joules *j)
{
    pj_run_info *info = &j->d->info;
    const pj_energy *run = &j->nodes[0];
    info->total_mj = pj_mj_of_nj(run->gross_nj);
    info->net_mj = pj_mj_of_nj(run->net_nj);
    info->idle_mj = info->total_mj - info->net_mj;
    info->total_sd_mj = (double)run->sd_mj;
    info->prefill_mj = info->decode_mj = info->prefill_net_mj = info->decode_net_mj = NAN;
    for (uint32_t i = 0; i < j->d->phase_count; i++) {
        const pj_phase_row *row = &j->d->phases[i];
        bool prefill = row->phase == PJ_PHASE_PREFILL, decode = row->phase == PJ_PHASE_DECODE;
        double *gross = prefill ? &info->prefill_mj : &info->decode_mj;
        double *net = prefill ? &info->prefill_net_mj : &info->decode_net_mj;
        if (!prefill && !decode) continue;
        *gross = isnan(*gross) ? pj_mj_of_nj(row->energy.gross_nj)
                               : *gross + pj_mj_of_nj(row->energy.gross_nj);
        *net =
            isnan(*net) ? pj_mj_of_nj(row->energy.net_nj) : *net + pj_mj_of_nj(row->energy.net_nj);
    }
    if (isnan(info->total_mj) && isnan(info->prefill_mj) && isnan(info->decode_mj))
        info->quality = PJ_UNAVAILABLE;
    fill_attribution(j, info);
}

/* ---- all together -------------------------------------------------------------------------- */

static pj_status prepare(joules *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    j->class_names = pj_alloc(tree->class_count, sizeof *j->class_names);
    j->leaves = pj_alloc((size_t)tree->leaf_count + 2, sizeof *j->leaves);
    j->gross = pj_alloc(tree->leaf_count, sizeof *j->gross);
    j->net = pj_alloc(tree->leaf_count, sizeof *j->net);
    j->rail_gross = pj_alloc((size_t)tree->leaf_count + 2, sizeof *j->rail_gross);
    j->rail_net = pj_alloc((size_t)tree->leaf_count + 2, sizeof *j->rail_net);
    j->equal = pj_alloc(tree->class_count, sizeof *j->equal);
    j->nodes = pj_alloc(tree->node_count, sizeof *j->nodes);
    if (!j->class_names || !j->leaves || !j->gross || !j->net || !j->rail_gross || !j->rail_net ||
        !j->equal || !j->nodes)
        return pj_fail_memory(err, "the energies of a run");
    for (uint32_t c = 0; c < tree->class_count; c++) {
        pj_tree_class_name(tree, &tree->classes[c], j->class_names[c], sizeof *j->class_names);
        j->equal[c] = 1;
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++)
        j->leaves[i + 1] =
            (pj_leaf){tree->leaves[i].begin_ns, tree->leaves[i].end_ns, tree->leaves[i].class_};
    return PJ_OK;
}

static void release(joules *j)
{
    for (int r = 0; r < PJ_MAX_RAILS; r++) pj_curve_free(j->curves[r]);
    for (uint32_t i = 0; i < j->result_count; i++)
        if (j->results[i].has_fit) pj_fit_fini(&j->results[i].fit);
    pj_free(j->class_names);
    pj_free(j->sim_mw);
    pj_free(j->leaves);
    pj_free(j->gross);
    pj_free(j->net);
    pj_free(j->rail_gross);
    pj_free(j->rail_net);
    pj_free(j->equal);
    pj_free(j->nodes);
    pj_free(j->leaf_begin);
    pj_free(j->leaf_of);
}

pj_status pj_build_energy(const pj_tree *tree, const pj_readings *readings,
                          const pj_build_options *options, pj_run_data *data, pj_error *err)
{
    joules *j = pj_alloc(1, sizeof *j);
    if (!j) return pj_fail_memory(err, "the energies of a run");
    j->tree = tree;
    j->options = options;
    j->d = data;
    pj_status status = prepare(j, err);
    if (status == PJ_OK) status = make_curves(j, readings, err);
    if (status == PJ_OK) status = attribute_rails(j, err);
    if (status == PJ_OK) {
        sum_nodes(j);
        status = judge_all(j, err);
    }
    if (status == PJ_OK) {
        fill_rows(j);
        status = fill_idle(j, err);
    }
    if (status == PJ_OK) status = fill_classes(j, err);
    if (status == PJ_OK) status = fill_rail_energy(j, err);
    if (status == PJ_OK) status = pj_build_samples(tree, j->curves, data, err);
    if (status == PJ_OK) fill_info(j);
    release(j);
    pj_free(j);
    return status;
}
