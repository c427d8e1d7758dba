/*
 * Instrumentation of the forward pass through perjoule.h: names interned once before the run, spans
 * by depth, statistics of outputs, and FLOPs and bytes by the conventions of docs/measurement.md.
 * Without a run, or below the required depth, each call only tests a flag.
 *
 * Only the thread that drives the forward pass records; the team computes statistics for it.
 */
#ifndef PJ_FORWARD_INSTRUMENT_H
#define PJ_FORWARD_INSTRUMENT_H

#include "engine/forward/statistics_rows.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/team.h"
#include "engine/model/names.h"

#include <math.h>
#include <perjoule.h>

/* Where rows are sampled, passes of up to 64 rows use all of them; longer ones 32 to 64 evenly
 * spaced rows: every step-th, always including the last. Extras are always sampled. */
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

enum { PJ_INSTRUMENT_EXTRAS = 1024, PJ_INSTRUMENT_KEPT = 4, PJ_INSTRUMENT_JOBS = 4 };

/* Statistics of one buffer, computed at the end of an operation. */
typedef struct pj_kept_stats {
    const float *x; /* NULL: none */
    size_t rows, cols;
    size_t sampled_rows; /* number of sampled rows; 0: all */
    bool fresh;          /* computed in the open span */
    pj_stats stats;
} pj_kept_stats;

typedef struct pj_instrument {
    pj_lane *lane;     /* NULL: nothing is recorded */
    bool module, deep; /* components and their statistics; operations and their extras */
    bool statistics;   /* of outputs, and extras: not switched off */
    bool all_rows;     /* statistics from all rows; else sampled */
    const pj_kernels *kernels;
    pj_team *team;
    uint32_t names[PJ_N_COUNT]; /* interned */
    uint32_t extra_count;
    pj_extra extras[PJ_INSTRUMENT_EXTRAS];
    pj_thread_sums *sums; /* [PJ_INSTRUMENT_JOBS][threads], zero between dispatches */
    /* Statistics from operations of the current component: the last one's output is often the
     * component's own, so they can be reused. */
    pj_kept_stats kept[PJ_INSTRUMENT_KEPT];
    uint32_t kept_next;
    bool operation_open;
    int64_t ended_ns; /* end of the previous layer, component or operation, which the next begins
                         with; 0: read the clock */
} pj_instrument;

/* Interns the names and takes the calling thread's lane; `run` may be NULL. */
pj_status pj_instrument_init(pj_instrument *instrument, pj_run *run, const pj_kernels *kernels,
                             pj_team *team, pj_statistics_rows rows, pj_error *err);
void pj_instrument_fini(pj_instrument *instrument); /* may run twice */

/* Work of a span, until it ends. */
typedef struct pj_done {
    double flops, bytes;
    const float *x; /* output for statistics, or NULL; [rows][stride], cols used */
    size_t rows, cols, stride;
} pj_done;

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
static inline void pj_instrument_layer(pj_instrument *r, uint32_t layer)
{
    if (!r->module) return;
    if (!r->ended_ns) r->ended_ns = pj_clock_ns();
    pj_span_begin_at(r->lane, PJ_SPAN_LAYER, layer, r->ended_ns);
}
/* `now_ns` 0: where the previous span ended. */
void pj_instrument_begin_component(pj_instrument *r, pj_instrument_name name, int64_t now_ns);
static inline void pj_instrument_component(pj_instrument *r, pj_instrument_name name)
{
    if (r->module) pj_instrument_begin_component(r, name, 0);
}
static inline void pj_instrument_operation(pj_instrument *r, pj_instrument_name name)
{
    if (!r->deep) return;
    pj_span_begin_at(r->lane, PJ_SPAN_OPERATION, r->names[name],
                     r->ended_ns ? r->ended_ns : pj_clock_ns());
    r->operation_open = true;
}
/* `now_ns`: the end, 0: the present time. */
void pj_instrument_end_done(pj_instrument *r, double flops, double bytes, const pj_done *done,
                            int64_t now_ns);
/* Ends a layer or component, with its statistics and the extras recorded since the last end. FLOPs
 * and bytes are passed in registers: the processor cannot yet load as a vector what was just stored
 * as two values. */
static inline void pj_instrument_module_end(pj_instrument *r, const pj_done *done)
{
    if (r->module) pj_instrument_end_done(r, done->flops, done->bytes, done, 0);
}
/* The same for a component that ends with its last operation, if that was recorded. */
static inline void pj_instrument_module_end_with_last(pj_instrument *r, const pj_done *done)
{
    if (r->module)
        pj_instrument_end_done(r, done->flops, done->bytes, done, r->deep ? r->ended_ns : 0);
}
static inline void pj_instrument_operation_end(pj_instrument *r, const pj_done *done)
{
    if (r->deep) pj_instrument_end_done(r, done->flops, done->bytes, done, 0);
}
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
/* Adds rows [begin, end) of an output of `rows` rows to `sums`. */
void pj_instrument_sample(const pj_instrument *r, const pj_done *of, size_t begin, size_t end,
                          pj_value_sums *sums);

/* Statistics computed by the threads that produce an output, while it is in their caches: during a
 * dispatch each thread adds to its own sums; afterwards the caller merges them as the statistics of
 * the open span's output buffer. */
static inline pj_thread_sums *pj_instrument_job_sums(pj_instrument *r, size_t job)
{
    return r->sums + job * pj_team_threads(r->team);
}
static inline pj_value_sums *pj_instrument_sums(pj_instrument *r, unsigned thread)
{
    return &r->sums[thread].sums;
}
void pj_instrument_take_sums(pj_instrument *r, size_t job,
                             pj_value_sums *sums); /* and resets them */
/* An output so short that the caller sums it faster alone after the dispatch than it fetches the
 * other threads' sums: it reads the output next anyway. */
static inline bool pj_instrument_short(size_t rows, size_t cols)
{
    enum { ALONE = 4096 };
    return rows * cols <= ALONE;
}
void pj_instrument_keep(pj_instrument *r, const pj_done *done, const pj_value_sums *sums);
static inline void pj_instrument_keep_sums(pj_instrument *r, size_t job, const pj_done *done)
{
    pj_value_sums sums;
    pj_instrument_take_sums(r, job, &sums);
    pj_instrument_keep(r, done, &sums);
}
/* Sums an output that is complete: the caller alone or, if it is long, with the team. */
void pj_instrument_keep_output(pj_instrument *r, const pj_done *done);
/* Ends an operation, with the extras recorded since the last end. */
void pj_instrument_end_work(pj_instrument *r, pj_work *work, int64_t now_ns);
pj_stats pj_stats_of_sums(const pj_value_sums *sums);

#endif
