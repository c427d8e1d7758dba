/*
 * Pairs of sides compared in one metric and judged together: the decision behind the table of
 * tests, the sentence and "most efficient". The p values are corrected by Holm's method for the
 * number of pairs. Pure.
 */
#ifndef PJ_ANALYSIS_PAIRS_H
#define PJ_ANALYSIS_PAIRS_H

#include "analysis/ratio.h"

#include <stdbool.h>

typedef struct pj_pair {
    const double *a, *b; /* values of the two sides */
    size_t n_a, n_b;
    double gain_sd; /* see pj_ratio_compare */
    bool refused;   /* different quantities: compared, but not judged */
    /* the result: */
    pj_ratio ratio;
    double p; /* of `ratio`, corrected; NAN: not judged */
    bool different;
} pj_pair;

void pj_pairs_judge(pj_pair *pairs, size_t count);

#endif
