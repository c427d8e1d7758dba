#version 450
/* Causal convolution by channel, then silu unless PLAIN: each thread takes one channel through the rows of a segment
 * (adjacent rows of one sequence) with the last inputs in registers, which are also the sequence's state.
 *
 * Dispatch: x: ceil(channels / threads); y: segments. */
#include "segments.glsl"

layout(constant_id = 1) const uint KERNEL = 4;
layout(constant_id = 2) const uint PLAIN = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y;
    uint64_t weights; /* [KERNEL][channels], oldest input first */
    uint64_t bias;    /* [channels]; 0: none */
    uint64_t state;   /* of the layer: by sequence [KERNEL - 1][channels], and more */
    uint64_t sequence_bytes;
    uint64_t segments;
    uint64_t kept_bytes; /* of a copy of the state after each row, which follow it; 0: none are kept */
    uint channels, x_stride, y_stride;
};

void main()
{
    uint channel = gl_WorkGroupID.x * threads + thread;
    if (channel >= channels) return;
    segment part = segment_at(segments, gl_WorkGroupID.y);
    uint64_t own = state + uint64_t(part.sequence) * sequence_bytes;
    floats kept = floats(own);
    float last[KERNEL], weight[KERNEL]; /* inputs, of which the newest is that of the row */
    [[unroll]] for (uint j = 0; j < KERNEL; j++) {
        weight[j] = float_at(weights, j * channels + channel);
        last[j] = j == 0 ? 0 : kept.at[(j - 1) * channels + channel];
    }
    for (uint row = part.row; row < part.row + part.count; row++) {
        precise float sum = bias == 0 ? 0 : float_at(bias, channel);
        [[unroll]] for (uint j = 0; j + 1 < KERNEL; j++) {
            last[j] = last[j + 1];
            sum = fma(weight[j], last[j], sum);
        }
        last[KERNEL - 1] = float_at(row_at(x, row, 4 * x_stride), channel);
        sum = fma(weight[KERNEL - 1], last[KERNEL - 1], sum);
        floats(row_at(y, row, 4 * y_stride)).at[channel] = PLAIN != 0 ? sum : silu(sum);
        if (kept_bytes == 0) continue;
        floats after = floats(own + uint64_t(1 + row - part.row) * kept_bytes);
        [[unroll]] for (uint j = 1; j < KERNEL; j++) after.at[(j - 1) * channels + channel] = last[j];
    }
    [[unroll]] for (uint j = 1; j < KERNEL; j++) kept.at[(j - 1) * channels + channel] = last[j];
}
