#version 450
/* The input of experts whose weights apply to it: y[place of the entry] = weight x[token], after which entries count
 * once: ones[entry] = 1. An entry is a token and one of its experts, `slots` to a token.
 *
 * Dispatch: x: ceil(n / threads); y: entries, or fewer (they take turns). */
#include "common.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y;
    uint64_t weights, ones; /* [entries] */
    uint64_t places;        /* of sort; 0: an entry's own */
    uint entries, n, slots, x_stride;
};

void main()
{
    uint i = gl_WorkGroupID.x * threads + thread;
    for (uint entry = gl_WorkGroupID.y; entry < entries; entry += gl_NumWorkGroups.y) {
        if (i == 0) floats(ones).at[entry] = 1;
        if (i >= n) continue;
        float value = float_at(row_at(x, entry / slots, 4 * x_stride), i);
        floats(row_at(y, listed(places, entry), 4 * n)).at[i] = float_at(weights, entry) * value;
    }
}
