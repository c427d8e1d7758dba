#version 450
/* Chooses the experts of each token: the SLOTS largest scores, softmax or sigmoid of its router logits,
 * the lower index on a tie. When choosing, corrections are added to the scores, and of GROUPS groups of
 * neighbouring experts only the best KEPT take part, a group's score being its largest or (PAIR) the sum
 * of its two largest. The scores are the weights, divided by their sum if RENORMALISE, times FACTOR and the
 * expert's own factor. What is kept of all experts sums to 1.
 * With MIXED, each expert is the largest of the remaining logits, and its weight is the softmax over those of the
 * remaining that lie within REACH of it: (largest - logit) / max(|logit|, largest) <= REACH.
 *
 * Dispatch: x: tokens. */
#include "counts.glsl"

layout(constant_id = 1) const uint SLOTS = 1;
layout(constant_id = 2) const uint RENORMALISE = 0;
layout(constant_id = 3) const uint EXPERTS = 1;
layout(constant_id = 4) const uint SIGMOID = 0;
layout(constant_id = 5) const uint GROUPS = 1; /* a divisor of EXPERTS */
layout(constant_id = 6) const uint KEPT = 1;
layout(constant_id = 7) const uint PAIR = 0;
layout(constant_id = 8) const float FACTOR = 1;
layout(constant_id = 9) const uint MIXED = 0;
layout(constant_id = 10) const float REACH = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t logits, factors, corrections; /* factors, corrections: [EXPERTS], 0: none */
    uint64_t probability;                  /* [tokens][EXPERTS] */
    uint64_t chosen, weights;              /* [tokens][SLOTS], best first */
    uint64_t order;                        /* [tokens][SLOTS] slots by ascending expert */
    uint logits_stride;
};

shared float choice[EXPERTS]; /* a thread writes those that it scores; -infinity: excluded, or NaN */
shared float group_scores[GROUPS];
shared uint chosen_experts[SLOTS];
shared float chosen_weights[SLOTS];

/* Each thread reads only what it writes here. */
void find_scores(uint64_t x, uint64_t p)
{
    float largest = -INFINITY, sum = 0;
    for (uint e = thread; e < EXPERTS && SIGMOID == 0; e += threads) largest = max(largest, float_at(x, e));
    if (SIGMOID == 0) largest = reduce_max(largest);
    for (uint e = thread; e < EXPERTS && SIGMOID == 0; e += threads) sum += exp(float_at(x, e) - largest);
    if (SIGMOID == 0) sum = reduce_sum(sum);
    for (uint e = thread; e < EXPERTS; e += threads) {
        float score = SIGMOID != 0 ? sigmoid(float_at(x, e)) : exp(float_at(x, e) - largest) / sum;
        floats(p).at[e] = score;
        float value = MIXED != 0 ? float_at(x, e) : corrections == 0 ? score : score + float_at(corrections, e);
        choice[e] = is_nan(value) ? -INFINITY : value; /* choices are distinct, which `order` requires */
    }
    barrier();
}

float group_score(uint group)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint e = group * (EXPERTS / GROUPS); e < (group + 1) * (EXPERTS / GROUPS); e++) {
        second = max(second, min(first, choice[e]));
        first = max(first, choice[e]);
    }
    return PAIR != 0 ? first + second : first;
}

void exclude_groups()
{
    for (uint g = thread; g < GROUPS; g += threads) group_scores[g] = group_score(g);
    barrier();
    for (uint e = thread; e < EXPERTS; e += threads) {
        uint own = e / (EXPERTS / GROUPS), before = 0;
        for (uint g = 0; g < GROUPS; g++)
            before += uint(group_scores[g] > group_scores[own] || (group_scores[g] == group_scores[own] && g < own));
        if (before >= KEPT) choice[e] = -INFINITY;
    }
}

/* The best expert after `last`, in descending order of choice and ascending order of index. */
candidate next_best(candidate last)
{
    candidate own = candidate(0, NO_INDEX);
    for (uint e = thread; e < EXPERTS; e += threads) {
        float value = choice[e];
        bool after = last.index == NO_INDEX || value < last.value || (value == last.value && e > last.index);
        if (after) own = better(own, candidate(value, e));
    }
    return reduce_best(own);
}

/* The softmax at `best` over the experts that are left and within reach of it. */
float weight_in_reach(candidate best)
{
    float sum = 0;
    for (uint e = thread; e < EXPERTS; e += threads) {
        float value = choice[e];
        bool left = value < best.value || (value == best.value && e >= best.index);
        if (left && (best.value - value) / max(abs(value), best.value) <= REACH) sum += exp(value - best.value);
    }
    return 1 / reduce_sum(sum);
}

void main()
{
    uint token = gl_WorkGroupID.x;
    uint64_t p = row_at(probability, token, 4 * EXPERTS);
    find_scores(row_at(logits, token, 4 * logits_stride), p);
    if (GROUPS > 1) exclude_groups();
    candidate best = candidate(0, NO_INDEX);
    for (uint slot = 0; slot < SLOTS; slot++) {
        best = next_best(best);
        float mixed = MIXED != 0 ? weight_in_reach(best) : 0;
        if (best.index % threads != thread) continue;
        chosen_experts[slot] = best.index;
        chosen_weights[slot] = MIXED != 0 ? mixed : float_at(p, best.index);
    }
    barrier();
    precise float sum = 0;
    for (uint slot = 0; slot < SLOTS; slot++) sum += chosen_weights[slot];
    for (uint slot = thread; slot < SLOTS; slot += threads) {
        uint expert = chosen_experts[slot], rank = 0, at = token * SLOTS + slot;
        float weight = RENORMALISE != 0 && sum > 0 ? chosen_weights[slot] / sum : chosen_weights[slot];
        for (uint other = 0; other < SLOTS; other++) rank += uint(chosen_experts[other] < expert);
        weight *= FACTOR;
        words(chosen).at[at] = expert;
        floats(weights).at[at] = factors == 0 ? weight : weight * float_at(factors, expert);
        words(order).at[token * SLOTS + rank] = slot;
    }
    if (SIGMOID == 0) return;
    float all = 0;
    for (uint e = thread; e < EXPERTS; e += threads) all += float_at(p, e);
    all = reduce_sum(all);
    for (uint e = thread; e < EXPERTS && all > 0; e += threads) floats(p).at[e] = float_at(p, e) / all;
}
