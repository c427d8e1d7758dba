/* Weights are repacked on the host, row by row, on their way to the device. */
#include "engine/vulkan/weights.h"

#include "engine/kernels/codebook.h"

#include <string.h>

uint32_t pj_vk_weight_type(pj_dtype type)
{
    return type == PJ_Q8_0 ? PJ_VK_Q8_ROWS : (uint32_t)type;
}

size_t pj_vk_weight_row_bytes(pj_dtype type, size_t cols)
{
    if (type != PJ_Q8_0) return pj_dtype_row_bytes(type, cols);
    return (cols + cols / 16 + 15) / 16 * 16;
}

#define BOOK(of) (*book = (of), sizeof(of))

size_t pj_vk_weight_book(pj_dtype type, const void **book)
{
    switch (type) {
    case PJ_IQ1_S:
    case PJ_IQ1_M: return BOOK(pj_book_iq1);
    case PJ_IQ2_XXS: return BOOK(pj_book_iq2_xxs);
    case PJ_IQ2_XS: return BOOK(pj_book_iq2_xs);
    case PJ_IQ2_S: return BOOK(pj_book_iq2_s);
    case PJ_IQ3_XXS: return BOOK(pj_book_iq3_xxs);
    case PJ_IQ3_S: return BOOK(pj_book_iq3_s);
    default: return 0;
    }
}

static void weights_split_q8(const unsigned char *blocks, size_t cols, unsigned char *row)
{
    enum { VALUES = 32, SCALE_BYTES = 2, BLOCK_BYTES = 34 };
    size_t count = cols / VALUES, used = cols + count * SCALE_BYTES;
    for (size_t i = 0; i < count; i++, blocks += BLOCK_BYTES) {
        memcpy(row + i * VALUES, blocks + SCALE_BYTES, VALUES);
        memcpy(row + cols + i * SCALE_BYTES, blocks, SCALE_BYTES);
    }
    memset(row + used, 0, pj_vk_weight_row_bytes(PJ_Q8_0, cols) - used);
}

void pj_vk_weight_row(pj_dtype type, const void *stored, size_t cols, void *row)
{
    if (type == PJ_Q8_0)
        weights_split_q8(stored, cols, row);
    else
        memcpy(row, stored, pj_dtype_row_bytes(type, cols));
}
