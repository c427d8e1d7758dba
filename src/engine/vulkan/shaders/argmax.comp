#version 450
/* The index of each row's largest value, the lowest on a tie; a NaN only if there is nothing else. The
 * first dispatch finds the best of each part of a row, the second (LAST) the best of the parts.
 *
 * Dispatch: x: parts, or 1 for LAST; y: rows. */
#include "counts.glsl"

layout(constant_id = 1) const uint LAST = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, ids;
    uint64_t found; /* [rows][parts] values, then as many indices */
    uint rows, n, x_stride, parts;
};

void main()
{
    uint row = gl_WorkGroupID.y, first = row * parts, indices = rows * parts;
    candidate own = candidate(0, NO_INDEX);
    if (LAST != 0) {
        for (uint i = thread; i < parts; i += threads)
            own = better(own, candidate(float_at(found, first + i), word_at(found, indices + first + i)));
    } else {
        uint64_t from = row_at(x, row, 4 * x_stride);
        for (uint i = gl_WorkGroupID.x * threads + thread; i < n; i += parts * threads)
            own = better(own, candidate(float_at(from, i), i));
    }
    own = reduce_best(own);
    if (thread != 0) return;
    if (LAST != 0) {
        words(ids).at[row] = own.index == NO_INDEX ? 0 : own.index;
    } else {
        floats(found).at[first + gl_WorkGroupID.x] = own.value;
        words(found).at[indices + first + gl_WorkGroupID.x] = own.index;
    }
}
