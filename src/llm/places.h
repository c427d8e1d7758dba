/*
 * Where models lie on this machine: a folder of models, the cache of Hugging Face's tools, Ollama's
 * store, LM Studio's folder and llama.cpp's cache. Only names and files are looked at here; whether
 * a model can be used is for whoever opens it (scan.h). Nothing is downloaded.
 *
 * Environment: HF_HUB_CACHE, HF_HOME, OLLAMA_MODELS, LLAMA_CACHE, XDG_CACHE_HOME, HOME.
 */
#ifndef PJ_LLM_PLACES_H
#define PJ_LLM_PLACES_H

#include "base/error.h"

typedef struct pj_model_spot {
    const char *name;    /* "llama-3", "org/name", "org/name/file.gguf", "ollama:llama3.2:3b" */
    const char *path;    /* what the engine opens */
    const char *place;   /* "Ollama" */
    const char *problem; /* why there is nothing to open, and what to do; NULL: none */
} pj_model_spot;

typedef bool pj_model_visit(void *context, const pj_model_spot *spot); /* false: enough */

/* Visits the models in `folder`, and, `with_caches`, those that other tools keep; in that order,
 * which is the order in which names are looked up. False when a visit said that it was enough. */
bool pj_model_places_each(const char *folder, bool with_caches, pj_model_visit *visit,
                          void *context);

/* The name that a model opened at `path` goes by: of a snapshot in Hugging Face's cache the
 * repository's, of a blob in Ollama's store the model's, else the last part of the path. */
void pj_model_name_of_path(const char *path, char *name, size_t bytes);

/* A folder with a config or weights; a GGUF file, of a split set the first. */
bool pj_model_looks_like_one(const char *path);

#endif
