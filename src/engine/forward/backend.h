/*
 * A compute backend: the whole forward pass as a table of functions, so that a backend is free to
 * place weights, cache and activations, to fuse steps and to run them asynchronously. The engine's
 * files above it (engine.c, generate.c, calibrate.c) call only these functions. The CPU
 * (backend_cpu.c: forward.c over the kernel sets of engine/kernels) is the first; adding one is a
 * file with a const pj_backend and a line in backends.c.
 *
 * Its input is the open model: configuration, and weights in host memory in the types of pj_dtype.
 * It must provide
 *   - logits in host memory when `forward` returns;
 *   - the bookkeeping of pj_sequence: tokens and length of what its cache holds;
 *   - spans: sections, layers, components and operations with FLOPs, bytes and statistics through
 *     the pj_instrument of the call, or, from a device that reports late, by pj_device_spans_add of
 *     perjoule.h before the run ends;
 *   - no allocation, lock or log in `forward`.
 */
#ifndef PJ_FORWARD_BACKEND_H
#define PJ_FORWARD_BACKEND_H

#include "engine/forward/instrument.h"
#include "engine/model/ablation.h"
#include "engine/model/model.h"

#include <stdatomic.h>

/* Incremented with every change of the table's layout or of a function's contract. */
enum { PJ_BACKEND_VERSION = 3 };

typedef struct pj_sequence {
    uint32_t length;     /* tokens in the cache */
    uint32_t base;       /* first position that windowed layers still hold */
    uint32_t generation; /* of rope frequencies the keys were rotated with */
    int32_t *tokens;     /* [context] the ids whose keys are in the cache */
} pj_sequence;

typedef struct pj_state_options {
    uint32_t sequences;
    uint32_t context;    /* positions a sequence may have */
    uint32_t max_tokens; /* rows of one pass, over all sequences */
    uint32_t max_logits; /* rows of logits of one pass */
    uint32_t rewind;     /* tokens that the engine may roll back by lowering pj_sequence.length */
    pj_dtype kv_type;    /* F32 or F16 */
    pj_ablation without; /* what `forward` leaves out */
} pj_state_options;

/* Rows [row, row + count) of a pass are the next `count` tokens of a sequence. */
typedef struct pj_pass_segment {
    uint32_t sequence, row, count;
    uint32_t unit_begin; /* written by the pass */
} pj_pass_segment;

typedef struct pj_pass {
    const int32_t *ids; /* [tokens], each within the vocabulary */
    uint32_t tokens;
    pj_pass_segment *segments; /* in row order, each sequence at most once */
    uint32_t segment_count;
    const uint32_t *logit_rows; /* rows whose logits are needed */
    uint32_t logit_count;
    bool prefill;
    const _Atomic bool *cancel; /* polled once per layer; NULL: never */
} pj_pass;

/* What a backend is opened on. */
typedef struct pj_compute_host {
    const pj_model *model;
    const pj_kernels *kernels; /* of the host's processor */
    pj_team *team;             /* the host's threads */
} pj_compute_host;

/* The state of a generation: the cache of its sequences and whatever a pass needs. Filled by
 * `open`; sequences and logits are read by the engine, `own` is the backend's. */
typedef struct pj_compute {
    const struct pj_backend *backend;
    pj_state_options options;
    pj_sequence *sequences; /* [options.sequences] */
    float *logits;          /* [max_logits][vocab], of the last pass */
    void *own;              /* the backend's; NULL: not open */
} pj_compute;

struct pj_pass_part;

typedef struct pj_backend {
    uint32_t version; /* PJ_BACKEND_VERSION */
    const char *name; /* "cpu" */
    /* Allocates everything a pass of these options needs. */
    pj_status (*open)(pj_compute *compute, const pj_compute_host *host,
                      const pj_state_options *options, pj_error *err);
    void (*close)(pj_compute *compute);                    /* only if open */
    void (*reset)(pj_compute *compute, uint32_t sequence); /* empties a sequence */
    /* Runs the pass and adds its tokens to the cache. PJ_E_CANCELLED leaves the sequences as they
     * were. */
    pj_status (*forward)(pj_compute *compute, const pj_pass *pass, pj_instrument *instrument);
    /* Logits of more rows of the last pass. */
    void (*more_logits)(pj_compute *compute, const uint32_t *rows, uint32_t count,
                        pj_instrument *instrument);

    /* For calibration; optional, both or neither. See pj_forward_prepare and pj_forward_part. */
    void (*prepare)(pj_compute *compute, const pj_pass *pass, pj_instrument *silent,
                    struct pj_pass_part *part);
    void (*run_part)(pj_compute *compute, const pj_pass *pass, pj_instrument *silent,
                     struct pj_pass_part *part, uint32_t layer);
} pj_backend;

/* The first is the default; NULL at the end. */
extern const pj_backend *const pj_backends[];

/* Opens with `backend` (NULL: the default); fails on a table of another version. */
pj_status pj_compute_open(pj_compute *compute, const pj_backend *backend,
                          const pj_compute_host *host, const pj_state_options *options,
                          pj_error *err);
void pj_compute_close(pj_compute *compute); /* may run twice; a zeroed one is allowed */

static inline pj_status pj_compute_forward(pj_compute *compute, const pj_pass *pass,
                                           pj_instrument *instrument)
{
    return compute->backend->forward(compute, pass, instrument);
}

#endif
