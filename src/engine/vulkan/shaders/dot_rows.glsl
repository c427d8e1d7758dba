/* The inner loop of products of few rows of x: LANES threads share ROWS rows of weights and keep sums
 * for TOKENS rows of x. Every weight is read once; x comes from the caches. */
#ifndef DOT_ROWS_GLSL
#define DOT_ROWS_GLSL

#include "dequant.glsl"
#include "norms.glsl"

layout(constant_id = 2) const uint LANES = 32;
layout(constant_id = 3) const uint ROWS = 1;
layout(constant_id = 4) const uint TOKENS = 1;

const uint GROUPS = gl_WorkGroupSize.x / LANES; /* of threads, each with rows of its own */
const uint SUMS = ROWS * TOKENS;
#define lane (thread % LANES)
#define group (thread / LANES)

shared float dot_parts[SUMS * gl_WorkGroupSize.x];
float sums[SUMS];

/* x: rows of floats, optionally normalised on the way. Those that blocks are multiplied with begin at
 * multiples of 16 bytes. */
struct dot_input {
    uint64_t x[TOKENS];
    norm_row norm[TOKENS];
    uint64_t weight, bias; /* of the norm; bias 0: none */
    uint kind;             /* of the norm */
    uint cols;
    uint whole;            /* columns in units */
};

float dot_normed(const dot_input d, uint t, float x, uint k)
{
    float bias = d.bias == 0 ? 0 : float_at(d.bias, k);
    return norm_apply(d.norm[t], d.kind, x, float_at(d.weight, k), bias);
}

vec4 dot_columns(const dot_input d, uint t, uint k)
{
    vec4 x = vectors(d.x[t]).at[k / 4];
    if (d.kind == NORM_NONE) return x;
    [[unroll]] for (uint i = 0; i < 4; i++) x[i] = dot_normed(d, t, x[i], k + i);
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

/* Adds to `sums` this lane's part of the products with the weight rows at `rows`. */
void dot_add(const dot_input d, const uint64_t rows[ROWS])
{
    for (uint u = lane; u < d.whole / 16; u += LANES) {
        run runs[2 * ROWS];
        vec4 x[4];
        [[unroll]] for (uint i = 0; i < 2 * ROWS; i++) runs[i] = unpack(rows[i / 2], u, i % 2);
        [[unroll]] for (uint t = 0; t < TOKENS; t++) {
            [[unroll]] for (uint i = 0; i < 4; i++)
                x[i] = dot_columns(d, t, unit_column(u) + i / 2 * RUN_DISTANCE + i % 2 * 4);
            [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
                dot_add_run(t * ROWS + i / 2, runs[i], x[i % 2 * 2], x[i % 2 * 2 + 1]);
        }
    }
    if (!IS_FLOAT) return;
    for (uint k = d.whole + lane; k < d.cols; k += LANES)
        [[unroll]] for (uint t = 0; t < TOKENS; t++) {
            float x = float_at(d.x[t], k);
            if (d.kind != NORM_NONE) x = dot_normed(d, t, x, k);
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                precise float sum = fma(stored_float(rows[r], k), x, sums[t * ROWS + r]);
                sums[t * ROWS + r] = sum;
            }
        }
}

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
