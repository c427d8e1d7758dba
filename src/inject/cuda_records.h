/*
 * CUPTI's activity records. Only the first bytes of each are used: those have kept their offsets in
 * all versions from CUDA 8 to 13.5, while the records grew (that of a kernel from 120 to 248
 * bytes). What lies further on is read only where the version and the buffer say that it is there.
 */
#ifndef PJ_INJECT_CUDA_RECORDS_H
#define PJ_INJECT_CUDA_RECORDS_H

#include "inject/cuda_shared.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pj_cuda_decoder {
    pj_cuda_process *to;
    uint32_t version;       /* of CUPTI */
    bool skips_graph_nodes; /* graphs are recorded as wholes */
    int64_t offset_ns;      /* CLOCK_MONOTONIC less CUPTI's clock */
} pj_cuda_decoder;

/* Takes one record of a buffer that ends at `end`; one of no interest, or without sound times, is
 * left out. One thread at a time. */
void pj_cuda_decode(pj_cuda_decoder *decoder, const void *record, const void *end);

#endif
