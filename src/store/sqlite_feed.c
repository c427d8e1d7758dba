/*
 * A table whose rows are made up as they are read: SQLite's way to take a million rows from memory
 * in one statement, without binding, stepping and resetting each. The connection has one such
 * table, `pj_feed`; what it holds is what pj_sql_insert_all lends it for the length of a statement.
 * The schema of a database can't name it (direct use only).
 */
#include "store/rows.h"
#include "store/sqlite.h"

#include <sqlite3.h>
#include <string.h>

/* As many columns as the widest table, with id and run_id, has room for. */
static const char declaration[] =
    "CREATE TABLE feed (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16,"
    " c17, c18, c19, c20, c21, c22, c23, c24, c25, c26, c27, c28, c29, c30, c31)";

typedef struct feed_table {
    sqlite3_vtab base;
    const pj_sql_feed *const *feed; /* the connection's place for it */
} feed_table;

typedef struct feed_cursor {
    sqlite3_vtab_cursor base;
    const pj_sql_feed *feed;
    uint32_t row;
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
    *table = (feed_table){.feed = context};
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
    const pj_sql_feed *feed = *((feed_table *)table)->feed;
    info->estimatedRows = feed ? feed->rows : 0;
    info->estimatedCost = (double)info->estimatedRows;
    return SQLITE_OK;
}

static int feed_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    feed_cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (!cursor) return SQLITE_NOMEM;
    *cursor = (feed_cursor){.feed = *((feed_table *)table)->feed};
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
    ((feed_cursor *)cursor)->row = 0;
    return SQLITE_OK;
}

static int feed_next(sqlite3_vtab_cursor *cursor)
{
    ((feed_cursor *)cursor)->row++;
    return SQLITE_OK;
}

static int feed_eof(sqlite3_vtab_cursor *cursor)
{
    const feed_cursor *c = (const feed_cursor *)cursor;
    return !c->feed || c->row >= c->feed->rows;
}

static int feed_column(sqlite3_vtab_cursor *cursor, sqlite3_context *result, int column)
{
    const feed_cursor *c = (const feed_cursor *)cursor;
    pj_value v = {0};
    c->feed->get(c->feed->context, c->row, column, &v);
    switch (v.type) {
    case PJ_VALUE_NULL: break; /* what a result is unless it is set */
    case PJ_VALUE_INT: sqlite3_result_int64(result, v.integer); break;
    case PJ_VALUE_DOUBLE: sqlite3_result_double(result, v.number); break;
    case PJ_VALUE_TEXT:
        sqlite3_result_text64(result, v.text, v.bytes, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case PJ_VALUE_BLOB: sqlite3_result_blob64(result, v.text, v.bytes, SQLITE_STATIC); break;
    }
    return SQLITE_OK;
}

static int feed_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *id)
{
    *id = ((feed_cursor *)cursor)->row;
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

int pj_sql_feed_register(struct sqlite3 *db, const pj_sql_feed **place)
{
    return sqlite3_create_module(db, "pj_feed", &feed_module, place);
}
