/* Activations of a feed-forward block: f(gate) * up, or f(gate) alone. */
#ifndef GATES_GLSL
#define GATES_GLSL

#include "common.glsl"

const uint GATE_SILU = 0, GATE_GELU = 1, GATE_CLAMPED = 2;

/* Clamped: g sigmoid(alpha g) with g <= limit, times (up between -limit and limit) + 1. */
float gate_activate(uint kind, float gate, float alpha, float limit)
{
    if (kind == GATE_GELU) return gelu(gate);
    if (kind == GATE_CLAMPED) {
        float g = min(gate, limit);
        return g * sigmoid(alpha * g);
    }
    return silu(gate);
}

float gate_multiply(uint kind, float activated, float up, float limit)
{
    precise float factor = kind == GATE_CLAMPED ? clamp(up, -limit, limit) + 1 : up;
    precise float product = activated * factor;
    return product;
}

#endif
