/* y = x W^T + bias for many rows of x with cooperative matrices: weights and activations become f16 in
 * shared memory, sums are f32. A workgroup makes a tile of 64 DOWN tokens x 32 ACROSS rows of weights; each
 * of its DOWN x ACROSS subgroups has 4 x 2 fragments of 16 x 16. Values beyond the range of f16 are
 * clamped. With WRITTEN_OUT, the fragments' operations are ordinary code over the same shared memory,
 * which needs no hardware and shows that the rest is right.
 *
 * Dispatch: as product_tiled. threads is DOWN * ACROSS * SUBGROUP. */
#ifndef PRODUCT_MATRIX_GLSL
#define PRODUCT_MATRIX_GLSL

#ifndef WRITTEN_OUT
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

layout(constant_id = 2) const uint DOWN = 2;
layout(constant_id = 3) const uint ACROSS = 4;
layout(constant_id = 4) const uint SUBGROUP = 32;
layout(constant_id = 5) const uint OUTPUT = 0;
layout(constant_id = 6) const float RESIDUAL_SCALE = 1;

const uint TILE_TOKENS = 64 * DOWN, TILE_ROWS = 32 * ACROSS;

#include "product_many.glsl"

const uint DEPTH = 32; /* columns of a step */
const uint EIGHTS = DEPTH / 8;
const uint STRIDE = EIGHTS + 1; /* of a row in shared memory; odd, against bank conflicts */
const uint EDGE = 16, FRAGMENT = EDGE * EDGE;
const uint SUBGROUPS = DOWN * ACROSS;
const uint X_LOADS = (TILE_TOKENS * EIGHTS + SUBGROUPS * SUBGROUP - 1) / (SUBGROUPS * SUBGROUP);
const uint W_LOADS = (TILE_ROWS * EIGHTS + SUBGROUPS * SUBGROUP - 1) / (SUBGROUPS * SUBGROUP);
const uint PER_LANE = FRAGMENT / SUBGROUP; /* values of a fragment */
const uint FRAGMENTS_DOWN = 4, FRAGMENTS_ACROSS = 2;

shared uvec4 x_tile[TILE_TOKENS * STRIDE];
shared uvec4 w_tile[TILE_ROWS * STRIDE];
shared float sums[SUBGROUPS * FRAGMENT];

#ifdef WRITTEN_OUT
#define SUBGROUP_INDEX (thread / SUBGROUP)
#define LANE (thread % SUBGROUP)
#else
#define SUBGROUP_INDEX gl_SubgroupID
#define LANE gl_SubgroupInvocationID
#endif

uvec4 eight_halves(vec4 a, vec4 b)
{
    const float most = 65504;
    a = clamp(a, -most, most);
    b = clamp(b, -most, most);
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

/* Item i of a tile of x, eight columns of a token, from column k0 on. */
uvec4 x_item(const tile t, uint k0, uint i)
{
    uint token = i / EIGHTS, k = k0 + i % EIGHTS * 8;
    if (token >= t.count) return uvec4(0);
    uint64_t row = row_at(x, listed(list, t.first + token), 4 * x_stride);
    return eight_halves(four_columns(row, k, t.aligned_x), four_columns(row, k + 4, t.aligned_x));
}

uvec4 w_item(const tile t, uint k0, uint i)
{
    uint row = min(t.row + i / EIGHTS, rows - 1);
    run r = eight_columns(row_at(t.w, row, row_bytes_of(cols)), k0 + i % EIGHTS * 8, t.aligned_w);
    if (IS_FLOAT) return eight_halves(r.a, r.b);
    return eight_halves(r.scale * r.a + r.offset, r.scale * r.b + r.offset);
}

#ifdef WRITTEN_OUT

float held[FRAGMENTS_DOWN * FRAGMENTS_ACROSS * PER_LANE];

float half_of(uvec4 eight, uint k)
{
    vec2 pair = unpackHalf2x16(eight[k / 2]);
    return k % 2 == 0 ? pair.x : pair.y;
}

void clear()
{
    for (uint i = 0; i < FRAGMENTS_DOWN * FRAGMENTS_ACROSS * PER_LANE; i++) held[i] = 0;
}

void multiply(uint down, uint across)
{
    for (uint f = 0; f < FRAGMENTS_DOWN * FRAGMENTS_ACROSS; f++)
        for (uint e = 0; e < PER_LANE; e++) {
            uint at = LANE * PER_LANE + e;
            uint token = (down * FRAGMENTS_DOWN + f / FRAGMENTS_ACROSS) * EDGE + at / EDGE;
            uint row = (across * FRAGMENTS_ACROSS + f % FRAGMENTS_ACROSS) * EDGE + at % EDGE;
            float sum = held[f * PER_LANE + e];
            for (uint k = 0; k < DEPTH; k++)
                sum += half_of(x_tile[token * STRIDE + k / 8], k % 8) * half_of(w_tile[row * STRIDE + k / 8], k % 8);
            held[f * PER_LANE + e] = sum;
        }
}

/* Fragment f, row by row, to the subgroup's part of `sums`. */
void store_fragment(uint f)
{
    for (uint e = 0; e < PER_LANE; e++)
        sums[SUBGROUP_INDEX * FRAGMENT + LANE * PER_LANE + e] = held[f * PER_LANE + e];
}

#else

coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> held[8];

void clear()
{
    [[unroll]] for (uint i = 0; i < 8; i++)
        held[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
}

void multiply(uint down, uint across)
{
    [[unroll]] for (uint s = 0; s < DEPTH / EDGE; s++) {
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[4];
        [[unroll]] for (uint i = 0; i < 4; i++)
            coopMatLoad(a[i], x_tile, (down * 4 + i) * EDGE * STRIDE + s * 2, STRIDE,
                        gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0; j < 2; j++) {
            coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
            coopMatLoad(b, w_tile, (across * 2 + j) * EDGE * STRIDE + s * 2, STRIDE,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint i = 0; i < 4; i++) held[i * 2 + j] = coopMatMulAdd(a[i], b, held[i * 2 + j]);
        }
    }
}

void store_fragment(uint f)
{
    coopMatStore(held[f], sums, SUBGROUP_INDEX * FRAGMENT, EDGE, gl_CooperativeMatrixLayoutRowMajor);
}

#endif

void main()
{
    tile t;
    if (!choose_tile(TILE_ROWS, t)) return;
    set_tables(t.w);
    uint down = SUBGROUP_INDEX / ACROSS, across = SUBGROUP_INDEX % ACROSS;
    uvec4 next_x[X_LOADS], next_w[W_LOADS];
    clear();
    for (uint k0 = 0; k0 < cols + DEPTH; k0 += DEPTH) {
        /* the next step's columns are read while this one's are multiplied */
        [[unroll]] for (uint j = 0; j < X_LOADS; j++) {
            uint i = thread + j * threads;
            if (k0 < cols && i < TILE_TOKENS * EIGHTS) next_x[j] = x_item(t, k0, i);
        }
        [[unroll]] for (uint j = 0; j < W_LOADS; j++) {
            uint i = thread + j * threads;
            if (k0 < cols && i < TILE_ROWS * EIGHTS) next_w[j] = w_item(t, k0, i);
        }
        if (k0 > 0) multiply(down, across);
        barrier();
        [[unroll]] for (uint j = 0; j < X_LOADS; j++) {
            uint i = thread + j * threads;
            if (i < TILE_TOKENS * EIGHTS) x_tile[i / EIGHTS * STRIDE + i % EIGHTS] = next_x[j];
        }
        [[unroll]] for (uint j = 0; j < W_LOADS; j++) {
            uint i = thread + j * threads;
            if (i < TILE_ROWS * EIGHTS) w_tile[i / EIGHTS * STRIDE + i % EIGHTS] = next_w[j];
        }
        barrier();
    }
    [[unroll]] for (uint f = 0; f < FRAGMENTS_DOWN * FRAGMENTS_ACROSS; f++) {
        store_fragment(f);
        barrier();
        uint token = (down * FRAGMENTS_DOWN + f / FRAGMENTS_ACROSS) * EDGE;
        uint row = (across * FRAGMENTS_ACROSS + f % FRAGMENTS_ACROSS) * EDGE;
        for (uint i = LANE; i < FRAGMENT; i += SUBGROUP)
            store(t, token + i / EDGE, row + i % EDGE, sums[SUBGROUP_INDEX * FRAGMENT + i]);
        barrier();
    }
}

#endif
