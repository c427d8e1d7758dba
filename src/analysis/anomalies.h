/* Outliers: distance from the median in robust standard deviations (1.4826 times the median
 * absolute deviation), so that outliers do not mask each other. */
#ifndef PJ_ANALYSIS_ANOMALIES_H
#define PJ_ANALYSIS_ANOMALIES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pj_anomaly {
    size_t index;
    double value, expected, score; /* score: robust standard deviations, signed */
} pj_anomaly;

/* Writes at most `max` anomalies beyond `threshold` deviations, the strongest first, and returns
 * how many. A deviation is the robust spread, but at least `floor` (what the sensor resolves) and
 * 0.5 % of the median. Fewer than 8 values have none. `work` holds `count` doubles. */
size_t pj_anomalies_find(const double *values, size_t count, double threshold, double floor,
                         double *work, pj_anomaly *found, size_t max);

#endif
