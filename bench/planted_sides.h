/* Comparisons with a planted difference: all sides are alike but the second, judged as `perjoule
 * compare` does. */
#ifndef PJ_BENCH_PLANTED_SIDES_H
#define PJ_BENCH_PLANTED_SIDES_H

#include "base/random.h"

#include <stddef.h>

typedef struct pj_planted_sides {
    size_t sides, runs; /* at most 8 and 20 */
    double factor;      /* of the second side's energy */
    double spread;      /* relative, of single runs */
} pj_planted_sides;

/* Shares of comparisons in which any pair, and in which the first two sides are called different.
 */
typedef struct pj_planted_found {
    double any, planted;
} pj_planted_found;

/* Pairs that are tested: all of up to six sides, of more each with the first. */
size_t pj_planted_sides_pairs(size_t sides);
pj_planted_found pj_planted_sides_try(const pj_planted_sides *plan, uint64_t rounds,
                                      pj_random *random);

#endif
