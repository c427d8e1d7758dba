/* Pairs of runs in which the second does something more, with known truth, for the search for
 * reasons (analysis/why.h). */
#ifndef PJ_BENCH_PLANTED_WHY_H
#define PJ_BENCH_PLANTED_WHY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum pj_planted_cost {
    PJ_COST_NONE = 0, /* both runs are alike */
    PJ_COST_NORM,     /* a norm is computed twice */
    PJ_COST_COPY,     /* a product's output is transposed into another buffer */
    PJ_COST_TYPE,     /* one product has F32 weights among BF16 */
    PJ_COST_GAP,      /* every step waits */
    PJ_COST_PAUSE,    /* every step waits for 2 to 5 % of its time */
    PJ_COST_CLOCK,    /* the processor's clock is capped */
    PJ_COST_KERNEL,   /* one product's kernel is slower */
    PJ_COST_POWER,    /* one product's kernel draws more power */
    PJ_COST_COUNT
} pj_planted_cost;

extern const char *const pj_planted_cost_names[PJ_COST_COUNT]; /* "norm", ... */

typedef struct pj_planted_why_score {
    double pairs;
    double found; /* the planted cause is named at its part; of like pairs: nothing is */
    double alone; /* and nothing else */
} pj_planted_why_score;

enum { PJ_PLANTED_WHY_TOKENS = 24 };

typedef struct pj_planted_why_plan {
    pj_planted_cost cost;
    uint32_t runs, tokens; /* of each side; of each run */
    bool busy;             /* other programs interrupt and slow both sides */
} pj_planted_why_plan;

/* One pair, drawn from `seed`. */
pj_status pj_planted_why_try(const pj_planted_why_plan *plan, uint64_t seed,
                             pj_planted_why_score *score, pj_error *err);

#endif
