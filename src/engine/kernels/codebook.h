/* clang-format off */
/*
 * Types whose values come from codebooks, or have two bits or fewer: eight (four) values at a time
 * are one entry of a table, with signs apart. All are decoded to whole numbers with a scale for
 * every 16 values, from which the other forms are made. Layouts, of 256 values unless stated; the
 * eighth sign bit of seven makes their number even:
 *   IQ2_XXS  f16 d; per 32: 4 entries, then u32 of 4 x 7 sign bits and a 4-bit scale s:
 *            d (s + 1/2) / 4
 *   IQ2_XS   f16 d, 32 x u16 (9 bits of entry, 7 signs), 8 bytes of 4-bit scales of 16 values
 *   IQ2_S    f16 d, 32 bytes of entries, 32 of signs, 8 of the entries' bits 8 and 9, 8 of scales
 *   IQ3_XXS  f16 d, 64 bytes of entries of 4 values, 8 x u32 of signs and scale as above:
 *            d (s + 1/2) / 2
 *   IQ3_S    f16 d, 64 bytes of entries, 8 of ninth bits, 32 of signs, 4 of scales of 32:
 *            d (2 s + 1)
 *   IQ1_S    f16 d, 32 bytes of entries, 8 x u16: 4 x 3 bits of entries, 3 of scale, the sign of an
 *            eighth that is added to values of -1, 0 and 1: d (2 s + 1)
 *   IQ1_M    32 bytes of entries, 16 of 3 bits of entries and that sign, 4 x u16: 4 x 3 bits of
 *            scales of 16 values, and a quarter of the f16 d in their highest bits
 *   TQ1_0    48 bytes of five base-3 digits, 4 of four, f16 d: digits less 1
 *   TQ2_0    64 bytes of four pairs of bits, f16 d: pairs less 1
 *   NVFP4    64 values: 4 scales (8-bit floats, no sign) of 16, 32 bytes of nibbles as MXFP4's
 *   Q1_0     128 values: f16 d, 16 bytes of bits: d or -d
 */
/* clang-format on */
#ifndef PJ_KERNELS_CODEBOOK_H
#define PJ_KERNELS_CODEBOOK_H

#include "engine/files/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { PJ_BOOK_VALUES = 256, PJ_BOOK_SCALES = 16 };

extern const uint16_t pj_book_iq2_xxs[256], pj_book_iq2_xs[512], pj_book_iq2_s[1024],
    pj_book_iq3_xxs[256], pj_book_iq3_s[512], pj_book_iq1[2048];

/* Entries with a byte per value: levels of IQ2 and IQ3, and 8 for each step of IQ1. Signs, 1 or -1,
 * of seven bits and their parity. */
typedef struct pj_book_levels {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq1[2048], signs[128];
    uint32_t iq3_xxs[256], iq3_s[512];
} pj_book_levels;

const pj_book_levels *pj_codebook_levels(void);

static inline bool pj_is_codebook(pj_dtype type)
{
    return type >= PJ_IQ1_S && type <= PJ_Q1_0;
}

/* One block: value i is values[i] scales[i / 16]. */
void pj_codebook_decode(pj_dtype type, const uint8_t *block, int8_t values[PJ_BOOK_VALUES],
                        float scales[PJ_BOOK_SCALES]);
/* A scale of NVFP4, halved, since the levels are twice the 4-bit floats. */
float pj_codebook_nvfp4_scale(uint8_t byte);
/* One block as floats. */
void pj_codebook_block(pj_dtype type, const uint8_t *block, float *y);

#endif
