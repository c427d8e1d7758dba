/* Opens and closes sessions, measures idle baselines, and chooses the spool folder. */
#include "record/session.h"

#include "attribution/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/sized.h"
#include "record/environment.h"
#include "trace/recorder.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN_COST_ROUNDS = 128, DISPLACING_BYTES = 512 << 10 };
/* A listening after a run that is at least this many times as long costs little. */
enum { SHORT_RUNS = 20 };
/* Idle power that is known is only looked at, for this long or four updates of the slowest rail. */
static const int64_t LOOK_NS = 100 * PJ_NS_PER_MS;
/* What was seen so shortly before a run's end needs no look after it. */
static const int64_t JUST_SEEN_NS = 250 * PJ_NS_PER_MS;
/* 1 sigma of idle power that nobody looked at again, relative to it. */
static const double ASSUMED_DRIFT = 0.1;
/* Opening waits briefly for leftover spools, so that small ones are done before the first run;
 * longer work is done in the background between runs. */
enum { RECOVERY_AT_OPENING_MS = 300, RECOVERY_AT_CLOSING_MS = 1000 };

/* ---- cost of recording ---------------------------------------------------------------------- */

static void drop_record(void *context, const pj_record *record)
{
    (void)context;
    (void)record;
}

/* Between a program's spans its own data fill the caches: what recording touches has to come back,
 * and what it displaces has to as well. */
static void displace_caches(const volatile char *other)
{
    for (size_t i = 0; i < DISPLACING_BYTES; i += 64) (void)other[i];
}

/* Nanoseconds per begin and end of a span on this machine, with cold caches: the unit cost of a
 * run's spans. The ninth decile, so that what is stated is a bound rather than an estimate. */
static int64_t measure_span_cost(void)
{
    pj_recorder recorder;
    double ns[SPAN_COST_ROUNDS];
    char *other = pj_alloc(DISPLACING_BYTES, 1);
    if (!other) return 0;
    if (pj_recorder_init(&recorder, PJ_DEPTH_DEEP, 1 << 20, NULL) != PJ_OK) {
        pj_free(other);
        return 0;
    }
    pj_lane *lane = pj_recorder_lane(&recorder);
    for (int i = 0; lane && i < SPAN_COST_ROUNDS; i++) {
        displace_caches(other);
        int64_t begin_ns = pj_clock_ns();
        pj_span_begin(lane, PJ_SPAN_OPERATION, 1);
        pj_span_end(lane, NULL);
        ns[i] = (double)(pj_clock_ns() - begin_ns);
    }
    pj_recorder_drain(&recorder, drop_record, NULL);
    pj_recorder_fini(&recorder);
    pj_free(other);
    pj_sort_doubles(ns, SPAN_COST_ROUNDS);
    return lane ? (int64_t)ns[SPAN_COST_ROUNDS * 9 / 10] : 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Without a folder, a run's events are kept in memory until it ends, with a warning that a kill
 * would lose them. */
static void choose_spool_dir(pj_session *session, const pj_session_options *options)
{
    pj_spool_dirs dirs;
    pj_error err = {0};
    const char *dir = options->spool_dir;
    pj_spool_dirs_of(pj_store_path(session->store), &dirs);
    bool made = dir ? pj_dir_make(dir, &err) == PJ_OK : pj_spool_dir_make(&dirs, &dir, &err);
    if (made) session->spool_dir = pj_strdup(dir);
    if (made && dirs.path[1][0] && strcmp(dir, dirs.path[1]) != 0)
        session->other_dir = pj_strdup(dirs.path[1]);
    if (!session->spool_dir)
        snprintf(
            session->warning, sizeof session->warning,
            "runs are kept in memory until they end and would be lost if the process were killed: %.400s",
            err.text);
}

static pj_status session_open_store(pj_session *session, const pj_session_options *options,
                                    pj_error *err)
{
    const char *named = options->database ? options->database : getenv("PERJOULE_DB");
    if (named && strcmp(named, "none") == 0) return PJ_OK; /* stores nothing */
    pj_store_options store = {.path = options->database, .may_be_away = true};
    pj_status status = pj_store_open(&store, &session->store, err);
    if (status == PJ_OK) choose_spool_dir(session, options);
    return status;
}

static pj_status open_meter(pj_session *session, const pj_session_options *options, pj_error *err)
{
    if (strcmp(session->power_requested, "none") == 0) return PJ_OK;
    uint32_t rails = 0;
    pj_power_env_get(&session->power_env);
    session->power_env.interval_ns = options->interval_ns;
    session->conditions = pj_conditions_open(&session->power_env);
    session->traffic = pj_memory_traffic_open(&session->power_env);
    pj_status status = pj_meter_open(
        &(pj_meter_options){.sources = session->power_requested, .env = &session->power_env},
        &session->meter, err);
    if (status == PJ_OK) pj_meter_rails(session->meter, &rails);
    if (!rails) return status;
    int rule = options->share_rule ? pj_share_rule_parse(options->share_rule) : PJ_SHARE_EQUAL;
    session->hub = pj_reading_hub_new(session->meter, (pj_share_rule)rule);
    return session->hub ? PJ_OK : pj_fail_memory(err, "a session");
}

static pj_status session_check_options(const pj_session_options *from, pj_session_options *options,
                                       pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_session_options, baseline_seconds) + sizeof(double) };
    pj_status status = PJ_SIZED_READ(pj_session_options, options, from, SIZE_0_1, err);
    if (status == PJ_OK && options->interval_ns < 0)
        status = pj_fail(err, PJ_E_INVALID, "the sampling interval is negative: %lld ns",
                         (long long)options->interval_ns);
    if (status == PJ_OK && !(options->baseline_seconds < PJ_MAX_BASELINE_SECONDS))
        status = pj_fail(err, PJ_E_INVALID, "baseline_seconds must be below %d, not %g",
                         PJ_MAX_BASELINE_SECONDS, options->baseline_seconds);
    if (status == PJ_OK && options->share_rule && pj_share_rule_parse(options->share_rule) < 0)
        status = pj_fail(err, PJ_E_INVALID, "share_rule must be equal or weight, not %.40s",
                         options->share_rule);
    return status;
}

/* How long to listen for callers that do not say: PERJOULE_BASELINE seconds, or one second where
 * nothing is known from the last minute. */
static double default_baseline_seconds(bool *may_keep)
{
    double seconds = pj_environment_baseline_seconds();
    *may_keep = isnan(seconds);
    return isnan(seconds) ? 1 : seconds;
}

pj_status pj_session_open(const pj_session_options *from, pj_session **out, pj_error *err)
{
    uint32_t rail_count = 0;
    pj_session_options checked, *options = &checked;
    if (!out) return pj_fail(err, PJ_E_INVALID, "pj_session_open: session is NULL");
    *out = NULL;
    pj_status checking = session_check_options(from, &checked, err);
    if (checking == PJ_OK) checking = pj_environment_check(err);
    if (checking != PJ_OK) return checking;
    pj_session *session = pj_alloc(1, sizeof *session);
    if (!session) return pj_fail_memory(err, "a session");
    pthread_mutex_init(&session->mutex, NULL);
    pthread_cond_init(&session->run_gone, NULL);
    pthread_mutex_init(&session->store_mutex, NULL);
    pthread_mutex_init(&session->conditions_mutex, NULL);
    pj_arena_init(&session->arena, 0);
    const char *power = options->power ? options->power : pj_power_default();
    session->power_requested = pj_arena_strndup(&session->arena, power, strlen(power));
    double seconds = options->baseline_seconds;
    if (seconds == 0) seconds = default_baseline_seconds(&session->keeps_idle);
    session->baseline_ns = seconds > 0 ? (int64_t)(seconds * 1e9) : 0;
    pj_status status = session->power_requested ? session_open_store(session, options, err)
                                                : pj_fail_memory(err, "a session");
    if (status == PJ_OK) status = open_meter(session, options, err);
    if (status != PJ_OK) goto fail;
    const pj_rail *rails = session->meter ? pj_meter_rails(session->meter, &rail_count) : NULL;
    status = pj_machine_read(session->power_env.procfs_root ? session->power_env.procfs_root : "",
                             rails, rail_count, &session->arena, &session->machine, err);
    if (status != PJ_OK) goto fail;
    session->span_cost_ns = measure_span_cost();
    if (session->store) session->recovery = pj_recovery_start(pj_store_path(session->store));
    pj_recovery_wait(session->recovery, RECOVERY_AT_OPENING_MS * PJ_NS_PER_MS);
    status = pj_session_baseline(session, PJ_BASELINE_COLD, err);
    if (status != PJ_OK) goto fail;
    *out = session;
    return PJ_OK;
fail:
    pj_session_close(session);
    return status;
}

void pj_session_close(pj_session *session)
{
    if (!session) return;
    if (session->interrupt) session->interrupt(session);
    while (session->open_windows) session->drop_window(session->open_windows);
    if (!session->hurried)
        pj_recovery_wait(session->recovery, RECOVERY_AT_CLOSING_MS * PJ_NS_PER_MS);
    pj_recovery_close(session->recovery);
    pj_conditions_close(session->conditions);
    pj_memory_traffic_close(session->traffic);
    pj_reading_hub_free(session->hub);
    pj_meter_close(session->meter);
    pj_store_close(session->store);
    pj_free(session->calibration);
    pj_owner_close(&session->owner);
    pj_free(session->spool_dir);
    pj_free(session->other_dir);
    pj_arena_fini(&session->arena);
    pthread_mutex_destroy(&session->conditions_mutex);
    pthread_mutex_destroy(&session->store_mutex);
    pthread_cond_destroy(&session->run_gone);
    pthread_mutex_destroy(&session->mutex);
    pj_free(session);
}

pj_status pj_session_owner(pj_session *session, const char **id, pj_error *err)
{
    pj_status status = PJ_OK;
    *id = NULL;
    if (!session->spool_dir) return PJ_OK;
    pthread_mutex_lock(&session->mutex);
    if (!session->owner.id[0]) status = pj_owner_open(&session->owner, session->spool_dir, err);
    pthread_mutex_unlock(&session->mutex);
    if (status == PJ_OK) *id = session->owner.id;
    return status;
}

bool pj_session_knows_owner(const pj_session *session, const char *id)
{
    return id[0] && pj_owner_is_alive(session->spool_dir, id);
}

pj_status pj_session_add_sink(pj_session *session, const pj_live_sink *sink, pj_error *err)
{
    return pj_live_sinks_add(&session->sinks, sink, err);
}

/* ---- idle power ---------------------------------------------------------------------------- */

/* Power measured while a GPU was busy with other work is not idle power. */
static void note_busy_gpus(pj_session *session, pj_baseline *baseline)
{
    pj_condition rows[PJ_CONDITION_DEVICES];
    uint32_t rail_count;
    const pj_rail *rails = pj_meter_rails(session->meter, &rail_count);
    if (!session->conditions) return;
    pthread_mutex_lock(&session->conditions_mutex);
    uint32_t count = pj_conditions_read(session->conditions, rows);
    pthread_mutex_unlock(&session->conditions_mutex);
    for (uint32_t i = 0; i < count; i++)
        pj_baseline_note_gpu(baseline, rails, rows[i].device, rows[i].utilisation);
}

/* After a run the user already has the answer, so it takes half the time, or three updates. */
static int64_t listening_ns(const pj_session *session, bool first)
{
    int64_t half = session->baseline_ns / 2, least = 3 * pj_meter_period_ns(session->meter);
    if (first || least > session->baseline_ns) return session->baseline_ns;
    return half > least ? half : least;
}

/* Whether the idle power of a rail that was known is not known any more. */
static bool lost_a_rail(const pj_baseline *before, const pj_baseline *now, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (isnan(now->mw[i]) && i < before->rail_count && !isnan(before->mw[i])) return true;
    return false;
}

static void (*on_listen)(double seconds);

void pj_session_on_listen(void (*notice)(double seconds))
{
    on_listen = notice;
}

/* Starts the meter and listens, which takes as long as it says. */
static pj_status listen_for(pj_session *session, int64_t duration_ns, bool first,
                            pj_baseline *baseline, pj_error *err)
{
    uint32_t count = 0;
    const pj_baseline before = *baseline;
    pj_meter_rails(session->meter, &count);
    pj_status status = pj_meter_start(session->meter, err);
    if (status != PJ_OK) return status;
    if (on_listen) on_listen((double)duration_ns / PJ_NS_PER_S);
    pj_recovery_pause(session->recovery);
    pj_meter_set_activity(session->meter, 0);
    if (!first) pj_clock_sleep_until(pj_clock_ns() + pj_meter_memory_ns(session->meter));
    status = pj_meter_baseline(session->meter, duration_ns, baseline, err);
    /* a counter whose tick was looked for meanwhile is read by now */
    if (status == PJ_OK && !first && lost_a_rail(&before, baseline, count))
        status = pj_meter_baseline(session->meter, session->baseline_ns, baseline, err);
    if (status == PJ_OK) note_busy_gpus(session, baseline);
    pj_recovery_resume(session->recovery);
    pj_meter_stop(session->meter);
    if (on_listen) on_listen(0);
    return status;
}

/* Whether idle power still is what it was, as a short look tells. False, too, where another run is
 * open, or where listening would take no longer. */
static bool idle_holds(pj_session *session, bool first, const pj_baseline *known, pj_baseline *seen)
{
    int64_t updates = 4 * pj_meter_period_ns(session->meter);
    int64_t look_ns = LOOK_NS > updates ? LOOK_NS : updates;
    *seen = *known;
    if (look_ns >= session->baseline_ns || pj_reading_hub_is_used(session->hub) ||
        listen_for(session, look_ns, first, seen, NULL) != PJ_OK)
        return false;
    return seen->quiet && pj_baseline_moved(known, seen) < 0;
}

static bool is_listened_to(const pj_session *session)
{
    return !pj_meter_is_recorded(session->meter) && !pj_meter_is_simulated(session->meter);
}

/* Idle power from the last minute, if it still holds. */
static bool idle_is_kept(pj_session *session, pj_baseline *baseline)
{
    pj_baseline seen;
    return session->keeps_idle && pj_baseline_kept(session->meter, PJ_IDLE_KEPT_NS, baseline) &&
           idle_holds(session, true, baseline, &seen);
}

pj_status pj_session_baseline(pj_session *session, pj_baseline_kind kind, pj_error *err)
{
    uint32_t count = 0;
    bool cold = kind == PJ_BASELINE_COLD;
    bool first = cold && !session->has_cold;
    pj_status status = PJ_OK;
    if (session->meter) pj_meter_rails(session->meter, &count);
    if (!count || !session->baseline_ns || pj_reading_hub_is_used(session->hub)) return PJ_OK;
    pj_baseline *baseline = cold ? &session->cold : &session->resident;
    /* what is recorded after a run is not known to be idle */
    if (!first && pj_meter_is_recorded(session->meter)) return PJ_OK;
    if (!is_listened_to(session)) {
        status = pj_meter_baseline_at_once(session->meter, session->baseline_ns, baseline, err);
    } else if (!first || !idle_is_kept(session, baseline)) {
        status = listen_for(session, listening_ns(session, first), first, baseline, err);
        if (status == PJ_OK && session->keeps_idle) pj_baseline_keep(session->meter, baseline);
    }
    if (status != PJ_OK) return status;
    *(cold ? &session->has_cold : &session->has_resident) = true;
    session->idle_seen_ns = pj_clock_ns();
    return PJ_OK;
}

bool pj_session_idle_stands(pj_session *session, int64_t begin_ns, int64_t end_ns,
                            pj_baseline *seen)
{
    const pj_baseline *idle = pj_session_idle(session);
    bool is_short = end_ns - begin_ns < SHORT_RUNS * listening_ns(session, false);
    seen->rail_count = 0;
    if (!session->keeps_idle || !is_short || !idle || !idle->quiet ||
        pj_clock_ns() - idle->end_ns > PJ_IDLE_KEPT_NS)
        return false;
    if (!session->listens_after || !is_listened_to(session)) return true;
    *seen = *idle;
    if (end_ns - session->idle_seen_ns <= JUST_SEEN_NS) return true;
    if (!idle_holds(session, false, idle, seen)) return false;
    session->idle_seen_ns = pj_clock_ns();
    return true;
}

const pj_baseline *pj_session_idle(const pj_session *session)
{
    if (session->has_resident && (session->resident.quiet || !session->has_cold))
        return &session->resident;
    return session->has_cold ? &session->cold : NULL;
}

bool pj_session_idle_assumed(const pj_session *session, pj_baseline *idle)
{
    const pj_baseline *known = pj_session_idle(session);
    if (!known) return false;
    *idle = *known;
    if (pj_meter_is_simulated(session->meter)) return true;
    for (uint32_t i = 0; i < idle->rail_count; i++)
        idle->sd_mw[i] = hypot(idle->sd_mw[i], ASSUMED_DRIFT * idle->mw[i]);
    return true;
}

/* ---- leftovers ----------------------------------------------------------------------------- */

pj_status pj_run_data_of_spool(const char *path, pj_run_data *data, pj_error *err)
{
    pj_spool_reader reader;
    *data = (pj_run_data){0};
    pj_status status = pj_spool_reader_open(path, &reader, err);
    if (status != PJ_OK) return status;
    status = pj_build_run(&reader, &(pj_build_options){0}, data, err);
    if (status != PJ_OK) pj_error_prefix(err, "%s", path);
    pj_spool_reader_close(&reader);
    return status;
}

pj_recovery_state pj_session_settle(pj_session *session, int64_t ns)
{
    return pj_recovery_wait(session->recovery, ns);
}
