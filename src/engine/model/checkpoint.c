/* Opens a checkpoint: reads the configuration, maps every weight file and checks its header, and
 * puts all tensors into one table sorted by name (not hashed, because hostile names could make any
 * fixed hash function slow). No weight is copied unless that is asked for. */
#include "engine/model/checkpoint.h"

#include "base/file.h"
#include "base/json_scan.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/files/pages.h"
#include "engine/files/safetensors.h"
#include "engine/files/watch.h"
#include "engine/model/gguf_config.h"

#include <dirent.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 16 << 20, MAX_INDEX_BYTES = 128 << 20, MAX_SHARDS = 4096 };

struct pj_checkpoint {
    char path[PATH_MAX]; /* the folder, or the GGUF file */
    pj_model_config config;
    pj_generation_config generation;
    pj_arena arena; /* names, tables of single files, arrays of the config */
    pj_mapping *files;
    const char **file_names; /* [file_count], in the arena */
    uint32_t file_count;
    bool is_copied;          /* nothing is read from the files any more */
    pj_watch weights, texts; /* the files above; configuration, tokenizer, templates of a folder */
    pj_tensor *tensors;      /* [count], by name */
    uint32_t count;
    bool is_gguf;
    pj_gguf gguf; /* metadata; its tensors are the table above */
    bool *used;   /* [count] for a GGUF file: the tensor has been requested */
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

const pj_gguf *pj_checkpoint_gguf(const pj_checkpoint *checkpoint)
{
    return checkpoint->is_gguf ? &checkpoint->gguf : NULL;
}

uint32_t pj_checkpoint_tensor_count(const pj_checkpoint *checkpoint)
{
    return checkpoint->count;
}

const pj_tensor *pj_checkpoint_tensor(const pj_checkpoint *checkpoint, uint32_t index)
{
    return index < checkpoint->count ? &checkpoint->tensors[index] : NULL;
}

void pj_checkpoint_prefer_huge(const pj_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->file_count; i++)
        pj_pages_prefer_huge(checkpoint->files[i].data, checkpoint->files[i].size);
}

_Static_assert((int)PJ_TEAM_SCRATCH_BYTES >= (int)PJ_PAGES_PART_BYTES,
               "copies pass through the scratch");

/* Type of a tensor's values in memory (row_source.h). */
static bool resident_dtype(const pj_tensor *tensor, pj_dtype *type)
{
    bool eight_bits = tensor->type == PJ_FILE_E4M3;
    if (tensor->type == PJ_FILE_Q2_0) {
        *type = PJ_Q4_0;
        return true;
    }
    if (!eight_bits && !(tensor->type == PJ_FILE_U8 && tensor->rank == 4))
        return pj_file_dtype(tensor->type, type);
    *type = eight_bits ? PJ_BF16 : PJ_MXFP4;
    return true;
}

/* The type with the most bytes: that of the weights, whatever the type of norms. */
pj_dtype pj_checkpoint_weight_dtype(const pj_checkpoint *checkpoint)
{
    double bytes[PJ_DTYPE_COUNT] = {0};
    pj_dtype type, most = PJ_F32;
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(checkpoint); i++) {
        const pj_tensor *tensor = pj_checkpoint_tensor(checkpoint, i);
        if (!resident_dtype(tensor, &type)) continue;
        bytes[type] += (double)tensor->bytes;
        if (bytes[type] > bytes[most]) most = type;
    }
    return most;
}

bool pj_checkpoint_is_plain(const pj_checkpoint *checkpoint)
{
    double all = 0, plain = 0;
    pj_dtype type;
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(checkpoint); i++) {
        const pj_tensor *tensor = pj_checkpoint_tensor(checkpoint, i);
        all += (double)tensor->bytes;
        if (pj_file_dtype(tensor->type, &type)) plain += (double)tensor->bytes;
    }
    return plain > all / 2;
}

typedef struct copying {
    pj_checkpoint *checkpoint;
    pj_team *team;
    const _Atomic bool *cancel;
    atomic_bool out_of_memory;
} copying;

static void copy_parts(void *context, unsigned thread)
{
    copying *c = context;
    size_t total = 0, begin, end;
    for (uint32_t i = 0; i < c->checkpoint->file_count; i++)
        total += pj_pages_parts(c->checkpoint->files[i].data, c->checkpoint->files[i].size);
    /* Each thread copies consecutive parts, which the kernel merges into few mappings: their number
     * is limited. */
    pj_team_share(c->team, thread, total, 1, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const pj_mapping *file = c->checkpoint->files;
        size_t part = i;
        if (c->out_of_memory || (c->cancel && *c->cancel)) return;
        for (size_t parts; part >= (parts = pj_pages_parts(file->data, file->size)); file++)
            part -= parts;
        if (!pj_pages_copy_part(file->data, file->size, part, pj_team_scratch(c->team, thread)))
            c->out_of_memory = true;
    }
}

pj_status pj_checkpoint_copy(pj_checkpoint *checkpoint, pj_team *team, const _Atomic bool *cancel,
                             pj_error *err)
{
    copying c = {.checkpoint = checkpoint, .team = team, .cancel = cancel};
    double bytes = 0, available = pj_memory_available("");
    for (uint32_t i = 0; i < checkpoint->file_count; i++)
        bytes += (double)checkpoint->files[i].size;
    if (bytes > available)
        return pj_fail(err, PJ_E_NO_MEMORY,
                       "a copy of the weights takes %.1f GB of memory, and %.1f GB are available",
                       bytes / 1e9, available / 1e9);
    pj_team_run(team, copy_parts, &c);
    if (c.out_of_memory) return pj_fail_memory(err, "a copy of the weights");
    if (cancel && *cancel) return pj_fail(err, PJ_E_CANCELLED, "loading was interrupted");
    pj_status status = pj_checkpoint_check(checkpoint, err);
    checkpoint->is_copied = status == PJ_OK;
    return status;
}

pj_status pj_checkpoint_check(const pj_checkpoint *checkpoint, pj_error *err)
{
    const char *written = checkpoint->is_copied ? NULL : pj_watch_written(&checkpoint->weights);
    for (uint32_t i = 0; i < checkpoint->file_count; i++)
        if (pj_file_is_cut(&checkpoint->files[i]))
            return pj_fail(
                err, PJ_E_LOST,
                "a weight file of %s was shortened, or could not be read, while it was in use",
                checkpoint->path);
    if (written) return pj_fail(err, PJ_E_LOST, "%s was changed while it was in use", written);
    return PJ_OK;
}

bool pj_checkpoint_is_current(const pj_checkpoint *checkpoint)
{
    return pj_watch_is_current(&checkpoint->weights) && pj_watch_is_current(&checkpoint->texts);
}

uint64_t pj_checkpoint_stamp(const pj_checkpoint *checkpoint)
{
    return pj_watch_stamp(&checkpoint->weights);
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
    pj_watch_fini(&checkpoint->weights);
    pj_watch_fini(&checkpoint->texts);
    pj_free(checkpoint->files);
    pj_free(checkpoint->tensors);
    pj_free(checkpoint->used);
    pj_arena_fini(&checkpoint->arena);
    pj_free(checkpoint);
}

static const pj_tensor *find_exact(const pj_checkpoint *checkpoint, const char *name)
{
    return pj_tensors_find(checkpoint->tensors, checkpoint->count, name);
}

static const pj_tensor *find_in_gguf(const pj_checkpoint *checkpoint, const char *name)
{
    char own[PJ_GGUF_NAME_BYTES];
    if (!pj_gguf_tensor_name(checkpoint->config.arch, name, own, sizeof own)) return NULL;
    const pj_tensor *found = find_exact(checkpoint, own);
    if (!found && !pj_ends_with(own, ".weight")) { /* names without it, as Falcon-H1's ffn_norm */
        size_t length = strlen(own);
        snprintf(own + length, sizeof own - length, ".weight");
        found = find_exact(checkpoint, own);
    }
    if (found) checkpoint->used[found - checkpoint->tensors] = true;
    return found;
}

/* Blocks after the model's layers are heads that predict further tokens. */
static bool is_later_block(const pj_checkpoint *checkpoint, const char *name)
{
    static const char prefix[] = "blk.";
    return strncmp(name, prefix, sizeof prefix - 1) == 0 &&
           strtoul(name + sizeof prefix - 1, NULL, 10) >= checkpoint->config.layers;
}

/* Layers that read the keys and values of others may have projections of their own nevertheless. */
static bool is_shared_key(const pj_checkpoint *checkpoint, const char *name)
{
    static const char prefix[] = "blk.";
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    unsigned long layer = strtoul(name + sizeof prefix - 1, &end, 10);
    return layer < checkpoint->config.layers &&
           pj_config_kv_source(&checkpoint->config, (uint32_t)layer) != layer &&
           (strncmp(end, ".attn_k", 7) == 0 || strncmp(end, ".attn_v", 7) == 0);
}

const pj_tensor *pj_checkpoint_unused(const pj_checkpoint *checkpoint)
{
    for (uint32_t i = 0; checkpoint->is_gguf && i < checkpoint->count; i++) {
        const char *name = checkpoint->tensors[i].name;
        /* scales of activations: ours are not rounded */
        bool is_input_scale = pj_ends_with(name, ".input_scale");
        if (!checkpoint->used[i] && !is_input_scale && !pj_gguf_is_config_tensor(name) &&
            !is_later_block(checkpoint, name) && !is_shared_key(checkpoint, name))
            return &checkpoint->tensors[i];
    }
    return NULL;
}

const pj_tensor *pj_checkpoint_find(const pj_checkpoint *checkpoint, const char *name)
{
    static const char prefix[] = "model.";
    if (checkpoint->is_gguf) return find_in_gguf(checkpoint, name);
    /* multimodal models prefix the tensors of their text part */
    static const char *const prefixes[] = {
        "",         "model.", "language_model.", "language_model.model.", "model.language_model.",
        "backbone."};
    const char *stem =
        strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
    const pj_tensor *found = find_exact(checkpoint, name);
    for (size_t i = 0; !found && i < sizeof prefixes / sizeof *prefixes; i++) {
        char longer[512];
        int length = snprintf(longer, sizeof longer, "%s%s", prefixes[i], stem);
        if (length < (int)sizeof longer) found = find_exact(checkpoint, longer);
    }
    if (!found && strcmp(stem, "embed_tokens.weight") == 0) { /* Nemotron-H, Mamba-2 */
        found = find_exact(checkpoint, "backbone.embeddings.weight");
        if (!found) found = find_exact(checkpoint, "backbone.embedding.weight");
    }
    return found;
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

/* Compares shapes, ignoring leading dimensions of 1, which GGUF files may omit or add, and which
 * some folders' vectors have. */
static bool has_shape(const pj_checkpoint *checkpoint, const pj_tensor *tensor,
                      const pj_tensor *want)
{
    const uint64_t *have = tensor->shape, *wanted = want->shape;
    uint32_t rank = tensor->rank, wanted_rank = want->rank;
    while ((checkpoint->is_gguf || wanted_rank == 1) && rank > 1 && have[0] == 1) have++, rank--;
    while (checkpoint->is_gguf && wanted_rank > 1 && wanted[0] == 1) wanted++, wanted_rank--;
    if (checkpoint->is_gguf && wanted_rank == 1 && rank == 2) /* a vector by groups */
        return have[1] != 0 && have[0] == wanted[0] / have[1] && wanted[0] % have[1] == 0;
    if (rank == 0 && wanted_rank == 1) return wanted[0] == 1; /* a single number */
    return rank == wanted_rank && memcmp(have, wanted, rank * sizeof *have) == 0;
}

pj_status pj_checkpoint_matrix(const pj_checkpoint *checkpoint, const char *name, uint64_t rows,
                               uint64_t cols, pj_matrix *matrix, pj_error *err)
{
    pj_tensor want = {.rank = cols ? 2 : 1, .shape = {rows, cols}};
    char wanted[64], found[192], own[PJ_GGUF_NAME_BYTES];
    shape_text(&want, wanted, sizeof wanted);
    *matrix = (pj_matrix){0};
    const pj_tensor *tensor = pj_checkpoint_find(checkpoint, name);
    if (checkpoint->is_gguf && pj_gguf_tensor_name(checkpoint->config.arch, name, own, sizeof own))
        name = own;
    if (!tensor)
        return pj_fail(err, PJ_E_INVALID, "%s has no tensor %s, which should be %s",
                       checkpoint->path, name, wanted);
    pj_dtype type;
    if (!has_shape(checkpoint, tensor, &want) || !pj_file_dtype(tensor->type, &type))
        return pj_fail(err, PJ_E_INVALID, "%s: tensor %s is %s %s, but the config requires %s %s",
                       checkpoint->path, name, pj_file_type_name(tensor->type),
                       shape_text(tensor, found, sizeof found),
                       checkpoint->is_gguf ? "a supported weight type," : "F32, F16 or BF16",
                       wanted);
    matrix->data = tensor->data;
    matrix->type = type;
    matrix->rows = cols ? rows : 1;
    matrix->cols = cols ? cols : rows;
    matrix->row_bytes = pj_dtype_row_bytes(type, matrix->cols);
    return PJ_OK;
}

/* ---- opening ---- */

static pj_status checkpoint_join(pj_checkpoint *c, const char *file, char out[PATH_MAX],
                                 pj_error *err)
{
    if (pj_path_join(out, PATH_MAX, c->path, file)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the path of %.200s is too long", file);
}

/* What a folder may have beside its weights that a model is opened with. */
static pj_status watch_texts(pj_checkpoint *c, pj_error *err)
{
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
        "model.safetensors"}; /* which would be read in place of shards */
    char path[PATH_MAX];
    pj_status status = PJ_OK;
    for (size_t i = 0; status == PJ_OK && i < sizeof names / sizeof *names; i++) {
        status = checkpoint_join(c, names[i], path, err);
        if (status == PJ_OK) status = pj_watch_add(&c->texts, path, err);
    }
    return status;
}

static pj_status read_config(pj_checkpoint *c, pj_error *err)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    pj_status status = checkpoint_join(c, "config.json", path, err);
    if (status == PJ_OK) status = pj_file_read(path, MAX_CONFIG_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    status = pj_config_parse(text, bytes, path, &c->arena, &c->config, err);
    pj_free(text);
    if (status == PJ_OK) status = checkpoint_join(c, "generation_config.json", path, err);
    if (status != PJ_OK || !pj_file_exists(path)) return status;
    status = pj_file_read(path, MAX_CONFIG_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    status = pj_generation_config_parse(text, bytes, path, &c->config, &c->generation, err);
    pj_free(text);
    return status;
}

/* Adds a weight file of the folder once; names come sorted or from an index. */
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

/* A shard's name must be a plain file name that cannot leave the folder. */
static bool checkpoint_is_plain_name(pj_json_text name)
{
    return name.bytes > 0 && name.bytes < 256 && name.text[0] != '.' &&
           !memchr(name.text, '/', name.bytes) && !memchr(name.text, '\\', name.bytes) &&
           !memchr(name.text, 0, name.bytes);
}

static pj_status read_weight_map(pj_checkpoint *c, pj_json_scan *scan, const char *path,
                                 pj_error *err)
{
    pj_status status = PJ_OK;
    pj_json_text tensor, file;
    pj_json_scan_enter(scan, '{');
    while (status == PJ_OK && pj_json_scan_member(scan, &tensor)) {
        if (!pj_json_scan_string(scan, &file)) break;
        if (!checkpoint_is_plain_name(file))
            return pj_fail(err, PJ_E_INVALID, "%s names the weight file %.*s outside its folder",
                           path, (int)(file.bytes < 200 ? file.bytes : 200), file.text);
        /* Consecutive tensors are usually in one file: compare with the last one first. */
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
    pj_json_text key;
    while (status == PJ_OK && pj_json_scan_member(&scan, &key)) {
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

/* Without an index: every safetensors file except "consolidated" ones, which hold the same weights
 * under other names. */
static pj_status find_files(pj_checkpoint *c, pj_error *err)
{
    pj_status status = PJ_OK;
    DIR *dir = opendir(c->path);
    if (!dir) return pj_fail(err, PJ_E_NOT_FOUND, "cannot list the folder %s", c->path);
    for (struct dirent *e; status == PJ_OK && (e = readdir(dir));)
        if (e->d_name[0] != '.' && pj_ends_with(e->d_name, ".safetensors") &&
            strncmp(e->d_name, "consolidated", 12) != 0)
            status = add_file(c, e->d_name, strlen(e->d_name), err);
    closedir(dir);
    if (status != PJ_OK || c->file_count > 0) return status;
    return pj_fail(err, PJ_E_INVALID, "%s contains no *.safetensors file", c->path);
}

static pj_status list_files(pj_checkpoint *c, pj_error *err)
{
    static const char single[] = "model.safetensors";
    char path[PATH_MAX];
    pj_status status = checkpoint_join(c, single, path, err);
    if (status != PJ_OK) return status;
    if (pj_file_exists(path)) return add_file(c, single, strlen(single), err);
    status = checkpoint_join(c, "model.safetensors.index.json", path, err);
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

/* Sorts by name; a name may occur only once. */
static pj_status sort_tensors(pj_checkpoint *c, pj_error *err)
{
    if (c->count == 0) return PJ_OK;
    qsort(c->tensors, c->count, sizeof *c->tensors, pj_tensor_by_name);
    for (uint32_t i = 1; i < c->count; i++)
        if (pj_tensor_by_name(&c->tensors[i - 1], &c->tensors[i]) == 0)
            return pj_fail(err, PJ_E_INVALID, "%s contains tensor %.200s in two files", c->path,
                           c->tensors[i].name);
    return PJ_OK;
}

static pj_status map_weights(pj_checkpoint *c, const char *path, pj_mapping *file, pj_error *err)
{
    pj_status status = pj_watch_add(&c->weights, path, err);
    return status == PJ_OK ? pj_file_map(path, file, err) : status;
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
        status = checkpoint_join(c, c->file_names[i], path, err);
        if (status == PJ_OK && !pj_file_exists(path))
            status =
                pj_fail(err, PJ_E_INVALID,
                        "%s lacks %s, one of its %u weight files: its download is not finished",
                        c->path, c->file_names[i], c->file_count);
        if (status == PJ_OK) status = map_weights(c, path, &c->files[i], err);
        if (status == PJ_OK)
            status = pj_safetensors_parse(c->files[i].data, c->files[i].size, path, &c->arena,
                                          &tensors, &count, err);
        if (status == PJ_OK) status = add_tensors(c, tensors, count, err);
    }
    return status == PJ_OK ? sort_tensors(c, err) : status;
}

/* ---- GGUF ---- */

/* A number about the set of split files; 0 when absent. */
static int64_t split_number(const pj_gguf *gguf, const char *key)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, key);
    int64_t number;
    return value && !value->is_array && pj_gguf_integer(value, 0, &number) ? number : 0;
}

static pj_status map_gguf(pj_checkpoint *c, const char *path, pj_gguf *gguf, pj_error *err)
{
    pj_mapping *file = &c->files[c->file_count];
    pj_status status = map_weights(c, path, file, err);
    if (status != PJ_OK) return status;
    c->file_count++;
    status = pj_gguf_parse(file->data, file->size, path, &c->arena, gguf, err);
    return status == PJ_OK ? add_tensors(c, gguf->tensors, gguf->tensor_count, err) : status;
}

/* "NAME-00002-of-00003.gguf" is part 1 (the second) of 3; the others are in its folder. */
static pj_status map_parts(pj_checkpoint *c, const char *path, int64_t parts, pj_error *err)
{
    char tail[32], part[PATH_MAX];
    snprintf(tail, sizeof tail, "-of-%05d.gguf", (int)parts);
    size_t stem = strlen(path), after = strlen(tail) + 6; /* "-00002" */
    if (!pj_ends_with(path, tail) || stem <= after || path[stem - after] != '-')
        return pj_fail(
            err, PJ_E_INVALID,
            "%s is one of %d files of a model, but its name does not end the way -00001%s "
            "does",
            path, (int)parts, tail);
    for (int i = 0; i < parts; i++) {
        pj_gguf gguf;
        snprintf(part, sizeof part, "%.*s-%05d%s", (int)(stem - after), path, i + 1, tail);
        if (!pj_file_exists(part))
            return pj_fail(
                err, PJ_E_NOT_FOUND,
                "%s is missing: the model has %d files, and its download is not finished", part,
                (int)parts);
        pj_status status = map_gguf(c, part, &gguf, err);
        if (status != PJ_OK) return status;
        if (split_number(&gguf, "split.count") != parts || split_number(&gguf, "split.no") != i)
            return pj_fail(err, PJ_E_INVALID, "%s is not file %d of %d, as its name says", part,
                           i + 1, (int)parts);
        if (i == 0) c->gguf = gguf;
    }
    return PJ_OK;
}

static pj_status map_gguf_files(pj_checkpoint *c, pj_error *err)
{
    c->files = pj_alloc(1, sizeof *c->files);
    if (!c->files) return pj_fail_memory(err, "a list of weight files");
    pj_status status = map_gguf(c, c->path, &c->gguf, err);
    int64_t parts = status == PJ_OK ? split_number(&c->gguf, "split.count") : 0;
    if (status != PJ_OK || (parts >= 0 && parts <= 1)) return status;
    if (parts < 0 || parts > MAX_SHARDS)
        return pj_fail(err, PJ_E_INVALID, "%s: split.count must be 1 to %d", c->path, MAX_SHARDS);
    /* map all parts again in order */
    pj_file_unmap(&c->files[0]);
    pj_watch_fini(&c->weights);
    c->file_count = c->count = 0;
    pj_mapping *files = pj_resize(c->files, (size_t)parts, sizeof *files);
    if (!files) return pj_fail_memory(err, "a list of weight files");
    memset(files, 0, (size_t)parts * sizeof *files);
    c->files = files;
    return map_parts(c, c->path, parts, err);
}

static pj_status open_gguf(pj_checkpoint *c, pj_error *err)
{
    c->is_gguf = true;
    pj_status status = map_gguf_files(c, err);
    if (status == PJ_OK) status = sort_tensors(c, err);
    if (status != PJ_OK) return status;
    if (c->count == 0)
        return pj_fail(err, PJ_E_INVALID, "%s contains no tensors, so it is not a model", c->path);
    c->gguf.tensors = c->tensors;
    c->gguf.tensor_count = c->count;
    c->used = pj_alloc(c->count, sizeof *c->used);
    if (!c->used) return pj_fail_memory(err, "a table of tensors");
    return pj_gguf_config(&c->gguf, c->path, &c->arena, &c->config, err);
}

static bool is_gguf_file(const char *path)
{
    unsigned char start[4];
    if (pj_ends_with(path, ".gguf")) return true;
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(start, 1, sizeof start, file) : 0;
    if (file) fclose(file);
    return pj_gguf_has_magic(start, count);
}

/* A folder without a config but with exactly one GGUF model stands for that model. */
static pj_status find_gguf(pj_checkpoint *c, bool *found, pj_error *err)
{
    char path[PATH_MAX], file[PATH_MAX] = "";
    int count = 0;
    *found = false;
    pj_status status = checkpoint_join(c, "config.json", path, err);
    if (status != PJ_OK || pj_file_exists(path)) return status;
    DIR *dir = opendir(c->path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !pj_ends_with(e->d_name, ".gguf") ||
            pj_gguf_is_later_part(e->d_name))
            continue;
        count++;
        snprintf(file, sizeof file, "%s", e->d_name);
    }
    if (dir) closedir(dir);
    if (count == 0) return PJ_OK;
    if (count > 1)
        return pj_fail(err, PJ_E_INVALID, "%s contains %d GGUF models; name the file of one",
                       c->path, count);
    status = checkpoint_join(c, file, path, err);
    if (status == PJ_OK) snprintf(c->path, sizeof c->path, "%s", path);
    *found = status == PJ_OK;
    return status;
}

/* Determines the folder (the path itself, or the folder of a given weight file) or the GGUF
 * file. */
static pj_status set_path(pj_checkpoint *c, const char *path, const char **file, bool *gguf,
                          pj_error *err)
{
    *file = NULL;
    *gguf = false;
    if (snprintf(c->path, sizeof c->path, "%s", path) >= (int)sizeof c->path)
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", path);
    if (pj_dir_exists(path)) return find_gguf(c, gguf, err);
    if (!pj_file_exists(path)) return pj_fail(err, PJ_E_NOT_FOUND, "there is no model at %s", path);
    if (is_gguf_file(path)) {
        *gguf = true;
        return PJ_OK;
    }
    if (!pj_ends_with(path, ".safetensors"))
        return pj_fail(err, PJ_E_INVALID,
                       "%s is neither a model folder nor a safetensors or GGUF file", path);
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
    bool gguf;
    *checkpoint = NULL;
    pj_checkpoint *c = pj_alloc(1, sizeof *c);
    if (!c) return pj_fail_memory(err, "a checkpoint");
    pj_arena_init(&c->arena, 0);
    c->generation = PJ_GENERATION_CONFIG_NONE;
    pj_status status = set_path(c, path, &file, &gguf, err);
    if (status == PJ_OK && !gguf) status = watch_texts(c, err);
    if (status == PJ_OK && gguf) {
        status = open_gguf(c, err);
    } else if (status == PJ_OK && file) {
        /* Check the named file first: its errors matter more than those of its siblings. */
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
