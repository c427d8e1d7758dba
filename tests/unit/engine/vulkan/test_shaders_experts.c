/* Routing, and the two ways through the chosen experts: few tokens as they come, many sorted by
 * expert. */
#include "assertions.h"
#include "shader_bench.h"

#include <math.h>
#include <string.h>

/* ---- routing ------------------------------------------------------------------------------ */

typedef struct route_case {
    uint32_t experts, slots, tokens;
    bool renormalise, factors, ties;
    bool sigmoid, corrected, pair;
    uint32_t groups, kept; /* 0: one */
    float factor;          /* 0: 1 */
    double reach;          /* one after the other; 0: not so */
    uint32_t broken;       /* that many experts have scores that are NaN */
} route_case;

typedef struct routed {
    uint32_t *chosen;
    float *weights;
    uint32_t *order;
} routed;

static void route_token(const route_case *c, const float *logits, const float *factors, double *p,
                        uint32_t *chosen, double *weights)
{
    double largest = -INFINITY, sum = 0, all = 0;
    for (uint32_t e = 0; e < c->experts; e++) largest = fmax(largest, logits[e]);
    for (uint32_t e = 0; e < c->experts; e++) sum += p[e] = exp(logits[e] - largest);
    for (uint32_t e = 0; e < c->experts; e++) p[e] /= sum;
    for (uint32_t slot = 0; slot < c->slots; slot++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < c->experts; e++) {
            bool taken = false;
            for (uint32_t i = 0; i < slot; i++) taken |= chosen[i] == e;
            if (!taken && (best == UINT32_MAX || logits[e] > logits[best])) best = e;
        }
        chosen[slot] = best;
        all += weights[slot] = p[best];
    }
    for (uint32_t slot = 0; slot < c->slots; slot++)
        weights[slot] =
            weights[slot] / (c->renormalise ? all : 1) * (c->factors ? factors[chosen[slot]] : 1);
}

static double group_score(const route_case *c, const double *choice, uint32_t group)
{
    uint32_t each = c->experts / c->groups;
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t e = group * each; e < (group + 1) * each; e++) {
        second = fmax(second, fmin(first, choice[e]));
        first = fmax(first, choice[e]);
    }
    return c->pair ? first + second : first;
}

/* Routers that score otherwise; all choices are apart by more than rounding. */
static void score_token(const route_case *c, const float *logits, const float *corrections,
                        const float *factors, double *p, uint32_t *chosen, double *weights)
{
    double choice[64], scores[8], sum = 0, all = 0;
    uint32_t each = c->experts / c->groups;
    for (uint32_t e = 0; e < c->experts; e++) sum += exp(logits[e]);
    for (uint32_t e = 0; e < c->experts; e++) {
        p[e] = c->sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e]) / sum;
        choice[e] = p[e] + (c->corrected ? corrections[e] : 0);
    }
    for (uint32_t g = 0; g < c->groups; g++) scores[g] = group_score(c, choice, g);
    for (uint32_t e = 0; e < c->experts; e++) {
        uint32_t better = 0;
        for (uint32_t g = 0; g < c->groups; g++) better += scores[g] > scores[e / each];
        if (better >= c->kept) choice[e] = -INFINITY;
    }
    for (uint32_t slot = 0; slot < c->slots; slot++) {
        uint32_t best = 0;
        for (uint32_t e = 0; e < c->experts; e++)
            if (choice[e] > choice[best]) best = e;
        choice[best] = -INFINITY;
        chosen[slot] = best;
        all += weights[slot] = p[best];
    }
    for (uint32_t slot = 0; slot < c->slots; slot++)
        weights[slot] *= (double)c->factor / (c->renormalise ? all : 1) *
                         (c->factors ? factors[chosen[slot]] : 1);
    sum = 0;
    for (uint32_t e = 0; e < c->experts; e++) sum += p[e];
    for (uint32_t e = 0; e < c->experts; e++) p[e] /= sum;
}

/* One after the other, each weighted among those that are left and near enough. */
static void mix_token(const route_case *c, const float *logits, double *p, uint32_t *chosen,
                      double *weights)
{
    bool taken[64] = {false};
    double all = 0;
    for (uint32_t e = 0; e < c->experts; e++) all += p[e] = exp(logits[e]);
    for (uint32_t e = 0; e < c->experts; e++) p[e] /= all;
    for (uint32_t slot = 0; slot < c->slots; slot++) {
        uint32_t best = UINT32_MAX;
        double sum = 0;
        for (uint32_t e = 0; e < c->experts; e++)
            if (!taken[e] && (best == UINT32_MAX || logits[e] > logits[best])) best = e;
        for (uint32_t e = 0; e < c->experts; e++) {
            double distance = ((double)logits[best] - logits[e]) /
                              fmax(fabs((double)logits[e]), (double)logits[best]);
            if (!taken[e] && distance <= c->reach) sum += exp((double)logits[e] - logits[best]);
        }
        taken[best] = true;
        chosen[slot] = best;
        weights[slot] = 1 / sum;
    }
}

static void check_order(const route_case *c, const uint32_t *chosen, const uint32_t *order)
{
    for (uint32_t i = 1; i < c->slots; i++) assert_true(chosen[order[i - 1]] < chosen[order[i]]);
}

/* Whatever the scores are: products read the entries of `order`. */
static void check_distinct(const route_case *c, const uint32_t *chosen, const uint32_t *order)
{
    bool seen[64] = {false};
    for (uint32_t i = 0; i < c->slots; i++) {
        assert_that(chosen[i], <, c->experts);
        if (seen[chosen[i]]) fail_msg("expert %u is chosen twice", chosen[i]);
        seen[chosen[i]] = true;
        assert_that(order[i], <, c->slots);
    }
    check_order(c, chosen, order);
}

static void check_route(route_case c)
{
    bench_begin();
    size_t stride = c.experts + 3, entries = (size_t)c.tokens * c.slots;
    float *logits = bench_random_floats(c.tokens * stride, 4),
          *factors = bench_random_floats(c.experts, 1),
          *corrections = bench_random_floats(c.experts, 0.3f);
    for (size_t i = 0; i < c.tokens; i++)
        for (uint32_t e = 0; e < c.broken; e++) logits[i * stride + e] = NAN;
    for (size_t i = 0; c.ties && i < c.tokens * stride; i++) logits[i] = rintf(logits[i]);
    pj_vk_route_args args = {
        .logits = bench_input(logits, c.tokens * stride * sizeof *logits),
        .factors = c.factors ? bench_input(factors, c.experts * sizeof *factors) : 0,
        .corrections = c.corrected ? bench_input(corrections, c.experts * sizeof *corrections) : 0,
        .probability = bench_output((size_t)c.tokens * c.experts * sizeof *logits),
        .chosen = bench_output(entries * 4),
        .weights = bench_output(entries * 4),
        .order = bench_output(entries * 4),
        .logits_stride = (uint32_t)stride};
    pj_vk_route_constants k = {32,
                               c.slots,
                               c.renormalise,
                               c.experts,
                               c.sigmoid,
                               c.groups ? c.groups : 1,
                               c.groups ? c.kept : 1,
                               c.pair,
                               c.groups ? c.factor : 1,
                               c.reach > 0,
                               (float)c.reach};
    BENCH_DISPATCH(PJ_VK_ROUTE, &k, &args, c.tokens, 1, 1);
    bench_run();
    const uint32_t *chosen = bench_result(args.chosen), *order = bench_result(args.order);
    const float *p = bench_result(args.probability), *weights = bench_result(args.weights);
    double want_p[64], want_weights[8];
    uint32_t want[8];
    for (uint32_t t = 0; t < c.tokens; t++) {
        if (c.broken) {
            check_distinct(&c, chosen + (size_t)t * c.slots, order + (size_t)t * c.slots);
            continue;
        }
        if (c.reach > 0)
            mix_token(&c, logits + t * stride, want_p, want, want_weights);
        else if (c.groups)
            score_token(&c, logits + t * stride, corrections, factors, want_p, want, want_weights);
        else
            route_token(&c, logits + t * stride, factors, want_p, want, want_weights);
        bench_assert_rows(p + (size_t)t * c.experts, c.experts, want_p, 1, c.experts, 1e-6);
        bench_assert_rows(weights + (size_t)t * c.slots, c.slots, want_weights, 1, c.slots, 1e-6);
        assert_memory_equal(chosen + (size_t)t * c.slots, want, c.slots * sizeof *want);
        check_order(&c, want, order + (size_t)t * c.slots);
    }
}

static void experts_are_chosen(void **state)
{
    check_route((route_case){8, 2, 33, true, false, false});
    check_route((route_case){61, 5, 31, false, true, true});
    check_route((route_case){5, 5, 3, true, true, true});
    check_route((route_case){1, 1, 1, false, false, false});
    check_route((route_case){32, 4, 17, true, false, false, true, true, true, 8, 3, 2.5f});
    check_route((route_case){48, 6, 9, false, true, false, false, false, false, 4, 2, 16});
    check_route((route_case){40, 5, 9, true, false, false, true, true, false, 1, 1, 1});
    check_route((route_case){.experts = 37, .slots = 2, .tokens = 9, .reach = 0.4});
    check_route((route_case){.experts = 16, .slots = 3, .tokens = 5, .ties = true, .reach = 0.02});
}

static void choices_of_broken_scores_are_distinct(void **state)
{
    check_route((route_case){.experts = 12, .slots = 4, .tokens = 5, .broken = 12});
    check_route(
        (route_case){.experts = 12, .slots = 4, .tokens = 5, .sigmoid = true, .broken = 10});
    check_route((route_case){.experts = 16, .slots = 4, .tokens = 5, .reach = 0.4, .broken = 14});
    check_route(
        (route_case){16, 5, 5, true, false, false, true, true, true, 4, 2, 2.5f, .broken = 13});
}

/* ---- weights that apply to the input -------------------------------------------------------- */

static void check_weighed(bool sorted)
{
    enum { TOKENS = 5, EACH = 3, N = 70, STRIDE = N + 2, ENTRIES = TOKENS * EACH };
    bench_begin();
    float *x = bench_random_floats(TOKENS * STRIDE, 1), *weights = bench_random_floats(ENTRIES, 1);
    uint32_t places[ENTRIES];
    double want[ENTRIES * N];
    for (uint32_t e = 0; e < ENTRIES; e++) places[e] = sorted ? e * 7 % ENTRIES : e;
    pj_vk_weigh_args args = {.x = bench_input(x, TOKENS * STRIDE * sizeof *x),
                             .y = bench_output(ENTRIES * N * sizeof *x),
                             .weights = bench_input(weights, ENTRIES * sizeof *weights),
                             .ones = bench_output(ENTRIES * sizeof *x),
                             .places = sorted ? bench_input(places, sizeof places) : 0,
                             .entries = ENTRIES,
                             .n = N,
                             .slots = EACH,
                             .x_stride = STRIDE};
    pj_vk_threads_constants k = {32};
    BENCH_DISPATCH(PJ_VK_WEIGH, &k, &args, (N + 31) / 32, 4, 1);
    bench_run();
    const float *ones = bench_result(args.ones);
    for (uint32_t e = 0; e < ENTRIES; e++) {
        assert_true(ones[e] == 1);
        for (uint32_t i = 0; i < N; i++)
            want[places[e] * N + i] = (double)weights[e] * x[e / EACH * STRIDE + i];
    }
    bench_assert_rows(bench_result(args.y), N, want, ENTRIES, N, 1e-6);
}

static void inputs_are_weighed(void **state)
{
    check_weighed(false);
    check_weighed(true);
}

/* ---- a block of experts ------------------------------------------------------------------- */

enum { EXPERTS = 6, WIDTH = 40, HIDDEN = 64, SLOTS = 3 };

typedef struct block {
    pj_dtype type;
    double *gate[EXPERTS], *up[EXPERTS], *down[EXPERTS];
    float *gate_bias[EXPERTS];
    uint64_t gates, gate_biases, ups, downs; /* tables of addresses */
    uint32_t tokens;
    float *x;
    uint32_t *chosen, *order;
    float *weights;
    double *act, *want, *sum; /* [entries][WIDTH], [tokens][HIDDEN], with the residual stream */
    float *residual;
} block;

static uint64_t random_experts(pj_dtype type, size_t rows, size_t cols, double *values[EXPERTS])
{
    uint64_t table[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) {
        unsigned char *stored = bench_random_weights(type, rows, cols);
        values[e] = bench_dequantised(type, stored, rows, cols);
        table[e] = bench_matrix(type, stored, rows * pj_dtype_row_bytes(type, cols));
    }
    return bench_input(table, sizeof table);
}

static uint64_t random_biases(size_t rows, float *values[EXPERTS])
{
    uint64_t table[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) {
        values[e] = bench_random_floats(rows, 1);
        table[e] = bench_input(values[e], rows * sizeof(float));
    }
    return bench_input(table, sizeof table);
}

static double row_product(const double *w, const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += w[i] * x[i];
    return sum;
}

/* Distinct experts for each token, and the slots in their order. */
static void choose(block *b)
{
    for (uint32_t t = 0; t < b->tokens; t++) {
        uint32_t *chosen = b->chosen + t * SLOTS, *order = b->order + t * SLOTS;
        uint32_t first = bench_random_below(EXPERTS), step = t % 2 ? 1 : EXPERTS - 1;
        for (uint32_t s = 0; s < SLOTS; s++) chosen[s] = (first + s * step) % EXPERTS;
        for (uint32_t s = 0; s < SLOTS; s++) {
            uint32_t rank = 0;
            for (uint32_t o = 0; o < SLOTS; o++) rank += chosen[o] < chosen[s];
            order[rank] = s;
        }
    }
}

static void compute(block *b)
{
    double x[HIDDEN];
    for (uint32_t entry = 0; entry < b->tokens * SLOTS; entry++) {
        uint32_t t = entry / SLOTS, e = b->chosen[entry];
        double *act = b->act + (size_t)entry * WIDTH;
        for (size_t i = 0; i < HIDDEN; i++) x[i] = b->x[t * HIDDEN + i];
        for (size_t r = 0; r < WIDTH; r++) {
            double gate = row_product(b->gate[e] + r * HIDDEN, x, HIDDEN) + b->gate_bias[e][r];
            act[r] = gate / (1 + exp(-gate)) * row_product(b->up[e] + r * HIDDEN, x, HIDDEN);
        }
        for (size_t r = 0; r < HIDDEN; r++)
            b->want[t * HIDDEN + r] +=
                b->weights[entry] * row_product(b->down[e] + r * WIDTH, act, WIDTH);
    }
    for (size_t i = 0; i < (size_t)b->tokens * HIDDEN; i++)
        b->sum[i] = b->residual[i] + 0.5 * b->want[i];
}

static block make_block(pj_dtype type, uint32_t tokens)
{
    size_t entries = (size_t)tokens * SLOTS;
    block b = {.type = type, .tokens = tokens};
    b.gates = random_experts(type, WIDTH, HIDDEN, b.gate);
    b.gate_biases = random_biases(WIDTH, b.gate_bias);
    b.ups = random_experts(type, WIDTH, HIDDEN, b.up);
    b.downs = random_experts(PJ_F16, HIDDEN, WIDTH, b.down);
    b.x = bench_random_floats((size_t)tokens * HIDDEN, 1);
    b.chosen = bench_memory(entries * 4);
    b.order = bench_memory(entries * 4);
    b.weights = bench_random_floats(entries, 1);
    b.residual = bench_random_floats((size_t)tokens * HIDDEN, 1);
    b.act = bench_memory(entries * WIDTH * sizeof(double));
    b.want = bench_memory((size_t)tokens * HIDDEN * sizeof(double));
    b.sum = bench_memory((size_t)tokens * HIDDEN * sizeof(double));
    choose(&b);
    return b;
}

/* Rows of x as codes and scales, and as what those stand for; sets where they are. */
static void quantise_rows(float *x, size_t rows, size_t cols, uint64_t *codes, uint64_t *scales)
{
    int8_t *code = bench_memory(rows * cols);
    float *scale = bench_memory(rows * cols / 8);
    for (size_t i = 0; i < rows * cols; i += 32) {
        float largest = 0;
        for (size_t j = i; j < i + 32; j++) largest = fmaxf(largest, fabsf(x[j]));
        scale[i / 32] = largest / 127;
        for (size_t j = i; j < i + 32; j++) {
            code[j] = (int8_t)rintf(x[j] / scale[i / 32]);
            x[j] = code[j] * scale[i / 32];
        }
    }
    *codes = bench_input(code, rows * cols);
    *scales = bench_input(scale, rows * cols / 8);
}

static pj_vk_product_experts_args gate_args(const block *b)
{
    return (pj_vk_product_experts_args){
        .y = bench_output((size_t)b->tokens * SLOTS * WIDTH * sizeof(float)),
        .chosen = bench_input(b->chosen, (size_t)b->tokens * SLOTS * 4),
        .w = b->gates,
        .bias = b->gate_biases,
        .up = b->ups,
        .rows = WIDTH,
        .cols = HIDDEN,
        .slots = SLOTS,
        .x_stride = HIDDEN,
        .y_stride = WIDTH};
}

static void check_few(pj_dtype type, uint32_t tokens)
{
    bench_begin();
    block b = make_block(type, tokens);
    size_t entries = (size_t)tokens * SLOTS, hidden_bytes = (size_t)tokens * HIDDEN * sizeof(float);
    pj_vk_product_experts_constants k = {64, type, 16,  2, 1, PJ_VK_EXPERTS_GATE, PJ_VK_GATE_SILU,
                                         0,  0,    0.5f};
    pj_vk_product_experts_args args = gate_args(&b);
    compute(&b);
    args.x = bench_input(b.x, hidden_bytes);
    BENCH_DISPATCH(PJ_VK_PRODUCT_EXPERTS, &k, &args, 3, (uint32_t)entries, 1);
    pj_vk_product_experts_constants down_k = {32, PJ_F16, 16, 1,   1, PJ_VK_EXPERTS_DOWN,
                                              0,  0,      0,  0.5f};
    pj_vk_product_experts_args down = args;
    down.x = args.y;
    down.y = bench_output(hidden_bytes);
    down.weights = bench_input(b.weights, entries * 4);
    down.order = bench_input(b.order, entries * 4);
    down.w = b.downs;
    down.bias = 0;
    down.residual = bench_updated(b.residual, hidden_bytes);
    down.rows = down.y_stride = down.residual_stride = HIDDEN;
    down.cols = down.x_stride = WIDTH;
    BENCH_DISPATCH(PJ_VK_PRODUCT_EXPERTS, &down_k, &down, 32, tokens, 1);
    bench_run();
    bench_assert_rows(bench_result(args.y), WIDTH, b.act, entries, WIDTH, 1e-4);
    bench_assert_rows(bench_result(down.y), HIDDEN, b.want, tokens, HIDDEN, 1e-4);
    bench_assert_rows(bench_result(down.residual), HIDDEN, b.sum, tokens, HIDDEN, 1e-4);
}

static void few_tokens_pass_through_experts(void **state)
{
    check_few(PJ_F16, 1);
    check_few(PJ_MXFP4, 5);
}

static void experts_multiply_integers(void **state)
{
    enum { TOKENS = 3 };
    bench_begin();
    block b = make_block(PJ_Q4_1, TOKENS);
    pj_vk_product_experts_constants k = {32, PJ_Q4_1, 16, 1, 1, PJ_VK_EXPERTS_GATE, PJ_VK_GATE_SILU,
                                         0,  0,       1};
    pj_vk_product_experts_args args = gate_args(&b);
    quantise_rows(b.x, TOKENS, HIDDEN, &args.x, &args.scales);
    compute(&b);
    BENCH_DISPATCH(PJ_VK_PRODUCT_EXPERTS_PACKED, &k, &args, 3, TOKENS * SLOTS, 1);
    bench_run();
    bench_assert_rows(bench_result(args.y), WIDTH, b.act, TOKENS * SLOTS, WIDTH, 1e-4);
}

/* One product of all entries, tile by tile. */
static uint64_t dispatch_tiles(const block *b, pj_dtype type, uint64_t table, uint64_t bias,
                               uint64_t tiles, uint64_t list, uint64_t x, uint32_t rows,
                               uint32_t cols, uint32_t groups)
{
    size_t entries = (size_t)b->tokens * SLOTS;
    pj_vk_product_tiled_constants k = {32, type, 8, 16, 2, 2, PJ_VK_OUTPUT_STORE, 1};
    pj_vk_product_tiled_args args = {.x = x,
                                     .w = table,
                                     .bias = bias,
                                     .y = bench_output(entries * rows * sizeof(float)),
                                     .tiles = tiles,
                                     .list = list,
                                     .rows = rows,
                                     .cols = cols,
                                     .tokens = (uint32_t)entries,
                                     .x_stride = cols,
                                     .y_stride = rows};
    BENCH_DISPATCH(PJ_VK_PRODUCT_TILED, &k, &args, (rows + 15) / 16, groups, 1);
    return args.y;
}

static void check_sorted(const block *b, const pj_vk_sort_args *args)
{
    const uint32_t *list = bench_result(args->list), *places = bench_result(args->places);
    const uint32_t *begins = bench_result(args->begins);
    assert_int_equal(begins[EXPERTS], b->tokens * SLOTS);
    for (uint32_t entry = 0; entry < b->tokens * SLOTS; entry++) {
        uint32_t at = places[entry], e = b->chosen[entry];
        assert_true(at >= begins[e] && at < begins[e + 1]);
        assert_int_equal(list[at], entry / SLOTS);
    }
}

static void check_many(pj_dtype type, uint32_t tokens)
{
    bench_begin();
    block b = make_block(type, tokens);
    compute(&b);
    uint32_t entries = tokens * SLOTS, groups = pj_vk_most_tiles(entries, EXPERTS, 8);
    size_t hidden_bytes = (size_t)tokens * HIDDEN * sizeof(float);
    pj_vk_sort_constants sort_k = {4, EXPERTS};
    pj_vk_sort_args sort = {.chosen = bench_input(b.chosen, entries * 4),
                            .list = bench_output(entries * 4),
                            .places = bench_output(entries * 4),
                            .begins = bench_output((EXPERTS + 1) * 4),
                            .tiles = bench_output((1 + 3 * groups) * 4),
                            .entries = entries,
                            .slots = SLOTS,
                            .tile_entries = 8};
    BENCH_DISPATCH(PJ_VK_SORT, &sort_k, &sort, 1, 1, 1);
    uint64_t x = bench_input(b.x, hidden_bytes);
    uint64_t gate = dispatch_tiles(&b, type, b.gates, b.gate_biases, sort.tiles, sort.list, x,
                                   WIDTH, HIDDEN, groups);
    uint64_t up =
        dispatch_tiles(&b, type, b.ups, 0, sort.tiles, sort.list, x, WIDTH, HIDDEN, groups);
    pj_vk_rows_constants rows_k = {32, PJ_VK_ROWS_GATE, PJ_VK_GATE_SILU};
    pj_vk_rows_args rows = {gate, gate, up, entries, WIDTH, WIDTH, WIDTH, WIDTH, 0, 0, 0};
    BENCH_DISPATCH(PJ_VK_ROWS, &rows_k, &rows, 2, entries, 1);
    uint64_t down =
        dispatch_tiles(&b, PJ_F16, b.downs, 0, sort.tiles, 0, gate, HIDDEN, WIDTH, groups);
    pj_vk_combine_constants combine_k = {32, 0.5f};
    pj_vk_combine_args combine = {.x = down,
                                  .y = bench_output(hidden_bytes),
                                  .residual = bench_updated(b.residual, hidden_bytes),
                                  .places = sort.places,
                                  .weights = bench_input(b.weights, entries * 4),
                                  .order = bench_input(b.order, entries * 4),
                                  .n = HIDDEN,
                                  .slots = SLOTS,
                                  .x_stride = HIDDEN,
                                  .y_stride = HIDDEN,
                                  .residual_stride = HIDDEN};
    BENCH_DISPATCH(PJ_VK_COMBINE, &combine_k, &combine, 2, tokens, 1);
    bench_run();
    check_sorted(&b, &sort);
    bench_assert_rows(bench_result(combine.y), HIDDEN, b.want, tokens, HIDDEN, 1e-4);
    bench_assert_rows(bench_result(combine.residual), HIDDEN, b.sum, tokens, HIDDEN, 1e-4);
}

static void many_tokens_pass_through_experts(void **state)
{
    check_many(PJ_Q4_0, 33);
    check_many(PJ_Q4_0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_chosen),
        cmocka_unit_test(choices_of_broken_scores_are_distinct),
        cmocka_unit_test(inputs_are_weighed),
        cmocka_unit_test(few_tokens_pass_through_experts),
        cmocka_unit_test(experts_multiply_integers),
        cmocka_unit_test(many_tokens_pass_through_experts),
    };
    return bench_main(tests);
}
