/* What products of many rows of x share: their arguments, what a workgroup works on, the columns of x and
 * of weights, zero beyond the last, and how sums are stored. The includer defines TILE_TOKENS, OUTPUT and
 * RESIDUAL_SCALE. With `tiles`, the products are those of experts: w and bias are tables of addresses by
 * expert, and the tiles say what the workgroups work on. */
#ifndef PRODUCT_MANY_GLSL
#define PRODUCT_MANY_GLSL

#include "dequant.glsl"

const uint OUTPUT_STORE = 0, OUTPUT_RESIDUAL = 1;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, w, bias, y;
    uint64_t residual; /* [tokens][residual_stride] */
    uint64_t tiles;    /* count, then (expert, first entry, entries) of each; 0: dense */
    uint64_t list;     /* row of x by entry; 0: the entry itself */
    uint rows, cols, tokens, x_stride, y_stride, residual_stride;
};

struct tile {
    uint64_t w, bias;
    uint first, count; /* entries */
    uint row;          /* first row of weights */
    bool aligned_x, aligned_w;
};

vec4 four_columns(uint64_t row, uint k, bool aligned)
{
    if (aligned && k + 4 <= cols) return vectors(row).at[k / 4];
    vec4 v = vec4(0);
    for (uint i = 0; i < 4 && k + i < cols; i++) v[i] = float_at(row, k + i);
    return v;
}

/* Eight columns from k on, zero beyond the last. */
run eight_columns(uint64_t row, uint k, bool aligned)
{
    if (!IS_FLOAT && k < cols) {
        uvec2 at = unit_of_column(k);
        return unpack(row, at.x, at.y);
    }
    if (aligned && k + 8 <= cols) return unpack_floats(row, k);
    run r;
    r.a = r.b = vec4(0);
    r.scale = 1;
    r.offset = 0;
    for (uint i = 0; i < 8 && k + i < cols; i++) {
        float v = stored_float(row, k + i);
        if (i < 4) r.a[i] = v;
        else r.b[i - 4] = v;
    }
    return r;
}

void store(const tile t, uint token, uint n, float sum)
{
    uint row = t.row + n;
    if (token >= t.count || row >= rows) return;
    precise float value = t.bias == 0 ? sum : sum + float_at(t.bias, row);
    floats(row_at(y, t.first + token, 4 * y_stride)).at[row] = value;
    if (OUTPUT != OUTPUT_RESIDUAL) return;
    uint64_t to = row_at(residual, t.first + token, 4 * residual_stride);
    floats(to).at[row] = fma(RESIDUAL_SCALE, value, float_at(to, row));
}

/* False: there is nothing left for this workgroup. */
bool choose_tile(uint tile_rows, out tile t)
{
    row_columns = cols;
    t.w = w;
    t.bias = bias;
    t.first = gl_WorkGroupID.y * TILE_TOKENS;
    t.row = gl_WorkGroupID.x * tile_rows;
    t.aligned_w = cols % 8 == 0;
    t.aligned_x = is_aligned(x, x_stride);
    t.count = min(tokens - t.first, TILE_TOKENS);
    if (tiles == 0) return true;
    if (gl_WorkGroupID.y >= word_at(tiles, 0)) return false;
    uint entry = 1 + 3 * gl_WorkGroupID.y, expert = word_at(tiles, entry);
    t.w = addresses(w).at[expert];
    t.bias = bias == 0 ? 0 : addresses(bias).at[expert];
    t.first = word_at(tiles, entry + 1);
    t.count = word_at(tiles, entry + 2);
    return true;
}

#endif
