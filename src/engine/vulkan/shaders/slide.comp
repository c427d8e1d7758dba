#version 450
/* Moves cached rows of a sequence to the front: rows [from, from + count) to [0, count). Each thread
 * moves one word of a row in ascending order, so that none is overwritten before it is moved.
 *
 * Dispatch: x: ceil(row_words / threads); y: heads, keys' and values' alike. */
#include "common.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t heads; /* first of them; for the sequence */
    uint64_t head_bytes;
    uint row_words, from, count; /* words of 16 bits */
};

void main()
{
    uint word = gl_WorkGroupID.x * threads + thread;
    if (word >= row_words) return;
    halves to = halves(heads + uint64_t(gl_WorkGroupID.y) * head_bytes);
    for (uint row = 0; row < count; row++)
        to.at[row * row_words + word] = to.at[(from + row) * row_words + word];
}
