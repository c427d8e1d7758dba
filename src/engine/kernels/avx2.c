/* The AVX2 set. */
#include "engine/kernels/sets.h"
#include "engine/kernels/vector.h"

void pj_kernels_avx2_apply(pj_kernels *kernels)
{
    PJ_SET_SYMBOL(rows)(kernels);
    PJ_SET_SYMBOL(attention)(kernels);
    PJ_SET_SYMBOL(floats)(kernels);
    PJ_SET_SYMBOL(codes)(kernels);
}
