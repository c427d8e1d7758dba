/* Parses and validates the header of a safetensors file. */
#ifndef PJ_FILES_SAFETENSORS_H
#define PJ_FILES_SAFETENSORS_H

#include "base/error.h"
#include "base/memory.h"
#include "engine/files/tensors.h"

/* The tensors, sorted by name; table and names are in `arena`, data points into [file, file +
 * bytes). `name` (a path) appears in errors. */
pj_status pj_safetensors_parse(const unsigned char *file, size_t bytes, const char *name,
                               pj_arena *arena, pj_tensor **tensors, uint32_t *count,
                               pj_error *err);

#endif
