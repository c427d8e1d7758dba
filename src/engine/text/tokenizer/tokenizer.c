/* Opens a tokenizer: selects the reader for a file, and parses a tokenizer.json. */
#include "base/file.h"
#include "engine/files/gguf.h"
#include "engine/text/tokenizer/parts.h"

#include <limits.h>
#include <string.h>

/* The small parts of a tokenizer besides its model; truncation and padding apply only to training.
 */
static const char *part_named(pj_json_text key)
{
    static const char *const parts[] = {"version",       "added_tokens",   "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (pj_json_text_is(key, parts[i])) return parts[i];
    return NULL;
}

static pj_status load_part(pj_json_scan *scan, const char *part, json_t *root, pj_error *err)
{
    json_t *value = pj_json_scan_tree(scan, JSON_ALLOW_NUL);
    if (!value || json_object_set_new(root, part, value) == 0) return PJ_OK;
    return pj_fail_memory(err, "a tokenizer");
}

/* Loads the model on the way; the small parts, which refer to it, are kept for later. */
static pj_status walk(pj_tokenizer *t, pj_json_scan *scan, json_t *root, const char *name,
                      pj_error *err)
{
    pj_status status = PJ_OK;
    bool has_model = false;
    pj_json_scan_enter(scan, '{');
    pj_json_text key;
    while (status == PJ_OK && pj_json_scan_member(scan, &key)) {
        const char *part = part_named(key);
        if (part) {
            status = load_part(scan, part, root, err);
        } else if (!pj_json_text_is(key, "model")) {
            pj_json_scan_skip(scan, NULL);
        } else if (has_model) {
            return pj_fail(err, PJ_E_INVALID, "%s has two models", name);
        } else {
            has_model = true;
            status = pj_load_model(t, scan, name, err);
        }
    }
    if (status == PJ_OK) pj_json_scan_end(scan);
    if (pj_json_scan_failed(scan)) return pj_json_scan_error(scan, name, err);
    if (status == PJ_OK && !has_model) return pj_fail(err, PJ_E_INVALID, "%s has no model", name);
    return status;
}

static pj_status tokenizer_check_version(json_t *root, const char *name, pj_error *err)
{
    json_t *version = json_object_get(root, "version");
    if (!version || json_is_null(version)) return PJ_OK;
    const char *text = json_string_value(version);
    if (text && strcmp(text, "1.0") == 0) return PJ_OK;
    return pj_fail(err, PJ_E_UNSUPPORTED, "%s is of version %.20s; only 1.0 is supported", name,
                   text ? text : "(not a text)");
}

pj_status pj_tokenizer_parse(const char *text, size_t bytes, const char *name,
                             pj_tokenizer **tokenizer, pj_error *err)
{
    *tokenizer = NULL;
    pj_tokenizer *t = pj_tokenizer_new();
    json_t *root = json_object();
    if (!t || !root) {
        pj_tokenizer_close(t);
        json_decref(root);
        return pj_fail_memory(err, "a tokenizer");
    }
    pj_json_scan scan;
    pj_json_scan_init(&scan, text, bytes);
    pj_status status = walk(t, &scan, root, name, err);
    pj_json_scan_fini(&scan);
    if (status == PJ_OK) status = tokenizer_check_version(root, name, err);
    if (status == PJ_OK) status = pj_load_steps(t, root, name, err);
    if (status == PJ_OK) status = pj_tokenizer_index(t, name, err);
    json_decref(root);
    if (status == PJ_OK)
        *tokenizer = t;
    else
        pj_tokenizer_close(t);
    return status;
}

static pj_status parse_gguf(const pj_mapping *file, const char *name, pj_tokenizer **tokenizer,
                            pj_error *err)
{
    pj_arena arena;
    pj_gguf gguf;
    pj_arena_init(&arena, 0);
    pj_status status = pj_gguf_parse(file->data, file->size, name, &arena, &gguf, err);
    if (status == PJ_OK) status = pj_tokenizer_from_gguf(&gguf, name, tokenizer, err);
    pj_arena_fini(&arena);
    return status;
}

pj_status pj_tokenizer_open(const char *path, pj_tokenizer **tokenizer, pj_error *err)
{
    char file[PATH_MAX];
    pj_mapping mapping;
    *tokenizer = NULL;
    bool folder = pj_dir_exists(path);
    if (folder && !pj_path_join(file, sizeof file, path, "tokenizer.json"))
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", path);
    if (folder) path = file;
    pj_status status = pj_file_map(path, &mapping, err);
    if (status != PJ_OK) return status;
    const char *text = mapping.data ? (const char *)mapping.data : "";
    size_t length = strlen(path);
    bool gguf = pj_gguf_has_magic(mapping.data, mapping.size) ||
                (length > 5 && strcmp(path + length - 5, ".gguf") == 0);
    status = gguf ? parse_gguf(&mapping, path, tokenizer, err)
                  : pj_tokenizer_parse(text, mapping.size, path, tokenizer, err);
    pj_file_unmap(&mapping);
    return status;
}
