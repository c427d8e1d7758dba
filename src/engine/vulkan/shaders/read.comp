#version 450
/* Reads memory as fast as the device can, STREAMS quads of words per thread in flight; with COPIES it writes
 * them elsewhere.
 *
 * Dispatch: x: workgroups that share the memory. */
#include "common.glsl"

layout(constant_id = 1) const uint STREAMS = 4;
layout(constant_id = 2) const uint COPIES = 0;

layout(buffer_reference, scalar, buffer_reference_align = 16) writeonly buffer copied_quads { uvec4 at[]; };

layout(push_constant, scalar) uniform parameters {
    uint64_t memory;
    uint64_t sink;  /* of copies; else a word that is never written, which the compiler cannot know */
    uint64_t quads; /* of words */
};

void main()
{
    uint step = gl_NumWorkGroups.x * threads, first = gl_WorkGroupID.x * threads + thread;
    uvec4 all = uvec4(0); /* all bits that were seen */
    for (uint64_t at = first; at < quads; at += uint64_t(step) * STREAMS) {
        uvec4 read[STREAMS];
        [[unroll]] for (uint i = 0; i < STREAMS; i++) {
            uint64_t quad = at + uint64_t(step) * i;
            read[i] = word_quads(memory + 16 * (quad < quads ? quad : at)).at[0];
        }
        [[unroll]] for (uint i = 0; i < STREAMS; i++) {
            uint64_t quad = at + uint64_t(step) * i;
            if (COPIES != 0 && quad < quads) copied_quads(sink + 16 * quad).at[0] = read[i];
            all |= read[i];
        }
    }
    if (COPIES == 0 && all == uvec4(0x9e3779b9u, 0x7f4a7c15u, 0xf39cc060u, 0x5cedc834u)) words(sink).at[0] = all.x;
}
