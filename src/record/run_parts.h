/* The members of an open run, for the files that begin, describe and end it. */
#ifndef PJ_RECORD_RUN_PARTS_H
#define PJ_RECORD_RUN_PARTS_H

#include "record/collector.h"
#include "record/machine_counts.h"
#include "record/run.h"
#include "record/watcher.h"
#include "trace/run_json.h"

struct pj_run {
    pj_session *session;
    pj_run *next_open; /* of the session */
    pj_arena arena;
    pj_run_info info;
    int64_t start_ns, start_cpu_ns; /* monotonic; CPU time of the process */
    pj_machine_counts counts;       /* at the begin */
    double observed_cpu_ms;         /* of an observed program */
    uint32_t layer_count;
    pj_recorder recorder;
    pj_device_row devices[PJ_MAX_DEVICES]; /* as declared, by number; guarded by spool_mutex */
    pthread_mutex_t spool_mutex;           /* guards spool and info against the collector */
    pj_spool spool;
    pj_collector collector;
    pj_live_feed *feed;
    pj_watcher watcher;
    pj_subscriber subscriber; /* of the session's reading hub */
    pj_progress load;         /* of the model, in layers */
    bool metering, is_announced;
    bool is_ending;         /* a thread is ending it; guarded by the session's mutex */
    uint64_t missed_before; /* ticks and readings that earlier runs of the session missed */
    uint32_t spool_failures;
    bool model_resident; /* a model stays in memory after this run */
    pj_baseline idle;    /* idle power during the run, if it was measured after it, too */
    bool has_idle;
    pj_run_built_fn *built; /* or NULL */
    void *built_context;
};

/* A copy in the run's arena; sets `failed` when out of memory. */
const char *pj_run_keep_text(pj_run *run, const char *text, bool *failed);
/* For appending records, which other threads do too. */
pj_spool_writer pj_run_lock_spool(pj_run *run, pj_error *err);
pj_status pj_run_unlock_spool(pj_run *run, const pj_spool_writer *writer);
pj_status pj_run_append_info(pj_run *run, pj_error *err);
pj_status pj_run_append_rails(pj_run *run, pj_error *err);
/* Records the session's idle power, with and without a model in memory. */
void pj_run_describe_baselines(pj_run *run);
void pj_run_spool_error(void *context, const pj_error *err);
/* After the end or a failed start. */
void pj_run_free(pj_run *run, bool remove_spool);
pj_live_run pj_run_live(const pj_run *run);
bool pj_run_is_weight(double weight);

#endif
