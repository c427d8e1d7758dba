/* Whether a model would open, without opening it: a list of models says so of each. */
#ifndef PJ_LLM_MODEL_CHECK_H
#define PJ_LLM_MODEL_CHECK_H

#include "base/error.h"

/* Every tensor that the configuration asks for is there with its shape and a type that is read; no
 * weight is read or converted. The error is the one that opening would end with. */
pj_status pj_model_check(const char *path, pj_error *err);

#endif
