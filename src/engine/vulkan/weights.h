/* How weights lie on a device: as in their files, except for types whose blocks begin at odd
 * addresses and are worth the copy. */
#ifndef PJ_VULKAN_WEIGHTS_H
#define PJ_VULKAN_WEIGHTS_H

#include "engine/files/dtype.h"

#include <stdint.h>

/* Beside pj_dtype: Q8_0 with the codes of a row, then its scales as f16, then zeros up to a
 * multiple of 16 bytes. */
enum { PJ_VK_Q8_ROWS = PJ_DTYPE_COUNT };

/* What kernels call the type of weights that are stored as `type` in the model. */
uint32_t pj_vk_weight_type(pj_dtype type);
/* Bytes of a row of `cols` values, a whole number of blocks. */
size_t pj_vk_weight_row_bytes(pj_dtype type, size_t cols);
/* The codebook that lies before each matrix of this type, and its size in bytes, a multiple of 256;
 * 0: it has none. */
size_t pj_vk_weight_book(pj_dtype type, const void **book);
/* Makes a row as it lies on the device of one as stored. */
void pj_vk_weight_row(pj_dtype type, const void *stored, size_t cols, void *row);

#endif
