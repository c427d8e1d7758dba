/* Converts rows to types that kernels read. */
#include "engine/model/row_source.h"

#include "engine/kernels/blocks.h"

#include <string.h>

/* ---- transposed --------------------------------------------------------------------------- */

static void read_transposed(const pj_row_source *s, size_t row, float *values)
{
    size_t bytes = pj_dtype_get(s->type)->block_bytes;
    const unsigned char *at = s->data + (s->first + row * s->step) * bytes;
    for (size_t i = 0; i < s->cols; i++)
        pj_blocks_dequantise(s->type, at + i * s->stride, values + i, 1);
}

pj_row_source pj_rows_transposed(const void *data, pj_dtype type, size_t cols, size_t row_bytes,
                                 size_t first, size_t step)
{
    return (pj_row_source){.type = type,
                           .cols = cols,
                           .read = read_transposed,
                           .data = data,
                           .first = first,
                           .step = step,
                           .stride = row_bytes};
}

/* ---- in another order --------------------------------------------------------------------- */

static void copy_ordered(const pj_row_source *s, size_t row, void *out)
{
    memcpy(out, s->data + s->order[row] * s->stride, s->stride);
}

static void read_ordered(const pj_row_source *s, size_t row, float *values)
{
    pj_blocks_dequantise(s->type, s->data + s->order[row] * s->stride, values, s->cols);
}

pj_row_source pj_rows_ordered(const pj_matrix *stored, const uint32_t *order)
{
    return (pj_row_source){.type = stored->type,
                           .cols = stored->cols,
                           .read = read_ordered,
                           .copy = copy_ordered,
                           .data = stored->data,
                           .stride = stored->row_bytes,
                           .order = order};
}

/* ---- MXFP4 -------------------------------------------------------------------------------- */

enum { BLOCK = 32, NIBBLE_BYTES = 16, BLOCK_BYTES = 17 };

/* Reorders nibbles from neighbouring pairs to the half-block order of GGUF. */
static void repack(const unsigned char *pairs, unsigned char exponent, unsigned char *block)
{
    block[0] = exponent;
    for (int i = 0; i < NIBBLE_BYTES; i++) {
        int low = pairs[i / 2] >> (i % 2 * 4) & 15, high = pairs[8 + i / 2] >> (i % 2 * 4) & 15;
        block[1 + i] = (unsigned char)(low | high << 4);
    }
}

static void copy_mxfp4(const pj_row_source *s, size_t row, void *out)
{
    size_t at = s->first + row * s->step;
    const unsigned char *pairs = s->data + at * s->stride,
                        *scales = s->scales + at * s->scale_stride;
    unsigned char *block = out;
    for (size_t b = 0; b < s->cols / BLOCK; b++, block += BLOCK_BYTES)
        repack(pairs + b * NIBBLE_BYTES, scales[b], block);
}

static void read_mxfp4(const pj_row_source *s, size_t row, float *values)
{
    size_t at = s->first + row * s->step;
    const unsigned char *pairs = s->data + at * s->stride,
                        *scales = s->scales + at * s->scale_stride;
    for (size_t b = 0; b < s->cols / BLOCK; b++) {
        unsigned char block[BLOCK_BYTES];
        repack(pairs + b * NIBBLE_BYTES, scales[b], block);
        pj_blocks_dequantise(PJ_MXFP4, block, values + b * BLOCK, BLOCK);
    }
}

pj_row_source pj_rows_mxfp4(const void *blocks, const void *scales, size_t cols, size_t first,
                            size_t step)
{
    return (pj_row_source){.type = PJ_MXFP4,
                           .cols = cols,
                           .read = read_mxfp4,
                           .copy = copy_mxfp4,
                           .data = blocks,
                           .scales = scales,
                           .first = first,
                           .step = step,
                           .stride = cols / BLOCK * NIBBLE_BYTES,
                           .scale_stride = cols / BLOCK};
}

/* ---- two bits ------------------------------------------------------------------------------ */

enum { PAIR_VALUES = 64, PAIR_BYTES = 18, Q4_0_BYTES = 18 };

/* Half a block: d, and codes + 7 in the order of Q4_0, whose second 16 values are the high nibbles.
 */
static void repack_pairs(const unsigned char *block, size_t half, unsigned char *out)
{
    const unsigned char *codes = block + 2 + 8 * half;
    memcpy(out, block, 2);
    for (size_t i = 0; i < 16; i++) {
        unsigned low = codes[i / 4] >> (i % 4 * 2) & 3, high = codes[4 + i / 4] >> (i % 4 * 2) & 3;
        out[2 + i] = (unsigned char)((low + 7) | (high + 7) << 4);
    }
}

static void copy_q2_0(const pj_row_source *s, size_t row, void *out)
{
    const unsigned char *blocks = s->data + row * s->stride;
    unsigned char *to = out;
    for (size_t i = 0; i < 2 * (s->cols / PAIR_VALUES); i++)
        repack_pairs(blocks + i / 2 * PAIR_BYTES, i % 2, to + i * Q4_0_BYTES);
}

static void read_q2_0(const pj_row_source *s, size_t row, float *values)
{
    const unsigned char *blocks = s->data + row * s->stride;
    for (size_t i = 0; i < 2 * (s->cols / PAIR_VALUES); i++) {
        unsigned char block[Q4_0_BYTES];
        repack_pairs(blocks + i / 2 * PAIR_BYTES, i % 2, block);
        pj_blocks_dequantise(PJ_Q4_0, block, values + i * BLOCK, BLOCK);
    }
}

pj_row_source pj_rows_q2_0(const void *blocks, size_t cols)
{
    return (pj_row_source){.type = PJ_Q4_0,
                           .cols = cols,
                           .read = read_q2_0,
                           .copy = copy_q2_0,
                           .data = blocks,
                           .stride = cols / PAIR_VALUES * PAIR_BYTES};
}

/* ---- 8-bit floats ------------------------------------------------------------------------- */

/* Sign, four exponent bits, three mantissa bits; no infinities, all ones is NaN. */
float pj_float_of_e4m3(uint8_t byte)
{
    uint32_t sign = (uint32_t)(byte & 0x80) << 24, exponent = byte >> 3 & 15, mantissa = byte & 7;
    if ((byte & 0x7f) == 0x7f) return pj_float_of_bits(sign | 0x7fc00000);
    if (exponent == 0) return pj_float_of_bits(sign | pj_bits_of_float((float)mantissa * 0x1p-9f));
    return pj_float_of_bits(sign | (exponent + 120) << 23 | mantissa << 20);
}

static void read_e4m3(const pj_row_source *s, size_t row, float *values)
{
    const unsigned char *at = s->data + row * s->cols;
    size_t matrix = row / s->matrix_rows, own = row % s->matrix_rows;
    const unsigned char *scales =
        s->scales + matrix * s->matrix_stride + own / s->block_rows * s->scale_stride;
    for (size_t i = 0; i < s->cols; i++) {
        float scale;
        memcpy(&scale, scales + i / s->block_cols * sizeof scale, sizeof scale);
        values[i] = pj_float_of_e4m3(at[i]) * scale;
    }
}

pj_row_source pj_rows_e4m3(const void *data, const float *scales, size_t cols, size_t block_rows,
                           size_t block_cols, size_t scale_cols)
{
    return (pj_row_source){.type = PJ_BF16,
                           .cols = cols,
                           .read = read_e4m3,
                           .data = data,
                           .scales = (const unsigned char *)scales,
                           .scale_stride = scale_cols * sizeof *scales,
                           .block_rows = block_rows,
                           .block_cols = block_cols,
                           .matrix_rows = SIZE_MAX};
}

pj_row_source pj_rows_e4m3_stack(const pj_row_source *one, size_t rows, size_t scales)
{
    pj_row_source stack = *one;
    stack.matrix_rows = rows;
    stack.matrix_stride = scales * sizeof(float);
    return stack;
}

/* ---- times factors ------------------------------------------------------------------------ */

static void read_scaled(const pj_row_source *s, size_t row, float *values)
{
    float factor;
    memcpy(&factor, s->scales + row / s->matrix_rows * sizeof factor, sizeof factor);
    pj_blocks_dequantise(s->stored, s->data + row * s->stride, values, s->cols);
    for (size_t i = 0; i < s->cols; i++) values[i] *= factor;
}

pj_row_source pj_rows_scaled(const pj_matrix *stored, const float *factors, size_t rows)
{
    bool plain = pj_dtype_get(stored->type)->block_values == 1;
    return (pj_row_source){.type = plain ? stored->type : PJ_Q8_0,
                           .stored = stored->type,
                           .cols = stored->cols,
                           .read = read_scaled,
                           .data = stored->data,
                           .scales = (const unsigned char *)factors,
                           .stride = stored->row_bytes,
                           .matrix_rows = rows};
}
