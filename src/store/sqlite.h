/* A connection to an SQLite database, as the files of the SQLite driver share it. Private to them.
 */
#ifndef PJ_STORE_SQLITE_H
#define PJ_STORE_SQLITE_H

#include "store/driver.h"

#include <sqlite3.h>

typedef struct pj_sqlite {
    sqlite3 *db;
    bool read_only;
    bool is_alone;   /* without the shared memory of a log, which the full disk has no space for */
    int64_t wait_ns; /* since when it waits for a lock */
    bool has_said_wait;
    bool has_no_locks;   /* its file system has none */
    pj_transaction kind; /* of the open transaction; PJ_READ outside one */
    char path[4096];
} pj_sqlite;

/* Functions of the driver's table (driver.h). */
pj_status pj_sqlite_open(const char *address, bool read_only, void **db, pj_error *err);
void pj_sqlite_close(void *db);
bool pj_sqlite_recognise(const char *path);
pj_status pj_sqlite_fail(void *db, int code, pj_error *err);
pj_status pj_sqlite_run(void *db, const char *text, pj_error *err);

/* The bound on the work of a statement counts from here. */
void pj_sqlite_begin_work(void);
/* Runs a text and passes the values of each row, as texts or NULL; returns 0. */
typedef int pj_sqlite_row_fn(void *context, int columns, char **values, char **names);
pj_status pj_sqlite_each_row(pj_sqlite *sqlite, const char *text, pj_sqlite_row_fn *take,
                             void *context, pj_error *err);

/* ---- the schema (sqlite_schema.c) ---- */

/* "PJDB" in ASCII: PRAGMA application_id, so that `file` and this program know its databases. */
#define PJ_SQLITE_APPLICATION_ID 0x504a4442

extern const pj_dialect pj_sqlite_dialect;

#endif
