/* What a GGUF file's metadata says of a model, in the form that a config.json takes too. */
#ifndef PJ_LLM_GGUF_CONFIG_H
#define PJ_LLM_GGUF_CONFIG_H

#include "llm/config.h"
#include "llm/gguf.h"

/* Arrays live in `arena`. Some things only the tensors say: biases, scaled frequencies, which
 * layers have experts. */
pj_status pj_gguf_config(const pj_gguf *gguf, const char *name, pj_arena *arena,
                         pj_model_config *config, pj_error *err);

enum { PJ_GGUF_NAME_BYTES = 96 };

/* The file's name of a tensor that the loader knows by the name it has in the other formats
 * ("model.layers.3.self_attn.q_proj.weight" is "blk.3.attn_q.weight"); false: GGUF has none. */
bool pj_gguf_tensor_name(pj_arch arch, const char *name, char *out, size_t bytes);

/* Tensors that pj_gguf_config has read and no layer asks for. */
bool pj_gguf_is_config_tensor(const char *name);

#endif
