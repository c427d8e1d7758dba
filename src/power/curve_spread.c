/*
 * How power fluctuates around an instant, as far as readings show it.
 *
 * A reading is a mean, so a load that switches faster than the sensor publishes looks almost
 * steady: all the more, the nearer a whole number of its cycles fits into a window. Recorded cards
 * under steady load fluctuate by 0.03 to 0.15 % of their highest power from reading to reading, and
 * by 0.3 to 0.6 % under a load that is switched every 50 ms and read every 100 ms. Between the two
 * the probability changes that there is more inside a piece than its readings show.
 */
#include "power/curve_impl.h"

#include "base/interval.h"
#include "base/median.h"

#include <math.h>

enum { NEAR = 1, FAR = 8 }; /* distances of compared readings */
/* Readings on each side that are compared with such a distance; differences at least. */
enum { NEAR_AROUND = 10, FAR_AROUND = 20, LEAST_DIFFERENCES = 8 };
enum { MOST_DIFFERENCES = 2 * FAR_AROUND + 1 };
/* Of the highest power: may be steady, may be not. What a counter counted has hardly any noise. */
static const double HALF_LIKELY = 0.0022, HALF_LIKELY_COUNTED = 0.0006;
/* Median and lower quartile of |x - y| of two normal variables of standard deviation 1. */
static const double MEDIAN_DIFFERENCE = 0.9539, QUARTILE_DIFFERENCE = 0.4506;
/* The same of a log: values of an H200 at a steady load fluctuate by 0.9 %, at bursts shorter than
 * a value by 6 %. */
static const double HALF_LIKELY_LOGGED = 0.035;
/* A lower reading shows what remains when the load is off. */
static const double OFF = 0.6;

static size_t reading_count(const pj_curve *c)
{
    return c->rail.kind == PJ_RAIL_COUNTER ? c->count : c->window_count;
}

static double reading_mw(const pj_curve *c, size_t i)
{
    return c->rail.kind == PJ_RAIL_COUNTER ? piece_mw(&c->pieces[i]) : c->windows[i].power_mw;
}

static size_t reading_at(const pj_curve *c, int64_t at_ns)
{
    return c->rail.kind == PJ_RAIL_COUNTER
               ? pj_first_after(c->pieces, c->count, sizeof *c->pieces, at_ns)
               : pj_first_after(c->windows, c->window_count, sizeof *c->windows, at_ns);
}

static size_t differences_around(const pj_curve *c, size_t at, size_t around, size_t distance,
                                 double *differences)
{
    size_t count = 0, first = at > around ? at - around : 0, last = at + around + 1;
    if (last > reading_count(c)) last = reading_count(c);
    for (size_t i = first; i + distance < last; i++)
        differences[count++] = fabs(reading_mw(c, i + distance) - reading_mw(c, i));
    return count;
}

/* Standard deviation of the readings around one of them, from the median difference of those that
 * are `distance` apart: a step of power, which is in few of them, does not count. NAN: too few. */
static double fluctuation(const pj_curve *c, size_t at, size_t around, size_t distance)
{
    double differences[MOST_DIFFERENCES];
    size_t count = differences_around(c, at, around, distance, differences);
    return count < LEAST_DIFFERENCES ? NAN : pj_median(differences, count) / MEDIAN_DIFFERENCE;
}

curve_spread pj_curve_spread_at(const pj_curve *c, int64_t at_ns)
{
    const pj_curve *read = c->read_from ? c->read_from : c;
    size_t at = reading_at(read, at_ns);
    curve_spread s = {.off_mw = read->least_mw,
                      .near_mw = fluctuation(read, at, NEAR_AROUND, NEAR)};
    double far_mw = fluctuation(read, at, FAR_AROUND, FAR);
    s.far_mw = isnan(far_mw) ? s.near_mw : fmax(s.near_mw, far_mw);
    double window_ns = (double)read->rail.window_ns, seen = window_ns / (double)read->period_ns;
    double share = s.near_mw / read->most_mw;
    if (seen > 0 && seen < 1) share *= sqrt(seen); /* of noise, shorter windows show more */
    bool hidden = isnan(share) || pj_rail_overlaps(&read->rail); /* a long average shows none */
    double likely = read->rail.kind == PJ_RAIL_COUNTER ? HALF_LIKELY_COUNTED : HALF_LIKELY;
    s.switching = hidden ? 1 : 1 / (1 + pow(likely / share, 4));
    return s;
}

/* Of a load that the log resolves, a quarter of the values next to each other are alike. */
double pj_curve_log_swing_mw(const pj_curve *log, int64_t at_ns, double mw)
{
    double differences[MOST_DIFFERENCES];
    size_t at = reading_at(log, at_ns);
    size_t count = differences_around(log, at, NEAR_AROUND, NEAR, differences);
    if (count < LEAST_DIFFERENCES) return 0;
    pj_median(differences, count); /* sorts them */
    double share = differences[count / 4] / QUARTILE_DIFFERENCE / log->most_mw;
    curve_spread s = {.off_mw = log->least_mw};
    return sqrt(1 / (1 + pow(HALF_LIKELY_LOGGED / share, 4))) * pj_curve_swing_mw(&s, mw);
}

double pj_curve_swing_mw(const curve_spread *s, double mw)
{
    return s->off_mw < OFF * mw ? mw - s->off_mw : mw;
}
