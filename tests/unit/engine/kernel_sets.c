#include "kernel_sets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *names[16];
static size_t name_count;
pj_random rng;

float uniform(float low, float high)
{
    return low + (high - low) * (float)pj_random_unit(&rng);
}

size_t up_to(size_t n)
{
    return (size_t)(pj_random_unit(&rng) * (double)n) % n;
}

float *random_row(size_t n, float low, float high)
{
    float *row = test_malloc(n * sizeof *row + 64);
    for (size_t i = 0; i < n; i++) row[i] = uniform(low, high);
    return row;
}

void check(const char *set, const char *what, size_t i, double got, double want, double slack)
{
    if (got != want && !(fabs(got - want) <= slack) && !(isnan(got) && isnan(want)))
        fail_msg("%s %s [%zu]: %.9g, expected %.9g within %.3g", set, what, i, got, want, slack);
}

void check_row(const char *set, const char *what, const float *got, const double *want, size_t n,
               double relative, double absolute)
{
    for (size_t i = 0; i < n; i++)
        check(set, what, i, (double)got[i], want[i], absolute + relative * fabs(want[i]));
}

#ifdef PJ_AMX_MODEL
/* The AMX kernels over an emulation of the tile instructions, on top of this machine's other
 * sets. */
void pj_kernels_amx_model_apply(pj_kernels *kernels);
static pj_kernels model;

const pj_kernels *set_at(size_t i)
{
    if (i > 0) return NULL;
    model = *pj_kernels_find("avx2,avx512,vnni,vbmi,bf16");
    pj_kernels_amx_model_apply(&model);
    model.name = "amx model";
    return &model;
}
#else
const pj_kernels *set_at(size_t i)
{
    return i < name_count ? pj_kernels_find(names[i]) : NULL;
}
#endif

void kernel_sets_begin(void)
{
    name_count = pj_kernels_list(names, 16);
    rng.state = 20260801;
}

size_t kernel_set_count(void)
{
    return name_count;
}

const char *kernel_set_name(size_t i)
{
    return names[i];
}
