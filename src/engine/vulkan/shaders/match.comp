#version 450
/* Gives rows the magnitude of others: x *= sqrt(mean like^2) / sqrt(max(mean x^2, 1e-5)).
 *
 * Dispatch: x: rows, or fewer (they take turns). */
#include "reduce.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t x, like;
    uint rows, n, x_stride, like_stride;
};

float mean_square(uint64_t row)
{
    float sum = 0;
    for (uint i = thread; i < n; i += threads) sum = fma(float_at(row, i), float_at(row, i), sum);
    return reduce_sum(sum) / float(n);
}

void main()
{
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        uint64_t own = row_at(x, row, 4 * x_stride);
        float wanted = mean_square(row_at(like, row, 4 * like_stride));
        float factor = sqrt(wanted / max(mean_square(own), 1e-5f));
        for (uint i = thread; i < n; i += threads) floats(own).at[i] *= factor;
    }
}
