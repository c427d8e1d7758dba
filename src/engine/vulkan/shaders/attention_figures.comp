#version 450
/* Figures of attention weights, per query head, over sampled rows: what engine/forward keeps in
 * pj_head_figures. Weights are never stored: the scores of a row are computed three times, for their
 * maximum, for the sums, and for the counts.
 *
 * Dispatch: x: heads; y: parts of the sampled rows. */
#include "cache.glsl"
#include "counts.glsl"

layout(constant_id = 1) const uint CACHE_TYPE = 0;
layout(constant_id = 2) const uint DIM = 64;

struct head_figures {
    uint rows;
    float entropy, entropy_normalised; /* nats, and divided by ln(keys) */
    float largest, largest_of_all;     /* sum over rows; of all rows */
    float visible, below, below_relative; /* keys; with p < tau; with p < 0.1 / keys */
};

layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer figure_list { head_figures at[]; };

layout(push_constant, scalar) uniform parameters {
    uint64_t qkv, rows, keys, sinks;
    uint64_t list; /* [sampled] rows of the pass */
    uint64_t figures; /* [parts][heads] */
    uint64_t sequence_bytes;
    uint head_bytes, row_bytes;
    uint sampled, heads, kv_heads, qkv_stride;
    uint window, windowed;
    float scale, cap, tau;
    uint kept;     /* 0: keys are not chosen */
    uint64_t seen; /* as that of attention */
};

shared float q[DIM];

float score_of(uint64_t first_key, uint key)
{
    uint64_t from = row_at(first_key, key, row_bytes);
    float sum = 0;
    for (uint i = 0; i < DIM; i += 4) {
        vec4 v = cache_load(CACHE_TYPE, from, i, DIM);
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (i + j < DIM) sum += q[i + j] * v[j];
    }
    sum *= scale;
    return cap == 0 ? sum : softcap(sum, cap);
}

void add_row(uint token, uint head, inout head_figures f)
{
    cache_row row = cache_row_at(rows, token);
    uint end = row.position + 1, begin = first_visible(row.position, window, windowed);
    uint64_t chosen = kept != 0 && end > kept ? row_at(seen, token, 4 * kept) : 0;
    if (chosen != 0) end = kept;
    uint64_t base = windowed != 0 ? uint64_t(row.base) * uint64_t(row_bytes) : 0;
    uint64_t first_key = keys + uint64_t(row.sequence) * sequence_bytes +
                         uint64_t(head / (heads / kv_heads)) * uint64_t(head_bytes) - base;
    barrier();
    for (uint i = thread; i < DIM; i += threads)
        q[i] = float_at(row_at(qkv, token, 4 * qkv_stride), head * DIM + i);
    barrier();
    float own = -INFINITY;
    for (uint k = begin + thread; k < end; k += threads) own = max(own, score_of(first_key, listed(chosen, k)));
    float top = reduce_max(own), largest = top;
    if (sinks != 0) largest = max(largest, float_at(sinks, head));
    float sum = 0, weighted = 0;
    for (uint k = begin + thread; k < end; k += threads) {
        float s = score_of(first_key, listed(chosen, k)) - largest, e = exp(s);
        sum += e;
        if (e > 0) weighted += e * s;
    }
    sum = reduce_sum(sum);
    weighted = reduce_sum(weighted);
    float total = sinks == 0 ? sum : sum + exp(float_at(sinks, head) - largest);
    float count = float(end - begin);
    uint below = 0, below_relative = 0;
    for (uint k = begin + thread; k < end; k += threads) {
        float p = exp(score_of(first_key, listed(chosen, k)) - largest) / total;
        below += uint(p < tau);
        below_relative += uint(p < 0.1f / count);
    }
    float entropy = (log(total) * sum - weighted) / total;
    float p = exp(top - largest) / total;
    f.rows++;
    f.entropy += entropy;
    f.entropy_normalised += end - begin > 1 ? entropy / log(count) : 0;
    f.largest += p;
    f.largest_of_all = max(f.largest_of_all, p);
    f.visible += count;
    f.below += float(reduce_count(below));
    f.below_relative += float(reduce_count(below_relative));
}

void main()
{
    uint head = gl_WorkGroupID.x;
    head_figures f = head_figures(0, 0, 0, 0, 0, 0, 0, 0);
    for (uint i = gl_WorkGroupID.y; i < sampled; i += gl_NumWorkGroups.y) add_row(word_at(list, i), head, f);
    if (thread == 0) figure_list(figures).at[gl_WorkGroupID.y * heads + head] = f;
}
