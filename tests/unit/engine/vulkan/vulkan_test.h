/* A device for tests: the first usable one, a software driver on most machines, with the validation
 * layer and synchronisation validation where they are installed. Without a driver a test is skipped
 * and says why. A message of the validation layer fails the group. */
#ifndef PJ_TESTS_VULKAN_TEST_H
#define PJ_TESTS_VULKAN_TEST_H

#include "engine/vulkan/vk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { VULKAN_TEST_SKIPPED = 77 };

static const pj_vk_options vulkan_test_options = {.validate = true, .cache_dir = ""};
static pj_vk *vulkan_test_vk;

/* Drivers leave memory to the end of the process, and are unloaded before leaks are looked for. */
int __lsan_is_turned_off(void);
__attribute__((used, visibility("default"))) int __lsan_is_turned_off(void)
{
    return 1;
}

static inline void vulkan_test_check_validation(const pj_vk *vk)
{
    const char *last;
    if (pj_vk_validation_messages(vk, &last)) fail_msg("the validation layer says: %s", last);
}

static inline int vulkan_test_setup(void **state)
{
    *state = vulkan_test_vk;
    return 0;
}

/* After each test, so that the test is named. */
static inline int vulkan_test_teardown(void **state)
{
    vulkan_test_check_validation(vulkan_test_vk);
    return 0;
}

#define vulkan_test(f) cmocka_unit_test_setup_teardown(f, vulkan_test_setup, vulkan_test_teardown)

/* False where there is no device: main returns VULKAN_TEST_SKIPPED. */
static inline bool vulkan_test_open(void)
{
    pj_error err = {0};
    if (pj_vk_open(&vulkan_test_vk, &vulkan_test_options, &err) != PJ_OK) {
        printf("skipped: %s\n", err.text);
        return false;
    }
    if (!pj_vk_is_validated(vulkan_test_vk)) printf("note: there is no validation layer\n");
    return true;
}

#endif
