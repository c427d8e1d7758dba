/*
 * The gated delta rule, the linear attention of Qwen3.5: every value head keeps a matrix S of
 * [key_dim][value_dim] instead of keys and values, so its state does not grow with the text. Per
 * token S decays by a gate, is corrected towards the new value at the new key, and is read with the
 * query:
 *     S = decay S;  S += k (beta (v - S^T k))^T;  y = S^T q
 * Queries, keys and values first pass a short causal convolution, whose last inputs are also part
 * of the state.
 *
 * Two other kinds of layers keep such a state. A state-space scan (Mamba-2) has no correction, a
 * step dt for each head and token, and a direct path:
 *     S = decay S;  S += B (dt x)^T;  y = S^T C + D x
 * where B and C, of a group of heads each, take the place of keys and queries, and x that of
 * values. A gated short convolution (LFM2) has the convolution's last inputs alone.
 */
#ifndef PJ_MODEL_DELTA_H
#define PJ_MODEL_DELTA_H

#include "engine/model/model.h"

struct pj_delta {
    pj_recurrence kind;
    uint32_t key_heads, value_heads, key_dim, value_dim, kernel;
    /* value head h uses key head h % key_heads, as in GGUF files; else heads of a key head are
     * adjacent */
    bool tiled;
    /* [channels, hidden] queries, keys, values of all heads; PJ_SCAN: x, B, C;
     * PJ_SHORT_CONVOLUTION: [3 channels, hidden] gate of the input, of the output, input */
    pj_projection qkv;
    pj_projection z;        /* [value_heads value_dim, hidden] gate of the output */
    pj_projection b, a;     /* [value_heads, hidden] strength of the correction; decay */
    pj_projection out;      /* [hidden, value_heads value_dim] */
    const float *conv;      /* [kernel][channels] weights, oldest input first */
    const float *conv_bias; /* [channels] or NULL */
    const float *rate;      /* [value_heads] e^A_log */
    const float *bias;      /* [value_heads] dt_bias */
    /* [value_dim] of each head's output; PJ_SCAN: [value_heads value_dim], or NULL */
    const float *norm;
    /* PJ_SCAN */
    const float *skip;           /* [value_heads] D */
    float least_step, most_step; /* bounds of dt */
    uint32_t norm_groups;        /* parts of the output that are normalised apart */
    bool norm_first;             /* the output is gated after its norm, not before */
};

static inline float pj_softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static inline size_t pj_delta_channels(const struct pj_delta *d)
{
    return 2 * (size_t)d->key_heads * d->key_dim + (size_t)d->value_heads * d->value_dim;
}

static inline size_t pj_delta_values(const struct pj_delta *d)
{
    return (size_t)d->value_heads * d->value_dim;
}

/* Floats of one sequence's state: the convolution's last inputs, then S of every head. */
static inline size_t pj_delta_state_floats(const struct pj_delta *d)
{
    return (d->kernel - 1) * pj_delta_channels(d) + pj_delta_values(d) * d->key_dim;
}

#endif
