/* What the kernels of codebook.h's types with blocks of 256 share: offsets of their codes, and
 * the bits of signs and scales in general registers. Included by book_avx2.h and book_vnni.h.
 */
#ifndef PJ_KERNELS_BOOK_BITS_H
#define PJ_KERNELS_BOOK_BITS_H

#include "engine/kernels/blocks.h"
#include "engine/kernels/codebook.h"
#include "engine/kernels/vector.h"

/* Sanitizers' checks of a block that is decoded inline in dozens of loops take GCC minutes. */
#ifdef __SANITIZE_ADDRESS__
#define BOOK_INLINE static __attribute__((noinline, unused))
#else
#define BOOK_INLINE INLINE
#endif

/* Set by the sets' apply. */
static const pj_book_levels *book_levels;

/* Codes are values and an offset: of levels with signs; of eighths, which are 0, 8 or 16, and 2
 * more where it is up. */
enum { BOOK_SIGNED = 64, BOOK_EIGHTHS = 9 };

/* `type` is a constant wherever this is called, and folds away. */
INLINE int book_offset(pj_dtype type)
{
    return type == PJ_IQ1_S || type == PJ_IQ1_M   ? BOOK_EIGHTHS
           : type == PJ_TQ1_0 || type == PJ_TQ2_0 ? 1
                                                  : BOOK_SIGNED;
}

INLINE bool is_book(pj_dtype type)
{
    return type >= PJ_IQ1_S && type <= PJ_TQ2_0;
}

/* Entries are levels, with signs apart. */
INLINE bool book_has_signs(pj_dtype type)
{
    return is_book(type) && book_offset(type) == BOOK_SIGNED;
}

/* The eighth of each byte's bits is the parity of the others. */
INLINE uint64_t book_eighth_signs(uint64_t sevens)
{
    uint64_t x = sevens ^ sevens >> 4;
    x ^= x >> 2;
    x ^= x >> 1;
    return sevens | (x & 0x0101010101010101) << 7;
}

/* Four times seven bits in each half of a word, one group per byte. */
INLINE uint64_t book_sevens(uint64_t x)
{
    return (x & 0x0000007f0000007f) | (x & 0x00003f8000003f80) << 1 |
           (x & 0x001fc000001fc000) << 2 | (x & 0x0fe000000fe00000) << 3;
}

#endif
