/* Checks whether a model would open, without opening it, for lists of models. */
#ifndef PJ_MODEL_MODEL_CHECK_H
#define PJ_MODEL_MODEL_CHECK_H

#include "base/error.h"

/* Checks that every tensor required by the configuration exists with its shape and a supported
 * type; no weights are read or converted. The error is the one that opening would return. */
pj_status pj_model_check(const char *path, pj_error *err);

#endif
