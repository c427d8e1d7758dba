/*
 * The block layouts of stored weights, field by field ("nibbles": byte j holds value j in its low
 * four bits and value j + 16 in its high four):
 *   Q8_0    f16 d, 32 i8:                     value = d q
 *   Q4_0    f16 d, nibbles:                   value = d (q - 8)
 *   Q4_1    f16 d, f16 m, nibbles:            value = d q + m
 *   Q5_0    f16 d, u32 of fifth bits, nibbles:          value = d (q - 16)
 *   Q5_1    f16 d, f16 m, u32 of fifth bits, nibbles:   value = d q + m
 *   IQ4_NL  f16 d, nibbles:                   value = d level[q], sixteen uneven levels
 *   MXFP4   u8 e, nibbles:                    value = 2^(e - 128) level[q], twice a 4-bit float
 *   Q4_K    f16 d, f16 dmin, 12 scale bytes, 128 bytes of nibbles
 *   Q5_K    the same with 32 bytes of fifth bits before the nibbles
 *   Q6_K    128 bytes of low nibbles, 64 of high pairs, 16 i8 scales, f16 d
 *   Q2_K    16 bytes of scale and minimum, 64 bytes of pairs, f16 d, f16 dmin
 *   Q3_K    32 bytes of third bits, 64 bytes of pairs, 12 scale bytes, f16 d
 *   IQ4_XS  f16 d, u16 and 4 bytes of scales, 8 times 16 bytes of nibbles
 * Those with codebooks, and those of two bits or fewer, are in codebook.h.
 */
#include "engine/kernels/blocks.h"

#include "engine/kernels/codebook.h"
#include "engine/kernels/half.h"

#include <float.h>
#include <math.h>

static void q8_0_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int i = 0; i < 32; i++) y[i] = d * (float)(int8_t)block[2 + i];
}

static void q4_0_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((block[2 + i] & 15) - 8);
        y[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

/* Q4_K (high == NULL) and Q5_K: eight sub-blocks of 32 with a scale and a minimum each. */
static void k_block(const uint8_t *block, const uint8_t *high, const uint8_t *nibbles, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    float dmin = pj_float_of_f16(pj_load_u16(block + 2));
    for (int j = 0; j < 8; j++) {
        uint8_t scale, minimum;
        pj_blocks_k_scale(block + 4, j, &scale, &minimum);
        for (int i = 0; i < 32; i++) {
            int q = nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
            if (high) q |= (high[i] >> j & 1) << 4;
            y[j * 32 + i] = d * scale * (float)q - dmin * minimum;
        }
    }
}

/* Code (0..63) of value i (0..255) of a Q6_K block. */
static int q6_k_code(const uint8_t *block, int i)
{
    int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const uint8_t *low = block + half * 64, *high = block + 128 + half * 32;
    int nibble = low[l + quarter % 2 * 32] >> (quarter / 2 * 4) & 15;
    return nibble | (high[l] >> (quarter * 2) & 3) << 4;
}

static void q6_k_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block + 208));
    for (int i = 0; i < 256; i++)
        y[i] = d * (float)(int8_t)block[192 + i / 16] * (float)(q6_k_code(block, i) - 32);
}

/* d q + m, with the fifth bits of q for types that have them. */
static void even_block(float d, float m, const uint8_t *nibbles, uint32_t fifth, float *y)
{
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((nibbles[i] & 15) | (fifth >> i & 1) << 4) + m;
        y[i + 16] = d * (float)(nibbles[i] >> 4 | (fifth >> (i + 16) & 1) << 4) + m;
    }
}

static void q5_0_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    even_block(d, -16 * d, block + 6, pj_blocks_u32(block + 2), y);
}

/* Q4_1, and Q5_1 with its fifth bits. */
static void offset_block(const uint8_t *block, bool five, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block)), m = pj_float_of_f16(pj_load_u16(block + 2));
    even_block(d, m, block + (five ? 8 : 4), five ? pj_blocks_u32(block + 4) : 0, y);
}

static void level_block(float d, const int8_t levels[16], const uint8_t *nibbles, float *y)
{
    for (int i = 0; i < 16; i++) {
        y[i] = d * levels[nibbles[i] & 15];
        y[i + 16] = d * levels[nibbles[i] >> 4];
    }
}

static void iq4_xs_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int j = 0; j < 8; j++)
        level_block(d * (float)pj_blocks_iq4_xs_scale(block, j), pj_iq4_levels, block + 8 + 16 * j,
                    y + 32 * j);
}

static void q2_k_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block + 80));
    float dmin = pj_float_of_f16(pj_load_u16(block + 82));
    for (int i = 0; i < 256; i++) {
        int q = block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        uint8_t both = block[i / 16];
        y[i] = d * (float)((both & 15) * q) - dmin * (float)(both >> 4);
    }
}

static void q3_k_block(const uint8_t *block, float *y)
{
    float d = pj_float_of_f16(pj_load_u16(block + 108));
    for (int i = 0; i < 256; i++) {
        int q = block[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        if (!(block[i % 32] >> (i / 32) & 1)) q -= 4;
        y[i] = d * (float)(pj_blocks_q3_k_scale(block + 96, i / 16) * q);
    }
}

void pj_blocks_dequantise(pj_dtype type, const void *row, float *y, size_t n)
{
    const uint8_t *bytes = row;
    const pj_dtype_info *info = pj_dtype_get(type);
    if (type == PJ_F32) {
        memcpy(y, row, n * sizeof *y);
        return;
    }
    for (size_t i = 0; i < n; i += info->block_values, bytes += info->block_bytes) switch (type) {
        case PJ_F16: y[i] = pj_float_of_f16(pj_load_u16(bytes)); break;
        case PJ_BF16: y[i] = pj_float_of_bf16(pj_load_u16(bytes)); break;
        case PJ_Q8_0: q8_0_block(bytes, y + i); break;
        case PJ_Q4_0: q4_0_block(bytes, y + i); break;
        case PJ_Q4_K: k_block(bytes, NULL, bytes + 16, y + i); break;
        case PJ_Q5_K: k_block(bytes, bytes + 16, bytes + 48, y + i); break;
        case PJ_Q6_K: q6_k_block(bytes, y + i); break;
        case PJ_Q4_1: offset_block(bytes, false, y + i); break;
        case PJ_Q5_0: q5_0_block(bytes, y + i); break;
        case PJ_Q5_1: offset_block(bytes, true, y + i); break;
        case PJ_IQ4_NL:
            level_block(pj_float_of_f16(pj_load_u16(bytes)), pj_iq4_levels, bytes + 2, y + i);
            break;
        case PJ_MXFP4:
            level_block(pj_blocks_mxfp4_scale(bytes[0]), pj_mxfp4_levels, bytes + 1, y + i);
            break;
        case PJ_Q2_K: q2_k_block(bytes, y + i); break;
        case PJ_Q3_K: q3_k_block(bytes, y + i); break;
        case PJ_IQ4_XS: iq4_xs_block(bytes, y + i); break;
        default: pj_codebook_block(type, bytes, y + i); break;
        }
}

/* ---- quantising ------------------------------------------------------------------------- */

/* What a scale is multiplied with: 0 where it is not a number, or so small that its half is 0. */
static float inverse_of(float d)
{
    return fabsf(d) >= 0x1p-64f && fabsf(d) <= FLT_MAX ? 1 / d : 0;
}

/* 0; NaN if one of 32 values is not finite. Codes have no NaN: the scale must carry it. */
static float nothing_of(const float *x)
{
    float nothing = 0;
    for (int i = 0; i < 32; i++) nothing += 0 * x[i];
    return nothing;
}

static const float no_values[32];

/* Divides by the scale before rounding it to f16, as the formats' own tools do. */
static void to_q8_0(const float *x, uint8_t *block)
{
    float largest = 0;
    for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
    float d = largest / 127 + nothing_of(x), inverse = inverse_of(d);
    uint16_t half = pj_f16_of_float(d);
    if (isnan(d)) x = no_values;
    memcpy(block, &half, 2);
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

static int q4_code(float x, float inverse)
{
    int code = (int)(x * inverse + 8.5f);
    return code < 0 ? 0 : code > 15 ? 15 : code;
}

static void to_q4_0(const float *x, uint8_t *block)
{
    float largest = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    float d = largest / -8 + nothing_of(x), inverse = inverse_of(d);
    uint16_t half = pj_f16_of_float(d);
    if (isnan(d)) x = no_values;
    memcpy(block, &half, 2);
    for (int i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)(q4_code(x[i], inverse) | q4_code(x[i + 16], inverse) << 4);
}

void pj_blocks_quantise(pj_dtype type, const float *x, void *row, size_t n)
{
    uint8_t *bytes = row;
    const pj_dtype_info *info = pj_dtype_get(type);
    for (size_t i = 0; i < n; i += info->block_values, bytes += info->block_bytes) {
        uint16_t half;
        switch (type) {
        case PJ_F32: memcpy(bytes, x + i, 4); break;
        case PJ_F16: half = pj_f16_of_float(x[i]), memcpy(bytes, &half, 2); break;
        case PJ_BF16: half = pj_bf16_of_float(x[i]), memcpy(bytes, &half, 2); break;
        case PJ_Q8_0: to_q8_0(x + i, bytes); break;
        case PJ_Q4_0: to_q4_0(x + i, bytes); break;
        default: return; /* the other types are only read */
        }
    }
}
