/*
 * What a session holds beyond the public header, for the commands and the server: its meter, its
 * store, the live sinks, and the idle baselines.
 *
 * Threads: opened, closed and queried by one thread at a time. One run at a time is recorded in it,
 * because the sensors of a machine cannot tell two apart.
 */
#ifndef PJ_PROFILE_SESSION_H
#define PJ_PROFILE_SESSION_H

#include "power/conditions.h"
#include "power/meter.h"
#include "profile/machine.h"
#include "profile/recover.h"
#include "store/store.h"
#include "trace/live.h"
#include "trace/run_data.h"
#include "trace/spool.h"

#include <pthread.h>

struct pj_session {
    pj_meter *meter; /* NULL: --power none */
    pj_store *store; /* NULL: nothing is stored */
    char *spool_dir; /* NULL: spools are in memory */
    char *other_dir; /* where a spool goes when spool_dir's disk is full; NULL: nowhere */
    struct pj_recovery *recovery; /* of leftover spools; NULL: there are none */
    bool hurried;                 /* closing must not wait for the recovery */
    pj_power_env power_env;
    pj_arena arena;
    pj_machine machine;
    pj_live_sinks sinks; /* who listens; events go to sinks.all */
    const char *power_asked; /* the list of sources asked for */
    int64_t baseline_ns;     /* length of the cold idle window; 0: none is taken */
    pj_conditions *conditions; /* NULL: no power was asked for */
    pj_baseline cold, resident;
    bool has_cold, has_resident;
    struct pj_calibration *calibration; /* prior of the next run's fit; NULL: none. Owned. */
    /* As pj_build_options.observe; while a calibration measures. */
    void (*observe)(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                    double power_mw, double sd_mw);
    void *observe_context;
    /* Sees the spool of a run that ended, before it goes; for the bench of attribution. */
    void (*inspect)(void *context, pj_spool_reader *reader);
    void *inspect_context;
    int64_t span_cost_ns;  /* of a span without statistics, measured at opening */
    pthread_mutex_t mutex; /* guards open_run */
    pj_run *open_run;
    void (*interrupt)(pj_run *run); /* ends open_run when the session closes */
    char next_run_id[PJ_UUID_BYTES];   /* taken by the next run that begins; "": it makes its own */
    char warning[PJ_ERROR_TEXT_BYTES]; /* of opening: no folder for spools; "": none */
};

/* Events of the session's runs go to this sink too, from the next run on. */
pj_status pj_session_add_sink(pj_session *session, const pj_live_sink *sink, pj_error *err);
/* Listens to the idle machine. Cold once, when the session opens; resident whenever a model lies in
 * memory and nothing runs. Does nothing without rails. */
pj_status pj_session_baseline(pj_session *session, pj_baseline_kind kind, pj_error *err);
/* Between runs: waits until leftover spools are recovered, `ns` at most. */
pj_recovery_state pj_session_settle(pj_session *session, int64_t ns);
/* The better of the two for a run now: NULL when there is none. */
const pj_baseline *pj_session_idle(const pj_session *session);

/* Reads one spool file whole, with energies; for import and recovery. */
pj_status pj_run_data_of_spool(const char *path, pj_run_data *data, pj_error *err);

#endif
