/* Requests as JSON and back, and the database connection that stores them. */
#include "serve/queue_rows.h"

#include "base/file.h"
#include "base/json.h"
#include "store/queue.h"

#include <jansson.h>
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
    pj_status status = pj_store_open(&(pj_store_options){.path = pj_store_path(session->store)},
                                     &rows->store, err);
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

/* ---- a request as JSON ---------------------------------------------------------------------- */

static void write_prompt(pj_json *json, const pj_prompt *prompt)
{
    if (!prompt->ids) {
        pj_json_key(json, "prompt");
        pj_json_string_n(json, prompt->text, prompt->bytes);
        return;
    }
    pj_json_key(json, "prompt_ids");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < prompt->id_count; i++) pj_json_int(json, prompt->ids[i]);
    pj_json_array_end(json);
}

static void write_ask(pj_json *json, const pj_run_ask *ask, const pj_prompt *prompt)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model_path", ask->model_path);
    write_prompt(json, prompt);
    pj_json_key(json, "tags");
    pj_json_array_begin(json);
    for (size_t i = 0; ask->tags && ask->tags[i]; i++)
        pj_json_string_n(json, ask->tags[i], strlen(ask->tags[i]));
    pj_json_array_end(json);
    pj_json_kv_string(json, "experiment_name", ask->experiment_name);
    pj_json_kv_string(json, "dtype", ask->dtype);
    pj_json_kv_int(json, "depth", ask->depth);
    pj_json_kv_uint(json, "max_tokens", ask->max_tokens);
    pj_json_kv_uint(json, "batch", ask->batch);
    pj_json_kv_double(json, "temperature", ask->sampling.temperature);
    pj_json_kv_uint(json, "top_k", ask->sampling.top_k);
    pj_json_kv_double(json, "top_p", ask->sampling.top_p);
    pj_json_kv_double(json, "min_p", ask->sampling.min_p);
    pj_json_kv_double(json, "repetition_penalty", ask->sampling.repetition_penalty);
    pj_json_kv_uint(json, "seed", ask->sampling.seed);
    pj_json_object_end(json);
}

static double number(const json_t *object, const char *name, double least, double most, bool *ok)
{
    const json_t *value = json_object_get(object, name);
    double real = json_is_number(value) ? json_number_value(value) : -1;
    *ok = *ok && real >= least && real <= most;
    return real;
}

/* The database is untrusted input: invalid requests are not run. */
static bool read_texts(const json_t *object, pj_arena *arena, pj_run_ask *ask)
{
    const json_t *tags = json_object_get(object, "tags"),
                 *ids = json_object_get(object, "prompt_ids"),
                 *prompt = json_object_get(object, "prompt");
    size_t tag_count = json_array_size(tags), id_count = json_array_size(ids);
    const char **list = pj_arena_alloc(arena, tag_count + 1, sizeof *list);
    int32_t *numbers = pj_arena_alloc(arena, id_count + 1, sizeof *numbers);
    if (!list || !numbers) return false;
    for (size_t i = 0; i < tag_count; i++)
        if (!(list[i] = json_string_value(json_array_get(tags, i)))) return false;
    for (size_t i = 0; i < id_count; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return false;
        numbers[i] = (int32_t)json_integer_value(id);
    }
    ask->tags = list;
    ask->prompt_ids = id_count ? numbers : NULL;
    ask->prompt_id_count = (uint32_t)id_count;
    ask->prompt = json_string_value(prompt);
    ask->prompt_bytes = json_string_length(prompt);
    ask->model_path = json_string_value(json_object_get(object, "model_path"));
    ask->experiment_name = json_string_value(json_object_get(object, "experiment_name"));
    ask->dtype = json_string_value(json_object_get(object, "dtype"));
    return ask->model_path && (ask->prompt || ask->prompt_ids);
}

static bool read_ask(const json_t *object, pj_arena *arena, pj_run_ask *ask)
{
    bool ok = true;
    *ask = (pj_run_ask){0};
    ask->depth = (pj_depth)number(object, "depth", PJ_DEPTH_OFF, PJ_DEPTH_DEEP, &ok);
    ask->max_tokens = (uint32_t)number(object, "max_tokens", 0, 1e9, &ok);
    ask->batch = (uint32_t)number(object, "batch", 0, 65536, &ok);
    ask->sampling.temperature = number(object, "temperature", 0, 1e6, &ok);
    ask->sampling.top_k = (uint32_t)number(object, "top_k", 0, 1e9, &ok);
    ask->sampling.top_p = number(object, "top_p", 0, 1, &ok);
    ask->sampling.min_p = number(object, "min_p", 0, 1, &ok);
    ask->sampling.repetition_penalty = number(object, "repetition_penalty", 0, 1e6, &ok);
    ask->sampling.seed = (uint64_t)number(object, "seed", 0, 9007199254740992.0, &ok);
    return ok && pj_sampling_check(&ask->sampling, NULL) == PJ_OK && read_texts(object, arena, ask);
}

/* ---- rows ----------------------------------------------------------------------------------- */

pj_status pj_queue_rows_put(pj_queue_rows *rows, const char *id, int64_t queued_ns,
                            const pj_run_ask *ask, const pj_prompt *prompt, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    if (!rows) return PJ_OK;
    pj_buffer_init(&buffer, 64 << 20);
    pj_json_init(&json, &buffer);
    write_ask(&json, ask, prompt);
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
    json_t *request; /* NULL: invalid */
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
    row->request = json_loadb(request, bytes, 0, NULL);
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

pj_status pj_queue_rows_load(pj_queue_rows *rows,
                             void (*take)(void *, const char *, int64_t, const pj_run_ask *),
                             void *context, pj_error *err)
{
    loading l = {.last = &l.first};
    if (!rows) return PJ_OK;
    pj_status status = pj_store_queue_list(rows->store, keep_row, &l, err);
    for (loaded *row = l.first, *next; row; row = next) {
        pj_arena arena;
        pj_run_ask ask;
        next = row->next;
        pj_arena_init(&arena, 64 << 20);
        if (!has_begun(rows, row->id) && read_ask(row->request, &arena, &ask))
            take(context, row->id, row->queued_ns, &ask);
        else
            pj_queue_rows_remove(rows, row->id);
        pj_arena_fini(&arena);
        json_decref(row->request);
        pj_free(row);
    }
    return status;
}
