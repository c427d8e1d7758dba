/* Runs one component of the forward pass in isolation, long enough for a slow sensor: the
 * measurement of a calibration. Each component runs at its real shapes, types and thread count,
 * rotating over the layers, so that weights come from memory as in a run. The work is recorded as
 * spans of the component, so that the usual attribution finds the power of each. */
#ifndef PJ_GENERATION_CALIBRATE_H
#define PJ_GENERATION_CALIBRATE_H

#include "engine/generation/engine.h"

typedef struct pj_calibrate_request {
    pj_run *run;           /* records here */
    int64_t block_ns;      /* duration of a block of one component */
    int64_t gap_ns;        /* idle time between blocks */
    uint32_t passes;       /* over all components, each in a different random order */
    uint32_t context;      /* tokens in the KV cache in decode */
    uint32_t prefill_rows; /* tokens of a prefill pass */
    uint64_t seed;         /* for the random orders */
    const _Atomic bool *cancel;
    void (*on_block)(void *context, pj_phase phase, const char *component, uint32_t done,
                     uint32_t of); /* before each block; or NULL */
    void *context_of_block;
} pj_calibrate_request;

pj_status pj_engine_calibrate(pj_engine *engine, const pj_calibrate_request *request,
                              pj_error *err);

#endif
