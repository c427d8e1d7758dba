#version 450
/* What of the gates of a row exceeds their mean by CUTOFF standard deviations: y = max(0, x - mean - CUTOFF deviation).
 *
 * Dispatch: x: rows, or fewer (they take turns). */
#include "reduce.glsl"

layout(constant_id = 1) const float CUTOFF = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y;
    uint rows, n, x_stride, y_stride;
};

void main()
{
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        uint64_t from = row_at(x, row, 4 * x_stride), to = row_at(y, row, 4 * y_stride);
        float sum = 0, square = 0;
        for (uint i = thread; i < n; i += threads) sum += float_at(from, i);
        float mean = reduce_sum(sum) / float(n);
        for (uint i = thread; i < n; i += threads) {
            float off = float_at(from, i) - mean;
            square += off * off;
        }
        float least = mean + CUTOFF * sqrt(reduce_sum(square) / float(n));
        for (uint i = thread; i < n; i += threads) floats(to).at[i] = max(float_at(from, i) - least, 0);
    }
}
