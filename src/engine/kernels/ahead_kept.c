/* Keeps the choices of prefetch distances in a file. */
#include "engine/kernels/ahead.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

enum { MAX_FILE_BYTES = 1 << 20 };
static const int64_t BELIEVED_S = INT64_C(30) * 24 * 3600;

static bool file_of(const char *path, char *out, size_t bytes)
{
    char folder[1024];
    if (path) return snprintf(out, bytes, "%s", path) < (int)bytes;
    if (!pj_path_user_cache(folder, sizeof folder) || pj_dir_make(folder, NULL) != PJ_OK)
        return false;
    return pj_path_join(out, bytes, folder, "prefetch.json");
}

/* Several machines may share a home. */
static void machine_key(char *key, size_t bytes, const char *set, unsigned threads)
{
    struct utsname system;
    bool known = uname(&system) == 0;
    snprintf(key, bytes, "%.255s %s %u", known ? system.nodename : "", set, threads);
}

static json_t *read_all(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    if (pj_file_read(path, MAX_FILE_BYTES, &text, &bytes, NULL) == PJ_OK)
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    pj_free(text);
    if (json_is_object(root)) return root;
    json_decref(root);
    return NULL;
}

static void take_choice(pj_ahead_choice *c, const json_t *kept)
{
    const json_t *bytes = json_object_get(kept, "bytes");
    int64_t measured_s = json_integer_value(json_object_get(kept, "measured_s"));
    int64_t age_s = pj_clock_wall_ns() / PJ_NS_PER_S - measured_s;
    if (!json_is_integer(bytes) || measured_s <= 0 || age_s < 0 || age_s > BELIEVED_S) return;
    for (unsigned d = 0; d < PJ_AHEAD_DISTANCES; d++)
        if (json_integer_value(bytes) == pj_ahead_distances[d])
            c->chosen = d, c->measured_s = measured_s;
}

void pj_ahead_read(pj_ahead *a, const char *path, const char *set, unsigned threads)
{
    char file[1100], key[300];
    if (!file_of(path, file, sizeof file)) return;
    json_t *root = read_all(file);
    machine_key(key, sizeof key, set, threads);
    const json_t *kept = json_object_get(root, key);
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        if (a->types[type].measured_s == 0)
            take_choice(&a->types[type], json_object_get(kept, pj_dtype_get((pj_dtype)type)->name));
    json_decref(root);
}

void pj_ahead_write(pj_ahead *a, const char *path, const char *set, unsigned threads)
{
    char file[1100], key[300];
    if (!a->changed || !file_of(path, file, sizeof file)) return;
    json_t *root = read_all(file), *of_machine = json_object();
    if (!root) root = json_object();
    machine_key(key, sizeof key, set, threads);
    for (int type = 0; type < PJ_DTYPE_COUNT; type++) {
        const pj_ahead_choice *c = &a->types[type];
        if (c->measured_s == 0) continue;
        json_t *choice = json_pack("{s:i,s:I}", "bytes", (int)pj_ahead_distances[c->chosen],
                                   "measured_s", (json_int_t)c->measured_s);
        json_object_set_new(of_machine, pj_dtype_get((pj_dtype)type)->name, choice);
    }
    json_t *before = json_object_get(root, key);
    if (json_is_object(before))
        json_object_update(before, of_machine), json_decref(of_machine);
    else
        json_object_set_new(root, key, of_machine);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (text && pj_file_write(file, text, strlen(text), NULL) == PJ_OK) a->changed = false;
    free(text);
    json_decref(root);
}
