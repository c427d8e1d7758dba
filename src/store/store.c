/* Opening a store: choosing the address and the engine that serves it, migrating, closing. */
#include "store/store.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "store/store_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pj_status pj_store_choose_path(const char *named, const char *file, const char *what, char *out,
                               size_t bytes, pj_error *err)
{
    char folder[PJ_ADDRESS_BYTES];
    bool fits;
    if (named && *named) {
        fits = (size_t)snprintf(out, bytes, "%s", named) < bytes;
    } else {
        pj_status status = pj_path_user_data(folder, sizeof folder, err);
        if (status != PJ_OK) return status;
        fits = pj_path_join(out, bytes, folder, file);
    }
    return fits ? PJ_OK : pj_fail(err, PJ_E_INVALID, "%s is too long", what);
}

static void store_disconnect(pj_store *store)
{
    for (int i = 0; i < PJ_STATEMENTS_KEPT; i++) pj_sql_forget(&store->kept[i]);
    pj_arena_fini(&store->packers_arena);
    memset(store->packers, 0, sizeof store->packers);
    pj_packed_texts_forget(&store->texts);
    if (store->db) store->driver->close(store->db);
    store->db = NULL;
}

static pj_status open_and_migrate(pj_store *store, pj_error *err)
{
    pj_status status = store->driver->open(store->address, store->read_only, &store->db, err);
    if (status == PJ_OK) status = pj_store_migrate(store, err);
    if (status != PJ_OK) store_disconnect(store);
    return status;
}

/* An unreachable server is retried with exponential backoff, so that callers do not wait for every
 * attempt. */
static pj_status connect_again(pj_store *store, pj_error *err)
{
    enum { FIRST_PAUSE_S = 1, MAX_PAUSE_S = 60 };
    if (store->try_next_ns && pj_clock_ns() < store->try_next_ns) {
        if (err) *err = store->away;
        return store->away.status;
    }
    pj_status status = open_and_migrate(store, &store->away);
    if (status == PJ_OK) return PJ_OK;
    int64_t most = MAX_PAUSE_S * PJ_NS_PER_S;
    store->pause_ns = store->pause_ns ? 2 * store->pause_ns : FIRST_PAUSE_S * PJ_NS_PER_S;
    if (store->pause_ns > most) store->pause_ns = most;
    store->try_next_ns = pj_clock_ns() + store->pause_ns;
    if (err) *err = store->away;
    return status;
}

pj_status pj_store_find_address(const char *path, char *address, size_t bytes, pj_error *err)
{
    return pj_store_choose_path(path ? path : getenv("PERJOULE_DB"), "perjoule.db",
                                "the database's path", address, bytes, err);
}

static pj_status store_open_address(pj_store *store, const pj_store_options *options, pj_error *err)
{
    store->read_only = options->read_only;
    pj_status status =
        pj_store_find_address(options->path, store->address, sizeof store->address, err);
    store->driver = options->driver;
    if (status == PJ_OK && strcmp(store->address, "none") == 0)
        status = pj_fail(err, PJ_E_NOT_FOUND,
                         "the database is none, which keeps nothing: name another with --db");
    if (status == PJ_OK && !store->driver)
        status = pj_store_driver_find(store->address, &store->driver, err);
    if (status != PJ_OK) return status;
    store->is_direct = options->is_direct || options->driver || !store->driver->is_remote;
    store->connect = connect_again;
    status = pj_store_connect(store, err);
    return status == PJ_E_UNAVAILABLE && options->may_be_away ? PJ_OK : status;
}

pj_status pj_store_open(const pj_store_options *options, pj_store **out, pj_error *err)
{
    *out = NULL;
    pj_store *store = pj_alloc(1, sizeof *store);
    if (!store) return pj_fail_memory(err, "the database");
    store->texts.store = store;
    pj_status status = store_open_address(store, options, err);
    if (status == PJ_OK)
        *out = store;
    else
        pj_store_close(store);
    return status;
}

void pj_store_be_frugal(pj_store *store)
{
    if (store->driver->is_remote) return;
    store->is_frugal = true;
    pj_sql_run(store, "PRAGMA wal_autocheckpoint=32", NULL);
}

void pj_store_write_back(pj_store *store)
{
    if (!store->driver->is_remote) pj_sql_run(store, "PRAGMA wal_checkpoint(PASSIVE)", NULL);
}

void pj_store_limit_cache(pj_store *store)
{
    if (!store->driver->is_remote) pj_sql_run(store, "PRAGMA cache_size=-2048", NULL);
}

void pj_store_close(pj_store *store)
{
    if (!store) return;
    store_disconnect(store);
    pj_store_close(store->outbox);
    pj_free(store);
}

const char *pj_store_path(const pj_store *store)
{
    return store->address;
}

void pj_store_leave_out_disturbances(pj_store *store, bool leave)
{
    store->leaves_out = leave;
}

bool pj_store_leaves_out_disturbances(const pj_store *store)
{
    return store->leaves_out;
}
