/* Paired differences and mean shares, with Student intervals. */
#include "analysis/part_cost.h"

#include "analysis/compare.h"
#include "analysis/ratio.h"

#include <math.h>

/* Running mean and sum of squares (Welford). */
typedef struct spread {
    uint32_t n;
    double mean, squares;
} spread;

static void add(spread *s, double value)
{
    double away = value - s->mean;
    s->mean += away / ++s->n;
    s->squares += away * (value - s->mean);
}

/* 95 % of the mean; NAN with one value. */
static double half_width(const spread *s)
{
    if (s->n < 2) return NAN;
    return pj_student_quantile(1 - PJ_LEVEL / 2, s->n - 1) * sqrt(s->squares / (s->n - 1) / s->n);
}

static pj_estimate around(double value, double half)
{
    return (pj_estimate){value, value - half, value + half};
}

static const pj_part_run *of_block(const pj_part_ask *ask, uint32_t block)
{
    for (uint32_t i = 0; i < ask->without_count; i++)
        if (ask->without[i].block == block && isfinite(ask->without[i].joules))
            return &ask->without[i];
    return NULL;
}

static void compare(const pj_part_ask *ask, pj_part_cost *cost)
{
    spread differences = {0};
    double variance = 0;
    for (uint32_t i = 0; i < ask->whole_count; i++) {
        const pj_part_run *whole = &ask->whole[i], *without = of_block(ask, whole->block);
        if (!without || !isfinite(whole->joules)) continue;
        add(&differences, whole->joules - without->joules);
        variance += whole->sensor_sd * whole->sensor_sd + without->sensor_sd * without->sensor_sd;
    }
    cost->pairs = differences.n;
    if (!differences.n) return;
    cost->difference = around(differences.mean, half_width(&differences));
    cost->resolution = 1.96 * sqrt(variance / differences.n);
}

/* Random errors average out over runs; attribution's systematic error is the same in all of them.
 */
static void attribute(const pj_part_ask *ask, pj_part_cost *cost)
{
    spread shares = {0};
    double sd = 0;
    for (uint32_t i = 0; i < ask->share_count; i++) {
        if (!isfinite(ask->shares[i].joules)) continue;
        add(&shares, ask->shares[i].joules);
        sd += ask->shares[i].sd;
    }
    if (!shares.n) return;
    double chance = shares.n > 1 ? half_width(&shares) : 0;
    cost->attributed = around(shares.mean, hypot(chance, 1.96 * sd / shares.n));
}

void pj_part_cost_get(const pj_part_ask *ask, pj_part_cost *cost)
{
    const pj_estimate unknown = {NAN, NAN, NAN};
    *cost = (pj_part_cost){unknown, unknown, NAN, 0, PJ_PART_OPEN};
    compare(ask, cost);
    attribute(ask, cost);
    if (cost->pairs && fabs(cost->difference.value) < cost->resolution) {
        cost->outcome = PJ_PART_TOO_SHORT;
        cost->difference = unknown;
        return;
    }
    double apart = fabs(cost->difference.value - cost->attributed.value);
    double reach = hypot(cost->difference.hi - cost->difference.value,
                         cost->attributed.hi - cost->attributed.value);
    if (isfinite(apart) && isfinite(reach))
        cost->outcome = apart <= reach ? PJ_PART_AGREE : PJ_PART_DISAGREE;
}

const char *pj_part_outcome_name(pj_part_outcome outcome)
{
    static const char *const names[] = {"agree", "disagree", "too_short", "open"};
    return names[outcome];
}
