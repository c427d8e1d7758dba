/* Large runs: they come back, and whatever ends the saving (a full disk, no memory, a kill) leaves
 * the database whole. */
#include "../assertions.h"
#include "made_run.h"

#include "base/clock.h"
#include "base/random.h"
#include "store/sql.h"
#include "store/store.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* 34,800 rows; 6 MB of log. */
static const made_run large = {.seed = 7, .tokens = 60, .layers = 20, .depth = PJ_DEPTH_DEEP};

typedef struct fixture {
    char folder[64], path[96];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-log-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->path, sizeof f->path, "%s/test.db", f->folder);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int code = system(command);
    free(f);
    return code;
}

static pj_store *open_at(const char *path)
{
    pj_store *store = NULL;
    pj_error err = {0};
    if (pj_store_open(&(pj_store_options){.path = path}, &store, &err) != PJ_OK)
        fail_msg("%s", err.text);
    return store;
}

static pj_status save(pj_store *store, const made_run *like, pj_error *err)
{
    pj_run_data data;
    make_run(like, &data);
    pj_status status = pj_store_save(store, &data, err);
    pj_run_data_fini(&data);
    return status;
}

static int64_t request(pj_store *store, const char *sql)
{
    int64_t value = 0;
    pj_error err = {0};
    if (pj_sql_get_one_int(store, sql, NULL, -1, &value, &err) != PJ_OK) fail_msg("%s", err.text);
    return value;
}

/* Pages are sound, and there are exactly the rows that the runs say they have. */
static void assert_whole(pj_store *store, int64_t runs)
{
    assert_int_equal(request(store, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                     1);
    if (runs >= 0) assert_int_equal(request(store, "SELECT count(*) FROM profiling_runs"), runs);
    assert_int_equal(request(store, "SELECT count(*) - (SELECT total(row_count) FROM run_rows"
                                    " WHERE table_name = 'deep_operation_metrics')"
                                    " FROM deep_operation_metrics"),
                     0);
    assert_int_equal(request(store, "SELECT count(*) FROM conservation"
                                    " WHERE abs(whole_mj - parts_mj) > 1e-9 * abs(whole_mj)"),
                     0);
}

static void large_runs_come_back_equal(void **state)
{
    fixture *f = *state;
    pj_run_data data, back = {0};
    pj_error err = {0};
    pj_store *store = open_at(f->path);
    make_run(&large, &data);
    for (int round = 0; round < 2; round++) { /* the second replaces the first */
        assert_int_equal(pj_store_save(store, &data, &err), PJ_OK);
        assert_int_equal(pj_store_load(store, data.info.id, &back, &err), PJ_OK);
        assert_runs_equal(&data, &back);
        pj_run_data_fini(&back);
    }
    pj_run_data_fini(&data);
    assert_whole(store, 1);
    pj_store_close(store);
}

/* A limit on the size of files stands for a full disk. When it is gone the same connection saves.
 */
static void save_on_a_full_disk(const char *path, rlim_t bytes)
{
    pj_error err = {0};
    struct rlimit limit = {bytes, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    pj_store *store = open_at(path);
    setrlimit(RLIMIT_FSIZE, &limit);
    pj_status status = save(store, &large, &err);
    if (status == PJ_OK || !err.text[0] || strchr(err.text, '\n')) _exit(1);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    status = save(store, &(made_run){.seed = 8, .tokens = 3, .layers = 2}, &err);
    if (status == PJ_OK) status = save(store, &large, &err);
    pj_store_close(store);
    _exit(status == PJ_OK ? 0 : 2);
}

static void a_disk_that_fills_up_at_any_moment(void **state)
{
    fixture *f = *state;
    for (rlim_t mb = 1; mb <= 5; mb += 2) {
        pj_store *store = open_at(f->path);
        pj_error err = {0};
        assert_int_equal(pj_sql_run(store, "DELETE FROM profiling_runs", &err), PJ_OK);
        assert_int_equal(save(store, &(made_run){.seed = 1, .tokens = 3}, &err), PJ_OK);
        pj_store_close(store);
        pid_t child = fork();
        if (child == 0) save_on_a_full_disk(f->path, mb << 20);
        int code;
        waitpid(child, &code, 0);
        assert_true(WIFEXITED(code));
        assert_int_equal(WEXITSTATUS(code), 0);
        store = open_at(f->path);
        assert_whole(store, 3);
        pj_store_close(store);
    }
}

/* SQLite rolls back by itself when it has no memory: others may write from that moment on. Exits
 * with 0 when saving failed and the other connection saved, with 10 when there was enough, or
 * too little for both. */
static void save_with_little_memory(const char *path, int mb)
{
    char text[64];
    pj_error err = {0};
    pj_store *store = open_at(path), *other = open_at(path);
    snprintf(text, sizeof text, "PRAGMA hard_heap_limit=%d", mb << 20);
    if (pj_sql_run(store, text, &err) != PJ_OK) _exit(10); /* that little is not even a limit */
    bool failed = save(store, &large, &err) == PJ_E_NO_MEMORY;
    pj_status status = save(other, &(made_run){.seed = 30 + (uint64_t)mb, .tokens = 2}, &err);
    if (failed && status == PJ_E_NO_MEMORY) _exit(10); /* the limit is the process's */
    _exit(status != PJ_OK ? 1 : failed ? 0 : 10);      /* nothing is tidied up on the way out */
}

static void no_memory_of_sqlite(void **state)
{
    fixture *f = *state;
    int failed = 0;
    for (int mb = 3; mb <= 7; mb++) {
        int code;
        pid_t child = fork();
        if (child == 0) save_with_little_memory(f->path, mb);
        waitpid(child, &code, 0);
        assert_true(WIFEXITED(code));
        assert_that(WEXITSTATUS(code) % 10, ==, 0);
        failed += WEXITSTATUS(code) == 0;
        pj_store *store = open_at(f->path);
        assert_whole(store, -1);
        pj_store_close(store);
    }
    assert_that(failed, >, 0);
}

static void failing_memory_is_an_error_not_a_crash(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    pj_run_data data;
    pj_store *store = open_at(f->path);
    make_run(&large, &data);
    for (int64_t after = 0; after < 24; after++) {
        pj_memory_fail_after(after);
        pj_store_save(store, &data, &err);
        pj_memory_fail_after(-1);
    }
    assert_int_equal(pj_store_save(store, &data, &err), PJ_OK);
    assert_whole(store, 1);
    pj_run_data_fini(&data);
    pj_store_close(store);
}

static void save_until_killed(const char *path, uint64_t seed, int tell)
{
    pj_error err = {0};
    pj_store *store = open_at(path);
    for (uint64_t i = 0; i < 4; i++) {
        made_run like = large;
        like.seed = seed * 100 + i;
        if (i == 0 && write(tell, "x", 1) != 1) _exit(1);
        if (save(store, &like, &err) != PJ_OK) _exit(2);
    }
    _exit(0);
}

/* Two write at the same time and are killed at any moment; a third finds whole runs. */
static void kills_at_any_moment(void **state)
{
    fixture *f = *state;
    pj_random random = {5};
    for (int round = 0; round < 6; round++) {
        pid_t children[2];
        int fds[2];
        char x;
        assert_int_equal(pipe(fds), 0);
        for (int p = 0; p < 2; p++)
            if ((children[p] = fork()) == 0)
                save_until_killed(f->path, (uint64_t)(round * 2 + p + 1), fds[1]);
        assert_int_equal(read(fds[0], &x, 1), 1);
        pj_clock_sleep_until(pj_clock_ns() +
                             (int64_t)(pj_random_unit(&random) * 400) * PJ_NS_PER_MS);
        for (int p = 0; p < 2; p++) {
            int code;
            kill(children[p], SIGKILL);
            waitpid(children[p], &code, 0);
            assert_true(WIFSIGNALED(code) || WEXITSTATUS(code) == 0);
        }
        close(fds[0]);
        close(fds[1]);
        pj_store *store = open_at(f->path);
        assert_whole(store, -1);
        pj_store_close(store);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static off_t log_bytes(const fixture *f)
{
    char path[128];
    struct stat found;
    snprintf(path, sizeof path, "%s-wal", f->path);
    return stat(path, &found) == 0 ? found.st_size : 0;
}

/* The file is cut to its limit when the log is begun anew, after others have seen it written. */
static void a_written_log_is_small_again(void **state)
{
    enum { LIMIT = 16 << 20, RUNS = 4 };
    const fixture *f = *state;
    pj_error err = {0};
    pj_store *store = open_at(f->path), *other = open_at(f->path);
    made_run like = large, small = {.seed = 1, .tokens = 2, .layers = 1, .depth = PJ_DEPTH_MODULE};
    for (int i = 0; i < RUNS; i++, like.seed++) assert_int_equal(save(store, &like, &err), PJ_OK);
    assert_that((long)log_bytes(f), >, LIMIT);
    pj_store_write_back(other);
    for (int i = 0; i < 2; i++, small.seed++) assert_int_equal(save(store, &small, &err), PJ_OK);
    assert_that((long)log_bytes(f), <=, LIMIT + 65536);
    pj_store_close(other);
    pj_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(large_runs_come_back_equal), TEST(a_disk_that_fills_up_at_any_moment),
        TEST(no_memory_of_sqlite),        TEST(failing_memory_is_an_error_not_a_crash),
        TEST(kills_at_any_moment),        TEST(a_written_log_is_small_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
