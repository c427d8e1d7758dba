#version 450
/* Alternating updates: COUNT residual streams of n values, adjacent in a row.
 *   PREDICT: stream j += sum over i of coefficients[COUNT j + i] stream i, all at once; x = the active one.
 *   CORRECT: stream j += (1 + coefficients[j]) (x - the active one before); x = the active one, times the scale of
 *   its column if there is one.
 *
 * Dispatch: x: ceil(n / threads); y: rows, or fewer (they take turns). */
#include "common.glsl"

layout(constant_id = 1) const uint COUNT = 2;
layout(constant_id = 2) const uint ACTIVE = 0;
layout(constant_id = 3) const uint CORRECT = 0; /* 0: PREDICT */

layout(push_constant, scalar) uniform parameters {
    uint64_t coefficients, streams, x;
    uint64_t scale; /* [n]; 0: none */
    uint rows, n, coefficients_stride, streams_stride, x_stride;
};

float predicted(const float before[COUNT], uint64_t factors, uint j)
{
    float sum = before[j];
    [[unroll]] for (uint i = 0; i < COUNT; i++) sum = fma(float_at(factors, COUNT * j + i), before[i], sum);
    return sum;
}

void main()
{
    uint column = gl_WorkGroupID.x * threads + thread;
    if (column >= n) return;
    for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
        uint64_t factors = row_at(coefficients, row, 4 * coefficients_stride);
        floats values = floats(row_at(streams, row, 4 * streams_stride));
        floats own = floats(row_at(x, row, 4 * x_stride));
        float before[COUNT], kept = 0;
        [[unroll]] for (uint j = 0; j < COUNT; j++) before[j] = values.at[j * n + column];
        float change = CORRECT != 0 ? own.at[column] - before[ACTIVE] : 0;
        [[unroll]] for (uint j = 0; j < COUNT; j++) {
            float value = CORRECT != 0 ? fma(1 + float_at(factors, j), change, before[j])
                                       : predicted(before, factors, j);
            values.at[j * n + column] = value;
            if (j == ACTIVE) kept = value;
        }
        own.at[column] = scale == 0 ? kept : kept * float_at(scale, column);
    }
}
