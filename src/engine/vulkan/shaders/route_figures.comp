#version 450
/* Figures of a router's choices: entropy (nats) and margin (distance of the two largest probabilities)
 * summed over rows, and for each expert how often it was chosen and the sum of its probability. A workgroup
 * makes a record of its rows. The choices themselves are copied if there is a list for them.
 *
 * Dispatch: x: parts of the rows. */
#include "counts.glsl"

layout(constant_id = 1) const uint EXPERTS = 1;

layout(push_constant, scalar) uniform parameters {
    uint64_t probability;     /* [rows][EXPERTS] */
    uint64_t chosen, weights; /* [rows][slots] */
    uint64_t figures;         /* [parts] of entropy, margin, [EXPERTS] counts, [EXPERTS] probabilities */
    uint64_t list;            /* [rows][slots] chosen, then as many weights; 0: not wanted */
    uint rows, slots;
};

/* A thread has its experts to itself. */
shared uint counts[EXPERTS];
shared float probabilities[EXPERTS];

/* Adds the row to the thread's experts; returns its share of the entropy. */
float add_experts(uint64_t p, uint row, out candidate first, out float second)
{
    float entropy = 0;
    first = candidate(0, NO_INDEX);
    second = 0;
    for (uint e = thread; e < EXPERTS; e += threads) {
        float value = float_at(p, e);
        if (value > 0) entropy -= value * log(value);
        if (first.index == NO_INDEX || value > first.value) {
            second = first.value;
            first = candidate(value, e);
        } else {
            second = max(second, value);
        }
        probabilities[e] += value;
    }
    for (uint slot = 0; slot < slots; slot++) {
        uint e = word_at(chosen, row * slots + slot);
        if (e % threads == thread) counts[e]++;
    }
    return entropy;
}

void copy_choices(uint row)
{
    for (uint i = row * slots + thread; i < (row + 1) * slots; i += threads) {
        words(list).at[i] = word_at(chosen, i);
        words(list).at[rows * slots + i] = word_at(weights, i);
    }
}

void main()
{
    float entropy = 0, margin = 0;
    for (uint e = thread; e < EXPERTS; e += threads) {
        counts[e] = 0;
        probabilities[e] = 0;
    }
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        candidate own;
        float own_second;
        entropy += add_experts(row_at(probability, row, 4 * EXPERTS), row, own, own_second);
        candidate first = reduce_best(own);
        margin += first.value - reduce_max(own.index == first.index ? own_second : own.value);
        if (list != 0) copy_choices(row);
    }
    entropy = reduce_sum(entropy);
    uint64_t to = row_at(figures, gl_WorkGroupID.x, 4 * (2 + 2 * EXPERTS));
    for (uint e = thread; e < EXPERTS; e += threads) {
        words(to).at[2 + e] = counts[e];
        floats(to).at[2 + EXPERTS + e] = probabilities[e];
    }
    if (thread != 0) return;
    floats(to).at[0] = entropy;
    floats(to).at[1] = margin;
}
