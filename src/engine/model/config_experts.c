/* Mixtures of experts in config.json: how many there are and how wide, which layers have them, and
 * how the router chooses. Every family has its own names for the same things. */
#include "engine/model/blueprint.h"
#include "engine/model/config_reader.h"

#include <string.h>

/* ---- layers with a dense block instead ------------------------------------------------------ */

static bool *dense_layers(pj_config_reader *r, pj_model_config *c)
{
    if (r->status == PJ_OK && !c->layer_is_dense)
        c->layer_is_dense = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_is_dense);
    if (r->status == PJ_OK && !c->layer_is_dense) r->status = pj_fail_memory(r->err, r->name);
    return r->status == PJ_OK ? c->layer_is_dense : NULL;
}

/* Qwen: all but each step-th layer, and those that are listed. */
static void read_listed_dense(pj_config_reader *r, pj_model_config *c)
{
    uint32_t step = pj_config_count(r, "decoder_sparse_step", 1, 1, PJ_MAX_LAYERS + 1);
    json_t *only = pj_config_get(r, "mlp_only_layers"), *item;
    size_t i;
    if (only && !json_is_array(only))
        pj_config_refuse(r, PJ_E_INVALID, "mlp_only_layers", "must be a list");
    if (r->status != PJ_OK || (step == 1 && json_array_size(only) == 0)) return;
    bool *dense = dense_layers(r, c);
    for (uint32_t layer = 0; dense && layer < c->layers; layer++)
        dense[layer] = (layer + 1) % step != 0;
    json_array_foreach(only, i, item)
    {
        int64_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0)
            pj_config_refuse(r, PJ_E_INVALID, "mlp_only_layers", "must hold layer numbers");
        else if (dense && layer < c->layers)
            dense[layer] = true;
    }
}

/* DeepSeek, GLM and LFM2: the first layers, and with a frequency those between the multiples of it.
 */
static void read_first_dense(pj_config_reader *r, pj_model_config *c, const char *key,
                             uint32_t fallback)
{
    uint32_t first = pj_config_count(r, key, fallback, 0, PJ_MAX_LAYERS);
    uint32_t every = pj_config_count(r, "moe_layer_freq", 1, 1, PJ_MAX_LAYERS);
    if (first == 0 && every == 1) return;
    bool *dense = dense_layers(r, c);
    for (uint32_t i = 0; dense && i < c->layers; i++) dense[i] = i < first || i % every != 0;
}

/* GLM-4.7-Flash, DeepSeek V3.2 and GLM-5: a list of the layers' kinds, or the first ones. */
static void read_kinds_of_blocks(pj_config_reader *r, pj_model_config *c, uint32_t fallback)
{
    const json_t *types = pj_config_get(r, "mlp_layer_types");
    if (!types) {
        read_first_dense(r, c, "first_k_dense_replace", fallback);
        return;
    }
    bool *dense = dense_layers(r, c);
    for (uint32_t i = 0; dense && i < c->layers; i++) {
        const char *kind = json_string_value(json_array_get(types, i));
        dense[i] = kind && strcmp(kind, "dense") == 0;
        if (!kind || (!dense[i] && strcmp(kind, "sparse") != 0))
            pj_config_refuse(r, PJ_E_INVALID, "mlp_layer_types",
                             "must say dense or sparse for every layer");
    }
}

/* Ernie: experts in each interval-th layer from a first to a last one. */
static void read_bounded_dense(pj_config_reader *r, pj_model_config *c)
{
    uint32_t first = pj_config_count(r, "moe_layer_start_index", 1, 0, PJ_MAX_LAYERS);
    uint32_t interval = pj_config_count(r, "moe_layer_interval", 1, 1, PJ_MAX_LAYERS);
    const json_t *end = pj_config_get(r, "moe_layer_end_index"); /* -1: the last */
    int64_t last = json_is_integer(end) && json_integer_value(end) >= 0 ? json_integer_value(end)
                                                                        : PJ_MAX_LAYERS;
    bool *dense = dense_layers(r, c);
    for (uint32_t i = 0; dense && i < c->layers; i++)
        dense[i] = i < first || i > last || (i + 1) % interval != 0;
}

/* Llama 4: a list of the layers with experts, or each step-th. */
static void read_listed_experts(pj_config_reader *r, pj_model_config *c)
{
    json_t *list = pj_config_get(r, "moe_layers"), *item;
    uint32_t step = pj_config_count(r, "interleave_moe_layer_step", 1, 0, PJ_MAX_LAYERS);
    bool *dense = dense_layers(r, c);
    size_t i;
    if (list && !json_is_array(list))
        pj_config_refuse(r, PJ_E_INVALID, "moe_layers", "must be a list");
    for (uint32_t layer = 0; dense && layer < c->layers; layer++)
        dense[layer] = list || step == 0 || (layer + 1) % step != 0;
    json_array_foreach(list, i, item)
    {
        int64_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0)
            pj_config_refuse(r, PJ_E_INVALID, "moe_layers", "must hold layer numbers");
        else if (dense && layer < c->layers)
            dense[layer] = false;
    }
}

static bool any_experts(const pj_model_config *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->layers; i++) any |= !c->layer_is_dense[i];
    return any;
}

/* ---- experts -------------------------------------------------------------------------------- */

/* The keys of an architecture's experts and their defaults, -1: required. */
typedef struct expert_keys {
    const char *count, *chosen, *width, *shared; /* width, shared NULL: the block's width; none */
    int64_t counts, choices, widths, shares;
} expert_keys;

static void read_expert_keys(pj_config_reader *r, const expert_keys *k, pj_model_config *c)
{
    c->experts = pj_config_count(r, k->count, k->counts, 1, PJ_MAX_EXPERTS);
    c->experts_per_token = pj_config_count(r, k->chosen, k->choices, 1, c->experts);
    c->expert_intermediate =
        k->width ? pj_config_count(r, k->width, k->widths, 1, PJ_MAX_WIDTH) : c->intermediate;
    if (k->shared)
        c->shared_intermediate = pj_config_count(r, k->shared, k->shares, 1, PJ_MAX_WIDTH);
    /* a default is not checked against the other fields */
    if (r->status == PJ_OK && c->experts_per_token > c->experts)
        pj_config_refuse(r, PJ_E_INVALID, k->chosen, "exceeds the number of experts");
}

/* Shared experts are one block as wide as so many experts. */
static void read_shared_count(pj_config_reader *r, const char *key, int64_t fallback,
                              pj_model_config *c)
{
    uint32_t shared = pj_config_count(r, key, fallback, 0, 1024);
    if ((uint64_t)shared * c->expert_intermediate > PJ_MAX_WIDTH)
        pj_config_refuse(r, PJ_E_INVALID, key, "makes the shared expert too wide");
    else
        c->shared_intermediate = shared * c->expert_intermediate;
}

/* Routers in the manner of DeepSeek V3: sigmoids, a correction, groups, a scale. */
static void read_corrected_router(pj_config_reader *r, pj_model_config *c)
{
    c->router_sigmoid = c->router_correction = c->group_by_pair = true;
    c->norm_topk = pj_config_bool(r, "norm_topk_prob", true);
    c->routed_scale = pj_config_number(r, "routed_scaling_factor", 1, 1e-6, 1e6);
    c->expert_groups = pj_config_count(r, "n_group", 1, 1, PJ_MAX_EXPERTS);
    c->expert_groups_kept = pj_config_count(r, "topk_group", 1, 1, PJ_MAX_EXPERTS);
}

/* The same, with the defaults of DeepSeek V3, V3.2 and GLM-5. */
static void read_scaled_router(pj_config_reader *r, pj_model_config *c)
{
    bool groups = c->arch != PJ_ARCH_GLM_MOE_DSA;
    read_corrected_router(r, c);
    c->routed_scale = pj_config_number(r, "routed_scaling_factor", 2.5, 1e-6, 1e6);
    c->expert_groups = pj_config_count(r, "n_group", groups ? 8 : 1, 1, PJ_MAX_EXPERTS);
    c->expert_groups_kept = pj_config_count(r, "topk_group", groups ? 4 : 1, 1, PJ_MAX_EXPERTS);
}

/* DeepSeek V2: a softmax, of whose experts the best groups take part; norm_topk_prob has no effect.
 */
static void read_grouped_router(pj_config_reader *r, pj_model_config *c)
{
    const char *method = pj_config_text(r, "topk_method", "greedy");
    bool grouped = strcmp(method, "group_limited_greedy") == 0;
    if (!grouped && strcmp(method, "greedy") != 0)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "topk_method",
                         "must be greedy or group_limited_greedy");
    c->norm_topk = false;
    c->routed_scale = pj_config_number(r, "routed_scaling_factor", 1, 1e-6, 1e6);
    if (!grouped) return;
    c->expert_groups = pj_config_count(r, "n_group", 1, 1, PJ_MAX_EXPERTS);
    c->expert_groups_kept = pj_config_count(r, "topk_group", 1, 1, PJ_MAX_EXPERTS);
}

/* Whether the width of shared experts is stated as their number. */
static bool counts_shared(pj_arch arch)
{
    const pj_blueprint *b = pj_blueprint_get(arch);
    return b->shared_expert && !b->shared_gate && !pj_arch_is_granite(arch) &&
           arch != PJ_ARCH_NEMOTRON_H;
}

static void check_groups(pj_config_reader *r, const pj_model_config *c)
{
    if (r->status != PJ_OK || c->expert_groups <= 1) return;
    uint32_t each = c->experts / c->expert_groups;
    if (c->experts % c->expert_groups != 0 || each < 2)
        pj_config_refuse(r, PJ_E_INVALID, "n_group",
                         "does not divide the experts into groups of two or more");
    else if (c->expert_groups_kept > c->expert_groups ||
             (uint64_t)each * c->expert_groups_kept < c->experts_per_token)
        pj_config_refuse(r, PJ_E_INVALID, "topk_group",
                         "keeps more groups than there are, or too few experts");
}

/* A number, or a list that has it for every layer. */
static uint32_t count_of_all(pj_config_reader *r, const char *key, int64_t fallback, int64_t max)
{
    json_t *list = pj_config_get(r, key), *item;
    size_t i;
    if (!json_is_array(list)) return pj_config_count(r, key, fallback, 1, max);
    json_int_t number = json_integer_value(json_array_get(list, 0));
    json_array_foreach(list, i, item)
    {
        if (!json_is_integer(item) || json_integer_value(item) != number)
            pj_config_refuse(r, PJ_E_UNSUPPORTED, key, "differs between layers");
    }
    if (number < 1 || number > max)
        pj_config_refuse(r, PJ_E_INVALID, key, "must be a positive number");
    return r->status == PJ_OK ? (uint32_t)number : 1;
}

/* The same, or a list of every layer's, of which the largest is returned. */
static uint32_t count_of_each(pj_config_reader *r, const char *key, uint32_t max,
                              pj_model_config *c)
{
    json_t *list = pj_config_get(r, key);
    if (!json_is_array(list)) return pj_config_count(r, key, 1, 1, max);
    uint32_t most = 1;
    c->layer_chosen = pj_arena_alloc(r->arena, c->layers, sizeof *c->layer_chosen);
    if (!c->layer_chosen && r->status == PJ_OK) r->status = pj_fail_memory(r->err, r->name);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        json_int_t number = json_integer_value(json_array_get(list, i));
        if (number < 1 || number > max)
            pj_config_refuse(
                r, PJ_E_INVALID, key,
                "must be a positive number for every layer, of experts that there are");
        c->layer_chosen[i] = (uint32_t)number;
        if (c->layer_chosen[i] > most) most = c->layer_chosen[i];
    }
    return most;
}

static void read_hunyuan(pj_config_reader *r, pj_model_config *c)
{
    c->experts = count_of_all(r, "num_experts", 1, PJ_MAX_EXPERTS);
    c->experts_per_token = count_of_each(r, "moe_topk", c->experts, c);
    c->expert_intermediate =
        count_of_all(r, "moe_intermediate_size", c->intermediate, PJ_MAX_WIDTH);
    uint64_t shared = count_of_all(r, "num_shared_expert", 1, 1024);
    if (shared * c->intermediate > PJ_MAX_WIDTH)
        pj_config_refuse(r, PJ_E_INVALID, "num_shared_expert", "makes the shared expert too wide");
    else
        c->shared_intermediate = (uint32_t)shared * c->intermediate;
    if (pj_config_bool(r, "use_cla", false))
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "use_cla", "true is not supported");
}

void pj_config_read_experts(pj_config_reader *r, pj_model_config *c)
{
    expert_keys k = {
        "num_experts", "num_experts_per_tok", "moe_intermediate_size", NULL, -1, -1, -1, -1};
    c->norm_topk = true;
    switch (c->arch) {
    case PJ_ARCH_MIXTRAL:
        k = (expert_keys){"num_local_experts", k.chosen, NULL, NULL, 8, 2, 0, 0};
        break;
    case PJ_ARCH_PHIMOE:
        k = (expert_keys){"num_local_experts", k.chosen, NULL, NULL, 16, 2, 0, 0};
        c->router_reach = 2 * pj_config_number(r, "router_jitter_noise", 0.01, 0, 1e6);
        break;
    case PJ_ARCH_GPT_OSS:
        k = (expert_keys){"num_local_experts", k.chosen, NULL, NULL, 128, 4, 0, 0};
        c->swiglu_alpha = pj_config_number(r, "swiglu_alpha", 1.702, 1e-6, 1e6);
        c->swiglu_limit = pj_config_number(r, "swiglu_limit", 7, 1e-6, 1e6);
        break;
    case PJ_ARCH_QWEN3_5_MOE:
        k = (expert_keys){k.count, k.chosen, k.width, "shared_expert_intermediate_size",
                          256,     8,        512,     512};
        break;
    case PJ_ARCH_QWEN3_NEXT:
        k = (expert_keys){k.count, k.chosen, k.width, "shared_expert_intermediate_size",
                          512,     10,       512,     512};
        c->norm_topk = pj_config_bool(r, "norm_topk_prob", true);
        read_listed_dense(r, c);
        break;
    case PJ_ARCH_GEMMA4: /* larger models: in parallel with each layer's dense block */
        k.chosen = "top_k_experts";
        if (pj_config_bool(r, "enable_moe_block", false)) break;
        c->norm_topk = false;
        return;
    case PJ_ARCH_QWEN2_MOE:
    case PJ_ARCH_QWEN3_MOE:
        if (c->arch == PJ_ARCH_QWEN2_MOE) k.shared = "shared_expert_intermediate_size";
        if (!pj_config_get(r, k.count)) k.count = "num_local_experts";
        c->norm_topk = pj_config_bool(r, "norm_topk_prob", false);
        read_listed_dense(r, c);
        break;
    case PJ_ARCH_GRANITE_HYBRID:
    case PJ_ARCH_GRANITE_MOE: /* hybrids without experts have the shared block alone */
        k = (expert_keys){"num_local_experts",
                          k.chosen,
                          "intermediate_size",
                          NULL,
                          8,
                          2,
                          c->arch == PJ_ARCH_GRANITE_MOE ? c->intermediate : 11008,
                          0};
        c->shared_intermediate =
            pj_config_count(r, "shared_intermediate_size",
                            c->arch == PJ_ARCH_GRANITE_HYBRID ? 1024 : 0, 0, PJ_MAX_WIDTH);
        if (pj_config_count(r, k.count, k.counts, 0, PJ_MAX_EXPERTS) > 0) break;
        c->norm_topk = false;
        return;
    case PJ_ARCH_NEMOTRON_H: /* in layers of a kind of their own */
        if (!c->layer_is_dense) return;
        k = (expert_keys){"n_routed_experts",
                          k.chosen,
                          k.width,
                          "moe_shared_expert_intermediate_size",
                          8,
                          2,
                          7688,
                          7688};
        read_corrected_router(r, c);
        c->expert_latent = pj_config_count(r, "moe_latent_size", 0, 1, c->hidden);
        break;
    case PJ_ARCH_HUNYUAN_MOE: read_hunyuan(r, c); return;
    case PJ_ARCH_LFM2_MOE:
        k = (expert_keys){k.count, k.chosen, k.width, NULL, 32, 4, 1792, 0};
        c->router_sigmoid = true;
        c->router_correction = pj_config_bool(r, "use_expert_bias", true);
        c->norm_topk = pj_config_bool(r, "norm_topk_prob", true);
        c->routed_scale = pj_config_number(r, "routed_scaling_factor", 1, 1e-6, 1e6);
        read_first_dense(r, c, "num_dense_layers", 2);
        break;
    case PJ_ARCH_LLAMA4: /* `intermediate_size` is the width of experts alone */
        k = (expert_keys){"num_local_experts", k.chosen, "intermediate_size", NULL, 16, 1, 8192, 0};
        c->norm_topk = false;
        c->router_sigmoid = true;
        read_listed_experts(r, c);
        if (r->status != PJ_OK || !any_experts(c)) return;
        break;
    case PJ_ARCH_MINIMAX_M2:
        k = (expert_keys){"num_local_experts", k.chosen, NULL, NULL, 256, 8, 0, 0};
        c->router_sigmoid = c->router_correction = true;
        break;
    case PJ_ARCH_GLM4_MOE:
        k = (expert_keys){"n_routed_experts", k.chosen, k.width, NULL, 128, 8, 1408, 0};
        read_corrected_router(r, c);
        read_first_dense(r, c, "first_k_dense_replace", 1);
        break;
    case PJ_ARCH_DEEPSEEK_V2:
        k = (expert_keys){"n_routed_experts", k.chosen, k.width, NULL, 64, 6, 1407, 0};
        read_grouped_router(r, c);
        read_first_dense(r, c, "first_k_dense_replace", 0);
        break;
    case PJ_ARCH_DEEPSEEK_V3:
        k = (expert_keys){"n_routed_experts", k.chosen, k.width, NULL, 256, 8, 2048, 0};
        read_scaled_router(r, c);
        read_first_dense(r, c, "first_k_dense_replace", 3);
        break;
    case PJ_ARCH_DEEPSEEK_V32:
    case PJ_ARCH_GLM_MOE_DSA:
        k = (expert_keys){"n_routed_experts", k.chosen, k.width, NULL, 256, 8, 2048, 0};
        read_scaled_router(r, c);
        read_kinds_of_blocks(r, c, 3);
        break;
    case PJ_ARCH_GLM4_MOE_LITE:
        k = (expert_keys){"n_routed_experts", k.chosen, k.width, NULL, 64, 4, 1536, 0};
        read_corrected_router(r, c);
        c->routed_scale = pj_config_number(r, "routed_scaling_factor", 1.8, 1e-6, 1e6);
        read_kinds_of_blocks(r, c, 1);
        break;
    case PJ_ARCH_ERNIE4_5_MOE:
        k = (expert_keys){"moe_num_experts", "moe_k", k.width, NULL, 64, 6, 1536, 0};
        c->router_correction = true;
        read_bounded_dense(r, c);
        break;
    default: c->norm_topk = false; return;
    }
    read_expert_keys(r, &k, c);
    if (c->arch == PJ_ARCH_PHIMOE && r->status == PJ_OK && c->experts_per_token != 2)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, k.chosen, "must be 2");
    bool ernie = c->arch == PJ_ARCH_ERNIE4_5_MOE;
    if (c->arch == PJ_ARCH_LLAMA4)
        c->shared_intermediate = c->expert_intermediate;
    else if (counts_shared(c->arch))
        read_shared_count(r, ernie ? "moe_num_shared_experts" : "n_shared_experts", 1 + ernie, c);
    check_groups(r, c);
}
