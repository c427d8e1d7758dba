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
/* A counter of a whole package, board or machine that did not move for so long does not count. */
static const int64_t STILL_NS = PJ_NS_PER_S;
static const int64_t LOG_EVERY_NS = 200 * PJ_NS_PER_MS; /* a log misses nothing in between */
/* Ticks of faster counters are not worth predicting. */
static const int64_t GRID_LEAST_NS = 10 * PJ_NS_PER_MS;

/* ---- measuring ---- */

typedef struct watch {
    pj_filter filter;
    uint64_t reads;
    double first_value, last_value; /* accepted */
    int64_t first_ns, last_ns;
    double mean_mw; /* of power readings */
    uint64_t means;
    int64_t begin_ns,
        old_ns; /* begin of the first read, and of the last one of the present value */
    int64_t from_ns[ENOUGH_CHANGES], to_ns[ENOUGH_CHANGES]; /* reads around each change */
    uint32_t changes;
    int64_t cost_ns; /* of the cheapest read: what interrupts a read is not its cost */
    bool stands;
} watch;

/* What is kept of a rail. */
typedef struct traits {
    int64_t period_ns, grid_ns, cost_ns;
    bool is_dead;
} traits;

static void watch_take(watch *w, pj_reading *r)
{
    int64_t took = r->after_ns - r->before_ns;
    w->reads++;
    if (w->begin_ns == 0) w->begin_ns = r->before_ns;
    if (w->cost_ns == 0 || took < w->cost_ns) w->cost_ns = took > 0 ? took : 1;
    pj_filter_take(&w->filter, r);
    if (r->status == PJ_READING_OK && w->old_ns > 0 && w->changes < ENOUGH_CHANGES) {
        w->from_ns[w->changes] = w->old_ns;
        w->to_ns[w->changes++] = r->after_ns;
    }
    w->old_ns = r->before_ns;
    w->stands = w->changes == 0 && w->filter.armed && r->after_ns - w->begin_ns > STILL_NS;
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
            !is_silent(&watches[i]) && !watches[i].stands)
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

static void select_rails(pj_power_sampler *s, bool with_logs)
{
    uint64_t rails = 0;
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (with_logs || s->rails[i].log_ns == 0) rails |= 1ull << i;
    s->source->select(s->state, rails);
}

/* Polls until enough is known. */
static void poll_source(pj_power_sampler *s, watch *watches)
{
    int64_t begin = pj_clock_ns(), due = begin;
    int64_t interval = s->source->min_poll_ns > 0 ? s->source->min_poll_ns : PJ_NS_PER_MS;
    int64_t logs_ns = begin;
    while (pj_clock_ns() - begin < LIMIT_NS && !enough(watches, s->rail_count)) {
        uint32_t count = 0;
        if (s->source->select) select_rails(s, pj_clock_ns() >= logs_ns);
        if (pj_clock_ns() >= logs_ns) logs_ns = pj_clock_ns() + LOG_EVERY_NS;
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
static bool cache_read(const pj_power_sampler *s, traits *t, double *disagreement)
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
        double period = 0, grid = 0, cost = 0;
        found = json_unpack(json_object_get(root, key), "{s:F,s:F,s:F}", "period_ns", &period,
                            "grid_ns", &grid, "cost_ns", &cost) == 0 &&
                period >= 0 && period <= 1e11 && grid >= 0 && grid <= 1e11 && cost >= 0 &&
                cost <= 1e10;
        t[i] = (traits){(int64_t)period, (int64_t)grid, (int64_t)cost, false};
    }
    const json_t *off = json_object_get(root, "disagreement");
    *disagreement = json_is_number(off) ? json_number_value(off) : NAN;
    json_decref(root);
    pj_free(text);
    return found;
}

static void cache_write(const pj_power_sampler *s, const traits *t, double disagreement)
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
        pj_json_key(&json, key);
        pj_json_object_begin(&json);
        pj_json_kv_int(&json, "period_ns", t[i].period_ns);
        pj_json_kv_int(&json, "grid_ns", t[i].grid_ns);
        pj_json_kv_int(&json, "cost_ns", t[i].cost_ns);
        pj_json_object_end(&json);
    }
    pj_json_object_end(&json);
    if (pj_json_finish(&json)) pj_file_write(path, text.data, text.length, NULL);
    pj_buffer_fini(&text);
}

/* ---- both ---- */

static traits traits_of(const pj_rail *rail, const watch *w)
{
    traits t = {.period_ns = pj_filter_period(&w->filter), .cost_ns = w->cost_ns};
    bool is_counter = rail->kind == PJ_RAIL_COUNTER;
    if (is_counter && t.period_ns >= GRID_LEAST_NS)
        t.grid_ns = pj_grid_find(w->from_ns, w->to_ns, w->changes);
    t.is_dead = is_counter && w->stands && rail->scope != PJ_SCOPE_DOMAIN;
    return t;
}

static pj_status measure(pj_power_sampler *s, traits *t, double *disagreement, pj_error *err)
{
    watch *watches = pj_alloc(PJ_MAX_RAILS, sizeof *watches);
    if (!watches) return pj_fail_memory(err, "probing the sensors");
    for (uint32_t i = 0; i < s->rail_count; i++) pj_filter_init(&watches[i].filter, &s->rails[i]);
    poll_source(s, watches);
    bool complete = true;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        t[i] = traits_of(&s->rails[i], &watches[i]);
        /* a power that never changed has its stated period */
        bool is_stated = s->rails[i].kind != PJ_RAIL_COUNTER && s->rails[i].period_ns > 0;
        complete = complete && (t[i].period_ns > 0 || is_stated);
    }
    *disagreement = disagreement_of(s->rails, watches, s->rail_count);
    if (complete) cache_write(s, t, *disagreement);
    pj_free(watches);
    return PJ_OK;
}

pj_status pj_characterise(pj_power_sampler *sampler, double *disagreement, pj_error *err)
{
    traits t[PJ_MAX_RAILS];
    pj_status status = PJ_OK;
    if (!cache_read(sampler, t, disagreement)) status = measure(sampler, t, disagreement, err);
    for (uint32_t i = 0; i < sampler->rail_count && status == PJ_OK; i++) {
        pj_rail *rail = &sampler->rails[i];
        int64_t seen = t[i].period_ns, stated = rail->period_ns;
        if (seen > 0 && (stated == 0 || seen > stated * 3 / 2 || seen < stated / 2))
            rail->period_ns = seen;
        rail->grid_ns = t[i].grid_ns;
        if (rail->grid_ns > 0) rail->period_ns = rail->grid_ns;
        sampler->cost_ns[i] = t[i].cost_ns;
        if (t[i].is_dead) sampler->dead |= 1ull << i;
    }
    return status;
}
