/* The data of charts. Where the engine packs (pj_dialect.packs_since), they are deflated, to half
 * of their size, in pieces: a chart of one token reads one of them. */
#ifndef PJ_STORE_CHART_DATA_H
#define PJ_STORE_CHART_DATA_H

#include "base/memory.h"
#include "store/sql.h"
#include "store/value.h"

/* As the store keeps the bytes: these, or others in `deflated`. */
pj_value pj_chart_data_value(const pj_store *store, const void *bytes, size_t count,
                             pj_buffer *deflated);

/* What is stored; borrowed. */
typedef struct pj_chart_data {
    const char *stored;
    size_t stored_bytes, bytes; /* `bytes`: as they were given; 0: damaged */
    bool is_deflated;
} pj_chart_data;

pj_chart_data pj_chart_data_of(const pj_store *store, const void *stored, size_t stored_bytes);
/* A part of the bytes, in the arena; NULL: damaged, or out of memory. */
const char *pj_chart_data_part(const pj_chart_data *data, size_t from, size_t count,
                               pj_arena *arena);

#endif
