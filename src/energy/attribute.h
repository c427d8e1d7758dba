/*
 * Attribution: from energy windows and spans of work to joules per span. Pure mathematics: arrays
 * in, arrays out, no clock, no I/O, so that tests can check it to the joule.
 *
 * pj_fit estimates the power of each class of work and its uncertainty: one Bayesian linear
 * regression over all sensor windows of a run, conditioned exactly on the run's total. With a
 * calibration as prior this is the method `replay`, without one `fit`.
 *
 * pj_share distributes the measured energy among leaves: inside each segment of the energy curve in
 * proportion to power x overlap, scaled to the segment's energy, in integer nanojoules, so that
 * sums are exact by construction.
 *
 * Times are nanoseconds on any one clock, energies millijoules, powers milliwatts.
 */
#ifndef PJ_ENERGY_ATTRIBUTE_H
#define PJ_ENERGY_ATTRIBUTE_H

#include "base/error.h"
#include "base/memory.h"

/* The energy that a sensor reports for an interval. Windows are sorted by begin_ns; they may
 * overlap. */
typedef struct pj_window {
    int64_t begin_ns, end_ns;
    double energy_mj; /* gross, over [begin, end) */
    double sd_mj;     /* known 1 sigma of this window alone: resolution; 0: none */
    /* 1 sigma of the window's position: a shift by it adds or removes the power difference to the
     * previous window; 0: known exactly */
    double shift_s;
    /* For windows between two readings of a counter: a reading closes one window and opens the
     * next, so its error enters both, with opposite signs. */
    double reading_mj;     /* 1 sigma of each reading: rounding; 0: none */
    double begin_s, end_s; /* 1 sigma of when they were taken; 0: known exactly */
    double parts;          /* merged windows: how many, each with noise of its own; 0: not merged */
    /* Time constant of a sensor that follows power with a first-order lag; 0: none. Such a window
     * is computed from the readings at both ends (pj_lag_decay), so that it weighs late power more
     * than early power, and that the noise of a reading enters both windows that it borders. */
    double lag_s;
} pj_window;

/* An interval of work of one class. Leaves are sorted by begin_ns; they may overlap when several
 * threads record. Energy of time without a leaf is not attributed: give such time leaves of a class
 * of its own. */
typedef struct pj_leaf {
    int64_t begin_ns, end_ns;
    uint32_t class_;
    uint32_t node; /* for the caller: the span that the time belongs to */
} pj_leaf;

/* What is left of a lagging sensor's deviation after a window. */
double pj_lag_decay(const pj_window *window);
/* Seconds of a leaf in a window, as the window weighs them. */
double pj_window_part_s(const pj_window *window, const pj_leaf *leaf);

/* Typical relative noise of a power reading: board sensors have 0.1 to 2 %. */
#define PJ_USUAL_POWER_NOISE 0.005

/* Merges consecutive windows inside one leaf, except the first and the last leaf (time around the
 * run), and leaves that others overlap. Returns how many windows are left. */
size_t pj_windows_merge(pj_window *windows, size_t count, const pj_leaf *leaves, size_t leaf_count);

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
    /* 1 sigma of the total besides gain and window noise, e.g. for a sensor that sees a quarter of
     * the time; 0 or NAN: exact */
    double total_sd_mj;
    int64_t begin_ns, end_ns;
    const pj_class_prior *priors; /* [class_count] from a calibration, or NULL */
    bool evidence_only;           /* compute log_evidence only */
    /* prior for the relative noise of a reading, to about a factor of five; 0: no prior, the noise
     * may be zero */
    double usual_noise;
    /* relative 1 sigma of power between the leaves of a class, which the readings confirm or
     * refute; 0: all leaves of a class have the same power */
    double usual_spread;
} pj_fit_input;

/* The result. Arrays belong to it; pj_fit_fini frees them. */
typedef struct pj_fit {
    pj_arena arena;
    uint32_t class_count;
    double *power_mw;   /* [C] net, never negative */
    double *covariance; /* [C][C] of the powers, mW^2, given the total */
    double *time_ms;    /* [C] */
    double *data_share; /* [C] 1 - posterior / prior variance */
    bool *truncated;    /* [C] was negative, set to 0 */
    double mean_mw;     /* net mean power of the run: the centre of the prior */
    double noise;       /* a window's relative noise: posterior mean, widened for its own error */
    double spread;      /* posterior root mean square of power between leaves of a class */
    double drift;       /* of all work (heat): posterior root mean square relative to the prior's */
    /* of the normal matrix with independent windows: how well the sensor separates classes */
    double condition_number;
    double log_evidence; /* of the windows' energies in mJ, marginalised over noise and drift */
    unsigned solutions;  /* of the equations: what the fit cost, whatever the machine */
} pj_fit;

pj_status pj_fit_run(const pj_fit_input *input, pj_fit *fit, pj_error *err);
void pj_fit_fini(pj_fit *fit); /* may run twice */
/* Energy-weighted median over the counted classes of the relative 95 % half width of their net
 * power. NAN: no class is counted. */
double pj_fit_interval(const pj_fit *fit, const bool *counted);

/* Energy per floating-point operation and per byte on this machine: non-negative least squares of
 * the fit's class energies, energy = a FLOPs + b bytes. Standard deviations include what the two
 * terms do not explain. NAN where the run does not identify the figure. */
typedef struct pj_unit_costs {
    double pj_per_flop, pj_per_flop_sd, pj_per_byte, pj_per_byte_sd;
} pj_unit_costs;

void pj_unit_costs_fit(const pj_fit *fit, const double *flops, const double *bytes,
                       pj_unit_costs *costs);

/* A segment of the energy curve. Segments are sorted and do not overlap; energy_mj is NAN where the
 * energy is unknown. */
typedef struct pj_segment {
    int64_t begin_ns, end_ns;
    double energy_mj; /* gross */
} pj_segment;

typedef struct pj_share_result {
    int64_t *gross_nj;   /* [leaf_count] INT64_MIN: part of the leaf has no known energy */
    int64_t *net_nj;     /* [leaf_count] gross minus the leaf's share of idle */
    int64_t total_nj;    /* sum over all known segments */
    int64_t unshared_nj; /* of segments or parts of them that no leaf covers */
    size_t by_time;      /* segments with net energy <= 0, shared by time instead of power */
    /* [segment_count] gross energy predicted from powers and idle; NULL: not wanted */
    double *expected_mj;
} pj_share_result;

/* If every leaf is known, total_nj == sum of gross_nj over leaves + unshared_nj, exactly. The
 * caller owns the result's arrays. */
void pj_share_run(const pj_segment *segments, size_t segment_count, const pj_leaf *leaves,
                  size_t leaf_count, const double *class_power_mw, double idle_mw,
                  pj_share_result *result);

#endif
