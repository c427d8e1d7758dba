/*
 * A table whose rows are made up as they are read: SQLite's way to take a million rows from memory
 * in one statement, without binding, stepping and resetting each. The connection has one such
 * table, `pj_feed`; what it holds is what pj_sql_insert_all lends it for the length of a statement.
 * The schema of a database can't name it (direct use only).
 *
 * Rows come in batches. Those of a large feed are made by a thread of its own, a few batches ahead
 * of SQLite, which then finds the values ready: looking them up and writing them as JSON takes as
 * long as storing them.
 *
 * Threads: `fill` runs on the maker, or on the connection's thread where there is none; a batch
 * belongs to the maker until it is full, to the connection's thread from then on until it is empty.
 */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/thread.h"
#include "store/rows.h"
#include "store/sqlite.h"

#include <sqlite3.h>
#include <string.h>

enum { BATCHES = 4, BATCH_ROWS = 256, LARGE_FEED_ROWS = 20000, MAX_TEXT_BYTES = 1 << 30 };

/* As many columns as the widest table, with id and run_id, has room for. */
static const char declaration[] =
    "CREATE TABLE feed (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16,"
    " c17, c18, c19, c20, c21, c22, c23, c24, c25, c26, c27, c28, c29, c30, c31)";

/* ---- batches ------------------------------------------------------------------------------- */

typedef struct batch {
    pj_value *values; /* [BATCH_ROWS][columns] */
    pj_buffer texts;
    uint32_t count; /* of rows */
} batch;

struct pj_feed_run {
    const pj_sql_feed *feed;
    uint32_t next_row; /* to be made */
    bool no_memory;    /* for a text */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    batch batches[BATCHES]; /* a ring: full ones, then those to be filled */
    uint32_t first, full;
    bool stop;
};

static void fill(pj_feed_run *run, batch *b)
{
    const pj_sql_feed *feed = run->feed;
    uint32_t left = feed->rows - run->next_row;
    b->count = left < BATCH_ROWS ? left : BATCH_ROWS;
    pj_buffer_clear(&b->texts);
    for (uint32_t i = 0; i < b->count; i++) {
        pj_value *row = &b->values[i * feed->columns];
        memset(row, 0, feed->columns * sizeof *row);
        feed->get(feed->context, run->next_row++, row, &b->texts);
    }
    run->no_memory |= b->texts.failed;
}

static void *make_batches(void *context)
{
    pj_feed_run *run = context;
    pthread_mutex_lock(&run->mutex);
    while (run->next_row < run->feed->rows && !run->no_memory) {
        while (run->full == BATCHES && !run->stop) pthread_cond_wait(&run->changed, &run->mutex);
        if (run->stop) break;
        batch *b = &run->batches[(run->first + run->full) % BATCHES];
        pthread_mutex_unlock(&run->mutex);
        fill(run, b);
        pthread_mutex_lock(&run->mutex);
        run->full++;
        pthread_cond_signal(&run->changed);
    }
    run->stop = true;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

/* The next full batch; NULL when there are no more. */
static const batch *first_batch(pj_feed_run *run)
{
    const batch *b = NULL;
    if (!run->has_thread) {
        if (run->next_row == run->feed->rows) return NULL;
        fill(run, &run->batches[0]);
        return &run->batches[0];
    }
    pthread_mutex_lock(&run->mutex);
    while (!run->full && !run->stop) pthread_cond_wait(&run->changed, &run->mutex);
    if (run->full) b = &run->batches[run->first];
    pthread_mutex_unlock(&run->mutex);
    return b;
}

static const batch *next_batch(pj_feed_run *run)
{
    if (run->has_thread) {
        pthread_mutex_lock(&run->mutex);
        run->first = (run->first + 1) % BATCHES;
        run->full--;
        pthread_cond_signal(&run->changed);
        pthread_mutex_unlock(&run->mutex);
    }
    return first_batch(run);
}

pj_feed_run *pj_feed_run_new(const pj_sql_feed *feed)
{
    pj_feed_run *run = pj_alloc(1, sizeof *run);
    bool large = feed->rows >= LARGE_FEED_ROWS, good = run != NULL;
    if (!run) return NULL;
    run->feed = feed;
    pthread_mutex_init(&run->mutex, NULL);
    pthread_cond_init(&run->changed, NULL);
    for (int i = 0; i < (large ? BATCHES : 1) && good; i++) {
        run->batches[i].values = pj_alloc(BATCH_ROWS * (size_t)feed->columns, sizeof(pj_value));
        good = run->batches[i].values != NULL;
        pj_buffer_init(&run->batches[i].texts, MAX_TEXT_BYTES);
    }
    if (good && large)
        run->has_thread =
            pj_thread_start(&run->thread, "pj-feed", make_batches, run, NULL) == PJ_OK;
    if (good) return run;
    pj_feed_run_free(run);
    return NULL;
}

bool pj_feed_run_free(pj_feed_run *run)
{
    bool good = !run->no_memory;
    if (run->has_thread) {
        pthread_mutex_lock(&run->mutex);
        run->stop = true;
        pthread_cond_signal(&run->changed);
        pthread_mutex_unlock(&run->mutex);
        pthread_join(run->thread, NULL);
        good = !run->no_memory;
    }
    for (int i = 0; i < BATCHES; i++) {
        pj_free(run->batches[i].values);
        pj_buffer_fini(&run->batches[i].texts);
    }
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->mutex);
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
    const batch *batch; /* NULL: behind the last row */
    uint32_t at;        /* row of the batch */
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
    c->batch = c->run ? first_batch(c->run) : NULL;
    c->at = 0;
    return SQLITE_OK;
}

static int feed_next(sqlite3_vtab_cursor *cursor)
{
    feed_cursor *c = (feed_cursor *)cursor;
    if (++c->at < c->batch->count) return SQLITE_OK;
    c->batch = next_batch(c->run);
    c->at = 0;
    return SQLITE_OK;
}

static int feed_eof(sqlite3_vtab_cursor *cursor)
{
    return !((const feed_cursor *)cursor)->batch;
}

static const char *text_of(const batch *b, const pj_value *v)
{
    return v->text ? v->text : b->texts.data + v->integer;
}

static int feed_column(sqlite3_vtab_cursor *cursor, sqlite3_context *result, int column)
{
    const feed_cursor *c = (const feed_cursor *)cursor;
    const pj_value *v = &c->batch->values[c->at * c->run->feed->columns + (uint32_t)column];
    switch (v->type) {
    case PJ_VALUE_NULL: break; /* what a result is unless it is set */
    case PJ_VALUE_INT: sqlite3_result_int64(result, v->integer); break;
    case PJ_VALUE_DOUBLE: sqlite3_result_double(result, v->number); break;
    case PJ_VALUE_TEXT:
        sqlite3_result_text64(result, text_of(c->batch, v), v->bytes, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case PJ_VALUE_BLOB:
        sqlite3_result_blob64(result, text_of(c->batch, v), v->bytes, SQLITE_STATIC);
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
