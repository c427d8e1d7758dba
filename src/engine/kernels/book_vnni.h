/* Types of codebook.h with blocks of 256 and whole scales on AVX-512 VNNI: a block's codes, which
 * are values plus an offset, and its sixteen scales, as k_vnni.h multiplies them. Entries are read
 * from tables of their levels, one byte per value; their signs are masks. Included only by
 * k_vnni.h.
 */
#ifndef PJ_KERNELS_BOOK_VNNI_H
#define PJ_KERNELS_BOOK_VNNI_H

#include "engine/kernels/book_bits.h"
#include "engine/kernels/vector.h"

enum { BOOK_PARTS = 4, BOOK_EIGHTS = 8 };

typedef struct book_block {
    __m512i codes[BOOK_PARTS];
    __m256i scales; /* words, of sixteen columns each */
    float unit;
} book_block;

/* ---- parts of a block ------------------------------------------------------------------- */

INLINE __m512i book_join(const uint64_t w[BOOK_EIGHTS])
{
    return _mm512_set_epi64((long long)w[7], (long long)w[6], (long long)w[5], (long long)w[4],
                            (long long)w[3], (long long)w[2], (long long)w[1], (long long)w[0]);
}

INLINE uint64_t book_u64(const char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

INLINE __m128i book_load8(const char *at)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)at);
}

INLINE __m256i book_load32(const char *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

INLINE __m512i book_signed(__m512i levels, uint64_t signs)
{
    const __m512i offset = _mm512_set1_epi8(BOOK_SIGNED);
    return _mm512_mask_sub_epi8(_mm512_add_epi8(offset, levels), signs, offset, levels);
}

/* Twice each of eight words, plus one, for two neighbouring sixteens each. */
INLINE __m256i book_odd_pairs(__m128i words)
{
    words = _mm_add_epi16(_mm_add_epi16(words, words), _mm_set1_epi16(1));
    return _mm256_set_m128i(_mm_unpackhi_epi16(words, words), _mm_unpacklo_epi16(words, words));
}

/* Twice each of sixteen nibbles, plus one. */
INLINE __m256i book_odd_nibbles(const char *at)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i both = book_load8(at);
    both = _mm_unpacklo_epi8(_mm_and_si128(both, nibble),
                             _mm_and_si128(_mm_srli_epi16(both, 4), nibble));
    __m256i words = _mm256_cvtepu8_epi16(both);
    return _mm256_add_epi16(_mm256_add_epi16(words, words), _mm256_set1_epi16(1));
}

/* ---- by type ---------------------------------------------------------------------------- */

INLINE void book_iq2_xxs(const char *at, book_block *to)
{
    const uint8_t *entries = (const uint8_t *)at + 2;
    to->unit = _cvtsh_ss(pj_load_u16(at)) / 8;
    __m512i rests = _mm512_srli_epi64(_mm512_loadu_si512(at + 2), 60);
    to->scales = book_odd_pairs(_mm512_cvtepi64_epi16(rests));
    UNROLL for (int p = 0; p < BOOK_PARTS; p++, entries += 16)
    {
        uint64_t w[BOOK_EIGHTS], rest = pj_blocks_u32(entries + 4);
        rest |= (uint64_t)pj_blocks_u32(entries + 12) << 32;
        UNROLL for (int i = 0; i < BOOK_EIGHTS; i++) w[i] =
            book_levels->iq2_xxs[entries[i / 4 * 8 + i % 4]];
        to->codes[p] = book_signed(book_join(w), book_eighth_signs(book_sevens(rest)));
    }
}

INLINE void book_iq2_xs(const char *at, book_block *to)
{
    to->unit = _cvtsh_ss(pj_load_u16(at)) / 8;
    to->scales = book_odd_nibbles(at + 66);
    UNROLL for (int p = 0; p < BOOK_PARTS; p++)
    {
        const char *part = at + 2 + 16 * p;
        uint64_t w[BOOK_EIGHTS];
        UNROLL for (int i = 0; i < BOOK_EIGHTS; i++) w[i] =
            book_levels->iq2_xs[pj_load_u16(part + 2 * i) & 511];
        __m128i sevens = _mm_srli_epi16(_mm_loadu_si128((const __m128i *)(const void *)part), 9);
        uint64_t signs = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(sevens, sevens));
        to->codes[p] = book_signed(book_join(w), book_eighth_signs(signs));
    }
}

INLINE void book_iq2_s(const char *at, book_block *to)
{
    const uint8_t *entries = (const uint8_t *)at + 2;
    to->unit = _cvtsh_ss(pj_load_u16(at)) / 8;
    to->scales = book_odd_nibbles(at + 74);
    UNROLL for (int p = 0; p < BOOK_PARTS; p++, entries += BOOK_EIGHTS)
    {
        unsigned high = pj_load_u16(at + 66 + 2 * p);
        uint64_t w[BOOK_EIGHTS];
        UNROLL for (int i = 0; i < BOOK_EIGHTS; i++) w[i] =
            book_levels->iq2_s[entries[i] | (high >> 2 * i & 3) << 8];
        to->codes[p] = book_signed(book_join(w), book_u64(at + 34 + 8 * p));
    }
}

INLINE void book_iq3_xxs(const char *at, book_block *to)
{
    const uint8_t *entries = (const uint8_t *)at + 2;
    to->unit = _cvtsh_ss(pj_load_u16(at)) / 4;
    __m256i rests = _mm256_srli_epi32(book_load32(at + 66), 28);
    to->scales = book_odd_pairs(_mm256_cvtepi32_epi16(rests));
    UNROLL for (int p = 0; p < BOOK_PARTS; p++, entries += 16)
    {
        uint64_t w[BOOK_EIGHTS];
        UNROLL for (int i = 0; i < BOOK_EIGHTS; i++) w[i] =
            book_levels->iq3_xxs[entries[2 * i]] |
            (uint64_t)book_levels->iq3_xxs[entries[2 * i + 1]] << 32;
        to->codes[p] =
            book_signed(book_join(w), book_eighth_signs(book_sevens(book_u64(at + 66 + 8 * p))));
    }
}

INLINE void book_iq3_s(const char *at, book_block *to)
{
    to->unit = _cvtsh_ss(pj_load_u16(at));
    uint64_t scales = pj_blocks_nibbles(pj_blocks_u32((const uint8_t *)at + 106));
    to->scales = book_odd_pairs(_mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)scales)));
    UNROLL for (int p = 0; p < BOOK_PARTS; p++)
    {
        const __m128i *low = (const __m128i *)(const void *)(at + 2 + 16 * p);
        __m512i entries = _mm512_cvtepu8_epi32(_mm_loadu_si128(low));
        entries = _mm512_mask_add_epi32(entries, pj_load_u16(at + 66 + 2 * p), entries,
                                        _mm512_set1_epi32(256));
        /* nine bits each: gathering is faster than taking them apart */
        __m512i levels = _mm512_i32gather_epi32(entries, (const void *)book_levels->iq3_s, 4);
        to->codes[p] = book_signed(levels, book_u64(at + 74 + 8 * p));
    }
}

INLINE void book_iq1_s(const char *at, book_block *to)
{
    const uint8_t *entries = (const uint8_t *)at + 2;
    to->unit = _cvtsh_ss(pj_load_u16(at)) / 8;
    __m128i rests = _mm_loadu_si128((const __m128i *)(const void *)(at + 34));
    to->scales = book_odd_pairs(_mm_and_si128(_mm_srli_epi16(rests, 12), _mm_set1_epi16(7)));
    UNROLL for (int p = 0; p < BOOK_PARTS; p++, entries += BOOK_EIGHTS)
    {
        uint32_t rest = pj_blocks_u32((const uint8_t *)at + 34 + 4 * p);
        uint64_t w[BOOK_EIGHTS];
        UNROLL for (int i = 0; i < BOOK_EIGHTS; i++) w[i] =
            book_levels->iq1[entries[i] | (rest >> (i / 4 * 16 + i % 4 * 3) & 7) << 8];
        __mmask64 up = (rest & 0x8000 ? 0 : 0xffffffffull) | (rest >> 31 ? 0 : ~0xffffffffull);
        __m512i codes = book_join(w);
        to->codes[p] = _mm512_mask_add_epi8(codes, up, codes, _mm512_set1_epi8(2));
    }
}

INLINE void book_iq1_m(const char *at, book_block *to)
{
    uint64_t packed = book_u64(at + 48), bits = packed & 0xf000f000f000f000;
    to->unit = _cvtsh_ss((uint16_t)(bits >> 12 | bits >> 24 | bits >> 36 | bits >> 48)) / 8;
    /* three bits from each place of four words */
    const __m256i places = _mm256_set1_epi64x(0x0009000600030000);
    const __m256i spread = _mm256_setr_epi16(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m256i words = _mm256_permutexvar_epi16(
        spread, _mm256_castsi128_si256(_mm_cvtsi64_si128((long long)packed)));
    words = _mm256_and_si256(_mm256_srlv_epi16(words, places), _mm256_set1_epi16(7));
    to->scales = _mm256_add_epi16(_mm256_add_epi16(words, words), _mm256_set1_epi16(1));
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    UNROLL for (int p = 0; p < BOOK_PARTS; p++)
    {
        int rest = (int)pj_blocks_u32((const uint8_t *)at + 32 + 4 * p);
        __m256i each = _mm256_srlv_epi32(_mm256_set1_epi32(rest), shifts);
        __m256i high = _mm256_slli_epi32(_mm256_and_si256(each, _mm256_set1_epi32(7)), 8);
        __m256i entries = _mm256_or_si256(_mm256_cvtepu8_epi32(book_load8(at + 8 * p)), high);
        __m512i levels = _mm512_i32gather_epi64(entries, (const void *)book_levels->iq1, 8);
        __mmask8 up = _mm256_testn_epi32_mask(each, _mm256_set1_epi32(8));
        to->codes[p] = _mm512_add_epi8(levels, _mm512_maskz_set1_epi64(up, 0x0202020202020202));
    }
}

/* Digits of bytes that are fractions in base 3; powers, per word: of the byte's digit. */
INLINE __m512i book_digits(__m512i bytes, __m512i powers)
{
    const __m512i low = _mm512_set1_epi16(255), one = _mm512_set1_epi8(1);
    __m512i even = _mm512_and_si512(_mm512_mullo_epi16(bytes, powers), low);
    __m512i odd = _mm512_mullo_epi16(_mm512_andnot_si512(low, bytes), powers);
    __m512i x = _mm512_or_si512(even, odd);
    __mmask64 some = _mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(86));
    __mmask64 two = _mm512_cmpge_epu8_mask(x, _mm512_set1_epi8((char)171));
    __m512i digits = _mm512_maskz_mov_epi8(some, one);
    return _mm512_mask_add_epi8(digits, two, digits, one);
}

INLINE __m512i book_quarters(__m128i a, __m128i b, __m128i c, __m128i d)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b, a)),
                              _mm256_set_m128i(d, c), 1);
}

INLINE __m512i book_powers(short a, short b, short c, short d)
{
    return book_quarters(_mm_set1_epi16(a), _mm_set1_epi16(b), _mm_set1_epi16(c),
                         _mm_set1_epi16(d));
}

INLINE void book_tq1_0(const char *at, book_block *to)
{
    to->unit = _cvtsh_ss(pj_load_u16(at + 52));
    to->scales = _mm256_set1_epi16(1);
    __m128i first = _mm256_castsi256_si128(book_load32(at));
    __m128i second = _mm256_extracti128_si256(book_load32(at), 1);
    __m128i third = _mm_loadu_si128((const __m128i *)(const void *)(at + 32));
    __m128i last = _mm_set1_epi32((int)pj_blocks_u32((const uint8_t *)at + 48));
    __m512i twice = book_quarters(first, second, first, second);
    const __m128i powers = _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27);
    to->codes[0] = book_digits(twice, book_powers(1, 1, 3, 3));
    to->codes[1] = book_digits(twice, book_powers(9, 9, 27, 27));
    to->codes[2] =
        book_digits(book_quarters(first, second, third, third), book_powers(81, 81, 1, 3));
    to->codes[3] = book_digits(
        book_quarters(third, third, third, last),
        book_quarters(_mm_set1_epi16(9), _mm_set1_epi16(27), _mm_set1_epi16(81), powers));
}

/* A part's pairs of bits: 32 bytes hold 128 of them. */
INLINE void book_tq2_0(const char *at, book_block *to)
{
    to->unit = _cvtsh_ss(pj_load_u16(at + 64));
    to->scales = _mm256_set1_epi16(1);
    UNROLL for (int p = 0; p < BOOK_PARTS; p++)
    {
        const long long shift = p % 2 * 4;
        __m512i shifts = _mm512_setr_epi64(shift, shift, shift, shift, shift + 2, shift + 2,
                                           shift + 2, shift + 2);
        __m512i bytes = _mm512_broadcast_i64x4(book_load32(at + p / 2 * 32));
        to->codes[p] = _mm512_and_si512(_mm512_srlv_epi64(bytes, shifts), _mm512_set1_epi8(3));
    }
}

BOOK_INLINE void book_load(pj_dtype type, const char *at, book_block *to)
{
    switch (type) {
    case PJ_IQ2_XXS: book_iq2_xxs(at, to); break;
    case PJ_IQ2_XS: book_iq2_xs(at, to); break;
    case PJ_IQ2_S: book_iq2_s(at, to); break;
    case PJ_IQ3_XXS: book_iq3_xxs(at, to); break;
    case PJ_IQ3_S: book_iq3_s(at, to); break;
    case PJ_IQ1_S: book_iq1_s(at, to); break;
    case PJ_IQ1_M: book_iq1_m(at, to); break;
    case PJ_TQ1_0: book_tq1_0(at, to); break;
    default: book_tq2_0(at, to);
    }
}

#endif
