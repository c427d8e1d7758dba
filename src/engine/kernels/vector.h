/* The widest float vector type that this file is compiled for, based on the compilers' vector
 * extensions: arithmetic uses operators; operations without an operator (16-bit loads,
 * shuffles) are defined here. Sources that include this are compiled once per set; PJ_SET is
 * the set's name. */
#ifndef PJ_KERNELS_VECTOR_H
#define PJ_KERNELS_VECTOR_H

#include "engine/kernels/blocks.h"
#include "engine/kernels/half.h"
#include "engine/kernels/tile.h"

#include <math.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t veci __attribute__((vector_size(LANES * 4)));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")
#define ROLLED _Pragma("GCC unroll 1")

/* pj_kernels_SET_NAME */
#define PJ_JOIN3(a, b, c)   a##b##_##c
#define PJ_JOIN(a, b, c)    PJ_JOIN3(a, b, c)
#define PJ_SET_SYMBOL(name) PJ_JOIN(pj_kernels_, PJ_SET, name)

void PJ_SET_SYMBOL(apply)(pj_kernels *kernels);     /* the whole set */
void PJ_SET_SYMBOL(rows)(pj_kernels *kernels);      /* rows_vector.c */
void PJ_SET_SYMBOL(attention)(pj_kernels *kernels); /* attention_vector.c */
void PJ_SET_SYMBOL(floats)(pj_kernels *kernels);    /* linear_vector.c */
void PJ_SET_SYMBOL(codes)(pj_kernels *kernels);     /* codes_avx2.c, codes_neon.c */

INLINE vec vec_of(float value)
{
#if defined(__AVX512F__)
    return (vec)_mm512_set1_ps(value);
#elif defined(__AVX2__)
    return (vec)_mm256_set1_ps(value);
#else
    return (vec)vdupq_n_f32(value);
#endif
}

INLINE vec vec_load(const float *at)
{
    vec v;
    memcpy(&v, at, sizeof v);
    return v;
}

INLINE void vec_store(float *at, vec v)
{
    memcpy(at, &v, sizeof v);
}

/* Loads (stores) the first n < LANES values; the others are 0 (unchanged). */
INLINE vec vec_load_some(const float *at, size_t n)
{
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), at);
#else
    float values[LANES] = {0};
    memcpy(values, at, n * sizeof *values);
    return vec_load(values);
#endif
}

INLINE void vec_store_some(float *at, vec v, size_t n)
{
    float values[LANES];
    vec_store(values, v);
    memcpy(at, values, n * sizeof *values);
}

INLINE vec vec_load_f16(const void *at)
{
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(at));
#elif defined(__AVX2__)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128(at));
#else
    return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
#endif
}

INLINE vec vec_load_bf16(const void *at)
{
#if defined(__AVX512F__)
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at)), 16);
#elif defined(__AVX2__)
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16);
#else
    return (vec)vshll_n_u16(vld1_u16(at), 16);
#endif
}

/* Loads a vector of a stored value type; in plain C a single value. */
INLINE vec vec_load_type(pj_dtype type, const char *at)
{
    if (type == PJ_F16) return vec_load_f16(at);
    if (type == PJ_BF16) return vec_load_bf16(at);
    vec v;
    memcpy(&v, at, sizeof v);
    return v;
}

INLINE vec vec_load_type_some(pj_dtype type, const char *at, size_t n)
{
    char bytes[LANES * 4] = {0};
    memcpy(bytes, at, n * (type == PJ_F32 ? 4 : 2));
    return vec_load_type(type, bytes);
}

INLINE vec vec_select(veci mask, vec yes, vec no)
{
    return (vec)((mask & (veci)yes) | (~mask & (veci)no));
}

INLINE vec vec_max(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vec_select(a > b, a, b);
#endif
}

INLINE vec vec_abs(vec a)
{
    return (vec)((veci)a & 0x7fffffff);
}

/* The larger of a magnitude and that of b. Compared as integers, in which NaN is above infinity, so
 * that it stays. */
INLINE vec vec_max_magnitude(vec a, vec b)
{
    vec size = vec_abs(b);
#if defined(__AVX512F__)
    return (vec)_mm512_max_epi32((__m512i)a, (__m512i)size);
#elif defined(__AVX2__)
    return (vec)_mm256_max_epi32((__m256i)a, (__m256i)size);
#else
    return (vec)vmaxq_s32((int32x4_t)a, (int32x4_t)size);
#endif
}

INLINE float vec_largest_magnitude(vec v)
{
    int32_t bits;
    float largest;
#if defined(__AVX512F__)
    bits = _mm512_reduce_max_epi32((__m512i)v);
#elif defined(__AVX2__)
    __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    bits = _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
#else
    bits = vmaxvq_s32((int32x4_t)v);
#endif
    memcpy(&largest, &bits, sizeof largest);
    return largest;
}

/* Number of lanes in which a < b. */
INLINE size_t vec_count_less(vec a, vec b)
{
#if defined(__AVX512F__)
    return (size_t)__builtin_popcount(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ));
#elif defined(__AVX2__)
    __m256 less = _mm256_cmp_ps((__m256)a, (__m256)b, _CMP_LT_OQ);
    return (size_t)__builtin_popcount((unsigned)_mm256_movemask_ps(less));
#else
    return vaddvq_u32(vshrq_n_u32(vcltq_f32((float32x4_t)a, (float32x4_t)b), 31));
#endif
}

/* Index lists of shuffles: f(i, h) for every lane i. */
#define EACH4(f, o, h) f(o, h), f(o + 1, h), f(o + 2, h), f(o + 3, h)
#if defined(__AVX512F__)
#define EACH(f, h) EACH4(f, 0, h), EACH4(f, 4, h), EACH4(f, 8, h), EACH4(f, 12, h)
#elif defined(__AVX2__)
#define EACH(f, h) EACH4(f, 0, h), EACH4(f, 4, h)
#else
#define EACH(f, h) EACH4(f, 0, h)
#endif
/* Lane i with bit h clear: a[i]; set: b[i - h]. HIGH: the other half of both. */
#define LOW(i, h)  ((i) & (h) ? LANES + (i) - (h) : (i))
#define HIGH(i, h) ((i) & (h) ? LANES + (i) : (i) + (h))
/* Lane i: a[i] + a[i + h] where bit h of i is clear, else b[i - h] + b[i]. After this has run over
 * all pairs for h = LANES / 2 .. 1, lane i holds the sum over vector i. */
#define COMBINE(a, b, h) \
    (__builtin_shufflevector(a, b, EACH(LOW, h)) + __builtin_shufflevector(a, b, EACH(HIGH, h)))

/* Lane i of the result: the sum over v[i]. Destroys v. */
INLINE vec vec_sum_each(vec v[LANES])
{
#if defined(__AVX512F__)
    UNROLL for (size_t i = 0; i < 8; i++) v[i] = COMBINE(v[i], v[i + 8], 8);
#endif
#if defined(__AVX2__)
    UNROLL for (size_t i = 0; i < 4; i++) v[i] = COMBINE(v[i], v[i + 4], 4);
#endif
    UNROLL for (size_t i = 0; i < 2; i++) v[i] = COMBINE(v[i], v[i + 2], 2);
    return COMBINE(v[0], v[1], 1);
}

#define EXCHANGE(a, b, h)                                       \
    do {                                                        \
        vec low_ = __builtin_shufflevector(a, b, EACH(LOW, h)); \
        b = __builtin_shufflevector(a, b, EACH(HIGH, h));       \
        a = low_;                                               \
    } while (0)

/* Transposes: exchanges off-diagonal blocks of h x h for h = 1, 2, 4, 8. */
INLINE void vec_transpose(vec v[LANES])
{
    UNROLL for (size_t i = 0; i < LANES; i += 2) EXCHANGE(v[i], v[i + 1], 1);
    UNROLL for (size_t i = 0; i < LANES; i += 1) if (!(i & 2)) EXCHANGE(v[i], v[i + 2], 2);
#if defined(__AVX2__)
    UNROLL for (size_t i = 0; i < LANES; i += 1) if (!(i & 4)) EXCHANGE(v[i], v[i + 4], 4);
#endif
#if defined(__AVX512F__)
    UNROLL for (size_t i = 0; i < LANES; i += 1) if (!(i & 8)) EXCHANGE(v[i], v[i + 8], 8);
#endif
}

/* Adds lane i and lane i + half, so that all sets sum in the same order; in registers where there
 * are shuffles, because a store followed by loads would stall. */
INLINE float vec_sum(vec v)
{
#if defined(__AVX2__)
#if defined(__AVX512F__)
    __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    __m256 eight = (__m256)v;
#endif
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    float lanes[LANES];
    vec_store(lanes, v);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
#endif
}

INLINE float vec_largest(vec v)
{
#if defined(__AVX2__)
#if defined(__AVX512F__)
    __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    __m256 eight = (__m256)v;
#endif
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
    float lanes[LANES], largest;
    vec_store(lanes, v);
    largest = lanes[0];
    for (size_t i = 1; i < LANES; i++) largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
#endif
}

/* e^x to about 1e-7 relative; 0 below -87.3 (no subnormal results), infinite above 88.7. */
INLINE vec vec_exp(vec x)
{
    const float low = -87.3f, high = 88.72f;
#if defined(__AVX512F__) /* with a NaN, min and max return their second operand */
    vec bounded = (vec)_mm512_min_ps(_mm512_set1_ps(2 * high),
                                     _mm512_max_ps(_mm512_set1_ps(2 * low), (__m512)x));
#else
    veci tiny = x<low, huge = x> high;
    vec bounded = vec_select(tiny, vec_of(low), vec_select(huge, vec_of(high), x));
#endif
    const float magic = 12582912.0f; /* 1.5 x 2^23: adding it rounds to a whole number */
    vec shifted = bounded * 1.44269504f + magic;
    vec n = shifted - magic;
    vec r = bounded - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    vec p = vec_of(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
#if defined(__AVX512F__)
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(low), _CMP_NLT_UQ);
    return (vec)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
#else
    /* 2^n in two factors, because n may be 128. */
    veci whole = (veci)shifted - (veci)vec_of(magic), half = whole >> 1;
    vec power = (vec)((half + 127) << 23), rest = (vec)((whole - half + 127) << 23);
    vec y = p * power * rest;
    return vec_select(tiny, vec_of(0), vec_select(huge, vec_of(INFINITY), y));
#endif
}

/* ln x for normal x > 0, to about 1e-7. */
INLINE vec vec_log(vec x)
{
    /* x = m 2^e with m in [sqrt(1/2), sqrt(2)) */
    veci bits = (veci)x - 0x3f3504f3;
    veci e = bits >> 23;
    vec m = (vec)((veci)x - (e << 23)) - 1.0f;
    vec p = vec_of(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    vec square = m * m, fe = __builtin_convertvector(e, vec);
    vec y = p * m * square + fe * -2.12194440e-4f;
    y = y - 0.5f * square + m;
    return y + fe * 0.693359375f;
}

#endif
