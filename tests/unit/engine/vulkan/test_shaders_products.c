/* Products of weights with few and with many rows, against sums in double precision. */
#include "shader_bench.h"

#include "engine/vulkan/weights.h"

#include <math.h>
#include <string.h>

static const float EPS = 1e-5f;

/* ---- references --------------------------------------------------------------------------- */

static double gelu_of(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double silu_of(double x)
{
    return x / (1 + exp(-x));
}

/* n values of a row, normalised. */
static void norm_of(pj_vk_norm kind, const float *x, size_t n, const float *weight,
                    const float *bias, double *y)
{
    double mean = 0, square = 0;
    for (size_t i = 0; kind == PJ_VK_NORM_LAYER && i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(square / (double)n + (double)EPS);
    for (size_t i = 0; i < n; i++)
        y[i] = kind == PJ_VK_NORM_NONE ? (double)x[i]
                                       : (x[i] - mean) * scale * weight[i] +
                                             (bias && kind == PJ_VK_NORM_LAYER ? bias[i] : 0);
}

/* One matrix with its bias and its reference. */
typedef struct matrix {
    uint64_t w, bias;
    double *values;
    float *bias_values;
    size_t rows, cols;
} matrix;

/* As the file has it, or as it lies on the device. */
static bool as_stored;

static uint32_t kernel_type(pj_dtype type)
{
    return as_stored ? type : pj_vk_weight_type(type);
}

static matrix make_matrix(pj_dtype type, size_t rows, size_t cols, bool biased)
{
    matrix m = {.rows = rows, .cols = cols};
    unsigned char *stored = bench_random_weights(type, rows, cols);
    m.values = bench_dequantised(type, stored, rows, cols);
    size_t row_bytes = pj_dtype_row_bytes(type, cols), there = pj_vk_weight_row_bytes(type, cols);
    unsigned char *loaded = bench_memory(rows * there);
    for (size_t r = 0; r < rows; r++)
        pj_vk_weight_row(type, stored + r * row_bytes, cols, loaded + r * there);
    m.w = as_stored ? bench_matrix(type, stored, rows * row_bytes)
                    : bench_matrix(type, loaded, rows * there);
    if (!biased) return m;
    m.bias_values = bench_random_floats(rows, 1);
    m.bias = bench_input(m.bias_values, rows * sizeof(float));
    return m;
}

static double product_of(const matrix *m, size_t row, const double *x)
{
    double sum = m->bias_values ? m->bias_values[row] : 0;
    for (size_t i = 0; i < m->cols; i++) sum += m->values[row * m->cols + i] * x[i];
    return sum;
}

/* ---- few rows ----------------------------------------------------------------------------- */

typedef struct few_case {
    pj_dtype type;
    size_t cols, tokens;
    uint32_t threads, lanes, rows, per_group;
    pj_vk_norm norm;
    bool biased;
} few_case;

static pj_vk_product_constants few_constants(const few_case *c)
{
    return (pj_vk_product_constants){.threads = c->threads,
                                     .type = kernel_type(c->type),
                                     .lanes = c->lanes,
                                     .rows = c->rows,
                                     .tokens = c->per_group,
                                     .norm = c->norm,
                                     .eps = EPS,
                                     .residual_scale = 1};
}

static void run_few(const pj_vk_product_constants *k, const pj_vk_product_args *args)
{
    BENCH_DISPATCH(PJ_VK_PRODUCT, k, args, pj_vk_product_groups(k, args),
                   (args->tokens + k->tokens - 1) / k->tokens, 1);
    bench_run();
}

/* x with its norm; fills the arguments and gives the rows that the matrices are multiplied with. */
static double *few_input(const few_case *c, pj_vk_product_args *args)
{
    size_t stride = c->cols + (c->cols % 2 ? 2 : 0);
    float *x = bench_random_floats(c->tokens * stride, 1);
    float *norm = bench_random_floats(2 * c->cols, 1);
    double *normed = bench_memory(c->tokens * c->cols * sizeof *normed);
    bool layer = c->norm == PJ_VK_NORM_LAYER;
    for (size_t t = 0; t < c->tokens; t++)
        norm_of(c->norm, x + t * stride, c->cols, norm, layer ? norm + c->cols : NULL,
                normed + t * c->cols);
    *args = (pj_vk_product_args){.cols = (uint32_t)c->cols,
                                 .x_stride = (uint32_t)stride,
                                 .tokens = (uint32_t)c->tokens,
                                 .norm_bias = layer ? (uint32_t)c->cols : 0};
    args->x = bench_input(x, c->tokens * stride * sizeof(float));
    if (c->norm) args->norm = bench_input(norm, 2 * c->cols * sizeof(float));
    return normed;
}

static const size_t few_rows[3] = {5, 3, 33};

static void check_few(few_case c)
{
    pj_vk_product_args args;
    matrix m[3];
    bench_begin();
    const double *x = few_input(&c, &args);
    for (size_t i = 0; i < 3; i++) {
        m[i] = make_matrix(c.type, few_rows[i], c.cols, c.biased);
        args.parts[i] = (pj_vk_part){m[i].w, m[i].bias, bench_output(c.tokens * 40 * sizeof(float)),
                                     (uint32_t)m[i].rows, 40};
    }
    pj_vk_product_constants k = few_constants(&c);
    run_few(&k, &args);
    for (size_t i = 0; i < 3; i++) {
        const float *y = bench_result(args.parts[i].y);
        double *want = bench_memory(c.tokens * m[i].rows * sizeof *want);
        for (size_t t = 0; t < c.tokens; t++)
            for (size_t r = 0; r < m[i].rows; r++)
                want[t * m[i].rows + r] = product_of(&m[i], r, x + t * c.cols);
        bench_assert_rows(y, 40, want, c.tokens, m[i].rows, 1e-5 * sqrt((double)c.cols));
        assert_true(isnan(y[m[i].rows])); /* between the rows */
    }
}

static size_t least_cols(pj_dtype type)
{
    return pj_dtype_get(type)->block_values;
}

/* One pipeline per type, which is what takes the time. */
static void every_type_multiplies_few_rows(void **state)
{
    for (pj_dtype type = 0; type < PJ_DTYPE_COUNT; type++) {
        size_t least = least_cols(type);
        check_few(
            (few_case){type, least > 1 ? 3 * least : 96, 1, 32, 16, 1, 1, PJ_VK_NORM_NONE, true});
        check_few(
            (few_case){type, least > 1 ? least : 257, 3, 32, 16, 1, 1, PJ_VK_NORM_NONE, false});
    }
}

/* ---- fused and apart ----------------------------------------------------------------------- */

enum { BLOCK_HIDDEN = 70, BLOCK_WIDTH = 45, BLOCK_TOKENS = 3 };

/* Half a layer: its norm, gate and up, their activation, down, the sum with the residual stream. */
typedef struct half_layer {
    matrix gate, up, down;
    float *x, *norm;
    uint64_t stream, norm_at; /* of x, which is updated */
} half_layer;

static half_layer make_half_layer(void)
{
    half_layer h = {.gate = make_matrix(PJ_F16, BLOCK_WIDTH, BLOCK_HIDDEN, true),
                    .up = make_matrix(PJ_F16, BLOCK_WIDTH, BLOCK_HIDDEN, true),
                    .down = make_matrix(PJ_F16, BLOCK_HIDDEN, BLOCK_WIDTH, true),
                    .x = bench_random_floats(BLOCK_TOKENS * BLOCK_HIDDEN, 2),
                    .norm = bench_random_floats(BLOCK_HIDDEN, 1)};
    h.norm_at = bench_input(h.norm, BLOCK_HIDDEN * sizeof(float));
    return h;
}

static uint64_t dispatch_part(pj_vk_product_constants *k, pj_vk_product_args *args, const matrix *m)
{
    args->parts[0] =
        (pj_vk_part){m->w, m->bias, bench_output(BLOCK_TOKENS * m->rows * sizeof(float)),
                     (uint32_t)m->rows, (uint32_t)m->rows};
    BENCH_DISPATCH(PJ_VK_PRODUCT, k, args, 1, BLOCK_TOKENS, 1);
    return args->parts[0].y;
}

static pj_vk_product_constants half_layer_constants(void)
{
    return (pj_vk_product_constants){.threads = 32,
                                     .type = PJ_F16,
                                     .lanes = 16,
                                     .rows = 1,
                                     .tokens = 1,
                                     .eps = EPS,
                                     .residual_scale = 0.3f};
}

static void dispatch_fused(const half_layer *h)
{
    pj_vk_product_constants k = half_layer_constants();
    pj_vk_product_args args = {.x = h->stream,
                               .norm = h->norm_at,
                               .cols = BLOCK_HIDDEN,
                               .x_stride = BLOCK_HIDDEN,
                               .tokens = BLOCK_TOKENS};
    k.norm = PJ_VK_NORM_RMS;
    k.output = PJ_VK_OUTPUT_GATE;
    args.parts[1] = (pj_vk_part){h->up.w, h->up.bias, 0, BLOCK_WIDTH, 0};
    uint64_t act = dispatch_part(&k, &args, &h->gate);
    k.norm = PJ_VK_NORM_NONE;
    k.output = PJ_VK_OUTPUT_RESIDUAL;
    args = (pj_vk_product_args){
        .x = act, .cols = BLOCK_WIDTH, .x_stride = BLOCK_WIDTH, .tokens = BLOCK_TOKENS};
    args.parts[2] = (pj_vk_part){.y = h->stream, .y_stride = BLOCK_HIDDEN};
    dispatch_part(&k, &args, &h->down);
}

static void dispatch_apart(const half_layer *h)
{
    pj_vk_product_constants k = half_layer_constants();
    pj_vk_norm_constants norm_k = {32, PJ_VK_NORM_RMS, PJ_VK_NORM_STORE, EPS, 1};
    pj_vk_norm_args norm = {.x = h->stream,
                            .y = bench_output(BLOCK_TOKENS * BLOCK_HIDDEN * sizeof(float)),
                            .weight = h->norm_at,
                            .rows = BLOCK_TOKENS,
                            .n = BLOCK_HIDDEN,
                            .per_token = 1,
                            .x_stride = BLOCK_HIDDEN,
                            .y_stride = BLOCK_HIDDEN};
    BENCH_DISPATCH(PJ_VK_NORM, &norm_k, &norm, BLOCK_TOKENS, 1, 1);
    pj_vk_product_args args = {
        .x = norm.y, .cols = BLOCK_HIDDEN, .x_stride = BLOCK_HIDDEN, .tokens = BLOCK_TOKENS};
    uint64_t gate = dispatch_part(&k, &args, &h->gate), up = dispatch_part(&k, &args, &h->up);
    pj_vk_rows_constants rows_k = {32, PJ_VK_ROWS_GATE, PJ_VK_GATE_SILU};
    pj_vk_rows_args rows = {
        .x = gate, .y = gate, .other = up, .rows = BLOCK_TOKENS, .n = BLOCK_WIDTH};
    rows.x_stride = rows.y_stride = rows.other_stride = BLOCK_WIDTH;
    BENCH_DISPATCH(PJ_VK_ROWS, &rows_k, &rows, 2, BLOCK_TOKENS, 1);
    args = (pj_vk_product_args){
        .x = gate, .cols = BLOCK_WIDTH, .x_stride = BLOCK_WIDTH, .tokens = BLOCK_TOKENS};
    rows = (pj_vk_rows_args){.x = dispatch_part(&k, &args, &h->down),
                             .y = h->stream,
                             .rows = BLOCK_TOKENS,
                             .n = BLOCK_HIDDEN,
                             .x_stride = BLOCK_HIDDEN,
                             .y_stride = BLOCK_HIDDEN,
                             .scale = 0.3f};
    rows_k.operation = PJ_VK_ROWS_ADD;
    BENCH_DISPATCH(PJ_VK_ROWS, &rows_k, &rows, 3, BLOCK_TOKENS, 1);
}

/* What is recorded apart, at a greater depth, is what is computed together otherwise. */
static void fused_dispatches_give_equal_bits(void **state)
{
    bench_begin();
    size_t bytes = BLOCK_TOKENS * BLOCK_HIDDEN * sizeof(float);
    half_layer h = make_half_layer();
    uint64_t fused = bench_updated(h.x, bytes), apart = bench_updated(h.x, bytes);
    h.stream = fused;
    dispatch_fused(&h);
    h.stream = apart;
    dispatch_apart(&h);
    bench_run();
    assert_memory_equal(bench_result(fused), bench_result(apart), bytes);
    assert_memory_not_equal(bench_result(fused), h.x, bytes);
}

/* ---- few rows of integers ------------------------------------------------------------------ */

static void codes_as_values(const int8_t *codes, const float *scales, size_t n, double *y)
{
    for (size_t i = 0; i < n; i++) y[i] = codes[i] * (double)scales[i / 32];
}

static void quantise_input(const few_case *c, const pj_vk_product_args *args,
                           pj_vk_quantise_args *q)
{
    *q = (pj_vk_quantise_args){
        .x = args->x,
        .weight = args->norm,
        .bias = args->norm_bias ? args->norm + args->norm_bias * sizeof(float) : 0,
        .codes = bench_output(c->tokens * c->cols),
        .scales = bench_output(c->tokens * c->cols / 8),
        .rows = args->tokens,
        .cols = args->cols,
        .x_stride = args->x_stride};
    pj_vk_quantise_constants k = {c->threads, c->norm, EPS};
    BENCH_DISPATCH(PJ_VK_QUANTISE, &k, q, q->rows, 1, 1);
}

/* The codes are those of the normalised row within half a step, and the product is exactly theirs.
 */
static void check_packed(few_case c)
{
    enum { OUT = 21 };
    pj_vk_product_args args;
    pj_vk_quantise_args q;
    bench_begin();
    const double *x = few_input(&c, &args);
    quantise_input(&c, &args, &q);
    matrix m = make_matrix(c.type, OUT, c.cols, c.biased);
    args.x = q.codes;
    args.norm = q.scales;
    args.norm_bias = 0;
    args.x_stride = args.cols;
    args.parts[0] =
        (pj_vk_part){m.w, m.bias, bench_output(c.tokens * OUT * sizeof(float)), OUT, OUT};
    pj_vk_product_constants k = few_constants(&c);
    k.norm = PJ_VK_NORM_NONE;
    BENCH_DISPATCH(PJ_VK_PRODUCT_PACKED, &k, &args, pj_vk_product_groups(&k, &args),
                   (args.tokens + k.tokens - 1) / k.tokens, 1);
    bench_run();
    const int8_t *codes = bench_result(q.codes);
    const float *scales = bench_result(q.scales), *y = bench_result(args.parts[0].y);
    double *values = bench_memory(c.cols * sizeof *values), out[OUT];
    for (size_t t = 0; t < c.tokens; t++) {
        codes_as_values(codes + t * c.cols, scales + t * c.cols / 32, c.cols, values);
        for (size_t i = 0; i < c.cols; i++)
            assert_true(fabs(values[i] - x[t * c.cols + i]) <=
                        0.501 * (double)scales[(t * c.cols + i) / 32] + 1e-6);
        for (size_t r = 0; r < OUT; r++) out[r] = product_of(&m, r, values);
        bench_assert_rows(y + t * OUT, OUT, out, 1, OUT, 1e-5 * sqrt((double)c.cols));
    }
}

static void types_multiply_integers(void **state)
{
    /* of each way to make codes */
    static const pj_dtype types[] = {PJ_Q8_0, PJ_Q4_0,   PJ_MXFP4, PJ_Q4_K,
                                     PJ_Q3_K, PJ_IQ4_XS, PJ_IQ1_M, PJ_NVFP4};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pj_dtype type = types[i];
        size_t least = least_cols(type);
        check_packed((few_case){type, 3 * least, 1, 32, 16, 1, 1, PJ_VK_NORM_RMS, true});
        check_packed((few_case){type, least, 3, 32, 16, 1, 1, PJ_VK_NORM_RMS, false});
    }
    check_packed((few_case){PJ_Q5_1, 96, 5, 64, 32, 2, 4, PJ_VK_NORM_LAYER, true});
    check_packed((few_case){PJ_Q5_1, 416, 3, 64, 32, 2, 4, PJ_VK_NORM_LAYER, true});
    as_stored = true;
    check_packed((few_case){PJ_Q8_0, 64, 3, 32, 16, 1, 1, PJ_VK_NORM_NONE, false});
    as_stored = false;
}

static void stored_blocks_are_multiplied_too(void **state)
{
    as_stored = true;
    check_few((few_case){PJ_Q8_0, 96, 3, 32, 16, 1, 1, PJ_VK_NORM_NONE, false});
    as_stored = false;
}

static void few_rows_have_any_size(void **state)
{
    static const size_t cols[] = {1, 3, 31, 33, 65, 257, 288};
    for (size_t i = 0; i < 7; i++) {
        check_few((few_case){PJ_F32, cols[i], 1 + i, 32, 16, 1, 2, PJ_VK_NORM_LAYER, true});
        check_few((few_case){PJ_BF16, cols[i], 8 - i, 32, 32, 2, 2, PJ_VK_NORM_RMS, false});
    }
}

static void check_residual(const few_case *c)
{
    pj_vk_product_args args;
    bench_begin();
    const double *x = few_input(c, &args);
    matrix m = make_matrix(c->type, 37, c->cols, true);
    float *residual = bench_random_floats(c->tokens * 41, 1);
    args.parts[0] = (pj_vk_part){m.w, m.bias, bench_output(c->tokens * 37 * sizeof(float)), 37, 37};
    args.parts[2].y = bench_updated(residual, c->tokens * 41 * sizeof(float));
    args.parts[2].y_stride = 41;
    pj_vk_product_constants k = few_constants(c);
    k.output = PJ_VK_OUTPUT_RESIDUAL;
    k.residual_scale = 0.25f;
    run_few(&k, &args);
    double *want = bench_memory(c->tokens * 37 * sizeof *want),
           *sum = bench_memory(c->tokens * 37 * sizeof *sum);
    for (size_t i = 0; i < c->tokens * 37; i++) {
        want[i] = product_of(&m, i % 37, x + i / 37 * c->cols);
        sum[i] = residual[i / 37 * 41 + i % 37] + 0.25 * want[i];
    }
    bench_assert_rows(bench_result(args.parts[0].y), 37, want, c->tokens, 37, 2e-4);
    bench_assert_rows(bench_result(args.parts[2].y), 41, sum, c->tokens, 37, 2e-4);
    const float *after = bench_result(args.parts[2].y);
    for (size_t t = 0; t < c->tokens; t++)
        assert_memory_equal(after + t * 41 + 37, residual + t * 41 + 37, 4 * sizeof(float));
}

static void the_residual_stream_is_added_to(void **state)
{
    const few_case odd = {PJ_F16, 65, 3, 32, 16, 2, 2, PJ_VK_NORM_NONE, true};
    const few_case block = {PJ_Q8_0, 96, 5, 64, 32, 1, 4, PJ_VK_NORM_NONE, true};
    check_residual(&odd);
    check_residual(&block);
}

static double gated_of(pj_vk_gate kind, double gate, double up)
{
    double limit = 0.75, alpha = 1.7;
    if (kind == PJ_VK_GATE_GELU) return gelu_of(gate) * up;
    if (kind == PJ_VK_GATE_SILU) return silu_of(gate) * up;
    double g = fmin(gate, limit);
    return g / (1 + exp(-alpha * g)) * (fmax(fmin(up, limit), -limit) + 1);
}

static void check_gate(const few_case *c, pj_vk_gate kind)
{
    enum { WIDTH = 45 };
    pj_vk_product_args args;
    bench_begin();
    const double *x = few_input(c, &args);
    matrix gate = make_matrix(c->type, WIDTH, c->cols, c->biased),
           up = make_matrix(c->type, WIDTH, c->cols, c->biased);
    args.parts[0] = (pj_vk_part){gate.w, gate.bias, bench_output(c->tokens * WIDTH * sizeof(float)),
                                 WIDTH, WIDTH};
    args.parts[1] = (pj_vk_part){up.w, up.bias, 0, WIDTH, 0};
    pj_vk_product_constants k = few_constants(c);
    k.output = PJ_VK_OUTPUT_GATE;
    k.gate = kind;
    k.alpha = 1.7f;
    k.limit = 0.75f;
    run_few(&k, &args);
    double *want = bench_memory(c->tokens * WIDTH * sizeof *want);
    for (size_t i = 0; i < c->tokens * WIDTH; i++) {
        const double *row = x + i / WIDTH * c->cols;
        want[i] =
            gated_of(kind, product_of(&gate, i % WIDTH, row), product_of(&up, i % WIDTH, row));
    }
    bench_assert_rows(bench_result(args.parts[0].y), WIDTH, want, c->tokens, WIDTH, 3e-4);
}

static void gate_and_up_become_an_activation(void **state)
{
    few_case c = {PJ_BF16, 40, 3, 64, 16, 1, 1, PJ_VK_NORM_RMS, true};
    for (pj_vk_gate kind = 0; kind <= PJ_VK_GATE_CLAMPED; kind++) check_gate(&c, kind);
    few_case block = {PJ_Q4_K, 256, 3, 64, 16, 2, 2, PJ_VK_NORM_LAYER, false};
    check_gate(&block, PJ_VK_GATE_SILU);
}

/* ---- many rows ---------------------------------------------------------------------------- */

typedef struct many_case {
    pj_dtype type;
    size_t tokens, rows, cols;
    uint32_t tile_tokens, tile_rows, per_token, per_row;
    pj_vk_product_output output;
    bool matrices;
} many_case;

static void dispatch_many(const many_case *c, const pj_vk_product_tiled_args *args)
{
    uint32_t x = (args->rows + c->tile_rows - 1) / c->tile_rows;
    uint32_t y = (args->tokens + c->tile_tokens - 1) / c->tile_tokens;
    if (c->matrices) {
        uint32_t down = c->tile_tokens / 64, across = c->tile_rows / 32;
        pj_vk_product_matrix_constants k = {
            down * across * 32, kernel_type(c->type), down, across, 32, c->output, 0.5f};
        BENCH_DISPATCH(PJ_VK_PRODUCT_MATRIX_PLAIN, &k, args, x, y, 1);
    } else {
        uint32_t threads = c->tile_tokens / c->per_token * (c->tile_rows / c->per_row);
        pj_vk_product_tiled_constants k = {
            threads,      kernel_type(c->type), c->tile_tokens, c->tile_rows,
            c->per_token, c->per_row,           c->output,      0.5f};
        BENCH_DISPATCH(PJ_VK_PRODUCT_TILED, &k, args, x, y, 1);
    }
}

static double largest_of(const matrix *m)
{
    double largest = 0;
    for (size_t i = 0; i < m->rows * m->cols; i++) largest = fmax(largest, fabs(m->values[i]));
    return largest;
}

static void check_many(many_case c)
{
    bench_begin();
    size_t stride = c.cols + c.cols % 2, y_stride = c.rows + 3;
    float *x = bench_random_floats(c.tokens * stride, 1);
    float *residual = bench_random_floats(c.tokens * c.rows, 1);
    matrix m = make_matrix(c.type, c.rows, c.cols, c.rows % 2);
    pj_vk_product_tiled_args args = {.x = bench_input(x, c.tokens * stride * sizeof *x),
                                     .w = m.w,
                                     .bias = m.bias,
                                     .y = bench_output(c.tokens * y_stride * sizeof *x),
                                     .residual =
                                         bench_updated(residual, c.tokens * c.rows * sizeof *x),
                                     .rows = (uint32_t)c.rows,
                                     .cols = (uint32_t)c.cols,
                                     .tokens = (uint32_t)c.tokens,
                                     .x_stride = (uint32_t)stride,
                                     .y_stride = (uint32_t)y_stride,
                                     .residual_stride = (uint32_t)c.rows};
    dispatch_many(&c, &args);
    bench_run();
    double *want = bench_memory(c.tokens * c.rows * sizeof *want),
           *row = bench_memory(c.cols * sizeof *row);
    double *sum = bench_memory(c.tokens * c.rows * sizeof *sum);
    for (size_t t = 0; t < c.tokens; t++) {
        norm_of(PJ_VK_NORM_NONE, x + t * stride, c.cols, NULL, NULL, row);
        for (size_t r = 0; r < c.rows; r++) {
            want[t * c.rows + r] = product_of(&m, r, row);
            sum[t * c.rows + r] = residual[t * c.rows + r] + 0.5 * want[t * c.rows + r];
        }
    }
    const float *y = bench_result(args.y);
    double tolerance = sqrt((double)c.cols) * (c.matrices ? 5e-4 * largest_of(&m) : 1e-5);
    bench_assert_rows(y, y_stride, want, c.tokens, c.rows, tolerance);
    assert_true(isnan(y[c.rows]));
    if (c.output == PJ_VK_OUTPUT_RESIDUAL)
        bench_assert_rows(bench_result(args.residual), c.rows, sum, c.tokens, c.rows, tolerance);
    else
        assert_memory_equal(bench_result(args.residual), residual, c.tokens * c.rows * sizeof *x);
}

/* The kernel for cooperative matrices, with their operations written out. */
static void matrices_multiply_many_rows(void **state)
{
    check_many((many_case){PJ_F16, 65, 35, 33, 64, 64, 0, 0, PJ_VK_OUTPUT_STORE, true});
    check_many((many_case){PJ_F16, 1, 64, 3, 64, 64, 0, 0, PJ_VK_OUTPUT_STORE, true});
    check_many((many_case){PJ_Q4_K, 31, 33, 256, 64, 64, 0, 0, PJ_VK_OUTPUT_RESIDUAL, true});
    check_many((many_case){PJ_Q8_0, 130, 65, 32, 128, 32, 0, 0, PJ_VK_OUTPUT_STORE, true});
}

static void types_multiply_many_rows(void **state)
{
    /* of each way to unpack: floats, bytes, nibbles, and runs 32 and 64 values apart */
    static const pj_dtype types[] = {PJ_F32,   PJ_F16,  PJ_Q8_0, PJ_Q5_1,
                                     PJ_MXFP4, PJ_Q4_K, PJ_Q3_K, PJ_IQ2_S};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pj_dtype type = types[i];
        size_t least = least_cols(type);
        check_many((many_case){type, 17, 21, least > 1 ? 2 * least : 96, 16, 16, 4, 2,
                               PJ_VK_OUTPUT_STORE});
    }
}

static void many_rows_have_any_size(void **state)
{
    static const size_t cols[] = {1, 3, 31, 33, 65, 257};
    for (size_t i = 0; i < 6; i++) {
        check_many((many_case){PJ_F16, 7 + 9 * i, 64 - 9 * i, cols[i], 32, 32, 4, 4,
                               PJ_VK_OUTPUT_RESIDUAL, false});
        check_many((many_case){PJ_F32, 65, 1 + i, cols[i], 64, 16, 8, 2, PJ_VK_OUTPUT_STORE});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_multiplies_few_rows),
        cmocka_unit_test(types_multiply_integers),
        cmocka_unit_test(stored_blocks_are_multiplied_too),
        cmocka_unit_test(few_rows_have_any_size),
        cmocka_unit_test(the_residual_stream_is_added_to),
        cmocka_unit_test(gate_and_up_become_an_activation),
        cmocka_unit_test(fused_dispatches_give_equal_bits),
        cmocka_unit_test(types_multiply_many_rows),
        cmocka_unit_test(many_rows_have_any_size),
        cmocka_unit_test(matrices_multiply_many_rows),
    };
    return bench_main(tests);
}
