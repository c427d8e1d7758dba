#version 450
/* y[token] = sum of weight * x[sorted entry] over a token's entries, by ascending expert; also added to
 * the residual stream, if there is one.
 *
 * Dispatch: x: ceil(n / threads); y: tokens. */
#include "common.glsl"

layout(constant_id = 1) const float RESIDUAL_SCALE = 1;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y, residual;
    uint64_t places, weights, order; /* [tokens][slots] */
    uint n, slots, x_stride, y_stride, residual_stride;
};

void main()
{
    uint i = gl_WorkGroupID.x * threads + thread, token = gl_WorkGroupID.y;
    if (i >= n) return;
    precise float sum = 0;
    for (uint slot = 0; slot < slots; slot++) {
        uint entry = token * slots + word_at(order, token * slots + slot);
        sum = fma(float_at(weights, entry), float_at(row_at(x, word_at(places, entry), 4 * x_stride), i), sum);
    }
    floats(row_at(y, token, 4 * y_stride)).at[i] = sum;
    if (residual == 0) return;
    uint64_t to = row_at(residual, token, 4 * residual_stride);
    floats(to).at[i] = fma(RESIDUAL_SCALE, sum, float_at(to, i));
}
