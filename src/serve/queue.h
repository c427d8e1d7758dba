/*
 * The queue of runs: one worker thread executes them one at a time on a long-lived session and one
 * model slot, because the energy of concurrent runs could not be separated. While no run waits it
 * advances the experiments (serve/experiments.h); their runs appear here while they are running.
 * Ids are assigned when a run is queued. The queue is bounded.
 *
 * Threads: every call from any thread; events of a run reach the session's sink from the collector,
 * those of the queue itself (queued, ended before it began) from the caller's or the worker's
 * thread.
 */
#ifndef PJ_SERVE_QUEUE_H
#define PJ_SERVE_QUEUE_H

#include "base/buffer.h"
#include "generate/generate.h"

typedef struct pj_run_queue pj_run_queue;

enum { PJ_QUEUE_MAX = 1024 };

typedef struct pj_run_queue_options {
    pj_session *session; /* used only by the worker until the queue is closed */
    uint32_t limit;      /* maximum number of waiting runs, at most PJ_QUEUE_MAX */
    uint32_t threads;    /* of the engine; 0: one per core */
    /* Texts are neither stored nor shown live; waiting runs are not put into the database, so they
     * are lost when this process ends. */
    bool is_private;
    /* Called with the number of waiting runs while the queue is locked: it must not call back. */
    void (*changed)(void *context, uint32_t waiting);
    void *context;
    struct pj_idle_meter *idle; /* paused during runs; NULL: none */
    /* Run while no single run waits, stopped with the queue, closed after it; NULL: none. */
    struct pj_experiments *experiments;
} pj_run_queue_options;

pj_status pj_run_queue_open(const pj_run_queue_options *options, pj_run_queue **queue,
                            pj_error *err);
/* Cancels the running and waiting runs (the running one is stored) and answers those who wait for
 * them. No calls may follow close; stop alone cancels, answers and refuses new runs. */
void pj_run_queue_stop(pj_run_queue *queue);
void pj_run_queue_close(pj_run_queue *queue); /* stops first; NULL is allowed */

void pj_run_queue_wake(pj_run_queue *queue); /* there is a new experiment */

/* Copies the request, whose model is a path or synthetic:SHAPE (pj_engine_options.model). With
 * `wait`, pj_run_queue_wait must be called, once. PJ_E_FULL: the queue is full. `position` 1:
 * next to run, or running already. */
pj_status pj_run_queue_add(pj_run_queue *queue, const pj_generation_request *request,
                           char id[PJ_UUID_BYTES], uint32_t *position, pj_error *err);
/* Blocks until an awaited run has ended. `object` receives its summary with text, token_ids and
 * prompt_ids as one JSON object; a failed run returns its error, one cancelled before it began
 * PJ_E_CANCELLED. */
pj_status pj_run_queue_wait(pj_run_queue *queue, const char *id, pj_buffer *object, pj_error *err);
/* PJ_E_NOT_FOUND: neither waits nor runs. */
pj_status pj_run_queue_cancel(pj_run_queue *queue, const char *id, bool *was_waiting,
                              pj_error *err);
/* The one run whose id begins with the text; false when none or several wait or run. */
bool pj_run_queue_find(pj_run_queue *queue, const char *text, char id[PJ_UUID_BYTES]);
/* Ids of the running and the waiting runs, oldest first; returns how many. */
uint32_t pj_run_queue_list(pj_run_queue *queue, char ids[][PJ_UUID_BYTES], uint32_t max);
/* A summary of a waiting or running run, with everything not yet known unavailable: texts in the
 * arena, status RUNNING or PJ_RUN_QUEUED (trace/summary.h). False: neither. */
bool pj_run_queue_info(pj_run_queue *queue, const char *id, pj_run_info *info, pj_arena *arena);

enum { PJ_RUN_STATUSES = PJ_RUN_INTERRUPTED + 1 };

/* Since the queue was opened. */
typedef struct pj_queue_totals {
    uint64_t runs[PJ_RUN_STATUSES]; /* by final status */
    uint64_t input_tokens, output_tokens;
    double run_ms;
    double energy_mj[PJ_MAX_RAILS][PJ_PHASE_COUNT]; /* of all runs, by the meter's rails */
    uint32_t waiting;
    char running[PJ_UUID_BYTES]; /* "": none */
} pj_queue_totals;

void pj_run_queue_get_totals(pj_run_queue *queue, pj_queue_totals *totals);

#endif
