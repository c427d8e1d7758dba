/*
 * The experiments of a server. They are queued in the database (a state in the table of
 * experiments), so that they survive a restart; progress is determined from the stored runs
 * (experiment/experiment.h). The queue's worker executes them one measured run at a time whenever
 * no single run is waiting.
 *
 * Threads: every call from any thread, `step` from the worker alone.
 */
#ifndef PJ_SERVE_EXPERIMENTS_H
#define PJ_SERVE_EXPERIMENTS_H

#include "experiment/experiment.h"
#include "net/live_json.h"

typedef struct pj_experiments pj_experiments;

typedef struct pj_experiments_options {
    pj_session *session; /* used by `step` alone */
    const char *models;  /* folder of models */
    uint32_t limit;      /* maximum number of waiting experiments */
    uint32_t threads;    /* default number of threads of a cell; 0: one per core */
    bool is_private;
    pj_live_json *live; /* gets progress messages; NULL: none */
} pj_experiments_options;

/* Continues the experiments that an earlier server left queued. Fails without a database only when
 * one is asked for. */
pj_status pj_experiments_open(const pj_experiments_options *options, pj_experiments **experiments,
                              pj_error *err);
/* The running experiment stops within a token and stays queued in the database. */
void pj_experiments_stop(pj_experiments *experiments);
void pj_experiments_close(pj_experiments *experiments); /* NULL is allowed */

typedef struct pj_experiment_ticket {
    char name[64];
    uint32_t cells, total; /* total: measured runs, at most */
} pj_experiment_ticket;

/* Queues a plan from the network: model names instead of paths, no file to evaluate.
 * *syntax: it is not JSON. PJ_E_STATE: it waits or runs already. PJ_E_FULL: too many wait. */
pj_status pj_experiments_add(pj_experiments *experiments, const char *plan_json, bool *syntax,
                             pj_experiment_ticket *ticket, pj_error *err);
/* Queues the remaining runs of a stored plan; `again`: another round. */
pj_status pj_experiments_resume(pj_experiments *experiments, const char *name, bool again,
                                pj_experiment_ticket *ticket, pj_error *err);
/* PJ_E_STATE: neither waits nor runs. */
pj_status pj_experiments_cancel(pj_experiments *experiments, const char *name, bool *was_waiting,
                                pj_error *err);
/* For pj_view_experiments: what this server does with the experiment. */
void pj_experiments_live(void *experiments, const char *name, pj_experiment_live *live);

/* ---- the worker ----------------------------------------------------------------------------- */

typedef struct pj_experiments_hooks {
    pj_model_slot *slot;
    bool slot_was_used; /* the model slot was used by something else since the last step */
    /* Around each measured run; `cancel` stops the experiment. */
    void (*begin)(void *context, pj_profile_options *run, _Atomic bool *cancel);
    void (*end)(void *context, pj_status status, const pj_profile_result *result,
                const pj_error *err);
    void *context;
} pj_experiments_hooks;

/* Takes over queued experiments whose server is gone, and cancels those that another server was
 * asked to cancel. Whether there are new ones; NULL is allowed. */
bool pj_experiments_sync(pj_experiments *experiments);
bool pj_experiments_wait(pj_experiments *experiments); /* whether one is waiting */
/* One measured run of the oldest experiment. */
void pj_experiments_step(pj_experiments *experiments, const pj_experiments_hooks *hooks);

#endif
