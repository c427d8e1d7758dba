/* Inside the forward pass: steps that its files share. */
#ifndef PJ_LLM_PASS_H
#define PJ_LLM_PASS_H

#include "llm/forward.h"

typedef struct pj_steps {
    pj_state *state;
    const pj_model *model;
    const pj_kernels *kernels;
    pj_team *team;
    pj_seam *seam;
    const pj_pass *pass;
    size_t rows; /* of the pass */
    /* Calibration runs one component alone: others are left out. NULL: all run. */
    struct pj_part *part;
} pj_steps;

typedef struct pj_part {
    pj_seam_name only; /* PJ_N_NONE: all run, and `seen` says which there are */
    bool seen[PJ_N_COUNT];
} pj_part;

/* Whether the component is to run now. */
static inline bool pj_steps_want(const pj_steps *s, pj_seam_name component)
{
    if (__builtin_expect(s->part == NULL, 1)) return true;
    s->part->seen[component] = true;
    return s->part->only == PJ_N_NONE || s->part->only == component;
}

/* Runs fn(context, row) for all rows: on the team when there is `work` (values touched, over all
 * rows) worth a dispatch. */
typedef void pj_row_fn(void *context, size_t row);
void pj_steps_rows(const pj_steps *s, size_t rows, size_t work, pj_row_fn *run, void *context);
/* The same with the statistics of what the rows wrote, `done`, when it is recorded: of each row as
 * soon as it is there. Row i is a part of done's row i / (rows / done->rows). */
void pj_steps_rows_summed(const pj_steps *s, size_t rows, size_t work, pj_row_fn *run,
                          void *context, const pj_done *done);

/* The extra that says how many there were, where it is not all. */
void pj_steps_record_rows(const pj_steps *s, size_t rows);

/* A norm of `rows` rows of n values as a component; y == x is allowed. Heads of a token are rows
 * too: row i lies at x + (i / per_token) * stride + (i % per_token) * n. */
typedef struct pj_norm_step {
    pj_seam_name name;
    const pj_norm *norm;
    pj_norm_kind kind;
    const float *x;
    float *y;
    size_t rows, n, per_token, x_stride, y_stride;
} pj_norm_step;
void pj_steps_norm(const pj_steps *s, const pj_norm_step *step);

/* y = x w + bias for one of several projections of the same x. */
typedef struct pj_product {
    pj_seam_name name;
    const pj_projection *projection;
    float *y; /* [rows][y_stride] */
    size_t y_stride;
} pj_product;

/* `components`: each product is a component of its own; else its operations belong to the
 * component that is open. `residual` [rows][out] or NULL: the last product is added to it. */
void pj_steps_products(const pj_steps *s, const pj_product *products, size_t count, const float *x,
                       size_t x_stride, size_t rows, bool components, float *residual);
/* y += x, as an operation; both [rows][n] without gaps. */
void pj_steps_add(const pj_steps *s, float *y, const float *x, size_t rows, size_t n);

/* Floating point operations and bytes of a product, by the conventions. */
double pj_product_flops(const pj_projection *p, size_t rows);
double pj_product_bytes(const pj_projection *p, size_t rows);

/* Queries, keys and values of a layer are in state->qkv: leaves the attended values. */
void pj_steps_attention(const pj_steps *s, uint32_t layer);
/* state->normed through a dense block: output in y; added to `residual` when that is not NULL. */
void pj_steps_mlp(const pj_steps *s, const pj_mlp *mlp, float *y, float *residual);
/* state->normed through the experts of a layer, added to `residual`. */
void pj_steps_experts(const pj_steps *s, const pj_layer *layer, float *residual);

#endif
