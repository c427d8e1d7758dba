/*
 * How many times as much as A does B need? The main statement of every comparison: the ratio of
 * geometric means with a 95 % interval, because energies are skewed and people think in "times".
 * The unit of replication is the run. Welch's t test on logarithms decides; a permutation test does
 * when both sides have fewer than PJ_PERMUTE_BELOW values and there are enough ways to exchange
 * them. Runs of randomised blocks are compared in pairs, so that drift from block to block cancels.
 * Pure.
 */
#ifndef PJ_ANALYSIS_RATIO_H
#define PJ_ANALYSIS_RATIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_PERMUTE_BELOW = 6 };

/* The power at which differences are called detectable, and the level of the tests. */
#define PJ_POWER 0.80
#define PJ_LEVEL 0.05

typedef struct pj_ratio {
    size_t n_a, n_b; /* values that are positive and finite */
    size_t pairs;    /* that are judged together: see contrasts.h */
    double mean_a, mean_b;
    double ratio, lo, hi;          /* b / a; the interval is NAN with one value a side */
    double p;                      /* that the ratio is 1, by `method` */
    double welch_p, permutation_p; /* NAN: not computed */
    const char *method;            /* "welch_log", "permutation", "paired_log" or "none" */
    double cv;                     /* relative spread of single values, pooled */
} pj_ratio;

/* By Welch's test. `gain_sd`: relative standard deviation of the ratio from the sensors'
 * calibration; 0 when both sides were measured by one device, where it cancels. It widens the
 * interval and the p value. */
void pj_ratio_compare(const double *a, size_t n_a, const double *b, size_t n_b, double gain_sd,
                      pj_ratio *result);
/* Whether the permutation test decides: it could find something after correction for the pairs. */
bool pj_permutation_decides(size_t n_a, size_t n_b, size_t pairs);
/* Runs the permutation test if it decides among `result->pairs`; no gain. */
void pj_ratio_permute(const double *a, size_t n_a, const double *b, size_t n_b, pj_ratio *result);
/* Runs of randomised blocks on one device; sorted by block. */
typedef struct pj_blocked {
    const double *values;
    const uint32_t *blocks;
    size_t count;
} pj_blocked;

/* The same of the pairs from blocks that both sides have: Student's t test on the differences of
 * logarithms. `cv` is the spread within blocks. */
void pj_ratio_paired(const pj_blocked *a, const pj_blocked *b, pj_ratio *result);
/* Sample size per side to detect a relative `difference` with PJ_POWER at a spread of `cv` of
 * single values, when `pairs` are judged together. */
double pj_repeats_for(double cv, double difference, size_t pairs);
/* The relative difference that is detected with PJ_POWER by the test that decides. */
double pj_detectable(double cv, size_t n_a, size_t n_b, size_t pairs);

/* Two-sided p of the difference of means when values are exchanged between the sides: exact up to
 * 20,000 ways, else 20,000 random ones from a fixed seed. NAN: one of the sides is empty. */
double pj_permutation_p(const double *a, size_t n_a, const double *b, size_t n_b);
/* The smallest p that the exact test can give. */
double pj_permutation_least(size_t n_a, size_t n_b);

/* Benjamini-Hochberg: p values adjusted so that those below a level contain at most that share of
 * false ones. NANs are not counted. */
void pj_benjamini_hochberg(const double *p, size_t count, double *adjusted);

#endif
