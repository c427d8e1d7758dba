/* Comparing rails with each other over one interval. */
#include "power/checks.h"

#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SAME_POINTS = 20, SAMPLED_POINTS = 128 };
static const int64_t LEAST_NS = PJ_NS_PER_S; /* over less, the phase of updates dominates */
static const double TOLERANCE = 0.05;
static const double CLEARLY = 3, LEAST_SD_MW = 500; /* standard deviations of a difference */
/* By how much of its value a reading that sees all of the time stands for another time. */
static const double SAMPLED_APART = 0.3;
static const double BETWEEN_SOURCES = 0.10; /* two kinds of sensor, each with its own gain */

typedef struct check_input {
    const pj_rail *rails;
    uint32_t count;
    const pj_curve *const *curves;
    int64_t begin_ns, end_ns;
    pj_finding *findings;
    uint32_t found;
} check_input;

__attribute__((format(printf, 5, 6))) static void checks_report(check_input *l, const char *code,
                                                                uint32_t rail, double excess,
                                                                const char *format, ...)
{
    va_list args;
    if (l->found == PJ_FINDINGS_MAX) return;
    pj_finding *f = &l->findings[l->found++];
    *f = (pj_finding){.code = code, .rail = rail, .excess = excess};
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
}

static double energy_mj(const check_input *l, uint32_t rail)
{
    return l->curves[rail] ? pj_curve_energy_mj(l->curves[rail], l->begin_ns, l->end_ns) : NAN;
}

static double watts(const check_input *l, double mj)
{
    return mj / ((double)(l->end_ns - l->begin_ns) * 1e-9) * 1e-3;
}

static bool same_device(const pj_rail *a, const pj_rail *b)
{
    return a->device[0] && strcmp(a->device, b->device) == 0 && strcmp(a->source, b->source) == 0;
}

/* Whether the power reading and the counter are of the same device and scope. */
static bool reads_the_same(const pj_rail *counter, const pj_rail *power)
{
    return counter->kind == PJ_RAIL_COUNTER && power->kind != PJ_RAIL_COUNTER &&
           counter->scope == power->scope && same_device(counter, power);
}

/* Whether its energy is another rail's. */
static bool is_substituted(const check_input *l, uint32_t rail)
{
    bool found = false;
    for (uint32_t i = 0; i < l->found; i++)
        found |= l->findings[i].rail == rail && l->findings[i].substitute;
    return found;
}

/* ---- parts against their sum ---- */

static void check_children(check_input *l, uint32_t parent)
{
    double sum = 0, whole = energy_mj(l, parent);
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->rails[i].parent != (int)parent || reads_the_same(&l->rails[parent], &l->rails[i]))
            continue;
        double mj = energy_mj(l, i);
        if (!isnan(mj)) sum += mj;
    }
    if (!(sum > whole * (1 + TOLERANCE)) || is_substituted(l, parent)) return;
    checks_report(
        l, "children_exceed_rail", parent, sum / whole - 1,
        "The parts of %s draw %.3g W, more than its own %.3g W: one of the figures is wrong.",
        l->rails[parent].name, watts(l, sum), watts(l, whole));
}

/* ---- redundant readings ---- */

/* What is random in the mean of a power's values, as they switch: each stands for a time that is
 * not quite its own, or of a sensor that sees a part of it, for time that it did not see. */
static double sampling_sd_mw(const check_input *l, uint32_t power)
{
    pj_curve_point points[SAMPLED_POINTS];
    size_t n = pj_curve_points(l->curves[power], l->begin_ns, l->end_ns, points, SAMPLED_POINTS);
    double sum = 0, squares = 0;
    if (n > SAMPLED_POINTS) n = SAMPLED_POINTS;
    for (size_t i = 0; i < n; i++) {
        sum += points[i].power_mw;
        squares += points[i].power_mw * points[i].power_mw;
    }
    double variance = n > 0 ? squares / (double)n - sum * sum / (double)(n * n) : 0;
    double part = pj_rail_sees_part(&l->rails[power]) ? 1 : SAMPLED_APART;
    return variance > 0 ? part * sqrt(variance / (double)n) : 0;
}

/* What sensors that agree may differ by; of no power, by anything. */
static double difference_sd_mj(const check_input *l, uint32_t counter, uint32_t power)
{
    pj_curve_energy x, y;
    double seconds = (double)(l->end_ns - l->begin_ns) * 1e-9;
    pj_curve_query(l->curves[counter], l->begin_ns, l->end_ns, &x);
    pj_curve_query(l->curves[power], l->begin_ns, l->end_ns, &y);
    double random_mj =
        sqrt(fmax(x.random_sd_mj * x.random_sd_mj - x.doubt_sd_mj * x.doubt_sd_mj, 0));
    double curves_mj = hypot(hypot(random_mj, y.random_sd_mj), hypot(x.bias_sd_mj, y.bias_sd_mj));
    return fmax(hypot(curves_mj, sampling_sd_mw(l, power) * seconds), LEAST_SD_MW * seconds);
}

static void check_pair(check_input *l, uint32_t counter, uint32_t power)
{
    if (!reads_the_same(&l->rails[counter], &l->rails[power]) || is_substituted(l, counter)) return;
    double x = energy_mj(l, counter), y = energy_mj(l, power);
    if (!(fabs(x - y) > TOLERANCE * y)) return;
    if (fabs(x - y) < CLEARLY * difference_sd_mj(l, counter, power)) return;
    checks_report(
        l, "sensors_disagree", counter, fabs(x - y) / fmax(x, y),
        "The energy counter of %s gives %.3g W and its power reading %.3g W; the counter is used.",
        l->rails[counter].name, watts(l, x), watts(l, y));
}

/* Compares a class with a second source's measurement of it. */
static void check_twins(check_input *l, pj_rail_class class_)
{
    double first = NAN, second = NAN;
    uint32_t rail = 0, twin = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        if (pj_rail_in_column(l->rails, l->count, i, class_)) {
            first = (isnan(first) ? 0 : first) + energy_mj(l, i);
            rail = i;
        } else if (l->rails[i].twin_class == (int)class_ + 1) {
            second = (isnan(second) ? 0 : second) + energy_mj(l, i);
            twin = i;
        }
    }
    if (!(fabs(first - second) > BETWEEN_SOURCES * fmax(first, second))) return;
    checks_report(l, "sources_disagree", rail, fabs(first - second) / fmax(first, second),
                  "%s reports that the %s draws %.3g W, %s reports %.3g W; %s is used.",
                  l->rails[rail].source, pj_rail_class_name(class_), watts(l, first),
                  l->rails[twin].source, watts(l, second), l->rails[rail].source);
}

/* Two devices with identical values at identical times are one sensor. */
static bool same_series(const check_input *l, uint32_t a, uint32_t b)
{
    pj_curve_point x[SAME_POINTS], y[SAME_POINTS];
    bool moves = false;
    if (pj_curve_points(l->curves[a], l->begin_ns, l->end_ns, x, SAME_POINTS) < SAME_POINTS ||
        pj_curve_points(l->curves[b], l->begin_ns, l->end_ns, y, SAME_POINTS) < SAME_POINTS)
        return false;
    for (int i = 0; i < SAME_POINTS; i++) {
        moves |= x[i].power_mw != x[0].power_mw;
        if (!(fabs(x[i].power_mw - y[i].power_mw) <= 1e-6 * x[i].power_mw)) return false;
    }
    return moves; /* two idle devices may well show the same constant */
}

static void check_duplicate(check_input *l, uint32_t a, uint32_t b)
{
    const pj_rail *x = &l->rails[a], *y = &l->rails[b];
    if (a >= b || x->rail_class != y->rail_class || x->kind != y->kind || x->parent == (int)b ||
        y->parent == (int)a || x->quality != PJ_MEASURED || same_device(x, y) || !l->curves[a] ||
        !l->curves[b] || !same_series(l, a, b))
        return;
    checks_report(l, "rails_duplicate", b, 1,
                  "%s and %s always show the same values: they may be one sensor counted twice.",
                  x->name, y->name);
}

/* ---- sensors that stopped ---- */

/* Where a driver states no update period, an unchanged value may be a device that is off or idle,
 * and counts as such. Otherwise it is suspicious, and reported if the rail had never been constant
 * for nearly as long before. */

enum { EARLIER_STILLS = 4, GRID = 512, LEAST_POINTS = 16 };
static const int64_t STILL_COUNTER_NS = PJ_NS_PER_S / 10, STILL_POWER_NS = 2 * PJ_NS_PER_S;
static const double LEAST_EXCESS = 0.005;  /* less is not worth a warning */
static const double LEAST_STANDING = 0.05; /* of an interval */
/* A counter stands still if at least so many periods and so many of its steps went uncounted. */
enum { STANDING_PERIODS = 3, STANDING_STEPS = 4 };

/* Since when the counter has stood still at the end of the interval. */
static int64_t counter_stopped_ns(const check_input *l, uint32_t rail)
{
    int64_t moves_ns = l->begin_ns, still_ns = l->end_ns;
    while (still_ns - moves_ns > PJ_NS_PER_MS) {
        int64_t middle = moves_ns + (still_ns - moves_ns) / 2;
        bool still = pj_curve_energy_mj(l->curves[rail], middle, l->end_ns) == 0;
        *(still ? &still_ns : &moves_ns) = middle;
    }
    return still_ns;
}

static bool paused_before(const check_input *l, uint32_t rail, int64_t stop_ns, int64_t pause_ns)
{
    for (int64_t t = l->begin_ns; t + pause_ns <= stop_ns; t += pause_ns / 2)
        if (pj_curve_energy_mj(l->curves[rail], t, t + pause_ns) == 0) return true;
    return false;
}

static void check_stopped_counter(check_input *l, uint32_t rail)
{
    const pj_rail *r = &l->rails[rail];
    int64_t stop_ns = counter_stopped_ns(l, rail), still_ns = l->end_ns - stop_ns;
    double mw = energy_mj(l, rail) / ((double)(stop_ns - l->begin_ns) * 1e-9);
    double excess = (double)still_ns / (double)(stop_ns - l->begin_ns);
    if (still_ns < STILL_COUNTER_NS || still_ns < 2 * EARLIER_STILLS * r->period_ns ||
        !(excess > LEAST_EXCESS) || paused_before(l, rail, stop_ns, still_ns / EARLIER_STILLS))
        return;
    checks_report(
        l, "counter_still", rail, excess,
        "The energy counter of %s did not move in the last %.3g s, after %.3g W before: it is "
        "off, or its sensor has stopped. That time counts as 0 J.",
        r->name, (double)still_ns * 1e-9, mw * 1e-3);
}

/* Also of an interval too short for the other checks. */
static void check_standing(check_input *l, uint32_t rail)
{
    int log = pj_rail_log_of(l->rails, l->count, rail);
    int64_t ns = log >= 0 && l->curves[rail]
                     ? pj_curve_stands_ns(l->curves[rail], l->begin_ns, l->end_ns)
                     : 0;
    if (ns == 0 || ns < LEAST_STANDING * (double)(l->end_ns - l->begin_ns)) return;
    checks_report(l, "counter_still", rail, NAN,
                  "The energy counter of %s stands still beside a power that its log shows: from "
                  "then on the energy is the log's.",
                  l->rails[rail].name);
}

/* A counter without a log that does not move beside a power reading of its own. Also of an interval
 * too short for the other checks. */
static void check_standing_beside_power(check_input *l, uint32_t rail)
{
    const pj_rail *r = &l->rails[rail];
    if (r->kind != PJ_RAIL_COUNTER || pj_rail_log_of(l->rails, l->count, rail) >= 0 ||
        energy_mj(l, rail) != 0 || l->end_ns - l->begin_ns < STANDING_PERIODS * r->period_ns)
        return;
    for (uint32_t i = 0; i < l->count; i++) {
        double mj = reads_the_same(r, &l->rails[i]) ? energy_mj(l, i) : NAN;
        if (!(mj > STANDING_STEPS * r->resolution * 1e-3) || !(watts(l, mj) * 1e3 > LEAST_SD_MW))
            continue;
        checks_report(l, "counter_still", rail, NAN,
                      "The energy counter of %s stands still beside a power reading of %.3g W: the "
                      "energy is the reading's.",
                      r->name, watts(l, mj));
        if (l->found > 0) l->findings[l->found - 1].substitute = i + 1;
        return;
    }
}

static void check_still(check_input *l, uint32_t rail)
{
    const pj_rail *r = &l->rails[rail];
    if (r->kind != PJ_RAIL_COUNTER || !pj_rail_in_column(l->rails, l->count, rail, PJ_RAIL_TOTAL))
        return;
    /* what it counts while it stands is its log's: 0 J is what both say */
    if (pj_rail_log_of(l->rails, l->count, rail) >= 0 || is_substituted(l, rail)) return;
    double mj = energy_mj(l, rail);
    if (mj > 0) check_stopped_counter(l, rail);
    if (mj != 0) return;
    checks_report(
        l, "counter_still", rail, NAN,
        "The energy counter of %s did not move in the last %.3g s: it is off, or its sensor has "
        "stopped. That time counts as 0 J.",
        r->name, (double)(l->end_ns - l->begin_ns) * 1e-9);
}

/* A power reading stuck at a value of its working range; at its lowest the device is idle. */
static void check_stopped_power(check_input *l, uint32_t rail)
{
    const pj_rail *r = &l->rails[rail];
    if (r->kind == PJ_RAIL_COUNTER || !l->curves[rail] || r->quality != PJ_MEASURED ||
        !pj_rail_in_column(l->rails, l->count, rail, PJ_RAIL_TOTAL))
        return;
    int64_t step_ns = (l->end_ns - l->begin_ns) / GRID, still_ns = 0, longest_ns = 0;
    double last = NAN, before = NAN, least = NAN, most = NAN, sum = 0;
    uint32_t points = 0;
    for (int64_t t = l->end_ns - step_ns, since = t; t > l->begin_ns; t -= step_ns) {
        double mw = pj_curve_power_mw(l->curves[rail], t);
        if (isnan(mw)) continue;
        if (isnan(last)) last = mw;
        bool same = fabs(mw - before) <= 1e-9 * before;
        if (!isnan(before) && !same) {
            if (still_ns == 0) still_ns = l->end_ns - t;
            since = t;
        }
        before = mw;
        if (still_ns == 0) continue;
        if (since - t > longest_ns) longest_ns = since - t;
        least = fmin(least, mw);
        most = fmax(most, mw);
        sum += mw;
        points++;
    }
    if (still_ns < STILL_POWER_NS || longest_ns * EARLIER_STILLS > still_ns ||
        points < LEAST_POINTS || last < least + (most - least) / 10)
        return;
    double part = (double)still_ns / (double)(l->end_ns - l->begin_ns);
    double excess = (most - least) / 2 / (sum / points) * part;
    if (!(excess > LEAST_EXCESS)) return;
    checks_report(
        l, "sensor_still", rail, excess,
        "The power reading of %s has stood at %.4g W for the last %.3g s, after %.4g to %.4g W "
        "before: its sensor may have stopped.",
        r->name, last * 1e-3, (double)still_ns * 1e-9, least * 1e-3, most * 1e-3);
}

static uint32_t checks_run(check_input *l)
{
    for (uint32_t i = 0; i < l->count; i++) check_standing(l, i);
    if (l->end_ns - l->begin_ns < LEAST_NS) return l->found;
    for (uint32_t i = 0; i < l->count; i++) {
        check_children(l, i);
        check_still(l, i);
        check_stopped_power(l, i);
        for (uint32_t k = 0; k < l->count; k++) {
            check_pair(l, i, k);
            check_duplicate(l, i, k);
        }
    }
    for (int c = 0; c < PJ_RAIL_TOTAL; c++) check_twins(l, (pj_rail_class)c);
    return l->found;
}

uint32_t pj_rails_check(const pj_rail *rails, uint32_t count, const pj_curve *const *curves,
                        int64_t begin_ns, int64_t end_ns, pj_finding findings[PJ_FINDINGS_MAX])
{
    check_input l = {rails, count, curves, begin_ns, end_ns, findings, 0};
    return checks_run(&l);
}

uint32_t pj_rails_check_window(const pj_rail *rails, uint32_t count, const pj_curve *const *curves,
                               int64_t begin_ns, int64_t end_ns,
                               pj_finding findings[PJ_FINDINGS_MAX])
{
    check_input l = {rails, count, curves, begin_ns, end_ns, findings, 0};
    for (uint32_t i = 0; i < count; i++) check_standing_beside_power(&l, i);
    return checks_run(&l);
}
