/*
 * Tables by the hundred thousand rows. SQLite takes a second to make records of a million rows and
 * a fifth of that to copy records that are made: `INSERT INTO t SELECT * FROM other.t` between two
 * tables that are declared alike moves them as they lie. So the rows are written as the pages of
 * another database (bulk_pages.c), a file that is nowhere: its pages are made while SQLite reads
 * them, a few groups ahead, by a thread of their own, and forgotten behind it.
 *
 * Nothing rests on the copying being short: where SQLite does not take that way, it reads the same
 * rows and makes the same records. Its own code alone writes to the database.
 *
 * Threads: groups of rows are made by the maker, or by the connection's thread where there is none;
 * all other pages by the connection's. A group belongs to the maker until it is made, and to the
 * reader until it asks for a later one.
 */
#include "store/sqlite.h"

#include "base/memory.h"
#include "base/thread.h"
#include "store/bulk_pages.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { GROUPS_AHEAD = 4, MAX_ROW_BYTES = 1 << 28, SQL_BYTES = 256, MAX_COLUMNS = 40 };

#define VFS_NAME "perjoule-bulk"

typedef struct bulk_source {
    const pj_bulk *bulk;
    unsigned char *first, *other; /* page 1, and one that is neither it nor a group's */
    uint32_t other_number;        /* 0: none */
    pj_row_record record;         /* the maker's */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    pj_page_group groups[GROUPS_AHEAD]; /* a ring: group g in place g modulo their number */
    uint32_t made, wanted;              /* groups made; the one that is read */
    bool stop, failed;
} bulk_source;

/* A connection is used by one thread at a time, and opens the file within the call that names it.
 */
static _Thread_local bulk_source *opening;

/* ---- groups -------------------------------------------------------------------------------- */

static void *make_groups(void *context)
{
    bulk_source *s = context;
    uint32_t groups = (s->bulk->rows + PJ_GROUP_ROWS - 1) / PJ_GROUP_ROWS;
    pthread_mutex_lock(&s->mutex);
    while (s->made < groups && !s->failed) {
        while (s->made >= s->wanted + GROUPS_AHEAD && !s->stop)
            pthread_cond_wait(&s->changed, &s->mutex);
        if (s->stop) break;
        uint32_t group = s->made;
        pthread_mutex_unlock(&s->mutex);
        bool good =
            pj_page_group_make(s->bulk, group, &s->record, &s->groups[group % GROUPS_AHEAD]);
        pthread_mutex_lock(&s->mutex);
        s->failed = !good;
        s->made += good;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Groups are asked for in order; NULL: it can't be made, or is gone. */
static const pj_page_group *get_group(bulk_source *s, uint32_t group)
{
    pthread_mutex_lock(&s->mutex);
    bool good = group >= s->wanted;
    if (group > s->wanted) {
        s->wanted = group;
        pthread_cond_signal(&s->changed);
    }
    while (good && s->made <= group && !s->failed && s->has_thread)
        pthread_cond_wait(&s->changed, &s->mutex);
    while (good && s->made <= group && !s->failed) {
        s->failed =
            !pj_page_group_make(s->bulk, s->made, &s->record, &s->groups[s->made % GROUPS_AHEAD]);
        s->made += !s->failed;
    }
    good = good && s->made > group;
    pthread_mutex_unlock(&s->mutex);
    return good ? &s->groups[group % GROUPS_AHEAD] : NULL;
}

static void stop_maker(bulk_source *s)
{
    if (!s->has_thread) return;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
}

/* ---- the file ------------------------------------------------------------------------------ */

typedef struct bulk_file {
    sqlite3_file base;
    bulk_source *source;
} bulk_file;

/* NULL: there is no such page. */
static const unsigned char *get_page(bulk_source *s, uint32_t number)
{
    if (number == 1) return s->first;
    if (!s->bulk) return NULL;
    pj_page_place place = pj_page_find(number);
    if (place.kind == PJ_PAGE_GROUP) {
        const pj_page_group *g = get_group(s, place.group);
        return g && place.page < g->count ? g->pages + (size_t)place.page * PJ_PAGE_BYTES : NULL;
    }
    if (number == s->other_number) return s->other;
    s->other_number = number;
    if (place.kind == PJ_PAGE_ROOT && place.tree <= s->bulk->index_count)
        pj_page_make_root(s->bulk, place.tree, s->other);
    else if (place.kind == PJ_PAGE_INDEX_LEAF && place.tree <= s->bulk->index_count)
        pj_page_make_index_leaf(s->bulk, place.tree, place.page, s->other);
    else
        return NULL;
    return s->other;
}

static int file_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 offset)
{
    sqlite3_int64 within = offset % PJ_PAGE_BYTES;
    const unsigned char *page =
        within + count <= PJ_PAGE_BYTES
            ? get_page(((bulk_file *)file)->source, (uint32_t)(offset / PJ_PAGE_BYTES) + 1)
            : NULL;
    if (!page) return SQLITE_IOERR_READ;
    memcpy(bytes, page + within, (size_t)count);
    return SQLITE_OK;
}

static int file_close(sqlite3_file *file)
{
    bulk_source *s = ((bulk_file *)file)->source;
    stop_maker(s);
    for (int i = 0; i < GROUPS_AHEAD; i++) pj_free(s->groups[i].pages);
    pj_buffer_fini(&s->record.body);
    pj_free(s->first);
    pj_free(s->other);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    pj_free(s);
    return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    (void)file;
    *size = (sqlite3_int64)pj_page_count() * PJ_PAGE_BYTES;
    return SQLITE_OK;
}

static int file_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset)
{
    (void)file;
    (void)bytes;
    (void)count;
    (void)offset;
    return SQLITE_READONLY;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    (void)file;
    (void)size;
    return SQLITE_READONLY;
}

static int file_flag(sqlite3_file *file, int flag)
{
    (void)file;
    (void)flag;
    return SQLITE_OK;
}

static int file_is_reserved(sqlite3_file *file, int *result)
{
    (void)file;
    *result = 0;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *file, int operation, void *argument)
{
    (void)file;
    (void)operation;
    (void)argument;
    return SQLITE_NOTFOUND;
}

static int file_sector(sqlite3_file *file)
{
    (void)file;
    return PJ_PAGE_BYTES;
}

static int file_traits(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_IMMUTABLE;
}

static const sqlite3_io_methods file_methods = {.iVersion = 1,
                                                .xClose = file_close,
                                                .xRead = file_read,
                                                .xWrite = file_write,
                                                .xTruncate = file_truncate,
                                                .xSync = file_flag,
                                                .xFileSize = file_size,
                                                .xLock = file_flag,
                                                .xUnlock = file_flag,
                                                .xCheckReservedLock = file_is_reserved,
                                                .xFileControl = file_control,
                                                .xSectorSize = file_sector,
                                                .xDeviceCharacteristics = file_traits};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                    int *out_flags)
{
    (void)vfs;
    (void)name;
    file->pMethods = NULL;
    if (!opening || !(flags & SQLITE_OPEN_MAIN_DB)) return SQLITE_CANTOPEN;
    ((bulk_file *)file)->source = opening;
    opening = NULL;
    file->pMethods = &file_methods;
    if (out_flags) *out_flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    (void)name;
    (void)sync;
    return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    (void)vfs;
    (void)name;
    (void)flags;
    *result = 0;
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int bytes, char *out)
{
    (void)vfs;
    sqlite3_snprintf(bytes, out, "%s", name);
    return SQLITE_OK;
}

static bool vfs_is_there;

static void vfs_register(void)
{
    static sqlite3_vfs vfs;
    const sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
    if (!usual) return;
    vfs = *usual; /* randomness, time and sleep are the usual one's */
    vfs.pNext = NULL;
    vfs.iVersion = 1;
    vfs.zName = VFS_NAME;
    vfs.szOsFile = sizeof(bulk_file);
    vfs.xOpen = vfs_open;
    vfs.xDelete = vfs_delete;
    vfs.xAccess = vfs_access;
    vfs.xFullPathname = vfs_full_path;
    vfs_is_there = sqlite3_vfs_register(&vfs, 0) == SQLITE_OK;
}

/* ---- one table ----------------------------------------------------------------------------- */

/* The table and its indices as the database declares them; false: there is one of which the bulk
 * says nothing, or too much of it. */
static bool make_schema(pj_store *store, const pj_bulk *bulk, unsigned char *page)
{
    pj_page_schema schema[1 + PJ_BULK_INDICES];
    uint32_t count = 0;
    bool good = true;
    pj_arena texts;
    pj_arena_init(&texts, 0);
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT type, name, sql FROM main.sqlite_schema WHERE tbl_name = ?"
                               " AND type IN ('table', 'index') AND sql IS NOT NULL ORDER BY rowid",
                               NULL);
    pj_sql_text(sql, 1, bulk->table);
    while (good && pj_sql_step(sql)) {
        const char *text[3];
        uint32_t tree = 0;
        for (int c = 0; c < 3 && good; c++) {
            size_t bytes;
            const char *from = pj_sql_get_text(sql, c, &bytes);
            good = from && (text[c] = pj_arena_strndup(&texts, from, bytes));
        }
        if (!good || (good = count < 1 + PJ_BULK_INDICES) == false) break;
        for (uint32_t i = 0; i < bulk->index_count; i++)
            if (strcmp(bulk->indices[i].name, text[1]) == 0) tree = i + 1;
        good = tree > 0 || strcmp(text[0], "table") == 0;
        schema[count++] = (pj_page_schema){text[0], text[1], bulk->table, text[2], tree};
    }
    good = pj_sql_end(sql, NULL) == PJ_OK && good && count == 1 + bulk->index_count &&
           pj_page_make_first(schema, count, page);
    pj_arena_fini(&texts);
    return good;
}

static bulk_source *source_new(pj_store *store, const pj_bulk *bulk)
{
    bulk_source *s = pj_alloc(1, sizeof *s);
    if (!s) return NULL;
    s->bulk = bulk;
    s->first = pj_alloc(PJ_PAGE_BYTES, 1);
    s->other = pj_alloc(PJ_PAGE_BYTES, 1);
    pj_buffer_init(&s->record.body, MAX_ROW_BYTES);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (s->first && s->other && make_schema(store, bulk, s->first)) return s;
    file_close(&(bulk_file){.source = s}.base);
    return NULL;
}

static bool was_opened(void)
{
    return !opening; /* the file's opening took it */
}

static bool attach(pj_store *store, bulk_source *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char text[SQL_BYTES];
    pthread_once(&once, vfs_register);
    snprintf(text, sizeof text, "ATTACH 'file:%s?vfs=" VFS_NAME "&mode=ro&immutable=1' AS bulk_%s",
             s->bulk->table, s->bulk->table);
    opening = s;
    bool good = vfs_is_there && pj_sql_run(store, text, NULL) == PJ_OK;
    if (!was_opened()) file_close(&(bulk_file){.source = s}.base);
    opening = NULL;
    return good;
}

pj_status pj_sql_insert_bulk(pj_store *store, const pj_bulk *bulk, bool *done, pj_error *err)
{
    char text[SQL_BYTES];
    *done = false;
    bulk_source *s = pj_bulk_fits(bulk) ? source_new(store, bulk) : NULL;
    if (!s || !attach(store, s)) return PJ_OK;
    s->has_thread = pj_thread_start(&s->thread, "pj-rows", make_groups, s, NULL) == PJ_OK;
    snprintf(text, sizeof text, "INSERT INTO main.%s SELECT * FROM bulk_%s.%s", bulk->table,
             bulk->table, bulk->table);
    pj_status status = pj_sql_run(store, text, err);
    stop_maker(s);
    bool too_long = false, no_memory = false;
    for (int i = 0; i < GROUPS_AHEAD; i++) {
        too_long |= s->groups[i].too_long;
        no_memory |= s->groups[i].no_memory;
    }
    s->bulk = NULL; /* the file stays, and has no pages any more */
    *done = status == PJ_OK;
    if (no_memory) return pj_fail_memory(err, "a run to be stored");
    if (too_long)
        return pj_fail(err, PJ_E_UNSUPPORTED, "a row of %s is too long for a page", bulk->table);
    return status;
}

void pj_sql_bulk_end(pj_store *store, const char *table)
{
    char text[SQL_BYTES];
    snprintf(text, sizeof text, "DETACH bulk_%s", table);
    pj_sql_run(store, text, NULL);
}
