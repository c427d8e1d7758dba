/* Segments of a pass: adjacent rows of one sequence. */
#ifndef SEGMENTS_GLSL
#define SEGMENTS_GLSL

#include "common.glsl"

struct segment {
    uint row, count, sequence;
};

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer segment_list { segment at[]; };

segment segment_at(uint64_t segments, uint index)
{
    return segment_list(segments).at[index];
}

#endif
