/* Functions shared by the start, the description and the end of a run. */
#include "record/run_parts.h"

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

pj_spool_writer pj_run_lock_spool(pj_run *run, pj_error *err)
{
    pthread_mutex_lock(&run->spool_mutex);
    return (pj_spool_writer){.spool = &run->spool, .err = err};
}

pj_status pj_run_unlock_spool(pj_run *run, const pj_spool_writer *w)
{
    pthread_mutex_unlock(&run->spool_mutex);
    return w->status;
}

pj_status pj_run_append_info(pj_run *run, pj_error *err)
{
    pj_spool_writer w = pj_run_lock_spool(run, err);
    pj_spool_put_info(&w, &run->info, run->start_ns);
    return pj_run_unlock_spool(run, &w);
}

/* A baseline that includes other load would make net figures too low. */
pj_status pj_run_append_rails(pj_run *run, pj_error *err)
{
    uint32_t count;
    const pj_rail *rails = pj_meter_rails(run->session->meter, &count);
    pj_baseline idle = run->idle;
    bool has_idle = run->has_idle || pj_session_idle_assumed(run->session, &idle);
    pj_spool_writer w = pj_run_lock_spool(run, err);
    for (uint32_t i = 0; i < count; i++) {
        bool known = has_idle && idle.rail_quiet[i];
        pj_spool_put_rail(&w, i, &rails[i], known ? idle.mw[i] : NAN, known ? idle.sd_mw[i] : NAN);
    }
    return pj_run_unlock_spool(run, &w);
}

void pj_run_warn(pj_run *run, const char *code, const char *format, ...)
{
    char text[PJ_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pj_spool_writer w = pj_run_lock_spool(run, NULL);
    pj_spool_put_warning(&w, pj_clock_ns(), code, text);
    pj_run_unlock_spool(run, &w);
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
    pthread_cond_broadcast(&s->run_gone);
    pthread_mutex_unlock(&s->mutex);
}

void pj_run_free(pj_run *run, bool remove_spool)
{
    pj_watcher_stop(&run->watcher);
    pj_collector_stop(&run->collector);
    pj_live_feed_close(run->feed);
    pj_spool_close(&run->spool, remove_spool);
    if (remove_spool && run->session->spool_dir) pj_spool_reserve(run->session->spool_dir);
    pj_recorder_fini(&run->recorder);
    pthread_mutex_destroy(&run->spool_mutex);
    pj_arena_fini(&run->arena);
    if (run->session->hub) pj_subscriber_fini(run->session->hub, &run->subscriber);
    forget_open(run);
    pj_free(run);
}
