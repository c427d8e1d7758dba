#version 450
/* What statistics of an output are computed from: sums and counts over rows, of which every step-th is
 * summed, counted from the last; of the others only the bounds are kept. The first dispatch makes a record
 * per workgroup, the second (LAST) adds the records up.
 *
 * Dispatch: x: parts of a row; y: parts of the rows; with LAST one workgroup. */
#include "counts.glsl"

layout(constant_id = 1) const uint LAST = 0;

struct value_sums {
    float sum, sum_abs, sum_square, max_abs; /* of finite values */
    uint count, skipped;                     /* values summed; of them NaN and infinite */
    uint below;                              /* |x| < tau */
    uint nan, inf;                           /* of all values */
};

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer records { value_sums at[]; };

layout(push_constant, scalar) uniform parameters {
    uint64_t x, parts, total;
    uint rows, cols, stride, step, part_count;
    float tau;
};

/* Sums keep what they lose to rounding (Kahan), so that a thread may add up many values. */
struct running {
    float sum, lost;
};

running plus(running a, float x)
{
    precise float corrected = x - a.lost;
    precise float sum = a.sum + corrected;
    precise float grown = sum - a.sum;
    precise float lost = grown - corrected;
    return running(sum, lost);
}

void reduce_and_store(value_sums s, uint64_t to, uint index)
{
    s.sum = reduce_sum(s.sum);
    s.sum_abs = reduce_sum(s.sum_abs);
    s.sum_square = reduce_sum(s.sum_square);
    s.max_abs = reduce_max(s.max_abs);
    s.count = reduce_count(s.count);
    s.skipped = reduce_count(s.skipped);
    s.below = reduce_count(s.below);
    s.nan = reduce_count(s.nan);
    s.inf = reduce_count(s.inf);
    if (thread == 0) records(to).at[index] = s;
}

value_sums none()
{
    return value_sums(0, 0, 0, 0, 0, 0, 0, 0, 0);
}

bool is_summed(uint row)
{
    return (rows - 1 - row) % step == 0;
}

value_sums sum_values()
{
    value_sums s = none();
    running sum = running(0, 0), sum_abs = sum, sum_square = sum;
    for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
        uint64_t from = row_at(x, row, 4 * stride);
        uint summed = uint(is_summed(row));
        for (uint i = gl_WorkGroupID.x * threads + thread; i < cols; i += gl_NumWorkGroups.x * threads) {
            float v = float_at(from, i), magnitude = abs(v);
            bool finite = is_finite(v);
            s.count += summed;
            s.nan += uint(is_nan(v));
            s.inf += uint(!finite && !is_nan(v));
            if (finite) s.max_abs = max(s.max_abs, magnitude);
            if (summed == 0) continue;
            s.skipped += uint(!finite);
            if (!finite) continue;
            s.below += uint(magnitude < tau);
            sum = plus(sum, v);
            sum_abs = plus(sum_abs, magnitude);
            sum_square = plus(sum_square, v * v);
        }
    }
    s.sum = sum.sum;
    s.sum_abs = sum_abs.sum;
    s.sum_square = sum_square.sum;
    return s;
}

value_sums add_records()
{
    value_sums s = none();
    running sum = running(0, 0), sum_abs = sum, sum_square = sum;
    for (uint i = thread; i < part_count; i += threads) {
        value_sums part = records(parts).at[i];
        sum = plus(sum, part.sum);
        sum_abs = plus(sum_abs, part.sum_abs);
        sum_square = plus(sum_square, part.sum_square);
        s.max_abs = max(s.max_abs, part.max_abs);
        s.count += part.count;
        s.skipped += part.skipped;
        s.below += part.below;
        s.nan += part.nan;
        s.inf += part.inf;
    }
    s.sum = sum.sum;
    s.sum_abs = sum_abs.sum;
    s.sum_square = sum_square.sum;
    return s;
}

void main()
{
    if (LAST != 0) reduce_and_store(add_records(), total, 0);
    else reduce_and_store(sum_values(), parts, gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x);
}
