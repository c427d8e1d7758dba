/* Few tokens with weights of four or five bits on AVX-512 VNNI: sixteen rows, one per lane
 * (lanes.h). A vector holds the sixteen bytes of nibbles of four rows; two dot products give each
 * row four partial sums, and nine instructions add those of sixteen rows. Included only by vnni.c.
 */
#ifndef PJ_KERNELS_LANES_VNNI_H
#define PJ_KERNELS_LANES_VNNI_H

#include "engine/kernels/lane_blocks.h"
#include "engine/kernels/tile.h"
#include "engine/kernels/vector.h"

enum { LANE_ROWS = 16, LANE_TOKENS = 4, LANE_QUADS = 4 };

/* Sixteen bytes of each of the rows `first`, first + 4, first + 8 and first + 12. */
INLINE __m512i lane_quad(const lane_block *at, size_t first, size_t offset)
{
    const __m128i *r0 = (const void *)(lane_at(at, first) + offset);
    const __m128i *r1 = (const void *)(lane_at(at, first + 4) + offset);
    const __m128i *r2 = (const void *)(lane_at(at, first + 8) + offset);
    const __m128i *r3 = (const void *)(lane_at(at, first + 12) + offset);
    __m512i all = _mm512_castsi128_si512(_mm_loadu_si128(r0));
    all = _mm512_mask_broadcast_i32x4(all, 0x00f0, _mm_loadu_si128(r1));
    all = _mm512_mask_broadcast_i32x4(all, 0x0f00, _mm_loadu_si128(r2));
    return _mm512_mask_broadcast_i32x4(all, 0xf000, _mm_loadu_si128(r3));
}

/* The four bytes of fifth bits of the same rows, everywhere in their lanes. */
INLINE __m512i lane_fifth(const lane_block *at, size_t first, size_t offset)
{
    int bits[4];
    UNROLL for (size_t i = 0; i < 4; i++) memcpy(&bits[i], lane_at(at, first + 4 * i) + offset, 4);
    __m512i all = _mm512_set1_epi32(bits[0]);
    all = _mm512_mask_set1_epi32(all, 0x00f0, bits[1]);
    all = _mm512_mask_set1_epi32(all, 0x0f00, bits[2]);
    return _mm512_mask_set1_epi32(all, 0xf000, bits[3]);
}

/* Adds 16 to the nibbles whose fifth bit is set; `byte`: the byte that holds the bits of a row's
 * first eight. */
INLINE __m512i lane_add_fifth(__m512i nibbles, __m512i fifth, long long byte)
{
    const long long ones = 0x0101010101010101;
    __m128i offset = _mm_set_epi64x(ones * (byte + 1), ones * byte);
    __m512i bit = _mm512_set1_epi64((long long)0x8040201008040201ull);
    __m512i spread = _mm512_shuffle_epi8(fifth, _mm512_broadcast_i32x4(offset));
    return _mm512_mask_add_epi8(nibbles, _mm512_test_epi8_mask(spread, bit), nibbles,
                                _mm512_set1_epi8(16));
}

INLINE __m512i lane_table(lane_layout l)
{
    __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)l.levels);
    return _mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8((char)l.offset)));
}

/* Unsigned codes of four rows: values 0 to 15 and 16 to 31 of their blocks. */
INLINE void lane_codes(pj_dtype type, const lane_block *at, size_t first, size_t offset,
                       __m512i *low, __m512i *high)
{
    const lane_layout l = lane_layout_of(type);
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i bytes = lane_quad(at, first, offset + l.nibbles);
    *low = _mm512_and_si512(bytes, nibble);
    *high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
    if (l.levels) {
        __m512i table = lane_table(l);
        *low = _mm512_shuffle_epi8(table, *low), *high = _mm512_shuffle_epi8(table, *high);
    } else if (l.fifth) {
        __m512i fifth = lane_fifth(at, first, offset + l.fifth);
        *low = lane_add_fifth(*low, fifth, 0), *high = lane_add_fifth(*high, fifth, 2);
    }
}

/* Adds the four partial sums of each row: rows in order. */
INLINE __m512i lane_join(const __m512i quads[LANE_QUADS])
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(quads[0], quads[1]),
                                  _mm512_unpackhi_epi32(quads[0], quads[1]));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(quads[2], quads[3]),
                                  _mm512_unpackhi_epi32(quads[2], quads[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* ---- scales ----------------------------------------------------------------------------- */

/* Scales and minima of a block of each row. */
typedef struct lane_scales {
    __m512 scale, minimum;
} lane_scales;

/* The words at `offset` of eight rows. */
INLINE __m128i lane_words(const lane_block *at, size_t first, size_t offset)
{
    __m128i words = _mm_cvtsi32_si128(pj_load_u16(lane_at(at, first) + offset));
    words = _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 1) + offset), 1);
    words = _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 2) + offset), 2);
    words = _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 3) + offset), 3);
    words = _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 4) + offset), 4);
    words = _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 5) + offset), 5);
    words = _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 6) + offset), 6);
    return _mm_insert_epi16(words, pj_load_u16(lane_at(at, first + 7) + offset), 7);
}

INLINE __m512 lane_halves(const lane_block *at, size_t offset)
{
    return _mm512_cvtph_ps(_mm256_set_m128i(lane_words(at, 8, offset), lane_words(at, 0, offset)));
}

/* Four rows' scale and minimum, as they are stored. */
INLINE __m128i lane_pairs(const lane_block *at, size_t first, size_t offset)
{
    uint32_t pair[4];
    UNROLL for (size_t r = 0; r < 4; r++) memcpy(&pair[r], lane_at(at, first + r) + offset, 4);
    return _mm_setr_epi32((int)pair[0], (int)pair[1], (int)pair[2], (int)pair[3]);
}

INLINE lane_scales lane_scales_minima(const lane_block *at, size_t offset)
{
    __m256i low = _mm256_set_m128i(lane_pairs(at, 4, offset), lane_pairs(at, 0, offset));
    __m256i high = _mm256_set_m128i(lane_pairs(at, 12, offset), lane_pairs(at, 8, offset));
    __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    __m512i minima = _mm512_srli_epi32(all, 16);
    return (lane_scales){_mm512_cvtph_ps(_mm512_cvtepi32_epi16(all)),
                         _mm512_cvtph_ps(_mm512_cvtepi32_epi16(minima))};
}

/* As pj_blocks_mxfp4_scale. */
INLINE __m512 lane_powers(const lane_block *at, size_t offset)
{
    uint8_t bytes[LANE_ROWS];
    UNROLL for (size_t r = 0; r < LANE_ROWS; r++) bytes[r] = (uint8_t)lane_at(at, r)[offset];
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small));
}

/* One step of a transposition: interleaves the bytes of vectors `apart` from each other. */
INLINE void lane_interleave(__m128i v[8], const size_t apart)
{
    __m128i to[8];
    UNROLL for (size_t base = 0; base < 8; base += 2 * apart)
        UNROLL for (size_t i = base; i < base + apart; i++)
    {
        to[i] = _mm_unpacklo_epi8(v[i], v[i + apart]);
        to[i + apart] = _mm_unpackhi_epi8(v[i], v[i + apart]);
    }
    UNROLL for (size_t i = 0; i < 8; i++) v[i] = to[i];
}

/* Scales of the eight blocks of 32 in a block of IQ4_XS. */
INLINE void lane_xs_table(const lane_block *at, size_t offset, __m512 table[8])
{
    uint64_t packed[LANE_ROWS];
    __m128i v[8];
    UNROLL for (size_t r = 0; r < LANE_ROWS; r++) packed[r] =
        lane_xs_scales(lane_at(at, r) + offset);
    UNROLL for (size_t i = 0; i < 8; i++) v[i] = _mm_unpacklo_epi8(
        _mm_cvtsi64_si128((long long)packed[i]), _mm_cvtsi64_si128((long long)packed[i + 8]));
    lane_interleave(v, 4);
    lane_interleave(v, 2);
    lane_interleave(v, 1);
    __m512 unit = lane_halves(at, offset);
    UNROLL for (size_t j = 0; j < 8; j++)
    {
        __m512i scale = _mm512_sub_epi32(_mm512_cvtepu8_epi32(v[j]), _mm512_set1_epi32(32));
        table[j] = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(scale));
    }
}

INLINE lane_scales lane_load_scales(pj_dtype type, const lane_block *at, size_t b, __m512 table[8])
{
    const size_t offset = 0;
    if (type == PJ_IQ4_XS) {
        if (b % LANE_XS_BLOCKS == 0) lane_xs_table(at, offset, table);
        return (lane_scales){.scale = table[b % LANE_XS_BLOCKS]};
    }
    if (lane_layout_of(type).minima) return lane_scales_minima(at, offset);
    return (lane_scales){.scale =
                             type == PJ_MXFP4 ? lane_powers(at, offset) : lane_halves(at, offset)};
}

/* ---- products --------------------------------------------------------------------------- */

/* Block b of sixteen rows times T tokens. */
INLINE void lane_add(pj_dtype type, const pj_packed *p, size_t token, lane_matrix rows, size_t b,
                     __m512 table[8], __m512 acc[LANE_TOKENS], const size_t T)
{
    size_t blocks = p->cols / PJ_Q8_BLOCK;
    const lane_block at_rows = lane_block_at(rows, lane_place(type, b));
    __m512i whole[LANE_TOKENS][LANE_QUADS];
    UNROLL for (size_t q = 0; q < LANE_QUADS; q++)
    {
        __m512i low, high;
        lane_codes(type, &at_rows, q, 0, &low, &high);
        UNROLL for (size_t t = 0; t < T; t++)
        {
            const __m128i *x = (const __m128i *)(const void *)((const int8_t *)p->values +
                                                               (token + t) * p->cols + b * 32);
            __m512i x_low = _mm512_broadcast_i32x4(_mm_loadu_si128(x));
            __m512i x_high = _mm512_broadcast_i32x4(_mm_loadu_si128(x + 1));
            __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x_low);
            whole[t][q] = _mm512_dpbusd_epi32(sum, high, x_high);
        }
    }
    lane_scales w = lane_load_scales(type, &at_rows, b, table);
    UNROLL for (size_t t = 0; t < T; t++)
    {
        size_t at = (token + t) * blocks + b;
        __m512i start = _mm512_set1_epi32(lane_start(type, p->sums[at]));
        __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(lane_join(whole[t]), start));
        acc[t] =
            _mm512_fmadd_ps(sum, _mm512_mul_ps(w.scale, _mm512_set1_ps(p->scales[at])), acc[t]);
        if (!lane_layout_of(type).minima) continue;
        float x_sum = p->scales[at] * ((float)p->sums[at] * (-1.0f / PJ_Q8_OFFSET));
        acc[t] = _mm512_fmadd_ps(w.minimum, _mm512_set1_ps(x_sum), acc[t]);
    }
}

INLINE void lane_rows(pj_dtype type, const pj_dot *d, size_t token, lane_matrix rows,
                      float sums[LANE_TOKENS][LANE_ROWS], const size_t T)
{
    const pj_packed *p = d->x;
    size_t blocks = p->cols / PJ_Q8_BLOCK;
    __m512 acc[LANE_TOKENS], table[8];
    UNROLL for (size_t t = 0; t < T; t++) acc[t] = _mm512_setzero_ps();
    for (size_t b = 0; b < blocks; b++) {
        /* half of the rows at a time: two blocks are shorter than a cache line */
        lane_block ahead = lane_block_at(rows, lane_place(type, b) + d->ahead);
        if (b % 2)
            UNROLL for (size_t r = 0; r < 8; r++) __builtin_prefetch(lane_at(&ahead, r));
        else
            UNROLL for (size_t r = 8; r < 16; r++) __builtin_prefetch(lane_at(&ahead, r));
        lane_add(type, p, token, rows, b, table, acc, T);
    }
    UNROLL for (size_t t = 0; t < T; t++) _mm512_storeu_ps(sums[t], acc[t]);
}

#include "engine/kernels/lanes.h"

LANES_DOT(iq4_xs, IQ4_XS)

#endif
