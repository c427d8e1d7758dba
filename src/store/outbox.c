/* Stores runs locally until they are transferred to a server. */
#include "store/outbox.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/memory.h"
#include "base/thread.h"
#include "store/store_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { FIRST_PAUSE_S = 1, MAX_PAUSE_S = 60, IDLE_PAUSE_S = 5, MAX_IDS_BYTES = 1 << 30 };

/* ---- the file -------------------------------------------------------------------------------- */

pj_status pj_outbox_path(const char *server, char *out, size_t bytes, pj_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "outbox-%016llx.db",
             (unsigned long long)pj_hash64(0, server, strlen(server)));
    return pj_store_choose_path(getenv("PERJOULE_FALLBACK"), name,
                                "the path of the fallback database", out, bytes, err);
}

static pj_status open_outbox(const char *server, bool read_only, pj_store **box, pj_error *err)
{
    char path[PJ_ADDRESS_BYTES];
    *box = NULL;
    pj_status status = pj_outbox_path(server, path, sizeof path, err);
    if (status == PJ_OK && pj_store_is_server(path))
        status = pj_fail(err, PJ_E_INVALID, "PERJOULE_FALLBACK must name a file");
    if (status != PJ_OK) return status;
    if (read_only && !pj_file_exists(path)) return PJ_E_NOT_FOUND;
    return pj_store_open(&(pj_store_options){.path = path, .read_only = read_only}, box, err);
}

static uint64_t outbox_count_runs(pj_store *box)
{
    int64_t count = 0;
    pj_sql_get_one_int(box, "SELECT count(*) FROM profiling_runs", NULL, 0, &count, NULL);
    return (uint64_t)count;
}

uint64_t pj_outbox_count(const char *address)
{
    pj_store *box;
    if (!pj_store_is_server(address) || open_outbox(address, true, &box, NULL) != PJ_OK) return 0;
    uint64_t count = outbox_count_runs(box);
    pj_store_close(box);
    return count;
}

/* ---- transferring ---------------------------------------------------------------------------- */

static pj_status list_ids(pj_store *box, pj_buffer *ids, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(box, "SELECT id FROM profiling_runs ORDER BY created_ns, id", err);
    return pj_sql_read_ids(sql, ids, err);
}

/* `saved`: the run as it was just saved in the outbox, which need not be read back; or NULL. */
static pj_status outbox_hand_over(pj_store *box, pj_store *server, const char *id,
                                  const pj_run_data *saved, pj_error *err)
{
    pj_run_data data = {0};
    pj_status status = saved ? PJ_OK : pj_store_load(box, id, &data, err);
    if (status == PJ_OK) status = pj_store_save_here(server, saved ? saved : &data, err);
    pj_run_data_fini(&data);
    if (status == PJ_OK) status = pj_store_delete(box, id, err);
    return status == PJ_E_NOT_FOUND ? PJ_OK : status; /* deleted meanwhile */
}

/* Whether a failure concerns only this run, so that the others can be transferred. */
static bool is_of_the_run(pj_status status)
{
    return status == PJ_E_INVALID || status == PJ_E_STATE || status == PJ_E_INTERNAL;
}

/* A run that waited after others is read back: it may have been changed in the meantime. */
static void hand_over_all(pj_store *box, pj_store *server, const pj_buffer *ids,
                          const pj_run_data *saved, pj_handed_over_fn *take, void *context,
                          pj_outbox_result *result)
{
    for (size_t at = 0; at < ids->length; at += PJ_UUID_BYTES) {
        pj_error err = {0};
        const char *id = ids->data + at;
        bool is_saved = saved && at == 0 && strcmp(id, saved->info.id) == 0;
        pj_status status = outbox_hand_over(box, server, id, is_saved ? saved : NULL, &err);
        if (status == PJ_OK) {
            result->handed_over++;
            if (take) take(context, id);
            continue;
        }
        result->reason = err;
        result->reason.status = status;
        if (!is_of_the_run(status)) return;
    }
}

/* A file lock admits one process at a time, which preserves the order; it ends with the process. */
static int lock_outbox(const pj_store *box)
{
    char path[PJ_ADDRESS_BYTES + 16];
    snprintf(path, sizeof path, "%s-lock", box->address);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0) {
    }
    return fd;
}

static pj_status push_locked(pj_store *box, pj_store *server, const pj_run_data *saved,
                             pj_handed_over_fn *take, void *context, pj_outbox_result *result,
                             pj_error *err)
{
    pj_buffer ids;
    pj_buffer_init(&ids, MAX_IDS_BYTES);
    int lock = lock_outbox(box);
    pj_status status = list_ids(box, &ids, err);
    if (status == PJ_OK) hand_over_all(box, server, &ids, saved, take, context, result);
    if (lock >= 0) close(lock);
    pj_buffer_fini(&ids);
    if (status == PJ_OK) result->left = outbox_count_runs(box);
    return status;
}

pj_status pj_outbox_push(const char *address, pj_handed_over_fn *take, void *context,
                         pj_outbox_result *result, pj_error *err)
{
    pj_store *box, *server = NULL;
    *result = (pj_outbox_result){0};
    pj_status status = open_outbox(address, false, &box, err);
    if (status != PJ_OK) return status;
    pj_store_options options = {.path = address, .is_direct = true};
    result->left = outbox_count_runs(box);
    if (pj_store_open(&options, &server, &result->reason) == PJ_OK) {
        status = push_locked(box, server, NULL, take, context, result, err);
        pj_store_close(server);
    }
    pj_store_close(box);
    return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Stores the run in the outbox, then transfers everything in it. */
static pj_status save_by_outbox(pj_store *store, const pj_run_data *data, pj_error *err)
{
    pj_outbox_result result = {0};
    pj_status status = PJ_OK;
    if (!store->outbox) status = open_outbox(store->address, false, &store->outbox, err);
    if (status == PJ_OK) status = pj_store_save_here(store->outbox, data, err);
    if (status != PJ_OK || pj_store_connect(store, &result.reason) != PJ_OK) return status;
    return push_locked(store->outbox, store, data, NULL, NULL, &result, err);
}

pj_status pj_store_save(pj_store *store, const pj_run_data *data, pj_error *err)
{
    if (store->is_direct) return pj_store_save_here(store, data, err);
    return save_by_outbox(store, data, err);
}

/* ---- in the background ----------------------------------------------------------------------- */

struct pj_pusher {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_stopping;
    char server[PJ_ADDRESS_BYTES];
};

static void *push_always(void *context)
{
    pj_pusher *p = context;
    int64_t pause_s = FIRST_PAUSE_S;
    pthread_mutex_lock(&p->mutex);
    while (!p->is_stopping) {
        pj_outbox_result result = {0};
        pthread_mutex_unlock(&p->mutex);
        bool waiting = pj_outbox_count(p->server) > 0;
        if (waiting) pj_outbox_push(p->server, NULL, NULL, &result, NULL);
        if (!waiting || result.reason.status == PJ_OK)
            pause_s = FIRST_PAUSE_S;
        else
            pause_s = 2 * pause_s < MAX_PAUSE_S ? 2 * pause_s : MAX_PAUSE_S;
        pthread_mutex_lock(&p->mutex);
        int64_t wait_ns = (waiting ? pause_s : IDLE_PAUSE_S) * PJ_NS_PER_S;
        if (!p->is_stopping) pj_cond_wait_for(&p->changed, &p->mutex, wait_ns);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

pj_pusher *pj_pusher_start(const char *server)
{
    if (!pj_store_is_server(server)) return NULL;
    pj_pusher *p = pj_alloc(1, sizeof *p);
    if (!p) return NULL;
    snprintf(p->server, sizeof p->server, "%s", server);
    pthread_mutex_init(&p->mutex, NULL);
    pj_cond_init(&p->changed);
    if (pj_thread_start(&p->thread, "pj-push", push_always, p, NULL) == PJ_OK) return p;
    pj_free(p);
    return NULL;
}

void pj_pusher_stop(pj_pusher *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->is_stopping = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->changed);
    pj_free(p);
}
