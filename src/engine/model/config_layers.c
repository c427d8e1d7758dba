/* Differences between the layers of one model: sliding windows, and layers without rotation.
 * `layer_types` lists the kinds; if absent, the architecture's rule decides. */
#include "engine/model/config_reader.h"
#include "engine/model/config_rules.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *alloc_layers(pj_config_reader *r, const pj_model_config *config, size_t size)
{
    void *table = pj_arena_alloc(r->arena, config->layers, size);
    if (!table && r->status == PJ_OK) r->status = pj_fail_memory(r->err, r->name);
    return table;
}

/* ---- widths ------------------------------------------------------------------------------- */

bool pj_config_widths(pj_config_reader *r, pj_model_config *config)
{
    json_t *list = pj_config_get(r, "intermediate_size");
    if (config->arch != PJ_ARCH_GEMMA3N || !json_is_array(list) || r->status != PJ_OK) return false;
    uint32_t *width = alloc_layers(r, config, sizeof *width);
    if (json_array_size(list) != config->layers)
        pj_config_refuse(r, PJ_E_INVALID, "intermediate_size", "must have every layer's width");
    for (uint32_t i = 0; r->status == PJ_OK && i < config->layers; i++) {
        json_int_t value = json_integer_value(json_array_get(list, i));
        if (value < 1 || value > PJ_MAX_WIDTH)
            pj_config_refuse(r, PJ_E_INVALID, "intermediate_size",
                             "must have widths between 1 and 1048576");
        width[i] = (uint32_t)value;
    }
    config->layer_width = width;
    return r->status == PJ_OK;
}

/* ---- rotation ----------------------------------------------------------------------------- */

/* A list of 1 and 0, or every interval-th layer without rotation; Llama 4 may have an empty list.
 */
static void config_layers_read_rotating_layers(pj_config_reader *r, pj_model_config *config)
{
    json_t *list = pj_config_get(r, "no_rope_layers");
    uint32_t interval = pj_config_count(r, "no_rope_layer_interval", 4, 1, PJ_MAX_LAYERS);
    bool llama4 = config->arch == PJ_ARCH_LLAMA4;
    if ((config->arch != PJ_ARCH_SMOLLM3 && !llama4) || r->status != PJ_OK) return;
    if (llama4 && json_is_array(list) && json_array_size(list) == 0) list = NULL;
    if (list && (!json_is_array(list) || json_array_size(list) < config->layers)) {
        pj_config_refuse(r, PJ_E_INVALID, "no_rope_layers", "must have a number for every layer");
        return;
    }
    bool *rotates = config->layer_rotates = alloc_layers(r, config, sizeof *rotates);
    for (uint32_t i = 0; rotates && i < config->layers; i++)
        rotates[i] =
            list ? json_integer_value(json_array_get(list, i)) != 0 : (i + 1) % interval != 0;
}

/* ---- windows ------------------------------------------------------------------------------ */

static bool by_rule(const pj_model_config *config, uint32_t layer, uint32_t border, uint32_t period)
{
    switch (pj_config_rules_get(config->arch)->window) {
    case PJ_WINDOW_FROM_BORDER: return layer >= border;
    case PJ_WINDOW_EVEN_TO_BORDER: return layer % 2 == 0 && layer < border;
    case PJ_WINDOW_PERIOD: return (layer + 1) % period != 0;
    case PJ_WINDOW_UNROTATED: return !config->layer_rotates[layer];
    default: return true;
    }
}

/* The list of the layers' kinds, or NULL. */
static json_t *layer_types(pj_config_reader *r, const pj_model_config *config)
{
    json_t *types = pj_config_get(r, "layer_types");
    if (types && (!json_is_array(types) || json_array_size(types) != config->layers))
        pj_config_refuse(r, PJ_E_INVALID, "layer_types", "must name every layer's attention");
    return types;
}

/* Whether a layer is of that kind; it may only be of that or have full attention. */
static bool is_of_kind(pj_config_reader *r, const json_t *types, uint32_t layer, const char *kind)
{
    const char *name = json_string_value(json_array_get(types, layer));
    if (name && strcmp(name, kind) == 0) return true;
    if (!name || (strcmp(name, "full_attention") != 0 && strcmp(name, "attention") != 0))
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "layer_types",
                         "contains an unsupported attention type");
    return false;
}

static void list_windowed_layers(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    json_t *types = layer_types(r, config);
    uint32_t border = pj_config_count(r, "max_window_layers", 28, 0, PJ_MAX_LAYERS);
    uint32_t period =
        pj_config_count(r, "sliding_window_pattern", rules->window_period, 1, PJ_MAX_LAYERS);
    bool any = false;
    bool *windowed = alloc_layers(r, config, sizeof *windowed);
    if (!windowed || r->status != PJ_OK) return;
    for (uint32_t i = 0; i < config->layers; i++) {
        windowed[i] = types ? is_of_kind(r, types, i, "sliding_attention")
                            : by_rule(config, i, border, period);
        /* the last layer of Gemma 4 has full attention */
        if (config->arch == PJ_ARCH_GEMMA4 && i + 1 == config->layers) windowed[i] = false;
        any |= windowed[i];
    }
    config->layer_is_windowed = windowed;
    if (!any) config->window = 0;
}

/* The window size, and which layers have it if they differ: by an architecture's rule, or listed
 * (Ministral). */
static void config_layers_read_window(pj_config_reader *r, pj_model_config *config)
{
    const pj_config_rules *rules = pj_config_rules_get(config->arch);
    bool used = !rules->window_needs_switch || pj_config_bool(r, "use_sliding_window", false);
    bool silent = !json_object_get(r->object, "sliding_window"); /* absent, as opposed to null */
    uint32_t window =
        pj_config_count(r, "sliding_window", silent ? rules->window_absent : 0, 0, PJ_MAX_CONTEXT);
    bool listed =
        rules->lists_layers || (config->arch == PJ_ARCH_MISTRAL && pj_config_get(r, "layer_types"));
    config->window = used && rules->window != PJ_WINDOW_NEVER ? window : 0;
    /* layers whose rotation depends on their kind need the kind even without a window */
    if (listed && (config->window > 0 || rules->window_theta > 0)) list_windowed_layers(r, config);
    if (config->window > 0 && rules->only_windows_rotate)
        config->layer_rotates = config->layer_is_windowed;
}

/* Llama 4: chunks of positions in the layers that are listed, or else rotate, and queries that the
 * others scale by position. */
static void read_chunks(pj_config_reader *r, pj_model_config *c)
{
    json_t *types = layer_types(r, c), *tuned = pj_config_get(r, "attn_temperature_tuning");
    bool *chunked = alloc_layers(r, c, sizeof *chunked), any = false;
    for (uint32_t i = 0; chunked && r->status == PJ_OK && i < c->layers; i++) {
        chunked[i] = types ? is_of_kind(r, types, i, "chunked_attention") : c->layer_rotates[i];
        any |= chunked[i];
    }
    bool absent = !json_object_get(r->object, "attention_chunk_size");
    uint32_t chunk =
        pj_config_count(r, "attention_chunk_size", absent ? 8192 : 0, 1, PJ_MAX_CONTEXT);
    if (any && chunk == 0)
        pj_config_refuse(r, PJ_E_INVALID, "attention_chunk_size",
                         "is missing, but layers have chunked attention");
    c->window = any ? chunk : 0;
    c->window_is_chunk = any;
    c->layer_is_windowed = chunked;
    /* older files have a number */
    if (json_is_integer(tuned) ? json_integer_value(tuned) == 0
                               : !pj_config_bool(r, "attn_temperature_tuning", true))
        return;
    c->query_beta = pj_config_number(r, "attn_scale", 0.1, 0, 1e6);
    c->query_period = pj_config_count(r, "floor_scale", 8192, 1, PJ_MAX_CONTEXT);
    c->query_first = 1;
    c->query_scale_unrotated = true;
}

/* ---- linear attention --------------------------------------------------------------------- */

static void read_linear_sizes(pj_config_reader *r, pj_model_config *c)
{
    c->linear.key_heads = pj_config_count(r, "linear_num_key_heads", 16, 1, PJ_MAX_HEADS);
    c->linear.value_heads = pj_config_count(r, "linear_num_value_heads", 32, 1, PJ_MAX_HEADS);
    c->linear.key_dim = pj_config_count(r, "linear_key_head_dim", 128, 1, PJ_MAX_DELTA_DIM);
    c->linear.value_dim = pj_config_count(r, "linear_value_head_dim", 128, 1, PJ_MAX_DELTA_DIM);
    c->linear.kernel = pj_config_count(r, "linear_conv_kernel_dim", 4, 1, PJ_MAX_CONVOLUTION);
    if (r->status == PJ_OK && c->linear.value_heads % c->linear.key_heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "linear_num_value_heads",
                         "is not a multiple of linear_num_key_heads");
}

/* Which layers use the gated delta rule: listed, else all but each interval-th. */
static void config_layers_read_linear_layers(pj_config_reader *r, pj_model_config *config)
{
    json_t *types = layer_types(r, config);
    uint32_t interval = pj_config_count(r, "full_attention_interval", 4, 1, PJ_MAX_LAYERS);
    if (r->status != PJ_OK) return;
    bool *linear = config->layer_is_linear = alloc_layers(r, config, sizeof *linear);
    for (uint32_t i = 0; linear && i < config->layers; i++)
        linear[i] = types ? is_of_kind(r, types, i, "linear_attention") : (i + 1) % interval != 0;
    if (r->status == PJ_OK) read_linear_sizes(r, config);
}

/* ---- state-space layers and short convolutions ---------------------------------------------- */

/* A number, or infinity as transformers writes it. */
static double step_limit(pj_config_reader *r, const json_t *list, size_t index)
{
    const json_t *value = json_array_get(list, index);
    const char *word = json_string_value(json_object_get(value, "__float__"));
    double number = json_number_value(value);
    if (word && strcmp(word, "Infinity") == 0) return INFINITY;
    if (!json_is_number(value) || !(number >= 0))
        pj_config_refuse(r, PJ_E_INVALID, "time_step_limit", "must be two numbers from 0 on");
    return number;
}

/* Bounds of a scan's steps. */
static void read_step_limits(pj_config_reader *r, pj_model_config *c)
{
    const json_t *limits = pj_config_get(r, "time_step_limit");
    if (!limits) return;
    c->linear.least_step = step_limit(r, limits, 0);
    c->linear.most_step = step_limit(r, limits, 1);
    if (r->status == PJ_OK && !(c->linear.most_step > c->linear.least_step))
        pj_config_refuse(r, PJ_E_INVALID, "time_step_limit", "must be two numbers, least first");
}

/* Granite 4: a list of the layers' kinds, in either generation's words. */
static void read_scan_layers(pj_config_reader *r, pj_model_config *c)
{
    json_t *types = layer_types(r, c);
    bool *scans = c->layer_is_linear = alloc_layers(r, c, sizeof *scans);
    const char *rotation = pj_config_text(r, "position_embedding_type", "nope");
    uint32_t expand = pj_config_count(r, "mamba_expand", 2, 1, 64);
    c->linear.kind = PJ_SCAN;
    c->linear.value_heads = pj_config_count(r, "mamba_n_heads", 128, 1, PJ_MAX_HEADS);
    c->linear.key_heads = pj_config_count(r, "mamba_n_groups", 1, 1, PJ_MAX_HEADS);
    c->linear.key_dim = pj_config_count(r, "mamba_d_state", 256, 1, PJ_MAX_DELTA_DIM);
    c->linear.kernel = pj_config_count(r, "mamba_d_conv", 4, 1, PJ_MAX_CONVOLUTION);
    c->linear.conv_bias = pj_config_bool(r, "mamba_conv_bias", true);
    c->linear.in_bias = c->linear.out_bias = pj_config_bool(r, "mamba_proj_bias", false);
    read_step_limits(r, c);
    if (r->status != PJ_OK) return;
    c->linear.value_dim = expand * c->hidden / c->linear.value_heads;
    if (c->linear.value_dim == 0 || c->linear.value_dim > PJ_MAX_DELTA_DIM ||
        expand * c->hidden % c->linear.value_heads != 0 ||
        c->linear.value_heads % c->linear.key_heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "mamba_n_heads",
                         "does not divide the state-space layers' width, or its groups the heads");
    for (uint32_t i = 0; scans && r->status == PJ_OK && i < c->layers; i++) {
        const char *name = json_string_value(json_array_get(types, i));
        scans[i] = (!types || (name && strcmp(name, "mamba") == 0)) ||
                   is_of_kind(r, types, i, "linear_attention");
    }
    if (strcmp(rotation, "rope") != 0) c->layer_rotates = alloc_layers(r, c, sizeof(bool));
}

/* ---- Nemotron-H ----------------------------------------------------------------------------- */

static json_t *list_of_kinds(pj_config_reader *r)
{
    json_t *list = pj_config_get(r, "layers_block_type");
    return list ? list : pj_config_get(r, "layer_types");
}

/* A layer's kind in any of its spellings, as a letter: M, *, - or E; 0: none such. */
static char kind_of_layer(pj_config_reader *r, uint32_t layer)
{
    static const struct {
        const char *name;
        char letter;
    } kinds[] = {{"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
                 {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    json_t *list = list_of_kinds(r);
    const char *name = json_string_value(json_array_get(list, layer));
    if (!list) return pj_config_text(r, "hybrid_override_pattern", "")[layer];
    for (size_t k = 0; name && k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(kinds[k].name, name) == 0) return kinds[k].letter;
    return 0;
}

uint32_t pj_config_count_kinds(pj_config_reader *r)
{
    json_t *list = list_of_kinds(r);
    size_t count =
        list ? json_array_size(list) : strlen(pj_config_text(r, "hybrid_override_pattern", ""));
    if (count == 0 || count > PJ_MAX_LAYERS)
        pj_config_refuse(r, PJ_E_INVALID, "layers_block_type",
                         "must name the kind of every layer, 1 to 1024");
    return r->status == PJ_OK ? (uint32_t)count : 1;
}

static void read_kinds(pj_config_reader *r, pj_model_config *c)
{
    bool *scans = c->layer_is_linear = alloc_layers(r, c, sizeof *scans);
    pj_halves *halves = c->layer_halves = alloc_layers(r, c, sizeof *halves);
    bool *dense = alloc_layers(r, c, sizeof *dense), any = false;
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        char kind = kind_of_layer(r, i);
        if (kind != 'M' && kind != '*' && kind != '-' && kind != 'E')
            pj_config_refuse(r, PJ_E_INVALID, "layers_block_type", "has an unknown kind of layer");
        halves[i] = kind == '-' || kind == 'E' ? PJ_HALF_MLP : PJ_HALF_MIXER;
        scans[i] = kind == 'M';
        dense[i] = kind != 'E';
        if (kind == 'E') c->layer_is_dense = dense;
        any |= scans[i];
    }
    if (any) return;
    c->layer_is_linear = NULL;
    c->linear.kernel = 0;
}

/* Layers of one half each: a scan, attention without rotation, or a block. */
static void read_nemotron_h(pj_config_reader *r, pj_model_config *c)
{
    c->layer_rotates = alloc_layers(r, c, sizeof(bool));
    c->linear.kind = PJ_SCAN;
    c->linear.value_heads = pj_config_count(r, "mamba_num_heads", 128, 1, PJ_MAX_HEADS);
    c->linear.value_dim = pj_config_count(r, "mamba_head_dim", 64, 1, PJ_MAX_DELTA_DIM);
    c->linear.key_heads = pj_config_count(r, "n_groups", 8, 1, PJ_MAX_HEADS);
    c->linear.key_dim = pj_config_count(r, "ssm_state_size", 128, 1, PJ_MAX_DELTA_DIM);
    c->linear.kernel = pj_config_count(r, "conv_kernel", 4, 1, PJ_MAX_CONVOLUTION);
    c->linear.conv_bias = pj_config_bool(r, "use_conv_bias", true);
    c->linear.least_step = pj_config_number(r, "time_step_min", 0.001, 0, 1e6);
    c->linear.in_bias = c->linear.out_bias = pj_config_bool(r, "use_bias", false);
    if (strcmp(pj_config_text(r, "mamba_hidden_act", "silu"), "silu") != 0)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "mamba_hidden_act", "must be silu");
    if (r->status == PJ_OK && c->linear.value_heads % c->linear.key_heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "n_groups", "does not divide mamba_num_heads");
    if (r->status == PJ_OK) read_kinds(r, c);
}

/* ---- Mamba-2 -------------------------------------------------------------------------------- */

/* A scan in every layer, and nothing else. */
static void read_mamba2(pj_config_reader *r, pj_model_config *c)
{
    uint64_t expand = pj_config_count(r, "expand", 2, 1, 64);
    const char *activation = pj_config_text(r, "hidden_act", "silu");
    bool *scans = c->layer_is_linear = alloc_layers(r, c, sizeof *scans);
    pj_halves *halves = c->layer_halves = alloc_layers(r, c, sizeof *halves);
    c->layer_rotates = alloc_layers(r, c, sizeof(bool));
    c->linear.kind = PJ_SCAN;
    c->linear.value_heads = c->heads;
    c->linear.value_dim = c->head_dim;
    c->linear.key_heads = pj_config_count(r, "n_groups", 8, 1, PJ_MAX_HEADS);
    c->linear.key_dim = pj_config_count(r, "state_size", 128, 1, PJ_MAX_DELTA_DIM);
    c->linear.kernel = pj_config_count(r, "conv_kernel", 4, 1, PJ_MAX_CONVOLUTION);
    c->linear.conv_bias = pj_config_bool(r, "use_conv_bias", true);
    c->linear.in_bias = c->linear.out_bias = pj_config_bool(r, "use_bias", false);
    read_step_limits(r, c);
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "hidden_act", "must be silu");
    if (r->status != PJ_OK) return;
    if (expand * c->hidden != (uint64_t)c->heads * c->head_dim)
        pj_config_refuse(r, PJ_E_INVALID, "num_heads",
                         "times head_dim is not expand times hidden_size");
    if (c->heads % c->linear.key_heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "n_groups", "does not divide num_heads");
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        scans[i] = true;
        halves[i] = PJ_HALF_MIXER;
    }
}

/* ---- Falcon-H1 ------------------------------------------------------------------------------ */

/* Falcon-H1: every layer has a scan and attention side by side. */
static void read_falcon_h1(pj_config_reader *r, pj_model_config *c)
{
    const json_t *size = pj_config_get(r, "mamba_d_head");
    bool silent = !json_object_get(r->object, "mamba_d_ssm"); /* absent, as opposed to null */
    uint64_t expand = pj_config_count(r, "mamba_expand", 2, 1, 64);
    uint64_t values = pj_config_count(r, "mamba_d_ssm", 0, 1, PJ_MAX_WIDTH);
    if (values == 0) values = silent ? 1024 : expand * c->hidden;
    bool *scans = c->layer_is_linear = alloc_layers(r, c, sizeof *scans);
    c->attention_beside = true;
    c->linear.kind = PJ_SCAN;
    c->linear.value_heads = pj_config_count(r, "mamba_n_heads", 128, 1, PJ_MAX_HEADS);
    c->linear.key_heads = pj_config_count(r, "mamba_n_groups", 1, 1, PJ_MAX_HEADS);
    c->linear.key_dim = pj_config_count(r, "mamba_d_state", 256, 1, PJ_MAX_DELTA_DIM);
    c->linear.kernel = pj_config_count(r, "mamba_d_conv", 4, 1, PJ_MAX_CONVOLUTION);
    c->linear.conv_bias = pj_config_bool(r, "mamba_conv_bias", true);
    c->linear.in_bias = pj_config_bool(r, "mamba_proj_bias", false);
    c->linear.out_bias = pj_config_bool(r, "projectors_bias", false);
    c->linear.without_norm = !pj_config_bool(r, "mamba_rms_norm", false);
    c->linear.norm_first = pj_config_bool(r, "mamba_norm_before_gate", true);
    read_step_limits(r, c);
    if (r->status != PJ_OK) return;
    uint64_t each = values / c->linear.value_heads;
    if (json_is_string(size) ? strcmp(json_string_value(size), "auto") != 0
                             : size && json_integer_value(size) != (json_int_t)each)
        pj_config_refuse(r, PJ_E_INVALID, "mamba_d_head",
                         "times mamba_n_heads is not the state-space layers' width");
    if (each == 0 || each > PJ_MAX_DELTA_DIM || values % c->linear.value_heads != 0 ||
        c->linear.value_heads % c->linear.key_heads != 0)
        pj_config_refuse(r, PJ_E_INVALID, "mamba_n_heads",
                         "does not divide the state-space layers' width, or its groups the heads");
    c->linear.value_dim = (uint32_t)each;
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) scans[i] = true;
}

/* LFM2: listed, or all but the layers with attention. */
static void read_short_convolutions(pj_config_reader *r, pj_model_config *c)
{
    json_t *types = layer_types(r, c), *full = pj_config_get(r, "full_attn_idxs"), *item;
    bool *convolves = c->layer_is_linear = alloc_layers(r, c, sizeof *convolves);
    size_t index;
    c->linear.kind = PJ_SHORT_CONVOLUTION;
    c->linear.kernel = pj_config_count(r, "conv_L_cache", 3, 1, PJ_MAX_CONVOLUTION);
    c->linear.conv_bias = c->linear.in_bias = c->linear.out_bias =
        pj_config_bool(r, "conv_bias", false);
    if (r->status == PJ_OK && !types && !full)
        pj_config_refuse(r, PJ_E_INVALID, "layer_types", "is missing");
    for (uint32_t i = 0; convolves && r->status == PJ_OK && i < c->layers; i++)
        convolves[i] = types ? is_of_kind(r, types, i, "conv") : true;
    json_array_foreach(full, index, item)
    {
        int64_t layer = json_integer_value(item);
        if (!types && convolves && layer >= 0 && layer < c->layers) convolves[layer] = false;
    }
}

/* ---- Gemma 4 ------------------------------------------------------------------------------ */

/* One entry of per_layer_config: a layer's head_dim and number of KV heads. */
static void read_layer_sizes(pj_config_reader *r, pj_model_config *c, const char *key,
                             json_t *entry)
{
    pj_config_reader inner = *r;
    const char *other;
    json_t *value;
    char *end;
    unsigned long layer = strtoul(key, &end, 10);
    if (*end || end == key || layer >= c->layers || !json_is_object(entry)) {
        pj_config_refuse(r, PJ_E_INVALID, "per_layer_config", "must have objects by layer number");
        return;
    }
    inner.object = entry;
    json_object_foreach(entry, other, value)
    {
        if (strcmp(other, "head_dim") != 0 && strcmp(other, "num_key_value_heads") != 0)
            pj_config_refuse(&inner, PJ_E_UNSUPPORTED, "per_layer_config",
                             "changes more than head_dim and num_key_value_heads");
    }
    c->layer_head_dim[layer] =
        pj_config_count(&inner, "head_dim", c->layer_head_dim[layer], 1, PJ_MAX_HEAD_DIM);
    c->layer_kv_heads[layer] =
        pj_config_count(&inner, "num_key_value_heads", c->layer_kv_heads[layer], 1, PJ_MAX_HEADS);
    r->status = inner.status;
}

/* Head sizes of full-attention layers differ from those of windowed ones: per layer, or in the
 * older form by two numbers. */
static void read_head_sizes(pj_config_reader *r, pj_model_config *c)
{
    json_t *list = pj_config_get(r, "per_layer_config"), *entry;
    const char *key;
    uint32_t head_dim = pj_config_count(r, "global_head_dim", 512, 1, PJ_MAX_HEAD_DIM);
    uint32_t kv_heads = pj_config_count(r, "num_global_key_value_heads", 0, 0, PJ_MAX_HEADS);
    bool listed = json_object_get(r->object, "per_layer_config") != NULL;
    c->layer_head_dim = alloc_layers(r, c, sizeof *c->layer_head_dim);
    c->layer_kv_heads = alloc_layers(r, c, sizeof *c->layer_kv_heads);
    if (r->status != PJ_OK) return;
    for (uint32_t i = 0; i < c->layers; i++) {
        bool global = !listed && !c->layer_is_windowed[i];
        c->layer_head_dim[i] = global ? head_dim : c->head_dim;
        c->layer_kv_heads[i] = global && c->keys_are_values && kv_heads ? kv_heads : c->kv_heads;
    }
    json_object_foreach(list, key, entry) read_layer_sizes(r, c, key, entry);
    uint32_t of_kind[2] = {0};
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        uint32_t *expected = &of_kind[c->layer_is_windowed[i]];
        if (c->heads % c->layer_kv_heads[i] != 0 || c->layer_head_dim[i] % 2 != 0)
            pj_config_refuse(r, PJ_E_INVALID, "per_layer_config",
                             "has KV heads that do not divide the heads, or an odd head_dim");
        else if (*expected && *expected != c->layer_head_dim[i])
            pj_config_refuse(r, PJ_E_UNSUPPORTED, "per_layer_config",
                             "has layers of one kind, which share their rotary embedding, with "
                             "different head_dim");
        *expected = c->layer_head_dim[i];
    }
}

/* The last layers share the keys and values of the preceding layer of their kind. */
static void read_shared_layers(pj_config_reader *r, pj_model_config *c, uint32_t fallback)
{
    uint32_t shared = pj_config_count(r, "num_kv_shared_layers", fallback, 0, c->layers - 1);
    uint32_t own = c->layers - shared;
    if (shared == 0 || r->status != PJ_OK) return;
    c->layer_kv_source = alloc_layers(r, c, sizeof *c->layer_kv_source);
    for (uint32_t i = 0; c->layer_kv_source && i < c->layers; i++) {
        uint32_t source = i < own ? i : own;
        while (i >= own && source > 0 &&
               c->layer_is_windowed[source - 1] != c->layer_is_windowed[i])
            source--;
        if (i >= own && source == 0) {
            pj_config_refuse(r, PJ_E_INVALID, "num_kv_shared_layers",
                             "leaves one kind of layer without its own keys");
            return;
        }
        c->layer_kv_source[i] = i < own ? i : source - 1;
        if (pj_config_kv_heads(c, c->layer_kv_source[i]) != pj_config_kv_heads(c, i))
            pj_config_refuse(
                r, PJ_E_INVALID, "per_layer_config",
                "gives a layer with shared keys a different number of KV heads than their owner");
    }
}

static void read_token_vectors(pj_config_reader *r, pj_model_config *c)
{
    c->token_vector = pj_config_count(r, "hidden_size_per_layer_input", 256, 0, PJ_MAX_WIDTH);
    c->token_vector_vocab =
        pj_config_count(r, "vocab_size_per_layer_input", 262144, 1, PJ_MAX_VOCAB);
}

static void read_gemma4(pj_config_reader *r, pj_model_config *c)
{
    c->keys_are_values = pj_config_bool(r, "attention_k_eq_v", false);
    c->wide_readers = pj_config_bool(r, "use_double_wide_mlp", false);
    read_token_vectors(r, c);
    if (c->token_vector && c->token_vector_vocab < c->vocab)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "vocab_size_per_layer_input", "is below vocab_size");
    if (r->status == PJ_OK) read_head_sizes(r, c);
    if (r->status == PJ_OK) read_shared_layers(r, c, 0);
}

/* ---- Gemma 3n ----------------------------------------------------------------------------- */

double pj_config_cutoff(double share)
{
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < share)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* The share of each layer's gates that are cut, were they normally distributed; by default 95 % in
 * the first ten layers. */
static void read_cutoffs(pj_config_reader *r, pj_model_config *c)
{
    enum { SPARSE = 10 };
    json_t *list = pj_config_get(r, "activation_sparsity_pattern");
    if (list && (!json_is_array(list) || json_array_size(list) != c->layers))
        pj_config_refuse(r, PJ_E_INVALID, "activation_sparsity_pattern",
                         "must have a share for every layer");
    double *cutoff = c->layer_cutoff = alloc_layers(r, c, sizeof *cutoff);
    for (uint32_t i = 0; r->status == PJ_OK && i < c->layers; i++) {
        double share = list ? json_number_value(json_array_get(list, i))
                            : 0.95 * (i < SPARSE && c->layers > SPARSE);
        if (!(share >= 0 && share < 1))
            pj_config_refuse(r, PJ_E_INVALID, "activation_sparsity_pattern",
                             "must have shares from 0 to below 1");
        cutoff[i] = share > 0 ? pj_config_cutoff(share) : -INFINITY;
    }
}

static void read_gemma3n(pj_config_reader *r, pj_model_config *c)
{
    enum { SHARED = 15 };
    bool silent = !json_object_get(r->object, "altup_coef_clip"); /* absent, as opposed to null */
    bool shares = !json_object_get(r->object, "num_kv_shared_layers") && c->layers > SHARED;
    read_token_vectors(r, c);
    c->streams.count = pj_config_count(r, "altup_num_inputs", 4, 2, PJ_MAX_STREAMS);
    c->streams.active = pj_config_count(r, "altup_active_idx", 0, 0, PJ_MAX_STREAMS - 1);
    c->streams.clip = pj_config_number(r, "altup_coef_clip", silent ? 120 : 0, 1e-6, 1e9);
    c->streams.without_scale = !pj_config_bool(r, "altup_correct_scale", true);
    c->streams.residual_rank = pj_config_count(r, "laurel_rank", 64, 1, PJ_MAX_WIDTH);
    if (r->status == PJ_OK && c->streams.active >= c->streams.count)
        pj_config_refuse(r, PJ_E_INVALID, "altup_active_idx", "is not below altup_num_inputs");
    if (c->token_vector == 0)
        pj_config_refuse(r, PJ_E_UNSUPPORTED, "hidden_size_per_layer_input", "0 is not supported");
    if (r->status == PJ_OK) read_cutoffs(r, c);
    if (r->status == PJ_OK) read_shared_layers(r, c, shares ? SHARED : 0);
}

void pj_config_read_layers(pj_config_reader *r, pj_model_config *config)
{
    config_layers_read_rotating_layers(r, config);
    if (r->status == PJ_OK) config_layers_read_window(r, config);
    if (r->status == PJ_OK && pj_arch_has_delta(config->arch))
        config_layers_read_linear_layers(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_GRANITE_HYBRID) read_scan_layers(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_NEMOTRON_H) read_nemotron_h(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_MAMBA2) read_mamba2(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_FALCON_H1) read_falcon_h1(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_LLAMA4) read_chunks(r, config);
    if (r->status == PJ_OK && pj_arch_is_lfm2(config->arch)) read_short_convolutions(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_GEMMA4) read_gemma4(r, config);
    if (r->status == PJ_OK && config->arch == PJ_ARCH_GEMMA3N) read_gemma3n(r, config);
}
