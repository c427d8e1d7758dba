/* Functions of rows: norms, rope, activations, softmax, attention, and the sums of statistics. */
#include "../assertions.h"
#include "kernel_sets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- rows ------------------------------------------------------------------------------- */

static const size_t lengths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 513, 2048, 4099};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void test_norms(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l];
        float *x = random_row(n, -3, 4), *w = random_row(n, -1, 1), *b = random_row(n, -1, 1);
        float *y = test_malloc(n * sizeof *y);
        double *want = test_malloc(n * sizeof *want), square = 0, mean = 0, var = 0;
        for (size_t i = 0; i < n; i++) square += (double)x[i] * (double)x[i], mean += (double)x[i];
        mean /= (double)n;
        for (size_t i = 0; i < n; i++) var += ((double)x[i] - mean) * ((double)x[i] - mean);
        for (size_t i = 0; i < n; i++)
            want[i] = (double)w[i] * (double)x[i] / sqrt(square / (double)n + 1e-5);
        k->rmsnorm(y, x, w, n, 1e-5f);
        check_row(k->name, "rmsnorm", y, want, n, 1e-6, 1e-7);
        for (size_t i = 0; i < n; i++)
            want[i] =
                ((double)x[i] - mean) / sqrt(var / (double)n + 1e-5) * (double)w[i] + (double)b[i];
        k->layernorm(y, x, w, b, n, 1e-5f);
        check_row(k->name, "layernorm", y, want, n, 2e-6, n == 1 ? 1e-4 : 2e-6);
        k->layernorm(x, x, w, NULL, n, 1e-5f);
        for (size_t i = 0; i < n; i++) want[i] -= (double)b[i];
        check_row(k->name, "layernorm in place", x, want, n, 2e-6, n == 1 ? 1e-4 : 2e-6);
        test_free(x), test_free(w), test_free(b), test_free(y), test_free(want);
    }
}

static void test_rope(void **state)
{
    static const size_t rotary[] = {2, 6, 16, 32, 40, 64, 96, 128};
    FOR_SETS(k) for (size_t l = 0; l < 8 * 2; l++)
    {
        size_t r = rotary[l / 2], heads = 3, stride = r + 5;
        bool neighbours = l % 2;
        float *x = random_row(heads * stride, -2, 2), *c = random_row(r / 2, -1, 1);
        float *s = random_row(r / 2, -1, 1);
        double *want = test_malloc(heads * stride * sizeof *want);
        for (size_t i = 0; i < heads * stride; i++) want[i] = (double)x[i];
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < r / 2; i++) {
                size_t a = h * stride + (neighbours ? 2 * i : i);
                size_t b = neighbours ? a + 1 : a + r / 2;
                want[a] = (double)x[a] * (double)c[i] - (double)x[b] * (double)s[i];
                want[b] = (double)x[b] * (double)c[i] + (double)x[a] * (double)s[i];
            }
        k->rope(x, heads, stride, c, s, r, neighbours);
        check_row(k->name, "rope", x, want, heads * stride, 1e-6, 1e-6);
        test_free(x), test_free(c), test_free(s), test_free(want);
    }
}

static double silu_of(double x)
{
    return x / (1 + exp(-x));
}

static double gelu_of(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void test_elements(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l];
        float *x = random_row(n, -12, 12), *u = random_row(n, -3, 3), *y = random_row(n, -3, 3);
        double *want = test_malloc(n * sizeof *want);
        if (n > 7) x[0] = -100, x[1] = 100, x[2] = 0, x[3] = -88.5f, x[4] = 1e-6f;
#define CHECK(what, value, relative, absolute, ...)               \
    do {                                                          \
        for (size_t i = 0; i < n; i++) want[i] = (value);         \
        __VA_ARGS__;                                              \
        check_row(k->name, what, y, want, n, relative, absolute); \
    } while (0)
        CHECK("silu", silu_of((double)x[i]), 1e-6, 1e-7, k->silu(y, x, n));
        CHECK("gelu", gelu_of((double)x[i]), 2e-6, 1e-6, k->gelu(y, x, n));
        memcpy(y, x, n * sizeof *y);
        CHECK("scale", 0.7f * (double)x[i], 1e-6, 0, k->scale(y, n, 0.7f));
        memcpy(y, x, n * sizeof *y);
        CHECK("softcap", 20 * tanh((double)x[i] / 20), 2e-6, 1e-5, k->softcap(y, n, 20));
        CHECK("silu_multiply", silu_of((double)x[i]) * (double)u[i], 1e-6, 1e-6,
              k->silu_multiply(y, x, u, n));
        float *fused = test_malloc(n * sizeof *fused);
        memcpy(fused, y, n * sizeof *y);
        k->silu(y, x, n);
        k->multiply(y, u, n);
        assert_memory_equal(fused, y, n * sizeof *y); /* bit-identical, separately or together */
        CHECK("add", (double)y[i] + (double)x[i], 1e-6, 0, k->add(y, x, n));
        CHECK("multiply", (double)y[i] * (double)x[i], 1e-6, 0, k->multiply(y, x, n));
        CHECK("add_scaled", (double)y[i] + 0.3f * (double)x[i], 1e-6, 1e-5,
              k->add_scaled(y, x, 0.3f, n));
        test_free(x), test_free(u), test_free(y), test_free(want), test_free(fused);
    }
}

/* The gated delta rule and the gate by a sigmoid, against double precision. */
static void test_delta_step(void **state)
{
    static const size_t dims[][2] = {{1, 1}, {3, 5}, {16, 16}, {16, 33}, {128, 128}, {64, 67}};
    FOR_SETS(k) for (size_t s = 0; s < sizeof dims / sizeof *dims; s++)
    {
        size_t keys = dims[s][0], n = dims[s][1];
        float *cells = random_row(keys * n, -1, 1), *q = random_row(keys, -1, 1);
        float *key = random_row(keys, -0.5f, 0.5f), *v = random_row(n, -1, 1);
        float *y = random_row(n, 0, 0), *before = test_malloc(keys * n * sizeof *before);
        float decay = 0.9f, strength = 0.6f;
        memcpy(before, cells, keys * n * sizeof *before);
        k->delta_step(cells, q, key, v, decay, strength, keys, n, y);
        for (size_t j = 0; j < n; j++) {
            double held = 0, out = 0, size = 1;
            for (size_t i = 0; i < keys; i++)
                held += (double)decay * (double)before[i * n + j] * (double)key[i];
            for (size_t i = 0; i < keys; i++) {
                double cell = (double)decay * (double)before[i * n + j] +
                              (double)key[i] * (double)strength * ((double)v[j] - held);
                check(k->name, "state", i * n + j, (double)cells[i * n + j], cell,
                      1e-5 * (fabs(cell) + 1));
                out += cell * (double)q[i];
                size += fabs(cell * (double)q[i]);
            }
            check(k->name, "delta rule", j, (double)y[j], out, 1e-5 * size);
        }
        test_free(cells), test_free(q), test_free(key), test_free(v), test_free(y);
        test_free(before);
    }
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l];
        float *y = random_row(n, -2, 2), *gate = random_row(n, -20, 20);
        float *before = test_malloc(n * sizeof *before);
        memcpy(before, y, n * sizeof *before);
        k->sigmoid_multiply(y, gate, n);
        for (size_t i = 0; i < n; i++)
            check(k->name, "sigmoid", i, (double)y[i],
                  (double)before[i] / (1 + exp(-(double)gate[i])), 1e-6);
        test_free(y), test_free(gate), test_free(before);
    }
}

static void test_softmax(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l];
        float *x = random_row(n, -20, 20);
        if (n > 5) x[1] = -INFINITY, x[n - 1] = -INFINITY;
        double *want = test_malloc(n * sizeof *want), most = -1e30, sum = 0;
        for (size_t i = 0; i < n; i++) most = fmax(most, (double)x[i]);
        for (size_t i = 0; i < n; i++) sum += want[i] = exp((double)x[i] - most);
        for (size_t i = 0; i < n; i++) want[i] /= sum;
        k->softmax(x, n);
        check_row(k->name, "softmax", x, want, n, 2e-6, 1e-12);
        test_free(x), test_free(want);
    }
}

/* ---- attention -------------------------------------------------------------------------- */

static void attention_case(const pj_kernels *k, pj_dtype type, size_t rows, size_t n, size_t dim)
{
    size_t bytes = type == PJ_F16 ? 2 : 4, stride = n + up_to(9),
           row_bytes = (dim + up_to(5)) * bytes;
    float *q = random_row(rows * dim, -1, 1), *plain = random_row(n * dim, -1, 1);
    char *kv = test_malloc(n * row_bytes);
    float *scores = test_malloc(rows * stride * sizeof *scores), *y = random_row(rows * dim, 1, 2);
    void *scratch = pj_alloc_aligned(64, 1, PJ_ATTENTION_SCRATCH_BYTES);
    for (size_t j = 0; j < n; j++) {
        k->quantise(type, plain + j * dim, kv + j * row_bytes, dim);
        k->dequantise(type, kv + j * row_bytes, plain + j * dim, dim);
    }
    pj_kv_rows view = {.data = kv, .row_bytes = row_bytes, .type = type};
    k->attention_scores(scores, stride, q, dim, rows, &view, n, dim, scratch);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) {
            double want = 0, size = 0;
            for (size_t i = 0; i < dim; i++) {
                double term = (double)q[r * dim + i] * (double)plain[j * dim + i];
                want += term, size += fabs(term);
            }
            check(k->name, "scores", j, (double)scores[r * stride + j], want, 1e-6 * size);
        }
    for (int add = 0; add < 2; add++) {
        k->attention_values(y, dim, scores, stride, rows, &view, n, dim, add, scratch);
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < dim; i++) {
                double want = 0, size = 0;
                for (size_t j = 0; j < n; j++) {
                    double term = (double)scores[r * stride + j] * (double)plain[j * dim + i];
                    want += term, size += fabs(term);
                }
                check(k->name, "values", i, (double)y[r * dim + i], (1 + add) * want, 3e-6 * size);
            }
    }
    test_free(q), test_free(plain), test_free(kv), test_free(scores), test_free(y);
    pj_free(scratch);
}

static void test_attention(void **state)
{
    static const size_t rows[] = {1, 2, 4, 7, 8, 9, 33}, counts[] = {1, 5, 16, 47, 48, 131};
    static const size_t dims[] = {4, 12, 16, 40, 64, 80, 96, 128};
    FOR_SETS(k)
    for (int i = 0; i < 60; i++)
        attention_case(k, i % 2 ? PJ_F16 : PJ_F32, rows[up_to(7)], counts[up_to(6)],
                       dims[up_to(8)]);
}

/* Nearest bfloat16, ties to even. */
static double rounded(double x)
{
    float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, 4);
    return (double)value;
}

/* Products of bfloat16 are exact in double: only the sums in float32 differ. */
static void rounded_attention_case(const pj_kernels *k, size_t rows, size_t n, size_t dim)
{
    const pj_rounded_attention *a = k->rounded_attention;
    size_t stride = n + up_to(17), row_bytes = (dim + up_to(5)) * 2;
    float *q = random_row(rows * dim, -1, 1), *plain = random_row(n * dim, -1, 1);
    char *kv = test_malloc(n * row_bytes);
    float *scores = random_row(rows * stride, -5, 5), *y = random_row(rows * dim, 1, 2);
    void *scratch = pj_alloc_aligned(64, 1, PJ_ATTENTION_SCRATCH_BYTES);
    for (size_t j = 0; j < n; j++) {
        k->quantise(PJ_F16, plain + j * dim, kv + j * row_bytes, dim);
        k->dequantise(PJ_F16, kv + j * row_bytes, plain + j * dim, dim);
    }
    pj_kv_rows view = {.data = kv, .row_bytes = row_bytes, .type = PJ_F16};
    float last = scores[rows * stride - 1]; /* beyond the keys, unless the stride is n */
    a->scores(scores, stride, q, dim, rows, &view, n, dim, scratch);
    if (stride > n) assert_that(scores[rows * stride - 1], ==, last);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) {
            double want = 0, size = 0;
            for (size_t i = 0; i < dim; i++) {
                double term = rounded((double)q[r * dim + i]) * rounded((double)plain[j * dim + i]);
                want += term, size += fabs(term);
            }
            check(k->name, "rounded scores", j, (double)scores[r * stride + j], want, 1e-6 * size);
        }
    for (int add = 0; add < 2; add++) {
        a->values(y, dim, scores, stride, rows, &view, n, dim, add, scratch);
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < dim; i++) {
                double want = 0, size = 0;
                for (size_t j = 0; j < n; j++) {
                    double term = rounded((double)scores[r * stride + j]) *
                                  rounded((double)plain[j * dim + i]);
                    want += term, size += fabs(term);
                }
                check(k->name, "rounded values", i, (double)y[r * dim + i], (1 + add) * want,
                      3e-6 * size);
            }
    }
    test_free(q), test_free(plain), test_free(kv), test_free(scores), test_free(y);
    pj_free(scratch);
}

static void test_rounded_attention(void **state)
{
    static const size_t rows[] = {1, 2, 4, 7, 8, 9, 33, 64, 70};
    static const size_t counts[] = {1, 5, 16, 47, 48, 131, 300}, dims[] = {32, 64, 96, 128, 256};
    FOR_SETS(k)
    for (int i = 0; k->rounded_attention && i < 60; i++)
        rounded_attention_case(k, rows[up_to(9)], counts[up_to(7)], dims[up_to(5)]);
}

static void test_mask_and_scale(void **state)
{
    FOR_SETS(k)
    {
        float scores[3 * 40];
        pj_visible visible[3] = {{0, 1}, {5, 33}, {0, 37}};
        for (int i = 0; i < 3 * 40; i++) scores[i] = (float)i;
        k->attention_scale(scores, 40, 3, 37, 0.5f);
        k->attention_mask(scores, 40, 3, 37, visible);
        for (size_t r = 0; r < 3; r++)
            for (size_t j = 0; j < 40; j++) {
                float want = (float)(r * 40 + j) * (j < 37 ? 0.5f : 1);
                if (j < 37 && (j < visible[r].begin || j >= visible[r].end)) want = -INFINITY;
                assert_that(scores[r * 40 + j], ==, want);
            }
        k->attention_softmax(scores, 40, 3, 37);
        assert_that(scores[0], ==, 1);
        assert_that(scores[1], ==, 0);
        assert_that(scores[40 + 4], ==, 0);
        assert_that(scores[40 + 33], ==, 0);
        assert_that(scores[37], ==, 37);
    }
}

/* ---- statistics ------------------------------------------------------------------------- */

static void test_value_sums(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l];
        float *x = random_row(n, -0.05f, 0.06f);
        if (l % 3 == 1) x[n / 2] = NAN;
        if (l % 4 == 1) x[n - 1] = -INFINITY;
        if (l % 5 == 2) x[0] = 1e30f;
        pj_value_sums got = {0}, want = {0};
        /* accumulated in two calls, the second by rows if they have equal length */
        size_t rest = n - n / 2, rows = rest % 5 == 0 ? 5 : rest % 3 == 0 ? 3 : 1;
        float *apart = random_row(rows * (rest / rows + 7), NAN, NAN);
        for (size_t r = 0; r < rows; r++)
            memcpy(apart + r * (rest / rows + 7), x + n / 2 + r * (rest / rows),
                   rest / rows * sizeof *x);
        k->value_sums(x, 1, n / 2, n / 2, 0.01f, &got);
        k->value_sums(apart, rows, rest / rows, rest / rows + 7, 0.01f, &got);
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[i];
            if (isnan(v) || isinf(v)) {
                want.nan += isnan(v) != 0, want.inf += isinf(v) != 0;
                continue;
            }
            want.sum += v, want.sum_abs += fabs(v), want.sum_square += v * v;
            want.max_abs = fmaxf(want.max_abs, fabsf(x[i])), want.below += fabsf(x[i]) < 0.01f;
        }
        check(k->name, "sum", l, got.sum, want.sum, 1e-6 * want.sum_abs);
        check(k->name, "sum_abs", l, got.sum_abs, want.sum_abs, 1e-6 * want.sum_abs);
        check(k->name, "sum_square", l, got.sum_square, want.sum_square, 1e-6 * want.sum_square);
        assert_that(got.max_abs, ==, want.max_abs);
        assert_int_equal(got.count, n);
        assert_int_equal(got.below, want.below);
        assert_int_equal(got.nan, want.nan);
        assert_int_equal(got.inf, want.inf);
        assert_int_equal(got.skipped, want.nan + want.inf);
        pj_value_sums bounds = {.max_abs = l % 2 ? 1e-30f : 0};
        k->value_bounds(x, 1, n / 2, n / 2, &bounds);
        k->value_bounds(apart, rows, rest / rows, rest / rows + 7, &bounds);
        assert_that(bounds.max_abs, ==, fmaxf(want.max_abs, l % 2 ? 1e-30f : 0));
        assert_that(bounds.nan, ==, want.nan);
        assert_that(bounds.inf, ==, want.inf);
        assert_that(bounds.count, ==, 0);
        test_free(x), test_free(apart);
    }
}

static void test_attention_figures(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l], below = 0, below_relative = 0;
        float relative_tau = 0.1f / (float)n, most = 0;
        float *p = random_row(n, -9, 9);
        k->softmax(p, n);
        if (n > 4) p[3] = 0;
        double entropy = 0;
        for (size_t i = 0; i < n; i++) {
            if (p[i] > 0) entropy -= (double)p[i] * log((double)p[i]);
            most = fmaxf(most, p[i]);
            below += p[i] < 0.01f;
            below_relative += p[i] < relative_tau;
        }
        pj_attention_figures got;
        k->attention_figures(p, n, 0.01f, relative_tau, &got);
        check(k->name, "entropy", l, got.entropy, entropy, 2e-6 + 1e-5 * entropy);
        assert_that(got.max, ==, (double)most);
        assert_int_equal(got.below, below);
        assert_int_equal(got.below_relative, below_relative);
        test_free(p);
    }
}

static void test_gate_counts(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l];
        float *g = random_row(n, -3, 2), *u = random_row(n, -1, 1), *a = test_malloc(n * sizeof *a);
        float act_max = 0, product_max = 0;
        k->silu(a, g, n);
        for (size_t i = 0; i < n; i++) {
            act_max = fmaxf(act_max, fabsf(a[i]));
            product_max = fmaxf(product_max, fabsf(a[i] * u[i]));
        }
        pj_gate_counts got = {0}, want = {.count = 2 * n};
        for (size_t i = 0; i < n; i++) {
            want.killed += g[i] < 0 ? 2 : 0;
            want.dead += fabsf(a[i]) < 0.05f * act_max ? 2 : 0;
            want.gated += fabsf(a[i] * u[i]) < 0.05f * product_max;
        }
        k->gate_counts(g, a, u, n, 0.05f, &got);
        k->gate_counts(g, a, NULL, n, 0.05f, &got);
        assert_memory_equal(&got, &want, sizeof got);
        test_free(g), test_free(u), test_free(a);
    }
}

int test_kernel_rows(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_delta_step),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rounded_attention),
        cmocka_unit_test(test_mask_and_scale),
        cmocka_unit_test(test_value_sums),
        cmocka_unit_test(test_attention_figures),
        cmocka_unit_test(test_gate_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
