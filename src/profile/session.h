/*
 * What a session holds beyond the public header, for the commands and the server: its meter, its
 * store, who listens, and how well it is known what an idle machine draws.
 *
 * Threads: opened, closed and asked by one thread at a time; one run at a time goes on in it,
 * because joules of a machine cannot be told apart between two.
 */
#ifndef PJ_PROFILE_SESSION_H
#define PJ_PROFILE_SESSION_H

#include "power/meter.h"
#include "profile/machine.h"
#include "store/store.h"
#include "trace/live.h"
#include "trace/run_data.h"
#include "trace/spool.h"

#include <pthread.h>

struct pj_session {
    pj_meter *meter; /* NULL: --power none */
    pj_store *store; /* NULL: nothing is stored */
    char *spool_dir; /* NULL: spools are in memory */
    pj_power_env power_env;
    pj_arena arena;
    pj_machine machine;
    pj_live_sink sink;
    const char *power_asked; /* the list of sources asked for */
    int64_t baseline_ns;     /* length of the cold idle window; 0: none is taken */
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
    char next_run_id[PJ_UUID_BYTES];   /* taken by the next run that begins; "": it makes its own */
    uint32_t recovered;                /* leftover spools that became runs */
    char warning[PJ_ERROR_TEXT_BYTES]; /* of opening: a leftover that could not be read, ... */
};

/* Events of the session's runs go to a copy of `sink` from now on; NULL: to nobody. Between runs.
 */
void pj_session_set_sink(pj_session *session, const pj_live_sink *sink);
/* Listens to the idle machine. Cold once, when the session opens; resident whenever a model lies in
 * memory and nothing runs. Does nothing without rails. */
pj_status pj_session_baseline(pj_session *session, pj_baseline_kind kind, pj_error *err);
/* The better of the two for a run now: NULL when there is none. */
const pj_baseline *pj_session_idle(const pj_session *session);

/* Turns spools of dead processes into runs of status `interrupted`. Counts them in `recovered`;
 * what cannot be read stays where it is and is named in `warning`. */
void pj_session_recover(pj_session *session);
/* Reads one spool file whole, with energies; for import and recovery. */
pj_status pj_run_data_of_spool(const char *path, pj_run_data *data, pj_error *err);

#endif
