/*
 * Where models are on this machine: a folder of models, the cache of Hugging Face's tools, Ollama's
 * store, LM Studio's folder and llama.cpp's cache. Only names and files are examined here; opening
 * decides whether a model is usable (scan.h). Nothing is downloaded.
 *
 * Environment: HF_HUB_CACHE, HF_HOME, OLLAMA_MODELS, LLAMA_CACHE, XDG_CACHE_HOME, HOME.
 */
#ifndef PJ_FILES_LOCATIONS_H
#define PJ_FILES_LOCATIONS_H

#include "base/error.h"

typedef struct pj_model_spot {
    const char *name;     /* "llama-3", "org/name", "org/name/file.gguf", "ollama:llama3.2:3b" */
    const char *path;     /* what the engine opens */
    const char *location; /* "Ollama" */
    const char *problem;  /* why nothing can be opened, and the remedy; NULL: no problem */
} pj_model_spot;

typedef bool pj_model_visit(void *context, const pj_model_spot *spot); /* false: stop */

/* Visits the models in `folder` and, with `with_caches`, those of other tools, in that order, which
 * is also the look-up order. False when a visitor stopped the walk. */
bool pj_model_locations_each(const char *folder, bool with_caches, pj_model_visit *visit,
                             void *context);

/* The name of a model opened at `path`: the repository's for a snapshot in Hugging Face's cache,
 * the model's for a blob in Ollama's store, else the last part of the path. */
void pj_model_name_of_path(const char *path, char *name, size_t bytes);

#endif
