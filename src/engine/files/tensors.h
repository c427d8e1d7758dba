/* A tensor as described by a weight file, independent of the file's format: name, element type,
 * shape, and its data in the mapped file. */
#ifndef PJ_FILES_TENSORS_H
#define PJ_FILES_TENSORS_H

#include "engine/files/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_TENSOR_MAX_RANK = 8 };

/* Element types a file may hold; only the floating ones can be weights. */
typedef enum pj_file_type {
    PJ_FILE_F32 = 0,
    PJ_FILE_F16,
    PJ_FILE_BF16,
    PJ_FILE_F64,
    PJ_FILE_I64,
    PJ_FILE_I32,
    PJ_FILE_I16,
    PJ_FILE_I8,
    PJ_FILE_U64,
    PJ_FILE_U32,
    PJ_FILE_U16,
    PJ_FILE_U8,
    PJ_FILE_BOOL,
    PJ_FILE_F8,   /* E5M2: recognised, but not supported as weights */
    PJ_FILE_E8M0, /* powers of two: scales alone */
    PJ_FILE_E4M3, /* 8-bit floats with scales in a separate tensor */
    PJ_FILE_Q8_0, /* GGUF blocks */
    PJ_FILE_Q4_0,
    PJ_FILE_Q4_K,
    PJ_FILE_Q5_K,
    PJ_FILE_Q6_K,
    PJ_FILE_Q4_1,
    PJ_FILE_Q5_0,
    PJ_FILE_Q5_1,
    PJ_FILE_IQ4_NL,
    PJ_FILE_MXFP4,
    PJ_FILE_Q2_K,
    PJ_FILE_Q3_K,
    PJ_FILE_IQ4_XS,
    PJ_FILE_IQ1_S,
    PJ_FILE_IQ1_M,
    PJ_FILE_IQ2_XXS,
    PJ_FILE_IQ2_XS,
    PJ_FILE_IQ2_S,
    PJ_FILE_IQ3_XXS,
    PJ_FILE_IQ3_S,
    PJ_FILE_TQ1_0,
    PJ_FILE_TQ2_0,
    PJ_FILE_NVFP4,
    PJ_FILE_Q1_0,
    PJ_FILE_Q2_0, /* of GGUF files; becomes PJ_Q4_0 on load */
    PJ_FILE_TYPE_COUNT
} pj_file_type;

const char *pj_file_type_name(pj_file_type type); /* "BF16" */
/* The kernels' type; false: not usable as a weight. */
bool pj_file_dtype(pj_file_type type, pj_dtype *dtype);

typedef struct pj_tensor {
    const char *name;
    pj_file_type type;
    uint32_t rank;
    uint64_t shape[PJ_TENSOR_MAX_RANK];
    const unsigned char *data; /* may be unaligned: the format does not guarantee alignment */
    size_t bytes;
} pj_tensor;

/* For qsort, by position: empty tensors before the one that begins at the same byte. */
int pj_tensor_by_offset(const void *a, const void *b);
int pj_tensor_by_name(const void *a, const void *b);

/* In a table sorted by name; NULL when absent. */
const pj_tensor *pj_tensors_find(const pj_tensor *tensors, size_t count, const char *name);

#endif
