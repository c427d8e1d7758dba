#version 450
/* Multiplies and adds in registers, as fast as the device can: 16 operations per thread and round.
 *
 * Dispatch: x: as many workgroups as fill the device. */
#include "common.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t sink; /* a word that is never written, which the compiler cannot know */
    uint rounds;
    float factor, summand;
};

void main()
{
    float sums[8];
    [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = float(thread + i);
    for (uint round = 0; round < rounds; round++)
        [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = fma(sums[i], factor, summand);
    float all = 0;
    [[unroll]] for (uint i = 0; i < 8; i++) all += sums[i];
    if (all == -1) floats(sink).at[0] = all;
}
