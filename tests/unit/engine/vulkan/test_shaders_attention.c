/* Rotation, the cache and attention over it, against double precision. */
#include "shader_bench.h"

#include "engine/kernels/half.h"

#include <math.h>
#include <string.h>

static const float EPS = 1e-5f;

/* A layer's cache with some sequences, and what a pass adds to it. */
typedef struct layer {
    size_t heads, kv_heads, dim, pairs, slots, sequences;
    pj_dtype type;
    uint32_t window; /* UINT32_MAX: none */
    bool chunked;    /* only keys since the last multiple of the window */
    bool neighbours, normed, sinks, scaled;
    float cap;
    size_t first;     /* column that rotates */
    bool apart;       /* rotated alone, before they are stored */
    size_t value_dim; /* values are the first columns of the keys; 0: they are stored apart */
} layer;

static const layer small = {.heads = 2,
                            .kv_heads = 1,
                            .dim = 24,
                            .pairs = 12,
                            .slots = 20,
                            .sequences = 2,
                            .window = UINT32_MAX};

static size_t value_bytes(const layer *l)
{
    return l->type == PJ_F32 ? 4 : 2;
}

static size_t cache_values(const layer *l)
{
    return l->sequences * l->kv_heads * l->slots * l->dim;
}

static size_t cache_index(const layer *l, size_t sequence, size_t head, size_t slot)
{
    return ((sequence * l->kv_heads + head) * l->slots + slot) * l->dim;
}

static double cache_value(const layer *l, const void *cache, size_t i)
{
    uint16_t half;
    float value;
    memcpy(l->type == PJ_F32 ? (void *)&value : (void *)&half,
           (const char *)cache + i * value_bytes(l), value_bytes(l));
    return l->type == PJ_F32 ? (double)value : (double)pj_float_of_f16(half);
}

static void *random_cache(const layer *l)
{
    size_t n = cache_values(l);
    char *cache = bench_memory(n * value_bytes(l));
    for (size_t i = 0; i < n; i++) {
        float value = bench_random();
        uint16_t half = pj_f16_of_float(value);
        memcpy(cache + i * value_bytes(l), l->type == PJ_F32 ? (void *)&value : (void *)&half,
               value_bytes(l));
    }
    return cache;
}

static size_t qkv_stride(const layer *l)
{
    return (l->heads + 2 * l->kv_heads) * l->dim + 4;
}

/* ---- rotation and store ------------------------------------------------------------------- */

enum { ROPE_TOKENS = 5 };

static const pj_vk_cache_row rope_rows[ROPE_TOKENS] = {
    {7, 0, 3, 1.5f}, {8, 0, 3, 1.25f}, {9, 0, 3, 1}, {2, 1, 0, 2}, {3, 1, 0, 0.5f}};

/* One head of a row, as rope leaves it. */
static void rope_head(const layer *l, const float *x, const float *weight, const float *cosine,
                      const float *sine, double scale, double *y)
{
    double square = 0;
    for (size_t i = 0; i < l->dim; i++) square += (double)x[i] * x[i];
    double by = weight ? 1 / sqrt(square / (double)l->dim + (double)EPS) : 1;
    for (size_t i = 0; i < l->dim; i++) y[i] = x[i] * by * (weight ? (double)weight[i] : 1);
    for (size_t j = 0; cosine && j < l->pairs; j++) {
        size_t a = l->first + (l->neighbours ? 2 * j : j);
        size_t b = l->first + (l->neighbours ? 2 * j + 1 : j + l->pairs);
        double first = y[a], second = y[b];
        y[a] = first * cosine[j] - second * sine[j];
        y[b] = second * cosine[j] + first * sine[j];
    }
    for (size_t i = 0; i < l->dim; i++) y[i] *= scale;
}

static void check_cached(const layer *l, const void *cache, const pj_vk_cache_row *row, size_t head,
                         const double *want)
{
    size_t slot = row->position - (l->window != UINT32_MAX ? row->base : 0);
    double tolerance = l->type == PJ_F32 ? 1e-5 : 1e-3;
    for (size_t i = 0; i < l->dim; i++) {
        double got = cache_value(l, cache, cache_index(l, row->sequence, head, slot) + i);
        if (!(fabs(got - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("cached %.9g, not %.9g", got, want[i]);
    }
}

static void check_rope(layer l)
{
    bench_begin();
    size_t stride = qkv_stride(&l), cache_bytes = cache_values(&l) * value_bytes(&l);
    float *qkv = bench_random_floats(ROPE_TOKENS * stride, 2);
    float *cosine = bench_random_floats(ROPE_TOKENS * (l.pairs + 1), 1),
          *sine = bench_random_floats(ROPE_TOKENS * (l.pairs + 1), 1);
    float *q_norm = bench_random_floats(l.dim, 1), *k_norm = bench_random_floats(l.dim, 1);
    void *cache = random_cache(&l);
    size_t angle_bytes = ROPE_TOKENS * l.pairs * sizeof(float);
    pj_vk_rope_args args = {.qkv = bench_updated(qkv, ROPE_TOKENS * stride * sizeof *qkv),
                            .rows = bench_input(rope_rows, sizeof rope_rows),
                            .cosine = bench_input(cosine, angle_bytes),
                            .sine = bench_input(sine, angle_bytes),
                            .q_norm = bench_input(q_norm, l.dim * sizeof *q_norm),
                            .k_norm = bench_input(k_norm, l.dim * sizeof *k_norm),
                            .keys = bench_updated(cache, cache_bytes),
                            .values = bench_updated(cache, cache_bytes),
                            .sequence_bytes = l.kv_heads * l.slots * l.dim * value_bytes(&l),
                            .head_bytes = (uint32_t)(l.slots * l.dim * value_bytes(&l)),
                            .row_bytes = (uint32_t)(l.dim * value_bytes(&l)),
                            .heads = (uint32_t)l.heads,
                            .kv_heads = (uint32_t)l.kv_heads,
                            .dim = (uint32_t)l.dim,
                            .pairs = (uint32_t)l.pairs,
                            .qkv_stride = (uint32_t)stride,
                            .windowed = l.window != UINT32_MAX,
                            .scaled = l.scaled,
                            .first = (uint32_t)l.first,
                            .stores = !l.apart};
    pj_vk_rope_constants k = {32, l.type, l.normed ? PJ_VK_NORM_RMS : PJ_VK_NORM_NONE, l.neighbours,
                              EPS};
    BENCH_DISPATCH(PJ_VK_ROPE, &k, &args, (uint32_t)(l.heads + 2 * l.kv_heads), ROPE_TOKENS, 1);
    bench_run();
    const float *after = bench_result(args.qkv);
    double *want = bench_memory(l.dim * sizeof *want);
    if (l.apart) assert_memory_equal(bench_result(args.keys), cache, cache_bytes);
    for (size_t t = 0; t < ROPE_TOKENS; t++)
        for (size_t h = 0; h < l.heads + 2 * l.kv_heads; h++) {
            bool query = h < l.heads, value = h >= l.heads + l.kv_heads;
            const float *x = qkv + t * stride + h * l.dim;
            rope_head(&l, x, l.normed && !value ? query ? q_norm : k_norm : NULL,
                      value ? NULL : cosine + t * l.pairs, sine + t * l.pairs,
                      query && l.scaled ? (double)rope_rows[t].scale : 1, want);
            bench_assert_rows(after + t * stride + h * l.dim, l.dim, want, 1, l.dim, 1e-5);
            if (!query && !l.apart)
                check_cached(&l, bench_result(value ? args.values : args.keys), &rope_rows[t],
                             (h - l.heads) % l.kv_heads, want);
        }
}

static void heads_are_rotated_and_stored(void **state)
{
    layer l = small;
    check_rope(l);
    l.apart = true;
    check_rope(l);
    l.apart = false;
    l.type = PJ_F16;
    l.scaled = l.neighbours = true;
    check_rope(l);
    l.pairs = 5; /* of a part of the columns */
    l.window = 6;
    l.normed = true;
    check_rope(l);
    l.first = 13;
    check_rope(l);
    l.first = 0;
    l.kv_heads = l.heads = 3;
    l.dim = 33;
    l.pairs = 0;
    check_rope(l);
}

/* Values become the nearest F16, ties to even, with subnormals and infinities. */
static void values_are_rounded_as_on_the_cpu(void **state)
{
    static const float special[] = {0,
                                    -0.0f,
                                    1.0f,
                                    1.00048828125f,
                                    1.00146484375f,
                                    65504,
                                    65519.9f,
                                    65520,
                                    -1e6f,
                                    INFINITY,
                                    6.1035156e-5f,
                                    6.0975552e-5f,
                                    5.9604645e-8f,
                                    2.9802322e-8f,
                                    2.9802326e-8f,
                                    8.9406967e-8f,
                                    -1e-30f,
                                    0.1f};
    enum { DIM = sizeof special / sizeof *special };
    static const pj_vk_cache_row row = {0, 0, 0, 1};
    float qkv[3 * DIM];
    bench_begin();
    for (size_t i = 0; i < 3 * DIM; i++) qkv[i] = special[i % DIM];
    pj_vk_rope_args args = {.qkv = bench_updated(qkv, sizeof qkv),
                            .rows = bench_input(&row, sizeof row),
                            .keys = bench_output(DIM * 2),
                            .values = bench_output(DIM * 2),
                            .head_bytes = DIM * 2,
                            .row_bytes = DIM * 2,
                            .heads = 1,
                            .kv_heads = 1,
                            .dim = DIM,
                            .qkv_stride = 3 * DIM,
                            .stores = 1};
    pj_vk_rope_constants k = {32, PJ_F16, PJ_VK_NORM_NONE, 0, EPS};
    BENCH_DISPATCH(PJ_VK_ROPE, &k, &args, 3, 1, 1);
    bench_run();
    const uint16_t *values = bench_result(args.values);
    for (size_t i = 0; i < DIM; i++) assert_int_equal(values[i], pj_f16_of_float(special[i]));
}

/* ---- attention ---------------------------------------------------------------------------- */

typedef struct attention_case {
    layer l;
    const pj_vk_cache_row *rows;
    size_t tokens;
    uint32_t threads, heads, positions, lanes, chunk, splits;
    uint32_t kept; /* of a row's keys, where it has more; 0: all are seen */
} attention_case;

/* One query head of a row; p: room for its weights. */
static void attend(const layer *l, const pj_vk_cache_row *row, const float *q, size_t head,
                   const void *keys, const void *values, const float *sinks, const bool *seen,
                   double *p, double *y)
{
    size_t end = row->position + 1, begin = end > l->window ? end - l->window : 0;
    if (l->chunked) begin = row->position - row->position % l->window;
    size_t first = cache_index(l, row->sequence, head * l->kv_heads / l->heads, 0);
    size_t base = l->window != UINT32_MAX ? row->base : 0;
    double largest = sinks ? sinks[head] : -INFINITY, sum = 0;
    for (size_t j = begin; j < end; j++) {
        p[j] = 0;
        for (size_t i = 0; i < l->dim; i++)
            p[j] += q[i] * cache_value(l, keys, first + (j - base) * l->dim + i);
        p[j] *= 0.3;
        if (l->cap > 0) p[j] = l->cap * tanh(p[j] / l->cap);
        if (seen && !seen[j]) p[j] = -INFINITY;
        largest = fmax(largest, p[j]);
    }
    for (size_t j = begin; j < end; j++) sum += p[j] = exp(p[j] - largest);
    if (sinks) sum += exp(sinks[head] - largest);
    memset(y, 0, l->dim * sizeof *y);
    for (size_t j = begin; j < end; j++)
        for (size_t i = 0; i < l->dim; i++)
            y[i] += p[j] / sum * cache_value(l, values, first + (j - base) * l->dim + i);
}

static size_t values_of(const layer *l)
{
    return l->value_dim ? l->value_dim : l->dim;
}

static void dispatch_attention(const attention_case *c, pj_vk_attention_args *args, uint64_t y)
{
    pj_vk_attention_constants k = {
        c->threads, c->l.type,     (uint32_t)c->l.dim,         c->heads,   c->positions, c->lanes,
        c->chunk,   c->splits > 1, (uint32_t)values_of(&c->l), c->kept > 0};
    size_t part = (2 + values_of(&c->l)) * sizeof(float);
    args->y = c->splits > 1 ? bench_output(c->tokens * c->l.heads * c->splits * part) : y;
    BENCH_DISPATCH(PJ_VK_ATTENTION, &k, args, c->splits, pj_vk_attention_groups(&k, args),
                   (uint32_t)((c->tokens + c->positions - 1) / c->positions));
    if (c->splits == 1) return;
    pj_vk_attention_merge_args merge = {.parts = args->y,
                                        .y = y,
                                        .sinks = args->sinks,
                                        .heads = args->heads,
                                        .splits = c->splits,
                                        .dim = (uint32_t)values_of(&c->l),
                                        .y_stride = args->y_stride};
    pj_vk_threads_constants threads = {32};
    BENCH_DISPATCH(PJ_VK_ATTENTION_MERGE, &threads, &merge, args->heads, (uint32_t)c->tokens, 1);
}

/* A list of every row's keys, some that are seen if it has more than `kept`; flags by row and key.
 */
static uint32_t *choose_seen(const attention_case *c, bool *seen)
{
    uint32_t *lists = bench_memory(c->tokens * c->kept * sizeof *lists + 1);
    for (size_t t = 0; t < c->tokens; t++) {
        uint32_t keys = c->rows[t].position + 1, left = c->kept, *list = lists + t * c->kept;
        for (uint32_t j = 0; j < keys; j++) {
            bool *flag = seen + t * c->l.slots + j;
            *flag = keys <= c->kept || bench_random_below(keys - j) < left;
            if (*flag && keys > c->kept) *list++ = j;
            left -= *flag;
        }
    }
    return lists;
}

static void check_attention(attention_case c)
{
    bench_begin();
    const layer *l = &c.l;
    size_t stride = qkv_stride(l), cache_bytes = cache_values(l) * value_bytes(l),
           dim = values_of(l), out = l->heads * dim;
    float *qkv = bench_random_floats(c.tokens * stride, 2),
          *sinks = bench_random_floats(l->heads, 2);
    void *keys = random_cache(l), *values = l->value_dim ? keys : random_cache(l);
    bool *seen = bench_memory(c.tokens * l->slots);
    uint32_t *lists = choose_seen(&c, seen);
    uint64_t y = bench_output(c.tokens * (out + 3) * sizeof *qkv);
    pj_vk_attention_args args = {
        .qkv = bench_input(qkv, c.tokens * stride * sizeof *qkv),
        .rows = bench_input(c.rows, c.tokens * sizeof *c.rows),
        .keys = bench_input(keys, cache_bytes),
        .values = bench_input(values, cache_bytes),
        .sinks = l->sinks ? bench_input(sinks, l->heads * sizeof *sinks) : 0,
        .sequence_bytes = l->kv_heads * l->slots * l->dim * value_bytes(l),
        .head_bytes = (uint32_t)(l->slots * l->dim * value_bytes(l)),
        .row_bytes = (uint32_t)(l->dim * value_bytes(l)),
        .tokens = (uint32_t)c.tokens,
        .heads = (uint32_t)l->heads,
        .kv_heads = (uint32_t)l->kv_heads,
        .qkv_stride = (uint32_t)stride,
        .y_stride = (uint32_t)out + 3,
        .window = l->window,
        .windowed = l->chunked                ? PJ_VK_WINDOW_CHUNK
                    : l->window != UINT32_MAX ? PJ_VK_WINDOW_SLIDES
                                              : PJ_VK_WINDOW_NONE,
        .split_keys = (uint32_t)((l->slots + c.splits - 1) / c.splits),
        .scale = 0.3f,
        .cap = l->cap,
        .kept = c.kept,
        .seen = c.kept ? bench_input(lists, c.tokens * c.kept * sizeof *lists) : 0};
    dispatch_attention(&c, &args, y);
    bench_run();
    const float *got = bench_result(y);
    double *want = bench_memory(l->dim * sizeof *want), *p = bench_memory(1000 * sizeof *p);
    for (size_t t = 0; t < c.tokens; t++) {
        for (size_t h = 0; h < l->heads; h++) {
            attend(l, &c.rows[t], qkv + t * stride + h * l->dim, h, keys, values,
                   l->sinks ? sinks : NULL, c.kept ? seen + t * l->slots : NULL, p, want);
            bench_assert_rows(got + t * (out + 3) + h * dim, dim, want, 1, dim, 1e-5);
        }
        assert_true(isnan(got[t * (out + 3) + out]));
    }
}

static const pj_vk_cache_row decode_rows[3] = {{0, 1, 0, 1}, {99, 0, 70, 1}, {40, 2, 11, 1}};

/* One token each of several sequences. */
static void single_queries_attend(void **state)
{
    layer l = {
        .heads = 6, .kv_heads = 2, .dim = 24, .slots = 100, .sequences = 3, .window = UINT32_MAX};
    check_attention((attention_case){l, decode_rows, 3, 32, 3, 1, 16, 32, 1});
    l.sinks = true;
    l.type = PJ_F16;
    check_attention((attention_case){l, decode_rows, 3, 64, 1, 1, 32, 16, 4});
    l.window = 30;
    l.cap = 0.5f;
    check_attention((attention_case){l, decode_rows, 3, 64, 1, 1, 32, 16, 1});
    check_attention((attention_case){l, decode_rows, 3, 64, 1, 1, 32, 16, 2});
    l.dim = 33;
    l.window = UINT32_MAX;
    check_attention((attention_case){l, decode_rows, 3, 32, 3, 1, 8, 12, 3});
}

static void make_rows(pj_vk_cache_row *rows, size_t count, uint32_t first, uint32_t base)
{
    for (size_t i = 0; i < count; i++) rows[i] = (pj_vk_cache_row){first + (uint32_t)i, 1, base, 1};
}

/* Many tokens of one sequence, in tiles. */
static void many_queries_attend(void **state)
{
    pj_vk_cache_row rows[64];
    layer l = {
        .heads = 4, .kv_heads = 2, .dim = 20, .slots = 70, .sequences = 2, .window = UINT32_MAX};
    make_rows(rows, 64, 0, 0);
    check_attention((attention_case){l, rows, 33, 64, 1, 16, 16, 32, 1});
    l.sinks = true;
    check_attention((attention_case){l, rows, 64, 64, 1, 16, 16, 32, 1});
    make_rows(rows, 64, 35, 5);
    l.window = 7;
    l.type = PJ_F16;
    l.cap = 2;
    check_attention((attention_case){l, rows, 31, 64, 2, 5, 8, 16, 1});
    check_attention((attention_case){l, rows, 1, 64, 2, 5, 8, 16, 1});
    l.chunked = true;
    check_attention((attention_case){l, rows, 31, 64, 2, 5, 8, 16, 1});
    check_attention((attention_case){l, rows, 5, 64, 2, 1, 8, 16, 2});
}

static const layer latent_layer = {.heads = 6,
                                   .kv_heads = 1,
                                   .dim = 40,
                                   .slots = 100,
                                   .sequences = 3,
                                   .window = UINT32_MAX,
                                   .value_dim = 24};

/* Values that are the first columns of the keys, all of one head. */
static void latent_vectors_attend(void **state)
{
    pj_vk_cache_row rows[33];
    layer l = latent_layer;
    check_attention((attention_case){l, decode_rows, 3, 32, 6, 1, 8, 16, 1});
    check_attention((attention_case){l, decode_rows, 3, 32, 3, 1, 4, 32, 3});
    l.type = PJ_F16;
    l.dim = 21;
    l.value_dim = 14;
    make_rows(rows, 33, 0, 0);
    check_attention((attention_case){l, rows, 33, 64, 3, 5, 4, 16, 1});
}

/* Each row sees some of its keys, or all if they are few. */
static void chosen_keys_are_attended_to(void **state)
{
    pj_vk_cache_row rows[33];
    layer l = latent_layer;
    check_attention((attention_case){l, decode_rows, 3, 32, 6, 1, 8, 16, 1, .kept = 40});
    check_attention((attention_case){l, decode_rows, 3, 32, 3, 1, 4, 32, 3, .kept = 41});
    l.type = PJ_F16;
    make_rows(rows, 33, 0, 0);
    check_attention((attention_case){l, rows, 33, 64, 3, 1, 4, 16, 1, .kept = 7});
}

/* The values of a head are more than a workgroup holds. */
static void wide_heads_attend_in_slices(void **state)
{
    layer l = {
        .heads = 2, .kv_heads = 1, .dim = 530, .slots = 10, .sequences = 2, .window = UINT32_MAX};
    static const pj_vk_cache_row rows[2] = {{9, 1, 0, 1}, {3, 0, 0, 1}};
    check_attention((attention_case){l, rows, 2, 32, 2, 1, 32, 64, 1});
    l.type = PJ_F16;
    check_attention((attention_case){l, rows, 2, 32, 2, 1, 16, 64, 2});
}

/* ---- a window that moves ------------------------------------------------------------------- */

static void rows_slide_to_the_front(void **state)
{
    enum { HEADS = 3, SLOTS = 12, WORDS = 37, FROM = 4, COUNT = 7 };
    bench_begin();
    uint16_t cache[HEADS * SLOTS * WORDS], want[HEADS * SLOTS * WORDS];
    for (size_t i = 0; i < HEADS * SLOTS * WORDS; i++)
        want[i] = cache[i] = (uint16_t)bench_random_below(1 << 16);
    pj_vk_slide_args args = {bench_updated(cache, sizeof cache), SLOTS * WORDS * 2, WORDS, FROM,
                             COUNT};
    pj_vk_threads_constants k = {16};
    for (size_t h = 0; h < HEADS; h++)
        memmove(want + h * SLOTS * WORDS, want + (h * SLOTS + FROM) * WORDS,
                COUNT * WORDS * sizeof *want);
    BENCH_DISPATCH(PJ_VK_SLIDE, &k, &args, (WORDS + 15) / 16, HEADS, 1);
    bench_run();
    assert_memory_equal(bench_result(args.heads), want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_rotated_and_stored),
        cmocka_unit_test(values_are_rounded_as_on_the_cpu),
        cmocka_unit_test(single_queries_attend),
        cmocka_unit_test(many_queries_attend),
        cmocka_unit_test(latent_vectors_attend),
        cmocka_unit_test(chosen_keys_are_attended_to),
        cmocka_unit_test(wide_heads_attend_in_slices),
        cmocka_unit_test(rows_slide_to_the_front),
    };
    return bench_main(tests);
}
