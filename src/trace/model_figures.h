/* Figures of a run's model as numbers. A run keeps them as a JSON object (pj_run_info.model_json),
 * because other programs may report more or fewer of them. */
#ifndef PJ_TRACE_MODEL_FIGURES_H
#define PJ_TRACE_MODEL_FIGURES_H

#include "trace/attention_work.h"

/* clang-format off */
#define PJ_MODEL_NUMBERS(X) \
    X(parameters) X(active_parameters) X(layers) X(hidden_size) X(intermediate_size) \
    X(heads) X(head_dim) X(experts) X(experts_per_token) X(context) X(window) \
    X(weight_bytes) X(decode_weight_bytes) X(flops_per_token) X(kv_bytes_per_token) \
    X(kv_window_bytes_per_token)
/* clang-format on */

/* NAN, "": unknown. */
typedef struct pj_model_figures {
#define MEMBER(name) double name;
    PJ_MODEL_NUMBERS(MEMBER)
#undef MEMBER
    char attention[16], kv_type[16];
    char draft_name[128]; /* of speculative decoding; "": none */
    double draft_proposed, draft_accepted;
    pj_attention_work attention_work; /* where `knows_attention` */
    bool knows_attention;
} pj_model_figures;

/* `json` NULL: all are unknown. */
void pj_model_figures_read(const char *json, pj_model_figures *figures);

#endif
