/* Matrix products of every type of weights, alone and several in one dispatch, and their times. */
#include "../assertions.h"
#include "../sanitized.h"
#include "kernel_sets.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef PJ_AMX_MODEL
#include "engine/kernels/amx.h"
#endif

/* ---- teams ------------------------------------------------------------------------------ */

enum { MOST_THREADS = 3 };
static pj_team *teams[MOST_THREADS + 1]; /* kept: each has megabytes to be cleared */

static pj_team *team_of(unsigned threads)
{
    assert_in_range(threads, 1, MOST_THREADS);
    if (!teams[threads])
        assert_int_equal(pj_team_new(threads, false, &teams[threads], NULL), PJ_OK);
    return teams[threads];
}

static int free_teams(void **state)
{
    (void)state;
    for (unsigned i = 0; i <= MOST_THREADS; i++) pj_team_free(teams[i]);
    return 0;
}

/* ---- products --------------------------------------------------------------------------- */

static void multiply(const pj_kernels *kernels, pj_team *team, const float *x, size_t x_stride,
                     size_t tokens, const pj_linear_job *job, void *memory)
{
    pj_packed packed;
    pj_linear_pack(kernels, team, job->weights->type, x, x_stride, tokens, job->weights->cols,
                   memory, &packed);
    pj_linear_run(kernels, team, &packed, job, 1);
}

/* Offset of a block's scale. */
static size_t scale_place(pj_dtype type)
{
    return type == PJ_Q6_K    ? 208
           : type == PJ_Q2_K  ? 80
           : type == PJ_Q3_K  ? 108
           : type == PJ_TQ1_0 ? 52
           : type == PJ_TQ2_0 ? 64
                              : 0;
}

/* A minimum or an offset follows the scale. */
static bool has_offset(pj_dtype type)
{
    return type == PJ_Q4_K || type == PJ_Q5_K || type == PJ_Q2_K || type == PJ_Q4_1 ||
           type == PJ_Q5_1;
}

/* Blocks of a type with reasonable scales; `byte`: all others, without a minimum that might cancel
 * them, or random ones if negative. */
static void some_weights(pj_dtype type, int byte, uint8_t *row, size_t cols)
{
    const pj_dtype_info *info = pj_dtype_get(type);
    for (size_t i = 0; i < cols; i += info->block_values, row += info->block_bytes) {
        uint16_t d = pj_f16_of_float(uniform(0.001f, 0.02f)),
                 m = pj_f16_of_float(byte < 0 ? uniform(0, 0.02f) : 0);
        if (info->block_values == 1) {
            float value = uniform(-0.5f, 0.5f);
            pj_kernels_find("c")->quantise(type, &value, row, 1);
            continue;
        }
        for (size_t b = 0; b < info->block_bytes; b++)
            row[b] = (uint8_t)(byte < 0 ? (int)up_to(256) : byte);
        if (type == PJ_MXFP4) {
            row[0] = (uint8_t)(118 + up_to(6)); /* 2^-10 to 2^-5 */
            continue;
        }
        if (type == PJ_NVFP4) { /* 2^-7 to 2^-4 */
            for (int b = 0; b < 4; b++) row[b] = (uint8_t)(8 + up_to(24));
            continue;
        }
        if (type == PJ_IQ1_M) { /* four bits of the scale in each of four words */
            for (int b = 0; b < 4; b++)
                row[49 + 2 * b] = (uint8_t)((row[49 + 2 * b] & 15) | (d >> 4 * b & 15) << 4);
            continue;
        }
        memcpy(row + scale_place(type), &d, 2);
        if (has_offset(type)) memcpy(row + scale_place(type) + 2, &m, 2);
    }
}

static void random_weights(pj_dtype type, uint8_t *row, size_t cols)
{
    some_weights(type, -1, row, cols);
}

/* x [cols], rounded as kernels of this form may do. */
static void round_row(const pj_kernels *k, pj_form form, const float *x, size_t cols, double *to)
{
    size_t shared = 32 * (k->forms[form]->shared_blocks ? k->forms[form]->shared_blocks : 1);
    float codes = (float)(k->forms[form]->largest ? k->forms[form]->largest : 127);
    if (form == PJ_FORM_BF16 || form == PJ_FORM_F32 || form == PJ_FORM_SPLIT) {
        for (size_t i = 0; i < cols; i++)
            to[i] = form == PJ_FORM_BF16 ? (double)pj_float_of_bf16(pj_bf16_of_float(x[i]))
                                         : (double)x[i];
        return;
    }
    for (size_t begin = 0; begin < cols; begin += shared) {
        size_t end = begin + shared < cols ? begin + shared : cols;
        float most = 0;
        for (size_t i = begin; i < end; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        for (size_t i = begin; i < end; i++)
            to[i] = most > 0 ? (double)rintf(x[i] * (codes / most)) * ((double)most / codes) : 0;
    }
}

/* Bound on the error of rounding the weights of 128 columns to 16-bit integers with one scale: half
 * a step for the shared scale and half for the block's, at 32,000 steps. */
static double word_room(const float *w, const double *x, size_t cols)
{
    double room = 0;
    for (size_t begin = 0; begin < cols; begin += 128) {
        double most = 0, sum = 0;
        for (size_t i = begin; i < begin + 128 && i < cols; i++) {
            most = fmax(most, fabs((double)w[i]));
            sum += fabs(x[i]);
        }
        room += most * sum / 32000;
    }
    return room;
}

typedef struct product_case {
    pj_dtype type;
    size_t rows, cols, tokens;
    unsigned threads;
    bool bias;
    int neighbour; /* Q6_K: every other scale is this times the one before; 0: any */
    bool largest;  /* products of weights of one kind and activations of one magnitude */
} product_case;

enum { MOST_CHECKED = PJ_SANITIZED ? 25000 : 400000 }; /* products of two numbers */

/* Stored rows are multiplied as they are, however many scales they have. */
static bool is_streamed(const pj_kernels *k, pj_dtype type, size_t tokens)
{
    const pj_tile_kernels *t = k->linear[type];
    if (tokens <= k->forms[t->form]->dot_tokens) return false;
    if (t->many) t = t->many;
    return t->stream && tokens <= t->stream->most_tokens;
}

static void product(const pj_kernels *k, const product_case *c)
{
    pj_matrix w = {.type = c->type, .rows = c->rows, .cols = c->cols};
    w.row_bytes = pj_dtype_row_bytes(c->type, c->cols);
    size_t x_stride = c->cols + 3, y_stride = c->rows + 2;
    static const int extremes[] = {0, 255, 127, 128};
    /* Unaligned and exactly sized, so that the address sanitizer detects reads past the end. */
    uint8_t *bytes = test_malloc(w.row_bytes * c->rows + 1);
    for (size_t r = 0; r < c->rows; r++)
        some_weights(c->type, c->largest ? extremes[r % 4] : -1, bytes + 1 + r * w.row_bytes,
                     c->cols);
    for (size_t at = 193; c->neighbour && at < w.row_bytes * c->rows; at += 210)
        for (size_t i = 0; i < 16; i += 2)
            bytes[at + i + 1] = (uint8_t)(bytes[at + i] * c->neighbour);
    w.data = bytes + 1;
    float *x = random_row(c->tokens * x_stride, -1, 1);
    for (size_t i = 0; c->largest && i < c->tokens * x_stride; i++)
        x[i] = i / x_stride % 2 ? 1 : -1;
    float *bias = random_row(c->rows, -1, 1);
    float *y = random_row(c->tokens * y_stride, 7, 8), *row = test_malloc(c->cols * sizeof *row);
    void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(c->tokens, c->cols));
    double *x_rounded = test_malloc(c->tokens * c->cols * sizeof *x_rounded);
    pj_form form = pj_linear_form(k, c->type, c->tokens);
    for (size_t t = 0; t < c->tokens; t++)
        round_row(k, form, x + t * x_stride, c->cols, x_rounded + t * c->cols);
    pj_team *team = team_of(c->threads);
    pj_linear_job job = {&w, c->bias ? bias : NULL, y, y_stride};
    multiply(k, team, x, x_stride, c->tokens, &job, memory);
    bool words = form == PJ_FORM_Q8_WORDS;
    /* As bytes, types with a scale per 16 values are coded anew, see codes.h and codes_lookup.h,
     * and those with minima in blocks of 256, see k_vnni.h. */
    bool two_scales = c->type == PJ_Q2_K || c->type == PJ_IQ2_XS || c->type == PJ_IQ2_S ||
                      c->type == PJ_IQ1_M || c->type == PJ_NVFP4;
    bool minima = c->type == PJ_Q4_K || c->type == PJ_Q5_K;
    bool uneven = c->type == PJ_Q6_K && c->neighbour != 1;
    bool anew = form == PJ_FORM_Q8 && (minima || uneven || two_scales);
    if (is_streamed(k, c->type, c->tokens)) anew = false;
    bool to_bf16 = form == PJ_FORM_BF16 && c->type != PJ_BF16; /* weights are rounded too */
    double slack = anew                    ? (minima ? 2e-3 : 6e-3)
                   : to_bf16               ? 0x1p-8 + 2e-5
                   : form == PJ_FORM_BF16  ? 2e-5
                   : form == PJ_FORM_SPLIT ? 0x1p-17 + 3e-6
                                           : 3e-6;
    /* Of large products a part is computed again: each row and each token, not every pair. */
    size_t step = 1 + c->rows * c->cols * c->tokens / MOST_CHECKED;
    for (size_t r = 0; r < c->rows; r++) {
        pj_kernels_find("c")->dequantise(c->type, bytes + 1 + r * w.row_bytes, row, c->cols);
        for (size_t t = r % step; t < c->tokens; t += step) {
            double want = c->bias ? (double)bias[r] : 0, size = fabs(want);
            for (size_t i = 0; i < c->cols; i++) {
                double term = (double)row[i] * x_rounded[t * c->cols + i];
                want += term, size += fabs(term);
            }
            double room = words ? word_room(row, x_rounded + t * c->cols, c->cols) : 0;
            char what[96];
            snprintf(what, sizeof what, "%s %zux%zu, token %zu of %zu, row",
                     pj_dtype_get(c->type)->name, c->rows, c->cols, t, c->tokens);
            check(k->name, what, r, (double)y[t * y_stride + r], want, slack * size + room + 1e-7);
        }
    }
    for (size_t t = 0; t + 1 < c->tokens; t++) /* no writes beyond the rows */
    {
        assert_that(y[t * y_stride + c->rows], >=, 7);
        assert_that(y[t * y_stride + c->rows + 1], >=, 7);
    }
    pj_free(memory);
    test_free(bytes), test_free(x), test_free(bias), test_free(y), test_free(row);
    test_free(x_rounded);
}

static void test_products(void **state)
{
    static const size_t tokens[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                    16, 17, 23, 31, 33, 48, 49, 64, 65, 97, 130};
    enum { KINDS = sizeof tokens / sizeof *tokens };
    enum { SHAPES = PJ_SANITIZED ? 16 : 32, ROWS = PJ_SANITIZED ? 100 : 300 };
    FOR_SETS(k) for (int type = 0; type < PJ_DTYPE_COUNT; type++) for (int i = 0; i < SHAPES; i++)
    {
        /* types of codebooks share their products in most sets, and differ in decoding alone */
        if (type > PJ_IQ4_XS && type != PJ_IQ2_XS && i % 3 != type % 3) continue;
        size_t block = pj_dtype_get((pj_dtype)type)->block_values;
        product_case c = {.type = (pj_dtype)type,
                          .rows = 1 + up_to(i % 4 == 0 ? ROWS : 40),
                          .cols = block * (1 + up_to(block == 1 ? 700 : 1024 / block)),
                          .tokens = tokens[(i + type) % KINDS],
                          .threads = 1 + (unsigned)(i % 3),
                          .bias = i % 2};
        product(k, &c);
    }
}

/* Where the two scales of 32 columns are equal, coding Q6_K anew loses nothing; where they are
 * opposite, the largest code of one is out of range. */
static void test_even_scales(void **state)
{
    FOR_SETS(k) for (int neighbour = -1; neighbour <= 1; neighbour += 2)
    {
        product_case c = {PJ_Q6_K, 64, 1024, 10, 2, .neighbour = neighbour};
        product(k, &c);
    }
}

/* The largest sums of products, of types that sum them in as few bits as they fit. */
static void test_largest_products(void **state)
{
    static const size_t tokens[] = {1, 8, 16, 40};
    enum { COLS = 256 };
    FOR_SETS(k) for (int type = 0; type < PJ_DTYPE_COUNT; type++) for (int i = 0; i < 4; i++)
    {
        if (pj_dtype_get((pj_dtype)type)->block_values != COLS) continue;
        product_case c = {(pj_dtype)type, 9, COLS, tokens[i], 1, .largest = true};
        product(k, &c);
    }
}

/* Longer than a chunk of columns, wider than a block of rows. */
static void test_large_products(void **state)
{
    FOR_SETS(k) for (int type = 0; type <= PJ_Q4_0; type++)
    {
        product_case wide = {(pj_dtype)type, 9, 16384 + 96, 20, 2, true};
        product_case tall = {(pj_dtype)type, 700, 96, 50, 2, true};
        product(k, &wide);
        product(k, &tall);
    }
}

/* More tokens than activations stay in cache for: several passes, the last of another length. */
static void test_passes(void **state)
{
    static const pj_dtype types[] = {PJ_BF16, PJ_F16, PJ_Q8_0, PJ_Q4_K};
    FOR_SETS(k) for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    {
        product_case c = {types[i], PJ_SANITIZED ? 16 : 40, 4096 + 256, 330, 2, true};
        product(k, &c);
    }
}

#ifdef PJ_AMX_MODEL
/* What bounds a product on the matrix unit: operands loaded per tile product, and sums, which leave
 * the tiles once. */
static void test_tile_traffic(void **state)
{
    enum { ROWS = 64, COLS = 1024, TOKENS = 96, TILES = ROWS / 16 * (TOKENS / 16) };
    static const struct {
        pj_dtype type;
        uint64_t products, loads; /* per step of 32 columns and tile of sums, times 6 */
    } cases[] = {{PJ_BF16, 6, 7}, {PJ_Q8_0, 6, 7}, {PJ_Q4_K, 6, 7}, {PJ_F16, 18, 12}};
    FOR_SETS(k) for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    {
        pj_matrix w = {.type = cases[i].type, .rows = ROWS, .cols = COLS};
        w.row_bytes = pj_dtype_row_bytes(w.type, COLS);
        uint8_t *bytes = test_malloc(ROWS * w.row_bytes);
        random_weights(w.type, bytes, ROWS * COLS);
        w.data = bytes;
        float *x = random_row(TOKENS * COLS, -1, 1), *y = random_row(TOKENS * ROWS, 0, 0);
        void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(TOKENS, COLS));
        pj_team *team = team_of(1);
        pj_linear_job job = {&w, NULL, y, ROWS};
        pj_amx_model_counts = (pj_amx_counts){0};
        multiply(k, team, x, COLS, TOKENS, &job, memory);
        uint64_t steps = TILES * (COLS / 32);
        assert_int_equal(pj_amx_model_counts.products, steps * cases[i].products / 6);
        assert_int_equal(pj_amx_model_counts.loads, steps * cases[i].loads / 6);
        assert_int_equal(pj_amx_model_counts.stores, TILES);
        pj_free(memory);
        test_free(bytes), test_free(x), test_free(y);
    }
}
#endif

/* A type whose weights take activations that are packed for `type`. */
static pj_dtype one_that_shares(const pj_kernels *k, pj_dtype type, size_t tokens)
{
    for (;;) {
        pj_dtype other = (pj_dtype)up_to(PJ_DTYPE_COUNT);
        if (pj_linear_shares(k, other, type, tokens)) return other;
    }
}

/* Several matrices in one dispatch, of types that share packed activations, give the same results
 * as separately. */
static void jobs_together(const pj_kernels *k, pj_dtype type, size_t tokens)
{
    enum { COLS = 512 };
    static const size_t rows[3] = {64, 8, 37};
    float *x = random_row(tokens * COLS, -1, 1), *y[3], *alone = random_row(tokens * 64, 0, 0);
    void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(tokens, COLS));
    uint8_t *bytes[3];
    pj_matrix w[3];
    pj_linear_job jobs[3];
    pj_team *team = team_of(2);
    for (int j = 0; j < 3; j++) {
        pj_dtype of = j == 0 ? type : one_that_shares(k, type, tokens);
        size_t row_bytes = pj_dtype_row_bytes(of, COLS);
        bytes[j] = test_malloc(rows[j] * row_bytes);
        random_weights(of, bytes[j], COLS * rows[j]);
        w[j] = (pj_matrix){bytes[j], of, rows[j], COLS, row_bytes};
        y[j] = random_row(tokens * rows[j], 0, 0);
        jobs[j] = (pj_linear_job){&w[j], NULL, y[j], rows[j]};
    }
    pj_packed packed;
    pj_linear_pack(k, team, type, x, COLS, tokens, COLS, memory, &packed);
    pj_linear_run(k, team, &packed, jobs, 3);
    for (int j = 0; j < 3; j++) {
        pj_linear_job job = {&w[j], NULL, alone, rows[j]};
        multiply(k, team, x, COLS, tokens, &job, memory);
        assert_memory_equal(alone, y[j], tokens * rows[j] * sizeof(float));
        test_free(bytes[j]), test_free(y[j]);
    }
    pj_free(memory);
    test_free(x), test_free(alone);
}

static void test_jobs_together(void **state)
{
    enum { STEP = PJ_SANITIZED ? 34 : 17 };
    FOR_SETS(k) for (int type = 0; type < PJ_DTYPE_COUNT; type++)
    {
        for (size_t tokens = 1 + up_to(6); tokens < 70; tokens += STEP)
            jobs_together(k, (pj_dtype)type, tokens);
    }
}

/* For few tokens a row's result is bit-identical for any number of rows and threads, so that the
 * generated text does not depend on how rows are divided. */
static void test_rows_apart(void **state)
{
    enum { COLS = 768, ROWS = 59, TOKENS = 3 };
    FOR_SETS(k)
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        for (unsigned threads = 1; threads < 4; threads++) {
            size_t row_bytes = pj_dtype_row_bytes((pj_dtype)type, COLS);
            uint8_t *bytes = test_malloc(ROWS * row_bytes);
            random_weights((pj_dtype)type, bytes, ROWS * COLS);
            float *x = random_row(TOKENS * COLS, -1, 1), *y = random_row(TOKENS * ROWS, 0, 0);
            void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(TOKENS, COLS));
            pj_team *team = team_of(threads);
            pj_matrix w = {bytes, (pj_dtype)type, ROWS, COLS, row_bytes};
            pj_linear_job job = {&w, NULL, y, ROWS};
            multiply(k, team, x, COLS, TOKENS, &job, memory);
            for (size_t r = 0; r < ROWS; r++) {
                float one[TOKENS];
                pj_matrix row = {bytes + r * row_bytes, (pj_dtype)type, 1, COLS, row_bytes};
                pj_linear_job alone = {&row, NULL, one, 1};
                multiply(k, team, x, COLS, TOKENS, &alone, memory);
                for (size_t t = 0; t < TOKENS; t++)
                    if (memcmp(&one[t], &y[t * ROWS + r], sizeof *one) != 0)
                        fail_msg("%s %s: row %zu, token %zu of %u threads: %.9g, alone %.9g",
                                 k->name, pj_dtype_get((pj_dtype)type)->name, r, t, threads,
                                 (double)y[t * ROWS + r], (double)one[t]);
            }
            pj_free(memory);
            test_free(bytes), test_free(x), test_free(y);
        }
}

/* A bias is added last, so that adding it in an operation of its own gives the same bits; with more
 * columns than any set unpacks at once. */
static void test_bias_is_last(void **state)
{
    enum { COLS = 16384 + 512, ROWS = 3, MOST_TOKENS = 9, STEP = PJ_SANITIZED ? 8 : 4 };
    FOR_SETS(k)
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        for (size_t n = 1; n <= MOST_TOKENS; n += STEP) {
            size_t row_bytes = pj_dtype_row_bytes((pj_dtype)type, COLS);
            uint8_t *bytes = test_malloc(ROWS * row_bytes);
            random_weights((pj_dtype)type, bytes, ROWS * COLS);
            float *x = random_row(n * COLS, -1, 1), *bias = random_row(ROWS, -1, 1);
            float with[MOST_TOKENS * ROWS], without[MOST_TOKENS * ROWS];
            void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(n, COLS));
            pj_matrix w = {bytes, (pj_dtype)type, ROWS, COLS, row_bytes};
            pj_linear_job job = {&w, bias, with, ROWS}, plain = {&w, NULL, without, ROWS};
            multiply(k, team_of(1), x, COLS, n, &job, memory);
            multiply(k, team_of(1), x, COLS, n, &plain, memory);
            for (size_t i = 0; i < n * ROWS; i++) {
                float want = without[i] + bias[i % ROWS];
                if (with[i] != want)
                    fail_msg("%s %s: %.9g with a bias, %.9g if it is added afterwards", k->name,
                             pj_dtype_get((pj_dtype)type)->name, (double)with[i], (double)want);
            }
            pj_free(memory);
            test_free(bytes), test_free(x), test_free(bias);
        }
}

/* Activations whose scale has no finite reciprocal are at most rounded to zero. */
static void test_tiny_activations(void **state)
{
    enum { COLS = 768, ROWS = 5, MOST_TOKENS = 9 };
    FOR_SETS(k)
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        for (size_t n = 1; n <= MOST_TOKENS; n += 4) {
            size_t row_bytes = pj_dtype_row_bytes((pj_dtype)type, COLS);
            uint8_t *bytes = test_malloc(ROWS * row_bytes);
            random_weights((pj_dtype)type, bytes, ROWS * COLS);
            float *x = random_row(n * COLS, -1, 1), y[MOST_TOKENS * ROWS], row[COLS];
            for (size_t i = 0; i < n * COLS; i++) x[i] *= 1e-37f;
            void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(n, COLS));
            pj_matrix w = {bytes, (pj_dtype)type, ROWS, COLS, row_bytes};
            pj_linear_job job = {&w, NULL, y, ROWS};
            multiply(k, team_of(1), x, COLS, n, &job, memory);
            for (size_t r = 0; r < ROWS; r++) {
                double most = 0;
                pj_kernels_find("c")->dequantise(w.type, bytes + r * row_bytes, row, COLS);
                for (size_t i = 0; i < COLS; i++) most += fabs((double)row[i]) * 1e-37;
                for (size_t t = 0; t < n; t++)
                    if (!(fabs((double)y[t * ROWS + r]) <= most))
                        fail_msg("%s %s: %g, at most %g", k->name, pj_dtype_get(w.type)->name,
                                 (double)y[t * ROWS + r], most);
            }
            pj_free(memory);
            test_free(bytes), test_free(x);
        }
}

/* Codes of activations have no NaN: their scale must carry it, or a broken model looks healthy. */
static void test_not_finite(void **state)
{
    enum { COLS = 768, ROWS = 21, MOST_TOKENS = 20 };
    static const size_t tokens[] = {1, 3, MOST_TOKENS};
    static const float values[] = {NAN, INFINITY};
    FOR_SETS(k)
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        for (int i = 0; i < 6; i++) {
            size_t n = tokens[i % 3], broken = up_to(n);
            size_t row_bytes = pj_dtype_row_bytes((pj_dtype)type, COLS);
            uint8_t *bytes = test_malloc(ROWS * row_bytes);
            random_weights((pj_dtype)type, bytes, ROWS * COLS);
            float *x = random_row(n * COLS, -1, 1), *y = random_row(n * ROWS, 0, 0);
            x[broken * COLS + up_to(COLS)] = values[i / 3];
            void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(n, COLS));
            pj_team *team = team_of(1);
            pj_matrix w = {bytes, (pj_dtype)type, ROWS, COLS, row_bytes};
            pj_linear_job job = {&w, NULL, y, ROWS};
            multiply(k, team, x, COLS, n, &job, memory);
            for (size_t at = 0; at < n * ROWS; at++)
                if (isfinite(y[at]) == (at / ROWS == broken))
                    fail_msg("%s %s: token %zu of %zu is %g, token %zu has %g", k->name,
                             pj_dtype_get((pj_dtype)type)->name, at / ROWS, n, (double)y[at],
                             broken, (double)values[i / 3]);
            pj_free(memory);
            test_free(bytes), test_free(x), test_free(y);
        }
}

/* Statistics of a product's output: sums of every step-th token counted from the last, and the
 * largest magnitude and the counts of NaN and Inf of all tokens. */
static void statistics(const pj_kernels *k, size_t tokens, size_t step, bool with_bias)
{
    enum { COLS = 64, ROWS = 150 };
    float *x = random_row(tokens * COLS, -1, 1), *y = random_row(tokens * ROWS, 0, 0);
    float *weights = random_row(ROWS * COLS, -1, 1), *bias = random_row(ROWS, -1, 1);
    void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(tokens, COLS));
    pj_thread_sums *sums = pj_alloc_aligned(64, 2, sizeof *sums);
    pj_matrix w = {weights, PJ_F32, ROWS, COLS, COLS * sizeof(float)};
    pj_team *team;
    pj_value_sums got = {0}, want = {0};
    team = team_of(2);
    for (size_t i = 0; i < COLS; i++) x[tokens / 2 * COLS + i] *= 1000; /* an outlier */
    if (tokens > 3) x[COLS] = NAN, x[2 * COLS + 1] = INFINITY;
    pj_linear_job job = {.weights = &w,
                         .bias = with_bias ? bias : NULL,
                         .y = y,
                         .y_stride = ROWS,
                         .sums = sums,
                         .sample_step = step,
                         .tau = 0.5f};
    multiply(k, team, x, COLS, tokens, &job, memory);
    pj_value_sums_add(&got, &sums[0].sums);
    pj_value_sums_add(&got, &sums[1].sums);
    const pj_kernels *plain = pj_kernels_find("c");
    for (size_t t = 0; t < tokens; t++)
        if ((tokens - 1 - t) % step == 0)
            plain->value_sums(y + t * ROWS, 1, ROWS, ROWS, 0.5f, &want);
    want.nan = want.inf = 0;
    plain->value_bounds(y, tokens, ROWS, ROWS, &want);
    check(k->name, "sum_abs", tokens, got.sum_abs, want.sum_abs, 1e-5 * want.sum_abs);
    check(k->name, "sum_square", tokens, got.sum_square, want.sum_square, 1e-5 * want.sum_square);
    assert_that(got.count, ==, want.count);
    assert_that(got.skipped, ==, want.skipped);
    assert_that(got.nan, ==, want.nan);
    assert_that(got.inf, ==, want.inf);
    assert_true(tokens <= 3 || got.nan + got.inf == 2 * ROWS);
    check(k->name, "max", tokens, (double)got.max_abs, (double)want.max_abs,
          1e-6 * (double)want.max_abs);
    check(k->name, "below", tokens, (double)got.below, (double)want.below, 2);
    pj_free(memory), pj_free(sums);
    test_free(x), test_free(y), test_free(weights), test_free(bias);
}

static void test_statistics(void **state)
{
    static const size_t tokens[] = {1, 3, 8, 40, 97, 145, 200};
    FOR_SETS(k)
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t step = 1; step < 8; step += 3) {
            statistics(k, tokens[i], step, false);
            statistics(k, tokens[i], step, true);
        }
}

int test_kernel_products(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),         cmocka_unit_test(test_even_scales),
        cmocka_unit_test(test_largest_products), cmocka_unit_test(test_large_products),
#ifdef PJ_AMX_MODEL
        cmocka_unit_test(test_tile_traffic),
#endif
        cmocka_unit_test(test_passes),           cmocka_unit_test(test_jobs_together),
        cmocka_unit_test(test_rows_apart),       cmocka_unit_test(test_bias_is_last),
        cmocka_unit_test(test_tiny_activations), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, free_teams);
}

/* ---- --time ----------------------------------------------------------------------------- */

/* Minimum time of a product on one thread over several calls, in nanoseconds. */
static double least_ns(const pj_kernels *k, pj_team *team, const pj_linear_job *job, const float *x,
                       size_t tokens, void *memory)
{
    double least = 1e18;
    for (int i = 0; i < 20; i++) {
        int64_t begin = pj_clock_ns();
        multiply(k, team, x, job->weights->cols, tokens, job, memory);
        least = fmin(least, (double)(pj_clock_ns() - begin));
    }
    return least;
}

/* Every set and type against plain C: a matrix that stays in cache times one and 48 tokens. */
int time_products(void)
{
    enum { ROWS = 128, COLS = 1024, TOKENS = 48 };
    static const size_t tokens[] = {1, TOKENS};
    float *x = pj_alloc(TOKENS * COLS, sizeof *x), *y = pj_alloc(TOKENS * ROWS, sizeof *y);
    uint8_t *bytes = pj_alloc(ROWS * COLS, 4);
    void *memory = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(TOKENS, COLS));
    pj_team *team;
    if (!x || !y || !bytes || !memory || pj_team_new(1, false, &team, NULL)) return 1;
    for (size_t i = 0; i < TOKENS * COLS; i++) x[i] = uniform(-1, 1);
    printf("%-8s %-6s %7s %10s %8s\n", "set", "type", "tokens", "GFLOP/s", "against c");
    for (int type = 0; type < PJ_DTYPE_COUNT; type++)
        for (size_t t = 0; t < 2; t++) {
            double plain = 0;
            pj_matrix w = {bytes, (pj_dtype)type, ROWS, COLS, 0};
            w.row_bytes = pj_dtype_row_bytes(w.type, COLS);
            random_weights(w.type, bytes, ROWS * COLS);
            pj_linear_job job = {&w, NULL, y, ROWS};
            for (size_t i = 0; i < kernel_set_count(); i++) {
                double ns =
                    least_ns(pj_kernels_find(kernel_set_name(i)), team, &job, x, tokens[t], memory);
                if (i == 0) plain = ns;
                printf("%-8s %-6s %7zu %10.1f %8.1f\n", kernel_set_name(i),
                       pj_dtype_get(w.type)->name, tokens[t],
                       2.0 * ROWS * COLS * (double)tokens[t] / ns, plain / ns);
            }
        }
    pj_team_free(team);
    pj_free(x), pj_free(y), pj_free(bytes), pj_free(memory);
    return 0;
}
