/* Walking folders for models. */
#include "llm/scan.h"

#include "base/file.h"
#include "llm/checkpoint.h"
#include "llm/tokenizer.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static pj_model_entry *add_entry(pj_model_list *list, const char *name, const char *path)
{
    if (list->count == MAX_MODELS) return NULL;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        pj_model_entry *grown = pj_resize(list->items, capacity, sizeof *grown);
        if (!grown) return NULL;
        list->items = grown;
        list->capacity = capacity;
    }
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

/* The type that holds most of the bytes: the weights' type, whatever norms are kept in. */
static pj_dtype weight_dtype(const pj_checkpoint *checkpoint)
{
    double bytes[PJ_DTYPE_COUNT] = {0};
    pj_dtype type, most = PJ_F32;
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(checkpoint); i++) {
        const pj_tensor *tensor = pj_checkpoint_tensor(checkpoint, i);
        if (!pj_file_dtype(tensor->type, &type)) continue;
        bytes[type] += (double)tensor->bytes;
        if (bytes[type] > bytes[most]) most = type;
    }
    return most;
}

/* Bytes that decoding a token reads, where tensors are of several types: all of each, but of the
 * experts the chosen ones and of an embedding that is no head one row. */
static double decode_bytes(const pj_checkpoint *checkpoint, const pj_model_config *config)
{
    double bytes = 0;
    const pj_tensor *embedding = pj_checkpoint_find(checkpoint, "model.embed_tokens.weight");
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(checkpoint); i++) {
        const pj_tensor *tensor = pj_checkpoint_tensor(checkpoint, i);
        double share = tensor == embedding && !config->tied_head ? 0 : 1;
        if (tensor->rank == 3 && config->experts > 0)
            share = (double)config->experts_per_token / config->experts;
        bytes += share * (double)tensor->bytes;
    }
    return embedding ? bytes + (double)embedding->bytes / config->vocab : bytes;
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
    pj_model_facts_fill(&config, weight_dtype(checkpoint), &entry->facts);
    if (gguf) {
        entry->has_tokenizer = pj_tokenizer_in_gguf(gguf);
        entry->facts.bytes_per_token = (uint64_t)decode_bytes(checkpoint, &config);
    }
    entry->usable = true;
    pj_checkpoint_close(checkpoint);
}

static bool add_model(pj_model_list *list, const char *name, const char *path)
{
    pj_model_entry *entry = add_entry(list, name, path);
    if (entry) inspect(entry);
    return entry != NULL;
}

/* A folder with a config or weights; a GGUF file, of a set the first. */
static bool looks_like_model(const char *path)
{
    if (!pj_dir_exists(path)) return ends_with(path, ".gguf") && !pj_gguf_is_later_part(path);
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = strcmp(e->d_name, "config.json") == 0 || ends_with(e->d_name, ".safetensors");
    if (dir) closedir(dir);
    return found;
}

/* `prefix` is "" or "org/". A folder that is no model may be an organisation that holds some. */
static bool scan_folder(pj_model_list *list, const char *folder, const char *prefix)
{
    bool ok = true;
    DIR *dir = opendir(folder);
    if (!dir) return true;
    for (struct dirent *e; ok && (e = readdir(dir));) {
        char path[PATH_MAX], name[PATH_MAX];
        if (e->d_name[0] == '.' || !pj_path_join(path, sizeof path, folder, e->d_name)) continue;
        if (snprintf(name, sizeof name, "%s%s", prefix, e->d_name) >= (int)sizeof name) continue;
        if (looks_like_model(path)) {
            ok = add_model(list, name, path);
        } else if (!prefix[0] && pj_dir_exists(path)) {
            strncat(name, "/", sizeof name - strlen(name) - 1);
            ok = scan_folder(list, path, name);
        }
    }
    closedir(dir);
    return ok;
}

/* ---- the cache of Hugging Face's tools: models--ORG--NAME/{refs/main, snapshots/REVISION} ---- */

static bool cache_folder(char out[PATH_MAX])
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    const char *xdg = getenv("XDG_CACHE_HOME");
    int length = -1;
    if (hub && hub[0])
        length = snprintf(out, PATH_MAX, "%s", hub);
    else if (home && home[0])
        length = snprintf(out, PATH_MAX, "%s/hub", home);
    else if (xdg && xdg[0])
        length = snprintf(out, PATH_MAX, "%s/huggingface/hub", xdg);
    else if (user && user[0])
        length = snprintf(out, PATH_MAX, "%s/.cache/huggingface/hub", user);
    return length > 0 && length < PATH_MAX;
}

/* The revision that refs/main names, else the first there is. */
static bool snapshot_of(const char *repository, char out[PATH_MAX])
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    if (pj_path_join(path, sizeof path, repository, "refs/main") &&
        pj_file_read(path, 256, &text, &bytes, NULL) == PJ_OK) {
        text[strcspn(text, " \r\n/")] = 0;
        int length = snprintf(out, PATH_MAX, "%s/snapshots/%s", repository, text);
        bool named = text[0] && text[0] != '.' && length < PATH_MAX && pj_dir_exists(out);
        pj_free(text);
        if (named) return true;
    }
    if (!pj_path_join(path, sizeof path, repository, "snapshots")) return false;
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = e->d_name[0] != '.' && pj_path_join(out, PATH_MAX, path, e->d_name);
    if (dir) closedir(dir);
    return found;
}

static bool scan_cache(pj_model_list *list, const char *cache)
{
    static const char prefix[] = "models--";
    bool ok = true;
    DIR *dir = opendir(cache);
    for (struct dirent *e; dir && ok && (e = readdir(dir));) {
        char repository[PATH_MAX], snapshot[PATH_MAX], name[PATH_MAX];
        if (strncmp(e->d_name, prefix, sizeof prefix - 1) != 0) continue;
        snprintf(name, sizeof name, "%s", e->d_name + sizeof prefix - 1);
        char *dashes = strstr(name, "--");
        if (dashes) {
            *dashes = '/';
            memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
        }
        if (!pj_path_join(repository, sizeof repository, cache, e->d_name)) continue;
        if (!snapshot_of(repository, snapshot)) continue;
        if (looks_like_model(snapshot)) {
            ok = add_model(list, name, snapshot);
        } else { /* GGUF files, of which each is a model */
            strncat(name, "/", sizeof name - strlen(name) - 1);
            ok = scan_folder(list, snapshot, name);
        }
    }
    if (dir) closedir(dir);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pj_model_entry *)a)->name, ((const pj_model_entry *)b)->name);
}

pj_status pj_models_scan(const char *folder, bool with_cache, pj_model_list *list, pj_error *err)
{
    char cache[PATH_MAX];
    *list = (pj_model_list){0};
    if (!folder) folder = pj_models_default_folder();
    bool ok = looks_like_model(folder) ? add_model(list, pj_path_name(folder), folder)
                                       : scan_folder(list, folder, "");
    if (ok && with_cache && cache_folder(cache)) ok = scan_cache(list, cache);
    if (!ok) {
        pj_model_list_fini(list);
        return pj_fail(err, PJ_E_NO_MEMORY,
                       "the list of models does not fit in memory, or has more than "
                       "%d entries",
                       MAX_MODELS);
    }
    if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, by_name);
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
