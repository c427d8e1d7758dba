/* Types of codebook.h on AVX2: those with blocks of 256, as book_vnni.h, as codes of 32 columns and
 * sixteen scales, as k_avx2.h multiplies them; and parts of NVFP4 and Q1_0, of which bytes_avx2.h
 * and words_avx2.h make products. */
#ifndef PJ_KERNELS_BOOK_AVX2_H
#define PJ_KERNELS_BOOK_AVX2_H

#include "engine/kernels/book_bits.h"

/* ---- codes of 32 columns ---------------------------------------------------------------- */

/* All bits of the bytes whose bit is set. */
INLINE __m256i book_mask(uint32_t bits)
{
    const __m256i bytes =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), bytes);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, each), each);
}

INLINE __m128d book_two(const uint64_t *a, const uint64_t *b)
{
    __m128d low = _mm_castsi128_pd(_mm_loadl_epi64((const __m128i *)(const void *)a));
    return _mm_loadh_pd(low, (const double *)(const void *)b);
}

/* Four entries of eight columns. Loaded straight into halves of vectors: by way of an array, which
 * compilers would store, each would wait for its stores. */
INLINE __m256i book_join(const uint64_t *table, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm256_castpd_si256(
        _mm256_set_m128d(book_two(table + c, table + d), book_two(table + a, table + b)));
}

/* Signs, 1 or -1, by a bit each. */
INLINE __m256i book_signs(const uint8_t *bits)
{
    return _mm256_or_si256(book_mask(pj_blocks_u32(bits)), _mm256_set1_epi8(1));
}

/* Signs by seven bits for each eight columns. */
INLINE __m256i book_seven_signs(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return book_join(book_levels->signs, a & 127, b & 127, c & 127, d & 127);
}

INLINE __m256i book_28_signs(const uint8_t *at)
{
    uint64_t bits = pj_blocks_u32(at);
    return book_seven_signs(bits, bits >> 7, bits >> 14, bits >> 21);
}

INLINE __m256i book_iq2(pj_dtype type, const uint8_t *at, const int p, __m256i *signs)
{
    const uint8_t *part = at + 2 + (type == PJ_IQ2_S ? 4 : 8) * p;
    if (type == PJ_IQ2_XS) {
        /* at once: GCC would store words of 16 bits and load more */
        uint64_t four;
        memcpy(&four, part, sizeof four);
        *signs = book_seven_signs(four >> 9, four >> 25, four >> 41, four >> 57);
        return book_join(book_levels->iq2_xs, four & 511, four >> 16 & 511, four >> 32 & 511,
                         four >> 48 & 511);
    }
    if (type == PJ_IQ2_XXS) {
        *signs = book_28_signs(part + 4);
        return book_join(book_levels->iq2_xxs, part[0], part[1], part[2], part[3]);
    }
    uint64_t high = at[66 + p];
    *signs = book_signs(at + 34 + 4 * p);
    return book_join(book_levels->iq2_s, part[0] | (high << 8 & 0x300),
                     part[1] | (high << 6 & 0x300), part[2] | (high << 4 & 0x300),
                     part[3] | (high << 2 & 0x300));
}

/* Eight entries of four columns. */
INLINE __m256i book_fours(const uint32_t *table, const uint64_t n[8])
{
    __m128i half[2];
    UNROLL for (int i = 0; i < 2; i++)
    {
        const uint64_t *four = n + 4 * i;
        half[i] = _mm_cvtsi32_si128((int)table[four[0]]);
        half[i] = _mm_insert_epi32(half[i], (int)table[four[1]], 1);
        half[i] = _mm_insert_epi32(half[i], (int)table[four[2]], 2);
        half[i] = _mm_insert_epi32(half[i], (int)table[four[3]], 3);
    }
    return _mm256_set_m128i(half[1], half[0]);
}

INLINE __m256i book_iq3(pj_dtype type, const uint8_t *at, const int p, __m256i *signs)
{
    uint64_t n[8], eight, ninth = at[66 + p];
    memcpy(&eight, at + 2 + 8 * p, sizeof eight); /* IQ3_S is faster byte by byte */
    UNROLL for (int i = 0; i < 8; i++) n[i] =
        type == PJ_IQ3_S ? at[2 + 8 * p + i] | (ninth << (8 - i) & 256) : eight >> 8 * i & 255;
    *signs = type == PJ_IQ3_S ? book_signs(at + 74 + 4 * p) : book_28_signs(at + 66 + 4 * p);
    return book_fours(type == PJ_IQ3_S ? book_levels->iq3_s : book_levels->iq3_xxs, n);
}

INLINE __m256i book_iq1(pj_dtype type, const uint8_t *at, const int p)
{
    const bool m = type == PJ_IQ1_M;
    const uint8_t *entries = at + (m ? 0 : 2) + 4 * p;
    uint64_t rest = pj_load_u16(at + (m ? 32 : 34) + 2 * p);
    const __m256i less = m ? _mm256_setr_epi64x(0x0008000800080008, 0x0080008000800080,
                                                0x0800080008000800, (long long)0x8000800080008000)
                           : _mm256_set1_epi16((short)0x8000);
    uint64_t n[4];
    UNROLL for (int i = 0; i < 4; i++) n[i] = entries[i] | (rest >> (m ? 4 : 3) * i & 7) << 8;
    __m256i codes = book_join(book_levels->iq1, n[0], n[1], n[2], n[3]);
    __m256i up = _mm256_and_si256(_mm256_set1_epi16((short)rest), less);
    up = _mm256_cmpeq_epi16(up, _mm256_setzero_si256());
    return _mm256_add_epi8(codes, _mm256_and_si256(up, _mm256_set1_epi8(2)));
}

/* Digits of bytes that are fractions in base 3; powers, per word: of the byte's digit. */
INLINE __m256i book_digits(__m256i bytes, __m256i powers)
{
    const __m256i low = _mm256_set1_epi16(255), one = _mm256_set1_epi8(1);
    __m256i even = _mm256_and_si256(_mm256_mullo_epi16(bytes, powers), low);
    __m256i odd = _mm256_mullo_epi16(_mm256_andnot_si256(low, bytes), powers);
    __m256i x = _mm256_or_si256(even, odd);
    const __m256i first = _mm256_set1_epi8(86), second = _mm256_set1_epi8((char)171);
    __m256i some = _mm256_cmpeq_epi8(_mm256_max_epu8(x, first), x);
    __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(x, second), x);
    return _mm256_add_epi8(_mm256_and_si256(some, one), _mm256_and_si256(two, one));
}

INLINE __m256i book_tq1_0(const uint8_t *at, const int p)
{
    static const short powers[] = {1, 3, 9, 27, 81};
    if (p < 5)
        return book_digits(_mm256_loadu_si256((const __m256i *)(const void *)at),
                           _mm256_set1_epi16(powers[p < 5 ? p : 0]));
    __m128i third = _mm_loadu_si128((const __m128i *)(const void *)(at + 32));
    if (p < 7)
        return book_digits(
            _mm256_broadcastsi128_si256(third),
            _mm256_set_m128i(_mm_set1_epi16(p == 5 ? 3 : 27), _mm_set1_epi16(p == 5 ? 1 : 9)));
    __m128i last = _mm_set1_epi32((int)pj_blocks_u32(at + 48));
    return book_digits(
        _mm256_set_m128i(last, third),
        _mm256_set_m128i(_mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27), _mm_set1_epi16(81)));
}

/* Part p of a block; signs, 1 or -1, only of types that have them. */
BOOK_INLINE __m256i book_codes(pj_dtype type, const char *block, const int p, __m256i *signs)
{
    const uint8_t *at = (const uint8_t *)block;
    switch (type) {
    case PJ_IQ1_S:
    case PJ_IQ1_M: return book_iq1(type, at, p);
    case PJ_IQ3_XXS:
    case PJ_IQ3_S: return book_iq3(type, at, p, signs);
    case PJ_TQ1_0: return book_tq1_0(at, p);
    case PJ_TQ2_0: {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(at + p / 4 * 32));
        return _mm256_and_si256(_mm256_srli_epi16(bytes, p % 4 * 2), _mm256_set1_epi8(3));
    }
    default: return book_iq2(type, at, p, signs);
    }
}

/* ---- scales ----------------------------------------------------------------------------- */

/* A byte for each of eight blocks of 32, twice. */
INLINE __m128i book_pairs(uint64_t bytes)
{
    __m128i each = _mm_cvtsi64_si128((long long)bytes);
    return _mm_unpacklo_epi8(each, each);
}

/* The highest bits of eight words that are `apart` bytes from each other. */
INLINE uint64_t book_high(const uint8_t *at, size_t apart, int shift)
{
    uint64_t all = 0;
    UNROLL for (int j = 0; j < 8; j++) all |= (uint64_t)(at[apart * j] >> shift) << 8 * j;
    return all;
}

/* Four times three bits of each of four words, one per byte. */
INLINE __m128i book_threes(uint64_t words)
{
    const __m128i spread = _mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3);
    const __m128i places =
        _mm_setr_epi16(1 << 13, 1 << 10, 1 << 7, 1 << 4, 1 << 13, 1 << 10, 1 << 7, 1 << 4);
    __m128i low = _mm_shuffle_epi8(_mm_cvtsi64_si128((long long)words), spread);
    __m128i high = _mm_shuffle_epi8(_mm_cvtsi64_si128((long long)(words >> 32)), spread);
    return _mm_packus_epi16(_mm_srli_epi16(_mm_mullo_epi16(low, places), 13),
                            _mm_srli_epi16(_mm_mullo_epi16(high, places), 13));
}

/* The sixteen scales, bytes of k_avx2.h's header, and what one of them is. */
BOOK_INLINE __m128i book_scales(pj_dtype type, const char *block, float *unit)
{
    const uint8_t *at = (const uint8_t *)block;
    uint64_t low = 0, high = 0, words;
    *unit = _cvtsh_ss(pj_load_u16(at + (type == PJ_TQ1_0 ? 52 : type == PJ_TQ2_0 ? 64 : 0)));
    if (type == PJ_TQ1_0 || type == PJ_TQ2_0) return _mm_set1_epi8(1);
    __m128i each;
    switch (type) {
    case PJ_IQ2_XXS: each = book_pairs(book_high(at + 9, 8, 4)), *unit /= 8; break;
    case PJ_IQ3_XXS: each = book_pairs(book_high(at + 69, 4, 4)), *unit /= 4; break;
    case PJ_IQ3_S: each = book_pairs(pj_blocks_nibbles(pj_blocks_u32(at + 106))); break;
    case PJ_IQ1_S:
        each = book_pairs(book_high(at + 35, 2, 4) & 0x0707070707070707), *unit /= 8;
        break;
    case PJ_IQ1_M:
        memcpy(&words, at + 48, sizeof words);
        *unit = _cvtsh_ss((unsigned short)((words >> 12 & 15) | (words >> 24 & 0xf0) |
                                           (words >> 36 & 0xf00) | (words >> 48 & 0xf000))) /
                8;
        each = book_threes(words);
        break;
    default:
        memcpy(&words, at + (type == PJ_IQ2_S ? 74 : 66), sizeof words);
        low = pj_blocks_nibbles((uint32_t)words), high = pj_blocks_nibbles(words >> 32);
        each = _mm_set_epi64x((long long)high, (long long)low), *unit /= 8;
    }
    return _mm_add_epi8(_mm_add_epi8(each, each), _mm_set1_epi8(1));
}

/* ---- NVFP4 and Q1_0 ---------------------------------------------------------------------- */

enum { NVFP4_BYTES = 36, Q1_0_BYTES = 18, NVFP4_UNIT = 128 };

/* The first eight bytes as scales, in NVFP4_UNIT: they are halves with fewer bits. */
INLINE __m256 book_nvfp4_scales(__m128i bytes)
{
    const __m128i most = _mm_set1_epi8(127);
    bytes = _mm_and_si128(bytes, most);
    bytes = _mm_andnot_si128(_mm_cmpeq_epi8(bytes, most), bytes);
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7));
}

/* Entries of a table by 32 nibbles. Eight bytes are sixteen columns, the low ones first. */
INLINE __m256i book_nvfp4(const char *nibbles, __m128i table)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)nibbles);
    __m256i twice = _mm256_permute4x64_epi64(_mm256_castsi128_si256(bytes), 0x50);
    __m256i each = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 4, 0, 4));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table),
                               _mm256_and_si256(each, _mm256_set1_epi8(15)));
}

INLINE __m128i book_nvfp4_levels(void)
{
    return _mm_loadu_si128((const __m128i *)(const void *)pj_mxfp4_levels);
}

/* Values of 32 columns, plus one. */
INLINE __m256i book_q1_0(const char *bits)
{
    return _mm256_and_si256(book_mask(pj_blocks_u32((const uint8_t *)bits)), _mm256_set1_epi8(2));
}

#endif
