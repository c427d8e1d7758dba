/*
 * The server's backend as a table of functions: routes know HTTP, the implementation knows runs.
 * net must not depend on the store or the profiler, so the command that starts the server connects
 * them (serve/service.c); tests use a small fake.
 *
 * Every function may be called from any thread, concurrently, and may block. The pj_status becomes
 * the HTTP status, the error text the problem's detail.
 */
#ifndef PJ_NET_SERVICE_H
#define PJ_NET_SERVICE_H

#include "base/ids.h"
#include "base/json.h"
#include "net/params.h"
#include "trace/generation_request.h"

#include <perjoule.h>

/* What is read of the stored runs, or changed in them. */
typedef enum pj_view {
    PJ_VIEW_RUNS = 0, /* an array; `total` is the number of matches */
    PJ_VIEW_FACETS,
    PJ_VIEW_COMPARE, /* parameter ids */
    PJ_VIEW_WHY,     /* parameters a and b */
    PJ_VIEW_EXPERIMENTS,
    PJ_VIEW_EXPERIMENT, /* `id` is its name */
    PJ_VIEW_REPORT,     /* a document, not JSON: parameters ids, experiment and format.
                           PJ_E_UNSUPPORTED: as HTML, in a build without the dashboard */
    PJ_VIEW_GROUPS,     /* parameter by, and those of RUNS */
    PJ_VIEW_SESSIONS,   /* parameters by and id */
    PJ_VIEW_MACHINES,
    PJ_VIEW_MODELS,
    PJ_VIEW_SENSORS,
    PJ_VIEW_DEVICES,
    PJ_VIEW_PREDICT,   /* parameters model, dtype, input, output, batch, map */
    PJ_VIEW_LAWS,      /* parameter machine */
    PJ_VIEW_POWER_NOW, /* of the machine, with or without a run; parameter seconds */
    PJ_VIEW_RUN,       /* from here on: views of one run */
    PJ_VIEW_SUMMARY,
    PJ_VIEW_ADVICE,
    PJ_VIEW_PIPELINE,
    PJ_VIEW_POWER,
    PJ_VIEW_CONDITIONS,
    PJ_VIEW_SPANS, /* parameters from_ms, to_ms, level, name, limit, group */
    PJ_VIEW_TOKENS,
    PJ_VIEW_HEATMAP,
    PJ_VIEW_CUBE, /* all heatmaps, not as JSON: the binary cube of docs/api.md */
    PJ_VIEW_TREE,
    PJ_VIEW_OPERATIONS,
    PJ_RETAG_RUN,    /* parameters add and remove; writes {"id", "tags"} */
    PJ_DESCRIBE_RUN, /* parameters name and note; writes {"id", "name", "note"} */
    PJ_DELETE_RUN,   /* writes nothing */
    PJ_PRUNE_RUNS,   /* parameters before, keep, tagged and dry_run; writes an object */
    PJ_COMPACT_RUNS  /* the same, of the single operations of those runs, whose sums remain */
} pj_view;

typedef struct pj_view_request {
    pj_view view;
    const char *id;          /* full id of a run; NULL for views not of a single run */
    const pj_params *params; /* checked against the route's rules */
    bool is_streamed;        /* written at the client's pace */
} pj_view_request;

/* A POST that begins or continues an experiment. */
typedef struct pj_experiment_request {
    const char *plan; /* JSON; NULL: resume the stored plan of that name */
    bool *syntax;     /* with a plan: set when it is not JSON */
    const char *name;
    bool again; /* another round */
} pj_experiment_request;

enum { PJ_METRIC_RAILS = 64, PJ_METRIC_STATUSES = 5 };

typedef struct pj_metric_rail {
    char rail[32], source[16];
    const char *class_name;
    bool modelled;
    double power_mw;                  /* NAN: no reading now */
    double drawn_mj;                  /* since the server started, with or without a run */
    double energy_mj[PJ_PHASE_COUNT]; /* of the runs of this process, gross */
} pj_metric_rail;

/* Counters since the server started, and current values; NAN: unavailable. */
typedef struct pj_metrics {
    pj_metric_rail rails[PJ_METRIC_RAILS];
    uint32_t rail_count;
    uint64_t input_tokens, output_tokens;
    uint64_t runs[PJ_METRIC_STATUSES]; /* ended, by pj_run_status */
    double run_seconds;
    uint32_t queued, queue_limit;
    char running[PJ_UUID_BYTES]; /* the current run; "": none */
    uint64_t waiting;            /* runs not yet transferred to the database server */
    double sampler_cpu_share, sampler_jitter_seconds;
    uint64_t sampler_ticks, sampler_missed, sampler_readings, sampler_lost;
} pj_metrics;

typedef bool pj_export_write_fn(void *context, const char *bytes, size_t count);

typedef struct pj_service {
    void *context;
    /* A full id, a unique prefix of one, or "last", of a stored, running or queued run. Fails for
     * an interrupted run that is not recovered yet, but gives its id: its facts can be viewed. */
    pj_status (*resolve)(void *context, const char *text, char id[PJ_UUID_BYTES], pj_error *err);
    /* What is not JSON goes into out->buffer. */
    pj_status (*view)(void *context, const pj_view_request *request, pj_json *out, uint64_t *total,
                      pj_error *err);
    /* Writes a whole export; `write` returns false when the client is gone. */
    pj_status (*export_run)(void *context, const char *id, const char *format,
                            bool without_disturbances, pj_export_write_fn *write,
                            void *write_context, pj_error *err);
    /* Queues a run; `request` is borrowed for the call. PJ_E_FULL: the queue is full. `position` 1:
     * it is next. */
    pj_status (*generate)(void *context, const pj_generation_request *request,
                          char id[PJ_UUID_BYTES], uint32_t *position, pj_error *err);
    /* Blocks until a queued run has ended; writes its summary and `text` as one object. Must be
     * called exactly once for each generate with request->wait, and never otherwise. */
    pj_status (*wait)(void *context, const char *id, pj_json *out, pj_error *err);
    /* *was_waiting: the run had not begun and is gone; otherwise it ends within a token, or has
     * just ended by itself. */
    pj_status (*cancel)(void *context, const char *id, bool *was_waiting, pj_error *err);
    /* Queues an experiment; writes what it will do. PJ_E_STATE: it waits or runs already. */
    pj_status (*begin_experiment)(void *context, const pj_experiment_request *request, pj_json *out,
                                  pj_error *err);
    /* *was_waiting: it had not begun; otherwise it stops within a token. */
    pj_status (*cancel_experiment)(void *context, const char *name, bool *was_waiting,
                                   pj_error *err);
    void (*metrics)(void *context, pj_metrics *metrics);
} pj_service;

#endif
