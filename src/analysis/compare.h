/* Two-sample comparison: Welch's t test and the Mann-Whitney test, effect sizes (Hedges' g,
 * rank-biserial correlation), and Holm's correction for multiple tests. Pure: arrays in, figures
 * out. NAN where a test is not applicable (fewer than two values, no spread). */
#ifndef PJ_ANALYSIS_COMPARE_H
#define PJ_ANALYSIS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pj_comparison {
    size_t n_a, n_b;
    double mean_a, mean_b, sd_a, sd_b;
    double difference; /* b - a */
    double welch_t, welch_df, welch_p;
    double mann_whitney_u, mann_whitney_p; /* U of a; p by the normal approximation with ties */
    double hedges_g;                       /* standardised b - a, corrected for small samples */
    double rank_biserial;                  /* -1: every b below every a; 1: above */
} pj_comparison;

/* `work` holds n_a + n_b doubles. NANs among the values are ignored. */
void pj_compare(const double *a, size_t n_a, const double *b, size_t n_b, double *work,
                pj_comparison *result);
/* Holm's correction: p values adjusted for testing all of them together. NANs are not counted. */
void pj_holm(const double *p, size_t count, double *adjusted);

/* Mean and sum of squared deviations, value by value (Welford). */
typedef struct pj_moments {
    uint32_t n;
    double mean, squares;
} pj_moments;

void pj_moments_add(pj_moments *moments, double value);
/* Half of the 95 % interval of a mean of n values; NAN for fewer than two. */
double pj_half_width(double n, double squares);

/* A mean with its 95 % interval by Student; of a figure that is never negative by pj_bounds_of.
 * NAN: fewer than two values. */
typedef struct pj_mean {
    uint32_t n;
    double value, sd, lo, hi;
} pj_mean;

pj_mean pj_mean_of(const pj_moments *moments, bool may_be_negative);

/* Values of one figure, and logarithms of those that are positive. */
typedef struct pj_sample {
    pj_moments plain, logs;
} pj_sample;

void pj_sample_add(pj_sample *sample, double value);
/* Of positive values the geometric mean, so that the ratio of two means is the one that is tested;
 * else the arithmetic one. `sd` is of the single values. */
pj_mean pj_sample_mean(const pj_sample *sample, bool may_be_negative);

double pj_student_two_sided(double t, double degrees); /* p of |T| >= |t| */
double pj_student_quantile(double probability, double degrees);

#endif
