/* The layers of the gated delta rule: convolution and rule, over segments of several sequences. */
#include "shader_bench.h"

#include <math.h>
#include <string.h>

/* Rows 1, 2 and 3 to 7; sequence 1 has none. */
static const pj_vk_segment segments[] = {{0, 1, 2}, {1, 7, 0}};
enum { SEGMENTS = 2, ROWS = 8, SEQUENCES = 3 };

/* ---- convolution -------------------------------------------------------------------------- */

/* `plain`: with a bias, and without silu. */
static void check_convolution(uint32_t kernel, uint32_t channels, bool plain)
{
    bench_begin();
    size_t stride = channels + 5, kept = (size_t)(kernel - 1) * channels, sequence = kept + 7;
    float *x = bench_random_floats(ROWS * stride, 1),
          *w = bench_random_floats((size_t)kernel * channels, 1);
    float *state = bench_random_floats(SEQUENCES * sequence, 1);
    float *bias = bench_random_floats(channels, 1);
    pj_vk_convolve_args args = {.x = bench_input(x, ROWS * stride * sizeof *x),
                                .y = bench_output(ROWS * stride * sizeof *x),
                                .weights = bench_input(w, (size_t)kernel * channels * sizeof *w),
                                .bias = plain ? bench_input(bias, channels * sizeof *bias) : 0,
                                .state = bench_updated(state, SEQUENCES * sequence * sizeof *x),
                                .sequence_bytes = sequence * sizeof *x,
                                .segments = bench_input(segments, sizeof segments),
                                .channels = channels,
                                .x_stride = (uint32_t)stride,
                                .y_stride = (uint32_t)stride};
    pj_vk_convolve_constants k = {32, kernel, plain};
    BENCH_DISPATCH(PJ_VK_CONVOLVE, &k, &args, (channels + 31) / 32, SEGMENTS, 1);
    bench_run();
    const float *y = bench_result(args.y);
    double *want = bench_memory(channels * sizeof *want);
    for (int s = 0; s < SEGMENTS; s++) {
        float *last = state + segments[s].sequence * sequence;
        for (uint32_t row = segments[s].row; row < segments[s].row + segments[s].count; row++) {
            for (uint32_t c = 0; c < channels; c++) {
                double sum = (double)w[(kernel - 1) * channels + c] * x[row * stride + c];
                for (uint32_t j = 0; j + 1 < kernel; j++)
                    sum += (double)w[j * channels + c] * last[j * channels + c];
                want[c] = plain ? sum + bias[c] : sum / (1 + exp(-sum));
            }
            bench_assert_rows(y + row * stride, stride, want, 1, channels, 1e-6);
            memmove(last, last + channels, (kernel > 2 ? kept - channels : 0) * sizeof *last);
            if (kernel > 1)
                memcpy(last + kept - channels, x + row * stride, channels * sizeof *last);
        }
    }
    assert_memory_equal(bench_result(args.state), state, SEQUENCES * sequence * sizeof *state);
}

static void channels_are_convolved(void **state)
{
    check_convolution(4, 65, false);
    check_convolution(1, 3, false);
    check_convolution(2, 257, false);
    check_convolution(3, 40, true);
}

/* ---- the rule ----------------------------------------------------------------------------- */

typedef struct rule {
    uint32_t key_heads, value_heads, key_dim, value_dim, threads, parts;
    bool tiled, scan;
    float least, most; /* bounds of a scan's steps; 0: none */
} rule;

typedef struct rule_data {
    size_t qkv_stride, y_stride, sequence; /* in floats */
    float *qkv, *strength, *rate, *bias, *skip, *state;
    double *matrices; /* the state, as it should be afterwards */
} rule_data;

static void unit_vector(const float *x, size_t n, double scale, double *y)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) square += (double)x[i] * x[i];
    for (size_t i = 0; i < n; i++) y[i] = x[i] * scale / sqrt(square + 1e-6);
}

/* One row of one value head, as engine/model/delta.h defines it. */
static void run_row(const rule *r, const rule_data *d, uint32_t head, size_t row, double *s,
                    double *y)
{
    double q[64], k[64];
    uint32_t key_head = r->tiled ? head % r->key_heads : head / (r->value_heads / r->key_heads);
    const float *from = d->qkv + row * d->qkv_stride,
                *gates = d->strength + row * 2 * r->value_heads;
    unit_vector(from + key_head * r->key_dim, r->key_dim, 1 / sqrt(r->key_dim), q);
    unit_vector(from + (r->key_heads + key_head) * r->key_dim, r->key_dim, 1, k);
    double beta = 1 / (1 + exp(-gates[head]));
    double decay = exp(-d->rate[head] * log1p(exp(gates[r->value_heads + head] + d->bias[head])));
    for (uint32_t j = 0; j < r->value_dim; j++) {
        double v = from[2 * r->key_heads * r->key_dim + head * r->value_dim + j], held = 0;
        for (uint32_t i = 0; i < r->key_dim; i++) held += (s[i * r->value_dim + j] *= decay) * k[i];
        y[j] = 0;
        for (uint32_t i = 0; i < r->key_dim; i++)
            y[j] += (s[i * r->value_dim + j] += k[i] * beta * (v - held)) * q[i];
    }
}

/* The same of a scan: x, B and C. */
static void scan_row(const rule *r, const rule_data *d, uint32_t head, size_t row, double *s,
                     double *y)
{
    const float *x = d->qkv + row * d->qkv_stride + head * r->value_dim;
    const float *b = d->qkv + row * d->qkv_stride + r->value_heads * r->value_dim +
                     head / (r->value_heads / r->key_heads) * r->key_dim;
    const float *c = b + r->key_heads * r->key_dim;
    const float *gates = d->strength + row * 2 * r->value_heads;
    double step = log1p(exp(gates[r->value_heads + head] + d->bias[head]));
    if (r->most > 0) step = fmin(fmax(step, r->least), r->most);
    for (uint32_t j = 0; j < r->value_dim; j++) {
        y[j] = (double)d->skip[head] * x[j];
        for (uint32_t i = 0; i < r->key_dim; i++) {
            double *cell = &s[i * r->value_dim + j];
            *cell = exp(-d->rate[head] * step) * *cell + step * b[i] * x[j];
            y[j] += c[i] * *cell;
        }
    }
}

static rule_data make_rule(const rule *r)
{
    size_t channels = 2 * r->key_heads * r->key_dim + r->value_heads * r->value_dim;
    rule_data d = {.qkv_stride = channels + 1, .y_stride = r->value_heads * r->value_dim + 2};
    d.sequence = (size_t)r->value_heads * r->key_dim * r->value_dim + 3;
    d.qkv = bench_random_floats(ROWS * d.qkv_stride, 1);
    d.strength = bench_random_floats(ROWS * 2 * r->value_heads, 2);
    d.rate = bench_random_floats(r->value_heads, 1);
    d.bias = bench_random_floats(r->value_heads, 1);
    d.skip = bench_random_floats(r->value_heads, 1);
    d.state = bench_random_floats(SEQUENCES * d.sequence, 1);
    d.matrices = bench_memory(SEQUENCES * d.sequence * sizeof(double));
    for (size_t i = 0; i < r->value_heads; i++) d.rate[i] = fabsf(d.rate[i]);
    for (size_t i = 0; i < SEQUENCES * d.sequence; i++) d.matrices[i] = d.state[i];
    return d;
}

static void check_rule(rule r)
{
    bench_begin();
    rule_data d = make_rule(&r);
    pj_vk_delta_rule_args args = {
        .qkv = bench_input(d.qkv, ROWS * d.qkv_stride * sizeof(float)),
        .strength = bench_input(d.strength, ROWS * 2 * r.value_heads * sizeof(float)),
        .y = bench_output(ROWS * d.y_stride * sizeof(float)),
        .rate = bench_input(d.rate, r.value_heads * sizeof(float)),
        .bias = bench_input(d.bias, r.value_heads * sizeof(float)),
        .state = bench_updated(d.state, SEQUENCES * d.sequence * sizeof(float)),
        .sequence_bytes = d.sequence * sizeof(float),
        .segments = bench_input(segments, sizeof segments),
        .skip = bench_input(d.skip, r.value_heads * sizeof(float)),
        .key_heads = r.key_heads,
        .value_heads = r.value_heads,
        .value_dim = r.value_dim,
        .qkv_stride = (uint32_t)d.qkv_stride,
        .strength_stride = 2 * r.value_heads,
        .y_stride = (uint32_t)d.y_stride,
        .least_step = r.least,
        .most_step = r.most > 0 ? r.most : INFINITY};
    pj_vk_delta_rule_constants k = {r.threads, r.key_dim, r.parts, r.tiled, r.scan};
    uint32_t columns = r.threads / r.parts;
    BENCH_DISPATCH(PJ_VK_DELTA_RULE, &k, &args, (r.value_dim + columns - 1) / columns,
                   r.value_heads, SEGMENTS);
    bench_run();
    const float *y = bench_result(args.y);
    for (int s = 0; s < SEGMENTS; s++)
        for (uint32_t head = 0; head < r.value_heads; head++)
            for (uint32_t row = segments[s].row; row < segments[s].row + segments[s].count; row++) {
                double want[64], *matrix = d.matrices + segments[s].sequence * d.sequence +
                                           (size_t)head * r.key_dim * r.value_dim;
                (r.scan ? scan_row : run_row)(&r, &d, head, row, matrix, want);
                bench_assert_rows(y + row * d.y_stride + head * r.value_dim, 0, want, 1,
                                  r.value_dim, 1e-5);
            }
    bench_assert_rows(bench_result(args.state), d.sequence, d.matrices, SEQUENCES, d.sequence,
                      1e-5);
}

static void the_delta_rule_is_followed(void **state)
{
    check_rule((rule){2, 4, 32, 24, 64, 4, false});
    check_rule((rule){2, 4, 31, 33, 32, 2, true});
    check_rule((rule){1, 1, 3, 1, 16, 1, false});
}

static void states_are_scanned(void **state)
{
    check_rule((rule){2, 4, 32, 24, 64, 4, false, true});
    check_rule((rule){1, 3, 31, 33, 32, 2, false, true, 0.5f, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_are_convolved),
        cmocka_unit_test(the_delta_rule_is_followed),
        cmocka_unit_test(states_are_scanned),
    };
    return bench_main(tests);
}
