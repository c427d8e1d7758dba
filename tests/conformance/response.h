/* Identifies a power sensor's response (averaging window, delay or lag time constant) from a load
 * that is switched at known times. Pure mathematics over arrays; needs intervals of steady load (a
 * calibration, a benchmark, a recorded trace with timestamps). */
#ifndef PJ_POWER_RESPONSE_H
#define PJ_POWER_RESPONSE_H

#include "base/error.h"

typedef struct pj_response {
    int64_t window_ns; /* boxcar; 0 when the sensor lags instead */
    int64_t delay_ns;
    int64_t lag_ns; /* 0: none */
    double on_mw, off_mw;
    double residual; /* rms residual / (on - off) */
} pj_response;

/* Prior knowledge narrows the search: a window or a lag in *response is kept (both 0: any shape),
 * and the rest is fitted. The load's edges must be sharp: a machine that ramps up over a second
 * looks like a lagging sensor, so pass what is known of the sensor's kind. Readings: values
 * published at `at_ns`, ascending. Edges: the load turns on at edges[0], off at edges[1], and so
 * on. PJ_E_UNAVAILABLE when the readings do not show the load (no edge inside them, or less than a
 * tenth of the misfit explained). */
pj_status pj_response_fit(const int64_t *at_ns, const double *mw, size_t count,
                          const int64_t *edges, size_t edge_count, int64_t period_ns,
                          pj_response *response, pj_error *err);

#endif
