/* Activations of a feed-forward block: f(gate) * up, or f(gate) alone. */
#ifndef GATES_GLSL
#define GATES_GLSL

#include "common.glsl"

const uint GATE_SILU = 0, GATE_GELU = 1, GATE_CLAMPED = 2, GATE_RELU2 = 3, GATE_XIELU = 4; /* the last: xielu() */

/* Clamped: g sigmoid(alpha g) with g <= limit, times (up between -limit and limit) + 1. */
float gate_activate(uint kind, float gate, float alpha, float limit)
{
    if (kind == GATE_GELU) return gelu(gate);
    if (kind == GATE_CLAMPED) {
        float g = min(gate, limit);
        return g * sigmoid(alpha * g);
    }
    if (kind == GATE_RELU2) {
        float g = max(gate, 0);
        return g * g;
    }
    return silu(gate);
}

/* p g^2 + b g above 0, else n (e^min(g, e) - 1 - g) + b g; `parameters`: p, n, b, e. */
float xielu(float g, uint64_t parameters)
{
    float b = float_at(parameters, 2) * g;
    if (g > 0) return float_at(parameters, 0) * g * g + b;
    return (exp(min(g, float_at(parameters, 3))) - 1 - g) * float_at(parameters, 1) + b;
}

float gate_multiply(uint kind, float activated, float up, float limit)
{
    precise float factor = kind == GATE_CLAMPED ? clamp(up, -limit, limit) + 1 : up;
    precise float product = activated * factor;
    return product;
}

#endif
