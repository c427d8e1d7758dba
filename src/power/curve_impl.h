/* Internals of an energy curve, for the files that implement it. */
#ifndef PJ_POWER_CURVE_IMPL_H
#define PJ_POWER_CURVE_IMPL_H

#include "power/curve.h"

/* Relative 1 sigma of a value in a log. */
#define LOG_NOISE 0.02

typedef struct piece {
    int64_t begin_ns, end_ns;
    double energy_mj;
    double energy_before;         /* prefix sums: over all earlier pieces */
    double fill_var_before;       /* mJ^2 */
    double doubt_var_before;      /* mJ^2 */
    double fill_sd_sum_before;    /* mJ, for the part that does not average out */
    double known_before_ns;       /* time seen by readings */
    int64_t covered_before_ns;    /* time seen or filled */
    float begin_edge_ns, edge_ns; /* half widths of the uncertainty of begin_ns and end_ns */
    float fill_sd;                /* mJ, of the energy in the time that no reading saw */
    float doubt_sd;               /* mJ, of what was counted and its log does not show */
    float seen;                   /* share of the time that a reading saw; 0: filled in */
    float swing_mj;               /* energy that may be anywhere inside the piece */
    /* Of a piece between two ticks whose energy a log distributes: which one, the fractions of its
     * energy before and after this part, and what the uncertainty of its ticks moves. */
    uint32_t tick;
    float before, until;
    double begin_sd, end_sd; /* mJ */
    float
        common; /* share of that variance that is the same shift of all ticks: of a grid's phase */
    float swings_before, swings, swings_all; /* squared: of earlier parts, its own, of all; mJ^2 */
} piece;

struct pj_curve {
    pj_rail rail;
    piece *pieces;
    size_t count, capacity;
    pj_curve_point *windows; /* power rails: windows as read, before deconvolution */
    size_t window_count, window_capacity;
    /* the previous reading */
    bool resolved;          /* overlapping windows have been deconvolved */
    bool armed, just_armed; /* the second until a piece begins at the first tick */
    bool is_unmoved;        /* nothing was counted since */
    uint32_t unreported;    /* power readings that came without their averaging time */
    double last_value;
    int64_t last_tick_ns;
    double last_edge_ns;
    int64_t period_ns; /* as declared, else smallest gap between updates */
    double spread_mw2; /* running mean square of power differences between neighbours / 2 */
    double gain;       /* readings are divided by it */
    double debt_mj;    /* energy still to be subtracted without making a piece negative */
    uint32_t ticks;
    double last_mw;                     /* of a counter's last step; NAN: none */
    double least_mw, most_mw;           /* of all readings */
    const pj_curve *read_from;          /* has the readings of a curve that was resolved */
    const pj_curve *log;                /* distributes a counter's steps; NULL: none */
    double log_counted_mj, log_seen_mj; /* of the time that it has distributed */
    double lent_mj;       /* of the log, while the counter stands: to be taken off its next step */
    int64_t lent_from_ns; /* since when */
    piece last_step;      /* what was counted last, as a whole, and what the log had of it */
    double last_step_logged_mj;
    /* The steps of a counter, as readings of power: what its sensor saw in part of each period;
     * `rail` is then that power. */
    bool of_steps, has_count;
    double last_count_uj;
    int64_t last_count_ns;
};

/* Prefix sums of a curve at one instant. */
typedef struct curve_sums {
    int64_t at_ns;
    double energy_mj, fill_var, doubt_var, fill_sd_sum;
    double covered_ns; /* by pieces, observed or filled */
    double known_ns;   /* seen by readings */
    double mw;         /* of the piece */
    double part;       /* fraction of the piece before the instant */
    size_t index;      /* of the piece; of the nearest one outside the curve */
    double beyond_mj;  /* taken to have been used between the curve and an instant outside it */
} curve_sums;

/* How readings around an instant fluctuate (curve_spread.c). */
typedef struct curve_spread {
    double near_mw, far_mw; /* standard deviation from one to the next, and over several */
    double switching;       /* probability of a load that switches within single pieces */
    double off_mw;          /* power without the load, if that was seen */
} curve_spread;

curve_spread pj_curve_spread_at(const pj_curve *c, int64_t at_ns);
/* By how much a switching load of this mean power changes it. */
double pj_curve_swing_mw(const curve_spread *s, double mw);
/* The swing of a load that switches within single values of a log, 0 where it shows none. */
double pj_curve_log_swing_mw(const pj_curve *log, int64_t at_ns, double mw);

/* What is random in the energy between two instants, in mJ^2, and what is not, in mJ: for readings
 * that are right. Their resolution and gain are not in it (curve_variance.c). Unseen: what is
 * random because a sensor does not see all of the time. */
double pj_curve_unseen_variance(const pj_curve *c, const curve_sums *a, const curve_sums *b);
double pj_curve_variance(const pj_curve *c, const curve_sums *a, const curve_sums *b);
double pj_curve_bias_mj(const pj_curve *c, const curve_sums *a, const curve_sums *b);
/* Uncertainty of a delay. */
double pj_curve_delay_sd_s(const pj_curve *c);
/* What the counter counts of its log's energy, and 1 sigma of that. */
double pj_curve_log_ratio(const pj_curve *c, double mj_per_ns, double *relative_sd);

static inline double curve_gain_sd(const pj_curve *c)
{
    return c->rail.gain_sd > 0 ? c->rail.gain_sd : PJ_USUAL_GAIN_SD;
}

static inline double piece_mw(const piece *p)
{
    return p->energy_mj / ((double)(p->end_ns - p->begin_ns) * 1e-9);
}

#endif
