/*
 * Weights of safetensors folders that are packed below eight bits, as rows (row_source.h):
 *   GPTQ                qweight [in bits/32, out], qzeros [in/group, out bits/32], scales
 * [in/group, out], perhaps g_idx [in], the group of each column AWQ                 qweight [in,
 * out/8], qzeros [in/group, out/8], scales [in/group, out]; the even values of eight are in the low
 * half of a word compressed-tensors  weight_packed [out, in bits/32], weight_scale [out, in/group];
 * symmetric NVFP4               weight or weight_packed, bytes [out, in/2] of 4-bit floats,
 * weight_scale [out, in/16] of 8-bit floats, times one factor Words are 32 bits and hold the first
 * value lowest. Values are scale (code - zero). Four bits with adjacent groups become Q4_1 or Q4_0
 * with the same codes; everything else is rounded to Q8_0.
 */
#ifndef PJ_MODEL_PACKED_ROWS_H
#define PJ_MODEL_PACKED_ROWS_H

#include "engine/model/row_source.h"

typedef enum pj_packing {
    PJ_PACKED_GPTQ = 0,
    PJ_PACKED_AWQ,
    PJ_PACKED_ROWS, /* compressed-tensors */
    PJ_PACKED_FP4
} pj_packing;

typedef struct pj_packed_weights {
    pj_packing packing;
    size_t rows, cols;  /* out, in */
    size_t group;       /* columns that share a scale */
    unsigned bits;      /* of a code: 4 or 8 */
    unsigned zero_plus; /* stored zeros are too small by this */
    const unsigned char *codes, *scales;
    const unsigned char *zeros;    /* NULL: half of the codes' range */
    const unsigned char *group_of; /* i32 of each column; NULL: adjacent groups */
    pj_dtype scale_type;           /* not of PJ_PACKED_FP4 */
    float factor;                  /* PJ_PACKED_FP4: on all scales */
} pj_packed_weights;

pj_row_source pj_rows_packed(const pj_packed_weights *weights);

#endif
