/* Layouts of the types whose weight rows are multiplied one per lane (lanes.h). Blocks of 32 values
 * with sixteen bytes of nibbles: values 0 to 15 in the low ones, 16 to 31 in the high ones. */
#ifndef PJ_KERNELS_LANE_BLOCKS_H
#define PJ_KERNELS_LANE_BLOCKS_H

#include "engine/kernels/blocks.h"

enum { LANE_XS_BYTES = 136, LANE_XS_BLOCKS = 8 };

typedef struct lane_layout {
    size_t bytes;         /* of a block */
    size_t nibbles;       /* where they begin */
    size_t fifth;         /* where the 32 fifth bits are; 0: none */
    int offset;           /* a code less this is the value before scaling */
    const int8_t *levels; /* values of the sixteen codes; NULL: the codes themselves */
    bool minima;          /* a minimum follows the scale */
} lane_layout;

/* Rows `step` bytes apart. */
typedef struct lane_matrix {
    const char *base;
    size_t step;
} lane_matrix;

/* A block of each row: addresses of every fourth, so that the others are at most three steps away
 * and all of them need few registers. */
typedef struct lane_block {
    const char *four[4];
    size_t step;
} lane_block;

static inline __attribute__((always_inline)) lane_block lane_block_at(lane_matrix m, size_t offset)
{
    const char *at = m.base + offset;
    return (lane_block){{at, at + 4 * m.step, at + 8 * m.step, at + 12 * m.step}, m.step};
}

static inline __attribute__((always_inline)) const char *lane_at(const lane_block *b, size_t row)
{
    return b->four[row / 4] + row % 4 * b->step;
}

/* `type` is a constant wherever this is called, and folds away. */
static inline __attribute__((always_inline)) lane_layout lane_layout_of(pj_dtype type)
{
    switch (type) {
    case PJ_Q4_1: return (lane_layout){.bytes = 20, .nibbles = 4, .minima = true};
    case PJ_Q5_0: return (lane_layout){.bytes = 22, .nibbles = 6, .fifth = 2, .offset = 16};
    case PJ_Q5_1: return (lane_layout){.bytes = 24, .nibbles = 8, .fifth = 4, .minima = true};
    case PJ_IQ4_NL:
        return (lane_layout){.bytes = 18, .nibbles = 2, .offset = 128, .levels = pj_iq4_levels};
    case PJ_IQ4_XS: /* of 256 values: eight blocks with scales of their own */
        return (lane_layout){.bytes = 16, .nibbles = 8, .offset = 128, .levels = pj_iq4_levels};
    case PJ_MXFP4:
        return (lane_layout){.bytes = 17, .nibbles = 1, .offset = 16, .levels = pj_mxfp4_levels};
    default: return (lane_layout){.bytes = 18, .nibbles = 2, .offset = 8}; /* Q4_0 */
    }
}

/* Where block b of a row begins (IQ4_XS: where it would if blocks of 32 had a header each). */
static inline __attribute__((always_inline)) size_t lane_place(pj_dtype type, size_t b)
{
    if (type != PJ_IQ4_XS) return b * lane_layout_of(type).bytes;
    return b / LANE_XS_BLOCKS * LANE_XS_BYTES + b % LANE_XS_BLOCKS * 16;
}

/* What sums of products start from, to take the offset of the codes away: `sum` is -128 times the
 * sum of the activations' codes. */
static inline __attribute__((always_inline)) int32_t lane_start(pj_dtype type, int32_t sum)
{
    int offset = lane_layout_of(type).offset;
    return offset == 128 ? sum : offset == 16 ? sum >> 3 : offset == 8 ? sum >> 4 : 0;
}

/* The eight six-bit scales of a block of IQ4_XS, one per byte and still 32 too large. */
static inline uint64_t lane_xs_scales(const char *at)
{
    uint64_t low = pj_blocks_nibbles(pj_blocks_u32((const uint8_t *)at + 4));
    uint64_t high = pj_load_u16(at + 2);
    high = (high | high << 24) & 0x000000ff000000ff,
    high = (high | high << 12) & 0x000f000f000f000f;
    high = (high | high << 6) & 0x0303030303030303;
    return low | high << 4;
}

#endif
