/* Vectorised row operations: norms, rope, activations, softmax, statistics. One source for every
 * set. Partial vectors at the end of rows are zero-filled. */
#include "engine/kernels/vector.h"

/* Iterates over the vectors of a row of n: `i` is the first index, `len` at most LANES; LOAD and
 * STORE handle the partial vector at the end. */
#define LOAD(row)     (len == LANES ? vec_load((row) + i) : vec_load_some((row) + i, len))
#define STORE(row, v) (len == LANES ? vec_store((row) + i, v) : vec_store_some((row) + i, v, len))
#define FOR_VECTORS(n) \
    for (size_t i = 0, len; i < (n) && (len = (n)-i < LANES ? (n)-i : LANES); i += LANES)

/* ---- sums ------------------------------------------------------------------------------- */

/* Sums blocks of 512 values in float lanes, the blocks in double. */
enum { STRETCH = 512 };

static double sum_of(const float *x, size_t n)
{
    double sum = 0;
    for (size_t at = 0; at < n; at += STRETCH) {
        size_t part = n - at < STRETCH ? n - at : STRETCH;
        const float *row = x + at;
        vec lanes = vec_of(0);
        FOR_VECTORS(part) lanes += LOAD(row);
        sum += (double)vec_sum(lanes);
    }
    return sum;
}

/* Sum of (x - mean)^2; padding must not count as -mean. */
static double sum_square(const float *x, size_t n, float mean)
{
    double sum = 0;
    for (size_t at = 0; at < n; at += STRETCH) {
        size_t part = n - at < STRETCH ? n - at : STRETCH, whole = part / LANES * LANES;
        const float *row = x + at;
        vec lanes = vec_of(0);
        for (size_t i = 0; i < whole; i += LANES) {
            vec v = vec_load(row + i) - mean;
            lanes += v * v;
        }
        sum += (double)vec_sum(lanes);
        for (size_t i = whole; i < part; i++) sum += (double)((row[i] - mean) * (row[i] - mean));
    }
    return sum;
}

/* ---- norms ------------------------------------------------------------------------------ */

static void rows_rmsnorm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    float scale = (float)(1 / sqrt(sum_square(x, n, 0) / (double)n + (double)eps));
    FOR_VECTORS(n) STORE(y, LOAD(weight) * (LOAD(x) * scale));
}

static void rows_layernorm(float *y, const float *x, const float *weight, const float *bias,
                           size_t n, float eps)
{
    float mean = (float)(sum_of(x, n) / (double)n);
    float scale = (float)(1 / sqrt(sum_square(x, n, mean) / (double)n + (double)eps));
    FOR_VECTORS(n)
    {
        vec v = (LOAD(x) - mean) * scale * LOAD(weight);
        STORE(y, bias ? v + LOAD(bias) : v);
    }
}

/* ---- rope ------------------------------------------------------------------------------- */

static void rope_halves(float *x, const float *cosine, const float *sine, size_t half)
{
    float *z = x + half;
    FOR_VECTORS(half)
    {
        vec a = LOAD(x), b = LOAD(z), c = LOAD(cosine), s = LOAD(sine);
        STORE(x, a * c - b * s);
        STORE(z, b * c + a * s);
    }
}

static void rows_rope(float *x, size_t heads, size_t head_stride, const float *cosine,
                      const float *sine, size_t rotary, bool neighbours)
{
    for (size_t h = 0; h < heads; h++, x += head_stride) {
        if (!neighbours) {
            rope_halves(x, cosine, sine, rotary / 2);
            continue;
        }
        for (size_t i = 0; i < rotary / 2; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = a * cosine[i] - b * sine[i];
            x[2 * i + 1] = b * cosine[i] + a * sine[i];
        }
    }
}

/* ---- element by element ----------------------------------------------------------------- */

static void rows_add(float *y, const float *x, size_t n)
{
    FOR_VECTORS(n) STORE(y, LOAD(y) + LOAD(x));
}

static void add_scaled(float *y, const float *x, float scale, size_t n)
{
    FOR_VECTORS(n) STORE(y, LOAD(y) + scale * LOAD(x));
}

static void rows_multiply(float *y, const float *x, size_t n)
{
    FOR_VECTORS(n) STORE(y, LOAD(y) * LOAD(x));
}

INLINE vec silu_of(vec x)
{
    return x / (1 + vec_exp(-x));
}

static void rows_silu(float *y, const float *x, size_t n)
{
    FOR_VECTORS(n) STORE(y, silu_of(LOAD(x)));
}

static void sigmoid_multiply(float *y, const float *gate, size_t n)
{
    FOR_VECTORS(n) STORE(y, LOAD(y) / (1 + vec_exp(-LOAD(gate))));
}

/* Up to DELTA vectors of state columns; the last one has `len` columns. */
enum { DELTA = 4 };

INLINE void delta_columns(float *state, const float *q, const float *k, const float *v, float decay,
                          float strength, size_t key_dim, size_t value_dim, float *y, size_t len,
                          const size_t V)
{
    vec held[DELTA], out[DELTA], correction[DELTA];
    UNROLL for (size_t c = 0; c < V; c++) held[c] = out[c] = vec_of(0);
    for (size_t i = 0; i < key_dim; i++) {
        const float *row = state + i * value_dim;
        UNROLL for (size_t c = 0; c < V; c++)
        {
            vec cell = len == LANES ? vec_load(row + c * LANES) : vec_load_some(row, len);
            held[c] += cell * k[i];
        }
    }
    UNROLL for (size_t c = 0; c < V; c++)
    {
        vec value = len == LANES ? vec_load(v + c * LANES) : vec_load_some(v, len);
        correction[c] = (value - held[c] * decay) * strength;
    }
    for (size_t i = 0; i < key_dim; i++) {
        float *row = state + i * value_dim;
        UNROLL for (size_t c = 0; c < V; c++)
        {
            vec cell = len == LANES ? vec_load(row + c * LANES) : vec_load_some(row, len);
            cell = cell * decay + correction[c] * k[i];
            out[c] += cell * q[i];
            len == LANES ? vec_store(row + c * LANES, cell) : vec_store_some(row, cell, len);
        }
    }
    UNROLL for (size_t c = 0; c < V; c++) len == LANES ? vec_store(y + c * LANES, out[c])
                                                       : vec_store_some(y, out[c], len);
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay,
                       float strength, size_t key_dim, size_t value_dim, float *y)
{
    size_t j = 0;
    for (; j + DELTA * LANES <= value_dim; j += DELTA * LANES)
        delta_columns(state + j, q, k, v + j, decay, strength, key_dim, value_dim, y + j, LANES,
                      DELTA);
    for (; j < value_dim; j += LANES) {
        size_t len = value_dim - j < LANES ? value_dim - j : LANES;
        delta_columns(state + j, q, k, v + j, decay, strength, key_dim, value_dim, y + j, len, 1);
    }
}

static void silu_multiply(float *y, const float *gate, const float *up, size_t n)
{
    FOR_VECTORS(n) STORE(y, silu_of(LOAD(gate)) * LOAD(up));
}

/* 0.5 (1 + tanh z) = 1 / (1 + e^-2z) */
static void rows_gelu(float *y, const float *x, size_t n)
{
    FOR_VECTORS(n)
    {
        vec v = LOAD(x), z = 0.7978845608f * (v + 0.044715f * v * v * v);
        STORE(y, v / (1 + vec_exp(-2 * z)));
    }
}

static void scale_row(float *x, size_t n, float scale)
{
    FOR_VECTORS(n) STORE(x, LOAD(x) * scale);
}

/* tanh z = 1 - 2 / (1 + e^2z) */
static void rows_softcap(float *x, size_t n, float cap)
{
    float twice = 2 / cap;
    FOR_VECTORS(n) STORE(x, cap - 2 * cap / (1 + vec_exp(LOAD(x) * twice)));
}

/* ---- softmax ---------------------------------------------------------------------------- */

static void rows_softmax(float *x, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec most = vec_of(-INFINITY), lanes = vec_of(0);
    for (size_t i = 0; i < whole; i += LANES) most = vec_max(most, vec_load(x + i));
    float largest = vec_largest(most);
    for (size_t i = whole; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (size_t i = 0; i < whole; i += LANES) {
        vec v = vec_exp(vec_load(x + i) - largest);
        vec_store(x + i, v);
        lanes += v;
    }
    float sum = vec_sum(lanes);
    if (whole < n) {
        vec v = vec_exp(vec_load_some(x + whole, n - whole) - largest);
        vec_store_some(x + whole, v, n - whole);
        for (size_t i = whole; i < n; i++) sum += x[i];
    }
    float scale = 1 / sum;
    FOR_VECTORS(n) STORE(x, LOAD(x) * scale);
}

static void attention_softmax(float *scores, size_t score_stride, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) rows_softmax(scores + r * score_stride, n);
}

static void attention_scale(float *scores, size_t score_stride, size_t rows, size_t n, float scale)
{
    for (size_t r = 0; r < rows; r++, scores += score_stride)
        FOR_VECTORS(n) STORE(scores, LOAD(scores) * scale);
}

/* ---- figures ---------------------------------------------------------------------------- */

static void value_sums_one_by_one(const float *x, size_t n, float tau, pj_value_sums *sums)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            sums->nan++;
            sums->skipped++;
        } else if (isinf(x[i])) {
            sums->inf++;
            sums->skipped++;
        } else {
            sums->sum += (double)x[i];
            sums->sum_abs += (double)fabsf(x[i]);
            sums->sum_square += (double)x[i] * (double)x[i];
            sums->max_abs = fmaxf(sums->max_abs, fabsf(x[i]));
            sums->below += fabsf(x[i]) < tau;
        }
    }
}

/* Two accumulators each, to hide the latency of additions. */
typedef struct sum_lanes {
    vec sum, sum_abs, square, most;
    size_t below;
} sum_lanes;

INLINE void sum_vector(sum_lanes *to, vec v, float tau)
{
    vec magnitude = vec_abs(v);
    to->sum += v;
    to->sum_abs += magnitude;
    to->square += v * v;
    to->most = vec_max(to->most, magnitude);
    to->below += vec_count_less(magnitude, vec_of(tau));
}

/* Sums rows in float lanes, about SUMS_STRETCH values at a time. NaN, Inf or an overflowing square
 * shows in the sum of squares; the rows are then recomputed one by one. */
enum { SUMS_STRETCH = 8192 };

static void sum_stretch(const float *x, size_t rows, size_t cols, size_t stride, float tau,
                        pj_value_sums *sums)
{
    sum_lanes a = {0}, b = {0};
    size_t whole = cols / LANES * LANES;
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * stride;
        size_t i = 0;
        for (; i + 2 * LANES <= whole; i += 2 * LANES) {
            sum_vector(&a, vec_load(row + i), tau);
            sum_vector(&b, vec_load(row + i + LANES), tau);
        }
        if (i < whole) sum_vector(&a, vec_load(row + i), tau);
        if (whole < cols) sum_vector(&b, vec_load_some(row + whole, cols - whole), tau);
    }
    double square = (double)vec_sum(a.square + b.square);
    if (!isfinite(square)) {
        for (size_t r = 0; r < rows; r++) value_sums_one_by_one(x + r * stride, cols, tau, sums);
        return;
    }
    size_t filled = whole < cols ? rows * (whole + LANES - cols) : 0; /* zero padding counted */
    sums->sum += (double)vec_sum(a.sum + b.sum);
    sums->sum_abs += (double)vec_sum(a.sum_abs + b.sum_abs);
    sums->sum_square += square;
    sums->max_abs = fmaxf(sums->max_abs, vec_largest(vec_max(a.most, b.most)));
    sums->below += a.below + b.below - (tau > 0 ? filled : 0);
}

static void value_sums(const float *x, size_t rows, size_t cols, size_t stride, float tau,
                       pj_value_sums *sums)
{
    sums->count += rows * cols;
    if (stride == cols) {
        cols *= rows;
        rows = 1;
    }
    size_t together = cols < SUMS_STRETCH ? SUMS_STRETCH / (cols + 1) + 1 : 1;
    for (size_t r = 0; r < rows; r += together) {
        size_t some = rows - r < together ? rows - r : together;
        for (size_t at = 0; at < cols; at += SUMS_STRETCH)
            sum_stretch(x + r * stride + at, some,
                        cols - at < SUMS_STRETCH ? cols - at : SUMS_STRETCH, stride, tau, sums);
    }
}

static void count_not_finite(const float *x, size_t n, pj_value_sums *sums)
{
    for (size_t i = 0; i < n; i++) {
        sums->nan += isnan(x[i]) != 0;
        sums->inf += isinf(x[i]) != 0;
        if (isfinite(x[i])) sums->max_abs = fmaxf(sums->max_abs, fabsf(x[i]));
    }
}

INLINE veci most_of(veci a, veci b)
{
    return (veci)vec_select(a > b, (vec)a, (vec)b);
}

/* Magnitudes are in the order of their bits read as integers, with Inf and NaN above all finite
 * ones: one integer maximum is both the bound and the check. */
static void value_bounds(const float *x, size_t rows, size_t cols, size_t stride,
                         pj_value_sums *sums)
{
    veci a = {0}, b = {0};
    size_t whole = cols / LANES * LANES;
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * stride;
        size_t i = 0;
        for (; i + 2 * LANES <= whole; i += 2 * LANES) {
            a = most_of((veci)vec_abs(vec_load(row + i)), a);
            b = most_of((veci)vec_abs(vec_load(row + i + LANES)), b);
        }
        if (i < whole) a = most_of((veci)vec_abs(vec_load(row + i)), a);
        if (whole < cols) b = most_of((veci)vec_abs(vec_load_some(row + whole, cols - whole)), b);
    }
    int32_t lanes[LANES], most = 0;
    a = most_of(a, b);
    memcpy(lanes, &a, sizeof lanes);
    UNROLL for (size_t i = 0; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    float largest;
    memcpy(&largest, &most, sizeof largest);
    if (isfinite(largest))
        sums->max_abs = fmaxf(sums->max_abs, largest);
    else
        for (size_t r = 0; r < rows; r++) count_not_finite(x + r * stride, cols, sums);
}

static void attention_figures(const float *p, size_t n, float tau, float relative_tau,
                              pj_attention_figures *figures)
{
    vec entropy = vec_of(0), most = vec_of(0);
    size_t below = 0, below_relative = 0, filled = (LANES - n % LANES) % LANES;
    FOR_VECTORS(n)
    {
        vec v = LOAD(p);
        /* p ln p goes to 0 with p; padding is 0 too */
        veci counts = v > 1.17549435e-38f;
        entropy += vec_select(counts, v * vec_log(vec_select(counts, v, vec_of(1))), vec_of(0));
        most = vec_max(most, v);
        below += vec_count_less(v, vec_of(tau));
        below_relative += vec_count_less(v, vec_of(relative_tau));
    }
    *figures =
        (pj_attention_figures){.entropy = -(double)vec_sum(entropy),
                               .max = (double)vec_largest(most),
                               .below = below - (tau > 0 ? filled : 0),
                               .below_relative = below_relative - (relative_tau > 0 ? filled : 0)};
}

static void gate_counts(const float *gate, const float *activated, const float *up, size_t n,
                        float tau, pj_gate_counts *counts)
{
    vec act_most = vec_of(0), product_most = act_most;
    FOR_VECTORS(n)
    {
        vec a = LOAD(activated);
        act_most = vec_max(act_most, vec_abs(a));
        if (up) product_most = vec_max(product_most, vec_abs(a * LOAD(up)));
    }
    float act_limit = tau * vec_largest(act_most);
    float product_limit = tau * vec_largest(product_most);
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        vec a = vec_load(activated + i);
        counts->killed += vec_count_less(vec_load(gate + i), vec_of(0));
        counts->dead += vec_count_less(vec_abs(a), vec_of(act_limit));
        if (up)
            counts->gated += vec_count_less(vec_abs(a * vec_load(up + i)), vec_of(product_limit));
    }
    for (size_t i = whole; i < n; i++) {
        counts->killed += gate[i] < 0;
        counts->dead += fabsf(activated[i]) < act_limit;
        if (up) counts->gated += fabsf(activated[i] * up[i]) < product_limit;
    }
    counts->count += n;
}

/* ---- weights ---------------------------------------------------------------------------- */

static void rows_dequantise(pj_dtype type, const void *row, float *y, size_t n)
{
    if (type != PJ_F16 && type != PJ_BF16) {
        pj_blocks_dequantise(type, row, y, n);
        return;
    }
    const char *from = row;
    FOR_VECTORS(n)
    {
        vec v = len == LANES ? vec_load_type(type, from + 2 * i)
                             : vec_load_type_some(type, from + 2 * i, len);
        STORE(y, v);
    }
}

void PJ_SET_SYMBOL(rows)(pj_kernels *kernels)
{
    kernels->dequantise = rows_dequantise;
    kernels->rmsnorm = rows_rmsnorm;
    kernels->layernorm = rows_layernorm;
    kernels->rope = rows_rope;
    kernels->add = rows_add;
    kernels->add_scaled = add_scaled;
    kernels->multiply = rows_multiply;
    kernels->silu = rows_silu;
    kernels->gelu = rows_gelu;
    kernels->scale = scale_row;
    kernels->softcap = rows_softcap;
    kernels->silu_multiply = silu_multiply;
    kernels->sigmoid_multiply = sigmoid_multiply;
    kernels->delta_step = delta_step;
    kernels->softmax = rows_softmax;
    kernels->attention_softmax = attention_softmax;
    kernels->attention_scale = attention_scale;
    kernels->value_sums = value_sums;
    kernels->value_bounds = value_bounds;
    kernels->attention_figures = attention_figures;
    kernels->gate_counts = gate_counts;
}
