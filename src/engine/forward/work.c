/* FLOPs and bytes. A multiply-add is two operations; every value is read and written once. */
#include "engine/forward/work.h"

double pj_product_flops(const pj_projection *p, size_t rows)
{
    double t = (double)rows, out = (double)p->w.rows;
    return 2 * t * (double)p->w.cols * out + (p->bias ? t * out : 0);
}

double pj_product_bytes(const pj_projection *p, size_t rows)
{
    return (double)p->w.rows * (double)p->w.row_bytes +
           4.0 * (double)rows * (double)(p->w.cols + p->w.rows);
}

pj_done pj_product_work(const pj_product *p)
{
    return (pj_done){pj_product_flops(p->projection, p->y.rows),
                     pj_product_bytes(p->projection, p->y.rows), p->y, true};
}

pj_done pj_norm_work(const pj_norm_step *step)
{
    double values = (double)step->y.rows * step->y.cols;
    uint32_t weights = step->y.cols / step->heads;
    return (pj_done){7 * values, 8 * values + 4.0 * weights, step->y, true};
}

pj_done pj_activation_work(const pj_activation *a)
{
    double values = (double)a->act.rows * a->act.cols;
    bool gated = a->up.buffer != PJ_NO_BUFFER;
    return (pj_done){((gated ? 5 : 4) + (a->cuts ? 6 : 0)) * values, 4 * (gated ? 3 : 2) * values,
                     a->act, true};
}

double pj_rotated_values(const pj_model *model, const pj_layer *l)
{
    if (l->rope == PJ_NO_ROPE) return 0;
    size_t heads = l->heads + (pj_layer_has_keys(l) ? l->kv_heads : 0);
    return 2.0 * model->ropes[l->rope].pairs * (double)heads;
}

double pj_stored_bytes(const pj_layer *l, pj_dtype kv_type)
{
    return pj_layer_has_keys(l) * (double)pj_kv_planes(l) * l->kv_heads *
           (double)pj_dtype_row_bytes(kv_type, l->head_dim);
}

/* Products and weighting of scores: for each pair and head 2 dim + 3; choosing: 1 for each pair. */
pj_index_work pj_index_work_of(const pj_model *model, const pj_layer *layer, const pj_pass *pass,
                               const pj_sequence *sequences, pj_dtype kv_type)
{
    const struct pj_indexer *m = layer->indexer;
    pj_index_work w = {0};
    double row_bytes = (double)pj_dtype_row_bytes(kv_type, m->dim), rows = pass->tokens;
    bool chooses = pj_pass_chooses(layer, sequences, pass);
    double pairs = layer->rope == PJ_NO_ROPE ? 0 : 2.0 * model->ropes[layer->rope].pairs;
    w.rotated = rows * pairs * (chooses ? m->heads + 1 : 1);
    w.stored = rows * row_bytes;
    w.flops = 3 * w.rotated;
    w.bytes = 8 * w.rotated + w.stored;
    for (uint32_t i = 0; i < pass->segment_count; i++) {
        const pj_pass_segment *g = &pass->segments[i];
        uint32_t first = sequences[g->sequence].length;
        if (!pj_segment_chooses(layer, sequences, g)) continue;
        w.keys += first + g->count;
        for (uint32_t p = first; p < first + g->count; p++) {
            if (p < m->kept) continue; /* all are kept without a look */
            w.pairs += p + 1;
            w.kept += m->kept;
        }
    }
    w.flops += w.pairs * (m->heads * (2.0 * m->dim + 3) + 1);
    w.bytes += w.keys * row_bytes + 8 * w.pairs + 4 * w.kept;
    if (chooses) w.bytes += 4 * rows * (m->heads * (double)m->dim + m->heads);
    return w;
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void work_add_input(pj_mlp_block *b, const pj_projection *p, pj_slice y)
{
    if (p->w.data) b->inputs[b->input_count++] = (pj_product){.projection = p, .y = y};
}

pj_mlp_block pj_mlp_block_of(const pj_mlp *mlp, const pj_activation *like, pj_slice y,
                             pj_slice residual)
{
    uint32_t f = mlp->width;
    bool plain = !mlp->gate.w.data && !mlp->gate_up.w.data;
    pj_slice both =
        pj_slice_of(PJ_BUFFER_GATE_UP, y.rows, 2 * f, (plain ? f : 2 * f) + PJ_GATE_GAP);
    pj_slice gate = pj_slice_cols(both, 0, f), up = pj_slice_cols(both, f, f);
    pj_mlp_block b = {.activation = *like, .output = {&mlp->down, y, residual}};
    work_add_input(&b, &mlp->gate_up, both); /* fused, or separate */
    work_add_input(&b, &mlp->gate, gate);
    work_add_input(&b, &mlp->up, plain ? gate : up);
    b.activation.gate = gate;
    b.activation.up = plain ? pj_no_slice : up;
    b.activation.act = pj_slice_of(PJ_BUFFER_ACT, y.rows, f, f);
    b.activation.inner = mlp->down.name == PJ_N_NONE;
    return b;
}

double pj_mlp_flops(const pj_mlp *mlp, size_t rows)
{
    return pj_product_flops(&mlp->gate, rows) + pj_product_flops(&mlp->up, rows) +
           pj_product_flops(&mlp->gate_up, rows) + pj_product_flops(&mlp->down, rows) +
           5.0 * (double)rows * mlp->width;
}

double pj_mlp_bytes(const pj_mlp *mlp, size_t rows)
{
    return pj_product_bytes(&mlp->gate, rows) + pj_product_bytes(&mlp->up, rows) +
           pj_product_bytes(&mlp->gate_up, rows) + pj_product_bytes(&mlp->down, rows) +
           12.0 * (double)rows * mlp->width;
}
