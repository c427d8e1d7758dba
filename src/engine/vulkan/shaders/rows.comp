#version 450
/* What is done value by value to rows of n values.
 *   SCALE: y = scale x                      ADD: y += scale x
 *   CAP: y = cap tanh(scale x / cap)        GATE: y = f(x) other; f(x) without `other`, which
 *                                         for xIELU has the parameters
 *   SIGMOID: y *= sigmoid(x), the gates alternating with queries by head of `dim` values
 *   QUERIES: y = x, the queries alternating with gates by head
 *   MIX: y += sigmoid(other[row]) x         JOIN: y = scale (y + x)
 *   MULTIPLY: y = x other, as GATE does after f
 *   HEADS: y = x, heads of `dim` values being x_step apart in x and y_step in y
 *
 * Dispatch: x: ceil(n / threads); y: rows, or fewer (they take turns). */
#include "gates.glsl"

layout(constant_id = 1) const uint OPERATION = 0;
layout(constant_id = 2) const uint GATE = 0;

const uint SCALE = 0, ADD = 1, CAP = 2, GATED = 3, SIGMOID = 4, QUERIES = 5, MIX = 6, JOIN = 7, MULTIPLY = 8,
           HEADS = 9;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y, other;
    uint rows, n, x_stride, y_stride, other_stride, dim;
    float scale, cap; /* GATE: alpha and limit */
    uint x_step, y_step;
};

float value_of(float x, float y, uint64_t beside, uint i)
{
    precise float value = scale * x;
    if (OPERATION == ADD) value = fma(scale, x, y);
    if (OPERATION == CAP) value = softcap(value, cap);
    if (OPERATION == SIGMOID) value = y * sigmoid(x);
    if (OPERATION == QUERIES || OPERATION == HEADS) value = x;
    if (OPERATION == JOIN) value = scale * (y + x);
    if (OPERATION == MIX) value = fma(sigmoid(float_at(beside, 0)), x, y);
    if (OPERATION == MULTIPLY) value = gate_multiply(GATE, x, float_at(beside, i), cap);
    if (OPERATION == GATED) {
        value = GATE == GATE_XIELU ? xielu(x, beside) : gate_activate(GATE, x, scale, cap);
        if (other != 0 && GATE != GATE_XIELU) value = gate_multiply(GATE, value, float_at(beside, i), cap);
    }
    return value;
}

void main()
{
    uint i = gl_WorkGroupID.x * threads + thread;
    if (i >= n) return;
    uint from = OPERATION == SIGMOID || OPERATION == QUERIES ? i / dim * 2 * dim + i % dim : i;
    if (OPERATION == SIGMOID) from += dim;
    if (OPERATION == HEADS) from = i / dim * x_step + i % dim;
    uint at = OPERATION == HEADS ? i / dim * y_step + i % dim : i;
    const bool reads_y = OPERATION == ADD || OPERATION == SIGMOID || OPERATION == MIX || OPERATION == JOIN;
    for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
        uint64_t to = row_at(y, row, 4 * y_stride);
        float before = reads_y ? float_at(to, at) : 0;
        float value = float_at(row_at(x, row, 4 * x_stride), from);
        floats(to).at[at] = value_of(value, before, row_at(other, row, 4 * other_stride), i);
    }
}
