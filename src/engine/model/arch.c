/* The list of architectures' names. */
#include "engine/model/arch.h"

#include <stdio.h>
#include <string.h>

typedef struct names {
    const char *class_name, *model_type;
    const char *gguf; /* NULL: GGUF files use another architecture's name for it */
    bool neighbours;
} names;

static const names archs[PJ_ARCH_COUNT] = {
    [PJ_ARCH_LLAMA] = {"LlamaForCausalLM", "llama", "llama", true},
    [PJ_ARCH_MISTRAL] = {"MistralForCausalLM", "mistral", NULL, true},
    [PJ_ARCH_PHI] = {"PhiForCausalLM", "phi", "phi2", false},
    [PJ_ARCH_PHI3] = {"Phi3ForCausalLM", "phi3", "phi3", false},
    [PJ_ARCH_QWEN2] = {"Qwen2ForCausalLM", "qwen2", "qwen2", false},
    [PJ_ARCH_QWEN3] = {"Qwen3ForCausalLM", "qwen3", "qwen3", false},
    [PJ_ARCH_MIXTRAL] = {"MixtralForCausalLM", "mixtral", NULL, true},
    [PJ_ARCH_QWEN2_MOE] = {"Qwen2MoeForCausalLM", "qwen2_moe", "qwen2moe", false},
    [PJ_ARCH_QWEN3_MOE] = {"Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe", false},
    [PJ_ARCH_SMOLLM3] = {"SmolLM3ForCausalLM", "smollm3", "smollm3", true},
    [PJ_ARCH_GRANITE] = {"GraniteForCausalLM", "granite", "granite", true},
    [PJ_ARCH_OLMO2] = {"Olmo2ForCausalLM", "olmo2", "olmo2", false},
    [PJ_ARCH_OLMO3] = {"Olmo3ForCausalLM", "olmo3", NULL, false},
    [PJ_ARCH_GLM4] = {"Glm4ForCausalLM", "glm4", "glm4", true},
    [PJ_ARCH_MINISTRAL3] = {"Ministral3ForCausalLM", "ministral3", "mistral3", true},
    [PJ_ARCH_GEMMA2] = {"Gemma2ForCausalLM", "gemma2", "gemma2", false},
    [PJ_ARCH_GEMMA3] = {"Gemma3ForCausalLM", "gemma3_text", "gemma3", false},
    [PJ_ARCH_GPT_OSS] = {"GptOssForCausalLM", "gpt_oss", "gpt-oss", false},
    [PJ_ARCH_QWEN3_5] = {"Qwen3_5ForCausalLM", "qwen3_5_text", "qwen35", false},
    [PJ_ARCH_GEMMA4] = {"Gemma4ForCausalLM", "gemma4_text", "gemma4", false},
    [PJ_ARCH_QWEN3_5_MOE] = {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen35moe", false},
    [PJ_ARCH_QWEN3_NEXT] = {"Qwen3NextForCausalLM", "qwen3_next", "qwen3next", false},
    [PJ_ARCH_GLM4_MOE] = {"Glm4MoeForCausalLM", "glm4_moe", "glm4moe", false},
    [PJ_ARCH_MINIMAX_M2] = {"MiniMaxM2ForCausalLM", "minimax_m2", "minimax-m2", false},
    [PJ_ARCH_SEED_OSS] = {"SeedOssForCausalLM", "seed_oss", "seed_oss", false},
    [PJ_ARCH_ERNIE4_5] = {"Ernie4_5ForCausalLM", "ernie4_5", "ernie4_5", true},
    [PJ_ARCH_ERNIE4_5_MOE] = {"Ernie4_5_MoeForCausalLM", "ernie4_5_moe", "ernie4_5-moe", true},
    [PJ_ARCH_EXAONE4] = {"Exaone4ForCausalLM", "exaone4", "exaone4", false},
    [PJ_ARCH_DEEPSEEK_V2] = {"DeepseekV2ForCausalLM", "deepseek_v2", "deepseek2", true},
    [PJ_ARCH_DEEPSEEK_V3] = {"DeepseekV3ForCausalLM", "deepseek_v3", NULL, true},
    [PJ_ARCH_GLM4_MOE_LITE] = {"Glm4MoeLiteForCausalLM", "glm4_moe_lite", NULL, true},
    [PJ_ARCH_LFM2] = {"Lfm2ForCausalLM", "lfm2", "lfm2", false},
    [PJ_ARCH_GRANITE_HYBRID] = {"GraniteMoeHybridForCausalLM", "granitemoehybrid", "granitehybrid",
                                true},
    [PJ_ARCH_COHERE2] = {"Cohere2ForCausalLM", "cohere2", "cohere2", true},
    [PJ_ARCH_HUNYUAN_DENSE] = {"HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", "hunyuan-dense",
                               false},
    [PJ_ARCH_APERTUS] = {"ApertusForCausalLM", "apertus", "apertus", false},
    [PJ_ARCH_BITNET] = {"BitNetForCausalLM", "bitnet", "bitnet", false},
    [PJ_ARCH_PHIMOE] = {"PhimoeForCausalLM", "phimoe", "phimoe", false},
    [PJ_ARCH_NEMOTRON_H] = {"NemotronHForCausalLM", "nemotron_h", "nemotron_h", false},
    [PJ_ARCH_FALCON_H1] = {"FalconH1ForCausalLM", "falcon_h1", "falcon-h1", false},
    [PJ_ARCH_LLAMA4] = {"Llama4ForCausalLM", "llama4_text", "llama4", true},
    [PJ_ARCH_MIMO] = {"MiMoForCausalLM", "mimo", NULL, false},
    [PJ_ARCH_GEMMA3N] = {"Gemma3nForCausalLM", "gemma3n_text", "gemma3n", false},
    [PJ_ARCH_GRANITE_MOE] = {"GraniteMoeForCausalLM", "granitemoe", "granitemoe", true},
    [PJ_ARCH_HUNYUAN_MOE] = {"HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", "hunyuan-moe", false},
    [PJ_ARCH_LFM2_MOE] = {"Lfm2MoeForCausalLM", "lfm2_moe", "lfm2moe", false},
    [PJ_ARCH_DEEPSEEK_V32] = {"DeepseekV32ForCausalLM", "deepseek_v32", "deepseek32", true},
    [PJ_ARCH_MAMBA2] = {"Mamba2ForCausalLM", "mamba2", "mamba2", false},
    [PJ_ARCH_GLM_MOE_DSA] = {"GlmMoeDsaForCausalLM", "glm_moe_dsa", "glm-dsa", true},
};

static const struct {
    const char *class_name, *model_type;
    pj_arch text;
} wrappers[] = {
    {"Mistral3ForConditionalGeneration", "mistral3", PJ_ARCH_MISTRAL},
    {"Gemma3ForConditionalGeneration", "gemma3", PJ_ARCH_GEMMA3},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", PJ_ARCH_QWEN3_5},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", PJ_ARCH_QWEN3_5_MOE},
    {"Gemma4ForConditionalGeneration", "gemma4", PJ_ARCH_GEMMA4},
    {"Llama4ForConditionalGeneration", "llama4", PJ_ARCH_LLAMA4},
    {"Gemma3nForConditionalGeneration", "gemma3n", PJ_ARCH_GEMMA3N},
};

/* Other names of one architecture, with or without parts that its files may have. */
static const struct {
    const char *class_name, *model_type, *gguf;
    pj_arch arch;
} others[] = {
    {"GraniteMoeSharedForCausalLM", "granitemoeshared", NULL, PJ_ARCH_GRANITE_MOE},
    {NULL, NULL, "nemotron_h_moe", PJ_ARCH_NEMOTRON_H},
};

static bool is_name(const char *one, const char *other)
{
    return one && strcmp(one, other) == 0;
}

pj_arch pj_arch_of_class(const char *class_name)
{
    int i = 0;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (is_name(others[k].class_name, class_name)) return others[k].arch;
    while (i < PJ_ARCH_COUNT && strcmp(archs[i].class_name, class_name) != 0) i++;
    return (pj_arch)i;
}

pj_arch pj_arch_of_model_type(const char *model_type)
{
    int i = 0;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (is_name(others[k].model_type, model_type)) return others[k].arch;
    while (i < PJ_ARCH_COUNT && strcmp(archs[i].model_type, model_type) != 0) i++;
    return (pj_arch)i;
}

pj_arch pj_arch_of_wrapper(const char *class_name, const char *model_type)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if ((class_name && strcmp(wrappers[i].class_name, class_name) == 0) ||
            (!class_name && model_type && strcmp(wrappers[i].model_type, model_type) == 0))
            return wrappers[i].text;
    return PJ_ARCH_COUNT;
}

pj_arch pj_arch_of_gguf(const char *name)
{
    int i = 0;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (is_name(others[k].gguf, name)) return others[k].arch;
    while (i < PJ_ARCH_COUNT && !is_name(archs[i].gguf, name)) i++;
    return (pj_arch)i;
}

const char *pj_arch_name(pj_arch arch)
{
    return archs[arch].class_name;
}

bool pj_arch_gguf_neighbours(pj_arch arch)
{
    return archs[arch].neighbours;
}

static const char *model_type_of(int arch)
{
    return archs[arch].model_type;
}

static const char *gguf_of(int arch)
{
    return archs[arch].gguf;
}

/* As many names as fit, and how many others there are. */
static const char *list_names(const char *(*name_of)(int), char text[PJ_ARCH_LIST_BYTES])
{
    enum { MORE_BYTES = sizeof " and 1000 more" };
    size_t used = 0;
    int more = 0;
    for (int i = 0; i < PJ_ARCH_COUNT; i++) {
        const char *name = name_of(i);
        if (!name) continue;
        if (more || used + strlen(name) + 2 + MORE_BYTES > PJ_ARCH_LIST_BYTES)
            more++;
        else
            used += (size_t)snprintf(text + used, PJ_ARCH_LIST_BYTES - used, "%s%s",
                                     used ? ", " : "", name);
    }
    if (more) snprintf(text + used, PJ_ARCH_LIST_BYTES - used, " and %d more", more);
    return text;
}

const char *pj_arch_list(char text[PJ_ARCH_LIST_BYTES])
{
    return list_names(model_type_of, text);
}

const char *pj_arch_gguf_list(char text[PJ_ARCH_LIST_BYTES])
{
    return list_names(gguf_of, text);
}
