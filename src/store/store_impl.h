/* An open store, as the files that open, migrate and query it share it. Private to them. */
#ifndef PJ_STORE_STORE_IMPL_H
#define PJ_STORE_STORE_IMPL_H

#include "store/driver.h"
#include "store/sql.h"

enum { PJ_STATEMENTS_KEPT = 16, PJ_PLACE_BYTES = 4096 };

struct pj_sql {
    pj_store *store;
    const pj_store_driver *driver;
    void *statement; /* NULL: an unused place */
    char *text;      /* as given; the key under which the statement is kept */
    int code;        /* first failure, 0 until then */
    bool busy;
    pj_arena copies; /* of blobs read as texts, until the next step */
};

struct pj_store {
    const pj_store_driver *driver;
    void *db;
    bool read_only;
    bool by_statements; /* rows are never inserted in bulk */
    uint64_t bulk_rows; /* rows inserted in bulk since opening */
    char place[PJ_PLACE_BYTES];
    pj_sql kept[PJ_STATEMENTS_KEPT];
};

pj_status pj_store_migrate(pj_store *store, pj_error *err); /* migrate.c */
void pj_sql_forget(pj_sql *sql);                            /* an unused place afterwards */

#endif
