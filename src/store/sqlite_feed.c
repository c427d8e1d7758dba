/*
 * A table whose rows are made up as they are read: SQLite's way to take many rows from memory in
 * one statement, without binding, stepping and resetting each. The connection has one such table,
 * `pj_feed`; what it holds is what pj_sql_insert_all lends it for the length of a statement. The
 * schema of a database can't name it (direct use only). Very many rows take another way
 * (sqlite_bulk.c).
 */
#include "base/buffer.h"
#include "base/memory.h"
#include "store/rows.h"
#include "store/sqlite.h"

#include <sqlite3.h>
#include <string.h>

enum { BATCH_ROWS = 256, MAX_TEXT_BYTES = 1 << 30 };

/* As many columns as the widest table, with id and run_id, has room for. */
static const char declaration[] =
    "CREATE TABLE feed (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16,"
    " c17, c18, c19, c20, c21, c22, c23, c24, c25, c26, c27, c28, c29, c30, c31)";

/* ---- batches ------------------------------------------------------------------------------- */

struct pj_feed_run {
    const pj_sql_feed *feed;
    uint32_t next_row; /* to be made */
    uint32_t count;    /* of rows in the batch */
    pj_value *values;  /* [BATCH_ROWS][columns] */
    pj_buffer texts;
    bool no_memory; /* for a text */
};

/* The next rows; false when there are no more. */
static bool next_batch(pj_feed_run *run)
{
    const pj_sql_feed *feed = run->feed;
    uint32_t left = feed->rows - run->next_row;
    run->count = left < BATCH_ROWS ? left : BATCH_ROWS;
    pj_buffer_clear(&run->texts);
    for (uint32_t i = 0; i < run->count && !run->no_memory; i++) {
        pj_value *row = &run->values[i * feed->columns];
        memset(row, 0, feed->columns * sizeof *row);
        feed->get(feed->context, run->next_row++, row, &run->texts);
    }
    run->no_memory |= run->texts.failed;
    return run->count > 0 && !run->no_memory;
}

pj_feed_run *pj_feed_run_new(const pj_sql_feed *feed)
{
    pj_feed_run *run = pj_alloc(1, sizeof *run);
    if (!run) return NULL;
    run->feed = feed;
    run->values = pj_alloc(BATCH_ROWS * (size_t)feed->columns, sizeof(pj_value));
    pj_buffer_init(&run->texts, MAX_TEXT_BYTES);
    if (run->values) return run;
    pj_free(run);
    return NULL;
}

bool pj_feed_run_free(pj_feed_run *run)
{
    bool good = !run->no_memory;
    pj_free(run->values);
    pj_buffer_fini(&run->texts);
    pj_free(run);
    return good;
}

/* ---- the table ----------------------------------------------------------------------------- */

typedef struct feed_table {
    sqlite3_vtab base;
    pj_feed_run *const *run; /* the connection's place for it */
} feed_table;

typedef struct feed_cursor {
    sqlite3_vtab_cursor base;
    pj_feed_run *run;
    bool at_end;
    uint32_t at; /* row of the batch */
} feed_cursor;

static int feed_connect(sqlite3 *db, void *context, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
    int code = sqlite3_declare_vtab(db, declaration);
    feed_table *table = code == SQLITE_OK ? sqlite3_malloc(sizeof *table) : NULL;
    if (!table) return code == SQLITE_OK ? SQLITE_NOMEM : code;
    *table = (feed_table){.run = context};
    *out = &table->base;
    return SQLITE_OK;
}

static int feed_disconnect(sqlite3_vtab *table)
{
    sqlite3_free(table);
    return SQLITE_OK;
}

static int feed_best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    const pj_feed_run *run = *((feed_table *)table)->run;
    info->estimatedRows = run ? run->feed->rows : 0;
    info->estimatedCost = (double)info->estimatedRows;
    return SQLITE_OK;
}

static int feed_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    feed_cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (!cursor) return SQLITE_NOMEM;
    *cursor = (feed_cursor){.run = *((feed_table *)table)->run};
    *out = &cursor->base;
    return SQLITE_OK;
}

static int feed_close(sqlite3_vtab_cursor *cursor)
{
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int feed_filter(sqlite3_vtab_cursor *cursor, int plan, const char *name, int argc,
                       sqlite3_value **argv)
{
    (void)plan;
    (void)name;
    (void)argc;
    (void)argv;
    feed_cursor *c = (feed_cursor *)cursor;
    c->at_end = !c->run || !next_batch(c->run);
    c->at = 0;
    return SQLITE_OK;
}

static int feed_next(sqlite3_vtab_cursor *cursor)
{
    feed_cursor *c = (feed_cursor *)cursor;
    if (++c->at < c->run->count) return SQLITE_OK;
    c->at_end = !next_batch(c->run);
    c->at = 0;
    return SQLITE_OK;
}

static int feed_eof(sqlite3_vtab_cursor *cursor)
{
    return ((const feed_cursor *)cursor)->at_end;
}

static const char *text_of(const pj_feed_run *run, const pj_value *v)
{
    return v->text ? v->text : run->texts.data + v->integer;
}

static int feed_column(sqlite3_vtab_cursor *cursor, sqlite3_context *result, int column)
{
    const feed_cursor *c = (const feed_cursor *)cursor;
    const pj_value *v = &c->run->values[c->at * c->run->feed->columns + (uint32_t)column];
    switch (v->type) {
    case PJ_VALUE_NULL: break; /* what a result is unless it is set */
    case PJ_VALUE_INT: sqlite3_result_int64(result, v->integer); break;
    case PJ_VALUE_DOUBLE: sqlite3_result_double(result, v->number); break;
    case PJ_VALUE_TEXT:
        sqlite3_result_text64(result, text_of(c->run, v), v->bytes, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case PJ_VALUE_BLOB:
        sqlite3_result_blob64(result, text_of(c->run, v), v->bytes, SQLITE_STATIC);
        break;
    }
    return SQLITE_OK;
}

static int feed_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *id)
{
    *id = ((feed_cursor *)cursor)->at;
    return SQLITE_OK;
}

/* Without xCreate the table is there for every connection and can't be made in a schema. */
static const sqlite3_module feed_module = {.xConnect = feed_connect,
                                           .xBestIndex = feed_best_index,
                                           .xDisconnect = feed_disconnect,
                                           .xOpen = feed_open,
                                           .xClose = feed_close,
                                           .xFilter = feed_filter,
                                           .xNext = feed_next,
                                           .xEof = feed_eof,
                                           .xColumn = feed_column,
                                           .xRowid = feed_rowid};

int pj_sql_feed_register(struct sqlite3 *db, pj_feed_run **place)
{
    return sqlite3_create_module(db, "pj_feed", &feed_module, place);
}
