/* Rotary embeddings. Supports both generations of the format: `rope_theta` with `rope_scaling`, and
 * `rope_parameters`, which may be one object or one per kind of layer. */
#include "engine/model/config_reader.h"
#include "engine/model/config_rules.h"

#include <math.h>
#include <string.h>

static const double *config_rope_read_factors(pj_config_reader *r, const char *key, uint32_t count)
{
    json_t *list = pj_config_get(r, key), *item;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != count) {
        char problem[80];
        snprintf(problem, sizeof problem, "must be a list of %u numbers", count);
        pj_config_refuse(r, PJ_E_INVALID, key, problem);
        return NULL;
    }
    double *factors = pj_arena_alloc(r->arena, count, sizeof *factors);
    if (!factors) {
        if (r->status == PJ_OK) r->status = pj_fail_memory(r->err, r->name);
        return NULL;
    }
    json_array_foreach(list, i, item)
    {
        factors[i] = json_number_value(item);
        if (!json_is_number(item) || !(factors[i] > 0 && factors[i] <= 1e9))
            pj_config_refuse(r, PJ_E_INVALID, key, "must hold positive numbers");
    }
    return factors;
}

static bool find_rope_type(const char *name, pj_rope_type *type)
{
    static const struct {
        const char *name;
        pj_rope_type type;
    } table[] = {
        {"default", PJ_ROPE_DEFAULT}, {"linear", PJ_ROPE_LINEAR},
        {"dynamic", PJ_ROPE_DYNAMIC}, {"llama3", PJ_ROPE_LLAMA3},
        {"yarn", PJ_ROPE_YARN},       {"longrope", PJ_ROPE_LONGROPE},
        {"su", PJ_ROPE_LONGROPE},     {"proportional", PJ_ROPE_PROPORTIONAL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) != 0) continue;
        *type = table[i].type;
        return true;
    }
    return false;
}

/* Ratio of the context length to the original one. */
static double extension(const pj_model_config *config, const pj_rope_config *rope)
{
    return (double)config->context / rope->original_context;
}

/* Phi-3.5-MoE: transformers keeps the short factors at any length, and changes the scale alone. */
static void read_mscales(pj_config_reader *r, pj_rope_config *rope)
{
    rope->attention_factor = pj_config_need_number(r, "short_mscale", 1e-6, 1e6);
    rope->long_attention_factor = pj_config_need_number(r, "long_mscale", 1e-6, 1e6);
    rope->long_factor = rope->short_factor;
}

/* The parameters of a scaling; r->object is rope_scaling or rope_parameters. The original context
 * may be in either object; the one in the scaling takes precedence. */
static void read_scaling(pj_config_reader *r, const pj_model_config *config, pj_rope_config *rope)
{
    uint32_t inner = pj_config_count(r, "original_max_position_embeddings", 0, 1, PJ_MAX_CONTEXT);
    if (rope->original_context == 0) rope->original_context = inner;
    rope->attention_factor = pj_config_number(r, "attention_factor", NAN, 1e-6, 1e6);
    if (rope->type == PJ_ROPE_DEFAULT || rope->type == PJ_ROPE_PROPORTIONAL) return;
    /* Hunyuan calls a fixed stretching of the base dynamic */
    double alpha = pj_arch_is_hunyuan(config->arch) && rope->type == PJ_ROPE_DYNAMIC
                       ? pj_config_number(r, "alpha", 0, 0, 1e9)
                       : 0;
    if (alpha > 0) {
        rope->type = PJ_ROPE_DEFAULT;
        rope->theta *= pow(alpha, rope->dims / (rope->dims - 2.0));
        return;
    }
    if (rope->type == PJ_ROPE_LONGROPE) {
        if (config->arch == PJ_ARCH_PHI3 && rope->original_context == 0)
            rope->original_context = 4096;
        if (rope->original_context == 0) rope->original_context = config->context;
        rope->factor = pj_config_number(r, "factor", extension(config, rope), 1e-6, 1e6);
        rope->factor_count = rope->dims / 2;
        rope->short_factor = config_rope_read_factors(r, "short_factor", rope->factor_count);
        rope->long_factor = config_rope_read_factors(r, "long_factor", rope->factor_count);
        if (config->arch == PJ_ARCH_PHIMOE) read_mscales(r, rope);
        return;
    }
    if (rope->type == PJ_ROPE_YARN && rope->original_context)
        rope->factor = pj_config_number(r, "factor", extension(config, rope), 1e-6, 1e6);
    else
        rope->factor = pj_config_need_number(r, "factor", 1e-6, 1e6);
    if (rope->type == PJ_ROPE_LLAMA3) {
        rope->low_freq_factor = pj_config_need_number(r, "low_freq_factor", 1e-6, 1e6);
        rope->high_freq_factor = pj_config_need_number(r, "high_freq_factor", 1e-6, 1e6);
        if (rope->original_context == 0)
            pj_config_refuse(r, PJ_E_INVALID, "original_max_position_embeddings", "is missing");
        if (rope->high_freq_factor < rope->low_freq_factor)
            pj_config_refuse(r, PJ_E_INVALID, "high_freq_factor", "is below low_freq_factor");
    } else if (rope->type == PJ_ROPE_YARN) {
        rope->beta_fast = pj_config_number(r, "beta_fast", 32, 1e-6, 1e6);
        rope->beta_slow = pj_config_number(r, "beta_slow", 1, 1e-6, 1e6);
        rope->truncate = pj_config_bool(r, "truncate", true);
        rope->mscale = pj_config_number(r, "mscale", NAN, 0, 1e6);
        rope->mscale_all_dim = pj_config_number(r, "mscale_all_dim", NAN, 0, 1e6);
        if (rope->original_context == 0) rope->original_context = config->context;
    }
}

/* The scaling type and its parameters. */
static void config_rope_read_type(pj_config_reader *r, const pj_model_config *config,
                                  pj_rope_config *rope)
{
    const char *name = pj_config_text(r, "type", "default");
    name = pj_config_text(r, "rope_type", name);
    char problem[128];
    snprintf(
        problem, sizeof problem,
        "%.40s is not supported (default, linear, dynamic, llama3, yarn, longrope, proportional "
        "are)",
        name);
    if (!find_rope_type(name, &rope->type))
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "rope_type", problem);
    /* Early Phi-3 releases wrote "yarn" for longrope. */
    if (config->arch == PJ_ARCH_PHI3 && rope->type == PJ_ROPE_YARN) rope->type = PJ_ROPE_LONGROPE;
    read_scaling(r, config, rope);
}

/* Latent attention of DeepSeek V3 and GLM-4.7-Flash; the others' is never so. */
static bool is_by_halves(pj_config_reader *r, const pj_model_config *config)
{
    return (config->arch == PJ_ARCH_DEEPSEEK_V3 || config->arch == PJ_ARCH_GLM4_MOE_LITE) &&
           !pj_config_bool(r, "rope_interleave", true);
}

/* One rope: `object` holds its parameters, or is NULL; `theta` and `partial` are defaults. */
static void read_one(pj_config_reader *r, const pj_model_config *config, json_t *object,
                     uint32_t head_dim, double theta, double partial, pj_rope_config *rope)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    uint32_t original =
        pj_config_count(r, "original_max_position_embeddings", 0, 1, PJ_MAX_CONTEXT);
    pj_config_reader inner = *r;
    inner.object = object;
    *rope = PJ_ROPE_CONFIG_PLAIN;
    rope->theta = pj_config_number(&inner, "rope_theta", theta, 1, 1e15);
    rope->original_context = original;
    rope->neighbours = rules->neighbours && !is_by_halves(r, config);
    if (rules->partial > 0)
        partial = pj_config_number(&inner, "partial_rotary_factor", partial, 1e-6, 1);
    rope->dims = (uint32_t)(head_dim * partial);
    if (rope->dims < 2 || rope->dims % 2 != 0)
        pj_config_refuse(&inner, PJ_E_INVALID, "head_dim",
                         "times partial_rotary_factor must be even");
    if (object && inner.status == PJ_OK) config_rope_read_type(&inner, config, rope);
    if (rope->type == PJ_ROPE_PROPORTIONAL) {
        partial = pj_config_number(&inner, "partial_rotary_factor", 1, 0, 1);
        rope->factor = pj_config_number(&inner, "factor", 1, 1e-6, 1e6);
        rope->turning = (uint32_t)(partial * head_dim / 2);
    }
    r->status = inner.status;
}

/* An object of the file, or NULL. */
static json_t *object_of(pj_config_reader *r, const char *key)
{
    json_t *object = pj_config_get(r, key);
    if (object && !json_is_object(object))
        pj_config_refuse(r, PJ_E_INVALID, key, "must be an object");
    return json_is_object(object) ? object : NULL;
}

/* The parameters of a kind of layer. */
static json_t *object_of_kind(pj_config_reader *r, const json_t *both, const char *kind)
{
    json_t *object = json_object_get(both, kind);
    if (!object || json_is_null(object) || json_is_object(object)) return object;
    pj_config_refuse(r, PJ_E_INVALID, kind, "must be an object");
    return NULL;
}

/* For models whose layers all rotate alike: objects per kind of layer must then be equal. */
static json_t *common_object(pj_config_reader *r)
{
    json_t *rope = object_of(r, "rope_parameters");
    if (!rope) rope = object_of(r, "rope_scaling");
    json_t *full = object_of_kind(r, rope, "full_attention");
    json_t *sliding = object_of_kind(r, rope, "sliding_attention");
    if (full && sliding && !json_equal(full, sliding))
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "rope_parameters", "of different layers differ");
    return full ? full : sliding ? sliding : rope;
}

/* Of the first layer of a kind. */
static uint32_t head_dim_of(const pj_model_config *config, bool windowed)
{
    for (uint32_t i = 0; config->layer_is_windowed && i < config->layers; i++)
        if (config->layer_is_windowed[i] == windowed) return pj_config_head_dim(config, i);
    return config->head_dim;
}

/* One rope per kind of layer; a scaling in the older format applies to full-attention layers
 * only. */
static void read_by_kind(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    json_t *both = object_of(r, "rope_parameters"), *scaling = object_of(r, "rope_scaling");
    json_t *full = object_of_kind(r, both, "full_attention");
    double theta = pj_config_number(r, "rope_theta", rules->theta, 1, 1e15);
    double window_theta = rules->window_theta;
    if (config->arch == PJ_ARCH_GEMMA3 || config->arch == PJ_ARCH_GEMMA3N)
        window_theta = pj_config_number(r, "rope_local_base_freq", window_theta, 1, 1e15);
    theta = json_number_value(json_object_get(full, "rope_theta")) > 0
                ? json_number_value(json_object_get(full, "rope_theta"))
                : theta;
    read_one(r, config, scaling ? scaling : full, head_dim_of(config, false), theta, 1,
             &config->rope);
    read_one(r, config, object_of_kind(r, both, "sliding_attention"), head_dim_of(config, true),
             window_theta, 1, &config->window_rope);
    if (config->arch != PJ_ARCH_GEMMA4 || both) return;
    config->rope.type = PJ_ROPE_PROPORTIONAL; /* a quarter of each head */
    config->rope.turning = (uint32_t)(0.25 * head_dim_of(config, false) / 2);
}

/* Ministral 3 scales queries by position, with default parameters if the file has none. */
static void config_rope_read_query_scale(pj_config_reader *r, pj_model_config *config)
{
    json_t *object = common_object(r);
    pj_config_reader inner = *r;
    inner.object = object;
    pj_rope_config *rope = &config->rope;
    if (!object) {
        rope->type = PJ_ROPE_YARN;
        rope->theta = 1e6;
        rope->factor = 16;
        rope->original_context = 16384;
        rope->mscale = rope->mscale_all_dim = 1;
    }
    config->query_beta = pj_config_number(&inner, "llama_4_scaling_beta", object ? 0 : 0.1, 0, 1e6);
    config->query_period = rope->original_context ? rope->original_context : config->context;
    r->status = inner.status;
}

void pj_config_scale_latent(pj_model_config *c, double mscale)
{
    double factor = 1;
    if (c->rope.type == PJ_ROPE_YARN && mscale > 0 && c->rope.factor > 1)
        factor = 0.1 * mscale * log(c->rope.factor) + 1;
    c->score_scale = factor * factor / sqrt((double)c->latent.plain + c->latent.rotated);
}

void pj_config_read_rope(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    double partial = rules->partial > 0 ? rules->partial : 1;
    if (config->arch == PJ_ARCH_MAMBA2) { /* no positions */
        config->rope = PJ_ROPE_CONFIG_PLAIN;
        return;
    }
    if (rules->window_theta > 0) {
        read_by_kind(r, config);
        return;
    }
    double theta = pj_config_number(r, "rope_theta", rules->theta, 1, 1e15);
    if (rules->partial > 0)
        partial = pj_config_number(r, "partial_rotary_factor", partial, 1e-6, 1);
    uint32_t rotated = config->latent.rank ? config->latent.rotated : config->head_dim;
    read_one(r, config, common_object(r), rotated, theta, partial, &config->rope);
    if (config->arch == PJ_ARCH_APERTUS && r->status == PJ_OK && !common_object(r)) {
        config->rope.type = PJ_ROPE_LLAMA3;
        config->rope.factor = 8;
        config->rope.low_freq_factor = 1;
        config->rope.high_freq_factor = 4;
        config->rope.original_context = 8192;
    }
    if (config->latent.rank && r->status == PJ_OK)
        pj_config_scale_latent(config, config->rope.mscale_all_dim);
    if (config->arch == PJ_ARCH_MINISTRAL3 && r->status == PJ_OK)
        config_rope_read_query_scale(r, config);
}
