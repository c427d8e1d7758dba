/* Few tokens with weights of four or five bits on AVX2: eight rows, one per lane (lanes.h). Blocks
 * of 18 bytes arrive from memory faster than one row's products can be summed, so two rows share a
 * vector of products, and all eight share the last steps, the conversion and the scales; tokens
 * share the codes. Products are added as 16-bit words while they fit: sixteen of four bits (15 x
 * 127 x 16), eight of five bits (31 x 127 x 8), two of the signed bytes of IQ4. Included only by
 * codes_avx2.c. */
#ifndef PJ_KERNELS_LANES_AVX2_H
#define PJ_KERNELS_LANES_AVX2_H

#include "engine/kernels/lane_blocks.h"
#include "engine/kernels/tile.h"
#include "engine/kernels/vector.h"

enum { LANE_ROWS = 8, LANE_TOKENS = 4 };

INLINE bool lane_signed(pj_dtype type)
{
    return lane_layout_of(type).offset == 128;
}

/* Sixteen bytes each of two rows. */
INLINE __m256i lane_two(const char *a, const char *b)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a)),
        _mm_loadu_si128((const __m128i *)(const void *)b), 1);
}

/* The four bytes of fifth bits of two rows, everywhere in their halves. */
INLINE __m256i lane_fifth(const char *a, const char *b)
{
    int of_a, of_b;
    memcpy(&of_a, a, 4), memcpy(&of_b, b, 4);
    return _mm256_blend_epi32(_mm256_set1_epi32(of_a), _mm256_set1_epi32(of_b), 0xf0);
}

/* Adds 16 to the nibbles whose fifth bit is set; `byte`: the byte that holds the bits of a row's
 * first eight. */
INLINE __m256i lane_add_fifth(__m256i nibbles, __m256i fifth, long long byte)
{
    const long long ones = 0x0101010101010101;
    __m256i offset =
        _mm256_setr_epi64x(ones * byte, ones * (byte + 1), ones * byte, ones * (byte + 1));
    __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(fifth, offset), bit);
    __m256i is_set = _mm256_cmpeq_epi8(spread, bit);
    return _mm256_or_si256(nibbles, _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
}

/* Codes of two rows: values 0 to 15 and 16 to 31 of their blocks. Unsigned but for IQ4. */
INLINE void lane_codes(pj_dtype type, const char *a, const char *b, __m256i *low, __m256i *high)
{
    const lane_layout l = lane_layout_of(type);
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i bytes = lane_two(a + l.nibbles, b + l.nibbles);
    *low = _mm256_and_si256(bytes, nibble);
    *high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    if (l.levels) {
        __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)l.levels);
        if (!lane_signed(type)) levels = _mm_add_epi8(levels, _mm_set1_epi8((char)l.offset));
        __m256i table = _mm256_broadcastsi128_si256(levels);
        *low = _mm256_shuffle_epi8(table, *low), *high = _mm256_shuffle_epi8(table, *high);
    } else if (l.fifth) {
        __m256i fifth = lane_fifth(a + l.fifth, b + l.fifth);
        *low = lane_add_fifth(*low, fifth, 0), *high = lane_add_fifth(*high, fifth, 2);
    }
}

/* Two products summed per word, or four per lane of signed codes. */
INLINE __m256i lane_multiply(pj_dtype type, __m256i w, __m256i x)
{
    if (!lane_signed(type)) return _mm256_maddubs_epi16(w, x);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Adds the halves of each half: those of a, then those of b. */
INLINE __m256i lane_join_words(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_blend_epi16(a, b, 0xf0), _mm256_alignr_epi8(b, a, 8));
}

/* The same of 32-bit sums, whose quarters come in the order a, b, a, b. */
INLINE __m256i lane_join_signed(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

INLINE __m256i lane_even(__m256i a, __m256i b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

INLINE __m256i lane_odd(__m256i a, __m256i b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
}

/* The sum of each row, in order, from the products of rows r (low half) and r + 4. */
INLINE __m256i lane_sums(pj_dtype type, const __m256i two[4])
{
    const __m256i ones = _mm256_set1_epi16(1);
    if (lane_signed(type)) {
        __m256i first = lane_join_signed(two[0], two[1]), second = lane_join_signed(two[2], two[3]);
        return _mm256_add_epi32(_mm256_unpacklo_epi64(first, second),
                                _mm256_unpackhi_epi64(first, second));
    }
    __m256i first = lane_join_words(two[0], two[1]), second = lane_join_words(two[2], two[3]);
    if (type == PJ_Q4_0 || type == PJ_Q4_1)
        return _mm256_madd_epi16(
            _mm256_add_epi16(lane_even(first, second), lane_odd(first, second)), ones);
    first = _mm256_madd_epi16(first, ones), second = _mm256_madd_epi16(second, ones);
    return _mm256_add_epi32(lane_even(first, second), lane_odd(first, second));
}

/* ---- scales ----------------------------------------------------------------------------- */

/* Scales and minima of a block of each row. */
typedef struct lane_scales {
    __m256 scale, minimum;
} lane_scales;

INLINE __m256 lane_halves(const lane_block *at)
{
    __m128i halves = _mm_cvtsi32_si128(pj_load_u16(lane_at(at, 0)));
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 1)), 1);
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 2)), 2);
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 3)), 3);
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 4)), 4);
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 5)), 5);
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 6)), 6);
    halves = _mm_insert_epi16(halves, pj_load_u16(lane_at(at, 7)), 7);
    return _mm256_cvtph_ps(halves);
}

/* Scales and minima of rows r, r + 1, r + 4 and r + 5, alternating. */
INLINE __m256 lane_pairs(const lane_block *at, size_t first)
{
    uint32_t pair[4];
    memcpy(&pair[0], lane_at(at, first), 4), memcpy(&pair[1], lane_at(at, first + 1), 4);
    memcpy(&pair[2], lane_at(at, first + 4), 4), memcpy(&pair[3], lane_at(at, first + 5), 4);
    return _mm256_cvtph_ps(_mm_setr_epi32((int)pair[0], (int)pair[1], (int)pair[2], (int)pair[3]));
}

/* As pj_blocks_mxfp4_scale, of eight bytes. */
INLINE __m256 lane_power_of(__m128i bytes)
{
    __m256i e = _mm256_cvtepu8_epi32(bytes);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}

INLINE __m256 lane_powers(const lane_block *at)
{
    uint64_t bytes = 0;
    UNROLL for (size_t r = LANE_ROWS; r-- > 0;) bytes = bytes << 8 | (uint8_t)lane_at(at, r)[0];
    return lane_power_of(_mm_cvtsi64_si128((long long)bytes));
}

INLINE lane_scales lane_load_scales(pj_dtype type, const lane_block *at)
{
    if (lane_layout_of(type).minima) {
        __m256 first = lane_pairs(at, 0), second = lane_pairs(at, 2);
        return (lane_scales){_mm256_shuffle_ps(first, second, 0x88),
                             _mm256_shuffle_ps(first, second, 0xdd)};
    }
    return (lane_scales){.scale = type == PJ_MXFP4 ? lane_powers(at) : lane_halves(at)};
}

/* ---- products --------------------------------------------------------------------------- */

/* The products of two rows with a token's block. */
INLINE __m256i lane_products(pj_dtype type, __m256i low, __m256i high, const int8_t *codes)
{
    const __m128i *x = (const __m128i *)(const void *)codes;
    low = lane_multiply(type, low, _mm256_broadcastsi128_si256(_mm_loadu_si128(x)));
    high = lane_multiply(type, high, _mm256_broadcastsi128_si256(_mm_loadu_si128(x + 1)));
    return lane_signed(type) ? _mm256_add_epi32(low, high) : _mm256_add_epi16(low, high);
}

/* Block b of eight rows times T tokens. */
INLINE void lane_add(pj_dtype type, const pj_packed *p, size_t token, lane_matrix rows, size_t b,
                     __m256 acc[LANE_TOKENS], const size_t T)
{
    const lane_block at_rows = lane_block_at(rows, lane_place(type, b));
    __m256i two[LANE_TOKENS][4];
    UNROLL for (size_t r = 0; r < 4; r++)
    {
        __m256i low, high;
        lane_codes(type, lane_at(&at_rows, r), lane_at(&at_rows, r + 4), &low, &high);
        UNROLL for (size_t t = 0; t < T; t++) two[t][r] = lane_products(
            type, low, high, (const int8_t *)p->values + (token + t) * p->cols + b * PJ_Q8_BLOCK);
    }
    lane_scales w = lane_load_scales(type, &at_rows);
    UNROLL for (size_t t = 0; t < T; t++)
    {
        size_t at = (token + t) * (p->cols / PJ_Q8_BLOCK) + b;
        __m256i sums = lane_sums(type, two[t]);
        if (!lane_signed(type))
            sums = _mm256_add_epi32(sums, _mm256_set1_epi32(lane_start(type, p->sums[at])));
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums),
                                 _mm256_mul_ps(w.scale, _mm256_set1_ps(p->scales[at])), acc[t]);
        if (!lane_layout_of(type).minima) continue;
        float x_sum = p->scales[at] * ((float)p->sums[at] * (-1.0f / PJ_Q8_OFFSET));
        acc[t] = _mm256_fmadd_ps(w.minimum, _mm256_set1_ps(x_sum), acc[t]);
    }
}

INLINE void lane_rows(pj_dtype type, const pj_dot *d, size_t token, lane_matrix rows,
                      float sums[LANE_TOKENS][LANE_ROWS], const size_t T)
{
    size_t blocks = d->x->cols / PJ_Q8_BLOCK, b = 0;
    __m256 acc[LANE_TOKENS];
    UNROLL for (size_t t = 0; t < T; t++) acc[t] = _mm256_setzero_ps();
    for (; b + 2 <= blocks; b += 2) {
        lane_block ahead = lane_block_at(rows, lane_place(type, b) + d->ahead);
        UNROLL for (size_t r = 0; r < LANE_ROWS; r++) __builtin_prefetch(lane_at(&ahead, r));
        lane_add(type, d->x, token, rows, b, acc, T);
        lane_add(type, d->x, token, rows, b + 1, acc, T);
    }
    if (b < blocks) lane_add(type, d->x, token, rows, b, acc, T);
    UNROLL for (size_t t = 0; t < T; t++) _mm256_storeu_ps(sums[t], acc[t]);
}

#include "engine/kernels/lanes.h"

#endif
