/* A connection to an SQLite database, as the files of the SQLite driver share it. Private to them.
 */
#ifndef PJ_STORE_SQLITE_H
#define PJ_STORE_SQLITE_H

#include "store/driver.h"

#include <sqlite3.h>

typedef struct pj_sqlite {
    sqlite3 *db;
    bool read_only;
    pj_transaction kind; /* of the open transaction; PJ_READ outside one */
    char path[4096];
} pj_sqlite;

/* Functions of the driver's table (driver.h). */
pj_status pj_sqlite_open(const char *address, bool read_only, void **db, pj_error *err);
void pj_sqlite_close(void *db);
bool pj_sqlite_recognise(const char *path);
pj_status pj_sqlite_status(int code);
pj_status pj_sqlite_fail(void *db, int code, pj_error *err);
pj_status pj_sqlite_run(void *db, const char *text, pj_error *err);

/* ---- the schema (sqlite_schema.c) ---- */

/* "PJDB" in ASCII: PRAGMA application_id, so that `file` and this program know its databases. */
#define PJ_SQLITE_APPLICATION_ID 0x504a4442

extern const pj_dialect pj_sqlite_dialect;

#endif
