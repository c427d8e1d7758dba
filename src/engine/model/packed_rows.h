/*
 * Weights of safetensors folders in integers or other short codes, as rows (row_source.h). Values
 * are scale (code - zero) unless said otherwise; words have 32 bits, the first code lowest.
 *
 * GPTQ: qweight [in bits/32, out], qzeros [in/group, out bits/32], scales [in/group, out], perhaps
 * g_idx [in], the group of each column. Codes follow each other without gaps, so those of 3 bits
 * may lie in two words.
 * AWQ: qweight [in, out/8], qzeros [in/group, out/8], scales [in/group, out]; the even codes of
 * eight are in the low half of a word.
 * compressed-tensors, packed: weight_packed [out, words], weight_scale [out, in/group], perhaps
 * weight_zero_point [words, in/group]; a word has as many whole codes as fit.
 * Bytes: weight [out, in] of signed codes, scales [out, in/group], perhaps weight_zero_point of
 * signed bytes (compressed-tensors), or SCB [out], 127 times the scales (bitsandbytes).
 * NVFP4: weight or weight_packed, bytes [out, in/2] of 4-bit floats, weight_scale [out, in/16] of
 * 8-bit floats, times one factor.
 * Levels (bitsandbytes NF4, FP4): bytes [out in/2], the first code of two in the high half, each an
 * index into 16 levels; one scale per block of values, counted across rows. With double
 * quantisation, scales are indices into 256 levels, times one scale per block of scales, plus an
 * offset.
 *
 * Codes of up to four bits with adjacent groups become Q4_1 or Q4_0 with the same codes, wider ones
 * Q8_0 with the same codes where they fit; everything else is rounded to Q8_0.
 */
#ifndef PJ_MODEL_PACKED_ROWS_H
#define PJ_MODEL_PACKED_ROWS_H

#include "engine/model/row_source.h"

typedef enum pj_packing {
    PJ_PACKED_GPTQ = 0,
    PJ_PACKED_AWQ,
    PJ_PACKED_ROWS, /* compressed-tensors */
    PJ_PACKED_BYTES,
    PJ_PACKED_FP4,
    PJ_PACKED_LEVELS
} pj_packing;

/* Of PJ_PACKED_LEVELS: scales as floats, or with double quantisation (`scales` NULL) as codes. */
typedef struct pj_packed_levels {
    float level[16];
    size_t block; /* values that share a scale */
    const float *scales;
    const unsigned char *codes; /* indices into scale_level */
    float scale_level[256];
    const float *scale_scales; /* one per scale_block scales */
    size_t scale_block;
    float offset; /* added to each scale */
} pj_packed_levels;

typedef struct pj_packed_weights {
    pj_packing packing;
    size_t rows, cols;  /* out, in */
    size_t group;       /* columns that share a scale */
    unsigned bits;      /* of a code: 2 to 8 */
    unsigned zero_plus; /* stored zeros are too small by this */
    const unsigned char *codes, *scales;
    const unsigned char *zeros;    /* NULL: half of the codes' range; of bytes 0 */
    const unsigned char *group_of; /* i32 of each column; NULL: adjacent groups */
    pj_dtype scale_type;           /* not of PJ_PACKED_FP4 */
    float factor;                  /* on all scales */
    pj_packed_levels *levels;
} pj_packed_weights;

pj_row_source pj_rows_packed(const pj_packed_weights *weights);

#endif
