#include "shader_bench.h"

#include "engine/kernels/blocks.h"
#include "engine/vulkan/weights.h"
#include "vulkan_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ARENA_BYTES = 24 << 20,
    GUARD_BYTES = 256,
    POISON = 0xff, /* all ones are a NaN */
    MAX_SPANS = 48,
    MAX_DISPATCHES = 48,
    MAX_BLOCKS = 256
};

typedef struct span {
    size_t begin, bytes;
    bool written;
} span;

typedef struct dispatch {
    const pj_vk_pipeline *pipeline;
    unsigned char push[PJ_VK_PUSH_BYTES];
    uint32_t x, y, z;
} dispatch;

static struct {
    pj_vk *vk;
    pj_vk_buffer arena;
    unsigned char *before, *first, *second;
    size_t used;
    span spans[MAX_SPANS];
    size_t span_count;
    dispatch dispatches[MAX_DISPATCHES];
    size_t dispatch_count;
    void *blocks[MAX_BLOCKS];
    size_t block_count;
    uint64_t random;
} bench;

size_t bench_shift;

/* ---- the device --------------------------------------------------------------------------- */

static void bench_open(void)
{
    pj_error err = {0};
    bench.vk = vulkan_test_vk;
    if (pj_vk_buffer_make(bench.vk, PJ_VK_DEVICE, ARENA_BYTES, "the tests' operands", &bench.arena,
                          &err))
        fail_msg("%s", err.text);
    bench.before = malloc(ARENA_BYTES);
    bench.first = malloc(ARENA_BYTES);
    bench.second = malloc(ARENA_BYTES);
    assert_true(bench.before && bench.first && bench.second);
}

static void free_blocks(void)
{
    while (bench.block_count > 0) free(bench.blocks[--bench.block_count]);
}

static void bench_close(void)
{
    free_blocks();
    free(bench.before);
    free(bench.first);
    free(bench.second);
    pj_vk_buffer_free(bench.vk, &bench.arena);
    pj_vk_close(bench.vk);
}

int bench_run_tests(const char *name, const struct CMUnitTest *tests, size_t count)
{
    if (!vulkan_test_open()) return VULKAN_TEST_SKIPPED;
    bench_open();
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    bench_close();
    return failed;
}

void bench_begin(void)
{
    free_blocks();
    bench.used = bench.span_count = bench.dispatch_count = bench_shift = 0;
    bench.random = 88172645463325252u;
}

/* ---- operands ----------------------------------------------------------------------------- */

static uint64_t add_span(const void *data, size_t bytes, bool written)
{
    size_t begin = bench.used + GUARD_BYTES + bench_shift;
    size_t end = (begin + bytes + GUARD_BYTES + 255) / 256 * 256;
    assert_true(end <= ARENA_BYTES);
    assert_true(bench.span_count < MAX_SPANS);
    memset(bench.before + bench.used, POISON, end - bench.used);
    if (data) memcpy(bench.before + begin, data, bytes);
    bench.spans[bench.span_count++] = (span){begin, bytes, written};
    bench.used = end;
    return bench.arena.address + begin;
}

uint64_t bench_input(const void *data, size_t bytes)
{
    return add_span(data, bytes, false);
}

uint64_t bench_matrix(pj_dtype type, const void *rows, size_t bytes)
{
    const void *book;
    size_t before = pj_vk_weight_book(type, &book);
    if (!before) return bench_input(rows, bytes);
    unsigned char *all = bench_memory(before + bytes);
    memcpy(all, book, before);
    memcpy(all + before, rows, bytes);
    return bench_input(all, before + bytes) + before;
}

uint64_t bench_output(size_t bytes)
{
    return add_span(NULL, bytes, true);
}

uint64_t bench_updated(const void *data, size_t bytes)
{
    return add_span(data, bytes, true);
}

/* ---- running ------------------------------------------------------------------------------ */

void bench_dispatch(pj_vk_kernel kernel, const void *constants, size_t constant_bytes,
                    const void *push, uint32_t x, uint32_t y, uint32_t z)
{
    pj_error err = {0};
    const pj_vk_shader *shader = &pj_vk_kernels[kernel];
    assert_true(bench.dispatch_count < MAX_DISPATCHES);
    dispatch *d = &bench.dispatches[bench.dispatch_count++];
    *d = (dispatch){.x = x, .y = y, .z = z};
    d->pipeline =
        pj_vk_pipeline_get(bench.vk, shader, constants, (uint32_t)(constant_bytes / 4), &err);
    if (!d->pipeline) fail_msg("%s", err.text);
    memcpy(d->push, push, shader->push_bytes);
}

static void run_into(unsigned char *after)
{
    pj_error err = {0};
    assert_int_equal(pj_vk_upload(bench.vk, &bench.arena, 0, bench.before, bench.used, &err),
                     PJ_OK);
    for (size_t i = 0; i < bench.dispatch_count; i++) {
        const dispatch *d = &bench.dispatches[i];
        pj_vk_dispatch(bench.vk, d->pipeline, d->push, d->x, d->y, d->z, 0);
        pj_vk_barrier(bench.vk);
    }
    if (pj_vk_wait(bench.vk, &err)) fail_msg("%s", err.text);
    assert_int_equal(pj_vk_download(bench.vk, &bench.arena, 0, after, bench.used, &err), PJ_OK);
}

/* Whatever lies between outputs is as before. */
static void check_untouched(void)
{
    size_t from = 0;
    for (size_t i = 0; i <= bench.span_count; i++) {
        const span *s = &bench.spans[i];
        if (i < bench.span_count && !s->written) continue;
        size_t to = i < bench.span_count ? s->begin : bench.used;
        for (size_t at = from; at < to; at++)
            if (bench.first[at] != bench.before[at])
                fail_msg(
                    "byte %zu was written, outside of every output; the next one begins at %zu", at,
                    to);
        if (i < bench.span_count) from = s->begin + s->bytes;
    }
}

void bench_run(void)
{
    run_into(bench.first);
    run_into(bench.second);
    check_untouched();
    if (memcmp(bench.first, bench.second, bench.used) != 0)
        fail_msg("a second run gave other bits");
    vulkan_test_check_validation(bench.vk);
    bench.dispatch_count = 0;
    memcpy(bench.before, bench.first, bench.used);
}

const void *bench_result(uint64_t address)
{
    return bench.first + (address - bench.arena.address);
}

/* ---- values ------------------------------------------------------------------------------- */

static uint64_t next_random(void)
{
    bench.random ^= bench.random << 13;
    bench.random ^= bench.random >> 7;
    bench.random ^= bench.random << 17;
    return bench.random;
}

float bench_random(void)
{
    return (float)(next_random() >> 40) / (float)(1 << 23) - 1;
}

uint32_t bench_random_below(uint32_t bound)
{
    return (uint32_t)((next_random() >> 32) % bound);
}

void *bench_memory(size_t bytes)
{
    assert_true(bench.block_count < MAX_BLOCKS);
    void *block = calloc(bytes ? bytes : 1, 1);
    assert_non_null(block);
    return bench.blocks[bench.block_count++] = block;
}

float *bench_random_floats(size_t count, float scale)
{
    float *x = bench_memory(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = scale * bench_random();
    return x;
}

/* Offsets of a block's f16 scales, -1: none. */
static void scale_offsets(pj_dtype type, int offsets[2])
{
    offsets[0] = type == PJ_MXFP4 || type == PJ_NVFP4 || type == PJ_IQ1_M ? -1
                 : type == PJ_Q6_K                                        ? 208
                 : type == PJ_Q2_K                                        ? 80
                 : type == PJ_Q3_K                                        ? 108
                 : type == PJ_TQ1_0                                       ? 52
                 : type == PJ_TQ2_0                                       ? 64
                                                                          : 0;
    offsets[1] = type == PJ_Q2_K                                                            ? 82
                 : type == PJ_Q4_1 || type == PJ_Q5_1 || type == PJ_Q4_K || type == PJ_Q5_K ? 2
                                                                                            : -1;
}

static void random_block(pj_dtype type, size_t bytes, unsigned char *block)
{
    int offsets[2];
    for (size_t i = 0; i < bytes; i++) block[i] = (unsigned char)bench_random_below(256);
    scale_offsets(type, offsets);
    for (int i = 0; i < 2; i++) {
        uint16_t scale = pj_f16_of_float(0.01f * bench_random());
        if (offsets[i] >= 0) memcpy(block + offsets[i], &scale, sizeof scale);
    }
    if (type == PJ_MXFP4) block[0] = (unsigned char)(118 + bench_random_below(8));
    for (int i = 0; i < 4 && type == PJ_NVFP4; i++) block[i] &= 0x3f;
    uint16_t spread = pj_f16_of_float(0.01f * bench_random());
    for (int i = 0; i < 4 && type == PJ_IQ1_M; i++)
        block[49 + 2 * i] = (unsigned char)((block[49 + 2 * i] & 15) | (spread >> 4 * i & 15) << 4);
}

unsigned char *bench_random_weights(pj_dtype type, size_t rows, size_t cols)
{
    const pj_dtype_info *info = pj_dtype_get(type);
    size_t blocks = rows * (cols / info->block_values);
    unsigned char *stored = bench_memory(blocks * info->block_bytes);
    for (size_t i = 0; i < blocks; i++) {
        unsigned char *block = stored + i * info->block_bytes;
        if (type <= PJ_BF16) {
            float value = bench_random();
            pj_blocks_quantise(type, &value, block, 1);
        } else {
            random_block(type, info->block_bytes, block);
        }
    }
    return stored;
}

double *bench_dequantised(pj_dtype type, const unsigned char *stored, size_t rows, size_t cols)
{
    float *row = bench_memory(cols * sizeof *row);
    double *values = bench_memory(rows * cols * sizeof *values);
    for (size_t r = 0; r < rows; r++) {
        pj_blocks_dequantise(type, stored + r * pj_dtype_row_bytes(type, cols), row, cols);
        for (size_t i = 0; i < cols; i++) values[r * cols + i] = row[i];
    }
    return values;
}

void bench_assert_rows(const float *got, size_t got_stride, const double *want, size_t rows,
                       size_t cols, double tolerance)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i++) {
            double g = got[r * got_stride + i], w = want[r * cols + i];
            if (!(fabs(g - w) <= tolerance * (1 + fabs(w))))
                fail_msg("row %zu, column %zu: %.9g, not %.9g", r, i, g, w);
        }
}
