/* What the device can do at most, measured on it: multiplications from registers, reads of the
 * model's weights, and which kernel multiplies many rows faster. */
#include "engine/vulkan/gpu.h"

#include <math.h>

enum { LIMITS_THREADS = 256, LIMITS_GROUPS = 4096 };

/* One dispatch, timed by the device's clock. NAN: it has none, or failed. */
static double limits_time(pj_vk *vk, pj_vk_kernel kernel, const void *constants, uint32_t count,
                          const void *args, uint32_t x, uint32_t y)
{
    int64_t times[2];
    const pj_vk_pipeline *p =
        pj_vk_pipeline_get(vk, &pj_vk_kernels[kernel], constants, count, NULL);
    if (!p) return NAN;
    pj_vk_stamps_clear(vk);
    pj_vk_barrier(vk);
    pj_vk_stamp(vk);
    pj_vk_dispatch(vk, p, args, x, y, 1, 0);
    pj_vk_barrier(vk);
    pj_vk_stamp(vk);
    if (pj_vk_wait(vk, NULL) != PJ_OK || pj_vk_stamps(vk) != 2) return NAN;
    if (pj_vk_stamps_read(vk, 0, 2, times, NULL) != PJ_OK) return NAN;
    pj_vk_stamps_clear(vk);
    return (double)(times[1] - times[0]) / 1e9;
}

static bool limits_open(const pj_gpu_model *m, uint64_t bytes, pj_vk_buffer *memory)
{
    return pj_vk_clock_update(m->vk, 0, NULL) == PJ_OK &&
           pj_vk_buffer_make(m->vk, PJ_VK_DEVICE, bytes, "a measurement", memory, NULL) == PJ_OK;
}

/* ---- multiplications ---- */

/* More and more rounds, until they take long enough. */
static double limits_find_peak(const pj_gpu_model *m, bool matrices, double least_s, uint64_t sink)
{
    uint32_t subgroup = pj_vk_device(m->vk)->subgroup_size;
    pj_vk_peak_constants constants = {matrices ? 4 * subgroup : LIMITS_THREADS, subgroup};
    pj_vk_peak_args args = {.sink = sink, .rounds = 4, .factor = 0.5f, .summand = 0.25f};
    double each = matrices ? 4 * 4 * 8192.0 : 16.0 * LIMITS_THREADS;
    for (;;) {
        double took =
            limits_time(m->vk, matrices ? PJ_VK_PEAK_MATRIX : PJ_VK_PEAK,
                        (const uint32_t *)&constants, matrices ? 2 : 1, &args, LIMITS_GROUPS, 1);
        if (isnan(took) || took <= 0) return NAN;
        if (took >= least_s || args.rounds > UINT32_MAX / 8)
            return each * LIMITS_GROUPS * args.rounds / took;
        args.rounds *= took < least_s / 8 ? 8 : 2;
    }
}

double pj_gpu_peak(void *loaded, int64_t duration_ns)
{
    const pj_gpu_model *m = loaded;
    pj_vk_buffer sink = {0};
    if (!limits_open(m, sizeof(float), &sink)) return NAN;
    bool matrices = m->many == PJ_VK_PRODUCT_MATRIX;
    double peak = limits_find_peak(m, matrices, (double)duration_ns / 2e9, sink.address);
    pj_vk_buffer_free(m->vk, &sink);
    return peak;
}

/* ---- reads ---- */

double pj_gpu_read_pass(void *loaded, unsigned streams, uint64_t max_bytes)
{
    const pj_gpu_model *m = loaded;
    pj_vk_buffer sink = {0};
    pj_vk_read_constants constants = {LIMITS_THREADS, streams, false};
    double seconds = 0;
    uint64_t read = 0;
    if (m->weights.bytes < PJ_LEAST_READ_BYTES || max_bytes < PJ_LEAST_READ_BYTES ||
        !limits_open(m, sizeof(float), &sink))
        return NAN;
    for (size_t i = 0; i < m->weights.chunk_count && read < max_bytes; i++) {
        const pj_vk_buffer *chunk = &m->weights.chunks[i];
        uint64_t bytes = chunk->bytes < max_bytes - read ? chunk->bytes : max_bytes - read;
        pj_vk_read_args args = {chunk->address, sink.address, bytes / 16};
        seconds += limits_time(m->vk, PJ_VK_READ, (const uint32_t *)&constants, 3, &args,
                               LIMITS_GROUPS, 1);
        read += bytes;
    }
    pj_vk_buffer_free(m->vk, &sink);
    return (double)read / seconds;
}

/* ---- copies ---- */

enum { LIMITS_COPY_STREAMS = 4, LIMITS_COPY_ROUNDS = 3, LIMITS_COPY_GROWTH = 4 };

/* The fastest copy from one half of so many bytes to the other. */
static double limits_time_copy(const pj_gpu_model *m, const pj_vk_buffer *memory, uint64_t bytes)
{
    pj_vk_read_constants constants = {LIMITS_THREADS, LIMITS_COPY_STREAMS, true};
    pj_vk_read_args args = {memory->address, memory->address + bytes / 2, bytes / 32};
    double best = INFINITY;
    for (int i = 0; i < LIMITS_COPY_ROUNDS; i++) {
        double took = limits_time(m->vk, PJ_VK_READ, (const uint32_t *)&constants, 3, &args,
                                  LIMITS_GROUPS, 1);
        if (!(took > 0)) return NAN;
        best = fmin(best, took);
    }
    return best;
}

/* More and more bytes, until no cache holds them or no cache can be what limits so slow a device.
 */
double pj_gpu_copy_speed(const pj_gpu_model *m)
{
    const double slow_s = 0.02;
    uint64_t bytes = 8 << 20, most = 512 << 20, least = 2ull * PJ_LEAST_READ_BYTES;
    pj_vk_buffer memory = {0};
    while (most > pj_vk_memory_free(m->vk) / 2) most /= 2;
    if (most < bytes || !limits_open(m, most, &memory)) return NAN;
    double took = limits_time_copy(m, &memory, bytes);
    while (took < slow_s && bytes * LIMITS_COPY_GROWTH <= most) {
        bytes *= LIMITS_COPY_GROWTH;
        took = limits_time_copy(m, &memory, bytes);
    }
    pj_vk_buffer_free(m->vk, &memory);
    return bytes < least && took < slow_s ? NAN : (double)bytes / took;
}

/* ---- which kernel multiplies many rows ---- */

enum { LIMITS_TOKENS = 128, LIMITS_EDGE = 1024 };

/* The second of two products of F16 weights, whose values do not matter. */
static double limits_time_product(const pj_gpu_model *m, pj_vk_kernel kernel,
                                  const pj_vk_buffer *memory)
{
    pj_vk_product_tiled_args args = {.x = memory->address,
                                     .w = memory->address,
                                     .y = memory->address + 4 * LIMITS_TOKENS * LIMITS_EDGE,
                                     .rows = LIMITS_EDGE,
                                     .cols = LIMITS_EDGE,
                                     .tokens = LIMITS_TOKENS,
                                     .x_stride = LIMITS_EDGE,
                                     .y_stride = LIMITS_EDGE};
    pj_gpu_many_plan plan = pj_gpu_plan_many(m, kernel, PJ_F16, LIMITS_TOKENS, false, 1);
    double took = NAN;
    for (int i = 0; i < 2; i++)
        took = limits_time(m->vk, kernel, plan.constants, plan.constant_count, &args,
                           pj_gpu_groups(LIMITS_EDGE, plan.tile_rows),
                           pj_gpu_groups(LIMITS_TOKENS, plan.tile_tokens));
    return took;
}

/* Some drivers offer matrices that their hardware does not have. */
bool pj_gpu_matrices_are_real(const pj_gpu_model *m)
{
    pj_vk_buffer memory = {0};
    if (!limits_open(m, 8ull * LIMITS_TOKENS * LIMITS_EDGE + 2ull * LIMITS_EDGE * LIMITS_EDGE,
                     &memory))
        return false;
    pj_vk_fill(m->vk, &memory, 0, memory.bytes / 4 * 4, 0);
    double tiled = limits_time_product(m, PJ_VK_PRODUCT_TILED, &memory);
    double matrices = limits_time_product(m, PJ_VK_PRODUCT_MATRIX, &memory);
    pj_vk_buffer_free(m->vk, &memory);
    return matrices < tiled;
}
