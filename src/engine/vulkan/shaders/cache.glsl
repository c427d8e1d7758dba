/* The key-value cache: rows of a head's keys or values by position, as F32 or F16. In layers with a
 * window the first row of a sequence is that of its `base`. */
#ifndef CACHE_GLSL
#define CACHE_GLSL

#include "common.glsl"

const uint CACHE_F32 = 0, CACHE_F16 = 1; /* pj_dtype */

/* What the host says about each row of a pass. */
struct cache_row {
    uint position, sequence, base;
    float scale; /* of its queries */
};

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer cache_rows { cache_row at[]; };

cache_row cache_row_at(uint64_t rows, uint token)
{
    return cache_rows(rows).at[token];
}

const uint WINDOW_NONE = 0, WINDOW_SLIDES = 1, WINDOW_CHUNK = 2; /* pj_vk_window */

/* First key that the query at a position sees: one of the last `window`, or of those since the last multiple of it. */
uint first_visible(uint position, uint window, uint kind)
{
    if (kind == WINDOW_CHUNK) return position - position % window;
    return position + 1 > window ? position + 1 - window : 0;
}

/* To the nearest F16, ties to even, as the CPU does: what packHalf2x16 does is up to the driver. */
uint f16_of(float x)
{
    uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) return sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0);
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
    uint shift = 13;
    if (magnitude < 0x38800000u) { /* subnormal: the leading one becomes explicit */
        uint exponent = magnitude >> 23;
        if (exponent < 102) return sign;
        shift = 126 - exponent;
        magnitude = (magnitude & 0x7fffffu) | 0x800000u;
    } else {
        magnitude -= 0x38000000u;
    }
    uint kept = magnitude >> shift, rest = magnitude & ((1u << shift) - 1), middle = 1u << (shift - 1);
    return sign | (kept + uint(rest > middle || (rest == middle && (kept & 1) != 0)));
}

void cache_store(uint type, uint64_t row, uint i, float value)
{
    if (type == CACHE_F32) floats(row).at[i] = value;
    else halves(row).at[i] = uint16_t(f16_of(value));
}

/* Values i .. i + 3 of a row of `dim`; those beyond its end are 0. Rows of dim % 4 == 0 values are
 * aligned. */
vec4 cache_load(uint type, uint64_t row, uint i, uint dim)
{
    if (dim % 4 == 0) {
        if (type == CACHE_F32) return vectors(row).at[i / 4];
        uvec2 w = word_pairs(row).at[i / 4];
        return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    }
    vec4 v = vec4(0);
    for (uint j = 0; j < 4 && i + j < dim; j++)
        v[j] = type == CACHE_F32 ? float_at(row, i + j) : unpackHalf2x16(uint(halves(row).at[i + j])).x;
    return v;
}

#endif
