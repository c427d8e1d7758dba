/* Norms, products and sums: the building blocks of every layer. */
#include "engine/forward/steps.h"
#include "engine/kernels/stats_timer.h"

#include <math.h>
#include <string.h>

/* Below this number of values the calling thread works alone: a dispatch costs about a
 * microsecond. */
enum { TEAM_VALUES = 16384, FEW_ROWS = 8 };

/* ---- rows on the team --------------------------------------------------------------------- */

typedef struct rows_task {
    const pj_steps *s;
    size_t rows;
    pj_row_fn *run;
    void *context;
    const pj_done *done; /* NULL: no statistics */
} rows_task;

static void run_rows(const rows_task *t, size_t begin, size_t end, unsigned thread)
{
    const pj_done *done = t->done;
    size_t parts = done ? t->rows / done->rows : 1, cols = done ? done->cols / parts : 0;
    const pj_kernels *k = t->s->kernels;
    size_t step = done ? pj_instrument_step(t->s->instrument, done->rows) : 1;
    pj_value_sums *sums = done ? pj_instrument_sums(t->s->instrument, thread) : NULL;
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

void pj_steps_rows(const pj_steps *s, size_t rows, size_t work, pj_row_fn *run, void *context)
{
    run_task(&(rows_task){s, rows, run, context, NULL}, work);
}

/* Statistics of an output whose dispatch has ended. */
static void keep_summed(const pj_steps *s, size_t job, const pj_done *done)
{
    if (pj_instrument_short(done->rows, done->cols))
        pj_instrument_keep_output(s->instrument, done);
    else
        pj_instrument_keep_sums(s->instrument, job, done);
}

void pj_steps_rows_summed(const pj_steps *s, size_t rows, size_t work, pj_row_fn *run,
                          void *context, const pj_done *done)
{
    bool summed = s->instrument->statistics && rows > 0;
    bool after = pj_instrument_short(done->rows, done->cols);
    run_task(&(rows_task){s, rows, run, context, summed && !after ? done : NULL}, work);
    if (summed) keep_summed(s, 0, done);
}

/* ---- norms -------------------------------------------------------------------------------- */

typedef struct norm_task {
    const pj_steps *s;
    const pj_norm_step *step;
    float eps;
    pj_value_sums *sums; /* of the output, to which sampled rows are added; NULL: none */
} norm_task;

static const float *norm_input(const pj_norm_step *t, size_t row)
{
    return t->x + row / t->per_token * t->x_stride + row % t->per_token * t->n;
}

static float *steps_norm_output(const pj_norm_step *t, size_t row)
{
    return t->y + row / t->per_token * t->y_stride + row % t->per_token * t->n;
}

static void steps_norm_row(void *context, size_t row)
{
    const norm_task *t = context;
    const pj_norm_step *n = t->step;
    if (n->kind == PJ_NORM_RMS)
        t->s->kernels->rmsnorm(steps_norm_output(n, row), norm_input(n, row), n->norm->w, n->n,
                               t->eps);
    else
        t->s->kernels->layernorm(steps_norm_output(n, row), norm_input(n, row), n->norm->w,
                                 n->norm->b, n->n, t->eps);
}

static double variance(const pj_value_sums *s, size_t n)
{
    double mean = s->sum / (double)n;
    return fmax(s->sum_square / (double)n - mean * mean, 0);
}

void pj_steps_record_rows(const pj_steps *s, size_t rows)
{
    size_t step = pj_sample_step(rows);
    size_t sampled = (rows + step - 1) / step;
    if (step > 1) pj_instrument_extra(s->instrument, PJ_N_X_ROWS, PJ_EXTRA_SCALAR, (double)sampled);
}

/* The norm for sampled rows, with the ratio of variances across it. */
static void norm_row_with_ratios(void *context, size_t row)
{
    const norm_task *t = context;
    const pj_norm_step *n = t->step;
    float *ratios = t->s->state->ratios;
    size_t tokens = n->rows / n->per_token, token = row / n->per_token;
    ratios[row] = ratios[n->rows + row] = NAN;
    if (!pj_sample_has_row(token, tokens, pj_sample_step(tokens))) {
        steps_norm_row(context, row);
        return;
    }
    pj_value_sums before = {0}, after = {0};
    int64_t timed_from = pj_stats_timer_begin();
    t->s->kernels->value_sums(norm_input(n, row), 1, n->n, n->n, 0, &before);
    pj_stats_timer_end(timed_from);
    steps_norm_row(context, row);
    timed_from = pj_stats_timer_begin();
    t->s->kernels->value_sums(steps_norm_output(n, row), 1, n->n, n->n, PJ_SPARSITY_TAU, &after);
    if (t->sums) pj_value_sums_add(t->sums, &after);
    pj_stats_timer_end(timed_from);
    double out = variance(&after, n->n);
    if (out > 0) ratios[row] = (float)(variance(&before, n->n) / out);
    if (after.sum_square > 0) ratios[n->rows + row] = (float)(before.sum_square / after.sum_square);
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

static void record_ratios(const pj_steps *s, const pj_norm_step *step)
{
    float *ratios = s->state->ratios;
    size_t n;
    double mean = mean_ratio(ratios, step->rows, &n);
    pj_steps_record_rows(s, step->rows / step->per_token);
    pj_instrument_extra(s->instrument, PJ_N_X_VARIANCE_RATIO, PJ_EXTRA_SCALAR, mean);
    if (n > 0)
        pj_instrument_extra(s->instrument, PJ_N_X_VARIANCE_RATIO_P95, PJ_EXTRA_SCALAR,
                            select_rank(ratios, n, (n * 95 + 99) / 100 - 1));
    if (step->kind == PJ_NORM_RMS)
        pj_instrument_extra(s->instrument, PJ_N_X_MEAN_SQUARE_RATIO, PJ_EXTRA_SCALAR,
                            mean_ratio(ratios + step->rows, step->rows, &n));
}

void pj_steps_norm(const pj_steps *s, const pj_norm_step *step)
{
    if (!step->norm->w || !pj_steps_want(s, step->norm->name)) return;
    norm_task task = {s, step, (float)s->model->config.norm_eps, NULL};
    pj_value_sums sums = {0};
    size_t values = step->rows * step->n;
    pj_done done = {.flops = 7.0 * (double)values,
                    .bytes = 8.0 * (double)values + 4.0 * (double)step->n,
                    .x = step->y,
                    .rows = step->rows / step->per_token,
                    .cols = step->n * step->per_token,
                    .stride = step->y_stride};
    pj_instrument_component(s->instrument, step->norm->name);
    pj_instrument_operation(s->instrument, PJ_N_OP_NORM);
    bool ratios = s->instrument->deep && s->instrument->statistics;
    /* ratios need the sums of sampled rows: of all, if they are few, on this thread */
    if (ratios && pj_instrument_short(step->rows, step->n) && pj_sample_step(done.rows) == 1) {
        task.sums = &sums;
        pj_steps_rows(s, step->rows, 0, norm_row_with_ratios, &task);
        pj_instrument_keep(s->instrument, &done, &sums);
    } else {
        pj_steps_rows_summed(s, step->rows, values, ratios ? norm_row_with_ratios : steps_norm_row,
                             &task, &done);
    }
    if (ratios) record_ratios(s, step);
    pj_instrument_operation_end(s->instrument, &done);
    if (step->residual) pj_steps_add(s, step->residual, step->y, step->rows, step->n);
    pj_instrument_module_end_with_last(s->instrument, &done);
}

/* ---- products ----------------------------------------------------------------------------- */

double pj_product_flops(const pj_projection *p, size_t rows)
{
    double t = (double)rows, out = (double)p->w.rows;
    return 2 * t * (double)p->w.cols * out + (p->bias ? t * out : 0);
}

double pj_product_bytes(const pj_projection *p, size_t rows)
{
    return (double)p->w.rows * (double)p->w.row_bytes +
           4.0 * (double)rows * (double)(p->w.cols + p->w.rows);
}

typedef struct bias_task {
    const pj_kernels *kernels;
    const pj_product *product;
} bias_task;

static void add_bias_row(void *context, size_t row)
{
    const bias_task *t = context;
    t->kernels->add(t->product->y + row * t->product->y_stride, t->product->projection->bias,
                    t->product->projection->w.rows);
}

/* Job `index` of a dispatch, with statistics of its output if `summed`. */
static pj_linear_job job_of(const pj_steps *s, const pj_product *p, size_t rows, size_t index,
                            bool summed)
{
    bool during = summed && !pj_instrument_short(rows, p->projection->w.rows);
    return (pj_linear_job){.weights = &p->projection->w,
                           .bias = p->projection->bias,
                           .y = p->y,
                           .y_stride = p->y_stride,
                           .sums = during ? pj_instrument_job_sums(s->instrument, index) : NULL,
                           .sample_step = pj_instrument_step(s->instrument, rows),
                           .tau = PJ_SPARSITY_TAU};
}

/* Runs one product, with statistics of its output if recorded. */
static void product_alone(const pj_steps *s, const pj_product *p, const float *bias,
                          const pj_packed *packed, const pj_done *done)
{
    bool summed = done && s->instrument->statistics;
    pj_linear_job job = job_of(s, p, packed->tokens, 0, summed);
    job.bias = bias;
    pj_linear_run(s->kernels, s->team, packed, &job, 1);
    if (summed) keep_summed(s, 0, done);
}

/* One product with its operations as separate spans. */
static void product_apart(const pj_steps *s, const pj_product *p, const pj_packed *packed)
{
    const pj_projection *w = p->projection;
    size_t rows = packed->tokens;
    pj_done done = {.flops = 2.0 * (double)rows * (double)w->w.rows * (double)w->w.cols,
                    .bytes = pj_product_bytes(w, rows),
                    .x = p->y,
                    .rows = rows,
                    .cols = w->w.rows,
                    .stride = p->y_stride};
    pj_instrument_operation(s->instrument, PJ_N_OP_MATMUL);
    product_alone(s, p, NULL, packed, &done);
    pj_instrument_operation_end(s->instrument, &done);
    if (!w->bias) return;
    done.flops = (double)rows * (double)w->w.rows;
    done.bytes = 4.0 * (2 * done.flops + (double)w->w.rows);
    pj_instrument_operation(s->instrument, PJ_N_OP_BIAS_ADD);
    pj_steps_rows_summed(s, rows, rows * w->w.rows, add_bias_row, &(bias_task){s->kernels, p},
                         &done);
    pj_instrument_operation_end(s->instrument, &done);
}

static void steps_pack(const pj_steps *s, pj_dtype type, const float *x, size_t x_stride,
                       size_t rows, size_t cols, pj_packed *packed)
{
    bool changes = pj_linear_form(s->kernels, type, rows) != PJ_FORM_F32;
    if (changes) pj_instrument_operation(s->instrument, PJ_N_OP_PACK);
    pj_linear_pack(s->kernels, s->team, type, x, x_stride, rows, cols, s->state->packed, packed);
    if (changes)
        pj_instrument_operation_end(s->instrument,
                                    &(pj_done){.bytes = 4.0 * (double)rows * (double)cols});
}

static pj_done product_done(const pj_product *p, size_t rows)
{
    const pj_projection *w = p->projection;
    return (pj_done){.flops = pj_product_flops(w, rows),
                     .bytes = pj_product_bytes(w, rows),
                     .x = p->y,
                     .rows = rows,
                     .cols = w->w.rows,
                     .stride = p->y_stride};
}

static void add_residual(const pj_steps *s, const pj_product *p, size_t rows)
{
    if (p->residual) pj_steps_add(s, p->residual, p->y, rows, p->projection->w.rows);
}

/* Records products that ran together, each from where work on it began to where work on the next
 * one did: begun[count] is the end of the last. The first component is open. */
static void record_together(const pj_steps *s, const pj_rows *rows, const pj_product *products,
                            size_t count, int64_t *begun)
{
    pj_instrument *r = s->instrument;
    for (size_t i = 0; i < count; i++) {
        pj_done done = product_done(&products[i], rows->count);
        if (i > 0) pj_instrument_begin_component(r, products[i].projection->name, begun[i]);
        /* threads may have read the clock in a different order from that of taking rows */
        if (begun[i + 1] < r->ended_ns) begun[i + 1] = r->ended_ns;
        pj_instrument_operation(r, PJ_N_OP_MATMUL);
        if (r->statistics) keep_summed(s, i, &done);
        if (r->deep) pj_instrument_end_done(r, done.flops, done.bytes, &done, begun[i + 1]);
        pj_instrument_end_done(r, done.flops, done.bytes, &done, begun[i + 1]);
    }
}

/* All products in one dispatch, if they read the same form. */
static bool products_together(const pj_steps *s, const pj_rows *rows, const pj_product *products,
                              size_t count, bool recorded)
{
    pj_linear_job jobs[PJ_MAX_PRODUCTS];
    int64_t begun[PJ_MAX_PRODUCTS + 1];
    pj_packed packed;
    const pj_matrix *first = &products[0].projection->w;
    for (size_t i = 0; i < count; i++) {
        pj_dtype type = products[i].projection->w.type;
        if (pj_linear_form(s->kernels, type, rows->count) !=
            pj_linear_form(s->kernels, first->type, rows->count))
            return false;
        jobs[i] = job_of(s, &products[i], rows->count, i, recorded && s->instrument->statistics);
        if (recorded && i > 0) jobs[i].begun_ns = &begun[i];
    }
    if (recorded) pj_instrument_begin_component(s->instrument, products[0].projection->name, 0);
    steps_pack(s, first->type, rows->x, rows->stride, rows->count, first->cols, &packed);
    pj_linear_run(s->kernels, s->team, &packed, jobs, count);
    for (size_t i = 0; i < count; i++) add_residual(s, &products[i], rows->count);
    if (!recorded) return true;
    begun[count] = pj_clock_ns();
    record_together(s, rows, products, count, begun);
    return true;
}

/* One product after another, each with its spans and statistics. */
static void products_in_turn(const pj_steps *s, const pj_rows *rows, const pj_product *products,
                             size_t count)
{
    pj_instrument *r = s->instrument;
    pj_packed packed = {0};
    for (size_t i = 0; i < count; i++) {
        const pj_product *p = &products[i];
        const pj_projection *w = p->projection;
        pj_done done = product_done(p, rows->count);
        if (w->name) pj_instrument_component(r, w->name);
        if (i == 0 || pj_linear_form(s->kernels, w->w.type, rows->count) != packed.form)
            steps_pack(s, w->w.type, rows->x, rows->stride, rows->count, w->w.cols, &packed);
        if (r->deep)
            product_apart(s, p, &packed);
        else
            product_alone(s, p, w->bias, &packed, w->name && r->module ? &done : NULL);
        add_residual(s, p, rows->count);
        if (w->name) pj_instrument_module_end_with_last(r, &done);
    }
}

void pj_steps_products(const pj_steps *s, const pj_rows *rows, const pj_product *products,
                       size_t count)
{
    pj_product present[PJ_MAX_PRODUCTS];
    size_t n = 0;
    bool biased = false;
    for (size_t i = 0; i < count; i++) {
        if (!products[i].projection->w.data || !pj_steps_want(s, products[i].projection->name))
            continue;
        biased |= products[i].projection->bias != NULL;
        present[n++] = products[i];
    }
    if (n == 0) return;
    bool recorded = s->instrument->module && present[0].projection->name;
    /* a component includes the addition to the residual stream; at depth `deep` a bias is an
     * operation of its own, and so is each product outside components */
    bool apart = recorded ? n == 1 || present[0].residual || (s->instrument->deep && biased)
                          : s->instrument->deep;
    if (apart || !products_together(s, rows, present, n, recorded))
        products_in_turn(s, rows, present, n);
}

void pj_steps_product(const pj_steps *s, const pj_rows *rows, const pj_projection *projection,
                      float *y, size_t y_stride, float *residual)
{
    pj_product product = {projection, y, y_stride, residual};
    pj_steps_products(s, rows, &product, 1);
}

/* ---- sums --------------------------------------------------------------------------------- */

typedef struct add_task {
    const pj_kernels *kernels;
    float *y;
    const float *x;
    size_t n;
    float scale;
} add_task;

static void steps_add_row(void *context, size_t row)
{
    const add_task *t = context;
    if (t->scale == 1)
        t->kernels->add(t->y + row * t->n, t->x + row * t->n, t->n);
    else
        t->kernels->add_scaled(t->y + row * t->n, t->x + row * t->n, t->scale, t->n);
}

void pj_steps_add(const pj_steps *s, float *y, const float *x, size_t rows, size_t n)
{
    float scale = (float)s->model->config.residual_scale;
    double values = (double)rows * (double)n;
    pj_done done = {.flops = (scale == 1 ? 1 : 2) * values,
                    .bytes = 12 * values,
                    .x = y,
                    .rows = rows,
                    .cols = n,
                    .stride = n};
    add_task task = {s->kernels, y, x, n, scale};
    pj_instrument_operation(s->instrument, PJ_N_OP_RESIDUAL_ADD);
    /* At depth `module` only the statistics of a layer's last addition are needed: of many rows
     * they are computed while in cache, of few at the end of the layer. */
    if (s->instrument->deep || rows > FEW_ROWS)
        pj_steps_rows_summed(s, rows, rows * n, steps_add_row, &task, &done);
    else
        pj_steps_rows(s, rows, rows * n, steps_add_row, &task);
    pj_instrument_operation_end(s->instrument, &done);
}
