/* Loads a model. One walk over the blueprint names every tensor; the source of a matrix (the
 * checkpoint's mapping, a conversion of it, or a random generator) is decided in one place, so that
 * a synthetic model has exactly the tensors of a checkpoint of its shape. */
#include "engine/model/model_load.h"

#include "base/process.h"
#include "engine/files/pages.h"
#include "engine/model/delta.h"
#include "engine/model/facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- layers ------------------------------------------------------------------------------- */

static uint32_t rope_of(const pj_model *m, uint32_t index)
{
    const pj_model_config *c = &m->config;
    if (c->layer_rotates && !c->layer_rotates[index]) return PJ_NO_ROPE;
    return c->window_rope.dims && c->layer_is_windowed && c->layer_is_windowed[index] ? 1 : 0;
}

/* Layer properties from the configuration. */
static void shape_layer(const pj_model *m, uint32_t index, pj_layer *layer)
{
    const pj_model_config *c = &m->config;
    layer->index = index;
    layer->heads = c->heads;
    layer->kv_heads = pj_config_kv_heads(c, index);
    layer->head_dim = pj_config_head_dim(c, index);
    layer->chosen = pj_config_chosen(c, index);
    layer->output_gate = m->blueprint->output_gate;
    layer->kv_source = pj_config_attends(c, index) ? pj_config_kv_source(c, index) : UINT32_MAX;
    layer->keys_are_values = c->keys_are_values && !pj_config_is_windowed(c, index);
    layer->scale = 1;
    layer->window = pj_config_is_windowed(c, index) ? c->window : UINT32_MAX;
    layer->window_is_chunk = c->window_is_chunk;
    layer->rope = rope_of(m, index);
    layer->scales_queries =
        c->query_beta != 0 && !(c->query_scale_unrotated && layer->rope != PJ_NO_ROPE);
    layer->score_scale =
        c->score_scale > 0 ? (float)c->score_scale : 1.0f / sqrtf((float)layer->head_dim);
    layer->value_dim = c->latent.rank ? c->latent.rank : layer->head_dim;
    layer->values_in_keys = c->latent.rank > 0;
    layer->rope_first = c->latent.rank;
}

/* The layer's token vector weights and output scale. */
static void load_token_input(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t n = c->token_vector;
    char name[PJ_TENSOR_NAME_BYTES];
    const float *scale = &layer->scale;
    snprintf(name, sizeof name, "%s.layer_scalar", prefix);
    if (pj_load_has(l, prefix, "layer_scalar")) pj_load_vector(l, name, 1, 1, &scale);
    layer->scale = *scale;
    if (!n) return;
    pj_load_component(l, prefix, PJ_N_PER_LAYER_INPUT_GATE, n, c->hidden, false,
                      &layer->token_gate);
    pj_load_component(l, prefix, PJ_N_PER_LAYER_PROJECTION, c->hidden, n, false,
                      &layer->token_projection);
    pj_load_norm(l, prefix, PJ_N_POST_PER_LAYER_INPUT_NORM, c->hidden, false, &layer->token_norm);
}

static void load_recurrence(pj_loader *l, const char *prefix, pj_layer *layer)
{
    switch (l->model->config.linear.kind) {
    case PJ_DELTA_RULE: pj_load_delta(l, prefix, layer); break;
    case PJ_SCAN: pj_load_scan(l, prefix, layer); break;
    case PJ_SHORT_CONVOLUTION: pj_load_short_convolution(l, prefix, layer); break;
    }
}

static void load_mixer(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    if (pj_config_is_linear(c, layer->index)) load_recurrence(l, prefix, layer);
    if (!pj_config_attends(c, layer->index)) return;
    if (c->latent.rank)
        pj_load_latent(l, prefix, layer);
    else
        pj_load_attention(l, prefix, layer);
}

static void load_layer(pj_loader *l, uint32_t index, const char *prefix)
{
    const pj_blueprint *b = l->model->blueprint;
    pj_layer *layer = &l->model->layers[index];
    size_t hidden = l->model->config.hidden;
    bool bias = pj_norms_have_bias(b);
    shape_layer(l->model, index, layer);
    pj_halves halves = pj_config_halves(&l->model->config, index);
    if (halves != PJ_HALF_MLP) {
        pj_load_norm(l, prefix, b->attention_norm, hidden, bias, &layer->attention_norm);
        pj_load_norm(l, prefix, b->attention_out_norm, hidden, bias, &layer->attention_out_norm);
        load_mixer(l, prefix, layer);
    }
    if (halves != PJ_HALF_MIXER) {
        pj_load_norm(l, prefix, b->mlp_norm, hidden, bias, &layer->mlp_norm);
        pj_load_norm(l, prefix, b->mlp_out_norm, hidden, bias, &layer->mlp_out_norm);
        pj_load_feed_forward(l, prefix, layer);
    }
    load_token_input(l, prefix, layer);
    pj_load_streams(l, prefix, layer);
}

/* Per-layer token vectors: a table, and a projection of the token's embedding. */
static void load_token_vectors(pj_loader *l)
{
    pj_model *m = l->model;
    const pj_model_config *c = &m->config;
    size_t n = (size_t)c->layers * c->token_vector;
    if (!n) return;
    pj_load_matrix(l, "model.embed_tokens_per_layer.weight", PJ_ROLE_TABLE, c->token_vector_vocab,
                   n, &m->token_embedding);
    pj_load_component(l, "model", PJ_N_PER_LAYER_MODEL_PROJECTION, n, c->hidden, false,
                      &m->token_projection);
    pj_load_norm(l, "model", PJ_N_PER_LAYER_PROJECTION_NORM, c->token_vector, false,
                 &m->token_norm);
}

static void load_ends(pj_loader *l)
{
    pj_model *m = l->model;
    const pj_model_config *c = &m->config;
    bool own_head =
        m->checkpoint ? pj_checkpoint_find(m->checkpoint, "lm_head.weight") != NULL : !c->tied_head;
    pj_load_matrix(l, "model.embed_tokens.weight", PJ_ROLE_TABLE, c->vocab, c->hidden,
                   &m->embedding);
    pj_load_norm(l, "model", m->blueprint->final_norm, c->hidden, pj_norms_have_bias(m->blueprint),
                 &m->final_norm);
    load_token_vectors(l);
    pj_load_stream_ends(l);
    m->head.w = m->embedding;
    m->head.name = PJ_N_LM_HEAD;
    if (own_head)
        pj_load_matrix(l, "lm_head.weight", PJ_ROLE_TABLE, c->vocab, c->hidden, &m->head.w);
    if (pj_bias_wanted(m->blueprint->head_bias, c))
        pj_load_vector(l, "lm_head.bias", c->vocab, 0, &m->head.bias);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* A GGUF file has no superfluous tensors: one that no layer requested belongs to a computation that
 * is not implemented. */
static pj_status check_all_used(const pj_model *m, pj_error *err)
{
    const pj_tensor *unused = m->checkpoint ? pj_checkpoint_unused(m->checkpoint) : NULL;
    if (!unused) return PJ_OK;
    return pj_fail(err, PJ_E_UNSUPPORTED,
                   "the file contains the tensor %s, which %s does not use; its computation is not "
                   "supported",
                   unused->name, m->config.arch_name);
}

static pj_status model_open_source(pj_model *m, const char *path, pj_dtype *synthetic,
                                   pj_error *err)
{
    static const char scheme[] = "synthetic:";
    if (strncmp(path, scheme, strlen(scheme)) == 0) {
        m->synthetic = true;
        m->generation = PJ_GENERATION_CONFIG_NONE;
        return pj_synthetic_config(path + strlen(scheme), &m->arena, &m->config, synthetic,
                                   &m->full_layers, err);
    }
    pj_status status = pj_checkpoint_open(path, &m->checkpoint, err);
    if (status) return status;
    m->config = *pj_checkpoint_config(m->checkpoint);
    m->generation = *pj_checkpoint_generation(m->checkpoint);
    m->full_layers = m->config.layers;
    return PJ_OK;
}

static pj_status open_ropes(pj_model *m, pj_error *err)
{
    const pj_model_config *c = &m->config;
    pj_status status = pj_rope_init(&m->ropes[0], &c->rope, c->context, err);
    if (status || !c->window_rope.dims) return status;
    return pj_rope_init(&m->ropes[1], &c->window_rope, c->context, err);
}

/* Memory that is created is touched at once, and the kernel kills what takes more than there is.
 * `more`: bytes that are still to be created. */
static void check_memory(pj_loader *l, double more)
{
    double made = (double)l->model->created_bytes;
    double available = more > 0 ? pj_memory_available("") : NAN;
    if (more > available)
        l->status = pj_fail(l->err, PJ_E_NO_MEMORY,
                            "the weights take some %.1f GB of memory, and %.1f GB are available",
                            (made + more) / 1e9, (made + available) / 1e9);
}

/* Of all weights in their type in memory. */
static double all_bytes(const pj_loader *l)
{
    pj_model_facts facts;
    const pj_checkpoint *of = l->model->checkpoint;
    pj_dtype type = l->dtype >= 0 ? (pj_dtype)l->dtype
                    : of          ? pj_checkpoint_weight_dtype(of)
                                  : l->synthetic;
    const pj_dtype_info *info = pj_dtype_get(type);
    pj_model_facts_fill(&l->model->config, type, &facts);
    return (double)facts.parameters / (double)info->block_values * (double)info->block_bytes;
}

/* Loads all layers and counts them in the progress, if one is wanted. */
static void load_layers(pj_loader *l)
{
    uint32_t count = l->model->config.layers;
    char prefix[PJ_TENSOR_NAME_BYTES / 2];
    l->model->layers = pj_load_alloc(l, count, sizeof *l->model->layers);
    load_ends(l);
    size_t before_layers = l->model->created_bytes;
    double all = l->check ? 0 : all_bytes(l);
    for (uint32_t i = 0; !l->status && i < count; i++) {
        snprintf(prefix, sizeof prefix, "model.layers.%u", i);
        load_layer(l, i, prefix);
        /* the others are taken to be as large as those before them, unless that is too much */
        double made = (double)l->model->created_bytes, created = made - (double)before_layers;
        double more = created / (i + 1) * (count - i - 1);
        if (!l->status && more > 0) check_memory(l, fmin(more, all - made));
        if (l->progress && !l->status) atomic_store(&l->progress->done, i + 1);
    }
}

/* Weights that are converted are created in memory anyway. */
static bool is_used_as_stored(const pj_loader *l)
{
    if (!pj_checkpoint_is_plain(l->model->checkpoint)) return false;
    return l->dtype < 0 || (pj_dtype)l->dtype == pj_checkpoint_weight_dtype(l->model->checkpoint);
}

static pj_status load_all(pj_loader *l, const char *path)
{
    pj_model *model = l->model;
    l->status = model_open_source(model, path, &l->synthetic, l->err);
    if (!l->status && l->progress) atomic_store(&l->progress->total, model->config.layers);
    if (!l->status && model->checkpoint && !l->check) {
        if (l->no_mmap && is_used_as_stored(l))
            l->status = pj_checkpoint_copy(model->checkpoint, l->team, l->cancel, l->err);
        else
            pj_checkpoint_prefer_huge(model->checkpoint);
    }
    if (!l->status && model->synthetic && !l->check) check_memory(l, all_bytes(l));
    if (l->status) return l->status;
    model->blueprint = pj_blueprint_get(model->config.arch);
    l->status = open_ropes(model, l->err);
    load_layers(l);
    if (!l->status && model->checkpoint) l->status = pj_checkpoint_check(model->checkpoint, l->err);
    return l->status ? l->status : check_all_used(model, l->err);
}

pj_status pj_model_open(pj_model *model, const pj_model_options *options, pj_team *team,
                        pj_error *err)
{
    *model = (pj_model){0};
    pj_arena_init(&model->arena, 0);
    pj_loader l = {.model = model,
                   .team = team,
                   .kernels = options->kernels,
                   .dtype = options->dtype,
                   .no_mmap = options->no_mmap,
                   .cancel = options->cancel,
                   .progress = options->progress,
                   .err = err};
    pj_status status = load_all(&l, options->path);
    if (status) {
        pj_error_prefix(err, "model %s", options->path);
        pj_model_close(model);
        return status;
    }
    pj_model_count(model);
    return PJ_OK;
}

/* How files name a head: in a layer after the model's, or apart (Qwen3-Next, Qwen3.5; MiMo). */
typedef struct head_names {
    pj_instrument_name embedding_norm, hidden_norm, projection, final_norm;
    char prefix[48], layer[48], end[64]; /* of the first three, the layer, and the final norm */
    bool hidden_first;
} head_names;

static bool find_head(const pj_loader *l, uint32_t number, head_names *names)
{
    *names = (head_names){.embedding_norm = PJ_N_ENORM,
                          .hidden_norm = PJ_N_HNORM,
                          .projection = PJ_N_EH_PROJ,
                          .final_norm = PJ_N_NORM};
    snprintf(names->prefix, sizeof names->prefix, "model.layers.%u", number);
    snprintf(names->layer, sizeof names->layer, "%s", names->prefix);
    snprintf(names->end, sizeof names->end, "%s.shared_head", names->prefix);
    if (pj_load_has_linear(l, names->prefix, "eh_proj")) return true;
    *names = (head_names){.embedding_norm = PJ_N_PRE_FC_NORM_EMBEDDING,
                          .hidden_norm = PJ_N_PRE_FC_NORM_HIDDEN,
                          .projection = PJ_N_FC,
                          .final_norm = PJ_N_NORM,
                          .prefix = "mtp",
                          .layer = "mtp.layers.0",
                          .end = "mtp"};
    if (pj_load_has_linear(l, names->prefix, "fc")) return true;
    *names = (head_names){.embedding_norm = PJ_N_TOKEN_LAYERNORM,
                          .hidden_norm = PJ_N_HIDDEN_LAYERNORM,
                          .projection = PJ_N_INPUT_PROJ,
                          .final_norm = PJ_N_FINAL_LAYERNORM,
                          .prefix = "model.mtp_layers.0",
                          .layer = "model.mtp_layers.0",
                          .end = "model.mtp_layers.0",
                          .hidden_first = true};
    return pj_load_has_linear(l, names->prefix, "input_proj");
}

/* What precedes and follows a head's layer. Its embedding and output are the model's: published
 * files repeat them. */
static void load_head_ends(pj_loader *l, const head_names *names, const pj_model *of)
{
    pj_model *m = l->model;
    size_t hidden = m->config.hidden;
    pj_load_norm(l, names->prefix, names->embedding_norm, hidden, false, &m->next_embedding_norm);
    pj_load_norm(l, names->prefix, names->hidden_norm, hidden, false, &m->next_hidden_norm);
    pj_load_component(l, names->prefix, names->projection, hidden, 2 * hidden, false,
                      &m->next_projection);
    m->embedding = of->embedding;
    m->head = of->head;
    m->final_norm = of->final_norm; /* some GGUF files have none of the head */
    m->next_hidden_first = names->hidden_first;
    if (pj_load_has_linear(l, names->end, pj_instrument_text(names->final_norm)))
        pj_load_norm(l, names->end, names->final_norm, hidden, false, &m->final_norm);
}

/* A model of one layer with attention and, unless its tensors are those of a dense block,
 * experts. */
static void make_head_config(pj_loader *l, const head_names *names, const pj_model_config *of)
{
    pj_model_config *c = &l->model->config;
    char mlp[PJ_TENSOR_NAME_BYTES];
    bool *dense = pj_load_alloc(l, 1, sizeof *dense);
    *c = *of;
    c->layers = 1;
    c->layer_rotates = c->layer_is_windowed = c->layer_is_linear = NULL;
    c->layer_head_dim = c->layer_kv_heads = c->layer_kv_source = c->layer_width = NULL;
    c->layer_cutoff = NULL;
    c->layer_chosen = NULL;
    c->layer_xielu = NULL;
    c->layer_halves = NULL;
    c->indexer.layer_shares = NULL;
    c->linear.kernel = 0;
    c->layer_is_dense = dense;
    snprintf(mlp, sizeof mlp, "%s.mlp", names->layer);
    if (dense) *dense = pj_load_has_linear(l, mlp, "up_proj");
}

pj_status pj_model_open_head(pj_model *head, const pj_model *of, const pj_model_options *options,
                             pj_team *team, pj_error *err)
{
    head_names names;
    *head = (pj_model){.generation = of->generation,
                       .blueprint = of->blueprint,
                       .full_layers = 1,
                       .checkpoint = of->checkpoint,
                       .borrows = true};
    pj_arena_init(&head->arena, 0);
    pj_loader l = {.model = head,
                   .team = team,
                   .kernels = options->kernels,
                   .dtype = options->dtype,
                   .cancel = options->cancel,
                   .err = err};
    if (!find_head(&l, of->config.layers, &names))
        l.status = pj_fail(err, PJ_E_UNSUPPORTED,
                           "%s: its files have no head that predicts the token after the next, or "
                           "none that is supported",
                           of->config.arch_name);
    make_head_config(&l, &names, &of->config);
    if (!l.status) l.status = open_ropes(head, err);
    head->layers = pj_load_alloc(&l, 1, sizeof *head->layers);
    load_head_ends(&l, &names, of);
    if (!l.status) load_layer(&l, 0, names.layer);
    if (!l.status)
        pj_model_count(head);
    else
        pj_model_close(head);
    return l.status;
}

pj_status pj_model_check(const char *path, pj_error *err)
{
    pj_model model = {0};
    pj_arena_init(&model.arena, 0);
    pj_loader l = {
        .model = &model, .kernels = pj_kernels_get(), .dtype = -1, .check = true, .err = err};
    pj_status status = load_all(&l, path);
    pj_model_close(&model);
    return status;
}

void pj_model_close(pj_model *model)
{
    for (pj_slab *slab = model->slabs; slab; slab = slab->next)
        pj_pages_free(slab->data, slab->bytes);
    for (int i = 0; i < PJ_ROPES; i++) pj_rope_fini(&model->ropes[i]);
    pj_arena_fini(&model->arena);
    if (!model->borrows) pj_checkpoint_close(model->checkpoint);
    *model = (pj_model){0};
}
