/* Lists the models in all locations, opening each far enough to tell whether it is usable. */
#include "engine/model/scan.h"

#include "base/file.h"
#include "engine/files/locations.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MODELS = 4096 };

const char *pj_models_default_folder(void)
{
    const char *folder = getenv("PERJOULE_MODELS");
    return folder && folder[0] ? folder : "models";
}

void pj_model_list_fini(pj_model_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        pj_free(list->items[i].name);
        pj_free(list->items[i].path);
    }
    pj_free(list->items);
    *list = (pj_model_list){0};
}

static pj_model_entry *add_entry(pj_model_list *list, const char *name, const char *path)
{
    if (list->count == MAX_MODELS) return NULL;
    pj_model_entry *grown = pj_grow(list->items, list->count, &list->capacity, sizeof *grown);
    if (!grown) return NULL;
    list->items = grown;
    pj_model_entry *entry = &list->items[list->count];
    *entry = (pj_model_entry){.name = pj_strdup(name), .path = pj_strdup(path)};
    if (entry->name && entry->path) {
        list->count++;
        return entry;
    }
    pj_free(entry->name);
    pj_free(entry->path);
    return NULL;
}

/* Q2_0 is resident with twice its bits. */
static double resident_bytes(const pj_tensor *tensor)
{
    return (double)tensor->bytes * (tensor->type == PJ_FILE_Q2_0 ? 2 : 1);
}

/* Bytes read to decode a token, for tensors of mixed types: all tensors, but only the chosen
 * experts, and one row of an untied embedding. */
static double decode_bytes(const pj_checkpoint *checkpoint, const pj_model_config *config)
{
    double bytes = 0;
    const pj_tensor *embedding = pj_checkpoint_find(checkpoint, "model.embed_tokens.weight");
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(checkpoint); i++) {
        const pj_tensor *tensor = pj_checkpoint_tensor(checkpoint, i);
        double share = tensor == embedding && !config->tied_head ? 0 : 1;
        if (tensor->rank == 3 && config->experts > 0)
            share = (double)config->experts_per_token / config->experts;
        bytes += share * resident_bytes(tensor);
    }
    return embedding ? bytes + resident_bytes(embedding) / config->vocab : bytes;
}

static void inspect(pj_model_entry *entry)
{
    pj_checkpoint *checkpoint;
    char tokenizer[PATH_MAX];
    entry->has_tokenizer =
        pj_path_join(tokenizer, sizeof tokenizer, entry->path, "tokenizer.json") &&
        pj_file_exists(tokenizer);
    if (pj_checkpoint_open(entry->path, &checkpoint, &entry->reason) != PJ_OK) return;
    const pj_gguf *gguf = pj_checkpoint_gguf(checkpoint);
    pj_model_config config = *pj_checkpoint_config(checkpoint);
    config.tied_head = pj_checkpoint_find(checkpoint, "lm_head.weight") == NULL;
    pj_model_facts_fill(&config, pj_checkpoint_weight_dtype(checkpoint), &entry->facts);
    if (gguf) {
        entry->has_tokenizer = pj_tokenizer_in_gguf(gguf);
        entry->facts.decode_weight_bytes = (uint64_t)decode_bytes(checkpoint, &config);
    }
    pj_checkpoint_close(checkpoint);
    entry->usable = pj_model_check(entry->path, &entry->reason) == PJ_OK;
}

typedef struct listing {
    pj_model_list *list;
    bool full;
} listing;

static bool add_spot(void *context, const pj_model_spot *spot)
{
    listing *l = context;
    pj_model_entry *entry = add_entry(l->list, spot->name, spot->path);
    l->full = entry == NULL;
    if (l->full) return false;
    entry->order = (uint32_t)l->list->count;
    entry->location = spot->location;
    if (spot->problem)
        pj_fail(&entry->reason, PJ_E_INVALID, "%s", spot->problem);
    else
        inspect(entry);
    return true;
}

/* By name, then by look-up order. */
static int scan_by_name(const void *a, const void *b)
{
    const pj_model_entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->order < y->order ? -1 : 1;
}

pj_status pj_models_scan(const char *folder, bool with_cache, pj_model_list *list, pj_error *err)
{
    *list = (pj_model_list){0};
    listing l = {.list = list};
    pj_model_locations_each(folder ? folder : pj_models_default_folder(), with_cache, add_spot, &l);
    if (l.full) {
        pj_model_list_fini(list);
        return pj_fail(err, PJ_E_NO_MEMORY,
                       "the list of models does not fit in memory, or has more than %d entries",
                       MAX_MODELS);
    }
    if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, scan_by_name);
    for (size_t i = 1; i < list->count; i++)
        if (strcmp(list->items[i - 1].name, list->items[i].name) == 0)
            list->items[i].first =
                list->items[i - 1].first ? list->items[i - 1].first : list->items[i - 1].path;
    return PJ_OK;
}

void pj_model_list_json(const pj_model_list *list, pj_json *json)
{
    pj_json_array_begin(json);
    for (size_t i = 0; i < list->count; i++) {
        const pj_model_entry *entry = &list->items[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", entry->name);
        pj_json_kv_string(json, "path", entry->path);
        pj_json_kv_string(json, "place", entry->location);
        if (entry->first) pj_json_kv_string(json, "hidden_by", entry->first);
        pj_json_kv_bool(json, "usable", entry->usable);
        pj_json_kv_bool(json, "has_tokenizer", entry->has_tokenizer);
        if (entry->usable)
            pj_model_facts_json(&entry->facts, json);
        else
            pj_json_kv_string(json, "reason", entry->reason.text);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}
