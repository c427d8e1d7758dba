/*
 * Events of runs (trace/live.h) as messages of the live stream, in the forms of docs/api.md: JSON
 * for everyone, and binary frames of power, layers and heatmaps for those who ask. Events (tokens,
 * sections, ends) are always made, because a reader that comes late is told them; what only matters
 * while somebody looks is made only then. Power goes out in batches, 30 a second.
 *
 * A sink may be called from several threads: the collector's, the queue's, those of requests.
 */
#ifndef PJ_NET_LIVE_JSON_H
#define PJ_NET_LIVE_JSON_H

#include "net/hub.h"
#include "trace/live.h"

typedef struct pj_live_json pj_live_json;

/* Borrows nothing yet; the hub is attached afterwards, because it asks this for its `hello`. */
pj_status pj_live_json_open(pj_live_json **live, pj_error *err);
void pj_live_json_attach(pj_live_json *live, pj_hub *hub);
void pj_live_json_close(pj_live_json *live); /* before the hub; NULL is allowed */
/* For a session; borrowed. */
const pj_live_sink *pj_live_json_sink(const pj_live_json *live);
/* For pj_hub_options.hello, with the live_json as context. */
void pj_live_json_hello(void *context, pj_buffer *members);
/* How many runs wait, for `hello`. */
void pj_live_json_set_queue(pj_live_json *live, uint32_t waiting);

#endif
