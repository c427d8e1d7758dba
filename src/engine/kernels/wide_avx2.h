/* More than a few tokens with weights in blocks of 256 on AVX2. A row is unpacked once for all of
 * them, to bytes that an offset makes unsigned, and four of its columns are multiplied with those
 * of eight tokens. Sums of products stay in 16 bits for as long as they fit, up to 32 columns,
 * before they are multiplied by the sub-blocks' integer scales; floats are used once per 128
 * columns.
 *
 * Sub-blocks have sixteen columns. Two of them, A and B, are interleaved: four adjacent columns are
 * two of each, so that of a lane's two words one has products of A and one of B, and the
 * instruction that multiplies both by their scales adds them, too.
 *
 * The tile's `scales` hold two words for each 32 columns, the scales of A and B; those of types
 * with minima are low bytes, below the minima. Its `minima` hold, for each 128 columns, what a step
 * of scales is, and what a step of minima is or, as an integer, the offset. Included only by
 * codes_avx2.c. */
#ifndef PJ_KERNELS_WIDE_AVX2_H
#define PJ_KERNELS_WIDE_AVX2_H

#include "engine/kernels/k_avx2.h"
#include "engine/kernels/tile.h"

enum { WIDE_ROWS = 4, WIDE_GROUPS = 8 }; /* groups of four columns in 32 */

INLINE bool wide_has_minima(pj_dtype type)
{
    return k_has_minima(type) || type == PJ_Q2_K;
}

/* What is added to values to make them unsigned; subtracted again with the activations' sums. */
INLINE int wide_offset(pj_dtype type)
{
    if (!book_has_signs(type)) return k_offset(type);
    return type == PJ_IQ3_S ? 15 : type == PJ_IQ3_XXS ? 62 : 43;
}

/* No code is larger. */
INLINE int wide_largest(pj_dtype type)
{
    if (wide_offset(type)) return 2 * wide_offset(type);
    return type == PJ_Q5_K ? 31 : 15;
}

/* Groups of columns whose products fit 16 bits: a word has two of each. */
INLINE size_t wide_groups(pj_dtype type)
{
    int products = 32767 / (127 * wide_largest(type));
    return products >= 16 ? 8 : products >= 8 ? 4 : products >= 4 ? 2 : 1;
}

/* ---- activations ------------------------------------------------------------------------ */

/* Interleaves the two sixteens of a block of eight tokens, whose groups of four columns are `apart`
 * bytes from each other; writes the sums of both. */
INLINE void interleave_sixteens(char *at, size_t apart, int32_t *sums)
{
    __m256i sum = _mm256_setzero_si256(), both[WIDE_GROUPS];
    UNROLL for (size_t i = 0; i < 4; i++)
    {
        __m256i a = k_load(at + i * apart), b = k_load(at + (i + 4) * apart);
        both[2 * i] = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
        both[2 * i + 1] = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
    }
    UNROLL for (size_t g = 0; g < WIDE_GROUPS; g++)
    {
        _mm256_storeu_si256((__m256i *)(void *)(at + g * apart), both[g]);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_set1_epi8(1), both[g]));
    }
    _mm256_storeu_si256((__m256i *)(void *)sums, sum);
}

static void pack_panel_sixteens(const float *x, size_t x_stride, size_t tokens, size_t width,
                                size_t cols, void *values, float *scales, int32_t *sums)
{
    pack_panel_wide(x, x_stride, tokens, width, cols, values, scales, sums);
    char *at = values;
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b++, at += WIDE_GROUPS * width * 4)
        for (size_t t = 0; t < width; t += 8)
            interleave_sixteens(at + t * 4, width * 4, sums + b * width + t);
}

/* ---- weights ---------------------------------------------------------------------------- */

/* The order of the activations. */
INLINE __m256i wide_order(__m256i codes)
{
    const __m128i pairs = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(codes, 0xd8),
                               _mm256_broadcastsi128_si256(pairs));
}

INLINE __m256i wide_codes(pj_dtype type, const char *at, const int p)
{
    __m256i signs, codes = k_codes(type, at, p, &signs);
    if (book_has_signs(type))
        codes = _mm256_add_epi8(_mm256_sign_epi8(codes, signs),
                                _mm256_set1_epi8((char)wide_offset(type)));
    return wide_order(codes);
}

/* The words of a block's sixteen scales; units: as the tile's minima. */
INLINE __m256i wide_scales(pj_dtype type, const char *at, float units[2])
{
    if (k_has_minima(type)) {
        k_header h;
        k_load_header(at, &h);
        units[0] = _mm256_cvtss_f32(h.unit), units[1] = _mm_cvtss_f32(h.minima_unit);
        __m128i both = _mm256_castsi256_si128(h.scales);
        both = _mm_or_si128(both, _mm_slli_epi16(h.minima, 8));
        return _mm256_set_m128i(_mm_unpackhi_epi16(both, both), _mm_unpacklo_epi16(both, both));
    }
    if (type == PJ_Q2_K) {
        __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)at));
        units[0] = _cvtsh_ss(pj_load_u16(at + 80)), units[1] = _cvtsh_ss(pj_load_u16(at + 82));
        __m256i minima = _mm256_slli_epi16(_mm256_srli_epi16(words, 4), 8);
        return _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi16(15)), minima);
    }
    const int32_t offset = wide_offset(type);
    memcpy(&units[1], &offset, sizeof offset);
    return _mm256_cvtepi8_epi16(sixteen_scales(type, at, &units[0]));
}

INLINE void unpack_wide(pj_dtype type, const char *at, size_t cols, char *to, float *scales,
                        float *minima)
{
    const size_t bytes = pj_blocks_k_bytes(type);
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += bytes, scales += 8, minima += 8) {
        for (size_t line = 0; line < bytes; line += 64)
            __builtin_prefetch(at + UNPACK_AHEAD + line);
        float u[2];
        __m256i words = wide_scales(type, at, u);
        _mm256_storeu_si256((__m256i *)(void *)scales, words);
        _mm256_storeu_ps(minima, _mm256_setr_ps(u[0], u[1], 0, 0, u[0], u[1], 0, 0));
        UNROLL for (int p = 0; p < K_PARTS; p++, to += 32)
            _mm256_storeu_si256((__m256i *)(void *)to, wide_codes(type, at, p));
    }
}

#define UNPACK_WIDE(name, type)                                                               \
    static void unpack_wide_##name(const void *row, size_t cols, void *values, float *scales, \
                                   float *minima)                                             \
    {                                                                                         \
        unpack_wide(PJ_##type, row, cols, values, scales, minima);                            \
    }
UNPACK_WIDE(q2_k, Q2_K)
UNPACK_WIDE(q3_k, Q3_K)
UNPACK_WIDE(q4_k, Q4_K)
UNPACK_WIDE(q5_k, Q5_K)
UNPACK_WIDE(q6_k, Q6_K)
UNPACK_WIDE(iq1_s, IQ1_S)
UNPACK_WIDE(iq1_m, IQ1_M)
UNPACK_WIDE(iq2_xxs, IQ2_XXS)
UNPACK_WIDE(iq2_xs, IQ2_XS)
UNPACK_WIDE(iq2_s, IQ2_S)
UNPACK_WIDE(iq3_xxs, IQ3_XXS)
UNPACK_WIDE(iq3_s, IQ3_S)
UNPACK_WIDE(tq1_0, TQ1_0)
UNPACK_WIDE(tq2_0, TQ2_0)

/* ---- products --------------------------------------------------------------------------- */

/* In assembly for the reason of add_small. */

INLINE __m256i multiply_small(__m256i w, __m256i x)
{
    __m256i product;
    __asm__("vpmaddubsw %[x], %[w], %[product]" : [product] "=x"(product) : [w] "x"(w), [x] "x"(x));
    return product;
}

/* sum (32 bits) += products times scale. */
INLINE void add_scaled(__m256i *sum, __m256i products, __m256i scale)
{
    __asm__("vpmaddwd %[scale], %[products], %[products]\n\t"
            "vpaddd %[products], %[sum], %[sum]"
            : [sum] "+x"(*sum), [products] "+x"(products)
            : [scale] "x"(scale));
}

/* The same of words that are used again. */
INLINE void add_multiplied(__m256i *sum, __m256i w, __m256i x)
{
    __m256i part;
    __asm__("vpmaddwd %[x], %[w], %[part]\n\t"
            "vpaddd %[part], %[sum], %[sum]"
            : [sum] "+x"(*sum), [part] "=&x"(part)
            : [w] "x"(w), [x] "x"(x));
}

INLINE __m256i wide_scale(pj_dtype type, const float *both)
{
    __m256i scale = four_codes((const char *)both);
    return wide_has_minima(type) ? _mm256_and_si256(scale, _mm256_set1_epi16(255)) : scale;
}

/* What sums of activations are multiplied with: minima, or scales because of the offset. */
INLINE __m256i wide_low(pj_dtype type, const float *both)
{
    __m256i low = four_codes((const char *)both);
    return wide_has_minima(type) ? _mm256_srli_epi16(low, 8) : low;
}

/* 32 columns of R rows times V vectors of tokens. */
INLINE void wide_block(pj_dtype type, const char *const *w, const float *const *scales,
                       const char *x, __m256i sums[WIDE_ROWS][VECTORS], const size_t R,
                       const size_t V)
{
    const size_t some = wide_groups(type);
    UNROLL for (size_t first = 0; first < WIDE_GROUPS; first += some)
    {
        __m256i part[WIDE_ROWS][VECTORS];
        UNROLL for (size_t g = first; g < first + some; g++)
        {
            __m256i columns[VECTORS];
            UNROLL for (size_t v = 0; v < V; v++) columns[v] = k_load(x + (g * V + v) * 32);
            UNROLL for (size_t r = 0; r < R; r++)
            {
                __m256i codes = four_codes(w[r] + 4 * g);
                UNROLL for (size_t v = 0; v < V; v++)
                {
                    if (g == first)
                        part[r][v] = multiply_small(codes, columns[v]);
                    else
                        add_small(&part[r][v], codes, columns[v]);
                }
            }
        }
        UNROLL for (size_t r = 0; r < R; r++)
        {
            __m256i scale = wide_scale(type, scales[r]);
            UNROLL for (size_t v = 0; v < V; v++) add_scaled(&sums[r][v], part[r][v], scale);
        }
    }
}

/* acc += the products of 128 columns, whose first block is b, of a row. */
INLINE void wide_finish(pj_dtype type, const pj_tile *t, size_t row, size_t b,
                        const __m256i sums[VECTORS], __m256 acc[VECTORS], const size_t V)
{
    __m256i lows[VECTORS];
    UNROLL for (size_t i = 0; i < WIDE; i++)
    {
        __m256i low = wide_low(type, t->scales[row] + b + i);
        UNROLL for (size_t v = 0; v < V; v++)
        {
            __m256i some = _mm256_madd_epi16(k_load(t->x_sums + ((b + i) * V + v) * 8), low);
            lows[v] = i ? _mm256_add_epi32(lows[v], some) : some;
        }
    }
    const float *units = t->minima[row] + b;
    UNROLL for (size_t v = 0; v < V; v++)
    {
        __m256 x_scale = _mm256_loadu_ps(t->x_scales + (b * V + v) * 8);
        __m256i sum = sums[v];
        if (!wide_has_minima(type))
            sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(lows[v], words_at(units + 1)));
        __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(units[0]));
        if (wide_has_minima(type))
            value = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(lows[v]), _mm256_set1_ps(units[1]), value);
        acc[v] = _mm256_fmadd_ps(value, x_scale, acc[v]);
    }
}

/* R rows from `row` on: as many as have their sums in registers. */
INLINE void wide_rows(pj_dtype type, const pj_tile *t, size_t row, const size_t R, const size_t V)
{
    const char *w[WIDE_ROWS], *x = t->x;
    const float *scales[WIDE_ROWS];
    float *c = t->c + row * PJ_TILE_MAX_TOKENS;
    __m256 acc[WIDE_ROWS][VECTORS];
    UNROLL for (size_t r = 0; r < R; r++)
    {
        w[r] = t->weights[row + r], scales[r] = t->scales[row + r];
        UNROLL for (size_t v = 0; v < V; v++) acc[r][v] =
            t->add ? _mm256_loadu_ps(c + r * PJ_TILE_MAX_TOKENS + v * 8) : _mm256_setzero_ps();
    }
    for (size_t b = 0; b < t->cols / PJ_Q8_BLOCK; b += WIDE) {
        __m256i sums[WIDE_ROWS][VECTORS];
        UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
            _mm256_setzero_si256();
        for (size_t i = 0; i < WIDE; i++, x += WIDE_GROUPS * V * 32) {
            wide_block(type, w, scales, x, sums, R, V);
            UNROLL for (size_t r = 0; r < R; r++) w[r] += PJ_Q8_BLOCK, scales[r]++;
        }
        UNROLL for (size_t r = 0; r < R; r++) wide_finish(type, t, row + r, b, sums[r], acc[r], V);
    }
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++)
        _mm256_storeu_ps(c + r * PJ_TILE_MAX_TOKENS + v * 8, acc[r][v]);
}

INLINE void wide_tile(pj_dtype type, const pj_tile *t)
{
    if (t->vectors == 1) {
        wide_rows(type, t, 0, 4, 1);
        return;
    }
    for (size_t r = 0; r < WIDE_ROWS; r += 2) wide_rows(type, t, r, 2, 2);
}

/* By the number of groups whose products fit 16 bits, and with minima, of four and five bits. */
#define TILE_WIDE(name, type)                      \
    static void tile_wide_##name(const pj_tile *t) \
    {                                              \
        wide_tile(PJ_##type, t);                   \
    }
TILE_WIDE(minima_four, Q4_K)
TILE_WIDE(minima_five, Q5_K)
TILE_WIDE(eight, Q3_K)
TILE_WIDE(four, IQ3_S)
TILE_WIDE(two, Q6_K)
TILE_WIDE(one, IQ3_XXS)

/* ---- levels of eight bits ----------------------------------------------------------------- */

/* Pairs of their products with bytes do not fit 16 bits. Levels are multiplied by their scale when
 * unpacked to words, up to 127 x 32, and activations are widened: a vector has four columns of four
 * tokens, and a lane half of a sum. */

/* Where group g of block i of 64 columns is unpacked to: two of a block alternate with two of the
 * other, as they are in the halves of vectors. */
INLINE size_t level_place(size_t i, size_t g)
{
    return g / 2 * 32 + i * 16 + g % 2 * 8;
}

/* 64 columns of IQ4_XS times the scales of both blocks, which are given 256-fold. */
INLINE void store_levels(const char *nibbles, __m256i scales, char *to)
{
    const __m256i nibble = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    __m256i table = k_table(pj_iq4_levels), both = k_load(nibbles);
    __m256i first = _mm256_shuffle_epi8(table, _mm256_and_si256(both, nibble));
    both = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    __m256i second = _mm256_shuffle_epi8(table, both);
    UNROLL for (int i = 0; i < 2; i++, to += 64)
    {
        __m256i levels =
            i ? _mm256_unpackhi_epi16(first, second) : _mm256_unpacklo_epi16(first, second);
        /* these are 256-fold, too: the high words of products are the products */
        __m256i low = _mm256_mulhi_epi16(_mm256_unpacklo_epi8(zero, levels), scales);
        __m256i high = _mm256_mulhi_epi16(_mm256_unpackhi_epi8(zero, levels), scales);
        _mm256_storeu_si256((__m256i *)(void *)to, low);
        _mm256_storeu_si256((__m256i *)(void *)(to + 32), high);
    }
}

static void unpack_wide_iq4_xs(const void *row, size_t cols, void *values, float *scales,
                               float *minima)
{
    const __m256i zero = _mm256_setzero_si256(); /* the first scale in the low half, the next */
    const __m256i two = _mm256_setr_epi64x(0x0100010001000100, 0x0100010001000100,
                                           0x0302030203020302, 0x0302030203020302);
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / K_COLUMNS; b++, at += LANE_XS_BYTES, scales += 8) {
        for (size_t line = 0; line < LANE_XS_BYTES; line += 64)
            __builtin_prefetch(at + UNPACK_AHEAD + line);
        __m128i bytes = _mm_cvtsi64_si128((long long)lane_xs_scales(at));
        bytes = _mm_sub_epi8(bytes, _mm_set1_epi8(32));
        __m256i each = _mm256_broadcastsi128_si256(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
        scales[0] = scales[4] = _cvtsh_ss(pj_load_u16(at));
        UNROLL for (int p = 0; p < K_PARTS; p += 2, to += 128)
        {
            store_levels(at + 8 + 16 * p, _mm256_shuffle_epi8(each, two), to);
            each = _mm256_alignr_epi8(zero, each, 4);
        }
    }
}

/* Four rows times vector v of tokens. */
INLINE void level_rows(const pj_tile *t, size_t v)
{
    const size_t V = t->vectors;
    const char *w[WIDE_ROWS], *x = (const char *)t->x + v * 32;
    float *c = t->c + v * 8;
    __m256 acc[WIDE_ROWS];
    UNROLL for (size_t r = 0; r < WIDE_ROWS; r++)
    {
        w[r] = t->weights[r];
        acc[r] = t->add ? _mm256_loadu_ps(c + r * PJ_TILE_MAX_TOKENS) : _mm256_setzero_ps();
    }
    for (size_t b = 0; b < t->cols / PJ_Q8_BLOCK; b += WIDE) {
        __m256i sums[WIDE_ROWS][2];
        UNROLL for (size_t r = 0; r < WIDE_ROWS; r++) sums[r][0] = sums[r][1] =
            _mm256_setzero_si256();
        for (size_t i = 0; i < WIDE; i += 2) {
            UNROLL for (size_t g = 0; g < 2 * WIDE_GROUPS; g++, x += V * 32)
            {
                const __m128i *at = (const __m128i *)(const void *)x;
                __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(at));
                __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(at + 1));
                size_t place = level_place(g / WIDE_GROUPS, g % WIDE_GROUPS);
                UNROLL for (size_t r = 0; r < WIDE_ROWS; r++)
                {
                    const void *four = w[r] + place;
                    __m256i columns = _mm256_castpd_si256(_mm256_broadcast_sd(four));
                    add_multiplied(&sums[r][0], first, columns);
                    add_multiplied(&sums[r][1], second, columns);
                }
            }
            UNROLL for (size_t r = 0; r < WIDE_ROWS; r++) w[r] += 128;
        }
        UNROLL for (size_t r = 0; r < WIDE_ROWS; r++)
        {
            __m256i sum = _mm256_hadd_epi32(sums[r][0], sums[r][1]);
            sum = _mm256_permute4x64_epi64(sum, 0xd8);
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(t->scales[r][b]),
                                         _mm256_loadu_ps(t->x_scales + (b * V + v) * 8));
            acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, acc[r]);
        }
    }
    UNROLL for (size_t r = 0; r < WIDE_ROWS; r++)
        _mm256_storeu_ps(c + r * PJ_TILE_MAX_TOKENS, acc[r]);
}

static void tile_wide_levels(const pj_tile *t)
{
    for (size_t v = 0; v < t->vectors; v++) level_rows(t, v);
}

#endif
