/* Names, ends of spans, statistics. Which thread adds which part of an output may vary between
 * runs, so statistics of equal outputs are equal only up to rounding of double sums. */
#include "engine/forward/instrument.h"

#include "base/memory.h"
#include "engine/kernels/stats_timer.h"

#include <string.h>

/* Below this many values one thread is faster than a dispatch. */
enum { TEAM_VALUES = 32768 };

pj_status pj_instrument_init(pj_instrument *r, pj_run *run, const pj_kernels *kernels,
                             pj_team *team, pj_statistics_rows rows, pj_error *err)
{
    memset(r, 0, sizeof *r);
    r->kernels = kernels;
    r->team = team;
    if (!run) return PJ_OK;
    r->lane = pj_run_lane(run);
    if (!r->lane) return pj_fail_memory(err, "the recording lane");
    r->module = pj_run_depth(run) >= PJ_DEPTH_MODULE;
    r->deep = pj_run_depth(run) >= PJ_DEPTH_DEEP;
    for (uint32_t i = 1; i < PJ_N_COUNT; i++) {
        r->names[i] = pj_run_name(run, pj_instrument_text((pj_instrument_name)i));
        if (r->names[i] == 0) return pj_fail_memory(err, "the names of spans");
    }
    r->statistics = r->module && rows != PJ_STATISTICS_OFF;
    r->all_rows = rows == PJ_STATISTICS_ALL || (rows == PJ_STATISTICS_BY_DEPTH && r->deep);
    r->sums =
        pj_alloc_aligned(64, (size_t)PJ_INSTRUMENT_JOBS * pj_team_threads(team), sizeof *r->sums);
    if (r->statistics) pj_stats_timer_start();
    return r->sums ? PJ_OK : pj_fail_memory(err, "the statistics");
}

void pj_instrument_fini(pj_instrument *r)
{
    /* The rest of the team does an equal share in the meantime, or spins. */
    if (r->statistics)
        pj_statistics_time(r->lane, pj_stats_timer_stop() * (int64_t)pj_team_threads(r->team));
    pj_free(r->sums);
    r->sums = NULL;
    r->lane = NULL;
    r->module = r->deep = r->statistics = false;
}

void pj_instrument_sample(const pj_instrument *r, const pj_done *of, size_t begin, size_t end,
                          pj_value_sums *sums)
{
    size_t step = pj_instrument_step(r, of->rows);
    const float *x = of->x + begin * of->stride;
    int64_t timed_from = pj_stats_timer_begin();
    if (step == 1) {
        r->kernels->value_sums(x, end - begin, of->cols, of->stride, PJ_SPARSITY_TAU, sums);
    } else {
        pj_value_sums sampled = {0};
        size_t first = (of->rows - 1 - begin) % step; /* sampled row from `begin` on */
        if (first < end - begin)
            r->kernels->value_sums(x + first * of->stride, (end - begin - first + step - 1) / step,
                                   of->cols, of->stride * step, PJ_SPARSITY_TAU, &sampled);
        sampled.nan = sampled.inf = 0; /* counted with the bounds */
        r->kernels->value_bounds(x, end - begin, of->cols, of->stride, &sampled);
        pj_value_sums_add(sums, &sampled);
    }
    pj_stats_timer_end(timed_from);
}

typedef struct sums_task {
    pj_instrument *r;
    const pj_done *done;
} sums_task;

static void sum_share(void *context, unsigned thread)
{
    const sums_task *t = context;
    size_t begin, end;
    pj_team_share(t->r->team, thread, t->done->rows, 1, &begin, &end);
    if (begin < end)
        pj_instrument_sample(t->r, t->done, begin, end, pj_instrument_sums(t->r, thread));
}

void pj_instrument_take_sums(pj_instrument *r, size_t job, pj_value_sums *sums)
{
    pj_thread_sums *parts = pj_instrument_job_sums(r, job);
    *sums = parts[0].sums;
    memset(&parts[0].sums, 0, sizeof parts[0].sums);
    for (unsigned t = 1; t < pj_team_threads(r->team); t++) {
        pj_value_sums_add(sums, &parts[t].sums);
        memset(&parts[t].sums, 0, sizeof parts[t].sums);
    }
}

pj_stats pj_stats_of_sums(const pj_value_sums *s)
{
    double finite = (double)(s->count - s->skipped);
    if (finite <= 0) return (pj_stats){NAN, NAN, NAN, NAN, NAN, (uint32_t)s->nan, (uint32_t)s->inf};
    double mean = s->sum / finite;
    double variance = fmax(s->sum_square / finite - mean * mean, 0);
    return (pj_stats){.mean_abs = (float)(s->sum_abs / finite),
                      .mean = (float)mean,
                      .std = (float)sqrt(variance),
                      .max_abs = s->max_abs,
                      .sparsity = (float)((double)s->below / finite),
                      .nan_count = (uint32_t)s->nan,
                      .inf_count = (uint32_t)s->inf};
}

void pj_instrument_begin_component(pj_instrument *r, pj_instrument_name name, int64_t now_ns)
{
    for (uint32_t i = 0; i < PJ_INSTRUMENT_KEPT; i++) r->kept[i].x = NULL;
    if (now_ns) r->ended_ns = now_ns;
    if (!r->ended_ns) r->ended_ns = pj_clock_ns();
    pj_span_begin_at(r->lane, PJ_SPAN_COMPONENT, r->names[name], r->ended_ns);
}

static pj_kept_stats *find_kept(pj_instrument *r, const float *x)
{
    for (uint32_t i = 0; i < PJ_INSTRUMENT_KEPT; i++)
        if (r->kept[i].x == x) return &r->kept[i];
    return NULL;
}

void pj_instrument_keep(pj_instrument *r, const pj_done *done, const pj_value_sums *sums)
{
    pj_kept_stats *slot = find_kept(r, done->x);
    if (!slot) slot = &r->kept[r->kept_next++ % PJ_INSTRUMENT_KEPT];
    size_t sampled_rows = done->cols ? sums->count / done->cols : 0;
    if (sampled_rows == done->rows) sampled_rows = 0;
    *slot = (pj_kept_stats){done->x,      done->rows, done->cols,
                            sampled_rows, true,       pj_stats_of_sums(sums)};
}

void pj_instrument_keep_output(pj_instrument *r, const pj_done *done)
{
    pj_value_sums sums = {0};
    if (done->rows * done->cols < TEAM_VALUES || done->rows == 1) {
        pj_instrument_sample(r, done, 0, done->rows, &sums);
    } else {
        pj_team_run(r->team, sum_share, &(sums_task){r, done});
        pj_instrument_take_sums(r, 0, &sums);
    }
    pj_instrument_keep(r, done, &sums);
}

/* Statistics of a span's output: those kept when the buffer was last written in this component,
 * else computed now. If they cover only some rows, an extra says how many. */
static const pj_stats *stats_of(pj_instrument *r, const pj_done *done)
{
    pj_kept_stats *slot = find_kept(r, done->x);
    bool same = slot && slot->rows == done->rows && slot->cols == done->cols;
    if (!same || (r->operation_open && !slot->fresh)) {
        pj_instrument_keep_output(r, done);
        slot = find_kept(r, done->x);
    }
    slot->fresh = false;
    if (slot->sampled_rows)
        pj_instrument_extra(r, PJ_N_X_STATISTICS_ROWS, PJ_EXTRA_SCALAR, (double)slot->sampled_rows);
    return &slot->stats;
}

void pj_instrument_end_done(pj_instrument *r, double flops, double bytes, const pj_done *done,
                            int64_t now_ns)
{
    pj_work work = {.flops = flops, .bytes = bytes};
    if (r->statistics && done->x && done->rows > 0) work.stats = stats_of(r, done);
    pj_instrument_end_work(r, &work, now_ns);
}

void pj_instrument_end_work(pj_instrument *r, pj_work *work, int64_t now_ns)
{
    work->extras = r->extras;
    work->extra_count = r->extra_count;
    r->ended_ns = now_ns ? now_ns : pj_clock_ns();
    pj_span_end_at(r->lane, work, r->ended_ns);
    r->extra_count = 0;
    r->operation_open = false;
}
