/* Walks the locations of models. Every walk has a fixed depth, so cyclic links are
 * harmless; files are recognised by name only. */
#include "engine/files/locations.h"

#include "base/file.h"
#include "base/json_scan.h"
#include "base/memory.h"
#include "base/text.h"
#include "engine/files/gguf.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDER_DEPTH = 3, MAX_MANIFEST_BYTES = 1 << 20 };

typedef struct walk {
    pj_model_visit *visit;
    void *context;
    const char *location;
    bool gguf_only;    /* folders are searched, but are not models themselves */
    const char *store; /* the folders hold Ollama's manifests of this store; NULL: models */
} walk;

static bool visit_manifest(const walk *w, const char *path, const char *name);

static bool locations_report(const walk *w, const char *name, const char *path, const char *problem)
{
    pj_model_spot spot = {name, path, w->location, problem};
    return w->visit(w->context, &spot);
}

/* ---- folders ------------------------------------------------------------------------------ */

/* A GGUF file that is a model: for a split set the first part; not a multimodal projector. */
static bool is_gguf_model(const char *path)
{
    return pj_ends_with(path, ".gguf") && !pj_gguf_is_later_part(path) &&
           !pj_starts_with(pj_path_name(path), "mmproj");
}

/* A folder with a config or weights; a GGUF file (the first of a split set). */
static bool looks_like_model(const char *path)
{
    if (!pj_dir_exists(path)) return is_gguf_model(path);
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = strcmp(e->d_name, "config.json") == 0 || pj_ends_with(e->d_name, ".safetensors");
    if (dir) closedir(dir);
    return found;
}

static bool is_model(const walk *w, const char *path, int depth)
{
    if (w->store) return depth == 1 && pj_file_exists(path);
    if (w->gguf_only) return !pj_dir_exists(path) && is_gguf_model(path);
    return looks_like_model(path);
}

/* `prefix` is "" or "org/". A folder that is not a model may contain some. */
static bool walk_folder(const walk *w, const char *folder, const char *prefix, int depth)
{
    bool go_on = true;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && go_on && (e = readdir(dir));) {
        char path[PATH_MAX], name[PATH_MAX];
        if (e->d_name[0] == '.' || !pj_path_join(path, sizeof path, folder, e->d_name)) continue;
        if (snprintf(name, sizeof name, "%s%s", prefix, e->d_name) >= (int)sizeof name - 1)
            continue;
        if (is_model(w, path, depth)) {
            go_on =
                w->store ? visit_manifest(w, path, name) : locations_report(w, name, path, NULL);
        } else if (depth > 1 && pj_dir_exists(path)) {
            strcat(name, "/");
            go_on = walk_folder(w, path, name, depth - 1);
        }
    }
    if (dir) closedir(dir);
    return go_on;
}

/* Expands "$VARIABLE/rest"; false when the variable is not set. */
static bool under(const char *variable, const char *rest, char out[PATH_MAX])
{
    const char *folder = getenv(variable);
    if (!folder || !folder[0]) return false;
    return snprintf(out, PATH_MAX, "%s%s", folder, rest) < PATH_MAX;
}

/* ---- the cache of Hugging Face's tools: models--ORG--NAME/{refs/main, snapshots/REVISION} ---- */

static const char hub_prefix[] = "models--";

static bool hub_cache(char out[PATH_MAX])
{
    return under("HF_HUB_CACHE", "", out) || under("HUGGINGFACE_HUB_CACHE", "", out) ||
           under("HF_HOME", "/hub", out) || under("XDG_CACHE_HOME", "/huggingface/hub", out) ||
           under("HOME", "/.cache/huggingface/hub", out);
}

/* Converts "models--org--name" to "org/name". */
static bool repository_name(const char *folder, size_t length, char *name, size_t bytes)
{
    size_t prefix = sizeof hub_prefix - 1;
    if (length <= prefix || strncmp(folder, hub_prefix, prefix) != 0) return false;
    if (snprintf(name, bytes, "%.*s", (int)(length - prefix), folder + prefix) >= (int)bytes)
        return false;
    char *dashes = strstr(name, "--");
    if (!dashes) return true;
    *dashes = '/';
    memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    return true;
}

/* The revision in refs/main, else the first one found. */
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

/* Counts files in `folder` whose names end in `end`. */
static unsigned count_files(const char *folder, const char *end)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) count += pj_ends_with(e->d_name, end);
    if (dir) closedir(dir);
    return count;
}

/* Whether a snapshot has all weights: one file, or every part of a split set, whose names
 * state their count. A file appears under its name once it is complete. */
static bool has_weights(const char *snapshot)
{
    unsigned count = 0, parts = 1;
    DIR *dir = opendir(snapshot);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *of = strstr(e->d_name, "-of-");
        if (!pj_ends_with(e->d_name, ".safetensors")) continue;
        if (of) parts = (unsigned)strtoul(of + 4, NULL, 10);
        count++;
    }
    if (dir) closedir(dir);
    return count > 0 && count >= parts;
}

/* Whether a snapshot has no more than texts: the description of a gated model can be had by all. */
static bool has_texts_alone(const char *snapshot)
{
    static const char *const texts[] = {".md", ".txt", ".gitattributes", "LICENSE"};
    unsigned count = 0, known = 0;
    DIR *dir = opendir(snapshot);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        bool text = false;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            text |= pj_ends_with(e->d_name, texts[i]);
        count++;
        known += text;
    }
    if (dir) closedir(dir);
    return dir && count == known;
}

/* Describes what a repository lacks; false if its weights seem complete. */
static bool hub_problem(const char *repository, const char *snapshot, const char *name, char *text,
                        size_t bytes)
{
    char blobs[PATH_MAX];
    unsigned unfinished = 0;
    if (pj_path_join(blobs, sizeof blobs, repository, "blobs"))
        unfinished = count_files(blobs, ".incomplete");
    /* that of another file, or of a newer revision, does not matter */
    if (unfinished > 0 && !(snapshot && looks_like_model(snapshot) && has_weights(snapshot))) {
        snprintf(text, bytes,
                 "its download is not finished (%u incomplete file%s); hf download %s resumes it",
                 unfinished, unfinished == 1 ? "" : "s", name);
        return true;
    }
    if (!snapshot || has_texts_alone(snapshot)) {
        snprintf(
            text, bytes,
            "the cache has none of the model's files: the download was interrupted, or refused because "
            "the model is gated (accept its licence on its page, then hf auth login); hf "
            "download %s fetches it",
            name);
        return true;
    }
    if (!looks_like_model(snapshot) || count_files(snapshot, ".safetensors") > 0) return false;
    snprintf(text, bytes,
             "the cache has its config.json and no weights in safetensors; hf download %s fetches "
             "them, unless the repository has only other formats",
             name);
    return true;
}

static bool walk_repository(const walk *w, const char *cache, const char *folder)
{
    char repository[PATH_MAX], snapshot[PATH_MAX], name[PATH_MAX], problem[512];
    if (!repository_name(folder, strlen(folder), name, sizeof name - 1)) return true;
    if (!pj_path_join(repository, sizeof repository, cache, folder)) return true;
    bool has_snapshot = snapshot_of(repository, snapshot);
    if (hub_problem(repository, has_snapshot ? snapshot : NULL, name, problem, sizeof problem) &&
        !(has_snapshot && count_files(snapshot, ".gguf") > 0))
        return locations_report(w, name, repository, problem);
    if (!has_snapshot) return true;
    if (looks_like_model(snapshot)) {
        if (!locations_report(w, name, snapshot, NULL)) return false;
    }
    strcat(name, "/"); /* GGUF files, each of which is a model */
    walk files = *w;
    files.gguf_only = true;
    return walk_folder(&files, snapshot, name, 2);
}

static bool walk_hub(walk *w, const char *cache)
{
    bool go_on = true;
    w->location = "the Hugging Face cache";
    DIR *dir = opendir(cache);
    for (struct dirent *e; dir && go_on && (e = readdir(dir));)
        if (pj_starts_with(e->d_name, hub_prefix)) go_on = walk_repository(w, cache, e->d_name);
    if (dir) closedir(dir);
    return go_on;
}

/* ---- Ollama: manifests/REGISTRY/OWNER/MODEL/TAG name blobs by digest ---- */

/* A manifest's description of the model layer. */
typedef struct manifest {
    char digest[160]; /* "sha256:..." or "" */
    bool adapter, tensors;
} manifest;

static void locations_copy_text(pj_json_text text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%.*s", (int)(text.bytes < bytes ? text.bytes : bytes - 1), text.text);
}

static void locations_read_layer(pj_json_scan *scan, manifest *m)
{
    char type[96] = "", digest[sizeof m->digest] = "";
    pj_json_scan_enter(scan, '{');
    pj_json_text key, value;
    while (pj_json_scan_member(scan, &key)) {
        bool is_type = pj_json_text_is(key, "mediaType"),
             is_digest = pj_json_text_is(key, "digest");
        if (!is_type && !is_digest) {
            pj_json_scan_skip(scan, NULL);
            continue;
        }
        if (!pj_json_scan_string(scan, &value)) return;
        locations_copy_text(value, is_type ? type : digest, is_type ? sizeof type : sizeof digest);
    }
    if (pj_ends_with(type, "image.model") && !m->digest[0]) strcpy(m->digest, digest);
    m->adapter |= pj_ends_with(type, "image.adapter");
    m->tensors |= pj_ends_with(type, "image.tensor");
}

static bool read_manifest(const char *path, manifest *m)
{
    char *text;
    size_t bytes;
    *m = (manifest){0};
    if (pj_file_read(path, MAX_MANIFEST_BYTES, &text, &bytes, NULL) != PJ_OK) return false;
    pj_json_scan scan;
    pj_json_scan_init(&scan, text, bytes);
    pj_json_scan_enter(&scan, '{');
    pj_json_text key;
    while (pj_json_scan_member(&scan, &key)) {
        if (!pj_json_text_is(key, "layers")) {
            pj_json_scan_skip(&scan, NULL);
            continue;
        }
        pj_json_scan_enter(&scan, '[');
        while (pj_json_scan_next(&scan, '[')) locations_read_layer(&scan, m);
    }
    bool good = !pj_json_scan_failed(&scan);
    pj_json_scan_fini(&scan);
    pj_free(text);
    return good;
}

/* A digest consists of hexadecimal digits, so it cannot lead out of the folder. */
static bool is_digest(const char *digest)
{
    size_t length = strlen(digest);
    if (!pj_starts_with(digest, "sha256:") || length != 7 + 64) return false;
    for (const char *at = digest + 7; *at; at++)
        if (!isxdigit((unsigned char)*at)) return false;
    return true;
}

/* "sha256-...", or "sha256:..." as in older versions. */
static bool blob_path(const char *store, const char *digest, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/blobs/sha256-%s", store, digest + 7) >= PATH_MAX) return false;
    if (pj_file_exists(out)) return true;
    size_t at = strlen(out) - 64 - 1;
    out[at] = ':';
    if (pj_file_exists(out)) return true;
    out[at] = '-';
    return false;
}

/* Short name of "registry.ollama.ai/library/llama3.2/latest": "ollama:llama3.2". */
static void ollama_name(const char *manifest_name, char *out, size_t bytes)
{
    static const char library[] = "registry.ollama.ai/library/", registry[] = "registry.ollama.ai/";
    const char *name = manifest_name;
    if (pj_starts_with(name, library))
        name += sizeof library - 1;
    else if (pj_starts_with(name, registry))
        name += sizeof registry - 1;
    snprintf(out, bytes, "ollama:%s", name);
    char *tag = strrchr(out, '/');
    if (!tag) return;
    if (strcmp(tag, "/latest") == 0)
        *tag = 0;
    else
        *tag = ':';
}

static bool visit_manifest(const walk *w, const char *path, const char *name)
{
    char shown[PATH_MAX], blob[PATH_MAX], problem[512] = "";
    manifest m;
    ollama_name(name, shown, sizeof shown);
    if (!read_manifest(path, &m) || (m.digest[0] && !is_digest(m.digest)))
        snprintf(problem, sizeof problem, "its manifest cannot be read");
    else if (!m.digest[0])
        snprintf(problem, sizeof problem,
                 m.tensors
                     ? "Ollama stores it as single tensors, which is not supported; fetch it as "
                       "GGUF or as a folder"
                     : "its manifest names no weights (a model that runs in the cloud has "
                       "none)");
    else if (m.adapter)
        snprintf(problem, sizeof problem, "it has an adapter, which is not supported");
    else if (!blob_path(w->store, m.digest, blob))
        snprintf(problem, sizeof problem, "its weights are not there; ollama pull %s fetches them",
                 shown + strlen("ollama:"));
    return locations_report(w, shown, problem[0] ? path : blob, problem[0] ? problem : NULL);
}

static bool walk_ollama(const walk *w, const char *store)
{
    char manifests[PATH_MAX];
    walk tags = *w; /* four levels deep */
    tags.location = "Ollama's store";
    tags.store = store;
    return !pj_path_join(manifests, sizeof manifests, store, "manifests") ||
           walk_folder(&tags, manifests, "", 4);
}

static bool walk_ollama_stores(const walk *w)
{
    char store[PATH_MAX];
    if (under("OLLAMA_MODELS", "", store)) return walk_ollama(w, store);
    if (under("HOME", "/.ollama/models", store) && !walk_ollama(w, store)) return false;
    /* location of the system service's store on Linux */
    return walk_ollama(w, "/usr/share/ollama/.ollama/models");
}

/* ---- LM Studio and llama.cpp -------------------------------------------------------------- */

static bool walk_lm_studio(walk *w)
{
    char folder[PATH_MAX];
    w->location = "LM Studio's folder";
    if (under("HOME", "/.lmstudio/models", folder) && !walk_folder(w, folder, "", FOLDER_DEPTH))
        return false;
    return !under("HOME", "/.cache/lm-studio/models", folder) ||
           walk_folder(w, folder, "", FOLDER_DEPTH);
}

/* "org_repository_file.gguf"; incomplete downloads end in .downloadInProgress and are skipped. */
static bool walk_llama_cpp(walk *w)
{
    char folder[PATH_MAX];
    w->location = "llama.cpp's cache";
    bool named = under("LLAMA_CACHE", "", folder) ||
#if defined(__APPLE__)
                 under("HOME", "/Library/Caches/llama.cpp", folder);
#else
                 under("XDG_CACHE_HOME", "/llama.cpp", folder) ||
                 under("HOME", "/.cache/llama.cpp", folder);
#endif
    return !named || walk_folder(w, folder, "", 1);
}

bool pj_model_locations_each(const char *folder, bool with_caches, pj_model_visit *visit,
                             void *context)
{
    char cache[PATH_MAX];
    walk w = {.visit = visit, .context = context, .location = "the models folder"};
    bool go_on = looks_like_model(folder) ? locations_report(&w, pj_path_name(folder), folder, NULL)
                                          : walk_folder(&w, folder, "", FOLDER_DEPTH);
    if (!go_on || !with_caches) return go_on;
    if (hub_cache(cache) && !walk_hub(&w, cache)) return false;
    return walk_ollama_stores(&w) && walk_lm_studio(&w) && walk_llama_cpp(&w);
}

/* ---- names -------------------------------------------------------------------------------- */

/* "…/models--org--name/snapshots/REVISION[/file]". */
static bool name_of_snapshot(const char *path, char *name, size_t bytes)
{
    static const char snapshots[] = "/snapshots/";
    const char *at = strstr(path, snapshots);
    if (!at) return false;
    const char *folder = at;
    while (folder > path && folder[-1] != '/') folder--;
    if (!repository_name(folder, (size_t)(at - folder), name, bytes)) return false;
    const char *file = strchr(at + sizeof snapshots - 1, '/');
    size_t used = strlen(name), length = file ? strlen(file) : 0;
    while (length > 0 && file[length - 1] == '/') length--;
    if (length > 0) snprintf(name + used, bytes - used, "%.*s", (int)length, file);
    return true;
}

/* "…/.lmstudio/models/PUBLISHER/REPOSITORY[/FILE]" */
static bool name_in_lm_studio(const char *path, char *name, size_t bytes)
{
    static const char *const folders[] = {"/.lmstudio/models/", "/.cache/lm-studio/models/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *at = strstr(path, folders[i]);
        const char *rest = at ? at + strlen(folders[i]) : "";
        if (*rest) {
            snprintf(name, bytes, "%s", rest);
            return true;
        }
    }
    return false;
}

typedef struct blob_search {
    const char *path;
    char *name;
    size_t bytes;
} blob_search;

static bool is_blob(void *context, const pj_model_spot *spot)
{
    blob_search *search = context;
    if (spot->problem || strcmp(spot->path, search->path) != 0) return true;
    snprintf(search->name, search->bytes, "%s", spot->name);
    return false;
}

/* "…/blobs/sha256-…": the model whose manifest refers to it. */
static bool name_of_blob(const char *path, char *name, size_t bytes)
{
    char store[PATH_MAX];
    const char *file = pj_path_name(path);
    size_t folder = (size_t)(file - path);
    if (!pj_starts_with(file, "sha256") || folder < 7 || strncmp(file - 7, "/blobs/", 7) != 0)
        return false;
    snprintf(store, sizeof store, "%.*s", (int)(folder - 7), path);
    blob_search search = {path, name, bytes};
    walk w = {.visit = is_blob, .context = &search};
    return !walk_ollama(&w, store);
}

void pj_model_name_of_path(const char *path, char *name, size_t bytes)
{
    if (name_of_snapshot(path, name, bytes) || name_of_blob(path, name, bytes) ||
        name_in_lm_studio(path, name, bytes))
        return;
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    snprintf(name, bytes, "%.*s", (int)(end - begin), path + begin);
}
