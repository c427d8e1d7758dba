#version 450
/* The keys that a row sees, of those that index_scores scored: the KEPT largest, of equal ones the earlier,
 * in ascending order. The least of them is found byte by byte, from the highest on. One workgroup per row;
 * rows whose keys are all seen are left out.
 *
 * Dispatch: x: rows. */
#include "common.glsl"
#include "cache.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t rows; /* cache_row of each */
    uint64_t scores;
    uint64_t seen; /* [rows][kept] */
    uint scores_stride, kept;
};

const uint BINS = 256;

shared uint counts[BINS];
shared uint before[2 * gl_WorkGroupSize.x]; /* two sums by thread: of larger keys, and of equal ones */

/* Larger for a larger number, with NaN above all; both zeros are equal. */
uint order_of(float x)
{
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) == 0) bits = 0;
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/* Sums over the threads up to this one, this one included, of two counts at once. */
uint sum_before(uint value)
{
    uint from = 0;
    before[thread] = value;
    barrier();
    for (uint step = 1; step < threads; step *= 2) {
        uint sum = before[from + thread] + (thread >= step ? before[from + thread - step] : 0);
        from = threads - from;
        before[from + thread] = sum;
        barrier();
    }
    return from;
}

void main()
{
    uint token = gl_WorkGroupID.x, keys = cache_row_at(rows, token).position + 1;
    uint64_t from = row_at(scores, token, 4 * scores_stride), to = row_at(seen, token, 4 * kept);
    if (keys <= kept) return;
    uint least = 0, mask = 0, equal = kept;
    for (uint shift = 32; shift > 0;) {
        shift -= 8;
        for (uint i = thread; i < BINS; i += threads) counts[i] = 0;
        barrier();
        for (uint key = thread; key < keys; key += threads) {
            uint order = order_of(float_at(from, key));
            if ((order & mask) == least) atomicAdd(counts[(order >> shift) & (BINS - 1)], 1);
        }
        barrier();
        uint bin = BINS - 1;
        for (; counts[bin] < equal; bin--) equal -= counts[bin];
        least |= bin << shift;
        mask |= (BINS - 1) << shift;
        barrier();
    }
    uint larger = 0, same = 0; /* keys before the tile */
    for (uint tile = 0; tile < keys; tile += threads) {
        uint key = tile + thread, order = key < keys ? order_of(float_at(from, key)) : 0;
        uint is_larger = uint(key < keys && order > least), is_same = uint(key < keys && order == least);
        uint at = sum_before(is_larger << 16 | is_same), own = before[at + thread], all = before[at + threads - 1];
        uint larger_before = larger + (own >> 16) - is_larger, same_before = same + (own & 0xffffu) - is_same;
        if (is_larger != 0 || (is_same != 0 && same_before < equal))
            words(to).at[larger_before + min(same_before, equal)] = key;
        larger += all >> 16;
        same += all & 0xffffu;
        barrier();
    }
}
