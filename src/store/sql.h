/*
 * Statements and transactions of a store, engine-neutral: each call goes to the store's driver
 * (driver.h). Included by the store's own files only. A statement is borrowed from the connection
 * and given back by pj_sql_end, which also reports the first failure since pj_sql_begin, so that
 * loops stay short:
 *
 *     pj_sql *q = pj_sql_begin(store, "SELECT ... WHERE id = ?", err);
 *     pj_sql_text(q, 1, id);
 *     while (pj_sql_step(q)) ... pj_sql_get_double(q, 0) ...
 *     return pj_sql_end(q, err);
 *
 * All of them accept a NULL statement and do nothing; pj_sql_end then returns the error that begin
 * left in `err`.
 */
#ifndef PJ_STORE_SQL_H
#define PJ_STORE_SQL_H

#include "base/buffer.h"
#include "store/driver.h"
#include "store/store.h"

typedef struct pj_sql pj_sql;

pj_sql *pj_sql_begin(pj_store *store, const char *text, pj_error *err);
pj_status pj_sql_end(pj_sql *sql, pj_error *err);
/* The same where reading the rows may have failed with `status`, whose reason is in `err`. */
pj_status pj_sql_end_after(pj_sql *sql, pj_status status, pj_error *err);

void pj_sql_value(pj_sql *sql, int index, const pj_value *value);
void pj_sql_int(pj_sql *sql, int index, int64_t value);
void pj_sql_double(pj_sql *sql, int index, double value); /* NAN: NULL */
/* Texts and blobs are borrowed until the next binding or pj_sql_end. NULL: NULL. */
void pj_sql_text(pj_sql *sql, int index, const char *text);
/* The next row; false at the end and on failure. */
bool pj_sql_step(pj_sql *sql);
void pj_sql_reset(pj_sql *sql); /* for the next execution; bindings stay */

pj_value_type pj_sql_get_type(pj_sql *sql, int column);
int64_t pj_sql_get_int(pj_sql *sql, int column);
double pj_sql_get_double(pj_sql *sql, int column); /* NAN: NULL, or not a number */
/* Borrowed until the next step; NULL: NULL. `bytes` may be NULL. */
const char *pj_sql_get_text(pj_sql *sql, int column, size_t *bytes);
const void *pj_sql_get_blob(pj_sql *sql, int column, size_t *bytes);

/* For statements without results: an array of values and its length, bound from ?1 on. */
#define PJ_VALUES(...)               \
    (const pj_value[]){__VA_ARGS__}, \
        (int)(sizeof((const pj_value[]){__VA_ARGS__}) / sizeof(pj_value))
/* Executes a statement; it can be executed again. */
void pj_sql_execute(pj_sql *sql, const pj_value *values, int count);
/* One execution from beginning to end. */
pj_status pj_sql_change(pj_store *store, const char *text, const pj_value *values, int count,
                        pj_error *err);

pj_status pj_sql_run(pj_store *store, const char *text, pj_error *err); /* no results */
/* First column of the first row; NULL and no row give `none`. */
pj_status pj_sql_get_one_int(pj_store *store, const char *text, const char *argument, int64_t none,
                             int64_t *value, pj_error *err);

pj_status pj_sql_transaction(pj_store *store, pj_transaction kind, pj_error *err);
pj_status pj_sql_commit(pj_store *store, pj_error *err);
void pj_sql_rollback(pj_store *store);
/* Commits where `status` is PJ_OK, else rolls back; returns the status of both. */
pj_status pj_sql_finish(pj_store *store, pj_status status, pj_error *err);
/* Appends the ids of runs in the first column, each with its NUL, and ends the statement. */
pj_status pj_sql_read_ids(pj_sql *sql, pj_buffer *ids, pj_error *err);

void pj_sql_get_value(pj_sql *sql, int column, pj_value *value); /* blobs as texts */
/* Reads a run from the columns "id, tags" and those of pj_run_table, from 0 on. */
pj_status pj_info_read(pj_sql *sql, pj_run_info *info, pj_arena *arena, pj_error *err);
pj_status pj_info_load(pj_store *store, const char *id, pj_run_info *info, pj_arena *arena,
                       pj_error *err);
/* Inside a PJ_WRITE_RUN transaction. A run that does not exist is no error. */
/* Fails when the run is not there, or is: after an insertion or a deletion, which a trigger of a
 * database from elsewhere can skip without an error. */
pj_status pj_store_expect_run(pj_store *store, const char *id, bool expected, pj_error *err);
pj_status pj_store_remove_run(pj_store *store, const char *id, pj_error *err);

/* Tags of a run: as a JSON array, out of one, and as rows of run_tags. */
void pj_tags_write(pj_json *json, const char *const *tags, uint32_t count);
pj_status pj_tags_read(const char *text, size_t bytes, pj_arena *arena, const char *const **tags,
                       uint32_t *count, pj_error *err);
pj_status pj_tags_insert(pj_store *store, const char *id, const char *const *tags, uint32_t count,
                         pj_error *err);

/* Names of a table's columns in the database's order. */
pj_status pj_store_columns(pj_store *store, const char *table, pj_column_name_fn *take,
                           void *context, pj_error *err);
/* Called before rows of a run are written; machine_id NULL: the stored run's machine. */
pj_status pj_store_enter_run(pj_store *store, const char *run_id, const int64_t *machine_id,
                             pj_error *err);

/* First id and number of a run's rows in a table; 0 and 0: none. */
typedef struct pj_row_range {
    int64_t first;
    uint32_t count;
} pj_row_range;
pj_status pj_store_ranges(pj_store *store, const char *run_id, pj_row_range *ranges, pj_error *err);
/* "SELECT <columns> FROM <table> WHERE id in the range <rest>" of a run's rows in a table (a
 * pj_table_id), with both bounds bound as ?1 and ?2. */
pj_sql *pj_select_rows(pj_store *store, const char *run_id, int table, pj_row_range range,
                       const char *columns, const char *rest, pj_error *err);

#endif
