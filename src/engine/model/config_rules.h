/* Defaults by architecture for fields missing in a config.json, as in the reference implementation,
 * and which of the shared fields the architecture uses at all. */
#ifndef PJ_MODEL_CONFIG_RULES_H
#define PJ_MODEL_CONFIG_RULES_H

#include "engine/model/arch.h"

#include <stdint.h>

/* Which layers have a sliding window if `layer_types` does not list them. */
typedef enum pj_window_rule {
    PJ_WINDOW_NEVER = 0,
    PJ_WINDOW_ALL,
    PJ_WINDOW_FROM_BORDER,    /* from layer max_window_layers on */
    PJ_WINDOW_EVEN_TO_BORDER, /* every second layer before max_window_layers */
    PJ_WINDOW_PERIOD,         /* all but each period-th */
    PJ_WINDOW_UNROTATED       /* those without rotation */
} pj_window_rule;

typedef struct pj_config_rules {
    /* Sizes; 0: must be given (kv_heads: as many as heads; head_dim: hidden / heads). */
    uint32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, context;
    double eps; /* of norms */
    const char *activation;
    bool activation_in_gemma_key; /* `hidden_activation`, not `hidden_act` */
    bool tied, attention_bias;
    /* Rotation. */
    double theta, window_theta; /* window_theta 0: all layers rotate alike */
    /* fraction of a head that rotates; 0: all of it, not configurable */
    double partial;
    bool neighbours; /* pairs (2i, 2i + 1) rotate */
    /* Sliding window. */
    pj_window_rule window;
    uint32_t window_period;
    uint32_t window_absent;   /* default if the field is absent (not null) */
    bool window_needs_switch; /* applies only with use_sliding_window */
    bool lists_layers;        /* layer_types is read */
    bool only_windows_rotate; /* if the model has windowed layers, the others do not rotate */
} pj_config_rules;

const pj_config_rules *pj_config_rules_get(pj_arch arch); /* static */

#endif
