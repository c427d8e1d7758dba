/*
 * The engine's arithmetic by instruction set. A set is one const table of functions; the plain C
 * table is complete and each better set starts from the one below and overrides what it does
 * faster. pj_kernels_get() chooses the best set that the CPU (and the kernel's permission)
 * supports.
 *
 * PERJOULE_ISA names the best set that may be used ("avx2": everything up to AVX2), or, as a
 * comma-separated list, exactly the sets that may be used besides plain C ("avx2,bf16"). Names: c,
 * avx2, avx512, vnni, vbmi, bf16, amx, neon, dotprod, i8mm.
 *
 * All functions here run on the calling thread, accept any length and alignment, allocate nothing
 * and keep no state. `float *` rows may be updated in place where y == x is allowed (stated below).
 * Products with weight matrices, which run on the thread team, are in linear.h.
 */
#ifndef PJ_KERNELS_KERNELS_H
#define PJ_KERNELS_KERNELS_H

#include "base/error.h"
#include "engine/files/dtype.h"

/* Scratch memory that the attention functions may need from the caller (pj_team_scratch). */
enum { PJ_ATTENTION_SCRATCH_BYTES = 1 << 20 };

/* Sums over values of an activation; zeroed by the caller, accumulated by every call. NaN and Inf
 * are counted and excluded from the sums. The bounds may cover more values than the sums do. */
typedef struct pj_value_sums {
    /* sums */
    double sum, sum_abs, sum_square;
    uint64_t count;   /* values summed, including NaN and Inf */
    uint64_t skipped; /* of those, NaN and Inf */
    uint64_t below;   /* finite with |x| < tau */
    /* bounds */
    float max_abs; /* largest finite magnitude */
    uint64_t nan, inf;
} pj_value_sums;

void pj_value_sums_add(pj_value_sums *into, const pj_value_sums *part);

/* One thread's sums, on cache lines of their own (avoids false sharing). */
typedef struct pj_thread_sums {
    _Alignas(64) pj_value_sums sums;
} pj_thread_sums;

/* Figures of one row of attention weights p over its visible keys. */
typedef struct pj_attention_figures {
    double entropy;          /* -sum p ln p, nats */
    double max;              /* largest weight */
    uint64_t below;          /* keys with p < tau */
    uint64_t below_relative; /* keys with p < relative_tau */
} pj_attention_figures;

/* Counts over the gate of an MLP (one token row per call); accumulated by every call. */
typedef struct pj_gate_counts {
    uint64_t count;
    uint64_t killed; /* gate input < 0 */
    uint64_t dead;   /* |act(g)| < tau max|act(g)| of the row */
    uint64_t gated;  /* |act(g) u| < tau max|act(g) u| of the row */
} pj_gate_counts;

/* Keys visible to a query row: [begin, end), never empty. */
typedef struct pj_visible {
    uint32_t begin, end;
} pj_visible;

/* One KV head's keys or values for positions 0 .. n-1: rows of head_dim values, F32 or F16. */
typedef struct pj_kv_rows {
    const void *data;
    size_t row_bytes; /* distance between positions */
    pj_dtype type;
} pj_kv_rows;

/* Forms of activations, as read by a weight type's kernels. */
typedef enum pj_form {
    PJ_FORM_F32 = 0,
    PJ_FORM_BF16,
    PJ_FORM_Q8,      /* codes of 8 bits, one scale per 32 columns */
    PJ_FORM_Q8_WIDE, /* one scale per 128: types in blocks of 256 scale integers before they add */
    PJ_FORM_Q8_PLANES, /* the same, every fourth column together: codebooks of four values */
    PJ_FORM_Q8_WORDS,  /* finer codes in words, one scale per 128; many tokens only */
    PJ_FORM_SPLIT,     /* two bfloat16 parts, high and low; many tokens only */
    PJ_FORM_COUNT
} pj_form;

/* The products of attention with all operands rounded to bfloat16, for F16 keys and values. */
typedef struct pj_rounded_attention {
    size_t dim_multiple, max_dim; /* dimensions of heads that it takes */
    void (*scores)(float *scores, size_t score_stride, const float *q, size_t q_stride, size_t rows,
                   const pj_kv_rows *keys, size_t n, size_t head_dim, void *scratch);
    void (*values)(float *y, size_t y_stride, const float *weights, size_t weight_stride,
                   size_t rows, const pj_kv_rows *values, size_t n, size_t head_dim, bool add,
                   void *scratch);
} pj_rounded_attention;

typedef struct pj_tile_kernels pj_tile_kernels; /* in tile.h, like the next */
typedef struct pj_form_kernels pj_form_kernels;

typedef struct pj_kernels {
    const char *name; /* of its best set: "bf16" */

    /* Weights. `n` is a whole number of blocks of the type. */
    void (*dequantise)(pj_dtype type, const void *row, float *y, size_t n);
    /* To F32, F16, BF16 (round to nearest even), Q8_0, Q4_0. */
    void (*quantise)(pj_dtype type, const float *x, void *row, size_t n);

    /* Rows; y == x is allowed. `bias` may be NULL. */
    void (*rmsnorm)(float *y, const float *x, const float *weight, size_t n, float eps);
    void (*layernorm)(float *y, const float *x, const float *weight, const float *bias, size_t n,
                      float eps);
    /* In place on `heads` heads of head_dim values, head_stride apart; rotates pairs (i, i +
     * rotary/2), or (2i, 2i + 1) with `neighbours`; cosine and sine [rotary/2]. */
    void (*rope)(float *x, size_t heads, size_t head_stride, const float *cosine, const float *sine,
                 size_t rotary, bool neighbours);
    void (*add)(float *y, const float *x, size_t n);                     /* y += x */
    void (*add_scaled)(float *y, const float *x, float scale, size_t n); /* y += scale x */
    void (*multiply)(float *y, const float *x, size_t n);                /* y *= x */
    void (*silu)(float *y, const float *x, size_t n);                    /* x / (1 + e^-x) */
    void (*gelu)(float *y, const float *x, size_t n);                    /* gelu_new (tanh form) */
    void (*scale)(float *x, size_t n, float scale);                      /* x *= scale */
    void (*softcap)(float *x, size_t n, float cap);                      /* cap tanh(x / cap) */
    /* silu and multiply in one pass, with the same arithmetic. */
    void (*silu_multiply)(float *y, const float *gate, const float *up, size_t n);
    void (*sigmoid_multiply)(float *y, const float *gate, size_t n); /* y /= 1 + e^-gate */
    /* One token of the gated delta rule, state [key_dim][value_dim] (engine/model/delta.h):
     * state *= decay; state += k (strength (v - state^T k))^T; y = state^T q. */
    void (*delta_step)(float *state, const float *q, const float *k, const float *v, float decay,
                       float strength, size_t key_dim, size_t value_dim, float *y);
    void (*softmax)(float *x, size_t n); /* in place; -inf gives 0 */

    /* Attention in stages, for one KV head: a fused caller runs them over tiles that stay in cache,
     * a deep profile runs one stage over everything; the arithmetic is the same. Query rows are
     * q_stride floats apart (one group of heads, or many positions); scores are
     * [rows][score_stride], of which columns 0 .. n-1 are used. */
    void (*attention_scores)(float *scores, size_t score_stride, const float *q, size_t q_stride,
                             size_t rows, const pj_kv_rows *keys, size_t n, size_t head_dim,
                             void *scratch);
    void (*attention_scale)(float *scores, size_t score_stride, size_t rows, size_t n, float scale);
    /* Sets scores of invisible keys to -inf. */
    void (*attention_mask)(float *scores, size_t score_stride, size_t rows, size_t n,
                           const pj_visible *visible);
    void (*attention_softmax)(float *scores, size_t score_stride, size_t rows, size_t n);
    /* y[rows][y_stride] = weights times values (head_dim columns); adds to y when `add`. */
    void (*attention_values)(float *y, size_t y_stride, const float *weights, size_t weight_stride,
                             size_t rows, const pj_kv_rows *values, size_t n, size_t head_dim,
                             bool add, void *scratch);

    /* Faster products with coarser operands (see attention_scores and attention_values); NULL:
     * none.
     */
    const pj_rounded_attention *rounded_attention;

    /* Statistics: sums and bounds, or bounds alone, which costs a third. */
    void (*value_sums)(const float *x, size_t rows, size_t cols, size_t stride, float tau,
                       pj_value_sums *sums);
    void (*value_bounds)(const float *x, size_t rows, size_t cols, size_t stride,
                         pj_value_sums *sums);
    void (*attention_figures)(const float *p, size_t n, float tau, float relative_tau,
                              pj_attention_figures *figures);
    /* `activated` is act(gate); `up` NULL for an MLP without a gate product. */
    void (*gate_counts)(const float *gate, const float *activated, const float *up, size_t n,
                        float tau, pj_gate_counts *counts);

    /* Products (linear.h): by weight type and by form of the activations; never NULL. */
    const pj_tile_kernels *linear[PJ_DTYPE_COUNT];
    const pj_form_kernels *forms[PJ_FORM_COUNT];
    /* Runs multiply-adds of a form from registers only, proportional to `rounds`; returns the
     * operations done (two per multiply-add). Timed by pj_limits_peak. */
    double (*peak[PJ_FORM_COUNT])(size_t rounds);
    void (*tile_store)(const float *c, size_t rows, size_t tokens, const float *bias, float *y,
                       size_t y_stride);
} pj_kernels;

/* The set chosen for this process: selected once, safe from any thread. */
const pj_kernels *pj_kernels_get(void);
/* The set allowed by `mask` (like PERJOULE_ISA; NULL: no limit) on this machine; NULL when the mask
 * contains an unknown name. Plain C is always allowed. */
const pj_kernels *pj_kernels_find(const char *mask);
/* Sets this machine can run, best last; for tests and `bench`. Each name can be a mask. */
size_t pj_kernels_list(const char *names[], size_t max);

#endif
