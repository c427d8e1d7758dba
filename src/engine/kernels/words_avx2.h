/*
 * Many tokens with weights whose codes do not fit the unsigned byte of a product (Q8_0, the levels
 * of IQ4, MXFP4 and NVFP4), and with Q6_K, Q1_0 and ternary ones, on AVX2, which has no product of
 * signed bytes; the others are in codes_avx2.c and wide_avx2.h. Values are widened to words, and
 * two columns cost one product instead of two (Winograd's inner product, 1968):
 *
 *   x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1
 *
 * The subtracted terms depend on one operand each and are precomputed: the sums start from them. So
 * 32 products cost four instructions, only one of which is a multiplication; the others run on
 * every port. Intermediate sums may wrap around, which is harmless: the final sum of 128 columns
 * fits.
 *
 * 128 columns share a scale on both sides, so that integers are summed over all of them and
 * converted to float once. Activations are codes of up to WORD_CODES, four times as fine as bytes;
 * weights use the rest of a word's range, up to WORD_LARGEST. Q6_K's codes times scales fit
 * exactly.
 *
 * Four columns of eight tokens are adjacent: columns 0 and 2 of each token, then 1 and 3; weight
 * rows use the same order. Included only by codes_avx2.c.
 */
#ifndef PJ_KERNELS_WORDS_AVX2_H
#define PJ_KERNELS_WORDS_AVX2_H

#include "engine/kernels/k_avx2.h"
#include "engine/kernels/lanes_avx2.h"
#include "engine/kernels/pack_avx2.h"

enum { Q8_BYTES = 34 };
enum { WORD_ROWS = 8, WORD_VECTORS = 4, WORD_GROUPS = 8 }; /* groups of four columns in a block */

/* Of activations and of weights: a sum of both fits a word, and 128 products fit 32 bits. The
 * latter is a multiple of 128, for Q8_0. */
enum { WORD_BLOCKS = 4, WORD_CODES = 508, WORD_STEPS = 252 };
#define WORD_LARGEST (WORD_STEPS * 128.0f)

/* ---- activations ------------------------------------------------------------------------ */

/* Sixteen columns of a token as words, in columns 0, 2, 1 and 3 of each group of four: groups 0 and
 * 2, then 1 and 3. */
INLINE __m256i word_codes(const float *x, float inverse)
{
    __m256i low = _mm256_cvtps_epi32((__m256)(vec_load(x) * inverse));
    __m256i high = _mm256_cvtps_epi32((__m256)(vec_load(x + 8) * inverse));
    __m256i words = _mm256_packs_epi32(low, high);
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
}

/* Up to WORD_BLOCKS blocks of up to eight tokens; for every group of four columns a vector at `to`,
 * `apart` bytes from each other. */
INLINE void pack_words(const float *x, size_t x_stride, size_t tokens, size_t blocks, char *to,
                       size_t apart, float *scales, int32_t *sums)
{
    const __m256i groups = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vec products[8], even[8], odd[8];
    float inverse[8];
    for (size_t t = 0; t < 8; t++) {
        float largest = t < tokens ? largest_of(x + t * x_stride, blocks) : 0;
        inverse[t] = largest > PJ_LEAST_SCALED ? WORD_CODES / largest : 0;
        scales[t] = largest / WORD_CODES;
        products[t] = even[t] = odd[t] = vec_of(0);
    }
    for (size_t b = 0; b < blocks; b++, to += WORD_GROUPS * apart) {
        for (size_t t = 0; t < tokens; t++) {
            const float *at = x + t * x_stride + b * PJ_Q8_BLOCK;
            __m256 first = (__m256)word_codes(at, inverse[t]);
            __m256 second = (__m256)word_codes(at + 16, inverse[t]);
            __m256i evens = _mm256_permutevar8x32_epi32(
                (__m256i)_mm256_shuffle_ps(first, second, 0x88), groups);
            __m256i odds = _mm256_permutevar8x32_epi32(
                (__m256i)_mm256_shuffle_ps(first, second, 0xdd), groups);
            even[t] = (vec)evens, odd[t] = (vec)odds;
            products[t] =
                (vec)_mm256_sub_epi32((__m256i)products[t], _mm256_madd_epi16(evens, odds));
        }
        vec_transpose(even);
        vec_transpose(odd);
        UNROLL for (size_t g = 0; g < WORD_GROUPS; g++)
        {
            vec_store((float *)(void *)(to + g * apart), even[g]);
            vec_store((float *)(void *)(to + g * apart + 32), odd[g]);
        }
        for (size_t t = tokens; t < 8; t++) even[t] = odd[t] = vec_of(0);
    }
    vec_transpose(products);
    __m256i all = (__m256i)products[0];
    UNROLL for (size_t i = 1; i < 8; i++) all = _mm256_add_epi32(all, (__m256i)products[i]);
    _mm256_storeu_si256((__m256i *)(void *)sums, all);
}

static void pack_panel_words(const float *x, size_t x_stride, size_t tokens, size_t width,
                             size_t cols, void *values, float *scales, int32_t *sums)
{
    size_t blocks = cols / PJ_Q8_BLOCK, apart = width * 8;
    for (size_t b = 0; b < blocks; b += WORD_BLOCKS)
        for (size_t t = 0; t < width; t += 8) {
            size_t some = blocks - b < WORD_BLOCKS ? blocks - b : WORD_BLOCKS;
            size_t have = t >= tokens ? 0 : tokens - t < 8 ? tokens - t : 8;
            pack_words(x + t * x_stride + b * PJ_Q8_BLOCK, x_stride, have, some,
                       (char *)values + b * WORD_GROUPS * apart + t * 8, apart,
                       scales + b * width + t, sums + b * width + t);
        }
}

/* ---- weights ---------------------------------------------------------------------------- */

/* 128 columns: a value is a word times `scale`. */
typedef struct word_scale {
    float scale, inverse;
} word_scale;

/* `sum` accumulates all inputs of the values: a non-finite one makes all of them non-finite. */
INLINE word_scale scale_words(float largest, float sum)
{
    return (word_scale){largest / WORD_LARGEST + 0 * sum,
                        largest > PJ_LEAST_SCALED ? WORD_LARGEST / largest : 0};
}

INLINE float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Of four blocks' scales. */
INLINE word_scale scale_four(__m128 each)
{
    __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0f), each);
    __m128 none = _mm_mul_ps(each, _mm_setzero_ps()); /* their sum might overflow */
    size = _mm_max_ps(size, _mm_movehl_ps(size, size));
    none = _mm_add_ps(none, _mm_movehl_ps(none, none));
    return scale_words(larger(_mm_cvtss_f32(size), _mm_cvtss_f32(_mm_movehdup_ps(size))),
                       _mm_cvtss_f32(none) + _mm_cvtss_f32(_mm_movehdup_ps(none)));
}

/* Permutes bytes of four columns into word order. */
INLINE __m256i order_words(__m256i bytes)
{
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    return _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(order));
}

/* Stores sixteen words; subtracts their pairwise products from `start`, two lanes each. */
INLINE __m256i store_words(char *to, __m256i words, __m256i start)
{
    _mm256_storeu_si256((__m256i *)(void *)to, words);
    return _mm256_sub_epi32(start, _mm256_madd_epi16(words, _mm256_shuffle_epi32(words, 0xb1)));
}

/* Sums every other lane and stores the result in place of a minimum. */
INLINE void store_start(float *to, __m256i start)
{
    __m128i two = _mm_add_epi32(_mm256_castsi256_si128(start), _mm256_extracti128_si256(start, 1));
    int32_t sum = _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_unpackhi_epi64(two, two)));
    memcpy(to, &sum, sizeof sum);
}

enum { UNPACK_AHEAD = 2048 }; /* bytes: a row is read only once, directly from memory */

/* Stores 32 codes of 8 bits times 256, and times a ratio for sixteen columns each over 32768:
 * WORD_STEPS per step of the largest scale, so that -128 fits too. */
INLINE __m256i store_ratios(char *to, __m256i codes, __m256i first, __m256i second, __m256i start)
{
    const __m256i zero = _mm256_setzero_si256();
    codes = _mm256_permute4x64_epi64(order_words(codes), 0xd8);
    __m256i low = _mm256_mulhrs_epi16(_mm256_unpacklo_epi8(zero, codes), first);
    __m256i high = _mm256_mulhrs_epi16(_mm256_unpackhi_epi8(zero, codes), second);
    return store_words(to + 32, high, store_words(to, low, start));
}

/* Up to two blocks, of 64 columns. Their levels, up to 12, become codes ten times as large. */
INLINE void unpack_nvfp4_group(const char *at, size_t blocks, char *to, float *scale, float *start)
{
    enum { NVFP4_CODES = 10 };
    __m128i twice = _mm_add_epi8(book_nvfp4_levels(), book_nvfp4_levels());
    __m128i table = _mm_add_epi8(twice, twice);
    table = _mm_add_epi8(_mm_add_epi8(table, table), twice);
    uint64_t heads = pj_blocks_u32((const uint8_t *)at);
    if (blocks > 1) heads |= (uint64_t)pj_blocks_u32((const uint8_t *)at + NVFP4_BYTES) << 32;
    __m256 each = book_nvfp4_scales(_mm_cvtsi64_si128((long long)heads));
    word_scale words = scale_words(vec_largest((vec)each), 0);
    __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(each, _mm256_set1_ps(words.inverse)));
    __m128i ratios =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    __m256i products = _mm256_setzero_si256();
    for (size_t b = 0; b < 2 * blocks; b++, to += 64, ratios = _mm_srli_si128(ratios, 4)) {
        const char *nibbles = at + b / 2 * NVFP4_BYTES + 4 + b % 2 * 16;
        products = store_ratios(to, book_nvfp4(nibbles, table), _mm256_broadcastw_epi16(ratios),
                                _mm256_broadcastw_epi16(_mm_srli_si128(ratios, 2)), products);
    }
    *scale = words.scale * (NVFP4_UNIT * WORD_LARGEST / WORD_STEPS / NVFP4_CODES);
    store_start(start, products);
}

static void unpack_nvfp4(const void *row, size_t cols, void *values, float *scales, float *starts)
{
    const char *at = row;
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b += WORD_BLOCKS, at += 2 * NVFP4_BYTES) {
        size_t left = cols / PJ_Q8_BLOCK - b, some = left < WORD_BLOCKS ? left : WORD_BLOCKS;
        __builtin_prefetch(at + UNPACK_AHEAD);
        unpack_nvfp4_group(at, some / 2, (char *)values + b * 64, scales + b, starts + b);
    }
}

/* Sixteen codes less their offset, times their scale: 4096 at most. */
INLINE __m256i sixteen_words(__m128i codes, int offset, int scale)
{
    __m256i words = _mm256_cvtepi8_epi16(codes);
    words = _mm256_sub_epi16(words, _mm256_set1_epi16((short)offset));
    return _mm256_mullo_epi16(words, _mm256_set1_epi16((short)scale));
}

INLINE __m256i store_sixteens(char *to, __m256i codes, int offset, int first, int second,
                              __m256i start)
{
    codes = order_words(codes);
    __m256i low = sixteen_words(_mm256_castsi256_si128(codes), offset, first);
    __m256i high = sixteen_words(_mm256_extracti128_si256(codes, 1), offset, second);
    return store_words(to + 32, high, store_words(to, low, start));
}

/* The sixteen scales of a block of a type without minima, and what one of them is. */
INLINE __m128i sixteen_scales(pj_dtype type, const char *at, float *unit)
{
    if (is_book(type)) return book_scales(type, at, unit);
    *unit = _cvtsh_ss(pj_load_u16(at + (type == PJ_Q3_K ? 108 : 208)));
    if (type == PJ_Q3_K) return k_q3_scales(at);
    return _mm_loadu_si128((const __m128i *)(const void *)(at + 192));
}

/* Types of blocks of 256 with sixteen scales: integers as they are stored. */
INLINE void unpack_sixteen(pj_dtype type, const void *row, size_t cols, char *to, float *scales,
                           float *starts)
{
    const char *at = row;
    const size_t bytes = pj_blocks_k_bytes(type);
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += bytes) {
        int8_t each[16];
        float unit;
        for (size_t line = 0; line < bytes; line += 64)
            __builtin_prefetch(at + UNPACK_AHEAD + line);
        _mm_storeu_si128((__m128i *)(void *)each, sixteen_scales(type, at, &unit));
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i start = _mm256_setzero_si256();
            UNROLL for (int p = 4 * half; p < 4 * half + 4; p++, to += 64)
            {
                __m256i codes = k_codes(type, at, p, NULL);
                start =
                    store_sixteens(to, codes, k_offset(type), each[2 * p], each[2 * p + 1], start);
            }
            scales[8 * b + 4 * (size_t)half] = unit;
            store_start(starts + 8 * b + 4 * half, start);
        }
    }
}

#define UNPACK_SIXTEEN(name, type)                                                       \
    static void unpack_##name(const void *row, size_t cols, void *values, float *scales, \
                              float *starts)                                             \
    {                                                                                    \
        unpack_sixteen(PJ_##type, row, cols, values, scales, starts);                    \
    }
UNPACK_SIXTEEN(q6_k, Q6_K)
UNPACK_SIXTEEN(tq1_0, TQ1_0)
UNPACK_SIXTEEN(tq2_0, TQ2_0)

/* A block, of 128 columns, has one scale: words are 1 and -1. */
static void unpack_q1_0(const void *row, size_t cols, void *values, float *scales, float *starts)
{
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b += WORD_BLOCKS, at += Q1_0_BYTES) {
        __m256i start = _mm256_setzero_si256();
        __builtin_prefetch(at + UNPACK_AHEAD);
        UNROLL for (int p = 0; p < WORD_BLOCKS; p++, to += 64) start =
            store_sixteens(to, book_q1_0(at + 2 + 4 * p), 1, 1, 1, start);
        scales[b] = _cvtsh_ss(pj_load_u16(at));
        store_start(starts + b, start);
    }
}

/* ---- blocks of 32 with a scale each: Q8_0, and nibbles that stand for levels -------------------
 */

INLINE size_t own_place(pj_dtype type, size_t b)
{
    return type == PJ_Q8_0 ? b * Q8_BYTES : lane_place(type, b);
}

/* The scales of up to four blocks from block b on, 0 for the others; collected in a register,
 * since a load of several stores would wait for them. */
INLINE __m128 own_scales(pj_dtype type, const char *row, size_t b, size_t blocks)
{
    uint64_t all = 0;
    if (type == PJ_IQ4_XS) { /* four blocks are half of one with a header */
        const char *at = row + b / LANE_XS_BLOCKS * LANE_XS_BYTES;
        all = lane_xs_scales(at) >> 8 * (b % LANE_XS_BLOCKS);
        __m128i whole = _mm_cvtepu8_epi32(_mm_cvtsi64_si128((long long)all));
        whole = _mm_sub_epi32(whole, _mm_set1_epi32(32));
        return _mm_mul_ps(_mm_set1_ps(_cvtsh_ss(pj_load_u16(at))), _mm_cvtepi32_ps(whole));
    }
    if (type == PJ_MXFP4) {
        for (size_t i = blocks; i-- > 0;) all = all << 8 | (uint8_t)row[own_place(type, b + i)];
        return _mm256_castps256_ps128(lane_power_of(_mm_cvtsi64_si128((long long)all)));
    }
    for (size_t i = blocks; i-- > 0;) all = all << 16 | pj_load_u16(row + own_place(type, b + i));
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)all));
}

/* Levels by nibbles, columns 0 to 15 in the low ones. Those of MXFP4, up to 12, become codes ten
 * times as large. */
INLINE __m256i own_codes(pj_dtype type, const char *at)
{
    if (type == PJ_Q8_0) return k_load(at + 2);
    const lane_layout l = lane_layout_of(type);
    __m256i table = k_table(l.levels);
    if (type == PJ_MXFP4) {
        __m256i twice = _mm256_add_epi8(table, table), four = _mm256_add_epi8(twice, twice);
        table = _mm256_add_epi8(_mm256_add_epi8(four, four), twice);
    }
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(at + l.nibbles));
    __m256i index = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return _mm256_shuffle_epi8(table, _mm256_and_si256(index, _mm256_set1_epi8(15)));
}

/* Up to four blocks from block b on. */
INLINE void unpack_own_group(pj_dtype type, const char *row, size_t b, size_t blocks, char *to,
                             float *scales, float *starts)
{
    const float codes = type == PJ_MXFP4 ? 10 : 1; /* per level */
    __m128 each = own_scales(type, row, b, blocks);
    word_scale words = scale_four(each);
    __m128i ratios = _mm_cvtps_epi32(_mm_mul_ps(each, _mm_set1_ps(words.inverse)));
    __m256i products = _mm256_setzero_si256();
    to += b * 64;
    for (size_t i = 0; i < blocks; i++, to += 64, ratios = _mm_srli_si128(ratios, 4)) {
        const char *at = row + own_place(type, b + i);
        __m256i ratio = _mm256_broadcastw_epi16(ratios);
        if (type == PJ_Q8_0 || i == 0) __builtin_prefetch(at + UNPACK_AHEAD); /* once per line */
        products = store_ratios(to, own_codes(type, at), ratio, ratio, products);
    }
    scales[b] = words.scale * (WORD_LARGEST / WORD_STEPS / codes);
    store_start(starts + b, products);
}

INLINE void unpack_own(pj_dtype type, const void *row, size_t cols, char *to, float *scales,
                       float *starts)
{
    size_t blocks = cols / PJ_Q8_BLOCK, whole = blocks / WORD_BLOCKS * WORD_BLOCKS;
    for (size_t b = 0; b < whole; b += WORD_BLOCKS)
        unpack_own_group(type, row, b, WORD_BLOCKS, to, scales, starts);
    if (whole < blocks) unpack_own_group(type, row, whole, blocks - whole, to, scales, starts);
}

#define UNPACK_OWN(name, type)                                                           \
    static void unpack_##name(const void *row, size_t cols, void *values, float *scales, \
                              float *starts)                                             \
    {                                                                                    \
        unpack_own(PJ_##type, row, cols, values, scales, starts);                        \
    }
UNPACK_OWN(q8_0, Q8_0)
UNPACK_OWN(iq4_nl, IQ4_NL)
UNPACK_OWN(mxfp4, MXFP4)
UNPACK_OWN(iq4_xs, IQ4_XS)

/* ---- products --------------------------------------------------------------------------- */

INLINE __m256i words_at(const void *at)
{
    int32_t words;
    memcpy(&words, at, sizeof words);
    return _mm256_set1_epi32(words);
}

/* Written in assembly: compilers would start more products than there are registers. AT&T order:
 * the last operand is the destination. */
#define WORD_PRODUCTS(x_even, x_odd, row, a, b)                                              \
    "vpaddw " x_even ", %[odd" row "], " a "\n\tvpaddw " x_odd ", %[even" row "], " b "\n\t" \
    "vpmaddwd " a ", " b ", " a "\n\tvpaddd " a ", %[sum" row "], %[sum" row "]\n\t"

/* A group of four columns: two rows times one vector of tokens. */
INLINE void add_words(__m256i *sum0, __m256i *sum1, const char *x, const __m256i even[2],
                      const __m256i odd[2])
{
    const __m256i_u *at = (const __m256i_u *)(const void *)x;
    __m256i x_even, x_odd, a, b;
    __asm__("vmovdqu %[at_even], %[x_even]\n\tvmovdqu %[at_odd], %[x_odd]\n\t" //
            WORD_PRODUCTS("%[x_even]", "%[x_odd]", "0", "%[a]", "%[b]")
                WORD_PRODUCTS("%[x_even]", "%[x_odd]", "1", "%[x_even]", "%[x_odd]")
            : [sum0] "+&x"(*sum0), [sum1] "+&x"(*sum1), [x_even] "=&x"(x_even),
              [x_odd] "=&x"(x_odd), [a] "=&x"(a), [b] "=&x"(b)
            : [even0] "x"(even[0]), [odd0] "x"(odd[0]), [even1] "x"(even[1]), [odd1] "x"(odd[1]),
              [at_even] "m"(at[0]), [at_odd] "m"(at[1]));
}

/* The same with the tokens loaded twice, where that is cheaper than an additional instruction: load
 * slots and vector instruction slots are about equally scarce. */
INLINE void add_words_loaded(__m256i *sum0, __m256i *sum1, const char *x, const __m256i even[2],
                             const __m256i odd[2])
{
    const __m256i_u *at = (const __m256i_u *)(const void *)x;
    __m256i a, b;
    __asm__(WORD_PRODUCTS("%[at_even]", "%[at_odd]", "0", "%[a]", "%[b]")
                WORD_PRODUCTS("%[at_even]", "%[at_odd]", "1", "%[a]", "%[b]")
            : [sum0] "+&x"(*sum0), [sum1] "+&x"(*sum1), [a] "=&x"(a), [b] "=&x"(b)
            : [even0] "x"(even[0]), [odd0] "x"(odd[0]), [even1] "x"(even[1]), [odd1] "x"(odd[1]),
              [at_even] "m"(at[0]), [at_odd] "m"(at[1]));
}

/* Sums stay in registers only if every loop over them is unrolled, which clang needs its own pragma
 * for. */
#if defined(__clang__)
#define UNROLL_WHOLE _Pragma("clang loop unroll(full)")
#else
#define UNROLL_WHOLE UNROLL
#endif

/* Two rows from `row` on: with four vectors the sums, weights and temporaries use all registers. */
INLINE void tile_two_rows(const pj_tile *t, size_t row, const size_t V)
{
    const char *x = t->x, *w[2] = {t->weights[row], t->weights[row + 1]};
    float *c = t->c + row * PJ_TILE_MAX_TOKENS;
    size_t blocks = t->cols / PJ_Q8_BLOCK;
    for (size_t first = 0; first < blocks; first += WORD_BLOCKS) {
        size_t last = blocks - first < WORD_BLOCKS ? blocks : first + WORD_BLOCKS;
        __m256i sums[2][WORD_VECTORS];
        __m256i start0 = words_at(t->minima[row] + first);
        __m256i start1 = words_at(t->minima[row + 1] + first);
        UNROLL_WHOLE for (size_t v = 0; v < V; v++)
        {
            __m256i start = k_load(t->x_sums + (first * V + v) * 8);
            sums[0][v] = _mm256_add_epi32(start, start0);
            sums[1][v] = _mm256_add_epi32(start, start1);
        }
        for (size_t b = first; b < last; b++, x += WORD_GROUPS * V * 64, w[0] += 64, w[1] += 64)
            UNROLL_WHOLE for (size_t g = 0; g < WORD_GROUPS; g++)
            {
                __m256i even[2], odd[2];
                UNROLL_WHOLE for (size_t r = 0; r < 2; r++)
                {
                    even[r] = words_at(w[r] + 8 * g);
                    odd[r] = words_at(w[r] + 8 * g + 4);
                }
                UNROLL_WHOLE for (size_t v = 0; v < V; v++)
                {
                    const char *at = x + (g * V + v) * 64;
                    if (v == 3)
                        add_words_loaded(&sums[0][v], &sums[1][v], at, even, odd);
                    else
                        add_words(&sums[0][v], &sums[1][v], at, even, odd);
                }
            }
        UNROLL_WHOLE for (size_t r = 0; r < 2; r++) UNROLL_WHOLE for (size_t v = 0; v < V; v++)
        {
            float *to = c + r * PJ_TILE_MAX_TOKENS + v * 8;
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(t->scales[row + r][first]),
                                         _mm256_loadu_ps(t->x_scales + (first * V + v) * 8));
            _mm256_storeu_ps(
                to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][v]), scale, _mm256_loadu_ps(to)));
        }
    }
}

#define TILE_WORDS(V)                                                      \
    __attribute__((noinline)) static void tile_words_##V(const pj_tile *t) \
    {                                                                      \
        for (size_t r = 0; r < WORD_ROWS; r += 2) tile_two_rows(t, r, V);  \
    }
TILE_WORDS(1)
TILE_WORDS(2)
TILE_WORDS(3)
TILE_WORDS(4)

static void tile_words(const pj_tile *t)
{
    static void (*const by_vectors[])(const pj_tile *) = {tile_words_1, tile_words_2, tile_words_3,
                                                          tile_words_4};
    for (size_t r = 0; r < WORD_ROWS && !t->add; r++)
        memset(t->c + r * PJ_TILE_MAX_TOKENS, 0, t->vectors * 32);
    by_vectors[t->vectors - 1](t);
}

static double peak_words(size_t rounds)
{
    enum { SUMS = 8 };
    volatile int outside = 0;
    __m256i sums[SUMS], w = _mm256_set1_epi32(outside);
    UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = _mm256_set1_epi32(outside);
    for (size_t i = 0; i < rounds; i++) UNROLL for (size_t s = 0; s < SUMS; s++)
        {
            __m256i a, b;
            __asm__(WORD_PRODUCTS("%[odd0]", "%[even0]", "0", "%[a]", "%[b]")
                    : [sum0] "+x"(sums[s]), [a] "=&x"(a), [b] "=&x"(b)
                    : [even0] "x"(w), [odd0] "x"(w));
        }
    UNROLL for (size_t s = 0; s < SUMS; s++) outside = _mm256_extract_epi32(sums[s], 0);
    return 2.0 * SUMS * 32 * (double)rounds;
}

#endif
