/* Few tokens with weights in blocks of 256 (Q2_K to Q6_K, IQ4_XS) on AVX2: the method of k_vnni.h
 * with vectors of half the width. Codes are unpacked to unsigned bytes in registers, 32 columns at
 * a time; their products with the activations' bytes are added pairwise in 16 bits (126 x 127 x 2
 * fits) and multiplied by the sub-blocks' integer scales. Floats are used once per 128 columns,
 * which share one scale of activations. Included only by codes_avx2.c. */
#ifndef PJ_KERNELS_K_AVX2_H
#define PJ_KERNELS_K_AVX2_H

#include "engine/kernels/book_avx2.h"
#include "engine/kernels/lane_blocks.h"
#include "engine/kernels/tile.h"
#include "engine/kernels/vector.h"

enum { K_COLUMNS = 256, K_STREAMS = 4, K_TOKENS = 4, K_PARTS = 8 };

/* A block's header. Scales are words: for Q4_K and Q5_K the eight in both halves; for types with
 * sixteen those of even sub-blocks in the low half, of odd ones in the high half. */
typedef struct k_header {
    __m256i scales;
    /* Types with sixteen scales: what the sums of sixteen activations are multiplied with, in
     * order: minima (Q2_K), or scales. */
    __m256i lows;
    __m128i minima; /* Q4_K, Q5_K */
    __m256 unit;
    __m128 minima_unit;
} k_header;

/* One token's activations for a block. */
typedef struct k_inputs {
    const int8_t *codes;
    __m256i sixteens; /* sums of 16 codes each, words */
    __m128i sums;     /* Q4_K, Q5_K: of 32 codes each, negative, 8 words */
    float scales[2];  /* of the halves */
} k_inputs;

INLINE __m256i k_load(const void *at)
{
    return _mm256_loadu_si256(at);
}

INLINE __m128i k_words(uint32_t low, uint32_t high)
{
    uint64_t bytes = low | (uint64_t)high << 32;
    return _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)bytes));
}

/* Six-bit scales and minima from twelve bytes. */
INLINE void k_load_header(const char *at, k_header *h)
{
    uint32_t units, a, b, c;
    memcpy(&units, at, 4), memcpy(&a, at + 4, 4), memcpy(&b, at + 8, 4), memcpy(&c, at + 12, 4);
    __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128((int)units));
    h->unit = _mm256_broadcastss_ps(both);
    h->minima_unit = _mm_shuffle_ps(both, both, 0x55);
    h->scales = _mm256_broadcastsi128_si256(
        k_words(a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)));
    h->minima = k_words(b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030));
}

/* What a code of a type with sixteen scales is above the value. */
INLINE char k_offset(pj_dtype type)
{
    if (is_book(type)) return (char)(book_has_signs(type) ? 0 : book_offset(type));
    return type == PJ_Q6_K ? 32 : type == PJ_Q3_K ? 4 : 0;
}

INLINE bool k_has_minima(pj_dtype type)
{
    return type == PJ_Q4_K || type == PJ_Q5_K;
}

/* Sixteen signed bytes as words, even ones first. */
INLINE __m256i k_sixteen(__m128i bytes)
{
    const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, apart));
}

/* The sixteen scales of a block of Q3_K, as bytes. */
INLINE __m128i k_q3_scales(const char *at)
{
    uint64_t scales[2];
    pj_blocks_q3_k_scales((const uint8_t *)at + 96, scales);
    __m128i bytes = _mm_set_epi64x((long long)scales[1], (long long)scales[0]);
    return _mm_sub_epi8(bytes, _mm_set1_epi8(32));
}

INLINE void k_load_header_of(pj_dtype type, const char *at, k_header *h)
{
    if (type == PJ_IQ4_XS) {
        __m128i scales = _mm_sub_epi8(book_pairs(lane_xs_scales(at)), _mm_set1_epi8(32));
        h->scales = k_sixteen(scales);
        h->unit = _mm256_set1_ps(_cvtsh_ss(pj_load_u16(at)));
        return;
    }
    if (k_has_minima(type)) {
        k_load_header(at, h);
        return;
    }
    if (is_book(type)) {
        float one;
        __m128i of_book = book_scales(type, at, &one);
        h->scales = k_sixteen(of_book);
        h->lows = _mm256_cvtepi8_epi16(of_book);
        h->unit = _mm256_set1_ps(one);
        return;
    }
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i bytes =
        type == PJ_Q3_K
            ? k_q3_scales(at)
            : _mm_loadu_si128((const __m128i *)(const void *)(at + (type == PJ_Q6_K ? 192 : 0)));
    if (type == PJ_Q2_K) {
        h->lows = _mm256_cvtepi8_epi16(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
        h->minima_unit = _mm_set1_ps(_cvtsh_ss(pj_load_u16(at + 82)));
        bytes = _mm_and_si128(bytes, nibble);
    } else {
        h->lows = _mm256_cvtepi8_epi16(bytes);
    }
    h->scales = k_sixteen(bytes);
    size_t unit = type == PJ_Q2_K ? 80 : type == PJ_Q3_K ? 108 : 208;
    h->unit = _mm256_set1_ps(_cvtsh_ss(pj_load_u16(at + unit)));
}

/* Q2_K, and Q3_K with its third bits: a byte holds the pairs of bits of four columns, 32 apart. */
INLINE __m256i k_pairs(pj_dtype type, const char *at, const int p)
{
    __m256i codes = k_load(at + (type == PJ_Q2_K ? 16 : 32) + p / 4 * 32);
    codes = _mm256_and_si256(_mm256_srli_epi16(codes, p % 4 * 2), _mm256_set1_epi8(3));
    if (type == PJ_Q2_K) return codes;
    __m256i third = k_load(at);
    third = p < 2 ? _mm256_slli_epi16(third, p < 2 ? 2 - p : 0)
                  : _mm256_srli_epi16(third, p < 2 ? 0 : p - 2);
    return _mm256_or_si256(codes, _mm256_and_si256(third, _mm256_set1_epi8(4)));
}

/* Levels are magnitudes with signs: products of unsigned codes of up to 255 would not fit. */
INLINE bool k_has_signs(pj_dtype type)
{
    return book_has_signs(type) || type == PJ_IQ4_XS;
}

/* Sixteen levels, for a shuffle by nibbles. */
INLINE __m256i k_table(const int8_t *levels)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)levels));
}

/* Codes of 32 columns, part p of a block, and their signs, of types that have them. */
INLINE __m256i k_codes(pj_dtype type, const char *at, const int p, __m256i *signs)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    if (is_book(type)) return book_codes(type, at, p, signs);
    if (type == PJ_IQ4_XS) {
        /* nibbles of two parts: the low ones are columns 0 to 15 of each */
        __m256i both = k_load(at + 8 + p / 2 * 32), table = k_table(pj_iq4_levels);
        __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(both, nibble));
        __m256i high =
            _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble));
        *signs = p % 2 ? _mm256_permute2x128_si256(low, high, 0x31)
                       : _mm256_permute2x128_si256(low, high, 0x20);
        return _mm256_abs_epi8(*signs);
    }
    if (type == PJ_Q2_K || type == PJ_Q3_K) return k_pairs(type, at, p);
    if (type == PJ_Q6_K) {
        const int half = p / 4, quarter = p % 4;
        __m256i low = k_load(at + 64 * half + quarter % 2 * 32),
                high = k_load(at + 128 + 32 * half);
        if (quarter >= 2) low = _mm256_srli_epi16(low, 4);
        high = quarter == 0   ? _mm256_slli_epi16(high, 4)
               : quarter == 1 ? _mm256_slli_epi16(high, 2)
               : quarter == 3 ? _mm256_srli_epi16(high, 2)
                              : high;
        return _mm256_or_si256(_mm256_and_si256(low, nibble),
                               _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
    }
    __m256i codes = k_load(at + (type == PJ_Q4_K ? 16 : 48) + p / 2 * 32);
    if (p % 2) codes = _mm256_srli_epi16(codes, 4);
    codes = _mm256_and_si256(codes, nibble);
    if (type == PJ_Q4_K) return codes;
    __m256i fifth = k_load(at + 16);
    fifth = p < 4 ? _mm256_slli_epi16(fifth, p < 4 ? 4 - p : 0)
                  : _mm256_srli_epi16(fifth, p < 4 ? 0 : p - 4);
    return _mm256_or_si256(codes, _mm256_and_si256(fifth, _mm256_set1_epi8(16)));
}

INLINE void k_load_inputs(pj_dtype type, const int8_t *codes, const float *scales,
                          const int32_t *sums, k_inputs *x)
{
    x->codes = codes;
    x->scales[0] = scales[0];
    x->scales[1] = scales[4];
    x->sixteens = k_load(sums);
    if (!k_has_minima(type)) return;
    __m256i all = _mm256_madd_epi16(x->sixteens, _mm256_set1_epi16(-1));
    x->sums = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* Sums of sixteen activations times minima or scales: lanes of the first half of a block, then of
 * the second. */
INLINE __m256i k_lows(const k_header *header, const k_inputs *x)
{
    return _mm256_madd_epi16(header->lows, x->sixteens);
}

/* The minima of Q2_K. */
INLINE void k_add_lows(const k_header *header, const k_inputs *x, __m256 acc[K_TOKENS],
                       const size_t T)
{
    UNROLL for (size_t t = 0; t < T; t++)
    {
        __m256 scale = _mm256_set_m128(_mm_set1_ps(x[t].scales[1]), _mm_set1_ps(x[t].scales[0]));
        scale = _mm256_mul_ps(scale, _mm256_broadcastss_ps(header->minima_unit));
        acc[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(k_lows(header, &x[t])), scale, acc[t]);
    }
}

/* What the products of each half start from, to take the codes' offset away. */
INLINE void k_starts(pj_dtype type, const k_header *header, const k_inputs *x, __m256i starts[2])
{
    starts[0] = starts[1] = _mm256_setzero_si256();
    if (!k_offset(type) || k_has_minima(type)) return;
    __m256i lows = _mm256_mullo_epi32(k_lows(header, x), _mm256_set1_epi32(-k_offset(type)));
    starts[0] = _mm256_zextsi128_si256(_mm256_castsi256_si128(lows));
    starts[1] = _mm256_zextsi128_si256(_mm256_extracti128_si256(lows, 1));
}

/* acc += the products of a block with T tokens. */
INLINE void k_add_block(pj_dtype type, const char *at, const k_inputs *x, __m256 acc[K_TOKENS],
                        const size_t T)
{
    k_header header = {0};
    __m256i starts[K_TOKENS][2];
    k_load_header_of(type, at, &header);
    UNROLL for (size_t t = 0; t < T; t++) k_starts(type, &header, &x[t], starts[t]);
    UNROLL for (int h = 0; h < 2; h++)
    {
        __m256i sums[K_TOKENS];
        UNROLL for (size_t t = 0; t < T; t++) sums[t] = starts[t][h];
        UNROLL for (int p = 4 * h; p < 4 * h + 4; p++)
        {
            __m256i signs, codes = k_codes(type, at, p, &signs);
            __m256i word = _mm256_set1_epi16((short)(2 * p | (2 * p + 1) << 8));
            __m256i scale = _mm256_shuffle_epi8(header.scales, word);
            UNROLL for (size_t t = 0; t < T; t++)
            {
                __m256i columns = k_load(x[t].codes + 32 * p);
                if (k_has_signs(type)) columns = _mm256_sign_epi8(columns, signs);
                __m256i pairs = _mm256_maddubs_epi16(codes, columns);
                sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pairs, scale));
                /* Else the compiler begins the products of later parts, and stores sums. */
                __asm__("" : "+x"(sums[t]));
            }
        }
        UNROLL for (size_t t = 0; t < T; t++)
        {
            __m256 x_scale = _mm256_set1_ps(x[t].scales[h]);
            acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t]),
                                     _mm256_mul_ps(header.unit, x_scale), acc[t]);
        }
    }
    if (type == PJ_Q2_K) k_add_lows(&header, x, acc, T);
    if (!k_has_minima(type)) return;
    UNROLL for (size_t t = 0; t < T; t++)
    {
        __m128 low = _mm_cvtepi32_ps(_mm_madd_epi16(header.minima, x[t].sums));
        __m128 scale = _mm_setr_ps(x[t].scales[0], x[t].scales[0], x[t].scales[1], x[t].scales[1]);
        scale = _mm_mul_ps(scale, header.minima_unit);
        acc[t] =
            _mm256_fmadd_ps(_mm256_zextps128_ps256(low), _mm256_zextps128_ps256(scale), acc[t]);
    }
}

/* S rows, `apart` from each other, times T tokens, which start at `token`. */
INLINE void k_dot_rows(const pj_dot *d, pj_dtype type, size_t row, size_t apart, size_t token,
                       const size_t S, const size_t T)
{
    const pj_matrix *w = d->weights;
    size_t blocks = w->cols / PJ_Q8_BLOCK, ahead = d->ahead;
    const size_t bytes = pj_blocks_k_bytes(type);
    const int8_t *codes = (const int8_t *)d->x->values + token * w->cols;
    const float *scales = d->x->scales + token * blocks;
    const int32_t *sums = d->x->sums + token * blocks;
    const char *rows[K_STREAMS];
    __m256 acc[K_STREAMS][K_TOKENS];
    UNROLL for (size_t s = 0; s < S; s++) rows[s] =
        (const char *)w->data + (row + s * apart) * w->row_bytes;
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        _mm256_setzero_ps();
    for (size_t b = 0; b < w->cols / K_COLUMNS; b++) {
        k_inputs x[K_TOKENS];
        UNROLL for (size_t t = 0; t < T; t++)
            k_load_inputs(type, codes + t * w->cols + b * K_COLUMNS, scales + t * blocks + 8 * b,
                          sums + t * blocks + 8 * b, &x[t]);
        UNROLL for (size_t s = 0; s < S; s++)
        {
            const char *at = rows[s] + b * bytes;
            for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + ahead + line);
            k_add_block(type, at, x, acc[s], T);
        }
    }
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++)
        d->y[(token + t) * d->y_stride + row + s * apart] =
        vec_sum((vec)acc[s][t]) + (d->bias ? d->bias[row + s * apart] : 0);
}

INLINE void k_dot_group(const pj_dot *d, pj_dtype type, size_t row, size_t apart, const size_t S)
{
    size_t t = 0;
    for (; t + 4 <= d->x->tokens; t += 4) k_dot_rows(d, type, row, apart, t, S, 4);
    if (t + 2 <= d->x->tokens) {
        k_dot_rows(d, type, row, apart, t, S, 2);
        t += 2;
    }
    if (t < d->x->tokens) k_dot_rows(d, type, row, apart, t, S, 1);
}

#include "engine/kernels/k_dot.h"

K_DOT(iq4_xs, IQ4_XS)

#endif
