/*
 * Rows of weights that do not lie in a file as rows of a type that kernels read: transposed,
 * interleaved with other rows, or in a block format of another layout. They are brought into such
 * rows when the model is opened.
 */
#ifndef PJ_LLM_ROW_SOURCE_H
#define PJ_LLM_ROW_SOURCE_H

#include "llm/dtype.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_row_source pj_row_source;
struct pj_row_source {
    pj_dtype type; /* that the rows are to have where no other is asked for */
    size_t cols;
    void (*read)(const pj_row_source *source, size_t row, float *values); /* [cols] */
    /* The row as `type`, bit for bit; NULL: it is quantised from what `read` gives. */
    void (*copy)(const pj_row_source *source, size_t row, void *out);

    const unsigned char *data, *scales;
    size_t first, step;            /* row i is number first + i step of those that lie there */
    size_t stride;                 /* bytes between neighbouring values (columns), or rows */
    size_t scale_stride;           /* bytes between rows of scales */
    size_t block_rows, block_cols; /* that share a scale */
};

/* Column first + i step of a matrix [cols][row_bytes] of F32, F16 or BF16 becomes row i. */
pj_row_source pj_rows_transposed(const void *data, pj_dtype type, size_t cols, size_t row_bytes,
                                 size_t first, size_t step);
/* MXFP4 as gpt-oss publishes it: 16 bytes to 32 values, two neighbours in each, low nibble first,
 * and the exponents apart. Rows become blocks as GGUF has them, with the same values. */
pj_row_source pj_rows_mxfp4(const void *blocks, const void *scales, size_t cols, size_t first,
                            size_t step);

/* E4M3 bytes [rows][cols] times float scales, one for each block of block_rows x block_cols;
 * scale_cols of them to a row of blocks. They become BF16. */
pj_row_source pj_rows_e4m3(const void *data, const float *scales, size_t cols, size_t block_rows,
                           size_t block_cols, size_t scale_cols);
float pj_float_of_e4m3(uint8_t byte);

#endif
