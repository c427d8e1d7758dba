/* The permutation test of the difference of two means. */
#include "analysis/ratio.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { MOST_WAYS = 20000 };

/* The binomial coefficient n over k, capped. */
static double ways(size_t n, size_t k)
{
    double w = 1;
    for (size_t i = 1; i <= k; i++) w = w * (double)(n - k + i) / (double)i;
    return w;
}

double pj_permutation_least(size_t n_a, size_t n_b)
{
    if (!n_a || !n_b) return NAN;
    return (n_a == n_b ? 2 : 1) / ways(n_a + n_b, n_a);
}

typedef struct exchange {
    const double *all;
    size_t n, n_a;
    double sum;      /* of all */
    double observed; /* distance of a's sum from its expectation */
    uint64_t as_far, tried;
} exchange;

static void count_way(exchange *e, double sum_a)
{
    double expected = e->sum * (double)e->n_a / (double)e->n;
    e->tried++;
    e->as_far += fabs(sum_a - expected) >= e->observed * (1 - 1e-12);
}

/* Enumerates all choices of `left` more values from index `at` on. */
static void permute_choose(exchange *e, size_t at, size_t left, double sum_a)
{
    if (left == 0) {
        count_way(e, sum_a);
        return;
    }
    for (size_t i = at; i + left <= e->n; i++)
        permute_choose(e, i + 1, left - 1, sum_a + e->all[i]);
}

static void choose_at_random(exchange *e, double *work)
{
    pj_random random = {20250712};
    memcpy(work, e->all, e->n * sizeof *work);
    count_way(e, e->sum * (double)e->n_a / (double)e->n + e->observed); /* the observed one */
    for (int k = 1; k < MOST_WAYS; k++) {
        double sum = 0;
        for (size_t i = 0; i < e->n_a; i++) {
            size_t j = i + (size_t)(pj_random_unit(&random) * (double)(e->n - i));
            double kept = work[i];
            work[i] = work[j];
            work[j] = kept;
            sum += work[i];
        }
        count_way(e, sum);
    }
}

double pj_permutation_p(const double *a, size_t n_a, const double *b, size_t n_b)
{
    if (!n_a || !n_b) return NAN;
    double *all = pj_alloc(2 * (n_a + n_b), sizeof *all);
    if (!all) return NAN;
    exchange e = {.all = all, .n = n_a + n_b, .n_a = n_a};
    memcpy(all, a, n_a * sizeof *all);
    memcpy(all + n_a, b, n_b * sizeof *all);
    double sum_a = 0;
    for (size_t i = 0; i < e.n; i++) {
        e.sum += all[i];
        if (i < n_a) sum_a += all[i];
    }
    e.observed = fabs(sum_a - e.sum * (double)n_a / (double)e.n);
    if (ways(e.n, n_a) <= MOST_WAYS)
        permute_choose(&e, 0, n_a, 0);
    else
        choose_at_random(&e, all + e.n);
    pj_free(all);
    return (double)e.as_far / (double)e.tried;
}
