/* Weights repacked into rows for the kernels: transposed, MXFP4 as gpt-oss publishes it, and
 * 8-bit floats, each against its definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "engine/kernels/blocks.h"
#include "engine/model/row_source.h"

#include <math.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposed),
        cmocka_unit_test(mxfp4),
        cmocka_unit_test(eight_bit_floats),
        cmocka_unit_test(scaled_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
