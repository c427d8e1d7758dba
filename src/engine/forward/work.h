/* FLOPs and bytes of components, by the conventions of docs/measurement.md, and the parts of a
 * feed-forward block: shared by the forward pass and by devices. */
#ifndef PJ_FORWARD_WORK_H
#define PJ_FORWARD_WORK_H

#include "engine/forward/ops.h"
#include "engine/model/latent.h"

/* The first `cols` columns of a buffer whose rows are `stride` floats apart. */
static inline pj_slice pj_slice_of(pj_buffer_name buffer, uint32_t rows, uint32_t cols,
                                   uint32_t stride)
{
    return (pj_slice){buffer, 0, rows, cols, stride};
}
static inline pj_slice pj_slice_cols(pj_slice t, uint32_t first, uint32_t cols)
{
    t.first += first;
    t.cols = cols;
    return t;
}

double pj_product_flops(const pj_projection *p, size_t rows);
double pj_product_bytes(const pj_projection *p, size_t rows);
pj_done pj_product_work(const pj_product *product);
pj_done pj_norm_work(const pj_norm_step *step);
pj_done pj_activation_work(const pj_activation *activation);

/* Values of queries and keys that the layer rotates in each row, and bytes of keys and values that
 * it stores. */
double pj_rotated_values(const pj_model *model, const pj_layer *layer);
double pj_stored_bytes(const pj_layer *layer, pj_dtype kv_type);
static inline bool pj_layer_has_keys(const pj_layer *layer)
{
    return layer->kv_source == layer->index; /* else it reads those of another layer */
}
/* Whether it has attention, perhaps beside a recurrence. */
static inline bool pj_layer_attends(const pj_layer *layer)
{
    return layer->kv_source != UINT32_MAX;
}
/* Rows that a position has in the cache for each KV head: keys and values, or keys alone. */
static inline uint32_t pj_kv_planes(const pj_layer *layer)
{
    return layer->values_in_keys ? 1 : 2;
}
/* First key visible to the query at a position. */
static inline uint32_t pj_layer_first_key(const pj_layer *layer, uint32_t position)
{
    if (layer->window_is_chunk && layer->window != UINT32_MAX)
        return position - position % layer->window;
    return position + 1 > layer->window ? position + 1 - layer->window : 0;
}

/* Keys that the query at a position sees. */
static inline uint32_t pj_layer_seen_keys(const pj_layer *layer, uint32_t position)
{
    uint32_t visible = position + 1 - pj_layer_first_key(layer, position);
    return layer->indexer && visible > layer->indexer->kept ? layer->indexer->kept : visible;
}
/* Whether an indexer leaves out keys of a segment's rows, or of any of a pass. */
static inline bool pj_segment_chooses(const pj_layer *layer, const pj_sequence *sequences,
                                      const pj_pass_segment *segment)
{
    return layer->indexer &&
           sequences[segment->sequence].length + segment->count > layer->indexer->kept;
}
static inline bool pj_pass_chooses(const pj_layer *layer, const pj_sequence *sequences,
                                   const pj_pass *pass)
{
    bool any = false;
    for (uint32_t i = 0; i < pass->segment_count; i++)
        any |= pj_segment_chooses(layer, sequences, &pass->segments[i]);
    return any;
}

/* Work of an indexer without its projections. */
typedef struct pj_index_work {
    double pairs;   /* (query, key) pairs that are scored */
    double keys;    /* that are read, each counted once */
    double rotated; /* values, of all rows */
    double stored;  /* bytes, of all rows */
    double kept;    /* choices, of all rows */
    double flops, bytes;
} pj_index_work;
pj_index_work pj_index_work_of(const pj_model *model, const pj_layer *layer, const pj_pass *pass,
                               const pj_sequence *sequences, pj_dtype kv_type);

/* Padding between the rows of gate and up, in floats: nine cache lines. Widths are powers of two,
 * and rows 64 KiB apart would map to the same cache set and evict each other when a panel's rows
 * are written together. */
enum { PJ_GATE_GAP = 144 };

/* A feed-forward block: down(act(gate x) * up x), or down(act(up x)). */
typedef struct pj_mlp_block {
    pj_product inputs[2]; /* those that the model has */
    uint32_t input_count;
    pj_activation activation;
    pj_product output;
} pj_mlp_block;

/* The block's steps in the buffers GATE_UP and ACT, for y.rows rows; `like`: kind of activation. */
pj_mlp_block pj_mlp_block_of(const pj_mlp *mlp, const pj_activation *like, pj_slice y,
                             pj_slice residual);
double pj_mlp_flops(const pj_mlp *mlp, size_t rows);
double pj_mlp_bytes(const pj_mlp *mlp, size_t rows);

#endif
