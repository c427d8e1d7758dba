/* Products with weight matrices: together in one dispatch, or in turn. */
#include "engine/cpu/cpu.h"

typedef struct bias_task {
    const pj_cpu *s;
    const pj_product *product;
} bias_task;

static void add_bias_row(void *context, size_t row)
{
    const bias_task *t = context;
    const pj_projection *w = t->product->projection;
    t->s->kernels->add(pj_cpu_row(t->s, t->product->y, row), w->bias, w->w.rows);
}

/* Job `index` of a dispatch, with statistics of its output if `summed`. */
static pj_linear_job job_of(pj_cpu *s, const pj_product *p, size_t index, bool summed)
{
    bool during = summed && !pj_cpu_short(p->y.rows, p->projection->w.rows);
    return (pj_linear_job){.weights = &p->projection->w,
                           .bias = p->projection->bias,
                           .y = pj_cpu_floats(s, p->y),
                           .y_stride = p->y.stride,
                           .sums = during ? pj_cpu_job_sums(s, index) : NULL,
                           .sample_step = pj_instrument_step(s->instrument, p->y.rows),
                           .tau = PJ_SPARSITY_TAU};
}

/* Runs one product, with statistics of its output if recorded. */
static void product_alone(pj_cpu *s, const pj_product *p, const float *bias,
                          const pj_packed *packed, const pj_cpu_done *done)
{
    bool summed = done && s->instrument->statistics;
    pj_linear_job job = job_of(s, p, 0, summed);
    job.bias = bias;
    pj_linear_run(s->kernels, s->team, packed, &job, 1);
    if (summed) pj_cpu_keep_summed(s, 0, done);
}

/* One product with its operations as separate spans. */
static void product_apart(pj_cpu *s, const pj_product *p, const pj_packed *packed)
{
    const pj_projection *w = p->projection;
    size_t rows = packed->tokens;
    pj_cpu_done done =
        pj_cpu_work(s, p->y, 2.0 * (double)rows * (double)w->w.rows * (double)w->w.cols,
                    pj_product_bytes(w, rows));
    pj_instrument_operation(s->instrument, PJ_N_OP_MATMUL);
    product_alone(s, p, NULL, packed, &done);
    pj_cpu_operation_end(s, &done);
    if (!w->bias) return;
    done.flops = (double)rows * (double)w->w.rows;
    done.bytes = 4.0 * (2 * done.flops + (double)w->w.rows);
    pj_instrument_operation(s->instrument, PJ_N_OP_BIAS_ADD);
    pj_cpu_rows_summed(s, rows, rows * w->w.rows, add_bias_row, &(bias_task){s, p}, &done);
    pj_cpu_operation_end(s, &done);
}

static void products_pack(pj_cpu *s, const pj_matrix *w, pj_slice x, pj_packed *packed)
{
    bool changes = pj_linear_form(s->kernels, w->type, x.rows) != PJ_FORM_F32;
    if (changes) pj_instrument_operation(s->instrument, PJ_N_OP_PACK);
    pj_linear_pack(s->kernels, s->team, w->type, pj_cpu_floats(s, x), x.stride, x.rows, w->cols,
                   s->packed, packed);
    if (changes)
        pj_cpu_operation_end(s, &(pj_cpu_done){.bytes = 4.0 * (double)x.rows * (double)w->cols});
}

static pj_cpu_done product_done(const pj_cpu *s, const pj_product *p)
{
    pj_done done = pj_product_work(p);
    return pj_cpu_done_of(s, &done);
}

static void add_residual(pj_cpu *s, const pj_product *p)
{
    float factor = p->projection->out_factor != 0 ? p->projection->out_factor : 1;
    if (p->residual.buffer)
        pj_cpu_add_scaled(s, p->residual, p->y, (float)s->model->config.residual_scale * factor);
}

/* Records products that ran together, each from where work on it began to where work on the next
 * one did: begun[count] is the end of the last. The first component is open. */
static void record_together(pj_cpu *s, const pj_product *products, size_t count, int64_t *begun)
{
    pj_instrument *r = s->instrument;
    for (size_t i = 0; i < count; i++) {
        pj_cpu_done done = product_done(s, &products[i]);
        if (i > 0) pj_cpu_begin_component(s, products[i].projection->name, begun[i]);
        /* threads may have read the clock in a different order from that of taking rows */
        if (begun[i + 1] < r->ended_ns) begun[i + 1] = r->ended_ns;
        pj_instrument_operation(r, PJ_N_OP_MATMUL);
        if (r->statistics) pj_cpu_keep_summed(s, i, &done);
        if (r->deep) pj_cpu_end_done(s, done.flops, done.bytes, &done, begun[i + 1]);
        pj_cpu_end_done(s, done.flops, done.bytes, &done, begun[i + 1]);
    }
}

/* All products in one dispatch, if they read the same form. */
static bool products_together(pj_cpu *s, pj_slice x, const pj_product *products, size_t count,
                              bool recorded)
{
    pj_linear_job jobs[PJ_MAX_PRODUCTS];
    int64_t begun[PJ_MAX_PRODUCTS + 1];
    pj_packed packed;
    const pj_matrix *first = &products[0].projection->w;
    for (size_t i = 0; i < count; i++) {
        pj_dtype type = products[i].projection->w.type;
        if (!pj_linear_shares(s->kernels, type, first->type, x.rows)) return false;
        jobs[i] = job_of(s, &products[i], i, recorded && s->instrument->statistics);
        if (recorded && i > 0) jobs[i].begun_ns = &begun[i];
    }
    if (recorded) pj_cpu_begin_component(s, products[0].projection->name, 0);
    products_pack(s, first, x, &packed);
    pj_linear_run(s->kernels, s->team, &packed, jobs, count);
    for (size_t i = 0; i < count; i++) add_residual(s, &products[i]);
    if (!recorded) return true;
    begun[count] = pj_clock_ns();
    record_together(s, products, count, begun);
    return true;
}

/* One product after another, each with its spans and statistics. */
static void products_in_turn(pj_cpu *s, pj_slice x, const pj_product *products, size_t count)
{
    pj_instrument *r = s->instrument;
    pj_packed packed = {0};
    pj_dtype packed_for = PJ_F32;
    for (size_t i = 0; i < count; i++) {
        const pj_product *p = &products[i];
        const pj_projection *w = p->projection;
        bool recorded = r->module && w->name;
        pj_cpu_done done = product_done(s, p);
        if (recorded) pj_cpu_begin_component(s, w->name, 0);
        if (i == 0 || !pj_linear_shares(s->kernels, w->w.type, packed_for, x.rows))
            products_pack(s, &w->w, x, &packed);
        packed_for = w->w.type;
        if (r->deep)
            product_apart(s, p, &packed);
        else
            product_alone(s, p, w->bias, &packed, recorded ? &done : NULL);
        add_residual(s, p);
        if (recorded) pj_cpu_end_done(s, done.flops, done.bytes, &done, r->deep ? r->ended_ns : 0);
    }
}

void pj_cpu_products(void *state, pj_slice x, const pj_product *products, uint32_t count)
{
    pj_cpu *s = state;
    bool biased = false;
    for (size_t i = 0; i < count; i++) biased |= products[i].projection->bias != NULL;
    bool recorded = s->instrument->module && products[0].projection->name;
    /* a component includes the addition to the residual stream; at depth `deep` a bias is an
     * operation of its own, and so is each product outside components */
    bool apart = recorded
                     ? count == 1 || products[0].residual.buffer || (s->instrument->deep && biased)
                     : s->instrument->deep;
    if (apart || !products_together(s, x, products, count, recorded))
        products_in_turn(s, x, products, count);
}
