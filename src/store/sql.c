/* Statements, values, transactions, and what else a store asks of its driver. */
#include "store/sql.h"

#include "base/memory.h"
#include "store/store_impl.h"

#include <math.h>
#include <string.h>

/* ---- borrowing a statement ------------------------------------------------------------------ */

/* The kept statement of this text, or a slot for it; texts are compared by content. */
static pj_sql *find_slot(pj_store *store, const char *text)
{
    pj_sql *unused = NULL;
    for (int i = 0; i < PJ_STATEMENTS_KEPT; i++) {
        pj_sql *sql = &store->kept[i];
        if (sql->busy) continue;
        if (sql->statement && strcmp(sql->text, text) == 0) return sql;
        if (!unused || !sql->statement) unused = sql;
    }
    return unused;
}

void pj_sql_forget(pj_sql *sql)
{
    if (sql->statement) sql->driver->finalize(sql->statement);
    pj_free(sql->text);
    pj_arena_fini(&sql->copies);
    *sql = (pj_sql){0};
}

static bool prepare(pj_store *store, pj_sql *sql, const char *text, pj_error *err)
{
    pj_sql_forget(sql);
    *sql = (pj_sql){.store = store, .driver = store->driver, .text = pj_strdup(text)};
    pj_arena_init(&sql->copies, 0);
    if (!sql->text) {
        pj_fail_memory(err, "a statement");
        return false;
    }
    if (pj_store_connect(store, err) == PJ_OK &&
        store->driver->prepare(store->db, text, &sql->statement, err) == PJ_OK)
        return true;
    sql->statement = NULL;
    pj_sql_forget(sql);
    return false;
}

pj_sql *pj_sql_begin(pj_store *store, const char *text, pj_error *err)
{
    pj_sql *sql = find_slot(store, text);
    if (!sql) {
        pj_fail(err, PJ_E_INTERNAL, "too many statements are open on database %s", store->address);
        return NULL;
    }
    bool is_kept = sql->statement && strcmp(sql->text, text) == 0;
    if (!is_kept && !prepare(store, sql, text, err)) return NULL;
    sql->code = 0;
    sql->damage.status = PJ_OK;
    sql->busy = true;
    return sql;
}

static void sql_note(pj_sql *sql, int code)
{
    if (sql->code == 0) sql->code = code;
}

static void drop_copies(pj_sql *sql)
{
    if (sql->copies.used_bytes) pj_arena_fini(&sql->copies);
}

pj_status pj_sql_end(pj_sql *sql, pj_error *err)
{
    return pj_sql_end_after(sql, PJ_OK, err);
}

pj_status pj_sql_end_after(pj_sql *sql, pj_status status, pj_error *err)
{
    if (!sql) return err && err->status != PJ_OK ? err->status : PJ_E_IO;
    if (sql->code && status == PJ_OK) status = sql->driver->fail(sql->store->db, sql->code, err);
    if (sql->damage.status != PJ_OK && status == PJ_OK) {
        status = sql->damage.status;
        if (err) *err = sql->damage;
    }
    sql->driver->clear(sql->statement);
    drop_copies(sql);
    sql->busy = false;
    sql->packer = NULL;
    return status;
}

/* ---- parameters ------------------------------------------------------------------------------ */

void pj_sql_value(pj_sql *sql, int index, const pj_value *value)
{
    if (sql) sql_note(sql, sql->driver->bind(sql->statement, index, value));
}

void pj_sql_int(pj_sql *sql, int index, int64_t value)
{
    const pj_value integer = pj_value_int(value);
    pj_sql_value(sql, index, &integer);
}

void pj_sql_double(pj_sql *sql, int index, double value)
{
    const pj_value number = pj_value_double(value);
    pj_sql_value(sql, index, &number);
}

void pj_sql_text(pj_sql *sql, int index, const char *text)
{
    const pj_value value = pj_value_text(text);
    pj_sql_value(sql, index, &value);
}

void pj_sql_execute(pj_sql *sql, const pj_value *values, int count)
{
    for (int i = 0; i < count; i++) pj_sql_value(sql, i + 1, &values[i]);
    pj_sql_step(sql);
    pj_sql_reset(sql);
}

pj_status pj_sql_change(pj_store *store, const char *text, const pj_value *values, int count,
                        pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, text, err);
    pj_sql_execute(sql, values, count);
    return pj_sql_end(sql, err);
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool pj_sql_step(pj_sql *sql)
{
    bool row = false;
    if (!sql || sql->code || sql->damage.status != PJ_OK) return false;
    drop_copies(sql);
    sql_note(sql, sql->driver->step(sql->statement, &row));
    return row && sql->code == 0;
}

void pj_sql_reset(pj_sql *sql)
{
    if (sql) sql_note(sql, sql->driver->reset(sql->statement));
}

static void get_packed(void *context, int column, pj_value *value)
{
    pj_sql *sql = context;
    sql->driver->column(sql->statement, column + 1, value); /* after the id */
}

static pj_value sql_value_of(pj_sql *sql, int column)
{
    pj_value value;
    sql->driver->column(sql->statement, column, &value);
    if (!sql->packer || column < 1 || column > (int)sql->packer->count) return value;
    const pj_packed_row row = {sql->packer, get_packed, sql, &sql->copies};
    pj_error err = {0};
    if (sql->unpack(&row, column - 1, &value, &err) == PJ_OK) return value;
    if (sql->damage.status == PJ_OK) sql->damage = err;
    return (pj_value){.type = PJ_VALUE_NULL};
}

pj_value_type pj_sql_get_type(pj_sql *sql, int column)
{
    return sql_value_of(sql, column).type;
}

int64_t pj_sql_get_int(pj_sql *sql, int column)
{
    pj_value value = sql_value_of(sql, column);
    if (value.type == PJ_VALUE_INT) return value.integer;
    if (value.type != PJ_VALUE_DOUBLE) return 0;
    if (value.number >= 0x1p63) return INT64_MAX;
    return value.number >= -0x1p63 ? (int64_t)value.number : INT64_MIN;
}

double pj_sql_get_double(pj_sql *sql, int column)
{
    pj_value value = sql_value_of(sql, column);
    if (value.type == PJ_VALUE_INT) return (double)value.integer;
    return value.type == PJ_VALUE_DOUBLE ? value.number : NAN;
}

/* Texts end with a zero byte, blobs need not. */
static const char *copy_blob(pj_sql *sql, const pj_value *value)
{
    return pj_arena_strndup(&sql->copies, value->text, value->bytes);
}

const char *pj_sql_get_text(pj_sql *sql, int column, size_t *bytes)
{
    pj_value value = sql_value_of(sql, column);
    bool is_blob = value.type == PJ_VALUE_BLOB;
    const char *text = is_blob                       ? copy_blob(sql, &value)
                       : value.type == PJ_VALUE_TEXT ? value.text
                                                     : NULL;
    if (bytes) *bytes = text ? value.bytes : 0;
    return text;
}

const void *pj_sql_get_blob(pj_sql *sql, int column, size_t *bytes)
{
    pj_value value = sql_value_of(sql, column);
    bool has_bytes = value.type == PJ_VALUE_BLOB || value.type == PJ_VALUE_TEXT;
    *bytes = has_bytes ? value.bytes : 0;
    return has_bytes ? value.text : NULL;
}

void pj_sql_get_value(pj_sql *sql, int column, pj_value *value)
{
    *value = sql_value_of(sql, column);
    if (value->type == PJ_VALUE_BLOB) {
        value->type = PJ_VALUE_TEXT;
        value->text = copy_blob(sql, value);
    }
    if (value->type != PJ_VALUE_TEXT || value->text) return;
    value->text = "";
    value->bytes = 0;
}

pj_status pj_sql_read_ids(pj_sql *sql, pj_buffer *ids, pj_error *err)
{
    while (pj_sql_step(sql)) {
        size_t bytes;
        const char *id = pj_sql_get_text(sql, 0, &bytes);
        if (id && bytes == PJ_UUID_BYTES - 1) pj_buffer_append(ids, id, PJ_UUID_BYTES);
    }
    return pj_sql_end_after(sql, pj_buffer_status(ids, "the ids of runs", err), err);
}

/* ---- without a statement --------------------------------------------------------------------- */

pj_status pj_sql_run(pj_store *store, const char *text, pj_error *err)
{
    pj_status status = pj_store_connect(store, err);
    if (status != PJ_OK) return status;
    return store->driver->run(store->db, text, err);
}

pj_status pj_sql_get_one_int(pj_store *store, const char *text, const char *argument, int64_t none,
                             int64_t *value, pj_error *err)
{
    *value = none;
    pj_sql *sql = pj_sql_begin(store, text, err);
    if (argument) pj_sql_text(sql, 1, argument);
    if (pj_sql_step(sql) && pj_sql_get_type(sql, 0) != PJ_VALUE_NULL)
        *value = pj_sql_get_int(sql, 0);
    return pj_sql_end(sql, err);
}

pj_status pj_sql_transaction(pj_store *store, pj_transaction kind, pj_error *err)
{
    pj_status status = pj_store_connect(store, err);
    if (status != PJ_OK) return status;
    return store->driver->begin(store->db, kind, err);
}

pj_status pj_sql_commit(pj_store *store, pj_error *err)
{
    return store->driver->commit(store->db, err);
}

void pj_sql_rollback(pj_store *store)
{
    if (store->db) store->driver->rollback(store->db);
}

pj_status pj_sql_finish(pj_store *store, pj_status status, pj_error *err)
{
    if (status == PJ_OK) return pj_sql_commit(store, err);
    pj_sql_rollback(store);
    return status;
}

/* ---- tables and rows as a whole -------------------------------------------------------------- */

pj_status pj_store_columns(pj_store *store, const char *table, pj_column_name_fn *take,
                           void *context, pj_error *err)
{
    pj_status status = pj_store_connect(store, err);
    if (status != PJ_OK) return status;
    return store->driver->columns(store->db, table, take, context, err);
}

pj_status pj_store_enter_run(pj_store *store, const char *run_id, const int64_t *machine_id,
                             pj_error *err)
{
    const pj_store_driver *driver = store->driver;
    pj_status status = pj_store_connect(store, err);
    if (status != PJ_OK || !driver->enter_run) return status;
    return driver->enter_run(store->db, run_id, machine_id, err);
}
