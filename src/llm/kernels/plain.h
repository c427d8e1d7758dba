/* The plain C set, the basis of every other set. */
#ifndef PJ_LLM_PLAIN_H
#define PJ_LLM_PLAIN_H

#include "llm/kernels/tile.h"

extern const pj_kernels pj_kernels_c;

/* Functions reused by other sets. */
void pj_plain_pack_q8(const float *x, size_t n, void *values, float *scales, int32_t *sums);

#endif
