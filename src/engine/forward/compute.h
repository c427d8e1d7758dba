/*
 * A model on a device, and generations on it: what the engine's files above (engine.c, generate.c,
 * calibrate.c) call. The forward pass takes token ids through all layers to logits, for every
 * architecture of the blueprint table. One pass takes rows of one or more sequences: a chunk of a
 * prompt, or one token of each sequence of a batch. Rows of different sequences are independent.
 */
#ifndef PJ_FORWARD_COMPUTE_H
#define PJ_FORWARD_COMPUTE_H

#include "engine/forward/ops.h"

/* A model on a device. */
typedef struct pj_loaded {
    const pj_backend *backend;
    const pj_model *model;
    void *device; /* the backend's; NULL: not loaded */
    pj_compute_facts facts;
} pj_loaded;

/* Fails on a backend of another version. */
pj_status pj_load(pj_loaded *loaded, const pj_backend *backend, const pj_load_request *request,
                  pj_error *err);
void pj_unload(pj_loaded *loaded); /* may run twice; a zeroed one is allowed */

/* The state of a generation: the cache of its sequences and whatever a pass needs. */
typedef struct pj_compute {
    const pj_loaded *loaded;
    pj_state_options options;
    uint32_t full_slots, window_slots;
    pj_sequence *sequences;                /* [options.sequences] */
    uint32_t *row_sequence, *row_position; /* [max_tokens] of the last pass */
    pj_instrument *instrument;
    float *logits;      /* [logit_count][vocab] of the last pass, in host memory */
    const int32_t *ids; /* [logit_count] of the last greedy pass */
    void *state;        /* the device's; NULL: not open */
    pj_error *err;      /* of open, and of a pass that fails */
} pj_compute;

/* Allocates everything that passes of these options need. `instrument` records them; it and `err`
 * outlive the state. */
pj_status pj_compute_open(pj_compute *compute, const pj_loaded *loaded,
                          const pj_state_options *options, pj_instrument *instrument,
                          pj_error *err);
void pj_compute_close(pj_compute *compute); /* may run twice; a zeroed one is allowed */
void pj_compute_reset(pj_compute *compute, uint32_t sequence); /* empties a sequence */
/* Drops the rows of the last pass, which was of this sequence alone, but for the first `kept`. */
void pj_compute_rewind(pj_compute *compute, uint32_t sequence, uint32_t kept);
/* Makes room for `count` more tokens of a sequence in windowed layers; within a pass. */
void pj_compute_make_room(pj_compute *compute, uint32_t sequence, uint32_t count);

/* Runs the pass and adds its tokens to the cache. PJ_E_CANCELLED leaves the sequences as they were.
 * Allocates nothing. */
pj_status pj_compute_forward(pj_compute *compute, const pj_pass *pass);
/* Logits of more rows of the last pass. */
pj_status pj_compute_logits(pj_compute *compute, const uint32_t *rows, uint32_t count);

/* The first `rows` rows of the last pass's output, normalised for the head, in host memory until
 * the next pass. */
pj_status pj_compute_hidden(pj_compute *compute, uint32_t rows, const float **hidden);

/* For calibration. `prepare` runs a complete pass without adding it to the cache, so that every
 * buffer is filled, and notes the existing components in `part`. `part` then runs a single one,
 * part->only, in one layer, on the same buffers. The instrument must not have a lane. */
typedef struct pj_pass_part {
    pj_instrument_name only; /* PJ_N_NONE: all run, and `seen` notes those that exist */
    bool seen[PJ_N_COUNT];
} pj_pass_part;
pj_status pj_compute_prepare(pj_compute *compute, const pj_pass *pass, pj_pass_part *part);
pj_status pj_compute_part(pj_compute *compute, const pj_pass *pass, pj_pass_part *part,
                          uint32_t layer);

/* KV cache bytes per token, in all layers or only in those with a sliding window. */
size_t pj_kv_token_bytes(const pj_model *model, pj_dtype kv_type, bool only_windowed);

#endif
