/*
 * Every kernel set that this machine can run, against definitions written out here in double:
 * random shapes, odd sizes, unaligned rows. `test_kernels --time` times the same functions instead.
 */
#include "base/memory.h"
#include "base/random.h"
#include "llm/kernels/half.h"
#include "llm/kernels/linear.h"
#include "llm/kernels/tile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

static const char *names[16];
static size_t name_count;
static pj_random rng;

static float uniform(float low, float high)
{
    return low + (high - low) * (float)pj_random_unit(&rng);
}

static size_t up_to(size_t n)
{
    return (size_t)(pj_random_unit(&rng) * (double)n) % n;
}

static float *random_row(size_t n, float low, float high)
{
    float *row = test_malloc(n * sizeof *row + 64);
    for (size_t i = 0; i < n; i++) row[i] = uniform(low, high);
    return row;
}

static void check(const char *set, const char *what, size_t i, double got, double want,
                  double slack)
{
    if (got != want && !(fabs(got - want) <= slack) && !(isnan(got) && isnan(want)))
        fail_msg("%s %s [%zu]: %.9g, expected %.9g within %.3g", set, what, i, got, want, slack);
}

static void check_row(const char *set, const char *what, const float *got, const double *want,
                      size_t n, double relative, double absolute)
{
    for (size_t i = 0; i < n; i++)
        check(set, what, i, (double)got[i], want[i], absolute + relative * fabs(want[i]));
}

#ifdef PJ_AMX_MODEL
/* The AMX kernels over an emulation of the tile instructions, on top of this machine's other
 * sets. */
void pj_kernels_amx_model_apply(pj_kernels *kernels);
static pj_kernels model;

static const pj_kernels *set_at(size_t i)
{
    if (i > 0) return NULL;
    model = *pj_kernels_find("avx2,avx512,vnni,bf16");
    pj_kernels_amx_model_apply(&model);
    model.name = "amx model";
    return &model;
}
#else
static const pj_kernels *set_at(size_t i)
{
    return i < name_count ? pj_kernels_find(names[i]) : NULL;
}
#endif

/* Each test runs on each set. */
#define FOR_SETS(k)                          \
    for (size_t set_ = 0; set_ < 16; set_++) \
        for (const pj_kernels *k = set_at(set_); k; k = NULL)

/* ---- weights ---------------------------------------------------------------------------- */

static void test_halves(void **state)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float f = pj_float_of_f16((uint16_t)bits), b = pj_float_of_bf16((uint16_t)bits);
        if (!isnan(f)) assert_int_equal(pj_f16_of_float(f), bits);
        if (!isnan(b)) assert_int_equal(pj_bf16_of_float(b), bits);
        assert_int_equal(isnan(f), (bits & 0x7fff) > 0x7c00);
    }
    assert_int_equal(pj_f16_of_float(1.0f + 0x1p-11f), 0x3c00); /* tie to even */
    assert_int_equal(pj_f16_of_float(1.0f + 0x3p-11f), 0x3c02);
    assert_int_equal(pj_f16_of_float(65519.99f), 0x7bff);
    assert_int_equal(pj_f16_of_float(65520.0f), 0x7c00);
    assert_int_equal(pj_f16_of_float(0x1p-25f), 0);
    assert_int_equal(pj_f16_of_float(0x1.8p-25f), 1);
    assert_int_equal(pj_bf16_of_float(1.0f + 0x1p-8f), 0x3f80);
    assert_true(isnan(pj_float_of_bf16(pj_bf16_of_float(NAN))));
    assert_true(isnan(pj_float_of_f16(pj_f16_of_float(NAN))));
}

static void test_dequantise_floats(void **state)
{
    FOR_SETS(k)
    {
        static uint16_t halves[0x10000];
        static float f[0x10000];
        for (uint32_t i = 0; i < 0x10000; i++) halves[i] = (uint16_t)i;
        k->dequantise(PJ_F16, halves, f, 0x10000);
        for (uint32_t i = 0; i < 0x10000; i++)
            check(k->name, "f16", i, (double)f[i], (double)pj_float_of_f16((uint16_t)i), 0);
        k->dequantise(PJ_BF16, halves, f, 0xfffd);
        for (uint32_t i = 0; i < 0xfffd; i++)
            check(k->name, "bf16", i, (double)f[i], (double)pj_float_of_bf16((uint16_t)i), 0);
    }
}

/* Known bytes, known values. */
static void test_block_layouts(void **state)
{
    const pj_kernels *k = pj_kernels_get();
    uint8_t block[256] = {0};
    float y[256];
    block[1] = 0x38; /* d = 0.5 */
    block[2] = 0xfe, block[33] = 100;
    k->dequantise(PJ_Q8_0, block, y, 32);
    assert_true(y[0] == -1.0f && y[31] == 50.0f && y[1] == 0.0f);
    block[2] = 0x9f; /* low 15: 3.5; high 9: 0.5 */
    k->dequantise(PJ_Q4_0, block, y, 32);
    assert_true(y[0] == 3.5f && y[16] == 0.5f && y[1] == -4.0f);

    memset(block, 0, sizeof block);
    block[1] = 0x3c, block[3] = 0x40; /* d = 1, dmin = 2 */
    block[4] = 0x45;                  /* j 0: scale 5; its top bits belong to j 4: 1 */
    block[8] = 0x83;                  /* j 0: minimum 3; top bits of j 4's minimum: 2 */
    block[12] = 0x21;                 /* j 4: scale 1 + (1 << 4) = 17, minimum 2 + (2 << 4) = 34 */
    block[16] = 0x0e;                 /* value 0: 14 */
    block[16 + 64] = 0x07;            /* value 128 (j 4): 7 */
    k->dequantise(PJ_Q4_K, block, y, 256);
    assert_true(y[0] == 5.0f * 14 - 2 * 3 && y[128] == 17.0f * 7 - 2 * 34);

    memmove(block + 48, block + 16, 128);
    memset(block + 16, 0, 32);
    block[16] = 0x11; /* fifth bits of values 0 and 128 */
    k->dequantise(PJ_Q5_K, block, y, 256);
    assert_true(y[0] == 5.0f * 30 - 2 * 3 && y[128] == 17.0f * 23 - 2 * 34);

    memset(block, 0, sizeof block);
    block[0] = 0x21, block[32] = 0x43; /* nibbles of values 0, 64 and 32, 96 */
    block[128] = 0xe4;                 /* pairs 0, 1, 2, 3 for values 0, 32, 64, 96 */
    for (int i = 0; i < 16; i++) block[192 + i] = (uint8_t)(i + 1);
    block[209] = 0x3c;
    k->dequantise(PJ_Q6_K, block, y, 256);
    assert_true(y[0] == 1.0f * (1 - 32) && y[32] == 3.0f * (3 + 16 - 32));
    assert_true(y[64] == 5.0f * (2 + 32 - 32) && y[96] == 7.0f * (4 + 48 - 32));
}

/* The types that are unpacked to codes, likewise. */
static void test_unpacked_layouts(void **state)
{
    const pj_kernels *k = pj_kernels_get();
    uint8_t block[256] = {0};
    float y[256];
    block[1] = 0x38, block[3] = 0xbc; /* d = 0.5, m = -1 */
    block[4] = 0x9f;                  /* low 15, high 9 */
    k->dequantise(PJ_Q4_1, block, y, 32);
    assert_true(y[0] == 6.5f && y[16] == 3.5f && y[1] == -1.0f);
    k->dequantise(PJ_IQ4_NL, block, y, 32); /* its nibbles start at byte 2: 0, 0xbc, 0x9f */
    assert_true(y[0] == -63.5f && y[1] == 0.5f * 53 && y[17] == 0.5f * 38 && y[2] == 0.5f * 113);

    memset(block, 0, sizeof block);
    block[1] = 0x3c, block[2] = 0x01, block[4] = 0x02; /* d = 1; fifth bits of values 0 and 17 */
    block[6] = 0x21, block[7] = 0x43;
    k->dequantise(PJ_Q5_0, block, y, 32);
    assert_true(y[0] == 1.0f && y[16] == -14.0f && y[1] == -13.0f && y[17] == 4.0f);
    memmove(block + 4, block + 2, 6);
    block[2] = 0, block[3] = 0x40; /* m = 2 */
    memset(block + 10, 0, 16);
    block[8] = 0x21, block[9] = 0x43;
    k->dequantise(PJ_Q5_1, block, y, 32);
    assert_true(y[0] == 19.0f && y[16] == 4.0f && y[1] == 5.0f && y[17] == 22.0f);

    memset(block, 0, sizeof block);
    block[0] = 129, block[1] = 0xf7, block[2] = 0x1a; /* twice 6 and -6, then -1 and 0.5 */
    k->dequantise(PJ_MXFP4, block, y, 32);
    assert_true(y[0] == 24.0f && y[16] == -24.0f && y[1] == -4.0f && y[17] == 2.0f);
    block[0] = 0;
    k->dequantise(PJ_MXFP4, block, y, 32);
    assert_true(y[0] == 12 * 0x1p-128f && y[17] == 0x1p-128f);

    memset(block, 0, sizeof block);
    block[81] = 0x3c, block[83] = 0x40; /* d = 1, dmin = 2 */
    block[0] = 0x35, block[11] = 0x12;  /* scale 5, minimum 3; of values 176 on: 2 and 1 */
    block[16] = 0x03, block[64] = 0x10; /* value 0: 3; value 176 (second half, shift 2, 16 on) */
    block[16 + 32 + 16] = 0x08;         /* value 176: 2 */
    k->dequantise(PJ_Q2_K, block, y, 256);
    assert_true(y[0] == 15.0f - 6 && y[1] == -6.0f && y[176] == 4.0f - 2 && y[177] == -2.0f);

    memset(block, 0, sizeof block);
    block[109] = 0x3c;                          /* d = 1 */
    block[96] = 0x31, block[96 + 8] = 0x40 | 2; /* scales 0: 1 + 32 - 32, 8: 3 - 32, 12: 0 + 16 */
    block[0] = 0x01;                            /* third bit of value 0 */
    block[32] = 0x02, block[32 + 32] = 0x03;    /* value 0: 2; value 128: 3, less 4 */
    k->dequantise(PJ_Q3_K, block, y, 256);
    assert_true(y[0] == 1.0f * 2 && y[1] == 1.0f * -4 && y[128] == -29.0f * -1);
    assert_true(y[192] == -16.0f * -4);

    memset(block, 0, sizeof block);
    block[1] = 0x3c;                  /* d = 1 */
    block[2] = 0x08, block[4] = 0x51; /* scales 0: 1 - 32; 1: 5 + 32 - 32 */
    block[8] = 0xf0, block[24] = 0x7f;
    k->dequantise(PJ_IQ4_XS, block, y, 256);
    assert_true(y[0] == -31.0f * -127 && y[16] == -31.0f * 113);
    assert_true(y[32] == 5.0f * 113 && y[48] == 5.0f * -10 && y[64] == -32.0f * -127);
}

static void test_quantise(void **state)
{
    FOR_SETS(k)
    {
        uint8_t block[34];
        float x[32] = {0}, y[32];
        k->quantise(PJ_Q8_0, x, block, 32);
        k->dequantise(PJ_Q8_0, block, y, 32);
        for (int i = 0; i < 32; i++) assert_true(y[i] == 0);
        for (int i = 0; i < 32; i++) x[i] = (float)(i * 4 - 63);
        x[31] = 127; /* d = 1 exactly */
        k->quantise(PJ_Q8_0, x, block, 32);
        for (int i = 0; i < 32; i++) assert_int_equal((int8_t)block[2 + i], (int)x[i]);
        x[0] = 0.5f, x[1] = -0.5f, x[2] = 1.5f; /* halves go away from zero */
        k->quantise(PJ_Q8_0, x, block, 32);
        assert_int_equal((int8_t)block[2], 1);
        assert_int_equal((int8_t)block[3], -1);
        assert_int_equal((int8_t)block[4], 2);
        for (int i = 0; i < 32; i++) x[i] = (float)(i % 16) - 8; /* d = 1, codes i % 16 */
        k->quantise(PJ_Q4_0, x, block, 32);
        for (int i = 0; i < 16; i++) assert_int_equal(block[2 + i], i * 17);
        x[4] = 8.0f, x[0] = 8.0f; /* +8 would be code 16: clipped; the first largest is -8 */
        x[0] = -8.0f;
        k->quantise(PJ_Q4_0, x, block, 32);
        assert_int_equal(block[2 + 4] & 15, 15);
        float *row = random_row(96, -2, 2), back[96];
        uint8_t bytes[96 * 4];
        k->quantise(PJ_F16, row, bytes, 96);
        k->dequantise(PJ_F16, bytes, back, 96);
        for (int i = 0; i < 96; i++)
            check(k->name, "f16 there and back", (size_t)i, (double)back[i], (double)row[i],
                  fabs((double)row[i]) * 0x1p-11);
        test_free(row);
    }
}

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
        assert_memory_equal(fused, y, n * sizeof *y); /* apart or together: the same bits */
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
                assert_true(scores[r * 40 + j] == want);
            }
        k->attention_softmax(scores, 40, 3, 37);
        assert_true(scores[0] == 1 && scores[1] == 0 && scores[40 + 4] == 0 &&
                    scores[40 + 33] == 0);
        assert_true(scores[37] == 37);
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
        /* in two calls: it adds up; the second in rows, where they are of one length */
        size_t rest = n - n / 2, rows = rest % 5 == 0 ? 5 : rest % 3 == 0 ? 3 : 1;
        float *apart = random_row(rows * (rest / rows + 7), NAN, NAN);
        for (size_t r = 0; r < rows; r++)
            memcpy(apart + r * (rest / rows + 7), x + n / 2 + r * (rest / rows),
                   rest / rows * sizeof *x);
        k->value_sums(x, 1, n / 2, n / 2, 0.01f, &got);
        k->value_sums(apart, rows, rest / rows, rest / rows + 7, 0.01f, &got);
        test_free(apart);
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
        assert_true(got.max_abs == want.max_abs);
        assert_int_equal(got.count, n);
        assert_int_equal(got.below, want.below);
        assert_int_equal(got.nan, want.nan);
        assert_int_equal(got.inf, want.inf);
        test_free(x);
    }
}

static void test_attention_figures(void **state)
{
    FOR_SETS(k) for (size_t l = 0; l < LENGTHS; l++)
    {
        size_t n = lengths[l], argmax = 0, below = 0;
        float *p = random_row(n, -9, 9);
        k->softmax(p, n);
        if (n > 4) p[3] = 0;
        double entropy = 0;
        for (size_t i = 0; i < n; i++) {
            if (p[i] > 0) entropy -= (double)p[i] * log((double)p[i]);
            if (p[i] > p[argmax]) argmax = i;
            below += p[i] < 0.01f;
        }
        pj_attention_figures got;
        k->attention_figures(p, n, 0.01f, &got);
        check(k->name, "entropy", l, got.entropy, entropy, 2e-6 + 1e-5 * entropy);
        assert_true(got.max == (double)p[argmax]);
        assert_int_equal(got.argmax, argmax);
        assert_int_equal(got.below, below);
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

/* ---- products --------------------------------------------------------------------------- */

/* Offset of a block's scale. */
static size_t scale_place(pj_dtype type)
{
    return type == PJ_Q6_K ? 208 : type == PJ_Q2_K ? 80 : type == PJ_Q3_K ? 108 : 0;
}

/* A minimum or an offset follows the scale. */
static bool has_offset(pj_dtype type)
{
    return type == PJ_Q4_K || type == PJ_Q5_K || type == PJ_Q2_K || type == PJ_Q4_1 ||
           type == PJ_Q5_1;
}

/* Random bytes of a type with scales that are sane floats. */
static void random_weights(pj_dtype type, uint8_t *row, size_t cols)
{
    const pj_dtype_info *info = pj_dtype_get(type);
    for (size_t i = 0; i < cols; i += info->block_values, row += info->block_bytes) {
        uint16_t d = pj_f16_of_float(uniform(0.001f, 0.02f)),
                 m = pj_f16_of_float(uniform(0, 0.02f));
        if (info->block_values == 1) {
            float value = uniform(-0.5f, 0.5f);
            pj_kernels_find("c")->quantise(type, &value, row, 1);
            continue;
        }
        for (size_t b = 0; b < info->block_bytes; b++) row[b] = (uint8_t)up_to(256);
        if (type == PJ_MXFP4) {
            row[0] = (uint8_t)(118 + up_to(6)); /* 2^-10 to 2^-5 */
            continue;
        }
        memcpy(row + scale_place(type), &d, 2);
        if (has_offset(type)) memcpy(row + scale_place(type) + 2, &m, 2);
    }
}

/* x [cols] as the kernels of the form may round it. */
static double rounded(const pj_kernels *k, pj_form form, const float *x, size_t i, size_t cols)
{
    if (form == PJ_FORM_BF16) return (double)pj_float_of_bf16(pj_bf16_of_float(x[i]));
    if (form == PJ_FORM_F32) return (double)x[i];
    size_t shared = 32 * (k->forms[form]->shared_blocks ? k->forms[form]->shared_blocks : 1);
    size_t begin = i / shared * shared, end = begin + shared < cols ? begin + shared : cols;
    float most = 0;
    for (size_t j = begin; j < end; j++) most = fmaxf(most, fabsf(x[j]));
    return most > 0 ? (double)rintf(x[i] * (127 / most)) * ((double)most / 127) : 0;
}

/* Bound on the error of rounding the weights of 128 columns to 16-bit integers with one scale: half
 * a step for the shared scale and half for the block's, at 32,000 steps. */
static double word_room(const float *w, const double *x, size_t cols)
{
    double room = 0;
    for (size_t begin = 0; begin < cols; begin += 128) {
        double most = 0, sum = 0;
        for (size_t i = begin; i < begin + 128 && i < cols; i++) {
            most = fmax(most, fabs((double)w[i]));
            sum += fabs(x[i]);
        }
        room += most * sum / 32000;
    }
    return room;
}

typedef struct product_case {
    pj_dtype type;
    size_t rows, cols, tokens;
    unsigned threads;
    bool bias;
} product_case;

static void product(const pj_kernels *k, const product_case *c)
{
    pj_matrix w = {.type = c->type, .rows = c->rows, .cols = c->cols};
    w.row_bytes = pj_dtype_row_bytes(c->type, c->cols);
    size_t x_stride = c->cols + 3, y_stride = c->rows + 2;
    /* At an odd address and exactly as long as the file would be: reads past the end show under
     * the address sanitizer. */
    uint8_t *bytes = test_malloc(w.row_bytes * c->rows + 1);
    for (size_t r = 0; r < c->rows; r++)
        random_weights(c->type, bytes + 1 + r * w.row_bytes, c->cols);
    w.data = bytes + 1;
    float *x = random_row(c->tokens * x_stride, -1, 1), *bias = random_row(c->rows, -1, 1);
    float *y = random_row(c->tokens * y_stride, 7, 8), *row = test_malloc(c->cols * sizeof *row);
    void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(c->tokens, c->cols));
    double *x_rounded = test_malloc(c->tokens * c->cols * sizeof *x_rounded);
    pj_form form = pj_linear_form(k, c->type);
    for (size_t t = 0; t < c->tokens; t++)
        for (size_t i = 0; i < c->cols; i++)
            x_rounded[t * c->cols + i] = rounded(k, form, x + t * x_stride, i, c->cols);
    pj_team *team;
    pj_error err;
    assert_int_equal(pj_team_new(c->threads, false, &team, &err), PJ_OK);
    pj_linear_job job = {&w, c->bias ? bias : NULL, y, y_stride};
    pj_linear(k, team, x, x_stride, c->tokens, &job, memory);
    bool words = form == PJ_FORM_Q8_WORDS;
    /* As bytes, Q6_K and Q2_K are coded anew, see codes.h and codes_lookup.h. */
    bool anew = (c->type == PJ_Q6_K && !words) || c->type == PJ_Q2_K;
    double slack = anew ? 6e-3 : form == PJ_FORM_BF16 ? 2e-5 : 3e-6;
    for (size_t r = 0; r < c->rows; r++) {
        pj_kernels_find("c")->dequantise(c->type, bytes + 1 + r * w.row_bytes, row, c->cols);
        for (size_t t = 0; t < c->tokens; t++) {
            double want = c->bias ? (double)bias[r] : 0, size = fabs(want);
            for (size_t i = 0; i < c->cols; i++) {
                double term = (double)row[i] * x_rounded[t * c->cols + i];
                want += term, size += fabs(term);
            }
            double room = words ? word_room(row, x_rounded + t * c->cols, c->cols) : 0;
            char what[96];
            snprintf(what, sizeof what, "%s %zux%zu, token %zu of %zu, row",
                     pj_dtype_get(c->type)->name, c->rows, c->cols, t, c->tokens);
            check(k->name, what, r, (double)y[t * y_stride + r], want, slack * size + room + 1e-7);
        }
    }
    for (size_t t = 0; t + 1 < c->tokens; t++) /* nothing is written beyond the rows */
        assert_true(y[t * y_stride + c->rows] >= 7 && y[t * y_stride + c->rows + 1] >= 7);
    pj_team_free(team);
    pj_free(memory);
    test_free(bytes), test_free(x), test_free(bias), test_free(y), test_free(row);
    test_free(x_rounded);
}

static void test_products(void **state)
{
    static const size_t tokens[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 49, 97, 130};
    FOR_SETS(k) for (int type = 0; type < PJ_DTYPE_COUNT; type++) for (int i = 0; i < 26; i++)
    {
        size_t block = pj_dtype_get((pj_dtype)type)->block_values;
        product_case c = {.type = (pj_dtype)type,
                          .rows = 1 + up_to(i % 4 == 0 ? 300 : 40),
                          .cols = block * (1 + up_to(block == 1 ? 700 : 1024 / block)),
                          .tokens = tokens[i % 13],
                          .threads = 1 + (unsigned)(i % 3),
                          .bias = i % 2};
        product(k, &c);
    }
}

/* Longer than a chunk of columns, wider than a block of rows. */
static void test_large_products(void **state)
{
    FOR_SETS(k) for (int type = 0; type <= PJ_Q4_0; type++)
    {
        product_case wide = {(pj_dtype)type, 9, 16384 + 96, 20, 2, true};
        product_case tall = {(pj_dtype)type, 700, 96, 50, 2, true};
        product(k, &wide);
        product(k, &tall);
    }
}

/* Several matrices in one dispatch give what each gives alone, whatever the number of tokens. */
static void test_jobs_together(void **state)
{
    FOR_SETS(k) for (size_t tokens = 1; tokens < 70; tokens += 23)
    {
        enum { COLS = 320 };
        static const size_t rows[3] = {64, 8, 37};
        float *x = random_row(tokens * COLS, -1, 1), *y[3], *alone = random_row(tokens * 64, 0, 0);
        void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(tokens, COLS));
        uint8_t *bytes[3];
        pj_matrix w[3];
        pj_linear_job jobs[3];
        pj_team *team;
        assert_int_equal(pj_team_new(2, false, &team, NULL), PJ_OK);
        for (int j = 0; j < 3; j++) {
            size_t row_bytes = pj_dtype_row_bytes(PJ_Q8_0, COLS);
            bytes[j] = test_malloc(rows[j] * row_bytes);
            random_weights(PJ_Q8_0, bytes[j], COLS * rows[j]);
            w[j] = (pj_matrix){bytes[j], PJ_Q8_0, rows[j], COLS, row_bytes};
            y[j] = random_row(tokens * rows[j], 0, 0);
            jobs[j] = (pj_linear_job){&w[j], NULL, y[j], rows[j]};
        }
        pj_packed packed;
        pj_linear_pack(k, team, PJ_Q8_0, x, COLS, tokens, COLS, memory, &packed);
        pj_linear_run(k, team, &packed, jobs, 3);
        for (int j = 0; j < 3; j++) {
            pj_linear_job job = {&w[j], NULL, alone, rows[j]};
            pj_linear(k, team, x, COLS, tokens, &job, memory);
            assert_memory_equal(alone, y[j], tokens * rows[j] * sizeof(float));
            test_free(bytes[j]), test_free(y[j]);
        }
        pj_team_free(team);
        pj_free(memory);
        test_free(x), test_free(alone);
    }
}

/* ---- the team --------------------------------------------------------------------------- */

typedef struct counted {
    pj_team *team;
    _Atomic size_t taken[2];
    size_t shared[8];
    bool order;
} counted;

static void count_items(void *context, unsigned thread)
{
    counted *c = context;
    size_t begin, end;
    pj_team_share(c->team, thread, 1000, 8, &begin, &end);
    c->shared[thread] = end - begin;
    for (int half = 0; half < 2; half++) {
        while (pj_team_take(c->team, 1000, 7, &begin, &end)) c->taken[half] += end - begin;
        pj_team_barrier(c->team, thread);
        if (c->taken[half] != 1000) c->order = false;
        pj_team_barrier(c->team, thread);
    }
    memset(pj_team_scratch(c->team, thread), (int)thread, PJ_TEAM_SCRATCH_BYTES);
}

typedef struct offered {
    pj_team *team;
    _Atomic size_t taken;
    _Atomic unsigned inside;
} offered;

static void take_items(void *context, unsigned thread)
{
    offered *o = context;
    size_t begin, end;
    o->inside++;
    while (pj_team_take(o->team, 500, 3, &begin, &end)) o->taken += end - begin;
    o->inside--;
}

/* Whichever threads arrive: every item is done once, and no thread works afterwards. */
static void test_offers(void **state)
{
    for (unsigned threads = 1; threads <= 4; threads++) {
        offered o = {0};
        counted c = {.order = true};
        assert_int_equal(pj_team_new(threads, threads % 2, &o.team, NULL), PJ_OK);
        c.team = o.team;
        for (size_t i = 1; i <= 2000; i++) {
            pj_team_offer(o.team, take_items, &o);
            assert_int_equal(o.inside, 0);
            assert_int_equal(o.taken, i * 500);
            if (i % 50) continue;
            c.taken[0] = c.taken[1] = 0;
            pj_team_run(c.team, count_items, &c); /* all of them, after some did not arrive */
            assert_true(c.order);
        }
        pj_team_free(o.team);
    }
}

static void test_team(void **state)
{
    for (unsigned threads = 1; threads <= 4; threads++) {
        counted c = {.order = true};
        pj_error err;
        assert_int_equal(pj_team_new(threads, threads % 2, &c.team, &err), PJ_OK);
        assert_int_equal(pj_team_threads(c.team), threads);
        uint64_t allocations = pj_memory_count();
        for (int i = 0; i < 200; i++) {
            c.taken[0] = c.taken[1] = 0;
            pj_team_run(c.team, count_items, &c);
            size_t all = 0;
            for (unsigned t = 0; t < threads; t++) all += c.shared[t];
            assert_int_equal(all, 1000);
            assert_true(c.order);
        }
        assert_int_equal(pj_memory_count(), allocations);
        pj_team_free(c.team);
    }
    for (int64_t after = 0; after < 2; after++) { /* no memory: an error, nothing left behind */
        pj_team *team;
        pj_error err;
        pj_memory_fail_after(after);
        assert_int_equal(pj_team_new(2, false, &team, &err), PJ_E_NO_MEMORY);
        assert_null(team);
    }
    pj_memory_fail_after(-1);
}

static void test_masks(void **state)
{
    assert_null(pj_kernels_find("sse9"));
    assert_string_equal(pj_kernels_find("c")->name, "c");
    assert_string_equal(pj_kernels_find(NULL)->name, names[name_count - 1]);
    for (size_t i = 0; i < name_count; i++)
        assert_string_equal(pj_kernels_find(names[i])->name, names[i]);
}

/* ---- --time ----------------------------------------------------------------------------- */

/* Minimum over some calls, in nanoseconds: a product on one thread. */
static double least_ns(const pj_kernels *k, pj_team *team, const pj_linear_job *job, const float *x,
                       size_t tokens, void *memory)
{
    double least = 1e18;
    for (int i = 0; i < 20; i++) {
        int64_t begin = pj_clock_ns();
        pj_linear(k, team, x, job->weights->cols, tokens, job, memory);
        least = fmin(least, (double)(pj_clock_ns() - begin));
    }
    return least;
}

/* Every set and type against plain C: a matrix that stays in cache times one and 48 tokens. */
static int time_products(void)
{
    enum { ROWS = 128, COLS = 1024, TOKENS = 48 };
    static const size_t tokens[] = {1, TOKENS};
    float *x = pj_alloc(TOKENS * COLS, sizeof *x), *y = pj_alloc(TOKENS * ROWS, sizeof *y);
    uint8_t *bytes = pj_alloc(ROWS * COLS, 4);
    void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(TOKENS, COLS));
    pj_team *team;
    if (!x || !y || !bytes || !memory || pj_team_new(1, false, &team, NULL)) return 1;
    for (size_t i = 0; i < TOKENS * COLS; i++) x[i] = uniform(-1, 1);
    printf("%-8s %-6s %7s %10s %8s\n", "set", "type", "tokens", "GFLOP/s", "against c");
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        for (size_t t = 0; t < 2; t++) {
            double plain = 0;
            pj_matrix w = {bytes, (pj_dtype)type, ROWS, COLS, 0};
            w.row_bytes = pj_dtype_row_bytes(w.type, COLS);
            random_weights(w.type, bytes, ROWS * COLS);
            pj_linear_job job = {&w, NULL, y, ROWS};
            for (size_t i = 0; i < name_count; i++) {
                double ns = least_ns(pj_kernels_find(names[i]), team, &job, x, tokens[t], memory);
                if (i == 0) plain = ns;
                printf("%-8s %-6s %7zu %10.1f %8.1f\n", names[i], pj_dtype_get(w.type)->name,
                       tokens[t], 2.0 * ROWS * COLS * (double)tokens[t] / ns, plain / ns);
            }
        }
    pj_team_free(team);
    pj_free(x), pj_free(y), pj_free(bytes), pj_free(memory);
    return 0;
}

int main(int argc, char **argv)
{
    name_count = pj_kernels_list(names, 16);
    rng.state = 20260801;
    if (argc > 1 && strcmp(argv[1], "--time") == 0) return time_products();
#ifdef PJ_AMX_MODEL
    if (set_at(0)->forms[PJ_FORM_Q8]->group != 4 || set_at(0)->forms[PJ_FORM_BF16]->group != 2) {
        puts("skipped: the emulation needs AVX-512 with VNNI and BF16");
        return 77;
    }
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_team),
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_dequantise_floats),
        cmocka_unit_test(test_block_layouts),
        cmocka_unit_test(test_unpacked_layouts),
        cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_delta_step),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_mask_and_scale),
        cmocka_unit_test(test_value_sums),
        cmocka_unit_test(test_attention_figures),
        cmocka_unit_test(test_gate_counts),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_large_products),
        cmocka_unit_test(test_jobs_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
