#include "serve/queue_rows.h"

#include "base/file.h"
#include "base/json.h"
#include "record/spool_files.h"
#include "store/outbox.h"
#include "store/queue.h"

#include <stdio.h>
#include <string.h>

struct pj_queue_rows {
    pj_store *store;
    const pj_session *session;
    const char *owner;     /* this process */
    pthread_mutex_t mutex; /* guards store */
};

pj_status pj_queue_rows_open(pj_session *session, pj_queue_rows **out, pj_error *err)
{
    const char *owner = NULL;
    *out = NULL;
    pj_status status = session->store ? pj_session_owner(session, &owner, err) : PJ_OK;
    if (!owner) return status;
    pj_queue_rows *rows = pj_alloc(1, sizeof *rows);
    if (!rows) return pj_fail_memory(err, "the queue of runs");
    pthread_mutex_init(&rows->mutex, NULL);
    rows->session = session;
    rows->owner = owner;
    /* The queue is local to this machine, even when runs are stored on a server. */
    char local[4096];
    const char *address = pj_store_path(session->store);
    if (pj_store_is_server(address)) {
        status = pj_outbox_path(address, local, sizeof local, err);
        address = local;
    }
    if (status == PJ_OK)
        status = pj_store_open(&(pj_store_options){.path = address}, &rows->store, err);
    if (status == PJ_OK)
        *out = rows;
    else
        pj_queue_rows_close(rows);
    return status;
}

void pj_queue_rows_close(pj_queue_rows *rows)
{
    if (!rows) return;
    pj_store_close(rows->store);
    pthread_mutex_destroy(&rows->mutex);
    pj_free(rows);
}

/* ---- rows ----------------------------------------------------------------------------------- */

pj_status pj_queue_rows_put(pj_queue_rows *rows, const char *id, int64_t queued_ns,
                            const pj_generation_request *request, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    if (!rows) return PJ_OK;
    pj_buffer_init(&buffer, 64 << 20);
    pj_json_init(&json, &buffer);
    pj_generation_request_write(request, &json);
    pj_json_finish(&json);
    pj_status status = pj_buffer_status(&buffer, "a queued run", err);
    pthread_mutex_lock(&rows->mutex);
    if (status == PJ_OK)
        status = pj_store_queue_put(rows->store,
                                    &(pj_queue_row){.id = id,
                                                    .queued_ns = queued_ns,
                                                    .request = buffer.data,
                                                    .request_bytes = buffer.length,
                                                    .owner = rows->owner},
                                    err);
    pthread_mutex_unlock(&rows->mutex);
    pj_buffer_fini(&buffer);
    return status;
}

/* A row left by mistake is recognised as a stored run at the next start. */
void pj_queue_rows_remove(pj_queue_rows *rows, const char *id)
{
    if (!rows) return;
    pthread_mutex_lock(&rows->mutex);
    pj_store_queue_remove(rows->store, id, NULL);
    pthread_mutex_unlock(&rows->mutex);
}

void pj_queue_rows_write_back(pj_queue_rows *rows)
{
    if (!rows) return;
    pthread_mutex_lock(&rows->mutex);
    pj_store_write_back(rows->store);
    pthread_mutex_unlock(&rows->mutex);
}

/* ---- sharing -------------------------------------------------------------------------------- */

typedef struct loaded {
    struct loaded *next;
    char id[PJ_UUID_BYTES], owner[PJ_UUID_BYTES];
    int64_t queued_ns;
    bool is_cancelled;
    char *request;
    size_t bytes;
} loaded;

typedef struct loading {
    loaded *first, **last;
} loading;

static void keep_row(void *context, const pj_queue_row *from)
{
    loading *l = context;
    loaded *row = pj_alloc(1, sizeof *row);
    if (!row) return;
    snprintf(row->id, sizeof row->id, "%s", from->id);
    snprintf(row->owner, sizeof row->owner, "%s", from->owner ? from->owner : "");
    row->queued_ns = from->queued_ns;
    row->is_cancelled = from->is_cancelled;
    row->request = pj_strndup(from->request, from->request_bytes);
    row->bytes = row->request ? from->request_bytes : 0;
    *l->last = row;
    l->last = &row->next;
}

static pj_status load_rows(pj_queue_rows *rows, loading *l, pj_error *err)
{
    *l = (loading){.last = &l->first};
    pthread_mutex_lock(&rows->mutex);
    pj_status status = pj_store_queue_list(rows->store, keep_row, l, err);
    pthread_mutex_unlock(&rows->mutex);
    return status;
}

static void free_rows(loading *l)
{
    for (loaded *row = l->first, *next; row; row = next) {
        next = row->next;
        pj_free(row->request);
        pj_free(row);
    }
}

static bool is_own(const pj_queue_rows *rows, const loaded *row)
{
    return strcmp(row->owner, rows->owner) == 0;
}

/* Whether the run has begun: it is in the database, or in a spool. */
static bool has_begun(const pj_queue_rows *rows, const char *id)
{
    pj_run_list list = {0};
    char name[64], path[4096];
    snprintf(name, sizeof name, "%s.spool", id);
    if (pj_path_join(path, sizeof path, rows->session->spool_dir, name) &&
        pj_spool_file_has_records(path))
        return true;
    bool stored = pj_store_info(rows->store, id, &list, NULL) == PJ_OK;
    pj_run_list_fini(&list);
    return stored;
}

/* The database is untrusted input: invalid requests are not run. No client waits any more. */
static bool read_request(const loaded *row, pj_arena *arena, pj_generation_request *request)
{
    bool syntax;
    if (!row->request || pj_generation_request_parse(row->request, row->bytes, request, arena,
                                                     &syntax, NULL) != PJ_OK)
        return false;
    request->wait = false;
    return request->model != NULL;
}

/* With the mutex held: makes the row of a dead server, or of none, this one's; false: another was
 * faster. */
static bool queue_rows_claim(pj_queue_rows *rows, const loaded *row)
{
    char owner[PJ_UUID_BYTES];
    if (pj_store_queue_claim(rows->store, row->id, row->owner, rows->owner, NULL) != PJ_OK ||
        pj_store_queue_owner(rows->store, row->id, owner, NULL) != PJ_OK)
        return false;
    return strcmp(owner, rows->owner) == 0;
}

static void take_over(pj_queue_rows *rows, const loaded *row, const pj_queue_rows_hooks *hooks)
{
    pj_arena arena;
    pj_generation_request request;
    pthread_mutex_lock(&rows->mutex);
    bool is_mine = queue_rows_claim(rows, row);
    bool is_over = is_mine && (row->is_cancelled || has_begun(rows, row->id));
    pthread_mutex_unlock(&rows->mutex);
    if (!is_mine) return;
    pj_arena_init(&arena, 64 << 20);
    if (!is_over && read_request(row, &arena, &request))
        hooks->take(hooks->context, row->id, row->queued_ns, &request);
    else
        pj_queue_rows_remove(rows, row->id);
    pj_arena_fini(&arena);
}

pj_status pj_queue_rows_sync(pj_queue_rows *rows, const pj_queue_rows_hooks *hooks, pj_error *err)
{
    loading l;
    if (!rows) return PJ_OK;
    pj_status status = load_rows(rows, &l, err);
    for (const loaded *row = l.first; row; row = row->next) {
        if (is_own(rows, row)) {
            if (row->is_cancelled) hooks->cancel(hooks->context, row->id);
        } else if (!pj_session_knows_owner(rows->session, row->owner))
            take_over(rows, row, hooks);
    }
    free_rows(&l);
    return status;
}

bool pj_queue_rows_find(pj_queue_rows *rows, const char *text, char id[PJ_UUID_BYTES])
{
    loading l;
    size_t found = 0, length = strlen(text);
    if (!rows || length < 4 || load_rows(rows, &l, NULL) != PJ_OK) return false;
    for (const loaded *row = l.first; row; row = row->next)
        if (strncmp(row->id, text, length) == 0 && found++ == 0)
            memcpy(id, row->id, sizeof row->id);
    free_rows(&l);
    return found == 1;
}

pj_status pj_queue_rows_cancel(pj_queue_rows *rows, const char *id, pj_error *err)
{
    char found[PJ_UUID_BYTES];
    if (!pj_queue_rows_find(rows, id, found))
        return pj_fail(err, PJ_E_NOT_FOUND, "run %s is neither queued nor running", id);
    pthread_mutex_lock(&rows->mutex);
    pj_status status = pj_store_queue_cancel(rows->store, found, err);
    pthread_mutex_unlock(&rows->mutex);
    return status;
}
