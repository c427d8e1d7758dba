#version 450
/* Attention over the cache. A workgroup has ROWS query rows that read the same keys: HEADS query heads of
 * one key-value head at POSITIONS adjacent tokens of a sequence (one in decode). It goes through the keys
 * in tiles and keeps running maxima, so that scores never leave it. A long context may be split between
 * workgroups, whose parts attention_merge puts together. Heads wider than a workgroup holds are done in
 * slices of their values, for each of which the scores are computed again.
 *
 * Dispatch: x: splits; y: kv_heads * (heads / kv_heads / HEADS) * SLICES; z: ceil(tokens / POSITIONS). */
#include "cache.glsl"

layout(constant_id = 1) const uint CACHE_TYPE = 0;
layout(constant_id = 2) const uint DIM = 64;      /* of a head */
layout(constant_id = 3) const uint HEADS = 1;     /* a divisor of heads / kv_heads */
layout(constant_id = 4) const uint POSITIONS = 1;
layout(constant_id = 5) const uint LANES = 32;    /* threads that share a row's values */
layout(constant_id = 6) const uint CHUNK = 32;    /* columns of keys in shared memory, a multiple of 4 */
layout(constant_id = 7) const uint SPLIT = 0;     /* whether parts are stored */
layout(constant_id = 8) const uint VALUE_DIM = 64; /* of a value and of a head of y, at most DIM; rows of
                                                      values are as long as those of keys */
layout(constant_id = 9) const uint CHOSEN = 0;    /* whether `seen` lists the keys; then POSITIONS is 1 */

layout(push_constant, scalar) uniform parameters {
    uint64_t qkv, rows, keys, values;
    uint64_t y;     /* or the parts: [tokens][heads][splits][2 + VALUE_DIM]: maximum, sum, values */
    uint64_t sinks; /* [heads] */
    uint64_t sequence_bytes;
    uint head_bytes, row_bytes;
    uint tokens, heads, kv_heads;
    uint qkv_stride, y_stride;
    uint window;   /* keys visible to a query, including its own */
    uint windowed; /* WINDOW_SLIDES or WINDOW_CHUNK: the cache begins at a sequence's base */
    uint split_keys;
    float scale, cap; /* cap 0: none */
    uint kept;
    uint64_t seen; /* [tokens][kept] positions that a row beyond `kept` keys sees, in ascending order */
};

const uint ROWS = HEADS * POSITIONS;
const uint KEYS = 32; /* of a tile */
const uint QUADS = (DIM + 3) / 4;
const uint VALUE_QUADS = (VALUE_DIM + 3) / 4;
const uint LANE_QUADS = (VALUE_QUADS + LANES - 1) / LANES;
const uint PER_LANE = LANE_QUADS < 4 ? LANE_QUADS : 4; /* quads of values of a thread */
const uint SLICE = LANES * PER_LANE;
const uint SLICES = (VALUE_QUADS + SLICE - 1) / SLICE;
const uint TEAMS = gl_WorkGroupSize.x / LANES; /* of threads, which share the rows */
const uint PER_TEAM = (ROWS + TEAMS - 1) / TEAMS;
const uint SCORERS = gl_WorkGroupSize.x / KEYS; /* threads per key, which share the rows too */
const uint PER_SCORER = (ROWS + SCORERS - 1) / SCORERS;
const uint CHUNK_QUADS = CHUNK / 4, KEY_STRIDE = CHUNK_QUADS + 1;

shared vec4 q_tile[ROWS * CHUNK_QUADS];
shared vec4 k_tile[KEYS * KEY_STRIDE];
shared float scores[ROWS * KEYS];
shared float maxima[ROWS], factors[ROWS];

uint first_token, first_head;  /* of the workgroup */
uint64_t first_key, first_value; /* of position 0 */
uint64_t list;                   /* of the row's keys; 0: they are adjacent */

uint token_of(uint row)
{
    return min(first_token + row / HEADS, tokens - 1);
}

/* Keys [begin, end) that a row sees, or entries of its list. */
uvec2 visible(uint row)
{
    uint position = cache_row_at(rows, token_of(row)).position;
    if (CHOSEN != 0) return uvec2(0, min(position + 1, kept));
    return uvec2(first_visible(position, window, windowed), position + 1);
}

/* Where position 0 of the workgroup's sequence and head is, or would be. */
uint64_t position_zero(uint64_t cache)
{
    cache_row row = cache_row_at(rows, first_token);
    uint64_t base = windowed != 0 ? uint64_t(row.base) * uint64_t(row_bytes) : 0;
    return cache + uint64_t(row.sequence) * sequence_bytes +
           uint64_t(first_head / (heads / kv_heads)) * uint64_t(head_bytes) - base;
}

/* Of a key that the row sees. */
uint position_of(uint key)
{
    return CHOSEN == 0 ? key : listed(list, key);
}

vec4 query(uint row, uint quad)
{
    uint64_t from = row_at(qkv, token_of(row), 4 * qkv_stride) + uint64_t((first_head + row % HEADS) * DIM * 4);
    vec4 v = vec4(0);
    for (uint i = 0; i < 4 && quad * 4 + i < DIM; i++) v[i] = float_at(from, quad * 4 + i);
    return v;
}

void load_queries(uint from)
{
    for (uint i = thread; i < ROWS * CHUNK_QUADS; i += threads)
        q_tile[i] = query(i / CHUNK_QUADS, from + i % CHUNK_QUADS);
}

/* Keys beyond `count` are not read. */
void load_keys(uint key, uint count, uint from)
{
    for (uint i = thread; i < KEYS * CHUNK_QUADS; i += threads) {
        uint k = i / CHUNK_QUADS, quad = from + i % CHUNK_QUADS;
        vec4 v = vec4(0);
        if (k < count && quad < QUADS)
            v = cache_load(CACHE_TYPE, row_at(first_key, position_of(key + k), row_bytes), quad * 4, DIM);
        k_tile[k * KEY_STRIDE + i % CHUNK_QUADS] = v;
    }
}

/* Scores of a tile of keys, those that a row does not see at minus infinity. */
void score_tile(uint key, uint count)
{
    float sums[PER_SCORER];
    uint k = thread % KEYS, scorer = thread / KEYS;
    [[unroll]] for (uint i = 0; i < PER_SCORER; i++) sums[i] = 0;
    for (uint from = 0; from < QUADS; from += CHUNK_QUADS) {
        if (QUADS > CHUNK_QUADS) load_queries(from);
        load_keys(key, count, from);
        barrier();
        for (uint quad = 0; quad < CHUNK_QUADS; quad++) {
            vec4 b = k_tile[k * KEY_STRIDE + quad];
            [[unroll]] for (uint i = 0; i < PER_SCORER; i++) {
                uint row = min(scorer + i * SCORERS, ROWS - 1);
                sums[i] += dot(q_tile[row * CHUNK_QUADS + quad], b);
            }
        }
        barrier();
    }
    [[unroll]] for (uint i = 0; i < PER_SCORER; i++) {
        uint row = scorer + i * SCORERS;
        if (row >= ROWS) continue;
        uvec2 seen = visible(row);
        float score = sums[i] * scale;
        if (cap != 0) score = softcap(score, cap);
        bool masked = k >= count || key + k < seen.x || key + k >= seen.y;
        scores[row * KEYS + k] = masked ? -INFINITY : score;
    }
    barrier();
}

/* New running maxima; scores become weights relative to them. */
void weigh_tile()
{
    for (uint row = thread; row < ROWS; row += threads) {
        float before = maxima[row], largest = before;
        for (uint k = 0; k < KEYS; k++) largest = max(largest, scores[row * KEYS + k]);
        maxima[row] = largest;
        factors[row] = before == -INFINITY ? 0 : exp(before - largest);
    }
    barrier();
    for (uint i = thread; i < ROWS * KEYS; i += threads)
        scores[i] = scores[i] == -INFINITY ? 0 : exp(scores[i] - maxima[i / KEYS]);
    barrier();
}

void store_row(uint row, float sum, const vec4 held[PER_LANE], uint first_quad)
{
    uint token = first_token + row / HEADS, head = first_head + row % HEADS;
    if (row >= ROWS || token >= tokens) return;
    float largest = maxima[row], factor = 1;
    uint64_t to;
    if (SPLIT != 0) {
        uint64_t part = (uint64_t(token) * heads + head) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
        to = y + part * uint64_t((2 + VALUE_DIM) * 4);
        if (thread % LANES == 0 && first_quad == 0) {
            floats(to).at[0] = largest;
            floats(to).at[1] = sum;
        }
        to += 8;
    } else {
        if (sinks != 0) {
            float sink = float_at(sinks, head), all = max(largest, sink);
            factor = exp(largest - all);
            sum = sum * factor + exp(sink - all);
        }
        factor /= sum;
        to = row_at(y, token, 4 * y_stride) + uint64_t(head * VALUE_DIM * 4);
    }
    [[unroll]] for (uint j = 0; j < PER_LANE; j++) {
        uint column = (first_quad + thread % LANES + j * LANES) * 4;
        for (uint i = 0; i < 4 && column + i < VALUE_DIM; i++) floats(to).at[column + i] = held[j][i] * factor;
    }
}

void main()
{
    uint lane = thread % LANES, team = thread / LANES;
    first_token = gl_WorkGroupID.z * POSITIONS;
    first_head = gl_WorkGroupID.y / SLICES * HEADS;
    first_key = position_zero(keys);
    first_value = position_zero(values);
    list = 0;
    if (CHOSEN != 0 && cache_row_at(rows, first_token).position >= kept)
        list = row_at(seen, first_token, 4 * kept);
    uint first_quad = gl_WorkGroupID.y % SLICES * SLICE;
    uint begin = visible(0).x, end = visible(ROWS - 1).y;
    if (SPLIT != 0) {
        begin = min(end, begin + gl_WorkGroupID.x * split_keys);
        end = min(end, begin + split_keys);
    }
    vec4 held[PER_TEAM * PER_LANE];
    float sums[PER_TEAM];
    [[unroll]] for (uint i = 0; i < PER_TEAM * PER_LANE; i++) held[i] = vec4(0);
    [[unroll]] for (uint r = 0; r < PER_TEAM; r++) sums[r] = 0;
    for (uint row = thread; row < ROWS; row += threads) maxima[row] = -INFINITY;
    if (QUADS <= CHUNK_QUADS) load_queries(0);
    barrier();

    for (uint key = begin; key < end; key += KEYS) {
        uint count = min(KEYS, end - key);
        score_tile(key, count);
        weigh_tile();
        [[unroll]] for (uint r = 0; r < PER_TEAM; r++) {
            float factor = factors[min(team + r * TEAMS, ROWS - 1)];
            sums[r] *= factor;
            [[unroll]] for (uint j = 0; j < PER_LANE; j++) held[r * PER_LANE + j] *= factor;
        }
        for (uint k = 0; k < count; k++) {
            uint64_t from = row_at(first_value, position_of(key + k), row_bytes);
            vec4 v[PER_LANE];
            [[unroll]] for (uint j = 0; j < PER_LANE; j++) {
                uint quad = first_quad + lane + j * LANES;
                v[j] = quad < VALUE_QUADS ? cache_load(CACHE_TYPE, from, quad * 4, DIM) : vec4(0);
            }
            [[unroll]] for (uint r = 0; r < PER_TEAM; r++) {
                float weight = scores[min(team + r * TEAMS, ROWS - 1) * KEYS + k];
                sums[r] += weight;
                [[unroll]] for (uint j = 0; j < PER_LANE; j++) held[r * PER_LANE + j] += weight * v[j];
            }
        }
        barrier();
    }
    [[unroll]] for (uint r = 0; r < PER_TEAM; r++) {
        vec4 row[PER_LANE];
        [[unroll]] for (uint j = 0; j < PER_LANE; j++) row[j] = held[r * PER_LANE + j];
        store_row(team + r * TEAMS, sums[r], row, first_quad);
    }
}
