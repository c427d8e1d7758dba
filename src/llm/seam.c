/* Names, ends of spans, statistics on the team. Sums are merged in the order of the threads, each
 * thread's share depends on the size alone: equal inputs give equal statistics. */
#include "llm/seam.h"

#include "base/memory.h"

#include <string.h>

/* Below this many values one thread is faster than a dispatch. */
enum { TEAM_VALUES = 32768 };

/* A cache line or more of its own for every thread. */
typedef struct pj_thread_sums {
    _Alignas(64) pj_value_sums sums;
} pj_thread_sums;

static const char *const name_texts[PJ_N_COUNT] = {
#define X(symbol, text) [PJ_N_##symbol] = text,
    PJ_SEAM_NAMES(X)
#undef X
};

const char *pj_seam_text(pj_seam_name name)
{
    return name_texts[name];
}

pj_status pj_seam_init(pj_seam *r, pj_run *run, const pj_kernels *kernels, pj_team *team,
                       pj_error *err)
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
        r->names[i] = pj_run_name(run, name_texts[i]);
        if (r->names[i] == 0) return pj_fail_memory(err, "the names of spans");
    }
    r->sums = pj_alloc_aligned(64, pj_team_threads(team), sizeof *r->sums);
    return r->sums ? PJ_OK : pj_fail_memory(err, "the statistics");
}

void pj_seam_fini(pj_seam *r)
{
    pj_free(r->sums);
    r->sums = NULL;
    r->lane = NULL;
    r->module = r->deep = false;
}

typedef struct sums_task {
    pj_seam *r;
    const float *x;
    size_t rows, cols, stride;
} sums_task;

static void sum_rows(const sums_task *t, size_t begin, size_t end, pj_value_sums *sums)
{
    if (t->stride == t->cols) {
        t->r->kernels->value_sums(t->x + begin * t->cols, (end - begin) * t->cols, PJ_SPARSITY_TAU,
                                  sums);
        return;
    }
    for (size_t row = begin; row < end; row++)
        t->r->kernels->value_sums(t->x + row * t->stride, t->cols, PJ_SPARSITY_TAU, sums);
}

static void sum_share(void *context, unsigned thread)
{
    const sums_task *t = context;
    size_t begin, end;
    pj_seam_clear_sums(t->r, thread);
    pj_team_share(t->r->team, thread, t->rows, 1, &begin, &end);
    if (begin < end) sum_rows(t, begin, end, pj_seam_thread_sums(t->r, thread));
}

static void merge_sums(pj_value_sums *into, const pj_value_sums *part)
{
    into->sum += part->sum;
    into->sum_abs += part->sum_abs;
    into->sum_square += part->sum_square;
    into->max_abs = fmaxf(into->max_abs, part->max_abs);
    into->count += part->count;
    into->below += part->below;
    into->nan += part->nan;
    into->inf += part->inf;
}

void pj_seam_sums(pj_seam *r, const float *x, size_t rows, size_t cols, size_t stride,
                  pj_value_sums *sums)
{
    sums_task task = {r, x, rows, cols, stride};
    memset(sums, 0, sizeof *sums);
    if (rows * cols < TEAM_VALUES || rows == 1) {
        sum_rows(&task, 0, rows, sums);
        return;
    }
    pj_team_run(r->team, sum_share, &task);
    pj_seam_merge_sums(r, sums);
}

void pj_seam_clear_sums(pj_seam *r, unsigned thread)
{
    memset(&r->sums[thread].sums, 0, sizeof r->sums[thread].sums);
}

pj_value_sums *pj_seam_thread_sums(pj_seam *r, unsigned thread)
{
    return &r->sums[thread].sums;
}

void pj_seam_merge_sums(const pj_seam *r, pj_value_sums *sums)
{
    for (unsigned t = 0; t < pj_team_threads(r->team); t++) merge_sums(sums, &r->sums[t].sums);
}

pj_stats pj_stats_of_sums(const pj_value_sums *s)
{
    double finite = (double)(s->count - s->nan - s->inf);
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

void pj_seam_begin_component(pj_seam *r, pj_seam_name name)
{
    memset(r->kept, 0, sizeof r->kept);
    pj_span_begin(r->lane, PJ_SPAN_COMPONENT, r->names[name]);
}

/* Statistics of what a span put out: those of the operation that wrote the buffer last, where one
 * did in this component, else taken now. */
static const pj_stats *stats_of(pj_seam *r, const pj_done *done)
{
    pj_kept_stats *slot = NULL;
    for (uint32_t i = 0; i < PJ_SEAM_KEPT; i++)
        if (r->kept[i].x == done->x) slot = &r->kept[i];
    bool same = slot && slot->rows == done->rows && slot->cols == done->cols;
    if (same && !r->operation_open) return &slot->stats;
    if (!slot) slot = &r->kept[r->kept_next++ % PJ_SEAM_KEPT];
    pj_value_sums sums;
    pj_seam_sums(r, done->x, done->rows, done->cols, done->stride, &sums);
    *slot = (pj_kept_stats){done->x, done->rows, done->cols, pj_stats_of_sums(&sums)};
    return &slot->stats;
}

void pj_seam_end_done(pj_seam *r, const pj_done *done)
{
    pj_work work = {.flops = done->flops, .bytes = done->bytes};
    if (done->x && done->rows > 0) work.stats = stats_of(r, done);
    pj_seam_end_work(r, &work);
}

void pj_seam_end_work(pj_seam *r, pj_work *work)
{
    work->extras = r->extras;
    work->extra_count = r->extra_count;
    pj_span_end(r->lane, work);
    r->extra_count = 0;
    r->operation_open = false;
}

void pj_seam_extra(pj_seam *r, pj_seam_name name, uint32_t index, double value)
{
    if (isnan(value) || r->extra_count == PJ_SEAM_EXTRAS) return;
    r->extras[r->extra_count++] = (pj_extra){r->names[name], index, value};
}
