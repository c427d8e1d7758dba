/*
 * config.json and generation_config.json. Every field goes through one of the `want_*` readers,
 * which check type and range and keep the first complaint; so the code below reads as the list of
 * what the formats call things. Both generations of the format are read: `rope_theta` with
 * `rope_scaling`, and `rope_parameters`.
 */
#include "llm/config.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* A JSON object being read, and the first thing that was wrong with it. */
typedef struct reader {
    json_t *object;
    const char *name; /* the file */
    pj_arena *arena;
    pj_error *err;
    pj_status status;
} reader;

static pj_status refuse(reader *r, pj_status status, const char *key, const char *problem)
{
    if (r->status != PJ_OK) return r->status;
    return r->status = pj_fail(r->err, status, "%s: %s %s", r->name, key, problem);
}

/* The value, or NULL when it is absent or null. */
static json_t *get(const reader *r, const char *key)
{
    json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

/* `fallback` < 0: the field must be there. */
static uint32_t want_count(reader *r, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    json_t *value = get(r, key);
    if (!value && fallback >= 0) return (uint32_t)fallback;
    if (!value) {
        refuse(r, PJ_E_INVALID, key, "is missing");
        return 0;
    }
    if (!json_is_integer(value)) {
        refuse(r, PJ_E_INVALID, key, "must be a whole number");
        return 0;
    }
    int64_t number = json_integer_value(value);
    if (number < min || number > max) {
        char problem[96];
        snprintf(problem, sizeof problem, "is %lld, must be between %lld and %lld",
                 (long long)number, (long long)min, (long long)max);
        refuse(r, PJ_E_INVALID, key, problem);
        return 0;
    }
    return (uint32_t)number;
}

/* `fallback` may be NAN for "not given"; min and max are inclusive. */
static double want_number(reader *r, const char *key, double fallback, double min, double max)
{
    json_t *value = get(r, key);
    if (!value) return fallback;
    double number = json_number_value(value);
    if (!json_is_number(value)) {
        refuse(r, PJ_E_INVALID, key, "must be a number");
        return fallback;
    }
    if (!(number >= min && number <= max)) {
        char problem[96];
        snprintf(problem, sizeof problem, "is %g, must be between %g and %g", number, min, max);
        refuse(r, PJ_E_INVALID, key, problem);
        return fallback;
    }
    return number;
}

static double need_number(reader *r, const char *key, double min, double max)
{
    if (!get(r, key)) refuse(r, PJ_E_INVALID, key, "is missing");
    return want_number(r, key, min, min, max);
}

static bool want_bool(reader *r, const char *key, bool fallback)
{
    json_t *value = get(r, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) refuse(r, PJ_E_INVALID, key, "must be true or false");
    return json_is_true(value);
}

static const char *want_text(reader *r, const char *key, const char *fallback)
{
    json_t *value = get(r, key);
    if (!value) return fallback;
    if (!json_is_string(value)) {
        refuse(r, PJ_E_INVALID, key, "must be a string");
        return fallback;
    }
    return json_string_value(value);
}

static void read_arch(reader *r, pj_model_config *config)
{
    const char *type = want_text(r, "model_type", NULL), *name = NULL;
    json_t *list = get(r, "architectures");
    if (list) {
        name = json_string_value(json_array_get(list, 0));
        if (!name) refuse(r, PJ_E_INVALID, "architectures", "must be a list of names");
    }
    if (!name && !type) refuse(r, PJ_E_INVALID, "architectures", "is missing");
    if (r->status != PJ_OK) return;
    config->arch = name ? pj_arch_of_class(name) : pj_arch_of_model_type(type);
    if (config->arch != PJ_ARCH_COUNT) {
        snprintf(config->arch_name, sizeof config->arch_name, "%s", pj_arch_name(config->arch));
        return;
    }
    char known[PJ_ARCH_LIST_BYTES];
    r->status = pj_fail(r->err, PJ_E_UNSUPPORTED,
                        "%s: the architecture %.60s is not supported (supported: %s)", r->name,
                        name ? name : type, pj_arch_list(known));
}

static bool is_one_of(pj_arch arch, pj_arch a, pj_arch b)
{
    return arch == a || arch == b;
}

static void refuse_quantised(reader *r)
{
    json_t *quantised = get(r, "quantization_config");
    if (!quantised) return;
    const char *method = json_string_value(json_object_get(quantised, "quant_method"));
    char problem[160];
    snprintf(problem, sizeof problem,
             "says the checkpoint is quantised (%.40s); use the original weights, with --dtype to "
             "quantise",
             method ? method : "method not named");
    refuse(r, PJ_E_UNSUPPORTED, "quantization_config", problem);
}

static void read_sizes(reader *r, pj_model_config *config)
{
    config->hidden = want_count(r, "hidden_size", -1, 1, PJ_MAX_WIDTH);
    config->layers = want_count(r, "num_hidden_layers", -1, 1, PJ_MAX_LAYERS);
    config->heads = want_count(r, "num_attention_heads", -1, 1, PJ_MAX_HEADS);
    config->kv_heads = want_count(r, "num_key_value_heads", config->heads, 1, PJ_MAX_HEADS);
    config->intermediate = want_count(r, "intermediate_size", -1, 1, PJ_MAX_WIDTH);
    config->vocab = want_count(r, "vocab_size", -1, 1, PJ_MAX_VOCAB);
    config->context = want_count(r, "max_position_embeddings", -1, 1, PJ_MAX_CONTEXT);
    if (r->status != PJ_OK) return;
    if (config->heads % config->kv_heads != 0)
        refuse(r, PJ_E_INVALID, "num_attention_heads", "is not a multiple of num_key_value_heads");
    if (!get(r, "head_dim") && config->hidden % config->heads != 0)
        refuse(r, PJ_E_INVALID, "hidden_size", "is not a multiple of num_attention_heads");
    config->head_dim =
        want_count(r, "head_dim", config->hidden / config->heads, 1, PJ_MAX_HEAD_DIM);
}

static void read_activation(reader *r, pj_model_config *config)
{
    bool phi = config->arch == PJ_ARCH_PHI;
    const char *name = want_text(r, "hidden_act", phi ? "gelu_new" : "silu");
    bool gelu = strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0;
    bool silu = strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0;
    config->gelu = gelu;
    if (phi ? gelu : silu) return;
    char problem[128];
    snprintf(problem, sizeof problem, "%.40s is not supported for this architecture (it has %s)",
             name, phi ? "gelu_new" : "silu");
    refuse(r, PJ_E_UNSUPPORTED, "hidden_act", problem);
}

static void read_block(reader *r, pj_model_config *config)
{
    pj_arch arch = config->arch;
    bool phi = arch == PJ_ARCH_PHI;
    bool coarse = phi || is_one_of(arch, PJ_ARCH_PHI3, PJ_ARCH_MIXTRAL);
    config->norm_eps =
        want_number(r, phi ? "layer_norm_eps" : "rms_norm_eps", coarse ? 1e-5 : 1e-6, 1e-20, 1);
    config->initializer_range = want_number(r, "initializer_range", 0.02, 0, 100);
    config->tied_head = want_bool(r, "tie_word_embeddings", false);
    config->attention_bias = phi || want_bool(r, "attention_bias", false);
    config->mlp_bias = phi || want_bool(r, "mlp_bias", false);
    config->qkv_bias = phi || arch == PJ_ARCH_QWEN2 ||
                       (arch == PJ_ARCH_QWEN2_MOE && want_bool(r, "qkv_bias", true));
    if (want_bool(r, "qk_layernorm", false))
        refuse(r, PJ_E_UNSUPPORTED, "qk_layernorm", "true is not supported");
    read_activation(r, config);
}

/* Where no list names the attention of each layer: the dense Qwens begin the window at a layer,
 * Qwen2-MoE has it in every second one before that, the others everywhere. */
static bool is_windowed(const pj_model_config *config, uint32_t layer, uint32_t border)
{
    if (config->arch == PJ_ARCH_QWEN2_MOE) return layer % 2 == 0 && layer < border;
    return layer >= border;
}

static void read_windowed_layer(reader *r, pj_model_config *config, json_t *types, uint32_t layer,
                                uint32_t border)
{
    config->layer_is_windowed[layer] = is_windowed(config, layer, border);
    if (!types) return;
    const char *name = json_string_value(json_array_get(types, layer));
    bool sliding = name && strcmp(name, "sliding_attention") == 0;
    if (!sliding && !(name && strcmp(name, "full_attention") == 0))
        refuse(r, PJ_E_UNSUPPORTED, "layer_types", "holds an attention that is not supported");
    config->layer_is_windowed[layer] = sliding;
}

static void read_windowed_layers(reader *r, pj_model_config *config)
{
    json_t *types = get(r, "layer_types");
    uint32_t border = want_count(r, "max_window_layers", 28, 0, PJ_MAX_LAYERS);
    bool any = false;
    if (types && (!json_is_array(types) || json_array_size(types) != config->layers)) {
        refuse(r, PJ_E_INVALID, "layer_types", "must name every layer's attention");
        return;
    }
    config->layer_is_windowed =
        pj_arena_alloc(r->arena, config->layers, sizeof *config->layer_is_windowed);
    if (!config->layer_is_windowed) {
        if (r->status == PJ_OK) r->status = pj_fail_memory(r->err, r->name);
        return;
    }
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        read_windowed_layer(r, config, types, layer, border);
        any |= config->layer_is_windowed[layer];
    }
    if (!any) config->window = 0;
}

/* Layers differ in Qwen2, Qwen3 and Qwen2-MoE, and in a Mistral that lists them (Ministral);
 * elsewhere a window covers all. */
static void read_window(reader *r, pj_model_config *config)
{
    pj_arch arch = config->arch;
    bool by_layer = arch == PJ_ARCH_QWEN2_MOE || is_one_of(arch, PJ_ARCH_QWEN2, PJ_ARCH_QWEN3);
    bool qwen = by_layer || arch == PJ_ARCH_QWEN3_MOE;
    if (arch == PJ_ARCH_MISTRAL && get(r, "layer_types")) by_layer = true;
    bool used = !qwen || want_bool(r, "use_sliding_window", false);
    /* Not null but absent, Mistral's and the Qwens' is 4096. */
    bool silent = !json_object_get(r->object, "sliding_window");
    uint32_t absent = silent && (qwen || arch == PJ_ARCH_MISTRAL) ? 4096 : 0;
    uint32_t window = want_count(r, "sliding_window", absent, 0, PJ_MAX_CONTEXT);
    bool has = !is_one_of(arch, PJ_ARCH_LLAMA, PJ_ARCH_PHI);
    config->window = used && has ? window : 0;
    if (by_layer && config->window > 0) read_windowed_layers(r, config);
}

static const double *read_factors(reader *r, const char *key, uint32_t count)
{
    json_t *list = get(r, key), *item;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != count) {
        char problem[80];
        snprintf(problem, sizeof problem, "must be a list of %u numbers", count);
        refuse(r, PJ_E_INVALID, key, problem);
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
            refuse(r, PJ_E_INVALID, key, "must hold positive numbers");
    }
    return factors;
}

static bool find_rope_type(const char *name, pj_rope_type *type)
{
    static const struct {
        const char *name;
        pj_rope_type type;
    } table[] = {
        {"default", PJ_ROPE_DEFAULT}, {"linear", PJ_ROPE_LINEAR}, {"dynamic", PJ_ROPE_DYNAMIC},
        {"llama3", PJ_ROPE_LLAMA3},   {"yarn", PJ_ROPE_YARN},     {"longrope", PJ_ROPE_LONGROPE},
        {"su", PJ_ROPE_LONGROPE},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) != 0) continue;
        *type = table[i].type;
        return true;
    }
    return false;
}

/* How many times longer the context is than the one that the model was first trained on. */
static double extension(const pj_model_config *config)
{
    return (double)config->context / config->rope.original_context;
}

/* The numbers of a scaling; r->object is rope_scaling or rope_parameters. The original context may
 * stand in either; beside the scaling it counts first. */
static void read_scaling(reader *r, pj_model_config *config)
{
    pj_rope_config *rope = &config->rope;
    uint32_t inner = want_count(r, "original_max_position_embeddings", 0, 1, PJ_MAX_CONTEXT);
    if (rope->original_context == 0) rope->original_context = inner;
    rope->attention_factor = want_number(r, "attention_factor", NAN, 1e-6, 1e6);
    if (rope->type == PJ_ROPE_DEFAULT) return;
    if (rope->type == PJ_ROPE_LONGROPE) {
        if (config->arch == PJ_ARCH_PHI3 && rope->original_context == 0)
            rope->original_context = 4096;
        if (rope->original_context == 0) rope->original_context = config->context;
        rope->factor = want_number(r, "factor", extension(config), 1e-6, 1e6);
        rope->factor_count = rope->dims / 2;
        rope->short_factor = read_factors(r, "short_factor", rope->factor_count);
        rope->long_factor = read_factors(r, "long_factor", rope->factor_count);
        return;
    }
    if (rope->type == PJ_ROPE_YARN && rope->original_context)
        rope->factor = want_number(r, "factor", extension(config), 1e-6, 1e6);
    else
        rope->factor = need_number(r, "factor", 1e-6, 1e6);
    if (rope->type == PJ_ROPE_LLAMA3) {
        rope->low_freq_factor = need_number(r, "low_freq_factor", 1e-6, 1e6);
        rope->high_freq_factor = need_number(r, "high_freq_factor", 1e-6, 1e6);
        if (rope->original_context == 0)
            refuse(r, PJ_E_INVALID, "original_max_position_embeddings", "is missing");
        if (rope->high_freq_factor <= rope->low_freq_factor)
            refuse(r, PJ_E_INVALID, "high_freq_factor", "must be above low_freq_factor");
    } else if (rope->type == PJ_ROPE_YARN) {
        rope->beta_fast = want_number(r, "beta_fast", 32, 1e-6, 1e6);
        rope->beta_slow = want_number(r, "beta_slow", 1, 1e-6, 1e6);
        rope->truncate = want_bool(r, "truncate", true);
        rope->mscale = want_number(r, "mscale", NAN, 0, 1e6);
        rope->mscale_all_dim = want_number(r, "mscale_all_dim", NAN, 0, 1e6);
        if (rope->original_context == 0) rope->original_context = config->context;
    }
}

/* `rope_parameters` may be one object or one for each kind of layer. */
static json_t *rope_object(reader *r)
{
    json_t *rope = get(r, "rope_parameters");
    if (!rope) rope = get(r, "rope_scaling");
    json_t *full = json_object_get(rope, "full_attention");
    json_t *sliding = json_object_get(rope, "sliding_attention");
    if (rope && !json_is_object(rope)) refuse(r, PJ_E_INVALID, "rope_scaling", "must be an object");
    if (full && sliding && !json_equal(full, sliding))
        refuse(r, PJ_E_UNSUPPORTED, "rope_parameters", "of different layers differ");
    return full ? full : sliding ? sliding : rope;
}

static void read_rope(reader *r, pj_model_config *config)
{
    pj_rope_config *rope = &config->rope;
    json_t *object = rope_object(r);
    double theta = config->arch == PJ_ARCH_MIXTRAL ? 1e6 : 1e4;
    bool partly = is_one_of(config->arch, PJ_ARCH_PHI, PJ_ARCH_PHI3); /* others rotate all */
    double partial = config->arch == PJ_ARCH_PHI ? 0.5 : 1;
    rope->theta = want_number(r, "rope_theta", theta, 1, 1e15);
    if (partly) partial = want_number(r, "partial_rotary_factor", partial, 1e-6, 1);
    rope->original_context =
        want_count(r, "original_max_position_embeddings", 0, 1, PJ_MAX_CONTEXT);
    rope->attention_factor = rope->mscale = rope->mscale_all_dim = NAN;
    rope->factor = 1;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    rope->truncate = true;
    reader inner = *r;
    inner.object = object;
    if (object) {
        rope->theta = want_number(&inner, "rope_theta", rope->theta, 1, 1e15);
        if (partly) partial = want_number(&inner, "partial_rotary_factor", partial, 1e-6, 1);
    }
    rope->dims = (uint32_t)(config->head_dim * partial);
    if (rope->dims < 2 || rope->dims % 2 != 0)
        refuse(&inner, PJ_E_INVALID, "head_dim", "times partial_rotary_factor must be even");
    if (object && inner.status == PJ_OK) {
        const char *name = want_text(&inner, "type", "default");
        name = want_text(&inner, "rope_type", name);
        char problem[128];
        snprintf(problem, sizeof problem,
                 "%.40s is not supported (default, linear, dynamic, llama3, yarn, longrope are)",
                 name);
        if (!find_rope_type(name, &rope->type))
            refuse(&inner, PJ_E_UNSUPPORTED, "rope_type", problem);
        /* Phi-3's first releases wrote "yarn" for what is longrope. */
        if (config->arch == PJ_ARCH_PHI3 && rope->type == PJ_ROPE_YARN)
            rope->type = PJ_ROPE_LONGROPE;
        read_scaling(&inner, config);
    }
    r->status = inner.status;
}

static void read_dense_layers(reader *r, pj_model_config *config)
{
    uint32_t step = want_count(r, "decoder_sparse_step", 1, 1, PJ_MAX_LAYERS + 1);
    json_t *only = get(r, "mlp_only_layers"), *item;
    size_t i;
    if (only && !json_is_array(only)) refuse(r, PJ_E_INVALID, "mlp_only_layers", "must be a list");
    if (r->status != PJ_OK || (step == 1 && json_array_size(only) == 0)) return;
    config->layer_is_dense =
        pj_arena_alloc(r->arena, config->layers, sizeof *config->layer_is_dense);
    if (!config->layer_is_dense) {
        r->status = pj_fail_memory(r->err, r->name);
        return;
    }
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->layer_is_dense[layer] = (layer + 1) % step != 0;
    json_array_foreach(only, i, item)
    {
        int64_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0)
            refuse(r, PJ_E_INVALID, "mlp_only_layers", "must hold layer numbers");
        else if (layer < config->layers)
            config->layer_is_dense[layer] = true;
    }
}

static void read_experts(reader *r, pj_model_config *config)
{
    pj_arch arch = config->arch;
    bool mixtral = arch == PJ_ARCH_MIXTRAL;
    if (!mixtral && arch != PJ_ARCH_QWEN2_MOE && arch != PJ_ARCH_QWEN3_MOE) return;
    const char *key = mixtral || !get(r, "num_experts") ? "num_local_experts" : "num_experts";
    config->experts = want_count(r, key, mixtral ? 8 : -1, 1, PJ_MAX_EXPERTS);
    config->experts_per_token =
        want_count(r, "num_experts_per_tok", mixtral ? 2 : -1, 1, config->experts);
    config->expert_intermediate = mixtral
                                      ? config->intermediate
                                      : want_count(r, "moe_intermediate_size", -1, 1, PJ_MAX_WIDTH);
    if (arch == PJ_ARCH_QWEN2_MOE)
        config->shared_intermediate =
            want_count(r, "shared_expert_intermediate_size", -1, 1, PJ_MAX_WIDTH);
    config->norm_topk = mixtral || want_bool(r, "norm_topk_prob", false);
    if (!mixtral) read_dense_layers(r, config);
}

static void add_eos(reader *r, pj_model_config *config, json_t *value)
{
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id > INT32_MAX || id < -1) {
        refuse(r, PJ_E_INVALID, "eos_token_id", "must be a token id or a list of them");
        return;
    }
    if (id < 0) return;
    for (uint32_t i = 0; i < config->eos_count; i++)
        if (config->eos[i] == id) return;
    if (config->eos_count == PJ_MAX_EOS)
        refuse(r, PJ_E_INVALID, "eos_token_id", "has too many");
    else
        config->eos[config->eos_count++] = (int32_t)id;
}

static void read_eos(reader *r, pj_model_config *config)
{
    json_t *value = get(r, "eos_token_id"), *item;
    size_t i;
    if (!value) return;
    if (json_is_array(value))
        json_array_foreach(value, i, item) add_eos(r, config, item);
    else
        add_eos(r, config, value);
}

static void read_bos(reader *r, pj_model_config *config)
{
    json_t *value = get(r, "bos_token_id");
    config->bos = -1;
    if (!value) return;
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < -1 || id > INT32_MAX)
        refuse(r, PJ_E_INVALID, "bos_token_id", "must be a token id");
    else
        config->bos = (int32_t)id;
}

static void read_dtype_hint(reader *r, pj_model_config *config)
{
    const char *name = want_text(r, "dtype", want_text(r, "torch_dtype", ""));
    const char *dot = strrchr(name, '.'); /* "torch.bfloat16" */
    snprintf(config->dtype_hint, sizeof config->dtype_hint, "%.15s", dot ? dot + 1 : name);
}

/* The object in `text`, or an error. json_decref when done. */
static json_t *load_object(const char *text, size_t bytes, const char *name, pj_error *err)
{
    json_error_t where;
    json_t *object = json_loadb(text, bytes, 0, &where);
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
    static void (*const parts[])(reader *, pj_model_config *) = {
        read_arch,    read_sizes, read_block, read_rope,       read_window,
        read_experts, read_eos,   read_bos,   read_dtype_hint,
    };
    *config = PJ_MODEL_CONFIG_NONE;
    json_t *object = load_object(text, bytes, name, err);
    if (!object) return PJ_E_INVALID;
    reader r = {.object = object, .name = name, .arena = arena, .err = err, .status = PJ_OK};
    refuse_quantised(&r);
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
    reader r = {.object = object, .name = name, .err = err, .status = PJ_OK};
    generation->temperature = want_number(&r, "temperature", NAN, 0, 1e6);
    generation->top_p = want_number(&r, "top_p", NAN, 0, 1);
    generation->min_p = want_number(&r, "min_p", NAN, 0, 1);
    generation->repetition_penalty = want_number(&r, "repetition_penalty", NAN, 1e-6, 1e6);
    generation->top_k = want_count(&r, "top_k", 0, 0, INT32_MAX);
    generation->has_do_sample = get(&r, "do_sample") != NULL;
    generation->do_sample = want_bool(&r, "do_sample", false);
    read_eos(&r, config);
    json_decref(object);
    return r.status;
}
