/* Mean loss of a text under an open model: what a setting that saves energy costs in quality. */
#ifndef PJ_EXPERIMENT_LOSS_H
#define PJ_EXPERIMENT_LOSS_H

#include "engine/generation/engine.h"

/* Nats per token over the text's first tokens (a window of the context at most, 2048 tokens). */
pj_status pj_profile_loss(pj_engine *engine, const char *text, size_t bytes, double *loss,
                          pj_error *err);

#endif
