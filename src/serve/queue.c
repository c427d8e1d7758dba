#include "serve/queue.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/thread.h"
#include "serve/experiments.h"
#include "serve/idle_meter.h"
#include "serve/queue_rows.h"
#include "store/rows.h"
#include "store/run_summary.h"

#include <stdio.h>
#include <string.h>

/* How often the rows of other servers are looked at. */
static const int64_t SHARE_NS = PJ_NS_PER_S;

typedef enum job_state { JOB_WAITS = 0, JOB_RUNS, JOB_ENDED } job_state;

typedef struct job {
    struct job *next;
    pj_arena arena; /* owns the request's strings */
    char id[PJ_UUID_BYTES];
    int64_t created_wall_ns;
    pj_generation_request request;
    pj_prompt prompt;
    bool is_stored; /* in the database's queue */
    job_state state;
    _Atomic bool own_cancel, *cancel; /* the latter: the job's own flag, or its experiment's */
    pj_status status;
    pj_error err;
    char *object; /* result for the waiting request; NULL: none */
    size_t object_bytes;
} job;

struct pj_run_queue {
    pj_run_queue_options options;
    pj_queue_rows *rows; /* persistent copy in the database; NULL: none */
    pj_model_slot slot;  /* worker only */
    bool slot_was_used;  /* the model slot was used by a single run since the last run of an
                            experiment; worker only */
    pthread_t worker, sharer;
    bool is_shared;        /* the sharer runs */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t moved, stopping;
    /* oldest first: the running one, waiting ones, and ended ones whose result is awaited */
    job *jobs;
    uint32_t waiting;
    bool stop;
    bool works;   /* the worker runs something */
    bool has_log; /* something was stored since the log was written back */
    pj_queue_totals totals;
};

/* ---- jobs ------------------------------------------------------------------------------------ */

static void job_free(job *j)
{
    pj_free(j->object);
    pj_arena_fini(&j->arena);
    pj_free(j);
}

static const char *queue_keep(pj_arena *arena, const char *text)
{
    return text ? pj_arena_strndup(arena, text, strlen(text)) : NULL;
}

static job *job_new(const pj_generation_request *request)
{
    job *j = pj_alloc(1, sizeof *j);
    if (!j) return NULL;
    pj_arena_init(&j->arena, 0);
    bool ok = pj_generation_request_copy(&j->request, request, &j->arena);
    j->prompt = (pj_prompt){.text = j->request.prompt,
                            .bytes = j->request.prompt_bytes,
                            .ids = j->request.prompt_ids,
                            .id_count = j->request.prompt_id_count};
    j->cancel = &j->own_cancel;
    j->created_wall_ns = pj_clock_wall_ns();
    pj_uuid7(j->id);
    if (ok) return j;
    job_free(j);
    return NULL;
}

static job *find_job(const pj_run_queue *queue, const char *id)
{
    for (job *j = queue->jobs; j; j = j->next)
        if (strcmp(j->id, id) == 0) return j;
    return NULL;
}

static void unlink_job(pj_run_queue *queue, const job *gone)
{
    for (job **at = &queue->jobs; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            return;
        }
}

static void count_waiting(pj_run_queue *queue)
{
    queue->waiting = 0;
    for (const job *j = queue->jobs; j; j = j->next) queue->waiting += j->state == JOB_WAITS;
    if (queue->options.changed) queue->options.changed(queue->options.context, queue->waiting);
}

/* With the mutex held. An ended job is kept if its result is awaited. */
static void end_job(pj_run_queue *queue, job *j, pj_status status, const pj_error *err)
{
    j->state = JOB_ENDED;
    j->status = status;
    if (err) j->err = *err;
    count_waiting(queue);
    if (!j->request.wait) {
        unlink_job(queue, j);
        job_free(j);
    }
    pthread_cond_broadcast(&queue->moved);
}

/* ---- results of a run ------------------------------------------------------------------------ */

static void queue_write_ids(pj_json *json, const char *key, const int32_t *ids, uint32_t count)
{
    pj_json_kv_array_begin(json, key);
    for (uint32_t i = 0; i < count; i++) pj_json_int(json, ids[i]);
    pj_json_array_end(json);
}

static void write_result(pj_json *json, const pj_profile_result *result)
{
    const pj_generate_result *g = &result->generated;
    const pj_sequence_result *first = g->count ? &g->sequences[0] : NULL;
    pj_json_object_begin(json);
    pj_summary_write_members(json, &result->data.info, NULL);
    pj_json_key(json, "text");
    pj_json_string_n(json, first && first->text ? first->text : "", first ? first->text_bytes : 0);
    queue_write_ids(json, "token_ids", first ? first->ids : NULL, first ? first->count : 0);
    queue_write_ids(json, "prompt_ids", first ? first->prompt_ids : NULL,
                    first ? first->prompt_count : 0);
    if (g->count > 1) {
        pj_json_kv_array_begin(json, "texts");
        for (uint32_t i = 0; i < g->count; i++)
            pj_json_string_n(json, g->sequences[i].text ? g->sequences[i].text : "",
                             g->sequences[i].text_bytes);
        pj_json_array_end(json);
    }
    pj_json_object_end(json);
}

static void keep_result(job *j, const pj_profile_result *result)
{
    pj_buffer buffer;
    pj_json json;
    if (!j->request.wait || !result->data.info.id[0]) return;
    pj_buffer_init(&buffer, 256 << 20);
    pj_json_init(&json, &buffer);
    write_result(&json, result);
    pj_json_finish(&json);
    j->object_bytes = buffer.length;
    j->object = pj_buffer_take(&buffer);
    pj_buffer_fini(&buffer);
}

/* The meter's number of a run's rail; PJ_MAX_RAILS: it has no such rail. */
static uint32_t queue_find_rail(const pj_session *session, const pj_rail *wanted)
{
    uint32_t count = 0;
    const pj_rail *rails = session->meter ? pj_meter_rails(session->meter, &count) : NULL;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rails[i].name, wanted->name) == 0 &&
            strcmp(rails[i].source, wanted->source) == 0)
            return i;
    return PJ_MAX_RAILS;
}

static void add_energy(pj_run_queue *queue, const pj_run_data *data)
{
    for (uint32_t i = 0; i < data->rail_energy_count; i++) {
        const pj_rail_energy *e = &data->rail_energy[i];
        if (e->phase >= PJ_PHASE_COUNT || e->rail >= data->rail_count || isnan(e->gross_mj))
            continue;
        uint32_t rail = queue_find_rail(queue->options.session, &data->rails[e->rail]);
        if (rail < PJ_MAX_RAILS) queue->totals.energy_mj[rail][e->phase] += e->gross_mj;
    }
}

/* With the mutex held. */
static void queue_add_totals(pj_run_queue *queue, const pj_profile_result *result)
{
    pj_queue_totals *totals = &queue->totals;
    const pj_run_info *info = &result->data.info;
    totals->runs[result->run_status]++;
    totals->input_tokens += result->generated.input_tokens;
    totals->output_tokens += result->generated.output_tokens;
    if (!info->id[0]) return;
    if (info->total_ms >= 0) totals->run_ms += info->total_ms;
    add_energy(queue, &result->data);
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* A run that never began emits no events of its own. */
static void queue_report_unbegun(const pj_run_queue *queue, const char *id, pj_run_status status,
                                 const char *error)
{
    const pj_live_sink *sink = &queue->options.session->sinks.all;
    if (sink->run_end)
        sink->run_end(sink->context, id,
                      &(pj_live_end){.t_ms = 0, .status = status, .error = error});
}

/* With the model loaded and nothing to do, measures the resident baseline once per model. */
static void listen_when_idle(pj_run_queue *queue, bool loaded)
{
    pj_session *session = queue->options.session;
    pthread_mutex_lock(&queue->mutex);
    bool idle = queue->waiting == 0 && !queue->stop;
    pthread_mutex_unlock(&queue->mutex);
    if (loaded && idle && queue->slot.engine && session->meter)
        pj_session_baseline(session, PJ_BASELINE_RESIDENT, NULL);
}

static void run_job(pj_run_queue *queue, job *j)
{
    const pj_generation_request *request = &j->request;
    pj_profile_result result;
    pj_error err = {0};
    pj_profile_options options = {
        .engine = {.threads = queue->options.threads,
                   .no_tokenizer = request->prompt_ids && !request->stop.count},
        .request.prompts = &j->prompt,
        .request.prompt_count = 1,
        .request.is_private = queue->options.is_private,
        .run_id = j->id,
        .request.cancel = j->cancel};
    pj_profile_options_set(&options, request);
    bool loads = !pj_model_slot_holds(&queue->slot, &options.engine);
    pj_status status =
        pj_profile_generate(queue->options.session, &queue->slot, &options, &result, &err);
    if (!result.run_id[0]) queue_report_unbegun(queue, j->id, PJ_RUN_FAILED, err.text);
    /* A cancelled run ended as requested, and is stored. */
    if (status == PJ_E_CANCELLED && result.data.info.id[0]) status = PJ_OK;
    keep_result(j, &result);
    pj_queue_rows_remove(queue->rows, j->id);
    pthread_mutex_lock(&queue->mutex);
    queue_add_totals(queue, &result);
    queue->totals.running[0] = 0;
    end_job(queue, j, status, &err);
    pthread_mutex_unlock(&queue->mutex);
    pj_profile_result_fini(&result);
    listen_when_idle(queue, loads);
}

/* ---- runs of experiments --------------------------------------------------------------------- */

/* A run of an experiment is a job that was never queued: it can be found, watched and cancelled. */
static void begin_cell(void *context, pj_profile_options *run, _Atomic bool *cancel)
{
    pj_run_queue *queue = context;
    const pj_prompt *prompt = &run->request.prompts[0];
    pj_generation_request request;
    pj_generation_request_init(&request);
    request.model = run->engine.model;
    request.prompt = prompt->ids ? NULL : prompt->text;
    request.prompt_bytes = prompt->bytes;
    request.prompt_ids = prompt->ids;
    request.prompt_id_count = prompt->id_count;
    request.experiment = run->experiment_name;
    request.dtype = run->engine.dtype;
    request.no_mmap = run->engine.no_mmap;
    request.depth = pj_depth_name(run->depth);
    request.max_tokens = run->request.max_tokens;
    request.batch = run->request.sequences;
    request.wait = false;
    job *j = job_new(&request);
    if (!j) return;
    j->cancel = cancel;
    j->state = JOB_RUNS;
    run->run_id = j->id;
    pthread_mutex_lock(&queue->mutex);
    j->next = queue->jobs;
    queue->jobs = j;
    memcpy(queue->totals.running, j->id, sizeof j->id);
    pthread_mutex_unlock(&queue->mutex);
}

static void end_cell(void *context, pj_status status, const pj_profile_result *result,
                     const pj_error *err)
{
    pj_run_queue *queue = context;
    pthread_mutex_lock(&queue->mutex);
    job *j = queue->totals.running[0] ? find_job(queue, queue->totals.running) : NULL;
    if (j && !result->run_id[0]) queue_report_unbegun(queue, j->id, PJ_RUN_FAILED, err->text);
    queue_add_totals(queue, result);
    queue->totals.running[0] = 0;
    if (j) end_job(queue, j, status, err);
    pthread_mutex_unlock(&queue->mutex);
}

static void step_experiment(pj_run_queue *queue)
{
    pj_experiments_hooks hooks = {.slot = &queue->slot,
                                  .slot_was_used = queue->slot_was_used,
                                  .begin = begin_cell,
                                  .end = end_cell,
                                  .context = queue};
    queue->slot_was_used = false;
    pj_experiments_step(queue->options.experiments, &hooks);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* With the mutex held. */
static job *next_job(pj_run_queue *queue)
{
    for (job *j = queue->jobs; j; j = j->next)
        if (j->state == JOB_WAITS) return j;
    return NULL;
}

/* With the mutex held. */
static void begin_job(pj_run_queue *queue, job *j)
{
    j->state = JOB_RUNS;
    memcpy(queue->totals.running, j->id, sizeof j->id);
    count_waiting(queue);
    queue->slot_was_used = true;
}

static void *queue_work(void *context)
{
    pj_run_queue *queue = context;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        job *j = queue->stop ? NULL : next_job(queue);
        if (!j && queue->stop) break;
        pj_experiments *experiments = queue->options.experiments;
        if (!j && !(experiments && pj_experiments_wait(experiments))) {
            pthread_cond_wait(&queue->moved, &queue->mutex);
            continue;
        }
        if (j) begin_job(queue, j);
        queue->works = queue->has_log = true;
        pthread_mutex_unlock(&queue->mutex);
        pj_idle_meter_pause(queue->options.idle);
        if (j)
            run_job(queue, j);
        else
            step_experiment(queue);
        pj_idle_meter_resume(queue->options.idle);
        pthread_mutex_lock(&queue->mutex);
        queue->works = false;
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

void pj_run_queue_wake(pj_run_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    pthread_cond_broadcast(&queue->moved);
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- the interface --------------------------------------------------------------------------- */

static void queue_append(pj_run_queue *queue, job *j)
{
    job **at = &queue->jobs;
    while (*at) at = &(*at)->next;
    *at = j;
    count_waiting(queue);
}

static pj_status queue_accept(pj_run_queue *queue, job *j, uint32_t *position, pj_error *err)
{
    if (queue->stop) return pj_fail(err, PJ_E_UNAVAILABLE, "the server is shutting down");
    if (queue->waiting >= queue->options.limit)
        return pj_fail(err, PJ_E_FULL,
                       "the queue is full with %u runs (--queue); try again when one has "
                       "ended",
                       queue->waiting);
    queue_append(queue, j);
    *position = queue->waiting;
    pthread_cond_broadcast(&queue->moved);
    return PJ_OK;
}

pj_status pj_run_queue_add(pj_run_queue *queue, const pj_generation_request *request,
                           char id[PJ_UUID_BYTES], uint32_t *position, pj_error *err)
{
    job *j = job_new(request);
    if (!j) return pj_fail_memory(err, "a run");
    memcpy(id, j->id, sizeof j->id);
    const pj_live_sink *sink = &queue->options.session->sinks.all;
    pj_status status = PJ_OK;
    j->is_stored = queue->rows && !queue->options.is_private;
    if (j->is_stored)
        status = pj_queue_rows_put(queue->rows, j->id, j->created_wall_ns, &j->request, err);
    if (status != PJ_OK) {
        job_free(j);
        return status;
    }
    pthread_mutex_lock(&queue->mutex);
    status = queue_accept(queue, j, position, err);
    /* Under the lock, so that "queued" precedes "started". */
    if (status == PJ_OK && sink->run_queued) sink->run_queued(sink->context, id, *position);
    pthread_mutex_unlock(&queue->mutex);
    if (status != PJ_OK) {
        pj_queue_rows_remove(queue->rows, id);
        job_free(j);
    }
    return status;
}

pj_status pj_run_queue_wait(pj_run_queue *queue, const char *id, pj_buffer *object, pj_error *err)
{
    pthread_mutex_lock(&queue->mutex);
    job *j = find_job(queue, id);
    while (j && j->state != JOB_ENDED) pthread_cond_wait(&queue->moved, &queue->mutex);
    if (j) unlink_job(queue, j);
    pthread_mutex_unlock(&queue->mutex);
    if (!j) return pj_fail(err, PJ_E_NOT_FOUND, "run %s is not being waited for", id);
    pj_status status = j->status;
    if (status != PJ_OK)
        *err = j->err;
    else if (!j->object || !pj_buffer_append(object, j->object, j->object_bytes))
        status = pj_fail_memory(err, "the result of a run");
    job_free(j);
    return status;
}

/* With the mutex held: removes a waiting run from the queue. */
static void drop_waiting(pj_run_queue *queue, job *j)
{
    pj_error err = {0};
    char id[PJ_UUID_BYTES];
    memcpy(id, j->id, sizeof id);
    pj_fail(&err, PJ_E_CANCELLED, "run %s was cancelled before it began", id);
    queue->totals.runs[PJ_RUN_CANCELLED]++;
    end_job(queue, j, PJ_E_CANCELLED, &err);
    queue_report_unbegun(queue, id, PJ_RUN_CANCELLED, err.text);
}

/* With the mutex held, when the server stops. The run stays in the database's queue, or is lost if
 * it is not there. */
static void leave_waiting(pj_run_queue *queue, job *j)
{
    pj_error err = {0};
    if (!j->is_stored) {
        drop_waiting(queue, j);
        return;
    }
    pj_fail(&err, PJ_E_UNAVAILABLE,
            "the server is shutting down; run %s stays queued and runs when it is started again",
            j->id);
    end_job(queue, j, PJ_E_UNAVAILABLE, &err);
}

static pj_status cancel_own(pj_run_queue *queue, const char *id, bool *was_waiting, pj_error *err)
{
    pj_status status = PJ_OK;
    *was_waiting = false;
    pthread_mutex_lock(&queue->mutex);
    job *j = find_job(queue, id);
    if (j && j->state == JOB_RUNS)
        atomic_store(j->cancel, true);
    else if (j && j->state == JOB_WAITS) {
        drop_waiting(queue, j);
        *was_waiting = true;
    } else
        status = pj_fail(err, PJ_E_NOT_FOUND, "run %s is neither queued nor running", id);
    pthread_mutex_unlock(&queue->mutex);
    if (*was_waiting) pj_queue_rows_remove(queue->rows, id);
    return status;
}

pj_status pj_run_queue_cancel(pj_run_queue *queue, const char *id, bool *was_waiting, pj_error *err)
{
    pj_status status = cancel_own(queue, id, was_waiting, err);
    if (status != PJ_E_NOT_FOUND || !queue->rows) return status;
    return pj_queue_rows_cancel(queue->rows, id, err);
}

bool pj_run_queue_find(pj_run_queue *queue, const char *text, char id[PJ_UUID_BYTES])
{
    size_t length = strlen(text), found = 0;
    pthread_mutex_lock(&queue->mutex);
    for (const job *j = queue->jobs; j && length >= 4; j = j->next)
        if (j->state != JOB_ENDED && strncmp(j->id, text, length) == 0 && found++ == 0)
            memcpy(id, j->id, sizeof j->id);
    pthread_mutex_unlock(&queue->mutex);
    return found == 1 || (found == 0 && pj_queue_rows_find(queue->rows, text, id));
}

uint32_t pj_run_queue_list(pj_run_queue *queue, char ids[][PJ_UUID_BYTES], uint32_t max)
{
    uint32_t count = 0;
    pthread_mutex_lock(&queue->mutex);
    for (const job *j = queue->jobs; j && count < max; j = j->next)
        if (j->state != JOB_ENDED) memcpy(ids[count++], j->id, sizeof j->id);
    pthread_mutex_unlock(&queue->mutex);
    return count;
}

static void queue_fill_info(const pj_run_queue *queue, const job *j, pj_run_info *info,
                            pj_arena *arena)
{
    *info = (pj_run_info){.status =
                              j->state == JOB_WAITS ? (pj_run_status)PJ_RUN_QUEUED : PJ_RUN_RUNNING,
                          .depth = (pj_depth)pj_depth_parse(j->request.depth),
                          .created_wall_ns = j->created_wall_ns,
                          .batch_size = j->request.batch ? (uint32_t)j->request.batch : 1,
                          .engine = "perjoule"};
    pj_run_info_unknown(info);
    memcpy(info->id, j->id, sizeof info->id);
    if (!queue->options.is_private) info->prompt = queue_keep(arena, j->request.prompt);
    info->model_path = queue_keep(arena, j->request.model);
    const char *slash = info->model_path ? strrchr(info->model_path, '/') : NULL;
    info->model_name = slash ? slash + 1 : info->model_path;
    info->experiment_name = queue_keep(arena, j->request.experiment);
    info->dtype = queue_keep(arena, j->request.dtype);
    const char **tags = pj_arena_alloc(arena, j->request.tags.count + 1, sizeof *tags);
    for (size_t i = 0; tags && i < j->request.tags.count; i++)
        tags[i] = queue_keep(arena, j->request.tags.items[i]);
    info->tags = tags;
    if (tags) info->tag_count = (uint32_t)j->request.tags.count;
}

bool pj_run_queue_info(pj_run_queue *queue, const char *id, pj_run_info *info, pj_arena *arena)
{
    pthread_mutex_lock(&queue->mutex);
    const job *j = find_job(queue, id);
    bool found = j && j->state != JOB_ENDED;
    if (found) queue_fill_info(queue, j, info, arena);
    pthread_mutex_unlock(&queue->mutex);
    return found;
}

void pj_run_queue_get_totals(pj_run_queue *queue, pj_queue_totals *totals)
{
    pthread_mutex_lock(&queue->mutex);
    *totals = queue->totals;
    totals->waiting = queue->waiting;
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A run requested from another server, which is gone, as is its client. */
static void take_queued(void *context, const char *id, int64_t queued_ns,
                        const pj_generation_request *request)
{
    pj_run_queue *queue = context;
    job *j = job_new(request);
    if (!j) return; /* it stays in the database */
    snprintf(j->id, sizeof j->id, "%s", id);
    j->created_wall_ns = queued_ns;
    j->is_stored = true;
    pthread_mutex_lock(&queue->mutex);
    queue_append(queue, j);
    pthread_cond_broadcast(&queue->moved);
    pthread_mutex_unlock(&queue->mutex);
}

static void cancel_queued(void *context, const char *id)
{
    bool was_waiting;
    cancel_own(context, id, &was_waiting, NULL);
}

static pj_status queue_share(pj_run_queue *queue, pj_error *err)
{
    return pj_queue_rows_sync(queue->rows,
                              &(pj_queue_rows_hooks){take_queued, cancel_queued, queue}, err);
}

/* Other servers on the same database may die, or be asked to cancel this one's runs. */
static void *share_always(void *context)
{
    pj_run_queue *queue = context;
    pthread_mutex_lock(&queue->mutex);
    while (!queue->stop) {
        if (pj_cond_wait_for(&queue->stopping, &queue->mutex, SHARE_NS)) continue;
        bool write_back = queue->has_log && !queue->works;
        if (write_back) queue->has_log = false;
        pthread_mutex_unlock(&queue->mutex);
        queue_share(queue, NULL);
        if (write_back) pj_queue_rows_write_back(queue->rows);
        bool more = pj_experiments_sync(queue->options.experiments);
        pthread_mutex_lock(&queue->mutex);
        if (more) pthread_cond_broadcast(&queue->moved);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void free_jobs(pj_run_queue *queue)
{
    while (queue->jobs) {
        job *j = queue->jobs;
        queue->jobs = j->next;
        job_free(j);
    }
}

pj_status pj_run_queue_open(const pj_run_queue_options *options, pj_run_queue **out, pj_error *err)
{
    *out = NULL;
    pj_run_queue *queue = pj_alloc(1, sizeof *queue);
    if (!queue) return pj_fail_memory(err, "the queue of runs");
    queue->options = *options;
    if (queue->options.limit > PJ_QUEUE_MAX) queue->options.limit = PJ_QUEUE_MAX;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->moved, NULL);
    pj_cond_init(&queue->stopping);
    pj_status status = pj_queue_rows_open(options->session, &queue->rows, err);
    if (status == PJ_OK) status = queue_share(queue, err);
    if (status == PJ_OK)
        status = pj_thread_start(&queue->worker, "pj-queue", queue_work, queue, err);
    if (status == PJ_OK && queue->rows)
        queue->is_shared =
            pj_thread_start(&queue->sharer, "pj-queue-share", share_always, queue, NULL) == PJ_OK;
    if (status == PJ_OK) {
        *out = queue;
        return PJ_OK;
    }
    free_jobs(queue);
    pj_queue_rows_close(queue->rows);
    pj_free(queue);
    return status;
}

void pj_run_queue_stop(pj_run_queue *queue)
{
    pj_experiments_stop(queue->options.experiments);
    pthread_mutex_lock(&queue->mutex);
    bool already = queue->stop;
    queue->stop = true;
    for (job *j = queue->jobs, *next; j; j = next) {
        next = j->next;
        if (j->state == JOB_RUNS) atomic_store(j->cancel, true);
        if (j->state == JOB_WAITS) leave_waiting(queue, j);
    }
    pthread_cond_broadcast(&queue->moved);
    pthread_cond_broadcast(&queue->stopping);
    pthread_mutex_unlock(&queue->mutex);
    if (already) return;
    if (queue->is_shared) pthread_join(queue->sharer, NULL);
    pthread_join(queue->worker, NULL);
}

void pj_run_queue_close(pj_run_queue *queue)
{
    if (!queue) return;
    pj_run_queue_stop(queue);
    free_jobs(queue); /* ended jobs whose clients are gone */
    pj_queue_rows_close(queue->rows);
    pj_model_slot_close(&queue->slot);
    pthread_mutex_destroy(&queue->mutex);
    pthread_cond_destroy(&queue->moved);
    pthread_cond_destroy(&queue->stopping);
    pj_free(queue);
}
