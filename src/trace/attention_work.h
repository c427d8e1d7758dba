/* Attention's work by how many keys a query sees. It grows with the square of a text's length only
 * in layers that see every earlier key; windows and choices of keys bound it. */
#ifndef PJ_TRACE_ATTENTION_WORK_H
#define PJ_TRACE_ATTENTION_WORK_H

#include "base/json.h"

#include <jansson.h>
#include <stdbool.h>

typedef enum pj_attention_reach {
    PJ_ATTENTION_FULL = 0, /* every earlier key */
    PJ_ATTENTION_WINDOW,   /* the last `window`, or (`chunks`) those since a multiple of it */
    PJ_ATTENTION_CHOSEN,   /* `kept` that an indexer chooses */
    PJ_ATTENTION_INDEX,    /* its scores: none while all keys are kept, then every earlier key */
    PJ_ATTENTION_KINDS
} pj_attention_reach;

/* Over all layers and heads of a kind; zero: no such layers. */
typedef struct pj_attention_work {
    double flops[PJ_ATTENTION_KINDS]; /* for each (query, key) pair */
    double bytes[PJ_ATTENTION_KINDS]; /* of the cache, read for each key that a query sees */
    double window, kept;
    bool chunks;
} pj_attention_work;

/* (query, key) pairs of the queries at positions [first, end) of a text. */
double pj_attention_pairs(const pj_attention_work *work, pj_attention_reach kind, double first,
                          double end);
/* FLOPs of those queries, and bytes read if they come one by one. */
double pj_attention_flops(const pj_attention_work *work, double first, double end);
double pj_attention_bytes(const pj_attention_work *work, double first, double end);

/* Writes the member `attention_work` into an open object. */
void pj_attention_work_json(const pj_attention_work *work, pj_json *json);
/* Of an object with that member; false: it has none. */
bool pj_attention_work_read(const json_t *object, pj_attention_work *work);

#endif
