/*
 * Members of a session for the commands and the server: its meter, its store, the live sinks, and
 * the idle baselines.
 *
 * Threads: opened and closed by one thread; runs and windows begin and end in any. Closing waits
 * for runs that other threads are ending. Runs that are open at the same time divide the energy
 * between them (record/reading_hub.h).
 */
#ifndef PJ_RECORD_SESSION_H
#define PJ_RECORD_SESSION_H

#include "base/clock.h"
#include "power/conditions.h"
#include "power/memory_traffic.h"
#include "power/meter.h"
#include "record/machine.h"
#include "record/reading_hub.h"
#include "record/recover.h"
#include "store/owner.h"
#include "store/store.h"
#include "trace/live.h"
#include "trace/run_data.h"
#include "trace/spool.h"

#include <pthread.h>

struct pj_session {
    pj_meter *meter;              /* NULL: --power none */
    pj_reading_hub *hub;          /* of the meter, for runs and windows; NULL: it has no rails */
    pj_store *store;              /* NULL: nothing is stored */
    pthread_mutex_t store_mutex;  /* serialises use of the store by several runs */
    char *spool_dir;              /* NULL: spools are in memory */
    char *other_dir;              /* fallback folder when spool_dir's disk is full; NULL: none */
    pj_owner owner;               /* of rows of queues; pj_session_owner */
    struct pj_recovery *recovery; /* of leftover spools; NULL: none */
    bool hurried;                 /* do not wait for the recovery when closing */
    pj_power_env power_env;
    pj_arena arena;
    pj_machine machine;
    pj_live_sinks sinks;         /* live sinks; events go to sinks.all */
    const char *power_requested; /* the list of sources as requested */
    int64_t baseline_ns;         /* length of the cold idle window; 0: no baseline */
    bool keeps_idle; /* idle power from the last minute suffices, and is kept for other processes */
    pj_conditions *conditions;        /* NULL: no power was requested */
    pj_memory_traffic *traffic;       /* NULL: not counted on this machine */
    pthread_mutex_t conditions_mutex; /* of both */
    pj_baseline cold, resident;
    bool has_cold, has_resident;
    int64_t idle_seen_ns; /* when idle power was last measured, or seen to be what it was */
    bool listens_after;   /* idle power is measured after every run, too; runs are one at a time */
    struct pj_calibration *calibration; /* prior of the next run's fit; NULL: none. Owned. */
    /* As pj_build_options.observe; only during a calibration. */
    void (*observe)(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                    double power_mw, double sd_mw);
    void *observe_context;
    /* Called with the store locked after a run is stored: the program caches figures of its views.
     */
    void (*stored)(pj_store *store, const char *run_id);
    /* Called with the spool of an ended run before it is deleted; for the attribution benchmark. */
    void (*inspect)(void *context, pj_spool_reader *reader);
    void *inspect_context;
    int64_t span_cost_ns;  /* cost of a span without statistics, measured at opening */
    pthread_mutex_t mutex; /* guards the open runs and windows, and the baselines */
    pj_run *open_runs;     /* the first of a list */
    uint32_t open_run_count;
    pj_open_window *open_windows;
    pthread_cond_t run_gone;                /* an open run has left the list */
    void (*interrupt)(pj_session *session); /* ends the open runs when the session closes */
    void (*drop_window)(pj_open_window *window);
    char next_run_id[PJ_UUID_BYTES];   /* used by the next run; "": a new id is created */
    char warning[PJ_ERROR_TEXT_BYTES]; /* of opening: no spool folder; "": none */
};

/* Adds a sink for events of later runs. */
pj_status pj_session_add_sink(pj_session *session, const pj_live_sink *sink, pj_error *err);
/* For how long idle power that was quiet stands for the present one. */
#define PJ_IDLE_KEPT_NS (60 * (int64_t)PJ_NS_PER_S)

/* Measures idle power: cold when the session opens, resident whenever a model is in memory and no
 * run is open; again, either replaces what it measured before. Does nothing without rails, and does
 * not wait where idle power is simulated, recorded or known from the last minute. */
pj_status pj_session_baseline(pj_session *session, pj_baseline_kind kind, pj_error *err);
/* Called with the seconds for which a session listens to idle power, and with 0 when it is done;
 * for programs that tell people why they wait. */
void pj_session_on_listen(void (*notice)(double seconds));
/* Whether a run needs no listening after it: it was short, idle power was quiet within the last
 * minute, and still is what it was as a short look tells. `seen`: what the look showed, or
 * one just before; without rails where nobody looks. */
bool pj_session_idle_stands(pj_session *session, int64_t begin_ns, int64_t end_ns,
                            pj_baseline *seen);
/* Between runs: waits at most `ns` until leftover spools are recovered. */
pj_recovery_state pj_session_settle(pj_session *session, int64_t ns);
/* The better of the two baselines for a run started now; NULL: none. */
const pj_baseline *pj_session_idle(const pj_session *session);
/* The same for what ends without another look at idle power, which may have moved: its standard
 * deviations are those of a tenth more. False: none. */
bool pj_session_idle_assumed(const pj_session *session, pj_baseline *idle);

/* This process as the owner of queued runs and experiments, known by a file in the spool folder
 * from the first call on. *id NULL: there is no such folder, so nothing can be shared. */
pj_status pj_session_owner(pj_session *session, const char **id, pj_error *err);
/* Whether another process that uses the session's database has this id; "" is nobody. */
bool pj_session_knows_owner(const pj_session *session, const char *id);

/* Reads one complete spool file, with energies; for import and recovery. */
pj_status pj_run_data_of_spool(const char *path, pj_run_data *data, pj_error *err);

#endif
