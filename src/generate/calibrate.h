/* Measuring a calibration with perjoule's own engine, and its key. */
#ifndef PJ_GENERATE_CALIBRATE_H
#define PJ_GENERATE_CALIBRATE_H

#include "generate/model_slot.h"
#include "record/calibration.h"

/* Writes the key of a calibration: everything that it depends on, for this engine on this session's
 * machine and sensors. */
void pj_calibration_key(const pj_session *session, const pj_engine *engine, char *key,
                        size_t bytes);

typedef struct pj_calibration_options {
    pj_engine_options engine;
    double seconds;         /* a component, over all passes; 0: 2 */
    uint32_t passes;        /* 0: 2 */
    uint32_t context, rows; /* tokens in the cache in decode, of a prefill pass; 0: 128 */
    uint64_t seed;
    const _Atomic bool *cancel;
    void (*on_block)(void *context, pj_phase phase, const char *component, uint32_t done,
                     uint32_t of);
    void *context_of_block;
} pj_calibration_options;

/* Measures; the caller frees *calibration (pj_free). PJ_E_UNAVAILABLE without a sensor. */
pj_status pj_calibrate(pj_session *session, pj_model_slot *slot,
                       const pj_calibration_options *options, pj_calibration **calibration,
                       pj_error *err);

#endif
