/* The table of weight types. */
#include "llm/dtype.h"

#include "base/memory.h"

#include <string.h>

static const pj_dtype_info table[PJ_DTYPE_COUNT] = {
    [PJ_F32] = {"f32", 1, 4},       [PJ_F16] = {"f16", 1, 2},       [PJ_BF16] = {"bf16", 1, 2},
    [PJ_Q8_0] = {"q8_0", 32, 34},   [PJ_Q4_0] = {"q4_0", 32, 18},   [PJ_Q4_K] = {"q4_k", 256, 144},
    [PJ_Q5_K] = {"q5_k", 256, 176}, [PJ_Q6_K] = {"q6_k", 256, 210},
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
