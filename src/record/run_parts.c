/* Functions shared by the start, the description and the end of a run. */
#include "record/run_parts.h"

#include "base/clock.h"
#include "trace/run_json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SPOOL_WARNINGS = 3 };

const char *pj_run_keep_text(pj_run *run, const char *text, bool *failed)
{
    if (!text) return NULL;
    char *copy = pj_arena_strndup(&run->arena, text, strlen(text));
    if (!copy) *failed = true;
    return copy;
}

pj_status pj_run_append(pj_run *run, pj_record_type type, const pj_buffer *buffer, pj_error *err)
{
    pj_status status = pj_buffer_status(buffer, "a record of the run", err);
    if (status != PJ_OK) return status;
    pthread_mutex_lock(&run->spool_mutex);
    status = pj_spool_append(&run->spool, type, buffer->data, buffer->length, err);
    pthread_mutex_unlock(&run->spool_mutex);
    return status;
}

pj_status pj_run_append_info(pj_run *run, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, PJ_RECORD_MAX_BYTES);
    pj_json_init(&json, &buffer);
    pj_run_info_write(&json, &run->info, run->start_ns);
    pj_json_finish(&json);
    pj_status status = pj_run_append(run, PJ_RECORD_INFO, &buffer, err);
    pj_buffer_fini(&buffer);
    return status;
}

pj_status pj_run_append_rails(pj_run *run, pj_error *err)
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
        status = pj_run_append(run, PJ_RECORD_RAIL, &buffer, err);
        pj_buffer_fini(&buffer);
    }
    return status;
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
    pj_run_append(run, PJ_RECORD_WARNING, &buffer, NULL);
    pj_buffer_fini(&buffer);
    const pj_live_sink *sink = &run->session->sinks.all;
    if (sink->warning) sink->warning(sink->context, run->info.id, code, text);
}

void pj_run_spool_error(void *context, const pj_error *err)
{
    pj_run *run = context;
    if (run->spool_failures++ >= MOST_SPOOL_WARNINGS) return; /* losses are counted later */
    pj_run_warn(run, "spool_failed", "%s", err->text);
}

void pj_run_describe_baselines(pj_run *run)
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

pj_live_run pj_run_live(const pj_run *run)
{
    return (pj_live_run){.run_id = run->info.id,
                         .model_name = run->info.model_name,
                         .prompt = run->info.prompt,
                         .depth = run->info.depth,
                         .layer_count = run->layer_count};
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

void pj_run_free(pj_run *run, bool remove_spool)
{
    pj_watcher_stop(&run->watcher);
    pj_collector_stop(&run->collector);
    pj_live_feed_close(run->feed);
    pj_spool_close(&run->spool, remove_spool);
    pj_recorder_fini(&run->recorder);
    pthread_mutex_destroy(&run->spool_mutex);
    pj_arena_fini(&run->arena);
    if (run->session->hub) pj_subscriber_fini(run->session->hub, &run->subscriber);
    forget_open(run);
    pj_free(run);
}
