/* Resolves a model name: a path, a synthetic shape, or a model in one of the known locations
 * (engine/files/locations.h). */
#ifndef PJ_GENERATE_FIND_MODEL_H
#define PJ_GENERATE_FIND_MODEL_H

#include "base/error.h"

/* Writes the path to open. `name` NULL: the demonstration model shipped with perjoule. A name that
 * is not a path is searched in `models` (NULL: $PERJOULE_MODELS, else ./models), among the
 * installed models, and in the folders of Hugging Face's tools, Ollama, LM Studio and llama.cpp.
 * For a repository with one GGUF file "ORG/NAME" is enough; with several, "ORG/NAME:Q4_K_M" selects
 * one. The error of PJ_E_NOT_FOUND lists the folders searched. */
pj_status pj_model_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err);

/* The same; `note` receives a sentence if the name is ambiguous, else "". */
pj_status pj_model_find_noting(const char *name, const char *models, char *path, size_t bytes,
                               char *note, size_t note_bytes, pj_error *err);

/* A draft: the model's own head (PJ_DRAFT_HEAD), or a model. */
pj_status pj_draft_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err);

#endif
