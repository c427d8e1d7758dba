/*
 * Windows of a sensor with a first-order lag, tau y' = P - y. From the readings y at its two ends,
 * with a = exp(-length / tau),
 *
 *   (y_end - a y_begin) / (1 - a)
 *
 * is the mean of P over the window with weights that grow as exp(t / tau) towards its end. Spans
 * are weighed alike, so that nothing is approximated, however the power changes inside the window.
 */
#include "energy/attribute.h"

#include "base/interval.h"

#include <math.h>

double pj_lag_decay(const pj_window *w)
{
    return w->lag_s > 0 ? exp(-(double)(w->end_ns - w->begin_ns) * 1e-9 / w->lag_s) : 0;
}

double pj_window_part_s(const pj_window *w, const pj_leaf *leaf)
{
    if (!(w->lag_s > 0)) return PJ_OVERLAP_S(leaf, w);
    int64_t begin = leaf->begin_ns > w->begin_ns ? leaf->begin_ns : w->begin_ns;
    int64_t end = leaf->end_ns < w->end_ns ? leaf->end_ns : w->end_ns;
    if (end <= begin) return 0;
    double before_end_s = (double)(w->end_ns - end) * 1e-9, part_s = (double)(end - begin) * 1e-9;
    double length_s = (double)(w->end_ns - w->begin_ns) * 1e-9;
    double weight = exp(-before_end_s / w->lag_s) * expm1(-part_s / w->lag_s);
    return length_s * weight / expm1(-length_s / w->lag_s);
}
