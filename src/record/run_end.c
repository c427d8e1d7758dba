/* The end of a run: recorders are stopped in order, the run is built, stored and announced. */
#include "record/run_parts.h"

#include "attribution/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "record/calibration.h"
#include "record/result.h"
#include "store/run_summary.h"
#include "store/usual_times.h"

#include <math.h>
#include <string.h>

/* CPU time that recording cost: spans at the unit cost measured when the session opened (with cold
 * caches: an upper bound), the time that recording threads spent on statistics, the run's
 * collector, and its part of the sampler, which serves all runs. All of it is part of the process's
 * CPU time, which bounds the estimated parts. */
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
            cost.missed + cost.lost - run->missed_before + pj_ring_lost(&run->subscriber.readings);
        ms += cost.cpu_share * run->subscriber.sampled_ns / 1e6;
    }
    ms = fmin(ms, process_ms);
    info->statistics_ms = fmin((double)counts.statistics_ns / 1e6, process_ms - ms);
    ms += info->statistics_ms;
    double all_ms = process_ms + run->observed_cpu_ms;
    info->overhead_share = all_ms > 0 ? ms / all_ms : NAN;
    info->overhead_ms = ms;
    if (counts.lost)
        pj_run_warn(run, "spans_lost", "%llu spans were lost: the collector could not keep up",
                    (unsigned long long)counts.lost);
    if (counts.misused)
        pj_run_warn(run, "spans_misused", "%llu spans were not nested correctly and were dropped",
                    (unsigned long long)counts.misused);
}

static void warn_of_drift(pj_run *run, const pj_baseline *before, const pj_baseline *after)
{
    uint32_t count;
    const pj_rail *rails = pj_meter_rails(run->session->meter, &count);
    int rail = pj_baseline_moved(before, after);
    if (rail < 0 || !run->idle.rail_quiet[rail]) return;
    pj_run_warn(run, "idle_power_changed",
                "idle power of %s was %.3g W before the run and %.3g W after it: the intervals of "
                "net energies include the change",
                rails[rail].name, before->mw[rail] * 1e-3, after->mw[rail] * 1e-3);
}

/* A model in a GPU's memory keeps it from its deepest sleep. */
static bool has_gpu(const pj_session *session)
{
    uint32_t count;
    const pj_rail *rails = pj_meter_rails(session->meter, &count);
    for (uint32_t i = 0; i < count; i++)
        if (rails[i].rail_class == PJ_RAIL_GPU) return true;
    return false;
}

/* Idle power during the run, from what it was before and after. */
static void take_idle(pj_run *run, int64_t end_ns, const pj_baseline *before,
                      const pj_baseline *after, bool is_loaded)
{
    uint32_t count;
    const pj_rail *rails = pj_meter_rails(run->session->meter, &count);
    pj_baseline_between(before, after, rails, run->start_ns, end_ns, is_loaded, &run->idle);
    run->has_idle = true;
    warn_of_drift(run, before, after);
}

/* Measures idle power after a run: after a session's first run that loaded its model, with the
 * model in memory, which was impossible earlier; after others where the session is asked to. Net
 * figures of the run use what was measured before and after it. */
static void listen_after(pj_run *run, int64_t end_ns)
{
    pj_session *s = run->session;
    const pj_baseline *idle = pj_session_idle(s);
    bool is_loaded = run->model_resident && !s->has_resident, had_idle = idle != NULL;
    bool resident = is_loaded || (had_idle && idle == &s->resident);
    pj_baseline before = had_idle ? *idle : (pj_baseline){0}, seen;
    pj_baseline *after = resident ? &s->resident : &s->cold;
    int64_t last_ns = after->end_ns;
    if (!run->metering || (!is_loaded && !s->listens_after)) return;
    if (!(is_loaded && has_gpu(s)) && pj_session_idle_stands(s, run->start_ns, end_ns, &seen)) {
        if (!seen.rail_count) return;
        take_idle(run, end_ns, &before, &seen, is_loaded);
        pj_run_append_rails(run, NULL);
        return;
    }
    pj_session_baseline(s, resident ? PJ_BASELINE_RESIDENT : PJ_BASELINE_COLD, NULL);
    if (after->end_ns == last_ns) return; /* another run is open, or it failed */
    if (had_idle && s->listens_after) take_idle(run, end_ns, &before, after, is_loaded);
    if (is_loaded) pj_run_describe_baselines(run);
    pj_run_append_rails(run, NULL);
}

static void stop_recording(pj_run *run, pj_run_status status)
{
    pj_recorder_close_open(&run->recorder);
    pj_session *session = run->session;
    int64_t end_ns =
        run->metering ? pj_reading_hub_end(session->hub, &run->subscriber) : pj_clock_ns();
    pj_machine_counts_tell(session, &run->counts, &run->info);
    if (run->metering) { /* until slow sensors have covered the last span */
        pj_meter_want(session->meter, end_ns);
        pj_clock_sleep_until(end_ns + pj_meter_settle_ns(session->meter));
    }
    pj_watcher_stop(&run->watcher);
    pj_collector_stop(&run->collector);
    if (run->metering) {
        pj_reading_hub_part(session->hub, &run->subscriber, end_ns);
        pj_collector_round(&run->collector); /* readings from before the samplers stopped */
    }
    account_overhead(run);
    listen_after(run, end_ns);
    pj_run_append_info(run, NULL);
    pj_spool_writer w = pj_run_lock_spool(run, NULL);
    pj_spool_put_end(&w, end_ns, status);
    pj_run_unlock_spool(run, &w);
    pj_error err = {0};
    if (pj_spool_flush(&run->spool, &err) != PJ_OK) pj_run_spool_error(run, &err);
}

/* What comparable runs took; unknown where nothing is stored, or the database cannot be read. */
static void look_up_usual_times(void *context, const pj_run_info *info, pj_usual_times *usual)
{
    pj_session *session = context;
    if (!session->store) return;
    pthread_mutex_lock(&session->store_mutex);
    if (pj_store_usual_times(session->store, info, usual, NULL) != PJ_OK)
        *usual = PJ_USUAL_TIMES_UNKNOWN;
    pthread_mutex_unlock(&session->store_mutex);
}

static pj_status run_end_build(pj_run *run, pj_run_data *data, pj_error *err)
{
    pj_spool_reader reader;
    pj_status status = pj_spool_reader_of(&run->spool, &reader, err);
    if (status != PJ_OK) return status;
    const pj_session *session = run->session;
    bool is_shared = run->metering && pj_reading_hub_is_shared(session->hub, &run->subscriber);
    /* Simulated truth is computed from the spans of a single run; with concurrent runs the live
     * readings are used. */
    const pj_sim_spec *sim = session->meter && !is_shared ? pj_meter_sim(session->meter) : NULL;
    pj_build_options options = {.sim = sim,
                                .prior = session->calibration ? pj_calibration_prior : NULL,
                                .context = session->calibration,
                                .usual = look_up_usual_times,
                                .usual_context = run->session,
                                .observe = session->observe,
                                .observe_context = session->observe_context};
    status = pj_build_run(&reader, &options, data, err);
    if (session->inspect) session->inspect(session->inspect_context, &reader);
    pj_spool_reader_close(&reader);
    return status;
}

static void announce_end(pj_run *run, pj_run_status status, const char *failure,
                         const pj_run_data *data)
{
    const pj_live_sink *sink = &run->session->sinks.all;
    if (!sink->run_end) return;
    pj_json json;
    pj_json_open(&json, PJ_RECORD_MAX_BYTES);
    if (data) pj_summary_write(&json, &data->info, NULL);
    sink->run_end(sink->context, run->info.id,
                  &(pj_live_end){.t_ms = (double)(pj_clock_ns() - run->start_ns) / 1e6,
                                 .status = status,
                                 .data = data,
                                 .summary_json = data ? pj_json_whole(&json) : NULL,
                                 .error = failure});
    pj_json_close(&json);
}

/* Keeps the spool of a run that could not be stored, and reports how much of it is kept. */
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
        pj_error_prefix(err, "run %s is lost: it could not be written anywhere", run->info.id);
}

void pj_run_on_built(pj_run *run, pj_run_built_fn *built, void *context)
{
    run->built = built;
    run->built_context = context;
}

pj_status pj_run_finish(pj_run *run, pj_run_status run_status, const char *failure,
                        pj_run_data *data, pj_error *err)
{
    *data = (pj_run_data){0};
    pthread_mutex_lock(&run->session->mutex);
    run->is_ending = true;
    pthread_mutex_unlock(&run->session->mutex);
    if (failure) {
        bool lost = false;
        run->info.failure = pj_run_keep_text(run, failure, &lost);
        pj_run_warn(run, "run_failed", "%s", failure);
    }
    stop_recording(run, run_status);
    pj_status status = run_end_build(run, data, err);
    bool built = status == PJ_OK;
    if (built && run->built) run->built(run->built_context, data);
    if (built && run->session->store) {
        pthread_mutex_lock(&run->session->store_mutex);
        status = pj_store_save(run->session->store, data, err);
        if (status == PJ_OK && run->session->stored)
            run->session->stored(run->session->store, run->info.id);
        pthread_mutex_unlock(&run->session->store_mutex);
    }
    bool keep_spool = status != PJ_OK && run->session->store;
    if (keep_spool) keep_unstored(run, err);
    announce_end(run, run_status,
                 failure                  ? failure
                 : status != PJ_OK && err ? err->text
                                          : NULL,
                 built ? data : NULL);
    pj_run_free(run, !keep_spool);
    return status;
}

static pj_status end_with_result(pj_run *run, pj_run_status run_status, const char *failure,
                                 pj_result *result, pj_error *err)
{
    pj_run_data data;
    bool has_store = run && run->session->store;
    pj_status status = PJ_OK;
    if (!run) return pj_fail(err, PJ_E_INVALID, "pj_run_end: run is NULL");
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
        return pj_fail(err, PJ_E_INVALID, "pj_run_fail: the reason is missing");
    return end_with_result(run, PJ_RUN_FAILED, reason, result, err);
}
