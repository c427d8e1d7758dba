/* Kernels that treat rows apart: norms, gathered rows, and what is done value by value. */
#include "shader_bench.h"

#include "engine/vulkan/weights.h"

#include <math.h>
#include <string.h>

static const float EPS = 1e-5f;

static double silu_of(double x)
{
    return x / (1 + exp(-x));
}

/* ---- norms -------------------------------------------------------------------------------- */

typedef struct norm_case {
    pj_vk_norm norm;
    pj_vk_norm_output output;
    size_t tokens, per_token, n, gap; /* gap: floats between the rows of tokens */
    bool in_place, own_weights;       /* own_weights: of each row of a token */
} norm_case;

static void norm_of(const norm_case *c, const float *x, const float *weight, const float *bias,
                    double *y)
{
    double mean = 0, square = 0;
    for (size_t i = 0; c->norm == PJ_VK_NORM_LAYER && i < c->n; i++) mean += x[i] / (double)c->n;
    for (size_t i = 0; i < c->n; i++) square += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(square / (double)c->n + (double)EPS);
    for (size_t i = 0; i < c->n; i++)
        y[i] = (x[i] - mean) * scale * weight[i] + (c->norm == PJ_VK_NORM_LAYER ? bias[i] : 0);
}

static void check_norm(norm_case c)
{
    bench_begin();
    size_t stride = c.per_token * c.n + c.gap, floats = c.tokens * stride,
           bytes = floats * sizeof(float);
    float *x = bench_random_floats(floats, 3), *weight = bench_random_floats(c.per_token * c.n, 1);
    float *bias = bench_random_floats(c.n, 1), *other = bench_random_floats(floats, 2);
    pj_vk_norm_args args = {.weight = bench_input(weight, c.per_token * c.n * sizeof(float)),
                            .weight_step = c.own_weights ? (uint32_t)c.n : 0,
                            .rows = (uint32_t)(c.tokens * c.per_token),
                            .n = (uint32_t)c.n,
                            .per_token = (uint32_t)c.per_token,
                            .x_stride = (uint32_t)stride,
                            .y_stride = (uint32_t)stride,
                            .other_stride = (uint32_t)stride};
    args.x = c.in_place ? bench_updated(x, bytes) : bench_input(x, bytes);
    args.y = c.in_place ? args.x : bench_output(bytes);
    if (c.norm == PJ_VK_NORM_LAYER) args.bias = bench_input(bias, c.n * sizeof(float));
    args.other =
        c.output == PJ_VK_NORM_RESIDUAL ? bench_updated(other, bytes) : bench_input(other, bytes);
    pj_vk_norm_constants k = {64, c.norm, c.output, EPS, 0.5f};
    BENCH_DISPATCH(PJ_VK_NORM, &k, &args, args.rows > 4 ? 4 : args.rows, 1, 1);
    bench_run();
    const float *y = bench_result(args.y), *beside = bench_result(args.other);
    double *want = bench_memory(c.n * sizeof *want);
    for (size_t row = 0; row < args.rows; row++) {
        size_t at = row / c.per_token * stride + row % c.per_token * c.n;
        norm_of(&c, x + at, weight + (c.own_weights ? row % c.per_token * c.n : 0), bias, want);
        for (size_t i = 0; c.output == PJ_VK_NORM_GATED && i < c.n; i++)
            want[i] *= silu_of(other[at + i]);
        bench_assert_rows(y + at, c.n, want, 1, c.n, 1e-5);
        for (size_t i = 0; i < c.n; i++) want[i] = other[at + i] + 0.5 * want[i];
        if (c.output == PJ_VK_NORM_RESIDUAL)
            bench_assert_rows(beside + at, c.n, want, 1, c.n, 1e-5);
    }
}

static void rows_are_normalised(void **state)
{
    static const size_t sizes[] = {1, 3, 31, 33, 65, 257};
    for (size_t i = 0; i < 6; i++) {
        check_norm(
            (norm_case){PJ_VK_NORM_RMS, PJ_VK_NORM_STORE, 1 + 11 * i, 1, sizes[i], i, i % 2});
        check_norm((norm_case){PJ_VK_NORM_LAYER, PJ_VK_NORM_RESIDUAL, 7, 1, sizes[i], i, i % 2});
        check_norm((norm_case){PJ_VK_NORM_RMS, PJ_VK_NORM_RESIDUAL, 2, 3, sizes[i], 5, true});
        check_norm((norm_case){PJ_VK_NORM_RMS, PJ_VK_NORM_GATED, 3, 2, sizes[i], 0, true});
        check_norm((norm_case){PJ_VK_NORM_RMS, PJ_VK_NORM_STORE, 3, 4, sizes[i], 1, false, true});
    }
}

/* ---- gathered rows ------------------------------------------------------------------------- */

/* `loaded`: the table lies as weights do on the device. */
static void check_gather(pj_dtype type, size_t cols, bool listed, bool loaded)
{
    enum { TABLE_ROWS = 9, ROWS = 5 };
    static const uint32_t list[ROWS] = {8, 0, 3, TABLE_ROWS + 1, 7}; /* one beyond: the first */
    bench_begin();
    unsigned char *table = bench_random_weights(type, TABLE_ROWS, cols);
    size_t row_bytes = pj_dtype_row_bytes(type, cols), y_stride = cols + 2;
    double *values = bench_dequantised(type, table, TABLE_ROWS, cols);
    if (loaded) {
        size_t there = pj_vk_weight_row_bytes(type, cols);
        unsigned char *rows = bench_memory(TABLE_ROWS * there);
        for (size_t i = 0; i < TABLE_ROWS; i++)
            pj_vk_weight_row(type, table + i * row_bytes, cols, rows + i * there);
        table = rows;
        row_bytes = there;
    }
    pj_vk_gather_args args = {.table = bench_matrix(type, table, TABLE_ROWS * row_bytes),
                              .list = listed ? bench_input(list, sizeof list) : 0,
                              .y = bench_output(ROWS * y_stride * sizeof(float)),
                              .row_bytes = row_bytes,
                              .rows = ROWS,
                              .cols = (uint32_t)cols,
                              .y_stride = (uint32_t)y_stride,
                              .table_rows = TABLE_ROWS,
                              .scale = 1.5f};
    pj_vk_gather_constants k = {32, loaded ? pj_vk_weight_type(type) : type};
    BENCH_DISPATCH(PJ_VK_GATHER, &k, &args, (uint32_t)(cols / (16 * 32) + 1), ROWS, 1);
    bench_run();
    const float *y = bench_result(args.y);
    double *want = bench_memory(ROWS * cols * sizeof *want);
    for (size_t i = 0; i < ROWS * cols; i++) {
        size_t row = listed ? list[i / cols] : i / cols;
        want[i] = 1.5 * values[(row < TABLE_ROWS ? row : 0) * cols + i % cols];
    }
    bench_assert_rows(y, y_stride, want, ROWS, cols, 1e-6);
    assert_true(isnan(y[cols]));
}

static void rows_of_every_type_are_gathered(void **state)
{
    static const size_t sizes[] = {1, 3, 31, 33, 65, 257};
    for (pj_dtype type = 0; type < PJ_DTYPE_COUNT; type++) {
        size_t block = pj_dtype_get(type)->block_values;
        check_gather(type, block > 1 ? 3 * block : 1056, true, false);
        check_gather(type, block, false, true);
    }
    for (size_t i = 0; i < 6; i++) check_gather(PJ_F16, sizes[i], true, false);
    check_gather(PJ_Q8_0, 1056, true, true);
}

/* ---- value by value ------------------------------------------------------------------------ */

enum { N = 75, DIM = 25, TOKENS = 9 };

typedef struct rows_case {
    pj_vk_rows_operation operation;
    pj_vk_gate gate;
    bool other;
} rows_case;

static double gated_of(pj_vk_gate kind, double gate, double alpha, double limit)
{
    if (kind == PJ_VK_GATE_GELU)
        return 0.5 * gate * (1 + tanh(0.7978845608028654 * (gate + 0.044715 * pow(gate, 3))));
    if (kind == PJ_VK_GATE_SILU) return silu_of(gate);
    if (kind == PJ_VK_GATE_RELU2) return gate > 0 ? gate * gate : 0;
    return fmin(gate, limit) / (1 + exp(-alpha * fmin(gate, limit)));
}

/* Value i of a row, from its rows of x, y and other. */
static double value_of(const rows_case *c, const float *x, double y, const float *other, size_t i)
{
    const double scale = 1.25, cap = 2;
    double twice = x[i / DIM * 2 * DIM + i % DIM], gate = x[i / DIM * 2 * DIM + DIM + i % DIM];
    switch (c->operation) {
    case PJ_VK_ROWS_SCALE: return scale * x[i];
    case PJ_VK_ROWS_ADD: return y + scale * x[i];
    case PJ_VK_ROWS_CAP: return cap * tanh(scale * x[i] / cap);
    case PJ_VK_ROWS_SIGMOID: return y / (1 + exp(-gate));
    case PJ_VK_ROWS_QUERIES: return twice;
    case PJ_VK_ROWS_MIX: return y + x[i] / (1 + exp(-other[0]));
    case PJ_VK_ROWS_JOIN: return scale * (y + x[i]);
    case PJ_VK_ROWS_HEADS: break; /* a test of its own */
    case PJ_VK_ROWS_MULTIPLY:
    case PJ_VK_ROWS_GATE: break;
    }
    bool half = c->operation == PJ_VK_ROWS_MULTIPLY; /* the gate is activated already */
    double activated = half ? x[i] : gated_of(c->gate, x[i], scale, cap);
    if (!c->other) return activated;
    if (c->gate != PJ_VK_GATE_CLAMPED) return activated * other[i];
    return activated * (fmax(fmin(other[i], cap), -cap) + 1);
}

static void check_rows(rows_case c)
{
    enum { X_STRIDE = 2 * N + 1, Y_STRIDE = N + 4, OTHER_STRIDE = N };
    bench_begin();
    float *x = bench_random_floats(TOKENS * X_STRIDE, 4),
          *other = bench_random_floats(TOKENS * OTHER_STRIDE, 4);
    float *y = bench_random_floats(TOKENS * Y_STRIDE, 4);
    for (size_t i = 0; i < N; i++) x[i] *= 100; /* where exponentials overflow */
    pj_vk_rows_args args = {.x = bench_input(x, TOKENS * X_STRIDE * sizeof *x),
                            .y = bench_updated(y, TOKENS * Y_STRIDE * sizeof *x),
                            .other =
                                c.other ? bench_input(other, TOKENS * OTHER_STRIDE * sizeof *x) : 0,
                            .rows = TOKENS,
                            .n = N,
                            .x_stride = X_STRIDE,
                            .y_stride = Y_STRIDE,
                            .other_stride = OTHER_STRIDE,
                            .dim = DIM,
                            .scale = 1.25f,
                            .cap = 2};
    pj_vk_rows_constants k = {32, c.operation, c.gate};
    BENCH_DISPATCH(PJ_VK_ROWS, &k, &args, (N + 31) / 32, 4, 1);
    bench_run();
    const float *after = bench_result(args.y);
    for (size_t t = 0; t < TOKENS; t++) {
        double want[N];
        for (size_t i = 0; i < N; i++)
            want[i] =
                value_of(&c, x + t * X_STRIDE, y[t * Y_STRIDE + i], other + t * OTHER_STRIDE, i);
        bench_assert_rows(after + t * Y_STRIDE, Y_STRIDE, want, 1, N, 1e-5);
        assert_memory_equal(after + t * Y_STRIDE + N, y + t * Y_STRIDE + N, 4 * sizeof *y);
    }
}

static void values_are_mapped(void **state)
{
    for (pj_vk_rows_operation o = 0; o <= PJ_VK_ROWS_JOIN; o++)
        if (o != PJ_VK_ROWS_GATE) check_rows((rows_case){o, 0, o == PJ_VK_ROWS_MIX});
    for (pj_vk_gate gate = 0; gate <= PJ_VK_GATE_RELU2; gate++) {
        check_rows((rows_case){PJ_VK_ROWS_GATE, gate, true});
        check_rows((rows_case){PJ_VK_ROWS_GATE, gate, false});
        check_rows((rows_case){PJ_VK_ROWS_MULTIPLY, gate, true});
    }
}

/* xIELU, whose parameters are beside. */
static void gates_have_parameters(void **state)
{
    static const float parameters[] = {0.8f, 1.3f, 0.5f, -1e-6f};
    bench_begin();
    float *x = bench_random_floats(TOKENS * N, 4);
    double want[TOKENS * N];
    pj_vk_rows_args args = {.x = bench_input(x, TOKENS * N * sizeof *x),
                            .y = bench_output(TOKENS * N * sizeof *x),
                            .other = bench_input(parameters, sizeof parameters),
                            .rows = TOKENS,
                            .n = N,
                            .x_stride = N,
                            .y_stride = N};
    pj_vk_rows_constants k = {32, PJ_VK_ROWS_GATE, PJ_VK_GATE_XIELU};
    BENCH_DISPATCH(PJ_VK_ROWS, &k, &args, (N + 31) / 32, 4, 1);
    bench_run();
    for (size_t i = 0; i < TOKENS * N; i++) {
        double g = x[i], b = (double)parameters[2] * g, least = fmin(g, (double)parameters[3]);
        want[i] = g > 0 ? (double)parameters[0] * g * g + b
                        : (expm1(least) - g) * (double)parameters[1] + b;
    }
    bench_assert_rows(bench_result(args.y), N, want, TOKENS, N, 1e-6);
}

static void gates_are_cut(void **state)
{
    enum { STRIDE = N + 3 };
    bench_begin();
    float *x = bench_random_floats(TOKENS * STRIDE, 2);
    pj_vk_cut_args args = {.x = bench_input(x, TOKENS * STRIDE * sizeof *x),
                           .y = bench_output(TOKENS * N * sizeof *x),
                           .rows = TOKENS,
                           .n = N,
                           .x_stride = STRIDE,
                           .y_stride = N};
    pj_vk_cut_constants k = {32, 0.7f};
    BENCH_DISPATCH(PJ_VK_CUT, &k, &args, 4, 1, 1);
    bench_run();
    for (size_t t = 0; t < TOKENS; t++) {
        double mean = 0, square = 0, want[N];
        for (size_t i = 0; i < N; i++) mean += x[t * STRIDE + i] / (double)N;
        for (size_t i = 0; i < N; i++) square += pow(x[t * STRIDE + i] - mean, 2) / N;
        for (size_t i = 0; i < N; i++)
            want[i] = fmax(0, x[t * STRIDE + i] - mean - (double)0.7f * sqrt(square));
        bench_assert_rows((const float *)bench_result(args.y) + t * N, N, want, 1, N, 1e-5);
    }
}

/* ---- several residual streams ---------------------------------------------------------------- */

enum { STREAMS = 3, ACTIVE = 1 };

static void check_streams(bool correct, bool scaled)
{
    enum { ALL = STREAMS * N + 1, FACTORS = STREAMS * STREAMS };
    bench_begin();
    float *factors = bench_random_floats(TOKENS * FACTORS, 1), *scale = bench_random_floats(N, 2);
    float *streams = bench_random_floats(TOKENS * ALL, 1), *x = bench_random_floats(TOKENS * N, 1);
    pj_vk_streams_args args = {.coefficients = bench_input(factors, TOKENS * FACTORS * sizeof *x),
                               .streams = bench_updated(streams, TOKENS * ALL * sizeof *x),
                               .x = bench_updated(x, TOKENS * N * sizeof *x),
                               .scale = scaled ? bench_input(scale, N * sizeof *x) : 0,
                               .rows = TOKENS,
                               .n = N,
                               .coefficients_stride = FACTORS,
                               .streams_stride = ALL,
                               .x_stride = N};
    pj_vk_streams_constants k = {32, STREAMS, ACTIVE, correct};
    BENCH_DISPATCH(PJ_VK_STREAMS, &k, &args, (N + 31) / 32, 4, 1);
    bench_run();
    double all[TOKENS * STREAMS * N], own[TOKENS * N];
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < N; i++) {
            const float *before = streams + t * ALL + i, *c = factors + t * FACTORS;
            for (size_t j = 0; j < STREAMS; j++) {
                double value = before[j * N];
                for (size_t from = 0; from < STREAMS && !correct; from++)
                    value += (double)c[j * STREAMS + from] * before[from * N];
                if (correct)
                    value += (1 + (double)c[j]) * ((double)x[t * N + i] - before[ACTIVE * N]);
                all[(t * STREAMS + j) * N + i] = value;
                if (j == ACTIVE) own[t * N + i] = value * (scaled ? (double)scale[i] : 1);
            }
        }
    bench_assert_rows(bench_result(args.streams), ALL, all, TOKENS, STREAMS * N, 1e-5);
    bench_assert_rows(bench_result(args.x), N, own, TOKENS, N, 1e-5);
}

static void streams_are_mixed(void **state)
{
    check_streams(false, false);
    check_streams(true, false);
    check_streams(true, true);
}

static double mean_square(const float *x)
{
    double sum = 0;
    for (size_t i = 0; i < N; i++) sum += (double)x[i] * x[i];
    return sum / N;
}

/* Of nothing as much as the bound allows. */
static void magnitudes_are_matched(void **state)
{
    bench_begin();
    float *x = bench_random_floats(TOKENS * N, 1), *like = bench_random_floats(TOKENS * N, 3);
    for (size_t i = 0; i < N; i++) x[i] *= 1e-4f;
    pj_vk_match_args args = {.x = bench_updated(x, TOKENS * N * sizeof *x),
                             .like = bench_input(like, TOKENS * N * sizeof *x),
                             .rows = TOKENS,
                             .n = N,
                             .x_stride = N,
                             .like_stride = N};
    pj_vk_threads_constants k = {32};
    BENCH_DISPATCH(PJ_VK_MATCH, &k, &args, 4, 1, 1);
    bench_run();
    double want[TOKENS * N];
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < N; i++)
            want[t * N + i] =
                x[t * N + i] * sqrt(mean_square(like + t * N) / fmax(mean_square(x + t * N), 1e-5));
    bench_assert_rows(bench_result(args.x), N, want, TOKENS, N, 1e-5);
}

static void heads_are_copied(void **state)
{
    enum { HEADS = 5, COLS = 7, X_STEP = 11, Y_STEP = 9, X_ALL = HEADS * X_STEP + 2, Y_ALL = 50 };
    bench_begin();
    float *x = bench_random_floats(TOKENS * X_ALL, 1), *y = bench_random_floats(TOKENS * Y_ALL, 1);
    pj_vk_rows_args args = {.x = bench_input(x, TOKENS * X_ALL * sizeof *x),
                            .y = bench_updated(y, TOKENS * Y_ALL * sizeof *y),
                            .rows = TOKENS,
                            .n = HEADS * COLS,
                            .x_stride = X_ALL,
                            .y_stride = Y_ALL,
                            .dim = COLS,
                            .x_step = X_STEP,
                            .y_step = Y_STEP};
    pj_vk_rows_constants k = {32, PJ_VK_ROWS_HEADS, 0};
    BENCH_DISPATCH(PJ_VK_ROWS, &k, &args, 2, 4, 1);
    bench_run();
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < HEADS; h++)
            memcpy(y + t * Y_ALL + h * Y_STEP, x + t * X_ALL + h * X_STEP, COLS * sizeof *y);
    assert_memory_equal(bench_result(args.y), y, TOKENS * Y_ALL * sizeof *y);
}

/* ---- measurements -------------------------------------------------------------------------- */

/* The kernel writes only if a thread has seen these bits and no others. */
static void check_read(uint32_t streams, uint32_t quads, uint32_t planted)
{
    enum { THREADS = 32, GROUPS = 3 };
    static const uint32_t bits[4] = {0x9e3779b9, 0x7f4a7c15, 0xf39cc060, 0x5cedc834};
    bench_begin();
    uint32_t *memory = bench_memory(16ull * quads);
    if (planted < quads) memcpy(memory + 4ull * planted, bits, sizeof bits);
    pj_vk_read_args args = {
        .memory = bench_input(memory, 16ull * quads), .sink = bench_output(4), .quads = quads};
    pj_vk_read_constants k = {THREADS, streams, false};
    BENCH_DISPATCH(PJ_VK_READ, &k, &args, GROUPS, 1, 1);
    bench_run();
    uint32_t found = *(const uint32_t *)bench_result(args.sink);
    assert_int_equal(found == bits[0], planted < quads);
}

static void every_quad_is_read(void **state)
{
    enum { QUADS = 1003 };
    for (uint32_t streams = 1; streams <= 4; streams += 3) {
        check_read(streams, QUADS, 0);
        check_read(streams, QUADS, 500);
        check_read(streams, QUADS, QUADS - 1);
        check_read(streams, QUADS, QUADS);
    }
}

static void every_quad_is_copied(void **state)
{
    enum { QUADS = 1003, THREADS = 32, GROUPS = 3, BYTES = 16 * QUADS };
    for (uint32_t streams = 1; streams <= 4; streams += 3) {
        bench_begin();
        const float *memory = bench_random_floats(BYTES / sizeof(float), 1);
        pj_vk_read_args args = {
            .memory = bench_input(memory, BYTES), .sink = bench_output(BYTES), .quads = QUADS};
        pj_vk_read_constants k = {THREADS, streams, true};
        BENCH_DISPATCH(PJ_VK_READ, &k, &args, GROUPS, 1, 1);
        bench_run();
        assert_memory_equal(bench_result(args.sink), memory, BYTES);
    }
}

static void the_peak_writes_nothing(void **state)
{
    bench_begin();
    pj_vk_peak_args args = {.sink = bench_output(4), .rounds = 3, .factor = 0.5f, .summand = 1};
    pj_vk_peak_constants k = {32, 0};
    bench_dispatch(PJ_VK_PEAK, &k, sizeof k.threads, &args, 2, 1, 1);
    bench_run();
    assert_true(isnan(*(const float *)bench_result(args.sink)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_normalised),
        cmocka_unit_test(rows_of_every_type_are_gathered),
        cmocka_unit_test(values_are_mapped),
        cmocka_unit_test(heads_are_copied),
        cmocka_unit_test(gates_have_parameters),
        cmocka_unit_test(gates_are_cut),
        cmocka_unit_test(streams_are_mixed),
        cmocka_unit_test(magnitudes_are_matched),
        cmocka_unit_test(every_quad_is_read),
        cmocka_unit_test(every_quad_is_copied),
        cmocka_unit_test(the_peak_writes_nothing),
    };
    return bench_main(tests);
}
