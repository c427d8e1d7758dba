/* Types of weights: conversions, layouts of blocks, unpacking, quantisation. */
#include "../assertions.h"
#include "kernel_sets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
    assert_that(y[0], ==, -1.0f);
    assert_that(y[31], ==, 50.0f);
    assert_that(y[1], ==, 0.0f);
    block[2] = 0x9f; /* low 15: 3.5; high 9: 0.5 */
    k->dequantise(PJ_Q4_0, block, y, 32);
    assert_that(y[0], ==, 3.5f);
    assert_that(y[16], ==, 0.5f);
    assert_that(y[1], ==, -4.0f);

    memset(block, 0, sizeof block);
    block[1] = 0x3c, block[3] = 0x40; /* d = 1, dmin = 2 */
    block[4] = 0x45;                  /* j 0: scale 5; its top bits belong to j 4: 1 */
    block[8] = 0x83;                  /* j 0: minimum 3; top bits of j 4's minimum: 2 */
    block[12] = 0x21;                 /* j 4: scale 1 + (1 << 4) = 17, minimum 2 + (2 << 4) = 34 */
    block[16] = 0x0e;                 /* value 0: 14 */
    block[16 + 64] = 0x07;            /* value 128 (j 4): 7 */
    k->dequantise(PJ_Q4_K, block, y, 256);
    assert_that(y[0], ==, 5.0f * 14 - 2 * 3);
    assert_that(y[128], ==, 17.0f * 7 - 2 * 34);

    memmove(block + 48, block + 16, 128);
    memset(block + 16, 0, 32);
    block[16] = 0x11; /* fifth bits of values 0 and 128 */
    k->dequantise(PJ_Q5_K, block, y, 256);
    assert_that(y[0], ==, 5.0f * 30 - 2 * 3);
    assert_that(y[128], ==, 17.0f * 23 - 2 * 34);

    memset(block, 0, sizeof block);
    block[0] = 0x21, block[32] = 0x43; /* nibbles of values 0, 64 and 32, 96 */
    block[128] = 0xe4;                 /* pairs 0, 1, 2, 3 for values 0, 32, 64, 96 */
    for (int i = 0; i < 16; i++) block[192 + i] = (uint8_t)(i + 1);
    block[209] = 0x3c;
    k->dequantise(PJ_Q6_K, block, y, 256);
    assert_that(y[0], ==, 1.0f * (1 - 32));
    assert_that(y[32], ==, 3.0f * (3 + 16 - 32));
    assert_that(y[64], ==, 5.0f * (2 + 32 - 32));
    assert_that(y[96], ==, 7.0f * (4 + 48 - 32));
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
    assert_that(y[0], ==, 6.5f);
    assert_that(y[16], ==, 3.5f);
    assert_that(y[1], ==, -1.0f);
    k->dequantise(PJ_IQ4_NL, block, y, 32); /* its nibbles start at byte 2: 0, 0xbc, 0x9f */
    assert_that(y[0], ==, -63.5f);
    assert_that(y[1], ==, 0.5f * 53);
    assert_that(y[17], ==, 0.5f * 38);
    assert_that(y[2], ==, 0.5f * 113);

    memset(block, 0, sizeof block);
    block[1] = 0x3c, block[2] = 0x01, block[4] = 0x02; /* d = 1; fifth bits of values 0 and 17 */
    block[6] = 0x21, block[7] = 0x43;
    k->dequantise(PJ_Q5_0, block, y, 32);
    assert_that(y[0], ==, 1.0f);
    assert_that(y[16], ==, -14.0f);
    assert_that(y[1], ==, -13.0f);
    assert_that(y[17], ==, 4.0f);
    memmove(block + 4, block + 2, 6);
    block[2] = 0, block[3] = 0x40; /* m = 2 */
    memset(block + 10, 0, 16);
    block[8] = 0x21, block[9] = 0x43;
    k->dequantise(PJ_Q5_1, block, y, 32);
    assert_that(y[0], ==, 19.0f);
    assert_that(y[16], ==, 4.0f);
    assert_that(y[1], ==, 5.0f);
    assert_that(y[17], ==, 22.0f);

    memset(block, 0, sizeof block);
    block[0] = 129, block[1] = 0xf7, block[2] = 0x1a; /* twice 6 and -6, then -1 and 0.5 */
    k->dequantise(PJ_MXFP4, block, y, 32);
    assert_that(y[0], ==, 24.0f);
    assert_that(y[16], ==, -24.0f);
    assert_that(y[1], ==, -4.0f);
    assert_that(y[17], ==, 2.0f);
    block[0] = 0;
    k->dequantise(PJ_MXFP4, block, y, 32);
    assert_that(y[0], ==, 12 * 0x1p-128f);
    assert_that(y[17], ==, 0x1p-128f);

    memset(block, 0, sizeof block);
    block[81] = 0x3c, block[83] = 0x40; /* d = 1, dmin = 2 */
    block[0] = 0x35, block[11] = 0x12;  /* scale 5, minimum 3; of values 176 on: 2 and 1 */
    block[16] = 0x03, block[64] = 0x10; /* value 0: 3; value 176 (second half, shift 2, 16 on) */
    block[16 + 32 + 16] = 0x08;         /* value 176: 2 */
    k->dequantise(PJ_Q2_K, block, y, 256);
    assert_that(y[0], ==, 15.0f - 6);
    assert_that(y[1], ==, -6.0f);
    assert_that(y[176], ==, 4.0f - 2);
    assert_that(y[177], ==, -2.0f);

    memset(block, 0, sizeof block);
    block[109] = 0x3c;                          /* d = 1 */
    block[96] = 0x31, block[96 + 8] = 0x40 | 2; /* scales 0: 1 + 32 - 32, 8: 3 - 32, 12: 0 + 16 */
    block[0] = 0x01;                            /* third bit of value 0 */
    block[32] = 0x02, block[32 + 32] = 0x03;    /* value 0: 2; value 128: 3, less 4 */
    k->dequantise(PJ_Q3_K, block, y, 256);
    assert_that(y[0], ==, 1.0f * 2);
    assert_that(y[1], ==, 1.0f * -4);
    assert_that(y[128], ==, -29.0f * -1);
    assert_that(y[192], ==, -16.0f * -4);

    memset(block, 0, sizeof block);
    block[1] = 0x3c;                  /* d = 1 */
    block[2] = 0x08, block[4] = 0x51; /* scales 0: 1 - 32; 1: 5 + 32 - 32 */
    block[8] = 0xf0, block[24] = 0x7f;
    k->dequantise(PJ_IQ4_XS, block, y, 256);
    assert_that(y[0], ==, -31.0f * -127);
    assert_that(y[16], ==, -31.0f * 113);
    assert_that(y[32], ==, 5.0f * 113);
    assert_that(y[48], ==, 5.0f * -10);
    assert_that(y[64], ==, -32.0f * -127);
}

/* Values of 64 blocks of pseudo-random bytes, each times its position in the block, as the
 * published gguf package (0.17) decodes them; the scale is 1. All sums are exact. */
static void test_codebooks(void **state)
{
    static const struct {
        pj_dtype type;
        double sum;
    } cases[] = {
        {PJ_IQ1_S, -136010.0},     {PJ_IQ1_M, -44782.0},   {PJ_IQ2_XXS, 1041083.75},
        {PJ_IQ2_XS, -1287192.875}, {PJ_IQ2_S, -2352376.0}, {PJ_IQ3_XXS, 78126.5},
        {PJ_IQ3_S, 2479022.0},     {PJ_TQ1_0, -12115.0},   {PJ_TQ2_0, 1060858.0},
        {PJ_NVFP4, 826.908203125},
    };
    FOR_SETS(k) for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    {
        pj_dtype type = cases[c].type;
        const pj_dtype_info *info = pj_dtype_get(type);
        uint32_t random = 12345;
        double sum = 0;
        for (int b = 0; b < 64; b++) {
            uint8_t block[128];
            float y[256];
            for (size_t i = 0; i < info->block_bytes; i++) {
                random = random * 1103515245 + 12345;
                block[i] = (uint8_t)(random >> 16);
            }
            size_t scale = type == PJ_TQ1_0 ? 52 : type == PJ_TQ2_0 ? 64 : 0;
            if (type == PJ_IQ1_M) {
                static const uint8_t quarters[] = {0, 0, 0xc, 3};
                for (int i = 0; i < 4; i++)
                    block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | quarters[i] << 4);
            } else if (type == PJ_NVFP4) {
                for (int i = 0; i < 4; i++) block[i] &= 0x3f; /* no NaN */
            } else {
                block[scale] = 0, block[scale + 1] = 0x3c;
            }
            k->dequantise(type, block, y, info->block_values);
            for (size_t i = 0; i < info->block_values; i++) sum += y[i] * (double)(i + 1);
        }
        if (sum != cases[c].sum)
            fail_msg("%s %s: %.17g, expected %.17g", k->name, info->name, sum, cases[c].sum);
    }
    uint8_t block[18] = {0, 0x3c, 0x05};
    float y[128];
    pj_kernels_find("c")->dequantise(PJ_Q1_0, block, y, 128);
    assert_that(y[0], ==, 1.0f);
    assert_that(y[1], ==, -1.0f);
    assert_that(y[2], ==, 1.0f);
    assert_that(y[127], ==, -1.0f);
}

static void test_quantise(void **state)
{
    FOR_SETS(k)
    {
        uint8_t block[34];
        float x[32] = {0}, y[32];
        k->quantise(PJ_Q8_0, x, block, 32);
        k->dequantise(PJ_Q8_0, block, y, 32);
        for (int i = 0; i < 32; i++) assert_that(y[i], ==, 0);
        for (int i = 0; i < 32; i++) x[i] = (float)(i * 4 - 63);
        x[31] = 127; /* d = 1 exactly */
        k->quantise(PJ_Q8_0, x, block, 32);
        for (int i = 0; i < 32; i++) assert_int_equal((int8_t)block[2 + i], (int)x[i]);
        x[0] = 0.5f, x[1] = -0.5f, x[2] = 1.5f; /* ties round away from zero */
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
        for (int broken = 0; broken < 4; broken++) { /* else a broken model looks healthy */
            pj_dtype type = broken % 2 ? PJ_Q4_0 : PJ_Q8_0;
            x[17] = broken < 2 ? NAN : -INFINITY;
            k->quantise(type, x, block, 32);
            k->dequantise(type, block, y, 32);
            if (isfinite(y[17]))
                fail_msg("%s: %g becomes %g", k->name, (double)x[17], (double)y[17]);
        }
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

int test_kernel_weights(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),        cmocka_unit_test(test_dequantise_floats),
        cmocka_unit_test(test_block_layouts), cmocka_unit_test(test_unpacked_layouts),
        cmocka_unit_test(test_codebooks),     cmocka_unit_test(test_quantise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
