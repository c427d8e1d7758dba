/*
 * Uncertainty propagation, in millijoules, from the readings over blocks to any set of leaves. For
 * a set with the share f of a block,
 *
 * energy = f x block, f = p t / (p t + rest),
 *
 * an error dp of the class powers changes it by (t - c A) dp, where t is the set's time in each
 * class, A the classes' time in each window and c the window's influence on the figure (the energy
 * of a whole block does not depend on class powers). Where windows overlap, the powers were fitted
 * to the very readings that then correct them, and the two errors add up. Other contributions:
 * window noise through c (random); power variation between leaves of a class, heat, idle power, and
 * alternative window timings that the readings do not exclude (bias); the sensor's gain and offset.
 *
 * The rails of a run see the same leaves, so what is not known about the leaves' powers (the prior,
 * variation within a class) is wrong on all rails alike and adds up; the noise of their readings is
 * independent. Rails of different devices see different leaves.
 */
#include "attribution/energies.h"

#include "base/interval.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

enum { LARGE_NODES = 20000, CACHED = 8 };
#define USUAL_HEAT 0.11 /* relative 1 sigma of the change of power over a run by heat */

/* Effect of one block of a rail on the figures of single leaves inside it. */
typedef struct block_cache {
    size_t block; /* SIZE_MAX: empty */
    double noise_var;
    double along;          /* G' S G */
    double *times, *moved; /* [pools] G: window times by influence; S G */
} block_cache;

typedef struct uncertainty_state {
    pj_arena arena;
    pj_energies *joules;
    uint32_t begin, end; /* nodes */
    /* for one rail and set at a time */
    double *net_mj, *time_s, *squares, *moment; /* [blocks] of the set; 0 between sets, as is f */
    size_t *touched;                            /* blocks that the set has a part of */
    size_t touched_count;
    double *f, *scratch, *influence; /* [blocks], [blocks], [windows] */
    double *times, *moved;           /* [pools] seconds of the set by class */
    uint32_t *used;                  /* pools that occur in the set */
    bool *member;                    /* [leaves] */
    uint32_t used_count;
    block_cache *cache; /* [rails][CACHED]: neighbouring nodes share blocks */
    uint32_t *leaves;   /* of a node and all its descendants */
    size_t leaf_count;
} uncertainty_state;

/* A set's figures on one rail. */
typedef struct set_figure {
    double gross_mj, net_mj;
    double noise_var;  /* of the windows */
    double powers_var; /* of the powers of classes */
    double spread_var, timing_var, heat_var;
    double idle_gross, idle_net; /* 1 sigma due to idle power */
    double seconds;              /* for which it has a part of the machine's power */
} set_figure;

static bool energy_uncertainty_allocate(uncertainty_state *g, pj_energies *j)
{
    size_t blocks = 1, windows = 1, pools = j->pool_count, leaves = j->tree->leaf_count;
    size_t caches = (size_t)j->result_count * CACHED;
    for (uint32_t i = 0; i < j->result_count; i++) {
        if (j->results[i].blocks.count > blocks) blocks = j->results[i].blocks.count;
        if (j->results[i].window_count > windows) windows = j->results[i].window_count;
    }
    *g = (uncertainty_state){.joules = j};
    pj_arena_init(&g->arena, 0);
    struct {
        double **array;
        size_t count;
    } arrays[] = {{&g->net_mj, blocks},     {&g->time_s, blocks}, {&g->squares, blocks},
                  {&g->f, blocks},          {&g->moment, blocks}, {&g->scratch, blocks},
                  {&g->influence, windows}, {&g->times, pools},   {&g->moved, pools}};
    bool ok = true;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ok &=
            (*arrays[i].array = pj_arena_alloc(&g->arena, arrays[i].count, sizeof(double))) != NULL;
    g->used = pj_arena_alloc(&g->arena, pools, sizeof *g->used);
    g->touched = pj_arena_alloc(&g->arena, blocks, sizeof *g->touched);
    g->member = pj_arena_alloc(&g->arena, leaves, sizeof *g->member);
    g->leaves = pj_arena_alloc(&g->arena, leaves, sizeof *g->leaves);
    g->cache = pj_arena_alloc(&g->arena, caches, sizeof *g->cache);
    double *cached = pj_arena_alloc(&g->arena, caches * 2 * pools, sizeof *cached);
    if (!ok || !g->used || !g->touched || !g->member || !g->leaves || !g->cache || !cached)
        return false;
    for (size_t i = 0; i < caches; i++)
        g->cache[i] = (block_cache){.block = SIZE_MAX,
                                    .times = cached + 2 * i * pools,
                                    .moved = cached + (2 * i + 1) * pools};
    return true;
}

/* ---- class powers ---- */

/* S x for the classes of the fit, mW^2 s -> mW mJ; returns x' S x in mJ^2. */
static double times_covariance(const pj_fit *fit, const double *x, double *product)
{
    double sum = 0;
    size_t n = fit->class_count;
    for (size_t a = 0; a < n; a++) {
        double line = 0;
        for (size_t b = 0; b < n; b++) line += fit->covariance[a * n + b] * x[b];
        product[a] = line;
        sum += line * x[a];
    }
    return sum > 0 ? sum : 0;
}

static void subtract_windows(const pj_rail_result *result, size_t first, size_t last,
                             const double *influence, double sign, double *times)
{
    const pj_design *d = &result->design;
    for (size_t w = first; w < last; w++) {
        if (influence[w] == 0) continue;
        for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++)
            times[d->column[i]] += sign * influence[w] * d->seconds[i];
    }
}

static const block_cache *energy_uncertainty_look_up(uncertainty_state *g,
                                                     const pj_rail_result *result, size_t block)
{
    size_t rail = (size_t)(result - g->joules->results);
    block_cache *c = &g->cache[rail * CACHED + block % CACHED];
    const double whole = 1;
    size_t first, last;
    if (c->block == block) return c;
    c->block = block;
    memset(c->times, 0, g->joules->pool_count * sizeof(double));
    c->noise_var = pj_blocks_influence(&result->blocks, block, 1, &whole, g->scratch, g->influence,
                                       &first, &last);
    subtract_windows(result, first, last, g->influence, 1, c->times);
    for (size_t w = first; w < last; w++) g->influence[w] = 0;
    c->along = times_covariance(&result->fit, c->times, c->moved);
    return c;
}

/* Overlapping windows are fitted and then correct the blocks. If power varies within classes, both
 * steps use one covariance of the readings, and the errors of the powers are independent of those
 * of the blocks. If not, the blocks alone allow for variation: then they share the readings' noise,
 * and u S u + 2 u S (t - u) counts. */
static bool shares_noise(const pj_rail_result *result)
{
    return result->blocks.factor && !(result->fit.spread > 0);
}

/* A set inside one block, whose effect is cached. */
static void inside_variance(uncertainty_state *g, const pj_rail_result *result, size_t block,
                            double f, set_figure *figure)
{
    const block_cache *c = energy_uncertainty_look_up(g, result, block);
    const pj_fit *fit = &result->fit;
    double own = 0, both = 0;
    for (uint32_t a = 0; a < g->used_count; a++) {
        uint32_t i = g->used[a];
        both += g->times[i] * c->moved[i];
        for (uint32_t b = 0; b < g->used_count; b++)
            own += g->times[i] * g->times[g->used[b]] *
                   fit->covariance[(size_t)i * fit->class_count + g->used[b]];
    }
    double powers = own - 2 * f * both + f * f * c->along;
    if (shares_noise(result)) powers = fmax(powers, own - f * f * c->along);
    figure->powers_var = powers > 0 ? powers : 0;
    figure->noise_var =
        f * f * (c->noise_var + (1 - f) * (1 - f) * result->blocks.varied_var[block]);
}

static void across_variance(uncertainty_state *g, const pj_rail_result *result, size_t low,
                            size_t high, set_figure *figure)
{
    size_t first, last;
    figure->noise_var = pj_blocks_influence(&result->blocks, low, high - low, g->f + low,
                                            g->scratch, g->influence, &first, &last);
    double both = 0;
    times_covariance(&result->fit, g->times, g->moved);
    subtract_windows(result, first, last, g->influence, -1, g->times);
    for (size_t w = first; w < last; w++) g->influence[w] = 0;
    for (size_t c = 0; c < result->fit.class_count; c++) both += g->times[c] * g->moved[c];
    double powers = times_covariance(&result->fit, g->times, g->moved);
    if (shares_noise(result)) powers = fmax(powers, 2 * both - powers);
    memset(g->times, 0, result->fit.class_count * sizeof(double));
    figure->powers_var = powers;
}

/* ---- one set on one rail ---- */

static void energy_uncertainty_add_leaf(uncertainty_state *g, const pj_rail_result *result,
                                        uint32_t index, size_t *low, size_t *high, double *seconds)
{
    const pj_energies *j = g->joules;
    const pj_leaf *leaf = &result->leaves[index + 1];
    const pj_blocks *b = &result->blocks;
    double mw = result->fit.power_mw[leaf->class_];
    size_t k = result->first_block[index];
    *seconds += pj_energy_idle_s(j, index);
    if (g->times[leaf->class_] == 0) g->used[g->used_count++] = leaf->class_;
    g->times[leaf->class_] += (double)(leaf->end_ns - leaf->begin_ns) * 1e-9 + 1e-300;
    if (k == SIZE_MAX) return;
    if (k < *low) *low = k;
    for (; k < b->count && b->segments[k].begin_ns < leaf->end_ns; k++) {
        const pj_segment *s = &b->segments[k];
        double part_s = PJ_OVERLAP_S(leaf, s), mj = mw * part_s;
        if (part_s == 0) continue;
        if (g->time_s[k] == 0) g->touched[g->touched_count++] = k;
        g->net_mj[k] += mj;
        g->time_s[k] += part_s;
        g->squares[k] += mj * mj;
        g->moment[k] += mj * pj_middle_s(leaf, s, j->tree->begin_ns);
        if (k + 1 > *high) *high = k + 1;
    }
}

/* By how much the power of all work may change from the begin to the end of the run because it
 * heats up, per second. Between blocks the readings show it; within one nothing does. */
static double heat_of(const pj_energies *j, const pj_rail_result *result)
{
    double run_s = (double)(j->tree->end_ns - j->tree->begin_ns) * 1e-9;
    return run_s > 0 && !j->options->trusted ? USUAL_HEAT * result->fit.drift / run_s : 0;
}

/* The set's shares of blocks, and the terms that depend on them alone. */
static void energy_uncertainty_take_shares(uncertainty_state *g, const pj_rail_result *result,
                                           double seconds, set_figure *figure)
{
    const pj_blocks *b = &result->blocks;
    double spread = result->class_spread * result->class_spread, idle_s = 0, moment = 0;
    for (size_t i = 0; i < g->touched_count; i++) {
        size_t k = g->touched[i];
        double block_s = (double)(b->segments[k].end_ns - b->segments[k].begin_ns) * 1e-9;
        bool by_time = !(b->expected_mj[k] > 0);
        double f = by_time ? g->time_s[k] / block_s : g->net_mj[k] / b->expected_mj[k];
        f = fmin(fmax(f, 0), 1);
        double rest = fmax(b->squares[k] - g->squares[k], 0);
        figure->spread_var += spread * ((1 - f) * (1 - f) * g->squares[k] + f * f * rest);
        idle_s += f * block_s;
        if (!by_time) moment += g->moment[k] - f * b->moment[k];
        g->f[k] = f;
        g->net_mj[k] = g->time_s[k] = g->squares[k] = g->moment[k] = 0;
    }
    double heat_mj = heat_of(g->joules, result) * moment;
    figure->heat_var = heat_mj * heat_mj;
    figure->idle_gross = result->idle_sd_mw * fabs(seconds - idle_s);
    figure->idle_net = result->idle_sd_mw * idle_s;
}

/* The effect of a leaf's own deviation on the set's figure: (share - f) x energy, summed over its
 * blocks. Returns its square less the sum of the squares, which take_shares() has counted. */
static double bridge_variance(const uncertainty_state *g, const pj_rail_result *result,
                              uint32_t index, bool member, size_t low, size_t high)
{
    const pj_leaf *leaf = &result->leaves[index + 1];
    const pj_blocks *b = &result->blocks;
    double mw = result->fit.power_mw[leaf->class_], sum = 0, squares = 0;
    size_t k = result->first_block[index];
    for (k = k < low ? low : k; k < high && b->segments[k].begin_ns < leaf->end_ns; k++) {
        double effect =
            mw * PJ_OVERLAP_S(leaf, &b->segments[k]) * (member ? 1 - g->f[k] : -g->f[k]);
        sum += effect;
        squares += effect * effect;
    }
    return sum * sum - squares;
}

/* Leaves that reach over several blocks deviate in all of them alike. */
static void add_bridges(uncertainty_state *g, const pj_rail_result *result, size_t low, size_t high,
                        set_figure *figure)
{
    double spread = result->class_spread * result->class_spread, sum = 0;
    for (size_t i = result->bridge_begin[low]; i < result->bridge_begin[high]; i++)
        sum += bridge_variance(g, result, result->bridges[i], g->member[result->bridges[i]], low,
                               high);
    figure->spread_var = fmax(figure->spread_var + spread * sum, 0);
}

static void weigh_timings(const pj_rail_result *result, const uint32_t *leaves, size_t count,
                          set_figure *figure)
{
    for (uint32_t a = 0; a < result->alternative_count; a++) {
        double mj = 0;
        for (size_t i = 0; i < count; i++) mj += (double)result->alternative_mj[a][leaves[i]];
        double away = mj - figure->gross_mj;
        if (isfinite(away)) figure->timing_var += result->alternative_weight[a] * away * away;
    }
}

/* Converts the uncertainty of a run computed as if alone to that of its share: scaled by the share,
 * plus the uncertainty of the energy of each part in which the share was constant. */
static void scale_figure(const pj_energies *j, const pj_rail_result *result, const uint32_t *leaves,
                         size_t count, set_figure *figure)
{
    double own_mj = 0, part_mj = 0, border_var = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t part = j->leaf_part[leaves[i]];
        double mj =
            (double)result->leaf_mj[leaves[i]] * result->part_factor[part]; /* 0: not seen */
        own_mj += mj;
        part_mj += mj;
        if (i + 1 < count && j->leaf_part[leaves[i + 1]] == part) continue;
        border_var += part_mj * part_mj * result->part_sd[part] * result->part_sd[part];
        part_mj = 0;
    }
    double factor = figure->gross_mj > 0 ? own_mj / figure->gross_mj : 1;
    figure->gross_mj *= factor;
    figure->net_mj *= factor;
    figure->noise_var = figure->noise_var * factor * factor + border_var;
    figure->powers_var *= factor * factor;
    figure->spread_var *= factor * factor;
    figure->timing_var *= factor * factor;
    figure->heat_var *= factor * factor;
    figure->seconds *= factor;
    figure->idle_gross *= factor;
    figure->idle_net *= factor;
}

static void measure_alone(uncertainty_state *g, uint32_t rail, const uint32_t *leaves, size_t count,
                          set_figure *figure)
{
    const pj_energies *j = g->joules;
    const pj_rail_result *result = &j->results[rail];
    double idle_mw = j->d->baseline_mw[result->rail], seconds = 0;
    size_t low = SIZE_MAX, high = 0;
    *figure = (set_figure){0};
    g->used_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!pj_rail_sees_leaf(j, result, leaves[i])) continue;
        figure->gross_mj += (double)result->leaf_mj[leaves[i]];
        if (!result->has_fit) continue;
        energy_uncertainty_add_leaf(g, result, leaves[i], &low, &high, &seconds);
        g->member[leaves[i]] = true;
    }
    figure->seconds = seconds;
    figure->net_mj = figure->gross_mj - (isnan(idle_mw) ? 0 : idle_mw) * seconds;
    if (!result->has_fit) { /* shared by time: all of it may belong to other spans */
        figure->noise_var = figure->gross_mj * figure->gross_mj;
        return;
    }
    if (low < high) {
        energy_uncertainty_take_shares(g, result, seconds, figure);
        if (high - low > 1) add_bridges(g, result, low, high, figure);
        if (high - low == 1)
            inside_variance(g, result, low, g->f[low], figure);
        else
            across_variance(g, result, low, high, figure);
    }
    while (g->touched_count) g->f[g->touched[--g->touched_count]] = 0;
    for (uint32_t i = 0; i < g->used_count; i++) g->times[g->used[i]] = 0;
    for (size_t i = 0; i < count; i++) g->member[leaves[i]] = false;
    weigh_timings(result, leaves, count, figure);
}

static void energy_uncertainty_measure(uncertainty_state *g, uint32_t rail, const uint32_t *leaves,
                                       size_t count, set_figure *figure)
{
    const pj_rail_result *result = &g->joules->results[rail];
    measure_alone(g, rail, leaves, count, figure);
    if (result->part_factor) scale_figure(g->joules, result, leaves, count, figure);
}

/* ---- all rails together ---- */

typedef struct total {
    double noise_var, bias_gross, bias_net;
    double powers_sd[PJ_MAX_DEVICES]; /* by the first device that a rail measures */
    double gain_gross[PJ_MAX_RAILS], gain_net[PJ_MAX_RAILS]; /* by group */
    double offset[PJ_MAX_RAILS];                             /* by group; of gross energies */
} total;

static void add_figure(total *t, const pj_rail_result *result, const set_figure *f)
{
    double unseen = result->unseen_sd * f->gross_mj;
    double shared = f->spread_var + f->timing_var + f->heat_var + unseen * unseen;
    t->noise_var += f->noise_var;
    t->powers_sd[__builtin_ctzll(result->devices)] += sqrt(f->powers_var);
    t->bias_gross += sqrt(shared + f->idle_gross * f->idle_gross);
    t->bias_net += sqrt(shared + f->idle_net * f->idle_net);
    t->gain_gross[result->gain_group] += result->gain_sd * f->gross_mj;
    t->gain_net[result->gain_group] += result->gain_sd * f->net_mj;
    t->offset[result->gain_group] += result->offset_sd_mw * f->seconds;
}

/* On one rail (index of its result), or over all of them. */
static void measure_set(uncertainty_state *g, const uint32_t *leaves, size_t count, int result,
                        pj_sd *gross, pj_sd *net)
{
    const pj_energies *j = g->joules;
    total t = {.noise_var = 0};
    double gain_gross = 0, gain_net = 0, powers_var = 0;
    for (uint32_t r = 0; r < j->result_count; r++) {
        set_figure figure;
        if (result != PJ_ALL_RAILS && (uint32_t)result != r) continue;
        energy_uncertainty_measure(g, r, leaves, count, &figure);
        add_figure(&t, &j->results[r], &figure);
    }
    for (uint32_t r = 0; r < j->result_count; r++) {
        gain_gross += t.gain_gross[r] * t.gain_gross[r] + t.offset[r] * t.offset[r];
        gain_net += t.gain_net[r] * t.gain_net[r];
    }
    for (uint32_t d = 0; d < j->tree->device_count; d++)
        powers_var += t.powers_sd[d] * t.powers_sd[d];
    float random = (float)sqrt(t.noise_var + powers_var);
    *gross = (pj_sd){random, (float)t.bias_gross, (float)sqrt(gain_gross)};
    *net = (pj_sd){random, (float)t.bias_net, (float)sqrt(gain_net)};
}

/* ---- nodes ---- */

/* Collects the leaves of node `index` and its descendants, as far as they are charged to an
 * enclosing span of kind `outer`. */
static void energy_uncertainty_collect(uncertainty_state *g, uint32_t index, uint8_t outer)
{
    const pj_energies *j = g->joules;
    const pj_tree *tree = j->tree;
    for (uint32_t k = j->by_node.begin[index]; k < j->by_node.begin[index + 1]; k++)
        g->leaves[g->leaf_count++] = j->by_node.items[k];
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++)
        if (!tree->nested || !pj_tree_stands_apart(outer, tree->nodes[tree->children[k]].kind))
            energy_uncertainty_collect(g, tree->children[k], outer);
}

pj_method pj_energy_method(const pj_energies *j, uint8_t kind, int64_t ns)
{
    bool coarse = kind <= PJ_SPAN_TOKEN || kind == PJ_NODE_ROOT;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_rail *rail = &j->d->rails[j->results[i].rail];
        int64_t least = rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns;
        coarse &= ns >= least;
    }
    if (coarse) return PJ_METHOD_INTEGRATE;
    if (j->by_time) return PJ_METHOD_TIME;
    return j->replayed ? PJ_METHOD_REPLAY : PJ_METHOD_FIT;
}

static void *energy_uncertainty_judge(void *context)
{
    uncertainty_state *g = context;
    pj_energies *j = g->joules;
    for (uint32_t i = g->begin; i < g->end; i++) {
        const pj_node *node = &j->tree->nodes[i];
        pj_energy *e = pj_energy_of(j, i);
        if (e->gross_nj == PJ_NJ_UNKNOWN) continue;
        g->leaf_count = 0;
        energy_uncertainty_collect(g, i, node->kind);
        measure_set(g, g->leaves, g->leaf_count, PJ_ALL_RAILS, &e->sd, &e->net_sd);
        e->sd_mj = (float)pj_sd_total(&e->sd);
        if (e->net_nj == PJ_NJ_UNKNOWN) e->net_sd = PJ_SD_UNKNOWN;
        e->net_sd_mj = (float)pj_sd_total(&e->net_sd);
        e->method = (uint8_t)pj_energy_method(j, node->kind, node->end_ns - node->begin_ns);
    }
    return NULL;
}

pj_status pj_energy_check_total(pj_energies *j, pj_error *err)
{
    uint32_t nodes = j->tree->node_count, middle = nodes < LARGE_NODES ? nodes : nodes / 2;
    uncertainty_state first, second;
    pthread_t thread;
    bool ok = energy_uncertainty_allocate(&first, j);
    ok &= energy_uncertainty_allocate(&second, j);
    first.end = second.begin = middle;
    second.end = nodes;
    ok = ok && pj_group(&j->tree->leaves->node, sizeof *j->tree->leaves, 0, j->tree->leaf_count,
                        nodes, &j->arena, &j->by_node);
    if (ok) {
        bool beside =
            middle < nodes &&
            pj_thread_start(&thread, "pj-judge", energy_uncertainty_judge, &second, NULL) == PJ_OK;
        energy_uncertainty_judge(&first);
        if (beside)
            pthread_join(thread, NULL);
        else
            energy_uncertainty_judge(&second);
    }
    pj_arena_fini(&first.arena);
    pj_arena_fini(&second.arena);
    return ok ? PJ_OK : pj_fail_memory(err, "the uncertainties of a run");
}

pj_status pj_energy_check_leaves(pj_energies *j, const uint32_t *leaves, size_t count, int result,
                                 pj_sd *gross, pj_sd *net, pj_error *err)
{
    uncertainty_state g;
    bool ok = energy_uncertainty_allocate(&g, j);
    if (ok) measure_set(&g, leaves, count, result, gross, net);
    pj_arena_fini(&g.arena);
    return ok ? PJ_OK : pj_fail_memory(err, "the uncertainties of a run");
}
