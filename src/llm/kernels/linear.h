/*
 * Y = X W^T (+ bias): products of float32 activations with stored weight matrices, on the team.
 *
 * Two steps, because one packed X serves several matrices (q, k, v; gate, up): pj_linear_pack
 * brings X into the form the weight type's kernels read (float32, bfloat16, or 8-bit blocks of 32
 * with a float scale), pj_linear_run multiplies it with one or several matrices in one dispatch.
 * How many tokens there are decides between two ways: few (decode) stream each weight row once past
 * all tokens and are bound by memory; many (prefill) are blocked matrix products.
 *
 * The form depends on the weight type and the kernel set alone, not on the number of tokens, so a
 * batch gives what single tokens give, but for the order of summation.
 */
#ifndef PJ_LLM_LINEAR_H
#define PJ_LLM_LINEAR_H

#include "llm/kernels/kernels.h"
#include "llm/team.h"

/* The form in which kernels read activations for weights of this type. */
pj_form pj_linear_form(const pj_kernels *kernels, pj_dtype type);
/* Bytes of caller's memory (64-byte aligned) that hold packed activations of any form; 0 when the
 * size overflows. */
size_t pj_linear_pack_bytes(size_t tokens, size_t cols);

typedef struct pj_packed {
    pj_form form;
    size_t tokens, cols;
    const float *x; /* as given: [tokens][x_stride]; must live as long as this does */
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
    /* Statistics of y are added to those of the thread that computes a part, while that part is in
     * its first cache: [threads], or NULL. The order of additions is not always the same. */
    pj_thread_sums *sums;
    size_t look_step; /* many tokens come in panels: sums are of every so-manieth, the last one
                         always; 0: of all */
    float tau;
} pj_linear_job;

enum { PJ_LINEAR_MAX_JOBS = 8 };

void pj_linear_run(const pj_kernels *kernels, pj_team *team, const pj_packed *packed,
                   const pj_linear_job *jobs, size_t count);

/* Both steps for one matrix. */
void pj_linear(const pj_kernels *kernels, pj_team *team, const float *x, size_t x_stride,
               size_t tokens, const pj_linear_job *job, void *memory);

#endif
