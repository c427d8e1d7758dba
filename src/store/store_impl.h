/* An open store, as the files that open, migrate and query it share it. Private to them. */
#ifndef PJ_STORE_STORE_IMPL_H
#define PJ_STORE_STORE_IMPL_H

#include "store/driver.h"
#include "store/packing.h"
#include "store/sql.h"

enum { PJ_STATEMENTS_KEPT = 16, PJ_ADDRESS_BYTES = 4096 };

struct pj_sql {
    pj_store *store;
    const pj_store_driver *driver;
    void *statement; /* NULL: an unused slot */
    char *text;      /* as given; the key under which the statement is kept */
    int code;        /* first failure, 0 until then */
    pj_error damage; /* the same, of unpacking */
    bool busy;
    /* Where it selects `id` and the columns of a packer: whoever set that unpacks their values. */
    const pj_packer *packer;
    pj_unpack_fn *unpack;
    pj_arena copies; /* of blobs read as texts, until the next step */
};

struct pj_store {
    const pj_store_driver *driver;
    void *db;
    bool read_only;
    bool is_direct;      /* saves without the outbox */
    bool is_frugal;      /* pj_store_be_frugal */
    bool leaves_out;     /* figures are read without disturbances */
    pj_store *outbox;    /* of a server; opened by the first run */
    int64_t try_next_ns; /* next attempt to connect while the server is unreachable */
    int64_t pause_ns;
    pj_error away; /* why it is unreachable */
    pj_status (*connect)(pj_store *store, pj_error *err);
    char address[PJ_ADDRESS_BYTES];
    pj_sql kept[PJ_STATEMENTS_KEPT];
    pj_packer *packers[PJ_TABLE_COUNT];
    pj_arena packers_arena;
    pj_packed_texts texts;
};

/* `named`, or else a file in the user's data folder; `what` it is, if it is too long (store.c). */
pj_status pj_store_choose_path(const char *named, const char *file, const char *what, char *out,
                               size_t bytes, pj_error *err);
pj_status pj_store_migrate(pj_store *store, pj_error *err); /* migrate.c */
/* Ensures that store->db is open. */
static inline pj_status pj_store_connect(pj_store *store, pj_error *err)
{
    return store->db ? PJ_OK : store->connect(store, err);
}
/* As pj_store_save, but never into the outbox (save.c). */
pj_status pj_store_save_here(pj_store *store, const pj_run_data *data, pj_error *err);
void pj_sql_forget(pj_sql *sql); /* an unused slot afterwards */

#endif
