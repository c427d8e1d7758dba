/* Weights repacked into rows for the kernels: transposed, MXFP4 as gpt-oss publishes it, and
 * 8-bit floats, each against its definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "engine/kernels/blocks.h"
#include "engine/model/packed_rows.h"
#include "engine/model/row_source.h"

#include <math.h>
#include <string.h>

static void transposed(void **state)
{
    float from[3][8], row[3]; /* [in][out], of which every other out, from the second on */
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 8; j++) from[i][j] = (float)(10 * i + j);
    pj_row_source s = pj_rows_transposed(from, PJ_F32, 3, sizeof from[0], 1, 2);
    for (size_t r = 0; r < 4; r++) {
        s.read(&s, r, row);
        for (int i = 0; i < 3; i++) assert_that(row[i], ==, (float)(10 * i + 1 + 2 * (int)r));
    }
}

/* Value i of a row is a nibble of byte i / 2, the low one for even i; its scale is 2^(e - 127). */
static void mxfp4(void **state)
{
    static const float levels[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    enum { ROWS = 6, COLS = 96 };
    static uint8_t blocks[ROWS][COLS / 2], scales[ROWS][COLS / 32];
    float read[COLS], copied[COLS];
    uint8_t out[COLS / 32 * 17];
    (void)state;
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < COLS / 2; i++) blocks[r][i] = (uint8_t)(r * 53 + i * 29);
        for (int b = 0; b < COLS / 32; b++) scales[r][b] = (uint8_t)(120 + r + b);
    }
    for (size_t first = 0; first < 2; first++) { /* gate and up are interleaved */
        pj_row_source s = pj_rows_mxfp4(blocks, scales, COLS, first, 2);
        assert_int_equal(s.type, PJ_MXFP4);
        for (size_t r = 0; r < ROWS / 2; r++) {
            size_t at = first + 2 * r;
            s.read(&s, r, read);
            s.copy(&s, r, out);
            pj_blocks_dequantise(PJ_MXFP4, out, copied, COLS);
            for (size_t i = 0; i < COLS; i++) {
                int code = blocks[at][i / 2] >> (i % 2 * 4) & 15;
                float want = ldexpf(levels[code], scales[at][i / 32] - 127);
                assert_that(read[i], ==, want);
                assert_that(copied[i], ==, want);
            }
        }
    }
}

/* Each code in each place, scaled by an eighth of its block. */
static void two_bits(void **state)
{
    enum { BLOCKS = 3, VALUES = 64 };
    uint8_t blocks[BLOCKS][18], out[2 * BLOCKS * 18];
    float read[BLOCKS * VALUES], copied[BLOCKS * VALUES];
    (void)state;
    for (int b = 0; b < BLOCKS; b++) {
        const uint16_t scales[BLOCKS] = {0x3000, 0x3400, 0xb800}; /* 1/8, 1/4, -1/2 */
        memcpy(blocks[b], &scales[b], 2);
        for (int i = 0; i < 16; i++) blocks[b][2 + i] = (uint8_t)(b * 37 + i * 27);
    }
    pj_row_source s = pj_rows_q2_0(blocks, BLOCKS * VALUES);
    assert_int_equal(s.type, PJ_Q4_0);
    s.read(&s, 0, read);
    s.copy(&s, 0, out);
    pj_blocks_dequantise(PJ_Q4_0, out, copied, BLOCKS * VALUES);
    for (int i = 0; i < BLOCKS * VALUES; i++) {
        static const float scales[BLOCKS] = {0.125f, 0.25f, -0.5f};
        int code = blocks[i / VALUES][2 + i % VALUES / 4] >> (i % 4 * 2) & 3;
        assert_that(read[i], ==, scales[i / VALUES] * (float)(code - 1));
        assert_that(copied[i], ==, read[i]);
    }
}

static void eight_bit_floats(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        int exponent = byte >> 3 & 15, mantissa = byte & 7;
        double want = exponent ? ldexp(1 + mantissa / 8.0, exponent - 7) : ldexp(mantissa, -9);
        float got = pj_float_of_e4m3((uint8_t)byte);
        if ((byte & 127) == 127)
            assert_true(isnan(got));
        else
            assert_that((double)got, ==, (byte & 128 ? -want : want));
    }
}

/* Scales by blocks of 2 x 4, of rows of 6 values. */
static void scaled_bytes(void **state)
{
    static const uint8_t bytes[4][6] = {{0x38, 0x38, 0x38, 0x38, 0x38, 0x38},
                                        {0x40, 0x40, 0x40, 0x40, 0x40, 0x40},
                                        {0x38, 0xb8, 0x38, 0x38, 0x38, 0x38},
                                        {0x30, 0x30, 0x30, 0x30, 0x30, 0x30}};
    static const float scales[2][2] = {{1, 10}, {100, 1000}};
    float row[6];
    (void)state;
    pj_row_source s = pj_rows_e4m3(bytes, scales[0], 6, 2, 4, 2);
    s.read(&s, 1, row);
    assert_that(row[0], ==, 2);
    assert_that(row[3], ==, 2);
    assert_that(row[4], ==, 20);
    assert_that(row[5], ==, 20);
    s.read(&s, 2, row);
    assert_that(row[0], ==, 100);
    assert_that(row[1], ==, -100);
    assert_that(row[4], ==, 1000);
    s.read(&s, 3, row);
    assert_that(row[0], ==, 50);
    assert_that(row[5], ==, 500);
}

/* Rows of a matrix that alternates them. */
static void ordered(void **state)
{
    float from[4][2] = {{0, 1}, {10, 11}, {20, 21}, {30, 31}}, row[2], copied[2];
    static const uint32_t order[] = {2, 0, 3};
    (void)state;
    pj_matrix stored = {from, PJ_F32, 4, 2, sizeof from[0]};
    pj_row_source s = pj_rows_ordered(&stored, order);
    for (size_t r = 0; r < 3; r++) {
        s.read(&s, r, row);
        s.copy(&s, r, copied);
        assert_that(row[1], ==, (float)(10 * order[r] + 1));
        assert_memory_equal(row, copied, sizeof row);
    }
}

enum { OUT = 32, IN = 64, GROUP = 32 };

/* Code of a weight, zero and scale of its group, by formulas. */
static unsigned code_at(size_t row, size_t col)
{
    return (unsigned)(row * 7 + col * 5 + row * col) % 16;
}
static unsigned zero_at(size_t row, size_t group)
{
    return (unsigned)(row + 3 * group) % 15 + 1;
}
static float scale_at(size_t row, size_t group)
{
    return ldexpf((float)(1 + row % 3), -4 - (int)group);
}

static void put(uint32_t *words, size_t word, size_t nibble, unsigned value)
{
    words[word] |= (uint32_t)value << (4 * nibble);
}

static void check_packed(const pj_packed_weights *w, pj_dtype type, bool zeros)
{
    float read[IN], copied[IN];
    unsigned char out[IN];
    pj_row_source s = pj_rows_packed(w);
    assert_int_equal(s.type, type);
    for (size_t r = 0; r < OUT; r++) {
        s.read(&s, r, read);
        s.copy(&s, r, out);
        pj_blocks_dequantise(type, out, copied, IN);
        for (size_t i = 0; i < IN; i++) {
            int zero = zeros ? (int)zero_at(r, i / GROUP) : 8;
            float want = scale_at(r, i / GROUP) * (float)((int)code_at(r, i) - zero);
            assert_that(read[i], ==, want);
            assert_that(copied[i], ==, want); /* scales and zeros are exact in f16 */
        }
    }
}

static void packed(void **state)
{
    static const size_t nibble_of[8] = {0, 4, 1, 5,
                                        2, 6, 3, 7}; /* AWQ's, of each of eight values */
    static uint32_t gptq[IN / 8 * OUT], awq[IN * OUT / 8], rows[OUT * IN / 8];
    static uint32_t gptq_zeros[2 * OUT / 8], awq_zeros[2 * OUT / 8];
    static float by_group[2 * OUT], by_row[OUT * 2];
    (void)state;
    for (size_t r = 0; r < OUT; r++)
        for (size_t i = 0; i < IN; i++) {
            put(gptq, i / 8 * OUT + r, i % 8, code_at(r, i));
            put(awq, i * (OUT / 8) + r / 8, nibble_of[r % 8], code_at(r, i));
            put(rows, r * (IN / 8) + i / 8, i % 8, code_at(r, i));
        }
    for (size_t r = 0; r < OUT; r++)
        for (size_t g = 0; g < 2; g++) {
            put(gptq_zeros, g * (OUT / 8) + r / 8, r % 8, zero_at(r, g) - 1);
            put(awq_zeros, g * (OUT / 8) + r / 8, nibble_of[r % 8], zero_at(r, g));
            by_group[g * OUT + r] = by_row[r * 2 + g] = scale_at(r, g);
        }
    pj_packed_weights w = {.packing = PJ_PACKED_GPTQ,
                           .rows = OUT,
                           .cols = IN,
                           .group = GROUP,
                           .bits = 4,
                           .zero_plus = 1,
                           .codes = (const unsigned char *)gptq,
                           .scales = (const unsigned char *)by_group,
                           .zeros = (const unsigned char *)gptq_zeros,
                           .scale_type = PJ_F32,
                           .factor = 1};
    check_packed(&w, PJ_Q4_1, true);
    w.packing = PJ_PACKED_AWQ, w.zero_plus = 0;
    w.codes = (const unsigned char *)awq, w.zeros = (const unsigned char *)awq_zeros;
    check_packed(&w, PJ_Q4_1, true);
    w.packing = PJ_PACKED_ROWS, w.zeros = NULL;
    w.codes = (const unsigned char *)rows, w.scales = (const unsigned char *)by_row;
    check_packed(&w, PJ_Q4_0, false);
}

/* Codes of 8 bits stay the same in Q8_0; a block with one that Q8_0 does not have is rounded. */
static void packed_bytes(void **state)
{
    static int8_t codes[2][64], zeros[2] = {0, 5};
    static const float scales[2] = {0.25f, 0.125f};
    unsigned char out[2 * 34];
    float read[64], copied[64];
    (void)state;
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 64; i++) codes[r][i] = (int8_t)((i * 37 + r * 11) % 240 - 120);
    codes[0][40] = -128;
    pj_packed_weights w = {.packing = PJ_PACKED_BYTES,
                           .rows = 2,
                           .cols = 64,
                           .group = 64,
                           .bits = 8,
                           .codes = (const unsigned char *)codes,
                           .scales = (const unsigned char *)scales,
                           .zeros = (const unsigned char *)zeros,
                           .scale_type = PJ_F32,
                           .factor = 1};
    pj_row_source s = pj_rows_packed(&w);
    assert_int_equal(s.type, PJ_Q8_0);
    for (size_t r = 0; r < 2; r++) {
        s.read(&s, r, read);
        s.copy(&s, r, out);
        pj_blocks_dequantise(PJ_Q8_0, out, copied, 64);
        for (int i = 0; i < 64; i++) {
            float want = scales[r] * (float)(codes[r][i] - zeros[r]), most = scales[r] * 0.55f;
            bool exact = r == 0 && i < 32;
            assert_that(read[i], ==, want);
            assert_that(fabsf(copied[i] - want), <=, exact ? 0 : most);
        }
    }
    codes[1][3] = 127; /* the zero is 5: 122, so that all of the row fit */
    for (int i = 0; i < 64; i++)
        if (codes[1][i] < -122) codes[1][i] = -122;
    s.copy(&s, 1, out);
    pj_blocks_dequantise(PJ_Q8_0, out, copied, 64);
    for (int i = 0; i < 64; i++) assert_that(copied[i], ==, 0.125f * (float)(codes[1][i] - 5));
}

/* Codes of three bits: 32 of them in three words without gaps, or ten in each word. */
static void packed_in_three_bits(void **state)
{
    uint32_t gaps[4] = {0}, tight[3] = {0}, zeros[1] = {3}, halves[3];
    float read[32], copied[32], scale = 0.5f;
    unsigned char out[20];
    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        uint64_t code = (i * 5 + i / 8) % 8;
        gaps[i / 10] |= (uint32_t)(code << (i % 10 * 3));
        tight[i * 3 / 32] |= (uint32_t)(code << (i * 3 % 32));
        if (i * 3 % 32 > 29) tight[i * 3 / 32 + 1] |= (uint32_t)(code >> (32 - i * 3 % 32));
    }
    pj_packed_weights w = {.packing = PJ_PACKED_ROWS,
                           .rows = 1,
                           .cols = 32,
                           .group = 32,
                           .bits = 3,
                           .codes = (const unsigned char *)gaps,
                           .scales = (const unsigned char *)&scale,
                           .zeros = (const unsigned char *)zeros,
                           .scale_type = PJ_F32,
                           .factor = 1};
    for (int kind = 0; kind < 2; kind++) {
        pj_row_source s = pj_rows_packed(&w);
        assert_int_equal(s.type, kind ? PJ_Q4_0 : PJ_Q4_1);
        s.read(&s, 0, read);
        s.copy(&s, 0, out);
        pj_blocks_dequantise(s.type, out, copied, 32);
        for (int i = 0; i < 32; i++) {
            float want = 0.5f * (float)((i * 5 + i / 8) % 8 - (kind ? 4 : 3));
            assert_that(read[i], ==, want);
            assert_that(copied[i], ==, want);
        }
        w.packing = PJ_PACKED_GPTQ, w.zeros = NULL;
        memcpy(halves, tight, sizeof halves);
        w.codes = (const unsigned char *)halves;
    }
}

/* Indices of levels, scales of four values that are indices too. */
static void packed_levels(void **state)
{
    unsigned char codes[8], indices[4] = {3, 0, 255, 9};
    const float outer[2] = {2, 4};
    float row[8];
    static pj_packed_levels v = {.block = 4, .scale_block = 2, .offset = 0.5f};
    (void)state;
    for (int i = 0; i < 16; i++) v.level[i] = (float)(i * i - 30);
    for (int i = 0; i < 256; i++) v.scale_level[i] = (float)i / 4;
    v.codes = indices, v.scale_scales = outer;
    for (int i = 0; i < 8; i++) codes[i] = (unsigned char)(2 * i % 16 << 4 | (2 * i + 1) % 16);
    pj_packed_weights w = {.packing = PJ_PACKED_LEVELS,
                           .rows = 2,
                           .cols = 8,
                           .group = 8,
                           .codes = codes,
                           .levels = &v};
    pj_row_source s = pj_rows_packed(&w);
    assert_int_equal(s.type, PJ_Q8_0);
    assert_null(s.copy);
    for (size_t r = 0; r < 2; r++) {
        s.read(&s, r, row);
        for (size_t i = 0; i < 8; i++) {
            size_t at = 8 * r + i;
            float scale = (float)indices[at / 4] / 4 * outer[at / 8] + 0.5f;
            assert_that(row[i], ==, (float)((int)(at * at) - 30) * scale);
        }
    }
}

/* Two matrices of 8-bit floats one below the other, and of blocks, with factors of their own. */
static void stacked(void **state)
{
    static const uint8_t bytes[4][2] = {{0x38, 0x40}, {0x38, 0x40}, {0x38, 0x40}, {0x38, 0x40}};
    static const float scales[4] = {1, 2, 3, 4}, factors[2] = {3, 5};
    static float plain[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    float row[2];
    (void)state;
    pj_row_source one = pj_rows_e4m3(bytes, scales, 2, 1, 2, 1);
    pj_row_source each = pj_rows_e4m3_stack(&one, 2, 2), same = pj_rows_e4m3_stack(&one, 2, 0);
    pj_matrix stored = {plain, PJ_F32, 4, 2, sizeof plain[0]};
    pj_row_source scaled = pj_rows_scaled(&stored, factors, 2);
    for (size_t r = 0; r < 4; r++) {
        each.read(&each, r, row);
        assert_that(row[1], ==, 2 * scales[r]);
        same.read(&same, r, row);
        assert_that(row[0], ==, scales[r % 2]);
        scaled.read(&scaled, r, row);
        assert_that(row[1], ==, plain[r][1] * factors[r / 2]);
    }
}

/* Columns in any order of groups have no blocks: they are read alone. */
static void packed_in_another_order(void **state)
{
    uint32_t codes[4] = {0x76543210, 0xfedcba98, 0x76543210, 0xfedcba98}, groups[32];
    float scales[2] = {1, 2}, row[32];
    (void)state;
    for (uint32_t i = 0; i < 32; i++) groups[i] = i % 2;
    pj_packed_weights w = {.packing = PJ_PACKED_GPTQ,
                           .rows = 1,
                           .cols = 32,
                           .group = 16,
                           .bits = 4,
                           .codes = (const unsigned char *)codes,
                           .scales = (const unsigned char *)scales,
                           .group_of = (const unsigned char *)groups,
                           .scale_type = PJ_F32,
                           .factor = 1};
    pj_row_source s = pj_rows_packed(&w);
    assert_int_equal(s.type, PJ_Q8_0);
    assert_null(s.copy);
    s.read(&s, 0, row);
    for (int i = 0; i < 32; i++) assert_that(row[i], ==, scales[i % 2] * (float)(i % 16 - 8));
}

/* Two neighbours per byte, scales of 16 values in 8 bits, one factor. */
static void packed_floats(void **state)
{
    static const float levels[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    unsigned char codes[16], scales[2] = {0x38, 0x41}; /* 1 and 2.25 */
    float row[32];
    (void)state;
    for (int i = 0; i < 16; i++) codes[i] = (unsigned char)(i | (15 - i) << 4);
    pj_packed_weights w = {.packing = PJ_PACKED_FP4,
                           .rows = 1,
                           .cols = 32,
                           .group = 16,
                           .codes = codes,
                           .scales = scales,
                           .factor = 0.5f};
    pj_row_source s = pj_rows_packed(&w);
    s.read(&s, 0, row);
    for (int i = 0; i < 32; i++) {
        int code = i % 2 ? 15 - i / 2 : i / 2;
        float want = (code < 8 ? 1 : -1) * levels[code % 8] * (i < 16 ? 0.5f : 1.125f);
        assert_that(row[i], ==, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered),
        cmocka_unit_test(packed),
        cmocka_unit_test(packed_bytes),
        cmocka_unit_test(packed_in_three_bits),
        cmocka_unit_test(packed_levels),
        cmocka_unit_test(stacked),
        cmocka_unit_test(packed_in_another_order),
        cmocka_unit_test(packed_floats),
        cmocka_unit_test(transposed),
        cmocka_unit_test(mxfp4),
        cmocka_unit_test(two_bits),
        cmocka_unit_test(eight_bit_floats),
        cmocka_unit_test(scaled_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
