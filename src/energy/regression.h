/*
 * The linear model behind the estimator, for one choice of noise and drift at a time:
 *
 *   y = A p + B d + e      y: net energy of each window; A: seconds of each class in it; p: powers
 *   p ~ N(m0, P0)          P0 = diagonal + one direction in which all classes of a group move
 *                          together (a calibration that is off as a whole; a mean that is not
 * known) d ~ N(0, drift^2)      drift of the baseline: hats a few seconds wide e ~ N(0, V) V[w] =
 * (noise x energy of w)^2 + what is known of the window beforehand
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
    double *sd;               /* [rows] known noise */
    double *m0, *d0;          /* [n] prior means and the diagonal of their variances */
    double *common;           /* [n] how far the common direction moves each; 0: it stays */
    bool *calibrated;         /* [n] which of the two groups, with a direction each */
    double *total;            /* [n] seconds of each column in the whole run */
    double total_y;           /* net energy of the run */
    /* of the noise that was accumulated last */
    double noise;
    double *normal, *rhs; /* A'V^-1 A [n][n], A'V^-1 (y - A m0) [n] */
    double residual, log_v;
    double *factor, *vector; /* [n][n], [n] */
} pj_regression;

pj_status pj_regression_init(pj_regression *r, const pj_fit_input *input, pj_error *err);
void pj_regression_fini(pj_regression *r); /* may run twice */
/* Normal equations for a relative noise; the next three speak of it. */
void pj_regression_set_noise(pj_regression *r, double noise);
/* Log marginal likelihood up to a constant; -INFINITY: the equations cannot be solved. */
double pj_regression_evidence(pj_regression *r, double drift_sd);
/* Mean [n] and covariance [n][n] given the windows and the run's total. */
bool pj_regression_posterior(pj_regression *r, double drift_sd, double *mean, double *cov);
/* From now on noise is judged by what these powers predict for a window instead of what was read:
 * weights that follow the noise of a reading would favour low ones, and ones near their neighbour.
 */
void pj_regression_relevel(pj_regression *r, const double *mean);

#endif
