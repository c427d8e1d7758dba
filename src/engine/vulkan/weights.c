/* Weights are repacked on the host, row by row, on their way to the device. */
#include "engine/vulkan/weights.h"

#include <string.h>

_Static_assert((int)PJ_VK_Q8_ROWS >= (int)PJ_VK_DTYPES, "a number of its own");

uint32_t pj_vk_weight_type(pj_dtype type)
{
    return type == PJ_Q8_0 ? PJ_VK_Q8_ROWS : (uint32_t)type;
}

size_t pj_vk_weight_row_bytes(pj_dtype type, size_t cols)
{
    if (type != PJ_Q8_0) return pj_dtype_row_bytes(type, cols);
    return (cols + cols / 16 + 15) / 16 * 16;
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
