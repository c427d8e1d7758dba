/*
 * Bringing a database to this version's schema: refuses databases of other programs and of newer
 * versions before anything is written, takes the driver's steps, and adds columns that rows have
 * and the database lacks.
 */
#include "store/rows.h"
#include "store/store_impl.h"

#include <stdio.h>
#include <string.h>

static int64_t our_version(const pj_store *store)
{
    int64_t version = 0;
    while (store->driver->schema[version]) version++;
    return version;
}

static pj_status fail_old_schema(const pj_store *store, pj_error *err)
{
    return pj_fail(err, PJ_E_STATE,
                   "database %s has an old schema and was opened for reading only: open it once "
                   "for writing",
                   store->place);
}

/* Where only the owner of the tables may change them. */
static pj_status fail_not_owner(const pj_store *store, pj_error *err)
{
    return pj_fail(err, PJ_E_DENIED,
                   "database %s is of an earlier version, which only its owner can bring up to "
                   "date: by opening it once with this version (perjoule ls)",
                   store->place);
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
                       store->place);
    if (*version > our_version(store))
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "database %s was written by a newer perjoule (schema "
                       "%d, this one knows %d): update perjoule or name another file with --db",
                       store->place, (int)*version, (int)our_version(store));
    if (store->read_only && *version < our_version(store)) return fail_old_schema(store, err);
    return PJ_OK;
}

static pj_status take_steps(pj_store *store, int64_t version, pj_error *err)
{
    const char *const *steps = store->driver->schema;
    pj_status status = PJ_OK;
    for (int64_t v = version; status == PJ_OK && steps[v]; v++)
        status = pj_sql_run(store, steps[v], err);
    if (status != PJ_OK) return status;
    return store->driver->set_version(store->db, our_version(store), err);
}

/* ---- columns without a step ------------------------------------------------------------------ */

/* Columns that rows have and the database does not know yet (a new statistic, say) are added
 * without a step of their own: they are NULL in all rows from before. */
static const char *declared_type(const pj_store_driver *driver, const pj_column *column)
{
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_JSON:
    case PJ_COLUMN_NAME:
    case PJ_COLUMN_EXTRAS:
    case PJ_COLUMN_ARRAY_NAME: return driver->text_type;
    case PJ_COLUMN_DOUBLE:
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_NJ:
    case PJ_COLUMN_NS:
    case PJ_COLUMN_STAT_FLOAT: return driver->real_type;
    default: return driver->integer_type;
    }
}

static const pj_row_table *table_at(int index)
{
    return index == PJ_TABLE_COUNT ? &pj_run_table : &pj_tables[index];
}

typedef struct known_columns {
    const pj_row_table *table;
    uint64_t bits[2]; /* one for each column of the table that the database has */
} known_columns;

static void note_column(void *context, const char *name)
{
    known_columns *known = context;
    for (int c = 0; c < known->table->column_count; c++)
        if (strcmp(known->table->columns[c].name, name) == 0)
            known->bits[c / 64] |= UINT64_C(1) << c % 64;
}

static pj_status add_columns(pj_store *store, const known_columns *known, pj_error *err)
{
    char text[256];
    pj_status status = PJ_OK;
    for (int c = 0; c < known->table->column_count && status == PJ_OK; c++) {
        const pj_column *column = &known->table->columns[c];
        if (known->bits[c / 64] >> c % 64 & 1) continue;
        snprintf(text, sizeof text, "ALTER TABLE %s ADD COLUMN %s %s", known->table->name,
                 column->name, declared_type(store->driver, column));
        status = pj_sql_run(store, text, err);
    }
    return status;
}

/* Adds missing columns, or only checks for them. */
static pj_status complete_columns(pj_store *store, bool add, bool *missing, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int t = 0; t <= PJ_TABLE_COUNT && status == PJ_OK; t++) {
        known_columns known = {.table = table_at(t)};
        status = pj_store_columns(store, known.table->name, note_column, &known, err);
        int count = __builtin_popcountll(known.bits[0]) + __builtin_popcountll(known.bits[1]);
        if (status != PJ_OK || count == known.table->column_count) continue;
        *missing = true;
        if (add) status = add_columns(store, &known, err);
    }
    return status;
}

/* Several processes may start at once: the one that gets the lock migrates, the others find it
 * done. */
pj_status pj_store_migrate(pj_store *store, pj_error *err)
{
    int64_t version = 0;
    bool missing = false;
    pj_status status = check_owner(store, &version, err);
    if (status != PJ_OK) return status;
    if (version == our_version(store)) {
        status = complete_columns(store, false, &missing, err);
        if (status != PJ_OK || !missing) return status;
        if (store->read_only) return fail_old_schema(store, err);
    }
    status = pj_sql_transaction(store, PJ_WRITE, err);
    if (status != PJ_OK) return status;
    status = check_owner(store, &version, err);
    if (status == PJ_OK && version < our_version(store)) status = take_steps(store, version, err);
    if (status == PJ_OK) status = complete_columns(store, true, &missing, err);
    if (status == PJ_OK) return pj_sql_commit(store, err);
    pj_sql_rollback(store);
    return status == PJ_E_DENIED && version > 0 ? fail_not_owner(store, err) : status;
}
