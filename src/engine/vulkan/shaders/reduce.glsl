/* Sums and maxima over a workgroup, whose size is a multiple of REDUCE_WAYS. Two levels with one
 * barrier each; every thread gets the result, always from the same order of additions. A call may
 * follow another without a barrier. */
#ifndef REDUCE_GLSL
#define REDUCE_GLSL

#include "common.glsl"

const uint REDUCE_WAYS = 16;
shared float reduce_values[gl_WorkGroupSize.x];
shared float reduce_parts[gl_WorkGroupSize.x / 16];

float reduce_sum(float value)
{
    const uint parts = threads / REDUCE_WAYS;
    precise float sum = 0;
    reduce_values[thread] = value;
    barrier();
    if (thread < parts) {
        for (uint i = 0; i < REDUCE_WAYS; i++) sum += reduce_values[i * parts + thread];
        reduce_parts[thread] = sum;
    }
    barrier();
    sum = 0;
    for (uint i = 0; i < parts; i++) sum += reduce_parts[i];
    return sum;
}

float reduce_max(float value)
{
    const uint parts = threads / REDUCE_WAYS;
    reduce_values[thread] = value;
    barrier();
    if (thread < parts) {
        for (uint i = 0; i < REDUCE_WAYS; i++) value = max(value, reduce_values[i * parts + thread]);
        reduce_parts[thread] = value;
    }
    barrier();
    for (uint i = 0; i < parts; i++) value = max(value, reduce_parts[i]);
    return value;
}

#endif
