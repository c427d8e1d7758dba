#version 450
/* Normalises rows of n values; y may be x. Heads of a token are rows too: row i is `per_token` to a
 * token, tokens x_stride and y_stride apart. May multiply by silu of a gate with the rows of y, and add
 * the result to the residual stream.
 *
 * Dispatch: x: rows, or fewer (they take turns). */
#include "norms.glsl"

layout(constant_id = 1) const uint NORM = 1;
layout(constant_id = 2) const uint OUTPUT = 0;
layout(constant_id = 3) const float EPS = 0;
layout(constant_id = 4) const float RESIDUAL_SCALE = 1;

const uint OUTPUT_STORE = 0, OUTPUT_RESIDUAL = 1, OUTPUT_GATED = 2;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y, weight, bias;
    uint64_t other; /* residual stream, or gate */
    uint rows, n, per_token, x_stride, y_stride, other_stride;
    uint weight_step; /* floats from the weights of a token's row to those of the next; 0: they share them */
};

uint64_t row_of(uint64_t base, uint row, uint stride)
{
    return row_at(base, row / per_token, 4 * stride) + uint64_t(row % per_token * n * 4);
}

void main()
{
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        uint64_t from = row_of(x, row, x_stride), to = row_of(y, row, y_stride);
        uint64_t beside = row_of(other, row, other_stride);
        norm_row measured = norm_measure(from, n, NORM, EPS);
        for (uint i = thread; i < n; i += threads) {
            float shift = bias == 0 ? 0 : float_at(bias, i);
            precise float value = norm_apply(measured, NORM, float_at(from, i), float_at(weight, row % per_token * weight_step + i), shift);
            if (OUTPUT == OUTPUT_GATED) value *= silu(float_at(beside, i));
            floats(to).at[i] = value;
            if (OUTPUT == OUTPUT_RESIDUAL)
                floats(beside).at[i] = fma(RESIDUAL_SCALE, value, float_at(beside, i));
        }
    }
}
