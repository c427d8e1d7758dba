/* Baseline for the storage benchmark: plain inserts of rows of the same shape in SQLite. */
#include "bench/store_run.h"
#include "store/sql.h"

#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

static pj_status fill_yardstick(pj_store *store, uint64_t rows, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "INSERT INTO yardstick VALUES "
                               "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                               err);
    for (uint64_t i = 0; i < rows && sql; i++) {
        pj_sql_int(sql, 1, (int64_t)i + 1);
        pj_sql_text(sql, 2, "softmax");
        for (int c = 3; c <= 20; c++) pj_sql_double(sql, c, (double)i * 0.37 + c);
        pj_sql_step(sql);
        pj_sql_reset(sql);
    }
    return pj_sql_end(sql, err);
}

pj_status pj_store_measure_inserts(const char *beside, uint64_t rows, double *seconds,
                                   pj_error *err)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char path[4096];
    pj_store *store = NULL;
    snprintf(path, sizeof path, "%s.yardstick", beside);
    pj_status status = pj_store_open(&(pj_store_options){.path = path}, &store, err);
    if (status == PJ_OK)
        status = pj_sql_run(store,
                            "CREATE TABLE yardstick (id INTEGER PRIMARY KEY, b TEXT, c REAL,"
                            " d REAL, e REAL, f REAL, g REAL, h REAL, i REAL, j REAL, k REAL,"
                            " l REAL, m REAL, n REAL, o REAL, p REAL, q REAL, r REAL, s REAL,"
                            " t REAL)",
                            err);
    int64_t begin = pj_clock_thread_cpu_ns();
    if (status == PJ_OK) status = pj_sql_transaction(store, PJ_WRITE, err);
    if (status == PJ_OK) status = fill_yardstick(store, rows, err);
    if (status == PJ_OK) status = pj_sql_commit(store, err);
    *seconds = (double)(pj_clock_thread_cpu_ns() - begin) * 1e-9;
    pj_store_close(store);
    for (int i = 0; i < 3; i++) {
        char file[sizeof path + 16];
        snprintf(file, sizeof file, "%s%s", path, endings[i]);
        unlink(file);
    }
    return status;
}
