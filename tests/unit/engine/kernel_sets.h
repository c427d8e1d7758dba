/* Shared by the kernel tests: the kernel sets that this machine can run, and random numbers. */
#ifndef PJ_TESTS_UNIT_KERNEL_SETS_H
#define PJ_TESTS_UNIT_KERNEL_SETS_H

#include "base/memory.h"
#include "base/random.h"
#include "engine/kernels/half.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/tile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

extern pj_random rng;

void kernel_sets_begin(void);
size_t kernel_set_count(void);
const char *kernel_set_name(size_t i);
const pj_kernels *set_at(size_t i); /* NULL beyond the last */

float uniform(float low, float high);
size_t up_to(size_t n);                             /* 0 .. n - 1 */
float *random_row(size_t n, float low, float high); /* test_free */
void check(const char *set, const char *what, size_t i, double got, double want, double slack);
void check_row(const char *set, const char *what, const float *got, const double *want, size_t n,
               double relative, double absolute);

/* Each test runs on each set. */
#define FOR_SETS(k)                          \
    for (size_t set_ = 0; set_ < 16; set_++) \
        for (const pj_kernels *k = set_at(set_); k; k = NULL)

int test_kernel_weights(void);  /* test_kernel_weights.c */
int test_kernel_rows(void);     /* test_kernel_rows.c */
int test_kernel_products(void); /* test_kernel_products.c */
int time_products(void);

#endif
