/*
 * A checkpoint on disk: its configuration, and its tensors by name, memory-mapped rather than
 * copied. It is either a folder as Hugging Face publishes them (config.json, an optional
 * generation_config.json, one safetensors file or several with an index), or a GGUF file, possibly
 * split into several. Everything that a file states is checked before it is used.
 */
#ifndef PJ_MODEL_CHECKPOINT_H
#define PJ_MODEL_CHECKPOINT_H

#include "engine/files/dtype.h"
#include "engine/files/gguf.h"
#include "engine/files/tensors.h"
#include "engine/kernels/team.h"
#include "engine/model/config.h"

#include <perjoule.h>

typedef struct pj_checkpoint pj_checkpoint;

/* Opens a model folder, a .safetensors file inside one, or a GGUF file (any part of a split set
 * stands for all of it; a folder containing only one GGUF file stands for it). */
pj_status pj_checkpoint_open(const char *path, pj_checkpoint **checkpoint, pj_error *err);
void pj_checkpoint_close(pj_checkpoint *checkpoint); /* NULL is allowed */
const pj_model_config *pj_checkpoint_config(const pj_checkpoint *checkpoint);
const pj_generation_config *pj_checkpoint_generation(const pj_checkpoint *checkpoint);
const char *pj_checkpoint_path(const pj_checkpoint *checkpoint); /* the folder, or the GGUF file */
/* Metadata of the GGUF file; NULL when it is a folder. */
const pj_gguf *pj_checkpoint_gguf(const pj_checkpoint *checkpoint);
/* By name, with or without a leading "model."; NULL when absent. Names are those of Hugging Face,
 * whatever the file calls its tensors. */
const pj_tensor *pj_checkpoint_find(const pj_checkpoint *checkpoint, const char *name);
uint32_t pj_checkpoint_tensor_count(const pj_checkpoint *checkpoint);
const pj_tensor *pj_checkpoint_tensor(const pj_checkpoint *checkpoint, uint32_t index);
/* A tensor of a GGUF file that has not been requested: the model computes something that is not
 * implemented here. NULL: none. */
const pj_tensor *pj_checkpoint_unused(const pj_checkpoint *checkpoint);
/* A weight matrix [rows, cols]; with cols 0 a vector [rows], returned as a single row. If it is
 * absent or different, the error shows both shapes and types. */
pj_status pj_checkpoint_matrix(const pj_checkpoint *checkpoint, const char *name, uint64_t rows,
                               uint64_t cols, pj_matrix *matrix, pj_error *err);

/* The type with the most bytes among the tensors, in memory. */
pj_dtype pj_checkpoint_weight_dtype(const pj_checkpoint *checkpoint);

/* Most bytes are of types that kernels read as they are stored. */
bool pj_checkpoint_is_plain(const pj_checkpoint *checkpoint);

/* Asks for huge pages under the weight files: for a model that is going to compute. */
void pj_checkpoint_prefer_huge(const pj_checkpoint *checkpoint);
/* Replaces the mappings of the files by copies at the same addresses, on huge pages if available:
 * the team copies, `cancel` (or NULL) ends it with PJ_E_CANCELLED. */
pj_status pj_checkpoint_copy(pj_checkpoint *checkpoint, pj_team *team, const _Atomic bool *cancel,
                             pj_error *err);
/* PJ_E_LOST where a weight file was shortened or written to while it was in use: what was read of
 * it may be wrong. */
pj_status pj_checkpoint_check(const pj_checkpoint *checkpoint, pj_error *err);
/* The files are still those that were opened, unchanged. */
bool pj_checkpoint_is_current(const pj_checkpoint *checkpoint);
/* What tells the weight files that were opened from others. */
uint64_t pj_checkpoint_stamp(const pj_checkpoint *checkpoint);
/* Makes the kernel map bytes [at, at + bytes) of the weight files, which are numbered consecutively
 * (pj_pages_touch); false past their end. May be called from several threads. */
bool pj_checkpoint_touch(const pj_checkpoint *checkpoint, size_t at, size_t bytes);

#endif
