/* Searches the known locations of models, in order. */
#include "generate/find_model.h"

#include "base/file.h"
#include "base/nearest.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/files/locations.h"
#include "engine/generation/engine.h"
#include "engine/model/scan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool exists(const char *path)
{
    return pj_dir_exists(path) || pj_file_exists(path);
}

static pj_status take_path(const char *path, char *out, size_t bytes, pj_error *err)
{
    if ((size_t)snprintf(out, bytes, "%s", path) < bytes) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the path of the model is too long");
}

/* ---- matching names ----------------------------------------------------------------------- */

typedef struct match {
    char name[256], path[PATH_MAX], location[64];
} match;

typedef struct search {
    const char *wanted; /* without a quantisation */
    size_t wanted_bytes;
    const char *quantisation; /* "Q4_K_M", or NULL */
    match exact, also;        /* first match, and the next one elsewhere */
    match file;               /* the first GGUF file of a repository of that name */
    unsigned files;
    char file_names[320];
    char problem[640]; /* of a matching model without a usable file */
    /* closest of all names, for the error message; and closest to the last part of a path */
    pj_nearest nearest, nearest_base;
    char nearest_name[64], nearest_base_name[64];
} search;

static void find_model_keep(match *m, const pj_model_spot *spot)
{
    snprintf(m->name, sizeof m->name, "%s", spot->name);
    snprintf(m->path, sizeof m->path, "%s", spot->path);
    snprintf(m->location, sizeof m->location, "%s", spot->location);
}

/* "x" matches "x", and "ollama:x:latest" matches "ollama:x". */
static bool find_model_is_name(const search *s, const char *name)
{
    static const char latest[] = ":latest";
    size_t length = strlen(name);
    if (strcmp(name, s->wanted) == 0) return true;
    return pj_starts_with(name, "ollama:") && strncmp(name, s->wanted, length) == 0 &&
           strcmp(s->wanted + length, latest) == 0;
}

/* The file name inside the wanted repository, or NULL: after "org/name/", and in llama.cpp's cache
 * after "org_name_". */
static const char *file_of(const search *s, const char *name)
{
    size_t n = s->wanted_bytes;
    for (size_t i = 0; i < n; i++) {
        bool same = name[i] == s->wanted[i] || (s->wanted[i] == '/' && name[i] == '_');
        if (!same) return NULL;
    }
    size_t length = strlen(name);
    bool gguf = length > n + 5 && strcmp(name + length - 5, ".gguf") == 0;
    return gguf && (name[n] == '/' || (name[n] == '_' && memchr(s->wanted, '/', n))) ? name + n + 1
                                                                                     : NULL;
}

/* Whether the file's name contains the quantisation as a word: Q4_K_M does not contain Q4_K. */
static bool has_quantisation(const char *file, const char *quantisation)
{
    size_t length = strlen(quantisation);
    for (const char *at = file; *at; at++) {
        bool begins = at == file || strchr("-./", at[-1]);
        if (begins && strncasecmp(at, quantisation, length) == 0 &&
            (at[length] == '.' || at[length] == '-' || at[length] == '/'))
            return true;
    }
    return false;
}

static void keep_file(search *s, const pj_model_spot *spot, const char *file)
{
    bool fits = !s->quantisation || has_quantisation(file, s->quantisation);
    if (fits && s->files++ == 0) {
        find_model_keep(&s->file, spot);
        if (s->quantisation) s->file_names[0] = 0; /* drop non-matching names */
    }
    if (!fits && s->files > 0) return;
    size_t used = strlen(s->file_names);
    if (used + strlen(file) + 3 < sizeof s->file_names)
        snprintf(s->file_names + used, sizeof s->file_names - used, "%s%s", used ? ", " : "", file);
}

/* Names are valid only during the visit, so the nearest is copied. */
static void offer_nearest(pj_nearest *nearest, char *copy, size_t bytes, const char *name)
{
    pj_nearest_offer(nearest, name, strlen(name));
    if (nearest->word != name) return;
    snprintf(copy, bytes, "%s", name);
    nearest->word = copy;
}

static bool find_model_visit(void *context, const pj_model_spot *spot)
{
    search *s = context;
    offer_nearest(&s->nearest, s->nearest_name, sizeof s->nearest_name, spot->name);
    offer_nearest(&s->nearest_base, s->nearest_base_name, sizeof s->nearest_base_name, spot->name);
    const char *file = file_of(s, spot->name);
    if (file && !spot->problem) keep_file(s, spot, file);
    if (s->quantisation || !find_model_is_name(s, spot->name)) return true;
    if (spot->problem) {
        if (!s->problem[0])
            snprintf(s->problem, sizeof s->problem, "%s is in %s, but %s", spot->name,
                     spot->location, spot->problem);
    } else if (!s->exact.path[0]) {
        find_model_keep(&s->exact, spot);
    } else if (!s->also.path[0] && strcmp(s->exact.path, spot->path) != 0) {
        find_model_keep(&s->also, spot);
    }
    return true;
}

/* ---- results -------------------------------------------------------------------------------- */

/* Whether "ORG/NAME" may be a repository: not when ORG is a folder here, which makes it a path. */
static bool is_repository(const char *name)
{
    char parent[PATH_MAX];
    const char *slash = strchr(name, '/');
    if (!slash || slash == name || !slash[1] || strchr(slash + 1, '/') || name[0] == '.' ||
        pj_starts_with(name, "models/"))
        return false;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - name), name);
    return !pj_dir_exists(parent);
}

static pj_status not_found(const search *s, const char *name, const char *folder, pj_error *err)
{
    char hint[512] = "", nearest[256] = "";
    pj_nearest_write(s->nearest.word ? &s->nearest : &s->nearest_base, "", nearest, sizeof nearest);
    if (s->quantisation && s->file_names[0])
        return pj_fail(err, PJ_E_NOT_FOUND, "%.*s has no %s here; its files are %s",
                       (int)s->wanted_bytes, name, s->quantisation, s->file_names);
    if (pj_starts_with(name, "ollama:"))
        snprintf(hint, sizeof hint, "; ollama pull %.200s fetches it", name + 7);
    else if (is_repository(name))
        snprintf(hint, sizeof hint, "; hf download %.*s fetches it from Hugging Face",
                 (int)(s->wanted_bytes < 200 ? s->wanted_bytes : 200), name);
    return pj_fail(
        err, PJ_E_NOT_FOUND,
        "there is no model %.200s: not a path, and not in %s or the caches of Hugging Face, "
        "Ollama, LM Studio and llama.cpp%s%s",
        name, folder, hint, nearest);
}

static pj_status take_found(const search *s, const char *name, const char *folder, char *path,
                            size_t bytes, char *note, size_t note_bytes, pj_error *err)
{
    if (s->exact.path[0]) {
        if (s->also.path[0])
            snprintf(note, note_bytes, "%s is in %s and in %s; the first is used, the other is %s",
                     name, s->exact.location, s->also.location, s->also.path);
        return take_path(s->exact.path, path, bytes, err);
    }
    if (s->files == 1) return take_path(s->file.path, path, bytes, err);
    if (s->files > 1)
        return pj_fail(err, PJ_E_INVALID,
                       "%.200s contains %u GGUF files (%s); name one as %.*s/FILE or %.*s:Q4_K_M",
                       name, s->files, s->file_names, (int)s->wanted_bytes, s->wanted,
                       (int)s->wanted_bytes, s->wanted);
    if (s->problem[0]) return pj_fail(err, PJ_E_INVALID, "%s", s->problem);
    return not_found(s, name, folder, err);
}

static bool find_pair(const char *folder, const char *name, char *path, size_t bytes)
{
    return pj_path_join(path, bytes, folder, name) && exists(path);
}

/* Among the models that came with perjoule: under the build's prefix, or next to the program for an
 * unpacked binary release and in the build folder of a clone. "models/demo", as the documents have
 * it, is one of them in any folder. */
static bool find_installed(const char *name, char *path, size_t bytes)
{
    static const char *const beside[] = {"../share/perjoule/models", "../models"};
    char program[PATH_MAX], models[PATH_MAX];
    if (pj_starts_with(name, "models/") && name[strlen("models/")]) name += strlen("models/");
    if (find_pair(PJ_DATADIR "/models", name, path, bytes)) return true;
    if (pj_process_path(program, sizeof program, NULL) != PJ_OK) return false;
    char *slash = strrchr(program, '/');
    if (!slash) return false;
    *slash = 0;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (pj_path_join(models, sizeof models, program, beside[i]) &&
            find_pair(models, name, path, bytes))
            return true;
    return false;
}

pj_status pj_model_find_noting(const char *name, const char *models, char *path, size_t bytes,
                               char *note, size_t note_bytes, pj_error *err)
{
    const char *folder = models ? models : pj_models_default_folder();
    note[0] = 0;
    if (name && (pj_starts_with(name, "synthetic:") || exists(name)))
        return take_path(name, path, bytes, err);
    const char *wanted = name ? name : "demo";
    bool direct = find_pair(folder, wanted, path, bytes);
    if (!name && (direct || find_installed(wanted, path, bytes))) return PJ_OK;
    if (!name)
        return pj_fail(err, PJ_E_NOT_FOUND,
                       "no model was given with -m, and the demo model is neither in %s "
                       "nor in " PJ_DATADIR "/models",
                       folder);
    search s = {.wanted = name, .wanted_bytes = strlen(name)};
    const char *slash = strrchr(name, '/');
    pj_nearest_begin(&s.nearest, name);
    pj_nearest_begin(&s.nearest_base, slash ? slash + 1 : name);
    const char *colon = strrchr(name, ':');
    if (colon && strchr(name, '/') && !pj_starts_with(name, "ollama:")) {
        s.quantisation = colon + 1;
        s.wanted_bytes = (size_t)(colon - name);
    }
    if (direct) find_model_keep(&s.exact, &(pj_model_spot){name, path, "the models folder", NULL});
    if (!direct && find_installed(wanted, path, bytes)) return PJ_OK;
    pj_model_locations_each(folder, true, find_model_visit, &s);
    return take_found(&s, name, folder, path, bytes, note, note_bytes, err);
}

pj_status pj_model_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err)
{
    char note[2 * PATH_MAX];
    return pj_model_find_noting(name, models, path, bytes, note, sizeof note, err);
}

pj_status pj_draft_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err)
{
    if (strcmp(name, PJ_DRAFT_HEAD) == 0) return take_path(name, path, bytes, err);
    return pj_model_find(name, models, path, bytes, err);
}
