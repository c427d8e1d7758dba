/* The table of weight types. */
#include "engine/files/dtype.h"

#include "base/memory.h"

#include <string.h>

static const pj_dtype_info table[PJ_DTYPE_COUNT] = {
    [PJ_F32] = {"f32", 1, 4},
    [PJ_F16] = {"f16", 1, 2},
    [PJ_BF16] = {"bf16", 1, 2},
    [PJ_Q8_0] = {"q8_0", 32, 34},
    [PJ_Q4_0] = {"q4_0", 32, 18},
    [PJ_Q4_K] = {"q4_k", 256, 144},
    [PJ_Q5_K] = {"q5_k", 256, 176},
    [PJ_Q6_K] = {"q6_k", 256, 210},
    [PJ_Q4_1] = {"q4_1", 32, 20},
    [PJ_Q5_0] = {"q5_0", 32, 22},
    [PJ_Q5_1] = {"q5_1", 32, 24},
    [PJ_IQ4_NL] = {"iq4_nl", 32, 18},
    [PJ_MXFP4] = {"mxfp4", 32, 17},
    [PJ_Q2_K] = {"q2_k", 256, 84},
    [PJ_Q3_K] = {"q3_k", 256, 110},
    [PJ_IQ4_XS] = {"iq4_xs", 256, 136},
    [PJ_IQ1_S] = {"iq1_s", 256, 50},
    [PJ_IQ1_M] = {"iq1_m", 256, 56},
    [PJ_IQ2_XXS] = {"iq2_xxs", 256, 66},
    [PJ_IQ2_XS] = {"iq2_xs", 256, 74},
    [PJ_IQ2_S] = {"iq2_s", 256, 82},
    [PJ_IQ3_XXS] = {"iq3_xxs", 256, 98},
    [PJ_IQ3_S] = {"iq3_s", 256, 110},
    [PJ_TQ1_0] = {"tq1_0", 256, 54},
    [PJ_TQ2_0] = {"tq2_0", 256, 66},
    [PJ_NVFP4] = {"nvfp4", 64, 36},
    [PJ_Q1_0] = {"q1_0", 128, 18},
};

const pj_dtype_info *pj_dtype_get(pj_dtype type)
{
    return &table[type];
}

size_t pj_dtype_row_bytes(pj_dtype type, size_t count)
{
    const pj_dtype_info *info = &table[type];
    size_t bytes;
    if (count % info->block_values != 0) return 0;
    if (pj_mul_overflows(count / info->block_values, info->block_bytes, &bytes)) return 0;
    return bytes;
}

int pj_dtype_parse(const char *name)
{
    for (int i = 0; i < PJ_DTYPE_COUNT; i++)
        if (strcmp(table[i].name, name) == 0) return i;
    return -1;
}
