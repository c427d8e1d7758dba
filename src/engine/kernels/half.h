/* Exact scalar conversions of 16-bit floats, for plain C and the ends of rows. */
#ifndef PJ_KERNELS_HALF_H
#define PJ_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float pj_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t pj_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float pj_float_of_bf16(uint16_t half)
{
    return pj_float_of_bits((uint32_t)half << 16);
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline uint16_t pj_bf16_of_float(float value)
{
    uint32_t bits = pj_bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float pj_float_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) return pj_float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return pj_float_of_bits(sign | ((rest << 13) + ((127u - 15u) << 23)));
    /* Zero and subnormals: rest x 2^-24, exact in float. */
    float magnitude = (float)rest * 0x1p-24f;
    return pj_float_of_bits(sign | pj_bits_of_float(magnitude));
}

/* Round to nearest, ties to even; overflow becomes infinity; NaN stays NaN. */
static inline uint16_t pj_f16_of_float(float value)
{
    uint32_t bits = pj_bits_of_float(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above */
    if (rest < 0x38800000) { /* below 2^-14: adding 0.5 leaves the rounded subnormal in the bits */
        float shifted = pj_float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (pj_bits_of_float(shifted) - 0x3f000000));
    }
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - ((127u - 15u) << 23)) >> 13);
}

static inline uint16_t pj_load_u16(const void *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#endif
