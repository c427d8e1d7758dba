/*
 * What a config.json may leave out, by architecture: the reference implementation's defaults, and
 * which of the fields that configs share it takes notice of at all.
 */
#ifndef PJ_LLM_CONFIG_RULES_H
#define PJ_LLM_CONFIG_RULES_H

#include "llm/arch.h"

#include <stdint.h>

/* Which layers a sliding window covers where `layer_types` does not list them. */
typedef enum pj_window_rule {
    PJ_WINDOW_NEVER = 0,
    PJ_WINDOW_ALL,
    PJ_WINDOW_FROM_BORDER,   /* from layer max_window_layers on */
    PJ_WINDOW_EVEN_TO_BORDER, /* every second one before max_window_layers */
    PJ_WINDOW_PERIOD,        /* all but each period-th */
    PJ_WINDOW_UNROTATED      /* those without rotation */
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
    double partial;             /* share of a head that rotates; 0: all of it, never configured */
    bool neighbours;            /* pairs (2i, 2i + 1) rotate */
    /* Sliding window. */
    pj_window_rule window;
    uint32_t window_period;
    uint32_t window_absent;  /* where the field is absent rather than null */
    bool window_needs_switch; /* counts only where use_sliding_window says so */
    bool lists_layers;       /* layer_types is read */
} pj_config_rules;

const pj_config_rules *pj_config_rules_get(pj_arch arch); /* static */

#endif
