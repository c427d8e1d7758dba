/* Names of tensors in GGUF files: those that the loader asks for, as folders have them, in the
 * files' own spelling. */
#include "engine/model/gguf_config.h"

#include "engine/model/blueprint.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pj_gguf_is_config_tensor(const char *name)
{
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

typedef struct name_pair {
    const char *loader, *file;
} name_pair;

static const name_pair outside[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"final_layernorm", "output_norm"},
    {"norm_f", "output_norm"},
    {"embedding_norm", "token_embd_norm"},
    {"embed_tokens_per_layer", "per_layer_token_embd"},
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
    {"altup_projections", "altup_proj"},
    {"altup_unembed_projections", "altup_unembd_proj"},
};

/* Of layers, with names that end otherwise. */
static const name_pair whole[] = {
    {"linear_attn.A_log", "ssm_a"},
    {"mamba.A_log", "ssm_a"},
    {"mamba.D", "ssm_d"},
    {"mixer.A_log", "ssm_a"},
    {"mixer.D", "ssm_d"},
    {"pre_ff_layernorm", "ffn_norm"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"altup.correct_output_scale", "altup_correct_scale.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
};

static const name_pair inside[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"}, /* or post_attention_norm: layer_name */
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.dense", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
    {"self_attn.sinks", "attn_sinks"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.k_b_proj", "attn_k_b"},
    {"self_attn.v_b_proj", "attn_v_b"},
    {"self_attn.indexer.wq_b", "indexer.attn_q_b"},
    {"self_attn.indexer.wk", "indexer.attn_k"},
    {"self_attn.indexer.k_norm", "indexer.k_norm"},
    {"self_attn.indexer.weights_proj", "indexer.proj"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.in_proj_qkvz", "ssm_in"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.dt_bias", "ssm_dt"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"eh_proj", "nextn.eh_proj"},
    {"shared_head.norm", "nextn.shared_head_norm"},
    {"altup.router_norm", "altup_router_norm"},
    {"altup.modality_router", "altup_router"},
    {"altup.prediction_coefs", "altup_predict_coef"},
    {"altup.correction_coefs", "altup_correct_coef"},
    {"laurel.linear_left", "laurel_l"},
    {"laurel.linear_right", "laurel_r"},
    {"laurel.post_laurel_norm", "laurel_post_norm"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"router.proj", "ffn_gate_inp"},
    {"experts.gate_proj", "ffn_gate_exps"},
    {"experts.up_proj", "ffn_up_exps"},
    {"experts.down_proj", "ffn_down_exps"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.dt_bias", "ssm_dt"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"shared_mlp.gate_proj", "ffn_gate"},
    {"shared_mlp.up_proj", "ffn_up"},
    {"shared_mlp.output_linear", "ffn_down"},
    {"norm", "attn_norm"},
    {"mixer.in_proj", "ssm_in"},
    {"mixer.conv1d", "ssm_conv1d"},
    {"mixer.dt_bias", "ssm_dt"},
    {"mixer.norm", "ssm_norm"},
    {"mixer.out_proj", "ssm_out"},
    {"mixer.q_proj", "attn_q"},
    {"mixer.k_proj", "attn_k"},
    {"mixer.v_proj", "attn_v"},
    {"mixer.o_proj", "attn_output"},
    {"mixer.up_proj", "ffn_up"},
    {"mixer.down_proj", "ffn_down"},
    {"attention_layernorm", "attn_norm"},
    {"feedforward_layernorm", "ffn_norm"},
    {"self_attn.query_layernorm", "attn_q_norm"},
    {"self_attn.key_layernorm", "attn_k_norm"},
    {"self_attn.attn_sub_norm", "attn_sub_norm"},
    {"mlp.ffn_sub_norm", "ffn_sub_norm"},
    {"feed_forward.gate_proj", "ffn_gate"},
    {"feed_forward.up_proj", "ffn_up"},
    {"feed_forward.down_proj", "ffn_down"},
    {"feed_forward.router", "ffn_gate_inp"},
    {"feed_forward.experts.gate_proj", "ffn_gate_exps"},
    {"feed_forward.experts.up_proj", "ffn_up_exps"},
    {"feed_forward.experts.down_proj", "ffn_down_exps"},
    {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
    {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
    {"operator_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"self_attn.out_proj", "attn_output"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.w3", "ffn_up"},
    {"mlp.gate.e_score_correction", "exp_probs_b"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert.output_linear", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"feed_forward.gate", "ffn_gate_inp"},
    {"feed_forward.gate.e_score_correction", "exp_probs_b"},
    {"mixer.gate", "ffn_gate_inp"},
    {"mixer.fc1_latent_proj", "ffn_latent_down"},
    {"mixer.fc2_latent_proj", "ffn_latent_up"},
    {"mixer.gate.e_score_correction", "exp_probs_b"},
    {"mixer.experts.up_proj", "ffn_up_exps"},
    {"mixer.experts.down_proj", "ffn_down_exps"},
    {"mixer.shared_expert.up_proj", "ffn_up_shexp"},
    {"mixer.shared_expert.down_proj", "ffn_down_shexp"},
};

static const char *find_pair(const name_pair *pairs, size_t count, const char *part, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(pairs[i].loader) == bytes && memcmp(pairs[i].loader, part, bytes) == 0)
            return pairs[i].file;
    return NULL;
}

/* "mlp.experts.7.gate_proj": a single expert, as in older files. */
static const char *find_expert(const char *part, size_t bytes, unsigned long *expert)
{
    static const char prefix[] = "mlp.experts.";
    const size_t skipped = sizeof prefix - 1;
    char mlp[32], *end;
    if (bytes <= skipped || memcmp(part, prefix, skipped) != 0) return NULL;
    if (!isdigit((unsigned char)part[skipped])) return NULL;
    *expert = strtoul(part + skipped, &end, 10);
    if (*end != '.' || end >= part + bytes) return NULL;
    int length = snprintf(mlp, sizeof mlp, "mlp%.*s", (int)(part + bytes - end), end);
    if (length >= (int)sizeof mlp) return NULL;
    return find_pair(inside, sizeof inside / sizeof *inside, mlp, (size_t)length);
}

static bool put_name(char *out, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool put_name(char *out, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, bytes, format, arguments);
    va_end(arguments);
    return length > 0 && (size_t)length < bytes;
}

/* In some architectures the norm of this name precedes the feed-forward block, in others it follows
 * attention. */
static bool closes_attention(pj_arch arch, const char *part, size_t length)
{
    pj_instrument_name norm = PJ_N_POST_ATTENTION_LAYERNORM;
    const char *name = pj_instrument_text(norm);
    return strlen(name) == length && memcmp(name, part, length) == 0 &&
           (pj_blueprint_get(arch)->attention_out_norm == norm || arch == PJ_ARCH_GPT_OSS ||
            arch == PJ_ARCH_GLM4_MOE || arch == PJ_ARCH_SEED_OSS || pj_arch_has_delta(arch));
}

static bool layer_name(pj_arch arch, const char *rest, const char *kind, char *out, size_t bytes)
{
    char *end;
    unsigned long expert, layer = strtoul(rest, &end, 10);
    if (end == rest || *end != '.') return false;
    const char *part = end + 1;
    size_t length = (size_t)(kind - part);
    const char *file = closes_attention(arch, part, length)
                           ? "post_attention_norm"
                           : find_pair(inside, sizeof inside / sizeof *inside, part, length);
    if (file) return put_name(out, bytes, "blk.%lu.%s%s", layer, file, kind);
    file = find_expert(part, length, &expert);
    return file && put_name(out, bytes, "blk.%lu.%s.%lu%s", layer, file, expert, kind);
}

/* "model.layers.3.layer_scalar" */
static bool whole_name(const char *name, char *out, size_t bytes)
{
    static const char prefix[] = "model.layers.";
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    unsigned long layer = strtoul(name + sizeof prefix - 1, &end, 10);
    if (*end != '.') return false;
    /* loaders append ".weight" to some */
    size_t length = strlen(end + 1), suffix = strlen(".weight");
    const size_t count = sizeof whole / sizeof *whole;
    const char *file = find_pair(whole, count, end + 1, length);
    if (!file && length > suffix && strcmp(end + 1 + length - suffix, ".weight") == 0)
        file = find_pair(whole, count, end + 1, length - suffix);
    return file && put_name(out, bytes, "blk.%lu.%s", layer, file);
}

bool pj_gguf_tensor_name(pj_arch arch, const char *name, char *out, size_t bytes)
{
    static const char layers[] = "layers.", prefix[] = "model.";
    const char *kind = strrchr(name, '.');
    if (whole_name(name, out, bytes)) return true;
    if (!kind ||
        (strcmp(kind, ".weight") != 0 && strcmp(kind, ".bias") != 0 && strcmp(kind, ".scale") != 0))
        return false;
    size_t stem = (size_t)(kind - name);
    if (stem == 7 && memcmp(name, "lm_head", 7) == 0) return put_name(out, bytes, "output%s", kind);
    if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
    if (name >= kind) return false;
    if (strncmp(name, layers, sizeof layers - 1) == 0)
        return layer_name(arch, name + sizeof layers - 1, kind, out, bytes);
    const char *file =
        find_pair(outside, sizeof outside / sizeof *outside, name, (size_t)(kind - name));
    return file && put_name(out, bytes, "%s%s", file, kind);
}
