/* Compression: what goes in comes out, in pieces and in several members; what is damaged or grows
 * beyond its bound is refused. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/random.h"
#include "http/gzip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 300000, MOST = 1 << 20 };

static char text[BYTES];

static int make_text(void **state)
{
    (void)state;
    pj_random random = {9};
    for (size_t i = 0; i < BYTES; i++) text[i] = (char)('a' + (int)(5 * pj_random_unit(&random)));
    return 0;
}

static bool append(void *context, const char *bytes, size_t count)
{
    pj_buffer *buffer = context;
    pj_buffer_append(buffer, bytes, count);
    return !buffer->failed;
}

static void assert_unpacks(const pj_buffer *packed, size_t times)
{
    char *out;
    size_t bytes;
    pj_error err = {0};
    if (pj_gunzip(packed->data, packed->length, MOST, &out, &bytes, &err) != PJ_OK)
        fail_msg("%s", err.text);
    assert_int_equal(bytes, times * BYTES);
    for (size_t i = 0; i < times; i++) assert_memory_equal(out + i * BYTES, text, BYTES);
    pj_free(out);
}

static void pieces_and_members_are_one_text(void **state)
{
    (void)state;
    pj_buffer packed;
    pj_random random = {4};
    pj_buffer_init(&packed, MOST);
    for (size_t member = 1; member <= 3; member++) {
        pj_gzip *gzip;
        assert_int_equal(pj_gzip_new(1 + (int)member, append, &packed, &gzip, NULL), PJ_OK);
        for (size_t at = 0, n; at < BYTES; at += n) {
            n = (size_t)(pj_random_unit(&random) * 70000);
            if (n > BYTES - at) n = BYTES - at;
            assert_true(pj_gzip_write(gzip, text + at, n));
        }
        assert_true(pj_gzip_finish(gzip));
        pj_gzip_free(gzip);
        assert_true(packed.length < member * BYTES / 2);
        assert_unpacks(&packed, member);
    }
    pj_buffer_fini(&packed);
}

static void damage_and_excess_are_refused(void **state)
{
    (void)state;
    char *packed, *out;
    size_t bytes, count;
    pj_error err;
    assert_int_equal(pj_gzip_text(6, text, BYTES, &packed, &bytes, NULL), PJ_OK);
    assert_true(pj_is_gzip(packed, bytes));
    assert_false(pj_is_gzip(text, BYTES));
    assert_int_equal(pj_gunzip(packed, bytes, BYTES, &out, &count, &err), PJ_OK);
    pj_free(out);
    assert_int_equal(pj_gunzip(packed, bytes, BYTES - 1, &out, &count, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "more than"));
    assert_null(out);
    for (size_t cut = 0; cut < bytes; cut += 997)
        assert_int_equal(pj_gunzip(packed, cut, MOST, &out, &count, &err), PJ_E_INVALID);
    packed[bytes - 6] ^= 1; /* the check sum */
    assert_int_equal(pj_gunzip(packed, bytes, MOST, &out, &count, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "damaged"));
    pj_free(packed);
}

static bool refuse(void *context, const char *bytes, size_t count)
{
    (void)context, (void)bytes, (void)count;
    return false;
}

static void a_reader_that_is_gone_is_noticed(void **state)
{
    (void)state;
    pj_gzip *gzip;
    assert_int_equal(pj_gzip_new(1, refuse, NULL, &gzip, NULL), PJ_OK);
    assert_false(pj_gzip_write(gzip, text, BYTES));
    assert_false(pj_gzip_finish(gzip));
    pj_gzip_free(gzip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_and_members_are_one_text),
        cmocka_unit_test(damage_and_excess_are_refused),
        cmocka_unit_test(a_reader_that_is_gone_is_noticed),
    };
    return cmocka_run_group_tests(tests, make_text, NULL);
}
