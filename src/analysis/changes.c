/* PELT (Killick, Fearnhead and Eckley 2012): the exact minimum of cost plus penalty. The cost of a
 * segment is that of a Gaussian with its own mean and variance. It takes linear time where changes
 * are frequent and quadratic time where there are none, so long traces are searched as medians of
 * equal bins (a mean would give the bin of a change a level of its own), and each change point is
 * then placed exactly within its two bins. */
#include "analysis/phases.h"

#include "base/median.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { SHORTEST = 3, MOST_POINTS = 2048 };

typedef struct sums {
    double x, xx;
} sums;

typedef struct search {
    const sums *upto; /* prefix sums: of the first i values */
    double floor;     /* floor of the variance: differences below the noise are ignored */
} search;

static double cost(const search *s, size_t from, size_t to)
{
    double n = (double)(to - from), mean = (s->upto[to].x - s->upto[from].x) / n;
    double variance = (s->upto[to].xx - s->upto[from].xx) / n - mean * mean;
    return n * log(fmax(variance, s->floor));
}

/* Noise estimated from differences of neighbours, few of which are change points. */
static double noise_floor(const double *values, size_t count)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 1; i < count; i++) {
        double d = values[i] - values[i - 1];
        if (fabs(d) > 0.5) continue; /* a step, not noise */
        sum += d * d;
        n++;
    }
    return fmax(n ? sum / (double)n / 2 : 0, 1e-8);
}

/* Walks back from the end; returns the number of segments. */
static size_t read_back(const size_t *last, size_t count, size_t *begin)
{
    size_t segments = 0;
    for (size_t at = count; at > 0; at = last[at]) segments++;
    size_t i = segments;
    for (size_t at = count; at > 0; at = last[at]) begin[--i] = last[at];
    return segments;
}

static void changes_run(const search *s, size_t count, double *best, size_t *last,
                        size_t *candidates)
{
    double penalty = 3 * log((double)count);
    size_t n = 1;
    candidates[0] = 0;
    best[0] = -penalty;
    for (size_t t = 1; t <= count; t++) best[t] = INFINITY;
    for (size_t t = SHORTEST; t <= count; t++) {
        for (size_t k = 0; k < n; k++) {
            double total = best[candidates[k]] + cost(s, candidates[k], t) + penalty;
            if (total < best[t]) best[t] = total, last[t] = candidates[k];
        }
        size_t kept = 0; /* prune candidates that can never be optimal again */
        for (size_t k = 0; k < n; k++)
            if (best[candidates[k]] + cost(s, candidates[k], t) <= best[t] + penalty)
                candidates[kept++] = candidates[k];
        n = kept;
        if (t + 1 >= 2 * SHORTEST) candidates[n++] = t + 1 - SHORTEST;
    }
}

static size_t search_all(const double *values, size_t count, size_t *begin)
{
    pj_arena arena;
    pj_arena_init(&arena, 0);
    sums *upto = pj_arena_alloc(&arena, count + 1, sizeof *upto);
    double *best = pj_arena_alloc(&arena, count + 1, sizeof *best);
    size_t *last = pj_arena_alloc(&arena, count + 1, sizeof *last), segments = 0;
    size_t *candidates = pj_arena_alloc(&arena, count + 2, sizeof *candidates);
    if (upto && best && last && candidates) {
        for (size_t i = 0; i < count; i++)
            upto[i + 1] = (sums){upto[i].x + values[i], upto[i].xx + values[i] * values[i]};
        search s = {upto, noise_floor(values, count)};
        changes_run(&s, count, best, last, candidates);
        segments = read_back(last, count, begin);
    }
    pj_arena_fini(&arena);
    return segments;
}

/* Moves a change point to where both sides differ least from the means of their segments. */
static size_t changes_refine(const double *values, size_t from, size_t at, size_t to, size_t bin)
{
    double left = 0, right = 0, cost = 0, least = 0;
    size_t lo = at > from + bin ? at - bin : from + 1, hi = at + bin < to ? at + bin : to - 1;
    size_t best = lo;
    for (size_t i = from; i < at; i++) left += values[i] / (double)(at - from);
    for (size_t i = at; i < to; i++) right += values[i] / (double)(to - at);
    for (size_t i = lo; i < hi; i++) {
        double l = values[i] - left, r = values[i] - right;
        cost += l * l - r * r; /* of a change after i, relative to one at lo */
        if (cost < least) {
            least = cost;
            best = i + 1;
        }
    }
    return best;
}

/* Medians of the bins, through a copy of each. */
static void take_medians(const double *values, size_t bins, size_t bin, double *copy,
                         double *medians)
{
    for (size_t i = 0; i < bins; i++) {
        memcpy(copy, values + i * bin, bin * sizeof *copy);
        pj_sort_doubles(copy, bin);
        medians[i] = copy[bin / 2];
    }
}

static size_t search_bins(const double *values, size_t count, size_t *begin)
{
    size_t bin = (count + MOST_POINTS - 1) / MOST_POINTS, bins = count / bin, segments = 0;
    double *medians = pj_alloc(bins, sizeof *medians), *copy = pj_alloc(bin, sizeof *copy);
    if (medians && copy) {
        take_medians(values, bins, bin, copy, medians);
        segments = search_all(medians, bins, begin);
    }
    for (size_t k = 0; k < segments; k++) begin[k] *= bin;
    for (size_t k = 1; k < segments; k++) {
        size_t to = k + 1 < segments ? begin[k + 1] : count;
        begin[k] = changes_refine(values, begin[k - 1], begin[k], to, bin);
    }
    pj_free(medians);
    pj_free(copy);
    return segments;
}

size_t pj_change_points(const double *values, size_t count, size_t *begin)
{
    if (count < 2 * SHORTEST) return 0;
    return count <= MOST_POINTS ? search_all(values, count, begin)
                                : search_bins(values, count, begin);
}
