/* Element types by name, and binary search in a sorted table of tensors. */
#include "engine/files/tensors.h"

#include <stdlib.h>
#include <string.h>

const char *pj_file_type_name(pj_file_type type)
{
    static const char *const names[PJ_FILE_TYPE_COUNT] = {
        [PJ_FILE_F32] = "F32",       [PJ_FILE_F16] = "F16",         [PJ_FILE_BF16] = "BF16",
        [PJ_FILE_F64] = "F64",       [PJ_FILE_I64] = "I64",         [PJ_FILE_I32] = "I32",
        [PJ_FILE_I16] = "I16",       [PJ_FILE_I8] = "I8",           [PJ_FILE_U64] = "U64",
        [PJ_FILE_U32] = "U32",       [PJ_FILE_U16] = "U16",         [PJ_FILE_U8] = "U8",
        [PJ_FILE_BOOL] = "BOOL",     [PJ_FILE_F8] = "F8",           [PJ_FILE_E4M3] = "F8_E4M3",
        [PJ_FILE_E8M0] = "F8_E8M0",  [PJ_FILE_Q8_0] = "Q8_0",       [PJ_FILE_Q4_0] = "Q4_0",
        [PJ_FILE_Q4_K] = "Q4_K",     [PJ_FILE_Q5_K] = "Q5_K",       [PJ_FILE_Q6_K] = "Q6_K",
        [PJ_FILE_Q4_1] = "Q4_1",     [PJ_FILE_Q5_0] = "Q5_0",       [PJ_FILE_Q5_1] = "Q5_1",
        [PJ_FILE_IQ4_NL] = "IQ4_NL", [PJ_FILE_MXFP4] = "MXFP4",     [PJ_FILE_Q2_K] = "Q2_K",
        [PJ_FILE_Q3_K] = "Q3_K",     [PJ_FILE_IQ4_XS] = "IQ4_XS",   [PJ_FILE_IQ1_S] = "IQ1_S",
        [PJ_FILE_IQ1_M] = "IQ1_M",   [PJ_FILE_IQ2_XXS] = "IQ2_XXS", [PJ_FILE_IQ2_XS] = "IQ2_XS",
        [PJ_FILE_IQ2_S] = "IQ2_S",   [PJ_FILE_IQ3_XXS] = "IQ3_XXS", [PJ_FILE_IQ3_S] = "IQ3_S",
        [PJ_FILE_TQ1_0] = "TQ1_0",   [PJ_FILE_TQ2_0] = "TQ2_0",     [PJ_FILE_NVFP4] = "NVFP4",
        [PJ_FILE_Q1_0] = "Q1_0",     [PJ_FILE_Q2_0] = "Q2_0",
    };
    return type < PJ_FILE_TYPE_COUNT ? names[type] : "?";
}

bool pj_file_dtype(pj_file_type type, pj_dtype *dtype)
{
    static const struct {
        pj_file_type file;
        pj_dtype dtype;
    } types[] = {
        {PJ_FILE_F32, PJ_F32},         {PJ_FILE_F16, PJ_F16},       {PJ_FILE_BF16, PJ_BF16},
        {PJ_FILE_Q8_0, PJ_Q8_0},       {PJ_FILE_Q4_0, PJ_Q4_0},     {PJ_FILE_Q4_K, PJ_Q4_K},
        {PJ_FILE_Q5_K, PJ_Q5_K},       {PJ_FILE_Q6_K, PJ_Q6_K},     {PJ_FILE_Q4_1, PJ_Q4_1},
        {PJ_FILE_Q5_0, PJ_Q5_0},       {PJ_FILE_Q5_1, PJ_Q5_1},     {PJ_FILE_IQ4_NL, PJ_IQ4_NL},
        {PJ_FILE_MXFP4, PJ_MXFP4},     {PJ_FILE_Q2_K, PJ_Q2_K},     {PJ_FILE_Q3_K, PJ_Q3_K},
        {PJ_FILE_IQ4_XS, PJ_IQ4_XS},   {PJ_FILE_IQ1_S, PJ_IQ1_S},   {PJ_FILE_IQ1_M, PJ_IQ1_M},
        {PJ_FILE_IQ2_XXS, PJ_IQ2_XXS}, {PJ_FILE_IQ2_XS, PJ_IQ2_XS}, {PJ_FILE_IQ2_S, PJ_IQ2_S},
        {PJ_FILE_IQ3_XXS, PJ_IQ3_XXS}, {PJ_FILE_IQ3_S, PJ_IQ3_S},   {PJ_FILE_TQ1_0, PJ_TQ1_0},
        {PJ_FILE_TQ2_0, PJ_TQ2_0},     {PJ_FILE_NVFP4, PJ_NVFP4},   {PJ_FILE_Q1_0, PJ_Q1_0},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].file != type) continue;
        *dtype = types[i].dtype;
        return true;
    }
    return false;
}

int pj_tensor_by_offset(const void *a, const void *b)
{
    const pj_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int pj_tensor_by_name(const void *a, const void *b)
{
    return strcmp(((const pj_tensor *)a)->name, ((const pj_tensor *)b)->name);
}

const pj_tensor *pj_tensors_find(const pj_tensor *tensors, size_t count, const char *name)
{
    pj_tensor key = {.name = name};
    return count ? bsearch(&key, tensors, count, sizeof key, pj_tensor_by_name) : NULL;
}
