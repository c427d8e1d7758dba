/* What a run used of its model, from its rows: the experts of each layer, and the context of each
 * sequence. */
#ifndef PJ_STORE_MODEL_USE_H
#define PJ_STORE_MODEL_USE_H

#include "store/store.h"

typedef struct pj_expert_load {
    uint32_t layers, experts; /* layers 0: no layer was recorded */
    double *share;            /* [layers][experts] of the choices of that layer over all passes;
                                 NAN: the layer has no router */
} pj_expert_load;

/* `experts` per layer; the shares are in the arena. */
pj_status pj_store_expert_load(pj_store *store, const char *id, uint32_t experts, pj_arena *arena,
                               pj_expert_load *load, pj_error *err);

/* Positions that each sequence's last step attended to, from the token rows of a batch: writes up
 * to `capacity` and sets *count, which is 0 where the rows do not say. */
pj_status pj_store_contexts(pj_store *store, const char *id, uint32_t *positions, uint32_t capacity,
                            uint32_t *count, pj_error *err);

#endif
