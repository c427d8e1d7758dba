/* Shares of tasks that were solved, with intervals, and whether two sides differ in them. Outcomes
 * are texts of '1' (solved) and '0', one character for each task in a fixed order. Pure. */
#ifndef PJ_ANALYSIS_SCORE_H
#define PJ_ANALYSIS_SCORE_H

#include <stdint.h>

/* Fewer tasks that only one of two sides solved can never tell them apart at the 5 % level, even
 * if all of them favour one side: 2 / 2^5 is more than 0.05. */
enum { PJ_SCORE_LEAST_DIFFERENT = 6 };

typedef struct pj_score {
    uint32_t tasks, right;
    double share, lo, hi; /* of tasks solved, 95 % interval by Wilson; NAN: no tasks */
} pj_score;

pj_score pj_score_of(const char *outcomes); /* NULL: no tasks */

typedef struct pj_score_contrast {
    uint32_t only_a, only_b; /* tasks that only one of them solved */
    double p; /* of the exact sign test on those; NAN: too few for any result, or other tasks */
} pj_score_contrast;

pj_score_contrast pj_score_compare(const char *a, const char *b);

#endif
