/* Spans of what the CPU computes, and their statistics. Which thread adds which part of an output
 * may vary between runs, so statistics of equal outputs are equal only up to rounding of double
 * sums. */
#include "engine/cpu/cpu.h"
#include "engine/kernels/stats_timer.h"

#include <string.h>

/* Below this many values one thread is faster than a dispatch. */
enum { TEAM_VALUES = 32768 };

/* ---- sums --------------------------------------------------------------------------------- */

void pj_cpu_sample(const pj_cpu *s, const pj_cpu_done *of, size_t begin, size_t end,
                   pj_value_sums *sums)
{
    size_t step = pj_instrument_step(s->instrument, of->rows);
    const float *x = of->x + begin * of->stride;
    int64_t timed_from = pj_stats_timer_begin();
    if (step == 1) {
        s->kernels->value_sums(x, end - begin, of->cols, of->stride, PJ_SPARSITY_TAU, sums);
    } else {
        pj_value_sums sampled = {0};
        size_t first = (of->rows - 1 - begin) % step; /* sampled row from `begin` on */
        if (first < end - begin)
            s->kernels->value_sums(x + first * of->stride, (end - begin - first + step - 1) / step,
                                   of->cols, of->stride * step, PJ_SPARSITY_TAU, &sampled);
        sampled.nan = sampled.inf = 0; /* counted with the bounds */
        s->kernels->value_bounds(x, end - begin, of->cols, of->stride, &sampled);
        pj_value_sums_add(sums, &sampled);
    }
    pj_stats_timer_end(timed_from);
}

typedef struct sums_task {
    pj_cpu *s;
    const pj_cpu_done *done;
} sums_task;

static void sum_share(void *context, unsigned thread)
{
    const sums_task *t = context;
    size_t begin, end;
    pj_team_share(t->s->team, thread, t->done->rows, 1, &begin, &end);
    if (begin < end) pj_cpu_sample(t->s, t->done, begin, end, pj_cpu_sums(t->s, thread));
}

void pj_cpu_take_sums(pj_cpu *s, size_t job, pj_value_sums *sums)
{
    pj_thread_sums *parts = pj_cpu_job_sums(s, job);
    *sums = parts[0].sums;
    memset(&parts[0].sums, 0, sizeof parts[0].sums);
    for (unsigned t = 1; t < pj_team_threads(s->team); t++) {
        pj_value_sums_add(sums, &parts[t].sums);
        memset(&parts[t].sums, 0, sizeof parts[t].sums);
    }
}

/* ---- kept statistics ---------------------------------------------------------------------- */

static pj_kept_stats *find_kept(pj_cpu *s, const float *x)
{
    for (uint32_t i = 0; i < PJ_CPU_KEPT; i++)
        if (s->kept[i].x == x) return &s->kept[i];
    return NULL;
}

void pj_cpu_keep(pj_cpu *s, const pj_cpu_done *done, const pj_value_sums *sums)
{
    pj_kept_stats *slot = find_kept(s, done->x);
    if (!slot) slot = &s->kept[s->kept_next++ % PJ_CPU_KEPT];
    size_t sampled_rows = done->cols ? sums->count / done->cols : 0;
    if (sampled_rows == done->rows) sampled_rows = 0;
    *slot = (pj_kept_stats){done->x,      done->rows, done->cols,
                            sampled_rows, true,       pj_stats_of_sums(sums)};
}

/* Sums an output that is complete: the caller alone or, if it is long, with the team. */
static void keep_output(pj_cpu *s, const pj_cpu_done *done)
{
    pj_value_sums sums = {0};
    if (done->rows * done->cols < TEAM_VALUES || done->rows == 1) {
        pj_cpu_sample(s, done, 0, done->rows, &sums);
    } else {
        pj_team_run(s->team, sum_share, &(sums_task){s, done});
        pj_cpu_take_sums(s, 0, &sums);
    }
    pj_cpu_keep(s, done, &sums);
}

void pj_cpu_keep_summed(pj_cpu *s, size_t job, const pj_cpu_done *done)
{
    pj_value_sums sums;
    if (pj_cpu_short(done->rows, done->cols)) {
        keep_output(s, done);
        return;
    }
    pj_cpu_take_sums(s, job, &sums);
    pj_cpu_keep(s, done, &sums);
}

/* Statistics of a span's output: those kept when the buffer was last written in this component,
 * else computed now. If they cover only some rows, an extra says how many. */
static const pj_stats *stats_of(pj_cpu *s, const pj_cpu_done *done)
{
    pj_kept_stats *slot = find_kept(s, done->x);
    bool same = slot && slot->rows == done->rows && slot->cols == done->cols;
    if (!same || (s->instrument->operation_open && !slot->fresh)) {
        keep_output(s, done);
        slot = find_kept(s, done->x);
    }
    slot->fresh = false;
    if (slot->sampled_rows)
        pj_instrument_extra(s->instrument, PJ_N_X_STATISTICS_ROWS, PJ_EXTRA_SCALAR,
                            (double)slot->sampled_rows);
    return &slot->stats;
}

/* ---- spans -------------------------------------------------------------------------------- */

void pj_cpu_section(void *state, pj_instrument_name name)
{
    pj_cpu *s = state;
    pj_instrument_section(s->instrument, name);
}

void pj_cpu_end_section(void *state)
{
    pj_cpu *s = state;
    pj_instrument_end(s->instrument);
}

void pj_cpu_layer(void *state, uint32_t layer)
{
    pj_cpu *s = state;
    pj_instrument_layer(s->instrument, layer);
}

void pj_cpu_begin_component(pj_cpu *s, pj_instrument_name name, int64_t now_ns)
{
    for (uint32_t i = 0; i < PJ_CPU_KEPT; i++) s->kept[i].x = NULL;
    pj_instrument_component(s->instrument, name, now_ns);
}

void pj_cpu_component(void *state, pj_instrument_name name)
{
    pj_cpu_begin_component(state, name, 0);
}

void pj_cpu_end_done(pj_cpu *s, double flops, double bytes, const pj_cpu_done *done, int64_t now_ns)
{
    pj_work work = {.flops = flops, .bytes = bytes};
    if (s->instrument->statistics && done->x && done->rows > 0) work.stats = stats_of(s, done);
    pj_instrument_end_work(s->instrument, &work, now_ns);
}

pj_cpu_done pj_cpu_done_of(const pj_cpu *s, const pj_done *done)
{
    pj_cpu_done d = pj_cpu_work(s, done->out, done->flops, done->bytes);
    if (done->out.buffer == PJ_NO_BUFFER) d.x = NULL;
    return d;
}

void pj_cpu_end(void *state, const pj_done *done)
{
    pj_cpu *s = state;
    pj_cpu_done d = pj_cpu_done_of(s, done);
    bool last = done->with_last && s->instrument->deep;
    pj_cpu_end_done(s, done->flops, done->bytes, &d, last ? s->instrument->ended_ns : 0);
}
