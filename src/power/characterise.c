/* Characterisation: polls each rail, counts changes and takes medians. The cache is one small JSON
 * file per source in the user's cache folder, keyed by device, field, driver and kernel; it is only
 * a convenience, so every problem with it silently means "measure again". */
#include "power/characterise.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

enum { ENOUGH_CHANGES = 12, ENOUGH_READS = 100, MAX_CACHE_BYTES = 64 << 10 };
static const int64_t LIMIT_NS = 3 * PJ_NS_PER_S;

/* ---- measuring ---- */

typedef struct watch {
    pj_filter filter;
    uint64_t reads;
    double first_value, last_value; /* accepted */
    int64_t first_ns, last_ns;
    double mean_mw; /* of power readings */
    uint64_t means;
} watch;

static void watch_take(watch *w, pj_reading *r)
{
    w->reads++;
    pj_filter_take(&w->filter, r);
    if (r->status == PJ_READING_OK || r->status == PJ_READING_REPEAT)
        w->mean_mw += (r->value - w->mean_mw) / (double)++w->means;
    if (r->status != PJ_READING_OK && r->status != PJ_READING_RESET) return;
    if (w->first_ns == 0) {
        w->first_ns = r->fresh_ns;
        w->first_value = r->value;
    }
    w->last_ns = r->fresh_ns;
    w->last_value = r->value;
}

static bool is_silent(const watch *w)
{
    return w->first_ns == 0 && w->reads >= ENOUGH_READS;
}

static bool enough(const watch *watches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (watches[i].filter.interval_count < ENOUGH_CHANGES && !watches[i].filter.lost &&
            !is_silent(&watches[i]))
            return false;
    return true;
}

static double watched_mw(const pj_rail *rail, const watch *w)
{
    if (rail->kind != PJ_RAIL_COUNTER) return w->means > 20 ? w->mean_mw : NAN;
    double seconds = (double)(w->last_ns - w->first_ns) * 1e-9;
    double uj = pj_counter_step(rail, w->first_value, w->last_value);
    return seconds > 0.3 ? uj * 1e-3 / seconds : NAN;
}

/* Relative difference between a counter and a power reading of the same device and scope. */
static double disagreement_of(const pj_rail *rails, const watch *watches, uint32_t count)
{
    double worst = NAN;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++) {
            const pj_rail *a = &rails[i], *b = &rails[j];
            if (a->kind != PJ_RAIL_COUNTER || b->kind == PJ_RAIL_COUNTER || !a->device[0] ||
                a->scope != b->scope || strcmp(a->device, b->device) != 0)
                continue;
            double counter = watched_mw(a, &watches[i]), power = watched_mw(b, &watches[j]);
            double off = fabs(counter - power) / power;
            if (isfinite(off) && !(off < worst)) worst = off;
        }
    return worst;
}

/* Polls until enough is known. */
static void poll_source(pj_power_sampler *s, watch *watches)
{
    int64_t begin = pj_clock_ns(), due = begin;
    int64_t interval = s->source->min_poll_ns > 0 ? s->source->min_poll_ns : PJ_NS_PER_MS;
    while (pj_clock_ns() - begin < LIMIT_NS && !enough(watches, s->rail_count)) {
        uint32_t count = 0;
        pj_status status = s->source->read(s->state, s->scratch, PJ_SOURCE_READ_MAX, &count);
        for (uint32_t i = 0; i < count; i++)
            if (s->scratch[i].rail < s->rail_count)
                watch_take(&watches[s->scratch[i].rail], &s->scratch[i]);
        if (status == PJ_E_LOST) break;
        pj_clock_sleep_until(due += interval);
    }
}

/* ---- cache ---- */

/* An old profile is valid only if all of this is unchanged. */
static void cache_key(const pj_power_sampler *s, const pj_rail *rail, char key[17])
{
    struct utsname system;
    char path[1024], *driver = NULL;
    size_t bytes = 0;
    uint64_t hash = pj_hash64(0, s->source->name, strlen(s->source->name));
    hash = pj_hash64(hash, rail->device, strlen(rail->device));
    hash = pj_hash64(hash, rail->field, strlen(rail->field));
    hash = pj_hash64(hash, s->env->sysfs_root, strlen(s->env->sysfs_root));
    if (uname(&system) == 0) hash = pj_hash64(hash, system.release, strlen(system.release));
    if (pj_power_path(path, sizeof path, s->env->procfs_root, "/proc/driver/nvidia/version") &&
        pj_file_read(path, 4096, &driver, &bytes, NULL) == PJ_OK)
        hash = pj_hash64(hash, driver, bytes);
    pj_free(driver);
    snprintf(key, 17, "%016llx", (unsigned long long)hash);
}

static bool cache_path(const pj_power_sampler *s, char *path, size_t bytes)
{
    if (!s->env->cache_folder) return false;
    int length = snprintf(path, bytes, "%s/sensor-%s.json", s->env->cache_folder, s->source->name);
    return length > 0 && (size_t)length < bytes;
}

/* All rails or none: a new rail requires a new characterisation. */
static bool cache_read(const pj_power_sampler *s, int64_t *periods, double *disagreement)
{
    char path[1100], key[17], *text = NULL;
    size_t bytes = 0;
    if (!cache_path(s, path, sizeof path) ||
        pj_file_read(path, MAX_CACHE_BYTES, &text, &bytes, NULL) != PJ_OK)
        return false;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    bool found = json_is_object(root);
    for (uint32_t i = 0; found && i < s->rail_count; i++) {
        cache_key(s, &s->rails[i], key);
        double period = json_number_value(json_object_get(root, key));
        found = period > 0 && period <= 1e11;
        periods[i] = found ? (int64_t)period : 0;
    }
    const json_t *off = json_object_get(root, "disagreement");
    *disagreement = json_is_number(off) ? json_number_value(off) : NAN;
    json_decref(root);
    pj_free(text);
    return found;
}

static void cache_write(const pj_power_sampler *s, const int64_t *periods, double disagreement)
{
    char path[1100], key[17];
    pj_buffer text;
    pj_json json;
    if (!cache_path(s, path, sizeof path) || pj_dir_make(s->env->cache_folder, NULL) != PJ_OK)
        return;
    pj_buffer_init(&text, MAX_CACHE_BYTES);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    pj_json_kv_double(&json, "disagreement", disagreement);
    for (uint32_t i = 0; i < s->rail_count; i++) {
        cache_key(s, &s->rails[i], key);
        pj_json_kv_int(&json, key, periods[i]);
    }
    pj_json_object_end(&json);
    if (pj_json_finish(&json)) pj_file_write(path, text.data, text.length, NULL);
    pj_buffer_fini(&text);
}

/* ---- both ---- */

static pj_status measure(pj_power_sampler *s, int64_t *periods, double *disagreement, pj_error *err)
{
    watch *watches = pj_alloc(PJ_MAX_RAILS, sizeof *watches);
    if (!watches) return pj_fail_memory(err, "probing the sensors");
    for (uint32_t i = 0; i < s->rail_count; i++) pj_filter_init(&watches[i].filter, &s->rails[i]);
    poll_source(s, watches);
    bool complete = true;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        periods[i] = pj_filter_period(&watches[i].filter);
        complete = complete && periods[i] > 0;
    }
    *disagreement = disagreement_of(s->rails, watches, s->rail_count);
    if (complete) cache_write(s, periods, *disagreement);
    pj_free(watches);
    return PJ_OK;
}

pj_status pj_characterise(pj_power_sampler *sampler, double *disagreement, pj_error *err)
{
    int64_t periods[PJ_MAX_RAILS];
    pj_status status = PJ_OK;
    if (!cache_read(sampler, periods, disagreement))
        status = measure(sampler, periods, disagreement, err);
    for (uint32_t i = 0; i < sampler->rail_count && status == PJ_OK; i++) {
        int64_t seen = periods[i], stated = sampler->rails[i].period_ns;
        if (seen > 0 && (stated == 0 || seen > stated * 3 / 2 || seen < stated / 2))
            sampler->rails[i].period_ns = seen;
    }
    return status;
}
