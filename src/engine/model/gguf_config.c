/*
 * Reads a model's configuration from GGUF metadata. Keys are prefixed with the file's name of the
 * architecture; a reader checks the type and range of each value and keeps the first error.
 * Unsupported keys that would change the arithmetic are rejected by name.
 *
 * Files of the architecture "llama" (including Mistral and Mixtral) permute the rows of q and k:
 * row 2i of a head is row i of the published weights, row 2i + 1 is row head_dim / 2 + i. Rotating
 * neighbouring pairs instead of halves gives the same products, so no row is moved.
 */
#include "engine/model/gguf_config.h"

#include "engine/files/tensors.h"
#include "engine/model/blueprint.h"
#include "engine/model/config_rules.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 160 };

typedef struct reader {
    const pj_gguf *gguf;
    const char *name; /* the file */
    char arch[64];    /* the prefix of its keys */
    pj_arena *arena;
    pj_error *err;
    pj_status status;
} reader;

/* ---- keys --------------------------------------------------------------------------------- */

static void gguf_config_refuse(reader *r, pj_status status, const char *key, const char *problem)
{
    if (r->status == PJ_OK)
        r->status = pj_fail(r->err, status, "%s: %s.%s %s", r->name, r->arch, key, problem);
}

static const pj_gguf_value *gguf_config_get(const reader *r, const char *key)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    return pj_gguf_find(r->gguf, full);
}

/* A number equal for all layers: some writers store one per layer. */
static bool same_integer(const pj_gguf_value *value, int64_t *number)
{
    int64_t item;
    if (value->count == 0 || !pj_gguf_integer(value, 0, number)) return false;
    for (uint64_t i = 1; i < value->count; i++)
        if (!pj_gguf_integer(value, i, &item) || item != *number) return false;
    return true;
}

/* `fallback` < 0: the key is required. */
static uint32_t want_count(reader *r, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const pj_gguf_value *value = gguf_config_get(r, key);
    int64_t number = fallback;
    char problem[96];
    if (!value && fallback < 0) gguf_config_refuse(r, PJ_E_INVALID, key, "is missing");
    if (!value) return fallback < 0 ? 0 : (uint32_t)fallback;
    if (!same_integer(value, &number)) {
        bool differs = value->is_array && pj_gguf_integer(value, 0, &number);
        gguf_config_refuse(r, differs ? PJ_E_UNSUPPORTED : PJ_E_INVALID, key,
                           differs ? "differs between layers, which is not supported"
                                   : "must be an integer");
        return 0;
    }
    if (number >= min && number <= max) return (uint32_t)number;
    snprintf(problem, sizeof problem, "is %lld, must be between %lld and %lld", (long long)number,
             (long long)min, (long long)max);
    gguf_config_refuse(r, PJ_E_INVALID, key, problem);
    return 0;
}

/* A layer's number, where a file may hold one for each or one for all. */
static uint32_t want_of_layer(reader *r, const char *key, uint32_t layer, int64_t fallback,
                              int64_t min, int64_t max)
{
    const pj_gguf_value *value = gguf_config_get(r, key);
    int64_t number;
    if (!value || !value->is_array) return want_count(r, key, fallback, min, max);
    if (layer < value->count && pj_gguf_integer(value, layer, &number) && number >= min &&
        number <= max)
        return (uint32_t)number;
    gguf_config_refuse(r, PJ_E_INVALID, key, "lacks a layer, or is out of range for one");
    return 0;
}

/* Whether a list of flags, or of numbers, has one for a layer that is not 0. */
static bool layer_flag(const pj_gguf_value *pattern, uint32_t layer)
{
    int64_t number;
    if (pattern->type == PJ_GGUF_BOOL) return layer < pattern->count && pattern->data[layer];
    return pj_gguf_integer(pattern, layer, &number) && number != 0;
}

/* A count that some writers store as a float. */
static uint32_t want_whole(reader *r, const char *key, uint32_t fallback, uint32_t max)
{
    const pj_gguf_value *value = gguf_config_get(r, key);
    double number;
    if (!value || value->is_array || pj_gguf_integer(value, 0, &(int64_t){0}))
        return want_count(r, key, fallback, 0, max);
    if (pj_gguf_number(value, 0, &number) && number >= 0 && number <= max &&
        number == floor(number))
        return (uint32_t)number;
    gguf_config_refuse(r, PJ_E_INVALID, key, "must be a whole number of layers");
    return 0;
}

static double want_number(reader *r, const char *key, double fallback, double min, double max)
{
    const pj_gguf_value *value = gguf_config_get(r, key);
    double number;
    char problem[96];
    if (!value) return fallback;
    if (value->is_array || !pj_gguf_number(value, 0, &number)) {
        gguf_config_refuse(r, PJ_E_INVALID, key, "must be a number");
        return fallback;
    }
    if (number >= min && number <= max) return number;
    snprintf(problem, sizeof problem, "is %g, must be between %g and %g", number, min, max);
    gguf_config_refuse(r, PJ_E_INVALID, key, problem);
    return fallback;
}

static bool want_bool(reader *r, const char *key, bool fallback)
{
    const pj_gguf_value *value = gguf_config_get(r, key);
    bool flag = fallback;
    if (value && !pj_gguf_bool(value, &flag))
        gguf_config_refuse(r, PJ_E_INVALID, key, "must be true or false");
    return flag;
}

static const pj_tensor *tensor(const reader *r, const char *name)
{
    return pj_tensors_find(r->gguf->tensors, r->gguf->tensor_count, name);
}

/* ---- architecture ------------------------------------------------------------------------- */

static bool gguf_config_text_of(const reader *r, const char *key, char *out, size_t bytes)
{
    pj_gguf_text text;
    const pj_gguf_value *value = pj_gguf_find(r->gguf, key);
    if (!value || !pj_gguf_string(value, &text)) return false;
    snprintf(out, bytes, "%.*s", (int)(text.bytes < bytes ? text.bytes : bytes - 1), text.text);
    return true;
}

static void gguf_config_read_arch(reader *r, pj_model_config *config)
{
    char name[64], type[64], list[PJ_ARCH_LIST_BYTES];
    if (gguf_config_text_of(r, "general.type", type, sizeof type) && strcmp(type, "model") != 0) {
        r->status =
            pj_fail(r->err, PJ_E_UNSUPPORTED, "%s is of type %s, not a model", r->name, type);
        return;
    }
    if (!gguf_config_text_of(r, "general.architecture", name, sizeof name)) {
        r->status = pj_fail(r->err, PJ_E_INVALID, "%s has no general.architecture", r->name);
        return;
    }
    config->arch = pj_arch_of_gguf(name);
    if (config->arch == PJ_ARCH_COUNT) {
        r->status = pj_fail(r->err, PJ_E_UNSUPPORTED,
                            "%s: the architecture %s is not supported (of GGUF files, %s are)",
                            r->name, name, pj_arch_gguf_list(list));
        return;
    }
    snprintf(r->arch, sizeof r->arch, "%s", name);
    if (config->arch == PJ_ARCH_LLAMA && want_count(r, "expert_count", 0, 0, PJ_MAX_EXPERTS))
        config->arch = PJ_ARCH_MIXTRAL;
    if (config->arch == PJ_ARCH_OLMO2 && gguf_config_get(r, "attention.sliding_window"))
        config->arch = PJ_ARCH_OLMO3;
    snprintf(config->arch_name, sizeof config->arch_name, "%s", pj_arch_name(config->arch));
}

static void refuse_unless_neutral(reader *r, const char *key)
{
    const pj_gguf_value *value = gguf_config_get(r, key);
    double number;
    if (value &&
        (value->is_array || !pj_gguf_number(value, 0, &number) || (number != 0 && number != 1)))
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, key, "is not supported");
}

/* Keys that scale, cap or route differently; writers put 0 or 1 where there is no effect. Keys that
 * an architecture supports are read in read_multipliers, read_window and read_query_scale. */
static void refuse_unknown(reader *r, pj_model_config *config)
{
    static const char *const keys[] = {
        "attention.clamp_kqv",
        "attention.max_alibi_bias",
        "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_attn_factor",
    };
#define GRANITE PJ_ARCH_GRANITE, PJ_ARCH_GRANITE_HYBRID, PJ_ARCH_GRANITE_MOE
    /* supported for some architectures; read below */
    static const struct {
        const char *key;
        pj_arch archs[10]; /* PJ_ARCH_COUNT ends a shorter list */
    } known[] = {
        {"attention.scale", {GRANITE, PJ_ARCH_COUNT}},
        {"embedding_scale", {GRANITE, PJ_ARCH_COUNT}},
        {"residual_scale", {GRANITE, PJ_ARCH_COUNT}},
        {"logit_scale", {GRANITE, PJ_ARCH_COHERE2, PJ_ARCH_COUNT}},
        {"attn_logit_softcapping", {PJ_ARCH_GEMMA2, PJ_ARCH_GEMMA3, PJ_ARCH_COUNT}},
        {"final_logit_softcapping",
         {PJ_ARCH_GEMMA2, PJ_ARCH_GEMMA3, PJ_ARCH_GEMMA4, PJ_ARCH_GEMMA3N, PJ_ARCH_COUNT}},
        {"attention.sliding_window_pattern",
         {PJ_ARCH_OLMO3, PJ_ARCH_GEMMA2, PJ_ARCH_GEMMA3, PJ_ARCH_GPT_OSS, PJ_ARCH_EXAONE4,
          PJ_ARCH_COHERE2, PJ_ARCH_GEMMA4, PJ_ARCH_LLAMA4, PJ_ARCH_GEMMA3N, PJ_ARCH_COUNT}},
        {"attention.temperature_scale", {PJ_ARCH_MINISTRAL3, PJ_ARCH_COUNT}},
        {"rope.scaling.yarn_log_multiplier",
         {PJ_ARCH_MINISTRAL3, PJ_ARCH_DEEPSEEK_V2, PJ_ARCH_DEEPSEEK_V32, PJ_ARCH_GLM_MOE_DSA,
          PJ_ARCH_COUNT}},
    };
#undef GRANITE
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) refuse_unless_neutral(r, keys[i]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool here = false;
        for (int a = 0; a < 10 && known[i].archs[a] != PJ_ARCH_COUNT; a++)
            here |= known[i].archs[a] == config->arch;
        if (!here) refuse_unless_neutral(r, known[i].key);
    }
    if (!want_bool(r, "attention.causal", true))
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "attention.causal", "false is not supported");
}

/* ---- sizes -------------------------------------------------------------------------------- */

/* Number of rows of the embedding, if no key states it. */
static int64_t rows_of_embedding(const reader *r)
{
    const pj_tensor *embedding = tensor(r, "token_embd.weight");
    const pj_gguf_value *tokens = pj_gguf_find(r->gguf, "tokenizer.ggml.tokens");
    uint64_t rows = embedding && embedding->rank == 2 ? embedding->shape[0]
                    : tokens                          ? tokens->count
                                                      : 0;
    return rows > 0 && rows <= PJ_MAX_VOCAB ? (int64_t)rows : -1;
}

static void read_head_dim(reader *r, pj_model_config *c)
{
    bool given = gguf_config_get(r, "attention.key_length") != NULL;
    if (r->status != PJ_OK) return;
    if (c->heads % c->kv_heads != 0)
        gguf_config_refuse(r, PJ_E_INVALID, "attention.head_count",
                           "is not a multiple of head_count_kv");
    if (!given && c->hidden % c->heads != 0)
        gguf_config_refuse(r, PJ_E_INVALID, "embedding_length",
                           "is not a multiple of attention.head_count");
    c->head_dim = want_count(r, "attention.key_length", c->hidden / c->heads, 1, PJ_MAX_HEAD_DIM);
    if (want_count(r, "attention.value_length", c->head_dim, 1, PJ_MAX_HEAD_DIM) != c->head_dim)
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "attention.value_length",
                           "differs from key_length, which is not supported");
}

/* Latent attention. Newer files state a head's size with and without the latent vector, older ones
 * without it alone. */
static void read_latent_sizes(reader *r, pj_model_config *c)
{
    bool both = gguf_config_get(r, "attention.key_length_mla") != NULL;
    const char *key = both ? "attention.key_length_mla" : "attention.key_length";
    const char *value = both ? "attention.value_length_mla" : "attention.value_length";
    uint32_t query = want_count(r, key, -1, 2, PJ_MAX_HEAD_DIM / 2);
    c->latent.rank = want_count(r, "attention.kv_lora_rank", -1, 1, PJ_MAX_HEAD_DIM / 2);
    c->latent.query_rank = want_count(r, "attention.q_lora_rank", 0, 0, PJ_MAX_WIDTH);
    c->latent.rotated = want_count(r, "rope.dimension_count", -1, 2, PJ_MAX_HEAD_DIM / 2);
    c->latent.value = want_count(r, value, -1, 1, PJ_MAX_HEAD_DIM);
    if (tensor(r, "blk.0.attn_q.weight")) c->latent.query_rank = 0;
    c->latent.plain = query - c->latent.rotated;
    c->head_dim = c->latent.rank + c->latent.rotated;
    c->kv_heads = 1;
    if (r->status == PJ_OK && c->latent.rotated >= query)
        gguf_config_refuse(r, PJ_E_INVALID, "rope.dimension_count", "is not below key_length");
}

/* Files of GLM-5.2 may not say which layers have an indexer: the first three, then every fourth. It
 * has a context that GLM-5 and 5.1, all of whose layers have one, have not. */
static bool shares_unsaid(const pj_model_config *c, uint32_t layer)
{
    enum { LONG_CONTEXT = 1 << 20, FIRST = 3, EVERY = 4 };
    return c->arch == PJ_ARCH_GLM_MOE_DSA && c->context >= LONG_CONTEXT && layer >= FIRST &&
           (layer + 1 - FIRST) % EVERY != 0;
}

static void read_indexer(reader *r, pj_model_config *c)
{
    const char *types = "attention.indexer.types";
    c->indexer.heads = want_count(r, "attention.indexer.head_count", -1, 1, PJ_MAX_HEADS);
    c->indexer.dim = want_count(r, "attention.indexer.key_length", -1, 1, PJ_MAX_HEAD_DIM);
    c->indexer.kept = want_count(r, "attention.indexer.top_k", -1, 1, PJ_MAX_CONTEXT);
    c->indexer.neighbours = c->arch == PJ_ARCH_GLM_MOE_DSA;
    bool *shares = pj_arena_alloc(r->arena, c->layers, sizeof *shares), any = false;
    if (!shares && r->status == PJ_OK) r->status = pj_fail_memory(r->err, r->name);
    const pj_gguf_value *listed = gguf_config_get(r, types);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        shares[i] = listed && listed->is_array ? !layer_flag(listed, i)
                    : listed                   ? !want_count(r, types, 1, 0, 1) /* of all */
                                               : shares_unsaid(c, i);
        any |= shares[i];
    }
    if (any) c->indexer.layer_shares = shares;
    if (r->status != PJ_OK) return;
    if (shares[0])
        gguf_config_refuse(r, PJ_E_INVALID, types, "leaves the first layer without an indexer");
    if (c->latent.query_rank == 0)
        gguf_config_refuse(r, PJ_E_INVALID, "attention.q_lora_rank", "is missing");
    if (c->indexer.dim < c->latent.rotated)
        gguf_config_refuse(r, PJ_E_INVALID, "attention.indexer.key_length",
                           "is below rope.dimension_count");
}

/* Layers with attention beside others, which have 0 KV heads in these files. */
static bool is_hybrid(pj_arch arch)
{
    return pj_arch_is_lfm2(arch) || arch == PJ_ARCH_GRANITE_HYBRID || arch == PJ_ARCH_NEMOTRON_H;
}

/* The largest number of any layer. */
static uint32_t most_of_layers(reader *r, const char *key, const pj_model_config *c, uint32_t max)
{
    uint32_t most = 0;
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        uint32_t number = want_of_layer(r, key, i, c->heads, 0, max);
        if (number > most) most = number;
    }
    if (most == 0) gguf_config_refuse(r, PJ_E_INVALID, key, "is 0 for every layer");
    return most ? most : 1;
}

/* Mamba-2: neither attention nor feed-forward blocks, whose sizes are 0. Its heads are those of the
 * scan. */
static void read_scan_alone(reader *r, pj_model_config *c)
{
    c->hidden = want_count(r, "embedding_length", -1, 1, PJ_MAX_WIDTH);
    c->layers = want_count(r, "block_count", -1, 1, PJ_MAX_LAYERS);
    c->context = want_count(r, "context_length", -1, 1, PJ_MAX_CONTEXT);
    c->vocab = want_count(r, "vocab_size", rows_of_embedding(r), 1, PJ_MAX_VOCAB);
    c->heads = c->kv_heads = want_count(r, "ssm.time_step_rank", -1, 1, PJ_MAX_HEADS);
    uint32_t values = want_count(r, "ssm.inner_size", -1, 1, PJ_MAX_WIDTH);
    if (r->status == PJ_OK) c->head_dim = values / c->heads;
}

static void gguf_config_read_sizes(reader *r, pj_model_config *c)
{
    if (c->arch == PJ_ARCH_MAMBA2) {
        read_scan_alone(r, c);
        return;
    }
    /* between layers: read_layer_sizes */
    bool differs = c->arch == PJ_ARCH_GEMMA4 || c->arch == PJ_ARCH_GEMMA3N;
    c->hidden = want_count(r, "embedding_length", -1, 1, PJ_MAX_WIDTH);
    c->layers = want_count(r, "block_count", -1, 1, PJ_MAX_LAYERS);
    /* the last blocks may be heads that predict further tokens */
    c->layers -= want_count(r, "nextn_predict_layers", 0, 0, c->layers ? c->layers - 1 : 0);
    c->heads = want_count(r, "attention.head_count", -1, 1, PJ_MAX_HEADS);
    if (is_hybrid(c->arch))
        c->kv_heads = most_of_layers(r, "attention.head_count_kv", c, PJ_MAX_HEADS);
    else
        c->kv_heads =
            differs ? want_of_layer(r, "attention.head_count_kv", 0, c->heads, 1, PJ_MAX_HEADS)
                    : want_count(r, "attention.head_count_kv", c->heads, 1, PJ_MAX_HEADS);
    c->context = want_count(r, "context_length", -1, 1, PJ_MAX_CONTEXT);
    c->vocab = want_count(r, "vocab_size", rows_of_embedding(r), 1, PJ_MAX_VOCAB);
    /* files of mixtures without a dense layer may lack it */
    bool needed = c->arch != PJ_ARCH_QWEN3_5_MOE && c->arch != PJ_ARCH_QWEN3_NEXT;
    c->intermediate =
        differs ? want_of_layer(r, "feed_forward_length", 0, -1, 1, PJ_MAX_WIDTH)
        : c->arch == PJ_ARCH_NEMOTRON_H
            ? most_of_layers(r, "feed_forward_length", c, PJ_MAX_WIDTH)
            : want_count(r, "feed_forward_length", needed ? -1 : 512, 1, PJ_MAX_WIDTH);
    bool indexes = pj_arch_has_indexer(c->arch);
    if (c->arch == PJ_ARCH_DEEPSEEK_V2 || indexes)
        read_latent_sizes(r, c);
    else
        read_head_dim(r, c);
    if (indexes) read_indexer(r, c);
}

/* Whether the first layer that could have the part has it. */
static bool any_layer_has(const reader *r, const pj_model_config *c, const char *part)
{
    char name[64];
    for (uint32_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", i, part);
        if (tensor(r, name)) return true;
    }
    return false;
}

/* xIELU's parameters: a number for each layer, or one for all. */
static void read_xielu(reader *r, pj_model_config *c)
{
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    c->xielu = true;
    c->layer_xielu = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_xielu);
    if (!c->layer_xielu) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < 4 * c->layers; i++) {
        const pj_gguf_value *value = pj_gguf_find(r->gguf, keys[i % 4]);
        double number;
        if (!value || !pj_gguf_number(value, value->is_array ? i / 4 : 0, &number) ||
            !isfinite(number))
            r->status = pj_fail(r->err, PJ_E_INVALID, "%s: %s must have a number for every layer",
                                r->name, keys[i % 4]);
        else
            c->layer_xielu[i / 4][i % 4] = (float)number;
    }
}

/* BitNet's files name it; the oldest, which do not, are of models with silu. */
static void read_activation(reader *r, pj_model_config *c)
{
    char key[KEY_BYTES], name[32] = "silu";
    const char *activation = pj_config_rules_get(c->arch)->activation;
    snprintf(key, sizeof key, "%s.hidden_activation", r->arch);
    if (c->arch == PJ_ARCH_BITNET) {
        gguf_config_text_of(r, key, name, sizeof name);
        activation = name;
    }
    c->gelu = strncmp(activation, "gelu", 4) == 0;
    c->relu2 = strcmp(activation, "relu2") == 0;
    if (strcmp(activation, "xielu") == 0) read_xielu(r, c);
    if (!c->gelu && !c->relu2 && !c->xielu && strcmp(activation, "silu") != 0)
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "hidden_activation",
                           "must be silu or relu2 in this architecture");
}

/* The structure of a block; biases exist if a layer has them. */
static void gguf_config_read_block(reader *r, pj_model_config *c)
{
    bool phi = c->arch == PJ_ARCH_PHI;
    const char *rms = "attention.layer_norm_rms_epsilon", *eps = "attention.layer_norm_epsilon";
    bool layer_norm = pj_blueprint_get(c->arch)->norm == PJ_NORM_LAYER;
    /* files of Phi-3.5-MoE have the other norm's key */
    if (!layer_norm || !gguf_config_get(r, eps)) eps = rms;
    c->norm_eps = want_number(r, eps, 1e-5, 1e-20, 1);
    read_activation(r, c);
    c->attention_bias = phi || any_layer_has(r, c, "attn_q.bias");
    c->qkv_bias = c->attention_bias || c->arch == PJ_ARCH_QWEN2;
    c->mlp_bias = phi || any_layer_has(r, c, "ffn_down.bias");
    c->out_bias = any_layer_has(r, c, "attn_output.bias");
    c->head_bias = tensor(r, "output.bias") != NULL;
    c->without_qk_norm =
        phi || (c->arch == PJ_ARCH_GLM4_MOE && !tensor(r, "blk.0.attn_q_norm.weight"));
    if (c->arch == PJ_ARCH_LLAMA4) /* no key: the model with 128 experts has none */
        c->without_qk_norm = want_count(r, "expert_count", 0, 0, PJ_MAX_EXPERTS) == 128;
    c->tied_head = tensor(r, "output.weight") == NULL;
}

/* Scale factors and caps; not all of Gemma's are in the file. Its largest models, recognised by
 * their number of layers, scale scores by hidden / heads instead of the head size. */
static void read_multipliers(reader *r, pj_model_config *c)
{
    enum { MOST = 1000000, GEMMA2_LARGEST = 46, GEMMA3_LARGEST = 62 };
    if (pj_arch_is_granite(c->arch)) {
        c->embedding_scale = want_number(r, "embedding_scale", 1, 1e-6, MOST);
        c->residual_scale = want_number(r, "residual_scale", 1, 1e-6, MOST);
        c->score_scale = want_number(r, "attention.scale", 0, 0, MOST);
        c->logit_scale = 1 / want_number(r, "logit_scale", 1, 1e-6, MOST);
    }
    if (c->arch == PJ_ARCH_COHERE2) c->logit_scale = want_number(r, "logit_scale", 1, 1e-6, MOST);
    if (c->arch == PJ_ARCH_GEMMA4 || c->arch == PJ_ARCH_GEMMA3N) {
        c->embedding_scale = sqrt(c->hidden);
        c->score_scale = 1; /* queries have a norm of their own */
        c->logit_softcap =
            want_number(r, "final_logit_softcapping", c->arch == PJ_ARCH_GEMMA3N ? 30 : 0, 0, MOST);
    }
    if (c->arch != PJ_ARCH_GEMMA2 && c->arch != PJ_ARCH_GEMMA3) return;
    bool largest = c->layers == (c->arch == PJ_ARCH_GEMMA2 ? GEMMA2_LARGEST : GEMMA3_LARGEST);
    double capped = c->arch == PJ_ARCH_GEMMA2;
    c->embedding_scale = sqrt(c->hidden);
    c->score_scale = 1 / sqrt(largest ? (double)c->hidden / c->heads : c->head_dim);
    c->attention_softcap = capped * want_number(r, "attn_logit_softcapping", 50, 0, MOST);
    c->logit_softcap = want_number(r, "final_logit_softcapping", capped * 30, 0, MOST);
}

/* ---- layers ------------------------------------------------------------------------------- */

/* A flag for every layer: set for all but each interval-th. NULL after a failure. */
static bool *all_but_each(reader *r, const pj_model_config *c, uint32_t interval)
{
    bool *flags = pj_arena_alloc(r->arena, c->layers, sizeof *flags);
    if (!flags) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; flags && i < c->layers; i++) flags[i] = (i + 1) % interval != 0;
    return flags;
}

/* The pattern is the kind of every layer, or a period. Llama 4's chunks: read_chunks. */
static void gguf_config_read_window(reader *r, pj_model_config *c)
{
    const pj_config_rules *rules = pj_config_rules_get(c->arch);
    const char *key = "attention.sliding_window_pattern";
    const pj_gguf_value *pattern = gguf_config_get(r, key);
    uint32_t period = rules->window_period;
    c->window =
        want_count(r, "attention.sliding_window",
                   rules->window == PJ_WINDOW_PERIOD ? rules->window_absent : 0, 0, PJ_MAX_CONTEXT);
    if (pattern && !pattern->is_array) period = want_count(r, key, period, 1, PJ_MAX_LAYERS);
    if (rules->window != PJ_WINDOW_PERIOD || r->status != PJ_OK) return;
    c->layer_is_windowed = all_but_each(r, c, period);
    for (uint32_t i = 0; r->status == PJ_OK && pattern && pattern->is_array && i < c->layers; i++)
        c->layer_is_windowed[i] = layer_flag(pattern, i);
    if (rules->only_windows_rotate && c->window) c->layer_rotates = c->layer_is_windowed;
}

/* ---- Gemma 4: layers of different sizes ------------------------------------------------------ */

/* The last layers read the keys and values of the preceding layer of their kind. */
static void read_shared_keys(reader *r, pj_model_config *c)
{
    uint32_t shared = want_whole(r, "attention.shared_kv_layers", 0, c->layers - 1);
    uint32_t own = c->layers - shared;
    if (shared == 0 || r->status != PJ_OK) return;
    c->layer_kv_source = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_kv_source);
    if (!c->layer_kv_source) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        uint32_t source = own;
        while (source > 0 && c->layer_is_windowed[source - 1] != c->layer_is_windowed[i]) source--;
        if (i >= own &&
            (source == 0 || pj_config_kv_heads(c, source - 1) != pj_config_kv_heads(c, i)))
            gguf_config_refuse(r, PJ_E_INVALID, "attention.shared_kv_layers",
                               "leaves a layer without keys of its kind");
        c->layer_kv_source[i] = i < own ? i : source - 1;
    }
}

static void read_token_vectors(reader *r, pj_model_config *c)
{
    const pj_tensor *vectors = tensor(r, "per_layer_token_embd.weight");
    c->token_vector = want_count(r, "embedding_length_per_layer_input", 0, 0, PJ_MAX_WIDTH);
    c->token_vector_vocab = vectors && vectors->rank == 2 ? (uint32_t)vectors->shape[0] : c->vocab;
}

static void read_layer_sizes(reader *r, pj_model_config *c)
{
    char name[64];
    uint32_t wide = want_count(r, "attention.key_length", c->head_dim, 2, PJ_MAX_HEAD_DIM);
    if (c->arch != PJ_ARCH_GEMMA4) return;
    c->head_dim = want_count(r, "attention.key_length_swa", wide, 2, PJ_MAX_HEAD_DIM);
    if (c->head_dim % 2 != 0)
        gguf_config_refuse(r, PJ_E_INVALID, "attention.key_length_swa", "must be even");
    if (want_count(r, "attention.value_length_swa", c->head_dim, 1, PJ_MAX_HEAD_DIM) != c->head_dim)
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "attention.value_length_swa",
                           "differs from key_length_swa, which is not supported");
    read_token_vectors(r, c);
    if (c->token_vector_vocab < c->vocab)
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "embedding_length_per_layer_input",
                           "belongs to a table that is shorter than the vocabulary");
    c->layer_head_dim = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_head_dim);
    c->layer_kv_heads = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_kv_heads);
    if (!c->layer_head_dim || !c->layer_kv_heads) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        c->layer_head_dim[i] = c->layer_is_windowed[i] ? c->head_dim : wide;
        c->layer_kv_heads[i] =
            want_of_layer(r, "attention.head_count_kv", i, c->heads, 1, PJ_MAX_HEADS);
        if (r->status == PJ_OK && c->heads % c->layer_kv_heads[i] != 0)
            gguf_config_refuse(r, PJ_E_INVALID, "attention.head_count_kv",
                               "does not divide head_count");
    }
    if (r->status == PJ_OK) read_shared_keys(r, c);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        bool reads = pj_config_kv_source(c, i) != i;
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", i);
        c->keys_are_values |= !reads && !c->layer_is_windowed[i] && !tensor(r, name);
        uint32_t width = want_of_layer(r, "feed_forward_length", i, -1, 1, PJ_MAX_WIDTH);
        c->wide_readers |= reads && width == 2 * c->intermediate;
        if (r->status == PJ_OK && width != pj_config_mlp_width(c, i))
            gguf_config_refuse(r, PJ_E_UNSUPPORTED, "feed_forward_length",
                               "differs between layers in an unknown way");
    }
}

/* Llama 4: three of four layers have chunks and rotate, and queries of the others are scaled by
 * position, with the published numbers; a window of 0 says that all layers rotate, without any. */
static void read_chunks(reader *r, pj_model_config *c)
{
    const pj_gguf_value *pattern = gguf_config_get(r, "attention.sliding_window_pattern");
    uint32_t period = 4;
    c->window = want_count(r, "attention.sliding_window", 8192, 0, PJ_MAX_CONTEXT);
    if (c->window == 0) return;
    if (pattern && !pattern->is_array)
        period = want_count(r, "attention.sliding_window_pattern", 4, 1, PJ_MAX_LAYERS);
    c->layer_is_windowed = all_but_each(r, c, period);
    for (uint32_t i = 0; r->status == PJ_OK && pattern && pattern->is_array && i < c->layers; i++)
        c->layer_is_windowed[i] = layer_flag(pattern, i);
    c->layer_rotates = all_but_each(r, c, 4);
    c->window_is_chunk = true;
    c->query_beta = 0.1;
    c->query_period = 8192;
    c->query_first = 1;
    c->query_scale_unrotated = true;
}

/* ---- Gemma 3n ----------------------------------------------------------------------------- */

/* Standard deviations above the mean up to which a layer's gates are cut; without the key those of
 * the published models. */
static double cutoff_of(reader *r, const pj_gguf_value *listed, uint32_t layer)
{
    enum { SPARSE = 10 };
    double number;
    if (!listed) return layer < SPARSE ? pj_config_cutoff(0.95) : -INFINITY;
    if (!listed->is_array || layer >= listed->count || !pj_gguf_number(listed, layer, &number) ||
        isnan(number) || number > 40)
        gguf_config_refuse(r, PJ_E_INVALID, "activation_sparsity_scale",
                           "must have every layer's factor of the standard deviation");
    else
        return number < -40 ? -INFINITY : number;
    return -INFINITY;
}

static void read_gemma3n(reader *r, pj_model_config *c)
{
    const pj_gguf_value *cutoffs = gguf_config_get(r, "activation_sparsity_scale");
    const pj_tensor *left = tensor(r, "blk.0.laurel_l.weight");
    if (c->arch != PJ_ARCH_GEMMA3N) return;
    read_token_vectors(r, c);
    c->streams.count = want_count(r, "altup.num_inputs", 4, 2, PJ_MAX_STREAMS);
    c->streams.active = want_count(r, "altup.active_idx", 0, 0, PJ_MAX_STREAMS - 1);
    c->streams.without_scale = !want_bool(r, "altup.correct_scale", true);
    c->streams.residual_rank = left && left->rank == 2 ? (uint32_t)left->shape[0] : 64;
    if (r->status == PJ_OK && c->streams.active >= c->streams.count)
        gguf_config_refuse(r, PJ_E_INVALID, "altup.active_idx", "is not below altup.num_inputs");
    if (c->token_vector == 0)
        gguf_config_refuse(r, PJ_E_INVALID, "embedding_length_per_layer_input", "is missing");
    if (c->streams.residual_rank == 0 || c->streams.residual_rank > PJ_MAX_WIDTH)
        gguf_config_refuse(r, PJ_E_INVALID, "embedding_length", "belongs to laurel_l without rows");
    c->layer_width = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_width);
    c->layer_cutoff = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_cutoff);
    if (!c->layer_width || !c->layer_cutoff) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        c->layer_width[i] = want_of_layer(r, "feed_forward_length", i, -1, 1, PJ_MAX_WIDTH);
        c->layer_cutoff[i] = cutoff_of(r, cutoffs, i);
    }
    if (r->status == PJ_OK) read_shared_keys(r, c);
}

/* SmolLM3's files do not state that every fourth layer has no rotation. Granite's say in a key for
 * scaling whether there is any. */
static void gguf_config_read_rotating_layers(reader *r, pj_model_config *c)
{
    bool still = pj_arch_is_granite(c->arch) && !want_bool(r, "rope.scaling.finetuned", true);
    if (still) c->layer_rotates = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_rotates);
    if (still && !c->layer_rotates) r->status = pj_fail_memory(r->err, r->name);
    if (c->arch == PJ_ARCH_SMOLLM3) c->layer_rotates = all_but_each(r, c, 4);
    if (c->arch == PJ_ARCH_LLAMA4) read_chunks(r, c);
}

/* How a router scores and chooses. */
static void read_router(reader *r, pj_model_config *c)
{
    enum { SOFTMAX = 1, SIGMOID = 2 };
    char name[64];
    bool grouped = c->arch == PJ_ARCH_GLM4_MOE || pj_arch_has_indexer(c->arch);
    bool sigmoid = grouped || c->arch == PJ_ARCH_MINIMAX_M2 || c->arch == PJ_ARCH_LLAMA4 ||
                   c->arch == PJ_ARCH_NEMOTRON_H || c->arch == PJ_ARCH_LFM2_MOE;
    uint32_t kind = want_count(r, "expert_gating_func", 0, 0, 4);
    if (kind > SIGMOID)
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "expert_gating_func", "is not supported");
    c->router_sigmoid = kind ? kind == SIGMOID : sigmoid;
    c->routed_scale = want_number(r, "expert_weights_scale", 1, 0, 1e6);
    if (c->routed_scale == 0) c->routed_scale = 1;
    c->expert_groups = want_count(r, "expert_group_count", 1, 0, c->experts);
    c->expert_groups_kept = want_count(r, "expert_group_used_count", 1, 0, c->experts);
    c->group_by_pair = c->router_sigmoid;
    for (uint32_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", i);
        c->router_correction |= tensor(r, name) != NULL;
    }
    if (r->status != PJ_OK || c->expert_groups <= 1) return;
    uint32_t each = c->experts / c->expert_groups;
    if (c->experts % c->expert_groups != 0 || each < 2 || c->expert_groups_kept == 0 ||
        c->expert_groups_kept > c->expert_groups ||
        (uint64_t)each * c->expert_groups_kept < c->experts_per_token)
        gguf_config_refuse(r, PJ_E_INVALID, "expert_group_count",
                           "does not divide the experts into enough groups of two or more");
}

/* Whether the architecture's files have experts. */
static bool has_experts(reader *r, const pj_model_config *c)
{
    bool maybe = pj_blueprint_get(c->arch)->router != PJ_ROUTER_NONE;
    bool optional = pj_blueprint_get(c->arch)->parallel_experts || c->arch == PJ_ARCH_LLAMA4 ||
                    c->arch == PJ_ARCH_GRANITE_HYBRID || c->arch == PJ_ARCH_NEMOTRON_H;
    return maybe && (!optional || want_count(r, "expert_count", 0, 0, PJ_MAX_EXPERTS) > 0);
}

/* The width of shared experts: stated, or so many experts' widths. */
static void read_shared_width(reader *r, pj_model_config *c)
{
    uint64_t width = c->intermediate;
    if (!pj_blueprint_get(c->arch)->shared_expert) return;
    if (c->arch == PJ_ARCH_LLAMA4)
        width = c->expert_intermediate;
    else if (c->arch != PJ_ARCH_HUNYUAN_MOE && !pj_blueprint_get(c->arch)->shared_gate)
        width = (uint64_t)want_count(r, "expert_shared_count", 0, 0, 1024) * c->expert_intermediate;
    if (width > PJ_MAX_WIDTH)
        gguf_config_refuse(r, PJ_E_INVALID, "expert_shared_count", "is too large");
    else
        c->shared_intermediate = want_count(r, "expert_shared_feed_forward_length", (int64_t)width,
                                            width > 0, PJ_MAX_WIDTH);
}

static void gguf_config_read_experts(reader *r, pj_model_config *c)
{
    char name[64];
    bool mixtral = c->arch == PJ_ARCH_MIXTRAL || c->arch == PJ_ARCH_PHIMOE ||
                   pj_arch_is_granite(c->arch) || c->arch == PJ_ARCH_HUNYUAN_MOE;
    if (c->arch == PJ_ARCH_GPT_OSS) {
        c->swiglu_alpha = 1.702; /* not in any file */
        c->swiglu_limit = 7;
        c->mlp_bias = true;
        mixtral = true; /* experts in every layer, weights that sum to 1 */
    }
    if (!has_experts(r, c)) return;
    c->experts = want_count(r, "expert_count", -1, 1, PJ_MAX_EXPERTS);
    c->experts_per_token = want_count(r, "expert_used_count", -1, 1, c->experts);
    if (r->status != PJ_OK) return;
    /* older Qwen files omit the width: the chosen experts together are as wide as the block */
    uint32_t width = mixtral ? c->intermediate : c->intermediate / c->experts_per_token;
    c->expert_intermediate = want_count(r, "expert_feed_forward_length", width, 1, PJ_MAX_WIDTH);
    read_shared_width(r, c);
    if (c->arch == PJ_ARCH_NEMOTRON_H)
        c->expert_latent = want_count(r, "moe_latent_size", 0, 0, c->hidden);
    c->norm_topk = want_bool(r, "expert_weights_norm",
                             c->arch != PJ_ARCH_QWEN2_MOE && c->arch != PJ_ARCH_LLAMA4);
    c->router_reach = 0.02; /* of Phi-3.5-MoE, not in its files */
    if (mixtral && !c->norm_topk)
        gguf_config_refuse(r, PJ_E_UNSUPPORTED, "expert_weights_norm", "false is not supported");
    read_router(r, c);
    bool *dense = all_but_each(r, c, 1);
    for (uint32_t i = 0; dense && i < c->layers; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        dense[i] = !mixtral && tensor(r, name) == NULL;
        if (dense[i]) c->layer_is_dense = dense;
    }
}

/* ---- linear attention --------------------------------------------------------------------- */

/* Nemotron-H: layers of one half each; none rotates. */
static void read_halves(reader *r, pj_model_config *c)
{
    bool any = false;
    char name[64];
    c->layer_halves = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_halves);
    c->layer_rotates = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_rotates);
    if (!c->layer_halves || !c->layer_rotates) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        bool block =
            want_of_layer(r, "feed_forward_length", i, -1, 0, PJ_MAX_WIDTH) > 0 || tensor(r, name);
        c->layer_halves[i] = block ? PJ_HALF_MLP : PJ_HALF_MIXER;
        c->layer_is_linear[i] &= !block;
        any |= c->layer_is_linear[i];
    }
    c->linear.least_step = 0.001; /* as published, not in the files */
    if (any) return;
    c->layer_is_linear = NULL;
    c->linear.kernel = 0;
}

/* Sizes of state-space layers. */
static void read_scan_sizes(reader *r, pj_model_config *c)
{
    c->linear.key_heads = want_count(r, "ssm.group_count", -1, 1, PJ_MAX_HEADS);
    c->linear.value_heads = want_count(r, "ssm.time_step_rank", -1, 1, PJ_MAX_HEADS);
    c->linear.key_dim = want_count(r, "ssm.state_size", -1, 1, PJ_MAX_DELTA_DIM);
    uint32_t values = want_count(r, "ssm.inner_size", -1, 1, PJ_MAX_WIDTH);
    if (r->status != PJ_OK) return;
    c->linear.value_dim = values / c->linear.value_heads;
    c->linear.conv_bias = any_layer_has(r, c, "ssm_conv1d.bias");
    c->linear.in_bias = any_layer_has(r, c, "ssm_in.bias");
    c->linear.out_bias = any_layer_has(r, c, "ssm_out.bias");
    c->linear.without_norm = !any_layer_has(r, c, "ssm_norm.weight");
    if (values % c->linear.value_heads != 0 || c->linear.value_dim > PJ_MAX_DELTA_DIM ||
        c->linear.value_heads % c->linear.key_heads != 0)
        gguf_config_refuse(
            r, PJ_E_INVALID, "ssm.time_step_rank",
            "does not divide ssm.inner_size, or is not a multiple of ssm.group_count");
}

/* Mamba-2: layers of a scan alone. */
static void read_lone_scans(reader *r, pj_model_config *c)
{
    c->layer_rotates = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_rotates);
    c->layer_halves = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_halves);
    if (!c->layer_halves || !c->layer_rotates) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++)
        c->layer_halves[i] = PJ_HALF_MIXER;
}

/* Layers without KV heads are state-space layers (Granite 4, Nemotron-H) or short convolutions
 * (LFM2); all layers of Falcon-H1 are state-space layers, with attention beside, and all of
 * Mamba-2, without. */
static void read_hybrid_layers(reader *r, pj_model_config *c)
{
    bool beside = c->attention_beside = c->arch == PJ_ARCH_FALCON_H1;
    bool scan = !pj_arch_is_lfm2(c->arch), alone = c->arch == PJ_ARCH_MAMBA2;
    if (!is_hybrid(c->arch) && !beside && !alone) return;
    c->linear.kind = scan ? PJ_SCAN : PJ_SHORT_CONVOLUTION;
    c->linear.kernel =
        want_count(r, scan ? "ssm.conv_kernel" : "shortconv.l_cache", -1, 1, PJ_MAX_CONVOLUTION);
    c->layer_is_linear = all_but_each(r, c, 1);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++)
        c->layer_is_linear[i] =
            beside || alone ||
            want_of_layer(r, "attention.head_count_kv", i, 1, 0, PJ_MAX_HEADS) == 0;
    if (!scan) return;
    read_scan_sizes(r, c);
    if (r->status == PJ_OK && c->arch == PJ_ARCH_NEMOTRON_H) read_halves(r, c);
    if (r->status == PJ_OK && alone) read_lone_scans(r, c);
}

/* Qwen3.5: all layers but each interval-th use the gated delta rule. */
static void gguf_config_read_linear_layers(reader *r, pj_model_config *c)
{
    if (!pj_arch_has_delta(c->arch)) return;
    uint32_t interval = want_count(r, "full_attention_interval", 4, 1, PJ_MAX_LAYERS);
    c->linear.key_heads = want_count(r, "ssm.group_count", -1, 1, PJ_MAX_HEADS);
    c->linear.value_heads = want_count(r, "ssm.time_step_rank", -1, 1, PJ_MAX_HEADS);
    c->linear.key_dim = want_count(r, "ssm.state_size", -1, 1, PJ_MAX_DELTA_DIM);
    c->linear.kernel = want_count(r, "ssm.conv_kernel", -1, 1, PJ_MAX_CONVOLUTION);
    uint32_t values = want_count(r, "ssm.inner_size", -1, 1, PJ_MAX_WIDTH);
    if (r->status != PJ_OK) return;
    c->linear.value_dim = values / c->linear.value_heads;
    if (c->linear.value_heads % c->linear.key_heads != 0)
        gguf_config_refuse(r, PJ_E_INVALID, "ssm.time_step_rank",
                           "is not a multiple of ssm.group_count");
    if (values % c->linear.value_heads != 0 || c->linear.value_dim > PJ_MAX_DELTA_DIM)
        gguf_config_refuse(r, PJ_E_INVALID, "ssm.inner_size",
                           "does not divide into heads of at most 1024 values");
    c->layer_is_linear = all_but_each(r, c, interval);
}

/* ---- rope --------------------------------------------------------------------------------- */

/* Windowed layers of some architectures have their own RoPE base, without scaling. */
static void read_window_rope(reader *r, pj_model_config *c)
{
    const pj_config_rules *rules = pj_config_rules_get(c->arch);
    bool gemma =
        c->arch == PJ_ARCH_GEMMA3 || c->arch == PJ_ARCH_GEMMA4 || c->arch == PJ_ARCH_GEMMA3N;
    if (rules->window_theta == 0) return;
    c->window_rope = PJ_ROPE_CONFIG_PLAIN;
    c->window_rope.dims = c->arch == PJ_ARCH_GEMMA4 ? c->head_dim : c->rope.dims;
    c->window_rope.neighbours = c->rope.neighbours;
    c->window_rope.theta =
        want_number(r, "rope.freq_base_swa", gemma ? rules->window_theta : c->rope.theta, 1, 1e15);
}

/* Latent attention: YaRN scales scores instead of rotated parts. The key is a tenth of its mscale.
 */
static void read_latent_scale(reader *r, pj_model_config *c)
{
    double tenth = want_number(r, "rope.scaling.yarn_log_multiplier", 0, 0, 1e6);
    if (c->rope.type == PJ_ROPE_YARN) c->rope.attention_factor = 1;
    pj_config_scale_latent(c, 10 * tenth);
}

/* Ministral 3: queries scale with their position; YaRN's factor on all scores is divided out. */
static void gguf_config_read_query_scale(reader *r, pj_model_config *c)
{
    pj_rope_config *rope = &c->rope;
    if (c->latent.rank) read_latent_scale(r, c);
    if (c->arch != PJ_ARCH_MINISTRAL3) return;
    c->query_beta = want_number(r, "attention.temperature_scale", 0, 0, 1e6);
    c->query_period = rope->original_context ? rope->original_context : c->context;
    double log_multiplier = want_number(r, "rope.scaling.yarn_log_multiplier", 0, 0, 1e6);
    if (log_multiplier == 0) return;
    rope->mscale = 1;
    rope->mscale_all_dim = log_multiplier;
    rope->attention_factor = NAN;
}

/* A tensor with one factor per rotating pair; NULL when absent or invalid. */
static const double *gguf_config_read_factors(reader *r, const char *name, uint32_t pairs)
{
    const pj_tensor *t = tensor(r, name);
    if (!t || r->status != PJ_OK) return NULL;
    if (t->type != PJ_FILE_F32 || t->rank != 1 || t->shape[0] != pairs) {
        r->status = pj_fail(r->err, PJ_E_INVALID,
                            "%s: tensor %s must contain %u values in F32, half of the rotated "
                            "dimensions",
                            r->name, name, pairs);
        return NULL;
    }
    double *factors = pj_arena_alloc(r->arena, pairs, sizeof *factors);
    if (!factors) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; factors && i < pairs; i++) {
        float value;
        memcpy(&value, t->data + 4 * (size_t)i, 4);
        factors[i] = (double)value;
        if (value > 0 && value <= 1e9f) continue;
        r->status = pj_fail(r->err, PJ_E_INVALID,
                            "%s: tensor %s must contain positive numbers only", r->name, name);
        return NULL;
    }
    return factors;
}

static void read_scaling_type(reader *r, pj_rope_config *rope)
{
    static const struct {
        const char *name;
        pj_rope_type type;
    } types[] = {
        {"none", PJ_ROPE_DEFAULT},
        {"linear", PJ_ROPE_LINEAR},
        {"yarn", PJ_ROPE_YARN},
        {"longrope", PJ_ROPE_LONGROPE},
    };
    char key[KEY_BYTES], name[32], problem[128];
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->arch);
    /* older files have only a factor, for linear scaling */
    double linear = want_number(r, "rope.scale_linear", 1, 1e-6, 1e6);
    rope->factor = want_number(r, "rope.scaling.factor", linear, 0, 1e6);
    if (rope->factor == 0) rope->factor = 1;
    if (!gguf_config_text_of(r, key, name, sizeof name)) {
        rope->type = rope->factor != 1 ? PJ_ROPE_LINEAR : PJ_ROPE_DEFAULT;
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            rope->type = types[i].type;
            return;
        }
    snprintf(problem, sizeof problem, "%s is not supported (none, linear, yarn, longrope are)",
             name);
    gguf_config_refuse(r, PJ_E_UNSUPPORTED, "rope.scaling.type", problem);
}

static void read_longrope(reader *r, pj_model_config *c)
{
    pj_rope_config *rope = &c->rope;
    uint32_t pairs = rope->dims / 2;
    rope->type = PJ_ROPE_LONGROPE;
    rope->factor_count = pairs;
    rope->short_factor = gguf_config_read_factors(r, "rope_factors_short.weight", pairs);
    rope->long_factor = gguf_config_read_factors(r, "rope_factors_long.weight", pairs);
    if (r->status == PJ_OK && (!rope->short_factor || !rope->long_factor))
        r->status = pj_fail(r->err, PJ_E_INVALID,
                            "%s lacks rope_factors_short.weight or rope_factors_long.weight, which "
                            "longrope needs",
                            r->name);
    if (rope->original_context == 0) rope->original_context = c->context;
    rope->factor = (double)c->context / rope->original_context;
}

/* Gemma 4: pairs that do not rotate have a divisor so large that their angle is 0. */
static void read_turning(reader *r, pj_rope_config *rope)
{
    const pj_tensor *t = tensor(r, "rope_freqs.weight");
    rope->type = PJ_ROPE_PROPORTIONAL;
    rope->turning = rope->dims / 2;
    if (!t) return;
    if (t->type != PJ_FILE_F32 || t->rank != 1 || t->shape[0] != rope->dims / 2) {
        r->status = pj_fail(r->err, PJ_E_INVALID,
                            "%s: tensor rope_freqs.weight must contain %u values in F32", r->name,
                            rope->dims / 2);
        return;
    }
    rope->turning = 0;
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        float value;
        memcpy(&value, t->data + 4 * (size_t)i, 4);
        if (value == 1 && rope->turning == i)
            rope->turning++;
        else if (!(value > 1e9f))
            gguf_config_refuse(r, PJ_E_UNSUPPORTED, "rope.dimension_count",
                               "belongs to rope_freqs.weight with factors other than 1 and none");
    }
}

static void read_rope(reader *r, pj_model_config *c)
{
    pj_rope_config *rope = &c->rope;
    bool gemma3 =
        c->arch == PJ_ARCH_GEMMA3 || c->arch == PJ_ARCH_GEMMA4 || c->arch == PJ_ARCH_GEMMA3N;
    uint32_t head_dim = c->head_dim;
    for (uint32_t i = 0; c->layer_head_dim && i < c->layers; i++)
        if (!c->layer_is_windowed[i]) head_dim = c->layer_head_dim[i];
    *rope = PJ_ROPE_CONFIG_PLAIN;
    if (c->arch == PJ_ARCH_MAMBA2) return; /* no positions */
    rope->neighbours = pj_arch_gguf_neighbours(c->arch);
    rope->theta = want_number(r, "rope.freq_base", gemma3 ? 1e6 : 1e4, 1, 1e15);
    rope->dims = want_count(r, "rope.dimension_count", head_dim, 2, PJ_MAX_HEAD_DIM);
    if (rope->dims % 2 != 0 || rope->dims > head_dim)
        gguf_config_refuse(r, PJ_E_INVALID, "rope.dimension_count",
                           "must be even, and at most the head's");
    rope->original_context =
        want_count(r, "rope.scaling.original_context_length", 0, 0, PJ_MAX_CONTEXT);
    rope->beta_fast = want_number(r, "rope.scaling.yarn_beta_fast", 32, 1e-6, 1e6);
    rope->beta_slow = want_number(r, "rope.scaling.yarn_beta_slow", 1, 1e-6, 1e6);
    rope->truncate = c->arch != PJ_ARCH_GPT_OSS; /* as it was trained */
    read_scaling_type(r, rope);
    if (r->status != PJ_OK) return;
    double attention = want_number(r, "rope.scaling.attn_factor", NAN, 1e-6, 1e6);
    if (rope->type == PJ_ROPE_LONGROPE || tensor(r, "rope_factors_long.weight")) {
        read_longrope(r, c);
        if (c->arch == PJ_ARCH_PHIMOE) rope->long_factor = rope->short_factor; /* config_rope.c */
        rope->attention_factor = attention;
        return;
    }
    if (c->arch == PJ_ARCH_GEMMA4) {
        read_turning(r, rope);
        return;
    }
    rope->factor_count = rope->dims / 2;
    rope->divisors = gguf_config_read_factors(r, "rope_freqs.weight", rope->factor_count);
    if (rope->type != PJ_ROPE_YARN) return;
    if (rope->original_context == 0) rope->original_context = c->context;
    if (isnan(attention)) return;
    /* It multiplies the scaling's own factor; but files of OLMo 3 hold the published one, which
     * replaces it. */
    bool whole = c->arch == PJ_ARCH_OLMO2 || c->arch == PJ_ARCH_OLMO3;
    rope->attention_factor = attention * (whole ? 1 : 0.1 * log(rope->factor) + 1);
}

/* ---- ends --------------------------------------------------------------------------------- */

static void gguf_config_add_eos(pj_model_config *c, int64_t id)
{
    if (id < 0 || id >= c->vocab || c->eos_count == PJ_MAX_EOS) return;
    for (uint32_t i = 0; i < c->eos_count; i++)
        if (c->eos[i] == id) return;
    c->eos[c->eos_count++] = (int32_t)id;
}

static int64_t gguf_config_token_id(const reader *r, const char *key)
{
    const pj_gguf_value *value = pj_gguf_find(r->gguf, key);
    int64_t id;
    return value && !value->is_array && pj_gguf_integer(value, 0, &id) && id <= INT32_MAX ? id : -1;
}

/* Control tokens that end a turn in these families' chat formats: a file names one or two of them,
 * while generation_config.json has the whole list. */
static bool ends_turn(pj_gguf_text text)
{
    static const char *const names[] = {"<|eot_id|>", "<|eom_id|>",    "<|eot|>", "<|eom|>",
                                        "<|im_end|>", "<|endoftext|>", "<|end|>"};
    size_t i = 0, count = sizeof names / sizeof *names;
    while (i < count && !pj_gguf_text_is(text, names[i])) i++;
    return i < count;
}

static void read_ends(reader *r, pj_model_config *c)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    enum { CONTROL = 3 };
    const pj_gguf_value *tokens = pj_gguf_find(r->gguf, "tokenizer.ggml.tokens");
    const pj_gguf_value *types = pj_gguf_find(r->gguf, "tokenizer.ggml.token_type");
    c->bos = (int32_t)gguf_config_token_id(r, "tokenizer.ggml.bos_token_id");
    if (c->bos >= (int64_t)c->vocab) c->bos = -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        gguf_config_add_eos(c, gguf_config_token_id(r, keys[i]));
    if (!tokens || !types || tokens->type != PJ_GGUF_STRING || !tokens->is_array) return;
    const unsigned char *at = tokens->data;
    for (uint64_t i = 0; i < tokens->count; i++) {
        int64_t type;
        pj_gguf_text text = pj_gguf_next_string(&at);
        if (pj_gguf_integer(types, i, &type) && type == CONTROL && ends_turn(text))
            gguf_config_add_eos(c, (int64_t)i);
    }
}

pj_status pj_gguf_config(const pj_gguf *gguf, const char *name, pj_arena *arena,
                         pj_model_config *config, pj_error *err)
{
    static void (*const parts[])(reader *, pj_model_config *) = {
        gguf_config_read_arch,
        refuse_unknown,
        gguf_config_read_sizes,
        gguf_config_read_block,
        read_multipliers,
        gguf_config_read_window,
        read_layer_sizes,
        read_gemma3n,
        gguf_config_read_rotating_layers,
        gguf_config_read_experts,
        gguf_config_read_linear_layers,
        read_hybrid_layers,
        read_rope,
        read_window_rope,
        gguf_config_read_query_scale,
        read_ends,
    };
    *config = PJ_MODEL_CONFIG_NONE;
    reader r = {.gguf = gguf, .name = name, .arena = arena, .err = err};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && r.status == PJ_OK; i++)
        parts[i](&r, config);
    return r.status;
}
