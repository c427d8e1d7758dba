/* Models of public shapes with random weights, generated in memory. */
#ifndef PJ_MODEL_SYNTHETIC_H
#define PJ_MODEL_SYNTHETIC_H

#include "engine/files/dtype.h"
#include "engine/model/config.h"

/* Fills the config of a public shape named "SHAPE[,dtype][,layers=N]" (after "synthetic:"); its
 * arrays are in `arena`. */
pj_status pj_synthetic_config(const char *name, pj_arena *arena, pj_model_config *config,
                              pj_dtype *dtype, uint32_t *full_layers, pj_error *err);

#endif
