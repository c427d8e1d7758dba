/* The base layer: errors, memory and its fault injection, buffers, JSON, rings, ids, clock. */
#include "../assertions.h"
#include "../sanitized.h"
#include "base/base64.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/decimal.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/ring.h"
#include "base/sha256.h"
#include "base/shell.h"
#include "base/thread.h"
#include "base/utf8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void medians_of_any_count(void **state)
{
    (void)state;
    double values[] = {3, -1, 7, 2};
    assert_true(isnan(pj_median(values, 0)));
    assert_that(pj_median(values, 1), ==, 3);
    assert_that(pj_median(values, 3), ==, 3);
    assert_that(pj_median(values, 4), ==, 2.5);
    assert_that(values[0], ==, -1);
    assert_that(values[3], ==, 7); /* sorted */
}

static void errors_are_one_line(void **state)
{
    pj_error err;
    assert_int_equal(pj_fail(&err, PJ_E_INVALID, "bad name \"%s\"", "a\nb"), PJ_E_INVALID);
    assert_string_equal(err.text, "bad name \"a b\"");
    assert_int_equal(pj_fail_errno(&err, EACCES, "cannot open %s", "x"), PJ_E_DENIED);
    assert_non_null(strstr(err.text, "cannot open x: "));
    pj_error_prefix(&err, "model %s", "m");
    assert_non_null(strstr(err.text, "model m: cannot open x"));
    char longest[2000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    pj_fail(&err, PJ_E_IO, "%s", longest);
    pj_error_prefix(&err, "%s", longest);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void memory_failure_is_injected_once(void **state)
{
    pj_memory_fail_after(1);
    void *a = pj_alloc(1, 8), *b = pj_alloc(1, 8), *c = pj_alloc(1, 8);
    pj_memory_fail_after(-1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_null(pj_resize(NULL, SIZE_MAX / 2, 3));
    pj_free(a);
    pj_free(c);
}

static void arena_respects_its_limit(void **state)
{
    pj_arena arena;
    pj_arena_init(&arena, 100000);
    for (int i = 0; i < 6250; i++) assert_non_null(pj_arena_alloc(&arena, 1, 16));
    assert_null(pj_arena_alloc(&arena, 1, 1));
    pj_arena_fini(&arena);
    pj_arena_fini(&arena);
}

static void buffer_failure_sticks(void **state)
{
    pj_buffer b;
    pj_buffer_init(&b, 10);
    assert_true(pj_buffer_printf(&b, "%d-%s", 12, "abc"));
    assert_false(pj_buffer_text(&b, "too long"));
    assert_false(pj_buffer_char(&b, 'x'));
    assert_string_equal(pj_buffer_get(&b), "12-abc");
    assert_null(pj_buffer_take(&b));
    pj_buffer_fini(&b);
}

static void json_escapes_and_separates(void **state)
{
    pj_buffer b;
    pj_json j;
    pj_buffer_init(&b, 4096);
    pj_json_init(&j, &b);
    pj_json_object_begin(&j);
    pj_json_kv_string(&j, "a\"", "x\n\x01\xff\xc3\xa9");
    pj_json_key(&j, "list");
    pj_json_array_begin(&j);
    pj_json_double(&j, 0.1);
    pj_json_double(&j, NAN);
    pj_json_float(&j, 0.1f);
    pj_json_int(&j, INT64_MIN);
    pj_json_bool(&j, true);
    pj_json_array_end(&j);
    pj_json_object_end(&j);
    assert_true(pj_json_finish(&j));
    assert_string_equal(pj_buffer_get(&b),
                        "{\"a\\\"\":\"x\\n\\u0001\xef\xbf\xbd\xc3\xa9\",\"list\":"
                        "[0.1,null,0.1,-9223372036854775808,true]}");
    pj_buffer_fini(&b);
}

static bool count_bytes(void *context, const char *bytes, size_t count)
{
    *(size_t *)context += count;
    return true;
}

/* What is printed acts on no terminal; what is pasted means what it says. */
static void texts_do_not_act_on_terminals(void **state)
{
    static const char text[] = "a\x1b[1m\xc2\x9b\x7f\xe2\x80\xae\xc3\xa9'";
    pj_buffer b;
    pj_json json;
    pj_buffer_init(&b, 1000);
    pj_json_init(&json, &b);
    pj_json_string(&json, text);
    pj_json_finish(&json);
    assert_string_equal(pj_buffer_get(&b), "\"a\\u001b[1m\\u009b\\u007f\\u202e\xc3\xa9'\"");
    pj_buffer_clear(&b);
    pj_shell_word(&b, text);
    assert_string_equal(
        pj_buffer_get(&b),
        "'a'$'\\x1b''[1m'$'\\xc2\\x9b'''$'\\x7f'''$'\\xe2\\x80\\xae''\xc3\xa9'\\'''");
    pj_buffer_fini(&b);
}

static void json_streams_in_blocks(void **state)
{
    pj_buffer block;
    pj_json j;
    size_t total = 0;
    pj_buffer_init(&block, 128 * 1024);
    pj_json_init_stream(&j, &block, count_bytes, &total);
    pj_json_array_begin(&j);
    for (int i = 0; i < 100000; i++) pj_json_int(&j, 1234567);
    pj_json_array_end(&j);
    assert_true(pj_json_finish(&j));
    assert_int_equal(total, 100000 * 8 + 1);
    assert_that(block.capacity, <=, 128 * 1024);
    pj_buffer_fini(&block);
}

static void utf8_refuses_what_is_not(void **state)
{
    uint32_t c;
    assert_int_equal(pj_utf8_next("\xc0\x80", 2, &c), 0);
    assert_int_equal(pj_utf8_next("\xed\xa0\x80", 3, &c), 0);
    assert_int_equal(pj_utf8_next("\xf4\x90\x80\x80", 4, &c), 0);
    assert_int_equal(pj_utf8_next("\xe2\x82", 2, &c), 0);
    assert_int_equal(pj_utf8_next("\xf0\x9f\x98\x80", 4, &c), 4);
    assert_int_equal(c, 0x1f600);
    char out[4];
    for (uint32_t x = 0; x < 0x110000; x += 97) {
        if (x >= 0xd800 && x < 0xe000) continue;
        size_t n = pj_utf8_put(x, out);
        assert_int_equal(pj_utf8_next(out, n, &c), n);
        assert_int_equal(c, x);
    }
}

static void ring_counts_what_it_loses(void **state)
{
    pj_ring ring;
    assert_int_equal(pj_ring_init(&ring, 5, sizeof(int), NULL), PJ_OK); /* rounded up to 8 */
    for (int i = 0; i < 11; i++) pj_ring_write(&ring, &i);
    assert_int_equal(pj_ring_lost(&ring), 3);
    int out[16];
    assert_int_equal(pj_ring_read(&ring, out, 6), 6);
    for (int i = 11; i < 15; i++) pj_ring_write(&ring, &i);
    assert_int_equal(pj_ring_read(&ring, out, 16), 6);
    assert_int_equal(out[0], 6);
    assert_int_equal(out[5], 14);
    pj_ring_fini(&ring);
}

enum { RING_TRANSFER = 200000 };

static void *fill_ring(void *context)
{
    for (uint64_t i = 0; i < RING_TRANSFER; i++) pj_ring_write(context, &i);
    return NULL;
}

static void ring_keeps_order_between_threads(void **state)
{
    pj_ring ring;
    pthread_t thread;
    uint64_t got[256], next = 0, read = 0;
    pj_ring_init(&ring, 1024, sizeof(uint64_t), NULL);
    pj_thread_start(&thread, "filler", fill_ring, &ring, NULL);
    while (read + pj_ring_lost(&ring) < RING_TRANSFER) {
        size_t n = pj_ring_read(&ring, got, 256);
        for (size_t i = 0; i < n; i++) {
            assert_that(got[i], >=, next);
            next = got[i] + 1;
        }
        read += n;
    }
    pthread_join(thread, NULL);
    assert_int_equal(read + pj_ring_lost(&ring), RING_TRANSFER);
    pj_ring_fini(&ring);
}

static void *count_cpus(void *context)
{
    *(int *)context = pj_cpu_allowed(NULL, 0);
    return NULL;
}

static int cpus_of_a_new_thread(void)
{
    pthread_t thread;
    int count = 0;
    assert_int_equal(pj_thread_start(&thread, "counter", count_cpus, &count, NULL), PJ_OK);
    pthread_join(thread, NULL);
    return count;
}

/* A pinned engine thread starts the collector, which must not inherit the pinning. */
static void a_pin_is_the_threads_own(void **state)
{
    int cpus[2], all = pj_cpu_allowed(cpus, 2);
    if (all < 2 || !pj_thread_pin(cpus[1])) skip(); /* one CPU, or no pinning */
    assert_int_equal(pj_cpu_allowed(NULL, 0), 1);
    assert_int_equal(cpus_of_a_new_thread(), all);
    pj_thread_pin(cpus[0]); /* pinned twice: the affinity before the first counts */
    assert_int_equal(cpus_of_a_new_thread(), all);
    pj_thread_unpin();
    assert_int_equal(pj_cpu_allowed(NULL, 0), all);
}

static void ids_sort_and_checksums_hold(void **state)
{
    char before[PJ_UUID_BYTES], after[PJ_UUID_BYTES];
    pj_uuid7(before);
    for (int i = 0; i < 10000; i++) {
        pj_uuid7(after);
        assert_that(strcmp(before, after), <, 0);
        memcpy(before, after, sizeof before);
    }
    assert_int_equal(after[14], '7');
    assert_int_equal(pj_crc32c(0, "123456789", 9), 0xe3069283u); /* RFC 3720's check value */
    assert_that(pj_hash64(0, "a", 1), ==, 0xaf63dc4c8601ec8cu);
}

static int64_t system_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * PJ_NS_PER_S + t.tv_nsec;
}

/* The clock may be read from a counter that is related to the system's clock at times. */
static void the_clock_is_the_systems_and_never_goes_back(void **state)
{
    enum { MOST_NS = 1000, LONG_NS = 20 * PJ_NS_PER_MS };
    int64_t before = system_clock_ns(), end = before + LONG_NS, last = 0;
    while (before < end) {
        int64_t now = pj_clock_ns(), after = system_clock_ns();
        assert_that(now, >=, last);
        assert_that(now, >=, before - MOST_NS);
        assert_that(now, <=, after + MOST_NS);
        last = now;
        before = after;
    }
}

static void iso_times_go_both_ways(void **state)
{
    char text[32];
    int64_t ns;
    pj_clock_format_iso(1767225600123000000, text);
    assert_string_equal(text, "2026-01-01T00:00:00.123+00:00");
    assert_true(pj_clock_parse_iso(text, &ns));
    assert_that(ns, ==, 1767225600123000000);
    assert_true(pj_clock_parse_iso("2026-01-01T01:00:00+01:00", &ns));
    assert_that(ns, ==, 1767225600000000000);
    assert_true(pj_clock_parse_iso("2026-01-01", &ns));
    assert_false(pj_clock_parse_iso("yesterday", &ns));
    assert_false(pj_clock_parse_iso("2026-13-01", &ns));
}

static void files_are_written_whole(void **state)
{
    char folder[] = "/tmp/pj-base-XXXXXX", path[300], *text;
    size_t bytes;
    pj_error err;
    pj_mapping mapping;
    assert_non_null(mkdtemp(folder));
    pj_path_join(path, sizeof path, folder, "a/b/c");
    assert_int_equal(pj_dir_make(path, &err), PJ_OK);
    pj_path_join(path, sizeof path, folder, "a/b/c/file");
    assert_int_equal(pj_file_write(path, "hello", 5, &err), PJ_OK);
    assert_int_equal(pj_file_read(path, 5, &text, &bytes, &err), PJ_OK);
    assert_int_equal(bytes, 5);
    assert_string_equal(text, "hello");
    pj_free(text);
    assert_int_equal(pj_file_read(path, 4, &text, &bytes, &err), PJ_E_INVALID);
    assert_int_equal(pj_file_map(path, &mapping, &err), PJ_OK);
    assert_memory_equal(mapping.data, "hello", 5);
    pj_file_unmap(&mapping);
    assert_int_equal(pj_file_map(folder, &mapping, &err), PJ_E_INVALID);
    assert_int_equal(pj_file_map("/nowhere/x", &mapping, &err), PJ_E_NOT_FOUND);
    /* what is no file is written to, and stays what it is */
    char pipe[300], link[300], got[8] = "";
    pj_path_join(pipe, sizeof pipe, folder, "pipe");
    pj_path_join(link, sizeof link, folder, "link");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink(pipe, link), 0);
    assert_int_equal(pj_file_map(pipe, &mapping, &err), PJ_E_INVALID); /* waits for no writer */
    int reader = open(pipe, O_RDWR);
    assert_int_equal(pj_file_write(link, "here", 4, &err), PJ_OK);
    assert_int_equal(read(reader, got, sizeof got), 4);
    assert_string_equal(got, "here");
    close(reader);
    assert_true(pj_file_is_special(link) && pj_file_is_special(pipe));
    char command[400];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Pages that are gone read as zeros; those before are still there. */
static void a_mapped_file_may_be_shortened(void **state)
{
    char path[] = "/tmp/perjoule-cut-XXXXXX";
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 1500; /* beyond the next 2 MiB */
    char *text = malloc(pages * page);
    pj_mapping mapping, other;
    pj_error err;
    close(mkstemp(path));
    memset(text, 'x', pages * page);
    pj_file_guard();
    assert_int_equal(pj_file_write(path, text, pages * page, &err), PJ_OK);
    assert_int_equal(pj_file_map(path, &mapping, &err), PJ_OK);
    assert_int_equal(pj_file_map(path, &other, &err), PJ_OK);
    assert_int_equal(truncate(path, (off_t)page), 0);
    assert_int_equal(mapping.data[page - 1], 'x');
    assert_false(pj_file_is_cut(&mapping));
    for (size_t i = 1; i < pages; i++) assert_int_equal(mapping.data[i * page + 7], 0);
    assert_int_equal(mapping.data[0], 'x');
    assert_true(pj_file_is_cut(&mapping) && !pj_file_is_cut(&other));
    pj_file_unmap(&mapping);
    assert_int_equal(pj_file_map(path, &mapping, &err), PJ_OK); /* entries are used again */
    assert_false(pj_file_is_cut(&mapping));
    pj_file_unmap(&mapping);
    pj_file_unmap(&other);
    free(text);
    unlink(path);
}

/* Written pages count as anonymous, read pages of a mapped file as file-backed. */
static void memory_is_told_apart(void **state)
{
    enum { BYTES = 32 << 20, SLACK = 8 << 20 };
    pj_process_memory before, own, file;
    char path[4096];
    pj_mapping mapping;
    pj_error err;
    if (PJ_SANITIZED) {
        print_message("a sanitizer's memory counts as the process's own\n");
        skip();
    }
    if (!pj_process_memory_get(&before)) {
        print_message("this system does not report resident memory\n");
        skip();
    }
    assert_that(before.resident_bytes, >, 0);
    assert_that(before.anonymous_bytes, >, 0);
    char *block = pj_alloc(BYTES, 1);
    assert_non_null(block);
    memset(block, 1, BYTES);
    assert_true(pj_process_memory_get(&own));
    assert_that(own.anonymous_bytes, >=, before.anonymous_bytes + BYTES - SLACK);
    assert_that(own.file_bytes, <, before.file_bytes + SLACK);

    snprintf(path, sizeof path, "/tmp/pj-memory-%ld", (long)getpid());
    assert_int_equal(pj_file_write(path, block, BYTES, &err), PJ_OK);
    assert_int_equal(pj_file_map(path, &mapping, &err), PJ_OK);
    unsigned sum = 0;
    for (size_t i = 0; i < mapping.size; i += 4096) sum += mapping.data[i];
    assert_int_equal(sum, BYTES / 4096);
    assert_true(pj_process_memory_get(&file));
    assert_that(file.file_bytes, >=, own.file_bytes + BYTES - SLACK);
    assert_that(file.anonymous_bytes, <, own.anonymous_bytes + SLACK);
    pj_file_unmap(&mapping);
    unlink(path);
    pj_free(block);
}

static void the_program_is_found(void **state)
{
    char path[4096];
    pj_error err;
    assert_int_equal(pj_process_path(path, sizeof path, &err), PJ_OK);
    assert_non_null(strstr(path, "base"));
    assert_int_equal(access(path, X_OK), 0);
    assert_int_equal(pj_process_path(path, 4, &err), PJ_E_INVALID);
}

static void base64_is_that_of_the_standard_and_strict(void **state)
{
    static const char *const encoded[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                          "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    static const char *const wrong[] = {
        "Zg=", "Zg===", "Zh==", "Z===", "Zg==Zg==", "Zm8=", "Zg=A", "Z\xe9=="};
    char back[8] = {0};
    for (size_t n = 0; n < 7; n++) {
        pj_buffer text;
        pj_buffer_init(&text, 64);
        pj_base64_write(&text, "foobar", n);
        assert_string_equal(pj_buffer_get(&text), encoded[n]);
        assert_true(pj_base64_read(encoded[n], text.length, back, n));
        assert_memory_equal(back, "foobar", n);
        pj_buffer_fini(&text);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(pj_base64_read(wrong[i], strlen(wrong[i]), back, 1));
    for (unsigned v = 0; v < 256; v++) {
        const unsigned char bytes[3] = {(unsigned char)v, (unsigned char)(v * 7),
                                        (unsigned char)~v};
        pj_buffer text;
        pj_buffer_init(&text, 64);
        pj_base64_write(&text, bytes, 3);
        assert_true(pj_base64_read(text.data, text.length, back, 3));
        assert_memory_equal(back, bytes, 3);
        pj_buffer_fini(&text);
    }
}

static void assert_sha256(const char *bytes, size_t count, const char *expected)
{
    char text[PJ_SHA256_TEXT_BYTES];
    pj_sha256_text(bytes, count, text);
    assert_string_equal(text, expected);
}

/* The examples that NIST publishes with FIPS 180: one block, padding that needs a second block, and
 * a whole number of blocks. */
static void sha256_gives_the_published_values(void **state)
{
    enum { MILLION = 1000000 };
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char *many = pj_alloc(MILLION, 1);
    assert_non_null(many);
    memset(many, 'a', MILLION);
    assert_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256(two, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_sha256(many, MILLION,
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    pj_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_of_any_count),
        cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(memory_failure_is_injected_once),
        cmocka_unit_test(arena_respects_its_limit),
        cmocka_unit_test(buffer_failure_sticks),
        cmocka_unit_test(json_escapes_and_separates),
        cmocka_unit_test(texts_do_not_act_on_terminals),
        cmocka_unit_test(json_streams_in_blocks),
        cmocka_unit_test(utf8_refuses_what_is_not),
        cmocka_unit_test(ring_counts_what_it_loses),
        cmocka_unit_test(ring_keeps_order_between_threads),
        cmocka_unit_test(a_pin_is_the_threads_own),
        cmocka_unit_test(ids_sort_and_checksums_hold),
        cmocka_unit_test(the_clock_is_the_systems_and_never_goes_back),
        cmocka_unit_test(iso_times_go_both_ways),
        cmocka_unit_test(files_are_written_whole),
        cmocka_unit_test(a_mapped_file_may_be_shortened),
        cmocka_unit_test(memory_is_told_apart),
        cmocka_unit_test(the_program_is_found),
        cmocka_unit_test(base64_is_that_of_the_standard_and_strict),
        cmocka_unit_test(sha256_gives_the_published_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
