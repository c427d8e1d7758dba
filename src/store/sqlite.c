/*
 * Connections to SQLite databases, and SQLite's error codes as sentences.
 *
 * WAL mode: readers and the writer do not block each other. synchronous=FULL: what was committed
 * survives a power failure, so that the spool of a stored run can be deleted; it costs one fsync
 * per run. Page size 32 kB, because rows are written in bulk and read in ranges: measured 10 %
 * faster than 16 kB, which is 20 % faster than 4 kB.
 */
#include "store/sqlite.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CHECKPOINT_PAGES: 512 MB. A large run's commit would otherwise checkpoint the whole log at once,
 * on the caller's time, and so would a small commit after it. Closing the database checkpoints, and
 * a server does when it is idle (pj_store_write_back). The log's file then shrinks to 16 MB when it
 * is next begun anew. */
enum { BUSY_TIMEOUT_MS = 120000, HEADER_BYTES = 72, CHECKPOINT_PAGES = 1 << 14 };

/* Bounds on what a database from elsewhere can make this program do. No statement of ours needs
 * 10^10 operations of SQLite's machine (minutes) for one row; no cell of ours is near the length.
 */
enum { STEP_OPERATIONS = 1000000, STEPS_MAX = 10000, CELL_MAX_BYTES = 160 << 20 };

/* ---- errors -------------------------------------------------------------------------------- */

/* A log needs 32 kB of shared memory, in a file beside the database. */
static bool is_full(const pj_sqlite *sqlite)
{
    int code = sqlite3_extended_errcode(sqlite->db), number = sqlite3_system_errno(sqlite->db);
    return code == SQLITE_IOERR_SHMSIZE || code == SQLITE_IOERR_SHMOPEN ||
           ((code & 0xff) == SQLITE_IOERR && (number == ENOSPC || number == EDQUOT)) ||
           ((code & 0xff) == SQLITE_READONLY && sqlite->is_alone);
}

pj_status pj_sqlite_fail(void *context, int code, pj_error *err)
{
    pj_sqlite *sqlite = context;
    const char *path = sqlite->path;
    pj_status status = PJ_E_IO;
    if (is_full(sqlite)) code = SQLITE_FULL;
    if (sqlite->has_no_locks)
        return pj_fail(
            err, PJ_E_IO,
            "database %s is on a file system without locks (%s), which several processes "
            "need: choose a local disk with --db",
            path, strerror(ENOLCK));
    switch (code & 0xff) {
    case SQLITE_NOMEM: return pj_fail_memory(err, "the database");
    case SQLITE_FULL:
        return pj_fail(err, PJ_E_FULL,
                       "no space left for database %s: the disk is full; free some, delete runs "
                       "with perjoule rm, or choose another location with --db",
                       path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return pj_fail(err, PJ_E_AGAIN,
                       "database %s is locked by another process: try again when it "
                       "has finished",
                       path);
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
        return pj_fail(err, PJ_E_DENIED,
                       "cannot write database %s: check the permissions of the "
                       "file and its folder, or choose another location with --db",
                       path);
    case SQLITE_CANTOPEN:
        return pj_fail(err, PJ_E_IO,
                       "cannot open database %s: check that its folder exists and can "
                       "be written, or choose another location with --db",
                       path);
    case SQLITE_NOTADB:
        return pj_fail(err, PJ_E_INVALID,
                       "%s is not a perjoule database: move it away or name another "
                       "with --db",
                       path);
    case SQLITE_CORRUPT:
        return pj_fail(err, PJ_E_INVALID,
                       "database %s is damaged: move it away to start a new one, or "
                       "recover what is left with: sqlite3 FILE .recover",
                       path);
    case SQLITE_TOOBIG:
        return pj_fail(err, PJ_E_INVALID, "database %s holds a value of more than %d MB", path,
                       CELL_MAX_BYTES >> 20);
    case SQLITE_INTERRUPT:
        return pj_fail(err, PJ_E_INVALID,
                       "database %s: a statement took too long and was ended: something in the "
                       "database keeps it busy",
                       path);
    case SQLITE_CONSTRAINT: status = PJ_E_STATE; break;
    case SQLITE_MISUSE: status = PJ_E_INTERNAL; break;
    default: break;
    }
    return pj_fail(err, status, "database %s: %s", path, sqlite3_errmsg(sqlite->db));
}

pj_status pj_sqlite_each_row(pj_sqlite *sqlite, const char *text, pj_sqlite_row_fn *take,
                             void *context, pj_error *err)
{
    pj_sqlite_begin_work();
    int code = sqlite3_exec(sqlite->db, text, take, context, NULL);
    return code == SQLITE_OK ? PJ_OK : pj_sqlite_fail(sqlite, code, err);
}

pj_status pj_sqlite_run(void *db, const char *text, pj_error *err)
{
    return pj_sqlite_each_row(db, text, NULL, NULL, err);
}

/* ---- opening ------------------------------------------------------------------------------- */

static pj_status make_folder(const char *path, pj_error *err)
{
    char folder[sizeof((pj_sqlite *)0)->path];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return PJ_OK;
    *slash = 0;
    if (pj_dir_exists(folder)) return PJ_OK;
    return pj_dir_make(folder, err);
}

/* A new database is readable by its owner alone; SQLite gives its log the same permissions. */
static void create_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

/* WAL mode needs a shared-memory file, which cannot be created in a read-only folder. If there is
 * no log and none can be created, the database is opened as immutable. */
static bool is_immutable(const char *path)
{
    char sidecar[sizeof((pj_sqlite *)0)->path + 8], *slash;
    snprintf(sidecar, sizeof sidecar, "%s-wal", path);
    if (pj_file_exists(sidecar)) return false;
    snprintf(sidecar, sizeof sidecar, "%s", path);
    slash = strrchr(sidecar, '/');
    if (slash) slash[slash == sidecar] = 0;
    return access(slash ? sidecar : ".", W_OK) != 0;
}

/* URIs are for immutable files: a path that looks like a URI stays a path. */
static int sqlite_open_file(pj_sqlite *sqlite)
{
    char path[3 * sizeof sqlite->path + 32];
    bool is_like_uri = strncmp(sqlite->path, "file:", 5) == 0;
    int flags = sqlite->is_alone    ? SQLITE_OPEN_READWRITE
                : sqlite->read_only ? SQLITE_OPEN_READONLY
                                    : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    snprintf(path, sizeof path, "%s%s", is_like_uri ? "./" : "", sqlite->path);
    if (sqlite->read_only && is_immutable(sqlite->path)) {
        char *at = path + snprintf(path, sizeof path, "file:");
        for (const char *c = sqlite->path; *c; c++)
            at += sprintf(at, strchr("?#%", *c) ? "%%%02X" : "%c", *c);
        snprintf(at, (size_t)(path + sizeof path - at), "?immutable=1");
    }
    return sqlite3_open_v2(path, &sqlite->db, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
}

/* SQLite takes ENOLCK, which network file systems without a lock service answer, for a lock of
 * another process. Tried on a file of our own, since closing the database would give up its locks.
 */
static bool has_no_locks(const pj_sqlite *sqlite)
{
    char path[sizeof sqlite->path + 16];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s-lock-XXXXXX", sqlite->path);
    int fd = mkstemp(path);
    if (fd < 0) return false;
    unlink(path);
    bool none = fcntl(fd, F_SETLK, &lock) != 0 && errno == ENOLCK;
    close(fd);
    return none;
}

static void (*_Atomic wait_hook)(const char *text);

void pj_store_on_wait(void (*say)(const char *text))
{
    atomic_store(&wait_hook, say);
}

/* After a second of waiting: says so, once; false: it would be in vain. */
static bool goes_on_waiting(pj_sqlite *sqlite)
{
    char text[sizeof sqlite->path + 64];
    void (*say)(const char *text) = atomic_load(&wait_hook);
    if (sqlite->has_said_wait) return !sqlite->has_no_locks;
    sqlite->has_said_wait = true;
    sqlite->has_no_locks = has_no_locks(sqlite);
    if (sqlite->has_no_locks || !say) return !sqlite->has_no_locks;
    snprintf(text, sizeof text, "waiting for another process that has locked database %s",
             sqlite->path);
    say(text);
    return true;
}

/* SQLite's busy handler is not called while the journal mode changes: processes that create one
 * database at once would fail on each other's lock. */
static pj_status switch_to_wal(pj_sqlite *sqlite, pj_error *err)
{
    int64_t begin_ns = pj_clock_ns();
    sqlite->has_said_wait = false;
    for (;;) {
        pj_status status = pj_sqlite_run(sqlite, "PRAGMA journal_mode=WAL", err);
        int64_t waited_ns = pj_clock_ns() - begin_ns;
        if (status == PJ_OK || (sqlite3_errcode(sqlite->db) & 0xff) != SQLITE_BUSY ||
            waited_ns > BUSY_TIMEOUT_MS * PJ_NS_PER_MS)
            return status;
        if (waited_ns > PJ_NS_PER_S && !goes_on_waiting(sqlite))
            return pj_sqlite_fail(sqlite, SQLITE_BUSY, err);
        pj_clock_sleep_until(pj_clock_ns() + 10 * PJ_NS_PER_MS);
    }
}

static _Thread_local uint32_t steps; /* of this thread's statement since its last row */

void pj_sqlite_begin_work(void)
{
    steps = 0;
}

/* Other than 0 ends the statement. */
static int note_progress(void *unused)
{
    return ++steps > STEPS_MAX;
}

/* SQLite's busy handler; 0 gives up. */
static int wait_for_lock(void *context, int count)
{
    pj_sqlite *sqlite = context;
    int64_t now_ns = pj_clock_ns();
    if (count == 0) sqlite->wait_ns = now_ns;
    if (count == 0) sqlite->has_said_wait = false;
    if (now_ns - sqlite->wait_ns > BUSY_TIMEOUT_MS * PJ_NS_PER_MS) return 0;
    if (now_ns - sqlite->wait_ns > PJ_NS_PER_S && !goes_on_waiting(sqlite)) return 0;
    pj_clock_sleep_until(now_ns + (count < 10 ? 1 + count * 2 : 25) * PJ_NS_PER_MS);
    return 1;
}

static void bound_work(pj_sqlite *sqlite)
{
    sqlite3_limit(sqlite->db, SQLITE_LIMIT_LENGTH, CELL_MAX_BYTES);
    sqlite3_progress_handler(sqlite->db, STEP_OPERATIONS, note_progress, NULL);
}

static pj_status set_up_connection(pj_sqlite *sqlite, pj_error *err)
{
    bound_work(sqlite);
    sqlite3_busy_handler(sqlite->db, wait_for_lock, sqlite);
    sqlite3_db_config(sqlite->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(sqlite->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    pj_status status =
        pj_sqlite_run(sqlite, "PRAGMA cell_size_check=ON; PRAGMA foreign_keys=ON", err);
    if (status == PJ_OK && sqlite->is_alone)
        status = pj_sqlite_run(sqlite, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA query_only=ON", err);
    if (status == PJ_OK && sqlite->read_only)
        status = pj_sqlite_run(sqlite, "SELECT 1 FROM sqlite_master LIMIT 1", err);
    if (status == PJ_OK && !sqlite->read_only) {
        status = pj_sqlite_run(sqlite, "PRAGMA page_size=32768", err);
        if (status == PJ_OK) status = switch_to_wal(sqlite, err);
        if (status == PJ_OK)
            status = pj_sqlite_run(
                sqlite, "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=16777216", err);
        sqlite3_wal_autocheckpoint(sqlite->db, CHECKPOINT_PAGES);
    }
    /* After the page size: a cache is counted in pages of the size known when it is set. */
    return status == PJ_OK ? pj_sqlite_run(sqlite, "PRAGMA cache_size=-65536", err) : status;
}

void pj_sqlite_close(void *db)
{
    pj_sqlite *sqlite = db;
    if (sqlite) sqlite3_close(sqlite->db);
    pj_free(sqlite);
}

static pj_status open_existing_or_new(pj_sqlite *sqlite, pj_error *err)
{
    if (sqlite->read_only && !pj_file_exists(sqlite->path))
        return pj_fail(err, PJ_E_NOT_FOUND,
                       "database %s does not exist yet: record a run first, or "
                       "name one with --db",
                       sqlite->path);
    pj_status status = sqlite->read_only ? PJ_OK : make_folder(sqlite->path, err);
    if (status != PJ_OK) return status;
    if (!sqlite->read_only) create_private(sqlite->path);
    int code = sqlite_open_file(sqlite);
    return code == SQLITE_OK ? set_up_connection(sqlite, err) : pj_sqlite_fail(sqlite, code, err);
}

pj_status pj_sqlite_open(const char *address, bool read_only, void **db, pj_error *err)
{
    pj_sqlite *sqlite = pj_alloc(1, sizeof *sqlite);
    if (!sqlite) return pj_fail_memory(err, "the database");
    if (strcmp(address, ":memory:") == 0) {
        pj_free(sqlite);
        return pj_fail(err, PJ_E_INVALID,
                       "a database in memory keeps nothing: name a file, or none to store nothing");
    }
    sqlite->read_only = read_only;
    snprintf(sqlite->path, sizeof sqlite->path, "%s", address);
    pj_status status = open_existing_or_new(sqlite, err);
    if (status == PJ_E_FULL && read_only) {
        sqlite3_close(sqlite->db);
        sqlite->db = NULL;
        sqlite->is_alone = true;
        status = open_existing_or_new(sqlite, err);
    }
    if (status == PJ_OK)
        *db = sqlite;
    else
        pj_sqlite_close(sqlite);
    return status;
}

/* By the file's header: SQLite's application_id, big-endian at byte 68. */
bool pj_sqlite_recognise(const char *path)
{
    unsigned char header[HEADER_BYTES];
    const unsigned char *id = header + 68;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool whole = read(fd, header, sizeof header) == (ssize_t)sizeof header;
    close(fd);
    return whole && memcmp(header, "SQLite format 3", 16) == 0 &&
           ((unsigned)id[0] << 24 | id[1] << 16 | id[2] << 8 | id[3]) == PJ_SQLITE_APPLICATION_ID;
}
