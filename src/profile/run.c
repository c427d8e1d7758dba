/* One run from start to stored row: spool, collector, sensors, and the order in which they are
 * closed. The strings of its facts are in its arena. */
#include "profile/run.h"

#include "attribution/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sized.h"
#include "profile/calibration.h"
#include "profile/collector.h"
#include "profile/insight.h"
#include "profile/result.h"
#include "profile/watcher.h"
#include "trace/run_json.h"
#include "trace/summary.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SPOOL_WARNINGS = 3 };

struct pj_run {
    pj_session *session;
    pj_run *next_open; /* of the session */
    pj_arena arena;
    pj_run_info info;
    int64_t start_ns, start_cpu_ns; /* monotonic; CPU time of the process */
    uint32_t layer_count;
    pj_recorder recorder;
    pthread_mutex_t spool_mutex; /* guards spool and info against the collector */
    pj_spool spool;
    pj_collector collector;
    pj_live_feed *feed;
    pj_watcher watcher;
    pj_tap tap; /* of the session's gauge */
    bool metering, said_running;
    uint64_t missed_before; /* ticks and readings that earlier runs of the session missed */
    uint32_t spool_failures;
    bool model_resident; /* a model stays in memory after this run */
};

/* ---- small parts --------------------------------------------------------------------------- */

static const char *keep_text(pj_run *run, const char *text, bool *failed)
{
    if (!text) return NULL;
    char *copy = pj_arena_strndup(&run->arena, text, strlen(text));
    if (!copy) *failed = true;
    return copy;
}

/* Appends a JSON record; the caller must hold no lock. */
static pj_status append_json(pj_run *run, pj_record_type type, const pj_buffer *buffer,
                             pj_error *err)
{
    pj_status status = pj_buffer_status(buffer, "a record of the run", err);
    if (status != PJ_OK) return status;
    pthread_mutex_lock(&run->spool_mutex);
    status = pj_spool_append(&run->spool, type, buffer->data, buffer->length, err);
    pthread_mutex_unlock(&run->spool_mutex);
    return status;
}

static pj_status append_info(pj_run *run, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, PJ_RECORD_MAX_BYTES);
    pj_json_init(&json, &buffer);
    pj_run_info_write(&json, &run->info, run->start_ns);
    pj_json_finish(&json);
    pj_status status = append_json(run, PJ_RECORD_INFO, &buffer, err);
    pj_buffer_fini(&buffer);
    return status;
}

static pj_status append_rails(pj_run *run, pj_error *err)
{
    uint32_t count;
    const pj_rail *rails = pj_meter_rails(run->session->meter, &count);
    const pj_baseline *idle = pj_session_idle(run->session);
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        pj_buffer buffer;
        pj_json json;
        pj_buffer_init(&buffer, 1 << 16);
        pj_json_init(&json, &buffer);
        bool known = idle && idle->rail_quiet[i]; /* a baseline that includes other load would make
                                                     net figures too low */
        pj_rail_write(&json, i, &rails[i], known ? idle->mw[i] : NAN, known ? idle->sd_mw[i] : NAN);
        pj_json_finish(&json);
        status = append_json(run, PJ_RECORD_RAIL, &buffer, err);
        pj_buffer_fini(&buffer);
    }
    return status;
}

void pj_run_keeps_model(pj_run *run)
{
    run->model_resident = true;
}

void pj_run_warn(pj_run *run, const char *code, const char *format, ...)
{
    char text[PJ_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 16);
    pj_json_init(&json, &buffer);
    pj_warning_write(&json, pj_clock_ns(), code, text);
    pj_json_finish(&json);
    append_json(run, PJ_RECORD_WARNING, &buffer, NULL);
    pj_buffer_fini(&buffer);
    const pj_live_sink *sink = &run->session->sinks.all;
    if (sink->warning) sink->warning(sink->context, run->info.id, code, text);
}

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
    pthread_mutex_lock(&run->spool_mutex);
    pj_spool_append(&run->spool, PJ_RECORD_CONDITIONS, rows, count * sizeof *rows, NULL);
    pthread_mutex_unlock(&run->spool_mutex);
}

static void spool_error(void *context, const pj_error *err)
{
    pj_run *run = context;
    if (run->spool_failures++ >= MOST_SPOOL_WARNINGS) return; /* losses are counted later */
    pj_run_warn(run, "spool_failed", "%s", err->text);
}

/* ---- beginning ----------------------------------------------------------------------------- */

static pj_status copy_options(pj_run *run, const pj_run_options *o, pj_error *err)
{
    pj_run_info *info = &run->info;
    bool failed = false;
    uint32_t tags = 0;
    info->prompt = keep_text(run, o->prompt, &failed);
    info->model_name = keep_text(run, o->model_name, &failed);
    info->model_path = keep_text(run, o->model_path, &failed);
    info->engine = keep_text(run, o->engine ? o->engine : "custom", &failed);
    info->experiment_name = keep_text(run, o->experiment_name, &failed);
    info->scope = "machine";
    if (o->settings_json && !pj_run_is_json_object(o->settings_json))
        return pj_fail(err, PJ_E_INVALID, "settings_json is not a JSON object");
    info->settings_json = keep_text(run, o->settings_json, &failed);
    while (o->tags && o->tags[tags]) tags++;
    const char **list = pj_arena_alloc(&run->arena, tags + 1, sizeof *list);
    for (uint32_t i = 0; list && i < tags; i++) list[i] = keep_text(run, o->tags[i], &failed);
    info->tags = list;
    info->tag_count = tags;
    info->depth = o->depth;
    info->batch_size = o->batch_size ? o->batch_size : 1;
    return failed || !list ? pj_fail_memory(err, "a run") : PJ_OK;
}

static void describe_baselines(pj_run *run)
{
    const pj_session *s = run->session;
    pj_run_info *info = &run->info;
    uint32_t count = 0;
    const pj_rail *rails = pj_meter_rails(s->meter, &count);
    if (s->has_cold)
        info->baseline_cold_mw = pj_rail_column_sum(rails, count, s->cold.mw, PJ_RAIL_TOTAL);
    if (s->has_resident)
        info->baseline_resident_mw =
            pj_rail_column_sum(rails, count, s->resident.mw, PJ_RAIL_TOTAL);
}

static void describe_power(pj_run *run)
{
    const pj_session *s = run->session;
    pj_run_info *info = &run->info;
    const pj_rail *rails;
    uint32_t count = 0;
    info->baseline_cold_mw = info->baseline_resident_mw = NAN;
    info->sampler_cpu_share = info->sampler_jitter_us = NAN;
    info->overhead_ms = info->overhead_share = info->statistics_ms = NAN;
    info->machine = s->machine.name;
    info->machine_json = s->machine.json;
    if (!s->meter || !(rails = pj_meter_rails(s->meter, &count)) || !count) return;
    info->quality = pj_meter_quality(s->meter);
    info->power_sources = pj_meter_sources(s->meter);
    if (*pj_meter_unread(s->meter)) info->partial_rails = pj_meter_unread(s->meter);
    describe_baselines(run);
}

static void warn_about_power(pj_run *run)
{
    const pj_session *s = run->session;
    if (!s->meter || run->info.quality != PJ_UNAVAILABLE)
        return; /* none was requested, or it works */
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

/* Joins the gauge and waits for a first value of each rail, so that the curve covers the run from
 * its start: two periods and the delay, at most a second. */
static void start_metering(pj_run *run)
{
    pj_session *s = run->session;
    pj_error err = {0};
    uint32_t count = 0, seen = 0;
    const pj_rail *rails = s->meter ? pj_meter_rails(s->meter, &count) : NULL;
    if (!count) return;
    if (pj_gauge_join(s->gauge, &run->tap, &err) != PJ_OK) {
        pj_run_warn(run, "power_unavailable", "energy is unavailable: %s", err.text);
        run->info.quality = PJ_UNAVAILABLE;
        return;
    }
    run->metering = true;
    run->missed_before = missed_so_far(s->meter);
    bool has[PJ_MAX_RAILS] = {false};
    int64_t began_ns = pj_clock_ns(), patience_ns = 50 * PJ_NS_PER_MS;
    for (uint32_t r = 0; r < count; r++)
        if (patience_ns < 2 * rails[r].period_ns + rails[r].delay_ns)
            patience_ns = 2 * rails[r].period_ns + rails[r].delay_ns;
    if (patience_ns > PJ_NS_PER_S) patience_ns = PJ_NS_PER_S;
    while (seen < count && pj_clock_ns() - began_ns < patience_ns) {
        pj_reading readings[64];
        pj_gauge_pull(s->gauge);
        size_t n = pj_tap_read(&run->tap, readings, 64);
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
    return pj_gauge_begin(run->session->gauge, &run->tap, weight > 0 ? weight : 1);
}

static pj_live_run live_run(const pj_run *run)
{
    return (pj_live_run){.run_id = run->info.id,
                         .model_name = run->info.model_name,
                         .prompt = run->info.prompt,
                         .depth = run->info.depth,
                         .layer_count = run->layer_count};
}

static void say_running(pj_run *run)
{
    const pj_live_sink *sink = &run->session->sinks.all;
    if (run->said_running || !sink->run_begin) return;
    run->said_running = true;
    pj_live_run live = live_run(run);
    sink->run_begin(sink->context, &live);
}

static void say_model(const pj_run *run)
{
    const pj_live_sink *sink = &run->session->sinks.all;
    pj_live_run live = live_run(run);
    if (sink->run_model) sink->run_model(sink->context, &live);
}

static void interrupt(pj_run *run)
{
    pj_run_end(run, PJ_RUN_INTERRUPTED, NULL, NULL);
}

/* The recovery of leftovers consumes power: it rests while anything is recorded. */
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

static void forget_open(pj_run *run)
{
    pj_session *s = run->session;
    pthread_mutex_lock(&s->mutex);
    for (pj_run **at = &s->open_runs; *at; at = &(*at)->next_open)
        if (*at == run) {
            *at = run->next_open;
            break;
        }
    bool was_last = --s->open_run_count == 0;
    if (was_last) pj_recovery_resume(s->recovery);
    pthread_mutex_unlock(&s->mutex);
}

static void run_free(pj_run *run, bool remove_spool)
{
    pj_watcher_stop(&run->watcher);
    pj_collector_stop(&run->collector);
    pj_live_feed_close(run->feed);
    pj_spool_close(&run->spool, remove_spool);
    pj_recorder_fini(&run->recorder);
    pthread_mutex_destroy(&run->spool_mutex);
    pj_arena_fini(&run->arena);
    if (run->session->gauge) pj_tap_fini(run->session->gauge, &run->tap);
    forget_open(run);
    pj_free(run);
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

/* A run without a spool file is recorded in memory; `no_file` then says why. */
static pj_status open_spool(pj_run *run, pj_error *no_file, pj_error *err)
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

static bool is_weight(double weight)
{
    return weight >= 0 && weight < 1e12;
}

static pj_status check_options(const pj_run_options *from, pj_run_options *options, pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_run_options, settings_json) + sizeof(const char *) };
    pj_status status = PJ_SIZED_READ(options, from, SIZE_0_1, err);
    if (status == PJ_OK && (unsigned)options->depth > PJ_DEPTH_DEEP)
        status = pj_fail(err, PJ_E_INVALID, "%d is no depth: use PJ_DEPTH_OFF, MODULE or DEEP",
                         (int)options->depth);
    if (status == PJ_OK && !is_weight(options->weight))
        status = pj_fail(err, PJ_E_INVALID, "a weight of %g is not possible", options->weight);
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
    if (!out) return pj_fail(err, PJ_E_INVALID, "pj_run_begin has no place for the run");
    *out = NULL;
    if (!session) return pj_fail(err, PJ_E_INVALID, "pj_run_begin needs an open session");
    pj_status status = check_options(from, &checked, err);
    if (status != PJ_OK) return status;
    status = run_new(session, &run, err);
    if (!run) return status;
    take_id(run);
    run->info.created_wall_ns = pj_clock_wall_ns();
    run->info.monotonic_ms = NAN;
    status = copy_options(run, options, err);
    if (status == PJ_OK)
        status = pj_recorder_init(&run->recorder, options->depth, lane_bytes(options->depth), err);
    describe_power(run);
    if (status == PJ_OK) status = open_spool(run, &no_file, err);
    if (status == PJ_OK) status = append_info(run, err);
    if (status == PJ_OK && session->meter) status = append_rails(run, err);
    if (status == PJ_OK) status = pj_spool_flush(&run->spool, err);
    if (status != PJ_OK) goto fail;
    if (no_file.text[0])
        pj_run_warn(run, "spool_failed", "%s, so a kill would lose this run", no_file.text);
    warn_about_power(run);
    warn_about_baseline(run);
    pj_recorder_lane(&run->recorder); /* touches the caller's lane before the run's time starts */
    start_metering(run);
    run->start_ns = start_time(run, options->weight);
    set_origin(run);
    if (!run->start_ns) {
        status = pj_fail_memory(err, "a run");
        goto fail;
    }
    run->start_cpu_ns = pj_clock_process_cpu_ns();
    status = append_info(run, err);
    if (status != PJ_OK) goto fail;
    if (session->sinks.count) {
        status = pj_live_feed_open(&session->sinks.all, run->info.id, run->start_ns,
                                   run->metering ? session->meter : NULL, &session->power_env,
                                   &run->feed, err);
        if (status != PJ_OK) goto fail;
    }
    run->collector = (pj_collector){.recorder = &run->recorder,
                                    .gauge = run->metering ? session->gauge : NULL,
                                    .tap = &run->tap,
                                    .feed = run->feed,
                                    .spool_mutex = &run->spool_mutex,
                                    .spool = &run->spool,
                                    .on_event = meter_event,
                                    .on_spool_error = spool_error,
                                    .context = run};
    status = pj_collector_start(&run->collector, err);
    if (status != PJ_OK) goto fail;
    run->watcher = (pj_watcher){.conditions = session->conditions,
                                .mutex = &session->conditions_mutex,
                                .take = take_conditions,
                                .context = run};
    pj_watcher_start(&run->watcher);
    say_running(run);
    *out = run;
    return PJ_OK;
fail:
    run_free(run, true);
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

void pj_run_set_prompts(pj_run *run, const uint32_t *tokens, uint32_t count)
{
    uint32_t *copy = pj_arena_alloc(&run->arena, (size_t)count + 1, sizeof *copy);
    uint64_t sum = 0;
    if (!copy) return; /* shared steps are then split as if lengths were unknown */
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = tokens[i];
        sum += tokens[i];
    }
    pthread_mutex_lock(&run->spool_mutex);
    run->info.prompt_tokens = copy;
    run->info.prompt_count = count;
    run->info.input_tokens = sum;
    pthread_mutex_unlock(&run->spool_mutex);
    append_info(run, NULL);
}

void pj_run_set_tokens(pj_run *run, uint64_t input_tokens, uint64_t output_tokens)
{
    if (!run) return;
    pthread_mutex_lock(&run->spool_mutex);
    /* the largest number that the spool and the database can store */
    run->info.input_tokens = input_tokens < INT64_MAX ? input_tokens : INT64_MAX;
    run->info.output_tokens = output_tokens < INT64_MAX ? output_tokens : INT64_MAX;
    pthread_mutex_unlock(&run->spool_mutex);
    append_info(run, NULL);
}

void pj_run_set_engine(pj_run *run, const char *engine)
{
    bool failed = false;
    const char *kept = keep_text(run, engine, &failed);
    if (!failed) run->info.engine = kept;
    append_info(run, NULL);
}

pj_status pj_run_set_weight(pj_run *run, double weight, pj_error *err)
{
    if (!run) return pj_fail(err, PJ_E_INVALID, "pj_run_set_weight needs an open run");
    if (!is_weight(weight))
        return pj_fail(err, PJ_E_INVALID, "a weight of %g is not possible", weight);
    if (run->metering) pj_gauge_weigh(run->session->gauge, &run->tap, weight);
    return PJ_OK;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !word || !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

pj_status pj_run_describe(pj_run *run, const pj_run_facts *from, pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_run_facts, repeat_index) + sizeof(uint32_t) };
    bool failed = false;
    pj_run_facts checked, *facts = &checked;
    if (!run) return pj_fail(err, PJ_E_INVALID, "pj_run_describe needs an open run");
    pj_status status = PJ_SIZED_READ(&checked, from, SIZE_0_1, err);
    if (status != PJ_OK) return status;
    if (facts->model_json && !pj_run_is_json_object(facts->model_json))
        return pj_fail(err, PJ_E_INVALID, "model_json is not a JSON object");
    if (facts->settings_json && !pj_run_is_json_object(facts->settings_json))
        return pj_fail(err, PJ_E_INVALID, "settings_json is not a JSON object");
    if (facts->batch_rule && pj_batch_rule_parse(facts->batch_rule) < 0)
        return pj_fail(err, PJ_E_INVALID, "batch_rule is bytes, tokens or equal, not %.40s",
                       facts->batch_rule);
    if (!is_one_of(facts->scope, "machine", "process", "request"))
        return pj_fail(err, PJ_E_INVALID, "scope is machine, process or request, not %.40s",
                       facts->scope);
    if (!is_one_of(facts->level, "coarse", "fine", "fine"))
        return pj_fail(err, PJ_E_INVALID, "level is coarse or fine, not %.40s", facts->level);
    pj_run_info *info = &run->info;
    const struct {
        const char *from, **to;
    } texts[] = {{facts->model_name, &info->model_name},
                 {facts->model_path, &info->model_path},
                 {facts->dtype, &info->dtype},
                 {facts->isa, &info->isa},
                 {facts->model_json, &info->model_json},
                 {facts->repeat_group, &info->repeat_group},
                 {facts->settings_json, &info->settings_json},
                 {facts->batch_rule, &info->batch_rule},
                 {facts->scope, &info->scope},
                 {facts->level, &info->level}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].from) *texts[i].to = keep_text(run, texts[i].from, &failed);
    if (facts->threads) info->threads = facts->threads;
    if (facts->layer_count) run->layer_count = facts->layer_count;
    if (facts->repeat_index) info->repeat_index = facts->repeat_index;
    if (failed) return pj_fail_memory(err, "the facts of a run");
    say_model(run);
    return append_info(run, err);
}

pj_status pj_run_set_private(pj_run *run, const char *prompt, const char *output, pj_error *err)
{
    bool failed = false;
    if (prompt) run->info.prompt_private = keep_text(run, prompt, &failed);
    if (output) run->info.output_private = keep_text(run, output, &failed);
    return failed ? pj_fail_memory(err, "the facts of a run") : append_info(run, err);
}

/* ---- ending -------------------------------------------------------------------------------- */

/* CPU time that recording cost: spans at the unit cost measured when the session opened, the time
 * that recording threads spent on statistics, the run's collector, and its part of the sampler,
 * which serves all runs. All of it is part of the process's CPU time, which bounds the estimated
 * parts. */
static void account_overhead(pj_run *run)
{
    pj_recorder_counts counts = pj_recorder_count(&run->recorder);
    pj_run_info *info = &run->info;
    double process_ms = (double)(pj_clock_process_cpu_ns() - run->start_cpu_ns) / 1e6;
    double ms = (double)(counts.spans * (uint64_t)run->session->span_cost_ns) / 1e6 +
                (double)run->collector.cpu_ns / 1e6;
    info->spans_lost = counts.lost;
    if (run->metering) {
        pj_meter_cost cost;
        pj_meter_get_cost(run->session->meter, &cost);
        info->sampler_cpu_share = cost.cpu_share;
        info->sampler_jitter_us = cost.jitter_us;
        info->samples_missed =
            cost.missed + cost.lost - run->missed_before + pj_tap_lost(&run->tap);
        ms += cost.cpu_share * run->tap.sampled_ns / 1e6;
    }
    ms = fmin(ms, process_ms);
    info->statistics_ms = fmin((double)counts.statistics_ns / 1e6, process_ms - ms);
    ms += info->statistics_ms;
    info->overhead_share = process_ms > 0 ? ms / process_ms : NAN;
    info->overhead_ms = ms;
    if (counts.lost)
        pj_run_warn(run, "spans_lost", "%llu spans were lost: the collector could not keep up",
                    (unsigned long long)counts.lost);
    if (counts.misused)
        pj_run_warn(run, "spans_misused", "%llu calls broke the rules of nesting and were dropped",
                    (unsigned long long)counts.misused);
}

/* After a session's first run that loaded its model, measures idle power with the model in memory,
 * which was impossible earlier; net figures of that run use it. */
static void listen_with_model(pj_run *run)
{
    pj_session *s = run->session;
    if (!run->metering || !run->model_resident || s->has_resident) return;
    if (pj_session_baseline(s, PJ_BASELINE_RESIDENT, NULL) != PJ_OK || !s->has_resident) return;
    describe_baselines(run);
    append_rails(run, NULL);
}

static void stop_recording(pj_run *run, pj_run_status status)
{
    pj_recorder_close_open(&run->recorder);
    pj_session *session = run->session;
    int64_t end_ns = run->metering ? pj_gauge_end(session->gauge, &run->tap) : pj_clock_ns();
    if (run->metering) /* until slow sensors have seen the last span */
        pj_clock_sleep_until(end_ns + pj_meter_settle_ns(session->meter));
    pj_watcher_stop(&run->watcher);
    pj_collector_stop(&run->collector);
    if (run->metering) {
        pj_gauge_part(session->gauge, &run->tap, end_ns);
        pj_collector_round(&run->collector); /* readings that arrived until the samplers stopped */
    }
    account_overhead(run);
    listen_with_model(run);
    append_info(run, NULL);
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 12);
    pj_json_init(&json, &buffer);
    pj_run_end_write(&json, end_ns, status);
    pj_json_finish(&json);
    append_json(run, PJ_RECORD_END, &buffer, NULL);
    pj_buffer_fini(&buffer);
    pj_error err = {0};
    if (pj_spool_flush(&run->spool, &err) != PJ_OK) spool_error(run, &err);
}

static pj_status build(pj_run *run, pj_run_data *data, pj_error *err)
{
    pj_spool_reader reader;
    pj_status status = pj_spool_reader_of(&run->spool, &reader, err);
    if (status != PJ_OK) return status;
    const pj_session *session = run->session;
    bool is_shared = run->metering && pj_gauge_is_shared(session->gauge, &run->tap);
    /* Simulated truth is computed from the spans of a single run; with concurrent runs the live
     * readings are used. */
    const pj_sim_spec *sim = session->meter && !is_shared ? pj_meter_sim(session->meter) : NULL;
    pj_build_options options = {.sim = sim,
                                .prior = session->calibration ? pj_calibration_prior : NULL,
                                .context = session->calibration,
                                .observe = session->observe,
                                .observe_context = session->observe_context};
    status = pj_build_run(&reader, &options, data, err);
    if (session->inspect) session->inspect(session->inspect_context, &reader);
    pj_spool_reader_close(&reader);
    return status;
}

static void say_ended(pj_run *run, pj_run_status status, const char *failure,
                      const pj_run_data *data)
{
    const pj_live_sink *sink = &run->session->sinks.all;
    if (!sink->run_end) return;
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, PJ_RECORD_MAX_BYTES);
    pj_json_init(&json, &buffer);
    if (data) pj_summary_write(&json, &data->info, NULL);
    bool whole = pj_json_finish(&json) && data;
    sink->run_end(sink->context, run->info.id,
                  &(pj_live_end){.t_ms = (double)(pj_clock_ns() - run->start_ns) / 1e6,
                                 .status = status,
                                 .summary_json = whole ? pj_buffer_get(&buffer) : NULL,
                                 .error = failure});
    pj_buffer_fini(&buffer);
}

/* Keeps the spool of a run that could not be stored, and reports exactly how much of it is kept. */
static void keep_unstored(pj_run *run, pj_error *err)
{
    pj_spool *spool = &run->spool;
    uint64_t total = pj_spool_bytes(spool);
    const char *other = run->session->other_dir;
    if (other && pj_dir_make(other, NULL) != PJ_OK) other = NULL;
    uint64_t kept = pj_spool_keep(spool, other, run->info.id);
    if (kept == total)
        pj_error_prefix(err,
                        "run %s is not in the database, but all of it is in its spool %s, which is "
                        "stored when the database is next opened and has room",
                        run->info.id, spool->path);
    else if (kept > PJ_SPOOL_HEADER_BYTES)
        pj_error_prefix(err,
                        "run %s is not in the database, and of its %llu bytes of events only the "
                        "first %llu are kept, in %s, which become an interrupted run when the "
                        "database is next opened and has room",
                        run->info.id, (unsigned long long)total, (unsigned long long)kept,
                        spool->path);
    else
        pj_error_prefix(err, "run %s is lost: it could be written nowhere", run->info.id);
}

pj_status pj_run_finish(pj_run *run, pj_run_status run_status, const char *failure,
                        pj_run_data *data, pj_error *err)
{
    *data = (pj_run_data){0};
    if (failure) {
        bool lost = false;
        run->info.failure = keep_text(run, failure, &lost);
        pj_run_warn(run, "run_failed", "%s", failure);
    }
    stop_recording(run, run_status);
    pj_status status = build(run, data, err);
    bool built = status == PJ_OK;
    if (built && run->session->store) {
        pthread_mutex_lock(&run->session->store_mutex);
        status = pj_store_save(run->session->store, data, err);
        if (status == PJ_OK) pj_insight_prepare(run->session->store, run->info.id);
        pthread_mutex_unlock(&run->session->store_mutex);
    }
    bool keep_spool = status != PJ_OK && run->session->store;
    if (keep_spool) keep_unstored(run, err);
    say_ended(run, run_status,
              failure                  ? failure
              : status != PJ_OK && err ? err->text
                                       : NULL,
              built ? data : NULL);
    run_free(run, !keep_spool);
    return status;
}

static pj_status end_with_result(pj_run *run, pj_run_status run_status, const char *failure,
                                 pj_result *result, pj_error *err)
{
    pj_run_data data;
    bool has_store = run && run->session->store;
    pj_status status = PJ_OK;
    if (!run) return pj_fail(err, PJ_E_INVALID, "there is no run to be ended");
    if (result) status = pj_result_check(result, err);
    if (status != PJ_OK) return status;
    char id[PJ_UUID_BYTES];
    memcpy(id, run->info.id, sizeof id);
    status = pj_run_finish(run, run_status, failure, &data, err);
    if (result) pj_result_fill(result, &data, has_store && status == PJ_OK);
    if (result && !result->run_id[0]) { /* it could not be built */
        memcpy(result->run_id, id, sizeof id);
        result->status = run_status;
    }
    pj_run_data_fini(&data);
    return status;
}

pj_status pj_run_end(pj_run *run, pj_run_status run_status, pj_result *result, pj_error *err)
{
    if ((unsigned)run_status > PJ_RUN_INTERRUPTED || run_status == PJ_RUN_RUNNING)
        return pj_fail(
            err, PJ_E_INVALID,
            "a run cannot end with status %d: use PJ_RUN_COMPLETED, FAILED, CANCELLED or "
            "INTERRUPTED",
            (int)run_status);
    return end_with_result(run, run_status, NULL, result, err);
}

pj_status pj_run_fail(pj_run *run, const char *reason, pj_result *result, pj_error *err)
{
    if (!reason || !*reason)
        return pj_fail(err, PJ_E_INVALID, "pj_run_fail needs a sentence that says what failed");
    return end_with_result(run, PJ_RUN_FAILED, reason, result, err);
}
