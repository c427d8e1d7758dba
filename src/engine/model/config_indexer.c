/* Sparse attention of DeepSeek V3.2 and GLM-5: the indexer's sizes, and which layers have one. */
#include "engine/model/config_reader.h"

#include <string.h>

static bool *alloc_shares(pj_config_reader *r, const pj_model_config *c)
{
    bool *shares = pj_arena_alloc(r->arena, c->layers, sizeof *shares);
    if (!shares && r->status == PJ_OK) r->status = pj_fail_memory(r->err, r->name);
    return shares;
}

/* "full" or "shared" of each layer. */
static void list_shares(pj_config_reader *r, const char *key, const json_t *list,
                        const pj_model_config *c, bool *shares)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        shares[i] = kind && strcmp(kind, "shared") == 0;
        if (!kind || (!shares[i] && strcmp(kind, "full") != 0))
            pj_config_refuse(r, PJ_E_INVALID, key, "must say full or shared for every layer");
    }
}

/* A letter of each layer: F or S. */
static void spell_shares(pj_config_reader *r, const char *letters, const pj_model_config *c,
                         bool *shares)
{
    size_t count = strlen(letters);
    for (uint32_t i = 0; i < c->layers; i++) {
        char letter = i < count ? letters[i] : 0;
        shares[i] = letter == 'S';
        if (letter != 'S' && letter != 'F')
            pj_config_refuse(r, PJ_E_INVALID, "index_topk_pattern",
                             "must say F or S for every layer");
    }
}

/* The first layers, and then each every-th, have an indexer. */
static void space_shares(uint32_t first, uint32_t every, const pj_model_config *c, bool *shares)
{
    for (uint32_t i = 0; i < c->layers; i++)
        shares[i] = i + 1 > first && (i + 1 - first) % every != 0;
}

/* GLM-5: a list, a pattern, or a frequency. */
static void read_shares(pj_config_reader *r, pj_model_config *c)
{
    const json_t *types = pj_config_get(r, "indexer_types");
    const json_t *pattern = pj_config_get(r, "index_topk_pattern");
    uint32_t every = pj_config_count(r, "index_topk_freq", 1, 0, PJ_MAX_LAYERS);
    uint32_t first = pj_config_count(r, "index_skip_topk_offset", 2, 0, PJ_MAX_LAYERS);
    bool *shares = c->indexer.layer_shares = alloc_shares(r, c);
    if (r->status != PJ_OK) return;
    if (types)
        list_shares(r, "indexer_types", types, c, shares);
    else if (json_is_string(pattern))
        spell_shares(r, json_string_value(pattern), c, shares);
    else if (pattern)
        list_shares(r, "index_topk_pattern", pattern, c, shares);
    else
        space_shares(first, every ? every : 1, c, shares);
    if (shares[0])
        pj_config_refuse(r, PJ_E_INVALID,
                         types     ? "indexer_types"
                         : pattern ? "index_topk_pattern"
                                   : "index_skip_topk_offset",
                         "leaves the first layer without an indexer");
}

void pj_config_read_indexer(pj_config_reader *r, pj_model_config *c)
{
    bool glm = c->arch == PJ_ARCH_GLM_MOE_DSA;
    c->indexer.heads = pj_config_count(r, "index_n_heads", glm ? 32 : 64, 1, PJ_MAX_HEADS);
    c->indexer.dim = pj_config_count(r, "index_head_dim", 128, 1, PJ_MAX_HEAD_DIM);
    c->indexer.kept = pj_config_count(r, "index_topk", 2048, 1, PJ_MAX_CONTEXT);
    /* V3.2 rotates halves here, though its attention rotates neighbours */
    c->indexer.neighbours = pj_config_bool(r, "indexer_rope_interleave", glm);
    if (r->status != PJ_OK) return;
    if (c->latent.query_rank == 0)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "q_lora_rank",
                         "null is not supported: the indexer reads compressed queries");
    if (c->indexer.dim < c->latent.rotated)
        pj_config_refuse(r, PJ_E_INVALID, "index_head_dim", "is below qk_rope_head_dim");
    if (glm) read_shares(r, c);
}
