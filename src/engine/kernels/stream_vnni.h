/* One panel (7 to 48 tokens) times stored rows on AVX-512 VNNI. With 16 tokens, four codes are used
 * by one instruction, and unpacking a block of rows first would take as long as its products: here
 * a row's next 256 columns are unpacked into L1 while the current ones of all rows are multiplied,
 * so that both overlap, and so does reading from memory. Codes keep the offset that they are stored
 * with, and minima and scales per 16 columns are exact rather than avoided by other codes
 * (k_vnni.h). Included only by vnni.c. */
#ifndef PJ_KERNELS_STREAM_VNNI_H
#define PJ_KERNELS_STREAM_VNNI_H

#include "engine/kernels/k_vnni.h"

enum {
    STREAM_ROWS = 8, /* one is unpacked per block of 32 columns */
    STREAM_VECTORS = 3,
    STREAM_COLUMNS = 256,
    STREAM_BLOCKS = STREAM_COLUMNS / PJ_Q8_BLOCK
};

/* 256 columns of each row. */
typedef struct stream_codes {
    _Alignas(64) char codes[STREAM_ROWS][STREAM_COLUMNS];
    float scales[STREAM_ROWS][2 * STREAM_BLOCKS]; /* one per block, or two: stream_layout */
    float minima[STREAM_ROWS][2 * STREAM_BLOCKS];
} stream_codes;

typedef struct stream_layout {
    size_t bytes; /* of 256 columns */
    int offset;   /* a code less this is the value before scaling */
    int minima;   /* 1: subtracted, -1: added, 0: none */
    bool halves;  /* scales, and minima, per 16 columns */
} stream_layout;

/* `type` is a constant wherever this is called, and folds away. */
INLINE stream_layout stream_layout_of(pj_dtype type)
{
    const lane_layout l = lane_layout_of(type);
    const size_t bytes = pj_blocks_k_bytes(type);
    if (is_book(type)) return (stream_layout){bytes, .offset = book_offset(type), .halves = true};
    switch (type) {
    case PJ_NVFP4: return (stream_layout){144, .offset = two_offset(type), .halves = true};
    case PJ_Q1_0: return (stream_layout){36, .offset = two_offset(type)};
    case PJ_Q8_0: return (stream_layout){272, .offset = 128};
    case PJ_Q4_K:
    case PJ_Q5_K: return (stream_layout){bytes, .minima = 1};
    case PJ_Q2_K: return (stream_layout){bytes, .minima = 1, .halves = true};
    case PJ_Q3_K: return (stream_layout){bytes, .offset = 4, .halves = true};
    case PJ_Q6_K: return (stream_layout){bytes, .offset = 32, .halves = true};
    case PJ_IQ4_XS: return (stream_layout){bytes, .offset = l.offset};
    default: return (stream_layout){8 * l.bytes, l.offset, l.minima ? -1 : 0};
    }
}

/* ---- unpacking -------------------------------------------------------------------------- */

/* Words `apart` from each other, of `count` blocks, as floats. General registers gather them: the
 * products leave those to spare. */
INLINE void stream_words(const char *at, size_t apart, size_t count, float *to)
{
    uint64_t words[2] = {0};
    UNROLL for (size_t b = 0; b < count; b++) words[b / 4] |= (uint64_t)pj_load_u16(at + b * apart)
                                                              << b % 4 * 16;
    __m128i both = _mm_set_epi64x((long long)words[1], (long long)words[0]);
    _mm256_storeu_ps(to, _mm256_cvtph_ps(both));
}

INLINE void stream_store(char *to, __m256i codes)
{
    _mm256_storeu_si256((__m256i *)(void *)to, codes);
}

INLINE void stream_unpack_q8_0(const char *at, size_t blocks, char *to, float *scales)
{
    stream_words(at, Q8_BYTES, blocks, scales);
    UNROLL for (size_t b = 0; b < blocks; b++, at += Q8_BYTES, to += 32)
    {
        __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(at + 2));
        stream_store(to, _mm256_xor_si256(codes, _mm256_set1_epi8((char)PJ_Q8_OFFSET)));
    }
}

/* Types of lane_blocks.h: sixteen bytes of nibbles per block. */
INLINE void stream_unpack_nibbles(pj_dtype type, const char *at, size_t blocks, char *to,
                                  float *scales, float *minima)
{
    const lane_layout l = lane_layout_of(type);
    const __m128i nibble = _mm_set1_epi8(15);
    if (type == PJ_IQ4_XS) {
        __m256i each = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lane_xs_scales(at)));
        each = _mm256_sub_epi32(each, _mm256_set1_epi32(32));
        _mm256_storeu_ps(scales, _mm256_mul_ps(_mm256_cvtepi32_ps(each),
                                               _mm256_set1_ps(_cvtsh_ss(pj_load_u16(at)))));
    } else if (type == PJ_MXFP4) {
        UNROLL for (size_t b = 0; b < blocks; b++) scales[b] =
            pj_blocks_mxfp4_scale((uint8_t)at[b * l.bytes]);
    } else {
        stream_words(at, l.bytes, blocks, scales);
    }
    if (l.minima) stream_words(at + 2, l.bytes, blocks, minima);
    UNROLL for (size_t b = 0; b < blocks; b++, at += l.bytes, to += 32)
    {
        __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(at + l.nibbles));
        __m128i high = _mm_and_si128(_mm_srli_epi16(low, 4), nibble);
        low = _mm_and_si128(low, nibble);
        if (l.levels) {
            __m128i table = _mm512_castsi512_si128(lane_table(l));
            low = _mm_shuffle_epi8(table, low), high = _mm_shuffle_epi8(table, high);
        } else if (l.fifth) {
            const __m128i sixteen = _mm_set1_epi8(16);
            low = _mm_mask_add_epi8(low, pj_load_u16(at + l.fifth), low, sixteen);
            high = _mm_mask_add_epi8(high, pj_load_u16(at + l.fifth + 2), high, sixteen);
        }
        _mm_storeu_si128((__m128i *)(void *)to, low);
        _mm_storeu_si128((__m128i *)(void *)(to + 16), high);
    }
}

/* Q4_K and Q5_K. */
INLINE void stream_unpack_k(pj_dtype type, const char *at, char *to, float *scales, float *minima)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const char *nibbles = at + (type == PJ_Q4_K ? 16 : 48);
    __m256 scale, minimum;
    k_minima(at, &scale, &minimum);
    _mm256_storeu_ps(scales, scale);
    _mm256_storeu_ps(minima, minimum);
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(at + 16));
    UNROLL for (int j = 0; j < STREAM_BLOCKS; j++)
    {
        __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(nibbles + j / 2 * 32));
        codes = _mm256_and_si256(j % 2 ? _mm256_srli_epi16(codes, 4) : codes, nibble);
        if (type == PJ_Q5_K) {
            __m256i bit = j < 4 ? _mm256_slli_epi16(high, 4 - j) : _mm256_srli_epi16(high, j - 4);
            codes = _mm256_ternarylogic_epi32(codes, bit, _mm256_set1_epi8(16), 0xf8);
        }
        stream_store(to + 32 * j, codes);
    }
}

/* Q2_K, Q3_K and Q6_K. */
INLINE void stream_unpack_sixteens(pj_dtype type, const char *at, char *to, float *scales,
                                   float *minima)
{
    k_weights w;
    k_load_weights(type, at, &w);
    __m128i bytes =
        type == PJ_Q3_K
            ? k_q3_scales(at)
            : _mm_loadu_si128((const __m128i *)(const void *)(at + (type == PJ_Q2_K ? 0 : 192)));
    if (type == PJ_Q2_K) {
        const __m128i nibble = _mm_set1_epi8(15);
        __m512i lows = _mm512_cvtepi8_epi32(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
        _mm512_storeu_ps(
            minima, _mm512_mul_ps(_mm512_cvtepi32_ps(lows), _mm512_broadcastss_ps(w.minima_unit)));
        bytes = _mm_and_si128(bytes, nibble);
    }
    __m512 each = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    _mm512_storeu_ps(scales, _mm512_mul_ps(each, w.unit));
    UNROLL for (int p = 0; p < K_PARTS; p++) _mm512_storeu_si512(to + 64 * p, w.codes[p]);
}

/* Types of codebook.h with blocks of 256. */
INLINE void stream_unpack_book(pj_dtype type, const char *at, char *to, float *scales)
{
    book_block block;
    book_load(type, at, &block);
    __m512 each = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(block.scales));
    _mm512_storeu_ps(scales, _mm512_mul_ps(each, _mm512_set1_ps(block.unit)));
    UNROLL for (int p = 0; p < K_PARTS; p++) _mm512_storeu_si512(to + 64 * p, block.codes[p]);
}

INLINE void stream_unpack_two(pj_dtype type, const char *at, size_t blocks, char *to, float *scales)
{
    UNROLL for (size_t b = 0; b < blocks; b += 2, to += 64)
    {
        const char *two = at + two_place(type, b);
        _mm512_storeu_si512(to, two_codes(type, two, b));
        if (type == PJ_NVFP4)
            _mm_storeu_ps(scales + 2 * b, nvfp4_scales(two));
        else
            scales[b] = scales[b + 1] = _cvtsh_ss(pj_load_u16(two));
    }
}

/* Whether the last columns of a row may be fewer than 256. */
INLINE bool stream_has_rest(pj_dtype type)
{
    switch (type) {
    case PJ_Q8_0:
    case PJ_Q4_0:
    case PJ_Q4_1:
    case PJ_Q5_0:
    case PJ_Q5_1:
    case PJ_IQ4_NL:
    case PJ_MXFP4:
    case PJ_NVFP4:
    case PJ_Q1_0: return true;
    default: return false;
    }
}

/* Up to 256 columns of row `r`. */
INLINE void stream_unpack(pj_dtype type, const char *at, size_t blocks, stream_codes *to, size_t r)
{
    char *codes = to->codes[r];
    float *scales = to->scales[r], *minima = to->minima[r];
    if (is_book(type)) {
        stream_unpack_book(type, at, codes, scales);
        return;
    }
    switch (type) {
    case PJ_NVFP4:
    case PJ_Q1_0: stream_unpack_two(type, at, blocks, codes, scales); break;
    case PJ_Q8_0: stream_unpack_q8_0(at, blocks, codes, scales); break;
    case PJ_Q4_K:
    case PJ_Q5_K: stream_unpack_k(type, at, codes, scales, minima); break;
    case PJ_Q2_K:
    case PJ_Q3_K:
    case PJ_Q6_K: stream_unpack_sixteens(type, at, codes, scales, minima); break;
    default: stream_unpack_nibbles(type, at, blocks, codes, scales, minima);
    }
}

/* ---- products --------------------------------------------------------------------------- */

INLINE __m256i four_codes_half(const char *at)
{
    return _mm512_castsi512_si256(four_codes(at));
}

#include "engine/kernels/stream_products.h"
#define HALF
#include "engine/kernels/stream_products.h"
#undef HALF

/* Four rows of a tile: as many as registers hold where there is more than one vector. */
INLINE void stream_four(pj_dtype type, const pj_tile *t, size_t first)
{
    pj_tile four = *t;
    four.c += first * PJ_TILE_MAX_TOKENS;
    for (size_t r = 0; r < 4; r++) four.weights[r] = t->weights[first + r];
    if (t->vectors == 2)
        stream_of(type, &four, 4, 2);
    else
        stream_of(type, &four, 4, 3);
}

INLINE void stream_tile(pj_dtype type, const pj_tile *t)
{
    if (t->half) {
        stream_of_half(type, t, STREAM_ROWS, 1);
        return;
    }
    if (stream_layout_of(type).halves || t->vectors == 1) {
        stream_of(type, t, STREAM_ROWS, 1);
        return;
    }
    stream_four(type, t, 0);
    stream_four(type, t, 4);
}

/* With two scales per block, from two vectors on, rounding codes to one scale is faster. */
#define STREAM(name, type, most_)                                           \
    static void stream_##name(const pj_tile *t)                             \
    {                                                                       \
        stream_tile(PJ_##type, t);                                          \
    }                                                                       \
    static const pj_tile_kernels stream_by_##name = {.form = PJ_FORM_Q8,    \
                                                     .tile = stream_##name, \
                                                     .rows = STREAM_ROWS,   \
                                                     .stretch = 8192,       \
                                                     .unpacked_bytes = 1,   \
                                                     .direct = true,        \
                                                     .most_tokens = most_};
STREAM(q8_0, Q8_0, 48)
STREAM(q4_0, Q4_0, 48)
STREAM(q4_1, Q4_1, 48)
STREAM(q5_0, Q5_0, 48)
STREAM(q5_1, Q5_1, 48)
STREAM(iq4_nl, IQ4_NL, 48)
STREAM(iq4_xs, IQ4_XS, 48)
STREAM(mxfp4, MXFP4, 48)
STREAM(q4_k, Q4_K, 48)
STREAM(q5_k, Q5_K, 48)
STREAM(q2_k, Q2_K, 16)
STREAM(q3_k, Q3_K, 16)
STREAM(q6_k, Q6_K, 16)
STREAM(iq1_s, IQ1_S, 16)
STREAM(iq1_m, IQ1_M, 16)
STREAM(iq2_xxs, IQ2_XXS, 16)
STREAM(iq2_xs, IQ2_XS, 16)
STREAM(iq2_s, IQ2_S, 16)
STREAM(iq3_xxs, IQ3_XXS, 16)
STREAM(iq3_s, IQ3_S, 16)
STREAM(tq1_0, TQ1_0, 16)
STREAM(tq2_0, TQ2_0, 16)
STREAM(nvfp4, NVFP4, 16)
STREAM(q1_0, Q1_0, 48)

#endif
