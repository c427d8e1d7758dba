/*
 * Bringing a database to this version's schema: refuses databases of other programs and of newer
 * versions before anything is written, creates a new one, or adds what an earlier one lacks.
 */
#include "store/schema.h"
#include "store/store_impl.h"

#include <string.h>

enum { MOST_COLUMNS = 2 * PJ_TABLE_COLUMNS, MOST_BYTES = 1 << 20 };

static int64_t our_version(const pj_store *store)
{
    return store->driver->dialect->version;
}

static pj_status fail_old_schema(const pj_store *store, pj_error *err)
{
    return pj_fail(err, PJ_E_STATE,
                   "database %s has an old schema and was opened for reading only: open it once "
                   "for writing",
                   store->address);
}

/* Where only the owner of the tables may change them. */
static pj_status fail_not_owner(const pj_store *store, pj_error *err)
{
    return pj_fail(err, PJ_E_DENIED,
                   "database %s has an older schema: its owner has to migrate it "
                   "by opening it once with this version (perjoule ls)",
                   store->address);
}

/* Refuses other programs' databases and newer schemas before anything is written. */
static pj_status check_owner(pj_store *store, int64_t *version, pj_error *err)
{
    pj_db_owner owner;
    pj_status status = store->driver->get_version(store->db, &owner, version, err);
    if (status != PJ_OK) return status;
    if (owner == PJ_DB_FOREIGN)
        return pj_fail(err, PJ_E_INVALID,
                       "%s is a database of another program: name another file "
                       "with --db",
                       store->address);
    if (*version > our_version(store))
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "database %s was written by a newer perjoule (schema "
                       "%d, this one knows %d): update perjoule or name another file with --db",
                       store->address, (int)*version, (int)our_version(store));
    if (store->read_only && *version < our_version(store)) return fail_old_schema(store, err);
    return PJ_OK;
}

/* ---- what a database lacks ------------------------------------------------------------------- */

typedef struct known_columns {
    const pj_dialect *dialect;
    const pj_schema_table *table;
    bool has_table;
    bool is_published; /* under its own name */
    bool has[MOST_COLUMNS];
} known_columns;

static void note_published(void *context, const char *name)
{
    ((known_columns *)context)->is_published = true;
}

static void note_column(void *context, const char *name)
{
    known_columns *known = context;
    pj_schema_column column;
    known->has_table = true;
    for (int i = 0; i < MOST_COLUMNS && pj_schema_column_get(known->table, i, &column); i++) {
        char stored[64];
        pj_schema_stored_column(known->dialect, known->table, &column, stored);
        if (strcmp(stored, name) == 0) known->has[i] = true;
    }
}

/* The statements that add what the database lacks of a table; none where it is complete. Columns
 * are NULL in all rows from before. */
static void complete_table(pj_buffer *out, const known_columns *known)
{
    const pj_dialect *dialect = known->dialect;
    pj_schema_column column;
    char name[64];
    size_t before = out->length;
    if (!known->has_table) {
        pj_schema_write_table(out, dialect, known->table);
        return;
    }
    for (int i = 0; i < MOST_COLUMNS && pj_schema_column_get(known->table, i, &column); i++) {
        if (known->has[i]) continue;
        bool is_coded =
            pj_code_is_number(column.code) && pj_schema_is_packed(dialect, known->table);
        pj_buffer_printf(out, "ALTER TABLE %s ADD COLUMN %s %s;",
                         pj_schema_stored_table(dialect, known->table->name),
                         pj_schema_stored_column(dialect, known->table, &column, name),
                         is_coded ? "" : dialect->types[column.type]);
    }
    if (out->length > before || !known->is_published)
        pj_schema_write_packed_view(out, dialect, known->table);
}

/* `rows_only`: only tables of rows, to which columns may come without a new version (a new
 * statistic, say, or a figure of runs). */
static pj_status complete_tables(pj_store *store, const pj_dialect *dialect, bool rows_only,
                                 pj_buffer *out, pj_error *err)
{
    pj_status status = PJ_OK;
    for (const pj_schema_table *table = pj_schema_tables; table->name && status == PJ_OK; table++) {
        known_columns known = {.dialect = dialect, .table = table};
        if (rows_only && !table->rows) continue;
        status = pj_store_columns(store, pj_schema_stored_table(dialect, table->name), note_column,
                                  &known, err);
        if (status == PJ_OK && pj_schema_is_packed(dialect, table))
            status = pj_store_columns(store, table->name, note_published, &known, err);
        if (status == PJ_OK) complete_table(out, &known);
    }
    return status;
}

static pj_status migrate_run_all(pj_store *store, pj_buffer *statements, pj_error *err)
{
    pj_status status = pj_buffer_status(statements, "the schema", err);
    if (status == PJ_OK && statements->length)
        status = pj_sql_run(store, pj_buffer_get(statements), err);
    pj_buffer_clear(statements);
    return status;
}

/* The tables as that version had them, with today's columns. */
static pj_status complete_as_before(pj_store *store, int64_t version, pj_buffer *out, pj_error *err)
{
    pj_dialect before = *store->driver->dialect;
    if (version < before.packs_since) before.packs_since = 0;
    before.write_before(out, version);
    pj_status status = migrate_run_all(store, out, err);
    if (status == PJ_OK) status = complete_tables(store, &before, false, out, err);
    if (before.write_moves) before.write_moves(out, version);
    return status == PJ_OK ? migrate_run_all(store, out, err) : status;
}

static pj_status fail_packing(const pj_store *store, pj_error *err)
{
    return pj_fail(
        err, PJ_E_FULL,
        "no space left to pack database %s, which an earlier version made: that needs as "
        "much free space as the database has, once",
        store->address);
}

static pj_status pack_tables(pj_store *store, pj_buffer *out, pj_error *err)
{
    for (const pj_schema_table *table = pj_schema_tables; table->name; table++)
        if (pj_schema_is_packed(store->driver->dialect, table))
            pj_schema_write_table(out, store->driver->dialect, table);
    pj_status status = migrate_run_all(store, out, err);
    if (status == PJ_OK) status = pj_packing_move_rows(store, err);
    return status == PJ_E_FULL ? fail_packing(store, err) : status;
}

static pj_status bring_up(pj_store *store, int64_t version, pj_buffer *out, pj_error *err)
{
    const pj_dialect *dialect = store->driver->dialect;
    pj_status status = PJ_OK;
    if (version == 0) {
        pj_schema_write(out, dialect);
    } else {
        status = complete_as_before(store, version, out, err);
        if (status == PJ_OK && version < dialect->packs_since)
            status = pack_tables(store, out, err);
        pj_schema_write_rest(out, dialect, version);
    }
    if (status == PJ_OK) status = migrate_run_all(store, out, err);
    return status == PJ_OK ? store->driver->set_version(store->db, dialect->version, err) : status;
}

/* Several processes may start at once: the one that gets the lock migrates, the others find it
 * done. */
static pj_status migrate(pj_store *store, int64_t *version, pj_buffer *out, pj_error *err)
{
    pj_status status = pj_sql_transaction(store, PJ_WRITE, err);
    if (status != PJ_OK) return status;
    status = check_owner(store, version, err);
    if (status == PJ_OK && *version < our_version(store)) {
        status = bring_up(store, *version, out, err);
    } else if (status == PJ_OK) {
        status = complete_tables(store, store->driver->dialect, true, out, err);
        if (status == PJ_OK) status = migrate_run_all(store, out, err);
    }
    return pj_sql_finish(store, status, err);
}

pj_status pj_store_migrate(pj_store *store, pj_error *err)
{
    int64_t version = 0;
    pj_buffer out;
    pj_buffer_init(&out, MOST_BYTES);
    pj_status status = check_owner(store, &version, err);
    bool is_current = status == PJ_OK && version == our_version(store);
    if (is_current) status = complete_tables(store, store->driver->dialect, true, &out, err);
    bool is_complete = is_current && out.length == 0;
    pj_buffer_clear(&out);
    if (status == PJ_OK && !is_complete)
        status =
            store->read_only ? fail_old_schema(store, err) : migrate(store, &version, &out, err);
    pj_buffer_fini(&out);
    return status == PJ_E_DENIED && version > 0 ? fail_not_owner(store, err) : status;
}
