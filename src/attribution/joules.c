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
#include "attribution/joules.h"

#include "base/thread.h"
#include "power/meter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE_NODES = 20000 };

/* ---- truth and readings of simulated rails -------------------------------------------------
 */

static bool is_simulated(const pj_joules *j, uint32_t rail)
{
    return j->options->sim && strcmp(j->d->rails[rail].source, "sim") == 0;
}

static bool plant_powers(pj_joules *j)
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
static pj_sim_segment *make_truth(const pj_joules *j, size_t *count)
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

static pj_status feed_simulated(pj_joules *j, uint32_t rail, uint32_t sim_rail,
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

static pj_status make_curves(pj_joules *j, const pj_readings *readings, pj_error *err)
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

/* ---- sums, bottom up ----------------------------------------------------------------------- */

/* Planted energy of a leaf: all rails of a simulation together. mW x ns = pJ. */
int64_t pj_joules_planted(const pj_joules *j, const pj_leaf *leaf)
{
    double ns = (double)(leaf->end_ns - leaf->begin_ns);
    return llround((j->sim_mw[leaf->class_] + j->options->sim->idle_mw) * ns * 1e-3);
}

static void start_node(pj_energy *node, bool known, bool has_planted)
{
    int64_t zero = known ? 0 : PJ_NJ_UNKNOWN;
    *node = PJ_ENERGY_UNKNOWN;
    node->gross_nj = node->net_nj = node->self_nj = zero;
    node->planted_nj = has_planted ? 0 : PJ_NJ_UNKNOWN;
}

/* A batch's step has several rows; until it is shared out, all of it is the first one's. */
pj_energy *pj_joules_of(pj_joules *j, uint32_t index)
{
    const pj_node *node = &j->tree->nodes[index];
    switch (node->kind) {
    case PJ_SPAN_PHASE: return &j->d->phases[node->row].energy;
    case PJ_SPAN_SECTION: return &j->d->sections[node->row].energy;
    case PJ_SPAN_TOKEN: return &j->d->tokens[node->row].energy;
    case PJ_SPAN_LAYER: return &j->d->layers[node->row].energy;
    case PJ_SPAN_COMPONENT: return &j->d->components[node->row].energy;
    case PJ_SPAN_OPERATION: return &j->d->operations[node->row].energy;
    default: return &j->run;
    }
}

static void sum_children(pj_joules *j, uint32_t index)
{
    const pj_tree *tree = j->tree;
    pj_energy *node = pj_joules_of(j, index);
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++) {
        const pj_energy *child = pj_joules_of(j, tree->children[k]);
        sum_children(j, tree->children[k]);
        pj_nj_add(&node->gross_nj, child->gross_nj);
        pj_nj_add(&node->net_nj, child->net_nj);
        pj_nj_add(&node->planted_nj, child->planted_nj);
    }
}

/* A leaf's energy to every span around it but those that keep only what is their own. */
static void add_upwards(pj_joules *j, uint32_t leaf, int64_t planted_nj)
{
    const pj_tree *tree = j->tree;
    uint32_t below = 0; /* kinds on the way, a bit each */
    for (uint32_t at = tree->leaves[leaf].node;; at = tree->nodes[at].parent) {
        pj_energy *node = pj_joules_of(j, at);
        bool owns = true;
        for (uint32_t kind = 0; kind < PJ_SPAN_KIND_COUNT; kind++)
            owns &=
                !(below >> kind & 1 && pj_tree_stands_apart(tree->nodes[at].kind, (uint8_t)kind));
        if (owns) {
            pj_nj_add(&node->gross_nj, j->gross[leaf]);
            pj_nj_add(&node->net_nj, j->net[leaf]);
            pj_nj_add(&node->planted_nj, planted_nj);
        }
        if (at == 0) return;
        below |= 1u << tree->nodes[at].kind;
    }
}

static void sum_nodes(pj_joules *j)
{
    const pj_tree *tree = j->tree;
    bool has_planted = j->sim_mw && !tree->overlaps;
    for (uint32_t i = 0; i < tree->node_count; i++)
        start_node(pj_joules_of(j, i), j->result_count > 0, has_planted);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_leaf *leaf = &tree->leaves[i];
        pj_energy *node = pj_joules_of(j, leaf->node);
        int64_t planted_nj = has_planted ? pj_joules_planted(j, leaf) : PJ_NJ_UNKNOWN;
        pj_nj_add(&node->self_nj, j->gross[i]);
        if (tree->nested) {
            add_upwards(j, i, planted_nj);
            continue;
        }
        pj_nj_add(&node->gross_nj, j->gross[i]);
        pj_nj_add(&node->net_nj, j->net[i]);
        pj_nj_add(&node->planted_nj, planted_nj);
    }
    if (!tree->nested) sum_children(j, 0);
}

/* ---- uncertainty and method ---------------------------------------------------------------- */

double pj_joules_curve_sd_mj(const pj_joules *j, int64_t begin_ns, int64_t end_ns)
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
static double common_sd(const pj_joules *j)
{
    double variance = 0, total = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_rail_result *result = &j->results[i];
        pj_curve_energy e;
        pj_curve_query(j->curves[result->rail], result->begin_ns, result->end_ns, &e);
        if (isnan(e.energy_mj)) continue;
        variance += e.sd_mj * e.sd_mj;
        total += e.energy_mj;
    }
    return total > 0 ? sqrt(variance) / total : 0;
}

/* 1 sigma in mJ of a part that spent times[c] ms in class c: the covariance of the fit. */
static double fit_sd_mj(const pj_joules *j, const uint32_t *classes, const double *times_ms,
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

static void add_class_time(class_times *t, const pj_leaf *leaf)
{
    uint32_t *where = &t->where[leaf->class_];
    if (!*where) {
        t->classes[t->count] = leaf->class_;
        t->times_ms[t->count] = 0;
        *where = ++t->count;
    }
    t->times_ms[*where - 1] += (double)(leaf->end_ns - leaf->begin_ns) * 1e-6;
}

/* Of node `index` and what lies in it, as far as it belongs to a span of kind `outer` above. */
static void collect_times(const pj_joules *j, uint32_t index, uint8_t outer, class_times *t)
{
    const pj_tree *tree = j->tree;
    for (uint32_t k = j->leaf_begin[index]; k < j->leaf_begin[index + 1]; k++)
        add_class_time(t, &tree->leaves[j->leaf_of[k]]);
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++)
        if (!tree->nested || !pj_tree_stands_apart(outer, tree->nodes[tree->children[k]].kind))
            collect_times(j, tree->children[k], outer, t);
}

static void forget_times(class_times *t)
{
    for (uint32_t i = 0; i < t->count; i++) t->where[t->classes[i]] = 0;
    t->count = 0;
}

/* Whether a time holds a window of every sensor. */
static bool is_long(const pj_joules *j, int64_t ns)
{
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_rail *rail = &j->d->rails[j->results[i].rail];
        int64_t least = rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns;
        if (ns < least) return false;
    }
    return true;
}

static bool is_integrated(const pj_joules *j, const pj_node *node)
{
    if (node->kind > PJ_SPAN_TOKEN && node->kind != PJ_NODE_ROOT) return false;
    return is_long(j, node->end_ns - node->begin_ns);
}

/* Relative sd of what the sensors said of so long a time, apart from what all parts share. */
static double reading_sd(const pj_joules *j, int64_t ns)
{
    double variance = 0, total = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_rail_result *result = &j->results[i];
        double sd = pj_misfit_relative(&result->misfit, ns) * result->weight_mj;
        variance += sd * sd;
        total += result->weight_mj;
    }
    return total > 0 ? sqrt(variance) / total : 0;
}

/* Method and 1 sigma of a part with gross energy: what the fit says of its powers, and what is
 * wrong with the readings that its energy comes from. What is longer than the sensor's period is
 * integrated; the fit may still know its edges better than the curve does, which spreads power
 * evenly over a window. */
static void rate(const pj_joules *j, int64_t begin_ns, int64_t end_ns, bool integrated,
                 double fit_sd, double common, pj_energy *e)
{
    double gross_mj = pj_mj_of_nj(e->gross_nj), sd = hypot(fit_sd, common * gross_mj);
    e->method = j->replayed ? PJ_METHOD_REPLAY : PJ_METHOD_FIT;
    if (integrated) {
        e->method = PJ_METHOD_INTEGRATE;
        sd = fmin(sd, pj_joules_curve_sd_mj(j, begin_ns, end_ns));
    }
    e->sd_mj = (float)hypot(sd, reading_sd(j, end_ns - begin_ns) * gross_mj);
}

void pj_joules_judge_leaf(const pj_joules *j, const pj_leaf *leaf, pj_energy *e)
{
    double ms = (double)(leaf->end_ns - leaf->begin_ns) * 1e-6;
    rate(j, leaf->begin_ns, leaf->end_ns, is_long(j, leaf->end_ns - leaf->begin_ns),
         fit_sd_mj(j, &leaf->class_, &ms, 1), common_sd(j), e);
}

/* Nodes are judged one by one: half of those of a large run on another thread. */
typedef struct judgement {
    pj_joules *joules;
    uint32_t begin, end; /* nodes */
    class_times times;
} judgement;

static bool judgement_init(judgement *judging, pj_joules *j, uint32_t begin, uint32_t end)
{
    size_t classes = j->tree->class_count;
    class_times *t = &judging->times;
    *judging = (judgement){.joules = j, .begin = begin, .end = end};
    t->classes = pj_alloc(classes, sizeof *t->classes);
    t->times_ms = pj_alloc(classes, sizeof *t->times_ms);
    t->where = pj_alloc(classes, sizeof *t->where);
    return t->classes && t->times_ms && t->where;
}

static void judgement_fini(judgement *judging)
{
    pj_free(judging->times.classes);
    pj_free(judging->times.times_ms);
    pj_free(judging->times.where);
}

static void *judge(void *context)
{
    judgement *judging = context;
    pj_joules *j = judging->joules;
    class_times *times = &judging->times;
    double common = common_sd(j);
    for (uint32_t i = judging->begin; i < judging->end; i++) {
        const pj_node *node = &j->tree->nodes[i];
        pj_energy *e = pj_joules_of(j, i);
        if (e->gross_nj == PJ_NJ_UNKNOWN) continue;
        collect_times(j, i, node->kind, times);
        rate(j, node->begin_ns, node->end_ns, is_integrated(j, node),
             fit_sd_mj(j, times->classes, times->times_ms, times->count), common, e);
        forget_times(times);
    }
    return NULL;
}

static bool group_leaves(pj_joules *j)
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

static pj_status judge_all(pj_joules *j, pj_error *err)
{
    uint32_t nodes = j->tree->node_count, middle = nodes < LARGE_NODES ? nodes : nodes / 2;
    judgement first, second;
    pthread_t thread;
    bool ok = judgement_init(&first, j, 0, middle);
    ok &= judgement_init(&second, j, middle, nodes);
    if (ok && group_leaves(j)) {
        bool beside =
            middle < nodes && pj_thread_start(&thread, "pj-judge", judge, &second, NULL) == PJ_OK;
        judge(&first);
        if (beside)
            pthread_join(thread, NULL);
        else
            judge(&second);
    } else {
        ok = false;
    }
    judgement_fini(&first);
    judgement_fini(&second);
    return ok ? PJ_OK : pj_fail_memory(err, "the uncertainties of a run");
}

/* ---- all together -------------------------------------------------------------------------- */

static pj_status prepare(pj_joules *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    j->class_names = pj_alloc(tree->class_count, sizeof *j->class_names);
    j->equal = pj_alloc(tree->class_count, sizeof *j->equal);
    if (!j->class_names || !j->equal) return pj_fail_memory(err, "the energies of a run");
    for (uint32_t c = 0; c < tree->class_count; c++) {
        pj_tree_class_name(tree, &tree->classes[c], j->class_names[c], sizeof *j->class_names);
        j->equal[c] = 1;
    }
    return PJ_OK;
}

pj_status pj_joules_new(const pj_tree *tree, const pj_readings *readings,
                        const pj_build_options *options, pj_run_data *data, pj_joules **joules,
                        pj_error *err)
{
    pj_joules *j = *joules = pj_alloc(1, sizeof *j);
    if (!j) return pj_fail_memory(err, "the energies of a run");
    j->tree = tree;
    j->options = options;
    j->d = data;
    pj_status status = prepare(j, err);
    if (status == PJ_OK) status = make_curves(j, readings, err);
    if (status == PJ_OK) status = pj_joules_check(j, err);
    if (status == PJ_OK) status = pj_joules_rails(j, err);
    return status;
}

pj_status pj_joules_fill(pj_joules *j, pj_error *err)
{
    sum_nodes(j);
    pj_status status = judge_all(j, err);
    if (status == PJ_OK) status = pj_joules_rows(j, err);
    if (status == PJ_OK) status = pj_joules_run(j, err);
    if (status == PJ_OK) status = pj_joules_tell(j, err);
    if (status == PJ_OK) status = pj_build_samples(j->tree, j->curves, j->d, err);
    return status;
}

void pj_joules_free(pj_joules *j)
{
    if (!j) return;
    pj_free(j->findings);
    for (int r = 0; r < PJ_MAX_RAILS; r++) pj_curve_free(j->curves[r]);
    for (uint32_t i = 0; i < j->result_count; i++)
        if (j->results[i].has_fit) pj_fit_fini(&j->results[i].fit);
    pj_free(j->class_names);
    pj_free(j->sim_mw);
    pj_joules_free_energies(j->gross);
    pj_joules_free_energies(j->net);
    pj_joules_free_energies(j->rail_gross);
    pj_joules_free_energies(j->rail_net);
    pj_free(j->equal);
    pj_free(j->leaf_begin);
    pj_free(j->leaf_of);
    pj_free(j);
}
