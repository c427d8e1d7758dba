/* The indexer of sparse attention: scores against double precision, and the keys that are seen. */
#include "shader_bench.h"

#include "engine/kernels/half.h"

#include <math.h>
#include <string.h>

enum { ROWS = 5, SLOTS = 700, KEPT = 40 };

/* Rows with fewer keys than are kept, as many, one more, and many. */
static const pj_vk_cache_row rows[ROWS] = {
    {12, 0, 0, 1}, {KEPT - 1, 1, 0, 1}, {KEPT, 0, 0, 1}, {699, 1, 0, 1}, {320, 0, 0, 1}};

typedef struct index_case {
    uint32_t heads, dim, chunk, threads;
    pj_dtype type;
} index_case;

static double key_value(const index_case *c, const void *keys, size_t i)
{
    return c->type == PJ_F32 ? (double)((const float *)keys)[i]
                             : (double)pj_float_of_f16(((const uint16_t *)keys)[i]);
}

static void *random_keys(const index_case *c, size_t n)
{
    float *values = bench_random_floats(n, 1);
    uint16_t *halves = bench_memory(n * sizeof *halves);
    for (size_t i = 0; i < n; i++) halves[i] = pj_f16_of_float(values[i]);
    return c->type == PJ_F32 ? (void *)values : halves;
}

static double score(const index_case *c, const float *index, const void *keys, size_t first)
{
    const float *weights = index + (c->heads + 1) * c->dim;
    double sum = 0;
    for (uint32_t h = 0; h < c->heads; h++) {
        double product = 0;
        for (uint32_t i = 0; i < c->dim; i++)
            product += index[h * c->dim + i] * key_value(c, keys, first + i);
        sum += (double)weights[h] * 0.3 * fmax(product, 0);
    }
    return sum;
}

static void check_scores(index_case c)
{
    bench_begin();
    size_t stride = (c.heads + 1) * c.dim + c.heads + 3, value = c.type == PJ_F32 ? 4 : 2;
    float *index = bench_random_floats(ROWS * stride, 1);
    void *keys = random_keys(&c, 2 * SLOTS * c.dim);
    pj_vk_index_scores_constants k = {c.threads, c.type, c.dim, c.chunk};
    pj_vk_index_scores_args args = {.index = bench_input(index, ROWS * stride * sizeof *index),
                                    .rows = bench_input(rows, sizeof rows),
                                    .keys = bench_input(keys, 2 * SLOTS * c.dim * value),
                                    .scores = bench_output(ROWS * SLOTS * sizeof(float)),
                                    .sequence_bytes = SLOTS * c.dim * value,
                                    .row_bytes = (uint32_t)(c.dim * value),
                                    .heads = c.heads,
                                    .index_stride = (uint32_t)stride,
                                    .scores_stride = SLOTS,
                                    .kept = KEPT,
                                    .scale = 0.3f};
    BENCH_DISPATCH(PJ_VK_INDEX_SCORES, &k, &args, (SLOTS + PJ_VK_INDEX_KEYS - 1) / PJ_VK_INDEX_KEYS,
                   ROWS, 1);
    bench_run();
    const float *got = bench_result(args.scores);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t t = 0; t < SLOTS; t++) {
            double value_got = got[r * SLOTS + t];
            if (rows[r].position < KEPT || t > rows[r].position) {
                assert_true(isnan(value_got));
                continue;
            }
            double want =
                score(&c, index + r * stride, keys, (rows[r].sequence * SLOTS + t) * c.dim);
            if (!(fabs(value_got - want) <= 1e-5 * (1 + fabs(want))))
                fail_msg("row %zu, key %zu: %.9g, not %.9g", r, t, value_got, want);
        }
}

static void keys_are_scored(void **state)
{
    check_scores((index_case){4, 32, 32, 64, PJ_F32});
    check_scores((index_case){20, 36, 16, 128, PJ_F16});
    check_scores((index_case){17, 10, 16, 32, PJ_F32});    /* neither is a multiple of a tile */
    check_scores((index_case){64, 128, 128, 128, PJ_F16}); /* as published */
}

/* Of `scores`, what a plain search takes: the largest, of equal ones the first. */
static void check_choice(const float *scores, uint32_t threads)
{
    bench_begin();
    pj_vk_threads_constants k = {threads};
    pj_vk_index_choose_args args = {.rows = bench_input(rows, sizeof rows),
                                    .scores = bench_input(scores, ROWS * SLOTS * sizeof *scores),
                                    .seen = bench_output(ROWS * KEPT * sizeof(uint32_t)),
                                    .scores_stride = SLOTS,
                                    .kept = KEPT};
    BENCH_DISPATCH(PJ_VK_INDEX_CHOOSE, &k, &args, ROWS, 1, 1);
    bench_run();
    const uint32_t *got = bench_result(args.seen);
    for (size_t r = 0; r < ROWS; r++) {
        bool taken[SLOTS] = {false};
        const float *own = scores + r * SLOTS;
        if (rows[r].position < KEPT) continue;
        for (int n = 0; n < KEPT; n++) {
            int best = -1;
            for (int t = 0; t <= (int)rows[r].position; t++)
                if (!taken[t] && (best < 0 || own[t] > own[best])) best = t;
            taken[best] = true;
        }
        for (uint32_t t = 0, n = 0; t < SLOTS; t++)
            if (taken[t]) assert_int_equal(got[r * KEPT + n++], t);
    }
}

static void the_largest_are_chosen(void **state)
{
    static float scores[ROWS * SLOTS];
    for (int kind = 0; kind < 3; kind++)
        for (uint32_t threads = 32; threads <= 256; threads *= 8) {
            for (size_t i = 0; i < ROWS * SLOTS; i++) {
                float x = bench_random();
                /* any, many equal ones with zeros of both signs, all equal */
                scores[i] = kind == 0 ? x * 100 : kind == 1 ? truncf(x * 3) : -0.5f;
            }
            check_choice(scores, threads);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_scored),
        cmocka_unit_test(the_largest_are_chosen),
    };
    return bench_main(tests);
}
