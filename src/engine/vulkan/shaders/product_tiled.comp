#version 450
/* y = x W^T + bias for many rows of x: tiles of TILE_TOKENS x TILE_ROWS outputs from shared memory, sums
 * in registers, TILE_TOKENS / PER_TOKEN x TILE_ROWS / PER_ROW threads. Also the products of experts: then
 * w and bias are tables of addresses by expert, and `tiles` lists what the workgroups work on.
 *
 * Dispatch: x: ceil(rows / TILE_ROWS); y: ceil(tokens / TILE_TOKENS), or the most tiles there can be. */
layout(constant_id = 2) const uint TILE_TOKENS = 64;
layout(constant_id = 3) const uint TILE_ROWS = 64;
layout(constant_id = 4) const uint PER_TOKEN = 4;
layout(constant_id = 5) const uint PER_ROW = 4;
layout(constant_id = 6) const uint OUTPUT = 0;
layout(constant_id = 7) const float RESIDUAL_SCALE = 1;

#include "product_many.glsl"

const uint DEPTH = 32; /* columns of a step */
const uint X_STRIDE = TILE_TOKENS + 1, W_STRIDE = TILE_ROWS + 1;
const uint ACROSS = TILE_ROWS / PER_ROW, DOWN = TILE_TOKENS / PER_TOKEN;
shared float x_tile[DEPTH * X_STRIDE];
shared float w_tile[DEPTH * W_STRIDE];

void load_x(const tile t, uint k0)
{
    for (uint i = thread; i < TILE_TOKENS * (DEPTH / 4); i += threads) {
        uint token = i / (DEPTH / 4), k = i % (DEPTH / 4) * 4;
        vec4 v = vec4(0);
        if (token < t.count)
            v = four_columns(row_at(x, listed(list, t.first + token), 4 * x_stride), k0 + k, t.aligned_x);
        [[unroll]] for (uint j = 0; j < 4; j++) x_tile[(k + j) * X_STRIDE + token] = v[j];
    }
}

void load_w(const tile t, uint k0)
{
    for (uint i = thread; i < TILE_ROWS * (DEPTH / 8); i += threads) {
        uint n = i / (DEPTH / 8), k = i % (DEPTH / 8) * 8;
        uint row = min(t.row + n, rows - 1);
        run r = eight_columns(row_at(t.w, row, row_bytes_of(cols)), k0 + k, t.aligned_w);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            w_tile[(k + j) * W_STRIDE + n] = IS_FLOAT ? r.a[j] : fma(r.scale, r.a[j], r.offset);
            w_tile[(k + 4 + j) * W_STRIDE + n] = IS_FLOAT ? r.b[j] : fma(r.scale, r.b[j], r.offset);
        }
    }
}

void main()
{
    tile t;
    if (!choose_tile(TILE_ROWS, t)) return;
    set_tables(t.w);

    float sums[PER_TOKEN * PER_ROW], a[PER_TOKEN], b[PER_ROW];
    uint across = thread % ACROSS, down = thread / ACROSS;
    [[unroll]] for (uint i = 0; i < PER_TOKEN * PER_ROW; i++) sums[i] = 0;
    for (uint k0 = 0; k0 < cols; k0 += DEPTH) {
        load_x(t, k0);
        load_w(t, k0);
        barrier();
        for (uint k = 0; k < DEPTH; k++) {
            [[unroll]] for (uint i = 0; i < PER_TOKEN; i++) a[i] = x_tile[k * X_STRIDE + down + i * DOWN];
            [[unroll]] for (uint j = 0; j < PER_ROW; j++) b[j] = w_tile[k * W_STRIDE + across + j * ACROSS];
            [[unroll]] for (uint i = 0; i < PER_TOKEN; i++)
                [[unroll]] for (uint j = 0; j < PER_ROW; j++)
                    sums[i * PER_ROW + j] = fma(a[i], b[j], sums[i * PER_ROW + j]);
        }
        barrier();
    }
    [[unroll]] for (uint i = 0; i < PER_TOKEN; i++)
        [[unroll]] for (uint j = 0; j < PER_ROW; j++)
            store(t, down + i * DOWN, across + j * ACROSS, sums[i * PER_ROW + j]);
}
