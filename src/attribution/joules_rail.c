/* One rail: the fit of class powers over its windows, and its energy shared out over the leaves. */
#include "attribution/joules.h"

#include "power/meter.h"

#include <math.h>

/* Nanojoules in 64 bits hold nine gigajoules; what a foreign spool says beyond is unknown. */
#define MOST_MJ    4e12
#define LONGEST_NS (100000 * 1000000000LL)

#define USUAL_POWER_NOISE 0.005 /* of a reading: sensors on boards have 0.1 to 2 % */

static pj_status get_windows(const pj_joules *j, pj_rail_result *result, pj_window **windows,
                             size_t *count, pj_error *err)
{
    const pj_curve *curve = j->curves[result->rail];
    bool counter = j->d->rails[result->rail].kind == PJ_RAIL_COUNTER;
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
        double step_sd = isnan(seen[i].resolution_mj) ? 0 : seen[i].resolution_mj / sqrt(12);
        if (isnan(seen[i].energy_mj)) continue;
        if (result->begin_ns > seen[i].begin_ns) result->begin_ns = seen[i].begin_ns;
        if (result->end_ns < seen[i].end_ns) result->end_ns = seen[i].end_ns;
        (*windows)[(*count)++] = (pj_window){.begin_ns = seen[i].begin_ns,
                                             .end_ns = seen[i].end_ns,
                                             .energy_mj = seen[i].energy_mj,
                                             .sd_mj = counter ? 0 : step_sd,
                                             .shift_s = seen[i].shift_s,
                                             .reading_mj = counter ? step_sd : 0,
                                             .begin_s = seen[i].begin_s,
                                             .end_s = seen[i].end_s};
    }
    pj_free(seen);
    return PJ_OK;
}

/* The time cut where the sensor published: inside a piece only the fit knows how energy went. */
static pj_status get_segments(const pj_joules *j, const pj_rail_result *result,
                              pj_segment **segments, size_t *count, pj_error *err)
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
    double whole_mj = 0;
    for (size_t i = 0; i <= n; i++) {
        int64_t to = i < n ? points[i].end_ns : end;
        if (to > end) to = end;
        if (to <= begin) continue;
        double mj = pj_curve_energy_mj(curve, begin, to);
        whole_mj += isnan(mj) ? 0 : fabs(mj);
        bool sane = whole_mj < MOST_MJ && to - begin < LONGEST_NS;
        (*segments)[(*count)++] = (pj_segment){begin, to, sane ? mj : NAN};
        begin = to;
    }
    pj_free(points);
    return PJ_OK;
}

/* Does the time before and after the run, as far as windows reach, belong to leaves of its own. */
static void set_outside(pj_joules *j, const pj_rail_result *result)
{
    const pj_tree *tree = j->tree;
    uint32_t idle = tree->idle_class;
    tree->leaves[-1] = (pj_leaf){result->begin_ns, tree->begin_ns, idle, 0};
    tree->leaves[tree->leaf_count] = (pj_leaf){tree->end_ns, result->end_ns, idle, 0};
}

/* What is known of a class beforehand: a calibration's word, or that an idle machine draws its
 * baseline and nothing above it. */
static pj_class_prior prior_of(pj_joules *j, uint32_t rail, uint32_t class_)
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

static pj_status fit_rail(pj_joules *j, pj_rail_result *result, const pj_window *windows,
                          size_t count, const pj_curve_energy *total, pj_error *err)
{
    const pj_tree *tree = j->tree;
    bool counter = j->d->rails[result->rail].kind == PJ_RAIL_COUNTER;
    pj_class_prior *priors = pj_alloc(tree->class_count, sizeof *priors);
    if (!priors) return pj_fail_memory(err, "the priors of a fit");
    for (uint32_t c = 0; c < tree->class_count; c++) priors[c] = prior_of(j, result->rail, c);
    pj_fit_input input = {.windows = windows,
                          .window_count = count,
                          .leaves = tree->leaves - 1,
                          .leaf_count = (size_t)tree->leaf_count + 2,
                          .class_count = tree->class_count,
                          .idle_mw = j->d->baseline_mw[result->rail],
                          .total_mj = total->energy_mj,
                          .total_sd_mj =
                              hypot(counter ? 0 : total->random_sd_mj, total->bias_sd_mj),
                          .begin_ns = result->begin_ns,
                          .end_ns = result->end_ns,
                          .priors = priors,
                          .usual_noise = counter ? 0 : USUAL_POWER_NOISE};
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

/* Energies of leaves and of the two outside them, index -1 on. NULL: no memory. */
static int64_t *new_energies(const pj_joules *j)
{
    int64_t *all = pj_alloc((size_t)j->tree->leaf_count + 2, sizeof *all);
    return all ? all + 1 : NULL;
}

void pj_joules_free_energies(int64_t *energies)
{
    if (energies) pj_free(energies - 1);
}

/* The first rail's share is the sum so far; those of further rails are added to it. */
static void measure_misfit(pj_rail_result *result, const pj_segment *segments, size_t count,
                           double *measured_mj, double *expected_mj)
{
    int64_t known_ns = 0;
    for (size_t i = 0; i < count; i++) {
        measured_mj[i] = segments[i].energy_mj;
        known_ns += segments[i].end_ns - segments[i].begin_ns;
    }
    if (result->has_fit && count > 0)
        pj_misfit_measure(measured_mj, expected_mj, count, known_ns, result->fit.noise,
                          &result->misfit);
}

static pj_status share_rail(pj_joules *j, pj_rail_result *result, const pj_segment *segments,
                            size_t count, pj_error *err)
{
    const pj_tree *tree = j->tree;
    bool is_first = result == j->results;
    double idle_mw = j->d->baseline_mw[result->rail];
    if (!is_first && !j->rail_gross) j->rail_gross = new_energies(j);
    if (!is_first && !j->rail_net) j->rail_net = new_energies(j);
    int64_t *gross = is_first ? j->gross : j->rail_gross, *net = is_first ? j->net : j->rail_net;
    double *expected_mj = pj_alloc(2 * count, sizeof *expected_mj);
    if (!gross || !net || !expected_mj) {
        pj_free(expected_mj);
        return pj_fail_memory(err, "the energies of a run");
    }
    pj_share_result shared = {.gross_nj = gross - 1, .net_nj = net - 1, .expected_mj = expected_mj};
    pj_share_run(segments, count, tree->leaves - 1, (size_t)tree->leaf_count + 2,
                 result->has_fit ? result->fit.power_mw : j->equal, idle_mw, &shared);
    measure_misfit(result, segments, count, expected_mj + count, expected_mj);
    pj_free(expected_mj);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        double *phase_mj = &result->phase_mj[tree->classes[tree->leaves[i].class_].phase];
        *phase_mj += pj_mj_of_nj(gross[i]);
        if (isnan(idle_mw)) net[i] = PJ_NJ_UNKNOWN;
        if (is_first) continue;
        pj_nj_add(&j->gross[i], gross[i]);
        pj_nj_add(&j->net[i], net[i]);
    }
    return PJ_OK;
}

static pj_status attribute_rail(pj_joules *j, uint32_t rail, pj_error *err)
{
    pj_rail_result *result = &j->results[j->result_count++];
    *result =
        (pj_rail_result){.rail = rail, .begin_ns = j->tree->begin_ns, .end_ns = j->tree->end_ns};
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
    if (status == PJ_OK) status = share_rail(j, result, segments, segment_count, err);
    pj_free(windows);
    pj_free(segments);
    return status;
}

/* Rails of the total: those that know the whole run; when none does, all of them, so that what was
 * known before a sensor died stays known. */
pj_status pj_joules_rails(pj_joules *j, pj_error *err)
{
    pj_run_data *d = j->d;
    bool in_total[PJ_MAX_RAILS], whole[PJ_MAX_RAILS], any = false, any_whole = false;
    j->gross = new_energies(j);
    j->net = new_energies(j);
    if (!j->gross || !j->net) return pj_fail_memory(err, "the energies of a run");
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
        bool use = any_whole ? whole[r] : in_total[r];
        if (in_total[r]) *(use ? &j->used_rails : &j->missing_rails) |= 1ull << r;
        pj_status status = use ? attribute_rail(j, r, err) : PJ_OK;
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}
