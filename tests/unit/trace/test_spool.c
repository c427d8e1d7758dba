/* The spool: written and read back, cut at every byte, corrupted, locked, on a full disk. */
#include "../assertions.h"
#include "base/file.h"
#include "base/memory.h"
#include "trace/spool.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/perjoule-spool-test-XXXXXX";

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return rmdir(folder);
}

static void write_some(pj_spool *spool, int count)
{
    for (int i = 0; i < count; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, "{\"number\":%d%.*s}", i, i % 9, "         ");
        assert_int_equal(pj_spool_append(spool, PJ_RECORD_INFO, text, (size_t)n, NULL), PJ_OK);
    }
    assert_int_equal(pj_spool_flush(spool, NULL), PJ_OK);
}

static int read_all(pj_spool_reader *reader)
{
    int count = 0;
    for (const pj_record *record; (record = pj_spool_next(reader)); count++) {
        char want[32];
        int n = snprintf(want, sizeof want, "{\"number\":%d", count);
        assert_int_equal(pj_record_kind(record), PJ_RECORD_INFO);
        assert_memory_equal(record->payload, want, n);
        assert_int_equal((uintptr_t)record % 8, 0);
    }
    return count;
}

static void what_was_written_is_read(void **state)
{
    pj_spool spool;
    pj_spool_reader reader;
    pj_error err;
    assert_int_equal(pj_spool_create(folder, "a", 111, 222, &spool, &err), PJ_OK);
    write_some(&spool, 100);
    assert_int_equal(pj_spool_reader_of(&spool, &reader, &err), PJ_OK);
    assert_int_equal(reader.start_ns, 111);
    assert_int_equal(reader.start_wall_ns, 222);
    assert_int_equal(read_all(&reader), 100);
    pj_spool_rewind(&reader);
    assert_int_equal(read_all(&reader), 100);
    assert_false(reader.truncated);
    pj_spool_reader_close(&reader);
    pj_spool_reader_close(&reader);
    char path[200];
    snprintf(path, sizeof path, "%s", spool.path);
    assert_int_equal(pj_spool_reader_open(path, &reader, &err), PJ_E_AGAIN); /* being written */
    pj_spool_close(&spool, false);
    assert_int_equal(pj_spool_reader_open(path, &reader, &err), PJ_OK);
    assert_int_equal(read_all(&reader), 100);
    pj_spool_reader other;
    assert_int_equal(pj_spool_reader_open(path, &other, &err), PJ_E_AGAIN); /* taken */
    pj_spool_reader_close(&reader);
    unlink(path);
    assert_int_equal(pj_spool_reader_open(path, &reader, &err), PJ_E_NOT_FOUND);
}

static void memory_spools_leave_no_file(void **state)
{
    pj_spool spool;
    pj_spool_reader reader;
    assert_int_equal(pj_spool_create(NULL, "m", 1, 2, &spool, NULL), PJ_OK);
    write_some(&spool, 20000); /* several batches */
    assert_null(spool.path);
    assert_int_equal(pj_spool_reader_of(&spool, &reader, NULL), PJ_OK);
    assert_int_equal(read_all(&reader), 20000);
    pj_spool_reader_close(&reader);
    pj_spool_close(&spool, false);
}

/* A whole small spool in memory, to cut and to corrupt. */
static char *make_bytes(size_t *size)
{
    pj_spool spool;
    char *bytes;
    assert_int_equal(pj_spool_create(folder, "cut", 5, 6, &spool, NULL), PJ_OK);
    write_some(&spool, 30);
    assert_int_equal(pj_file_read(spool.path, 1 << 20, &bytes, size, NULL), PJ_OK);
    pj_spool_close(&spool, true);
    return bytes;
}

static void cut_at_every_byte(void **state)
{
    size_t size;
    char *bytes = make_bytes(&size);
    int before = 0;
    for (size_t cut = 0; cut <= size; cut++) {
        pj_spool_reader reader;
        unsigned char *copy = malloc(cut ? cut : 1); /* so that a sanitizer sees reads beyond */
        memcpy(copy, bytes, cut);
        pj_status status = pj_spool_reader_memory(copy, cut, &reader, NULL);
        assert_int_equal(status, cut < PJ_SPOOL_HEADER_BYTES ? PJ_E_INVALID : PJ_OK);
        if (status == PJ_OK) {
            int count = read_all(&reader);
            assert_true(count == before || count == before + 1);
            before = count;
            pj_spool_reader_close(&reader);
        }
        free(copy);
    }
    assert_int_equal(before, 30);
    pj_free(bytes);
}

static int count_records(pj_spool_reader *reader)
{
    int count = 0;
    while (pj_spool_next(reader)) count++;
    return count;
}

static void a_flipped_bit_costs_one_record(void **state)
{
    size_t size;
    char *bytes = make_bytes(&size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        size_t at = bit / 8;
        pj_spool_reader reader;
        bytes[at] = (char)(bytes[at] ^ 1 << bit % 8);
        pj_status status = pj_spool_reader_memory((unsigned char *)bytes, size, &reader, NULL);
        if (at < PJ_SPOOL_HEADER_BYTES) {
            assert_int_not_equal(status, PJ_OK);
        } else {
            assert_int_equal(status, PJ_OK);
            int count = count_records(&reader); /* padding is not covered by the checksum */
            assert_true(count == 30 || (count == 29 && (reader.damaged_bytes || reader.truncated)));
            uint64_t damaged = reader.damaged_bytes;
            pj_spool_rewind(&reader); /* a second pass finds the same */
            assert_int_equal(count_records(&reader), count);
            assert_int_equal(reader.damaged_bytes, damaged);
        }
        bytes[at] = (char)(bytes[at] ^ 1 << bit % 8);
    }
    pj_free(bytes);
}

static void whole_pages_lost_in_the_middle_are_skipped(void **state)
{
    pj_spool spool;
    pj_spool_reader reader;
    char *bytes;
    size_t size;
    assert_int_equal(pj_spool_create(folder, "hole", 5, 6, &spool, NULL), PJ_OK);
    write_some(&spool, 2000);
    assert_int_equal(pj_file_read(spool.path, 1 << 20, &bytes, &size, NULL), PJ_OK);
    pj_spool_close(&spool, true);
    memset(bytes + 8192, 0, 4096);
    assert_int_equal(pj_spool_reader_memory((unsigned char *)bytes, size, &reader, NULL), PJ_OK);
    assert_in_range(count_records(&reader), 1800, 1999);
    assert_in_range(reader.damaged_bytes, 4096, 4096 + 64);
    assert_false(reader.truncated);
    pj_free(bytes);
}

/* RLIMIT_FSIZE makes write() fail as a full disk does, with EFBIG instead of ENOSPC. */
static void a_full_disk_moves_the_spool_to_memory(void **state)
{
    pid_t child = fork();
    if (child == 0) {
        pj_spool spool;
        pj_spool_reader reader;
        pj_error err = {0};
        struct rlimit limit = {20000, 60000};
        signal(SIGXFSZ, SIG_IGN);
        if (pj_spool_create(folder, "full", 1, 2, &spool, &err) != PJ_OK) _exit(1);
        write_some(&spool, 100);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        char text[1000] = {0};
        for (int i = 0; i < 15; i++) pj_spool_append(&spool, PJ_RECORD_WARNING, text, 1000, NULL);
        if (pj_spool_flush(&spool, &err) != PJ_OK) _exit(3); /* still fits */
        for (int i = 0; i < 15; i++) pj_spool_append(&spool, PJ_RECORD_WARNING, text, 1000, NULL);
        pj_status status = pj_spool_flush(&spool, &err);
        if (status == PJ_OK) _exit(4);
        if (!strstr(err.text, "cannot write the spool")) _exit(5);
        if (pj_spool_reader_of(&spool, &reader, &err) != PJ_OK) _exit(6);
        int count = 0;
        while (pj_spool_next(&reader)) count++;
        if (count != 130) _exit(7);
        pj_spool_reader_close(&reader);
        uint64_t kept = pj_spool_keep(&spool, NULL, "full"); /* the limit still holds */
        if (kept != 20000 || pj_spool_bytes(&spool) <= kept) _exit(8);
        limit.rlim_cur = 60000; /* as if space had been freed */
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(9);
        if (pj_spool_keep(&spool, NULL, "full") != pj_spool_bytes(&spool)) _exit(10);
        char path[200];
        snprintf(path, sizeof path, "%s/full.spool", folder);
        char *file;
        size_t bytes;
        if (pj_file_read(path, 1 << 20, &file, &bytes, NULL) != PJ_OK) _exit(11);
        if (bytes != pj_spool_bytes(&spool)) _exit(12);
        if (pj_spool_reader_memory((unsigned char *)file, bytes, &reader, NULL) != PJ_OK) _exit(13);
        if (count_records(&reader) != count || reader.damaged_bytes) _exit(14);
        pj_spool_close(&spool, true);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_killed_writer_loses_nothing_written(void **state)
{
    for (int round = 0; round < 20; round++) {
        int pipe_fd[2];
        assert_int_equal(pipe(pipe_fd), 0);
        pid_t child = fork();
        if (child == 0) {
            pj_spool spool;
            if (pj_spool_create(folder, "killed", 1, 2, &spool, NULL) != PJ_OK) _exit(1);
            for (int n = 0;; n++) {
                char text[64];
                int length = snprintf(text, sizeof text, "{\"number\":%d}", n);
                pj_spool_append(&spool, PJ_RECORD_INFO, text, (size_t)length, NULL);
                pj_spool_flush(&spool, NULL);
                if (write(pipe_fd[1], &n, sizeof n) != sizeof n) _exit(2);
            }
        }
        close(pipe_fd[1]);
        int last = 0;
        for (int i = 0; i < 50 * (round + 1); i++)
            assert_int_equal(read(pipe_fd[0], &last, sizeof last), (ssize_t)sizeof last);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipe_fd[0], &last, sizeof last) == (ssize_t)sizeof last) {
        }
        close(pipe_fd[0]);
        char path[200];
        pj_spool_reader reader;
        pj_error err;
        snprintf(path, sizeof path, "%s/killed.spool", folder);
        assert_int_equal(pj_spool_reader_open(path, &reader, &err), PJ_OK);
        assert_that(read_all(&reader), >=, last + 1);
        pj_spool_reader_close(&reader);
        unlink(path);
    }
}

static void bad_places_are_one_line_errors(void **state)
{
    pj_spool spool;
    pj_error err = {0};
    assert_int_not_equal(pj_spool_create("/nonexistent/folder", "x", 1, 2, &spool, &err), PJ_OK);
    assert_non_null(strstr(err.text, "/nonexistent/folder/x.spool"));
    for (int n = 0; n < 4; n++) {
        pj_memory_fail_after(n);
        pj_status status = pj_spool_create(folder, "mem", 1, 2, &spool, &err);
        pj_memory_fail_after(-1);
        if (status == PJ_OK) pj_spool_close(&spool, true);
    }
    pj_spool_reader reader;
    assert_int_equal(pj_spool_reader_memory((const unsigned char *)"PJSPOOL", 8, &reader, &err),
                     PJ_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(memory_spools_leave_no_file),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(a_flipped_bit_costs_one_record),
        cmocka_unit_test(whole_pages_lost_in_the_middle_are_skipped),
        cmocka_unit_test(a_full_disk_moves_the_spool_to_memory),
        cmocka_unit_test(a_killed_writer_loses_nothing_written),
        cmocka_unit_test(bad_places_are_one_line_errors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
