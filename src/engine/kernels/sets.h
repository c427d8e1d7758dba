/* The instruction sets besides plain C. Each has its own file, compiled with its own flags, and
 * reports whether it is part of this build. */
#ifndef PJ_KERNELS_SETS_H
#define PJ_KERNELS_SETS_H

#include "engine/kernels/tile.h"

typedef struct pj_kernel_set {
    const char *name;
    bool (*supported)(void);            /* by processor and operating system */
    void (*apply)(pj_kernels *kernels); /* overrides the functions that the set improves */
} pj_kernel_set;

void pj_kernels_avx2_apply(pj_kernels *kernels);
void pj_kernels_avx512_apply(pj_kernels *kernels);
void pj_kernels_vnni_apply(pj_kernels *kernels);
void pj_kernels_vbmi_apply(pj_kernels *kernels);
void pj_kernels_bf16_apply(pj_kernels *kernels);
void pj_kernels_bf16_attention(pj_kernels *kernels); /* part of it */
void pj_kernels_amx_apply(pj_kernels *kernels);
void pj_kernels_neon_apply(pj_kernels *kernels);
void pj_kernels_dotprod_codes(pj_kernels *kernels);
void pj_kernels_i8mm_codes(pj_kernels *kernels);

#endif
