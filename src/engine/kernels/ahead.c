/* Chooses prefetch distances. */
#include "engine/kernels/ahead.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Products shorter than LEAST_BYTES say little: a dispatch is a part of their time. */
enum { LEAST_BYTES = 1 << 20, FASTEST = PJ_AHEAD_SAMPLES / 4, MAX_FILE_BYTES = 1 << 20 };
static const double UNKNOWN_CACHE_BYTES = 64 << 20;
static const int64_t BELIEVED_S = INT64_C(30) * 24 * 3600;
/* What another distance must gain to replace the default: less is noise. */
static const double LEAST_GAIN = 0.02;

/* Zero prefetches the line that is about to be read, which costs no more than an instruction. */
const unsigned pj_ahead_distances[PJ_AHEAD_DISTANCES] = {2048, 512, 0};

size_t pj_ahead_bytes(const pj_ahead *a, pj_dtype type)
{
    const pj_ahead_choice *c = &a->types[type];
    return pj_ahead_distances[c->measured_s == 0 && c->samples > 0 ? c->next : c->chosen];
}

bool pj_ahead_try(pj_ahead *a, pj_dtype type, size_t bytes)
{
    pj_ahead_choice *c = &a->types[type];
    if (!a->active || c->measured_s != 0 || bytes < LEAST_BYTES) return false;
    if (c->bytes == 0) c->bytes = bytes;
    return c->bytes == bytes;
}

/* Sum of the fastest quarter: whatever else the machine does only adds time. */
static double fastest_ns(const int64_t *ns)
{
    double sum = 0;
    int64_t sorted[PJ_AHEAD_SAMPLES];
    for (size_t i = 0; i < PJ_AHEAD_SAMPLES; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > ns[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = ns[i];
    }
    for (size_t i = 0; i < FASTEST; i++) sum += (double)sorted[i];
    return sum;
}

static unsigned fastest_distance(const pj_ahead_choice *c)
{
    unsigned best = 0;
    double best_ns = fastest_ns(c->ns[0]) * (1 - LEAST_GAIN);
    for (unsigned d = 1; d < PJ_AHEAD_DISTANCES; d++) {
        double ns = fastest_ns(c->ns[d]);
        if (ns < best_ns) best = d, best_ns = ns;
    }
    return best;
}

void pj_ahead_took(pj_ahead *a, pj_dtype type, int64_t ns)
{
    pj_ahead_choice *c = &a->types[type];
    c->ns[c->next][c->samples / PJ_AHEAD_DISTANCES] = ns;
    c->next = ++c->samples % PJ_AHEAD_DISTANCES;
    if (c->samples < PJ_AHEAD_DISTANCES * PJ_AHEAD_SAMPLES) return;
    c->chosen = fastest_distance(c);
    c->measured_s = pj_clock_wall_ns() / PJ_NS_PER_S;
    a->changed = true;
}

void pj_ahead_begin(pj_ahead *a, uint64_t weight_bytes)
{
    double cache_bytes = pj_cpu_cache_bytes("");
    if (isnan(cache_bytes)) cache_bytes = UNKNOWN_CACHE_BYTES;
    if ((double)weight_bytes > 2 * cache_bytes) a->active = true;
}

/* ---- kept choices ------------------------------------------------------------------------ */

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
