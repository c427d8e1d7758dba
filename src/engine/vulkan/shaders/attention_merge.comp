#version 450
/* Puts the parts of split attention together, and adds the head's sink.
 *
 * Dispatch: x: heads; y: tokens. */
#include "common.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t parts; /* [tokens][heads][splits][2 + dim]: maximum, sum, values */
    uint64_t y, sinks;
    uint heads, splits, dim, y_stride;
};

void main()
{
    uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
    uint part_bytes = (2 + dim) * 4;
    uint64_t from = row_at(parts, (token * heads + head) * splits, part_bytes);
    uint64_t to = row_at(y, token, 4 * y_stride) + uint64_t(head * dim * 4);
    float largest = sinks == 0 ? -INFINITY : float_at(sinks, head);
    float sum = 0;
    for (uint s = 0; s < splits; s++) largest = max(largest, float_at(row_at(from, s, part_bytes), 0));
    if (sinks != 0) sum = exp(float_at(sinks, head) - largest);
    for (uint s = 0; s < splits; s++) {
        float own = float_at(row_at(from, s, part_bytes), 0);
        if (own != -INFINITY) sum += float_at(row_at(from, s, part_bytes), 1) * exp(own - largest);
    }
    for (uint i = thread; i < dim; i += threads) {
        float value = 0;
        for (uint s = 0; s < splits; s++) {
            uint64_t part = row_at(from, s, part_bytes);
            float own = float_at(part, 0);
            if (own != -INFINITY) value += float_at(part, 2 + i) * exp(own - largest);
        }
        floats(to).at[i] = value / sum;
    }
}
