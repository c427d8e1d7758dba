/* Enters the kernels of all types of weights in codes into a set. Included by the sets after their
 * by_TYPE. */
#ifndef PJ_KERNELS_CODES_TABLE_H
#define PJ_KERNELS_CODES_TABLE_H

static void enter_codes(pj_kernels *kernels)
{
    kernels->linear[PJ_Q8_0] = &by_q8_0;
    kernels->linear[PJ_Q4_0] = &by_q4_0;
    kernels->linear[PJ_Q4_K] = &by_q4_k;
    kernels->linear[PJ_Q5_K] = &by_q5_k;
    kernels->linear[PJ_Q6_K] = &by_q6_k;
    kernels->linear[PJ_Q4_1] = &by_q4_1;
    kernels->linear[PJ_Q5_0] = &by_q5_0;
    kernels->linear[PJ_Q5_1] = &by_q5_1;
    kernels->linear[PJ_IQ4_NL] = &by_iq4_nl;
    kernels->linear[PJ_MXFP4] = &by_mxfp4;
    kernels->linear[PJ_Q2_K] = &by_q2_k;
    kernels->linear[PJ_Q3_K] = &by_q3_k;
    kernels->linear[PJ_IQ4_XS] = &by_iq4_xs;
}

#endif
