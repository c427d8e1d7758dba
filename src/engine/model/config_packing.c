/* Quantisation in config.json: which methods are read, and what it says of packed weights
 * (packed_rows.h) that their files' tensors do not. */
#include "engine/model/config_reader.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Whether a field of the quantisation is one of the values. */
static bool is_one_of(const json_t *quantised, const char *key, const char *const *values)
{
    const char *value = json_string_value(json_object_get(quantised, key));
    for (size_t i = 0; value && values[i]; i++)
        if (strcmp(value, values[i]) == 0) return true;
    return false;
}

static const json_t *first_of(const json_t *groups)
{
    json_t *group = NULL, *all = (json_t *)(uintptr_t)groups;
    const char *key;
    json_object_foreach(all, key, group) break;
    return group;
}

/* Rows and columns that share a scale; nothing is stated of matrices with one or one for each row.
 */
static void read_fp8_blocks(pj_config_reader *r, const json_t *quantised, pj_model_config *c)
{
    const json_t *group = first_of(json_object_get(quantised, "config_groups"));
    const json_t *own = json_object_get(quantised, "weight_block_size");
    const json_t *size =
        own ? own : json_object_get(json_object_get(group, "weights"), "block_structure");
    if (!size || json_is_null(size)) return;
    json_int_t rows = json_integer_value(json_array_get(size, 0)),
               cols = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || rows < 1 || cols < 1 || rows > PJ_MAX_WIDTH ||
        cols > PJ_MAX_WIDTH) {
        pj_config_refuse(r, PJ_E_INVALID, own ? "weight_block_size" : "block_structure",
                         "must be two positive numbers");
        return;
    }
    c->fp8_rows = (uint32_t)rows;
    c->fp8_cols = (uint32_t)cols;
}

/* What a quantisation says of tensors that is not read although its method is. */
static const char *unread_variant(const json_t *quantised)
{
    static const char *const awq[] = {"awq", NULL}, *const gemm[] = {"gemm", "GEMM", NULL};
    static const char *const gptq[] = {"gptq", NULL}, *const dense[] = {"dense", NULL};
    static const char *const formats[] = {"gptq", "gptq_v2", NULL};
    static const char *const rounds[] = {"auto-round", "intel/auto-round", NULL};
    static const char *const packings[] = {"auto_round:auto_gptq",
                                           "auto_round:gptq",
                                           "auto_round:gptqmodel",
                                           "auto_round:auto_awq",
                                           "auto_round:awq",
                                           "auto_round:llm_compressor",
                                           "auto_round:fp8",
                                           "auto_round",
                                           "auto_gptq",
                                           "auto_awq",
                                           "auto",
                                           NULL};
    const json_t *sparsity = json_object_get(quantised, "sparsity_config");
    /* newer files have one key for both */
    const char *awq_key = json_object_get(quantised, "version") ? "version" : "format";
    const char *gptq_key =
        json_object_get(quantised, "checkpoint_format") ? "checkpoint_format" : "format";
    bool is_awq = is_one_of(quantised, "quant_method", awq),
         is_gptq = is_one_of(quantised, "quant_method", gptq);
    /* rotations of activations, which the weights rely on */
    if (json_object_size(json_object_get(quantised, "transform_config")) > 0)
        return "has a transform_config, which is not supported";
    if (json_object_get(sparsity, "format") && !is_one_of(sparsity, "format", dense))
        return "has a sparsity_config, which is not supported";
    if (is_awq && json_object_get(quantised, awq_key) && !is_one_of(quantised, awq_key, gemm))
        return "has a version of AWQ other than gemm";
    if (is_gptq && json_is_string(json_object_get(quantised, gptq_key)) &&
        !is_one_of(quantised, gptq_key, formats))
        return "has a checkpoint_format other than gptq and gptq_v2";
    if (is_one_of(quantised, "quant_method", rounds) &&
        json_is_string(json_object_get(quantised, "packing_format")) &&
        !is_one_of(quantised, "packing_format", packings))
        return "has a packing_format that is not read";
    return NULL;
}

/* ---- what files of packed weights must have -------------------------------------------------- */

/* Whether a field has the value, in the quantisation or in what it says of single layers. */
static bool says_anywhere(const json_t *quantised, const char *key, bool value)
{
    static const char *const overrides[] = {"dynamic", "extra_config"};
    const json_t *own = json_object_get(quantised, key);
    bool any = value ? json_is_true(own) : json_is_false(own);
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
        json_t *layers = json_object_get(quantised, overrides[i]), *layer;
        const char *name;
        json_object_foreach(layers, name, layer)
        {
            own = json_object_get(layer, key);
            any |= value ? json_is_true(own) : json_is_false(own);
        }
    }
    return any;
}

/* GPTQ and AutoRound. Static groups are those of adjacent columns, in whichever order these were
 * quantised. */
static void declare_by_columns(const json_t *quantised, pj_model_config *c)
{
    const json_t *meta = json_object_get(quantised, "meta");
    bool is_static = json_is_true(json_object_get(quantised, "static_groups")) ||
                     json_is_true(json_object_get(meta, "static_groups"));
    if (says_anywhere(quantised, "sym", false))
        c->packing.zeros = (pj_declared){"sym false", UINT32_MAX};
    if (!is_static && says_anywhere(quantised, "desc_act", true))
        c->packing.order = (pj_declared){"desc_act true", UINT32_MAX};
}

/* Whether the columns of a group's weights are grouped in another order: "weight" and "static"
 * change only the order in which they were quantised. */
static bool is_reordered(const json_t *weights)
{
    const json_t *order = json_object_get(weights, "actorder");
    const char *name = json_string_value(order);
    return json_is_true(order) ||
           (name && (strcasecmp(name, "group") == 0 || strcasecmp(name, "dynamic") == 0));
}

/* Versions of compressed-tensors before that minor one, which left out what has no effect. */
static bool is_older(const json_t *quantised, unsigned long minor)
{
    const char *version = json_string_value(json_object_get(quantised, "version"));
    return version && strncmp(version, "0.", 2) == 0 && strtoul(version + 2, NULL, 10) < minor;
}

/* Groups of layers, by the bits of their codes: what all groups of a width say. Layers are not
 * looked up, as that needs the patterns that name them. */
static void declare_by_groups(const json_t *quantised, pj_model_config *c)
{
    json_t *groups = json_object_get(quantised, "config_groups"), *group;
    uint32_t plain = 0, zeros = 0, adjacent = 0, order = 0;
    const char *name;
    json_object_foreach(groups, name, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        const json_t *number = json_object_get(weights, "num_bits");
        const char *type = json_string_value(json_object_get(weights, "type"));
        json_int_t bits = json_is_integer(number) ? json_integer_value(number) : 8;
        if (!json_is_object(weights) || bits < 1 || bits > 8 ||
            (type && strcasecmp(type, "float") == 0))
            continue;
        uint32_t width = UINT32_C(1) << bits;
        *(json_is_false(json_object_get(weights, "symmetric")) ? &zeros : &plain) |= width;
        *(is_reordered(weights) ? &order : &adjacent) |= width;
    }
    /* zeros that are all 0 were left out up to 0.9.2, orders that were never found up to 0.11 */
    if (!is_older(quantised, 10))
        c->packing.zeros = (pj_declared){"symmetric false", zeros & ~plain};
    if (!is_older(quantised, 12))
        c->packing.order = (pj_declared){"actorder group", order & ~adjacent};
}

static void read_declared(const json_t *quantised, pj_model_config *c)
{
    static const char *const awq[] = {"awq", NULL};
    static const char *const columns[] = {"gptq", "auto-round", "intel/auto-round", NULL};
    const json_t *zeros = json_object_get(quantised, "zero_point");
    if (is_one_of(quantised, "quant_method", columns))
        declare_by_columns(quantised, c);
    else if (!is_one_of(quantised, "quant_method", awq))
        declare_by_groups(quantised, c);
    else if (!json_is_false(zeros))
        c->packing.zeros =
            (pj_declared){zeros ? "zero_point true" : "zero_point true by default", UINT32_MAX};
}

/* ---- quantization_config --------------------------------------------------------------------- */

/* The tensors determine the type, its scales and most of the packing, so that layers may differ. */
void pj_config_read_packing(pj_config_reader *r, pj_model_config *c)
{
    static const char *const methods[] = {"mxfp4", "fp8",        "fbgemm_fp8",       "gptq",
                                          "awq",   "auto-round", "intel/auto-round", "bitsandbytes",
                                          NULL};
    static const char *const formats[] = {
        "float-quantized", "pack-quantized",  "nvfp4-pack-quantized", "mxfp4-pack-quantized",
        "int-quantized",   "naive-quantized", "mixed-precision",      NULL};
    static const char *const algorithms[] = {"FP8",   "FP8_PB_WO",   "FP8_PER_CHANNEL_PER_TOKEN",
                                             "NVFP4", "W4A16_NVFP4", "MIXED_PRECISION",
                                             NULL};
    static const char *const second[] = {"gptq_v2", NULL};
    static const char *const plain_zeros[] = {"auto_round", "auto_round:gptqmodel", NULL};
    json_t *quantised = pj_config_get_any(r, "quantization_config");
    json_t *of_mlx = pj_config_get_any(r, "quantization"); /* MLX's, whose copy names no method */
    const char *key = quantised ? "quantization_config" : "quantization";
    if (!json_is_integer(json_object_get(of_mlx, "bits"))) of_mlx = NULL;
    if (!quantised) quantised = of_mlx;
    if (!quantised) return;
    const char *unread = unread_variant(quantised);
    if (unread) {
        pj_config_refuse(r, PJ_E_UNSUPPORTED, key, unread);
        return;
    }
    if (is_one_of(quantised, "quant_method", methods) || is_one_of(quantised, "format", formats) ||
        is_one_of(quantised, "quant_algo", algorithms)) {
        c->gptq_v2 = is_one_of(quantised, "checkpoint_format", second) ||
                     is_one_of(quantised, "format", second) ||
                     is_one_of(quantised, "packing_format", plain_zeros);
        read_fp8_blocks(r, quantised, c);
        read_declared(quantised, c);
        return;
    }
    const char *method = json_string_value(json_object_get(quantised, "quant_method"));
    char problem[256];
    snprintf(problem, sizeof problem,
             "says the checkpoint is quantised (%.40s), which is not read; use the original "
             "weights, with --dtype q8_0 or q4_0, or a GGUF file of the model, such as Q4_K_M",
             method   ? method
             : of_mlx ? "MLX"
                      : "method not named");
    pj_config_refuse(r, PJ_E_UNSUPPORTED, key, problem);
}
