#version 450
/* Scores of sparse attention's indexer: for each key of a row's past the sum over heads of
 * weight max(0, scale q . key). A workgroup scores a tile of keys for one row, some heads at a time. Rows
 * whose keys are all seen are left out.
 *
 * Dispatch: x: ceil(most keys / 32); y: rows. */
#include "cache.glsl"

layout(constant_id = 1) const uint CACHE_TYPE = 0;
layout(constant_id = 2) const uint DIM = 128;
layout(constant_id = 3) const uint CHUNK = 128; /* columns in shared memory, a multiple of 4 */

layout(push_constant, scalar) uniform parameters {
    uint64_t index; /* rows of [heads][DIM] queries, a key, [heads] weights */
    uint64_t rows;  /* cache_row of each */
    uint64_t keys;  /* [sequences][slots] of the layer */
    uint64_t scores;
    uint64_t sequence_bytes;
    uint row_bytes, heads, index_stride, scores_stride, kept;
    float scale; /* positive: applied to the weights */
};

const uint KEYS = 32, HEADS = 16; /* of a tile */
const uint QUADS = (DIM + 3) / 4, CHUNK_QUADS = CHUNK / 4, KEY_STRIDE = CHUNK_QUADS + 1;
const uint SCORERS = gl_WorkGroupSize.x / KEYS; /* threads per key, which share the heads */
const uint PER_SCORER = (HEADS + SCORERS - 1) / SCORERS;

shared vec4 q_tile[HEADS * CHUNK_QUADS];
shared vec4 k_tile[KEYS * KEY_STRIDE];
shared float parts[SCORERS * KEYS];

uint64_t first_key, queries; /* of the row */

void load_queries(uint head, uint from)
{
    for (uint i = thread; i < HEADS * CHUNK_QUADS; i += threads) {
        uint h = head + i / CHUNK_QUADS, column = (from + i % CHUNK_QUADS) * 4;
        vec4 v = vec4(0);
        for (uint j = 0; j < 4 && h < heads && column + j < DIM; j++) v[j] = float_at(queries, h * DIM + column + j);
        q_tile[i] = v;
    }
}

/* Keys beyond `count` are not read. */
void load_keys(uint key, uint count, uint from)
{
    for (uint i = thread; i < KEYS * CHUNK_QUADS; i += threads) {
        uint k = i / CHUNK_QUADS, quad = from + i % CHUNK_QUADS;
        vec4 v = vec4(0);
        if (k < count && quad < QUADS) v = cache_load(CACHE_TYPE, row_at(first_key, key + k, row_bytes), quad * 4, DIM);
        k_tile[k * KEY_STRIDE + i % CHUNK_QUADS] = v;
    }
}

void main()
{
    uint token = gl_WorkGroupID.y, key = gl_WorkGroupID.x * KEYS;
    cache_row row = cache_row_at(rows, token);
    if (row.position < kept || key > row.position) return;
    uint count = min(KEYS, row.position + 1 - key), k = thread % KEYS, scorer = thread / KEYS;
    first_key = keys + uint64_t(row.sequence) * sequence_bytes;
    queries = row_at(index, token, 4 * index_stride);
    uint64_t weights = queries + uint64_t((heads + 1) * DIM * 4);
    float own = 0;
    for (uint head = 0; head < heads; head += HEADS) {
        float sums[PER_SCORER];
        [[unroll]] for (uint i = 0; i < PER_SCORER; i++) sums[i] = 0;
        for (uint from = 0; from < QUADS; from += CHUNK_QUADS) {
            load_queries(head, from);
            if (head == 0 || QUADS > CHUNK_QUADS) load_keys(key, count, from);
            barrier();
            for (uint quad = 0; quad < CHUNK_QUADS; quad++) {
                vec4 b = k_tile[k * KEY_STRIDE + quad];
                [[unroll]] for (uint i = 0; i < PER_SCORER; i++)
                    sums[i] += dot(q_tile[min(scorer + i * SCORERS, HEADS - 1) * CHUNK_QUADS + quad], b);
            }
            barrier();
        }
        [[unroll]] for (uint i = 0; i < PER_SCORER; i++) {
            uint h = scorer + i * SCORERS;
            if (h < HEADS && head + h < heads)
                own += float_at(weights, head + h) * scale * (sums[i] > 0 ? sums[i] : 0);
        }
    }
    parts[scorer * KEYS + k] = own;
    barrier();
    if (thread >= count) return;
    float sum = 0;
    for (uint i = 0; i < SCORERS; i++) sum += parts[i * KEYS + thread];
    floats(row_at(scores, token, 4 * scores_stride)).at[key + thread] = sum;
}
