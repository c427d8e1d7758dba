/* Plain C: every operation by its definition, in that order. The reference for testing the other
 * sets, and the fallback. No fast mathematics: expf, tanhf, logf of the C library; sums of long
 * rows in double. */
#include "engine/kernels/plain.h"

#include "engine/kernels/codes.h"
#include "engine/kernels/half.h"

#include <float.h>
#include <math.h>

/* ---- rows ------------------------------------------------------------------------------- */

static void plain_rmsnorm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) square += (double)x[i] * x[i];
    float scale = (float)(1 / sqrt(square / (double)n + (double)eps));
    for (size_t i = 0; i < n; i++) y[i] = weight[i] * (x[i] * scale);
}

static void plain_layernorm(float *y, const float *x, const float *weight, const float *bias,
                            size_t n, float eps)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    float scale = (float)(1 / sqrt(square / (double)n + (double)eps));
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - (float)mean) * scale * weight[i] + (bias ? bias[i] : 0);
}

static void plain_rope(float *x, size_t heads, size_t head_stride, const float *cosine,
                       const float *sine, size_t rotary, bool neighbours)
{
    size_t half = rotary / 2, step = neighbours ? 2 : 1, apart = neighbours ? 1 : half;
    for (size_t h = 0; h < heads; h++, x += head_stride)
        for (size_t i = 0; i < half; i++) {
            float a = x[i * step], b = x[i * step + apart];
            x[i * step] = a * cosine[i] - b * sine[i];
            x[i * step + apart] = b * cosine[i] + a * sine[i];
        }
}

static void plain_add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void add_scaled(float *y, const float *x, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += scale * x[i];
}

static void plain_multiply(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] *= x[i];
}

static void plain_silu(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] / (1 + expf(-x[i]));
}

static void plain_gelu(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float inner = 0.7978845608028654f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        y[i] = 0.5f * x[i] * (1 + tanhf(inner));
    }
}

static void scale_row(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

static void plain_softcap(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++) x[i] = cap * tanhf(x[i] / cap);
}

static void silu_multiply(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

static void sigmoid_multiply(float *y, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] /= 1 + expf(-gate[i]);
}

/* Columns of the state are independent: processed one after another. */
static void delta_step(float *state, const float *q, const float *k, const float *v, float decay,
                       float strength, size_t key_dim, size_t value_dim, float *y)
{
    for (size_t j = 0; j < value_dim; j++) {
        float held = 0, out = 0;
        for (size_t i = 0; i < key_dim; i++) held += decay * state[i * value_dim + j] * k[i];
        float correction = strength * (v[j] - held);
        for (size_t i = 0; i < key_dim; i++) {
            float *cell = &state[i * value_dim + j];
            *cell = decay * *cell + k[i] * correction;
            out += *cell * q[i];
        }
        y[j] = out;
    }
}

static void plain_softmax(float *x, size_t n)
{
    float largest = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, x[i]);
    for (size_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - largest);
    float scale = (float)(1 / sum);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

/* ---- attention -------------------------------------------------------------------------- */

static float kv_value(const pj_kv_rows *rows, size_t position, size_t i)
{
    const char *row = (const char *)rows->data + position * rows->row_bytes;
    if (rows->type == PJ_F16) return pj_float_of_f16(pj_load_u16(row + 2 * i));
    float value;
    memcpy(&value, row + 4 * i, 4);
    return value;
}

static void attention_scores(float *scores, size_t score_stride, const float *q, size_t q_stride,
                             size_t rows, const pj_kv_rows *keys, size_t n, size_t head_dim,
                             void *scratch)
{
    (void)scratch;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t i = 0; i < head_dim; i++) sum += q[r * q_stride + i] * kv_value(keys, j, i);
            scores[r * score_stride + j] = sum;
        }
}

static void attention_scale(float *scores, size_t score_stride, size_t rows, size_t n, float scale)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) scores[r * score_stride + j] *= scale;
}

static void attention_mask(float *scores, size_t score_stride, size_t rows, size_t n,
                           const pj_visible *visible)
{
    for (size_t r = 0; r < rows; r++, scores += score_stride) {
        for (size_t j = 0; j < visible[r].begin && j < n; j++) scores[j] = -INFINITY;
        for (size_t j = visible[r].end; j < n; j++) scores[j] = -INFINITY;
    }
}

static void attention_softmax(float *scores, size_t score_stride, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) plain_softmax(scores + r * score_stride, n);
}

static void attention_values(float *y, size_t y_stride, const float *weights, size_t weight_stride,
                             size_t rows, const pj_kv_rows *values, size_t n, size_t head_dim,
                             bool add_to, void *scratch)
{
    (void)scratch;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < head_dim; i++) {
            float sum = add_to ? y[r * y_stride + i] : 0;
            for (size_t j = 0; j < n; j++)
                sum += weights[r * weight_stride + j] * kv_value(values, j, i);
            y[r * y_stride + i] = sum;
        }
}

/* ---- figures ---------------------------------------------------------------------------- */

static void row_sums(const float *x, size_t n, float tau, pj_value_sums *sums)
{
    sums->count += n;
    for (size_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (isnan(x[i])) {
            sums->nan++;
            sums->skipped++;
        } else if (isinf(x[i])) {
            sums->inf++;
            sums->skipped++;
        } else {
            sums->sum += x[i];
            sums->sum_abs += magnitude;
            sums->sum_square += (double)x[i] * x[i];
            sums->max_abs = fmaxf(sums->max_abs, magnitude);
            sums->below += magnitude < tau;
        }
    }
}

static void value_sums(const float *x, size_t rows, size_t cols, size_t stride, float tau,
                       pj_value_sums *sums)
{
    for (size_t r = 0; r < rows; r++) row_sums(x + r * stride, cols, tau, sums);
}

static void value_bounds(const float *x, size_t rows, size_t cols, size_t stride,
                         pj_value_sums *sums)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i++) {
            float v = x[r * stride + i];
            sums->nan += isnan(v) != 0;
            sums->inf += isinf(v) != 0;
            if (isfinite(v)) sums->max_abs = fmaxf(sums->max_abs, fabsf(v));
        }
}

static void attention_figures(const float *p, size_t n, float tau, float relative_tau,
                              pj_attention_figures *figures)
{
    *figures = (pj_attention_figures){0};
    for (size_t i = 0; i < n; i++) {
        if (p[i] > 0) figures->entropy -= (double)p[i] * log((double)p[i]);
        figures->below += p[i] < tau;
        figures->below_relative += p[i] < relative_tau;
        if ((double)p[i] > figures->max) figures->max = (double)p[i];
    }
}

static void gate_counts(const float *gate, const float *activated, const float *up, size_t n,
                        float tau, pj_gate_counts *counts)
{
    float act_max = 0, product_max = 0;
    for (size_t i = 0; i < n; i++) {
        act_max = fmaxf(act_max, fabsf(activated[i]));
        if (up) product_max = fmaxf(product_max, fabsf(activated[i] * up[i]));
    }
    counts->count += n;
    for (size_t i = 0; i < n; i++) {
        counts->killed += gate[i] < 0;
        counts->dead += fabsf(activated[i]) < tau * act_max;
        if (up) counts->gated += fabsf(activated[i] * up[i]) < tau * product_max;
    }
}

/* ---- products --------------------------------------------------------------------------- */

static void pack_q8(const float *x, size_t n, void *values, float *scales, int32_t *sums)
{
    int8_t *codes = values;
    for (size_t b = 0; b < n / PJ_Q8_BLOCK; b++, x += PJ_Q8_BLOCK, codes += PJ_Q8_BLOCK) {
        float largest = 0, nothing = 0; /* NaN if a value is not finite */
        for (int i = 0; i < PJ_Q8_BLOCK; i++) {
            largest = fmaxf(largest, fabsf(x[i]));
            nothing += 0 * x[i];
        }
        bool finite = nothing == 0;
        float scale = largest / 127 + nothing;
        float inverse = largest > PJ_LEAST_SCALED ? 127 / largest : 0;
        int sum = 0;
        for (int i = 0; i < PJ_Q8_BLOCK; i++) {
            codes[i] = finite ? (int8_t)rintf(x[i] * inverse) : 0;
            sum += codes[i];
        }
        scales[b] = scale;
        sums[b] = -PJ_Q8_OFFSET * sum;
    }
}

/* A row is unpacked once for all tokens. Sixteen partial sums keep long rows accurate. */
static void dot_float(const pj_dot *d)
{
    const pj_matrix *w = d->weights;
    enum { CHUNK = 256, SUMS = 16 };
    for (size_t row = d->begin; row < d->end; row++)
        for (size_t t = 0; t < d->x->tokens; t++) {
            const char *from = (const char *)w->data + row * w->row_bytes;
            const float *x = d->x->x + t * d->x->x_stride;
            float chunk[CHUNK], sums[SUMS] = {0};
            for (size_t at = 0; at < w->cols; at += CHUNK) {
                size_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
                pj_blocks_dequantise(w->type, from + at * pj_dtype_get(w->type)->block_bytes, chunk,
                                     n);
                for (size_t i = 0; i < n; i++) sums[i % SUMS] += chunk[i] * x[at + i];
            }
            float sum = 0;
            for (int i = 0; i < SUMS; i++) sum += sums[i];
            d->y[t * d->y_stride + row] = sum + (d->bias ? d->bias[row] : 0);
        }
}

static float dot_q8_row(const uint8_t *codes, const float *scales, const float *minima,
                        const int8_t *x, const float *x_scales, const int32_t *x_sums,
                        size_t blocks)
{
    float sum = 0;
    for (size_t b = 0; b < blocks; b++) {
        int product = x_sums[b];
        for (int i = 0; i < PJ_Q8_BLOCK; i++) product += codes[b * 32 + i] * x[b * 32 + i];
        sum += scales[b] * x_scales[b] * (float)product;
        if (minima) sum += minima[b] * x_scales[b] * (float)(x_sums[b] / PJ_Q8_OFFSET);
    }
    return sum;
}

static void dot_q8(const pj_dot *d)
{
    const pj_matrix *w = d->weights;
    const pj_dtype_info *info = pj_dtype_get(w->type);
    enum { CHUNK = 2048 };
    bool has_minima = pj_codes_have_minima(w->type);
    uint8_t codes[CHUNK];
    float scales[CHUNK / 32], minima[CHUNK / 32];
    for (size_t row = d->begin; row < d->end; row++) {
        const char *from = (const char *)w->data + row * w->row_bytes;
        for (size_t at = 0; at < w->cols; at += CHUNK) {
            size_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
            pj_codes_row(w->type, from + at / info->block_values * info->block_bytes, n, codes,
                         scales, minima);
            for (size_t t = 0; t < d->x->tokens; t++) {
                size_t block = (t * w->cols + at) / 32;
                float *y = &d->y[t * d->y_stride + row], before = at > 0 ? *y : 0;
                *y = before + dot_q8_row(codes, scales, has_minima ? minima : NULL,
                                         (const int8_t *)d->x->values + t * w->cols + at,
                                         d->x->scales + block, d->x->sums + block, n / 32);
                if (d->bias && at + n == w->cols) *y += d->bias[row];
            }
        }
    }
}

static void tile_store(const float *c, size_t rows, size_t tokens, const float *bias, float *y,
                       size_t y_stride)
{
    for (size_t t = 0; t < tokens; t++, y += y_stride)
        for (size_t r = 0; r < rows; r++)
            y[r] = c[r * PJ_TILE_MAX_TOKENS + t] + (bias ? bias[r] : 0);
}

/* Sums that the compiler may keep in registers. */
static double plain_peak(size_t rounds)
{
    enum { SUMS = 32 };
    volatile float factor = 0.999f;
    float sums[SUMS], f = factor;
    for (int s = 0; s < SUMS; s++) sums[s] = factor;
    for (size_t i = 0; i < rounds; i++)
        for (int s = 0; s < SUMS; s++) sums[s] = sums[s] * f + f;
    for (int s = 0; s < SUMS; s++) factor = sums[s];
    return 2.0 * SUMS * (double)rounds;
}

static const pj_tile_kernels by_float = {.form = PJ_FORM_F32, .dot = dot_float};
static const pj_tile_kernels by_codes = {.form = PJ_FORM_Q8, .dot = dot_q8};
static const pj_form_kernels form_f32 = {.dot_tokens = SIZE_MAX};
static const pj_form_kernels form_q8 = {.dot_tokens = SIZE_MAX, .pack_row = pack_q8};

const pj_kernels pj_kernels_c = {
    .name = "c",
    .dequantise = pj_blocks_dequantise,
    .quantise = pj_blocks_quantise,
    .rmsnorm = plain_rmsnorm,
    .layernorm = plain_layernorm,
    .rope = plain_rope,
    .add = plain_add,
    .add_scaled = add_scaled,
    .multiply = plain_multiply,
    .silu = plain_silu,
    .gelu = plain_gelu,
    .scale = scale_row,
    .softcap = plain_softcap,
    .silu_multiply = silu_multiply,
    .sigmoid_multiply = sigmoid_multiply,
    .delta_step = delta_step,
    .softmax = plain_softmax,
    .attention_scores = attention_scores,
    .attention_scale = attention_scale,
    .attention_mask = attention_mask,
    .attention_softmax = attention_softmax,
    .attention_values = attention_values,
    .value_sums = value_sums,
    .value_bounds = value_bounds,
    .attention_figures = attention_figures,
    .gate_counts = gate_counts,
    .linear = {[PJ_F32] = &by_float,     [PJ_F16] = &by_float,    [PJ_BF16] = &by_float,
               [PJ_Q8_0] = &by_codes,    [PJ_Q4_0] = &by_codes,   [PJ_Q4_K] = &by_codes,
               [PJ_Q5_K] = &by_codes,    [PJ_Q6_K] = &by_codes,   [PJ_Q4_1] = &by_codes,
               [PJ_Q5_0] = &by_codes,    [PJ_Q5_1] = &by_codes,   [PJ_IQ4_NL] = &by_codes,
               [PJ_MXFP4] = &by_codes,   [PJ_Q2_K] = &by_codes,   [PJ_Q3_K] = &by_codes,
               [PJ_IQ4_XS] = &by_codes,  [PJ_IQ1_S] = &by_codes,  [PJ_IQ1_M] = &by_codes,
               [PJ_IQ2_XXS] = &by_codes, [PJ_IQ2_XS] = &by_codes, [PJ_IQ2_S] = &by_codes,
               [PJ_IQ3_XXS] = &by_codes, [PJ_IQ3_S] = &by_codes,  [PJ_TQ1_0] = &by_codes,
               [PJ_TQ2_0] = &by_codes,   [PJ_NVFP4] = &by_codes,  [PJ_Q1_0] = &by_codes},
    .forms = {[PJ_FORM_F32] = &form_f32,
              [PJ_FORM_BF16] = &form_f32,
              [PJ_FORM_Q8] = &form_q8,
              [PJ_FORM_Q8_WIDE] = &form_q8,
              [PJ_FORM_Q8_PLANES] = &form_q8,
              [PJ_FORM_Q8_WORDS] = &form_q8,
              [PJ_FORM_SPLIT] = &form_f32},
    .peak = {plain_peak, plain_peak, plain_peak, plain_peak, plain_peak, plain_peak, plain_peak},
    .tile_store = tile_store,
};
