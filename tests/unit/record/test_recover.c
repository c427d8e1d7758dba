/* Leftover spools: whose they are, and that nothing in them is lost silently. */
#include "../child.h"
#include "../sanitized.h"
#include "../virtual_clock.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "record/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

static const int64_t PATIENCE_NS = 100 * PJ_NS_PER_S; /* machines of tests are slow and busy */

static char folder[64], heard[8192];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/perjoule-recover-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    setenv("XDG_DATA_HOME", folder, 1);
    return 0;
}

static int remove_folder(void **state)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void hear(void *context, const char *text)
{
    size_t used = strlen(heard);
    snprintf(heard + used, sizeof heard - used, "%s\n", text);
}

static void database_path(const char *name, char path[200])
{
    snprintf(path, 200, "%s/%s", folder, name);
}

static pj_session *open_session(const char *name)
{
    char path[200];
    pj_session *session;
    pj_error err = {0};
    database_path(name, path);
    pj_session_options options = {.power = "none", .database = path, .baseline_seconds = -1};
    if (pj_session_open(&options, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    return session;
}

/* Opens, waits for the recovery and returns how many runs there are; `heard` is what it said. */
static uint64_t open_and_count(const char *name, const char *status)
{
    pj_run_list list;
    pj_session *session = open_session(name);
    heard[0] = 0;
    assert_true(pj_session_settle(session, PATIENCE_NS).done);
    pj_recovery_on_message(session->recovery, hear, NULL);
    assert_int_equal(pj_store_list(session->store, &(pj_run_query){.status = status}, &list, NULL),
                     PJ_OK);
    uint64_t count = list.total;
    pj_run_list_fini(&list);
    pj_session_close(session);
    return count;
}

static void record(pj_run *run, int tokens)
{
    pj_lane *lane = pj_run_lane(run);
    uint32_t q = pj_run_name(run, "q_proj");
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    for (int t = 0; t < tokens; t++) {
        pj_span_begin(lane, PJ_SPAN_TOKEN, (uint32_t)t);
        pj_span_begin(lane, PJ_SPAN_LAYER, 0);
        pj_span_begin(lane, PJ_SPAN_COMPONENT, q);
        pj_span_end(lane, NULL);
        pj_span_end(lane, NULL);
        pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
}

/* Dies in the middle of a run of the database of this name. */
static void die_in_the_middle(const char *name, int tell)
{
    pj_run *run;
    pj_error err = {0};
    setenv("XDG_DATA_HOME", folder, 1);
    virtual_clock_use();
    pj_session *session = open_session(name);
    if (pj_run_begin(session, &(pj_run_options){.prompt = "left", .depth = PJ_DEPTH_MODULE}, &run,
                     &err) != PJ_OK)
        _exit(1);
    record(run, 20);
    usleep(60000); /* several rounds of the collector */
    if (write(tell, pj_run_id(run), 36) != 36) _exit(1);
}

/* A process that did so; gives the path of its spool. */
static void die_in_a_run(const char *name, char spool[300])
{
    char id[37] = "";
    int told;
    pid_t child = child_start(folder, name, &told);
    assert_int_equal(read(told, id, 36), 36);
    close(told);
    waitpid(child, NULL, 0);
    snprintf(spool, 300, "%s/%s-spool/%s.spool", folder, name, id);
    if (!pj_file_exists(spool)) fail_msg("%s is not there", spool);
}

static void a_spool_goes_to_its_own_database_alone(void **state)
{
    char spool[300];
    struct stat info;
    die_in_a_run("a.db", spool);
    assert_int_equal(open_and_count("b.db", NULL), 0);
    assert_true(pj_file_exists(spool));
    assert_int_equal(stat(spool, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    *strrchr(spool, '/') = 0;
    assert_int_equal(stat(spool, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    database_path("a.db", spool);
    assert_int_equal(stat(spool, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(open_and_count("a.db", "interrupted"), 1);
    assert_non_null(strstr(heard, "1 interrupted run was recovered"));
    assert_int_equal(open_and_count("a.db", NULL), 1);
    assert_string_equal(heard, "");
}

static void a_link_to_a_database_has_the_same_spools(void **state)
{
    char spool[300], path[200], link[200];
    die_in_a_run("linked.db", spool);
    database_path("linked.db", path);
    database_path("link.db", link);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(open_and_count("link.db", "interrupted"), 1);
}

/* The folder `spool/` that earlier versions shared. */
static void shared_folders_are_adopted_only_when_unambiguous(void **state)
{
    char spool[300], old[400], shared[200];
    for (int others = 0; others < 2; others++) {
        char name[40];
        snprintf(name, sizeof name, "alone%d", others);
        database_path(name, shared);
        assert_int_equal(mkdir(shared, 0700), 0);
        snprintf(name, sizeof name, "alone%d/one.db", others);
        die_in_a_run(name, spool);
        char *in_old = strrchr(spool, '/') + 1;
        snprintf(old, sizeof old, "%s/spool", shared);
        assert_int_equal(mkdir(old, 0700), 0);
        snprintf(old, sizeof old, "%s/spool/%s", shared, in_old);
        assert_int_equal(rename(spool, old), 0);
        if (others) {
            snprintf(name, sizeof name, "alone%d/two.db", others);
            pj_session_close(open_session(name));
            snprintf(name, sizeof name, "alone%d/one.db", others);
        }
        assert_int_equal(open_and_count(name, "interrupted"), others ? 0 : 1);
        assert_int_equal(pj_file_exists(old), others);
    }
}

static void what_belongs_to_another_user_is_left_alone(void **state)
{
    char spool[300], dir[300], path[200];
    if (geteuid() != 0) skip(); /* only root can give files away */
    die_in_a_run("foreign.db", spool);
    assert_int_equal(chown(spool, 12345, 12345), 0);
    assert_int_equal(open_and_count("foreign.db", NULL), 0);
    if (!strstr(heard, "not a file of this user")) fail_msg("%s", heard);
    assert_true(pj_file_exists(spool));
    snprintf(dir, sizeof dir, "%s", spool);
    *strrchr(dir, '/') = 0;
    assert_int_equal(chown(dir, 12345, 12345), 0);
    assert_int_equal(open_and_count("foreign.db", NULL), 0);
    assert_non_null(strstr(heard, "belongs to another user"));
    /* A run still has a spool: in the user's own data folder, where the next start finds it. */
    database_path("foreign.db", path);
    pj_session *session = open_session("foreign.db");
    assert_non_null(strstr(session->spool_dir, "/perjoule/spools/"));
    assert_string_equal(session->warning, "");
    pj_session_close(session);
}

static void a_folder_that_cannot_be_made_does_not_fail_a_run(void **state)
{
    char path[200], blocked[200];
    pj_run *run;
    pj_error err = {0};
    database_path("blocked.db-spool", path);
    assert_int_equal(pj_file_write(path, "x", 1, NULL), PJ_OK); /* a file where the folder goes */
    database_path("perjoule", blocked);
    char hidden[220];
    snprintf(hidden, sizeof hidden, "%s.hidden", blocked);
    rename(blocked, hidden);
    assert_int_equal(pj_file_write(blocked, "x", 1, NULL), PJ_OK);
    pj_session *session = open_session("blocked.db");
    assert_non_null(strstr(session->warning, "kept in memory"));
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.prompt = "p"}, &run, &err), PJ_OK);
    record(run, 3);
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, NULL, &err), PJ_OK);
    pj_session_close(session);
    unlink(blocked);
    rename(hidden, blocked);
    assert_int_equal(open_and_count("blocked.db", "completed"), 1);
}

/* ---- damage -------------------------------------------------------------------------------- */

static bool has_warning(const char *name, const char *code)
{
    pj_run_data data = {0};
    pj_run_list list;
    pj_session *session = open_session(name);
    bool found = false;
    assert_int_equal(pj_store_list(session->store, &(pj_run_query){0}, &list, NULL), PJ_OK);
    assert_int_equal(pj_store_load(session->store, list.runs[0].id, &data, NULL), PJ_OK);
    for (uint32_t i = 0; i < data.warning_count; i++)
        found |= strcmp(data.warnings[i].code, code) == 0;
    pj_run_data_fini(&data);
    pj_run_list_fini(&list);
    pj_session_close(session);
    return found;
}

static void damage_is_said_and_the_file_kept(void **state)
{
    char spool[300], damaged[310], *bytes;
    size_t size;
    die_in_a_run("damaged.db", spool);
    assert_int_equal(pj_file_read(spool, 1 << 24, &bytes, &size, NULL), PJ_OK);
    memset(bytes + size / 2, 0x5a, 200);
    assert_int_equal(pj_file_write(spool, bytes, size, NULL), PJ_OK);
    pj_free(bytes);
    assert_int_equal(open_and_count("damaged.db", "interrupted"), 1);
    assert_true(has_warning("damaged.db", "spool_damaged"));
    snprintf(damaged, sizeof damaged, "%.*s.damaged", (int)strlen(spool) - 6, spool);
    assert_true(pj_file_exists(damaged));
    assert_false(pj_file_exists(spool));
}

static int count_files(const char *dir, const char *ending)
{
    char command[400];
    snprintf(command, sizeof command, "exit $(ls %s | grep -c '%s$')", dir, ending);
    return WEXITSTATUS(system(command));
}

static void put(const char *path, const char *bytes, size_t size) /* without fsync */
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* A power failure can bring back the spool of a run that was stored, without the pages that were
 * never synced: with a hole, and without its end. */
static void a_spool_that_comes_back_replaces_no_stored_run(void **state)
{
    enum { TOKENS = 200, KEPT = 8192 };
    pj_run *run;
    pj_run_data data = {0};
    char spool[300], damaged[310], id[37], *bytes;
    size_t size;
    pj_session *session = open_session("back.db");
    assert_int_equal(pj_run_begin(session,
                                  &(pj_run_options){.prompt = "p", .depth = PJ_DEPTH_MODULE}, &run,
                                  NULL),
                     PJ_OK);
    snprintf(id, sizeof id, "%s", pj_run_id(run));
    snprintf(spool, sizeof spool, "%s/back.db-spool/%s.spool", folder, id);
    record(run, TOKENS);
    do {
        usleep(20000); /* until the collector has written all of them */
        assert_int_equal(pj_file_read(spool, 1 << 24, &bytes, &size, NULL), PJ_OK);
        if (size < 2 * KEPT) pj_free(bytes);
    } while (size < 2 * KEPT);
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, NULL, NULL), PJ_OK);
    pj_session_close(session);
    memset(bytes + KEPT, 0, 4096);
    for (size_t kept = KEPT; kept <= size; kept += size - KEPT) { /* cut off, and with a hole */
        assert_int_equal(pj_file_write(spool, bytes, kept, NULL), PJ_OK);
        assert_int_equal(open_and_count("back.db", "completed"), 1);
        assert_false(pj_file_exists(spool));
        snprintf(damaged, sizeof damaged, "%.*s.damaged", (int)strlen(spool) - 6, spool);
        assert_false(pj_file_exists(damaged)); /* nothing in it is missing elsewhere */
        session = open_session("back.db");
        assert_int_equal(pj_store_load(session->store, id, &data, NULL), PJ_OK);
        assert_int_equal(data.token_count, TOKENS);
        pj_run_data_fini(&data);
        pj_session_close(session);
    }
    pj_free(bytes);
}

/* Without a bit that matters: one in the padding does not. */
static bool is_readable_whole(const char *path)
{
    pj_spool_reader reader;
    if (pj_spool_reader_open(path, &reader, NULL) != PJ_OK) return false;
    while (pj_spool_next(&reader)) {
    }
    bool whole = !reader.damaged_bytes && !reader.truncated;
    pj_spool_reader_close(&reader);
    return whole;
}

/* A bit of each of the first 512 bytes, each in another place of its byte, in groups so that
 * opening a session does not dominate: 64 copies of a spool, each with another bit flipped and its
 * own id in its own name. */
static void no_flipped_bit_loses_a_run_without_a_word(void **state)
{
    enum { GROUP = 64, BYTES = 512 };
    int all_whole = 0;
    char spool[300], dir[300], name[40], *bytes;
    size_t size;
    die_in_a_run("bits.db", spool);
    assert_int_equal(pj_file_read(spool, 1 << 24, &bytes, &size, NULL), PJ_OK);
    for (int begin = 0; begin < BYTES; begin += GROUP) {
        snprintf(name, sizeof name, "bits%d.db", begin);
        snprintf(dir, sizeof dir, "%s/%s-spool", folder, name);
        assert_int_equal(mkdir(dir, 0700), 0);
        int whole = 0;
        for (int i = begin; i < begin + GROUP; i++) {
            char path[400];
            char flipped = (char)(1 << (i + i / 8) % 8);
            snprintf(path, sizeof path, "%s/%d.spool", dir, i);
            bytes[i] ^= flipped;
            put(path, bytes, size);
            bytes[i] ^= flipped;
            whole += is_readable_whole(path);
        }
        uint64_t stored = open_and_count(name, NULL); /* all have one id: at most one run */
        int left = count_files(dir, "spool"), damaged = count_files(dir, "damaged");
        int gone = GROUP - left - damaged; /* read after a whole one had been stored */
        if (gone > 0) assert_true(whole > 0);
        all_whole += whole;
        if (damaged + gone > 0) {
            assert_int_equal(stored, 1);
            assert_non_null(strstr(heard, "recovered"));
        }
        if (left > 0) assert_non_null(strstr(heard, "in "));
        if (damaged > 0 && gone == 0) assert_true(has_warning(name, "spool_damaged"));
    }
    assert_in_range(all_whole, 0, BYTES / 20);
    pj_free(bytes);
}

static void a_spool_that_kills_its_readers_is_left_alone_in_the_end(void **state)
{
    char spool[300], tries[310];
    die_in_a_run("poison.db", spool);
    snprintf(tries, sizeof tries, "%.*s.tries", (int)strlen(spool) - 6, spool);
    assert_int_equal(pj_file_write(tries, "xxxx", 4, NULL), PJ_OK);
    char *bytes;
    size_t size;
    assert_int_equal(pj_file_read(spool, 1 << 24, &bytes, &size, NULL), PJ_OK);
    assert_int_equal(open_and_count("poison.db", NULL), 1); /* a fifth attempt is made */
    assert_false(pj_file_exists(tries));
    assert_int_equal(pj_file_write(spool, bytes, size, NULL), PJ_OK);
    assert_int_equal(pj_file_write(tries, "xxxxx", 5, NULL), PJ_OK);
    open_and_count("poison.db", NULL);
    assert_non_null(strstr(heard, "failed to finish"));
    assert_true(pj_file_exists(spool));
    pj_free(bytes);
}

/* Commands that end before a recovery does, five times and more, are no reason to give it up. */
static void a_recovery_that_lacks_time_has_not_failed(void **state)
{
    char spool[300], tries[310], path[300];
    sqlite3 *other;
    die_in_a_run("hasty.db", spool);
    snprintf(tries, sizeof tries, "%.*s.tries", (int)strlen(spool) - 6, spool);
    snprintf(path, sizeof path, "%s/hasty.db", folder);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    pj_recovery *recovery = pj_recovery_start(path); /* waits for the other's transaction */
    for (int ms = 0; ms < 5000 && !pj_file_exists(tries); ms++) usleep(1000);
    assert_true(pj_file_exists(tries));
    pj_recovery_close(recovery);
    assert_false(pj_file_exists(tries));
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    for (int i = 0; i < 100 && pj_file_exists(spool); i++) { /* the abandoned thread may hold it */
        open_and_count("hasty.db", NULL);
        usleep(20000);
    }
    assert_int_equal(open_and_count("hasty.db", "interrupted"), 1);
}

/* A spool whose processing takes long: many names of components make a large fit. */
static void a_slow_spool_delays_neither_opening_nor_closing(void **state)
{
    char path[300], dir[300], id[37];
    pj_spool slow;
    pj_session *session = open_session("slow.db");
    pj_session_close(session);
    snprintf(dir, sizeof dir, "%s/slow.db-spool", folder);
    snprintf(id, sizeof id, "01900000-0000-7000-8000-000000000001");
    assert_int_equal(pj_spool_create(dir, id, 1, 2, &slow, NULL), PJ_OK);
    char info[200];
    snprintf(info, sizeof info, "{\"id\":\"%s\",\"depth\":\"module\"}", id);
    assert_int_equal(pj_spool_append(&slow, PJ_RECORD_INFO, info, strlen(info), NULL), PJ_OK);
    for (uint32_t i = 0; i < (PJ_SANITIZED ? 200000 : 1000000); i++) {
        pj_span span = {.begin_ns = 1000 + 10 * (int64_t)i,
                        .end_ns = 1005 + 10 * (int64_t)i,
                        .serial = i,
                        .kind = PJ_SPAN_OPERATION,
                        .layer = -1};
        assert_int_equal(pj_spool_append(&slow, PJ_RECORD_SPAN, &span, sizeof span, NULL), PJ_OK);
    }
    assert_int_equal(pj_spool_flush(&slow, NULL), PJ_OK);
    pj_spool_close(&slow, false);
    snprintf(path, sizeof path, "%s/%s.spool", dir, id);
    int64_t begin_ns = pj_clock_ns();
    session = open_session("slow.db");
    int64_t opened_ns = pj_clock_ns();
    pj_run *run;
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.prompt = "p"}, &run, NULL), PJ_OK);
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, NULL, NULL), PJ_OK);
    session->hurried = true;
    int64_t closing_ns = pj_clock_ns();
    pj_session_close(session);
    assert_in_range(opened_ns - begin_ns, 0, 5 * PJ_NS_PER_S);
    assert_in_range(pj_clock_ns() - closing_ns, 0, 5 * PJ_NS_PER_S);
    /* The abandoned thread still holds it for a moment; then patience stores it. */
    for (int i = 0; i < 100 && pj_file_exists(path); i++) {
        usleep(100000);
        open_and_count("slow.db", NULL);
    }
    assert_false(pj_file_exists(path));
    assert_int_equal(open_and_count("slow.db", NULL), 2);
}

int main(int argc, char **argv)
{
    child_or_parent(argc, argv, folder, sizeof folder, die_in_the_middle);
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spool_goes_to_its_own_database_alone),
        cmocka_unit_test(a_link_to_a_database_has_the_same_spools),
        cmocka_unit_test(shared_folders_are_adopted_only_when_unambiguous),
        cmocka_unit_test(what_belongs_to_another_user_is_left_alone),
        cmocka_unit_test(a_folder_that_cannot_be_made_does_not_fail_a_run),
        cmocka_unit_test(damage_is_said_and_the_file_kept),
        cmocka_unit_test(a_spool_that_comes_back_replaces_no_stored_run),
        cmocka_unit_test(no_flipped_bit_loses_a_run_without_a_word),
        cmocka_unit_test(a_spool_that_kills_its_readers_is_left_alone_in_the_end),
        cmocka_unit_test(a_recovery_that_lacks_time_has_not_failed),
        cmocka_unit_test(a_slow_spool_delays_neither_opening_nor_closing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
