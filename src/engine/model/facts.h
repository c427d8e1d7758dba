/* Figures of a model that matter for energy, computed from its config: parameters, bytes and FLOPs
 * per token. */
#ifndef PJ_MODEL_FACTS_H
#define PJ_MODEL_FACTS_H

#include "base/json.h"
#include "engine/files/dtype.h"
#include "engine/model/config.h"
#include "trace/attention_work.h"

typedef struct pj_model_facts {
    char arch[64], attention[4]; /* "MHA", "GQA", "MQA", "MLA", "SSM": none, or "DSA": MLA with an
                                     indexer */
    uint32_t layers, hidden, heads, kv_heads, head_dim, vocab, context;
    uint32_t experts, experts_per_token; /* 0: dense */
    uint32_t window;                     /* tokens, 0: none */
    pj_dtype dtype;
    uint64_t parameters; /* a tied head is counted once */
    /* Their parts: attention and MLP with biases and layer inputs, norms, the embedding, and a
     * separate head (0: tied to the embedding). They add up to `parameters`. */
    uint64_t attention_parameters, mlp_parameters, norm_parameters, embedding_parameters,
        head_parameters;
    uint64_t active_parameters;   /* without the experts that a token does not use */
    uint64_t decode_weight_bytes; /* weights read to decode one token, one sequence at a time */
    uint64_t flops_per_token;     /* of the matrices: 2 per weight; attention not included */
    /* KV cache of one position in F16, all layers; read by decode */
    uint64_t kv_bytes_per_token;
    /* Against one cached position that all layers see: scores and values, and an indexer's scores.
     */
    uint64_t attention_flops_per_position;
    pj_attention_work attention_work; /* with a cache in F16 */
} pj_model_facts;

void pj_model_facts_fill(const pj_model_config *config, pj_dtype dtype, pj_model_facts *facts);
/* Writes `parameters_by_part`, an object, into an open object. */
void pj_model_parts_json(const pj_model_facts *facts, pj_json *json);
/* Writes the members into an open object. */
void pj_model_facts_json(const pj_model_facts *facts, pj_json *json);

#endif
