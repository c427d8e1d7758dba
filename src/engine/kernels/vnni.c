/*
 * Weights in codes of up to 8 bits with AVX-512 VNNI's byte dot product, activations in 8-bit
 * blocks. The product takes unsigned times signed bytes: weight codes are the unsigned operand (128
 * is added to signed types, nibbles have their offset of 8), and the sum's initial value, computed
 * from the activations' block sums, corrects for that.
 *
 * Few tokens: Q8_0 four rows at once, two blocks of 32 per vector; types with nibbles in
 * lanes_vnni.h. Many: weight rows are unpacked to one code per byte for all panels. Types with
 * blocks of 256 are in k_vnni.h.
 */
#include "engine/kernels/codes.h"
#include "engine/kernels/k_vnni.h"
#include "engine/kernels/lanes_vnni.h"
#include "engine/kernels/sets.h"
#include "engine/kernels/vector.h"

enum { STREAMS = 4, DOT_TOKENS = 4, DOT_MOST = 6, ROWS = 4, VECTORS = 3 };

/* ---- activations ------------------------------------------------------------------------ */

/* Blocks of one token that share a scale. Writes every block's entry in `scales` and `sums`
 * (-128 x sum of codes), which are `apart` from each other. */
INLINE void pack_group(const float *x, size_t blocks, __m256i *codes, float *scales, int32_t *sums,
                       size_t apart)
{
    vec most = vec_of(0);
    for (size_t i = 0; i < 2 * blocks; i++) most = vec_max_magnitude(most, vec_load(x + i * 16));
    float largest = vec_largest_magnitude(most);
    __m512 inverse = _mm512_set1_ps(largest > PJ_LEAST_SCALED ? 127 / largest : 0);
    for (size_t b = 0; b < blocks; b++, x += PJ_Q8_BLOCK) {
        __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
        __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), inverse));
        scales[b * apart] = largest / 127;
        /* unsigned: codes of NaN overflow */
        uint32_t sum = (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
        sums[b * apart] = (int32_t)(0 - PJ_Q8_OFFSET * sum);
        codes[b] = _mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
    }
}

#include "engine/kernels/pack_codes.h"

/* Rows with the sums of sixteen codes, two words per block. `n`: blocks of 256. */
static void pack_row_sixteens(const float *x, size_t n, void *values, float *scales, int32_t *sums)
{
    const char *codes = values;
    pack_row_wide(x, n, values, scales, sums);
    for (size_t i = 0; i < n; i += 64, sums += 2) {
        __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                          _mm512_loadu_si512(codes + i));
        sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, 0xb1));
        sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, 0x4e));
        sum = _mm512_maskz_compress_epi32(0x1111, sum);
        _mm_storel_epi64((__m128i *)(void *)sums,
                         _mm256_castsi256_si128(_mm512_cvtepi32_epi16(sum)));
    }
}

/* ---- few tokens ------------------------------------------------------------------------- */

/* Two neighbouring blocks of a row: unsigned codes, and their scales in the lanes of the codes'
 * sums. */
typedef struct two_blocks {
    __m512i codes;
    __m512 scales;
} two_blocks;

enum { Q8_BYTES = 34, Q4_BYTES = 18 };

/* Words `first` and `second` of a vector, each repeated eight times, as floats. */
INLINE __m512 spread_scales(__m512i words, short first, short second)
{
    __m256i index = _mm256_set_m128i(_mm_set1_epi16(second), _mm_set1_epi16(first));
    __m512i both = _mm512_permutexvar_epi16(_mm512_castsi256_si512(index), words);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(both));
}

INLINE two_blocks load_q8_0(const char *at)
{
    __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(at + 2));
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(at + Q8_BYTES + 2));
    __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return (two_blocks){_mm512_xor_si512(codes, _mm512_set1_epi8((char)128)),
                        spread_scales(_mm512_loadu_si512(at), 0, Q8_BYTES / 2)};
}

/* 64 columns of NVFP4 or Q1_0. */
static float nvfp4_scale[256]; /* filled by pj_kernels_vnni_apply */

INLINE __m128 nvfp4_scales(const char *at)
{
    const uint8_t *s = (const uint8_t *)at;
    return _mm_setr_ps(nvfp4_scale[s[0]], nvfp4_scale[s[1]], nvfp4_scale[s[2]], nvfp4_scale[s[3]]);
}

/* Where block `b` of a row, which is even, and the next begin; Q1_0: their block of 128. */
INLINE size_t two_place(pj_dtype type, size_t b)
{
    return type == PJ_NVFP4 ? b / 2 * 36 : type == PJ_Q1_0 ? b / 4 * 18 : b * Q8_BYTES;
}

/* What codes of NVFP4 and Q1_0 are above the values. */
INLINE int two_offset(pj_dtype type)
{
    return type == PJ_NVFP4 ? 16 : 1;
}

/* Codes of NVFP4 and Q1_0. Eight bytes of nibbles are sixteen columns, the low ones first.
 */
INLINE __m512i two_codes(pj_dtype type, const char *at, size_t b)
{
    if (type == PJ_Q1_0) {
        uint64_t bits;
        memcpy(&bits, at + 2 + b / 2 % 2 * 8, sizeof bits);
        return _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(2));
    }
    const __m512i twice = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    const __m512i shifts = _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(at + 4));
    __m512i nibbles = _mm512_permutexvar_epi64(twice, _mm512_castsi256_si512(bytes));
    nibbles = _mm512_and_si512(_mm512_srlv_epi64(nibbles, shifts), _mm512_set1_epi8(15));
    __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)pj_mxfp4_levels);
    levels = _mm_add_epi8(levels, _mm_set1_epi8((char)two_offset(type)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), nibbles);
}

/* Blocks `b` and b + 1. */
INLINE two_blocks load_two(pj_dtype type, const char *row, size_t b)
{
    const char *at = row + two_place(type, b);
    if (type == PJ_Q8_0) return load_q8_0(at);
    if (type == PJ_Q1_0)
        return (two_blocks){two_codes(type, at, b), _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at)))};
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return (two_blocks){two_codes(type, at, b),
                        _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(nvfp4_scales(at)))};
}

/* Activations of two blocks: codes, initial sums (in one lane per block), scales in their lanes. */
typedef struct two_inputs {
    __m512i codes, start;
    __m512 scales;
} two_inputs;

INLINE two_inputs load_inputs(const int8_t *codes, const float *scales, const int32_t *sums)
{
    const __m512i spread = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    __m128i start = _mm_loadl_epi64((const __m128i *)(const void *)sums);
    __m128i scale = _mm_loadl_epi64((const __m128i *)(const void *)scales);
    return (two_inputs){
        _mm512_loadu_si512(codes),
        _mm512_maskz_permutexvar_epi32(0x0101, spread, _mm512_castsi128_si512(start)),
        (__m512)_mm512_permutexvar_epi32(spread, _mm512_castsi128_si512(scale))};
}

/* S weight rows times T tokens: adds the products of blocks `b` and b + 1. */
INLINE void add_blocks(pj_dtype type, const char *const *rows, size_t b, const int8_t *codes,
                       const float *scales, const int32_t *sums, size_t cols,
                       __m512 acc[STREAMS][DOT_TOKENS], const size_t S, const size_t T)
{
    two_blocks w[STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) w[s] = load_two(type, rows[s], b);
    UNROLL for (size_t t = 0; t < T; t++)
    {
        size_t blocks = t * (cols / PJ_Q8_BLOCK);
        two_inputs x = load_inputs(codes + t * cols, scales + blocks, sums + blocks);
        if (type != PJ_Q8_0) { /* the offset is taken off in each lane: NVFP4 has two scales */
            const __m512i zero = _mm512_setzero_si512();
            const __m512i offset = _mm512_set1_epi8((char)two_offset(type));
            x.start = _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, offset, x.codes));
        }
        UNROLL for (size_t s = 0; s < S; s++)
        {
            __m512i product = _mm512_dpbusd_epi32(x.start, w[s].codes, x.codes);
            acc[s][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product),
                                        _mm512_mul_ps(w[s].scales, x.scales), acc[s][t]);
        }
    }
}

/* The last block of a row with an odd number of blocks, paired with zeros. */
INLINE void add_last_block(const char *const *at, const int8_t *codes, const float *scales,
                           const int32_t *sums, size_t cols, __m512 acc[STREAMS][DOT_TOKENS],
                           const size_t S, const size_t T)
{
    char weights[STREAMS][2 * Q8_BYTES] = {0};
    const char *rows[STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) rows[s] = memcpy(weights[s], at[s], Q8_BYTES);
    for (size_t t = 0; t < T; t++) {
        size_t block = t * (cols / PJ_Q8_BLOCK);
        int8_t last[2 * PJ_Q8_BLOCK] = {0};
        float scale[2] = {scales[block], 0};
        int32_t sum[2] = {sums[block], 0};
        __m512 one[STREAMS][DOT_TOKENS];
        memcpy(last, codes + t * cols, PJ_Q8_BLOCK);
        UNROLL for (size_t s = 0; s < S; s++) one[s][0] = acc[s][t];
        add_blocks(PJ_Q8_0, rows, 0, last, scale, sum, cols, one, S, 1);
        UNROLL for (size_t s = 0; s < S; s++) acc[s][t] = one[s][0];
    }
}

/* S weight rows times T tokens, which start at `token`. */
INLINE void dot_rows(pj_dtype type, const pj_dot *d, size_t token, const char *const *rows,
                     float result[STREAMS][DOT_TOKENS], const size_t S, const size_t T)
{
    const pj_packed *p = d->x;
    size_t ahead = d->ahead, blocks = p->cols / PJ_Q8_BLOCK;
    const int8_t *codes = (const int8_t *)p->values + token * p->cols;
    const float *scales = p->scales + token * blocks;
    const int32_t *sums = p->sums + token * blocks;
    __m512 acc[STREAMS][DOT_TOKENS];
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        _mm512_setzero_ps();
    for (size_t b = 0; b + 2 <= blocks; b += 2) {
        UNROLL for (size_t s = 0; s < S; s++)
            __builtin_prefetch(rows[s] + two_place(type, b) + ahead);
        add_blocks(type, rows, b, codes + b * 32, scales + b, sums + b, p->cols, acc, S, T);
    }
    const char *at[STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) at[s] = rows[s] + two_place(type, blocks - 1);
    if (blocks % 2)
        add_last_block(at, codes + (blocks - 1) * 32, scales + blocks - 1, sums + blocks - 1,
                       p->cols, acc, S, T);
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) result[s][t] =
        _mm512_reduce_add_ps(acc[s][t]);
}

#include "engine/kernels/dot_groups.h"

static void dot_q8_0(const pj_dot *d)
{
    dot_type(d, PJ_Q8_0);
}

static void dot_nvfp4(const pj_dot *d)
{
    dot_type(d, PJ_NVFP4);
}

static void dot_q1_0(const pj_dot *d)
{
    dot_type(d, PJ_Q1_0);
}

#define UNPACK_CODES(name, type)                                                         \
    static void unpack_##name(const void *row, size_t cols, void *values, float *scales, \
                              float *minima)                                             \
    {                                                                                    \
        pj_codes_row(PJ_##type, row, cols, values, scales, minima);                      \
    }
UNPACK_CODES(q4_1, Q4_1)
UNPACK_CODES(q5_0, Q5_0)
UNPACK_CODES(q5_1, Q5_1)
UNPACK_CODES(iq4_nl, IQ4_NL)
UNPACK_CODES(mxfp4, MXFP4)
UNPACK_CODES(iq4_xs, IQ4_XS)

/* ---- many tokens ------------------------------------------------------------------------ */

INLINE __m512i four_codes(const char *at)
{
    int32_t codes;
    memcpy(&codes, at, sizeof codes);
    return _mm512_set1_epi32(codes);
}

/* Sums of one block, starting from the correction of the codes' offset. */
INLINE void block_sums(const char *const *rows, size_t at, const char *x, const int32_t *x_sums,
                       __m512i whole[ROWS][VECTORS], const size_t V)
{
    UNROLL for (size_t v = 0; v < V; v++)
    {
        __m512i start = _mm512_loadu_si512(x_sums + v * 16);
        UNROLL for (size_t r = 0; r < ROWS; r++) whole[r][v] = start;
    }
    UNROLL for (size_t g = 0; g < 8; g++, x += V * 64)
    {
        __m512i panel[VECTORS];
        UNROLL for (size_t v = 0; v < V; v++) panel[v] = _mm512_loadu_si512(x + v * 64);
        UNROLL for (size_t r = 0; r < ROWS; r++)
        {
            __m512i w = four_codes(rows[r] + at + g * 4);
            UNROLL for (size_t v = 0; v < V; v++) whole[r][v] =
                _mm512_dpbusd_epi32(whole[r][v], w, panel[v]);
        }
    }
}

/* Every block has its own scale of activations. */
INLINE void tile_of(const pj_tile *t, const bool minima, const size_t V)
{
    const char *rows[ROWS], *x = t->x;
    size_t blocks = t->cols / PJ_Q8_BLOCK;
    __m512 sums[ROWS][VECTORS];
    UNROLL for (size_t r = 0; r < ROWS; r++)
    {
        const float *c = t->c + r * PJ_TILE_MAX_TOKENS;
        rows[r] = t->weights[r];
        UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
            t->add ? _mm512_loadu_ps(c + v * 16) : _mm512_setzero_ps();
    }
    for (size_t b = 0; b < blocks; b++, x += V * 512) {
        const int32_t *x_sums = t->x_sums + b * V * 16;
        __m512i whole[ROWS][VECTORS];
        block_sums(rows, b * PJ_Q8_BLOCK, x, x_sums, whole, V);
        UNROLL for (size_t v = 0; v < V; v++)
        {
            __m512 x_scale = _mm512_loadu_ps(t->x_scales + b * V * 16 + v * 16);
            UNROLL for (size_t r = 0; r < ROWS; r++)
            {
                __m512 scale = _mm512_mul_ps(x_scale, _mm512_set1_ps(t->scales[r][b]));
                sums[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r][v]), scale, sums[r][v]);
            }
            if (!minima) continue;
            __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(x_sums + v * 16));
            sum = _mm512_mul_ps(sum, _mm512_mul_ps(x_scale, _mm512_set1_ps(1.0f / PJ_Q8_OFFSET)));
            UNROLL for (size_t r = 0; r < ROWS; r++) sums[r][v] =
                _mm512_fmadd_ps(sum, _mm512_set1_ps(t->minima[r][b]), sums[r][v]);
        }
    }
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++)
        _mm512_storeu_ps(t->c + r * PJ_TILE_MAX_TOKENS + v * 16, sums[r][v]);
}

static void tile(const pj_tile *t)
{
    if (t->vectors == 3)
        tile_of(t, false, 3);
    else if (t->vectors == 2)
        tile_of(t, false, 2);
    else
        tile_of(t, false, 1);
}

static void tile_minima(const pj_tile *t)
{
    if (t->vectors == 3)
        tile_of(t, true, 3);
    else if (t->vectors == 2)
        tile_of(t, true, 2);
    else
        tile_of(t, true, 1);
}

enum { UNPACK_AHEAD = 2048 }; /* bytes: a row is read only once, directly from memory */

static void unpack_q8_0(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    const char *at = row;
    char *to = values;
    const __m256i offset = _mm256_set1_epi8((char)128);
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b++, at += Q8_BYTES) {
        __builtin_prefetch(at + UNPACK_AHEAD);
        __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(at + 2));
        _mm256_storeu_si256((__m256i *)(void *)(to + b * 32), _mm256_xor_si256(codes, offset));
        scales[b] = _cvtsh_ss(pj_load_u16(at));
    }
}

/* Unpacked with an offset of 128, like all types here. */
static void unpack_q4_0(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b++, at += Q4_BYTES) {
        __builtin_prefetch(at + UNPACK_AHEAD);
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(at + 2));
        __m256i twice = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
        __m256i codes = _mm256_and_si256(twice, _mm256_set1_epi8(15));
        _mm256_storeu_si256((__m256i *)(void *)(to + b * 32),
                            _mm256_add_epi8(codes, _mm256_set1_epi8(120)));
        scales[b] = _cvtsh_ss(pj_load_u16(at));
    }
}

#include "engine/kernels/stream_vnni.h"

static void unpack_nvfp4(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    const char *at = row;
    char *to = values;
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b += 2, at += 36, to += 64) {
        __builtin_prefetch(at + UNPACK_AHEAD);
        book_anew(two_codes(PJ_NVFP4, at, b), nvfp4_scales(at), 1, two_offset(PJ_NVFP4), 10, to,
                  scales + b);
    }
}

static void unpack_q1_0(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b += 2) {
        const char *at = (const char *)row + two_place(PJ_Q1_0, b);
        __builtin_prefetch(at + UNPACK_AHEAD);
        __m512i codes = two_codes(PJ_Q1_0, at, b);
        _mm512_storeu_si512((char *)values + 32 * b,
                            _mm512_add_epi8(codes, _mm512_set1_epi8(PJ_Q8_OFFSET - 1)));
        scales[b] = scales[b + 1] = _cvtsh_ss(pj_load_u16(at));
    }
}

static double peak(size_t rounds)
{
    enum { SUMS = ROWS * VECTORS * 2 };
    volatile int outside = 0;
    __m512i sums[SUMS], w = _mm512_set1_epi32(outside);
    UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = _mm512_set1_epi32(outside);
    for (size_t i = 0; i < rounds; i++)
        UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = _mm512_dpbusd_epi32(sums[s], w, w);
    UNROLL for (size_t s = 0; s < SUMS; s++) outside = _mm512_reduce_add_epi32(sums[s]);
    return 2.0 * SUMS * 64 * (double)rounds;
}

/* ----------------------------------------------------------------------------------------- */

#define TYPE(type, tile) FORM_TYPE(by_##type, type, Q8, dot_##type, tile, NULL, &stream_by_##type)
/* One scale per 16 columns of weights: their codes are rounded again for tiles, so that those read
 * activations as exactly as they can. */
#define NARROW_TYPE(type)                                                  \
    FORM_TYPE(many_##type, type, Q8, NULL, tile, NULL, &stream_by_##type); \
    FORM_TYPE(by_##type, type, Q8_WIDE, dot_##type, NULL, &many_##type, NULL)
#define FORM_TYPE(name, type, form_, dot_, tile_, many_, stream_)                   \
    static const pj_tile_kernels name = {.form = PJ_FORM_##form_,                   \
                                         .dot = dot_,                               \
                                         .tile = tile_,                             \
                                         .rows = ROWS,                              \
                                         .stretch = 2048, /* 96 KiB of the panel */ \
                                         .unpack = unpack_##type,                   \
                                         .many = many_,                             \
                                         .stream = stream_,                         \
                                         .unpacked_bytes = 1}
TYPE(q8_0, tile);
TYPE(q4_0, tile);
TYPE(q4_k, tile);
TYPE(q5_k, tile);
NARROW_TYPE(q6_k);
TYPE(q4_1, tile_minima);
TYPE(q5_0, tile);
TYPE(q5_1, tile_minima);
TYPE(iq4_nl, tile);
TYPE(mxfp4, tile);
NARROW_TYPE(q2_k);
NARROW_TYPE(q3_k);
TYPE(iq4_xs, tile);
NARROW_TYPE(iq1_s);
NARROW_TYPE(iq1_m);
NARROW_TYPE(iq2_xxs);
NARROW_TYPE(iq2_xs);
NARROW_TYPE(iq2_s);
NARROW_TYPE(iq3_xxs);
NARROW_TYPE(iq3_s);
NARROW_TYPE(tq1_0);
NARROW_TYPE(tq2_0);
TYPE(nvfp4, tile);
TYPE(q1_0, tile);

static const pj_form_kernels form_q8 = {.dot_tokens = DOT_MOST,
                                        .lanes = 16,
                                        .vectors = VECTORS,
                                        .group = 4,
                                        .pack_row = pack_row,
                                        .pack_panel = pack_panel};
static const pj_form_kernels form_q8_wide = {.dot_tokens = DOT_MOST,
                                             .lanes = 16,
                                             .vectors = VECTORS,
                                             .group = 4,
                                             .shared_blocks = WIDE,
                                             .pack_row = pack_row_sixteens,
                                             .pack_panel = pack_panel_wide};

#include "engine/kernels/codes_table.h"

void pj_kernels_vnni_apply(pj_kernels *kernels)
{
    book_levels = pj_codebook_levels();
    for (int i = 0; i < 256; i++) nvfp4_scale[i] = pj_codebook_nvfp4_scale((uint8_t)i);
    enter_codes(kernels);
    kernels->forms[PJ_FORM_Q8] = &form_q8;
    kernels->forms[PJ_FORM_Q8_WIDE] = &form_q8_wide;
    kernels->peak[PJ_FORM_Q8] = kernels->peak[PJ_FORM_Q8_WIDE] = peak;
}
