/*
 * Attribution: from energy windows and spans of work to joules per span. Pure mathematics: arrays
 * in, arrays out, no clock, no input or output, so that it can be tested to the joule.
 *
 * Two questions, two functions:
 *   pj_fit    which power does each class of work draw, and how sure is that? One Bayesian linear
 *             regression over all sensor windows of a run, conditioned exactly on the run's total.
 *             With a calibration as prior it is the method `replay`, without one `fit`.
 *   pj_share  how much of the energy that was measured belongs to each leaf? Inside each segment of
 *             the energy curve the energy is shared by power x overlap and scaled to the segment,
 * in integer nanojoules: sums are exact by construction.
 *
 * Times are nanoseconds on any one clock, energies millijoules, powers milliwatts.
 */
#ifndef PJ_ENERGY_ATTRIBUTE_H
#define PJ_ENERGY_ATTRIBUTE_H

#include "base/error.h"

/* What a sensor said of one stretch of time. Windows are sorted by begin_ns and may overlap. */
typedef struct pj_window {
    int64_t begin_ns, end_ns;
    double energy_mj; /* gross, over [begin, end) */
    double sd_mj;     /* 1 sigma known beforehand, of this window alone: resolution; 0: none */
    double shift_s;   /* 1 sigma of where the window lies: off by this, it holds as much more or
                         less as power differs from the window before; 0: where it says */
    /* Between two readings of a counter. A reading that closes one window opens the next, which
     * begins where that one ends: what is wrong with it is in both, with opposite signs. */
    double reading_mj;     /* 1 sigma of each of the two: rounding; 0: none */
    double begin_s, end_s; /* 1 sigma of when they were taken; 0: then */
} pj_window;

/* One stretch of one class of work. Leaves are sorted by begin_ns; they may overlap when several
 * threads record. Time without a leaf belongs to nobody: give it leaves of a class of its own. */
typedef struct pj_leaf {
    int64_t begin_ns, end_ns;
    uint32_t class_;
    uint32_t node; /* the caller's own: whose time it is */
} pj_leaf;

/* Relative noise of a reading of power: sensors on boards have 0.1 to 2 %. */
#define PJ_USUAL_POWER_NOISE 0.005

typedef struct pj_class_prior {
    double power_mw, sd_mw; /* NAN: no calibration for this class */
} pj_class_prior;

typedef struct pj_fit_input {
    const pj_window *windows;
    size_t window_count;
    const pj_leaf *leaves;
    size_t leaf_count;
    uint32_t class_count;
    double idle_mw;  /* baseline; NAN: unknown, powers are then gross */
    double total_mj; /* gross energy of [begin, end) that the parts must add up to */
    double
        total_sd_mj; /* how well that is known (gain apart, and the windows' noise): a sensor that
                        sees a quarter of the time does not know it exactly; 0 or NAN: exactly */
    int64_t begin_ns, end_ns;
    const pj_class_prior *priors; /* [class_count] from a calibration, or NULL */
    double prior_spread;          /* relative 1 sigma without a calibration; 0: 0.30 */
    bool evidence_only;           /* of the fit only log_evidence is wanted */
    double usual_noise;           /* relative, of a reading of such sensors, to a factor of five or
                                     so; 0: nothing is known, it may have none at all */
} pj_fit_input;

/* The result. Arrays belong to it; pj_fit_fini frees them. */
typedef struct pj_fit {
    uint32_t class_count;
    double *power_mw;        /* [C] net, never negative */
    double *covariance;      /* [C][C] of the powers, mW^2, total known */
    double *time_ms;         /* [C] */
    double *data_share;      /* [C] 1 - posterior / prior variance */
    bool *truncated;         /* [C] came out negative, set to 0 */
    double mean_mw;          /* net mean power of the run: the centre of the prior */
    double noise;            /* relative noise of a window that the evidence chose */
    double drift_mw;         /* 1 sigma of the baseline's drift that the evidence chose */
    double condition_number; /* of the windows' normal matrix, each window by itself: what the
                                sensor can tell apart */
    double log_evidence;     /* of the windows' energies in mJ, over all noises and drifts */
    double predicted_mj, predicted_sd_mj; /* gross total that the prior alone expects */
} pj_fit;

pj_status pj_fit_run(const pj_fit_input *input, pj_fit *fit, pj_error *err);
void pj_fit_fini(pj_fit *fit); /* may run twice */
/* Median over the classes counted, weighted by energy, of the relative 95 % half width of their net
 * power. NAN: there are none. */
double pj_fit_interval(const pj_fit *fit, const bool *counted);

/* Energy per operation and per byte of this machine, from the fit's class energies: least squares
 * of energy = a FLOPs + b bytes with both at least 0. Standard deviations include what the two
 * terms leave unexplained. NAN where it cannot be told. */
typedef struct pj_unit_costs {
    double pj_per_flop, pj_per_flop_sd, pj_per_byte, pj_per_byte_sd, condition_number;
} pj_unit_costs;

void pj_unit_costs_fit(const pj_fit *fit, const double *flops, const double *bytes,
                       pj_unit_costs *costs);

/* A stretch of the energy curve; segments are sorted, do not overlap, and energy_mj is NAN where
 * the curve knows nothing. */
typedef struct pj_segment {
    int64_t begin_ns, end_ns;
    double energy_mj; /* gross */
} pj_segment;

typedef struct pj_share_result {
    int64_t
        *gross_nj;   /* [leaf_count] INT64_MIN: unknown (part of the leaf lies outside the known) */
    int64_t *net_nj; /* [leaf_count] gross minus the leaf's share of idle */
    int64_t total_nj;    /* sum over all known segments */
    int64_t unshared_nj; /* of segments or parts of them that no leaf touches */
    size_t by_time;      /* segments with net energy <= 0, shared by time instead of power */
    double *expected_mj; /* [segment_count] gross, as powers and idle have it; NULL: not wanted */
} pj_share_result;

/* total_nj == sum of gross_nj over leaves + unshared_nj, exactly, when every leaf is known. The
 * arrays of the result are the caller's. */
void pj_share_run(const pj_segment *segments, size_t segment_count, const pj_leaf *leaves,
                  size_t leaf_count, const double *class_power_mw, double idle_mw,
                  pj_share_result *result);

#endif
