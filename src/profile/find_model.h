/* Where a model's name leads: a path, a synthetic shape, or a folder among the models. */
#ifndef PJ_PROFILE_FIND_MODEL_H
#define PJ_PROFILE_FIND_MODEL_H

#include "base/error.h"

/* Writes the path to open. `name` NULL: the demonstration model that ships with perjoule. A name
 * that is no path is looked for in `models` (NULL: $PERJOULE_MODELS, else ./models) and among the
 * installed models. PJ_E_NOT_FOUND says where it was looked for. */
pj_status pj_model_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err);

#endif
