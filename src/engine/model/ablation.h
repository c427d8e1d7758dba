/* Parts of the forward pass that can be ablated to measure their cost: they are not computed, so
 * the run lacks their time, FLOPs and bytes. The output is no longer the model's. */
#ifndef PJ_MODEL_ABLATION_H
#define PJ_MODEL_ABLATION_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is left out. The norms before attention and MLP always run. */
typedef struct pj_ablation {
    bool attention;  /* of every layer: projections, attention itself (or the delta rule) */
    bool mlp;        /* of every layer: the feed-forward block, or the experts with their router */
    bool head;       /* the projection to logits, which are then all zero */
    uint32_t layers; /* only the first so many layers run; 0: all */
} pj_ablation;

/* "attention", "mlp", "head" or "layers=N"; NULL or "": nothing. */
pj_status pj_ablation_parse(const char *text, pj_ablation *ablation, pj_error *err);

#endif
