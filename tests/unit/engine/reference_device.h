/*
 * A device in plain C, as a test of the forward pass and an example of engine/forward/ops.h: each
 * operation is what the header says of it, one value after another. Like a GPU it only notes the
 * operations of a pass and runs them when the pass ends, so nothing can depend on a result before.
 * Activations are in memory of its own, filled with NaN where a pass does not write it.
 * Spans go into a log for the tests, which a run does not see: a device adds them to the run
 * through the instrument (engine/cpu/record.c).
 */
#ifndef PJ_TESTS_UNIT_REFERENCE_DEVICE_H
#define PJ_TESTS_UNIT_REFERENCE_DEVICE_H

#include "engine/forward/ops.h"

extern const pj_backend reference_device;

/* A layer or component that ended on the device. */
typedef struct reference_span {
    pj_instrument_name name; /* PJ_N_NONE: a layer */
    double flops, bytes;
    double mean_abs; /* of its output; NAN: none */
} reference_span;

enum { REFERENCE_SPANS = 8192 };

/* Of all generations since the test set it to zero, in the order of their ends. */
typedef struct reference_log {
    reference_span spans[REFERENCE_SPANS];
    uint32_t span_count;
    uint32_t passes, loads, unloads, argmaxes, open_spans;
} reference_log;
extern reference_log reference_seen;

#endif
