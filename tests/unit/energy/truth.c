/* See truth.h. */
#include "truth.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>

enum { LAYERS = 16, PARTS = 15 };

/* Shares of a layer's time: decode, prefill. */
static const double part_share[2][PARTS] = {
    {.01, .10, .04, .04, .02, .06, .10, .01, .01, .17, .17, .02, .17, .03, .05},
    {.02, .08, .03, .03, .05, .12, .08, .03, .02, .15, .15, .05, .14, .03, .02}};

static void add_token(truth *t, pj_random *r, double ms, bool prefill, int64_t *now)
{
    ms *= 1 + 0.10 * pj_random_normal(r);
    for (int layer = 0; layer < LAYERS; layer++)
        for (uint32_t c = 0; c < PARTS; c++) {
            double part =
                ms / LAYERS * part_share[prefill][c] * fmax(0.3, 1 + 0.08 * pj_random_normal(r));
            int64_t end = *now + (int64_t)(part * 1e6);
            double energy = t->power_mw[c] * (double)(end - *now) * 1e-9;
            t->leaves[t->leaf_count] = (pj_leaf){*now, end, c};
            t->before_mj[t->leaf_count + 1] = t->before_mj[t->leaf_count] + energy;
            t->leaf_count++;
            *now = end;
        }
}

void truth_init(truth *t, uint64_t seed, unsigned tokens, double token_ms)
{
    pj_random r = {seed};
    size_t leaves = (size_t)(tokens + 1) * LAYERS * PARTS;
    int64_t now = 1000000007;
    *t = (truth){.class_count = PARTS, .idle_mw = 0, .begin_ns = now};
    t->leaves = pj_alloc(leaves, sizeof *t->leaves);
    t->before_mj = pj_alloc(leaves + 1, sizeof *t->before_mj);
    t->power_mw = pj_alloc(t->class_count, sizeof *t->power_mw);
    for (uint32_t c = 0; c < t->class_count; c++)
        t->power_mw[c] = 20000 + 40000 * pj_random_unit(&r);
    add_token(t, &r, token_ms * 20, true, &now);
    for (unsigned i = 0; i < tokens; i++) add_token(t, &r, token_ms, false, &now);
    t->end_ns = now;
}

void truth_fini(truth *t)
{
    pj_free(t->leaves);
    pj_free(t->before_mj);
    pj_free(t->power_mw);
}

static double net_until(const truth *t, int64_t at)
{
    size_t low = 0, high = t->leaf_count; /* binary search: leaves before `low` have ended */
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (t->leaves[mid].end_ns <= at)
            low = mid + 1;
        else
            high = mid;
    }
    double mj = t->before_mj[low];
    if (low < t->leaf_count && at > t->leaves[low].begin_ns)
        mj += t->power_mw[t->leaves[low].class_] * (double)(at - t->leaves[low].begin_ns) * 1e-9;
    return mj;
}

double truth_energy_mj(const truth *t, int64_t begin_ns, int64_t end_ns)
{
    return net_until(t, end_ns) - net_until(t, begin_ns) +
           t->idle_mw * (double)(end_ns - begin_ns) * 1e-9;
}

/* A counter is read near its ticks; each reading closes a window and opens the next. */
static pj_window *counter_windows(const truth *t, const sensor *s, pj_random *r, size_t *count)
{
    int64_t period = (int64_t)(s->period_ms * 1e6);
    int64_t at = t->begin_ns + (int64_t)(pj_random_unit(r) * (double)period);
    pj_window *w = pj_alloc((size_t)((t->end_ns - t->begin_ns) / period) + 2, sizeof *w);
    double phase = pj_random_unit(r), before_mj = 0;
    *count = 0;
    for (int64_t tick = at; tick <= t->end_ns; tick += period) {
        int64_t late = (int64_t)(s->late_ms * 1e6 * (2 * pj_random_unit(r) - 1));
        double mj = truth_energy_mj(t, t->begin_ns, tick + late);
        if (s->step_mj > 0) mj = floor(mj / s->step_mj + phase) * s->step_mj;
        if (tick > at)
            w[(*count)++] =
                (pj_window){.begin_ns = tick - period,
                            .end_ns = tick,
                            .energy_mj = (mj - before_mj) * (1 + s->noise * pj_random_normal(r)),
                            .reading_mj = s->step_mj / sqrt(12),
                            .begin_s = s->late_ms * 1e-3 / sqrt(3),
                            .end_s = s->late_ms * 1e-3 / sqrt(3)};
        before_mj = mj;
    }
    return w;
}

pj_window *truth_windows(const truth *t, const sensor *s, uint64_t seed, size_t *count)
{
    pj_random r = {seed ^ 0x5eed};
    if (s->counter) return counter_windows(t, s, &r, count);
    int64_t period = (int64_t)(s->period_ms * 1e6);
    int64_t window = s->window_ms > 0 ? (int64_t)(s->window_ms * 1e6) : period;
    int64_t at = t->begin_ns + (int64_t)(pj_random_unit(&r) * (double)period);
    pj_window *w = pj_alloc((size_t)((t->end_ns - t->begin_ns) / period) + 2, sizeof *w);
    *count = 0;
    for (at += window; at <= t->end_ns; at += period) {
        double mj = truth_energy_mj(t, at - window, at) * (1 + s->noise * pj_random_normal(&r));
        w[(*count)++] = (pj_window){.begin_ns = at - window, .end_ns = at, .energy_mj = mj};
    }
    return w;
}
