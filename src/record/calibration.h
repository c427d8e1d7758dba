/*
 * Calibrations: the power of each component of a model on this machine, measured in isolation, with
 * its interval. A slow or noisy sensor cannot separate components within a run; with a calibration
 * as prior, the same fit can (method `replay`).
 *
 * A calibration belongs to one machine, model shape, dtype, thread count, instruction set and set
 * of sensors; its key contains them all, and a run uses only a calibration with an equal key. Files
 * are stored in the user's data folder under calibrations/, one JSON object each.
 */
#ifndef PJ_RECORD_CALIBRATION_H
#define PJ_RECORD_CALIBRATION_H

#include "record/session.h"

enum { PJ_CALIBRATION_MAX_ROWS = 1024 };

typedef struct pj_calibration_row {
    char name[64]; /* of the class: a component */
    char rail[PJ_RAIL_NAME_BYTES];
    pj_phase phase;
    double power_mw, sd_mw; /* net */
    bool unstable;          /* its passes differ by more than their intervals allow */
} pj_calibration_row;

typedef struct pj_calibration {
    char key[1024];
    int64_t created_wall_ns;
    uint32_t count;
    pj_calibration_row rows[PJ_CALIBRATION_MAX_ROWS];
} pj_calibration;

pj_status pj_calibration_save(const pj_calibration *calibration, char *path, size_t bytes,
                              pj_error *err);
/* Loads the calibration of a key. PJ_E_NOT_FOUND: there is none. */
pj_status pj_calibration_load(const char *key, pj_calibration **calibration, pj_error *err);

/* The row of a class on a rail, added if missing; NULL: full, or the name is too long. */
pj_calibration_row *pj_calibration_row_for(pj_calibration *calibration, const char *rail,
                                           const char *name, pj_phase phase);

/* A pj_build_options.prior callback; `context` is a pj_calibration. An operation inside a component
 * that was calibrated as a whole gets the component's power with a wide interval. */
bool pj_calibration_prior(void *context, const pj_rail *rail, const char *class_name,
                          pj_phase phase, double *power_mw, double *sd_mw);

#endif
