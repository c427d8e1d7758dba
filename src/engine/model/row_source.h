/* Rows of weights that a file does not store as rows of a supported type: transposed, interleaved
 * with other rows, or in another block layout. They are converted when the model is opened. */
#ifndef PJ_MODEL_ROW_SOURCE_H
#define PJ_MODEL_ROW_SOURCE_H

#include "engine/files/dtype.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_row_source pj_row_source;
struct pj_row_source {
    pj_dtype type;   /* default type of the converted rows */
    pj_dtype stored; /* of pj_rows_scaled */
    size_t cols;
    void (*read)(const pj_row_source *source, size_t row, float *values); /* [cols] */
    /* Converts the row to `type` exactly; NULL: it is quantised from the result of `read`. */
    void (*copy)(const pj_row_source *source, size_t row, void *out);

    const unsigned char *data, *scales;
    size_t first, step;                /* row i is number first + i step in the file */
    size_t stride;                     /* bytes between adjacent values (columns), or rows */
    size_t scale_stride;               /* bytes between rows of scales */
    size_t block_rows, block_cols;     /* block that shares a scale */
    size_t matrix_rows, matrix_stride; /* rows of each of several matrices, bytes of its scales */
    const uint32_t *order;             /* row i is row order[i] of the file */
    const struct pj_packed_weights *packed; /* packed_rows.h */
};

/* Column first + i step of a matrix [cols][row_bytes] of F32, F16 or BF16 becomes row i. */
pj_row_source pj_rows_transposed(const void *data, pj_dtype type, size_t cols, size_t row_bytes,
                                 size_t first, size_t step);
/* MXFP4 as published for gpt-oss: 16 bytes per 32 values, two neighbours per byte, low nibble
 * first, exponents in a separate tensor. Rows become GGUF blocks with the same values. */
pj_row_source pj_rows_mxfp4(const void *blocks, const void *scales, size_t cols, size_t first,
                            size_t step);
/* GGUF's Q2_0: per 64 values an f16 d and 16 bytes of four codes, the lowest bits first; a value is
 * d (code - 1). Rows become Q4_0 with the same values. */
pj_row_source pj_rows_q2_0(const void *blocks, size_t cols);

/* Rows of a stored matrix in another order. */
pj_row_source pj_rows_ordered(const pj_matrix *stored, const uint32_t *order);
/* E4M3 bytes [rows][cols] times float scales, one per block of block_rows x block_cols; scale_cols
 * scales per row of blocks. Converted to BF16. */
pj_row_source pj_rows_e4m3(const void *data, const float *scales, size_t cols, size_t block_rows,
                           size_t block_cols, size_t scale_cols);
/* The same of matrices of `rows` rows one below the other, each with `scales` scales of its own, or
 * 0: all have the same. */
pj_row_source pj_rows_e4m3_stack(const pj_row_source *one, size_t rows, size_t scales);
float pj_float_of_e4m3(uint8_t byte);
/* Rows of a stored matrix times factors[row / rows]. Blocks become Q8_0. */
pj_row_source pj_rows_scaled(const pj_matrix *stored, const float *factors, size_t rows);

#endif
