/* Idle power between processes: one small JSON file per machine and list of rails in the user's
 * cache folder, which may be deleted at any time. Its age is known by two clocks: CLOCK_MONOTONIC
 * begins anew when the machine starts, and the wall clock may be set. */
#include "power/meter_impl.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static const double SKEW_NS = 2e9; /* between the ages by the two clocks */
enum { MOST_BYTES = 65536 };

/* Idle power of other rails, or on another machine that shares the folder, is another file. */
static bool idle_path(const pj_meter *meter, char *path, size_t bytes)
{
    struct utsname system;
    uint64_t hash = pj_hash64(0, meter->env.sysfs_root, strlen(meter->env.sysfs_root));
    if (!meter->env.cache_folder) return false;
    if (uname(&system) == 0) hash = pj_hash64(hash, system.nodename, strlen(system.nodename));
    for (uint32_t i = 0; i < meter->rail_count; i++) {
        const pj_rail *rail = &meter->rails[i];
        hash = pj_hash64(hash, rail->source, strlen(rail->source));
        hash = pj_hash64(hash, rail->device, strlen(rail->device));
        hash = pj_hash64(hash, rail->field, strlen(rail->field));
        hash = pj_hash64(hash, &rail->gain, sizeof rail->gain);
    }
    int length = snprintf(path, bytes, "%s/idle-%016llx.json", meter->env.cache_folder,
                          (unsigned long long)hash);
    return length > 0 && (size_t)length < bytes;
}

static json_t *known(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

void pj_baseline_keep(const pj_meter *meter, const pj_baseline *b)
{
    char path[4096];
    bool is_local = !pj_power_is_remote(meter->sources);
    if (!b->quiet || b->rail_count != meter->rail_count || !is_local ||
        !idle_path(meter, path, sizeof path) || pj_dir_make(meter->env.cache_folder, NULL) != PJ_OK)
        return;
    int64_t now_ns = pj_clock_ns(), wall_ns = pj_clock_wall_ns() - (now_ns - b->end_ns);
    json_t *rails = json_array();
    for (uint32_t i = 0; i < b->rail_count; i++)
        json_array_append_new(
            rails, json_pack("{s:o,s:o}", "mw", known(b->mw[i]), "sd_mw", known(b->sd_mw[i])));
    json_t *root = json_pack("{s:I,s:I,s:I,s:f,s:o}", "begin_ns", (json_int_t)b->begin_ns, "end_ns",
                             (json_int_t)b->end_ns, "wall_ns", (json_int_t)wall_ns, "busy_share",
                             isnan(b->busy_share) ? -1.0 : b->busy_share, "rails", rails);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text) pj_file_write(path, text, strlen(text), NULL);
    free(text);
    json_decref(root);
}

static double figure_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return number >= 0 ? number : NAN;
}

static bool is_fresh(const json_t *root, int64_t most_ns, pj_baseline *b)
{
    b->begin_ns = json_integer_value(json_object_get(root, "begin_ns"));
    b->end_ns = json_integer_value(json_object_get(root, "end_ns"));
    int64_t wall_ns = json_integer_value(json_object_get(root, "wall_ns"));
    double age = (double)pj_clock_ns() - (double)b->end_ns;
    double wall_age = (double)pj_clock_wall_ns() - (double)wall_ns;
    return b->end_ns > b->begin_ns && age >= 0 && age <= (double)most_ns &&
           fabs(wall_age - age) <= SKEW_NS;
}

bool pj_baseline_kept(const pj_meter *meter, int64_t most_ns, pj_baseline *baseline)
{
    char path[4096], *text = NULL;
    size_t bytes = 0;
    pj_baseline b = {.quiet = true, .rail_count = meter->rail_count};
    if (!idle_path(meter, path, sizeof path) ||
        pj_file_read(path, MOST_BYTES, &text, &bytes, NULL) != PJ_OK)
        return false;
    json_t *root = json_loadb(text, bytes, 0, NULL);
    const json_t *rails = json_object_get(root, "rails");
    bool good = json_array_size(rails) == meter->rail_count && is_fresh(root, most_ns, &b);
    b.busy_share = figure_of(root, "busy_share");
    for (uint32_t i = 0; i < PJ_MAX_RAILS; i++) {
        const json_t *rail = json_array_get(rails, i);
        b.mw[i] = figure_of(rail, "mw");
        b.sd_mw[i] = figure_of(rail, "sd_mw");
        b.rail_quiet[i] = true;
    }
    json_decref(root);
    pj_free(text);
    if (good) *baseline = b;
    return good;
}
