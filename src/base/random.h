/* Small seeded generator (SplitMix64): same seed, same numbers, on every machine. Not for secrets.
 */
#ifndef PJ_BASE_RANDOM_H
#define PJ_BASE_RANDOM_H

#include <math.h>
#include <stdint.h>

typedef struct pj_random {
    uint64_t state;
} pj_random;

static inline uint64_t pj_random_u64(pj_random *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [0, 1). */
static inline double pj_random_unit(pj_random *r)
{
    return (double)(pj_random_u64(r) >> 11) * 0x1p-53;
}

/* Standard normal (Box-Muller, one of the pair). */
static inline double pj_random_normal(pj_random *r)
{
    double u = 1.0 - pj_random_unit(r), v = pj_random_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

#endif
