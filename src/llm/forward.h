/*
 * The forward pass: token ids through all layers to logits, for every architecture of the
 * blueprint table. One pass takes rows of one or several sequences: a piece of a prompt, or one
 * token of each sequence of a batch. Rows of different sequences never see each other.
 */
#ifndef PJ_LLM_FORWARD_H
#define PJ_LLM_FORWARD_H

#include "llm/state.h"

/* Runs the pass and adds its tokens to the cache; logits [logit_count][vocab] are in
 * state->logits. PJ_E_CANCELLED leaves the sequences as they were. Allocates nothing. */
pj_status pj_forward(pj_state *state, const pj_pass *pass, pj_seam *seam);
/* Logits of more rows of the pass that ran last, into state->logits. */
void pj_forward_logits(pj_state *state, const uint32_t *rows, uint32_t count, pj_seam *seam);

/* For calibration. `prepare` runs the whole pass without adding it to the cache, so that every
 * buffer holds what it would, and notes in `part` which components there are. `part` then runs one
 * of them alone, part->only, in one layer, on the same buffers. Nothing is recorded: `silent` is a
 * seam without a lane. */
struct pj_pass_part;
void pj_forward_prepare(pj_state *state, const pj_pass *pass, pj_seam *silent,
                        struct pj_pass_part *part);
void pj_forward_part(pj_state *state, const pj_pass *pass, pj_seam *silent,
                     struct pj_pass_part *part, uint32_t layer);

#endif
