#version 450
/* The gated delta rule: a value head keeps a matrix S of [KEY_DIM][value_dim]. Columns of S do not depend
 * on each other: PARTS threads hold one of them in registers through all rows of a segment. With SCAN it
 * is a state-space scan (Mamba-2): x, B and C take the place of values, keys and queries, and are neither
 * normalised nor corrected.
 *
 * Dispatch: x: ceil(value_dim / (threads / PARTS)); y: value_heads; z: segments. */
#include "reduce.glsl"
#include "segments.glsl"

layout(constant_id = 1) const uint KEY_DIM = 128;
layout(constant_id = 2) const uint PARTS = 4;
layout(constant_id = 3) const uint TILED = 0; /* value head h uses key head h % key_heads */
layout(constant_id = 4) const uint SCAN = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t qkv, strength, y; /* SCAN: x of heads, B, C; strength: [tokens][b of heads, a of heads] */
    uint64_t rate, bias;       /* [value_heads] */
    uint64_t state;            /* first matrix of the layer's first sequence */
    uint64_t sequence_bytes;
    uint64_t segments;
    uint64_t kept_bytes;       /* of a copy of the state after each row, which follow it; 0: none are kept */
    uint64_t skip;             /* SCAN: [value_heads] */
    uint key_heads, value_heads, value_dim, qkv_stride, strength_stride, y_stride;
    float least_step, most_step; /* SCAN */
};

const uint COLUMNS = gl_WorkGroupSize.x / PARTS;
const uint PER_PART = (KEY_DIM + PARTS - 1) / PARTS;

shared float unit_q[KEY_DIM], unit_k[KEY_DIM];
shared vec3 part_sums[gl_WorkGroupSize.x]; /* S^T k, S^T q, k q */

float softplus(float x)
{
    return x > 20 ? x : log(1 + exp(x));
}

/* Queries and keys of a row, of unit length; queries also divided by sqrt(KEY_DIM). SCAN: as they are. */
void load_row(uint64_t q, uint64_t k)
{
    float q_square = 0, k_square = 0;
    for (uint i = thread; i < KEY_DIM && SCAN != 0; i += threads) {
        unit_q[i] = float_at(q, i);
        unit_k[i] = float_at(k, i);
    }
    if (SCAN != 0) {
        barrier();
        return;
    }
    for (uint i = thread; i < KEY_DIM; i += threads) {
        q_square += float_at(q, i) * float_at(q, i);
        k_square += float_at(k, i) * float_at(k, i);
    }
    float q_scale = 1 / sqrt(float(KEY_DIM)) / sqrt(reduce_sum(q_square) + 1e-6f);
    float k_scale = 1 / sqrt(reduce_sum(k_square) + 1e-6f);
    for (uint i = thread; i < KEY_DIM; i += threads) {
        unit_q[i] = float_at(q, i) * q_scale;
        unit_k[i] = float_at(k, i) * k_scale;
    }
    barrier();
}

vec3 column_sums(const float column[PER_PART], uint first)
{
    vec3 sums = vec3(0);
    [[unroll]] for (uint n = 0; n < PER_PART; n++)
        if (first + n < KEY_DIM) {
            float k = unit_k[first + n], q = unit_q[first + n];
            sums += vec3(column[n] * k, column[n] * q, k * q);
        }
    part_sums[thread] = sums;
    barrier();
    sums = vec3(0);
    for (uint part = 0; part < PARTS; part++) sums += part_sums[part * COLUMNS + thread % COLUMNS];
    return sums;
}

void main()
{
    segment run = segment_at(segments, gl_WorkGroupID.z);
    uint head = gl_WorkGroupID.y, first = thread / COLUMNS * PER_PART;
    uint j = gl_WorkGroupID.x * COLUMNS + thread % COLUMNS;
    uint key_head = TILED != 0 ? head % key_heads : head / (value_heads / key_heads);
    bool exists = j < value_dim;
    uint64_t own = state + uint64_t(run.sequence) * sequence_bytes + uint64_t(head * KEY_DIM * value_dim * 4);
    floats matrix = floats(own);
    float column[PER_PART];
    [[unroll]] for (uint n = 0; n < PER_PART; n++)
        column[n] = exists && first + n < KEY_DIM ? matrix.at[(first + n) * value_dim + j] : 0;
    for (uint row = run.row; row < run.row + run.count; row++) {
        uint64_t from = row_at(qkv, row, 4 * qkv_stride), gates = row_at(strength, row, 4 * strength_stride);
        uint64_t q = from + uint64_t(key_head * KEY_DIM * 4), k = q + uint64_t(key_heads * KEY_DIM * 4);
        uint values = SCAN != 0 ? 0 : 2 * key_heads * KEY_DIM; /* where they begin */
        if (SCAN != 0) {
            k = q + uint64_t(value_heads * value_dim * 4);
            q = k + uint64_t(key_heads * KEY_DIM * 4);
        }
        load_row(q, k);
        float step = softplus(float_at(gates, value_heads + head) + float_at(bias, head));
        if (SCAN != 0) step = clamp(step, least_step, most_step);
        float decay = exp(-float_at(rate, head) * step);
        float v = exists ? float_at(from, values + head * value_dim + j) : 0;
        vec3 sums = column_sums(column, first);
        float correction = SCAN != 0 ? step * v : sigmoid(float_at(gates, head)) * (v - decay * sums.x);
        float past = SCAN != 0 ? float_at(skip, head) * v : 0; /* a way around the state */
        [[unroll]] for (uint n = 0; n < PER_PART; n++)
            if (first + n < KEY_DIM) column[n] = decay * column[n] + unit_k[first + n] * correction;
        if (exists && first == 0)
            floats(row_at(y, row, 4 * y_stride)).at[head * value_dim + j] = past + decay * sums.y + correction * sums.z;
        barrier();
        if (kept_bytes == 0) continue;
        floats after = floats(own + uint64_t(1 + row - run.row) * kept_bytes);
        [[unroll]] for (uint n = 0; n < PER_PART; n++)
            if (exists && first + n < KEY_DIM) after.at[(first + n) * value_dim + j] = column[n];
    }
    [[unroll]] for (uint n = 0; n < PER_PART; n++)
        if (exists && first + n < KEY_DIM) matrix.at[(first + n) * value_dim + j] = column[n];
}
