/* Runs kernels on a device and checks what all of them must keep: memory around and between their
 * operands, and operands that they only read, stay as they were; a second run gives the same bits;
 * the validation layer says nothing. Without a Vulkan driver the tests are
 * skipped. */
#ifndef PJ_TESTS_SHADER_BENCH_H
#define PJ_TESTS_SHADER_BENCH_H

#include "engine/vulkan/shaders.h"
#include "engine/vulkan/vk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs a group of tests on the first device, or gives the exit code of a skipped test. */
#define bench_main(tests) bench_run_tests(#tests, tests, sizeof tests / sizeof *tests)
int bench_run_tests(const char *name, const struct CMUnitTest *tests, size_t count);
/* Begins a case: forgets all operands and dispatches. */
void bench_begin(void);

/* Operands. Addresses are multiples of 256, plus `shift` bytes where that is set. */
uint64_t bench_input(const void *data, size_t bytes);
/* After its codebook, where the type has one. */
uint64_t bench_matrix(pj_dtype type, const void *rows, size_t bytes);
uint64_t bench_output(size_t bytes);                    /* poisoned: NaN as floats */
uint64_t bench_updated(const void *data, size_t bytes); /* read and written */
extern size_t bench_shift;

/* Constants are the kernel's struct of them, push constants that of its arguments. Each dispatch
 * waits for the one before. */
void bench_dispatch(pj_vk_kernel kernel, const void *constants, size_t constant_bytes,
                    const void *push, uint32_t x, uint32_t y, uint32_t z);
#define BENCH_DISPATCH(kernel, constants, push, x, y, z) \
    bench_dispatch(kernel, constants, sizeof *(constants), push, x, y, z)

/* Runs everything twice and checks; results of an output are valid until the next bench_begin. */
void bench_run(void);
const void *bench_result(uint64_t address);

/* Reproducible values: uniform in [-1, 1), bytes, below a bound. */
float bench_random(void);
uint32_t bench_random_below(uint32_t bound);
float *bench_random_floats(size_t count, float scale); /* freed by bench_begin */
void *bench_memory(size_t bytes);                      /* zeroed; freed by bench_begin */
/* A matrix of stored weights with sane scales. */
unsigned char *bench_random_weights(pj_dtype type, size_t rows, size_t cols);
/* Its values as doubles, by the engine's plain C. */
double *bench_dequantised(pj_dtype type, const unsigned char *stored, size_t rows, size_t cols);

/* got[i * got_stride + j] against want[i * cols + j]; `scale` is that of the sum that was formed.
 */
void bench_assert_rows(const float *got, size_t got_stride, const double *want, size_t rows,
                       size_t cols, double tolerance);

#endif
