/* Internals of the forward pass: steps shared by its files. A step gets its component's name from
 * the part of the model that it runs (pj_norm, pj_projection), records it through the
 * instrumentation, and does nothing if the model has no such part. */
#ifndef PJ_FORWARD_STEPS_H
#define PJ_FORWARD_STEPS_H

#include "engine/forward/forward.h"

typedef struct pj_steps {
    pj_state *state;
    const pj_model *model;
    const pj_kernels *kernels;
    pj_team *team;
    pj_instrument *instrument;
    const pj_pass *pass;
    size_t rows; /* rows of the pass */
    /* Calibration runs a single component and skips the others. NULL: all run. */
    struct pj_pass_part *part;
} pj_steps;

typedef struct pj_pass_part {
    pj_instrument_name only; /* PJ_N_NONE: all run, and `seen` notes those that exist */
    bool seen[PJ_N_COUNT];
} pj_pass_part;

/* Whether the component should run now; PJ_N_NONE is part of the running one. */
static inline bool pj_steps_want(const pj_steps *s, pj_instrument_name component)
{
    if (__builtin_expect(s->part == NULL, 1) || component == PJ_N_NONE) return true;
    s->part->seen[component] = true;
    return s->part->only == PJ_N_NONE || s->part->only == component;
}

/* Runs fn(context, row) for all rows: on the team if there is enough `work` (values touched, over
 * all rows) to justify a dispatch. */
typedef void pj_row_fn(void *context, size_t row);
void pj_steps_rows(const pj_steps *s, size_t rows, size_t work, pj_row_fn *run, void *context);
/* The same, with statistics of the output `done`, if recorded, per row as soon as it is written.
 * Row i is part of done's row i / (rows / done->rows). */
void pj_steps_rows_summed(const pj_steps *s, size_t rows, size_t work, pj_row_fn *run,
                          void *context, const pj_done *done);

/* Records an extra with the number of sampled rows, unless all were sampled. */
void pj_steps_record_rows(const pj_steps *s, size_t rows);

/* Rows of activations. */
typedef struct pj_rows {
    const float *x; /* [count][stride] */
    size_t count, stride;
} pj_rows;

/* Normalises `rows` rows of n values as a component; y == x is allowed. Heads of a token are rows
 * too: row i is at x + (i / per_token) * stride + (i % per_token) * n. */
typedef struct pj_norm_step {
    const pj_norm *norm;
    pj_norm_kind kind;
    const float *x;
    float *y;
    size_t rows, n, per_token, x_stride, y_stride;
    float *residual; /* [rows][n] to which y is added, or NULL */
} pj_norm_step;
void pj_steps_norm(const pj_steps *s, const pj_norm_step *step);

/* y = x w + bias, as a component with the projection's name, or, if unnamed, as operations of the
 * open component. */
typedef struct pj_product {
    const pj_projection *projection; /* skipped if the model does not have it */
    float *y;                        /* [rows][y_stride] */
    size_t y_stride;
    float *residual; /* [rows][out] to which y is added, or NULL */
} pj_product;

enum { PJ_MAX_PRODUCTS = 4 };
/* Up to PJ_MAX_PRODUCTS products of the same rows, which are packed once; all named, or none. */
void pj_steps_products(const pj_steps *s, const pj_rows *rows, const pj_product *products,
                       size_t count);
void pj_steps_product(const pj_steps *s, const pj_rows *rows, const pj_projection *projection,
                      float *y, size_t y_stride, float *residual);
/* y += x times the model's residual scale, as an operation; both [rows][n], contiguous. */
void pj_steps_add(const pj_steps *s, float *y, const float *x, size_t rows, size_t n);

/* FLOPs and bytes of a product, by the documented conventions. */
double pj_product_flops(const pj_projection *p, size_t rows);
double pj_product_bytes(const pj_projection *p, size_t rows);

/* Rotates the queries and keys in state->qkv, stores keys and values in the cache, and leaves the
 * result in state->attended. */
void pj_steps_attention(const pj_steps *s, const pj_layer *layer);
/* Runs x [rows][hidden] through the gated delta rule and adds the result to the residual stream. */
void pj_steps_delta(const pj_steps *s, const pj_layer *layer, const pj_rows *x);
/* Runs x [rows][hidden] through a dense block into y [rows][hidden], which is added to `residual`
 * unless that is NULL. */
void pj_steps_mlp(const pj_steps *s, const pj_mlp *mlp, const pj_rows *x, float *y,
                  float *residual);
/* Runs x [rows][hidden] through the experts of a layer, chosen from `routed`, into state->y, which
 * is added to `residual` unless that is NULL. */
void pj_steps_experts(const pj_steps *s, const pj_layer *layer, const pj_rows *routed,
                      const pj_rows *x, float *residual);
/* The layer's part of the token vectors, into y [rows][hidden]. */
void pj_steps_token_input(const pj_steps *s, const pj_layer *layer, float *y);

#endif
