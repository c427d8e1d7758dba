#include "serve/queue_rows.h"

#include "base/file.h"
#include "base/json.h"
#include "store/outbox.h"
#include "store/queue.h"

#include <stdio.h>
#include <string.h>

struct pj_queue_rows {
    pj_store *store;
    const char *spool_dir; /* the session's; NULL: none */
    pthread_mutex_t mutex; /* guards store */
};

pj_status pj_queue_rows_open(const pj_session *session, pj_queue_rows **out, pj_error *err)
{
    *out = NULL;
    if (!session->store) return PJ_OK;
    pj_queue_rows *rows = pj_alloc(1, sizeof *rows);
    if (!rows) return pj_fail_memory(err, "the queue of runs");
    pthread_mutex_init(&rows->mutex, NULL);
    rows->spool_dir = session->spool_dir;
    /* The queue is local to this machine, even when runs are stored on a server. */
    char local[4096];
    const char *address = pj_store_path(session->store);
    pj_status status = PJ_OK;
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
        status = pj_store_queue_put(rows->store, id, queued_ns, buffer.data, buffer.length, err);
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

typedef struct loaded {
    struct loaded *next;
    char id[PJ_UUID_BYTES];
    int64_t queued_ns;
    char *request;
    size_t bytes;
} loaded;

typedef struct loading {
    loaded *first, **last;
} loading;

static void keep_row(void *context, const char *id, int64_t queued_ns, const char *request,
                     size_t bytes)
{
    loading *l = context;
    loaded *row = pj_alloc(1, sizeof *row);
    if (!row) return;
    snprintf(row->id, sizeof row->id, "%s", id);
    row->queued_ns = queued_ns;
    row->request = pj_strndup(request, bytes);
    row->bytes = row->request ? bytes : 0;
    *l->last = row;
    l->last = &row->next;
}

/* Whether the run has begun: it is in the database, or its spool exists. */
static bool has_begun(const pj_queue_rows *rows, const char *id)
{
    pj_run_list list = {0};
    char name[64], path[4096];
    snprintf(name, sizeof name, "%s.spool", id);
    if (rows->spool_dir && pj_path_join(path, sizeof path, rows->spool_dir, name) &&
        pj_file_exists(path))
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

pj_status pj_queue_rows_load(pj_queue_rows *rows,
                             void (*take)(void *, const char *, int64_t,
                                          const pj_generation_request *),
                             void *context, pj_error *err)
{
    loading l = {.last = &l.first};
    if (!rows) return PJ_OK;
    pj_status status = pj_store_queue_list(rows->store, keep_row, &l, err);
    for (loaded *row = l.first, *next; row; row = next) {
        pj_arena arena;
        pj_generation_request request;
        next = row->next;
        pj_arena_init(&arena, 64 << 20);
        if (!has_begun(rows, row->id) && read_request(row, &arena, &request))
            take(context, row->id, row->queued_ns, &request);
        else
            pj_queue_rows_remove(rows, row->id);
        pj_arena_fini(&arena);
        pj_free(row->request);
        pj_free(row);
    }
    return status;
}
