/*
 * The linear model behind the estimator, for one choice of noise and drift at a time:
 *
 *   y = A p + B d + e      y: net energy of each window; A: seconds of each class in it; p: powers
 *   p ~ N(m0, P0)          P0: a diagonal and one direction in which all classes of a group move
 *                          together (a calibration that is off as a whole; a mean not known)
 *   d ~ N(0, drift^2)      drift of the baseline: hats a few seconds wide
 *   e ~ N(0, V)            V[w, w] = (noise x energy of w)^2 + what is known of w beforehand
 *                          V[w, w - 1] = -(variance of the counter's reading between them)
 *
 * What is wrong with a counter's reading, its rounding and when it was taken, is in the window that
 * it closes and in the one that it opens with opposite signs: V is tridiagonal, and long sums are
 * known as well as short ones. Taken for independent, the errors would make every sum of windows
 * look worse than it is. V^-1 is full, but a row of V^-1 A follows from the row before, so that a
 * window costs one dense row of sums besides its few entries.
 *
 * All in one scale: powers in units of the run's mean power, so energies are in units x seconds.
 */
#ifndef PJ_ENERGY_REGRESSION_H
#define PJ_ENERGY_REGRESSION_H

#include "energy/design.h"

typedef struct pj_regression {
    const pj_fit_input *in;
    pj_design design;
    size_t classes, knots, n; /* n = classes + knots */
    double scale;             /* mW of one unit */
    double *y;                /* [rows] net energy */
    double *level;            /* [rows] what relative noise is relative to: the gross energy */
    double *known;            /* [rows] variance known beforehand */
    double *link;             /* [rows] covariance with the window before; 0: independent */
    double loose;             /* variance of the readings that only one window has */
    double *m0, *d0;          /* [n] prior means and the diagonal of their variances */
    double *common;           /* [n] how far the common direction moves each; 0: it stays */
    bool *calibrated;         /* [n] which of the two groups, with a direction each */
    double total_y;           /* net energy of the run */
    double *around;           /* [n] the powers that sums are taken around: near the solution,
                                 small differences of large sums do not drown */
    /* of the noise that was accumulated last */
    double noise;
    double *weight, *step; /* [rows] V^-1, as pj_tridiagonal_invert has it */
    double *normal, *rhs;  /* A'V^-1 A [n][n], A'V^-1 (y - A around) [n] */
    double residual, log_v;
    double *factor, *pull, *vector; /* [n][n], P0^-1 (m0 - around) [n], [n] */
    double misfit;                  /* of `around` to the prior */
} pj_regression;

pj_status pj_regression_init(pj_regression *r, const pj_fit_input *input, pj_error *err);
void pj_regression_fini(pj_regression *r); /* may run twice */
/* Normal equations for a relative noise; the functions below speak of it. */
void pj_regression_set_noise(pj_regression *r, double noise);
/* What that made, to come back to while neither windows nor `around` change. */
typedef struct pj_regression_sums {
    double noise, residual, log_v;
    double *normal, *rhs; /* one allocation; NULL: nothing is kept */
} pj_regression_sums;

void pj_regression_keep(const pj_regression *r, pj_regression_sums *sums); /* or nothing */
void pj_regression_recall(pj_regression *r, const pj_regression_sums *sums);
/* Relative noise that cannot be told from none: its sum over the run is a tenth of what is not
 * known of one reading of the counter; 0: the windows are no counter's. */
double pj_regression_least_noise(const pj_regression *r);
/* Log marginal likelihood up to a constant; -INFINITY: the equations cannot be solved. */
double pj_regression_evidence(pj_regression *r, double drift_sd);
/* Mean [n] and covariance [n][n] given the windows and the run's total. */
bool pj_regression_posterior(pj_regression *r, double drift_sd, double *mean, double *cov);
/* From now on sums are taken around these powers. */
void pj_regression_centre(pj_regression *r, const double *mean);
/* From now on noise is judged by what these powers predict for a window instead of what was read:
 * weights that follow the noise of a reading would favour low ones, and ones near their neighbour.
 */
void pj_regression_relevel(pj_regression *r, const double *mean);
/* Normal equations as if windows had nothing to do with each other: what they tell apart. */
void pj_regression_set_apart(pj_regression *r);

#endif
