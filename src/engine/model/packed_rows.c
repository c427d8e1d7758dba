/* Rows of packed weights. */
#include "engine/model/packed_rows.h"

#include "engine/kernels/blocks.h"

#include <string.h>

enum { BLOCK = 32 };

static uint32_t word(const unsigned char *words, size_t index)
{
    return pj_blocks_u32(words + 4 * index);
}

/* Value `index` of a run of codes in words. */
static unsigned code_of(const unsigned char *words, size_t first_word, size_t index, unsigned bits)
{
    size_t bit = index * bits;
    return word(words, first_word + bit / 32) >> (bit % 32) & ((1u << bits) - 1);
}

/* AWQ: values 0, 2, 4, 6, 1, 3, 5, 7 of eight. */
static unsigned shuffled_code(const unsigned char *words, size_t first_word, size_t index)
{
    size_t at = index % 8, nibble = at % 2 * 4 + at / 2;
    return word(words, first_word + index / 8) >> (4 * nibble) & 15;
}

static unsigned code(const pj_packed_weights *w, size_t row, size_t col)
{
    switch (w->packing) {
    case PJ_PACKED_GPTQ: /* words run along columns */
        return word(w->codes, col * w->bits / 32 * w->rows + row) >> (col * w->bits % 32) &
               ((1u << w->bits) - 1);
    case PJ_PACKED_AWQ: return shuffled_code(w->codes, col * (w->rows / 8), row);
    default: return code_of(w->codes, row * (w->cols * w->bits / 32), col, w->bits);
    }
}

static unsigned zero(const pj_packed_weights *w, size_t row, size_t group)
{
    if (!w->zeros) return 1u << (w->bits - 1);
    if (w->packing == PJ_PACKED_AWQ) return shuffled_code(w->zeros, group * (w->rows / 8), row);
    return code_of(w->zeros, group * (w->rows * w->bits / 32), row, w->bits) + w->zero_plus;
}

static float scale(const pj_packed_weights *w, size_t row, size_t group)
{
    float value;
    bool by_row = w->packing == PJ_PACKED_ROWS || w->packing == PJ_PACKED_FP4;
    size_t index = by_row ? row * (w->cols / w->group) + group : group * w->rows + row;
    if (w->packing == PJ_PACKED_FP4) return pj_float_of_e4m3(w->scales[index]) * w->factor;
    pj_blocks_dequantise(w->scale_type,
                         w->scales + index * pj_dtype_get(w->scale_type)->block_bytes, &value, 1);
    return value;
}

static size_t group_of(const pj_packed_weights *w, size_t col)
{
    uint32_t group, groups = (uint32_t)(w->cols / w->group);
    if (!w->group_of) return col / w->group;
    group = word(w->group_of, col);
    return group < groups ? group : groups - 1; /* checked when the model is opened */
}

static void read_packed(const pj_row_source *s, size_t row, float *values)
{
    const pj_packed_weights *w = s->packed;
    for (size_t i = 0; i < w->cols; i++) {
        size_t group = group_of(w, i);
        values[i] = scale(w, row, group) * (float)((int)code(w, row, i) - (int)zero(w, row, group));
    }
}

static void read_fp4(const pj_row_source *s, size_t row, float *values)
{
    const pj_packed_weights *w = s->packed;
    const unsigned char *pairs = w->codes + row * (w->cols / 2);
    for (size_t i = 0; i < w->cols; i++)
        values[i] = scale(w, row, i / w->group) * 0.5f *
                    (float)pj_mxfp4_levels[pairs[i / 2] >> (i % 2 * 4) & 15];
}

/* The same codes as Q4_1, or Q4_0 if there are no zeros. */
static void copy_packed(const pj_row_source *s, size_t row, void *out)
{
    const pj_packed_weights *w = s->packed;
    unsigned char *to = out;
    for (size_t first = 0; first < w->cols; first += BLOCK) {
        size_t group = first / w->group;
        float d = scale(w, row, group), m = -d * (float)zero(w, row, group);
        uint16_t half = pj_f16_of_float(d);
        memcpy(to, &half, 2), to += 2;
        half = pj_f16_of_float(m);
        if (s->type == PJ_Q4_1) memcpy(to, &half, 2), to += 2;
        for (size_t i = 0; i < BLOCK / 2; i++)
            *to++ =
                (unsigned char)(code(w, row, first + i) | code(w, row, first + i + BLOCK / 2) << 4);
    }
}

pj_row_source pj_rows_packed(const pj_packed_weights *w)
{
    bool fp4 = w->packing == PJ_PACKED_FP4;
    bool same = !fp4 && w->bits == 4 && !w->group_of && w->group % BLOCK == 0;
    return (pj_row_source){.type = !same      ? PJ_Q8_0
                                   : w->zeros ? PJ_Q4_1
                                              : PJ_Q4_0,
                           .cols = w->cols,
                           .read = fp4 ? read_fp4 : read_packed,
                           .copy = same ? copy_packed : NULL,
                           .packed = w};
}
