/*
 * Cross-checks over what the rails of one interval said: parts against the whole, counter against
 * power reading, package against package. They only warn; no figure is changed by them.
 */
#include "power/meter_impl.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

enum { SAME_POINTS = 20 };
static const int64_t LEAST_NS = PJ_NS_PER_S; /* edges matter too much in less */
static const double TOLERANCE = 0.05;

static void warn(pj_meter *m, pj_meter_event_kind kind, uint32_t rail, int64_t at_ns, double value)
{
    pj_meter_event event = {.at_ns = at_ns,
                            .value = value,
                            .kind = kind,
                            .source = m->rail_source[rail],
                            .rail = (uint16_t)rail};
    pj_meter_note(m, &event);
}

static void check_children(pj_meter *m, const pj_curve *const *curves, uint32_t parent,
                           int64_t begin_ns, int64_t end_ns)
{
    double sum = 0;
    for (uint32_t i = 0; i < m->rail_count; i++) {
        if (m->rails[i].parent != (int)parent || !curves[i]) continue;
        double mj = pj_curve_energy_mj(curves[i], begin_ns, end_ns);
        if (!isnan(mj)) sum += mj;
    }
    double whole = curves[parent] ? pj_curve_energy_mj(curves[parent], begin_ns, end_ns) : NAN;
    if (sum > whole * (1 + TOLERANCE))
        warn(m, PJ_METER_CHILD_EXCEEDS, parent, end_ns, sum / whole - 1);
}

static bool same_device(const pj_rail *a, const pj_rail *b)
{
    return a->device[0] && strcmp(a->device, b->device) == 0 && strcmp(a->source, b->source) == 0;
}

static void check_pair(pj_meter *m, const pj_curve *const *curves, uint32_t counter, uint32_t power,
                       int64_t begin_ns, int64_t end_ns)
{
    const pj_rail *a = &m->rails[counter], *b = &m->rails[power];
    if (a->kind != PJ_RAIL_COUNTER || b->kind == PJ_RAIL_COUNTER || a->scope != b->scope ||
        !same_device(a, b) || !curves[counter] || !curves[power])
        return;
    double x = pj_curve_energy_mj(curves[counter], begin_ns, end_ns);
    double y = pj_curve_energy_mj(curves[power], begin_ns, end_ns);
    if (fabs(x - y) > TOLERANCE * y) warn(m, PJ_METER_DISAGREES, counter, end_ns, fabs(x - y) / y);
}

/* Two devices whose every update is the same figure at the same time are one sensor. */
static bool same_series(const pj_curve *a, const pj_curve *b, int64_t begin_ns, int64_t end_ns)
{
    pj_curve_point x[SAME_POINTS], y[SAME_POINTS];
    if (pj_curve_points(a, begin_ns, end_ns, x, SAME_POINTS) < SAME_POINTS ||
        pj_curve_points(b, begin_ns, end_ns, y, SAME_POINTS) < SAME_POINTS)
        return false;
    for (int i = 0; i < SAME_POINTS; i++)
        if (!(fabs(x[i].power_mw - y[i].power_mw) <= 1e-6 * x[i].power_mw)) return false;
    return true;
}

static void check_twins(pj_meter *m, const pj_curve *const *curves, uint32_t a, uint32_t b,
                        int64_t begin_ns, int64_t end_ns)
{
    const pj_rail *x = &m->rails[a], *y = &m->rails[b];
    if (a >= b || x->rail_class != y->rail_class || x->kind != y->kind || x->parent == (int)b ||
        y->parent == (int)a || x->quality != PJ_MEASURED || same_device(x, y) || !curves[a] ||
        !curves[b])
        return;
    if (same_series(curves[a], curves[b], begin_ns, end_ns))
        warn(m, PJ_METER_DUPLICATE, b, end_ns, NAN);
}

void pj_meter_check(pj_meter *meter, const pj_curve *const *curves, int64_t begin_ns,
                    int64_t end_ns)
{
    if (end_ns - begin_ns < LEAST_NS) return;
    for (uint32_t i = 0; i < meter->rail_count; i++) {
        check_children(meter, curves, i, begin_ns, end_ns);
        for (uint32_t k = 0; k < meter->rail_count; k++) {
            check_pair(meter, curves, i, k, begin_ns, end_ns);
            check_twins(meter, curves, i, k, begin_ns, end_ns);
        }
    }
}
