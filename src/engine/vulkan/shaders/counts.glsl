/* Reductions of counts, and of the best of pairs (value, index), by a workgroup; as in reduce.glsl. */
#ifndef COUNTS_GLSL
#define COUNTS_GLSL

#include "reduce.glsl"

shared uint reduce_words[gl_WorkGroupSize.x];
shared uint reduce_word_parts[gl_WorkGroupSize.x / 16];

uint reduce_count(uint value)
{
    const uint parts = threads / REDUCE_WAYS;
    reduce_words[thread] = value;
    barrier();
    if (thread < parts) {
        value = 0;
        for (uint i = 0; i < REDUCE_WAYS; i++) value += reduce_words[i * parts + thread];
        reduce_word_parts[thread] = value;
    }
    barrier();
    value = 0;
    for (uint i = 0; i < parts; i++) value += reduce_word_parts[i];
    return value;
}

const uint NO_INDEX = 0xffffffffu;

struct candidate {
    float value;
    uint index; /* NO_INDEX: none */
};

/* The larger value, the lower index on a tie; a NaN is never better. */
candidate better(candidate a, candidate b)
{
    if (b.index == NO_INDEX || is_nan(b.value)) return a;
    if (a.index == NO_INDEX || b.value > a.value) return b;
    if (b.value == a.value && b.index < a.index) return b;
    return a;
}

candidate reduce_best(candidate own)
{
    const uint parts = threads / REDUCE_WAYS;
    reduce_values[thread] = own.value;
    reduce_words[thread] = own.index;
    barrier();
    if (thread < parts) {
        for (uint i = 0; i < REDUCE_WAYS; i++)
            own = better(own, candidate(reduce_values[i * parts + thread], reduce_words[i * parts + thread]));
        reduce_parts[thread] = own.value;
        reduce_word_parts[thread] = own.index;
    }
    barrier();
    for (uint i = 0; i < parts; i++) own = better(own, candidate(reduce_parts[i], reduce_word_parts[i]));
    return own;
}

#endif
