/* Straight lines through logarithms. */
#include "analysis/law.h"

#include "analysis/compare.h"
#include "analysis/ratio.h"

#include <math.h>

static const double least_range = 1.5; /* minimum range of x (factor) for a fit */

typedef struct sums {
    double x, y, xx, xy, yy; /* means, then sums of products of deviations */
    double least, most;
    uint32_t n;
} sums;

static int is_usable(const pj_law_point *p)
{
    return p->x > 0 && p->y > 0 && isfinite(p->x) && isfinite(p->y);
}

static sums sums_of(const pj_law_point *points, uint32_t count)
{
    sums s = {.least = INFINITY};
    for (uint32_t i = 0; i < count; i++) {
        if (!is_usable(&points[i])) continue;
        double dx = log(points[i].x) - s.x, dy = log(points[i].y) - s.y;
        s.n++;
        s.x += dx / s.n;
        s.y += dy / s.n;
        s.xx += dx * (log(points[i].x) - s.x);
        s.yy += dy * (log(points[i].y) - s.y);
        s.xy += dx * (log(points[i].y) - s.y);
        s.least = fmin(s.least, points[i].x);
        s.most = fmax(s.most, points[i].x);
    }
    return s;
}

static uint32_t distinct(const pj_law_point *points, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = 0;
        while (k < i && !(is_usable(&points[k]) && points[k].x == points[i].x)) k++;
        n += k == i && is_usable(&points[i]);
    }
    return n;
}

void pj_law_fit(const pj_law_point *points, uint32_t count, pj_law *law)
{
    sums s = sums_of(points, count);
    *law = (pj_law){NAN, NAN, NAN, NAN, NAN, NULL};
    if (distinct(points, count) < PJ_LAW_LEAST)
        law->refusal = "fewer than three different values";
    else if (s.most < s.least * least_range)
        law->refusal = "the values are within a factor of 1.5 of each other";
    if (law->refusal) return;
    double rest = fmax(s.yy - s.xy * s.xy / s.xx, 0);
    double error = sqrt(rest / (s.n - 2) / s.xx);
    double half = pj_student_quantile(1 - PJ_LEVEL / 2, s.n - 2) * error;
    law->exponent = s.xy / s.xx;
    law->exponent_lo = law->exponent - half;
    law->exponent_hi = law->exponent + half;
    law->factor = exp(s.y - law->exponent * s.x);
    law->r2 = s.yy > 0 ? 1 - rest / s.yy : 1;
}

double pj_law_of_kinds(const pj_law_point *points, const uint32_t *kinds, uint32_t count)
{
    sums all = sums_of(points, count);
    double within = 0;
    uint32_t groups = 0;
    for (uint32_t i = 0; i < count; i++) {
        double mean = 0, squares = 0;
        uint32_t n = 0, earlier = 0;
        for (uint32_t k = 0; k < count; k++) {
            if (!is_usable(&points[k]) || kinds[k] != kinds[i]) continue;
            earlier += k < i;
            double away = log(points[k].y) - mean;
            mean += away / ++n;
            squares += away * (log(points[k].y) - mean);
        }
        if (earlier || !is_usable(&points[i])) continue;
        within += squares;
        groups++;
    }
    if (all.n < PJ_LAW_LEAST || groups < 2 || groups == all.n || !(all.yy > 0)) return NAN;
    return 1 - within / all.yy;
}
