/* PELT (Killick, Fearnhead and Eckley 2012): the exact minimum of cost plus penalty in about linear
 * time. The cost of a segment is that of a Gaussian with its own mean and variance. */
#include "analysis/phases.h"

#include "base/memory.h"

#include <math.h>

enum { SHORTEST = 3 };

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

static void run(const search *s, size_t count, double *best, size_t *last, size_t *candidates)
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

size_t pj_change_points(const double *values, size_t count, size_t *begin)
{
    if (count < 2 * SHORTEST) return 0;
    sums *upto = pj_alloc(count + 1, sizeof *upto);
    double *best = pj_alloc(count + 1, sizeof *best);
    size_t *last = pj_alloc(count + 1, sizeof *last), segments = 0;
    size_t *candidates = pj_alloc(count + 2, sizeof *candidates);
    if (upto && best && last && candidates) {
        for (size_t i = 0; i < count; i++)
            upto[i + 1] = (sums){upto[i].x + values[i], upto[i].xx + values[i] * values[i]};
        search s = {upto, noise_floor(values, count)};
        run(&s, count, best, last, candidates);
        segments = read_back(last, count, begin);
    }
    pj_free(upto);
    pj_free(best);
    pj_free(last);
    pj_free(candidates);
    return segments;
}
