/* Ground truth and readings of simulated rails, and the energy curves of every rail. */
#include "attribution/energies.h"

#include "base/memory.h"
#include "power/coarsen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_NS = 500000 };

static bool is_simulated(const pj_energies *j, uint32_t rail)
{
    return j->options->sim && strcmp(j->d->rails[rail].source, "sim") == 0;
}

static bool plant_powers(pj_energies *j)
{
    const pj_tree *tree = j->tree;
    j->sim_mw = pj_arena_alloc(&j->arena, tree->class_count, sizeof *j->sim_mw);
    for (uint32_t c = 0; j->sim_mw && c < tree->class_count; c++)
        j->sim_mw[c] = tree->classes[c].phase == PJ_PHASE_IDLE ||
                               (tree->classes[c].device && pj_tree_class_is_idle(&tree->classes[c]))
                           ? 0
                           : pj_sim_class_mw(j->options->sim, j->class_names[c],
                                             (pj_phase)tree->classes[c].phase);
    return j->sim_mw != NULL;
}

/* True net power of a leaf of the tree. */
static double leaf_mw(const pj_energies *j, const pj_leaf *leaf)
{
    const pj_tree *tree = j->tree;
    double middle = 0.5 * (double)(leaf->begin_ns + leaf->end_ns - 2 * tree->begin_ns);
    return pj_sim_leaf_mw(j->options->sim, j->sim_mw[leaf->class_], (uint32_t)(leaf - tree->leaves),
                          middle / (double)(tree->end_ns - tree->begin_ns + 1));
}

typedef struct edge {
    int64_t at_ns;
    double change_mw;
} edge;

static int energy_truth_by_time(const void *a, const void *b)
{
    int64_t x = ((const edge *)a)->at_ns, y = ((const edge *)b)->at_ns;
    return x < y ? -1 : x > y;
}

/* Whether several leaves that a rail measures may be active at one time. */
static bool may_overlap(const pj_energies *j, uint64_t devices)
{
    return j->tree->overlaps || (devices & (devices - 1)) != 0;
}

/* The truth behind the simulated rails of the same devices. */
typedef struct simulation {
    uint64_t devices;
    pj_sim_segment *segments;
    size_t count;
} simulation;

/* Shares of a rail that the simulation divides the truth of its devices by: those of all rails of
 * these devices, of which none contains another. Without devices 1. */
static double truth_shares(const pj_energies *j, uint64_t devices)
{
    const pj_run_data *d = j->d;
    double sum = 0;
    uint32_t sim_rail = 0;
    if (j->tree->device_count == 1) return 1;
    for (uint32_t r = 0; r < d->rail_count; r++) {
        if (!is_simulated(j, r)) continue;
        const pj_sim_rail *sim = &j->options->sim->rails[sim_rail++];
        int parent = d->rails[r].parent;
        bool contained = parent >= 0 && j->rail_devices[parent] == devices;
        if (j->rail_devices[r] == devices && !contained) sum += sim->share;
    }
    return sum > 0 ? sum : 1;
}

/* Leaves that do not overlap give one segment each. */
static void make_segments(const pj_energies *j, double shares, simulation *t)
{
    const pj_tree *tree = j->tree;
    for (size_t i = 0; i < tree->leaf_count; i++)
        if (t->devices >> pj_tree_leaf_device(tree, &tree->leaves[i]) & 1)
            t->segments[t->count++] =
                (pj_sim_segment){tree->leaves[i].begin_ns, tree->leaves[i].end_ns,
                                 leaf_mw(j, &tree->leaves[i]) / shares};
}

static size_t list_edges(const pj_energies *j, uint64_t devices, double shares, edge *edges)
{
    const pj_tree *tree = j->tree;
    size_t used = 0;
    for (size_t i = 0; i < tree->leaf_count; i++) {
        if (!(devices >> pj_tree_leaf_device(tree, &tree->leaves[i]) & 1)) continue;
        double mw = leaf_mw(j, &tree->leaves[i]) / shares;
        edges[used++] = (edge){tree->leaves[i].begin_ns, mw};
        edges[used++] = (edge){tree->leaves[i].end_ns, -mw};
    }
    qsort(edges, used, sizeof *edges, energy_truth_by_time);
    return used;
}

/* Leaves of several threads, queues or devices need a sweep: the sum of the active ones. */
static bool sweep_segments(const pj_energies *j, double shares, simulation *t)
{
    edge *edges = pj_alloc(2 * (size_t)j->tree->leaf_count, sizeof *edges);
    if (!edges) return false;
    size_t used = list_edges(j, t->devices, shares, edges);
    double mw = 0;
    for (size_t i = 0; i + 1 < used; i++) {
        mw += edges[i].change_mw;
        if (edges[i + 1].at_ns > edges[i].at_ns)
            t->segments[t->count++] =
                (pj_sim_segment){edges[i].at_ns, edges[i + 1].at_ns, mw > 0 ? mw : 0};
    }
    pj_free(edges);
    return true;
}

/* Net power over time of the devices that a rail measures. */
static bool make_truth(const pj_energies *j, uint64_t devices, simulation *t)
{
    double shares = truth_shares(j, devices);
    pj_free(t->segments);
    *t = (simulation){.devices = devices};
    t->segments = pj_alloc(2 * (size_t)j->tree->leaf_count + 1, sizeof *t->segments);
    if (!t->segments) return false;
    if (may_overlap(j, devices)) return sweep_segments(j, shares, t);
    make_segments(j, shares, t);
    return true;
}

static pj_status energy_truth_feed(const pj_energies *j, uint32_t rail, const pj_reading *readings,
                                   size_t count, pj_error *err)
{
    pj_status status = PJ_OK;
    for (size_t i = 0; i < count && status == PJ_OK; i++) {
        status = pj_curve_add(j->curves[rail], &readings[i], err);
        if (status == PJ_OK && j->steps[rail])
            status = pj_curve_add(j->steps[rail], &readings[i], err);
    }
    return status;
}

/* Coarsens simulated readings to the rail's period: `--interval`, if it is the longer one. */
static pj_status feed_coarsened(const pj_energies *j, uint32_t rail, const pj_rail *sensor,
                                const pj_reading *readings, size_t count, pj_error *err)
{
    pj_coarsen coarsen;
    pj_reading out[PJ_COARSEN_MOST];
    pj_status status = PJ_OK;
    pj_coarsen_init(&coarsen, sensor, true, j->d->rails[rail].period_ns);
    if (!coarsen.active) return energy_truth_feed(j, rail, readings, count, err);
    for (size_t i = 0; i < count && status == PJ_OK; i++)
        status = energy_truth_feed(j, rail, out,
                                   (size_t)pj_coarsen_take(&coarsen, &readings[i], out), err);
    if (status != PJ_OK || count == 0) return status;
    int64_t seen_ns = readings[count - 1].fresh_ns;
    return energy_truth_feed(j, rail, out, (size_t)pj_coarsen_flush(&coarsen, seen_ns, out), err);
}

static pj_status feed_simulated(pj_energies *j, uint32_t rail, uint32_t sim_rail,
                                const pj_sim_segment *truth, size_t count, pj_error *err)
{
    const pj_rail *r = &j->d->rails[rail];
    const pj_sim_spec *sim = j->options->sim;
    int64_t margin = 3 * (r->period_ns + r->window_ns + r->delay_ns + r->lag_ns + sim->window_ns +
                          sim->delay_ns + sim->lag_ns) +
                     100000000;
    pj_reading *readings;
    size_t n;
    pj_status status =
        pj_sim_read(j->options->sim, sim_rail, truth, count, j->tree->begin_ns - margin,
                    j->tree->end_ns + margin, &readings, &n, err);
    if (status != PJ_OK) return status;
    pj_rail sensors[PJ_SIM_MAX_RAILS];
    pj_sim_rails(sim, sensors, PJ_SIM_MAX_RAILS);
    status = feed_coarsened(j, rail, &sensors[sim_rail], readings, n, err);
    pj_free(readings);
    return status;
}

/* Whether a counter's steps may not be what its periods used: its sensor sees a part of each, or
 * the periods are so long that an undeclared delay would show. Where a log shows how its energy was
 * distributed, there is nothing to infer from them. */
static bool may_be_power(const pj_energies *j, uint32_t index)
{
    const pj_rail *rail = &j->d->rails[index];
    if (pj_rail_log_of(j->d->rails, j->d->rail_count, index) >= 0) return false;
    if (pj_rail_steps_are_power(rail)) return true;
    return rail->kind == PJ_RAIL_COUNTER && rail->window_ns > 0 && rail->period_ns >= SLOW_NS &&
           !j->options->trusted;
}

static pj_status energy_truth_new_curves(pj_energies *j, uint32_t rail, pj_error *err)
{
    const pj_rail *r = &j->d->rails[rail];
    bool as_power = may_be_power(j, rail);
    j->curves[rail] = pj_curve_new(r);
    if (as_power) j->steps[rail] = pj_curve_new_of_steps(r);
    return j->curves[rail] && (!as_power || j->steps[rail])
               ? PJ_OK
               : pj_fail_memory(err, "an energy curve");
}

static pj_status feed_rail(pj_energies *j, uint32_t rail, const pj_readings *readings,
                           simulation *t, pj_error *err)
{
    if (!is_simulated(j, rail))
        return energy_truth_feed(j, rail, readings->items + readings->begin[rail],
                                 readings->begin[rail + 1] - readings->begin[rail], err);
    uint32_t sim_rail = 0;
    for (uint32_t r = 0; r < rail; r++) sim_rail += is_simulated(j, r);
    if ((!j->sim_mw && !plant_powers(j)) ||
        (t->devices != j->rail_devices[rail] && !make_truth(j, j->rail_devices[rail], t)))
        return pj_fail_memory(err, "the simulated truth");
    return feed_simulated(j, rail, sim_rail, t->segments, t->count, err);
}

pj_status pj_energy_curves(pj_energies *j, const pj_readings *readings, pj_error *err)
{
    pj_run_data *d = j->d;
    simulation t = {0};
    pj_status status = PJ_OK;
    for (uint32_t r = 0; r < d->rail_count && status == PJ_OK; r++)
        status = energy_truth_new_curves(j, r, err);
    if (status == PJ_OK) pj_curves_link(j->curves, d->rails, d->rail_count);
    for (int logs = 1; logs >= 0; logs--) /* logs before the counters that follow them */
        for (uint32_t r = 0; r < d->rail_count && status == PJ_OK; r++) {
            if ((d->rails[r].log_ns > 0) != (logs == 1)) continue;
            status = feed_rail(j, r, readings, &t, err);
            if (status == PJ_OK) status = pj_curve_finish(j->curves[r], err);
            if (status == PJ_OK && j->steps[r]) status = pj_curve_finish(j->steps[r], err);
        }
    pj_free(t.segments);
    return status;
}

/* Whether the simulated energy of every leaf is known: of leaves that one rail measures at one time
 * the idle power can only be divided by a rule. */
bool pj_energy_has_planted(const pj_energies *j)
{
    uint64_t all = j->tree->devices | 1ull << PJ_HOST;
    bool known = j->sim_mw && !j->tree->overlaps && (j->measured & all) == all;
    for (uint32_t r = 0; r < j->d->rail_count; r++)
        known &= !(j->used_rails >> r & 1) || !may_overlap(j, j->rail_devices[r]);
    return known;
}

/* Simulated energy of a leaf, summed over all rails of the simulation. mW x ns = pJ. */
int64_t pj_energy_planted(const pj_energies *j, const pj_leaf *leaf)
{
    double ns = (double)(leaf->end_ns - leaf->begin_ns);
    uint64_t device = 1ull << pj_tree_leaf_device(j->tree, leaf);
    double idle_mw = j->options->sim->idle_mw * truth_shares(j, device);
    return llround((leaf_mw(j, leaf) + idle_mw) * ns * 1e-3);
}
