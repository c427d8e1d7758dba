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
    kernels->linear[PJ_IQ1_S] = &by_iq1_s;
    kernels->linear[PJ_IQ1_M] = &by_iq1_m;
    kernels->linear[PJ_IQ2_XXS] = &by_iq2_xxs;
    kernels->linear[PJ_IQ2_XS] = &by_iq2_xs;
    kernels->linear[PJ_IQ2_S] = &by_iq2_s;
    kernels->linear[PJ_IQ3_XXS] = &by_iq3_xxs;
    kernels->linear[PJ_IQ3_S] = &by_iq3_s;
    kernels->linear[PJ_TQ1_0] = &by_tq1_0;
    kernels->linear[PJ_TQ2_0] = &by_tq2_0;
    kernels->linear[PJ_NVFP4] = &by_nvfp4;
    kernels->linear[PJ_Q1_0] = &by_q1_0;
}

#endif
