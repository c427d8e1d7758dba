/* Mean loss of a text under an open model: what a setting that saves energy costs in quality. */
#ifndef PJ_EXPERIMENT_LOSS_H
#define PJ_EXPERIMENT_LOSS_H

#include "engine/generation/engine.h"

/* -ln of the probability that the logits give to `id`. */
double pj_cross_entropy(const float *logits, uint32_t vocab, int32_t id);

/* Nats per token over the text's first tokens (a window of the context at most, 2048 tokens). */
pj_status pj_profile_loss(pj_engine *engine, const char *text, size_t bytes, double *loss,
                          pj_error *err);

#endif
