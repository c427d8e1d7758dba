/* The typical token: the median energy of the decode tokens that nothing disturbed, with an
 * interval of sensor and scatter. It is the figure by which runs are listed, compared and
 * predicted, because a few stalls of the machine change the mean by any factor and the median
 * hardly. */
#ifndef PJ_TRACE_TYPICAL_H
#define PJ_TRACE_TYPICAL_H

#include "base/error.h"
#include "trace/run_data.h"

typedef struct pj_typical {
    double mj; /* NAN: no decode token has an energy */
    /* random: scatter of the tokens and random errors of the sensor; bias and gain: those of the
     * decode phases, in proportion. NAN: the sensor's are unknown. */
    pj_sd sd;
} pj_typical;

/* From token, phase and disturbance rows. */
pj_status pj_typical_get(const pj_run_data *data, pj_typical *typical, pj_error *err);

#endif
