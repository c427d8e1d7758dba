/*
 * Calibrations: what each component of a model draws on this machine, measured alone, with its
 * interval. A slow or noisy sensor cannot tell components apart inside a run; with a calibration as
 * prior the same fit can (method `replay`).
 *
 * A calibration belongs to one machine, model shape, dtype, thread count, instruction set and set
 * of sensors; its key spells them, and a run takes only a calibration whose key is its own. Files
 * lie in the user's data folder under calibrations/, one JSON object each.
 */
#ifndef PJ_PROFILE_CALIBRATION_H
#define PJ_PROFILE_CALIBRATION_H

#include "profile/model_slot.h"
#include "profile/session.h"

enum { PJ_CALIBRATION_MAX_ROWS = 1024 };

typedef struct pj_calibration_row {
    char name[64]; /* of the class: a component */
    char rail[PJ_RAIL_NAME_BYTES];
    pj_phase phase;
    double power_mw, sd_mw; /* net */
    bool unstable;          /* its passes differ by more than their intervals say */
} pj_calibration_row;

typedef struct pj_calibration {
    char key[1024];
    int64_t created_wall_ns;
    uint32_t count;
    pj_calibration_row rows[PJ_CALIBRATION_MAX_ROWS];
} pj_calibration;

/* Spells what a calibration of this engine on this session's machine and sensors depends on. */
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
pj_status pj_calibration_save(const pj_calibration *calibration, char *path, size_t bytes,
                              pj_error *err);
/* The calibration of a key. PJ_E_NOT_FOUND when there is none. */
pj_status pj_calibration_load(const char *key, pj_calibration **calibration, pj_error *err);

/* The row of a class on a rail, added where there is none; NULL: no room, or too long a name. */
pj_calibration_row *pj_calibration_row_for(pj_calibration *calibration, const char *rail,
                                           const char *name, pj_phase phase);

/* As pj_build_options.prior takes it; `context` is a pj_calibration. An operation inside a
 * component that was calibrated as a whole gets the component's power with a wide interval. */
bool pj_calibration_prior(void *context, const pj_rail *rail, const char *class_name,
                          pj_phase phase, double *power_mw, double *sd_mw);

#endif
