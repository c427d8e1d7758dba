/* Which kernels a pass dispatches, what they read and compute, and how long they take: for reports.
 * Without a loaded model, passes are outlined: recorded, but not run. */
#ifndef PJ_VULKAN_TRACE_H
#define PJ_VULKAN_TRACE_H

#include "engine/vulkan/gpu.h"

typedef struct pj_gpu_dispatched {
    const char *kernel;
    double bytes, flops; /* read, of weights or of the cache or of what else dominates; computed */
    double seconds;      /* between the end of the one before and its own; NAN: not run */
} pj_gpu_dispatched;

struct pj_gpu_trace {
    pj_gpu_dispatched *list;
    uint32_t most, count;
};

/* A row of each of `sequences` sequences with `before` tokens in the cache, whose values do not
 * matter, at depth off. */
pj_status pj_gpu_trace_decode(pj_gpu_model *m, pj_dtype kv_type, uint32_t sequences,
                              uint32_t before, pj_gpu_trace *trace, pj_error *err);

/* A model without weights on a device, for outlines. `packs`: as on a device with dot products of
 * 8-bit integers. */
pj_status pj_gpu_outline_open(const pj_model *model, bool packs, pj_gpu_model **m, pj_error *err);
void pj_gpu_outline_close(pj_gpu_model *m);

#endif
