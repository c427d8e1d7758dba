/* Types of stored weights. Quantised types are stored in blocks with the layouts of their file
 * formats. */
#ifndef PJ_FILES_DTYPE_H
#define PJ_FILES_DTYPE_H

#include <stddef.h>

typedef enum pj_dtype {
    PJ_F32 = 0,
    PJ_F16,
    PJ_BF16,
    PJ_Q8_0,   /* 32 values: f16 d; 32 x i8 q; value d q */
    PJ_Q4_0,   /* 32 values: f16 d; 16 bytes of nibbles; value d (q - 8) */
    PJ_Q4_K,   /* 256 values in 144 bytes */
    PJ_Q5_K,   /* 256 values in 176 bytes */
    PJ_Q6_K,   /* 256 values in 210 bytes */
    PJ_Q4_1,   /* 32 values: f16 d, f16 m; 16 bytes of nibbles; value d q + m */
    PJ_Q5_0,   /* 32 values: f16 d; 4 bytes of fifth bits; nibbles; value d (q - 16) */
    PJ_Q5_1,   /* 32 values: f16 d, f16 m; 4 bytes of fifth bits; nibbles; value d q + m */
    PJ_IQ4_NL, /* 32 values: f16 d; nibbles that index 16 levels */
    PJ_MXFP4,  /* 32 values: exponent byte; nibbles that are 4-bit floats */
    PJ_Q2_K,   /* 256 values in 84 bytes */
    PJ_Q3_K,   /* 256 values in 110 bytes */
    PJ_IQ4_XS, /* 256 values in 136 bytes */
    PJ_IQ1_S,  /* 256 values in 50 bytes: kernels/codebook.h, like those up to Q1_0 */
    PJ_IQ1_M,
    PJ_IQ2_XXS,
    PJ_IQ2_XS,
    PJ_IQ2_S,
    PJ_IQ3_XXS,
    PJ_IQ3_S,
    PJ_TQ1_0,
    PJ_TQ2_0,
    PJ_NVFP4,
    PJ_Q1_0,
    PJ_DTYPE_COUNT
} pj_dtype;

typedef struct pj_dtype_info {
    const char *name; /* "bf16", "q8_0", as on the command line */
    size_t block_values, block_bytes;
} pj_dtype_info;

const pj_dtype_info *pj_dtype_get(pj_dtype type); /* static */
/* Bytes of a row of `count` values, a whole number of blocks; 0 when it is not, or overflows. */
size_t pj_dtype_row_bytes(pj_dtype type, size_t count);
int pj_dtype_parse(const char *name); /* a pj_dtype, or -1 */

/* A weight matrix in memory: y = W x, W is [rows = out][cols = in], row-major. */
typedef struct pj_matrix {
    const void *data; /* NULL: the matrix is absent */
    pj_dtype type;
    size_t rows, cols;
    size_t row_bytes;
} pj_matrix;

#endif
