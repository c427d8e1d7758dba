/* A grid search over window, delay and lag: for given values the expected reading is off + (on -
 * off) x share, where share is the fraction of time that the sensor saw the load on; the two powers
 * follow by linear least squares. The best fit wins. */
#include "response.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>

typedef struct problem {
    const int64_t *at;
    const double *mw;
    size_t count;
    const int64_t *edges;
    size_t edge_count;
    double *on_before_s; /* time the load was on before each edge */
} problem;

/* Index of the first edge after `t`. */
static size_t edge_after(const problem *p, int64_t t)
{
    size_t low = 0, high = p->edge_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->edges[middle] > t)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Seconds during which the load was on up to `t`. */
static double on_until(const problem *p, int64_t t)
{
    size_t next = edge_after(p, t);
    if (next == 0) return 0;
    double on = p->on_before_s[next - 1];
    return next % 2 == 1 ? on + (double)(t - p->edges[next - 1]) * 1e-9 : on;
}

static double share_boxcar(const problem *p, int64_t t, int64_t window)
{
    return (on_until(p, t) - on_until(p, t - window)) / ((double)window * 1e-9);
}

/* First-order response to the load, edge by edge. */
static double share_lagged(const problem *p, int64_t t, int64_t lag)
{
    double charge = 0;
    for (size_t i = 0; i < p->edge_count && p->edges[i] < t; i++) {
        int64_t until = i + 1 < p->edge_count && p->edges[i + 1] < t ? p->edges[i + 1] : t;
        double target = i % 2 == 0 ? 1 : 0;
        charge = target + (charge - target) * exp(-(double)(until - p->edges[i]) / (double)lag);
    }
    return charge;
}

/* Sum of squared residuals of one shape, with its best-fitting powers. */
static double misfit(const problem *p, pj_response *shape)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    for (size_t i = 0; i < p->count; i++) {
        int64_t t = p->at[i] - shape->delay_ns;
        double x = shape->lag_ns > 0 ? share_lagged(p, t, shape->lag_ns)
                                     : share_boxcar(p, t, shape->window_ns);
        double y = p->mw[i];
        n++, sx += x, sy += y, sxx += x * x, sxy += x * y, syy += y * y;
    }
    double vx = sxx - sx * sx / n, vy = syy - sy * sy / n, vxy = sxy - sx * sy / n;
    if (!(vx > 1e-9 * n)) return INFINITY;
    double slope = vxy / vx;
    shape->off_mw = (sy - slope * sx) / n;
    shape->on_mw = shape->off_mw + slope;
    double left = vy - slope * vxy;
    shape->residual = sqrt(fmax(left, 0) / n) / fabs(slope);
    return slope > 0 ? left : INFINITY;
}

static void consider(const problem *p, pj_response shape, double *least, pj_response *best)
{
    double sum = misfit(p, &shape);
    if (sum < *least) {
        *least = sum;
        *best = shape;
    }
}

static void search(const problem *p, int64_t period, const pj_response *given, double *least,
                   pj_response *best)
{
    static const double windows[] = {0.25, 0.5, 1, 2, 5, 10};
    static const double lags[] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10};
    enum { DELAYS = 40 };
    bool any = given->window_ns == 0 && given->lag_ns == 0;
    for (int d = 0; d <= DELAYS; d++) {
        pj_response shape = *given;
        shape.delay_ns = d * period / 20; /* up to two periods */
        if (!any) consider(p, shape, least, best);
        for (size_t w = 0; any && w < sizeof windows / sizeof *windows; w++) {
            shape.window_ns = (int64_t)(windows[w] * (double)period);
            consider(p, shape, least, best);
        }
        shape.window_ns = 0;
        for (size_t l = 0; any && l < sizeof lags / sizeof *lags; l++) {
            shape.lag_ns = (int64_t)(lags[l] * (double)period);
            consider(p, shape, least, best);
        }
    }
}

pj_status pj_response_fit(const int64_t *at_ns, const double *mw, size_t count,
                          const int64_t *edges, size_t edge_count, int64_t period_ns,
                          pj_response *response, pj_error *err)
{
    problem p = {at_ns, mw, count, edges, edge_count, NULL};
    const pj_response given = *response;
    if (count < 8 || edge_count == 0 || period_ns <= 0)
        return pj_fail(err, PJ_E_UNAVAILABLE,
                       "too few readings or no switching of the load to "
                       "learn a sensor's answer from");
    p.on_before_s = pj_alloc(edge_count, sizeof *p.on_before_s);
    if (!p.on_before_s) return pj_fail_memory(err, "a sensor's answer");
    for (size_t i = 1; i < edge_count; i++)
        p.on_before_s[i] =
            p.on_before_s[i - 1] + (i % 2 == 1 ? (double)(edges[i] - edges[i - 1]) * 1e-9 : 0);
    double least = INFINITY;
    search(&p, period_ns, &given, &least, response);
    pj_free(p.on_before_s);
    if (!isfinite(least) || response->residual > 0.5)
        return pj_fail(err, PJ_E_UNAVAILABLE, "the sensor's readings do not follow the load");
    return PJ_OK;
}
