/*
 * Running one component of the forward pass alone, long enough for a slow sensor: the measuring
 * half of a calibration. Each component runs at its real shapes, types and thread count, rotating
 * over the layers, so that weights come from memory as in a run. What runs is recorded as spans of
 * the component, so that the same attribution that serves runs finds the power of each.
 */
#ifndef PJ_LLM_CALIBRATE_H
#define PJ_LLM_CALIBRATE_H

#include "llm/engine.h"

typedef struct pj_calibrate_request {
    pj_run *run;           /* records here */
    int64_t block_ns;      /* of one component in one pass */
    int64_t gap_ns;        /* of quiet between blocks */
    uint32_t passes;       /* over all components, each in an order of its own */
    uint32_t context;      /* tokens in the cache in decode */
    uint32_t prefill_rows; /* tokens of a prefill pass */
    uint64_t seed;         /* of the orders */
    const _Atomic bool *cancel;
    void (*on_block)(void *context, pj_phase phase, const char *component, uint32_t done,
                     uint32_t of); /* before each block; or NULL */
    void *context_of_block;
} pj_calibrate_request;

pj_status pj_engine_calibrate(pj_engine *engine, const pj_calibrate_request *request,
                              pj_error *err);

#endif
