/* Norms, with the ratio of variances across them at depth deep. */
#include "engine/cpu/cpu.h"
#include "engine/kernels/stats_timer.h"

#include <math.h>

typedef struct norm_task {
    pj_cpu *s;
    const pj_norm_step *step;
    const float *x;
    float *y;
    size_t rows, n, per_token; /* heads as rows */
    float eps;
    pj_value_sums *sums; /* of the output, to which sampled rows are added; NULL: none */
} norm_task;

static const float *norm_input(const norm_task *t, size_t row)
{
    return t->x + row / t->per_token * t->step->x.stride + row % t->per_token * t->n;
}

static float *norm_result(const norm_task *t, size_t row)
{
    return t->y + row / t->per_token * t->step->y.stride + row % t->per_token * t->n;
}

static void norm_row(void *context, size_t row)
{
    const norm_task *t = context;
    const pj_norm *norm = t->step->norm;
    if (t->step->kind == PJ_NORM_RMS)
        t->s->kernels->rmsnorm(norm_result(t, row), norm_input(t, row), norm->w, t->n, t->eps);
    else
        t->s->kernels->layernorm(norm_result(t, row), norm_input(t, row), norm->w, norm->b, t->n,
                                 t->eps);
}

static double variance(const pj_value_sums *s, size_t n)
{
    double mean = s->sum / (double)n;
    return fmax(s->sum_square / (double)n - mean * mean, 0);
}

/* The norm for sampled rows, with the ratio of variances across it. */
static void norm_row_with_ratios(void *context, size_t row)
{
    const norm_task *t = context;
    float *ratios = t->s->ratios;
    size_t tokens = t->rows / t->per_token, token = row / t->per_token;
    ratios[row] = ratios[t->rows + row] = NAN;
    if (!pj_sample_has_row(token, tokens, pj_instrument_extras_step(t->s->instrument, tokens))) {
        norm_row(context, row);
        return;
    }
    pj_value_sums before = {0}, after = {0};
    int64_t timed_from = pj_stats_timer_begin();
    t->s->kernels->value_sums(norm_input(t, row), 1, t->n, t->n, 0, &before);
    pj_stats_timer_end(timed_from);
    norm_row(context, row);
    timed_from = pj_stats_timer_begin();
    t->s->kernels->value_sums(norm_result(t, row), 1, t->n, t->n, PJ_SPARSITY_TAU, &after);
    if (t->sums) pj_value_sums_add(t->sums, &after);
    pj_stats_timer_end(timed_from);
    double out = variance(&after, t->n);
    if (out > 0) ratios[row] = (float)(variance(&before, t->n) / out);
    if (after.sum_square > 0) ratios[t->rows + row] = (float)(before.sum_square / after.sum_square);
}

/* The k-th smallest (from 0) of n values; reorders them. */
static float select_rank(float *v, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i >= j) break;
            float swapped = v[i];
            v[i++] = v[j];
            v[j--] = swapped;
        }
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
    return v[k];
}

/* Mean over the rows with a defined ratio; *count is their number, and they are moved to the
 * front. */
static double mean_ratio(float *ratios, size_t rows, size_t *count)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < rows; i++) {
        if (isnan(ratios[i])) continue;
        sum += ratios[i];
        ratios[n++] = ratios[i];
    }
    *count = n;
    return n ? sum / (double)n : NAN;
}

static void record_ratios(const norm_task *t)
{
    pj_instrument *r = t->s->instrument;
    float *ratios = t->s->ratios;
    size_t n;
    double mean = mean_ratio(ratios, t->rows, &n);
    pj_cpu_record_rows(t->s, t->rows / t->per_token);
    pj_instrument_extra(r, PJ_N_X_VARIANCE_RATIO, PJ_EXTRA_SCALAR, mean);
    if (n > 0)
        pj_instrument_extra(r, PJ_N_X_VARIANCE_RATIO_P95, PJ_EXTRA_SCALAR,
                            select_rank(ratios, n, (n * 95 + 99) / 100 - 1));
    if (t->step->kind == PJ_NORM_RMS)
        pj_instrument_extra(r, PJ_N_X_MEAN_SQUARE_RATIO, PJ_EXTRA_SCALAR,
                            mean_ratio(ratios + t->rows, t->rows, &n));
}

void pj_cpu_norm(void *state, const pj_norm_step *step)
{
    pj_cpu *s = state;
    pj_value_sums sums = {0};
    pj_cpu_done done = pj_cpu_work(s, step->y, 0, 0);
    norm_task task = {.s = s,
                      .step = step,
                      .x = pj_cpu_floats(s, step->x),
                      .y = pj_cpu_floats(s, step->y),
                      .rows = (size_t)step->y.rows * step->heads,
                      .n = step->y.cols / step->heads,
                      .per_token = step->heads,
                      .eps = pj_norm_eps(step->norm, &s->model->config)};
    pj_instrument_operation(s->instrument, PJ_N_OP_NORM);
    bool ratios = s->instrument->deep && s->instrument->statistics;
    /* ratios need the sums of sampled rows: of all, if they are few, on this thread */
    if (ratios && pj_cpu_short(task.rows, task.n) &&
        pj_instrument_extras_step(s->instrument, done.rows) == 1) {
        task.sums = &sums;
        pj_cpu_rows(s, task.rows, 0, norm_row_with_ratios, &task);
        pj_cpu_keep(s, &done, &sums);
    } else {
        pj_cpu_rows_summed(s, task.rows, task.rows * task.n,
                           ratios ? norm_row_with_ratios : norm_row, &task, &done);
    }
    if (ratios) record_ratios(&task);
    if (s->instrument->deep) {
        pj_done work = pj_norm_work(step);
        pj_cpu_end_done(s, work.flops, work.bytes, &done, 0);
    }
    if (step->residual.buffer) pj_cpu_add(s, step->residual, step->y);
}
