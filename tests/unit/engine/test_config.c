/* Configs of old and new model families, and rejections by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "engine/model/blueprint.h"
#include "engine/model/config.h"
#include "engine/model/config_rules.h"
#include "engine/model/facts.h"

#include <stdio.h>
#include <string.h>

#define SIZES                                                                \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"  \
    "\"num_key_value_heads\":2,\"intermediate_size\":96,\"vocab_size\":320," \
    "\"max_position_embeddings\":128"

static pj_arena arena;

static int setup(void **state)
{
    (void)state;
    pj_arena_init(&arena, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pj_arena_fini(&arena);
    return 0;
}

static pj_model_config read(const char *json)
{
    pj_model_config config;
    pj_error err;
    if (pj_config_parse(json, strlen(json), "made", &arena, &config, &err) != PJ_OK)
        fail_msg("%s", err.text);
    return config;
}

static void assert_refused(const char *json, pj_status status, const char *part)
{
    pj_model_config config;
    pj_error err = {0};
    assert_int_equal(pj_config_parse(json, strlen(json), "made", &arena, &config, &err), status);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_generations(void **state)
{
    (void)state;
    pj_model_config old = read("{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":500000,"
                               "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}");
    pj_model_config new = read("{\"architectures\":[\"LlamaForCausalLM\"]," SIZES
                               ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,"
                               "\"rope_theta\":500000.0}}");
    assert_int_equal(old.arch, PJ_ARCH_LLAMA);
    assert_int_equal(new.arch, PJ_ARCH_LLAMA);
    assert_int_equal(old.rope.type, PJ_ROPE_LINEAR);
    assert_int_equal(new.rope.type, PJ_ROPE_LINEAR);
    assert_that(old.rope.theta, ==, new.rope.theta);
    assert_that(old.rope.factor, ==, new.rope.factor);
    assert_int_equal(old.head_dim, 16);
    assert_int_equal(old.rope.dims, 16);
}

/* Defaults of missing fields depend on the architecture. */
static void test_silent_windows(void **state)
{
    (void)state;
    pj_model_config moe = read("{\"model_type\":\"qwen2_moe\"," SIZES ",\"sliding_window\":32,"
                               "\"num_experts\":4,\"num_experts_per_tok\":2,"
                               "\"moe_intermediate_size\":8,\"shared_expert_intermediate_size\":8,"
                               "\"use_sliding_window\":true,\"max_window_layers\":2}");
    assert_int_equal(moe.window, 32);
    assert_true(moe.layer_is_windowed[0]);
    assert_false(moe.layer_is_windowed[1]);
    assert_int_equal(read("{\"model_type\":\"mistral\"," SIZES "}").window, 4096);
    assert_int_equal(read("{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":null}").window,
                     0);
    assert_int_equal(read("{\"model_type\":\"mixtral\"," SIZES "}").window, 0);
    pj_model_config listed = read("{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":8,"
                                  "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    assert_true(!listed.layer_is_windowed[0] && listed.layer_is_windowed[1]);
    pj_model_config all = read("{\"model_type\":\"phi3\"," SIZES ",\"sliding_window\":8,"
                               "\"layer_types\":[\"full_attention\",\"full_attention\"]}");
    assert_int_equal(all.window, 8);
    assert_null(all.layer_is_windowed);
}

/* Llama has no such factor, and transformers ignores it there. */
static void test_partial_rotation(void **state)
{
    (void)state;
    assert_int_equal(
        read("{\"model_type\":\"phi3\"," SIZES ",\"partial_rotary_factor\":0.5}").rope.dims, 8);
    assert_int_equal(
        read("{\"model_type\":\"llama\"," SIZES ",\"partial_rotary_factor\":0.5}").rope.dims, 16);
}

static void test_windows(void **state)
{
    (void)state;
    static const char qwen[] = "{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":32,"
                               "\"max_window_layers\":1,\"use_sliding_window\":%s}";
    char text[1024];
    snprintf(text, sizeof text, qwen, "false");
    assert_int_equal(read(text).window, 0);
    snprintf(text, sizeof text, qwen, "true");
    pj_model_config config = read(text);
    assert_int_equal(config.window, 32);
    assert_true(!config.layer_is_windowed[0] && config.layer_is_windowed[1]);
    assert_int_equal(read("{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":8}").window, 8);
    assert_int_equal(read("{\"model_type\":\"llama\"," SIZES ",\"sliding_window\":8}").window, 0);
}

/* A list of attention types per layer takes precedence over max_window_layers. */
static void test_windows_by_layer(void **state)
{
    (void)state;
    static const char qwen[] = "{\"model_type\":\"qwen2_moe\"," SIZES ",\"sliding_window\":32,"
                               "\"num_experts\":2,\"num_experts_per_tok\":1,"
                               "\"moe_intermediate_size\":8,"
                               "\"shared_expert_intermediate_size\":8,\"max_window_layers\":1,"
                               "\"use_sliding_window\":true,\"layer_types\":[%s]}";
    char text[1024];
    snprintf(text, sizeof text, qwen, "\"sliding_attention\",\"full_attention\"");
    pj_model_config config = read(text);
    assert_int_equal(config.window, 32);
    assert_true(config.layer_is_windowed[0] && !config.layer_is_windowed[1]);
    snprintf(text, sizeof text, qwen, "\"full_attention\",\"full_attention\"");
    assert_int_equal(read(text).window, 0);
}

/* Outside or inside of the scaling; an explicit factor takes precedence over the ratio of
 * contexts. */
static void test_original_context(void **state)
{
    (void)state;
#define LONG "\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[2,2,2,2,2,2,2,2]"
    pj_model_config beside =
        read("{\"model_type\":\"llama\"," SIZES ",\"original_max_position_embeddings\":32,"
             "\"rope_scaling\":{\"rope_type\":\"longrope\"," LONG
             ",\"original_max_position_embeddings\":64}}");
    assert_int_equal(beside.rope.original_context, 32);
    assert_that(beside.rope.factor, ==, 4);
    pj_model_config inside = read("{\"model_type\":\"llama\"," SIZES
                                  ",\"rope_scaling\":{\"rope_type\":\"longrope\"," LONG
                                  ",\"original_max_position_embeddings\":64,\"factor\":3.0}}");
    assert_int_equal(inside.rope.original_context, 64);
    assert_that(inside.rope.factor, ==, 3);
    pj_model_config yarn = read("{\"model_type\":\"llama\"," SIZES
                                ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":null,"
                                "\"original_max_position_embeddings\":16}}");
    assert_that(yarn.rope.factor, ==, 8);
#undef LONG
}

static void test_experts(void **state)
{
    (void)state;
    pj_model_config config =
        read("{\"model_type\":\"qwen3_moe\"," SIZES ",\"head_dim\":32,\"num_experts\":8,"
             "\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,\"mlp_only_layers\":[1],"
             "\"norm_topk_prob\":true}");
    assert_int_equal(config.experts, 8);
    assert_true(config.norm_topk);
    assert_true(config.layer_is_dense && !config.layer_is_dense[0] && config.layer_is_dense[1]);
    /* By hand: embedding and head, two layers of attention and norms, one of experts, one dense. */
    uint64_t attention = 64 * (128 + 64 + 64) + 128 * 64 + 2 * 32 + 2 * 64;
    uint64_t expert = 3 * 48 * 64, dense = 3 * 96 * 64, rest = 2 * 320 * 64 + 64 + 8 * 64;
    pj_model_facts facts;
    pj_model_facts_fill(&config, PJ_F32, &facts);
    assert_int_equal(facts.parameters, 2 * attention + 8 * expert + dense + rest);
    assert_int_equal(facts.active_parameters, 2 * attention + 2 * expert + dense + rest);
    assert_int_equal(facts.decode_weight_bytes, 4 * (facts.active_parameters - 320 * 64 + 64));
    assert_string_equal(facts.attention, "GQA");
}

/* Fields that published files of newer families omit or nest. */
static void test_newer_families(void **state)
{
    (void)state;
    pj_model_config nested =
        read("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[1,106],"
             "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,"
             "\"num_hidden_layers\":34,\"intermediate_size\":10240,\"sliding_window\":1024,"
             "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}}");
    assert_int_equal(nested.arch, PJ_ARCH_GEMMA3);
    assert_int_equal(nested.heads, 8);
    assert_int_equal(nested.kv_heads, 4);
    assert_int_equal(nested.head_dim, 256);
    assert_int_equal(nested.eos_count, 2);
    assert_true(nested.layer_is_windowed[4] && !nested.layer_is_windowed[5]);
    assert_int_equal(nested.rope.type, PJ_ROPE_LINEAR);
    assert_int_equal(nested.window_rope.type, PJ_ROPE_DEFAULT);
    assert_that(nested.rope.theta, ==, 1e6);
    assert_that(nested.window_rope.theta, ==, 1e4);
    pj_model_config smol = read("{\"model_type\":\"smollm3\"," SIZES "}");
    assert_true(smol.layer_rotates[0]);
    assert_true(smol.tied_head);
    assert_that(smol.rope.theta, ==, 2e6);
    pj_model_config capped = read("{\"model_type\":\"gemma2\"," SIZES "}");
    assert_that(capped.attention_softcap, ==, 50);
    assert_that(capped.logit_softcap, ==, 30);
    pj_model_config plain =
        read("{\"model_type\":\"gemma2\"," SIZES ",\"attn_logit_softcapping\":null,"
             "\"final_logit_softcapping\":null}");
    assert_that(plain.attention_softcap, ==, 0);
    assert_that(plain.logit_softcap, ==, 0);
    pj_model_config scaled = read("{\"model_type\":\"ministral3\"," SIZES "}");
    assert_int_equal(scaled.rope.type, PJ_ROPE_YARN);
    assert_that(scaled.query_beta, ==, 0.1);
    assert_that(scaled.query_period, ==, 16384);
}

/* Qwen3.5's mixture of experts: routed and shared experts in every layer, whatever its attention.
 */
static void test_qwen3_5_mixture(void **state)
{
    (void)state;
    pj_model_config c =
        read("{\"architectures\":[\"Qwen3_5MoeForConditionalGeneration\"],\"text_config\":{"
             "\"model_type\":\"qwen3_5_moe_text\",\"num_experts\":64,\"num_experts_per_tok\":6,"
             "\"moe_intermediate_size\":256,\"shared_expert_intermediate_size\":384}}");
    assert_int_equal(c.arch, PJ_ARCH_QWEN3_5_MOE);
    assert_that(c.experts, ==, 64);
    assert_that(c.experts_per_token, ==, 6);
    assert_that(c.expert_intermediate, ==, 256);
    assert_that(c.shared_intermediate, ==, 384);
    assert_true(c.norm_topk);
    assert_false(c.layer_is_dense);
    assert_true(c.layer_is_linear[0] && !c.layer_is_linear[3]);
    assert_refused("{\"model_type\":\"qwen3_5_moe_text\",\"num_experts\":4}", PJ_E_INVALID,
                   "num_experts_per_tok");
    assert_refused("{\"model_type\":\"gpt_oss\",\"num_local_experts\":2}", PJ_E_INVALID,
                   "num_experts_per_tok");
}

/* Routers with groups and corrections, latent attention, layers with a recurrent state. */
static void test_families_of_2025(void **state)
{
    (void)state;
    pj_model_config c = read("{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":4,"
                             "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1,"
                             "\"mscale_all_dim\":1,\"original_max_position_embeddings\":4096},"
                             "\"n_group\":8,\"topk_group\":4,\"first_k_dense_replace\":3,"
                             "\"routed_scaling_factor\":2.5}");
    assert_that(c.head_dim, ==, 512 + 64);
    assert_that(c.kv_heads, ==, 1);
    assert_that(c.rope.dims, ==, 64);
    double factor = 0.1 * log(40) + 1;
    assert_true(fabs(c.score_scale - factor * factor / sqrt(192)) < 1e-9);
    assert_true(c.router_sigmoid && c.router_correction && c.group_by_pair && c.norm_topk);
    assert_that(c.expert_groups, ==, 8);
    assert_that(c.routed_scale, ==, 2.5);
    assert_that(c.shared_intermediate, ==, 2048);
    assert_true(c.layer_is_dense[2] && !c.layer_is_dense[3]);
    assert_refused(
        "{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"full_attention\":\"64\"}}",
        PJ_E_INVALID, "full_attention must be an object");
    assert_refused("{\"model_type\":\"deepseek_v3\",\"n_group\":7}", PJ_E_INVALID, "n_group");
    assert_refused("{\"model_type\":\"deepseek_v3\",\"n_group\":64,\"topk_group\":1}", PJ_E_INVALID,
                   "topk_group");

    /* the defaults of transformers */
    c = read("{\"model_type\":\"deepseek_v3\"}");
    assert_that(c.routed_scale, ==, 2.5);
    assert_that(c.expert_groups, ==, 8);
    assert_that(c.expert_groups_kept, ==, 4);
    assert_true(c.layer_is_dense[2] && !c.layer_is_dense[3]);
    c = read("{\"model_type\":\"glm4_moe\",\"num_attention_heads\":64}");
    assert_true(c.layer_is_dense[0] && !c.layer_is_dense[1]);
    c = read("{\"model_type\":\"glm4_moe_lite\"}");
    assert_true(c.layer_is_dense[0] && !c.layer_is_dense[1]);
    assert_that(c.routed_scale, ==, 1.8);
    c = read("{\"model_type\":\"glm4_moe_lite\",\"num_hidden_layers\":3,\"mlp_layer_types\":"
             "[\"sparse\",\"dense\",\"sparse\"]}");
    assert_true(!c.layer_is_dense[0] && c.layer_is_dense[1] && !c.layer_is_dense[2]);

    /* transformers does not renormalise */
    c = read("{\"model_type\":\"deepseek_v2\",\"norm_topk_prob\":true}");
    assert_false(c.norm_topk);
    c = read("{\"model_type\":\"deepseek_v2\",\"mlp_bias\":true}");
    assert_true(pj_bias_wanted(pj_blueprint_get(c.arch)->mlp_bias, &c));
    assert_false(pj_expert_bias_wanted(pj_blueprint_get(c.arch), &c));
    for (int halves = 0; halves < 2; halves++) {
        c = read(halves ? "{\"model_type\":\"deepseek_v3\",\"rope_interleave\":false}"
                        : "{\"model_type\":\"deepseek_v3\"}");
        assert_int_equal(c.rope.neighbours, !halves);
    }
    assert_refused("{\"model_type\":\"deepseek_v32\",\"rope_interleave\":false}", PJ_E_UNSUPPORTED,
                   "rope_interleave");
    c = read("{\"model_type\":\"ernie4_5_moe\",\"use_bias\":true}");
    assert_true(c.attention_bias && c.mlp_bias && c.head_bias);
    assert_true(pj_bias_wanted(pj_blueprint_get(c.arch)->head_bias, &c));
    assert_false(pj_expert_bias_wanted(pj_blueprint_get(c.arch), &c));
    c = read("{\"model_type\":\"phi\"," SIZES "}");
    assert_true(c.without_qk_norm);
    c = read("{\"model_type\":\"phi\"," SIZES ",\"qk_layernorm\":true}");
    assert_false(c.without_qk_norm);
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"qk_layernorm\":true}", PJ_E_UNSUPPORTED,
                   "qk_layernorm");

    c = read("{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null,\"n_routed_experts\":8}");
    assert_that(c.latent.query_rank, ==, 0);
    assert_false(c.router_sigmoid || c.norm_topk);

    c = read("{\"model_type\":\"granitemoehybrid\",\"hidden_size\":64,\"num_hidden_layers\":2,"
             "\"mamba_n_heads\":8,\"layer_types\":[\"mamba\",\"attention\"],"
             "\"position_embedding_type\":\"nope\"}");
    assert_int_equal(c.linear.kind, PJ_SCAN);
    assert_that(c.linear.value_dim, ==, 16);
    assert_true(c.layer_is_linear[0] && !c.layer_is_linear[1] && !c.layer_rotates[1]);

    c = read("{\"model_type\":\"lfm2\",\"num_hidden_layers\":3,\"full_attn_idxs\":[1],"
             "\"intermediate_size\":6656,\"block_multiple_of\":256}");
    assert_int_equal(c.linear.kind, PJ_SHORT_CONVOLUTION);
    assert_that(c.intermediate, ==, 4608);
    assert_true(c.layer_is_linear[0] && !c.layer_is_linear[1] && c.layer_is_linear[2]);

    c = read("{\"model_type\":\"llama\"," SIZES
             ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}");
    assert_false(c.gptq_v2);
    c = read("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
             "\"gptq\",\"checkpoint_format\":\"gptq_v2\"}}");
    assert_true(c.gptq_v2);
    c = read("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
             "\"auto-round\",\"packing_format\":\"auto_round:gptqmodel\"}}");
    assert_true(c.gptq_v2);
    c = read("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
             "\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\"}}");
    assert_false(c.gptq_v2);
    c = read("{\"model_type\":\"llama\"," SIZES
             ",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4}}");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
                   "\"gptq\",\"checkpoint_format\":\"marlin\"}}",
                   PJ_E_UNSUPPORTED, "checkpoint_format");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
                   "\"auto-round\",\"packing_format\":\"mlx\"}}",
                   PJ_E_UNSUPPORTED, "packing_format");
    assert_refused("{\"model_type\":\"llama\"," SIZES
                   ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
                   "\"pack-quantized\",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}}}",
                   PJ_E_UNSUPPORTED, "sparsity_config");
    assert_refused("{\"model_type\":\"llama\"," SIZES
                   ",\"quantization_config\":{\"quant_method\":\"awq\",\"version\":\"gemv\"}}",
                   PJ_E_UNSUPPORTED, "quantization_config");
    assert_refused("{\"model_type\":\"llama\"," SIZES
                   ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
                   "\"format\":\"pack-quantized\",\"transform_config\":{\"config_groups\":{}}}}",
                   PJ_E_UNSUPPORTED, "transform_config");
    c = read("{\"model_type\":\"llama\"," SIZES
             ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[64,32]}}");
    assert_int_equal(c.fp8_rows, 64);
    assert_int_equal(c.fp8_cols, 32);
    c = read("{\"model_type\":\"llama\"," SIZES
             ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
             "\"format\":\"float-quantized\",\"config_groups\":{\"group_0\":{\"weights\":"
             "{\"strategy\":\"block\",\"block_structure\":[128,64]}}}}}");
    assert_int_equal(c.fp8_rows, 128);
    assert_int_equal(c.fp8_cols, 64);
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
                   "\"fp8\",\"weight_block_size\":[0,32]}}",
                   PJ_E_INVALID, "weight_block_size");
}

/* DeepSeek V3.2 and GLM-5: defaults, rotation, and which layers have an indexer. */
static void test_indexers(void **state)
{
    (void)state;
    pj_model_config c = read("{\"model_type\":\"deepseek_v32\",\"num_hidden_layers\":5}");
    assert_int_equal(c.indexer.heads, 64);
    assert_int_equal(c.indexer.dim, 128);
    assert_int_equal(c.indexer.kept, 2048);
    assert_true(c.rope.neighbours && !c.indexer.neighbours);
    assert_null(c.indexer.layer_shares);
    assert_int_equal(c.latent.query_rank, 1536);
    assert_int_equal(c.expert_groups, 8);
    assert_int_equal(c.expert_groups_kept, 4);
    assert_that(c.routed_scale, ==, 2.5);
    assert_true(c.layer_is_dense[2] && !c.layer_is_dense[3]);

#define GLM "{\"architectures\":[\"GlmMoeDsaForCausalLM\"],\"num_hidden_layers\":8"
    c = read(GLM ",\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\",\"sparse\","
                 "\"sparse\",\"sparse\",\"sparse\"]}");
    assert_int_equal(c.indexer.heads, 32);
    assert_true(c.indexer.neighbours);
    assert_int_equal(c.latent.query_rank, 2048);
    assert_int_equal(c.latent.plain, 192);
    assert_int_equal(c.latent.value, 256);
    assert_true(c.layer_is_dense[0] && !c.layer_is_dense[1]);
    for (uint32_t i = 0; i < 8; i++) assert_true(pj_config_has_indexer(&c, i));
    c = read(GLM ",\"index_topk_freq\":4,\"index_skip_topk_offset\":3}");
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(pj_config_has_indexer(&c, i), i < 3 || i == 6);
    c = read(GLM ",\"index_topk_pattern\":\"FSFFSSSF\",\"indexer_rope_interleave\":false}");
    assert_false(c.indexer.neighbours);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(pj_config_has_indexer(&c, i), "FSFFSSSF"[i] == 'F');
    c = read(GLM ",\"index_topk_freq\":2,\"indexer_types\":[\"full\",\"shared\",\"full\",\"full\","
                 "\"full\",\"full\",\"full\",\"shared\"]}");
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(pj_config_has_indexer(&c, i), i != 1 && i != 7);
    assert_refused(GLM ",\"index_topk_pattern\":\"SFFFFFFF\"}", PJ_E_INVALID, "index_topk_pattern");
    assert_refused(GLM ",\"index_topk_pattern\":\"FFX\"}", PJ_E_INVALID, "index_topk_pattern");
    assert_refused(GLM ",\"indexer_types\":[\"full\"]}", PJ_E_INVALID, "indexer_types");
    assert_refused(GLM ",\"mlp_layer_types\":[\"dense\"]}", PJ_E_INVALID, "mlp_layer_types");
    assert_refused(GLM ",\"q_lora_rank\":null}", PJ_E_UNSUPPORTED, "q_lora_rank");
    assert_refused(GLM ",\"index_head_dim\":32}", PJ_E_INVALID, "index_head_dim");
#undef GLM
}

/* Experts beside layers with a state, and where a family has its own keys for them. */
static void test_mixtures_of_hybrids(void **state)
{
    (void)state;
    pj_model_config c = read("{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":2,"
                             "\"layer_types\":[\"mamba\",\"attention\"],\"num_local_experts\":62,"
                             "\"num_experts_per_tok\":6,\"intermediate_size\":512,"
                             "\"shared_intermediate_size\":1536}");
    assert_int_equal(c.experts, 62);
    assert_int_equal(c.experts_per_token, 6);
    assert_int_equal(c.expert_intermediate, 512);
    assert_int_equal(c.shared_intermediate, 1536);
    c = read("{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":1,"
             "\"layer_types\":[\"mamba\"],\"num_local_experts\":0}");
    assert_int_equal(c.experts, 0);
    c = read("{\"architectures\":[\"GraniteMoeForCausalLM\"],\"intermediate_size\":512,"
             "\"num_local_experts\":32,\"num_experts_per_tok\":8}");
    assert_int_equal(c.expert_intermediate, 512);
    assert_int_equal(c.shared_intermediate, 0);

#define NEMOTRON "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"ME*-\""
    c = read(NEMOTRON ",\"n_routed_experts\":128,\"num_experts_per_tok\":6,\"n_group\":1,"
                      "\"moe_intermediate_size\":1856,\"n_shared_experts\":1,"
                      "\"moe_shared_expert_intermediate_size\":3712,"
                      "\"routed_scaling_factor\":2.5}");
    assert_true(c.router_sigmoid && c.router_correction && c.norm_topk);
    assert_true(c.routed_scale == 2.5);
    assert_int_equal(c.experts, 128);
    assert_int_equal(c.expert_intermediate, 1856);
    assert_int_equal(c.shared_intermediate, 3712);
    for (int i = 0; i < 4; i++) assert_int_equal(c.layer_is_dense[i], i != 1);
    assert_int_equal(pj_config_halves(&c, 1), PJ_HALF_MLP);
    c = read(NEMOTRON ",\"n_routed_experts\":8,\"moe_latent_size\":32}");
    assert_int_equal(c.expert_latent, 32);
    assert_refused(NEMOTRON ",\"moe_latent_size\":1048576}", PJ_E_INVALID, "moe_latent_size");
    c = read(NEMOTRON ",\"mlp_bias\":true}");
    assert_true(c.mlp_bias && !pj_expert_bias_wanted(pj_blueprint_get(c.arch), &c));
#undef NEMOTRON

    c = read("{\"model_type\":\"lfm2_moe\",\"num_hidden_layers\":3,\"layer_types\":[\"conv\","
             "\"full_attention\",\"conv\"],\"use_expert_bias\":false,\"conv_bias\":true}");
    assert_true(c.linear.in_bias && c.linear.conv_bias && c.linear.out_bias);
    assert_int_equal(c.experts, 32);
    assert_int_equal(c.experts_per_token, 4);
    assert_int_equal(c.intermediate, 7168);
    assert_true(c.router_sigmoid && !c.router_correction);
    assert_true(c.layer_is_dense[1] && !c.layer_is_dense[2]);

#define HUNYUAN                                                                            \
    "{\"model_type\":\"hunyuan_v1_moe\",\"num_hidden_layers\":2,\"intermediate_size\":96," \
    "\"num_experts\":16"
    c = read(HUNYUAN ",\"moe_topk\":[4,4],\"num_shared_expert\":[2,2],"
                     "\"moe_intermediate_size\":[64,64],\"rope_scaling\":{\"type\":\"dynamic\","
                     "\"alpha\":1000,\"factor\":1}}");
    assert_int_equal(c.experts_per_token, 4);
    assert_int_equal(c.expert_intermediate, 64);
    assert_int_equal(c.shared_intermediate, 192);
    assert_int_equal(c.rope.type, PJ_ROPE_DEFAULT);
    c = read(HUNYUAN ",\"moe_topk\":[2,5]}");
    assert_int_equal(c.experts_per_token, 5);
    assert_int_equal(pj_config_chosen(&c, 0), 2);
    assert_int_equal(pj_config_chosen(&c, 1), 5);
    assert_refused(HUNYUAN ",\"moe_topk\":[4]}", PJ_E_INVALID, "moe_topk");
    assert_refused(HUNYUAN ",\"moe_topk\":[4,17]}", PJ_E_INVALID, "moe_topk");
    assert_refused(HUNYUAN ",\"moe_topk\":0}", PJ_E_INVALID, "moe_topk");
    assert_refused(HUNYUAN ",\"use_cla\":true}", PJ_E_UNSUPPORTED, "use_cla");
#undef HUNYUAN
}

/* A scan and attention in each layer, with multipliers; bounds of steps, in each way to write them.
 */
static void test_falcon_h1(void **state)
{
    (void)state;
#define FALCON "{\"model_type\":\"falcon_h1\",\"hidden_size\":64,\"num_hidden_layers\":2"
    pj_model_config c =
        read(FALCON ",\"num_attention_heads\":4,\"num_key_value_heads\":2,\"mamba_d_ssm\":null,"
                    "\"mamba_n_heads\":8,\"mamba_d_head\":\"auto\",\"mamba_n_groups\":4,"
                    "\"key_multiplier\":0.5,\"ssm_multipliers\":[1,2,3,4,5],"
                    "\"mlp_multipliers\":[0.5,2],\"mamba_proj_bias\":true,"
                    "\"time_step_limit\":[0.25,{\"__float__\":\"Infinity\"}]}");
    assert_true(pj_config_is_linear(&c, 1) && pj_config_attends(&c, 1));
    assert_int_equal(c.linear.kind, PJ_SCAN);
    assert_that(c.linear.value_dim, ==, 16);
    assert_that(c.linear.least_step, ==, 0.25);
    assert_true(isinf(c.linear.most_step));
    assert_true(c.linear.in_bias && !c.linear.out_bias && c.linear.conv_bias);
    assert_true(c.linear.without_norm && c.linear.norm_first);
    assert_that(c.score_scale, ==, 0.5 / 4);
    assert_that(c.multipliers.ssm[4], ==, 5);
    assert_that(c.multipliers.down, ==, 2);
    assert_that(c.multipliers.ssm_in, ==, 1);

    /* Python writes infinity as no JSON */
    c = read(FALCON ",\"eos_token_id\":3,\"time_step_limit\":[0.0, Infinity]}");
    assert_true(isinf(c.linear.most_step) && c.eos[0] == 3);
    assert_that(c.linear.value_dim, ==, 1024 / 128);

    assert_refused(FALCON ",\"mamba_d_ssm\":100}", PJ_E_INVALID, "mamba_n_heads");
    assert_refused(FALCON ",\"mamba_d_head\":16}", PJ_E_INVALID, "mamba_d_head");
    assert_refused(FALCON ",\"mamba_n_groups\":3}", PJ_E_INVALID, "groups");
    assert_refused(FALCON ",\"ssm_multipliers\":[1,2]}", PJ_E_INVALID, "ssm_multipliers");
    assert_refused(FALCON ",\"mlp_multipliers\":[1,-2]}", PJ_E_INVALID, "mlp_multipliers");
    assert_refused(FALCON ",\"time_step_limit\":[1,0.5]}", PJ_E_INVALID, "time_step_limit");
    assert_refused(FALCON ",\"time_step_limit\":\"none\"}", PJ_E_INVALID, "time_step_limit");
    assert_refused(FALCON ",\"time_step_limit\":[0,NaN]}", PJ_E_INVALID, "not valid JSON");
#undef FALCON
}

/* Scans alone: no attention, no blocks, no positions. */
static void test_mamba2(void **state)
{
    (void)state;
#define MAMBA2 "{\"model_type\":\"mamba2\""
    pj_model_config c = read(MAMBA2 "}");
    assert_int_equal(c.layers, 64);
    assert_int_equal(c.linear.kind, PJ_SCAN);
    assert_int_equal(c.linear.value_heads, 128);
    assert_int_equal(c.linear.value_dim, 64);
    assert_int_equal(c.linear.key_heads, 8);
    assert_int_equal(c.linear.key_dim, 128);
    assert_int_equal(c.rope.dims, 0);
    assert_int_equal(c.intermediate, 0);
    assert_true(c.linear.conv_bias && !c.linear.in_bias && c.linear.most_step == 0);
    for (uint32_t i = 0; i < c.layers; i++)
        assert_true(pj_config_is_linear(&c, i) && !pj_config_attends(&c, i) &&
                    pj_config_halves(&c, i) == PJ_HALF_MIXER);
    c = read(MAMBA2 ",\"use_bias\":true,\"use_conv_bias\":false,\"layer_norm_epsilon\":0.25,"
                    "\"time_step_limit\":[0.5,2]}");
    assert_true(c.linear.in_bias && c.linear.out_bias && !c.linear.conv_bias);
    assert_true(c.linear.least_step == 0.5 && c.linear.most_step == 2 && c.norm_eps == 0.25);
    assert_refused(MAMBA2 ",\"num_heads\":64}", PJ_E_INVALID, "num_heads");
    assert_refused(MAMBA2 ",\"n_groups\":3}", PJ_E_INVALID, "n_groups");
    assert_refused(MAMBA2 ",\"hidden_act\":\"gelu_new\"}", PJ_E_UNSUPPORTED, "hidden_act");
#undef MAMBA2
}

/* What files of packed weights must have. */
static void test_declared_parts(void **state)
{
    (void)state;
#define PACKED(rest) "{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{" rest "}}"
#define GROUPS(rest) "\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"," rest
    static const struct {
        const char *text, *zeros, *order; /* NULL: not said */
        uint32_t zeros_bits, order_bits;
    } cases[] = {
        {PACKED("\"quant_method\":\"gptq\",\"sym\":true"), NULL, NULL, 0, 0},
        {PACKED("\"quant_method\":\"gptq\",\"sym\":false,\"desc_act\":true"), "sym false",
         "desc_act true", UINT32_MAX, UINT32_MAX},
        {PACKED("\"quant_method\":\"gptq\",\"desc_act\":true,\"static_groups\":true"), NULL, NULL,
         0, 0},
        {PACKED("\"quant_method\":\"auto-round\",\"extra_config\":{\"a\":{\"sym\":false}}"),
         "sym false", NULL, UINT32_MAX, 0},
        {PACKED("\"quant_method\":\"awq\",\"zero_point\":false"), NULL, NULL, 0, 0},
        {PACKED("\"quant_method\":\"awq\""), "zero_point true by default", NULL, UINT32_MAX, 0},
        {PACKED(GROUPS("\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,"
                       "\"symmetric\":false,\"actorder\":\"Group\"}},\"b\":{\"weights\":null}}")),
         "symmetric false", "actorder group", 1 << 4, 1 << 4},
        {PACKED(
             GROUPS("\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,"
                    "\"symmetric\":false,\"actorder\":\"static\"}},\"b\":{\"weights\":{"
                    "\"num_bits\":4}},\"c\":{\"weights\":{\"num_bits\":8,\"symmetric\":false}}}")),
         "symmetric false", NULL, 1 << 8, 0},
        {PACKED(GROUPS("\"version\":\"0.11.0\",\"config_groups\":{\"a\":{\"weights\":{"
                       "\"num_bits\":4,\"symmetric\":false,\"actorder\":\"group\"}}}")),
         "symmetric false", NULL, 1 << 4, 0},
        {PACKED(GROUPS("\"version\":\"0.9.2\",\"config_groups\":{\"a\":{\"weights\":{"
                       "\"num_bits\":4,\"symmetric\":false,\"actorder\":\"group\"}}}")),
         NULL, NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_model_config c = read(cases[i].text);
        assert_int_equal(c.packing.zeros.bits, cases[i].zeros_bits);
        assert_int_equal(c.packing.order.bits, cases[i].order_bits);
        if (cases[i].zeros) assert_string_equal(c.packing.zeros.by, cases[i].zeros);
        if (cases[i].order) assert_string_equal(c.packing.order.by, cases[i].order);
    }
    assert_true(read(PACKED("\"quant_method\":\"gptq\",\"format\":\"gptq_v2\"")).gptq_v2);
    assert_refused(PACKED("\"quant_method\":\"gptq\",\"format\":\"gptq_p\""), PJ_E_UNSUPPORTED,
                   "checkpoint_format");
    assert_refused(PACKED("\"quant_method\":\"awq\",\"format\":\"gemv\""), PJ_E_UNSUPPORTED,
                   "version of AWQ");
#undef GROUPS
#undef PACKED
}

/* Chunks, unrotated layers, scaled queries and experts by layer. */
static void test_llama4(void **state)
{
    (void)state;
#define LLAMA4 "{\"model_type\":\"llama4_text\",\"num_hidden_layers\":4"
    pj_model_config c = read(LLAMA4 "}");
    assert_true(c.window == 8192 && c.window_is_chunk);
    assert_true(c.layer_rotates[2] && !c.layer_rotates[3]);
    assert_true(pj_config_is_windowed(&c, 2) && !pj_config_is_windowed(&c, 3));
    assert_true(c.query_beta == 0.1 && c.query_period == 8192 && c.query_first == 1);
    assert_that(c.intermediate, ==, 16384);
    assert_that(c.expert_intermediate, ==, 8192);
    assert_that(c.shared_intermediate, ==, 8192);
    assert_true(c.router_sigmoid && !c.norm_topk && !c.without_qk_norm);
    assert_true(!c.layer_is_dense[0] && c.rope.neighbours);

    /* the text part of a multimodal model, in an older spelling */
    c = read("{\"architectures\":[\"Llama4ForConditionalGeneration\"],\"text_config\":{"
             "\"model_type\":\"llama4_text\",\"num_hidden_layers\":4,\"no_rope_layers\":[],"
             "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16,\"low_freq_factor\":1,"
             "\"high_freq_factor\":1,\"original_max_position_embeddings\":8192},"
             "\"attn_temperature_tuning\":4,\"interleave_moe_layer_step\":2,"
             "\"layer_types\":[\"full_attention\",\"chunked_attention\",\"full_attention\","
             "\"full_attention\"],\"attention_chunk_size\":16}}");
    assert_int_equal(c.arch, PJ_ARCH_LLAMA4);
    assert_true(c.query_beta > 0 && c.layer_is_dense[0] && !c.layer_is_dense[1]);
    assert_true(c.rope.type == PJ_ROPE_LLAMA3 && c.rope.low_freq_factor == 1);
    assert_true(!pj_config_is_windowed(&c, 0) && pj_config_is_windowed(&c, 1));

    /* without experts and chunks, as small models have it */
    c = read(LLAMA4 ",\"moe_layers\":[],\"num_local_experts\":0,\"num_experts_per_tok\":0,"
                    "\"interleave_moe_layer_step\":0,\"no_rope_layers\":[1,1,1,1],"
                    "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
                    "\"full_attention\"],\"attention_chunk_size\":null,"
                    "\"attn_temperature_tuning\":false}");
    assert_true(c.experts == 0 && c.window == 0 && !c.window_is_chunk && c.query_beta == 0);

    assert_refused(LLAMA4 ",\"attention_chunk_size\":null}", PJ_E_INVALID, "attention_chunk_size");
    assert_refused(LLAMA4 ",\"no_rope_layers\":[1,1]}", PJ_E_INVALID, "no_rope_layers");
    assert_refused(LLAMA4 ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16,"
                          "\"low_freq_factor\":2,\"high_freq_factor\":1,"
                          "\"original_max_position_embeddings\":8192}}",
                   PJ_E_INVALID, "high_freq_factor");
    assert_refused(LLAMA4 ",\"moe_layers\":[1,-1]}", PJ_E_INVALID, "moe_layers");
    assert_refused(LLAMA4 ",\"num_experts_per_tok\":17}", PJ_E_INVALID, "num_experts_per_tok");
    assert_refused(LLAMA4 ",\"layer_types\":[\"sliding_attention\",\"full_attention\","
                          "\"full_attention\",\"full_attention\"]}",
                   PJ_E_UNSUPPORTED, "layer_types");
#undef LLAMA4
}

/* Biases and norms of scans; scales beyond the original context. */
static void test_defaults_of_the_reference(void **state)
{
    (void)state;
    pj_model_config c = read("{\"model_type\":\"granitemoehybrid\",\"hidden_size\":64,"
                             "\"num_hidden_layers\":2,\"mamba_n_heads\":8,\"mamba_n_groups\":2,"
                             "\"mamba_proj_bias\":true,\"time_step_limit\":[0.5,2],"
                             "\"layer_types\":[\"mamba\",\"attention\"]}");
    assert_true(!c.layer_rotates[1] && c.linear.in_bias && c.linear.out_bias);
    assert_true(c.linear.least_step == 0.5 && c.linear.most_step == 2);
    c = read("{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"mamba\",\"attention\"],"
             "\"attention_bias\":true,\"use_bias\":true}");
    assert_false(pj_bias_wanted(pj_blueprint_get(c.arch)->qkv_bias, &c));
    assert_true(c.linear.in_bias && c.linear.out_bias);
#define PHIMOE                                                                  \
    "{\"model_type\":\"phimoe\",\"hidden_size\":64,\"num_attention_heads\":16," \
    "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2],"           \
    "\"long_factor\":[3,4],\"original_max_position_embeddings\":32,\"short_mscale\":1.25"
    c = read(PHIMOE ",\"long_mscale\":1.5}}");
    assert_true(c.rope.attention_factor == 1.25 && c.rope.long_attention_factor == 1.5);
    assert_that(c.rope.long_factor[1], ==, 2);
    assert_refused(PHIMOE "}}", PJ_E_INVALID, "long_mscale");
#undef PHIMOE
}

static void test_eos(void **state)
{
    (void)state;
    pj_model_config config = read("{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":[5,6]}");
    pj_generation_config generation;
    pj_error err;
    static const char more[] = "{\"eos_token_id\":[6,7],\"temperature\":0.5}";
    assert_int_equal(
        pj_generation_config_parse(more, strlen(more), "made", &config, &generation, &err), PJ_OK);
    assert_int_equal(config.eos_count, 3);
    assert_that(generation.temperature, ==, 0.5);
    assert_true(isnan(generation.top_p));
}

/* Every value of pj_arch has a row in each table. */
static void test_every_table_has_every_architecture(void **state)
{
    (void)state;
    for (pj_arch arch = 0; arch < PJ_ARCH_COUNT; arch++) {
        const char *name = pj_arch_name(arch);
        assert_true(name);
        assert_that(pj_arch_of_class(name), ==, arch);
        assert_non_null(pj_config_rules_get(arch)->activation);
        assert_true(pj_blueprint_get(arch)->attention_norm ||
                    pj_blueprint_get(arch)->attention_out_norm);
    }
}

static void test_refused(void **state)
{
    (void)state;
    assert_refused("{" SIZES "}", PJ_E_INVALID, "architectures");
    assert_refused("{\"model_type\":\"mamba\"," SIZES "}", PJ_E_UNSUPPORTED, "mamba");
    assert_refused("{\"model_type\":\"mamba\"," SIZES "}", PJ_E_UNSUPPORTED, " more)");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"hidden_act\":\"relu\"}", PJ_E_UNSUPPORTED,
                   "relu");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":"
                   "\"hqq\"}}",
                   PJ_E_UNSUPPORTED, "hqq");
    assert_refused("{\"model_type\":\"llama\"," SIZES
                   ",\"quantization\":{\"group_size\":64,\"bits\":4}}",
                   PJ_E_UNSUPPORTED, "(MLX)");
    assert_refused("{\"model_type\":\"llama\"," SIZES
                   ",\"quantization\":{\"group_size\":64,\"bits\":4},\"quantization_config\":"
                   "{\"group_size\":64,\"bits\":4}}",
                   PJ_E_UNSUPPORTED, "(MLX)");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"ntk\"}}",
                   PJ_E_UNSUPPORTED, "ntk");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"head_dim\":15}", PJ_E_INVALID, "even");
    assert_refused("{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":0}", PJ_E_INVALID,
                   "rms_norm_eps");
    assert_refused("{\"model_type\":\"phi3\"," SIZES ",\"rope_scaling\":{\"type\":\"longrope\","
                   "\"short_factor\":[1],\"long_factor\":[1]}}",
                   PJ_E_INVALID, "short_factor");
    assert_refused("{\"model_type\":\"mixtral\"," SIZES ",\"num_local_experts\":4,"
                   "\"num_experts_per_tok\":5}",
                   PJ_E_INVALID, "num_experts_per_tok");
}

/* Layers of one kind rotate by one table and read each other's caches: their sizes must fit. */
static void test_sizes_of_layers_must_fit(void **state)
{
    (void)state;
#define LAYERS_OF_GEMMA                                                            \
    "{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"head_dim\":16,"          \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":4," \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\","                   \
    "\"sliding_attention\",\"full_attention\"]"
    pj_model_config c = read(LAYERS_OF_GEMMA ",\"per_layer_config\":{\"1\":{\"head_dim\":32},"
                                             "\"3\":{\"head_dim\":32}}}");
    assert_that(c.rope.dims, ==, 32);
    assert_that(c.window_rope.dims, ==, 16);
    assert_refused(LAYERS_OF_GEMMA ",\"per_layer_config\":{\"3\":{\"head_dim\":2}}}",
                   PJ_E_UNSUPPORTED, "different head_dim");
    assert_refused(LAYERS_OF_GEMMA ",\"num_kv_shared_layers\":2,\"per_layer_config\":{"
                                   "\"2\":{\"num_key_value_heads\":4}}}",
                   PJ_E_INVALID, "with shared keys");
    /* the only layer is the last one, which has no window */
    c = read("{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":1}");
    assert_int_equal(c.window, 0);
#undef LAYERS_OF_GEMMA
}

#define GEMMA3N "\"model_type\":\"gemma3n_text\",\"num_hidden_layers\":5"

static void test_gemma3n(void **state)
{
    (void)state;
    pj_model_config c =
        read("{\"architectures\":[\"Gemma3nForConditionalGeneration\"],\"eos_token_id\":[1,106],"
             "\"text_config\":{" GEMMA3N ",\"intermediate_size\":[96,64,96,64,96],"
             "\"activation_sparsity_pattern\":[0.95,0.5,0.0,0,0],\"rope_local_base_freq\":500,"
             "\"num_kv_shared_layers\":1,\"altup_coef_clip\":null,\"layer_types\":["
             "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
             "\"sliding_attention\",\"full_attention\"]}}");
    assert_int_equal(c.arch, PJ_ARCH_GEMMA3N);
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(pj_config_mlp_width(&c, 0), 96);
    assert_int_equal(pj_config_mlp_width(&c, 3), 64);
    assert_near(c.layer_cutoff[0], 1.6448536269514722, 1e-9);
    assert_near(c.layer_cutoff[1], 0, 1e-9);
    assert_true(c.layer_cutoff[2] == -INFINITY);
    assert_that(c.window_rope.theta, ==, 500);
    assert_that(c.logit_softcap, ==, 30);
    assert_that(c.streams.clip, ==, 0);
    assert_int_equal(pj_config_kv_source(&c, 4), 1);
    assert_int_equal(pj_config_kv_source(&c, 3), 3);
    assert_true(c.tied_head);
    /* what is silent: four streams, the last fifteen of more layers share, the first ten cut */
    c = read("{\"model_type\":\"gemma3n_text\"}");
    assert_int_equal(c.streams.count, 4);
    assert_int_equal(c.streams.residual_rank, 64);
    assert_that(c.streams.clip, ==, 120);
    assert_int_equal(pj_config_kv_source(&c, 19), 19);
    assert_int_equal(pj_config_kv_source(&c, 20), 18);
    assert_int_equal(pj_config_kv_source(&c, 34), 19);
    assert_true(c.layer_cutoff[9] > 1.6 && c.layer_cutoff[10] == -INFINITY);
    c = read("{" GEMMA3N "}");
    assert_int_equal(pj_config_kv_source(&c, 4), 4);
    assert_true(c.layer_cutoff[0] == -INFINITY);
}

static void test_gemma3n_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *part;
    } rows[] = {
        {",\"intermediate_size\":[96,96]", "must have every layer's width"},
        {",\"intermediate_size\":[96,96,96,96,0]", "must have widths between"},
        {",\"intermediate_size\":[96,96,96,96,\"a\"]", "must have widths between"},
        {",\"activation_sparsity_pattern\":[0,0,0,0,1]", "from 0 to below 1"},
        {",\"activation_sparsity_pattern\":[0]", "a share for every layer"},
        {",\"altup_active_idx\":4", "is not below altup_num_inputs"},
        {",\"altup_num_inputs\":1", "between 2 and 16"},
        {",\"laurel_rank\":0", "laurel_rank"},
        {",\"num_kv_shared_layers\":4", "leaves one kind of layer without its own keys"},
        {",\"num_kv_shared_layers\":5", "num_kv_shared_layers"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, "{" GEMMA3N "%s}", rows[i].more);
        assert_refused(text, PJ_E_INVALID, rows[i].part);
    }
    assert_refused("{" GEMMA3N ",\"hidden_size_per_layer_input\":0}", PJ_E_UNSUPPORTED,
                   "hidden_size_per_layer_input");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_silent_windows),
        cmocka_unit_test(test_partial_rotation),
        cmocka_unit_test(test_windows_by_layer),
        cmocka_unit_test(test_original_context),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_families_of_2025),
        cmocka_unit_test(test_indexers),
        cmocka_unit_test(test_mixtures_of_hybrids),
        cmocka_unit_test(test_falcon_h1),
        cmocka_unit_test(test_mamba2),
        cmocka_unit_test(test_declared_parts),
        cmocka_unit_test(test_llama4),
        cmocka_unit_test(test_defaults_of_the_reference),
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_qwen3_5_mixture),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_newer_families),
        cmocka_unit_test(test_sizes_of_layers_must_fit),
        cmocka_unit_test(test_gemma3n),
        cmocka_unit_test(test_gemma3n_refused),
        cmocka_unit_test(test_every_table_has_every_architecture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
