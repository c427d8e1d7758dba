/* Internals of the forward pass: what its files share. A step gets its component's name from the
 * part of the model that it runs (pj_norm, pj_projection), and does nothing if the model has no
 * such part. */
#ifndef PJ_FORWARD_STEPS_H
#define PJ_FORWARD_STEPS_H

#include "engine/forward/compute.h"
#include "engine/forward/work.h"

typedef struct pj_steps {
    const pj_ops *ops;
    void *state; /* of the operations */
    pj_compute *compute;
    const pj_model *model;
    const pj_instrument *instrument;
    const pj_pass *pass;
    uint32_t rows; /* of the pass */
    /* Calibration runs a single component and skips the others. NULL: all run. */
    pj_pass_part *part;
} pj_steps;

/* Whether the component should run now; PJ_N_NONE is part of the running one. */
static inline bool pj_steps_want(const pj_steps *s, pj_instrument_name component)
{
    if (__builtin_expect(s->part == NULL, 1) || component == PJ_N_NONE) return true;
    s->part->seen[component] = true;
    return s->part->only == PJ_N_NONE || s->part->only == component;
}

static inline void pj_steps_section(const pj_steps *s, pj_instrument_name name)
{
    if (s->instrument->lane) s->ops->section(s->state, name);
}
static inline void pj_steps_end_section(const pj_steps *s)
{
    if (s->instrument->lane) s->ops->end_section(s->state);
}
static inline void pj_steps_component(const pj_steps *s, pj_instrument_name name)
{
    if (s->instrument->module) s->ops->component(s->state, name);
}
/* Ends a layer or component. */
static inline void pj_steps_end(const pj_steps *s, const pj_done *done)
{
    if (s->instrument->module) s->ops->end(s->state, done);
}

/* Contiguous rows of the pass. */
static inline pj_slice pj_steps_slice(const pj_steps *s, pj_buffer_name buffer, uint32_t cols)
{
    return pj_slice_of(buffer, s->rows, cols, cols);
}
static inline pj_slice pj_steps_hidden(const pj_steps *s, pj_buffer_name buffer)
{
    return pj_steps_slice(s, buffer, s->model->config.hidden);
}

/* A norm as a component. */
void pj_steps_norm(const pj_steps *s, const pj_norm_step *step);
/* Up to PJ_MAX_PRODUCTS products of the same rows, as components with their projections' names or,
 * if unnamed, as part of the open one. */
void pj_steps_products(const pj_steps *s, pj_slice x, const pj_product *products, uint32_t count);
void pj_steps_product(const pj_steps *s, pj_slice x, const pj_projection *projection, pj_slice y,
                      pj_slice residual);

/* Attention of x, or the gated delta rule; the result is added to the residual stream, or left in Y
 * for the norm that follows (`attention_out_norm`). */
void pj_steps_attention(const pj_steps *s, const pj_layer *layer, pj_slice x);
void pj_steps_delta(const pj_steps *s, const pj_layer *layer, pj_slice x);
void pj_steps_scan(const pj_steps *s, const pj_layer *layer, pj_slice x);
void pj_steps_short_convolution(const pj_steps *s, const pj_layer *layer, pj_slice x);
/* Components that recurrent layers share. */
void pj_steps_convolution(const pj_steps *s, const pj_layer *layer, pj_slice x, pj_slice y);
void pj_steps_gated_norm(const pj_steps *s, const pj_layer *layer, pj_slice y, pj_slice gate);
void pj_steps_latent(const pj_steps *s, const pj_layer *layer, pj_slice x);
/* The component `attention`: rotation, cache, scores and values. */
void pj_steps_attend(const pj_steps *s, const pj_layer *layer, pj_slice qkv, pj_slice y);
/* Runs x through a dense block into y, which is added to `residual` unless that is none. */
void pj_steps_mlp(const pj_steps *s, const pj_mlp *mlp, pj_slice x, pj_slice y, pj_slice residual);
/* Runs x through the experts of a layer, chosen from `routed`, into Y, likewise. */
void pj_steps_experts(const pj_steps *s, const pj_layer *layer, pj_slice routed, pj_slice x,
                      pj_slice residual);
/* The layer's part of the token vectors, into y. */
void pj_steps_token_input(const pj_steps *s, const pj_layer *layer, pj_slice y);

/* Alternating updates. Streams of the embedding in X; their prediction, of which X is the active
 * one; their correction by X, which becomes what token vectors are gated by; the sum of the normed
 * Y and all but the first; and what the head reads of the selected rows, in Y. */
pj_slice pj_steps_streams(const pj_steps *s);
void pj_steps_widen(const pj_steps *s);
void pj_steps_predict(const pj_steps *s, const pj_layer *layer);
void pj_steps_correct(const pj_steps *s, const pj_layer *layer);
void pj_steps_add_to_others(const pj_steps *s, const pj_norm *norm);
void pj_steps_narrow(const pj_steps *s, const uint32_t *rows, uint32_t count);
/* The residual of low rank: its normed output is added to X; then, after attention, its input too,
 * and X is divided by sqrt(2). */
void pj_steps_low_rank(const pj_steps *s, const pj_layer *layer, pj_slice x);
void pj_steps_join_low_rank(const pj_steps *s, pj_slice x);

#endif
