/* Draws planted comparisons and counts what is found. */
#include "bench/planted_sides.h"

#include "analysis/contrasts.h"

#include <math.h>

enum { MOST_SIDES = 8, MOST_RUNS = 20, MOST_PAIRS = 15 };

static bool is_tested(size_t sides, size_t a, size_t b)
{
    return a < b && (sides <= 6 || a == 0);
}

size_t pj_planted_sides_pairs(size_t sides)
{
    return sides <= 6 ? sides * (sides - 1) / 2 : sides - 1;
}

static void planted_sides_draw(const pj_planted_sides *plan, pj_random *random,
                               double values[MOST_SIDES][MOST_RUNS])
{
    for (size_t i = 0; i < plan->sides; i++)
        for (size_t k = 0; k < plan->runs; k++)
            values[i][k] =
                0.2 * (i == 1 ? plan->factor : 1) * exp(plan->spread * pj_random_normal(random));
}

static size_t planted_sides_judge(const pj_planted_sides *plan,
                                  double values[MOST_SIDES][MOST_RUNS], pj_contrast *pairs)
{
    size_t count = 0;
    for (size_t a = 0; a < plan->sides; a++)
        for (size_t b = a + 1; b < plan->sides; b++)
            if (is_tested(plan->sides, a, b))
                pairs[count++] = (pj_contrast){values[a], values[b], plan->runs, plan->runs};
    pj_contrasts_judge(pairs, count);
    return count;
}

pj_planted_found pj_planted_sides_try(const pj_planted_sides *plan, uint64_t rounds,
                                      pj_random *random)
{
    pj_planted_found found = {0, 0};
    for (uint64_t i = 0; i < rounds; i++) {
        double values[MOST_SIDES][MOST_RUNS];
        pj_contrast pairs[MOST_PAIRS];
        bool any = false;
        planted_sides_draw(plan, random, values);
        size_t count = planted_sides_judge(plan, values, pairs);
        for (size_t k = 0; k < count; k++) any |= pairs[k].different;
        found.any += any / (double)rounds;
        found.planted += pairs[0].different / (double)rounds;
    }
    return found;
}
