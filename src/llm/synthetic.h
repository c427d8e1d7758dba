/* Models of public shapes with random weights, generated in memory. */
#ifndef PJ_LLM_SYNTHETIC_H
#define PJ_LLM_SYNTHETIC_H

#include "llm/config.h"
#include "llm/dtype.h"

/* Fills the config of a public shape named "SHAPE[,dtype][,layers=N]" (after "synthetic:"); its
 * arrays are in `arena`. */
pj_status pj_synthetic_config(const char *name, pj_arena *arena, pj_model_config *config,
                              pj_dtype *dtype, uint32_t *full_layers, pj_error *err);

#endif
