/*
 * Y = X W^T (+ bias): products of float32 activations with stored weight matrices, on the thread
 * team.
 *
 * Two steps, because one packed X serves several matrices (q, k, v; gate, up): pj_linear_pack
 * converts X to the form that the weight type's kernels read (float32, bfloat16, or 8-bit blocks of
 * 32 with a float scale), pj_linear_run multiplies it with one or more matrices in one dispatch.
 * The number of tokens selects the algorithm: few (decode) stream each weight row once past all
 * tokens and are memory-bound; many (prefill) are blocked matrix products.
 *
 * A batch gives the same results as single tokens up to the order of summation and, for quantised
 * types, up to rounding: kernels for many tokens round some weights and activations again, and AMX
 * multiplies many tokens of F16 and of quantised types in bfloat16.
 */
#ifndef PJ_KERNELS_LINEAR_H
#define PJ_KERNELS_LINEAR_H

#include "engine/kernels/kernels.h"
#include "engine/kernels/team.h"

/* The form in which kernels read this many activations for weights of this type. */
pj_form pj_linear_form(const pj_kernels *kernels, pj_dtype type, size_t tokens);

/* Whether activations that were packed for weights of one type serve those of the other. */
bool pj_linear_shares(const pj_kernels *kernels, pj_dtype a, pj_dtype b, size_t tokens);

/* Whether products are computed in float32, of one token and of many. */
bool pj_linear_is_float32(const pj_kernels *kernels, pj_dtype type);
/* Size of the caller's buffer (64-byte aligned) for packed activations of any form; 0 on
 * overflow. */
size_t pj_linear_pack_bytes(size_t tokens, size_t cols);

typedef struct pj_packed {
    pj_form form;
    size_t tokens, cols;
    const float *x; /* the unpacked activations [tokens][x_stride]; must outlive this struct */
    size_t x_stride;
    bool panels;  /* many tokens: packed in panels; else row by row */
    void *values; /* into the caller's memory */
    float *scales;
    int32_t *sums;
} pj_packed;

/* Packs x [tokens][x_stride] (cols used) for weights of `type` into `memory`. */
void pj_linear_pack(const pj_kernels *kernels, pj_team *team, pj_dtype type, const float *x,
                    size_t x_stride, size_t tokens, size_t cols, void *memory, pj_packed *packed);

typedef struct pj_linear_job {
    const pj_matrix *weights; /* cols as packed; the type's form as packed */
    const float *bias;        /* [rows], or NULL */
    float *y;                 /* [tokens][y_stride], rows used */
    size_t y_stride;
    /* Accumulates statistics of y in the sums of the thread that computed a part, while that part
     * is in its L1 cache: [threads], or NULL. The order of additions may vary. */
    pj_thread_sums *sums;
    /* Sums are of every sample_step-th token, always including the last (0: of all); bounds of all
     * tokens. */
    size_t sample_step;
    float tau;
    /* When work on this job began, for jobs that run together and are recorded apart; NULL: not
     * wanted. Rows are taken in the order of the jobs, but threads still finish the previous job.
     */
    int64_t *begun_ns;
} pj_linear_job;

enum { PJ_LINEAR_MAX_JOBS = 8 };

void pj_linear_run(const pj_kernels *kernels, pj_team *team, const pj_packed *packed,
                   const pj_linear_job *jobs, size_t count);

#endif
