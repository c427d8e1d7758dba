/* Work by rows: on the thread team, or on the calling thread if a dispatch would cost more. */
#include "engine/cpu/cpu.h"
#include "engine/kernels/stats_timer.h"

/* Below this number of values the calling thread works alone: a dispatch costs about a
 * microsecond. */
enum { TEAM_VALUES = 16384 };

typedef struct rows_task {
    pj_cpu *s;
    size_t rows;
    pj_row_fn *run;
    void *context;
    const pj_cpu_done *done; /* NULL: no statistics */
} rows_task;

static void run_rows(const rows_task *t, size_t begin, size_t end, unsigned thread)
{
    const pj_cpu_done *done = t->done;
    size_t parts = done ? t->rows / done->rows : 1, cols = done ? done->cols / parts : 0;
    const pj_kernels *k = t->s->kernels;
    size_t step = done ? pj_instrument_step(t->s->instrument, done->rows) : 1;
    pj_value_sums *sums = done ? pj_cpu_sums(t->s, thread) : NULL;
    for (size_t row = begin; row < end; row++) {
        t->run(t->context, row);
        if (!done) continue;
        const float *x = done->x + row / parts * done->stride + row % parts * cols;
        int64_t timed_from = pj_stats_timer_begin();
        if (pj_sample_has_row(row / parts, done->rows, step))
            k->value_sums(x, 1, cols, cols, PJ_SPARSITY_TAU, sums);
        else
            k->value_bounds(x, 1, cols, cols, sums);
        pj_stats_timer_end(timed_from);
    }
}

static void run_some(void *context, unsigned thread)
{
    const rows_task *t = context;
    size_t begin, end, grain = t->rows / (8 * pj_team_threads(t->s->team)) + 1;
    while (pj_team_take(t->s->team, t->rows, grain, &begin, &end)) run_rows(t, begin, end, thread);
}

static void run_task(const rows_task *t, size_t work)
{
    if (t->rows > 1 && work >= TEAM_VALUES)
        pj_team_offer(t->s->team, run_some, (void *)(uintptr_t)t);
    else
        run_rows(t, 0, t->rows, 0);
}

void pj_cpu_rows(pj_cpu *s, size_t rows, size_t work, pj_row_fn *run, void *context)
{
    run_task(&(rows_task){s, rows, run, context, NULL}, work);
}

void pj_cpu_rows_summed(pj_cpu *s, size_t rows, size_t work, pj_row_fn *run, void *context,
                        const pj_cpu_done *done)
{
    bool summed = s->instrument->statistics && rows > 0;
    bool after = pj_cpu_short(done->rows, done->cols);
    run_task(&(rows_task){s, rows, run, context, summed && !after ? done : NULL}, work);
    if (summed) pj_cpu_keep_summed(s, 0, done);
}

void pj_cpu_record_rows(const pj_cpu *s, size_t rows)
{
    size_t step = pj_instrument_extras_step(s->instrument, rows);
    size_t sampled = (rows + step - 1) / step;
    if (step > 1) pj_instrument_extra(s->instrument, PJ_N_X_ROWS, PJ_EXTRA_SCALAR, (double)sampled);
}
