/* RMSNorm and LayerNorm of a row by a whole workgroup. The same additions in the same order wherever
 * a kernel normalises, so that a product that normalises its input gives what a norm of its own and
 * the product would. `precise` keeps compilers from contracting what only one of them could. */
#ifndef NORMS_GLSL
#define NORMS_GLSL

#include "reduce.glsl"

const uint NORM_NONE = 0, NORM_RMS = 1, NORM_LAYER = 2;

struct norm_row {
    float mean, scale;
};

norm_row norm_measure(uint64_t x, uint n, uint kind, float eps)
{
    norm_row row;
    precise float sum = 0, square = 0;
    row.mean = 0;
    if (kind == NORM_LAYER) {
        for (uint i = thread; i < n; i += threads) sum += float_at(x, i);
        row.mean = reduce_sum(sum) / float(n);
    }
    for (uint i = thread; i < n; i += threads) {
        precise float v = float_at(x, i) - row.mean;
        square = fma(v, v, square);
    }
    precise float mean_square = reduce_sum(square) / float(n);
    row.scale = 1 / sqrt(mean_square + eps);
    return row;
}

/* `bias` is 0 without one. */
float norm_apply(norm_row row, uint kind, float x, float weight, float bias)
{
    precise float centred = kind == NORM_LAYER ? x - row.mean : x;
    precise float scaled = centred * row.scale;
    precise float weighted = scaled * weight;
    precise float shifted = kind == NORM_LAYER ? weighted + bias : weighted;
    return shifted;
}

#endif
