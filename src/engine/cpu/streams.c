/* Alternating updates: predictions and corrections of a token's residual streams, in parts that
 * stay in the first-level cache. */
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { PART = 256 };

typedef struct streams_task {
    const pj_cpu *s;
    pj_slice coefficients, streams, x;
    const float *scale;
} streams_task;

static size_t part_of(size_t cols, size_t first)
{
    return cols - first < PART ? cols - first : PART;
}

static void predict_row(void *context, size_t row)
{
    const streams_task *t = context;
    const pj_model_config *c = &t->s->model->config;
    uint32_t count = c->streams.count, cols = t->x.cols;
    const float *coefficients = pj_cpu_row(t->s, t->coefficients, row);
    float *streams = pj_cpu_row(t->s, t->streams, row), before[PJ_MAX_STREAMS][PART];
    for (size_t first = 0; first < cols; first += PART) {
        size_t n = part_of(cols, first);
        for (uint32_t i = 0; i < count; i++)
            memcpy(before[i], streams + i * (size_t)cols + first, n * sizeof(float));
        for (uint32_t j = 0; j < count; j++)
            for (uint32_t i = 0; i < count; i++)
                t->s->kernels->add_scaled(streams + j * (size_t)cols + first, before[i],
                                          coefficients[j * count + i], n);
    }
    memcpy(pj_cpu_row(t->s, t->x, row), streams + c->streams.active * (size_t)cols,
           cols * sizeof(float));
}

void pj_cpu_predict_streams(void *state, pj_slice coefficients, pj_slice streams, pj_slice x)
{
    pj_cpu *s = state;
    streams_task task = {.s = s, .coefficients = coefficients, .streams = streams, .x = x};
    size_t values = (size_t)streams.rows * streams.cols, count = s->model->config.streams.count;
    pj_cpu_done done = pj_cpu_work(s, streams, 2.0 * (double)(count * values),
                                   8.0 * (double)values + 4.0 * x.rows * x.cols);
    pj_instrument_operation(s->instrument, PJ_N_OP_STREAM_MIX);
    pj_cpu_rows_summed(s, streams.rows, count * values, predict_row, &task, &done);
    pj_cpu_operation_end(s, &done);
}

static void correct_row(void *context, size_t row)
{
    const streams_task *t = context;
    const pj_model_config *c = &t->s->model->config;
    uint32_t count = c->streams.count, cols = t->x.cols;
    const float *coefficients = pj_cpu_row(t->s, t->coefficients, row);
    float *streams = pj_cpu_row(t->s, t->streams, row), *x = pj_cpu_row(t->s, t->x, row);
    const float *active = streams + c->streams.active * (size_t)cols;
    for (size_t first = 0; first < cols; first += PART) {
        size_t n = part_of(cols, first);
        float *change = x + first;
        t->s->kernels->add_scaled(change, active + first, -1, n);
        for (uint32_t j = 0; j < count; j++)
            t->s->kernels->add_scaled(streams + j * (size_t)cols + first, change,
                                      1 + coefficients[j], n);
    }
    memcpy(x, active, cols * sizeof *x);
    if (t->scale) t->s->kernels->multiply(x, t->scale, cols);
}

void pj_cpu_correct_streams(void *state, pj_slice coefficients, const float *scale,
                            pj_slice streams, pj_slice x)
{
    pj_cpu *s = state;
    streams_task task = {s, coefficients, streams, x, scale};
    size_t values = (size_t)streams.rows * streams.cols;
    double own = (double)x.rows * x.cols;
    pj_cpu_done done =
        pj_cpu_work(s, streams, 2 * (double)values + 2 * own, 8 * ((double)values + own));
    pj_instrument_operation(s->instrument, PJ_N_OP_STREAM_MIX);
    pj_cpu_rows_summed(s, streams.rows, values, correct_row, &task, &done);
    pj_cpu_operation_end(s, &done);
}

static double mean_square(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sum / (double)n;
}

static void match_row(void *context, size_t row)
{
    const streams_task *t = context;
    static const double least = 1e-5;
    float *x = pj_cpu_row(t->s, t->x, row);
    double wanted = mean_square(pj_cpu_row(t->s, t->streams, row), t->x.cols);
    double own = mean_square(x, t->x.cols);
    t->s->kernels->scale(x, t->x.cols, (float)sqrt(wanted / fmax(own, least)));
}

void pj_cpu_match_magnitude(void *state, pj_slice x, pj_slice like)
{
    pj_cpu *s = state;
    streams_task task = {.s = s, .x = x, .streams = like};
    size_t values = (size_t)x.rows * x.cols;
    pj_cpu_done done = pj_cpu_work(s, x, 5 * (double)values, 12 * (double)values);
    pj_instrument_operation(s->instrument, PJ_N_OP_SCALE);
    pj_cpu_rows_summed(s, x.rows, values, match_row, &task, &done);
    pj_cpu_operation_end(s, &done);
}
