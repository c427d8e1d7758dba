/* Rows of packed weights. */
#include "engine/model/packed_rows.h"

#include "engine/kernels/blocks.h"

#include <string.h>

enum { BLOCK = 32, LARGEST_CODE = 127 };

static uint32_t word(const unsigned char *words, size_t index)
{
    return pj_blocks_u32(words + 4 * index);
}

/* Code `index` of a run without gaps, in every step-th word. */
static unsigned code_of(const unsigned char *words, size_t first_word, size_t step, size_t index,
                        unsigned bits)
{
    size_t bit = index * bits, at = first_word + bit / 32 * step, shift = bit % 32;
    uint32_t code = word(words, at) >> shift;
    if (shift + bits > 32) code |= word(words, at + step) << (32 - shift);
    return code & ((1u << bits) - 1);
}

/* The same where no code is in two words. */
static unsigned whole_code(const unsigned char *words, size_t first_word, size_t step, size_t index,
                           unsigned bits)
{
    size_t each = 32 / bits;
    return word(words, first_word + index / each * step) >> (index % each * bits) &
           ((1u << bits) - 1);
}

/* AWQ: values 0, 2, 4, 6, 1, 3, 5, 7 of eight. */
static unsigned shuffled_code(const unsigned char *words, size_t first_word, size_t index)
{
    size_t at = index % 8, nibble = at % 2 * 4 + at / 2;
    return word(words, first_word + index / 8) >> (4 * nibble) & 15;
}

static int code(const pj_packed_weights *w, size_t row, size_t col)
{
    size_t each = 32 / w->bits;
    switch (w->packing) {
    case PJ_PACKED_GPTQ: return (int)code_of(w->codes, row, w->rows, col, w->bits);
    case PJ_PACKED_AWQ: return (int)shuffled_code(w->codes, col * (w->rows / 8), row);
    case PJ_PACKED_BYTES: return (int8_t)w->codes[row * w->cols + col];
    default: return (int)whole_code(w->codes, row * ((w->cols + each - 1) / each), 1, col, w->bits);
    }
}

static int zero(const pj_packed_weights *w, size_t row, size_t group)
{
    size_t groups = w->cols / w->group;
    bool bytes = w->packing == PJ_PACKED_BYTES;
    if (!w->zeros) return bytes ? 0 : 1 << (w->bits - 1);
    if (bytes) return (int8_t)w->zeros[row * groups + group];
    if (w->packing == PJ_PACKED_AWQ)
        return (int)shuffled_code(w->zeros, group * (w->rows / 8), row);
    if (w->packing == PJ_PACKED_ROWS) return (int)whole_code(w->zeros, group, groups, row, w->bits);
    return (int)(code_of(w->zeros, group * (w->rows * w->bits / 32), 1, row, w->bits) +
                 w->zero_plus);
}

static float scale(const pj_packed_weights *w, size_t row, size_t group)
{
    float value;
    bool by_row = w->packing != PJ_PACKED_GPTQ && w->packing != PJ_PACKED_AWQ;
    size_t index = by_row ? row * (w->cols / w->group) + group : group * w->rows + row;
    if (w->packing == PJ_PACKED_FP4) return pj_float_of_e4m3(w->scales[index]) * w->factor;
    pj_blocks_dequantise(w->scale_type,
                         w->scales + index * pj_dtype_get(w->scale_type)->block_bytes, &value, 1);
    return value * w->factor;
}

static size_t group_of(const pj_packed_weights *w, size_t col)
{
    uint32_t group, groups = (uint32_t)(w->cols / w->group);
    if (!w->group_of) return col / w->group;
    group = word(w->group_of, col);
    return group < groups ? group : groups - 1; /* checked when the model is opened */
}

/* Values `first` to `end` of a row; neighbours usually have the same group. */
static void read_codes(const pj_packed_weights *w, size_t row, size_t first, size_t end,
                       float *values)
{
    size_t group = SIZE_MAX;
    float factor = 0;
    int zeros = 0;
    for (size_t i = first; i < end; i++) {
        size_t own = group_of(w, i);
        if (own != group) {
            group = own;
            factor = scale(w, row, group);
            zeros = zero(w, row, group);
        }
        values[i - first] = factor * (float)(code(w, row, i) - zeros);
    }
}

static void read_packed(const pj_row_source *s, size_t row, float *values)
{
    read_codes(s->packed, row, 0, s->cols, values);
}

static void read_fp4(const pj_row_source *s, size_t row, float *values)
{
    const pj_packed_weights *w = s->packed;
    const unsigned char *pairs = w->codes + row * (w->cols / 2);
    for (size_t i = 0; i < w->cols; i++)
        values[i] = scale(w, row, i / w->group) * 0.5f *
                    (float)pj_mxfp4_levels[pairs[i / 2] >> (i % 2 * 4) & 15];
}

static float level_scale(const pj_packed_levels *v, size_t block)
{
    if (v->scales) return v->scales[block];
    return v->scale_level[v->codes[block]] * v->scale_scales[block / v->scale_block] + v->offset;
}

static void read_levels(const pj_row_source *s, size_t row, float *values)
{
    const pj_packed_weights *w = s->packed;
    for (size_t i = 0; i < w->cols; i++) {
        size_t at = row * w->cols + i;
        unsigned index = at % 2 ? w->codes[at / 2] & 15 : w->codes[at / 2] >> 4;
        values[i] = w->levels->level[index] * level_scale(w->levels, at / w->levels->block);
    }
}

/* The same codes as Q4_1, or Q4_0 if there are no zeros. */
static void copy_nibbles(const pj_row_source *s, size_t row, void *out)
{
    const pj_packed_weights *w = s->packed;
    unsigned char *to = out;
    for (size_t first = 0; first < w->cols; first += BLOCK) {
        size_t group = first / w->group;
        /* Q4_0's zero is 8 */
        int zeros = zero(w, row, group), more = s->type == PJ_Q4_0 ? 8 - zeros : 0;
        float d = scale(w, row, group), m = -d * (float)zeros;
        uint16_t half = pj_f16_of_float(d);
        memcpy(to, &half, 2), to += 2;
        half = pj_f16_of_float(m);
        if (s->type == PJ_Q4_1) memcpy(to, &half, 2), to += 2;
        for (size_t i = 0; i < BLOCK / 2; i++) {
            int low = code(w, row, first + i) + more,
                high = code(w, row, first + i + BLOCK / 2) + more;
            *to++ = (unsigned char)(low | high << 4);
        }
    }
}

/* The same codes as Q8_0, if they are in the range of those that it has; else rounded. */
static void copy_bytes(const pj_row_source *s, size_t row, void *out)
{
    const pj_packed_weights *w = s->packed;
    unsigned char *to = out;
    for (size_t first = 0; first < w->cols; first += BLOCK) {
        size_t group = first / w->group;
        int zeros = zero(w, row, group);
        bool fits = true;
        float values[BLOCK];
        uint16_t half = pj_f16_of_float(scale(w, row, group));
        memcpy(to, &half, 2);
        for (size_t i = 0; i < BLOCK; i++) {
            int q = code(w, row, first + i) - zeros;
            fits &= q >= -LARGEST_CODE && q <= LARGEST_CODE;
            to[2 + i] = (unsigned char)q;
        }
        if (!fits) {
            read_codes(w, row, first, first + BLOCK, values);
            pj_blocks_quantise(PJ_Q8_0, values, to, BLOCK);
        }
        to += 2 + BLOCK;
    }
}

pj_row_source pj_rows_packed(const pj_packed_weights *w)
{
    bool coded = w->packing != PJ_PACKED_FP4 && w->packing != PJ_PACKED_LEVELS;
    bool same = coded && !w->group_of && w->group % BLOCK == 0;
    bool nibbles = same && w->bits <= 4;
    return (pj_row_source){.type = !nibbles   ? PJ_Q8_0
                                   : w->zeros ? PJ_Q4_1
                                              : PJ_Q4_0,
                           .cols = w->cols,
                           .read = w->packing == PJ_PACKED_FP4      ? read_fp4
                                   : w->packing == PJ_PACKED_LEVELS ? read_levels
                                                                    : read_packed,
                           .copy = nibbles ? copy_nibbles
                                   : same  ? copy_bytes
                                           : NULL,
                           .packed = w};
}
