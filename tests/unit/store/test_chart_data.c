/* Data of charts come back whole and in parts, deflated or not; what is damaged gives nothing. */
#include "../assertions.h"

#include "base/random.h"
#include "store/chart_data.h"
#include "store/store_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const pj_dialect packing = {.packs_since = 1}, plain = {.packs_since = 0};
static const size_t sizes[] = {0, 1, 100, 65535, 65536, 65537, 131072, 400001};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Which deflate to about half. */
static char *made_bytes(size_t count)
{
    pj_random random = {count + 1};
    char *bytes = malloc(count + 1);
    for (size_t i = 0; i < count; i++) bytes[i] = (char)(16 * pj_random_unit(&random));
    return bytes;
}

static void check_parts(const pj_store *store, const pj_value *stored, const char *bytes,
                        size_t count)
{
    pj_random random = {7};
    const pj_chart_data data = pj_chart_data_of(store, stored->text, stored->bytes);
    assert_int_equal(data.bytes, count);
    for (int i = 0; i < 50; i++) {
        size_t from = i ? (size_t)(pj_random_unit(&random) * (double)count) : 0;
        size_t length = i ? (size_t)(pj_random_unit(&random) * (double)(count - from)) : count;
        pj_arena arena;
        pj_arena_init(&arena, 0);
        const char *part = pj_chart_data_part(&data, from, length, &arena);
        assert_non_null(part);
        assert_memory_equal(part, bytes + from, length);
        assert_null(pj_chart_data_part(&data, from, count - from + 1, &arena));
        pj_arena_fini(&arena);
    }
}

static void bytes_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const pj_store_driver driver = {.dialect = i % 2 ? &packing : &plain};
        const pj_store store = {.driver = &driver};
        size_t count = sizes[i / 2];
        char *bytes = made_bytes(count);
        pj_buffer deflated;
        pj_buffer_init(&deflated, 1 << 24);
        const pj_value stored = pj_chart_data_value(&store, bytes, count, &deflated);
        if (i % 2 == 0) assert_ptr_equal(stored.text, bytes);
        if (i % 2 && count > 1000) assert_that(stored.bytes, <, count * 2 / 3);
        check_parts(&store, &stored, bytes, count);
        pj_buffer_fini(&deflated);
        free(bytes);
    }
}

/* What begins like deflated data is read as what it is, in either engine. */
static void the_magic_is_data_too(void **state)
{
    (void)state;
    static const char bytes[] = "\0PJFLATE\0attention";
    for (int i = 0; i < 2; i++) {
        const pj_store_driver driver = {.dialect = i ? &packing : &plain};
        const pj_store store = {.driver = &driver};
        pj_buffer deflated;
        pj_buffer_init(&deflated, 1 << 20);
        const pj_value stored = pj_chart_data_value(&store, bytes, sizeof bytes, &deflated);
        check_parts(&store, &stored, bytes, sizeof bytes);
        pj_buffer_fini(&deflated);
    }
}

/* Each byte, and each length, of what is stored: no crash, and never other bytes of that length
 * without an error, except where deflate itself does not notice. */
static void damaged_data_give_nothing(void **state)
{
    (void)state;
    enum { COUNT = 70000 };
    const pj_store_driver driver = {.dialect = &packing};
    const pj_store store = {.driver = &driver};
    char *bytes = made_bytes(COUNT);
    pj_buffer deflated;
    pj_buffer_init(&deflated, 1 << 24);
    const pj_value stored = pj_chart_data_value(&store, bytes, COUNT, &deflated);
    for (size_t i = 8; i < stored.bytes; i += i < 64 ? 1 : 997)
        for (int cut = 0; cut < 2; cut++) {
            pj_arena arena;
            pj_arena_init(&arena, 0);
            size_t length = cut ? i : stored.bytes;
            char *copy = malloc(length);
            memcpy(copy, stored.text, length);
            if (!cut) copy[i] ^= (char)0x80;
            const pj_chart_data data = pj_chart_data_of(&store, copy, length);
            if (pj_chart_data_part(&data, 0, data.bytes, &arena) && data.bytes == COUNT)
                fail_msg("byte %zu, cut %d: not noticed", i, cut);
            free(copy);
            pj_arena_fini(&arena);
        }
    pj_buffer_fini(&deflated);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_come_back),
                                       cmocka_unit_test(the_magic_is_data_too),
                                       cmocka_unit_test(damaged_data_give_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
