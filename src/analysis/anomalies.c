/* Outlier detection with robust statistics. */
#include "analysis/anomalies.h"

#include "base/median.h"

#include <math.h>

enum { LEAST_VALUES = 8 };

/* Minimum spread relative to the median: on a constant series the spread is rounding noise, and
 * every change of a digit would be an outlier. */
static const double least_share = 0.005;

size_t pj_anomalies_add(pj_anomaly *found, size_t count, size_t max, pj_anomaly new)
{
    size_t at = count < max ? count : max;
    for (; at > 0 && fabs(found[at - 1].score) < fabs(new.score); at--)
        if (at < max) found[at] = found[at - 1];
    if (at < max) found[at] = new;
    return count < max ? count + 1 : max;
}

size_t pj_anomalies_find(const double *values, size_t count, double threshold, double floor,
                         double *work, pj_anomaly *found, size_t max)
{
    size_t n = 0, many = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i])) work[n++] = values[i];
    if (n < LEAST_VALUES) return 0;
    double centre = pj_median(work, n);
    for (size_t i = 0; i < n; i++) work[i] = fabs(work[i] - centre);
    double spread = fmax(1.4826 * pj_median(work, n), fmax(floor, least_share * fabs(centre)));
    if (!(spread > 0)) return 0;
    for (size_t i = 0; i < count; i++) {
        double score = (values[i] - centre) / spread;
        bool small = fabs(values[i] - centre) < PJ_ANOMALY_LEAST * fabs(centre);
        if (isnan(values[i]) || fabs(score) < threshold || small) continue;
        many = pj_anomalies_add(
            found, many, max,
            (pj_anomaly){.index = i, .value = values[i], .expected = centre, .score = score});
    }
    return many;
}
