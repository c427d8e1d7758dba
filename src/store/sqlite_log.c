/*
 * Writing the write-ahead log beside filling it. What a large run adds to the log is hundreds of
 * megabytes, and handing them to the operating system takes as long as making them: so, inside one
 * transaction, writes to the log gather in blocks that a thread of their own writes out, in order.
 *
 * The methods of the connection's log file are overlaid for that time. The log counts only up to
 * its last commit frame, and that frame is never put off: it is written by the caller, behind
 * everything before it, so that whoever sees a commit finds all its frames in the file. A failed
 * write shows at the next write, at the commit at the latest, as if that had failed. Reading,
 * syncing and cutting the log wait for what is under way, and so does giving back the lock of
 * writers, whatever ended the transaction: behind it, others write the same places.
 *
 * Threads: the connection's and the writer's, between pj_sql_log_begin and pj_sql_log_end. The
 * writer touches the file only while blocks are under way, the connection's thread only while none
 * are.
 */
#include "store/sqlite.h"

#include "base/memory.h"
#include "base/thread.h"

#include <sqlite3.h>
#include <string.h>

/* SQLite's file methods take at most one page and a header at a time: 64 kB are safe. */
enum { BLOCKS = 6, BLOCK_BYTES = 1 << 20, PIECE_BYTES = 1 << 16, FRAME_HEADER_BYTES = 24 };

typedef struct block {
    unsigned char *bytes;
    int count;
    sqlite3_int64 offset; /* in the file */
} block;

/* A file of SQLite's with some of its methods replaced. */
typedef struct overlay {
    sqlite3_file *file;
    const sqlite3_io_methods *before;
    sqlite3_io_methods methods;
} overlay;

typedef struct log_writer {
    overlay log, database;
    bool writing;     /* the thread runs */
    uint32_t filling; /* index of the block being filled; the writer keeps away from it */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    block blocks[BLOCKS]; /* a ring */
    uint32_t first, full; /* index of the oldest full one, and how many are full */
    int code;             /* of the first write that failed */
    bool stop;
} log_writer;

/* A connection is used by one thread at a time, and that of a transaction stays the same. */
static _Thread_local log_writer *current;

/* ---- the writer ---------------------------------------------------------------------------- */

static int write_block(const log_writer *w, const block *b)
{
    int code = SQLITE_OK;
    for (int at = 0; at < b->count && code == SQLITE_OK; at += PIECE_BYTES) {
        int piece = b->count - at < PIECE_BYTES ? b->count - at : PIECE_BYTES;
        code = w->log.before->xWrite(w->log.file, b->bytes + at, piece, b->offset + at);
    }
    return code;
}

static void *write_blocks(void *context)
{
    log_writer *w = context;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->full && !w->stop) pthread_cond_wait(&w->changed, &w->mutex);
        if (!w->full) break;
        const block *b = &w->blocks[w->first];
        int code = w->code;
        pthread_mutex_unlock(&w->mutex);
        if (code == SQLITE_OK) code = write_block(w, b);
        pthread_mutex_lock(&w->mutex);
        w->code = code;
        w->first = (w->first + 1) % BLOCKS;
        w->full--;
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Gives the block being filled to the writer, once there is another one to fill. */
static int hand_over(log_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    if (w->blocks[w->filling].count) {
        while (w->full == BLOCKS - 1) pthread_cond_wait(&w->changed, &w->mutex);
        w->full++;
        w->filling = (w->filling + 1) % BLOCKS;
        w->blocks[w->filling].count = 0;
        pthread_cond_signal(&w->changed);
    }
    int code = w->code;
    pthread_mutex_unlock(&w->mutex);
    return code;
}

/* Until everything is written. */
static int drain(log_writer *w)
{
    hand_over(w);
    pthread_mutex_lock(&w->mutex);
    while (w->full) pthread_cond_wait(&w->changed, &w->mutex);
    int code = w->code;
    pthread_mutex_unlock(&w->mutex);
    return code;
}

static int gather(log_writer *w, const unsigned char *bytes, int count, sqlite3_int64 offset)
{
    int code = SQLITE_OK;
    block *b = &w->blocks[w->filling];
    if (b->count && offset != b->offset + b->count) {
        code = hand_over(w);
        b = &w->blocks[w->filling];
    }
    while (count > 0 && code == SQLITE_OK) {
        int part = count < BLOCK_BYTES - b->count ? count : BLOCK_BYTES - b->count;
        if (b->count == 0) b->offset = offset;
        memcpy(b->bytes + b->count, bytes, (size_t)part);
        b->count += part;
        bytes += part;
        count -= part;
        offset += part;
        if (b->count < BLOCK_BYTES) continue;
        code = hand_over(w);
        b = &w->blocks[w->filling];
    }
    return code;
}

/* The header of a frame says how large the database is after it when it ends a transaction, and 0
 * otherwise. Pages are powers of two from 512 on, so that nothing else has this length. */
static bool is_commit(const unsigned char *bytes, int count)
{
    static const unsigned char zero[4] = {0};
    return count == FRAME_HEADER_BYTES && memcmp(bytes + 4, zero, sizeof zero) != 0;
}

/* Ends the thread behind its last block; may run twice. */
static int finish(log_writer *w)
{
    if (!w->writing) return w->code;
    int code = drain(w);
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    w->writing = false;
    return code;
}

/* ---- the methods that are replaced ---------------------------------------------------------- */

static int settle(log_writer *w)
{
    return w->writing ? drain(w) : w->code;
}

static int log_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 offset)
{
    settle(current);
    return current->log.before->xRead(file, bytes, count, offset);
}

static int log_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset)
{
    log_writer *w = current;
    if (w->writing && !is_commit(bytes, count)) return gather(w, bytes, count, offset);
    int code = finish(w); /* a commit ends what the thread was for */
    return code == SQLITE_OK ? w->log.before->xWrite(file, bytes, count, offset) : code;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int code = settle(current);
    return code == SQLITE_OK ? current->log.before->xTruncate(file, size) : code;
}

static int log_sync(sqlite3_file *file, int flags)
{
    int code = settle(current);
    return code == SQLITE_OK ? current->log.before->xSync(file, flags) : code;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int code = settle(current);
    return code == SQLITE_OK ? current->log.before->xFileSize(file, size) : code;
}

static int database_lock(sqlite3_file *file, int offset, int count, int flags)
{
    if (flags == (SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)) finish(current);
    return current->database.before->xShmLock(file, offset, count, flags);
}

/* ---- beginning and ending ------------------------------------------------------------------- */

static void lay_over(overlay *o)
{
    o->before = o->file->pMethods;
    o->methods = *o->before;
    o->file->pMethods = &o->methods;
}

static void writer_free(log_writer *w)
{
    if (w->log.before) w->log.file->pMethods = w->log.before;
    if (w->database.before) w->database.file->pMethods = w->database.before;
    for (int i = 0; i < BLOCKS; i++) pj_free(w->blocks[i].bytes);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    pj_free(w);
}

static bool is_possible(sqlite3 *db, log_writer *w)
{
    return sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &w->log.file) ==
               SQLITE_OK &&
           sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &w->database.file) ==
               SQLITE_OK &&
           w->log.file && w->log.file->pMethods && w->database.file && w->database.file->pMethods &&
           w->database.file->pMethods->iVersion >= 2;
}

void pj_sql_log_writer_begin(sqlite3 *db)
{
    log_writer *w = current ? NULL : pj_alloc(1, sizeof *w);
    if (!w) return;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    bool good = is_possible(db, w);
    for (int i = 0; i < BLOCKS && good; i++)
        good = (w->blocks[i].bytes = pj_alloc(BLOCK_BYTES, 1)) != NULL;
    if (good) {
        lay_over(&w->log);
        lay_over(&w->database);
        good = pj_thread_start(&w->thread, "pj-log", write_blocks, w, NULL) == PJ_OK;
    }
    if (!good) {
        writer_free(w);
        return;
    }
    w->log.methods.xRead = log_read;
    w->log.methods.xWrite = log_write;
    w->log.methods.xTruncate = log_truncate;
    w->log.methods.xSync = log_sync;
    w->log.methods.xFileSize = log_size;
    w->database.methods.xShmLock = database_lock;
    w->writing = true;
    current = w;
}

void pj_sql_log_writer_end(void)
{
    if (!current) return;
    finish(current);
    writer_free(current);
    current = NULL;
}
