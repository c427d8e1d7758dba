/*
 * Few tokens of IQ3_XXS and IQ3_S with AVX-512 VBMI, whose permutations look up 64 bytes at once.
 * There is a table of each of the four values of all entries, so that a block's 64 entries become
 * four vectors without being taken apart: the first values of all entries, the second, ... In the
 * activations' form for this, each 256 columns are in the same order (PJ_FORM_Q8_PLANES). A lane
 * then adds up sixteen neighbouring columns, which have one scale.
 *
 * Decoding is so fast that reading the weights takes as long: with general registers it was four
 * times slower. More tokens are multiplied by the VNNI set.
 */
#include "engine/kernels/book_bits.h"
#include "engine/kernels/sets.h"
#include "engine/kernels/vector.h"

#include <string.h>

enum {
    STREAMS = 4,
    DOT_TOKENS = 4,
    PLANES = 4,
    COLUMNS = 256,
    PART = 128, /* entries that one permutation looks up */
    PARTS_XXS = 2,
    PARTS_S = 4
};

/* Filled by apply: a value of each entry, with the offset of codes; eight signs of seven bits. */
static _Alignas(64) uint8_t levels_xxs[PLANES][PARTS_XXS * PART], levels_s[PLANES][PARTS_S * PART],
    signs_of_seven[PART];

/* A block of weights. */
typedef struct planes {
    __m512i codes[PLANES]; /* values plus BOOK_SIGNED */
    __m512 scales;         /* of sixteen columns each */
} planes;

/* One token's activations for a block. */
typedef struct plane_inputs {
    __m512i start; /* what sums of products start from, to take the offset of codes away */
    __m512 scales;
} plane_inputs;

/* ---- activations ------------------------------------------------------------------------ */

static void (*pack_wide)(const float *x, size_t n, void *values, float *scales, int32_t *sums);

static void pack_planes(const float *x, size_t n, void *values, float *scales, int32_t *sums)
{
    char *at = values;
    pack_wide(x, n, values, scales, sums);
    for (size_t i = 0; i < n; i += COLUMNS, at += COLUMNS) {
        __m512i parts[PLANES];
        UNROLL for (size_t p = 0; p < PLANES; p++) parts[p] = _mm512_loadu_si512(at + 64 * p);
        UNROLL for (unsigned j = 0; j < PLANES; j++) UNROLL for (size_t p = 0; p < PLANES; p++)
            _mm_storeu_si128((__m128i *)(void *)(at + 64 * j + 16 * p),
                             _mm512_cvtepi32_epi8(_mm512_srli_epi32(parts[p], 8 * j)));
    }
}

INLINE plane_inputs load_inputs(const float *scales, const int32_t *sums)
{
    __m256i twos = _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)(const void *)sums),
                                     _mm256_set1_epi16(-BOOK_SIGNED));
    __m512 first = _mm512_set1_ps(scales[0]), second = _mm512_set1_ps(scales[4]);
    /* the sum of two lanes, whose weights have one scale, in the first */
    return (plane_inputs){_mm512_cvtepu32_epi64(twos), _mm512_mask_mov_ps(first, 0xff00, second)};
}

/* ---- weights ---------------------------------------------------------------------------- */

/* One value of each entry, with its sign. `parts`: which entries each part of the table holds. */
INLINE __m512i look_up(const uint8_t *table, __m512i entries, const __mmask64 *parts,
                       const size_t count, __mmask64 negative)
{
    const __m512i *t = (const __m512i *)(const void *)table;
    __m512i codes = entries; /* those not looked up yet stay entries */
    UNROLL for (size_t p = 0; p < count; p++) codes =
        _mm512_mask2_permutex2var_epi8(t[2 * p], codes, parts[p], t[2 * p + 1]);
    return _mm512_mask_sub_epi8(codes, negative, _mm512_set1_epi8((char)(2 * BOOK_SIGNED)), codes);
}

/* Of `signs`, those of value j of each entry. */
INLINE __mmask64 negative_values(__m512i signs, const int j)
{
    return _mm512_test_epi8_mask(signs, _mm512_set1_epi16((short)(0x1001 << j)));
}

/* Eight signs of each of 32 groups of eight columns, twice: of the first entry and the second. */
INLINE __m512i look_up_signs(__m512i rests)
{
    const __m512i *t = (const __m512i *)(const void *)signs_of_seven;
    const __m512i places = _mm512_set1_epi64(0x15150e0e07070000);
    return _mm512_permutex2var_epi8(t[0], _mm512_multishift_epi64_epi8(places, rests), t[1]);
}

INLINE void load_iq3_xxs(const char *at, planes *w)
{
    __m512i entries = _mm512_loadu_si512(at + 2);
    __m512i rests =
        _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)(at + 66)));
    __m512i signs = look_up_signs(rests);
    __mmask64 upper = _mm512_movepi8_mask(entries);
    const __mmask64 parts[PARTS_XXS] = {~upper, upper};
    UNROLL for (int j = 0; j < PLANES; j++) w->codes[j] =
        look_up(levels_xxs[j], entries, parts, PARTS_XXS, negative_values(signs, j));
    /* twice the four highest bits, plus one */
    __m512i scales = _mm512_or_si512(_mm512_srli_epi64(rests, 27), _mm512_set1_epi32(1));
    scales = _mm512_shuffle_epi32(scales, 0xa0);
    w->scales =
        _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at)) / 4));
}

INLINE void load_iq3_s(const char *at, planes *w)
{
    __m512i entries = _mm512_loadu_si512(at + 2);
    __mmask64 upper = _mm512_movepi8_mask(entries), ninth;
    memcpy(&ninth, at + 66, sizeof ninth);
    __m512i signs =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(at + 74)));
    signs = _mm512_or_si512(signs, _mm512_slli_epi16(signs, 8));
    const __mmask64 parts[PARTS_S] = {~(upper | ninth), upper & ~ninth, ninth & ~upper,
                                      upper & ninth};
    UNROLL for (int j = 0; j < PLANES; j++) w->codes[j] =
        look_up(levels_s[j], entries, parts, PARTS_S, negative_values(signs, j));
    /* twice four bits, plus one */
    const __m512i places =
        _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    __m512i scales =
        _mm512_srlv_epi32(_mm512_set1_epi32((int)pj_blocks_u32((const uint8_t *)at + 106)), places);
    scales = _mm512_and_si512(scales, _mm512_set1_epi32(15));
    scales = _mm512_add_epi32(_mm512_add_epi32(scales, scales), _mm512_set1_epi32(1));
    w->scales =
        _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_set1_ps(_cvtsh_ss(pj_load_u16(at))));
}

/* S rows times T tokens, which start at `token`. */
INLINE void dot_rows(pj_dtype type, const pj_dot *d, size_t token, const char *const *rows,
                     float result[STREAMS][DOT_TOKENS], const size_t S, const size_t T)
{
    const pj_packed *p = d->x;
    size_t ahead = d->ahead, blocks = p->cols / PJ_Q8_BLOCK;
    const size_t bytes = pj_blocks_k_bytes(type);
    const char *x = (const char *)p->values + token * p->cols;
    const float *scales = p->scales + token * blocks;
    const int32_t *sums = p->sums + token * blocks;
    __m512 acc[STREAMS][DOT_TOKENS];
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        _mm512_setzero_ps();
    for (size_t b = 0; b < p->cols / COLUMNS; b++, x += COLUMNS) {
        plane_inputs in[DOT_TOKENS];
        UNROLL for (size_t t = 0; t < T; t++) in[t] =
            load_inputs(scales + t * blocks + 8 * b, sums + t * blocks + 8 * b);
        UNROLL for (size_t s = 0; s < S; s++)
        {
            planes w;
            const char *at = rows[s] + b * bytes;
            for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + ahead + line);
            if (type == PJ_IQ3_S)
                load_iq3_s(at, &w);
            else
                load_iq3_xxs(at, &w);
            UNROLL for (size_t t = 0; t < T; t++)
            {
                __m512i sum = in[t].start;
                UNROLL for (size_t j = 0; j < PLANES; j++) sum = _mm512_dpbusd_epi32(
                    sum, w.codes[j], _mm512_loadu_si512(x + t * p->cols + 64 * j));
                acc[s][t] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), w.scales),
                                            in[t].scales, acc[s][t]);
            }
        }
    }
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) result[s][t] =
        _mm512_reduce_add_ps(acc[s][t]);
}

#include "engine/kernels/dot_groups.h"

static void dot_iq3_xxs(const pj_dot *d)
{
    dot_type(d, PJ_IQ3_XXS);
}

static void dot_iq3_s(const pj_dot *d)
{
    dot_type(d, PJ_IQ3_S);
}

/* ----------------------------------------------------------------------------------------- */

/* Of the VNNI set but for few tokens; every apply that reaches them writes the same. */
static pj_tile_kernels by_iq3_xxs, by_iq3_s;
static pj_form_kernels form_planes;

static void fill_levels(uint8_t *table, const uint32_t *entries, size_t count)
{
    for (size_t j = 0; j < PLANES; j++)
        for (size_t i = 0; i < count; i++)
            table[j * count + i] = (uint8_t)(BOOK_SIGNED + (entries[i] >> 8 * j & 255));
}

static void fill_tables(void)
{
    book_levels = pj_codebook_levels();
    fill_levels(levels_xxs[0], book_levels->iq3_xxs, PARTS_XXS * PART);
    fill_levels(levels_s[0], book_levels->iq3_s, PARTS_S * PART);
    for (unsigned i = 0; i < PART; i++) signs_of_seven[i] = (uint8_t)book_eighth_signs(i);
}

static void add_type(pj_kernels *kernels, pj_dtype type, pj_tile_kernels *by,
                     void (*dot)(const pj_dot *dot))
{
    *by = *kernels->linear[type];
    by->form = PJ_FORM_Q8_PLANES;
    by->dot = dot;
    kernels->linear[type] = by;
}

void pj_kernels_vbmi_apply(pj_kernels *kernels)
{
    /* the set that this depends on may be masked out */
    const pj_form_kernels *wide = kernels->forms[PJ_FORM_Q8_WIDE];
    if (wide->lanes != 16) return;
    fill_tables();
    pack_wide = wide->pack_row;
    form_planes = *wide;
    form_planes.pack_row = pack_planes;
    kernels->forms[PJ_FORM_Q8_PLANES] = &form_planes;
    kernels->peak[PJ_FORM_Q8_PLANES] = kernels->peak[PJ_FORM_Q8_WIDE];
    add_type(kernels, PJ_IQ3_XXS, &by_iq3_xxs, dot_iq3_xxs);
    add_type(kernels, PJ_IQ3_S, &by_iq3_s, dot_iq3_s);
}
