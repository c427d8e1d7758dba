/* Products of F32, F16 and BF16 weights with float activations, vectorised. Few tokens: four weight
 * rows at once, each its own memory stream, times up to four tokens (six with AVX-512). Many: the
 * register tile over panels; 16-bit rows are converted to float once for all panels. */
#include "engine/kernels/vector_tile.h"

/* With 32 registers, multiplying rows of 16-bit weights by six tokens at once is faster than panels
 * for up to 64 tokens: panels need the rows converted to float32 and stored first. */
enum { STREAMS = 4, DOT_TOKENS = LANES == 16 ? 6 : 4, MOST_16_BIT = LANES == 16 ? 64 : 8 };

static const size_t value_bytes[] = {[PJ_F32] = 4, [PJ_F16] = 2, [PJ_BF16] = 2};

/* ---- few tokens ------------------------------------------------------------------------- */

/* S weight rows times T tokens. */
INLINE void dot_rows(pj_dtype type, const pj_dot *d, size_t token, const char *const *rows,
                     float sums[STREAMS][DOT_TOKENS], const size_t S, const size_t T)
{
    const pj_packed *p = d->x;
    const float *x = p->x + token * p->x_stride;
    size_t ahead = d->ahead, x_stride = p->x_stride, cols = p->cols;
    size_t bytes = value_bytes[type], whole = cols / LANES * LANES, rest = cols - whole;
    vec acc[STREAMS][DOT_TOKENS];
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        vec_of(0);
    for (size_t i = 0; i < whole; i += LANES) {
        vec w[STREAMS];
        UNROLL for (size_t s = 0; s < S; s++)
        {
            __builtin_prefetch(rows[s] + i * bytes + ahead);
            w[s] = vec_load_type(type, rows[s] + i * bytes);
        }
        UNROLL for (size_t t = 0; t < T; t++)
        {
            vec v = vec_load(x + t * x_stride + i);
            UNROLL for (size_t s = 0; s < S; s++) acc[s][t] += w[s] * v;
        }
    }
    if (rest > 0) UNROLL for (size_t t = 0; t < T; t++)
        {
            vec v = vec_load_some(x + t * x_stride + whole, rest);
            UNROLL for (size_t s = 0; s < S; s++) acc[s][t] +=
                vec_load_type_some(type, rows[s] + whole * bytes, rest) * v;
        }
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) sums[s][t] =
        vec_sum(acc[s][t]);
}

#include "engine/kernels/dot_groups.h"

static void dot_f32(const pj_dot *d)
{
    dot_type(d, PJ_F32);
}

static void dot_f16(const pj_dot *d)
{
    dot_type(d, PJ_F16);
}

static void dot_bf16(const pj_dot *d)
{
    dot_type(d, PJ_BF16);
}

/* ---- many tokens ------------------------------------------------------------------------ */

static void pack_panel(const float *x, size_t x_stride, size_t tokens, size_t width, size_t cols,
                       void *values, float *scales, int32_t *sums)
{
    (void)scales;
    (void)sums;
    transpose_panel(x, x_stride, tokens, width, cols, values);
}

static void tile(const pj_tile *t)
{
    const float *rows[TILE_ROWS];
    for (size_t r = 0; r < TILE_ROWS; r++) rows[r] = t->weights[r];
    tile_any(t->c, PJ_TILE_MAX_TOKENS, rows, t->x, t->vectors * LANES, t->cols, t->add,
             (tile_ahead){t->ahead, t->ahead_step}, TILE_ROWS, t->vectors);
}

INLINE void unpack(pj_dtype type, const char *row, size_t cols, float *values)
{
    size_t whole = cols / LANES * LANES, bytes = value_bytes[type];
    for (size_t i = 0; i < whole; i += LANES)
        vec_store(values + i, vec_load_type(type, row + i * bytes));
    if (whole < cols)
        vec_store_some(values + whole, vec_load_type_some(type, row + whole * bytes, cols - whole),
                       cols - whole);
}

static void unpack_f32(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    unpack(PJ_F32, row, cols, values);
}

static void unpack_f16(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    unpack(PJ_F16, row, cols, values);
}

static void unpack_bf16(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    unpack(PJ_BF16, row, cols, values);
}

static void tile_store(const float *c, size_t rows, size_t tokens, const float *bias, float *y,
                       size_t y_stride)
{
    for (size_t r = 0; r < rows; r += LANES) {
        size_t have = rows - r < LANES ? rows - r : LANES;
        for (size_t first = 0; first < tokens; first += LANES) {
            vec v[LANES];
            UNROLL for (size_t i = 0; i < LANES; i++) v[i] =
                vec_load(c + (r + (i < have ? i : 0)) * PJ_TILE_MAX_TOKENS + first);
            vec_transpose(v);
            vec b = !bias           ? vec_of(0)
                    : have == LANES ? vec_load(bias + r)
                                    : vec_load_some(bias + r, have);
            UNROLL for (size_t i = 0; i < LANES; i++)
            {
                if (first + i >= tokens) continue;
                float *to = y + (first + i) * y_stride + r;
                if (have == LANES)
                    vec_store(to, v[i] + b);
                else
                    vec_store_some(to, v[i] + b, have);
            }
        }
    }
}

/* Every sum reloads its initial value, or the compiler would merge equal sums. */
static double peak(size_t rounds)
{
    enum { SUMS = TILE_ROWS * TILE_VECTORS };
    volatile float outside = 0.999f;
    vec sums[SUMS], factor = vec_of(outside);
    UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = vec_of(outside);
    for (size_t i = 0; i < rounds; i++)
        UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = sums[s] * factor + factor;
    UNROLL for (size_t s = 0; s < SUMS; s++) outside = vec_sum(sums[s]);
    return 2.0 * SUMS * LANES * (double)rounds;
}

/* A panel's stretch of about 192 KiB stays in L2. Shorter ones would fit L1, but loading and
 * storing the sums more often costs more than that saves. */
enum { STRETCH = 196608 / (TILE_VECTORS * LANES * 4) / 16 * 16 };

#define TYPE(name)                                                               \
    {                                                                            \
        .form = PJ_FORM_F32, .dot = dot_##name, .tile = tile, .rows = TILE_ROWS, \
        .dot_tokens = MOST_16_BIT, .stretch = STRETCH, .unpack = unpack_##name,  \
        .unpacked_bytes = 4                                                      \
    }

static const pj_tile_kernels by_f32 = {.form = PJ_FORM_F32,
                                       .dot = dot_f32,
                                       .tile = tile,
                                       .rows = TILE_ROWS,
                                       .stretch = STRETCH,
                                       .unpack = unpack_f32,
                                       .unpacked_bytes = 4,
                                       .direct = true};
static const pj_tile_kernels by_f16 = TYPE(f16), by_bf16 = TYPE(bf16);
static const pj_form_kernels form_f32 = {
    .dot_tokens = 8, .lanes = LANES, .vectors = TILE_VECTORS, .group = 1, .pack_panel = pack_panel};

void PJ_SET_SYMBOL(floats)(pj_kernels *kernels)
{
    kernels->linear[PJ_F32] = &by_f32;
    kernels->linear[PJ_F16] = &by_f16;
    kernels->linear[PJ_BF16] = &by_bf16;
    kernels->forms[PJ_FORM_F32] = &form_f32;
    kernels->tile_store = tile_store;
    kernels->peak[PJ_FORM_F32] = peak;
}
