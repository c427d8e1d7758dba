/* Characterisation: polls each rail, counts changes and takes medians. The cache is one small JSON
 * file per source in the user's cache folder, keyed by machine, device, field, driver and kernel;
 * it is only a convenience, so every problem with it silently means "measure again". So does what
 * could not be told (a grid, on a busy machine), and after some time what was not found: movement
 * of a counter, whose value is compared at each start, and a grid. */
#include "power/characterise.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/median.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum {
    ENOUGH_CHANGES = 12,
    MOST_CHANGES = 64, /* kept: a busy machine sees many of them too vaguely for a grid */
    ENOUGH_READS = 100,
    MAX_COSTS = 256,  /* kept of the first reads */
    MAX_POWERS = 256, /* kept of the first values of power */
    MAX_CACHE_BYTES = 64 << 10
};
static const int64_t LIMIT_NS = 3 * PJ_NS_PER_S;
/* A counter that moves, but rarely, is watched longer: is it slow, or was that all? */
static const int64_t SLOW_LIMIT_NS = 12 * PJ_NS_PER_S;
enum { SLOW_CHANGES = 4 };
static const int64_t CROWDED_LIMIT_NS = 1300 * PJ_NS_PER_MS;
/* A counter of a whole package, board or machine that did not move for so long does not count. */
static const int64_t STILL_NS = PJ_NS_PER_S;
/* Counter and power are compared over no less. */
static const int64_t COMPARED_NS = 300 * PJ_NS_PER_MS;
static const double VAGUE_MOST = 0.02;                  /* of that time may be another tick's */
static const int64_t LOG_EVERY_NS = 200 * PJ_NS_PER_MS; /* a log misses nothing in between */
/* For how long it is believed that a counter stands still, and that its ticks are on no grid. */
static const int64_t STILL_BELIEVED_S = 24 * 3600, NO_GRID_BELIEVED_S = 3600;
enum { COST_FAR_OFF = 20 }; /* reads that take so many times as long as was kept */
static const int64_t GLANCE_NS = 20 * PJ_NS_PER_MS; /* at a counter that stood still */

/* ---- measuring ---- */

typedef struct watch {
    pj_filter filter;
    int64_t poll_ns; /* shortest time between reads */
    uint64_t reads;
    int64_t first_ns; /* the first accepted value; 0: none */
    /* begin of the first read, and of the last one of the present value */
    int64_t begin_ns, old_ns;
    /* reads around each change, and the value after it */
    int64_t from_ns[MOST_CHANGES], to_ns[MOST_CHANGES];
    double values[MOST_CHANGES];
    uint32_t changes;
    double value;                 /* the last accepted */
    int64_t power_ns[MAX_POWERS]; /* power: new values, each of the time since the one before */
    double power_mw[MAX_POWERS];
    uint32_t powers;
    double costs_ns[MAX_COSTS];
    int64_t cost_ns; /* of the cheapest read: what interrupts a read is not its cost */
    bool moves;      /* since it was watched before */
    bool stands;
} watch;

/* What is kept of a rail. */
typedef struct traits {
    int64_t period_ns, grid_ns;
    pj_rail_contact contact;
    int64_t watched_s; /* wall-clock time */
    double still;      /* value of a counter that stood still; NAN: it moved, or is none */
    bool is_vague;     /* whether its ticks are on a grid was not seen well enough to tell */
} traits;

static void watch_take_power(watch *w, const pj_reading *r)
{
    if (w->powers == MAX_POWERS) return;
    w->power_ns[w->powers] = r->fresh_ns > 0 ? r->fresh_ns : r->after_ns;
    w->power_mw[w->powers++] = r->value;
}

static void watch_take(watch *w, const pj_rail *rail, pj_reading *r)
{
    int64_t took = r->after_ns - r->before_ns;
    if (w->reads < MAX_COSTS) w->costs_ns[w->reads] = (double)took;
    w->reads++;
    if (w->begin_ns == 0) w->begin_ns = r->before_ns;
    if (w->cost_ns == 0 || took < w->cost_ns) w->cost_ns = took > 0 ? took : 1;
    pj_filter_take(&w->filter, r);
    if (r->status == PJ_READING_OK && w->old_ns > 0 && w->changes < MOST_CHANGES) {
        w->from_ns[w->changes] = w->old_ns;
        w->values[w->changes] = r->value;
        w->to_ns[w->changes++] = r->after_ns;
    }
    w->old_ns = r->before_ns;
    int64_t still_ns = w->moves ? SLOW_LIMIT_NS - PJ_NS_PER_S : STILL_NS;
    w->stands = w->changes == 0 && w->filter.armed && r->after_ns - w->begin_ns > still_ns;
    bool is_new = r->status == PJ_READING_OK || r->status == PJ_READING_RESET;
    if (is_new && w->first_ns == 0) w->first_ns = r->after_ns;
    if (is_new) w->value = r->value;
    if (is_new && rail->kind != PJ_RAIL_COUNTER) watch_take_power(w, r);
}

static bool is_silent(const watch *w)
{
    return w->first_ns == 0 && w->reads >= ENOUGH_READS;
}

/* Keeps the changes that were located to an eighth of a period, to either side; returns their
 * number. */
static uint32_t watch_sharp(const watch *w, int64_t *from_ns, int64_t *to_ns)
{
    uint32_t count = 0;
    int64_t widest = pj_filter_period(&w->filter) / 4;
    for (uint32_t i = 0; i < w->changes; i++) {
        if (w->to_ns[i] - w->from_ns[i] > widest) continue;
        from_ns[count] = w->from_ns[i];
        to_ns[count++] = w->to_ns[i];
    }
    return count;
}

static bool may_have_grid(const watch *w)
{
    int64_t period_ns = pj_filter_period(&w->filter);
    bool is_seen = w->poll_ns <= period_ns / 8; /* else no read locates a tick */
    return w->filter.rail->kind == PJ_RAIL_COUNTER && period_ns >= PJ_GRID_LEAST_NS && is_seen;
}

static bool watch_is_enough(const watch *w)
{
    int64_t from_ns[MOST_CHANGES], to_ns[MOST_CHANGES];
    if (w->filter.lost || is_silent(w) || w->stands) return true;
    if (w->filter.interval_count < ENOUGH_CHANGES) return false;
    return w->changes == MOST_CHANGES || !may_have_grid(w) ||
           watch_sharp(w, from_ns, to_ns) >= PJ_GRID_ENOUGH;
}

static bool enough(const watch *watches, uint32_t count, uint64_t rails)
{
    for (uint32_t i = 0; i < count; i++)
        if ((rails >> i & 1) && !watch_is_enough(&watches[i])) return false;
    return true;
}

/* Several dear counters in turn, as of a machine with eight cards, are read so rarely that no read
 * locates a tick: that they move is all that can be seen of them together. */
static bool is_crowded(const watch *watches, uint32_t count, uint64_t rails)
{
    int64_t around_ns = 0;
    uint32_t counters = 0;
    for (uint32_t i = 0; i < count; i++) {
        const pj_rail *rail = watches[i].filter.rail;
        bool is_watched = (rails >> i & 1) && watches[i].cost_ns > 0;
        if (!is_watched || !pj_cost_is_high(rail, watches[i].cost_ns)) continue;
        around_ns += watches[i].cost_ns;
        counters += rail->kind == PJ_RAIL_COUNTER;
    }
    if (counters < 2) return false;
    for (uint32_t i = 0; i < count; i++)
        if (may_have_grid(&watches[i]) && around_ns > pj_filter_period(&watches[i].filter) / 8)
            return true;
    return false;
}

static bool watch_is_slow(const watch *w)
{
    return w->filter.rail->kind == PJ_RAIL_COUNTER && w->filter.rail->scope != PJ_SCOPE_DOMAIN &&
           (w->changes > 0 || w->moves) && w->changes < SLOW_CHANGES && !watch_is_enough(w);
}

/* On a busy machine ticks of a counter whose reads are dear are seen too vaguely: more of them are
 * watched. */
static int64_t watch_limit_ns(const watch *watches, uint32_t count, uint64_t rails)
{
    for (uint32_t i = 0; i < count; i++)
        if ((rails >> i & 1) && watch_is_slow(&watches[i])) return SLOW_LIMIT_NS;
    if (is_crowded(watches, count, rails)) return CROWDED_LIMIT_NS;
    for (uint32_t i = 0; i < count; i++)
        if ((rails >> i & 1) && may_have_grid(&watches[i]) && !watch_is_enough(&watches[i]) &&
            pj_cost_is_high(watches[i].filter.rail, watches[i].cost_ns))
            return 2 * LIMIT_NS;
    return LIMIT_NS;
}

static int64_t change_ns(const watch *w, uint32_t change)
{
    return w->from_ns[change] + (w->to_ns[change] - w->from_ns[change]) / 2;
}

/* Energy of power readings in an interval that they cover, mJ. */
static double watched_mj(const watch *power, int64_t begin_ns, int64_t end_ns)
{
    double mj = 0;
    for (uint32_t i = 1; i < power->powers; i++) {
        int64_t from = power->power_ns[i - 1], to = power->power_ns[i];
        if (from < begin_ns) from = begin_ns;
        if (to > end_ns) to = end_ns;
        if (to > from) mj += power->power_mw[i] * (double)(to - from) * 1e-9;
    }
    return mj;
}

/* Relative difference of both over the ticks of the counter that the power covers; NAN: too few of
 * them, or seen too vaguely on a busy machine, or the power is a mean over too long a time. */
static double watched_difference(const pj_rail *counter, const watch *c, const pj_rail *power,
                                 const watch *p)
{
    if (p->powers < 2 || c->changes < 2) return NAN;
    uint32_t first = 0, last = c->changes - 1;
    while (first < last && change_ns(c, first) < p->power_ns[0]) first++;
    while (last > first && change_ns(c, last) > p->power_ns[p->powers - 1]) last--;
    int64_t begin = change_ns(c, first), end = change_ns(c, last);
    bool is_slow = power->kind == PJ_RAIL_AVERAGE && power->window_ns > (end - begin) / 4;
    int64_t vague = (c->to_ns[first] - c->from_ns[first] + c->to_ns[last] - c->from_ns[last]) / 2;
    bool is_vague = (double)vague > VAGUE_MOST * (double)(end - begin);
    if (is_slow || is_vague || end - begin < COMPARED_NS) return NAN;
    double mj = watched_mj(p, begin, end);
    return fabs(pj_counter_step(counter, c->values[first], c->values[last]) * 1e-3 - mj) / mj;
}

/* The largest difference between a counter and a power reading of the same device and scope. */
static double disagreement_of(const pj_rail *rails, const watch *watches, uint32_t count,
                              uint32_t counter)
{
    double worst = NAN;
    const pj_rail *a = &rails[counter];
    for (uint32_t j = 0; j < count; j++) {
        const pj_rail *b = &rails[j];
        if (a->kind != PJ_RAIL_COUNTER || b->kind == PJ_RAIL_COUNTER || !a->device[0] ||
            a->scope != b->scope || strcmp(a->device, b->device) != 0)
            continue;
        double off = watched_difference(a, &watches[counter], b, &watches[j]);
        if (isfinite(off) && !(off < worst)) worst = off;
    }
    return worst;
}

static void select_rails(pj_power_sampler *s, uint64_t wanted, bool with_logs)
{
    uint64_t rails = 0;
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (with_logs || s->rails[i].log_ns == 0) rails |= 1ull << i;
    s->source->select(s->state, rails & wanted);
}

/* Polls the rails until enough is known. */
static void poll_source(pj_power_sampler *s, watch *watches, uint64_t rails)
{
    int64_t begin = pj_clock_ns(), due = begin;
    int64_t interval = s->source->min_poll_ns > 0 ? s->source->min_poll_ns : PJ_NS_PER_MS;
    int64_t logs_ns = begin;
    while (pj_clock_ns() - begin < watch_limit_ns(watches, s->rail_count, rails) &&
           !enough(watches, s->rail_count, rails)) {
        uint32_t count = 0;
        if (s->source->select) select_rails(s, rails, pj_clock_ns() >= logs_ns);
        if (pj_clock_ns() >= logs_ns) logs_ns = pj_clock_ns() + LOG_EVERY_NS;
        pj_status status = s->source->read(s->state, s->scratch, PJ_SOURCE_READ_MAX, &count);
        for (uint32_t i = 0; i < count; i++)
            if (s->scratch[i].rail < s->rail_count)
                watch_take(&watches[s->scratch[i].rail], &s->rails[s->scratch[i].rail],
                           &s->scratch[i]);
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
    if (uname(&system) == 0) { /* several machines may share a home */
        hash = pj_hash64(hash, system.release, strlen(system.release));
        hash = pj_hash64(hash, system.nodename, strlen(system.nodename));
    }
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

static bool is_duration(double ns)
{
    return ns >= 0 && ns <= 1e11;
}

static bool cache_entry(json_t *entry, traits *t)
{
    double period = 0, grid = 0, cost = 0, p50 = 0, p95 = 0, watched = 0;
    const json_t *off = json_object_get(entry, "disagreement");
    const json_t *still = json_object_get(entry, "still");
    if (json_unpack(entry, "{s:F,s:F,s:F,s:F,s:F,s:F}", "period_ns", &period, "grid_ns", &grid,
                    "cost_ns", &cost, "cost_p50_ns", &p50, "cost_p95_ns", &p95, "watched_s",
                    &watched) != 0 ||
        !is_duration(period) || !is_duration(grid) || !is_duration(cost) || !is_duration(p50) ||
        !is_duration(p95) || !is_duration(watched))
        return false;
    *t = (traits){.period_ns = (int64_t)period,
                  .grid_ns = (int64_t)grid,
                  .contact = {(int64_t)cost, (int64_t)p50, (int64_t)p95,
                              json_is_number(off) ? json_number_value(off) : NAN},
                  .watched_s = (int64_t)watched,
                  .still = json_is_number(still) ? json_number_value(still) : NAN};
    return true;
}

/* What was not there when it was watched may be there now. */
static bool is_believed(const pj_rail *rail, const traits *t)
{
    int64_t age_s = pj_clock_wall_ns() / PJ_NS_PER_S - t->watched_s;
    bool lacks_grid =
        rail->kind == PJ_RAIL_COUNTER && t->grid_ns == 0 && t->period_ns >= PJ_GRID_LEAST_NS;
    int64_t most = isfinite(t->still) ? STILL_BELIEVED_S : NO_GRID_BELIEVED_S;
    if (!isfinite(t->still) && !lacks_grid) return true;
    return age_s >= 0 && age_s < most;
}

/* A glance at counters that stood still when they were watched; adds those that have moved. */
static bool has_moved(pj_power_sampler *s, const traits *t, uint64_t *moved)
{
    uint32_t count = 0;
    pj_status status = s->source->read(s->state, s->scratch, PJ_SOURCE_READ_MAX, &count);
    if (status != PJ_OK) return true;
    for (uint32_t i = 0; i < count; i++) {
        const pj_reading *r = &s->scratch[i];
        if (r->rail < s->rail_count && isfinite(t[r->rail].still) && r->status == PJ_READING_OK &&
            r->value != t[r->rail].still)
            *moved |= 1ull << r->rail;
    }
    return *moved != 0;
}

static bool still_stand(pj_power_sampler *s, const traits *t, uint64_t *moved)
{
    uint64_t rails = 0;
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (isfinite(t[i].still)) rails |= 1ull << i;
    if (rails == 0) return true;
    if (s->source->select) s->source->select(s->state, rails);
    if (has_moved(s, t, moved)) return false;
    pj_clock_sleep_until(pj_clock_ns() + GLANCE_NS);
    return !has_moved(s, t, moved);
}

/* NULL: nothing is kept. */
static json_t *cache_load(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    if (pj_file_read(path, MAX_CACHE_BYTES, &text, &bytes, NULL) != PJ_OK) return NULL;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    pj_free(text);
    return root;
}

/* All rails or none: a new rail requires a new characterisation. */
static bool cache_read(const pj_power_sampler *s, traits *t)
{
    char path[1100], key[17];
    if (!cache_path(s, path, sizeof path)) return false;
    json_t *root = cache_load(path);
    bool found = json_is_object(root);
    for (uint32_t i = 0; found && i < s->rail_count; i++) {
        cache_key(s, &s->rails[i], key);
        found = cache_entry(json_object_get(root, key), &t[i]) && is_believed(&s->rails[i], &t[i]);
    }
    json_decref(root);
    return found;
}

/* What is kept of other devices stays, as long as the file is not too large. */
static void cache_merge(const char *path, const pj_buffer *text)
{
    json_t *all = json_loadb(text->data, text->length, 0, NULL), *kept = cache_load(path);
    char *merged =
        json_object_update_missing(all, kept) == 0 ? json_dumps(all, JSON_COMPACT) : NULL;
    bool fits = merged && strlen(merged) <= MAX_CACHE_BYTES;
    pj_file_write(path, fits ? merged : text->data, fits ? strlen(merged) : text->length, NULL);
    free(merged);
    json_decref(kept);
    json_decref(all);
}

static void cache_write(const pj_power_sampler *s, const traits *t)
{
    char path[1100], key[17];
    pj_buffer text;
    pj_json json;
    if (!cache_path(s, path, sizeof path) || pj_dir_make(s->env->cache_folder, NULL) != PJ_OK)
        return;
    pj_buffer_init(&text, MAX_CACHE_BYTES);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    for (uint32_t i = 0; i < s->rail_count; i++) {
        cache_key(s, &s->rails[i], key);
        pj_json_key(&json, key);
        pj_json_object_begin(&json);
        pj_json_kv_int(&json, "period_ns", t[i].period_ns);
        pj_json_kv_int(&json, "grid_ns", t[i].grid_ns);
        pj_json_kv_int(&json, "cost_ns", t[i].contact.cost_ns);
        pj_json_kv_int(&json, "cost_p50_ns", t[i].contact.cost_p50_ns);
        pj_json_kv_int(&json, "cost_p95_ns", t[i].contact.cost_p95_ns);
        pj_json_kv_double(&json, "disagreement", t[i].contact.disagreement);
        pj_json_kv_int(&json, "watched_s", t[i].watched_s);
        pj_json_kv_double(&json, "still", t[i].still);
        pj_json_object_end(&json);
    }
    pj_json_object_end(&json);
    if (pj_json_finish(&json)) cache_merge(path, &text);
    pj_buffer_fini(&text);
}

/* ---- both ---- */

static traits traits_of(const pj_rail *rail, watch *w)
{
    size_t costs = w->reads < MAX_COSTS ? (size_t)w->reads : MAX_COSTS;
    traits t = {.period_ns = pj_filter_period(&w->filter), .contact.cost_ns = w->cost_ns};
    if (costs > 0) {
        t.contact.cost_p50_ns = (int64_t)pj_median(w->costs_ns, costs);
        t.contact.cost_p95_ns = (int64_t)w->costs_ns[costs * 95 / 100]; /* sorted by the median */
    }
    if (t.period_ns == 0 && rail->kind == PJ_RAIL_COUNTER && w->changes > 0)
        t.period_ns = w->filter.longest_still_ns; /* slow */
    t.watched_s = pj_clock_wall_ns() / PJ_NS_PER_S;
    t.still = rail->kind == PJ_RAIL_COUNTER && w->stands ? w->value : NAN;
    if (may_have_grid(w)) {
        int64_t from_ns[MOST_CHANGES], to_ns[MOST_CHANGES];
        uint32_t sharp = watch_sharp(w, from_ns, to_ns);
        int64_t found = pj_grid_find(from_ns, to_ns, sharp);
        t.grid_ns = found > 0 ? found : 0;
        t.is_vague = found < 0 ||
                     (found == 0 && (sharp < PJ_GRID_ENOUGH || pj_cost_is_high(rail, w->cost_ns)));
    }
    return t;
}

static bool is_complete(const pj_rail *rail, const traits *t)
{
    /* a power that never changed has its stated period */
    bool is_stated = rail->kind != PJ_RAIL_COUNTER && rail->period_ns > 0;
    return (t->period_ns > 0 || is_stated || isfinite(t->still)) && !t->is_vague;
}

static void watch_begin(watch *w, const pj_power_sampler *s, uint32_t rail, uint64_t moved)
{
    *w = (watch){.poll_ns = s->source->min_poll_ns, .moves = moved >> rail & 1};
    pj_filter_init(&w->filter, &s->rails[rail]);
}

/* Another device's counter of the same kind whose grid was found, or -1. The pace at which reads in
 * turn saw this one move says nothing. */
static int sibling_of(const pj_power_sampler *s, const traits *t, uint32_t rail)
{
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (i != rail && t[i].grid_ns > 0 && s->rails[i].kind == s->rails[rail].kind &&
            s->rails[i].scope == s->rails[rail].scope &&
            strcmp(s->rails[i].field, s->rails[rail].field) == 0)
            return (int)i;
    return -1;
}

/* Counters whose ticks were seen too vaguely among others: one is watched alone, and the grid that
 * it shows is assumed of its siblings until their own ticks refute it. */
static void measure_alone(pj_power_sampler *s, watch *watches, traits *t)
{
    bool has_failed = false;
    for (uint32_t i = 0; s->source->select && i < s->rail_count; i++) {
        if (!t[i].is_vague || isfinite(t[i].still)) continue;
        int sibling = sibling_of(s, t, i);
        if (sibling >= 0) {
            t[i].period_ns = t[sibling].period_ns;
            t[i].grid_ns = t[sibling].grid_ns;
            t[i].is_vague = false;
        } else if (!has_failed) { /* where one shows none, the others are not watched in turn */
            double disagreement = t[i].contact.disagreement;
            watch_begin(&watches[i], s, i, 0);
            poll_source(s, watches, 1ull << i);
            t[i] = traits_of(&s->rails[i], &watches[i]);
            t[i].contact.disagreement = disagreement;
            has_failed = t[i].grid_ns == 0;
        }
    }
}

/* `moved`: bit mask of counters that have moved since they were watched before. */
static pj_status measure(pj_power_sampler *s, uint64_t moved, traits *t, pj_error *err)
{
    watch *watches = pj_alloc(PJ_MAX_RAILS, sizeof *watches);
    if (!watches) return pj_fail_memory(err, "probing the sensors");
    for (uint32_t i = 0; i < s->rail_count; i++) watch_begin(&watches[i], s, i, moved);
    poll_source(s, watches, UINT64_MAX);
    bool complete = true;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        t[i] = traits_of(&s->rails[i], &watches[i]);
        t[i].contact.disagreement = disagreement_of(s->rails, watches, s->rail_count, i);
    }
    if (is_crowded(watches, s->rail_count, UINT64_MAX)) measure_alone(s, watches, t);
    for (uint32_t i = 0; i < s->rail_count; i++)
        complete = complete && is_complete(&s->rails[i], &t[i]);
    if (complete) cache_write(s, t);
    pj_free(watches);
    return PJ_OK;
}

pj_status pj_characterise(pj_power_sampler *sampler, pj_error *err)
{
    traits t[PJ_MAX_RAILS];
    uint64_t moved = 0;
    pj_status status = PJ_OK;
    if (!cache_read(sampler, t) || !still_stand(sampler, t, &moved))
        status = measure(sampler, moved, t, err);
    for (uint32_t i = 0; i < sampler->rail_count && status == PJ_OK; i++) {
        pj_rail *rail = &sampler->rails[i];
        int64_t seen = t[i].period_ns, stated = rail->period_ns;
        if (seen > 0 && (stated == 0 || seen > stated * 3 / 2 || seen < stated / 2))
            rail->period_ns = seen;
        rail->grid_ns = t[i].grid_ns;
        if (rail->grid_ns > 0) rail->period_ns = rail->grid_ns;
        sampler->contacts[i] = t[i].contact;
        bool is_dead = isfinite(t[i].still) && rail->scope != PJ_SCOPE_DOMAIN;
        if (is_dead) sampler->dead |= 1ull << i;
    }
    return status;
}

/* What is kept was found wrong: it is measured again next time. */
static void cache_forget(const pj_power_sampler *s)
{
    char path[1100], key[17];
    json_t *all = cache_path(s, path, sizeof path) ? cache_load(path) : NULL;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        cache_key(s, &s->rails[i], key);
        json_object_del(all, key);
    }
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    if (text) pj_file_write(path, text, strlen(text), NULL);
    free(text);
    json_decref(all);
}

static bool is_refuted(const pj_power_sampler *s, uint32_t rail)
{
    const pj_poll *p = &s->polls[rail];
    int64_t kept_ns = s->contacts[rail].cost_ns;
    bool is_dearer = pj_cost_is_high(p->rail, p->cost_ns) && !pj_cost_is_high(p->rail, kept_ns);
    return p->is_refuted || (kept_ns > 0 && is_dearer && p->cost_ns / COST_FAR_OFF > kept_ns);
}

/* The value of a counter that stands still is not at hand: what is cached of it stays. */
void pj_characterise_keep(const pj_power_sampler *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (is_refuted(s, i)) {
            cache_forget(s);
            return;
        }
    traits t[PJ_MAX_RAILS];
    bool learnt = false, complete = !s->dead;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        const pj_rail *rail = &s->rails[i];
        t[i] = (traits){.period_ns = rail->period_ns,
                        .grid_ns = s->polls[i].grid.period_ns,
                        .contact = s->contacts[i],
                        .watched_s = pj_clock_wall_ns() / PJ_NS_PER_S,
                        .still = NAN};
        learnt = learnt || (t[i].grid_ns > 0 && rail->grid_ns == 0);
        complete = complete && is_complete(rail, &t[i]) && t[i].contact.cost_ns > 0;
    }
    if (learnt && complete) cache_write(s, t);
}
