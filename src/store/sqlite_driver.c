/* SQLite as a storage engine: schema, transactions, statements and checks of an open connection. */
#include "store/schema.h"
#include "store/sqlite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STRANGER_BYTES = 120 };

/* ---- schema -------------------------------------------------------------------------------- */

static int take_integer(void *context, int columns, char **values, char **names)
{
    *(int64_t *)context = values[0] ? strtoll(values[0], NULL, 10) : 0;
    return 0;
}

static bool is_our_view(const char *name)
{
    for (const pj_schema_view *view = pj_schema_views; view->name; view++)
        if (strcmp(view->name, name) == 0) return true;
    return pj_schema_stored_table(&pj_sqlite_dialect, name) != name;
}

static bool is_known_object(const char *type, const char *name)
{
    static const char *const triggers[] = {"run_is_deleted", "conditions_are_deleted",
                                           "component_is_deleted", "step_is_deleted", NULL};
    if (strcmp(type, "view") == 0) return is_our_view(name);
    for (int i = 0; triggers[i]; i++)
        if (strcmp(name, triggers[i]) == 0) return true;
    return pj_packing_owns_trigger(name);
}

/* A row: type and name of a trigger or view. Keeps the first that is not ours. */
static int note_stranger(void *context, int columns, char **values, char **names)
{
    char *found = context;
    if (!*found && !is_known_object(values[0] ? values[0] : "", values[1] ? values[1] : ""))
        snprintf(found, STRANGER_BYTES, "%s %s", values[0] ? values[0] : "",
                 values[1] ? values[1] : "");
    return 0;
}

/* Triggers and views run statements of whoever made the database within ours. */
static pj_status refuse_strangers(void *db, pj_error *err)
{
    char found[STRANGER_BYTES] = "";
    pj_status status = pj_sqlite_each_row(
        db, "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')", note_stranger,
        found, err);
    if (status != PJ_OK || !*found) return status;
    return pj_fail(err, PJ_E_INVALID,
                   "database %s contains the %s, which is not perjoule's and could change what it "
                   "reads and writes: drop it with sqlite3, or name another database with --db",
                   ((pj_sqlite *)db)->path, found);
}

static pj_status get_version(void *db, pj_db_owner *owner, int64_t *version, pj_error *err)
{
    int64_t application = 0, objects = 0;
    *version = 0;
    pj_status status =
        pj_sqlite_each_row(db, "PRAGMA application_id", take_integer, &application, err);
    if (status == PJ_OK)
        status = pj_sqlite_each_row(db, "PRAGMA user_version", take_integer, version, err);
    if (status == PJ_OK)
        status = pj_sqlite_each_row(db, "SELECT count(*) FROM sqlite_schema", take_integer,
                                    &objects, err);
    bool is_new = objects == 0 && *version == 0 && application == 0;
    bool is_ours = application == PJ_SQLITE_APPLICATION_ID;
    /* A newer version may have more of its own. */
    bool is_newer = *version > pj_sqlite_dialect.version;
    if (status == PJ_OK && is_ours && !is_newer) status = refuse_strangers(db, err);
    *owner = is_new ? PJ_DB_NEW : is_ours ? PJ_DB_OURS : PJ_DB_FOREIGN;
    return status;
}

/* Databases of earlier versions were readable by everybody; they hold prompts. Only at
 * migration, so that a database that is shared on purpose later stays shared. */
static void make_private(const char *path)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char sidecar[sizeof((pj_sqlite *)0)->path + 8];
        snprintf(sidecar, sizeof sidecar, "%s%s", path, endings[i]);
        (void)!chmod(sidecar, 0600);
    }
}

static pj_status set_version(void *db, int64_t version, pj_error *err)
{
    char text[96];
    make_private(((pj_sqlite *)db)->path);
    snprintf(text, sizeof text, "PRAGMA user_version=%d; PRAGMA application_id=%d", (int)version,
             PJ_SQLITE_APPLICATION_ID);
    return pj_sqlite_run(db, text, err);
}

/* Who is told the columns of a table, or defects. */
typedef struct receiver {
    pj_column_name_fn *take_column;
    pj_defect_fn *take_defect;
    void *context;
} receiver;

static int take_column(void *context, int columns, char **values, char **names)
{
    const receiver *to = context;
    to->take_column(to->context, values[0] ? values[0] : "");
    return 0;
}

static pj_status sqlite_driver_list_columns(void *db, const char *table, pj_column_name_fn *take,
                                            void *context, pj_error *err)
{
    char text[200];
    receiver to = {.take_column = take, .context = context};
    snprintf(text, sizeof text, "SELECT name FROM pragma_table_info('%s', 'main') ORDER BY cid",
             table);
    return pj_sqlite_each_row(db, text, take_column, &to, err);
}

/* ---- transactions -------------------------------------------------------------------------- */

static void restore_settings(pj_sqlite *sqlite)
{
    if (sqlite->kind == PJ_WRITE_RUN) pj_sqlite_run(sqlite, "PRAGMA foreign_keys=ON", NULL);
    sqlite->kind = PJ_READ;
}

static pj_status begin(void *db, pj_transaction kind, pj_error *err)
{
    pj_sqlite *sqlite = db;
    pj_status status = PJ_OK;
    sqlite->kind = kind;
    if (kind == PJ_WRITE_RUN) status = pj_sqlite_run(sqlite, "PRAGMA foreign_keys=OFF", err);
    if (status == PJ_OK)
        status = pj_sqlite_run(sqlite, kind == PJ_READ ? "BEGIN" : "BEGIN IMMEDIATE", err);
    if (status != PJ_OK) restore_settings(sqlite);
    return status;
}

static void rollback(void *db)
{
    pj_sqlite *sqlite = db;
    if (!sqlite3_get_autocommit(sqlite->db)) pj_sqlite_run(sqlite, "ROLLBACK", NULL);
    restore_settings(sqlite);
}

static pj_status commit(void *db, pj_error *err)
{
    pj_status status = pj_sqlite_run(db, "COMMIT", err);
    if (status == PJ_OK)
        restore_settings(db);
    else
        rollback(db);
    return status;
}

/* ---- statements ---------------------------------------------------------------------------- */

static pj_status prepare(void *db, const char *text, void **statement, pj_error *err)
{
    pj_sqlite *sqlite = db;
    int code = sqlite3_prepare_v3(sqlite->db, text, -1, SQLITE_PREPARE_PERSISTENT,
                                  (sqlite3_stmt **)statement, NULL);
    return code == SQLITE_OK ? PJ_OK : pj_sqlite_fail(sqlite, code, err);
}

static int bind(void *statement, int index, const pj_value *value)
{
    switch (value->type) {
    case PJ_VALUE_INT: return sqlite3_bind_int64(statement, index, value->integer);
    case PJ_VALUE_DOUBLE: return sqlite3_bind_double(statement, index, value->number);
    case PJ_VALUE_TEXT:
        return sqlite3_bind_text64(statement, index, value->text, value->bytes, SQLITE_STATIC,
                                   SQLITE_UTF8);
    case PJ_VALUE_BLOB:
        return sqlite3_bind_blob64(statement, index, value->text, value->bytes, SQLITE_STATIC);
    case PJ_VALUE_NULL: break;
    }
    return sqlite3_bind_null(statement, index);
}

static int step(void *statement, bool *row)
{
    pj_sqlite_begin_work();
    int code = sqlite3_step(statement);
    *row = code == SQLITE_ROW;
    return *row || code == SQLITE_DONE ? 0 : code;
}

static void get_column(void *statement, int column, pj_value *value)
{
    int type = sqlite3_column_type(statement, column);
    *value = (pj_value){.type = PJ_VALUE_NULL};
    if (type == SQLITE_INTEGER) {
        *value = pj_value_int(sqlite3_column_int64(statement, column));
    } else if (type == SQLITE_FLOAT) {
        *value = pj_value_double(sqlite3_column_double(statement, column));
    } else if (type != SQLITE_NULL) {
        value->type = type == SQLITE_TEXT ? PJ_VALUE_TEXT : PJ_VALUE_BLOB;
        value->text = type == SQLITE_TEXT ? (const char *)sqlite3_column_text(statement, column)
                                          : sqlite3_column_blob(statement, column);
        value->bytes = (size_t)sqlite3_column_bytes(statement, column);
    }
}

static int reset(void *statement)
{
    return sqlite3_reset(statement);
}

static void clear(void *statement)
{
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

static void finalize(void *statement)
{
    sqlite3_finalize(statement);
}

/* ---- checks -------------------------------------------------------------------------------- */

static int take_damage(void *context, int columns, char **values, char **names)
{
    const receiver *to = context;
    const char *text = values[0] ? values[0] : "?";
    if (strcmp(text, "ok") != 0) to->take_defect(to->context, PJ_DEFECT_FILE, text);
    return 0;
}

static int take_orphan(void *context, int columns, char **values, char **names)
{
    const receiver *to = context;
    char text[PJ_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "row %s of %.60s refers to a missing row",
             values[1] ? values[1] : "0", values[0] ? values[0] : "?");
    to->take_defect(to->context, PJ_DEFECT_REFERENCE, text);
    return 0;
}

static pj_status check(void *db, pj_defect_fn *take, void *context, pj_error *err)
{
    receiver to = {.take_defect = take, .context = context};
    pj_status status = pj_sqlite_each_row(db, "PRAGMA integrity_check", take_damage, &to, err);
    if (status != PJ_OK) return status;
    return pj_sqlite_each_row(db, "PRAGMA foreign_key_check", take_orphan, &to, err);
}

extern const pj_store_driver pj_sqlite_driver;
const pj_store_driver pj_sqlite_driver = {.name = "SQLite",
                                          .dialect = &pj_sqlite_dialect,
                                          .open = pj_sqlite_open,
                                          .close = pj_sqlite_close,
                                          .fail = pj_sqlite_fail,
                                          .get_version = get_version,
                                          .set_version = set_version,
                                          .columns = sqlite_driver_list_columns,
                                          .begin = begin,
                                          .commit = commit,
                                          .rollback = rollback,
                                          .run = pj_sqlite_run,
                                          .prepare = prepare,
                                          .bind = bind,
                                          .step = step,
                                          .column = get_column,
                                          .reset = reset,
                                          .clear = clear,
                                          .finalize = finalize,
                                          .check = check,
                                          .recognise = pj_sqlite_recognise};
