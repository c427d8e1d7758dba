/* y = x W^T + bias for few rows of x: up to three matrices over the same x in one dispatch (queries,
 * keys and values; gate and up). x may be normalised on the way; the output may be added to the
 * residual stream, or two matrices may be gate and up of a block whose activation is stored.
 *
 * Dispatch: x: workgroups for the sum of ceil(rows / (GROUPS ROWS)) over the parts, or fewer (they
 * take turns); y: ceil(tokens / TOKENS). */
#ifndef PRODUCT_GLSL
#define PRODUCT_GLSL

#include "dot_rows.glsl"
#include "gates.glsl"

layout(constant_id = 5) const uint NORM = 0;
layout(constant_id = 6) const uint OUTPUT = 0;
layout(constant_id = 7) const uint GATE = 0;
layout(constant_id = 8) const float EPS = 0;
layout(constant_id = 9) const float RESIDUAL_SCALE = 1;
layout(constant_id = 10) const float ALPHA = 1;
layout(constant_id = 11) const float LIMIT = 0;

const uint OUTPUT_STORE = 0, OUTPUT_RESIDUAL = 1, OUTPUT_GATE = 2;

struct part {
    uint64_t w, bias, y; /* bias 0: none */
    uint rows, y_stride;
};

layout(push_constant, scalar) uniform parameters {
    uint64_t x, norm; /* PACKED: norm is the scales of x */
    part parts[3]; /* unused ones have no rows */
    uint cols, x_stride, tokens; /* PACKED: stride in bytes */
    uint norm_bias; /* floats from the norm's weights to its bias; 0: none */
};
/* OUTPUT_RESIDUAL: parts[2].y is the residual stream, parts[2].y_stride its stride, and only parts[0]
 * is a matrix. OUTPUT_GATE: parts[0] is gate, parts[1] up, and parts[0].y gets the activation. */

const uint BLOCK_ROWS = GROUPS * ROWS;
const uint KEPT = (SUMS + LANES - 1) / LANES; /* outputs of a thread */

uint blocks_of(uint rows)
{
    return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

void row_addresses(uint part, uint row, out uint64_t rows[ROWS])
{
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        rows[r] = row_at(parts[part].w, min(row + r, parts[part].rows - 1), row_bytes_of(cols));
}

float biased(uint part, uint row, float sum)
{
    precise float y = parts[part].bias == 0 ? sum : sum + float_at(parts[part].bias, row);
    return y;
}

void store(uint part, uint token, uint row, float y)
{
    floats(row_at(parts[part].y, token, 4 * parts[part].y_stride)).at[row] = y;
    if (OUTPUT != OUTPUT_RESIDUAL) return;
    uint64_t residual = row_at(parts[2].y, token, 4 * parts[2].y_stride);
    precise float sum = fma(RESIDUAL_SCALE, y, float_at(residual, row));
    floats(residual).at[row] = sum;
}

/* Output i of a block: token i / BLOCK_ROWS, row i % BLOCK_ROWS. */
float block_sum(uint i)
{
    return dot_sum(i % BLOCK_ROWS / ROWS, i / BLOCK_ROWS * ROWS + i % ROWS);
}

void store_block(uint part, uint block, uint first, const float before[KEPT])
{
    for (uint i = thread, n = 0; i < BLOCK_ROWS * TOKENS; i += threads, n++) {
        uint token = first + i / BLOCK_ROWS, row = block * BLOCK_ROWS + i % BLOCK_ROWS;
        if (token >= tokens || row >= parts[part].rows) continue;
        float y = biased(part, row, block_sum(i));
        if (OUTPUT == OUTPUT_GATE) {
            float activated = gate_activate(GATE, biased(0, row, before[n]), ALPHA, LIMIT);
            y = gate_multiply(GATE, activated, y, LIMIT);
        }
        store(OUTPUT == OUTPUT_GATE ? 0 : part, token, row, y);
    }
}

void run_block(uint part, uint block, uint first)
{
    uint64_t rows[ROWS];
    float before[KEPT];
    const uint matrices = OUTPUT == OUTPUT_GATE ? 2 : 1;
    for (uint m = 0; m < matrices; m++) {
        row_addresses(part + m, block * BLOCK_ROWS + group * ROWS, rows);
        dot_clear();
        dot_add(rows);
        dot_gather();
        if (m + 1 < matrices)
            for (uint i = thread, n = 0; i < BLOCK_ROWS * TOKENS; i += threads, n++) before[n] = block_sum(i);
        else
            store_block(part + m, block, first, before);
        barrier();
    }
}

void main()
{
    uint first = gl_WorkGroupID.y * TOKENS;
    dot_begin(x, norm, x_stride, cols, parts[0].w);
    operand.weight = norm;
    operand.bias = norm_bias == 0 ? 0 : norm + uint64_t(norm_bias) * 4;
    operand.kind = NORM;
    [[unroll]] for (uint t = 0; t < TOKENS; t++) {
        dot_take(t, min(first + t, tokens - 1));
        if (NORM != NORM_NONE) operand.norm[t] = norm_measure(operand.x[t], cols, NORM, EPS);
    }
    uint begin1 = blocks_of(parts[0].rows);
    uint begin2 = begin1 + (OUTPUT == OUTPUT_STORE ? blocks_of(parts[1].rows) : 0);
    uint end = begin2 + (OUTPUT == OUTPUT_STORE ? blocks_of(parts[2].rows) : 0);
    for (uint block = gl_WorkGroupID.x; block < end; block += gl_NumWorkGroups.x) {
        uint part = block < begin1 ? 0 : block < begin2 ? 1 : 2;
        run_block(part, block - (part == 0 ? 0 : part == 1 ? begin1 : begin2), first);
    }
}

#endif
