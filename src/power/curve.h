/*
 * The energy curve of one rail: monotone E(t), built from classified readings in time order.
 *
 * It is a list of *pieces*: time intervals with the energy that the sensor reported for them.
 * Counters give pieces from tick to tick (a tick is when a value was published). A power reading is
 * the mean over (t - delay - window, t - delay]: where windows tile the time they are the pieces;
 * where they overlap (a 1 s average published every 100 ms) they are deconvolved; where they leave
 * time unobserved, it is filled from both neighbours and the interval of the figure widens. A
 * first-order lag is inverted: P = y + tau dy/dt.
 *
 * Up to a period before the first piece and after the last one, power is taken to be theirs; other
 * time without a piece is unknown, and the energy of an interval with too much of it is NAN.
 *
 * Pure data, no clock, no threads; one thread at a time. Memory: a hundred bytes per piece.
 */
#ifndef PJ_POWER_CURVE_H
#define PJ_POWER_CURVE_H

#include "base/error.h"
#include "trace/rail.h"

/* Relative 1 sigma assumed for an uncalibrated gain. */
#define PJ_USUAL_GAIN_SD 0.08

typedef struct pj_curve pj_curve;

/* Copies the rail. NULL when out of memory. */
pj_curve *pj_curve_new(const pj_rail *rail);
/* The same for a counter whose steps are to be taken as readings of power; it needs a period. For
 * the search for what its sensor saw: energies are those of pj_curve_new. */
pj_curve *pj_curve_new_of_steps(const pj_rail *rail);
void pj_curve_free(pj_curve *curve); /* NULL is allowed */
/* Energy between two ticks is distributed as the device's log has it, a curve that outlives this
 * one. Readings of the log have to be added before those of the counter that they explain. */
void pj_curve_follow(pj_curve *curve, const pj_curve *log);
/* For how much of the interval a counter has stood still so far that has not moved since, and the
 * energy is its log's. */
int64_t pj_curve_stands_ns(const pj_curve *curve, int64_t begin_ns, int64_t end_ns);
/* Up to where nothing that is read later changes the energies: a counter's last step may turn out
 * to be of a time in which it stopped. INT64_MAX: anywhere. */
int64_t pj_curve_sure_ns(const pj_curve *curve);
/* Makes the counters among a set of curves, one per rail, follow their logs. */
void pj_curves_link(pj_curve *const *curves, const pj_rail *rails, uint32_t count);
/* Adds a reading of this rail (its index is ignored). Fails only with PJ_E_NO_MEMORY. */
pj_status pj_curve_add(pj_curve *curve, const pj_reading *reading, pj_error *err);
/* Ends the readings and deconvolves overlapping windows; add must not follow. Queries before this
 * work and are provisional. */
pj_status pj_curve_finish(pj_curve *curve, pj_error *err);

/* Whether windows of this rail overlap, so that its curve needs deconvolving. */
bool pj_rail_overlaps(const pj_rail *rail);
/* For curves that are read while they grow: `resolved`, a curve of the same rail to which nothing
 * is added otherwise, keeps what it says of the time before `from_ns`; from there on it is replaced
 * by a deconvolution of the windows in `curve` that end after `since_ns`. */
pj_status pj_curve_resolve(const pj_curve *curve, int64_t since_ns, int64_t from_ns,
                           pj_curve *resolved, pj_error *err);

/* Drops everything before `at_ns`, for long-lived curves; queries about that time give NAN. */
void pj_curve_forget(pj_curve *curve, int64_t at_ns);

/* Raises the standard deviation of the device's gain to `excess` (relative); never lowers it. NAN
 * changes nothing. */
void pj_curve_doubt_gain(pj_curve *curve, double excess);

const pj_rail *pj_curve_rail(const pj_curve *curve);
/* Whether every power reading came with its true averaging time, as those of powermetrics do. */
bool pj_curve_reports_windows(const pj_curve *curve);
/* The interval in which energy is known; false: none. */
bool pj_curve_span(const pj_curve *curve, int64_t *begin_ns, int64_t *end_ns);

/* Energy of an interval; all NAN where nothing is known. */
typedef struct pj_curve_energy {
    double energy_mj;
    double sd_mj;        /* 1 sigma of all terms below combined */
    double random_sd_mj; /* quantisation, edges: averages out */
    double bias_sd_mj;   /* delay, unobserved time: does not average out */
    double gain_sd_mj;   /* of the device, common to all its figures */
    double known_share;  /* share of the interval's time observed by readings, 0..1 */
    double unseen_sd_mj; /* in random_sd_mj: of a load as fast as a sensor that sees a part of each
                            period. Who knows when the load switched can do without it */
    double doubt_sd_mj;  /* in random_sd_mj: counted, but not shown by the log */
} pj_curve_energy;

void pj_curve_query(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy);
/* Energy of an interval of `ns` by a counter and by the log that it follows. A counter whose ticks
 * were missed, as on a busy machine, knows it less well than the log does, or not at all: the two
 * are joined, weighted by their precision. What the log does not show stays the counter's. */
void pj_curve_join_log(const pj_curve *counter, double ns, const pj_curve_energy *log,
                       pj_curve_energy *energy);
/* Energy alone, NAN when unknown: for many small spans. */
double pj_curve_energy_mj(const pj_curve *curve, int64_t begin_ns, int64_t end_ns);
/* Mean power of the piece that covers `at_ns`, NAN without one. */
double pj_curve_power_mw(const pj_curve *curve, int64_t at_ns);

/* Sensor windows for the estimator: counters from tick to tick, power readings with their true
 * averaging interval, so that windows of a long average overlap. Energies are gross. */
typedef struct pj_curve_window {
    int64_t begin_ns, end_ns;
    double energy_mj;
    double resolution_mj;  /* step of the reading over the window; 0: unknown */
    double begin_s, end_s; /* counters: 1 sigma of the times of the ticks */
    double shift_s;        /* 1 sigma of the position of a power reading's window */
    uint32_t tick;         /* counters: parts between the same two ticks have the same number */
} pj_curve_window;

/* Windows that overlap [begin, end); writes up to `max`, returns how many there are. */
size_t pj_curve_windows(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                        pj_curve_window *windows, size_t max);

/* Series of updates for charts and samples: the end of each window and the mean power over it.
 * Writes up to `max` that end inside [begin, end), returns how many there are. */
typedef struct pj_curve_point {
    int64_t begin_ns, end_ns;
    double power_mw;
    float edge_ns; /* half width of the uncertainty of end_ns */
} pj_curve_point;

size_t pj_curve_points(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                       pj_curve_point *points, size_t max);

/* new - old of a counter in microjoules, unwrapped once where the rail has a modulus; NAN when the
 * counter cannot have gone from old to new. The filter checks whether a step is plausible. */
double pj_counter_step(const pj_rail *rail, double old_uj, double new_uj);

#endif
