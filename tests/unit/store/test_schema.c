/*
 * A new database and one of each earlier version that was brought up to date have the same tables
 * and views, with the same columns; and one whose rows lack a column is given it.
 */
#include "history.h"
#include "made_run.h"

#include "base/buffer.h"
#include "store/driver.h"
#include "store/sql.h"
#include "store/store.h"
#include "store/store_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Beside what depends on an extension that belongs to one schema of the server, and a key that is a
 * constraint in new databases. */
#ifdef TEST_SERVER_DRIVER
#define HISTORY postgres_history
#define COLUMNS                                                                              \
    "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable FROM" \
    " information_schema.columns c WHERE table_schema = current_schema() AND NOT EXISTS"     \
    " (SELECT 1 FROM pg_inherits WHERE inhrelid = (quote_ident(table_schema) || '.' ||"      \
    "  quote_ident(table_name))::regclass) ORDER BY 1"
#define INDICES                                                                                   \
    "SELECT replace(indexdef, current_schema() || '.', '') FROM pg_indexes i WHERE schemaname = " \
    "current_schema() AND NOT EXISTS"                                                             \
    " (SELECT 1 FROM pg_inherits WHERE inhrelid = (quote_ident(schemaname) || '.' ||"             \
    "  quote_ident(indexname))::regclass) AND indexname NOT LIKE 'run_charts%'"                   \
    " AND indexname NOT IN ('charts_by_run', 'runs_by_prompt') ORDER BY 1"
#else
#define HISTORY sqlite_history
#define COLUMNS                                                                               \
    "/* SQLite */ SELECT m.type || ' ' || m.name || '.' || p.name || ' ' || p.type || ' ' ||" \
    " p.\"notnull\" || ' ' || p.pk FROM sqlite_schema m JOIN pragma_table_info(m.name) p"     \
    " ORDER BY 1"
#define INDICES                                                                          \
    "/* SQLite */ SELECT coalesce(sql, name) FROM sqlite_schema WHERE type IN ('index'," \
    " 'trigger') ORDER BY 1"
#endif

static const pj_store_driver *driver_of(const char *path)
{
    const pj_store_driver *driver = MADE_DRIVER;
    pj_error err = {0};
    if (!driver && pj_store_driver_find(path, &driver, &err) != PJ_OK) fail_msg("%s", err.text);
    return driver;
}

static void make_earlier(const char *path, int version)
{
    void *db = NULL;
    pj_error err = {0};
    const pj_store_driver *driver = driver_of(path);
    pj_status status = driver->open(path, false, &db, &err);
    if (status == PJ_OK) status = driver->begin(db, PJ_WRITE, &err);
    for (int i = 0; i < version && status == PJ_OK; i++) status = driver->run(db, HISTORY[i], &err);
    if (status == PJ_OK) status = driver->set_version(db, version, &err);
    if (status == PJ_OK) status = driver->commit(db, &err);
    driver->close(db);
    if (status != PJ_OK) fail_msg("version %d: %s", version, err.text);
}

static char *list(pj_store *store, const char *question)
{
    pj_buffer text;
    pj_error err = {0};
    pj_buffer_init(&text, 1 << 20);
    pj_sql *sql = pj_sql_begin(store, question, &err);
    while (pj_sql_step(sql)) pj_buffer_printf(&text, "%s\n", pj_sql_get_text(sql, 0, NULL));
    if (pj_sql_end(sql, &err) != PJ_OK) fail_msg("%s", err.text);
    char *taken = strdup(pj_buffer_get(&text));
    pj_buffer_fini(&text);
    return taken;
}

/* The database at `path`, and its columns and indices. */
static pj_store *describe(const char *path, char *described[2])
{
    pj_store *store = NULL;
    pj_error err = {0};
    if (pj_store_open(&(pj_store_options){.path = path, .driver = MADE_DRIVER}, &store, &err) !=
        PJ_OK)
        fail_msg("%s", err.text);
    described[0] = list(store, COLUMNS);
    described[1] = list(store, INDICES);
    return store;
}

static void save_and_check(pj_store *store)
{
    pj_run_data run;
    pj_error err = {0};
    int64_t broken = -1;
    make_run(&(made_run){.seed = 5, .tokens = 3, .layers = 2, .depth = PJ_DEPTH_DEEP}, &run);
    if (pj_store_save(store, &run, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_sql_get_one_int(store,
                       "SELECT count(*) FROM conservation WHERE NOT abs(whole_mj - parts_mj) <="
                       " 1e-9 * abs(whole_mj)",
                       NULL, -1, &broken, &err);
    assert_int_equal(broken, 0);
    assert_int_equal(pj_store_delete(store, run.info.id, &err), PJ_OK);
    pj_run_data_fini(&run);
}

static void say_difference(int version, const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    fail_msg("version %d differs: a new one has %.200s, it has %.200s", version, a, b);
}

static void every_version_becomes_the_present_one(void **state)
{
    char folder[] = "/tmp/perjoule-schema-XXXXXX", path[96], command[96], *wanted[2], *found[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/new.db", folder);
    pj_store_close(describe(path, wanted));
    assert_non_null(strstr(wanted[0], "profiling_runs.overhead_share"));
    assert_non_null(strstr(wanted[0], "conservation.parts_mj"));
    for (int version = 1; HISTORY[version - 1]; version++) {
        snprintf(path, sizeof path, "%s/%d.db", folder, version);
        make_earlier(path, version);
        pj_store *store = describe(path, found);
        for (int i = 0; i < 2; i++) {
            if (strcmp(wanted[i], found[i]) != 0) say_difference(version, wanted[i], found[i]);
            free(found[i]);
        }
        save_and_check(store);
        pj_store_close(store);
    }
    free(wanted[0]);
    free(wanted[1]);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_version_becomes_the_present_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
