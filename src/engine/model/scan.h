/* The models on this machine: those in a folder, and those of Hugging Face's tools, Ollama, LM
 * Studio and llama.cpp (locations.h). Unusable models are listed too, with the reason. */
#ifndef PJ_MODEL_SCAN_H
#define PJ_MODEL_SCAN_H

#include "engine/model/facts.h"

typedef struct pj_model_entry {
    char *name;           /* "llama-3", "org/name" */
    char *path;           /* what the engine opens */
    const char *location; /* "Ollama's store"; static */
    const char *first; /* path of another model with this name, selected by -m NAME; NULL: none */
    uint32_t order;    /* order of discovery */
    bool usable;
    bool has_tokenizer;
    pj_error reason;      /* if not usable */
    pj_model_facts facts; /* if usable */
} pj_model_entry;

typedef struct pj_model_list {
    pj_model_entry *items; /* by name */
    size_t count, capacity;
} pj_model_list;

/* $PERJOULE_MODELS, else "models". */
const char *pj_models_default_folder(void);
/* `folder` NULL: the default one; a missing folder counts as empty. */
pj_status pj_models_scan(const char *folder, bool with_cache, pj_model_list *list, pj_error *err);
void pj_model_list_fini(pj_model_list *list); /* may run twice */
/* Writes an array of objects: name, path, usable, reason or the facts. */
void pj_model_list_json(const pj_model_list *list, pj_json *json);

#endif
