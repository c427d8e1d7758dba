/* Names of architectures in files: one list for reading config.json and GGUF metadata, for error
 * messages, and for the list of models. */
#ifndef PJ_MODEL_ARCH_H
#define PJ_MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>

typedef enum pj_arch {
    PJ_ARCH_LLAMA = 0,
    PJ_ARCH_MISTRAL,
    PJ_ARCH_PHI,  /* Phi-1, 1.5, 2 */
    PJ_ARCH_PHI3, /* Phi-3, 3.5, 4, 4-mini */
    PJ_ARCH_QWEN2,
    PJ_ARCH_QWEN3,
    PJ_ARCH_MIXTRAL,
    PJ_ARCH_QWEN2_MOE,
    PJ_ARCH_QWEN3_MOE,
    PJ_ARCH_SMOLLM3,
    PJ_ARCH_GRANITE,
    PJ_ARCH_OLMO2,
    PJ_ARCH_OLMO3,
    PJ_ARCH_GLM4,
    PJ_ARCH_MINISTRAL3,
    PJ_ARCH_GEMMA2,
    PJ_ARCH_GEMMA3,
    PJ_ARCH_GPT_OSS,
    PJ_ARCH_QWEN3_5,
    PJ_ARCH_GEMMA4,
    PJ_ARCH_QWEN3_5_MOE,
    PJ_ARCH_QWEN3_NEXT,
    PJ_ARCH_GLM4_MOE,
    PJ_ARCH_MINIMAX_M2,
    PJ_ARCH_SEED_OSS,
    PJ_ARCH_ERNIE4_5,
    PJ_ARCH_ERNIE4_5_MOE,
    PJ_ARCH_EXAONE4,
    PJ_ARCH_COHERE2,
    PJ_ARCH_DEEPSEEK_V2,
    PJ_ARCH_DEEPSEEK_V3,
    PJ_ARCH_GLM4_MOE_LITE,
    PJ_ARCH_LFM2,
    PJ_ARCH_GRANITE_HYBRID,
    PJ_ARCH_HUNYUAN_DENSE,
    PJ_ARCH_APERTUS,
    PJ_ARCH_BITNET,
    PJ_ARCH_PHIMOE,
    PJ_ARCH_NEMOTRON_H,
    PJ_ARCH_FALCON_H1,
    PJ_ARCH_LLAMA4,
    PJ_ARCH_GEMMA3N,
    PJ_ARCH_MIMO,
    PJ_ARCH_GRANITE_MOE,
    PJ_ARCH_HUNYUAN_MOE,
    PJ_ARCH_LFM2_MOE,
    PJ_ARCH_DEEPSEEK_V32,
    PJ_ARCH_GLM_MOE_DSA, /* GLM-5 */
    PJ_ARCH_MAMBA2,
    PJ_ARCH_COUNT
} pj_arch;

/* Layers of the gated delta rule between those of attention. */
static inline bool pj_arch_has_delta(pj_arch arch)
{
    return arch == PJ_ARCH_QWEN3_5 || arch == PJ_ARCH_QWEN3_5_MOE || arch == PJ_ARCH_QWEN3_NEXT;
}

/* Multipliers of embedding, residuals, scores and logits. */
static inline bool pj_arch_is_granite(pj_arch arch)
{
    return arch == PJ_ARCH_GRANITE || arch == PJ_ARCH_GRANITE_HYBRID || arch == PJ_ARCH_GRANITE_MOE;
}
/* Short convolutions between layers of attention. */
static inline bool pj_arch_is_lfm2(pj_arch arch)
{
    return arch == PJ_ARCH_LFM2 || arch == PJ_ARCH_LFM2_MOE;
}
static inline bool pj_arch_is_hunyuan(pj_arch arch)
{
    return arch == PJ_ARCH_HUNYUAN_DENSE || arch == PJ_ARCH_HUNYUAN_MOE;
}

/* Attention to the keys that an indexer chooses. */
static inline bool pj_arch_has_indexer(pj_arch arch)
{
    return arch == PJ_ARCH_DEEPSEEK_V32 || arch == PJ_ARCH_GLM_MOE_DSA;
}

/* Look up `architectures[0]` or `model_type` of a config.json, or `general.architecture` of a GGUF
 * file; PJ_ARCH_COUNT: unknown. */
pj_arch pj_arch_of_class(const char *class_name);
pj_arch pj_arch_of_model_type(const char *model_type);
pj_arch pj_arch_of_gguf(const char *name);

/* The architecture of the text part of a multimodal model, whose config.json nests it as
 * `text_config`; for text configs that do not name their own type. */
pj_arch pj_arch_of_wrapper(const char *class_name, const char *model_type);

const char *pj_arch_name(pj_arch arch); /* "LlamaForCausalLM" */
/* Whether GGUF files permute the rows of q and k so that neighbouring pairs rotate. */
bool pj_arch_gguf_neighbours(pj_arch arch);

/* For error messages, of which they must leave room: model types ("llama, mistral, ... and 9
 * more"), and names in GGUF files, written to `text`, which is returned. */
enum { PJ_ARCH_LIST_BYTES = 320 };
const char *pj_arch_list(char text[PJ_ARCH_LIST_BYTES]);
const char *pj_arch_gguf_list(char text[PJ_ARCH_LIST_BYTES]);

#endif
