/*
 * Instrumentation of a generation through perjoule.h: names interned once before the run, and spans
 * by depth. What a device computes is recorded by the device (ops.h), with these functions if it
 * runs at the time of the call, as the CPU does. Without a run, or below the required depth, each
 * call only tests a flag.
 */
#ifndef PJ_FORWARD_INSTRUMENT_H
#define PJ_FORWARD_INSTRUMENT_H

#include "engine/forward/statistics_rows.h"
#include "engine/kernels/kernels.h"
#include "engine/model/names.h"

#include <math.h>
#include <perjoule.h>

/* Where rows are sampled, passes of up to 64 rows use all of them; longer ones 32 to 64 evenly
 * spaced rows: every step-th, always including the last. */
enum { PJ_SAMPLE_ALL = 64, PJ_SAMPLE_SOME = 32 };
static inline size_t pj_sample_step(size_t rows)
{
    return rows <= PJ_SAMPLE_ALL ? 1 : rows / PJ_SAMPLE_SOME;
}
static inline bool pj_sample_has_row(size_t row, size_t rows, size_t step)
{
    return (rows - 1 - row) % step == 0;
}

/* Threshold of sparsity, and of dead activations, as documented for these figures. */
#define PJ_SPARSITY_TAU 0.01f

enum { PJ_INSTRUMENT_EXTRAS = 1024 };

typedef struct pj_instrument {
    pj_run *run;                /* of the lane */
    pj_lane *lane;              /* NULL: nothing is recorded */
    bool module, deep;          /* components and their statistics; operations and their extras */
    bool statistics;            /* of outputs, and extras: not switched off */
    bool all_rows;              /* statistics from all rows; else sampled */
    bool all_extras;            /* extras from all rows, which costs more; else sampled */
    uint32_t names[PJ_N_COUNT]; /* interned */
    uint32_t extra_count;
    pj_extra extras[PJ_INSTRUMENT_EXTRAS];
    bool operation_open;
    int64_t ended_ns; /* end of the previous layer, component or operation, which the next begins
                         with; 0: read the clock */
} pj_instrument;

/* Interns the names and takes the calling thread's lane; `run` may be NULL. */
pj_status pj_instrument_init(pj_instrument *instrument, pj_run *run, pj_statistics_rows rows,
                             pj_error *err);

static inline void pj_instrument_section(pj_instrument *r, pj_instrument_name name)
{
    r->ended_ns = 0;
    if (r->lane) pj_span_begin(r->lane, PJ_SPAN_SECTION, r->names[name]);
}
static inline void pj_instrument_end(pj_instrument *r)
{
    r->ended_ns = 0;
    if (r->lane) pj_span_end(r->lane, NULL);
}
/* From here on only while components are recorded. */
static inline void pj_instrument_layer(pj_instrument *r, uint32_t layer)
{
    if (!r->ended_ns) r->ended_ns = pj_clock_ns();
    pj_span_begin_at(r->lane, PJ_SPAN_LAYER, layer, r->ended_ns);
}
/* `now_ns` 0: where the previous span ended. */
static inline void pj_instrument_component(pj_instrument *r, pj_instrument_name name,
                                           int64_t now_ns)
{
    if (now_ns) r->ended_ns = now_ns;
    if (!r->ended_ns) r->ended_ns = pj_clock_ns();
    pj_span_begin_at(r->lane, PJ_SPAN_COMPONENT, r->names[name], r->ended_ns);
}
/* At any depth. */
static inline void pj_instrument_operation(pj_instrument *r, pj_instrument_name name)
{
    if (!r->deep) return;
    pj_span_begin_at(r->lane, PJ_SPAN_OPERATION, r->names[name],
                     r->ended_ns ? r->ended_ns : pj_clock_ns());
    r->operation_open = true;
}
/* Ends a layer, component or operation, with the extras recorded since the last end. `now_ns`: the
 * end, 0: the present time. */
void pj_instrument_end_work(pj_instrument *r, pj_work *work, int64_t now_ns);
/* Records an extra for the next end; index PJ_EXTRA_SCALAR for a scalar. NAN is ignored. */
static inline void pj_instrument_extra(pj_instrument *r, pj_instrument_name name, uint32_t index,
                                       double value)
{
    if (isnan(value) || r->extra_count == PJ_INSTRUMENT_EXTRAS) return;
    r->extras[r->extra_count++] = (pj_extra){r->names[name], index, value};
}

/* Distance between the rows of an output that are summed. */
static inline size_t pj_instrument_step(const pj_instrument *r, size_t rows)
{
    return r->all_rows ? 1 : pj_sample_step(rows);
}
/* The same of the rows that extras describe. */
static inline size_t pj_instrument_extras_step(const pj_instrument *r, size_t rows)
{
    return r->all_extras ? 1 : pj_sample_step(rows);
}
pj_stats pj_stats_of_sums(const pj_value_sums *sums);

#endif
