/* CPU and operating system support for instruction sets; no state. */
#ifndef PJ_KERNELS_CPU_H
#define PJ_KERNELS_CPU_H

#include <stdbool.h>

bool pj_cpu_has_avx2(void);   /* AVX2, FMA, F16C */
bool pj_cpu_has_avx512(void); /* F, BW, DQ, VL, on top of AVX2 */
bool pj_cpu_has_vnni(void);   /* AVX-512 VNNI */
bool pj_cpu_has_vbmi(void);   /* AVX-512 VBMI, on top of VNNI */
bool pj_cpu_has_bf16(void);   /* AVX-512 BF16 */
/* Tiles for BF16 and INT8. Requests the kernel's permission to use them, once per process. */
bool pj_cpu_has_amx(void);
bool pj_cpu_has_neon(void);
bool pj_cpu_has_dotprod(void);
bool pj_cpu_has_i8mm(void);

#endif
