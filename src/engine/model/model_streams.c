/* Loads what alternating updates need: projections from one stream to several and back, and each
 * layer's router and coefficients, whose products are computed in float32 like those of any router.
 */
#include "engine/model/model_load.h"

#include "engine/model/streams.h"

#include <math.h>
#include <stdio.h>

static void load_exactly(pj_loader *l, const char *prefix, pj_instrument_name part, size_t rows,
                         size_t cols, pj_projection *out)
{
    pj_load_component(l, prefix, part, rows, cols, false, out);
    pj_load_exact(l, prefix, out);
}

/* Training bounds the coefficients, and so does the reference whenever it uses these. */
static void load_correction(pj_loader *l, const char *altup, struct pj_streams *s)
{
    const pj_model_config *c = &l->model->config;
    size_t n = c->streams.count;
    pj_matrix stored;
    pj_load_component(l, altup, PJ_N_CORRECTION_COEFS, n, n, false, &s->correct);
    stored = s->correct.w;
    pj_load_converted(l, altup, PJ_F32, &stored, NULL, n, n, &s->correct.w);
    if (l->status || l->check || c->streams.clip == 0) return;
    float *values = (float *)(uintptr_t)s->correct.w.data, most = (float)c->streams.clip;
    for (size_t i = 0; i < n * n; i++) values[i] = fminf(fmaxf(values[i], -most), most);
}

void pj_load_streams(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t n = c->streams.count, hidden = c->hidden;
    char altup[PJ_TENSOR_NAME_BYTES], laurel[PJ_TENSOR_NAME_BYTES], name[PJ_TENSOR_NAME_BYTES + 32];
    if (n == 0) return;
    struct pj_streams *s = layer->streams = pj_load_alloc(l, 1, sizeof *s);
    if (!s) return;
    snprintf(altup, sizeof altup, "%s.altup", prefix);
    snprintf(laurel, sizeof laurel, "%s.laurel", prefix);
    pj_load_norm(l, altup, PJ_N_ROUTER_NORM, hidden, false, &s->router_norm);
    load_exactly(l, altup, PJ_N_MODALITY_ROUTER, n, hidden, &s->router);
    load_exactly(l, altup, PJ_N_PREDICTION_COEFS, n * n, n, &s->predict);
    load_correction(l, altup, s);
    /* GGUF files append ".weight" to every name */
    snprintf(name, sizeof name, "%s.correct_output_scale%s", altup,
             pj_load_is_gguf(l) ? ".weight" : "");
    if (!c->streams.without_scale) pj_load_vector(l, name, hidden, 1, &s->scale);
    pj_load_component(l, laurel, PJ_N_LINEAR_LEFT, c->streams.residual_rank, hidden, false,
                      &s->left);
    pj_load_component(l, laurel, PJ_N_LINEAR_RIGHT, hidden, c->streams.residual_rank, false,
                      &s->right);
    pj_load_norm(l, laurel, PJ_N_POST_LAUREL_NORM, hidden, false, &s->residual_norm);
}

/* One matrix for each stream but the first: tensors of their own, or all in one (GGUF). */
static pj_projection *load_widening(pj_loader *l, const char *name)
{
    const pj_model_config *c = &l->model->config;
    size_t count = c->streams.count - 1, hidden = c->hidden;
    char own[PJ_TENSOR_NAME_BYTES];
    pj_matrix all;
    pj_projection *out = pj_load_alloc(l, count, sizeof *out);
    snprintf(own, sizeof own, "model.%s.weight", name);
    if (pj_load_is_gguf(l)) pj_load_stack(l, own, count, hidden, hidden, false, &all);
    for (size_t i = 0; !l->status && i < count; i++) {
        if (pj_load_is_gguf(l)) {
            pj_matrix part = pj_matrix_rows(&all, i * hidden, hidden);
            pj_load_adopt(l, own, PJ_ROLE_LAYER, &part, &out[i].w);
        } else {
            snprintf(own, sizeof own, "model.%s.%zu.weight", name, i);
            pj_load_matrix(l, own, PJ_ROLE_LAYER, hidden, hidden, &out[i].w);
        }
    }
    return out;
}

void pj_load_stream_ends(pj_loader *l)
{
    if (l->model->config.streams.count == 0) return;
    l->model->streams_in = load_widening(l, "altup_projections");
    l->model->streams_out = load_widening(l, "altup_unembed_projections");
}
