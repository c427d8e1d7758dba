/*
 * Every kernel set that this machine can run against double-precision references defined here:
 * random shapes, odd sizes, unaligned rows. `test_kernels --time` times the same functions instead.
 */
#include "kernel_sets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_masks(void **state)
{
    assert_null(pj_kernels_find("sse9"));
    assert_string_equal(pj_kernels_find("c")->name, "c");
    assert_string_equal(pj_kernels_find(NULL)->name, kernel_set_name(kernel_set_count() - 1));
    for (size_t i = 0; i < kernel_set_count(); i++)
        assert_string_equal(pj_kernels_find(kernel_set_name(i))->name, kernel_set_name(i));
}

int main(int argc, char **argv)
{
    kernel_sets_begin();
    if (argc > 1 && strcmp(argv[1], "--time") == 0) return time_products();
#ifdef PJ_AMX_MODEL
    if (set_at(0)->forms[PJ_FORM_Q8]->group != 4 || set_at(0)->forms[PJ_FORM_BF16]->group != 2) {
        puts("skipped: the emulation needs AVX-512 with VNNI and BF16");
        return 77;
    }
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += test_kernel_weights();
    failed += test_kernel_rows();
    return failed + test_kernel_products();
}
