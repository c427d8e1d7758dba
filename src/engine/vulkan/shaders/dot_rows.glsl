/* The inner loop of products of few rows of x: LANES threads share ROWS rows of weights and keep sums
 * for TOKENS rows of x. Every weight is read once; x comes from the caches. With PACKED, x is of eight-bit
 * integers with a scale per 32 (quantise.comp), and four products at a time are summed exactly. */
#ifndef DOT_ROWS_GLSL
#define DOT_ROWS_GLSL

#include "dequant.glsl"
#include "norms.glsl"

#ifdef PACKED
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_signed_bytes(uint a, uint b, spirv_literal int format);
#endif

layout(constant_id = 2) const uint LANES = 32;
layout(constant_id = 3) const uint ROWS = 1;
layout(constant_id = 4) const uint TOKENS = 1;

const uint GROUPS = gl_WorkGroupSize.x / LANES; /* of threads, each with rows of its own */
const uint SUMS = ROWS * TOKENS;
#define lane (thread % LANES)
#define group (thread / LANES)

shared float dot_parts[SUMS * gl_WorkGroupSize.x];
float sums[SUMS];

/* Rows of x, floats optionally normalised on the way. Those that blocks are multiplied with begin at
 * multiples of 16 bytes. */
struct dot_input {
    uint64_t base, scales; /* all rows; scales: PACKED */
    uint stride;           /* floats between rows; PACKED: bytes */
    uint64_t x[TOKENS], scale[TOKENS];
    norm_row norm[TOKENS];
    uint64_t weight, bias; /* of the norm; bias 0: none */
    uint kind;             /* of the norm */
    uint cols, whole;      /* whole: columns in units */
};

dot_input operand;

/* `matrix`: one of those that x is multiplied with. */
void dot_begin(uint64_t x, uint64_t scales, uint stride, uint cols, uint64_t matrix)
{
    operand.base = x;
    operand.scales = scales;
    operand.stride = stride;
    operand.weight = operand.bias = 0;
    operand.kind = NORM_NONE;
    operand.cols = row_columns = cols;
    operand.whole = columns_in_units(cols, is_aligned(x, stride));
    set_tables(matrix);
}

/* Makes a row of x the t-th. */
void dot_take(uint t, uint row)
{
#ifdef PACKED
    operand.x[t] = row_at(operand.base, row, operand.stride);
    operand.scale[t] = row_at(operand.scales, row, operand.cols / 8);
#else
    operand.x[t] = row_at(operand.base, row, 4 * operand.stride);
#endif
}

float dot_normed(uint t, float x, uint k)
{
    float bias = operand.bias == 0 ? 0 : float_at(operand.bias, k);
    return norm_apply(operand.norm[t], operand.kind, x, float_at(operand.weight, k), bias);
}

vec4 dot_columns(uint t, uint k)
{
    vec4 x = vectors(operand.x[t]).at[k / 4];
    if (operand.kind == NORM_NONE) return x;
    [[unroll]] for (uint i = 0; i < 4; i++) x[i] = dot_normed(t, x[i], k + i);
    return x;
}

float dot_total(vec4 a, vec4 b)
{
    precise float total = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
    return total;
}

void dot_clear()
{
    [[unroll]] for (uint i = 0; i < SUMS; i++) sums[i] = 0;
}

void dot_add_run(uint i, const run r, vec4 a, vec4 b)
{
    precise float sum = sums[i];
    float part = IS_FLOAT ? sum : 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        precise float next = fma(r.a[j], a[j], part);
        part = next;
    }
    [[unroll]] for (uint j = 0; j < 4; j++) {
        precise float next = fma(r.b[j], b[j], part);
        part = next;
    }
    sum = IS_FLOAT ? part : fma(r.scale, part, sum);
    if (HAS_OFFSET) sum = fma(r.offset, dot_total(a, b), sum);
    sums[i] = sum;
}

#ifdef PACKED

int dot_bytes(uvec2 a, uvec2 b)
{
    return dot_signed_bytes(a.x, b.x, 0) + dot_signed_bytes(a.y, b.y, 0);
}

void dot_add_codes(uint i, const code_run r, uvec2 x, float scale)
{
    precise float sum = fma(r.scale * scale, float(dot_bytes(r.codes, x)), sums[i]);
    if (HAS_OFFSET) sum = fma(r.offset * scale, float(dot_bytes(uvec2(0x01010101u), x)), sum);
    sums[i] = sum;
}

/* Adds to `sums` this lane's part of the products with the weight rows at `rows`. */
void dot_add(const uint64_t rows[ROWS])
{
    for (uint u = lane; u < operand.whole / 16; u += LANES) {
        code_run runs[2 * ROWS];
        [[unroll]] for (uint i = 0; i < 2 * ROWS; i++) {
            runs[i] = unpack_codes(rows[i / 2], u, i % 2);
            if (HAS_LEVELS) runs[i].codes = uvec2(level_bytes(runs[i].codes.x), level_bytes(runs[i].codes.y));
        }
        [[unroll]] for (uint t = 0; t < TOKENS; t++)
            [[unroll]] for (uint i = 0; i < 2; i++) {
                uint k = unit_column(u) + i * RUN_DISTANCE;
                uvec2 x = word_pairs(operand.x[t]).at[k / 8];
                float scale = float_at(operand.scale[t], k / 32);
                [[unroll]] for (uint r = 0; r < ROWS; r++) dot_add_codes(t * ROWS + r, runs[2 * r + i], x, scale);
            }
    }
}

#else

/* Adds to `sums` this lane's part of the products with the weight rows at `rows`. */
void dot_add(const uint64_t rows[ROWS])
{
    for (uint u = lane; u < operand.whole / 16; u += LANES) {
        run runs[2 * ROWS];
        vec4 x[4];
        [[unroll]] for (uint i = 0; i < 2 * ROWS; i++) runs[i] = unpack(rows[i / 2], u, i % 2);
        [[unroll]] for (uint t = 0; t < TOKENS; t++) {
            [[unroll]] for (uint i = 0; i < 4; i++)
                x[i] = dot_columns(t, unit_column(u) + i / 2 * RUN_DISTANCE + i % 2 * 4);
            [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
                dot_add_run(t * ROWS + i / 2, runs[i], x[i % 2 * 2], x[i % 2 * 2 + 1]);
        }
    }
    if (!IS_FLOAT) return;
    for (uint k = operand.whole + lane; k < operand.cols; k += LANES)
        [[unroll]] for (uint t = 0; t < TOKENS; t++) {
            float x = float_at(operand.x[t], k);
            if (operand.kind != NORM_NONE) x = dot_normed(t, x, k);
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                precise float sum = fma(stored_float(rows[r], k), x, sums[t * ROWS + r]);
                sums[t * ROWS + r] = sum;
            }
        }
}

#endif

/* Brings the lanes' sums together. Afterwards dot_sum gives those of any group to any thread; a
 * barrier must come before the next dot_gather. */
void dot_gather()
{
    [[unroll]] for (uint i = 0; i < SUMS; i++) dot_parts[i * threads + thread] = sums[i];
    barrier();
}

float dot_sum(uint of_group, uint i)
{
    precise float sum = 0;
    for (uint l = 0; l < LANES; l++) sum += dot_parts[i * threads + of_group * LANES + l];
    return sum;
}

#endif
