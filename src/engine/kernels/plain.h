/* The plain C set, the basis of every other set. */
#ifndef PJ_KERNELS_PLAIN_H
#define PJ_KERNELS_PLAIN_H

#include "engine/kernels/tile.h"

extern const pj_kernels pj_kernels_c;

#endif
