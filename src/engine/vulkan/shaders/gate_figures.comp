#version 450
/* Counts over the gate of a feed-forward block, per sampled row: gates below 0 (killed), activations (dead)
 * and gated values (gated) that are small against the largest of their row.
 *
 * Dispatch: x: sampled rows, every step-th counted from the last. */
#include "counts.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t gate, activated, up; /* up 0: no gate */
    uint64_t counts;              /* [sampled rows] killed, dead, gated */
    uint rows, n, gate_stride, activated_stride, up_stride, step;
    float tau;
};

void main()
{
    uint row = rows - 1 - gl_WorkGroupID.x * step;
    uint64_t g = row_at(gate, row, 4 * gate_stride), a = row_at(activated, row, 4 * activated_stride);
    uint64_t u = up == 0 ? 0 : row_at(up, row, 4 * up_stride);
    float largest = 0, largest_gated = 0;
    for (uint i = thread; i < n; i += threads) {
        float act = float_at(a, i);
        largest = max(largest, abs(act));
        if (up != 0) largest_gated = max(largest_gated, abs(act * float_at(u, i)));
    }
    largest = reduce_max(largest);
    largest_gated = reduce_max(largest_gated);
    uint killed = 0, dead = 0, gated = 0;
    for (uint i = thread; i < n; i += threads) {
        float act = float_at(a, i);
        killed += uint(float_at(g, i) < 0);
        dead += uint(abs(act) < tau * largest);
        if (up != 0) gated += uint(abs(act * float_at(u, i)) < tau * largest_gated);
    }
    killed = reduce_count(killed);
    dead = reduce_count(dead);
    gated = reduce_count(gated);
    if (thread != 0) return;
    words(counts).at[3 * gl_WorkGroupID.x] = killed;
    words(counts).at[3 * gl_WorkGroupID.x + 1] = dead;
    words(counts).at[3 * gl_WorkGroupID.x + 2] = gated;
}
