/* Live events of runs for observers: terminal, WebSocket hub. A sink is a versioned table of
 * callbacks; NULL means "not interested". A session has a list of sinks. Callbacks are called in
 * time order from the run's collector thread (run_queued and warning from others too) and must not
 * block. Figures are provisional: the final ones come with the stored run. */
#ifndef PJ_TRACE_LIVE_H
#define PJ_TRACE_LIVE_H

#include "trace/rail.h"
#include "trace/run_data.h"

#include <stdatomic.h>

typedef struct pj_live_run {
    const char *run_id;
    const char *model_name;
    const char *prompt;
    pj_depth depth;
    uint32_t layer_count; /* 0: unknown until the model is open */
} pj_live_run;

typedef struct pj_live_power {
    double t_ms;
    double mw[PJ_RAIL_TOTAL + 1]; /* by column; NAN: unavailable */
    pj_phase phase;
    pj_source_quality quality;
} pj_live_power;

typedef struct pj_live_section {
    double t_ms;
    pj_phase phase;
    const char *name;
    double duration_ms;        /* of the end event; NAN at the start */
    double energy_mj;          /* provisional; NAN: unavailable or not yet */
    pj_source_quality quality; /* of the energy */
} pj_live_section;

typedef struct pj_live_token {
    double t_ms, duration_ms;
    uint32_t position, sequence;
    int32_t token_id;
    pj_phase phase;
    const char *text; /* valid UTF-8 piece; empty while a character is incomplete */
    double energy_mj, power_mw;
    pj_source_quality quality; /* of the energy */
} pj_live_token;

/* The layer that was running at t_ms. */
typedef struct pj_live_layer {
    double t_ms;
    pj_phase phase;
    int32_t position; /* of the token; -1: outside tokens */
    uint32_t layer;
} pj_live_layer;

/* How much of the model has been loaded at t_ms. */
typedef struct pj_live_load {
    double t_ms;
    uint32_t done, total; /* layers; done <= total, total > 0 */
} pj_live_load;

/* A finished layer (component NULL), component (operation NULL) or operation of a token. */
typedef struct pj_live_part {
    double t_ms, duration_ms;
    uint32_t position;
    int32_t layer; /* -1: outside the layers */
    const char *component, *operation;
    double energy_mj;
    pj_source_quality quality; /* of the energy */
    const pj_stats *stats;     /* NULL: none */
} pj_live_part;

typedef struct pj_live_end {
    double t_ms;
    pj_run_status status;
    const pj_run_data *data;  /* the run as it was stored; NULL: it was not */
    const char *summary_json; /* its summary object, or NULL */
    const char *error;        /* failed runs: one sentence */
} pj_live_end;

enum { PJ_LIVE_SINK_VERSION = 3, PJ_MAX_LIVE_SINKS = 8 };

typedef struct pj_live_sink {
    uint32_t version; /* PJ_LIVE_SINK_VERSION; new callbacks are appended and raise it */
    void *context;
    void (*run_queued)(void *context, const char *run_id, uint32_t position_in_queue);
    void (*run_begin)(void *context, const pj_live_run *run);
    /* The model has been opened: facts that were unknown at the start are now filled in. */
    void (*run_model)(void *context, const pj_live_run *run);
    void (*power)(void *context, const char *run_id, const pj_live_power *samples, uint32_t count);
    void (*section_start)(void *context, const char *run_id, const pj_live_section *section);
    void (*section_end)(void *context, const char *run_id, const pj_live_section *section);
    void (*token)(void *context, const char *run_id, const pj_live_token *token);
    /* All parts of one token at once, after the token. */
    void (*parts)(void *context, const char *run_id, const pj_live_part *parts, uint32_t count);
    void (*warning)(void *context, const char *run_id, const char *code, const char *text);
    void (*run_end)(void *context, const char *run_id, const pj_live_end *end);
    /* Polled after each event: a sink that has failed gets no further events. NULL: it never
     * fails. */
    bool (*has_failed)(void *context);
    /* Sampled at most 20 times a second. */
    void (*layer_running)(void *context, const char *run_id, const pj_live_layer *layer);
    /* While the run loads its model; sampled at most 20 times a second. */
    void (*load_progress)(void *context, const char *run_id, const pj_live_load *load);
} pj_live_sink;

/* A list of sinks, itself usable as one: `all` forwards every event to the sinks that want it. Must
 * be zeroed first. Sinks are added and cleared between runs. */
typedef struct pj_live_sinks {
    pj_live_sink sinks[PJ_MAX_LIVE_SINKS];
    atomic_bool disabled[PJ_MAX_LIVE_SINKS];
    uint32_t count;
    atomic_uint failed; /* sinks that were disabled because they failed */
    pj_live_sink all;
} pj_live_sinks;

/* Copies the sink. PJ_E_UNSUPPORTED: another version; PJ_E_FULL: the list is. */
pj_status pj_live_sinks_add(pj_live_sinks *list, const pj_live_sink *sink, pj_error *err);
void pj_live_sinks_clear(pj_live_sinks *list);

#endif
