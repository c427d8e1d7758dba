/* config.json and generation_config.json: sizes, blocks and token ids. Differences between layers
 * are in config_layers.c, experts in config_experts.c, rotation in config_rope.c, quantisation in
 * config_packing.c, defaults in config_rules.c. */
#include "engine/model/config.h"

#include "base/buffer.h"
#include "engine/model/blueprint.h"
#include "engine/model/config_reader.h"
#include "engine/model/config_rules.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <string.h>

/* `architectures[0]`, or NULL. */
static const char *class_name(pj_config_reader *r)
{
    json_t *list = pj_config_get(r, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (list && !name)
        pj_config_refuse(r, PJ_E_INVALID, "architectures", "must be a list of names");
    return name;
}

/* A multimodal model: reads its text part, a nested object. */
static pj_arch enter_text_config(pj_config_reader *r, const char *name, const char *type)
{
    json_t *text = pj_config_get(r, "text_config");
    pj_arch arch = pj_arch_of_wrapper(name, type);
    if (arch == PJ_ARCH_COUNT || !json_is_object(text)) return PJ_ARCH_COUNT;
    r->outer = r->object;
    r->object = text;
    const char *own = pj_config_text(r, "model_type", NULL);
    return own ? pj_arch_of_model_type(own) : arch;
}

static void config_read_arch(pj_config_reader *r, pj_model_config *config)
{
    const char *type = pj_config_text(r, "model_type", NULL), *name = class_name(r);
    char known[PJ_ARCH_LIST_BYTES];
    if (!name && !type) pj_config_refuse(r, PJ_E_INVALID, "architectures", "is missing");
    if (r->status != PJ_OK) return;
    config->arch = name ? pj_arch_of_class(name) : pj_arch_of_model_type(type);
    if (config->arch == PJ_ARCH_COUNT) config->arch = enter_text_config(r, name, type);
    if (config->arch != PJ_ARCH_COUNT)
        snprintf(config->arch_name, sizeof config->arch_name, "%s", pj_arch_name(config->arch));
    else
        r->status = pj_fail(r->err, PJ_E_UNSUPPORTED,
                            "%s: the architecture %.60s is not supported (supported: %s)", r->name,
                            name ? name : type, pj_arch_list(known));
}

/* A size; a default of 0 means that it is required. */
static uint32_t want_size(pj_config_reader *r, const char *key, uint32_t fallback, uint32_t max)
{
    return pj_config_count(r, key, fallback ? (int64_t)fallback : -1, 1, max);
}

/* Absent: the architecture's default; null: as many as heads. */
static uint32_t want_kv_heads(pj_config_reader *r, uint32_t fallback, uint32_t heads)
{
    bool absent = !json_object_get(r->object, "num_key_value_heads");
    return pj_config_count(r, "num_key_value_heads", absent && fallback ? fallback : heads, 1,
                           PJ_MAX_HEADS);
}

/* Latent attention: one head of keys, of the latent vector and the rotated part. `head_dim`, if
 * present, is that of the rotated part. */
static void read_latent(pj_config_reader *r, pj_model_config *c)
{
    bool glm5 = c->arch == PJ_ARCH_GLM_MOE_DSA;
    bool glm = glm5 || c->arch == PJ_ARCH_GLM4_MOE_LITE;
    uint32_t query_rank = glm5 ? 2048 : glm ? 768 : 1536;
    const json_t *rank = json_object_get(r->object, "q_lora_rank");
    c->latent.rank = want_size(r, "kv_lora_rank", 512, PJ_MAX_HEAD_DIM / 2);
    c->latent.query_rank =
        json_is_null(rank) ? 0 : want_size(r, "q_lora_rank", query_rank, PJ_MAX_WIDTH);
    c->latent.plain = want_size(r, "qk_nope_head_dim", glm ? 192 : 128, PJ_MAX_HEAD_DIM / 2);
    c->latent.rotated = want_size(r, "qk_rope_head_dim", 64, PJ_MAX_HEAD_DIM / 2);
    c->latent.value = want_size(r, "v_head_dim", glm ? 256 : 128, PJ_MAX_HEAD_DIM);
    c->head_dim = c->latent.rank + c->latent.rotated;
    c->kv_heads = 1;
    if (r->status == PJ_OK && c->latent.rotated % 2 != 0)
        pj_config_refuse(r, PJ_E_INVALID, "qk_rope_head_dim", "must be even");
    if (pj_arch_has_indexer(c->arch) && !pj_config_bool(r, "rope_interleave", true))
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "rope_interleave", "false is not supported");
}

static bool has_latent(pj_arch arch)
{
    return arch == PJ_ARCH_DEEPSEEK_V2 || arch == PJ_ARCH_DEEPSEEK_V3 ||
           arch == PJ_ARCH_GLM4_MOE_LITE || pj_arch_has_indexer(arch);
}

/* LFM2: the width may be stated before two thirds of it are taken and rounded up. */
static uint32_t adjusted_width(pj_config_reader *r, const pj_model_config *c)
{
    uint32_t width = want_size(r, "block_ff_dim", c->intermediate, PJ_MAX_WIDTH);
    uint32_t multiple = pj_config_count(r, "block_multiple_of", 256, 1, PJ_MAX_WIDTH);
    double factor = pj_config_number(r, "block_ffn_dim_multiplier", 1, 1e-6, 1e6);
    if (!pj_config_bool(r, "block_auto_adjust_ff_dim", true)) return width;
    double adjusted = factor * (double)(uint32_t)(2.0 * width / 3);
    if (r->status != PJ_OK || adjusted > PJ_MAX_WIDTH || adjusted < 1) return width;
    return ((uint32_t)adjusted + multiple - 1) / multiple * multiple;
}

/* Mamba-2: neither attention nor feed-forward blocks. Its heads are those of the scan. */
static void read_scan_alone(pj_config_reader *r, pj_model_config *c)
{
    const pj_config_rules *rules = pj_config_rules_get(c->arch);
    c->hidden = want_size(r, "hidden_size", rules->hidden, PJ_MAX_WIDTH);
    c->layers = want_size(r, "num_hidden_layers", rules->layers, PJ_MAX_LAYERS);
    c->heads = c->kv_heads = want_size(r, "num_heads", rules->heads, PJ_MAX_HEADS);
    c->head_dim = want_size(r, "head_dim", rules->head_dim, PJ_MAX_DELTA_DIM);
    c->vocab = want_size(r, "vocab_size", rules->vocab, PJ_MAX_VOCAB);
    c->context = want_size(r, "max_position_embeddings", rules->context, PJ_MAX_CONTEXT);
}

static void config_read_sizes(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    if (config->arch == PJ_ARCH_MAMBA2) {
        read_scan_alone(r, config);
        return;
    }
    config->hidden = want_size(r, "hidden_size", rules->hidden, PJ_MAX_WIDTH);
    config->layers = config->arch == PJ_ARCH_NEMOTRON_H
                         ? pj_config_count_kinds(r)
                         : want_size(r, "num_hidden_layers", rules->layers, PJ_MAX_LAYERS);
    config->heads = want_size(r, "num_attention_heads", rules->heads, PJ_MAX_HEADS);
    config->kv_heads = want_kv_heads(r, rules->kv_heads, config->heads);
    config->intermediate =
        pj_config_widths(r, config)
            ? config->layer_width[0]
            : want_size(r, "intermediate_size", rules->intermediate, PJ_MAX_WIDTH);
    if (config->arch == PJ_ARCH_GRANITE_HYBRID) /* the other width is that of experts */
        config->intermediate =
            want_size(r, "shared_intermediate_size", config->intermediate, PJ_MAX_WIDTH);
    if (config->arch == PJ_ARCH_LLAMA4) /* likewise: config_experts.c */
        config->intermediate = want_size(r, "intermediate_size_mlp", 16384, PJ_MAX_WIDTH);
    if (config->arch == PJ_ARCH_LFM2) config->intermediate = adjusted_width(r, config);
    config->vocab = want_size(r, "vocab_size", rules->vocab, PJ_MAX_VOCAB);
    config->context = want_size(r, "max_position_embeddings", rules->context, PJ_MAX_CONTEXT);
    if (r->status != PJ_OK) return;
    if (has_latent(config->arch)) {
        read_latent(r, config);
        if (pj_arch_has_indexer(config->arch)) pj_config_read_indexer(r, config);
        return;
    }
    if (config->heads % config->kv_heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "num_attention_heads",
                         "is not a multiple of num_key_value_heads");
    bool absent = !json_object_get(r->object, "head_dim");
    uint32_t head_dim =
        absent && rules->head_dim ? rules->head_dim : config->hidden / config->heads;
    if (!pj_config_get(r, "head_dim") && !(absent && rules->head_dim) &&
        config->hidden % config->heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "hidden_size",
                         "is not a multiple of num_attention_heads");
    config->head_dim = pj_config_count(r, "head_dim", head_dim, 1, PJ_MAX_HEAD_DIM);
}

static void read_activation(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    const char *key = config->arch == PJ_ARCH_NEMOTRON_H ? "mlp_hidden_act"
                      : rules->activation_in_gemma_key   ? "hidden_activation"
                                                         : "hidden_act";
    const char *name = pj_config_text(r, key, rules->activation);
    bool gelu = strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0;
    bool silu = strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0;
    config->gelu = gelu;
    /* each with the blocks that its architecture has */
    config->relu2 = (config->arch == PJ_ARCH_BITNET || config->arch == PJ_ARCH_NEMOTRON_H) &&
                    strcmp(name, "relu2") == 0;
    config->xielu = config->arch == PJ_ARCH_APERTUS && strcmp(name, "xielu") == 0;
    if (gelu || silu || config->relu2 || config->xielu) return;
    char problem[128];
    snprintf(problem, sizeof problem,
             "%.40s is not supported (silu, gelu_new and gelu_pytorch_tanh are)", name);
    pj_config_refuse(r, PJ_E_UNSUPPORTED, key, problem);
}

static void config_read_block(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    pj_arch arch = config->arch;
    bool phi = arch == PJ_ARCH_PHI, layer_norm = pj_blueprint_get(arch)->norm == PJ_NORM_LAYER;
    config->norm_eps =
        pj_config_number(r,
                         arch == PJ_ARCH_NEMOTRON_H || arch == PJ_ARCH_MAMBA2 ? "layer_norm_epsilon"
                         : layer_norm && arch != PJ_ARCH_PHIMOE               ? "layer_norm_eps"
                         : pj_arch_is_lfm2(arch)                              ? "norm_eps"
                                                                              : "rms_norm_eps",
                         rules->eps, 1e-20, 1);
    json_t *tied = pj_config_get_any(r, "tie_word_embeddings");
    config->tied_head = tied ? json_is_true(tied) : rules->tied;
    bool ernie = arch == PJ_ARCH_ERNIE4_5 || arch == PJ_ARCH_ERNIE4_5_MOE;
    config->attention_bias =
        phi || pj_config_bool(r, ernie ? "use_bias" : "attention_bias", rules->attention_bias);
    config->mlp_bias = phi || pj_config_bool(r, ernie ? "use_bias" : "mlp_bias", false);
    config->out_bias = pj_config_bool(r, "attention_out_bias", false);
    config->head_bias =
        pj_config_bool(r, arch == PJ_ARCH_ERNIE4_5_MOE ? "use_bias" : "lm_head_bias", false);
    config->qkv_bias = phi || arch == PJ_ARCH_QWEN2 ||
                       (arch == PJ_ARCH_QWEN2_MOE && pj_config_bool(r, "qkv_bias", true));
    bool normed = pj_config_bool(r, "qk_layernorm", false);
    if (phi) config->without_qk_norm = !normed;
    if (normed && !phi)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "qk_layernorm", "true is not supported");
    /* the smaller GLM-4.5 has none */
    if (arch == PJ_ARCH_GLM4_MOE || arch == PJ_ARCH_LLAMA4)
        config->without_qk_norm = !pj_config_bool(r, "use_qk_norm", arch == PJ_ARCH_LLAMA4);
    read_activation(r, config);
}

/* A list of factors; absent: all 1. */
static void read_factors(pj_config_reader *r, const char *key, double *factors, size_t count)
{
    json_t *list = pj_config_get(r, key);
    for (size_t i = 0; list && i < count; i++) {
        double factor = json_number_value(json_array_get(list, i));
        if (json_array_size(list) != count || !(factor >= 1e-6 && factor <= 1e6)) {
            pj_config_refuse(r, PJ_E_INVALID, key, "must list a positive factor for each part");
            return;
        }
        factors[i] = factor;
    }
}

/* Falcon-H1: one factor for keys is one for scores. */
static void read_falcon_multipliers(pj_config_reader *r, pj_model_config *c)
{
    enum { MOST = 1000000 };
    pj_multipliers *m = &c->multipliers;
    double mlp[2] = {1, 1};
    c->embedding_scale = pj_config_number(r, "embedding_multiplier", 1, 1e-6, MOST);
    c->logit_scale = pj_config_number(r, "lm_head_multiplier", 1, 1e-6, MOST);
    c->score_scale = pj_config_number(r, "key_multiplier", 1, 1e-6, MOST) / sqrt(c->head_dim);
    m->attention_in = pj_config_number(r, "attention_in_multiplier", 1, 1e-6, MOST);
    m->attention_out = pj_config_number(r, "attention_out_multiplier", 1, 1e-6, MOST);
    m->ssm_in = pj_config_number(r, "ssm_in_multiplier", 1, 1e-6, MOST);
    m->ssm_out = pj_config_number(r, "ssm_out_multiplier", 1, 1e-6, MOST);
    read_factors(r, "mlp_multipliers", mlp, 2);
    read_factors(r, "ssm_multipliers", m->ssm, 5);
    m->gate = mlp[0];
    m->down = mlp[1];
}

/* Scale factors and caps that only some architectures have. */
static void config_read_multipliers(pj_config_reader *r, pj_model_config *c)
{
    enum { MOST = 1000000 };
    if (pj_arch_is_granite(c->arch)) {
        c->embedding_scale = pj_config_number(r, "embedding_multiplier", 1, 1e-6, MOST);
        c->residual_scale = pj_config_number(r, "residual_multiplier", 1, 1e-6, MOST);
        c->score_scale = pj_config_number(r, "attention_multiplier", 1, 1e-6, MOST);
        c->logit_scale = 1 / pj_config_number(r, "logits_scaling", 1, 1e-6, MOST);
    }
    if (c->arch == PJ_ARCH_FALCON_H1) read_falcon_multipliers(r, c);
    if (c->arch == PJ_ARCH_COHERE2)
        c->logit_scale = pj_config_number(r, "logit_scale", 0.0625, 1e-6, MOST);
    bool normed = c->arch == PJ_ARCH_GEMMA4 || c->arch == PJ_ARCH_GEMMA3N;
    if (c->arch != PJ_ARCH_GEMMA2 && c->arch != PJ_ARCH_GEMMA3 && !normed) return;
    bool capped = c->arch == PJ_ARCH_GEMMA2;
    bool capped_logits = capped || c->arch == PJ_ARCH_GEMMA3N;
    bool scores_silent = !json_object_get(r->object, "attn_logit_softcapping");
    bool logits_silent = !json_object_get(r->object, "final_logit_softcapping");
    c->embedding_scale = sqrt(c->hidden);
    c->score_scale = 1; /* queries have a norm of their own */
    if (!normed)
        c->score_scale = 1 / sqrt(pj_config_number(r, "query_pre_attn_scalar", 256, 1e-6, MOST));
    if (capped) /* Gemma 3 configs have the field, but the model ignores it */
        c->attention_softcap =
            pj_config_number(r, "attn_logit_softcapping", scores_silent ? 50 : 0, 1e-6, MOST);
    c->logit_softcap = pj_config_number(r, "final_logit_softcapping",
                                        capped_logits && logits_silent ? 30 : 0, 1e-6, MOST);
    /* "vision" does not affect text */
    const json_t *both_ways = pj_config_get(r, "use_bidirectional_attention");
    const char *what = json_string_value(both_ways);
    if (json_is_true(both_ways) || (what && strcmp(what, "all") == 0))
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "use_bidirectional_attention", "is not supported");
}

static void config_add_eos(pj_config_reader *r, pj_model_config *config, json_t *value)
{
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id > INT32_MAX || id < -1) {
        pj_config_refuse(r, PJ_E_INVALID, "eos_token_id", "must be a token id or a list of them");
        return;
    }
    if (id < 0) return;
    for (uint32_t i = 0; i < config->eos_count; i++)
        if (config->eos[i] == id) return;
    if (config->eos_count == PJ_MAX_EOS)
        pj_config_refuse(r, PJ_E_INVALID, "eos_token_id", "has too many");
    else
        config->eos[config->eos_count++] = (int32_t)id;
}

static void read_eos(pj_config_reader *r, pj_model_config *config)
{
    json_t *value = pj_config_get_any(r, "eos_token_id"), *item;
    size_t i;
    if (!value) return;
    if (json_is_array(value))
        json_array_foreach(value, i, item) config_add_eos(r, config, item);
    else
        config_add_eos(r, config, value);
}

static void read_bos(pj_config_reader *r, pj_model_config *config)
{
    json_t *value = pj_config_get_any(r, "bos_token_id");
    config->bos = -1;
    if (!value) return;
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < -1 || id > INT32_MAX)
        pj_config_refuse(r, PJ_E_INVALID, "bos_token_id", "must be a token id");
    else
        config->bos = (int32_t)id;
}

static void read_dtype_hint(pj_config_reader *r, pj_model_config *config)
{
    const char *name = json_string_value(pj_config_get_any(r, "dtype"));
    if (!name) name = json_string_value(pj_config_get_any(r, "torch_dtype"));
    if (!name) name = "";
    const char *dot = strrchr(name, '.'); /* "torch.bfloat16" */
    snprintf(config->dtype_hint, sizeof config->dtype_hint, "%.15s", dot ? dot + 1 : name);
}

/* Python writes infinity as a bare word, which is no JSON: a copy has what newer files have. */
static void spell_infinity(const char *text, size_t bytes, pj_buffer *copy)
{
    static const char word[] = "Infinity", object[] = "{\"__float__\":\"Infinity\"}";
    size_t length = sizeof word - 1;
    bool quoted = false;
    for (size_t i = 0; i < bytes;) {
        bool bare = !quoted && bytes - i >= length && memcmp(text + i, word, length) == 0;
        size_t taken = bare ? length : quoted && text[i] == '\\' && i + 1 < bytes ? 2 : 1;
        quoted ^= taken == 1 && text[i] == '"';
        pj_buffer_append(copy, bare ? object : text + i, bare ? sizeof object - 1 : taken);
        i += taken;
    }
}

/* Parses the object in `text`. json_decref when done. */
static json_t *load_object(const char *text, size_t bytes, const char *name, pj_error *err)
{
    json_error_t where;
    pj_buffer copy;
    pj_buffer_init(&copy, 4 * bytes + 1);
    spell_infinity(text, bytes, &copy);
    json_t *object = json_loadb(pj_buffer_get(&copy), copy.length, 0, &where);
    pj_buffer_fini(&copy);
    if (json_is_object(object)) return object;
    if (object)
        pj_fail(err, PJ_E_INVALID, "%s does not hold a JSON object", name);
    else
        pj_fail(err, PJ_E_INVALID, "%s is not valid JSON: %s (line %d)", name, where.text,
                where.line);
    json_decref(object);
    return NULL;
}

pj_status pj_config_parse(const char *text, size_t bytes, const char *name, pj_arena *arena,
                          pj_model_config *config, pj_error *err)
{
    static void (*const parts[])(pj_config_reader *, pj_model_config *) = {
        config_read_arch,
        config_read_sizes,
        config_read_block,
        config_read_multipliers,
        pj_config_read_layers,
        pj_config_read_rope,
        pj_config_read_experts,
        read_eos,
        read_bos,
        read_dtype_hint,
    };
    *config = PJ_MODEL_CONFIG_NONE;
    json_t *object = load_object(text, bytes, name, err);
    if (!object) return PJ_E_INVALID;
    pj_config_reader r = {
        .object = object, .name = name, .arena = arena, .err = err, .status = PJ_OK};
    pj_config_read_packing(&r, config);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && r.status == PJ_OK; i++)
        parts[i](&r, config);
    json_decref(object);
    return r.status;
}

pj_status pj_generation_config_parse(const char *text, size_t bytes, const char *name,
                                     pj_model_config *config, pj_generation_config *generation,
                                     pj_error *err)
{
    json_t *object = load_object(text, bytes, name, err);
    *generation = PJ_GENERATION_CONFIG_NONE;
    if (!object) return PJ_E_INVALID;
    pj_config_reader r = {.object = object, .name = name, .err = err, .status = PJ_OK};
    generation->temperature = pj_config_number(&r, "temperature", NAN, 0, 1e6);
    generation->top_p = pj_config_number(&r, "top_p", NAN, 0, 1);
    generation->min_p = pj_config_number(&r, "min_p", NAN, 0, 1);
    generation->repetition_penalty = pj_config_number(&r, "repetition_penalty", NAN, 1e-6, 1e6);
    generation->top_k = pj_config_count(&r, "top_k", 0, 0, INT32_MAX);
    generation->has_do_sample = pj_config_get(&r, "do_sample") != NULL;
    generation->do_sample = pj_config_bool(&r, "do_sample", false);
    read_eos(&r, config);
    json_decref(object);
    return r.status;
}
