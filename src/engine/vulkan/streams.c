/* Alternating updates (engine/model/streams.h). */
#include "engine/vulkan/gpu.h"

enum { STREAMS_THREADS = 128, STREAMS_MOST_ROWS = 65535 };

static uint32_t streams_rows(uint32_t rows)
{
    return rows < STREAMS_MOST_ROWS ? rows : STREAMS_MOST_ROWS;
}

static void streams_mix(pj_gpu *s, bool correct, pj_slice coefficients, const float *scale,
                        pj_slice streams, pj_slice x)
{
    const pj_model_config *c = &s->model->config;
    pj_vk_streams_constants constants = {STREAMS_THREADS, c->streams.count, c->streams.active,
                                         correct};
    pj_vk_streams_args args = {.coefficients = pj_gpu_at(s, coefficients),
                               .streams = pj_gpu_at(s, streams),
                               .x = pj_gpu_at(s, x),
                               .scale = pj_gpu_weight(&s->on->weights, scale),
                               .rows = x.rows,
                               .n = x.cols,
                               .coefficients_stride = coefficients.stride,
                               .streams_stride = streams.stride,
                               .x_stride = x.stride};
    double values = (double)streams.rows * streams.cols, own = (double)x.rows * x.cols;
    uint32_t both = pj_gpu_bit(streams) | pj_gpu_bit(x);
    pj_gpu_operation(s, PJ_N_OP_STREAM_MIX);
    pj_gpu_touch(s, pj_gpu_bit(coefficients) | both, both);
    PJ_GPU_RUN(s, PJ_VK_STREAMS, &constants, &args, pj_gpu_groups(x.cols, STREAMS_THREADS),
               streams_rows(x.rows), 8ull * streams.rows * streams.cols);
    pj_gpu_operation_end(s, correct ? 2 * (values + own) : 2 * c->streams.count * values,
                         8 * values + (correct ? 8 : 4) * own, streams);
}

void pj_gpu_predict_streams(void *state, pj_slice coefficients, pj_slice streams, pj_slice x)
{
    streams_mix(state, false, coefficients, NULL, streams, x);
}

void pj_gpu_correct_streams(void *state, pj_slice coefficients, const float *scale,
                            pj_slice streams, pj_slice x)
{
    streams_mix(state, true, coefficients, scale, streams, x);
}

void pj_gpu_match_magnitude(void *state, pj_slice x, pj_slice like)
{
    pj_gpu *s = state;
    pj_vk_threads_constants constants = {STREAMS_THREADS};
    pj_vk_match_args args = {.x = pj_gpu_at(s, x),
                             .like = pj_gpu_at(s, like),
                             .rows = x.rows,
                             .n = x.cols,
                             .x_stride = x.stride,
                             .like_stride = like.stride};
    double values = (double)x.rows * x.cols;
    pj_gpu_operation(s, PJ_N_OP_SCALE);
    pj_gpu_touch(s, pj_gpu_bit(x) | pj_gpu_bit(like), pj_gpu_bit(x));
    PJ_GPU_RUN(s, PJ_VK_MATCH, &constants, &args, streams_rows(x.rows), 1, 12ull * x.rows * x.cols);
    pj_gpu_operation_end(s, 5 * values, 12 * values, x);
}
