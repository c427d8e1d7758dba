/* The header of one safetensors file, checked. */
#ifndef PJ_LLM_SAFETENSORS_H
#define PJ_LLM_SAFETENSORS_H

#include "base/error.h"
#include "base/memory.h"
#include "llm/tensors.h"

/* The tensors, sorted by name; the table and the names live in `arena`, data points into
 * [file, file + bytes). `name` (a path) appears in errors. */
pj_status pj_safetensors_parse(const unsigned char *file, size_t bytes, const char *name,
                               pj_arena *arena, pj_tensor **tensors, uint32_t *count,
                               pj_error *err);

#endif
