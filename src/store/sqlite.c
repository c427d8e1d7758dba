/*
 * One connection to the database: opening, migrating, statements, and SQLite's errors as sentences.
 *
 * WAL mode: readers and the writer do not block each other. synchronous=NORMAL: a killed process
 * loses nothing, a power failure loses at most the last runs, never part of one. Pages of 32 kB,
 * because rows are written in bulk and read in ranges: measured 10 % faster than 16 kB, which is
 * 20 % faster than 4 kB.
 */
#include "store/sqlite.h"

#include "base/clock.h"
#include "base/file.h"
#include "store/record.h"
#include "store/rows.h"
#include "store/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_TIMEOUT_MS = 120000, STATEMENTS_KEPT = 16, PATH_BYTES = 4096, CHECKPOINT_PAGES = 1000 };

#define USUAL_CACHE "PRAGMA cache_size=-65536"
#define BULK_CACHE  "PRAGMA cache_size=-4096"

struct pj_sql {
    pj_store *store;
    sqlite3_stmt *statement;
    const char *text; /* as given; the key of the cache */
    int code;         /* first failure, SQLITE_OK until then */
    bool busy;
};

struct pj_store {
    sqlite3 *db;
    bool read_only;
    bool without_pages; /* rows go in by statements alone */
    uint64_t page_rows; /* that went in as pages */
    char path[PATH_BYTES];
    pj_sql kept[STATEMENTS_KEPT];
};

/* ---- errors -------------------------------------------------------------------------------- */

static pj_status status_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW: return PJ_OK;
    case SQLITE_NOMEM: return PJ_E_NO_MEMORY;
    case SQLITE_FULL: return PJ_E_FULL;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return PJ_E_AGAIN;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH: return PJ_E_DENIED;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT: return PJ_E_INVALID;
    case SQLITE_CONSTRAINT: return PJ_E_STATE;
    case SQLITE_MISUSE: return PJ_E_INTERNAL;
    default: return PJ_E_IO;
    }
}

static pj_status fail_code(pj_store *store, int code, pj_error *err)
{
    const char *path = store->path;
    pj_status status = status_of(code);
    switch (code & 0xff) {
    case SQLITE_NOMEM: return pj_fail_memory(err, "the database");
    case SQLITE_FULL:
        return pj_fail(err, status,
                       "no space is left for database %s: free some, or choose "
                       "another place with --db",
                       path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return pj_fail(err, status,
                       "database %s is locked by another process: try again when it "
                       "has finished",
                       path);
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
        return pj_fail(err, status,
                       "database %s can't be written: check the permissions of the "
                       "file and its folder, or choose another place with --db",
                       path);
    case SQLITE_CANTOPEN:
        return pj_fail(err, status,
                       "can't open database %s: check that its folder exists and may "
                       "be written, or choose another place with --db",
                       path);
    case SQLITE_NOTADB:
        return pj_fail(err, status,
                       "%s is not a perjoule database: move it away or name another "
                       "with --db",
                       path);
    case SQLITE_CORRUPT:
        return pj_fail(err, status,
                       "database %s is damaged: move it away to start a new one, or "
                       "save what is left with: sqlite3 FILE .recover",
                       path);
    default: return pj_fail(err, status, "database %s: %s", path, sqlite3_errmsg(store->db));
    }
}

/* ---- opening ------------------------------------------------------------------------------- */

pj_status pj_store_default_path(const char *path, char *out, size_t bytes, pj_error *err)
{
    const char *named = path ? path : getenv("PERJOULE_DB");
    if (named && *named) {
        if (strncmp(named, "postgresql:", 11) == 0 || strncmp(named, "postgres:", 9) == 0)
            return pj_fail(err, PJ_E_UNSUPPORTED,
                           "this build stores in SQLite only: give --db a file instead of %s",
                           named);
        if ((size_t)snprintf(out, bytes, "%s", named) >= bytes)
            return pj_fail(err, PJ_E_INVALID, "the database's path is too long");
        return PJ_OK;
    }
    char folder[PATH_BYTES];
    pj_status status = pj_path_user_data(folder, sizeof folder, err);
    if (status != PJ_OK) return status;
    if (!pj_path_join(out, bytes, folder, "perjoule.db"))
        return pj_fail(err, PJ_E_INVALID, "the database's path is too long");
    return PJ_OK;
}

static pj_status make_folder(const char *path, pj_error *err)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return PJ_OK;
    *slash = 0;
    if (pj_dir_exists(folder)) return PJ_OK;
    return pj_dir_make(folder, err);
}

/* SQLite does not wait for others when it changes the journal's mode: processes that create one
 * database at once would see each other as a lock. */
static pj_status switch_to_wal(pj_store *store, pj_error *err)
{
    int64_t give_up_ns = pj_clock_ns() + BUSY_TIMEOUT_MS * PJ_NS_PER_MS;
    for (;;) {
        pj_status status = pj_sql_run(store, "PRAGMA journal_mode=WAL", err);
        if (status == PJ_OK || (sqlite3_errcode(store->db) & 0xff) != SQLITE_BUSY ||
            pj_clock_ns() > give_up_ns)
            return status;
        pj_clock_sleep_until(pj_clock_ns() + 10 * PJ_NS_PER_MS);
    }
}

static pj_status set_up_connection(pj_store *store, pj_error *err)
{
    sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    pj_status status = pj_sql_run(store, "PRAGMA cell_size_check=ON", err);
    if (status == PJ_OK) status = pj_sql_run(store, "PRAGMA foreign_keys=ON", err);
    if (status == PJ_OK && !store->read_only) {
        status = pj_sql_run(store, "PRAGMA page_size=32768", err);
        if (status == PJ_OK) status = switch_to_wal(store, err);
        if (status == PJ_OK) status = pj_sql_run(store, "PRAGMA synchronous=NORMAL", err);
    }
    /* After the page size: a cache is counted in pages of the size known when it is set. */
    return status == PJ_OK ? pj_sql_run(store, USUAL_CACHE, err) : status;
}

static pj_status get_pragma(pj_store *store, const char *text, int64_t *value, pj_error *err)
{
    return pj_sql_get_one_int(store, text, NULL, 0, value, err);
}

static int64_t our_version(void)
{
    int64_t version = 0;
    while (pj_schema_steps[version]) version++;
    return version;
}

static pj_status fail_old_schema(const pj_store *store, pj_error *err)
{
    return pj_fail(err, PJ_E_STATE,
                   "database %s has an old schema and was opened for reading only: open it once "
                   "for writing",
                   store->path);
}

/* Refuses other programs' databases and newer schemas before anything is written. */
static pj_status check_owner(pj_store *store, int64_t *version, pj_error *err)
{
    int64_t application = 0, objects = 0;
    pj_status status = get_pragma(store, "PRAGMA application_id", &application, err);
    if (status == PJ_OK) status = get_pragma(store, "PRAGMA user_version", version, err);
    if (status == PJ_OK)
        status = get_pragma(store, "SELECT count(*) FROM sqlite_schema", &objects, err);
    if (status != PJ_OK) return status;
    bool is_new = objects == 0 && *version == 0 && application == 0;
    if (!is_new && application != PJ_SCHEMA_APPLICATION_ID)
        return pj_fail(err, PJ_E_INVALID,
                       "%s is a database of another program: name another file "
                       "with --db",
                       store->path);
    if (*version > our_version())
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "database %s was written by a newer perjoule (schema "
                       "%d, this one knows %d): update perjoule or name another file with --db",
                       store->path, (int)*version, (int)our_version());
    if (store->read_only && *version < our_version()) return fail_old_schema(store, err);
    return PJ_OK;
}

static pj_status take_steps(pj_store *store, int64_t version, pj_error *err)
{
    char text[96];
    pj_status status = PJ_OK;
    for (int64_t v = version; status == PJ_OK && pj_schema_steps[v]; v++)
        status = pj_sql_run(store, pj_schema_steps[v], err);
    snprintf(text, sizeof text, "PRAGMA user_version=%d; PRAGMA application_id=%d",
             (int)our_version(), PJ_SCHEMA_APPLICATION_ID);
    return status == PJ_OK ? pj_sql_run(store, text, err) : status;
}

/* Columns that rows have and the database does not know yet (a new statistic, say) are added without
 * a step of their own: they are NULL in all rows from before. */
static const char *declared_type(const pj_column *column)
{
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_JSON:
    case PJ_COLUMN_NAME:
    case PJ_COLUMN_EXTRAS:
    case PJ_COLUMN_ARRAY_NAME: return "TEXT";
    case PJ_COLUMN_DOUBLE:
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_NJ:
    case PJ_COLUMN_NS:
    case PJ_COLUMN_STAT_FLOAT: return "REAL";
    default: return "INTEGER";
    }
}

static const pj_row_table *table_at(int index)
{
    return index == PJ_TABLE_COUNT ? &pj_run_table : &pj_tables[index];
}

/* Sets a bit of `known` for each column of the table that the database has. */
static pj_status find_known_columns(pj_store *store, const pj_row_table *table, uint64_t known[2],
                                    pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "SELECT name FROM pragma_table_info(?, 'main')", err);
    pj_sql_text(sql, 1, table->name);
    while (pj_sql_step(sql)) {
        const char *name = pj_sql_get_text(sql, 0, NULL);
        for (int c = 0; c < table->column_count; c++)
            if (strcmp(table->columns[c].name, name) == 0) known[c / 64] |= UINT64_C(1) << c % 64;
    }
    return pj_sql_end(sql, err);
}

static pj_status add_columns(pj_store *store, const pj_row_table *table, const uint64_t known[2],
                             pj_error *err)
{
    char text[256];
    pj_status status = PJ_OK;
    for (int c = 0; c < table->column_count && status == PJ_OK; c++) {
        if (known[c / 64] >> c % 64 & 1) continue;
        snprintf(text, sizeof text, "ALTER TABLE %s ADD COLUMN %s %s", table->name,
                 table->columns[c].name, declared_type(&table->columns[c]));
        status = pj_sql_run(store, text, err);
    }
    return status;
}

/* Adds what is missing, or only says whether anything is. */
static pj_status complete_columns(pj_store *store, bool add, bool *missing, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int t = 0; t <= PJ_TABLE_COUNT && status == PJ_OK; t++) {
        const pj_row_table *table = table_at(t);
        uint64_t known[2] = {0};
        status = find_known_columns(store, table, known, err);
        int count = __builtin_popcountll(known[0]) + __builtin_popcountll(known[1]);
        if (status != PJ_OK || count == table->column_count) continue;
        *missing = true;
        if (add) status = add_columns(store, table, known, err);
    }
    return status;
}

/* Databases of earlier versions were readable by everybody; they hold prompts. Once, at migration:
 * whoever opens a database up to others on purpose keeps it so. */
static void make_private(const char *path)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char beside[PATH_BYTES + 8];
        snprintf(beside, sizeof beside, "%s%s", path, endings[i]);
        (void)!chmod(beside, 0600);
    }
}

/* Several processes may start at once: whoever gets the lock migrates, the others find it done. */
static pj_status migrate(pj_store *store, pj_error *err)
{
    int64_t version = 0;
    pj_status status = check_owner(store, &version, err);
    if (status != PJ_OK) return status;
    bool missing = false;
    if (version == our_version()) {
        status = complete_columns(store, false, &missing, err);
        if (status != PJ_OK || !missing) return status;
        if (store->read_only) return fail_old_schema(store, err);
    }
    status = pj_sql_transaction(store, true, err);
    if (status != PJ_OK) return status;
    status = check_owner(store, &version, err);
    if (status == PJ_OK && version < our_version()) {
        make_private(store->path);
        status = take_steps(store, version, err);
    }
    if (status == PJ_OK) status = complete_columns(store, true, &missing, err);
    if (status == PJ_OK) return pj_sql_commit(store, err);
    pj_sql_rollback(store);
    return status;
}

/* A log beside the database needs a file of shared memory, which cannot be made in a folder that
 * may only be read: without a log nobody writes there, and the file can be read as it lies. */
static bool lies_still(const char *path)
{
    char beside[PATH_BYTES + 8], *slash;
    snprintf(beside, sizeof beside, "%s-wal", path);
    if (pj_file_exists(beside)) return false;
    snprintf(beside, sizeof beside, "%s", path);
    slash = strrchr(beside, '/');
    if (slash) slash[slash == beside] = 0;
    return access(slash ? beside : ".", W_OK) != 0;
}

/* URIs are for what sqlite_bulk.c attaches, and for files that lie still: a path that looks like
 * one stays a path. */
static int open_file(pj_store *store)
{
    char path[3 * PATH_BYTES + 32];
    bool is_like_uri = strncmp(store->path, "file:", 5) == 0;
    int flags =
        store->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    snprintf(path, sizeof path, "%s%s", is_like_uri ? "./" : "", store->path);
    if (store->read_only && lies_still(store->path)) {
        char *at = path + snprintf(path, sizeof path, "file:");
        for (const char *c = store->path; *c; c++)
            at += sprintf(at, strchr("?#%", *c) ? "%%%02X" : "%c", *c);
        snprintf(at, (size_t)(path + sizeof path - at), "?immutable=1");
    }
    return sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
}

/* A new database is readable by its owner alone; SQLite gives its log the same permissions. */
static void create_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

pj_status pj_store_open(const pj_store_options *options, pj_store **out, pj_error *err)
{
    *out = NULL;
    pj_store *store = pj_alloc(1, sizeof *store);
    if (!store) return pj_fail_memory(err, "the database");
    store->read_only = options->read_only;
    const char *pages = getenv("PERJOULE_STORE_PAGES");
    store->without_pages = options->without_pages || (pages && strcmp(pages, "0") == 0);
    pj_status status = pj_store_default_path(options->path, store->path, sizeof store->path, err);
    if (status == PJ_OK && !store->read_only) status = make_folder(store->path, err);
    if (status != PJ_OK) goto fail;
    if (store->read_only && !pj_file_exists(store->path)) {
        status = pj_fail(err, PJ_E_NOT_FOUND,
                         "there is no database %s yet: record a run first, or "
                         "name one with --db",
                         store->path);
        goto fail;
    }
    if (!store->read_only) create_private(store->path);
    int code = open_file(store);
    if (code != SQLITE_OK) {
        status = fail_code(store, code, err);
        goto fail;
    }
    status = set_up_connection(store, err);
    if (status == PJ_OK) status = migrate(store, err);
    if (status != PJ_OK) goto fail;
    *out = store;
    return PJ_OK;
fail:
    pj_store_close(store);
    return status;
}

void pj_store_close(pj_store *store)
{
    if (!store) return;
    for (int i = 0; i < STATEMENTS_KEPT; i++) sqlite3_finalize(store->kept[i].statement);
    sqlite3_close(store->db);
    pj_free(store);
}

const char *pj_store_path(const pj_store *store)
{
    return store->path;
}

bool pj_store_takes_pages(const pj_store *store)
{
    return !store->without_pages;
}

void pj_store_add_page_rows(pj_store *store, uint64_t rows)
{
    store->page_rows += rows;
}

uint64_t pj_store_page_rows(const pj_store *store)
{
    return store->page_rows;
}

/* ---- statements ---------------------------------------------------------------------------- */

/* The kept statement of this text, or a place for it; texts are compared by content. */
static pj_sql *find_place(pj_store *store, const char *text)
{
    pj_sql *place = NULL;
    for (int i = 0; i < STATEMENTS_KEPT; i++) {
        pj_sql *sql = &store->kept[i];
        if (sql->busy) continue;
        if (sql->statement && strcmp(sqlite3_sql(sql->statement), text) == 0) return sql;
        if (!place || !sql->statement) place = sql;
    }
    return place;
}

pj_sql *pj_sql_begin(pj_store *store, const char *text, pj_error *err)
{
    pj_sql *sql = find_place(store, text);
    if (!sql) {
        pj_fail(err, PJ_E_INTERNAL, "too many statements are open on database %s", store->path);
        return NULL;
    }
    if (!sql->statement || strcmp(sqlite3_sql(sql->statement), text) != 0) {
        sqlite3_finalize(sql->statement);
        sql->statement = NULL;
        int code = sqlite3_prepare_v3(store->db, text, -1, SQLITE_PREPARE_PERSISTENT,
                                      &sql->statement, NULL);
        if (code != SQLITE_OK) {
            fail_code(store, code, err);
            return NULL;
        }
    }
    sql->store = store;
    sql->code = SQLITE_OK;
    sql->busy = true;
    return sql;
}

static void note(pj_sql *sql, int code)
{
    if (sql->code == SQLITE_OK && status_of(code) != PJ_OK) sql->code = code;
}

pj_status pj_sql_end(pj_sql *sql, pj_error *err)
{
    if (!sql) return err && err->status != PJ_OK ? err->status : PJ_E_IO;
    pj_status status = PJ_OK;
    if (sql->code != SQLITE_OK) status = fail_code(sql->store, sql->code, err);
    sqlite3_reset(sql->statement);
    sqlite3_clear_bindings(sql->statement);
    sql->busy = false;
    return status;
}

void pj_sql_null(pj_sql *sql, int index)
{
    if (sql) note(sql, sqlite3_bind_null(sql->statement, index));
}

void pj_sql_int(pj_sql *sql, int index, int64_t value)
{
    if (sql) note(sql, sqlite3_bind_int64(sql->statement, index, value));
}

void pj_sql_double(pj_sql *sql, int index, double value)
{
    if (sql) note(sql, sqlite3_bind_double(sql->statement, index, value));
}

void pj_sql_text(pj_sql *sql, int index, const char *text)
{
    pj_sql_text_n(sql, index, text, text ? strlen(text) : 0);
}

void pj_sql_text_n(pj_sql *sql, int index, const char *text, size_t bytes)
{
    if (sql)
        note(sql,
             sqlite3_bind_text64(sql->statement, index, text, bytes, SQLITE_STATIC, SQLITE_UTF8));
}

void pj_sql_blob(pj_sql *sql, int index, const void *bytes, size_t count)
{
    if (sql) note(sql, sqlite3_bind_blob64(sql->statement, index, bytes, count, SQLITE_STATIC));
}

static void bind_record_value(pj_sql *sql, int index, const pj_record_value *value)
{
    uint64_t bits;
    double number;
    switch (value->type) {
    case 0: pj_sql_null(sql, index); break;
    case 7:
        bits = (uint64_t)pj_record_integer(value);
        memcpy(&number, &bits, sizeof number);
        pj_sql_double(sql, index, number);
        break;
    case 8:
    case 9: pj_sql_int(sql, index, (int64_t)value->type - 8); break;
    default:
        if (value->type < 7)
            pj_sql_int(sql, index, pj_record_integer(value));
        else if (value->type % 2)
            pj_sql_text_n(sql, index, (const char *)value->bytes, value->count);
        else
            pj_sql_blob(sql, index, value->bytes, value->count);
    }
}

void pj_sql_record(pj_sql *sql, const pj_row_record *record)
{
    pj_record_reader reader = pj_record_read(record);
    pj_record_value value;
    for (int index = 1; sql && pj_record_next(&reader, &value); index++)
        bind_record_value(sql, index, &value);
}

bool pj_sql_step(pj_sql *sql)
{
    if (!sql || sql->code != SQLITE_OK) return false;
    int code = sqlite3_step(sql->statement);
    note(sql, code);
    return code == SQLITE_ROW;
}

void pj_sql_reset(pj_sql *sql)
{
    if (sql) note(sql, sqlite3_reset(sql->statement));
}

pj_sql_type pj_sql_get_type(pj_sql *sql, int column)
{
    switch (sqlite3_column_type(sql->statement, column)) {
    case SQLITE_INTEGER: return PJ_SQL_INT;
    case SQLITE_FLOAT: return PJ_SQL_DOUBLE;
    case SQLITE_TEXT: return PJ_SQL_TEXT;
    case SQLITE_BLOB: return PJ_SQL_BLOB;
    default: return PJ_SQL_NULL;
    }
}

int64_t pj_sql_get_int(pj_sql *sql, int column)
{
    return sqlite3_column_int64(sql->statement, column);
}

double pj_sql_get_double(pj_sql *sql, int column)
{
    int type = sqlite3_column_type(sql->statement, column);
    if (type != SQLITE_INTEGER && type != SQLITE_FLOAT) return NAN;
    return sqlite3_column_double(sql->statement, column);
}

const char *pj_sql_get_text(pj_sql *sql, int column, size_t *bytes)
{
    const char *text = (const char *)sqlite3_column_text(sql->statement, column);
    if (bytes) *bytes = (size_t)sqlite3_column_bytes(sql->statement, column);
    return text;
}

const void *pj_sql_get_blob(pj_sql *sql, int column, size_t *bytes)
{
    const void *blob = sqlite3_column_blob(sql->statement, column);
    *bytes = (size_t)sqlite3_column_bytes(sql->statement, column);
    return blob;
}

pj_status pj_sql_run(pj_store *store, const char *text, pj_error *err)
{
    int code = sqlite3_exec(store->db, text, NULL, NULL, NULL);
    return code == SQLITE_OK ? PJ_OK : fail_code(store, code, err);
}

pj_status pj_sql_get_one_int(pj_store *store, const char *text, const char *argument, int64_t none,
                             int64_t *value, pj_error *err)
{
    *value = none;
    pj_sql *sql = pj_sql_begin(store, text, err);
    if (argument) pj_sql_text(sql, 1, argument);
    if (pj_sql_step(sql) && pj_sql_get_type(sql, 0) != PJ_SQL_NULL) *value = pj_sql_get_int(sql, 0);
    return pj_sql_end(sql, err);
}

/* ---- transactions -------------------------------------------------------------------------- */

pj_status pj_sql_transaction(pj_store *store, bool write, pj_error *err)
{
    return pj_sql_run(store, write ? "BEGIN IMMEDIATE" : "BEGIN", err);
}

pj_status pj_sql_commit(pj_store *store, pj_error *err)
{
    pj_status status = pj_sql_run(store, "COMMIT", err);
    if (status != PJ_OK) pj_sql_rollback(store);
    return status;
}

void pj_sql_rollback(pj_store *store)
{
    if (!sqlite3_get_autocommit(store->db)) pj_sql_run(store, "ROLLBACK", NULL);
}

void pj_sql_large_begin(pj_store *store)
{
    pj_sql_run(store, BULK_CACHE, NULL);
}

void pj_sql_large_end(pj_store *store)
{
    pj_sql_run(store, USUAL_CACHE, NULL);
}

void pj_sql_hold_checkpoints(pj_store *store, bool hold)
{
    sqlite3_wal_autocheckpoint(store->db, hold ? 0 : CHECKPOINT_PAGES);
}

int64_t pj_store_log_bytes(const pj_store *store)
{
    char path[PATH_BYTES + 8];
    struct stat info;
    snprintf(path, sizeof path, "%s-wal", store->path);
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

pj_status pj_store_ranges(pj_store *store, const char *run_id, pj_row_range *ranges, pj_error *err)
{
    memset(ranges, 0, PJ_TABLE_COUNT * sizeof *ranges);
    pj_sql *sql = pj_sql_begin(
        store, "SELECT table_name, first_id, row_count FROM run_rows WHERE run_id = ?", err);
    pj_sql_text(sql, 1, run_id);
    while (pj_sql_step(sql)) {
        const char *name = pj_sql_get_text(sql, 0, NULL);
        int64_t first = pj_sql_get_int(sql, 1), count = pj_sql_get_int(sql, 2);
        if (!name || first < 1 || count < 0 || count >= UINT32_MAX ||
            first > INT64_MAX - UINT32_MAX)
            continue;
        for (int t = 0; t < PJ_TABLE_COUNT; t++)
            if (strcmp(pj_tables[t].name, name) == 0)
                ranges[t] = (pj_row_range){first, (uint32_t)count};
    }
    return pj_sql_end(sql, err);
}

/* ---- a yardstick ---------------------------------------------------------------------------- */

static pj_status fill_yardstick(pj_store *store, uint64_t rows, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "INSERT INTO yardstick VALUES "
                               "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                               err);
    for (uint64_t i = 0; i < rows && sql && sql->code == SQLITE_OK; i++) {
        pj_sql_int(sql, 1, (int64_t)i + 1);
        pj_sql_text_n(sql, 2, "softmax", 7);
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
    char path[PATH_BYTES];
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
    if (status == PJ_OK) status = pj_sql_run(store, "PRAGMA wal_autocheckpoint=0", err);
    if (status == PJ_OK) status = pj_sql_transaction(store, true, err);
    if (status == PJ_OK) status = fill_yardstick(store, rows, err);
    if (status == PJ_OK) status = pj_sql_commit(store, err);
    *seconds = (double)(pj_clock_thread_cpu_ns() - begin) * 1e-9;
    pj_store_close(store);
    for (int i = 0; i < 3; i++) {
        char file[PATH_BYTES + 16];
        snprintf(file, sizeof file, "%s%s", path, endings[i]);
        unlink(file);
    }
    return status;
}
