/* Recovery of spools: one pass over the folders, in a thread that can be paused and abandoned. */
#include "record/recover.h"

#include "attribution/build.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "record/spool_files.h"
#include "store/rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 200, LOOK_S = 5 /* between looks of one that stays */ };

struct pj_recovery {
    char *database;
    pj_spool_dirs dirs;
    pj_run_list waiting;   /* when it started */
    _Atomic bool stop;     /* abandon the current spool */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t moved;
    int owners; /* reference count of caller and thread */
    bool paused, closing, busy, done;
    bool stays;     /* goes on to look for what others leave */
    pj_buffer kept; /* names of the spools that could not be read, each with a NUL */
    uint32_t recovered, unreadable;
    char first_unreadable[PJ_ERROR_TEXT_BYTES];
    char trying[PJ_SPOOL_DIR_BYTES]; /* the spool whose attempt is counted, "": none */
    pj_buffer undelivered;           /* messages before a callback was set, each with a NUL */
    pj_recovery_message_fn *on_message;
    void *message_context;
};

/* ---- messages --------------------------------------------------------------------------- */

static void recover_report(pj_recovery *r, const char *text)
{
    pthread_mutex_lock(&r->mutex);
    pj_recovery_message_fn *fn = r->on_message;
    void *context = r->message_context;
    if (!fn) pj_buffer_append(&r->undelivered, text, strlen(text) + 1);
    pthread_mutex_unlock(&r->mutex);
    if (fn) fn(context, text);
}

void pj_recovery_on_message(pj_recovery *r, pj_recovery_message_fn *fn, void *context)
{
    if (!r) return;
    pthread_mutex_lock(&r->mutex);
    r->on_message = fn;
    r->message_context = context;
    for (size_t at = 0; fn && at < r->undelivered.length;
         at += strlen(r->undelivered.data + at) + 1)
        fn(context, r->undelivered.data + at);
    pj_buffer_clear(&r->undelivered);
    pthread_mutex_unlock(&r->mutex);
}

static void recover_report_outcome(pj_recovery *r, uint32_t recovered)
{
    char text[2 * PJ_ERROR_TEXT_BYTES];
    if (recovered) {
        snprintf(text, sizeof text, "%u interrupted run%s recovered", recovered,
                 recovered == 1 ? " was" : "s were");
        recover_report(r, text);
    }
    if (!r->unreadable) return;
    if (r->unreadable == 1)
        snprintf(text, sizeof text, "a run that was interrupted stays in its spool: %s",
                 r->first_unreadable);
    else
        snprintf(text, sizeof text,
                 "%u runs that were interrupted stay in their spools (perjoule check lists them); "
                 "the first: %s",
                 r->unreadable, r->first_unreadable);
    recover_report(r, text);
    r->unreadable = 0;
}

static void note_unreadable(pj_recovery *r, const char *path, const pj_error *err)
{
    bool named = strncmp(err->text, path, strlen(path)) == 0;
    pj_buffer_append(&r->kept, path, strlen(path) + 1);
    if (r->unreadable++ == 0)
        snprintf(r->first_unreadable, sizeof r->first_unreadable, "%s%s%s", named ? "" : path,
                 named ? "" : ": ", err->text);
}

/* ---- attempts ------------------------------------------------------------------------------- */

/* Sessions of one process attempt one spool at a time, since a signal's handler knows one. */
static pthread_mutex_t try_mutex = PTHREAD_MUTEX_INITIALIZER;
/* The count of the attempt in progress, for that handler. */
static char tries_now[PJ_SPOOL_DIR_BYTES];
static volatile sig_atomic_t is_trying;

void pj_recovery_interrupted(void)
{
    if (is_trying) unlink(tries_now);
}

static bool begin_try(const char *spool, pj_error *err)
{
    char path[PJ_SPOOL_DIR_BYTES];
    struct stat info;
    if (!pj_spool_tries_path(spool, path, sizeof path)) return true;
    if (stat(path, &info) == 0 && info.st_size >= PJ_SPOOL_MOST_TRIES) {
        pj_fail(err, PJ_E_STATE,
                "its recovery failed to finish %d times; perjoule import %s tries again",
                PJ_SPOOL_MOST_TRIES, spool);
        return false;
    }
    snprintf(tries_now, sizeof tries_now, "%s", path);
    is_trying = 1; /* first: a signal may come as soon as the file is there */
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return true;
    ssize_t n = write(fd, "x", 1);
    (void)n;
    close(fd);
    return true;
}

static void end_try(const char *spool)
{
    char path[PJ_SPOOL_DIR_BYTES];
    is_trying = 0;
    if (pj_spool_tries_path(spool, path, sizeof path)) unlink(path);
}

void pj_recovery_imported(const char *database, const char *path)
{
    pj_spool_dirs dirs;
    struct stat folder, own;
    char dir[PJ_SPOOL_DIR_BYTES];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash || !pj_ends_with(path, ".spool")) return;
    *slash = 0;
    pj_spool_dirs_of(database, &dirs);
    for (int i = 0; i < PJ_SPOOL_DIRS && stat(dir, &folder) == 0; i++)
        if (dirs.path[i][0] && stat(dirs.path[i], &own) == 0 && own.st_ino == folder.st_ino &&
            own.st_dev == folder.st_dev) {
            unlink(path);
            end_try(path);
            return;
        }
}

static void note_trying(pj_recovery *r, const char *spool)
{
    pthread_mutex_lock(&r->mutex);
    snprintf(r->trying, sizeof r->trying, "%s", spool);
    pthread_mutex_unlock(&r->mutex);
}

static bool was_kept(const pj_recovery *r, const char *path)
{
    for (size_t at = 0; at < r->kept.length; at += strlen(r->kept.data + at) + 1)
        if (strcmp(r->kept.data + at, path) == 0) return true;
    return false;
}

/* ---- one spool ------------------------------------------------------------------------------ */

/* A process that died before writing anything leaves an empty file or only a header. */
static bool recover_is_empty(const pj_spool_reader *reader, pj_status opened, uint64_t bytes)
{
    return (opened == PJ_E_INVALID && bytes == 0) ||
           (opened == PJ_OK && reader->mapping.size == PJ_SPOOL_HEADER_BYTES);
}

static void set_aside(const char *path)
{
    char other[PJ_SPOOL_DIR_BYTES];
    int stem = (int)(strlen(path) - strlen(".spool"));
    if (snprintf(other, sizeof other, "%.*s.damaged", stem, path) < (int)sizeof other)
        rename(path, other);
}

/* Whether the database has the run, stored from a spool without damage. A power failure can undo
 * the deletion of a stored run's spool, with pages of it missing that were never synced: what it
 * then holds is less than what is stored. */
static pj_status recover_has_whole(pj_store *store, const char *id, bool *whole, pj_error *err)
{
    char found[PJ_UUID_BYTES];
    pj_run_data stored = {0};
    *whole = false;
    pj_status status = pj_store_resolve(store, id, found, err);
    if (status == PJ_E_NOT_FOUND) return PJ_OK;
    if (status == PJ_OK)
        status = pj_store_load_tables(store, id, 1 << PJ_TABLE_WARNINGS, UINT32_MAX, &stored, err);
    *whole = status == PJ_OK;
    for (uint32_t i = 0; i < stored.warning_count; i++)
        if (strcmp(stored.warnings[i].code, PJ_SPOOL_DAMAGED_CODE) == 0) *whole = false;
    pj_run_data_fini(&stored);
    return status;
}

static pj_status store_spool(pj_recovery *r, pj_store *store, pj_spool_reader *reader,
                             const char *path, pj_error *err)
{
    pj_run_data data = {0};
    pj_build_options options = {.stop = &r->stop};
    bool whole = false;
    pj_status status = pj_build_run(reader, &options, &data, err);
    bool damaged = reader->damaged_bytes > 0;
    if (status == PJ_OK && atomic_load(&r->stop))
        status = pj_fail(err, PJ_E_CANCELLED, "its recovery was interrupted");
    if (status == PJ_OK) status = recover_has_whole(store, data.info.id, &whole, err);
    if (status == PJ_OK && !whole) status = pj_store_save(store, &data, err);
    pj_run_data_fini(&data);
    if (status != PJ_OK) return status;
    if (damaged && !whole)
        set_aside(path);
    else
        unlink(path);
    return PJ_OK;
}

/* The lock is held from reading to deleting, so that two processes cannot both recover a spool. */
static void recover_take_spool(pj_recovery *r, pj_store *store, const char *path)
{
    pj_spool_reader reader;
    pj_error err = {0};
    uint64_t bytes;
    if (was_kept(r, path)) return;
    pj_status status = pj_spool_file_open(path, &reader, &bytes, &err);
    /* in use or taken by another process */
    if (status == PJ_E_AGAIN || status == PJ_E_NOT_FOUND) return;
    if (recover_is_empty(&reader, status, bytes)) {
        unlink(path);
        pj_spool_reader_close(&reader);
        return;
    }
    pthread_mutex_lock(&try_mutex);
    if (status == PJ_OK && !begin_try(path, &err)) status = PJ_E_STATE;
    if (status == PJ_OK) {
        note_trying(r, path);
        status = store_spool(r, store, &reader, path, &err);
        end_try(path);
        note_trying(r, "");
    }
    pthread_mutex_unlock(&try_mutex);
    pj_spool_reader_close(&reader);
    if (status == PJ_OK) {
        pthread_mutex_lock(&r->mutex);
        r->recovered++;
        pthread_mutex_unlock(&r->mutex);
    } else if (status != PJ_E_CANCELLED) {
        note_unreadable(r, path, &err);
    }
}

/* ---- one pass ------------------------------------------------------------------------------- */

static void take_folder(pj_recovery *r, pj_store *store, const char *dir)
{
    char path[PJ_SPOOL_DIR_BYTES];
    DIR *spools = opendir(dir);
    while (pj_spool_next_file(spools, dir, false, path))
        if (!atomic_load(&r->stop)) recover_take_spool(r, store, path);
}

/* True when all spools were processed. */
static bool take_all(pj_recovery *r)
{
    pj_store *store = NULL;
    pj_error err = {0};
    uint32_t before = r->recovered;
    if (pj_store_open(&(pj_store_options){.path = r->database, .may_be_away = true}, &store,
                      &err) != PJ_OK) {
        recover_report(r, err.text);
        return true;
    }
    for (int i = 0; i < PJ_SPOOL_DIRS && !atomic_load(&r->stop); i++) {
        pj_status status = pj_spool_dir_check(r->dirs.path[i], &err);
        if (r->dirs.path[i][0] && status == PJ_OK) take_folder(r, store, r->dirs.path[i]);
        if (r->dirs.path[i][0] && status != PJ_OK && status != PJ_E_NOT_FOUND)
            recover_report(r, err.text);
    }
    pj_store_close(store);
    bool whole = !atomic_load(&r->stop);
    if (whole || r->recovered > before) recover_report_outcome(r, r->recovered - before);
    return whole;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void recover_release(pj_recovery *r) /* with the mutex held; unlocks it */
{
    bool last = --r->owners == 0;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->mutex);
    if (!last) return;
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->moved);
    pj_buffer_fini(&r->undelivered);
    pj_buffer_fini(&r->kept);
    pj_run_list_fini(&r->waiting);
    pj_free(r->database);
    pj_free(r);
}

/* Whether there is a spool that no process holds, and that was not found unreadable before. */
static bool has_new_leftover(const pj_recovery *r)
{
    char path[PJ_SPOOL_DIR_BYTES];
    bool found = false;
    for (int i = 0; i < PJ_SPOOL_DIRS; i++) {
        bool ours = r->dirs.path[i][0] && pj_spool_dir_check(r->dirs.path[i], NULL) == PJ_OK;
        DIR *spools = ours ? opendir(r->dirs.path[i]) : NULL;
        while (pj_spool_next_file(spools, r->dirs.path[i], false, path)) {
            pj_spool_reader reader;
            uint64_t bytes;
            if (found || was_kept(r, path)) continue;
            pj_status status = pj_spool_file_open(path, &reader, &bytes, NULL);
            found = status != PJ_E_AGAIN && status != PJ_E_NOT_FOUND;
            pj_spool_reader_close(&reader);
        }
    }
    return found;
}

static void *recover_work(void *context)
{
    pj_recovery *r = context;
    pthread_mutex_lock(&r->mutex);
    while (!r->closing && (!r->done || r->stays)) {
        bool again = r->done;
        if (again) pj_cond_wait_for(&r->moved, &r->mutex, LOOK_S * (int64_t)PJ_NS_PER_S);
        if (r->paused && !r->closing) pthread_cond_wait(&r->moved, &r->mutex);
        if (r->paused || r->closing) continue;
        r->busy = true;
        atomic_store(&r->stop, false);
        pthread_mutex_unlock(&r->mutex);
        bool whole = (again && !has_new_leftover(r)) || take_all(r);
        pthread_mutex_lock(&r->mutex);
        r->busy = false;
        r->done = whole;
        pthread_cond_broadcast(&r->moved);
    }
    recover_release(r);
    return NULL;
}

static bool has_spools(const pj_spool_dirs *dirs)
{
    char path[PJ_SPOOL_DIR_BYTES];
    bool found = false;
    for (int i = 0; i < PJ_SPOOL_DIRS; i++) {
        DIR *spools = dirs->path[i][0] ? opendir(dirs->path[i]) : NULL;
        while (pj_spool_next_file(spools, dirs->path[i], false, path)) found = true;
    }
    return found;
}

/* Starts the thread, which shares the ownership. */
static bool recover_begin(pj_recovery *r)
{
    pthread_t thread;
    r->owners++;
    if (pj_thread_start(&thread, "pj-recover", recover_work, r, NULL) == PJ_OK) {
        pthread_detach(thread);
        return true;
    }
    r->owners--;
    return false;
}

static pj_recovery *recover_new(const char *database)
{
    pj_recovery *r = pj_alloc(1, sizeof *r);
    if (!r) return NULL;
    pj_spool_dirs_of(database, &r->dirs);
    r->owners = 1;
    pj_buffer_init(&r->undelivered, 1 << 16);
    pj_buffer_init(&r->kept, 1 << 20);
    pthread_mutex_init(&r->mutex, NULL);
    pj_cond_init(&r->moved);
    r->database = pj_strdup(database);
    return r;
}

static void recover_drop(pj_recovery *r)
{
    pthread_mutex_lock(&r->mutex);
    recover_release(r);
}

pj_recovery *pj_recovery_start(const char *database)
{
    pj_recovery *r = recover_new(database);
    if (!r) return NULL;
    bool wanted = r->database && has_spools(&r->dirs);
    if (wanted) pj_leftovers_read(database, &r->waiting); /* the thread locks spools */
    if (wanted && recover_begin(r)) return r;
    recover_drop(r);
    return NULL;
}

pj_recovery *pj_recovery_stay(pj_recovery *started, const char *database)
{
    pj_recovery *r = started ? started : recover_new(database);
    if (!r || !r->database) return r;
    pthread_mutex_lock(&r->mutex);
    r->done |= !started;
    r->stays = true;
    bool ended = r->done; /* the thread ends with the mutex held since */
    if (ended && !recover_begin(r)) r->stays = false;
    pthread_mutex_unlock(&r->mutex);
    return r;
}

void pj_recovery_pause(pj_recovery *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->mutex);
    r->paused = true;
    atomic_store(&r->stop, true);
    pthread_mutex_unlock(&r->mutex);
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        pthread_mutex_lock(&r->mutex);
        bool busy = r->busy;
        pthread_mutex_unlock(&r->mutex);
        if (!busy) break;
        pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    }
}

void pj_recovery_resume(pj_recovery *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->mutex);
    r->paused = false;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->mutex);
}

pj_recovery_state pj_recovery_wait(pj_recovery *r, int64_t ns)
{
    pj_recovery_state state = {.done = true};
    int64_t begin_ns = pj_clock_ns();
    while (r) {
        pthread_mutex_lock(&r->mutex);
        state = (pj_recovery_state){r->recovered, r->done};
        pthread_mutex_unlock(&r->mutex);
        if (state.done || pj_clock_ns() - begin_ns >= ns) break;
        pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    }
    return state;
}

const pj_run_list *pj_recovery_waiting(pj_recovery *r)
{
    static const pj_run_list none;
    return r ? &r->waiting : &none;
}

void pj_recovery_close(pj_recovery *r)
{
    if (!r) return;
    pj_recovery_on_message(r, NULL, NULL);
    pj_recovery_pause(r); /* waits briefly for the thread to end */
    pthread_mutex_lock(&r->mutex);
    if (r->trying[0]) end_try(r->trying); /* abandoned for lack of time, not failed */
    r->closing = true;
    r->paused = false;
    recover_release(r);
}
