/* Where a model's name leads: a path, a synthetic shape, or one of the places where models are kept
 * (llm/places.h). */
#ifndef PJ_PROFILE_FIND_MODEL_H
#define PJ_PROFILE_FIND_MODEL_H

#include "base/error.h"

/* Writes the path to open. `name` NULL: the demonstration model that ships with perjoule. A name
 * that is no path is looked for in `models` (NULL: $PERJOULE_MODELS, else ./models), among the
 * installed models, and in what Hugging Face's tools, Ollama, LM Studio and llama.cpp keep. Of a
 * repository of GGUF files "ORG/NAME" is enough where there is one, and "ORG/NAME:Q4_K_M" says
 * which where there are several. PJ_E_NOT_FOUND says where it was looked for. */
pj_status pj_model_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err);

/* The same; `note` gets a sentence when the name was found twice, else "". */
pj_status pj_model_find_noting(const char *name, const char *models, char *path, size_t bytes,
                               char *note, size_t note_bytes, pj_error *err);

#endif
