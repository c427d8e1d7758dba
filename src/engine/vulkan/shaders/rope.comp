#version 450
/* From projected queries, keys and values to what attention reads, in place and in the cache, one head
 * per workgroup: an RMSNorm of queries and keys by head (if the architecture has one), the rotation, the
 * scale of queries, and the store of keys and values. Columns [first, first + 2 pairs) rotate.
 *
 * Dispatch: x: heads + 2 kv_heads of a layer with keys of its own (heads + kv_heads where these contain the
 * values), else heads; y: tokens. */
#include "cache.glsl"
#include "norms.glsl"

layout(constant_id = 1) const uint CACHE_TYPE = 0;
layout(constant_id = 2) const uint NORM = 0; /* NORM_NONE or NORM_RMS, of queries and keys */
layout(constant_id = 3) const uint NEIGHBOURS = 0;
layout(constant_id = 4) const float EPS = 0;

layout(push_constant, scalar) uniform parameters {
    uint64_t qkv;
    uint64_t rows;         /* cache_row of each token */
    uint64_t cosine, sine; /* [tokens][pairs] */
    uint64_t q_norm, k_norm;
    uint64_t keys, values; /* of the layer */
    uint64_t sequence_bytes;
    uint head_bytes, row_bytes;
    uint heads, kv_heads, dim, pairs, qkv_stride;
    uint windowed;
    uint scaled; /* whether queries are */
    uint first;
    uint stores; /* whether keys and values are; 0: the rotation alone */
};

const uint QUERY = 0, KEY = 1, VALUE = 2;

void store(uint64_t head, uint64_t to, uint i, float value, uint kind)
{
    if (kind != VALUE) floats(head).at[i] = value;
    if (kind != QUERY && stores != 0) cache_store(CACHE_TYPE, to, i, value);
}

/* Rotates pair j of a head whose columns are at `a` and `b`. */
void rotate(uint64_t head, uint64_t to, uint token, uint j, norm_row normed, uint64_t weight, float scale, uint kind)
{
    uint a = first + (NEIGHBOURS != 0 ? 2 * j : j), b = first + (NEIGHBOURS != 0 ? 2 * j + 1 : j + pairs);
    float x = float_at(head, a), y = float_at(head, b);
    float c = float_at(cosine, token * pairs + j), s = float_at(sine, token * pairs + j);
    if (weight != 0) {
        x = norm_apply(normed, NORM_RMS, x, float_at(weight, a), 0);
        y = norm_apply(normed, NORM_RMS, y, float_at(weight, b), 0);
    }
    precise float at_a = x * c - y * s;
    precise float at_b = y * c + x * s;
    store(head, to, a, at_a * scale, kind);
    store(head, to, b, at_b * scale, kind);
}

void main()
{
    uint token = gl_WorkGroupID.y, index = gl_WorkGroupID.x;
    uint kind = index < heads ? QUERY : index < heads + kv_heads ? KEY : VALUE;
    uint kv_head = (index - heads) % kv_heads;
    cache_row row = cache_row_at(rows, token);
    uint64_t head = row_at(qkv, token, 4 * qkv_stride) + uint64_t(index * dim * 4);
    uint64_t to = (kind == VALUE ? values : keys) + uint64_t(row.sequence) * sequence_bytes +
                  uint64_t(kv_head) * uint64_t(head_bytes) +
                  uint64_t(row.position - (windowed != 0 ? row.base : 0)) * uint64_t(row_bytes);
    uint64_t weight = NORM == NORM_NONE || kind == VALUE ? 0 : kind == QUERY ? q_norm : k_norm;
    float scale = kind == QUERY && scaled != 0 ? row.scale : 1;
    norm_row normed;
    if (weight != 0) normed = norm_measure(head, dim, NORM_RMS, EPS);
    uint rotated = kind == VALUE ? 0 : pairs;
    for (uint j = thread; j < rotated; j += threads) rotate(head, to, token, j, normed, weight, scale, kind);
    for (uint n = thread; n < dim - 2 * rotated; n += threads) {
        uint i = n < first ? n : n + 2 * rotated;
        float x = float_at(head, i);
        if (weight != 0) x = norm_apply(normed, NORM_RMS, x, float_at(weight, i), 0);
        store(head, to, i, x * scale, kind);
    }
}
