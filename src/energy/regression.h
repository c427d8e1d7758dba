/*
 * The linear model behind the estimator (generalised least squares with a prior), for one choice of
 * noise and drift at a time:
 *
 *   y = A p + B d + e      y: net energy of each window; A: seconds of each class in it; p: powers
 *   p ~ N(m0, P0)          P0: a diagonal plus one common direction per group of classes (a
 *                          calibration that is off as a whole; an unknown mean)
 *   d ~ N(0, drift^2)      drift common to all work: hat functions over the run, of mean 0
 *   e ~ N(0, V)            V[w, w] = (noise x energy of w)^2 + known variance of w
 *                                    + spread^2 x the leaves in w (design.h)
 *                          V[w, before w] = -(variance of the counter's reading between them)
 *                          both with the weights of lag.c where a sensor lags
 *                          V[w, k]: for the evidence of a spread, the leaves that two overlapping
 *                          windows share (overlap.c)
 *
 * The error of a counter's reading (rounding, time of reading) enters the window that it closes and
 * the one that it opens with opposite signs: V is tridiagonal, or banded where the values of a log
 * lie between the counter's, and long sums are known as well as
 * short ones. Treated as independent, the errors would make every sum of windows look worse than it
 * is. V^-1 is full, but each row of V^-1 A follows from the row before, so that a window costs one
 * dense row of sums besides its few entries.
 *
 * Powers are in units of the run's mean power, energies in that unit x seconds.
 */
#ifndef PJ_ENERGY_REGRESSION_H
#define PJ_ENERGY_REGRESSION_H

#include "energy/design.h"

typedef struct pj_regression {
    pj_arena arena; /* of all arrays */
    const pj_fit_input *in;
    pj_design design;
    size_t classes, knots, n; /* n = classes + knots */
    double scale;             /* mW of one unit */
    double *y;                /* [rows] net energy */
    double *level;            /* [rows] base of the relative noise: the gross energy */
    double *known;            /* [rows] known variance */
    double *own, *bound;      /* [rows] variance for a spread of 1: as it is, bounded (design.h) */
    double own_total;         /* the same for the whole run */
    size_t *before;   /* [rows] the window that ends with the reading that begins this one; itself:
                         none */
    double *link;     /* [rows] covariance with that window; 0: independent */
    bool crossed;     /* other windows lie between two that share a reading */
    double *answer;   /* [rows] of a lagging sensor: its reading at the end, as an energy */
    double loose;     /* variance of the readings that belong to one window only */
    double *m0, *d0;  /* [n] prior means and the diagonal of their variances */
    double *common;   /* [n] common direction of the group; 0: not part of it */
    bool *calibrated; /* [n] which of the two groups */
    double total_y;   /* net energy of the run */
    /* [n] the powers that sums are taken around: near the solution, this avoids cancellation */
    double *around;
    /* for the noise accumulated last */
    double noise, spread;
    double *weight, *step; /* [rows] V^-1 in the form of pj_tridiagonal_invert */
    double *normal, *rhs;  /* A'V^-1 A [n][n], A'V^-1 (y - A around) [n] */
    double residual, log_v;
    double *factor, *pull, *vector; /* [n][n], P0^-1 (m0 - around) [n], [n] */
    double misfit;                  /* of `around` relative to the prior */
    struct pj_row_batch *batch;     /* scratch of the sums */
    size_t bands;                   /* windows before one that overlap it, at most */
    double *band;                   /* [rows][bands + 1] V and its factor; NULL: none overlap */
    double *shared;                 /* [rows][bands + 1] covariance for a spread of 1 */
    double *outlasting;             /* [rows] bound for leaves too long for that */
    double *white;                  /* [bands + 1][n + 1] scratch: the last rows of the factor */
} pj_regression;

pj_status pj_regression_init(pj_regression *r, const pj_fit_input *input, pj_error *err);
void pj_regression_fini(pj_regression *r); /* may run twice */
/* Computes the normal equations for a relative noise and a spread of power within classes; the
 * functions below refer to them. `bounded`: for a posterior, with the bound of design.h; else for
 * evidence, with the variance as it is. */
void pj_regression_set_noise(pj_regression *r, double noise, double spread, bool bounded);
/* A copy of these sums, valid while windows and `around` stay the same. */
typedef struct pj_regression_sums {
    double noise, spread, residual, log_v;
    double *normal, *rhs; /* of the regression; NULL: nothing is kept */
} pj_regression_sums;

/* stores nothing when out of memory */
void pj_regression_keep(pj_regression *r, pj_regression_sums *sums);
void pj_regression_recall(pj_regression *r, const pj_regression_sums *sums);
/* Relative noise indistinguishable from none: summed over the run it is a tenth of the uncertainty
 * of one counter reading; 0: the windows are not a counter's. */
double pj_regression_least_noise(const pj_regression *r);
/* Log marginal likelihood up to a constant; -INFINITY: the equations cannot be solved. */
double pj_regression_evidence(pj_regression *r, double drift_sd);
/* Mean [n] and covariance [n][n] given the windows and the run's total. */
bool pj_regression_posterior(pj_regression *r, double drift_sd, double *mean, double *cov);
/* Takes sums around these powers from now on. */
void pj_regression_centre(pj_regression *r, const double *mean);
/* Bases noise on the energies predicted by these powers instead of on readings from now on: weights
 * that follow the noise of a reading would favour low readings. */
void pj_regression_relevel(pj_regression *r, const double *mean);
/* Of overlap.c: memory for windows that overlap, if any do; false: out of memory. */
bool pj_overlap_init(pj_regression *r);
/* What the windows share if classes have these powers. */
void pj_overlap_judge(pj_regression *r, const double *powers);
/* The sums of pj_regression_set_noise for leaves that windows share; `variance` is that of each
 * window without the spread. False: not positive definite. */
bool pj_overlap_accumulate(pj_regression *r, const double *variance, bool bounded);
/* Normal equations with independent windows: what the sensor itself can separate. */
void pj_regression_set_apart(pj_regression *r);

#endif
