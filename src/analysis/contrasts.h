/*
 * Pairs of sides compared in one metric and judged together: the decision behind the table of
 * tests, the sentence and "most efficient". The p values are corrected by Holm's method for the
 * number of pairs. Pure.
 */
#ifndef PJ_ANALYSIS_CONTRASTS_H
#define PJ_ANALYSIS_CONTRASTS_H

#include "analysis/ratio.h"

#include <stdbool.h>

typedef struct pj_contrast {
    const double *a, *b; /* values of the two sides */
    size_t n_a, n_b;
    double gain_sd; /* see pj_ratio_compare */
    bool refused;   /* different quantities: compared, but not judged */
    /* the result: */
    pj_ratio ratio;
    double p; /* of `ratio`, corrected; NAN: not judged */
    bool different;
} pj_contrast;

void pj_contrasts_judge(pj_contrast *pairs, size_t count);

#endif
