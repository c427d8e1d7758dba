/* Paired differences and mean shares, with Student intervals. */
#include "analysis/part_cost.h"

#include "analysis/compare.h"
#include "base/estimate.h"

#include <math.h>

static pj_estimate around(double value, double half)
{
    return (pj_estimate){value, value - half, value + half};
}

static const pj_part_run *of_block(const pj_part_query *request, uint32_t block)
{
    for (uint32_t i = 0; i < request->without_count; i++)
        if (request->without[i].block == block && isfinite(request->without[i].joules))
            return &request->without[i];
    return NULL;
}

static void part_cost_compare(const pj_part_query *request, pj_part_cost *cost)
{
    pj_moments differences = {0};
    double variance = 0;
    for (uint32_t i = 0; i < request->whole_count; i++) {
        const pj_part_run *whole = &request->whole[i], *without = of_block(request, whole->block);
        if (!without || !isfinite(whole->joules)) continue;
        pj_moments_add(&differences, whole->joules - without->joules);
        variance += whole->sensor_sd * whole->sensor_sd + without->sensor_sd * without->sensor_sd;
    }
    cost->pairs = differences.n;
    if (!differences.n) return;
    cost->difference = around(differences.mean, pj_half_width(differences.n, differences.squares));
    cost->resolution = 1.96 * sqrt(variance / differences.n);
}

/* Random errors average out over runs; the systematic error is the same in all of them. */
static void part_cost_attribute(const pj_part_query *request, pj_part_cost *cost)
{
    pj_moments shares = {0};
    double sd = 0;
    for (uint32_t i = 0; i < request->share_count; i++) {
        if (!isfinite(request->shares[i].joules)) continue;
        pj_moments_add(&shares, request->shares[i].joules);
        sd += request->shares[i].sd;
    }
    if (!shares.n) return;
    double chance = shares.n > 1 ? pj_half_width(shares.n, shares.squares) : 0;
    pj_bounds bounds = pj_bounds_of(shares.mean, hypot(chance, PJ_Z95 * sd / shares.n));
    cost->attributed = (pj_estimate){shares.mean, bounds.lo, bounds.hi};
}

void pj_part_cost_get(const pj_part_query *request, pj_part_cost *cost)
{
    const pj_estimate unknown = {NAN, NAN, NAN};
    *cost = (pj_part_cost){unknown, unknown, NAN, 0, PJ_PART_OPEN};
    part_cost_compare(request, cost);
    part_cost_attribute(request, cost);
    if (cost->pairs && fabs(cost->difference.value) < cost->resolution) {
        cost->outcome = PJ_PART_TOO_SHORT;
        cost->difference = unknown;
        return;
    }
    double apart = fabs(cost->difference.value - cost->attributed.value);
    double reach = hypot(cost->difference.hi - cost->difference.value,
                         cost->attributed.hi - cost->attributed.value);
    if (!isfinite(apart) || !isfinite(reach)) return;
    bool may_be_none = cost->difference.lo <= 0 && cost->difference.hi >= 0;
    cost->outcome = apart > reach ? PJ_PART_DISAGREE
                    : may_be_none ? PJ_PART_UNCLEAR
                                  : PJ_PART_AGREE;
}

const char *pj_part_outcome_name(pj_part_outcome outcome)
{
    static const char *const names[] = {"agree", "disagree", "too_short", "unclear", "open"};
    return names[outcome];
}
