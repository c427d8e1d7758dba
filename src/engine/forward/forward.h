/* The forward pass: token ids through all layers to logits, for every architecture of the blueprint
 * table. One pass takes rows of one or more sequences: a chunk of a prompt, or one token of each
 * sequence of a batch. Rows of different sequences are independent. */
#ifndef PJ_FORWARD_FORWARD_H
#define PJ_FORWARD_FORWARD_H

#include "engine/forward/state.h"

/* Runs the pass and adds its tokens to the cache; logits [logit_count][vocab] are in
 * state->logits. PJ_E_CANCELLED leaves the sequences as they were. Allocates nothing. */
pj_status pj_forward(pj_state *state, const pj_pass *pass, pj_instrument *instrument);
/* Logits of further rows of the last pass, into state->logits. */
void pj_forward_logits(pj_state *state, const uint32_t *rows, uint32_t count,
                       pj_instrument *instrument);

/* For calibration. `prepare` runs a complete pass without adding it to the cache, so that every
 * buffer is filled, and notes the existing components in `part`. `part` then runs a single one,
 * part->only, in one layer, on the same buffers. Nothing is recorded: `silent` has no lane. */
struct pj_pass_part;
void pj_forward_prepare(pj_state *state, const pj_pass *pass, pj_instrument *silent,
                        struct pj_pass_part *part);
void pj_forward_part(pj_state *state, const pj_pass *pass, pj_instrument *silent,
                     struct pj_pass_part *part, uint32_t layer);

#endif
