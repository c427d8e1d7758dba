/* Figures of a run's model as numbers. A run keeps them as a JSON object (pj_run_info.model_json),
 * because models of other programs may say more or less about themselves. */
#ifndef PJ_TRACE_MODEL_FIGURES_H
#define PJ_TRACE_MODEL_FIGURES_H

/* NAN, "": unknown. */
typedef struct pj_model_figures {
    double parameters, active_parameters, layers, hidden_size, intermediate_size, heads, head_dim;
    double experts, experts_per_token, context, window;
    double weight_bytes, decode_weight_bytes, flops_per_token;
    double kv_bytes_per_token, kv_window_bytes_per_token;
    char attention[16], kv_type[16];
    char draft_name[128]; /* of speculative decoding; "": none */
    double draft_proposed, draft_accepted;
} pj_model_figures;

/* `json` NULL: everything is unknown. */
void pj_model_figures_read(const char *json, pj_model_figures *figures);

#endif
