/* Weights in codes of up to 8 bits with AVX2's products of unsigned and signed bytes, which add
 * neighbouring pairs in 16 bits. Few tokens are in bytes_avx2.h, types with nibbles in
 * lanes_avx2.h, those with blocks of 256 in k_avx2.h. Many tokens: codes of four and five bits stay
 * unsigned, small enough that sixteen or eight products per lane fit 16 bits, and offsets or minima
 * are removed with the activations' block sums; types with blocks of 256 are in wide_avx2.h, and
 * with more tokens, like the others, in words_avx2.h. */
#include "engine/kernels/bytes_avx2.h"
#include "engine/kernels/k_avx2.h"
#include "engine/kernels/lanes_avx2.h"
#include "engine/kernels/pack_avx2.h"
#include "engine/kernels/vector.h"
#include "engine/kernels/words_avx2.h"

enum { ROWS = 4, VECTORS = 2 };

/* ---- activations ------------------------------------------------------------------------ */

INLINE __m256i load_32(const void *at)
{
    return _mm256_loadu_si256(at);
}

/* Neighbouring words added. */
INLINE __m256i join_words(__m256i words)
{
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

INLINE int32_t sum_codes(__m256i codes)
{
    /* sad_epu8 against 0 sums unsigned bytes: codes are offset by 128, which is subtracted
     * again. */
    __m256i quarters = _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8((char)128)),
                                       _mm256_setzero_si256());
    __m128i halves =
        _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
    return _mm_cvtsi128_si32(halves) + _mm_extract_epi32(halves, 2) - 128 * PJ_Q8_BLOCK;
}

/* Writes every block's entry in `scales` and `sums` (-128 x sum of codes), which are `apart` from
 * each other. */
INLINE void pack_group(const float *x, size_t blocks, __m256i *codes, float *scales, int32_t *sums,
                       size_t apart)
{
    float scale = quantise_group(x, blocks, codes);
    for (size_t b = 0; b < blocks; b++) {
        scales[b * apart] = scale;
        sums[b * apart] = -PJ_Q8_OFFSET * sum_codes(codes[b]);
    }
}

#include "engine/kernels/pack_codes.h"

/* Rows with the sums of sixteen codes, two words per block. `n`: blocks of 256. */
static void pack_row_sixteens(const float *x, size_t n, void *values, float *scales, int32_t *sums)
{
    const char *codes = values;
    pack_row_wide(x, n, values, scales, sums);
    for (size_t i = 0; i < n; i += 128, sums += 4) {
        __m256i fours[4];
        UNROLL for (size_t b = 0; b < 4; b++) fours[b] =
            join_words(_mm256_maddubs_epi16(_mm256_set1_epi8(1), load_32(codes + i + b * 32)));
        __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(fours[0], fours[1]),
                                        _mm256_hadd_epi32(fours[2], fours[3]));
        /* the first sixteens of the four blocks in the low half, the second in the high one */
        __m128i first = _mm256_castsi256_si128(all), second = _mm256_extracti128_si256(all, 1);
        second = _mm_slli_epi32(second, 16);
        _mm_storeu_si128((__m128i *)(void *)sums, _mm_blend_epi16(first, second, 0xaa));
    }
}

/* ---- many tokens ------------------------------------------------------------------------ */

INLINE __m256i four_codes(const char *at)
{
    int32_t codes;
    memcpy(&codes, at, sizeof codes);
    return _mm256_set1_epi32(codes);
}

/* Written out by hand: compilers start all products of a tile before adding any, and run out of
 * registers. */

/* sum (16 bits) += products of small codes with x. */
INLINE void add_small(__m256i *sum, __m256i w, __m256i x)
{
    __m256i part;
    __asm__("vpmaddubsw %[x], %[w], %[part]\n\t"
            "vpaddw %[part], %[sum], %[sum]"
            : [sum] "+x"(*sum), [part] "=&x"(part)
            : [w] "x"(w), [x] "x"(x));
}

/* What the codes of a type are in a tile. */
typedef struct small_type {
    bool centred; /* 8 is subtracted from codes 0 .. 15 */
    bool minima;  /* of each block */
    bool five;    /* bits, else four */
} small_type;

INLINE small_type small_of(pj_dtype type)
{
    return (small_type){.centred = type == PJ_Q4_0,
                        .minima = type != PJ_Q4_0,
                        .five = type == PJ_Q5_0 || type == PJ_Q5_1};
}

/* A block. Centred, sums start at that correction, half of it in each of a token's two lanes: they
 * fit 16 bits, since the magnitudes of x sum to at most 32 x 127. So do eight products of five
 * bits. */
INLINE void block_small(const char *const *rows, const char *x, const int32_t *x_sums,
                        const small_type type, const size_t V, __m256i whole[ROWS][VECTORS])
{
    __m256i first[ROWS][VECTORS];
    UNROLL for (size_t v = 0; v < V; v++)
    {
        __m256i half = _mm256_srai_epi32(load_32(x_sums + v * 8), 5);
        __m256i start = _mm256_blend_epi16(half, _mm256_slli_epi32(half, 16), 0xaa);
        UNROLL for (size_t r = 0; r < ROWS; r++) whole[r][v] =
            type.centred ? start : _mm256_setzero_si256();
    }
    UNROLL for (size_t g = 0; g < 8; g++, x += V * 32)
    {
        if (type.five && g == 4)
            UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++)
            {
                first[r][v] = join_words(whole[r][v]);
                whole[r][v] = _mm256_setzero_si256();
            }
        UNROLL for (size_t r = 0; r < ROWS; r++)
        {
            __m256i w = four_codes(rows[r] + g * 4);
            UNROLL for (size_t v = 0; v < V; v++) add_small(&whole[r][v], w, load_32(x + v * 32));
        }
    }
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++)
    {
        whole[r][v] = join_words(whole[r][v]);
        if (type.five) whole[r][v] = _mm256_add_epi32(whole[r][v], first[r][v]);
    }
}

INLINE void tile_clear(const pj_tile *t, const size_t V)
{
    for (size_t r = 0; r < ROWS; r++) memset(t->c + r * PJ_TILE_MAX_TOKENS, 0, V * 32);
}

INLINE void tile_block(const pj_tile *t, size_t b, const small_type type, const size_t V,
                       __m256i whole[ROWS][VECTORS])
{
    const char *rows[ROWS];
    UNROLL for (size_t r = 0; r < ROWS; r++) rows[r] =
        (const char *)t->weights[r] + b * PJ_Q8_BLOCK;
    block_small(rows, (const char *)t->x + b * V * 256, t->x_sums + b * V * 8, type, V, whole);
}

/* The activations of a block, summed. */
INLINE __m256 tile_x_sum(const pj_tile *t, size_t b, size_t v, const size_t V)
{
    __m256i x_sum = load_32(t->x_sums + (b * V + v) * 8);
    return _mm256_cvtepi32_ps(x_sum) * (1.0f / PJ_Q8_OFFSET); /* negative */
}

/* Every block has its own scale of activations. Sums stay in memory: the products take all
 * registers. */
INLINE void tile_small_of(const pj_tile *t, const small_type type, const size_t V)
{
    if (!t->add) tile_clear(t, V);
    for (size_t b = 0; b < t->cols / PJ_Q8_BLOCK; b++) {
        __m256i whole[ROWS][VECTORS];
        tile_block(t, b, type, V, whole);
        UNROLL for (size_t v = 0; v < V; v++)
        {
            __m256 x_scale = _mm256_loadu_ps(t->x_scales + (b * V + v) * 8);
            __m256 x_sum = _mm256_mul_ps(tile_x_sum(t, b, v, V), x_scale);
            UNROLL for (size_t r = 0; r < ROWS; r++)
            {
                float *c = t->c + r * PJ_TILE_MAX_TOKENS + v * 8;
                __m256 scale = _mm256_mul_ps(x_scale, _mm256_set1_ps(t->scales[r][b]));
                __m256 sum = _mm256_loadu_ps(c);
                sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[r][v]), scale, sum);
                if (type.minima) sum = _mm256_fmadd_ps(x_sum, _mm256_set1_ps(t->minima[r][b]), sum);
                _mm256_storeu_ps(c, sum);
            }
        }
    }
}

#define TILE(name, type, kind)                                       \
    static void tile_##name(const pj_tile *t)                        \
    {                                                                \
        const small_type type_of = small_of(PJ_##type);              \
        t->vectors == 2 ? kind(t, type_of, 2) : kind(t, type_of, 1); \
    }
TILE(q4_0, Q4_0, tile_small_of)
TILE(q4_1, Q4_1, tile_small_of)
TILE(q5_1, Q5_1, tile_small_of)

/* The fifth bits of 32 codes, as 16 or 0. */
INLINE __m256i fifth_bits(const char *at)
{
    const __m256i bytes =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i spread = _mm256_shuffle_epi8(four_codes(at), bytes);
    __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}

/* Types of blocks of 32; what a code is above the value becomes a minimum where it is not centred.
 */
INLINE void unpack_small(pj_dtype type, const char *at, size_t cols, char *to, float *scales,
                         float *minima)
{
    const lane_layout l = lane_layout_of(type);
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b++, at += l.bytes, to += 32) {
        __builtin_prefetch(at + UNPACK_AHEAD);
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(at + l.nibbles));
        __m256i codes = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
        codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
        if (l.fifth) codes = _mm256_or_si256(codes, fifth_bits(at + l.fifth));
        _mm256_storeu_si256((__m256i *)(void *)to, codes);
        scales[b] = _cvtsh_ss(pj_load_u16(at));
        if (small_of(type).minima)
            minima[b] = l.minima ? -_cvtsh_ss(pj_load_u16(at + 2)) : (float)l.offset * scales[b];
    }
}

#define UNPACK_SMALL(name, type, kind)                                                   \
    static void unpack_##name(const void *row, size_t cols, void *values, float *scales, \
                              float *minima)                                             \
    {                                                                                    \
        kind(PJ_##type, row, cols, values, scales, minima);                              \
    }
UNPACK_SMALL(q4_0, Q4_0, unpack_small)
UNPACK_SMALL(q4_1, Q4_1, unpack_small)
UNPACK_SMALL(q5_0, Q5_0, unpack_small)
UNPACK_SMALL(q5_1, Q5_1, unpack_small)

#include "engine/kernels/wide_avx2.h"

/* Half as many sums again as a tile has, because each waits for its own products here. */
static double peak(size_t rounds)
{
    enum { SUMS = 12 };
    volatile int outside = 0;
    __m256i sums[SUMS], w = _mm256_set1_epi32(outside);
    UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = _mm256_set1_epi32(outside);
    for (size_t i = 0; i < rounds; i++)
        UNROLL for (size_t s = 0; s < SUMS; s++) add_small(&sums[s], w, w);
    UNROLL for (size_t s = 0; s < SUMS; s++) outside = _mm256_extract_epi32(sums[s], 0);
    return 2.0 * SUMS * 32 * (double)rounds;
}

/* `most`: tokens that are faster by rows, four at a time, than in a panel, which is padded to eight
 * and has to be paid for by unpacking. */
#define SMALL(type, kind, most)                                                         \
    static const pj_tile_kernels by_##type = {.form = PJ_FORM_Q8,                       \
                                              .dot = dot_##type,                        \
                                              .dot_tokens = most,                       \
                                              .tile = tile_##kind,                      \
                                              .rows = ROWS,                             \
                                              .stretch = 256, /* 16 KiB of the panel */ \
                                              .unpack = unpack_##type,                  \
                                              .unpacked_bytes = 1}
SMALL(q4_0, q4_0, 12);
SMALL(q4_1, q4_1, 12);
SMALL(q5_0, q5_1, 6); /* with its offset as a minimum */
SMALL(q5_1, q5_1, 6);

/* Rows are unpacked whole unless they are very long: parts of rows are not adjacent in memory, and
 * take longer to read. */
#define WIDE_TILES(type, kind)                                            \
    .form = PJ_FORM_Q8_WIDE, .tile = tile_wide_##kind, .rows = WIDE_ROWS, \
    .stretch = 1024, /* up to 16 KiB of the panel */                      \
        .chunk_bytes = 16384, .unpack = unpack_wide_##type
/* `more`: dot_more. */
#define WIDE_ONLY(type, kind, most, more)                                                  \
    static const pj_tile_kernels by_##type = {WIDE_TILES(type, kind), .unpacked_bytes = 1, \
                                              .dot = dot_##type, .dot_tokens = most,       \
                                              .dot_more = more}
WIDE_ONLY(q4_k, minima_four, 6, 0);
WIDE_ONLY(q5_k, minima_five, 6, 0);
/* The rounding of activations to bytes is small beside that of such weights. */
WIDE_ONLY(q2_k, minima_four, 6, 1);
WIDE_ONLY(q3_k, eight, 5, 0);
WIDE_ONLY(iq1_s, four, 4, 0);
WIDE_ONLY(iq1_m, four, 4, 0);
WIDE_ONLY(iq2_xxs, one, 4, 0);
WIDE_ONLY(iq2_xs, one, 4, 0);
WIDE_ONLY(iq2_s, one, 4, 0);
WIDE_ONLY(iq3_xxs, one, 4, 0);
WIDE_ONLY(iq3_s, four, 4, 0);

#define WORD_TILES(type)                                             \
    .form = PJ_FORM_Q8_WORDS, .tile = tile_words, .rows = WORD_ROWS, \
    .stretch = 256, /* 16 KiB of the panel */                        \
        .unpack = unpack_##type, .unpacked_bytes = 2
#define WORDS(type, most)                                          \
    static const pj_tile_kernels many_##type = {WORD_TILES(type)}; \
    static const pj_tile_kernels by_##type = {                     \
        .form = PJ_FORM_Q8, .dot = dot_##type, .dot_tokens = most, .many = &many_##type}
WORDS(q8_0, 8);
WORDS(iq4_nl, 12);
WORDS(mxfp4, 28);
WORDS(nvfp4, 8);
WORDS(q1_0, 6);

/* Words for more tokens than `panel`, with finer activations. */
#define WIDE_OF(type, kind, bytes, most, more, panel)                                            \
    static const pj_tile_kernels wide_##type = {WIDE_TILES(type, kind), .unpacked_bytes = bytes, \
                                                .most_tokens = panel};                           \
    static const pj_tile_kernels many_##type = {WORD_TILES(type), .stream = &wide_##type};       \
    static const pj_tile_kernels by_##type = {.form = PJ_FORM_Q8_WIDE,                           \
                                              .dot = dot_##type,                                 \
                                              .dot_tokens = most,                                \
                                              .dot_more = more,                                  \
                                              .many = &many_##type}
#define WIDE_SOME(type, kind, most, more) WIDE_OF(type, kind, 1, most, more, 32)
WIDE_SOME(q6_k, two, 6, 2);
WIDE_SOME(tq1_0, eight, 4, 0);
WIDE_SOME(tq2_0, eight, 7, 2);
WIDE_OF(iq4_xs, levels, 2, 6, 3, 16);

static const pj_form_kernels form_q8 = {.dot_tokens = 4,
                                        .lanes = 8,
                                        .vectors = VECTORS,
                                        .group = 4,
                                        .pack_row = pack_row,
                                        .pack_panel = pack_panel};
static const pj_form_kernels form_q8_wide = {.dot_tokens = 4,
                                             .lanes = 8,
                                             .vectors = VECTORS,
                                             .group = 4,
                                             .shared_blocks = WIDE,
                                             .pack_row = pack_row_sixteens,
                                             .pack_panel = pack_panel_sixteens};
static const pj_form_kernels form_q8_words = {.dot_tokens = 4,
                                              .lanes = 8,
                                              .vectors = WORD_VECTORS,
                                              .group = 4,
                                              .shared_blocks = WORD_BLOCKS,
                                              .largest = WORD_CODES,
                                              .pack_panel = pack_panel_words};

#include "engine/kernels/codes_table.h"

void PJ_SET_SYMBOL(codes)(pj_kernels *kernels)
{
    book_levels = pj_codebook_levels();
    enter_codes(kernels);
    kernels->forms[PJ_FORM_Q8] = &form_q8;
    kernels->forms[PJ_FORM_Q8_WORDS] = &form_q8_words;
    kernels->forms[PJ_FORM_Q8_WIDE] = &form_q8_wide;
    kernels->peak[PJ_FORM_Q8] = kernels->peak[PJ_FORM_Q8_WIDE] = peak;
    kernels->peak[PJ_FORM_Q8_WORDS] = peak_words;
}
