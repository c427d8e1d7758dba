/* Power samples as rows: one per published value of the rail that publishes most often, tagged with
 * the phase that covers most of its window and with the share that it covers. */
#include "attribution/build.h"

#include "base/interval.h"

typedef struct phase_share {
    uint8_t phase;
    double share;
} phase_share;

/* Children of the root are phases in time order; `*from` advances with the windows. */
static phase_share samples_phase_of(const pj_tree *tree, int64_t begin_ns, int64_t end_ns,
                                    uint32_t *from)
{
    uint32_t last = tree->child_begin[1];
    double in_phase[PJ_PHASE_COUNT] = {0}, whole = (double)(end_ns - begin_ns), rest = whole;
    while (*from < last && tree->nodes[tree->children[*from]].end_ns <= begin_ns) ++*from;
    for (uint32_t k = *from; k < last; k++) {
        const pj_node *node = &tree->nodes[tree->children[k]];
        if (node->begin_ns >= end_ns) break;
        double ns = (double)pj_overlap_ns(node->begin_ns, node->end_ns, begin_ns, end_ns);
        in_phase[node->phase] += ns;
        rest -= ns;
    }
    in_phase[PJ_PHASE_IDLE] += rest > 0 ? rest : 0;
    phase_share best = {PJ_PHASE_IDLE, 0};
    for (int p = 0; p < PJ_PHASE_COUNT; p++)
        if (in_phase[p] > best.share) best = (phase_share){(uint8_t)p, in_phase[p]};
    best.share = whole > 0 ? best.share / whole : 1;
    if (best.share > 1) best.share = 1; /* phases of several threads may overlap */
    return best;
}

static bool make_table(pj_run_data *d, uint32_t count)
{
    pj_sample_table *t = &d->samples;
    t->count = count;
    t->t_ms = pj_arena_alloc(&d->arena, count, sizeof *t->t_ms);
    t->phase = pj_arena_alloc(&d->arena, count, sizeof *t->phase);
    t->phase_confidence = pj_arena_alloc(&d->arena, count, sizeof *t->phase_confidence);
    bool ok = t->t_ms && t->phase && t->phase_confidence;
    for (uint32_t r = 0; ok && r < d->rail_count; r++)
        ok = (t->mw[r] = pj_arena_alloc(&d->arena, count, sizeof **t->mw)) != NULL;
    for (int c = 0; ok && c <= PJ_RAIL_TOTAL; c++)
        ok = (t->columns[c] = pj_arena_alloc(&d->arena, count, sizeof **t->columns)) != NULL;
    return ok;
}

/* A column is the sum of all its rails, or unknown: a missing one is not taken as zero. */
static void fill_columns(pj_run_data *d, uint32_t row)
{
    double mw[PJ_MAX_RAILS];
    for (uint32_t r = 0; r < d->rail_count; r++) mw[r] = d->samples.mw[r][row];
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++)
        d->samples.columns[c][row] =
            pj_rail_column_sum(d->rails, d->rail_count, mw, (pj_rail_class)c);
}

/* Power of a rail that publishes less often: of a counter with a log, as that distributes what was
 * counted. */
static double samples_mw(const pj_run_data *d, pj_curve *const *curves, uint32_t rail,
                         const pj_curve_point *at)
{
    int64_t ns = at->end_ns - at->begin_ns;
    if (ns <= 0 || pj_rail_log_of(d->rails, d->rail_count, rail) < 0)
        return pj_curve_power_mw(curves[rail], at->begin_ns + ns / 2);
    return pj_curve_energy_mj(curves[rail], at->begin_ns, at->end_ns) / ((double)ns * 1e-9);
}

pj_status pj_build_samples(const pj_tree *tree, pj_curve *const *curves, const pj_shares *shares,
                           pj_run_data *d, pj_error *err)
{
    uint32_t leader = 0;
    size_t most = 0;
    for (uint32_t r = 0; r < d->rail_count; r++) {
        size_t n = pj_curve_points(curves[r], tree->begin_ns, tree->end_ns, NULL, 0);
        if (n > most) {
            most = n;
            leader = r;
        }
    }
    if (most > UINT32_MAX) most = UINT32_MAX;
    if (!make_table(d, (uint32_t)most)) return pj_fail_memory(err, "the samples of a run");
    if (!most) return PJ_OK;
    pj_curve_point *points = pj_alloc(most, sizeof *points);
    if (!points) return pj_fail_memory(err, "the samples of a run");
    pj_curve_points(curves[leader], tree->begin_ns, tree->end_ns, points, most);
    uint32_t from = 0;
    for (uint32_t i = 0; i < most; i++) {
        phase_share tag = samples_phase_of(tree, points[i].begin_ns, points[i].end_ns, &from);
        double share = shares ? pj_shares_mean(shares, points[i].begin_ns, points[i].end_ns) : 1;
        d->samples.t_ms[i] = (double)(points[i].end_ns - tree->begin_ns) / 1e6;
        d->samples.phase[i] = tag.phase;
        d->samples.phase_confidence[i] = (float)tag.share;
        for (uint32_t r = 0; r < d->rail_count; r++)
            d->samples.mw[r][i] =
                share * (r == leader ? points[i].power_mw : samples_mw(d, curves, r, &points[i]));
        fill_columns(d, i);
    }
    pj_free(points);
    return PJ_OK;
}
