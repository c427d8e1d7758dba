/* The start of a run: spool, sensors, collector, in an order that keeps the preparation out of the
 * recording. The strings of its facts are in its arena. */
#include "record/run_parts.h"

#include "base/clock.h"
#include "base/sized.h"
#include "record/environment.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void meter_event(void *context, const pj_meter_event *event)
{
    pj_run *run = context;
    char text[PJ_ERROR_TEXT_BYTES];
    pj_meter_event_text(run->session->meter, event, text, sizeof text);
    pj_run_warn(run, pj_meter_event_code(event->kind), "%s", text);
}

static void take_conditions(void *context, const pj_condition *rows, uint32_t count)
{
    pj_run *run = context;
    pj_spool_writer w = pj_run_lock_spool(run, NULL);
    pj_spool_put(&w, PJ_RECORD_CONDITIONS, rows, count * sizeof *rows);
    pj_run_unlock_spool(run, &w);
}

/* ---- start --------------------------------------------------------------------------------- */

static pj_status copy_options(pj_run *run, const pj_run_options *o, pj_error *err)
{
    pj_run_info *info = &run->info;
    bool failed = false;
    uint32_t tags = 0;
    info->prompt = pj_run_keep_text(run, o->prompt, &failed);
    info->model_name = pj_run_keep_text(run, o->model_name, &failed);
    info->model_path = pj_run_keep_text(run, o->model_path, &failed);
    info->engine = pj_run_keep_text(run, o->engine ? o->engine : "custom", &failed);
    info->experiment_name = pj_run_keep_text(run, o->experiment_name, &failed);
    info->scope = "machine";
    if (o->settings_json && !pj_run_is_json_object(o->settings_json))
        return pj_fail(err, PJ_E_INVALID, "settings_json is not a JSON object");
    info->settings_json = pj_run_keep_text(run, o->settings_json, &failed);
    while (o->tags && o->tags[tags]) tags++;
    const char **list = pj_arena_alloc(&run->arena, tags + 2, sizeof *list);
    for (uint32_t i = 0; list && i < tags; i++)
        list[i] = pj_run_keep_text(run, o->tags[i], &failed);
    const char *task = pj_environment_session(o->tags, tags);
    char session[sizeof PJ_TAG_SESSION + PJ_SESSION_ID_MAX];
    snprintf(session, sizeof session, PJ_TAG_SESSION "%s", task ? task : "");
    if (list && task) list[tags++] = pj_run_keep_text(run, session, &failed);
    info->tags = list;
    info->tag_count = tags;
    info->depth = o->depth;
    info->batch_size = o->batch_size ? o->batch_size : 1;
    return failed || !list ? pj_fail_memory(err, "a run") : PJ_OK;
}

/* With the settings of simulated sensors in its spool, a killed run has its energy, too. */
static const char *simulation_of(pj_run *run)
{
    pj_power_list list;
    bool failed = false;
    if (pj_power_list_parse(run->session->power_requested, &list, NULL) != PJ_OK) return NULL;
    for (uint32_t i = 0; i < list.count; i++)
        if (strcmp(list.choices[i].source->name, "sim") == 0)
            return pj_run_keep_text(run, list.choices[i].argument, &failed);
    return NULL;
}

static void describe_power(pj_run *run)
{
    const pj_session *s = run->session;
    pj_run_info *info = &run->info;
    uint32_t count = 0;
    info->machine = s->machine.name;
    info->machine_json = s->machine.json;
    if (!s->meter || !pj_meter_rails(s->meter, &count) || !count) return;
    info->quality = pj_meter_quality(s->meter);
    info->power_sources = pj_meter_sources(s->meter);
    if (pj_meter_sim(s->meter)) info->simulation = simulation_of(run);
    if (*pj_meter_unread(s->meter)) info->partial_rails = pj_meter_unread(s->meter);
    pj_run_describe_baselines(run);
}

/* A total requires a rail that is known to be a CPU, a GPU or memory. */
static void warn_without_total(pj_run *run)
{
    char names[256];
    uint32_t count = 0;
    const pj_rail *rails = pj_meter_rails(run->session->meter, &count);
    for (uint32_t r = 0; r < count; r++)
        if (pj_rail_in_column(rails, count, r, PJ_RAIL_TOTAL)) return;
    pj_rail_names(rails, count, UINT64_MAX, names, sizeof names);
    pj_run_warn(run, "power_unavailable",
                "energy is unavailable: none of the measured rails (%s) is known to be a "
                "CPU, a GPU or memory. Timing and statistics are complete",
                names);
}

static void run_warn_about_power(pj_run *run)
{
    const pj_session *s = run->session;
    if (!s->meter) return; /* not requested */
    if (run->info.quality != PJ_UNAVAILABLE) {
        warn_without_total(run);
        return;
    }
    pj_run_warn(run, "power_unavailable",
                "energy is unavailable: %s Timing and statistics are complete",
                pj_meter_remedy(s->meter));
}

static void warn_about_baseline(pj_run *run)
{
    char text[256];
    const pj_baseline *idle = pj_session_idle(run->session);
    if (run->session->meter && idle && pj_baseline_text(idle, text, sizeof text))
        pj_run_warn(run, "baseline_busy", "%s", text);
}

/* The meter's counters continue from run to run. */
static uint64_t missed_so_far(const pj_meter *meter)
{
    pj_meter_cost cost;
    pj_meter_get_cost(meter, &cost);
    return cost.missed + cost.lost;
}

/* Joins the reading hub and waits for a first value of each rail, so that the curve covers the run
 * from its start. */
static void start_metering(pj_run *run)
{
    pj_session *s = run->session;
    pj_error err = {0};
    uint32_t count = 0, seen = 0;
    if (s->meter) pj_meter_rails(s->meter, &count);
    if (!count) return;
    if (pj_reading_hub_join(s->hub, &run->subscriber, &err) != PJ_OK) {
        pj_run_warn(run, "power_unavailable", "energy is unavailable: %s", err.text);
        run->info.quality = PJ_UNAVAILABLE;
        return;
    }
    run->metering = true;
    run->missed_before = missed_so_far(s->meter);
    bool has[PJ_MAX_RAILS] = {false};
    int64_t began_ns = pj_clock_ns(), patience_ns = pj_reading_hub_first_wait_ns(s->hub);
    while (seen < count && pj_clock_ns() - began_ns < patience_ns) {
        pj_reading readings[64];
        pj_reading_hub_pull(s->hub);
        size_t n = pj_ring_read(&run->subscriber.readings, readings, 64);
        if (n == 0) pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
        for (size_t i = 0; i < n; i++)
            if (readings[i].rail < count && readings[i].after_ns >= began_ns &&
                !isnan(readings[i].value) && !has[readings[i].rail]) {
                has[readings[i].rail] = true;
                seen++;
            }
        if (n)
            pj_spool_append(&run->spool, PJ_RECORD_READINGS, readings, n * sizeof *readings, NULL);
    }
}

/* 0: out of memory. */
static int64_t start_time(pj_run *run, double weight)
{
    if (!run->metering) return pj_clock_ns();
    return pj_reading_hub_begin(run->session->hub, &run->subscriber, weight > 0 ? weight : 1);
}

static void announce_run(pj_run *run)
{
    const pj_live_sink *sink = &run->session->sinks.all;
    if (run->is_announced || !sink->run_begin) return;
    run->is_announced = true;
    pj_live_run live = pj_run_live(run);
    sink->run_begin(sink->context, &live);
}

static pj_run *first_unended(const pj_session *s)
{
    pj_run *run = s->open_runs;
    while (run && run->is_ending) run = run->next_open;
    return run;
}

/* A run that another thread is ending keeps the status with which it ends. */
static void interrupt(pj_session *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->open_runs) {
        pj_run *run = first_unended(s);
        if (run) {
            pthread_mutex_unlock(&s->mutex);
            pj_run_end(run, PJ_RUN_INTERRUPTED, NULL, NULL);
            pthread_mutex_lock(&s->mutex);
        } else
            pthread_cond_wait(&s->run_gone, &s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* Recovery of leftovers consumes power, so it pauses while anything is recorded. */
static void remember_open(pj_run *run)
{
    pj_session *s = run->session;
    pthread_mutex_lock(&s->mutex);
    run->next_open = s->open_runs;
    s->open_runs = run;
    s->open_run_count++;
    s->interrupt = interrupt;
    pthread_mutex_unlock(&s->mutex);
    pj_recovery_pause(s->recovery);
}

static pj_status run_new(pj_session *session, pj_run **out, pj_error *err)
{
    pj_run *run = pj_alloc(1, sizeof *run);
    if (!run) return pj_fail_memory(err, "a run");
    run->session = session;
    run->spool.fd = -1;
    remember_open(run);
    pthread_mutex_init(&run->spool_mutex, NULL);
    pj_arena_init(&run->arena, 0);
    *out = run;
    return PJ_OK;
}

/* A run without a spool file is recorded in memory; `no_file` is the reason. */
static pj_status run_open_spool(pj_run *run, pj_error *no_file, pj_error *err)
{
    const pj_session *session = run->session;
    int64_t now_ns = pj_clock_ns(), wall_ns = run->info.created_wall_ns;
    if (session->spool_dir) pj_spool_reserve(session->spool_dir);
    if (session->spool_dir && pj_spool_create(session->spool_dir, run->info.id, now_ns, wall_ns,
                                              &run->spool, no_file) == PJ_OK)
        return PJ_OK;
    return pj_spool_create(NULL, run->info.id, now_ns, wall_ns, &run->spool, err);
}

/* Time 0 of the run on both clocks. */
static void set_origin(pj_run *run)
{
    int64_t since_ns = pj_clock_ns() - run->start_ns;
    if (!run->start_ns) return;
    run->info.created_wall_ns = pj_clock_wall_ns() - since_ns;
    run->info.monotonic_ms = (double)run->start_ns / 1e6;
}

bool pj_run_is_weight(double weight)
{
    return weight >= 0 && weight < 1e12;
}

static pj_status run_check_options(const pj_run_options *from, pj_run_options *options,
                                   pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_run_options, settings_json) + sizeof(const char *) };
    pj_status status = PJ_SIZED_READ(pj_run_options, options, from, SIZE_0_1, err);
    if (status == PJ_OK && (unsigned)options->depth > PJ_DEPTH_DEEP)
        status = pj_fail(err, PJ_E_INVALID,
                         "invalid depth %d: use PJ_DEPTH_OFF, PJ_DEPTH_MODULE or PJ_DEPTH_DEEP",
                         (int)options->depth);
    if (status == PJ_OK && !pj_run_is_weight(options->weight))
        status = pj_fail(err, PJ_E_INVALID, "weight must be at least 0 and below 1e12, not %g",
                         options->weight);
    return status;
}

static void take_id(pj_run *run)
{
    pj_session *session = run->session;
    pthread_mutex_lock(&session->mutex);
    if (session->next_run_id[0])
        memcpy(run->info.id, session->next_run_id, sizeof run->info.id);
    else
        pj_uuid7(run->info.id);
    session->next_run_id[0] = 0;
    pthread_mutex_unlock(&session->mutex);
}

/* Smaller rings for servers with hundreds of open runs, which record only phases and tokens; 0: the
 * default. */
static uint32_t lane_bytes(pj_depth depth)
{
    return depth == PJ_DEPTH_OFF ? 1 << 20 : 0;
}

pj_status pj_run_begin(pj_session *session, const pj_run_options *from, pj_run **out, pj_error *err)
{
    pj_run *run = NULL;
    pj_error no_file = {0};
    pj_run_options checked, *options = &checked;
    if (!out) return pj_fail(err, PJ_E_INVALID, "pj_run_begin: run is NULL");
    *out = NULL;
    if (!session) return pj_fail(err, PJ_E_INVALID, "pj_run_begin: session is NULL");
    pj_status status = run_check_options(from, &checked, err);
    if (status != PJ_OK) return status;
    status = run_new(session, &run, err);
    if (!run) return status;
    pj_run_info_init(&run->info);
    run->info.cached_tokens = 0;
    run->info.created_wall_ns = pj_clock_wall_ns();
    take_id(run);
    status = copy_options(run, options, err);
    if (status == PJ_OK)
        status = pj_recorder_init(&run->recorder, options->depth, lane_bytes(options->depth), err);
    describe_power(run);
    if (status == PJ_OK) status = run_open_spool(run, &no_file, err);
    if (status == PJ_OK) status = pj_run_append_info(run, err);
    if (status == PJ_OK && session->meter) status = pj_run_append_rails(run, err);
    if (status == PJ_OK) status = pj_spool_flush(&run->spool, err);
    if (status != PJ_OK) goto fail;
    if (no_file.text[0])
        pj_run_warn(run, "spool_failed", "%s; this run would be lost if the process were killed",
                    no_file.text);
    run_warn_about_power(run);
    warn_about_baseline(run);
    pj_recorder_lane(&run->recorder); /* touches the caller's lane before the run's time starts */
    start_metering(run);
    run->start_ns = start_time(run, options->weight);
    run->recorder.begun_ns = run->start_ns; /* spans with explicit times are clipped to it */
    set_origin(run);
    if (!run->start_ns) {
        status = pj_fail_memory(err, "a run");
        goto fail;
    }
    run->start_cpu_ns = pj_clock_process_cpu_ns();
    run->counts = pj_machine_counts_get(session);
    status = pj_run_append_info(run, err);
    if (status != PJ_OK) goto fail;
    if (session->sinks.count) {
        status = pj_live_feed_open(&session->sinks.all, run->info.id, run->start_ns,
                                   run->metering ? session->meter : NULL, &run->feed, err);
        if (status != PJ_OK) goto fail;
    }
    run->collector = (pj_collector){.recorder = &run->recorder,
                                    .hub = run->metering ? session->hub : NULL,
                                    .subscriber = &run->subscriber,
                                    .feed = run->feed,
                                    .load = &run->load,
                                    .spool_mutex = &run->spool_mutex,
                                    .spool = &run->spool,
                                    .on_event = meter_event,
                                    .on_spool_error = pj_run_spool_error,
                                    .context = run};
    status = pj_collector_start(&run->collector, err);
    if (status != PJ_OK) goto fail;
    run->watcher = (pj_watcher){.conditions = session->conditions,
                                .mutex = &session->conditions_mutex,
                                .take = take_conditions,
                                .context = run};
    pj_watcher_start(&run->watcher);
    announce_run(run);
    *out = run;
    return PJ_OK;
fail:
    pj_run_free(run, true);
    return status;
}

/* ---- during the run ------------------------------------------------------------------------- */

const char *pj_run_id(const pj_run *run)
{
    return run ? run->info.id : "";
}

pj_depth pj_run_depth(const pj_run *run)
{
    return run ? run->info.depth : PJ_DEPTH_OFF;
}

uint32_t pj_run_name(pj_run *run, const char *name)
{
    return run && name ? pj_recorder_name(&run->recorder, name) : 0;
}

pj_lane *pj_run_lane(pj_run *run)
{
    return run ? pj_recorder_lane(&run->recorder) : NULL;
}

pj_lane *pj_run_new_lane(pj_run *run)
{
    return pj_recorder_new_lane(&run->recorder);
}

void pj_run_keeps_model(pj_run *run)
{
    run->model_resident = true;
}

pj_progress *pj_run_load_progress(pj_run *run)
{
    return &run->load;
}
