/* The plain C set, the basis of every other set. */
#ifndef PJ_LLM_PLAIN_H
#define PJ_LLM_PLAIN_H

#include "llm/kernels/tile.h"

extern const pj_kernels pj_kernels_c;

#endif
