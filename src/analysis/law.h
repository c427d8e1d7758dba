/* Power laws y = a x^b through points, such as energy per token over parameters of models. Both are
 * on logarithms; x is known exactly, so that the residuals are those of y. Pure. */
#ifndef PJ_ANALYSIS_LAW_H
#define PJ_ANALYSIS_LAW_H

#include <stdint.h>

enum { PJ_LAW_LEAST = 3 };

typedef struct pj_law_point {
    double x, y; /* positive; one per value or model, however many runs it has */
} pj_law_point;

typedef struct pj_law {
    double factor;                             /* a */
    double exponent, exponent_lo, exponent_hi; /* 95 %, Student with points - 2 degrees */
    double r2;
    const char *refusal; /* NULL: the figures above hold */
} pj_law;

void pj_law_fit(const pj_law_point *points, uint32_t count, pj_law *law);

/* How much of the variance of log y the kind (0, 1, ...) of each point explains, 0 to 1; NAN with
 * one kind or fewer than PJ_LAW_LEAST points. */
double pj_law_of_kinds(const pj_law_point *points, const uint32_t *kinds, uint32_t count);

#endif
