/* Power of requests as a simulated sensor reports it, with the true phase of every reading: planted
 * truth for the detection of phases (analysis/phases.h). */
#ifndef PJ_BENCH_SIM_TRACE_H
#define PJ_BENCH_SIM_TRACE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pj_sim_request {
    double idle_ms;  /* before and after */
    double load_ms;  /* preparation: loading and tokenization */
    double token_ms; /* of one decode step */
    double prefill;  /* net power of prefill relative to the same work in decode */
    uint32_t layers;
    uint32_t prompt; /* tokens; each takes a tenth of a decode step */
    uint32_t tokens; /* that are decoded */
} pj_sim_request;

typedef struct pj_sim_trace {
    double *t_ms, *mw;
    uint8_t *phase; /* pj_phase that covers most of the time that the reading averages */
    size_t count;
} pj_sim_trace;

/* `sensor` as after "sim:" (power/sim.h); its first rail is read. Times vary by a few percent,
 * drawn from `seed`. The trace must be finished by the caller, also after a failure. */
pj_status pj_sim_trace_make(const char *sensor, const pj_sim_request *request, uint64_t seed,
                            pj_sim_trace *trace, pj_error *err);
void pj_sim_trace_fini(pj_sim_trace *trace);

#endif
