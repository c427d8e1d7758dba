/* The CPU as a compute backend: the forward pass of forward.c over a pj_state in host memory. */
#include "engine/forward/backend.h"

#include "base/memory.h"
#include "engine/forward/forward.h"

static pj_status cpu_open(pj_compute *compute, const pj_compute_host *host,
                          const pj_state_options *options, pj_error *err)
{
    pj_state *state = pj_alloc(1, sizeof *state);
    if (!state) return pj_fail_memory(err, "the state of a generation");
    pj_status status = pj_state_init(state, host->model, host->kernels, host->team, options, err);
    if (status != PJ_OK) {
        pj_free(state);
        return status;
    }
    compute->own = state;
    compute->sequences = state->sequences;
    compute->logits = state->logits;
    return PJ_OK;
}

static void cpu_close(pj_compute *compute)
{
    pj_state_fini(compute->own);
    pj_free(compute->own);
}

static void cpu_reset(pj_compute *compute, uint32_t sequence)
{
    pj_state_reset(compute->own, sequence);
}

static pj_status cpu_forward(pj_compute *compute, const pj_pass *pass, pj_instrument *instrument)
{
    return pj_forward(compute->own, pass, instrument);
}

static void cpu_more_logits(pj_compute *compute, const uint32_t *rows, uint32_t count,
                            pj_instrument *instrument)
{
    pj_forward_logits(compute->own, rows, count, instrument);
}

static void cpu_prepare(pj_compute *compute, const pj_pass *pass, pj_instrument *silent,
                        struct pj_pass_part *part)
{
    pj_forward_prepare(compute->own, pass, silent, part);
}

static void cpu_run_part(pj_compute *compute, const pj_pass *pass, pj_instrument *silent,
                         struct pj_pass_part *part, uint32_t layer)
{
    pj_forward_part(compute->own, pass, silent, part, layer);
}

extern const pj_backend pj_backend_cpu;
const pj_backend pj_backend_cpu = {.version = PJ_BACKEND_VERSION,
                                   .name = "cpu",
                                   .open = cpu_open,
                                   .close = cpu_close,
                                   .reset = cpu_reset,
                                   .forward = cpu_forward,
                                   .more_logits = cpu_more_logits,
                                   .prepare = cpu_prepare,
                                   .run_part = cpu_run_part};
