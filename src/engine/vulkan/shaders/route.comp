#version 450
/* Chooses the experts of each token: the SLOTS largest of the softmax of its router logits, the lower
 * index on a tie. Their probabilities are the weights, divided by their sum if RENORMALISE, times the
 * factor of the expert if there are factors.
 *
 * Dispatch: x: tokens. */
#include "counts.glsl"

layout(constant_id = 1) const uint SLOTS = 1;
layout(constant_id = 2) const uint RENORMALISE = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t logits, factors;
    uint64_t probability;     /* [tokens][experts] */
    uint64_t chosen, weights; /* [tokens][SLOTS], best first */
    uint64_t order;           /* [tokens][SLOTS] slots by ascending expert */
    uint experts, logits_stride;
};

shared uint chosen_experts[SLOTS];
shared float chosen_weights[SLOTS];

void find_probabilities(uint64_t x, uint64_t p)
{
    float largest = -INFINITY, sum = 0;
    for (uint e = thread; e < experts; e += threads) largest = max(largest, float_at(x, e));
    largest = reduce_max(largest);
    for (uint e = thread; e < experts; e += threads) sum += exp(float_at(x, e) - largest);
    sum = reduce_sum(sum);
    /* each thread reads only what it writes here */
    for (uint e = thread; e < experts; e += threads) floats(p).at[e] = exp(float_at(x, e) - largest) / sum;
}

/* The best expert after `last`, in descending order of probability and ascending order of index. */
candidate next_best(uint64_t p, candidate last)
{
    candidate own = candidate(0, NO_INDEX);
    for (uint e = thread; e < experts; e += threads) {
        float value = float_at(p, e);
        bool after = last.index == NO_INDEX || value < last.value || (value == last.value && e > last.index);
        if (after) own = better(own, candidate(value, e));
    }
    return reduce_best(own);
}

void main()
{
    uint token = gl_WorkGroupID.x;
    uint64_t p = row_at(probability, token, 4 * experts);
    find_probabilities(row_at(logits, token, 4 * logits_stride), p);
    candidate best = candidate(0, NO_INDEX);
    precise float sum = 0;
    for (uint slot = 0; slot < SLOTS; slot++) {
        best = next_best(p, best);
        if (best.index == NO_INDEX) best = candidate(0, slot); /* only NaN is left */
        if (thread == 0) {
            chosen_experts[slot] = best.index;
            chosen_weights[slot] = best.value;
        }
        sum += best.value;
    }
    barrier();
    for (uint slot = thread; slot < SLOTS; slot += threads) {
        uint expert = chosen_experts[slot], rank = 0, at = token * SLOTS + slot;
        float weight = RENORMALISE != 0 ? chosen_weights[slot] / sum : chosen_weights[slot];
        for (uint other = 0; other < SLOTS; other++) rank += uint(chosen_experts[other] < expert);
        words(chosen).at[at] = expert;
        floats(weights).at[at] = factors == 0 ? weight : weight * float_at(factors, expert);
        words(order).at[token * SLOTS + rank] = slot;
    }
}
