/* Results of a few words: greedy choices, statistics of outputs, figures of gates and of attention.
 */
#include "../../assertions.h"
#include "shader_bench.h"

#include "engine/kernels/half.h"

#include <math.h>
#include <string.h>

/* ---- argmax ------------------------------------------------------------------------------- */

enum { LONG_ROW = 1031 };

static void run_argmax(const float *x, uint32_t rows, uint32_t n, uint32_t stride, uint32_t parts,
                       uint32_t *ids)
{
    pj_vk_argmax_args args = {.x = bench_input(x, (size_t)rows * stride * sizeof *x),
                              .ids = bench_output(rows * sizeof *ids),
                              .found = bench_output((size_t)rows * parts * 8),
                              .rows = rows,
                              .n = n,
                              .x_stride = stride,
                              .parts = parts};
    pj_vk_argmax_constants first = {32, 0}, last = {32, 1};
    BENCH_DISPATCH(PJ_VK_ARGMAX, &first, &args, parts, rows, 1);
    BENCH_DISPATCH(PJ_VK_ARGMAX, &last, &args, 1, rows, 1);
    bench_run();
    memcpy(ids, bench_result(args.ids), rows * sizeof *ids);
}

static void the_largest_value_is_found(void **state)
{
    static const uint32_t sizes[] = {1, 3, 31, 33, 65, 257, LONG_ROW};
    uint32_t ids[64];
    for (int s = 0; s < 7; s++) {
        uint32_t n = sizes[s], rows = 64 - 9 * (uint32_t)s;
        bench_begin();
        float *x = bench_random_floats((size_t)rows * (n + 1), 1);
        for (size_t i = 0; i < (size_t)rows * (n + 1); i++) x[i] = rintf(x[i] * 8); /* many ties */
        run_argmax(x, rows, n, n + 1, 1 + (uint32_t)s, ids);
        for (uint32_t row = 0; row < rows; row++) {
            uint32_t best = 0;
            for (uint32_t i = 0; i < n; i++)
                if (x[row * (n + 1) + i] > x[row * (n + 1) + best]) best = i;
            assert_int_equal(ids[row], best);
        }
    }
}

static void a_nan_is_never_the_largest(void **state)
{
    enum { N = 70 };
    float x[3 * N];
    uint32_t ids[3];
    bench_begin();
    for (int i = 0; i < 3 * N; i++) x[i] = NAN;
    x[N + 45] = -INFINITY;
    x[2 * N + 3] = 2;
    x[2 * N + 69] = INFINITY;
    run_argmax(x, 3, N, N, 2, ids);
    assert_int_equal(ids[0], 0); /* there is nothing else */
    assert_int_equal(ids[1], 45);
    assert_int_equal(ids[2], 69);
}

/* ---- statistics --------------------------------------------------------------------------- */

typedef struct statistics_case {
    uint32_t rows, cols, step, groups_x, groups_y;
    bool special; /* NaN and infinities */
} statistics_case;

typedef struct exact_sums {
    double sum, sum_abs, sum_square, max_abs;
    uint32_t count, skipped, below, nan, inf;
} exact_sums;

static void add_value(exact_sums *s, float v, bool summed)
{
    s->nan += isnan(v) != 0;
    s->inf += isinf(v) != 0;
    s->count += summed;
    s->skipped += summed && !isfinite(v);
    if (!isfinite(v)) return;
    s->max_abs = fmax(s->max_abs, fabsf(v));
    if (!summed) return;
    s->sum += v;
    s->sum_abs += fabsf(v);
    s->sum_square += (double)v * v;
    s->below += fabsf(v) < 0.01f;
}

static void check_sums(const pj_vk_value_sums *got, const exact_sums *want)
{
    double most = 1e-6 * (1 + want->sum_abs);
    assert_true(fabs((double)got->sum - want->sum) <= most);
    assert_true(fabs((double)got->sum_abs - want->sum_abs) <= most);
    assert_true(fabs((double)got->sum_square - want->sum_square) <= 1e-6 * (1 + want->sum_square));
    assert_true((double)got->max_abs == want->max_abs);
    assert_int_equal(got->count, want->count);
    assert_int_equal(got->skipped, want->skipped);
    assert_int_equal(got->below, want->below);
    assert_int_equal(got->nan, want->nan);
    assert_int_equal(got->inf, want->inf);
}

static void check_statistics(statistics_case c)
{
    bench_begin();
    size_t stride = c.cols + 3;
    float *x = bench_random_floats(c.rows * stride, 3);
    exact_sums want = {0};
    for (size_t i = 0; i < c.rows * stride; i++) {
        if (i % 7 == 0) x[i] *= 0.001f;
        if (c.special && i % 11 == 0) x[i] = i % 2 ? NAN : -INFINITY;
    }
    for (uint32_t r = 0; r < c.rows; r++)
        for (uint32_t i = 0; i < c.cols; i++)
            add_value(&want, x[r * stride + i], (c.rows - 1 - r) % c.step == 0);
    pj_vk_statistics_args args = {
        .x = bench_input(x, c.rows * stride * sizeof *x),
        .parts = bench_output(c.groups_x * c.groups_y * sizeof(pj_vk_value_sums)),
        .total = bench_output(sizeof(pj_vk_value_sums)),
        .rows = c.rows,
        .cols = c.cols,
        .stride = (uint32_t)stride,
        .step = c.step,
        .part_count = c.groups_x * c.groups_y,
        .tau = 0.01f};
    pj_vk_statistics_constants first = {32, 0}, last = {16, 1};
    BENCH_DISPATCH(PJ_VK_STATISTICS, &first, &args, c.groups_x, c.groups_y, 1);
    BENCH_DISPATCH(PJ_VK_STATISTICS, &last, &args, 1, 1, 1);
    bench_run();
    check_sums(bench_result(args.total), &want);
}

static void outputs_are_summed(void **state)
{
    check_statistics((statistics_case){1, 1, 1, 1, 1, false});
    check_statistics((statistics_case){1, 4097, 1, 9, 1, true});
    check_statistics((statistics_case){64, 65, 1, 2, 7, false});
    check_statistics((statistics_case){38, 257, 4, 3, 40, true});
}

/* ---- gates -------------------------------------------------------------------------------- */

static void check_gates(bool has_up)
{
    enum { ROWS = 9, N = 71, STEP = 4, SAMPLED = 3 };
    bench_begin();
    float *gate = bench_random_floats(ROWS * N, 1), *act = bench_random_floats(ROWS * N, 1);
    float *up = bench_random_floats(ROWS * N, 1);
    for (int i = 0; i < ROWS * N; i++) act[i] *= i % 3 ? 1 : 0.004f;
    pj_vk_gate_figures_args args = {.gate = bench_input(gate, ROWS * N * sizeof *gate),
                                    .activated = bench_input(act, ROWS * N * sizeof *gate),
                                    .up = has_up ? bench_input(up, ROWS * N * sizeof *gate) : 0,
                                    .counts = bench_output(SAMPLED * 12),
                                    .rows = ROWS,
                                    .n = N,
                                    .gate_stride = N,
                                    .activated_stride = N,
                                    .up_stride = N,
                                    .step = STEP,
                                    .tau = 0.01f};
    pj_vk_threads_constants k = {32};
    BENCH_DISPATCH(PJ_VK_GATE_FIGURES, &k, &args, SAMPLED, 1, 1);
    bench_run();
    const uint32_t *counts = bench_result(args.counts);
    for (int i = 0; i < SAMPLED; i++) {
        const float *g = gate + (ROWS - 1 - i * STEP) * N, *a = act + (g - gate),
                    *u = up + (g - gate);
        float largest = 0, largest_gated = 0;
        uint32_t killed = 0, dead = 0, gated = 0;
        for (int j = 0; j < N; j++) largest = fmaxf(largest, fabsf(a[j]));
        for (int j = 0; j < N; j++) largest_gated = fmaxf(largest_gated, fabsf(a[j] * u[j]));
        for (int j = 0; j < N; j++) killed += g[j] < 0;
        for (int j = 0; j < N; j++) dead += fabsf(a[j]) < 0.01f * largest;
        for (int j = 0; has_up && j < N; j++) gated += fabsf(a[j] * u[j]) < 0.01f * largest_gated;
        assert_int_equal(counts[3 * i], killed);
        assert_int_equal(counts[3 * i + 1], dead);
        assert_int_equal(counts[3 * i + 2], gated);
    }
}

static void gates_are_counted(void **state)
{
    check_gates(true);
    check_gates(false);
}

/* ---- norms -------------------------------------------------------------------------------- */

static double variance_of(const double *x, int n, double *mean_square)
{
    double sum = 0, square = 0, spread = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    for (int i = 0; i < n; i++) square += x[i] * x[i];
    for (int i = 0; i < n; i++) spread += (x[i] - sum / n) * (x[i] - sum / n);
    *mean_square = square / n;
    return spread / n;
}

/* Two rows of each token, of which every second token is measured. */
static void check_norm(bool layer)
{
    enum { TOKENS = 5, HEADS = 2, N = 37, STRIDE = 80, STEP = 2, MEASURED = 3 * HEADS };
    bench_begin();
    float *x = bench_random_floats(TOKENS * STRIDE, 2), *w = bench_random_floats(N, 1);
    float *b = bench_random_floats(N, 1);
    memset(x + 2 * STRIDE + N, 0, N * sizeof *x); /* a head whose output may be 0 */
    pj_vk_norm_figures_args args = {.x = bench_input(x, TOKENS * STRIDE * sizeof *x),
                                    .weight = bench_input(w, N * sizeof *w),
                                    .bias = layer ? bench_input(b, N * sizeof *b) : 0,
                                    .ratios = bench_output(2 * MEASURED * sizeof(float)),
                                    .tokens = TOKENS,
                                    .n = N,
                                    .per_token = HEADS,
                                    .x_stride = STRIDE,
                                    .step = STEP,
                                    .measured = MEASURED};
    pj_vk_norm_figures_constants k = {32, layer ? PJ_VK_NORM_LAYER : PJ_VK_NORM_RMS, 1e-5f};
    BENCH_DISPATCH(PJ_VK_NORM_FIGURES, &k, &args, 4, 1, 1);
    bench_run();
    const float *ratios = bench_result(args.ratios);
    for (int m = 0; m < MEASURED; m++) {
        const float *row = x + (TOKENS - 1 - m / HEADS * STEP) * STRIDE + m % HEADS * N;
        double in[N], out[N], in_square, out_square, mean = 0;
        for (int i = 0; i < N; i++) mean += layer ? (double)row[i] / N : 0;
        for (int i = 0; i < N; i++) in[i] = (double)row[i] - mean;
        double spread = variance_of(in, N, &in_square), scale = 1 / sqrt(in_square + 1e-5);
        for (int i = 0; i < N; i++)
            out[i] = in[i] * scale * (double)w[i] + (layer ? (double)b[i] : 0);
        for (int i = 0; i < N; i++) in[i] = (double)row[i];
        variance_of(in, N, &in_square);
        double changed = variance_of(out, N, &out_square);
        double want = changed > 0 ? spread / changed : -1;
        double squares = out_square > 0 ? in_square / out_square : -1;
        assert_near(ratios[m], want, 1e-4 * fabs(want));
        assert_near(ratios[MEASURED + m], squares, 1e-4 * fabs(squares));
    }
}

static void norms_are_described(void **state)
{
    check_norm(false);
    check_norm(true);
}

/* ---- routing ------------------------------------------------------------------------------ */

/* More experts than threads; the last row's two largest are equal. */
static void routing_is_described(void **state)
{
    enum { ROWS = 5, EXPERTS = 40, SLOTS = 2, PARTS = 2, RECORD = 2 + 2 * EXPERTS };
    bench_begin();
    float *p = bench_random_floats(ROWS * EXPERTS, 1),
          *weights = bench_random_floats(ROWS * SLOTS, 1);
    uint32_t chosen[ROWS * SLOTS] = {3, 39, 0, 3, 17, 18, 39, 1, 3, 2};
    for (int i = 0; i < ROWS * EXPERTS; i++) p[i] = fabsf(p[i]) / EXPERTS;
    p[4 * EXPERTS + 3] = p[4 * EXPERTS + 35] = 0.25f;
    p[7] = 0;
    pj_vk_route_figures_args args = {.probability = bench_input(p, ROWS * EXPERTS * sizeof *p),
                                     .chosen = bench_input(chosen, sizeof chosen),
                                     .weights = bench_input(weights, ROWS * SLOTS * sizeof *p),
                                     .figures = bench_output(PARTS * RECORD * sizeof *p),
                                     .list = bench_output(2 * ROWS * SLOTS * sizeof *p),
                                     .rows = ROWS,
                                     .slots = SLOTS};
    pj_vk_route_figures_constants k = {32, EXPERTS};
    BENCH_DISPATCH(PJ_VK_ROUTE_FIGURES, &k, &args, PARTS, 1, 1);
    bench_run();
    const float *records = bench_result(args.figures);
    const uint32_t *list = bench_result(args.list);
    assert_memory_equal(list, chosen, sizeof chosen);
    assert_memory_equal(list + ROWS * SLOTS, weights, ROWS * SLOTS * sizeof *weights);
    double entropy = 0, margin = 0;
    for (int row = 0; row < ROWS; row++) {
        double first = 0, second = 0;
        for (int e = 0; e < EXPERTS; e++) {
            double value = (double)p[row * EXPERTS + e];
            if (value > 0) entropy -= value * log(value);
            second = fmax(second, fmin(first, value));
            first = fmax(first, value);
        }
        margin += first - second;
    }
    assert_near(records[0] + records[RECORD], entropy, 1e-5 * entropy);
    assert_near(records[1] + records[RECORD + 1], margin, 1e-5);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint32_t count = 0, got = 0;
        double sum = 0;
        for (int i = 0; i < ROWS * SLOTS; i++) count += chosen[i] == e;
        for (int row = 0; row < ROWS; row++) sum += (double)p[row * EXPERTS + e];
        for (int part = 0; part < PARTS; part++)
            got += ((const uint32_t *)(const void *)records)[part * RECORD + 2 + e];
        assert_int_equal(got, count);
        assert_near(records[2 + EXPERTS + e] + records[RECORD + 2 + EXPERTS + e], sum, 1e-5);
    }
}

/* ---- attention ---------------------------------------------------------------------------- */

enum { HEADS = 4, KV_HEADS = 2, DIM = 10, SLOTS = 90, TOKENS = 5, SAMPLED = 3, PARTS = 2 };

typedef struct figures_case {
    uint32_t window;
    bool sinks, half;
    float cap;
    bool chunked;
} figures_case;

static const pj_vk_cache_row rows[TOKENS] = {
    {85, 0, 10, 1}, {86, 0, 10, 1}, {87, 0, 10, 1}, {0, 1, 0, 1}, {40, 1, 0, 1}};
static const uint32_t sampled[SAMPLED] = {0, 3, 4};

typedef struct exact_figures {
    double entropy, normalised, largest, largest_of_all, visible, below, relative;
} exact_figures;

/* `keys` are those of the head, from slot 0 of the sequence. */
static void add_row(const figures_case *c, const pj_vk_cache_row *row, const float *q,
                    const float *keys, const float *sink, exact_figures *f)
{
    uint32_t end = row->position + 1, begin = end > c->window ? end - c->window : 0;
    uint32_t base = c->window != UINT32_MAX ? row->base : 0;
    if (c->chunked) begin = row->position - row->position % c->window;
    double p[SLOTS + 1], largest = sink ? *sink : -INFINITY, sum = 0, entropy = 0, top = 0,
                         n = end - begin;
    for (uint32_t k = begin; k < end; k++) {
        p[k] = 0;
        for (int i = 0; i < DIM; i++) p[k] += (double)q[i] * keys[(k - base) * DIM + i];
        p[k] *= 0.7;
        if (c->cap > 0) p[k] = c->cap * tanh(p[k] / c->cap);
        largest = fmax(largest, p[k]);
    }
    for (uint32_t k = begin; k < end; k++) sum += p[k] = exp(p[k] - largest);
    if (sink) sum += exp(*sink - largest);
    for (uint32_t k = begin; k < end; k++) {
        p[k] /= sum;
        entropy -= p[k] * log(p[k]);
        top = fmax(top, p[k]);
        f->below += p[k] < 0.01;
        f->relative += p[k] < 0.1 / n;
    }
    f->entropy += entropy;
    f->normalised += n > 1 ? entropy / log(n) : 0;
    f->largest += top;
    f->largest_of_all = fmax(f->largest_of_all, top);
    f->visible += n;
}

static void check_head(const pj_vk_head_figures *parts, uint32_t head, const exact_figures *want)
{
    exact_figures got = {0};
    uint32_t count = 0;
    for (int part = 0; part < PARTS; part++) {
        const pj_vk_head_figures *f = &parts[part * HEADS + head];
        count += f->rows;
        got.entropy += f->entropy;
        got.normalised += f->entropy_normalised;
        got.largest += f->largest;
        got.largest_of_all = fmax(got.largest_of_all, f->largest_of_all);
        got.visible += f->visible;
        got.below += f->below;
        got.relative += f->below_relative;
    }
    assert_int_equal(count, SAMPLED);
    assert_true(fabs(got.entropy - want->entropy) < 1e-4);
    assert_true(fabs(got.normalised - want->normalised) < 1e-4);
    assert_true(fabs(got.largest - want->largest) < 1e-5);
    assert_true(fabs(got.largest_of_all - want->largest_of_all) < 1e-5);
    assert_true(got.visible == want->visible && got.below == want->below &&
                got.relative == want->relative);
}

static void check_figures(figures_case c)
{
    enum { STRIDE = (HEADS + 2 * KV_HEADS) * DIM, CACHE = 2 * KV_HEADS * SLOTS * DIM };
    bench_begin();
    float *qkv = bench_random_floats(TOKENS * STRIDE, 3), *keys = bench_random_floats(CACHE, 3);
    float *sinks = bench_random_floats(HEADS, 3);
    uint16_t *halves = bench_memory(CACHE * sizeof *halves);
    for (int i = 0; c.half && i < CACHE; i++)
        keys[i] = pj_float_of_f16(halves[i] = pj_f16_of_float(keys[i]));
    uint32_t row_bytes = DIM * (c.half ? 2 : 4);
    pj_vk_attention_figures_args args = {
        .qkv = bench_input(qkv, TOKENS * STRIDE * sizeof *qkv),
        .rows = bench_input(rows, sizeof rows),
        .keys = c.half ? bench_input(halves, CACHE * sizeof *halves)
                       : bench_input(keys, CACHE * sizeof *keys),
        .sinks = c.sinks ? bench_input(sinks, HEADS * sizeof *sinks) : 0,
        .list = bench_input(sampled, sizeof sampled),
        .figures = bench_output(PARTS * HEADS * sizeof(pj_vk_head_figures)),
        .sequence_bytes = KV_HEADS * SLOTS * row_bytes,
        .head_bytes = SLOTS * row_bytes,
        .row_bytes = row_bytes,
        .sampled = SAMPLED,
        .heads = HEADS,
        .kv_heads = KV_HEADS,
        .qkv_stride = STRIDE,
        .window = c.window,
        .windowed = c.chunked                ? PJ_VK_WINDOW_CHUNK
                    : c.window != UINT32_MAX ? PJ_VK_WINDOW_SLIDES
                                             : PJ_VK_WINDOW_NONE,
        .scale = 0.7f,
        .cap = c.cap,
        .tau = 0.01f};
    pj_vk_attention_figures_constants k = {32, c.half ? PJ_F16 : PJ_F32, DIM};
    BENCH_DISPATCH(PJ_VK_ATTENTION_FIGURES, &k, &args, HEADS, PARTS, 1);
    bench_run();
    for (uint32_t head = 0; head < HEADS; head++) {
        exact_figures want = {0};
        for (int i = 0; i < SAMPLED; i++) {
            const pj_vk_cache_row *row = &rows[sampled[i]];
            size_t first = (row->sequence * KV_HEADS + head / (HEADS / KV_HEADS)) * SLOTS * DIM;
            add_row(&c, row, qkv + sampled[i] * STRIDE + head * DIM, keys + first,
                    c.sinks ? sinks + head : NULL, &want);
        }
        check_head(bench_result(args.figures), head, &want);
    }
}

static void attention_is_described(void **state)
{
    check_figures((figures_case){.window = UINT32_MAX});
    check_figures((figures_case){.window = UINT32_MAX, .sinks = true, .cap = 1.5f});
    check_figures((figures_case){.window = 33, .sinks = true, .half = true});
    check_figures((figures_case){.window = 33, .chunked = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_value_is_found), cmocka_unit_test(a_nan_is_never_the_largest),
        cmocka_unit_test(outputs_are_summed),         cmocka_unit_test(gates_are_counted),
        cmocka_unit_test(norms_are_described),        cmocka_unit_test(routing_is_described),
        cmocka_unit_test(attention_is_described),
    };
    return bench_main(tests);
}
