/*
 * A model folder opened: config.json and generation_config.json read, every weight file mapped and
 * its header checked, all tensors in one table sorted by name (a sorted table, because hostile
 * names could make any fixed hash slow). Nothing here copies a weight.
 */
#include "llm/checkpoint.h"

#include "base/file.h"
#include "llm/json_scan.h"
#include "llm/pages.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 16 << 20, MAX_INDEX_BYTES = 128 << 20, MAX_SHARDS = 4096 };

struct pj_checkpoint {
    char path[PATH_MAX]; /* the folder */
    pj_model_config config;
    pj_generation_config generation;
    pj_arena arena; /* names, tables of single files, arrays of the config */
    pj_mapping *files;
    const char **file_names; /* [file_count], in the arena */
    uint32_t file_count;
    pj_tensor *tensors; /* [count], by name */
    uint32_t count;
};

const pj_model_config *pj_checkpoint_config(const pj_checkpoint *checkpoint)
{
    return &checkpoint->config;
}

const pj_generation_config *pj_checkpoint_generation(const pj_checkpoint *checkpoint)
{
    return &checkpoint->generation;
}

const char *pj_checkpoint_path(const pj_checkpoint *checkpoint)
{
    return checkpoint->path;
}

uint32_t pj_checkpoint_tensor_count(const pj_checkpoint *checkpoint)
{
    return checkpoint->count;
}

const pj_tensor *pj_checkpoint_tensor(const pj_checkpoint *checkpoint, uint32_t index)
{
    return index < checkpoint->count ? &checkpoint->tensors[index] : NULL;
}

bool pj_checkpoint_touch(const pj_checkpoint *checkpoint, size_t at, size_t bytes)
{
    for (uint32_t i = 0; i < checkpoint->file_count; i++) {
        const pj_mapping *file = &checkpoint->files[i];
        if (at >= file->size) {
            at -= file->size;
            continue;
        }
        size_t left = file->size - at;
        pj_pages_touch((const char *)file->data + at, bytes < left ? bytes : left);
        return true;
    }
    return false;
}

void pj_checkpoint_close(pj_checkpoint *checkpoint)
{
    if (!checkpoint) return;
    for (uint32_t i = 0; checkpoint->files && i < checkpoint->file_count; i++)
        pj_file_unmap(&checkpoint->files[i]);
    pj_free(checkpoint->files);
    pj_free(checkpoint->tensors);
    pj_arena_fini(&checkpoint->arena);
    pj_free(checkpoint);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pj_tensor *)a)->name, ((const pj_tensor *)b)->name);
}

static const pj_tensor *find_exact(const pj_checkpoint *checkpoint, const char *name)
{
    pj_tensor key = {.name = name};
    if (checkpoint->count == 0) return NULL;
    return bsearch(&key, checkpoint->tensors, checkpoint->count, sizeof key, by_name);
}

const pj_tensor *pj_checkpoint_find(const pj_checkpoint *checkpoint, const char *name)
{
    static const char prefix[] = "model.";
    const pj_tensor *found = find_exact(checkpoint, name);
    if (found) return found;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        return find_exact(checkpoint, name + sizeof prefix - 1);
    char longer[512];
    int length = snprintf(longer, sizeof longer, "%s%s", prefix, name);
    return length < (int)sizeof longer ? find_exact(checkpoint, longer) : NULL;
}

/* "[2048, 512]" */
static const char *shape_text(const pj_tensor *tensor, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (uint32_t i = 0; i < tensor->rank && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)tensor->shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
    return text;
}

static bool weight_type(pj_file_type type, pj_dtype *dtype)
{
    switch (type) {
    case PJ_FILE_F32: *dtype = PJ_F32; return true;
    case PJ_FILE_F16: *dtype = PJ_F16; return true;
    case PJ_FILE_BF16: *dtype = PJ_BF16; return true;
    default: return false;
    }
}

pj_status pj_checkpoint_matrix(const pj_checkpoint *checkpoint, const char *name, uint64_t rows,
                               uint64_t cols, pj_matrix *matrix, pj_error *err)
{
    pj_tensor want = {.rank = cols ? 2 : 1, .shape = {rows, cols}};
    char wanted[64], found[192];
    shape_text(&want, wanted, sizeof wanted);
    *matrix = (pj_matrix){0};
    const pj_tensor *tensor = pj_checkpoint_find(checkpoint, name);
    if (!tensor)
        return pj_fail(err, PJ_E_INVALID, "%s has no tensor %s, which should be %s",
                       checkpoint->path, name, wanted);
    pj_dtype type;
    bool fits = tensor->rank == want.rank && tensor->shape[0] == rows &&
                (cols == 0 || tensor->shape[1] == cols);
    if (!fits || !weight_type(tensor->type, &type))
        return pj_fail(err, PJ_E_INVALID,
                       "%s: tensor %s is %s %s, where the config needs F32, F16 or BF16 %s",
                       checkpoint->path, name, pj_file_type_name(tensor->type),
                       shape_text(tensor, found, sizeof found), wanted);
    matrix->data = tensor->data;
    matrix->type = type;
    matrix->rows = cols ? rows : 1;
    matrix->cols = cols ? cols : rows;
    matrix->row_bytes = pj_dtype_row_bytes(type, matrix->cols);
    return PJ_OK;
}

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static pj_status join(pj_checkpoint *c, const char *file, char out[PATH_MAX], pj_error *err)
{
    if (pj_path_join(out, PATH_MAX, c->path, file)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the path of %.200s is too long", file);
}

static pj_status read_config(pj_checkpoint *c, pj_error *err)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    pj_status status = join(c, "config.json", path, err);
    if (status == PJ_OK) status = pj_file_read(path, MAX_CONFIG_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    status = pj_config_parse(text, bytes, path, &c->arena, &c->config, err);
    pj_free(text);
    if (status == PJ_OK) status = join(c, "generation_config.json", path, err);
    if (status != PJ_OK || !pj_file_exists(path)) return status;
    status = pj_file_read(path, MAX_CONFIG_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    status = pj_generation_config_parse(text, bytes, path, &c->config, &c->generation, err);
    pj_free(text);
    return status;
}

/* A weight file of the folder, once; names come sorted or from an index, so the list is short. */
static pj_status add_file(pj_checkpoint *c, const char *name, size_t bytes, pj_error *err)
{
    for (uint32_t i = 0; i < c->file_count; i++)
        if (strlen(c->file_names[i]) == bytes && memcmp(c->file_names[i], name, bytes) == 0)
            return PJ_OK;
    if (c->file_count == MAX_SHARDS)
        return pj_fail(err, PJ_E_INVALID, "%s has more than %d weight files", c->path, MAX_SHARDS);
    if (!c->file_names) c->file_names = pj_arena_alloc(&c->arena, MAX_SHARDS, sizeof(char *));
    char *copy = pj_arena_strndup(&c->arena, name, bytes);
    if (!copy || !c->file_names) return pj_fail_memory(err, "a list of weight files");
    c->file_names[c->file_count++] = copy;
    return PJ_OK;
}

/* A shard's name must be a plain file name: nothing that leaves the folder. */
static bool is_plain_name(pj_json_text name)
{
    return name.bytes > 0 && name.bytes < 256 && name.text[0] != '.' &&
           !memchr(name.text, '/', name.bytes) && !memchr(name.text, '\\', name.bytes) &&
           !memchr(name.text, 0, name.bytes);
}

static pj_status read_weight_map(pj_checkpoint *c, pj_json_scan *scan, const char *path,
                                 pj_error *err)
{
    pj_status status = PJ_OK;
    pj_json_scan_enter(scan, '{');
    while (status == PJ_OK && pj_json_scan_next(scan, '{')) {
        pj_json_text tensor, file;
        if (!pj_json_scan_key(scan, &tensor) || !pj_json_scan_string(scan, &file)) break;
        if (!is_plain_name(file))
            return pj_fail(err, PJ_E_INVALID, "%s names the weight file %.*s outside its folder",
                           path, (int)(file.bytes < 200 ? file.bytes : 200), file.text);
        /* Runs of tensors lie in one file: compare with the latest first. */
        const char *latest = c->file_count ? c->file_names[c->file_count - 1] : "";
        if (!pj_json_text_is(file, latest)) status = add_file(c, file.text, file.bytes, err);
    }
    return status;
}

static pj_status parse_index(pj_checkpoint *c, const char *text, size_t bytes, const char *path,
                             pj_error *err)
{
    bool found = false;
    pj_status status = PJ_OK;
    pj_json_scan scan;
    pj_json_scan_init(&scan, text, bytes);
    pj_json_scan_enter(&scan, '{');
    while (status == PJ_OK && pj_json_scan_next(&scan, '{')) {
        pj_json_text key;
        if (!pj_json_scan_key(&scan, &key)) break;
        if (!pj_json_text_is(key, "weight_map")) {
            pj_json_scan_skip(&scan, NULL);
            continue;
        }
        found = true;
        status = read_weight_map(c, &scan, path, err);
    }
    if (status == PJ_OK) pj_json_scan_end(&scan);
    if (pj_json_scan_failed(&scan) && status == PJ_OK)
        status = pj_json_scan_error(&scan, path, err);
    if (status == PJ_OK && !found)
        status = pj_fail(err, PJ_E_INVALID, "%s has no weight_map", path);
    if (status == PJ_OK && c->file_count == 0)
        status = pj_fail(err, PJ_E_INVALID, "%s names no weight file", path);
    pj_json_scan_fini(&scan);
    return status;
}

static pj_status read_index(pj_checkpoint *c, const char *path, pj_error *err)
{
    char *text;
    size_t bytes;
    pj_status status = pj_file_read(path, MAX_INDEX_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    status = parse_index(c, text, bytes, path, err);
    pj_free(text);
    return status;
}

/* Without an index: every safetensors file but the "consolidated" ones, which hold the same weights
 * again under other names. */
static pj_status find_files(pj_checkpoint *c, pj_error *err)
{
    pj_status status = PJ_OK;
    DIR *dir = opendir(c->path);
    if (!dir) return pj_fail(err, PJ_E_NOT_FOUND, "cannot list the folder %s", c->path);
    for (struct dirent *e; status == PJ_OK && (e = readdir(dir));)
        if (e->d_name[0] != '.' && ends_with(e->d_name, ".safetensors") &&
            strncmp(e->d_name, "consolidated", 12) != 0)
            status = add_file(c, e->d_name, strlen(e->d_name), err);
    closedir(dir);
    if (status != PJ_OK || c->file_count > 0) return status;
    return pj_fail(err, PJ_E_INVALID, "%s holds no *.safetensors file", c->path);
}

static pj_status list_files(pj_checkpoint *c, pj_error *err)
{
    static const char single[] = "model.safetensors";
    char path[PATH_MAX];
    pj_status status = join(c, single, path, err);
    if (status != PJ_OK) return status;
    if (pj_file_exists(path)) return add_file(c, single, strlen(single), err);
    status = join(c, "model.safetensors.index.json", path, err);
    if (status != PJ_OK) return status;
    return pj_file_exists(path) ? read_index(c, path, err) : find_files(c, err);
}

static pj_status add_tensors(pj_checkpoint *c, const pj_tensor *tensors, uint32_t count,
                             pj_error *err)
{
    if (count == 0) return PJ_OK;
    pj_tensor *grown = pj_resize(c->tensors, (size_t)c->count + count, sizeof *grown);
    if (!grown) return pj_fail_memory(err, "a table of tensors");
    memcpy(grown + c->count, tensors, count * sizeof *grown);
    c->tensors = grown;
    c->count += count;
    return PJ_OK;
}

static pj_status map_files(pj_checkpoint *c, pj_error *err)
{
    pj_status status = PJ_OK;
    c->files = pj_alloc(c->file_count, sizeof *c->files);
    if (!c->files) return pj_fail_memory(err, "a list of weight files");
    for (uint32_t i = 0; status == PJ_OK && i < c->file_count; i++) {
        char path[PATH_MAX];
        pj_tensor *tensors;
        uint32_t count;
        status = join(c, c->file_names[i], path, err);
        if (status == PJ_OK) status = pj_file_map(path, &c->files[i], err);
        if (status == PJ_OK)
            status = pj_safetensors_parse(c->files[i].data, c->files[i].size, path, &c->arena,
                                          &tensors, &count, err);
        if (status == PJ_OK) status = add_tensors(c, tensors, count, err);
    }
    if (status != PJ_OK || c->count == 0) return status;
    qsort(c->tensors, c->count, sizeof *c->tensors, by_name);
    for (uint32_t i = 1; i < c->count; i++)
        if (by_name(&c->tensors[i - 1], &c->tensors[i]) == 0)
            return pj_fail(err, PJ_E_INVALID, "%s holds tensor %.200s in two files", c->path,
                           c->tensors[i].name);
    return PJ_OK;
}

/* The folder: the path itself, or where a given weight file lies. */
static pj_status set_path(pj_checkpoint *c, const char *path, const char **file, pj_error *err)
{
    *file = NULL;
    if (snprintf(c->path, sizeof c->path, "%s", path) >= (int)sizeof c->path)
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", path);
    if (pj_dir_exists(path)) return PJ_OK;
    if (!pj_file_exists(path)) return pj_fail(err, PJ_E_NOT_FOUND, "there is no model at %s", path);
    if (ends_with(path, ".gguf"))
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s is a GGUF file, which is not supported; use the model's Hugging Face "
                       "folder",
                       path);
    if (!ends_with(path, ".safetensors"))
        return pj_fail(err, PJ_E_INVALID, "%s is neither a model folder nor a safetensors file",
                       path);
    *file = pj_path_name(path);
    char *slash = strrchr(c->path, '/');
    if (slash == c->path)
        slash[1] = 0;
    else if (slash)
        *slash = 0;
    else
        snprintf(c->path, sizeof c->path, ".");
    return PJ_OK;
}

pj_status pj_checkpoint_open(const char *path, pj_checkpoint **checkpoint, pj_error *err)
{
    const char *file;
    *checkpoint = NULL;
    pj_checkpoint *c = pj_alloc(1, sizeof *c);
    if (!c) return pj_fail_memory(err, "a checkpoint");
    pj_arena_init(&c->arena, 0);
    c->generation = PJ_GENERATION_CONFIG_NONE;
    pj_status status = set_path(c, path, &file, err);
    if (status == PJ_OK && file) {
        /* The file that was named is judged first: its faults matter more than its company. */
        status = add_file(c, file, strlen(file), err);
        if (status == PJ_OK) status = map_files(c, err);
        if (status == PJ_OK) status = read_config(c, err);
    } else if (status == PJ_OK) {
        status = read_config(c, err);
        if (status == PJ_OK) status = list_files(c, err);
        if (status == PJ_OK) status = map_files(c, err);
    }
    if (status != PJ_OK) {
        pj_checkpoint_close(c);
        return status;
    }
    *checkpoint = c;
    return PJ_OK;
}
