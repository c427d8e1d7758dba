/* Reads a model's configuration from GGUF metadata, into the same struct as config.json. */
#ifndef PJ_MODEL_GGUF_CONFIG_H
#define PJ_MODEL_GGUF_CONFIG_H

#include "engine/files/gguf.h"
#include "engine/model/config.h"

/* Arrays are in `arena`. Some properties follow only from the tensors: biases, scaled frequencies,
 * which layers have experts. */
pj_status pj_gguf_config(const pj_gguf *gguf, const char *name, pj_arena *arena,
                         pj_model_config *config, pj_error *err);

enum { PJ_GGUF_NAME_BYTES = 96 };

/* The GGUF name for a tensor's name in the other formats ("model.layers.3.self_attn.q_proj.weight"
 * is "blk.3.attn_q.weight"); false: GGUF has none. */
bool pj_gguf_tensor_name(pj_arch arch, const char *name, char *out, size_t bytes);

/* Tensors consumed by pj_gguf_config that no layer requests. */
bool pj_gguf_is_config_tensor(const char *name);

#endif
