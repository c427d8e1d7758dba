/* Names, ends of spans, statistics. Which thread adds which part of an output may vary between
 * runs, so statistics of equal outputs are equal only up to rounding of double sums. */
#include "engine/forward/seam.h"

#include "base/memory.h"
#include "engine/kernels/look.h"

#include <stdlib.h>
#include <string.h>

/* Below this many values one thread is faster than a dispatch. */
enum { TEAM_VALUES = 32768 };

static void flush_first(void *context)
{
    pj_seam_flush(context);
}

/* PERJOULE_RECORD=at_once: spans are recorded where they begin and end. */
static bool records_later(const pj_team *team)
{
    const char *wanted = getenv("PERJOULE_RECORD");
    return pj_team_threads(team) > 1 && !(wanted && strcmp(wanted, "at_once") == 0);
}

pj_status pj_seam_init(pj_seam *r, pj_run *run, const pj_kernels *kernels, pj_team *team,
                       pj_statistics_rows rows, pj_error *err)
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
        r->names[i] = pj_run_name(run, pj_seam_text((pj_seam_name)i));
        if (r->names[i] == 0) return pj_fail_memory(err, "the names of spans");
    }
    r->statistics = r->module && rows != PJ_STATISTICS_OFF;
    r->all_rows = rows == PJ_STATISTICS_ALL || (rows == PJ_STATISTICS_BY_DEPTH && r->deep);
    r->sums = pj_alloc_aligned(64, (size_t)PJ_SEAM_JOBS * pj_team_threads(team), sizeof *r->sums);
    r->queues = r->module && records_later(team);
    if (r->queues) pj_team_set_first(team, flush_first, r);
    if (r->statistics) pj_look_start();
    return r->sums ? PJ_OK : pj_fail_memory(err, "the statistics");
}

void pj_seam_fini(pj_seam *r)
{
    pj_seam_flush(r);
    if (r->queues) pj_team_set_first(r->team, NULL, NULL);
    r->queues = false;
    /* The rest of the team does an equal share in the meantime, or spins. */
    if (r->statistics)
        pj_statistics_time(r->lane, pj_look_stop() * (int64_t)pj_team_threads(r->team));
    pj_free(r->sums);
    r->sums = NULL;
    r->lane = NULL;
    r->module = r->deep = r->statistics = false;
}

void pj_seam_look(const pj_seam *r, const pj_done *of, size_t begin, size_t end,
                  pj_value_sums *sums)
{
    size_t step = pj_seam_step(r, of->rows);
    const float *x = of->x + begin * of->stride;
    int64_t look = pj_look_begin();
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
    pj_look_end(look);
}

typedef struct sums_task {
    pj_seam *r;
    const pj_done *done;
} sums_task;

static void sum_share(void *context, unsigned thread)
{
    const sums_task *t = context;
    size_t begin, end;
    pj_team_share(t->r->team, thread, t->done->rows, 1, &begin, &end);
    if (begin < end) pj_seam_look(t->r, t->done, begin, end, pj_seam_sums(t->r, thread));
}

void pj_seam_take_sums(pj_seam *r, size_t job, pj_value_sums *sums)
{
    pj_thread_sums *parts = pj_seam_job_sums(r, job);
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
    double each = 1 / finite, mean = s->sum * each;
    double variance = fmax(s->sum_square * each - mean * mean, 0);
    return (pj_stats){.mean_abs = (float)(s->sum_abs * each),
                      .mean = (float)mean,
                      .std = (float)sqrt(variance),
                      .max_abs = s->max_abs,
                      .sparsity = (float)((double)s->below * each),
                      .nan_count = (uint32_t)s->nan,
                      .inf_count = (uint32_t)s->inf};
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void record_end(pj_seam *r, pj_queued *q)
{
    if (q->sums) {
        pj_value_sums sums = {0};
        pj_seam_look(r, &q->done, 0, q->done.rows, &sums);
        q->stats = pj_stats_of_sums(&sums);
    } else if (q->same >= 0) {
        q->stats = r->queue[q->same].stats;
    }
    pj_work work = {.flops = q->done.flops,
                    .bytes = q->done.bytes,
                    .stats = q->has_stats ? &q->stats : NULL,
                    .extras = r->extras + q->extra_begin,
                    .extra_count = q->extra_count};
    pj_span_end_at(r->lane, &work, q->now_ns);
}

/* The call records at once, with extras beyond those of the open span. */
static void run_call(pj_seam *r)
{
    uint32_t begin = r->extra_begin, count = r->extra_count;
    int64_t ended_ns = r->ended_ns;
    bool operation_open = r->operation_open;
    r->extra_begin = count;
    r->queues = false;
    r->call(r->call_context);
    r->queues = true;
    r->call = NULL;
    r->operation_open = operation_open;
    r->ended_ns = ended_ns;
    r->extra_begin = begin;
    r->extra_count = count;
}

void pj_seam_flush(pj_seam *r)
{
    if (r->queued == 0) return;
    for (uint32_t i = 0; i < r->queued; i++) {
        pj_queued *q = &r->queue[i];
        if (q->calls)
            run_call(r);
        else if (q->ends)
            record_end(r, q);
        else
            pj_span_begin_at(r->lane, (pj_span_kind)q->kind, q->id, q->now_ns);
    }
    r->queued = r->queued_sums = r->component_at = 0;
    r->extra_count -= r->extra_begin;
    memmove(r->extras, r->extras + r->extra_begin, r->extra_count * sizeof *r->extras);
    r->extra_begin = 0;
}

void pj_seam_before_write(pj_seam *r, const float *y, size_t floats)
{
    for (uint32_t i = 0; i < r->queued; i++) {
        const pj_done *d = &r->queue[i].done;
        if (!r->queue[i].sums) continue;
        if (d->x < y + floats && y < d->x + (d->rows - 1) * d->stride + d->cols) {
            pj_seam_flush(r);
            return;
        }
    }
}

static pj_queued *next_queued(pj_seam *r)
{
    if (r->queued == PJ_SEAM_QUEUE) pj_seam_flush(r);
    r->queue[r->queued].calls = r->queue[r->queued].sums = false;
    return &r->queue[r->queued++];
}

bool pj_seam_call_later(pj_seam *r, void (*call)(void *context), const void *context, size_t bytes,
                        int64_t end_ns)
{
    if (!r->queues || bytes > sizeof r->call_context) return false;
    if (r->call) pj_seam_flush(r);
    next_queued(r)->calls = true;
    r->call = call;
    memcpy(r->call_context, context, bytes);
    r->ended_ns = end_ns;
    return true;
}

void pj_seam_begin(pj_seam *r, pj_span_kind kind, uint32_t id, int64_t now_ns)
{
    if (!r->queues) {
        pj_span_begin_at(r->lane, kind, id, now_ns);
        return;
    }
    pj_queued *q = next_queued(r);
    q->now_ns = now_ns;
    q->kind = (uint8_t)kind;
    q->id = id;
    q->ends = false;
}

/* The open span's extras become those of its queued end. */
static pj_queued *queue_end(pj_seam *r, int64_t now_ns)
{
    pj_queued *q = next_queued(r);
    q->now_ns = now_ns;
    q->ends = true;
    q->has_stats = false;
    q->same = -1;
    q->extra_begin = r->extra_begin;
    q->extra_count = r->extra_count - r->extra_begin;
    r->extra_begin = r->extra_count;
    return q;
}

/* A component or layer has the statistics of its last operation's output. */
static int find_queued(const pj_seam *r, const pj_done *done)
{
    for (uint32_t i = r->queued; i-- > r->component_at;) {
        const pj_queued *q = &r->queue[i];
        if (q->sums && q->done.x == done->x && q->done.rows == done->rows &&
            q->done.cols == done->cols)
            return (int)i;
    }
    return -1;
}

static void end_later(pj_seam *r, double flops, double bytes, const pj_done *done, int64_t now_ns)
{
    if (r->queued == PJ_SEAM_QUEUE) pj_seam_flush(r);
    int same = r->operation_open ? -1 : find_queued(r, done);
    pj_queued *q = queue_end(r, now_ns);
    q->done = *done;
    q->done.flops = flops;
    q->done.bytes = bytes;
    q->has_stats = true;
    q->same = same;
    q->sums = same < 0;
    r->queued_sums += q->sums;
    if (r->extra_begin >= PJ_SEAM_EXTRAS) pj_seam_flush(r);
}

void pj_seam_begin_component(pj_seam *r, pj_seam_name name, int64_t now_ns)
{
    for (uint32_t i = 0; i < PJ_SEAM_KEPT; i++) r->kept[i].x = NULL;
    if (now_ns) r->ended_ns = now_ns;
    if (!r->ended_ns) r->ended_ns = pj_clock_ns();
    pj_seam_begin(r, PJ_SPAN_COMPONENT, r->names[name], r->ended_ns);
    r->component_at = r->queued;
}

static pj_kept_stats *find_kept(pj_seam *r, const float *x)
{
    for (uint32_t i = 0; i < PJ_SEAM_KEPT; i++)
        if (r->kept[i].x == x) return &r->kept[i];
    return NULL;
}

void pj_seam_keep(pj_seam *r, const pj_done *done, const pj_value_sums *sums)
{
    pj_kept_stats *slot = find_kept(r, done->x);
    if (!slot) slot = &r->kept[r->kept_next++ % PJ_SEAM_KEPT];
    size_t looked = done->cols ? sums->count / done->cols : 0;
    if (looked == done->rows) looked = 0;
    *slot = (pj_kept_stats){done->x, done->rows, done->cols, looked, true, pj_stats_of_sums(sums)};
}

void pj_seam_keep_output(pj_seam *r, const pj_done *done)
{
    pj_value_sums sums = {0};
    if (done->rows * done->cols < TEAM_VALUES || done->rows == 1) {
        pj_seam_look(r, done, 0, done->rows, &sums);
    } else {
        pj_team_run(r->team, sum_share, &(sums_task){r, done});
        pj_seam_take_sums(r, 0, &sums);
    }
    pj_seam_keep(r, done, &sums);
}

/* Statistics of a span's output: those kept when the buffer was last written in this component,
 * else computed now. If they cover only some rows, an extra says how many. */
static const pj_stats *stats_of(pj_seam *r, const pj_done *done)
{
    pj_kept_stats *slot = find_kept(r, done->x);
    bool same = slot && slot->rows == done->rows && slot->cols == done->cols;
    if (!same || (r->operation_open && !slot->fresh)) {
        pj_seam_keep_output(r, done);
        slot = find_kept(r, done->x);
    }
    slot->fresh = false;
    if (slot->looked)
        pj_seam_extra(r, PJ_N_X_STATISTICS_ROWS, PJ_EXTRA_SCALAR, (double)slot->looked);
    return &slot->stats;
}

void pj_seam_end_done(pj_seam *r, double flops, double bytes, const pj_done *done, int64_t now_ns)
{
    pj_work work = {.flops = flops, .bytes = bytes};
    if (r->statistics && done->x && done->rows > 0) {
        if (pj_seam_is_later(r, done)) {
            r->ended_ns = now_ns ? now_ns : pj_clock_ns();
            end_later(r, flops, bytes, done, r->ended_ns);
            r->operation_open = false;
            return;
        }
        work.stats = stats_of(r, done);
    }
    pj_seam_end_work(r, &work, now_ns);
}

void pj_seam_end_work(pj_seam *r, pj_work *work, int64_t now_ns)
{
    r->ended_ns = now_ns ? now_ns : pj_clock_ns();
    r->operation_open = false;
    if (r->queues) {
        pj_queued *q = queue_end(r, r->ended_ns);
        q->done.flops = work->flops;
        q->done.bytes = work->bytes;
        q->has_stats = work->stats != NULL;
        if (work->stats) q->stats = *work->stats;
        if (r->extra_begin >= PJ_SEAM_EXTRAS) pj_seam_flush(r);
        return;
    }
    work->extras = r->extras + r->extra_begin;
    work->extra_count = r->extra_count - r->extra_begin;
    pj_span_end_at(r->lane, work, r->ended_ns);
    r->extra_count = r->extra_begin;
}
