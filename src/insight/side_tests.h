/* One test of one figure between two sides. */
#ifndef PJ_INSIGHT_SIDE_TESTS_H
#define PJ_INSIGHT_SIDE_TESTS_H

#include "insight/sides.h"

typedef struct pj_side_test {
    const char *metric, *unit, *sample; /* sample: "run" or "token" */
    uint32_t a, b;
    pj_comparison result;
    pj_ratio ratio;
    double adjusted;  /* by Holm over all tests of the answer */
    double primary_p; /* of joules per token: by Holm over the pairs; else NAN */
} pj_side_test;

#endif
