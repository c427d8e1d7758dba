#version 450
/* Rows of floats, optionally normalised, as signed bytes with a scale per 32 columns: the activations of
 * packed products.
 *
 * Dispatch: x: rows. cols is a multiple of 32, threads of 16. */
#include "norms.glsl"

layout(constant_id = 1) const uint NORM = 0;
layout(constant_id = 2) const float EPS = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, weight, bias; /* of the norm */
    uint64_t codes;           /* [rows][cols] bytes */
    uint64_t scales;          /* [rows][cols / 32] */
    uint rows, cols, x_stride;
};

shared float largest_of[gl_WorkGroupSize.x];

float value_at(uint64_t row, norm_row normed, uint i)
{
    float v = float_at(row, i);
    if (NORM == NORM_NONE) return v;
    return norm_apply(normed, NORM, v, float_at(weight, i), bias == 0 ? 0 : float_at(bias, i));
}

uint code_of(float x, float inverse)
{
    return uint(int(roundEven(x * inverse))) & 255;
}

void main()
{
    uint row = gl_WorkGroupID.x;
    uint64_t from = row_at(x, row, 4 * x_stride);
    norm_row normed;
    if (NORM != NORM_NONE) normed = norm_measure(from, cols, NORM, EPS);
    for (uint start = 0; start < cols; start += 4 * threads) {
        uint column = start + 4 * thread;
        vec4 v = vec4(0);
        if (column < cols)
            [[unroll]] for (uint i = 0; i < 4; i++) v[i] = value_at(from, normed, column + i);
        vec4 magnitude = abs(v);
        largest_of[thread] = max(max(magnitude.x, magnitude.y), max(magnitude.z, magnitude.w));
        barrier();
        float largest = 0;
        const uint sharing = 32 / 4;
        for (uint i = 0; i < sharing; i++) largest = max(largest, largest_of[thread / sharing * sharing + i]);
        barrier();
        if (column >= cols) continue;
        float inverse = largest > 0 ? 127 / largest : 0;
        words(row_at(codes, row, cols)).at[column / 4] = code_of(v.x, inverse) | code_of(v.y, inverse) << 8 |
                                                         code_of(v.z, inverse) << 16 | code_of(v.w, inverse) << 24;
        if (column % 32 == 0) floats(row_at(scales, row, cols / 8)).at[column / 32] = largest / 127;
    }
}
