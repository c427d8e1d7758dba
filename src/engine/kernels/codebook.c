/* Decodes the types of codebook.h, eight values at a time in the bytes of a word. */
#include "engine/kernels/codebook.h"

#include "engine/kernels/blocks.h"

#include <pthread.h>
#include <string.h>

static const uint64_t ones = 0x0101010101010101;

/* ---- words of eight bytes ------------------------------------------------------------------- */

/* Eight pairs of bits, one per byte. */
static uint64_t spread_pairs(uint16_t pairs)
{
    uint64_t x = pairs;
    x = (x | x << 24) & 0x000000ff000000ff;
    x = (x | x << 12) & 0x000f000f000f000f;
    return (x | x << 6) & 0x0303030303030303;
}

/* Four nibbles, one per byte. */
static uint32_t spread_nibbles(uint32_t x)
{
    x = (x | x << 8) & 0x00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f;
}

/* 1 in each byte whose bit is set. */
static uint64_t spread_bits(unsigned bits)
{
    uint64_t x = bits * ones & 0x8040201008040201;
    return (((x & 0x7f * ones) + 0x7f * ones) | x) >> 7 & ones;
}

/* Negates the bytes, none of which is 0, whose bit is set. */
static uint64_t negate(uint64_t x, unsigned bits)
{
    uint64_t flags = spread_bits(bits);
    return (x ^ flags * 0xff) + flags;
}

static unsigned eighth_sign(unsigned seven)
{
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

static void store(int8_t *to, uint64_t word)
{
    memcpy(to, &word, sizeof word);
}

/* Levels of two bits: 8, 25, 43. */
static uint64_t levels_of_two(uint16_t entry)
{
    uint64_t q = spread_pairs(entry);
    return 8 * ones + q * 17 + (q >> 1 & ones);
}

/* Levels of three bits: 4, 12, ..., 52, 62; and 1, 3, ..., 15. */
static uint32_t levels_of_three(uint16_t entry)
{
    const uint32_t four = 0x01010101, q = spread_nibbles(entry);
    return 4 * four + q * 8 + ((q + four) >> 3 & four) * 2;
}

static uint32_t odd_levels(uint16_t entry)
{
    return spread_nibbles(entry) * 2 + 0x01010101;
}

/* Levels -1, 0, 1 and an eighth more or less, in eighths: `q` is 8 more. */
static uint64_t eighths(uint64_t q, bool less)
{
    uint64_t high = 0x80 * ones; /* keeps borrows within bytes */
    return ((q | high) - (less ? 9 : 7) * ones) ^ high;
}

static pj_book_levels levels;

static void fill_levels(void)
{
    for (int i = 0; i < 256; i++) levels.iq2_xxs[i] = levels_of_two(pj_book_iq2_xxs[i]);
    for (int i = 0; i < 512; i++) levels.iq2_xs[i] = levels_of_two(pj_book_iq2_xs[i]);
    for (int i = 0; i < 1024; i++) levels.iq2_s[i] = levels_of_two(pj_book_iq2_s[i]);
    for (int i = 0; i < 2048; i++) levels.iq1[i] = spread_pairs(pj_book_iq1[i]) * 8;
    for (int i = 0; i < 256; i++) levels.iq3_xxs[i] = levels_of_three(pj_book_iq3_xxs[i]);
    for (int i = 0; i < 512; i++) levels.iq3_s[i] = odd_levels(pj_book_iq3_s[i]);
    for (unsigned i = 0; i < 128; i++) levels.signs[i] = negate(ones, eighth_sign(i));
}

const pj_book_levels *pj_codebook_levels(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_levels);
    return &levels;
}

/* ---- by type -------------------------------------------------------------------------------- */

static void decode_iq2_xxs(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    const uint8_t *at = block + 2;
    for (int j = 0; j < 8; j++, at += 8) {
        uint32_t rest = pj_blocks_u32(at + 4);
        scales[2 * j] = scales[2 * j + 1] = d * (0.5f + (float)(rest >> 28)) * 0.25f;
        for (int i = 0; i < 4; i++)
            store(values + 32 * j + 8 * i,
                  negate(levels.iq2_xxs[at[i]], eighth_sign(rest >> 7 * i & 127)));
    }
}

static void decode_iq2_xs(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int j = 0; j < 16; j++)
        scales[j] = d * (0.5f + (float)(block[66 + j / 2] >> (j % 2 * 4) & 15)) * 0.25f;
    for (int i = 0; i < 32; i++) {
        uint16_t both = pj_load_u16(block + 2 + 2 * i);
        store(values + 8 * i, negate(levels.iq2_xs[both & 511], eighth_sign(both >> 9)));
    }
}

static void decode_iq2_s(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int j = 0; j < 16; j++)
        scales[j] = d * (0.5f + (float)(block[74 + j / 2] >> (j % 2 * 4) & 15)) * 0.25f;
    for (int i = 0; i < 32; i++) {
        unsigned high = block[66 + i / 4] >> (i % 4 * 2) & 3;
        store(values + 8 * i, negate(levels.iq2_s[block[2 + i] | high << 8], block[34 + i]));
    }
}

static void decode_iq3_xxs(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    const uint8_t *at = block + 2, *rests = block + 66;
    for (int j = 0; j < 8; j++, at += 8) {
        uint32_t rest = pj_blocks_u32(rests + 4 * j);
        scales[2 * j] = scales[2 * j + 1] = d * (0.5f + (float)(rest >> 28)) * 0.5f;
        for (int i = 0; i < 4; i++) {
            uint64_t word = levels.iq3_xxs[at[2 * i]] | (uint64_t)levels.iq3_xxs[at[2 * i + 1]]
                                                            << 32;
            store(values + 32 * j + 8 * i, negate(word, eighth_sign(rest >> 7 * i & 127)));
        }
    }
}

static void decode_iq3_s(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    const uint8_t *at = block + 2, *ninth = block + 66, *signs = block + 74;
    for (int j = 0; j < 16; j++)
        scales[j] = d * (float)(1 + 2 * (block[106 + j / 4] >> (j / 2 % 2 * 4) & 15));
    for (int i = 0; i < 32; i++) {
        unsigned high = ninth[i / 4] >> (i % 4 * 2);
        uint64_t first = levels.iq3_s[at[2 * i] | (high & 1) << 8];
        uint64_t second = levels.iq3_s[at[2 * i + 1] | (high >> 1 & 1) << 8];
        store(values + 8 * i, negate(first | second << 32, signs[i]));
    }
}

static void decode_iq1_s(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int j = 0; j < 8; j++) {
        unsigned rest = pj_load_u16(block + 34 + 2 * j);
        scales[2 * j] = scales[2 * j + 1] = d * (float)(2 * (rest >> 12 & 7) + 1) * 0.125f;
        for (int i = 0; i < 4; i++) {
            unsigned entry = block[2 + 4 * j + i] | (rest >> 3 * i & 7) << 8;
            store(values + 32 * j + 8 * i, eighths(levels.iq1[entry], rest >> 15));
        }
    }
}

static void decode_iq1_m(const uint8_t *block, int8_t *values, float *scales)
{
    unsigned bits = 0;
    for (int j = 0; j < 4; j++) bits |= (unsigned)block[48 + 2 * j + 1] >> 4 << 4 * j;
    float d = pj_float_of_f16((uint16_t)bits);
    for (int j = 0; j < 16; j++) {
        unsigned scale = pj_load_u16(block + 48 + j / 4 * 2) >> (j % 4 * 3) & 7;
        scales[j] = d * (float)(2 * scale + 1) * 0.125f;
    }
    for (int i = 0; i < 32; i++) {
        unsigned rest = block[32 + i / 2] >> (i % 2 * 4);
        store(values + 8 * i, eighths(levels.iq1[block[i] | (rest & 7) << 8], rest & 8));
    }
}

/* Digit `place` of a fraction in base 3, less 1. */
static int8_t digit(uint8_t fraction, int place)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    return (int8_t)(((unsigned)(uint8_t)(fraction * powers[place]) * 3 >> 8) - 1);
}

static void decode_tq1_0(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block + 52));
    for (int j = 0; j < 16; j++) scales[j] = d;
    for (int place = 0; place < 5; place++) {
        for (int i = 0; i < 32; i++) values[place * 32 + i] = digit(block[i], place);
        for (int i = 0; i < 16; i++) values[160 + place * 16 + i] = digit(block[32 + i], place);
        for (int i = 0; place < 4 && i < 4; i++)
            values[240 + place * 4 + i] = digit(block[48 + i], place);
    }
}

static void decode_tq2_0(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block + 64));
    for (int j = 0; j < 16; j++) scales[j] = d;
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            values[32 * j + i] = (int8_t)((block[j / 4 * 32 + i] >> (j % 4 * 2) & 3) - 1);
}

float pj_codebook_nvfp4_scale(uint8_t byte)
{
    unsigned exponent = byte >> 3 & 15, mantissa = byte & 7;
    if ((byte & 127) == 127) return 0;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return pj_float_of_bits((exponent + 119) << 23 | mantissa << 20);
}

static void decode_nvfp4(const uint8_t *block, int8_t *values, float *scales)
{
    for (int j = 0; j < 4; j++) {
        scales[j] = pj_codebook_nvfp4_scale(block[j]);
        for (int i = 0; i < 8; i++) {
            uint8_t both = block[4 + 8 * j + i];
            values[16 * j + i] = pj_mxfp4_levels[both & 15];
            values[16 * j + i + 8] = pj_mxfp4_levels[both >> 4];
        }
    }
}

static void decode_q1_0(const uint8_t *block, int8_t *values, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int j = 0; j < 8; j++) scales[j] = d;
    for (int i = 0; i < 16; i++) store(values + 8 * i, negate(ones, block[2 + i] ^ 0xffu));
}

void pj_codebook_decode(pj_dtype type, const uint8_t *block, int8_t values[PJ_BOOK_VALUES],
                        float scales[PJ_BOOK_SCALES])
{
    pj_codebook_levels(); /* fills them */
    switch (type) {
    case PJ_IQ1_S: decode_iq1_s(block, values, scales); break;
    case PJ_IQ1_M: decode_iq1_m(block, values, scales); break;
    case PJ_IQ2_XXS: decode_iq2_xxs(block, values, scales); break;
    case PJ_IQ2_XS: decode_iq2_xs(block, values, scales); break;
    case PJ_IQ2_S: decode_iq2_s(block, values, scales); break;
    case PJ_IQ3_XXS: decode_iq3_xxs(block, values, scales); break;
    case PJ_IQ3_S: decode_iq3_s(block, values, scales); break;
    case PJ_TQ1_0: decode_tq1_0(block, values, scales); break;
    case PJ_TQ2_0: decode_tq2_0(block, values, scales); break;
    case PJ_NVFP4: decode_nvfp4(block, values, scales); break;
    case PJ_Q1_0: decode_q1_0(block, values, scales); break;
    default: break;
    }
}

void pj_codebook_block(pj_dtype type, const uint8_t *block, float *y)
{
    int8_t values[PJ_BOOK_VALUES];
    float scales[PJ_BOOK_SCALES];
    size_t count = pj_dtype_get(type)->block_values;
    pj_codebook_decode(type, block, values, scales);
    for (size_t i = 0; i < count; i++) y[i] = scales[i / 16] * values[i];
}
