/*
 * What a kernel set implements for the products of linear.h; included only by the sets and
 * linear.c.
 *
 * Few tokens: `dot` streams weight rows past all tokens; activations are stored row by row
 *   F32: as given by the caller; BF16: u16 [tokens][cols rounded up to 32, zero-filled];
 *   Q8, Q8_WIDE: i8 [tokens][cols], scales and sums [tokens][cols / 32].
 * Many tokens: activations are packed in panels of `vectors` x `lanes` tokens (the last one
 * zero-filled),
 *   values  [panel][cols / group][panel tokens][group]   (cols rounded up to group, zero-filled)
 *   scales, sums  [panel][cols / 32][panel tokens]       (codes only)
 * so that a vector holds `lanes` tokens and one weight (group) is broadcast against it. Panels are
 * contiguous: the one that starts at token t starts at t x padded cols values. `tile` multiplies
 * some weight rows with one panel over a stretch of columns. Q8_WORDS has panels
 * only: a code takes a word, a vector has every other column of a group, and `scales` and `sums`
 * are valid only in the first of the neighbouring blocks that share a scale; the entries for a
 * row's minimum and for the sum are the integers that products start from (words_avx2.h). SPLIT has
 * two bfloat16 parts of a value (amx.c), and panels only.
 *
 * Q8 sums hold -128 times the sum of a block's codes: 8-bit dot products need one unsigned operand,
 * which weight codes become by adding 128, and the sum corrects for that. Rows of Q8_WIDE, and its
 * panels on AVX2, have two words instead, the sums of sixteen codes each.
 */
#ifndef PJ_KERNELS_TILE_H
#define PJ_KERNELS_TILE_H

#include "engine/kernels/linear.h"

enum {
    PJ_TILE_MAX_ROWS = 32,
    PJ_TILE_MAX_TOKENS = 48, /* of a panel */
    PJ_Q8_BLOCK = 32,
    PJ_Q8_OFFSET = 128
};

/* Where the largest of some values that share a scale is smaller, they are taken for 0: codes are
 * multiples of a reciprocal, which would be infinite. */
#define PJ_LEAST_SCALED 0x1p-112f

/* How activations are packed in one form. */
struct pj_form_kernels {
    size_t dot_tokens;    /* maximum number of tokens for `dot`; SIZE_MAX: all (no panels) */
    size_t lanes;         /* tokens per vector: 16, 8 or 4; 0 without panels */
    size_t vectors;       /* per panel, maximum; vectors x lanes <= PJ_TILE_MAX_TOKENS */
    size_t group;         /* neighbouring columns of one token: f32 1, bf16 2, q8 4, split 32 */
    size_t shared_blocks; /* codes: neighbouring blocks with one scale; 0 means 1 */
    int largest;          /* codes: of the largest magnitude under a scale; 0 means 127 */
    size_t pass_bytes; /* packed activations that all weights are multiplied with first; 0: all */
    /* Packs one token; not for F32. `n` columns; BF16 pads to a multiple of 32. */
    void (*pack_row)(const float *x, size_t n, void *values, float *scales, int32_t *sums);
    /* Packs `tokens` rows of x into a panel of `width` tokens. */
    void (*pack_panel)(const float *x, size_t x_stride, size_t tokens, size_t width, size_t cols,
                       void *values, float *scales, int32_t *sums);
};

/* Rows [begin, end) times all tokens. */
typedef struct pj_dot {
    const pj_matrix *weights;
    size_t begin, end;
    const pj_packed *x;
    const float *bias; /* [rows], or NULL; added last, as if it were added afterwards */
    float *y;          /* [tokens][y_stride] */
    size_t y_stride;
    void *scratch; /* the thread's PJ_TEAM_SCRATCH_BYTES */
    size_t ahead;  /* bytes by which prefetches of weights precede their use (ahead.h) */
} pj_dot;

/* Some weight rows, in place or unpacked, times one panel. Rows past the end of the matrix repeat a
 * valid one; their results are ignored. */
typedef struct pj_tile {
    const void *weights[PJ_TILE_MAX_ROWS]; /* at the first column of the stretch */
    const float *scales[PJ_TILE_MAX_ROWS]; /* codes: one per block of 32 */
    const float *minima[PJ_TILE_MAX_ROWS]; /* codes, types with a minimum per block */
    size_t stride;                         /* bytes between rows, 0: not evenly spaced */
    const void *x;                         /* panel at the first column of the stretch */
    const float *x_scales;
    const int32_t *x_sums;
    size_t cols;    /* of the stretch: a multiple of group (codes: of 32) */
    size_t vectors; /* of the panel */
    bool half;      /* only the first half of its one vector's lanes are tokens */
    /* Start of data for later tiles: a kernel may prefetch its first byte with its first group of
     * columns, and `ahead_step` bytes further with every other group. */
    const char *ahead;
    size_t ahead_step;
    float *c; /* [rows][PJ_TILE_MAX_TOKENS] */
    bool add; /* adds to c instead of overwriting it */
} pj_tile;

/* The kernels of one weight type. */
struct pj_tile_kernels {
    pj_form form;
    void (*dot)(const pj_dot *dot);
    size_t dot_tokens; /* maximum number of tokens for `dot`; 0: the form's */
    size_t dot_more;   /* `dot` also takes up to so many more than one vector of tokens */
    void (*tile)(const pj_tile *tile); /* NULL where the form has no panels */
    size_t rows;                       /* of a tile call */
    size_t stretch;                    /* columns per tile call, so that the panel stays in cache */
    /* Converts `cols` columns (whole blocks) of one row to the tile's form, zero-filled to a
     * multiple of group; `direct`: rows are stored in that form, and are read in place if their
     * length is a multiple of group. */
    void (*unpack)(const void *row, size_t cols, void *values, float *scales, float *minima);
    size_t unpacked_bytes; /* per column */
    size_t chunk_bytes;    /* of an unpacked row at a time; 0: the driver's */
    bool direct, minima;
    /* The kernels for more tokens than `dot` takes, where those read another form; else NULL. */
    const pj_tile_kernels *many;
    /* The kernels for at most their `most_tokens`, where those are others: they read stored rows,
     * or another form; else NULL. */
    const pj_tile_kernels *stream;
    size_t most_tokens;
};

#endif
