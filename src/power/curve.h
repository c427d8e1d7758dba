/*
 * The energy curve of one rail: monotone E(t), fed with classified readings in order of time.
 *
 * It is a list of *pieces*, each a stretch of time with the energy the sensor saw in it. Counters
 * give pieces from tick to tick, the tick lying where the value was published. A power reading
 * describes the mean over (t - delay - window, t - delay]: where windows tile the time they are the
 * pieces; where they overlap (a 1 s average published every 100 ms) each piece takes the value of
 * the window around its middle; where they leave time unseen, the unseen time is filled from both
 * neighbours and the figure's interval widens. A first-order lag is undone: P = y + tau dy/dt.
 * Time that no piece covers is unknown, and the energy of an interval with too much of it is NAN.
 *
 * Pure data, no clock and no thread; one thread at a time. Memory: 40 bytes a piece.
 */
#ifndef PJ_POWER_CURVE_H
#define PJ_POWER_CURVE_H

#include "base/error.h"
#include "trace/rail.h"

/* Relative 1 sigma of a gain of which nothing better is known. */
#define PJ_USUAL_GAIN_SD 0.08

typedef struct pj_curve pj_curve;

/* Copies the rail. NULL when memory is out. */
pj_curve *pj_curve_new(const pj_rail *rail);
void pj_curve_free(pj_curve *curve); /* NULL is allowed */
/* Takes a reading of this rail (its index is not looked at). Only PJ_E_NO_MEMORY fails. */
pj_status pj_curve_add(pj_curve *curve, const pj_reading *reading, pj_error *err);
/* Readings have ended; overlapping windows are resolved. add may not follow. Queries before it work
 * and are provisional. */
pj_status pj_curve_finish(pj_curve *curve, pj_error *err);

/* Lets go of what lies before `at_ns`, for curves that live long; asking about it gives NAN. */
void pj_curve_forget(pj_curve *curve, int64_t at_ns);

/* For long intervals of which only the whole is wanted: drops detail strictly between the two
 * times, once there is much of it. The energy from a time before to a time behind stays what it
 * was; asking about times between makes no sense any more. Averages (PJ_RAIL_AVERAGE) are left
 * alone. */
void pj_curve_thin(pj_curve *curve, int64_t from_ns, int64_t to_ns);

/* Raises the standard deviation of the device's gain to `excess` (relative); never lowers it. NAN
 * changes nothing. */
void pj_curve_doubt_gain(pj_curve *curve, double excess);

const pj_rail *pj_curve_rail(const pj_curve *curve);
/* From where to where energy is known; false: nowhere. */
bool pj_curve_span(const pj_curve *curve, int64_t *begin_ns, int64_t *end_ns);

/* Energy of an interval. Everything is NAN where nothing is known. */
typedef struct pj_curve_energy {
    double energy_mj;
    double sd_mj;        /* 1 sigma of all terms below together */
    double random_sd_mj; /* quantisation, edges: shrinks when repeated */
    double bias_sd_mj;   /* delay, unseen time: does not */
    double gain_sd_mj;   /* of the device, common to all its figures */
    double known_share;  /* of the interval's time that readings describe, 0..1 */
} pj_curve_energy;

void pj_curve_query(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy);
/* Energy alone, NAN when unknown: for many small spans. */
double pj_curve_energy_mj(const pj_curve *curve, int64_t begin_ns, int64_t end_ns);
/* Mean power of the piece that covers `at_ns`, NAN when none does. */
double pj_curve_power_mw(const pj_curve *curve, int64_t at_ns);

/* What the sensor saw, for the estimator: counters from tick to tick, power readings with their
 * true averaging interval, so that windows of a long average overlap. Energies are gross. */
typedef struct pj_curve_window {
    int64_t begin_ns, end_ns;
    double energy_mj;
    double resolution_mj;  /* step of the reading over the window; 0: unknown */
    double begin_s, end_s; /* counters: 1 sigma of when the ticks were at either edge */
    double shift_s;        /* 1 sigma of where the interval of a power reading lies */
} pj_curve_window;

/* Windows that touch [begin, end); writes up to `max`, returns how many there are. */
size_t pj_curve_windows(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                        pj_curve_window *windows, size_t max);

/* The series of updates for charts and samples: time of publication's window end and mean power
 * over the window. Writes up to `max` that end inside [begin, end), returns how many there are. */
typedef struct pj_curve_point {
    int64_t begin_ns, end_ns;
    double power_mw;
} pj_curve_point;

size_t pj_curve_points(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                       pj_curve_point *points, size_t max);

/* new - old of a counter in microjoules, unwrapped once where the rail has a modulus; NAN when the
 * counter cannot have come from old to new. Whether a step is plausible is the filter's business.
 */
double pj_counter_step(const pj_rail *rail, double old_uj, double new_uj);

#endif
