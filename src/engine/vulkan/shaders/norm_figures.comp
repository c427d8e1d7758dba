#version 450
/* How a norm changes rows, found from its input alone, so that it may work in place: their variance and
 * their mean square divided by those of the output; -1 where that is 0. Rows are those of norm.comp; the
 * heads of every step-th token are measured, counted from the last.
 *
 * Dispatch: x: measured rows, or fewer (they take turns). */
#include "norms.glsl"

layout(constant_id = 1) const uint NORM = 1;
layout(constant_id = 2) const float EPS = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, weight, bias;
    uint64_t ratios; /* [measured] of variances, then [measured] of mean squares */
    uint tokens, n, per_token, x_stride, step, measured;
};

float output_at(norm_row of, uint64_t from, uint i)
{
    return norm_apply(of, NORM, float_at(from, i), float_at(weight, i), bias == 0 ? 0 : float_at(bias, i));
}

void main()
{
    for (uint m = gl_WorkGroupID.x; m < measured; m += gl_NumWorkGroups.x) {
        uint token = tokens - 1 - m / per_token * step;
        uint64_t from = row_at(x, token, 4 * x_stride) + uint64_t(m % per_token * n * 4);
        norm_row of = norm_measure(from, n, NORM, EPS);
        vec2 sum = vec2(0), square = vec2(0), spread = vec2(0); /* of the input, of the output */
        for (uint i = thread; i < n; i += threads) {
            vec2 v = vec2(float_at(from, i), output_at(of, from, i));
            sum += v;
            square += v * v;
        }
        vec2 mean = vec2(reduce_sum(sum.x), reduce_sum(sum.y)) / float(n);
        square = vec2(reduce_sum(square.x), reduce_sum(square.y));
        for (uint i = thread; i < n; i += threads) {
            vec2 v = vec2(float_at(from, i), output_at(of, from, i)) - mean;
            spread += v * v;
        }
        spread = vec2(reduce_sum(spread.x), reduce_sum(spread.y));
        if (thread != 0) continue;
        floats(ratios).at[m] = spread.y > 0 ? spread.x / spread.y : -1;
        floats(ratios).at[measured + m] = square.y > 0 ? square.x / square.y : -1;
    }
}
