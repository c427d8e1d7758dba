/*
 * Live events of runs (trace/live.h) as messages of the live stream, in the forms of docs/api.md:
 * JSON by default, binary frames of power, layers and heatmaps on request. Events (tokens,
 * sections, ends) are always recorded, because late readers get them too; state messages are made
 * only while somebody reads them. Power is sent in batches, 30 per second.
 *
 * Callbacks may come from several threads: the collector, the queue, request handlers.
 */
#ifndef PJ_NET_LIVE_JSON_H
#define PJ_NET_LIVE_JSON_H

#include "net/hub.h"
#include "trace/live.h"

typedef struct pj_live_json pj_live_json;

/* The hub is attached afterwards, because it needs this object's `hello`. */
pj_status pj_live_json_open(pj_live_json **live, pj_error *err);
void pj_live_json_attach(pj_live_json *live, pj_hub *hub);
void pj_live_json_close(pj_live_json *live); /* before the hub; NULL is allowed */
/* For a session; borrowed. */
const pj_live_sink *pj_live_json_sink(const pj_live_json *live);
/* For pj_hub_options.hello, with the live_json as context. */
void pj_live_json_hello(void *context, pj_buffer *members);
/* Sets the number of queued runs, for `hello`. */
void pj_live_json_set_queue(pj_live_json *live, uint32_t waiting);

/* Progress of an experiment: a message `experiment_progress`, of no run. */
typedef struct pj_live_experiment {
    const char *name, *state, *error; /* error NULL: none */
    const char *run_id;               /* NULL: none in progress */
    const char *cell_name;            /* "": not begun */
    uint32_t done, total, block, cell;
    double joules_per_token, left_s; /* NAN: unknown */
} pj_live_experiment;
void pj_live_json_experiment(pj_live_json *live, const pj_live_experiment *experiment);

#endif
