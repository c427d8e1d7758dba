/* Weights in blocks of 256 (Q2_K to Q6_K) on AVX-512 VNNI. Codes are unpacked to unsigned bytes
 * in registers, whose products with the activations' bytes are added in fours. Few tokens of types
 * with sixteen scales: sums of two parts are packed into words (32 x 128 x 4 fits), and a second
 * product of words multiplies them by the sub-blocks' integer scales, so that floats are used once
 * per 128 columns, which share one scale of activations. Of Q2_K, codes stay in the order in which
 * they are stored, some of them times four, and both halves of a block are in one vector. Q4_K and
 * Q5_K have half as many scales: their order is kept too, and floats are used once per sub-block,
 * whose activations have a scale of their own. Included only by vnni.c. */
#ifndef PJ_KERNELS_K_VNNI_H
#define PJ_KERNELS_K_VNNI_H

#include "engine/kernels/book_vnni.h"
#include "engine/kernels/codes.h"
#include "engine/kernels/tile.h"
#include "engine/kernels/vector.h"

enum {
    K_COLUMNS = 256,
    K_STREAMS = 4,
    K_TOKENS = 4,
    K_AHEAD_BYTES = 2048,
    K_PARTS = 4,
    K_HALVES = 2
};

/* A block of a type with sixteen scales: 64 columns per part. */
typedef struct k_weights {
    __m512i codes[K_PARTS];
    /* Of two parts: words for four codes of one, then of the other, in turn. */
    __m512i scales[K_HALVES];
    __m512 unit;
    __m128 minima_unit; /* Q2_K */
} k_weights;

/* A block of Q2_K: part p has columns 32 p and 128 + 32 p of the block, and 31 from each. */
typedef struct k_pair_weights {
    __m512i codes[K_PARTS];   /* those of the odd parts times four */
    __m512i scales[K_HALVES]; /* of the even parts and the odd ones, like those of k_weights */
    __m256i minima;           /* words, of sixteen columns each */
    __m512 unit;
    __m256 minima_unit;
} k_pair_weights;

/* A block of Q4_K or Q5_K: 64 bytes of nibbles are two parts, the low ones of sub-blocks 0 and 2
 * and the high ones of 1 and 3. */
typedef struct k_nibbles {
    __m512i codes[K_PARTS];
    __m256 scales, minima;
} k_nibbles;

/* One token's activations for a block. */
typedef struct k_inputs {
    __m512i codes[K_PARTS];
    /* What sums of four products start from, to take the offset of codes away. */
    __m512i starts[K_PARTS];
    __m512 scales[K_HALVES]; /* of the halves; Q2_K: of both, over four */
    __m256i sixteens;        /* Q2_K: sums of sixteen codes; words */
    __m256 sixteens_scales;  /* of two of them each */
    __m256 sub_scales;       /* Q4_K, Q5_K: of 32 columns each */
    __m512 sums;             /* likewise of values, negative, 8 lanes */
} k_inputs;

INLINE __m512i k_load(const void *at)
{
    return _mm512_loadu_si512(at);
}

INLINE __m512i k_twice(const void *at)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)at));
}

/* Two numbers by halves of a vector, in each byte, word or count of a shift. */
INLINE __m512i k_halves(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE __m512 k_two(__m256 low, __m256 high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

INLINE __m512i k_shifts(long long low, long long high)
{
    return k_halves(_mm256_set1_epi64x(low), _mm256_set1_epi64x(high));
}

/* Eight 6-bit scales and minima from twelve bytes, as bytes. */
INLINE void k_scales(const char *packed, uint64_t *scales, uint64_t *minima)
{
    uint32_t a, b, c;
    memcpy(&a, packed, 4), memcpy(&b, packed + 4, 4), memcpy(&c, packed + 8, 4);
    uint32_t high = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    uint32_t high_min = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    *scales = (a & 0x3f3f3f3f) | (uint64_t)high << 32;
    *minima = (b & 0x3f3f3f3f) | (uint64_t)high_min << 32;
}

/* Where the upper bits of part p are in 32 bytes that hold one for each of 256 columns. */
INLINE __m512i k_bits(const int p)
{
    return k_halves(_mm256_set1_epi8((char)(1 << 2 * p)), _mm256_set1_epi8((char)(2 << 2 * p)));
}

INLINE __m256 k_floats(uint64_t bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes)));
}

/* The eight scales and minima of a block of Q4_K or Q5_K. */
INLINE void k_minima(const char *at, __m256 *scales, __m256 *minima)
{
    uint64_t packed, packed_minima;
    uint32_t units;
    memcpy(&units, at, 4);
    k_scales(at + 4, &packed, &packed_minima);
    __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128((int)units));
    *scales = _mm256_mul_ps(k_floats(packed), _mm256_broadcastss_ps(both));
    *minima = _mm256_mul_ps(k_floats(packed_minima), _mm256_broadcastss_ps(_mm_movehdup_ps(both)));
}

/* Adds the fifth bit of Q5_K to nibbles of sub-blocks `first` and first + 2. */
INLINE __m512i k_fifth(__m512i nibbles, __m512i high, const int first)
{
    __m512i bits =
        k_halves(_mm256_set1_epi8((char)(1 << first)), _mm256_set1_epi8((char)(4 << first)));
    return _mm512_mask_add_epi8(nibbles, _mm512_test_epi8_mask(high, bits), nibbles,
                                _mm512_set1_epi8(16));
}

/* Codes of a block in the order of k_nibbles; the high ones of Q4_K times `high_factor`, which
 * saves their shift if it is 16. */
INLINE void k_load_codes(pj_dtype type, const char *at, const int high_factor,
                         __m512i codes[K_PARTS])
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i high = k_twice(at + 16);
    UNROLL for (int h = 0; h < 2; h++)
    {
        __m512i bytes = k_load(at + (type == PJ_Q4_K ? 16 : 48) + 64 * h);
        __m512i low = _mm512_and_si512(bytes, nibble);
        codes[2 * h] = type == PJ_Q4_K ? low : k_fifth(low, high, 4 * h);
        if (high_factor == 16) {
            codes[2 * h + 1] = _mm512_andnot_si512(nibble, bytes);
            continue;
        }
        __m512i upper = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
        codes[2 * h + 1] = type == PJ_Q4_K ? upper : k_fifth(upper, high, 4 * h + 1);
    }
}

INLINE int k_high_factor(pj_dtype type)
{
    return type == PJ_Q4_K ? 16 : 1;
}

INLINE void k_load_nibbles(pj_dtype type, const char *at, k_nibbles *w)
{
    k_minima(at, &w->scales, &w->minima);
    k_load_codes(type, at, k_high_factor(type), w->codes);
    const float high = 1.0f / (float)k_high_factor(type);
    w->scales = _mm256_mul_ps(w->scales, _mm256_setr_ps(1, high, 1, high, 1, high, 1, high));
}

/* What a code of a type with sixteen scales is above the value. */
INLINE char k_offset(pj_dtype type)
{
    if (is_book(type)) return (char)book_offset(type);
    return type == PJ_Q6_K ? 32 : 4;
}

INLINE bool k_has_minima(pj_dtype type)
{
    return type == PJ_Q4_K || type == PJ_Q5_K;
}

/* Indices of words: in each quarter of a vector four times one, and four times another, `apart`
 * from it. */
INLINE __m512i k_index(int a, int b, int c, int d, int apart)
{
    const long long ones = 0x0001000100010001;
    return _mm512_setr_epi64(ones * a, ones * (a + apart), ones * b, ones * (b + apart), ones * c,
                             ones * (c + apart), ones * d, ones * (d + apart));
}

/* Spreads sixteen words, of sixteen columns each, over the packed sums of a block. */
INLINE void k_spread(__m256i words, __m512i halves[K_HALVES])
{
    UNROLL for (int h = 0; h < K_HALVES; h++) halves[h] = _mm512_permutexvar_epi16(
        k_index(8 * h, 8 * h + 1, 8 * h + 2, 8 * h + 3, 4), _mm512_castsi256_si512(words));
}

/* a | (b & mask) */
INLINE __m512i k_merge(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

/* Q6_K: 64 bytes hold the low nibbles of 64 columns and of the next 64; a byte holds the upper bit
 * pairs of four columns, 32 apart. */
INLINE void k_load_q6(const char *at, k_weights *w)
{
    const __m512i nibble = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(0x30);
    w->unit = _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at + 208)));
    k_spread(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(at + 192))),
             w->scales);
    UNROLL for (int h = 0; h < 2; h++)
    {
        __m512i bytes = k_load(at + 64 * h), high = k_twice(at + 128 + 32 * h);
        __m512i first = _mm512_sllv_epi64(high, k_shifts(4, 2));
        __m512i second = _mm512_srlv_epi64(high, k_shifts(0, 2));
        w->codes[2 * h] = k_merge(_mm512_and_si512(bytes, nibble), first, pair);
        w->codes[2 * h + 1] =
            k_merge(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), second, pair);
    }
}

/* Pairs of bits of part p; a byte holds those of four columns, 32 apart. */
INLINE __m512i k_pairs(const char *at, const int p)
{
    __m512i bytes = k_twice(at + p / 2 * 32);
    bytes = _mm512_srlv_epi64(bytes, k_shifts(p % 2 * 4, p % 2 * 4 + 2));
    return _mm512_and_si512(bytes, _mm512_set1_epi8(3));
}

INLINE void k_load_q2(const char *at, k_weights *w)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)at);
    k_spread(_mm256_cvtepu8_epi16(_mm_and_si128(both, nibble)), w->scales);
    w->unit = _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at + 80)));
    w->minima_unit = _mm_set1_ps(_cvtsh_ss(pj_load_u16(at + 82)));
    UNROLL for (int p = 0; p < K_PARTS; p++) w->codes[p] = k_pairs(at + 16, p);
}

/* Indices of bytes that become words: in each quarter of a vector four times the scale of a sixteen
 * of part p, and four times that of part p + 2. */
INLINE __m512i k_pair_index(const int p)
{
    const long long first =
        (long long)(0x8000800080008000 + 0x0001000100010001 * 2ull * (unsigned)p);
    const long long one = 0x0001000100010001;
    return _mm512_setr_epi64(first, first + 4 * one, first + one, first + 5 * one, first + 8 * one,
                             first + 12 * one, first + 9 * one, first + 13 * one);
}

INLINE void k_load_pairs(const char *at, k_pair_weights *w)
{
    const __m512i pair = _mm512_set1_epi8(3), next = _mm512_set1_epi8(12);
    __m512i low = k_load(at + 16), high = _mm512_srli_epi16(low, 4);
    w->codes[0] = _mm512_and_si512(low, pair);
    w->codes[1] = _mm512_and_si512(low, next);
    w->codes[2] = _mm512_and_si512(high, pair);
    w->codes[3] = _mm512_and_si512(high, next);
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)at);
    __m512i scales = _mm512_and_si512(_mm512_broadcast_i32x4(both), _mm512_set1_epi8(15));
    UNROLL for (int p = 0; p < K_HALVES; p++) w->scales[p] =
        _mm512_shuffle_epi8(scales, k_pair_index(p));
    w->minima = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(15)));
    __m128 units = _mm_cvtph_ps(_mm_loadu_si32(at + 80));
    w->unit = _mm512_broadcastss_ps(units);
    w->minima_unit = _mm256_broadcastss_ps(_mm_movehdup_ps(units));
}

/* The sixteen scales of a block of Q3_K, as bytes. */
INLINE __m128i k_q3_scales(const char *at)
{
    uint64_t scales[2];
    pj_blocks_q3_k_scales((const uint8_t *)at + 96, scales);
    __m128i bytes = _mm_set_epi64x((long long)scales[1], (long long)scales[0]);
    return _mm_sub_epi8(bytes, _mm_set1_epi8(32));
}

/* The third bit of a code is where the fifth of Q5_K is. */
INLINE void k_load_q3(const char *at, k_weights *w)
{
    k_spread(_mm256_cvtepi8_epi16(k_q3_scales(at)), w->scales);
    w->unit = _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at + 108)));
    __m512i high = k_twice(at);
    UNROLL for (int p = 0; p < K_PARTS; p++)
    {
        __mmask64 set = _mm512_test_epi8_mask(high, k_bits(p));
        __m512i pairs = k_pairs(at + 32, p);
        w->codes[p] = _mm512_mask_add_epi8(pairs, set, pairs, _mm512_set1_epi8(4));
    }
}

/* Types of codebook.h with blocks of 256. */
INLINE void k_load_book(pj_dtype type, const char *at, k_weights *w)
{
    book_block block;
    book_load(type, at, &block);
    k_spread(block.scales, w->scales);
    w->unit = _mm512_set1_ps(block.unit);
    UNROLL for (int p = 0; p < K_PARTS; p++) w->codes[p] = block.codes[p];
}

INLINE void k_load_weights(pj_dtype type, const char *at, k_weights *w)
{
    if (is_book(type)) {
        k_load_book(type, at, w);
        return;
    }
    switch (type) {
    case PJ_Q2_K: k_load_q2(at, w); break;
    case PJ_Q3_K: k_load_q3(at, w); break;
    default: k_load_q6(at, w);
    }
}

/* One scale per block: sums of products need none before they are floats. */
INLINE bool k_is_even(pj_dtype type)
{
    return type == PJ_TQ1_0 || type == PJ_TQ2_0;
}

INLINE void k_load_starts(pj_dtype type, k_inputs *x)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i sums[K_PARTS];
    UNROLL for (int p = 0; p < K_PARTS; p++) sums[p] =
        _mm512_dpbusd_epi32(k_is_even(type) && p % 2 ? sums[p - 1] : zero,
                            _mm512_set1_epi8(k_offset(type)), x->codes[p]);
    UNROLL for (int p = 0; p < K_PARTS; p++) x->starts[p] = _mm512_sub_epi32(zero, sums[p]);
}

INLINE void k_load_pair_inputs(const int8_t *codes, const float *scales, const int32_t *sums,
                               k_inputs *x)
{
    UNROLL for (int p = 0; p < K_PARTS; p++)
    {
        const __m256i *at = (const __m256i *)(const void *)(codes + 32 * p);
        x->codes[p] = k_halves(_mm256_loadu_si256(at), _mm256_loadu_si256(at + 4));
    }
    __m256 each = _mm256_set1_ps(scales[0]), other = _mm256_set1_ps(scales[4]);
    x->sixteens = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    x->sixteens_scales = _mm256_blend_ps(each, other, 0xf0);
    x->scales[0] = _mm512_mul_ps(k_two(each, other), _mm512_set1_ps(0.25f));
}

INLINE void k_load_inputs(pj_dtype type, const int8_t *codes, const float *scales,
                          const int32_t *sums, k_inputs *x)
{
    if (type == PJ_Q2_K) {
        k_load_pair_inputs(codes, scales, sums, x);
        return;
    }
    x->scales[0] = _mm512_set1_ps(scales[0]);
    x->scales[1] = _mm512_set1_ps(scales[4]);
    x->sub_scales = _mm256_loadu_ps(scales);
    UNROLL for (int p = 0; p < K_PARTS; p++)
    {
        x->codes[p] = k_load(codes + 64 * p);
    }
    if (!k_has_minima(type)) {
        k_load_starts(type, x);
        return;
    }
    UNROLL for (int h = 0; h < 2; h++)
    {
        __m512i a = x->codes[2 * h], b = x->codes[2 * h + 1];
        x->codes[2 * h] = _mm512_shuffle_i64x2(a, b, 0x44);
        x->codes[2 * h + 1] = _mm512_shuffle_i64x2(a, b, 0xee);
    }
    __m256 sum = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)sums));
    sum = _mm256_mul_ps(sum, _mm256_set1_ps(1.0f / PJ_Q8_OFFSET));
    x->sums = _mm512_zextps256_ps512(_mm256_mul_ps(sum, x->sub_scales));
}

/* acc + the products of a block of Q4_K or Q5_K. */
INLINE __m512 k_add_nibbles(const k_nibbles *w, const k_inputs *x, __m512 acc)
{
    __m512 scales = _mm512_castps256_ps512(_mm256_mul_ps(w->scales, x->sub_scales));
    UNROLL for (int p = 0; p < K_PARTS; p++)
    {
        int first = p / 2 * 4 + p % 2;
        __m512i lanes = k_halves(_mm256_set1_epi32(first), _mm256_set1_epi32(first + 2));
        __m512i product = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w->codes[p], x->codes[p]);
        acc =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), _mm512_permutexvar_ps(lanes, scales), acc);
    }
    return _mm512_fmadd_ps(_mm512_zextps256_ps512(w->minima), x->sums, acc);
}

/* The same of Q2_K. */
INLINE __m512 k_add_pairs(const k_pair_weights *w, const k_inputs *x, __m512 acc)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i fours[K_PARTS], sum;
    UNROLL for (int p = 0; p < K_PARTS; p++) fours[p] =
        _mm512_dpbusd_epi32(zero, w->codes[p], x->codes[p]);
    sum = _mm512_dpwssd_epi32(zero, _mm512_packs_epi32(fours[0], fours[2]), w->scales[0]);
    sum = _mm512_dpwssd_epi32(_mm512_slli_epi32(sum, 2), _mm512_packs_epi32(fours[1], fours[3]),
                              w->scales[1]);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(w->unit, x->scales[0]), acc);
    __m256 minima = _mm256_cvtepi32_ps(_mm256_madd_epi16(x->sixteens, w->minima));
    __m256 unit = _mm256_mul_ps(w->minima_unit, x->sixteens_scales);
    return _mm512_fnmadd_ps(_mm512_zextps256_ps512(minima), _mm512_zextps256_ps512(unit), acc);
}

/* The same of another type with sixteen scales. */
INLINE __m512 k_add(pj_dtype type, const k_weights *w, const k_inputs *x, __m512 acc)
{
    __m512 scaled = _mm512_setzero_ps();
    const __m512i zero = _mm512_setzero_si512();
    UNROLL for (int h = 0; h < K_HALVES; h++)
    {
        __m512i fours[2], sum;
        UNROLL for (int i = 0; i < 2; i++) fours[i] =
            _mm512_dpbusd_epi32(k_is_even(type) && !i ? x->starts[2 * h + 1]
                                : k_is_even(type)     ? fours[0]
                                                      : x->starts[2 * h + i],
                                w->codes[2 * h + i], x->codes[2 * h + i]);
        sum = k_is_even(type)
                  ? fours[1]
                  : _mm512_dpwssd_epi32(zero, _mm512_packs_epi32(fours[0], fours[1]), w->scales[h]);
        scaled = h ? _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), x->scales[h], scaled)
                   : _mm512_mul_ps(_mm512_cvtepi32_ps(sum), x->scales[h]);
    }
    return _mm512_fmadd_ps(scaled, w->unit, acc);
}

/* S rows times T tokens, which start at `token`. */
INLINE void k_dot_rows(pj_dtype type, const pj_dot *d, size_t token, const char *const *rows,
                       float result[K_STREAMS][K_TOKENS], const size_t S, const size_t T)
{
    const pj_packed *p = d->x;
    size_t ahead = d->ahead, blocks = p->cols / PJ_Q8_BLOCK;
    const size_t bytes = pj_blocks_k_bytes(type);
    const int8_t *codes = (const int8_t *)p->values + token * p->cols;
    const float *scales = p->scales + token * blocks;
    const int32_t *sums = p->sums + token * blocks;
    __m512 acc[K_STREAMS][K_TOKENS];
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        _mm512_setzero_ps();
    for (size_t b = 0; b < p->cols / K_COLUMNS; b++) {
        k_inputs x[K_TOKENS];
        UNROLL for (size_t t = 0; t < T; t++)
            k_load_inputs(type, codes + t * p->cols + b * K_COLUMNS, scales + t * blocks + 8 * b,
                          sums + t * blocks + 8 * b, &x[t]);
        UNROLL for (size_t s = 0; s < S; s++)
        {
            const char *at = rows[s] + b * bytes;
            for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + ahead + line);
            if (k_has_minima(type)) {
                k_nibbles w;
                k_load_nibbles(type, at, &w);
                UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
                    k_add_nibbles(&w, &x[t], acc[s][t]);
                continue;
            }
            if (type == PJ_Q2_K) {
                k_pair_weights w;
                k_load_pairs(at, &w);
                UNROLL for (size_t t = 0; t < T; t++) acc[s][t] = k_add_pairs(&w, &x[t], acc[s][t]);
                continue;
            }
            k_weights w;
            k_load_weights(type, at, &w);
            UNROLL for (size_t t = 0; t < T; t++) acc[s][t] = k_add(type, &w, &x[t], acc[s][t]);
        }
    }
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) result[s][t] =
        _mm512_reduce_add_ps(acc[s][t]);
}

INLINE void k_dot_group(const pj_dot *d, pj_dtype type, size_t row, size_t apart, const size_t S)
{
    const pj_matrix *w = d->weights;
    const char *rows[K_STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) rows[s] =
        (const char *)w->data + (row + s * apart) * w->row_bytes;
    for (size_t t = 0; t < d->x->tokens;) {
        size_t left = d->x->tokens - t, done = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        float sums[K_STREAMS][K_TOKENS];
        if (done == 4)
            k_dot_rows(type, d, t, rows, sums, S, 4);
        else if (done == 2)
            k_dot_rows(type, d, t, rows, sums, S, 2);
        else
            k_dot_rows(type, d, t, rows, sums, S, 1);
        for (size_t s = 0; s < S; s++)
            for (size_t i = 0; i < done; i++)
                d->y[(t + i) * d->y_stride + row + s * apart] =
                    sums[s][i] + (d->bias ? d->bias[row + s * apart] : 0);
        t += done;
    }
}

#include "engine/kernels/k_dot.h"

/* ---- many tokens ------------------------------------------------------------------------ */

enum {
    K_MIDDLE = 256 * PJ_Q8_OFFSET + 128, /* of a new code in 256ths; rounds */
    K_FACTORS = 4
};

/* Factors and offsets that turn a block's codes into bytes with a new scale. */
typedef struct k_anew {
    __m128i ratios, offsets; /* words, 256ths of a new code; those are unsigned */
} k_anew;

/* Scales for new codes of two blocks of sub-blocks, whose values are scale x code - minimum. The
 * larger end of the range may become 127, at a rounding error of 0.29 of the new scale. Where the
 * scale is a multiple of the new one and the minimum is nearly so, the error is what the minimum
 * lacks: the best of the K_FACTORS largest factors leaves a third of it. Quotients that only choose
 * are estimates. */
INLINE __m512 k_new_scales(__m512 scale, __m512 minimum, float last_code)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    __m512 last = _mm512_fmsub_ps(scale, _mm512_set1_ps(last_code), minimum);
    /* the second is the result where one is NaN */
    __m512 largest = _mm512_max_ps(_mm512_andnot_ps(sign, minimum), _mm512_andnot_ps(sign, last));
    __m512 whole = _mm512_mul_ps(largest, _mm512_set1_ps(1.0f / 127));
    __m512 inverse = _mm512_rcp14_ps(scale);
    __m512 shift = _mm512_mul_ps(minimum, inverse);
    __m512 error = _mm512_mul_ps(_mm512_andnot_ps(sign, inverse), whole); /* in scales */
    __m512 most = _mm512_rcp14_ps(error);
    most = _mm512_roundscale_ps(most, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    /* the least error with its factor's number in the last bits; what is not a number or negative,
     * as with factors below one, is more as an integer */
    const __m512i number = _mm512_set1_epi32(15);
    __m512i best = _mm512_castps_si512(_mm512_mul_ps(error, _mm512_set1_ps(0.29f)));
    best = _mm512_or_si512(best, number);
    UNROLL for (int i = 0; i < K_FACTORS; i++)
    {
        __m512 factor = _mm512_sub_ps(most, _mm512_set1_ps((float)i));
        __m512 lack = _mm512_reduce_ps(_mm512_mul_ps(factor, shift), 0);
        lack = _mm512_mul_ps(_mm512_andnot_ps(sign, lack), _mm512_rcp14_ps(factor));
        __m512i one = _mm512_ternarylogic_epi32(number, _mm512_castps_si512(lack),
                                                _mm512_set1_epi32(i), 0xae); /* ~a & b | c */
        best = _mm512_min_epu32(best, one);
    }
    best = _mm512_and_si512(best, number);
    __mmask16 some = _mm512_cmp_ps_mask(whole, _mm512_setzero_ps(), _CMP_GT_OQ);
    __mmask16 better = _mm512_mask_cmplt_epi32_mask(some, best, _mm512_set1_epi32(K_FACTORS));
    return _mm512_mask_div_ps(whole, better, scale, _mm512_sub_ps(most, _mm512_cvtepi32_ps(best)));
}

/* Two blocks; scales are 8 per block. */
INLINE void k_code_anew(pj_dtype type, const char *const at[2], float *const scales[2],
                        k_anew *const anew[2])
{
    __m256 scale[2], minimum[2];
    UNROLL for (int i = 0; i < 2; i++) k_minima(at[i], &scale[i], &minimum[i]);
    __m512 from = k_two(scale[0], scale[1]), less = k_two(minimum[0], minimum[1]);
    __m512 to = k_new_scales(from, less, type == PJ_Q4_K ? 15 : 31);
    _mm256_storeu_ps(scales[0], _mm512_castps512_ps256(to));
    _mm256_storeu_ps(scales[1], _mm512_extractf32x8_ps(to, 1));
    __mmask16 some = _mm512_cmp_ps_mask(to, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    __m512 inverse = _mm512_maskz_rcp14_ps(some, _mm512_mul_ps(to, _mm512_set1_ps(1.0f / 256)));
    __m512i ratios = _mm512_cvtps_epi32(_mm512_mul_ps(from, inverse));
    __m512i offsets = _mm512_cvtps_epi32(_mm512_mul_ps(less, inverse));
    offsets = _mm512_sub_epi32(_mm512_set1_epi32(K_MIDDLE), offsets);
    __m256i ratio_words = _mm512_cvtepi32_epi16(ratios);
    __m256i offset_words = _mm512_cvtepi32_epi16(offsets);
    *anew[0] = (k_anew){_mm256_castsi256_si128(ratio_words), _mm256_castsi256_si128(offset_words)};
    *anew[1] = (k_anew){_mm256_extracti128_si256(ratio_words, 1),
                        _mm256_extracti128_si256(offset_words, 1)};
}

/* Codes times ratios plus offsets, in 256ths and words per pair of columns; sums wrap to the
 * unsigned result. */
INLINE __m512i k_codes_anew(__m512i codes, __m512i ratio, __m512i offset)
{
    __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(255));
    __m512i odd = _mm512_srli_epi16(codes, 8);
    even = _mm512_srli_epi16(_mm512_add_epi16(_mm512_mullo_epi16(even, ratio), offset), 8);
    odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, ratio), offset);
    return _mm512_or_si512(even, _mm512_and_si512(odd, _mm512_set1_epi16((short)0xff00)));
}

/* The same for sub-blocks `first` and first + 2. */
INLINE __m512i k_nibbles_anew(__m512i codes, const k_anew *anew, const int first)
{
    __m512i lanes =
        k_halves(_mm256_set1_epi16((short)first), _mm256_set1_epi16((short)(first + 2)));
    return k_codes_anew(codes,
                        _mm512_permutexvar_epi16(lanes, _mm512_castsi128_si512(anew->ratios)),
                        _mm512_permutexvar_epi16(lanes, _mm512_castsi128_si512(anew->offsets)));
}

INLINE void k_store_anew(pj_dtype type, const char *at, const k_anew *anew, char *to)
{
    __m512i codes[K_PARTS];
    k_load_codes(type, at, 1, codes);
    UNROLL for (int h = 0; h < 2; h++)
    {
        __m512i low = k_nibbles_anew(codes[2 * h], anew, 4 * h);
        __m512i high = k_nibbles_anew(codes[2 * h + 1], anew, 4 * h + 1);
        _mm512_storeu_si512(to + 128 * h, _mm512_shuffle_i64x2(low, high, 0x44));
        _mm512_storeu_si512(to + 128 * h + 64, _mm512_shuffle_i64x2(low, high, 0xee));
    }
}

/* One scale per 32 columns and no minima, whose products would take each tile as long as those of
 * the scales. Choosing scales is a long chain: those of some blocks overlap before their codes. */
INLINE void k_unpack_minima(pj_dtype type, const void *row, size_t cols, char *to, float *scales)
{
    enum { GROUP = 8 };
    const char *at = row;
    const size_t bytes = type == PJ_Q4_K ? 144 : 176;
    for (size_t left = cols / K_COLUMNS; left;) {
        k_anew anew[GROUP];
        size_t group = left < GROUP ? left : GROUP;
        for (size_t line = 0; line < group * bytes; line += 64)
            __builtin_prefetch(at + K_AHEAD_BYTES + line);
        for (size_t b = 0; b < group; b += 2) {
            size_t c = b + 1 < group ? b + 1 : b;
            k_code_anew(type, (const char *const[]){at + b * bytes, at + c * bytes},
                        (float *const[]){scales + 8 * b, scales + 8 * c},
                        (k_anew *const[]){&anew[b], &anew[c]});
        }
        scales += 8 * group;
        for (size_t b = 0; b < group; b++, at += bytes, to += K_COLUMNS)
            k_store_anew(type, at, &anew[b], to);
        left -= group;
    }
}

/* Spreads sixteen words, of sixteen columns each, over the pairs of columns of every part. */
INLINE void k_spread_pairs(__m256i words, __m512i parts[K_PARTS])
{
    UNROLL for (int p = 0; p < K_PARTS; p++)
    {
        short first = (short)(4 * p);
        __m128i a = _mm_set1_epi16(first), b = _mm_set1_epi16((short)(first + 1));
        __m128i c = _mm_set1_epi16((short)(first + 2)), d = _mm_set1_epi16((short)(first + 3));
        __m512i index = k_halves(_mm256_set_m128i(b, a), _mm256_set_m128i(d, c));
        parts[p] = _mm512_permutexvar_epi16(index, _mm512_castsi256_si512(words));
    }
}

/* Sixteen scales reduced to eight for 32 columns each, and the factors of each sixteen codes (over
 * 256): see pj_codes_q6_k. */
INLINE __m256i k_ratios(const char *at, float *scales)
{
    __m512 each = _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(at + 192))));
    /* compared as integers whose last bit is the sign */
    __m512i turned = _mm512_rol_epi32(_mm512_castps_si512(each), 1);
    turned = _mm512_max_epu32(turned, _mm512_shuffle_epi32(turned, 0xb1)); /* of neighbours */
    __m512 larger = _mm512_castsi512_ps(_mm512_ror_epi32(turned, 1));
    __mmask16 some = _mm512_test_epi32_mask(turned, turned);
    __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(4 * 256), larger);
    __m512 unit = _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at + 208)) / 4);
    __m512 pairs = _mm512_maskz_compress_ps(0x5555, _mm512_mul_ps(larger, unit));
    _mm256_storeu_ps(scales, _mm512_castps512_ps256(pairs));
    __m512i ratios = _mm512_cvtps_epi32(_mm512_mul_ps(each, inverse));
    return _mm512_cvtepi32_epi16(_mm512_max_epi32(ratios, _mm512_set1_epi32(-4 * 254)));
}

static void unpack_q6_k(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += 210, to += K_COLUMNS) {
        k_weights w;
        for (size_t line = 0; line < 210; line += 64) __builtin_prefetch(at + K_AHEAD_BYTES + line);
        k_load_q6(at, &w);
        __m256i each = k_ratios(at, scales + 8 * b);
        __m512i ratios[K_PARTS], offsets[K_PARTS];
        k_spread_pairs(each, ratios);
        each = _mm256_sub_epi16(_mm256_set1_epi16((short)K_MIDDLE), _mm256_slli_epi16(each, 5));
        k_spread_pairs(each, offsets);
        UNROLL for (int p = 0; p < K_PARTS; p++)
            _mm512_storeu_si512(to + 64 * p, k_codes_anew(w.codes[p], ratios[p], offsets[p]));
    }
}

/* Codes of -4 to 3 times six-bit scales fit a byte if the sign is flipped. */
static void unpack_q3_k(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += 110, to += K_COLUMNS) {
        k_weights w;
        for (size_t line = 0; line < 110; line += 64) __builtin_prefetch(at + K_AHEAD_BYTES + line);
        k_load_q3(at, &w);
        __m512i each = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(k_q3_scales(at)));
        _mm256_storeu_ps(scales + 8 * b,
                         _mm512_castps512_ps256(_mm512_sub_ps(_mm512_setzero_ps(), w.unit)));
        UNROLL for (int p = 0; p < K_PARTS; p++)
        {
            __m256i half[2] = {_mm512_castsi512_si256(w.codes[p]),
                               _mm512_extracti64x4_epi64(w.codes[p], 1)};
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m512i scale = _mm512_permutexvar_epi16(
                    k_index(4 * p + 2 * h, 4 * p + 2 * h, 4 * p + 2 * h + 1, 4 * p + 2 * h + 1, 0),
                    each);
                __m512i words =
                    _mm512_sub_epi16(_mm512_set1_epi16(4), _mm512_cvtepu8_epi16(half[h]));
                words = _mm512_mullo_epi16(words, scale);
                words = _mm512_add_epi16(words, _mm512_set1_epi16(PJ_Q8_OFFSET));
                _mm256_storeu_si256((__m256i *)(void *)(to + 64 * p + 32 * h),
                                    _mm512_cvtepi16_epi8(words));
            }
        }
    }
}

/* Sixteen columns become codes of a scale that 32 share, see pj_codes_q2_k. */
INLINE __m128i k_q2_codes(__m128i codes, float scale, float minimum)
{
    __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
    values = _mm512_fmsub_ps(values, _mm512_set1_ps(scale), _mm512_set1_ps(minimum));
    __m512i bytes = _mm512_add_epi32(_mm512_cvtps_epi32(values), _mm512_set1_epi32(PJ_Q8_OFFSET));
    return _mm512_cvtepi32_epi8(bytes);
}

/* Scales of 32 columns, and the steps and minima of sixteen in units of them. */
INLINE void k_q2_units(const char *at, float *scales, float steps[16], float lows[16])
{
    __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
    __m512 d = _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at + 80)));
    __m512 dmin = _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at + 82)));
    __m512 step =
        _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
    __m512 low = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
    __m512 last = _mm512_fmsub_ps(step, _mm512_set1_ps(3), low); /* values rise or fall evenly */
    __m512 largest = _mm512_max_ps(_mm512_abs_ps(last), _mm512_abs_ps(low));
    largest = _mm512_max_ps(largest, _mm512_permute_ps(largest, 0xb1)); /* of neighbours */
    __mmask16 some = _mm512_cmp_ps_mask(largest, _mm512_setzero_ps(), _CMP_GT_OQ);
    __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(127), largest);
    _mm512_storeu_ps(steps, _mm512_mul_ps(step, inverse));
    _mm512_storeu_ps(lows, _mm512_mul_ps(low, inverse));
    /* a NaN scale makes the block's values NaN */
    __m512 unit = _mm512_fmadd_ps(largest, _mm512_set1_ps(1.0f / 127),
                                  _mm512_mul_ps(_mm512_add_ps(d, dmin), _mm512_setzero_ps()));
    _mm256_storeu_ps(scales, _mm512_castps512_ps256(_mm512_maskz_compress_ps(0x5555, unit)));
}

static void unpack_q2_k(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += 84, to += K_COLUMNS) {
        float steps[16], lows[16];
        for (size_t line = 0; line < 84; line += 64) __builtin_prefetch(at + K_AHEAD_BYTES + line);
        k_q2_units(at, scales + 8 * b, steps, lows);
        UNROLL for (int p = 0; p < K_PARTS; p++)
        {
            __m512i codes = k_pairs(at + 16, p);
            __m128i part[4] = {_mm512_castsi512_si128(codes), _mm512_extracti32x4_epi32(codes, 1),
                               _mm512_extracti32x4_epi32(codes, 2),
                               _mm512_extracti32x4_epi32(codes, 3)};
            UNROLL for (int q = 0; q < 4; q++)
                _mm_storeu_si128((__m128i *)(void *)(to + 64 * p + 16 * q),
                                 k_q2_codes(part[q], steps[4 * p + q], lows[4 * p + q]));
        }
    }
}

/* 64 columns of codes with `offset` and a scale per sixteen become codes of scales that 32 share:
 * those of the larger are multiplied by `factor`, without an error. `unit` may have any sign. */
INLINE void book_anew(__m512i codes, __m128 each, float unit, const int offset, const int factor,
                      char *to, float *scales)
{
    __m128 larger = _mm_max_ps(each, _mm_shuffle_ps(each, each, 0xb1));
    __mmask8 some = _mm_cmp_ps_mask(larger, _mm_setzero_ps(), _CMP_GT_OQ);
    __m128 inverse = _mm_maskz_div_ps(some, _mm_set1_ps((float)factor * 256), larger);
    __m512i ratios = _mm512_castsi128_si512(_mm_cvtps_epi32(_mm_mul_ps(each, inverse)));
    __m512i ratio = _mm512_permutexvar_epi16(k_index(0, 2, 4, 6, 0), ratios);
    __m512i offsets = _mm512_sub_epi16(_mm512_set1_epi16((short)K_MIDDLE),
                                       _mm512_mullo_epi16(ratio, _mm512_set1_epi16((short)offset)));
    _mm512_storeu_si512(to, k_codes_anew(codes, ratio, offsets));
    __m128 units = _mm_mul_ps(larger, _mm_set1_ps(unit / (float)factor));
    _mm_storel_pi((__m64 *)(void *)scales, _mm_shuffle_ps(units, units, 0x88));
}

INLINE void unpack_book(pj_dtype type, const char *at, size_t cols, char *to, float *scales)
{
    const size_t bytes = pj_blocks_k_bytes(type);
    const int offset = book_offset(type);
    const int factor = offset == BOOK_SIGNED ? type == PJ_IQ3_S ? 8 : 2
                       : offset == 1         ? 63 /* TQ2_0 has a value of 2 */
                                             : 14;
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += bytes, to += K_COLUMNS, scales += 8) {
        book_block block;
        for (size_t line = 0; line < bytes; line += 64)
            __builtin_prefetch(at + K_AHEAD_BYTES + line);
        book_load(type, at, &block);
        __m512 each = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(block.scales));
        UNROLL for (int p = 0; p < K_PARTS; p++) book_anew(
            block.codes[p],
            _mm512_castps512_ps128(_mm512_maskz_compress_ps((__mmask16)(15 << 4 * p), each)),
            block.unit, offset, factor, to + 64 * p, scales + 2 * p);
    }
}

#define UNPACK_BOOK(name, type)                                                          \
    static void unpack_##name(const void *row, size_t cols, void *values, float *scales, \
                              float *minima)                                             \
    {                                                                                    \
        unpack_book(PJ_##type, row, cols, values, scales);                               \
    }
UNPACK_BOOK(iq1_s, IQ1_S)
UNPACK_BOOK(iq1_m, IQ1_M)
UNPACK_BOOK(iq2_xxs, IQ2_XXS)
UNPACK_BOOK(iq2_xs, IQ2_XS)
UNPACK_BOOK(iq2_s, IQ2_S)
UNPACK_BOOK(iq3_xxs, IQ3_XXS)
UNPACK_BOOK(iq3_s, IQ3_S)
UNPACK_BOOK(tq1_0, TQ1_0)
UNPACK_BOOK(tq2_0, TQ2_0)

static void unpack_q4_k(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    k_unpack_minima(PJ_Q4_K, row, cols, values, scales);
}

static void unpack_q5_k(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    k_unpack_minima(PJ_Q5_K, row, cols, values, scales);
}

#endif
