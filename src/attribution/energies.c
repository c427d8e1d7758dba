/*
 * Energies of a run, from spans and sensor readings. For every rail that counts in the total: an
 * energy curve from its readings, a fit of class powers over its windows, and the measured energy
 * distributed over the run's leaves in integer nanojoules. Then sums, bottom up, so that parts add
 * up exactly at every level.
 *
 * Energy that no window observed is unavailable, with an upper bound. This is decided for the run
 * as a whole, from the share of it that windows covered and from its propagated interval. If the
 * run's energy is known, its parts keep their intervals, however wide.
 */
#include "attribution/energies.h"

#include "base/memory.h"

#include <math.h>

/* Share of a run that windows must have covered. A run shorter than the sensor's period needs
 * nearly full coverage, since no similar work elsewhere in the run indicates what the rest took. */
#define LEAST_OBSERVED       0.1
#define LEAST_OBSERVED_SHORT 0.9

/* ---- sums, bottom up ---- */

static void start_node(pj_energy *node, bool known, bool has_planted)
{
    int64_t zero = known ? 0 : PJ_NJ_UNKNOWN;
    *node = PJ_ENERGY_UNKNOWN;
    node->gross_nj = node->net_nj = node->self_nj = zero;
    node->planted_nj = has_planted ? 0 : PJ_NJ_UNKNOWN;
}

/* Whether a leaf counts in a span around it. The run's total is the sum of what was measured, even
 * where a device without a rail computed: it is partial. */
static bool is_charged(const pj_energies *j, uint32_t leaf, uint32_t node)
{
    return node != 0 || j->d->device_count == 0 || j->gross[leaf] != PJ_NJ_UNKNOWN ||
           j->measured >> pj_tree_leaf_device(j->tree, &j->tree->leaves[leaf]) & 1;
}

/* Adds a leaf's energy to every enclosing span, except those that are charged only for their own
 * time (pj_tree_stands_apart); `apart` has the kinds that are not charged to a kind, a bit each. */
static void add_upwards(pj_energies *j, uint32_t leaf, int64_t planted_nj, const uint32_t *apart)
{
    const pj_tree *tree = j->tree;
    uint32_t below = 0; /* kinds on the way, a bit each */
    for (uint32_t at = tree->leaves[leaf].node;; at = tree->nodes[at].parent) {
        uint8_t kind = tree->nodes[at].kind;
        pj_energy *node = pj_energy_of(j, at);
        if (!(below & apart[kind]) && is_charged(j, leaf, at)) {
            pj_nj_add(&node->gross_nj, j->gross[leaf]);
            pj_nj_add(&node->net_nj, j->net[leaf]);
            pj_nj_add(&node->planted_nj, planted_nj);
        }
        if (at == 0) return;
        below |= 1u << kind;
    }
}

/* Spans of which no leaf counts have no energy. */
static pj_status forget_unmeasured(pj_energies *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    if (j->d->device_count == 0) return PJ_OK;
    bool *counts = pj_alloc(tree->node_count, sizeof *counts);
    if (!counts) return pj_fail_memory(err, "the energies of a run");
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        if (!pj_energy_counts(j, i)) continue;
        for (uint32_t at = tree->leaves[i].node; !counts[at]; at = tree->nodes[at].parent)
            counts[at] = true;
    }
    for (uint32_t i = 1; i < tree->node_count; i++)
        if (!counts[i]) start_node(pj_energy_of(j, i), false, false);
    pj_free(counts);
    return PJ_OK;
}

static void sum_nodes(pj_energies *j)
{
    const pj_tree *tree = j->tree;
    uint32_t apart[PJ_NODE_ROOT + 1] = {0};
    bool has_planted = pj_energy_has_planted(j);
    for (int outer = 0; tree->nested && outer < PJ_SPAN_KIND_COUNT; outer++)
        for (int inner = 0; inner < PJ_SPAN_KIND_COUNT; inner++)
            if (pj_tree_stands_apart(outer, inner)) apart[outer] |= 1u << inner;
    for (uint32_t i = 0; i < tree->node_count; i++)
        start_node(pj_energy_of(j, i), j->result_count > 0, has_planted);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_leaf *leaf = &tree->leaves[i];
        if (!pj_energy_counts(j, i)) continue;
        if (is_charged(j, i, leaf->node))
            pj_nj_add(&pj_energy_of(j, leaf->node)->self_nj, j->gross[i]);
        add_upwards(j, i, has_planted ? pj_energy_planted(j, leaf) : PJ_NJ_UNKNOWN, apart);
    }
    for (uint32_t i = 0; i < tree->node_count; i++) { /* of an unknown energy nothing is zero */
        pj_energy *node = pj_energy_of(j, i);
        if (node->gross_nj == PJ_NJ_UNKNOWN && node->self_nj == 0) node->self_nj = PJ_NJ_UNKNOWN;
    }
}

/* ---- rails ---- */

static pj_status energies_prepare(pj_energies *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    size_t leaves = tree->leaf_count;
    j->class_names = pj_arena_alloc(&j->arena, tree->class_count, sizeof *j->class_names);
    j->gross = pj_arena_alloc(&j->arena, leaves, sizeof *j->gross);
    j->net = pj_arena_alloc(&j->arena, leaves, sizeof *j->net);
    j->rail_gross = pj_arena_alloc(&j->arena, leaves + 2, sizeof *j->rail_gross);
    j->rail_net = pj_arena_alloc(&j->arena, leaves + 2, sizeof *j->rail_net);
    if (!j->class_names || !j->gross || !j->net || !j->rail_gross || !j->rail_net)
        return pj_fail_memory(err, "the energies of a run");
    for (uint32_t c = 0; c < tree->class_count; c++)
        pj_tree_class_name(tree, &tree->classes[c], j->class_names[c], sizeof *j->class_names);
    return pj_energy_pool(j, err);
}

/* Whether what computed the run has a rail. Our own engine computes on the CPU, unless it names
 * devices; where other engines do is not known. */
static bool has_device_rail(const pj_energies *j)
{
    const pj_run_data *d = j->d;
    if (d->device_count) return true; /* energy_devices.c says which has one */
    if (!d->info.engine || strcmp(d->info.engine, "perjoule") != 0) return true;
    for (uint32_t r = 0; r < d->rail_count; r++)
        if (pj_rail_covers_cpu(&d->rails[r])) return true;
    return d->rail_count == 0;
}

/* Rails of the total: those that cover the whole run; if none does, all of them, so that energy
 * known before a sensor died stays known. Without a rail of the device that computed, there is no
 * total: what other devices drew meanwhile is not the run's. */
static pj_status attribute_rails(pj_energies *j, pj_error *err)
{
    pj_run_data *d = j->d;
    bool in_total[PJ_MAX_RAILS], whole[PJ_MAX_RAILS], any = false, any_whole = false;
    j->no_device = !has_device_rail(j);
    for (uint32_t r = 0; r < d->rail_count; r++) {
        in_total[r] = !j->no_device && j->measured & j->rail_devices[r] &&
                      pj_rail_in_column(d->rails, d->rail_count, r, PJ_RAIL_TOTAL);
        whole[r] = in_total[r] &&
                   !isnan(pj_curve_energy_mj(j->curves[r], j->tree->begin_ns, j->tree->end_ns));
        any |= in_total[r];
        any_whole |= whole[r];
    }
    for (uint32_t i = 0; i < j->tree->leaf_count; i++) {
        bool known = any && j->measured >> pj_tree_leaf_device(j->tree, &j->tree->leaves[i]) & 1;
        j->gross[i] = j->net[i] = known ? 0 : PJ_NJ_UNKNOWN;
    }
    for (uint32_t r = 0; r < d->rail_count; r++) {
        bool use = any_whole ? whole[r] : in_total[r];
        if (in_total[r]) *(use ? &j->used_rails : &j->missing_rails) |= 1ull << r;
        pj_status status = use ? pj_energy_rail(j, r, err) : PJ_OK;
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

/* ---- unobserved energy ---- */

/* Upper bound of what the rails can draw, NAN where some rail has none. */
static double energies_most_mw(const pj_energies *j)
{
    double sum = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        double most = j->d->rails[j->results[i].rail].max_mw;
        sum += most > 0 ? most : NAN;
    }
    return sum;
}

static void energies_withdraw(pj_energies *j, pj_energy *e, double ms, bool observed)
{
    double bound_mj = energies_most_mw(j) * ms * 1e-3;
    if (observed) bound_mj = fmin(bound_mj, pj_mj_of_nj(e->gross_nj) + 1.96 * (double)e->sd_mj);
    int64_t planted_nj = e->planted_nj;
    *e = PJ_ENERGY_UNKNOWN;
    e->planted_nj = planted_nj;
    e->upper_mj = (float)bound_mj;
    e->absence = PJ_ABSENT_BELOW_RESOLUTION;
}

/* Whether a run is so short that its energy depends on when the sensor sampled, and that is not
 * evident from the readings. Which part of its window is the run's then depends on the window, too:
 * a declaration is not enough, since only the edges of a longer run confirm it. */
static bool may_be_missed(const pj_energies *j, const pj_rail_result *result, int64_t run_ns)
{
    const pj_rail *rail = &j->d->rails[result->rail];
    if (!result->certain)
        return run_ns < 2 * (rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns);
    if (result->settled) return false;
    return run_ns < (rail->window_ns > 0 ? rail->window_ns : 2 * result->period_ns);
}

/* Whether the rails covered enough of the run. A run with few readings, none of which stands out,
 * may have been missed altogether. */
static bool is_observed(const pj_energies *j)
{
    int64_t run_ns = j->tree->end_ns - j->tree->begin_ns;
    double net_mj = pj_mj_of_nj(j->run.net_nj);
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_rail_result *result = &j->results[i];
        bool is_short = run_ns < j->d->rails[result->rail].period_ns;
        if (result->observed < (is_short ? LEAST_OBSERVED_SHORT : LEAST_OBSERVED)) return false;
        const pj_rail *rail = &j->d->rails[result->rail];
        if (may_be_missed(j, result, run_ns)) return false;
        if (is_short && pj_rail_sees_part(rail) && net_mj < 3 * (double)j->run.net_sd_mj)
            return false;
    }
    return true;
}

static void check_resolution(pj_energies *j)
{
    const pj_tree *tree = j->tree;
    double run_mj = pj_mj_of_nj(j->run.gross_nj);
    bool observed = is_observed(j);
    if (j->result_count == 0 || isnan(run_mj)) {
        j->run.absence = j->result_count ? PJ_ABSENT_SENSOR_GAP : PJ_ABSENT_NO_SENSOR;
        return;
    }
    /* not the gain, which is as uncertain however long the run */
    double resolved_sd_mj = hypot((double)j->run.sd.random_mj, (double)j->run.sd.bias_mj);
    if (observed && 1.96 * resolved_sd_mj <= fabs(run_mj)) return;
    j->below_resolution = true;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const pj_node *node = &tree->nodes[i];
        energies_withdraw(j, pj_energy_of(j, i), (double)(node->end_ns - node->begin_ns) * 1e-6,
                          observed);
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++) j->gross[i] = j->net[i] = PJ_NJ_UNKNOWN;
}

/* A run that used less than an idle machine, by two standard deviations, refutes the idle power
 * that was measured: it has changed since, and net figures are unknown. */
static void check_idle(pj_energies *j)
{
    const pj_energy *run = &j->run;
    if (run->net_nj == PJ_NJ_UNKNOWN ||
        !pj_net_is_refuted(pj_mj_of_nj(run->net_nj), run->net_sd_mj))
        return;
    j->idle_moved = true;
    for (uint32_t i = 0; i < j->tree->node_count; i++) {
        pj_energy *e = pj_energy_of(j, i);
        e->net_nj = PJ_NJ_UNKNOWN;
        e->net_sd_mj = NAN;
        e->net_sd = PJ_SD_UNKNOWN;
    }
    for (uint32_t i = 0; i < j->tree->leaf_count; i++) j->net[i] = PJ_NJ_UNKNOWN;
}

pj_status pj_energy_new(const pj_tree *tree, const pj_readings *readings,
                        const pj_build_options *options, pj_run_data *data, pj_energies **joules,
                        pj_error *err)
{
    pj_energies *j = *joules = pj_alloc(1, sizeof *j);
    if (!j) return pj_fail_memory(err, "the energies of a run");
    pj_arena_init(&j->arena, 0);
    j->tree = tree;
    j->options = options;
    j->d = data;
    pj_status status = energies_prepare(j, err);
    if (status == PJ_OK) status = pj_energy_devices(j, err);
    if (status == PJ_OK) status = pj_energy_curves(j, readings, err);
    if (status == PJ_OK) status = pj_energy_check(j, err);
    if (status == PJ_OK) status = pj_energy_overlaps(j, err);
    if (status == PJ_OK) status = attribute_rails(j, err);
    return status;
}

pj_status pj_energy_fill(pj_energies *j, pj_error *err)
{
    sum_nodes(j);
    pj_status status = forget_unmeasured(j, err);
    if (status == PJ_OK) status = pj_energy_check_total(j, err);
    if (status == PJ_OK) check_resolution(j);
    if (status == PJ_OK) check_idle(j);
    if (status == PJ_OK) status = pj_energy_rows(j, err);
    if (status == PJ_OK) status = pj_energy_of_run(j, err);
    if (status == PJ_OK) status = pj_energy_of_devices(j, err);
    if (status == PJ_OK) status = pj_energy_report(j, err);
    if (status == PJ_OK)
        status = pj_build_samples(j->tree, j->curves, j->options->shares, j->d, err);
    return status;
}

void pj_energy_free(pj_energies *j)
{
    if (!j) return;
    for (int r = 0; r < PJ_MAX_RAILS; r++) {
        pj_curve_free(j->curves[r]);
        pj_curve_free(j->steps[r]);
    }
    for (uint32_t i = 0; i < j->result_count; i++) pj_energy_rail_fini(&j->results[i]);
    pj_arena_fini(&j->arena);
    pj_free(j);
}
