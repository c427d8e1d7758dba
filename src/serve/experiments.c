#include "serve/experiments.h"

#include "experiment/experiment_claim.h"
#include "experiment/experiment_plan.h"
#include "serve/machine.h"
#include "store/experiments.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    pj_experiments *owner;
    pj_arena arena; /* of the plan's texts */
    pj_plan plan;
    _Atomic bool cancel;
    pj_experiment_live live;           /* state "queued" or "running" */
    pj_experiment *opened;             /* worker only; NULL: not begun by this process */
    const pj_experiments_hooks *hooks; /* worker only, during a step */
} entry;

struct pj_experiments {
    pj_experiments_options options;
    pthread_mutex_t mutex; /* guards all below */
    pj_store *store;       /* NULL: the session stores nothing */
    entry *first;          /* the oldest: the one that runs */
    uint32_t count;
    entry *taken, **taken_end; /* rows that are being read */
    bool stop;
};

/* ---- entries -------------------------------------------------------------------------------- */

static void entry_free(entry *e)
{
    if (!e) return;
    pj_experiment_close(e->opened);
    pj_arena_fini(&e->arena);
    pj_free(e);
}

static entry *find(const pj_experiments *x, const char *name)
{
    for (entry *e = x->first; e; e = e->next)
        if (strcmp(e->plan.name, name) == 0) return e;
    return NULL;
}

static entry *entry_new(pj_experiments *x)
{
    entry *e = pj_alloc(1, sizeof *e);
    if (!e) return NULL;
    e->owner = x;
    e->live.state = "queued";
    pj_arena_init(&e->arena, 64 << 20);
    return e;
}

static void experiments_append(pj_experiments *x, entry *e)
{
    entry **at = &x->first;
    while (*at) at = &(*at)->next;
    *at = e;
    x->count++;
}

static void unlink_entry(pj_experiments *x, const entry *gone)
{
    for (entry **at = &x->first; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            x->count--;
            return;
        }
}

static void experiments_notify(const entry *e, const char *state, const char *error)
{
    const pj_experiment_progress *p = &e->live.progress;
    bool running = strcmp(state, "running") == 0;
    pj_live_experiment message = {.name = e->plan.name,
                                  .state = state,
                                  .error = error,
                                  .run_id = e->live.run_id[0] ? e->live.run_id : NULL,
                                  .cell_name = p->name,
                                  .done = p->done,
                                  .total = p->total,
                                  .block = p->block,
                                  .cell = p->cell,
                                  .joules_per_token = running ? p->joules_per_token : NAN,
                                  .left_s = p->left_s};
    if (e->owner->options.live) pj_live_json_experiment(e->owner->options.live, &message);
}

/* With the mutex held: takes it off the list and notes in the database what became of it. */
static void experiments_end_entry(pj_experiments *x, entry *e, const char *state, const char *error)
{
    unlink_entry(x, e);
    pj_store_experiment_set_state(x->store, e->plan.name, state, error, NULL);
    pj_experiment_release(x->options.session, x->store, e->plan.name);
    experiments_notify(e, state, error);
    entry_free(e);
}

/* ---- requests ------------------------------------------------------------------------------- */

static pj_status experiments_find_model(void *context, const char *name, const char *dtype,
                                        char *path, size_t bytes, pj_error *err)
{
    const entry *e = context;
    return pj_serve_find_model(e->owner->options.models, name, dtype, path, bytes, err);
}

/* Names are used in URLs, so they are restricted. */
static pj_status check_name(const char *name, pj_error *err)
{
    size_t length = strlen(name);
    bool fits = length > 0 && length < sizeof((pj_experiment_ticket *)0)->name;
    for (size_t i = 0; i < length; i++)
        fits = fits && name[i] > ' ' && name[i] < 127 && name[i] != '/';
    return fits ? PJ_OK
                : pj_fail(err, PJ_E_INVALID,
                          "name must be 1 to 63 printable ASCII characters without spaces or /");
}

/* A database that several machines share holds the experiments of all of them. */
static const char *machine_of(const pj_experiments *x)
{
    return x->options.session->machine.name;
}

/* With the mutex held. */
static pj_status enqueue(pj_experiments *x, entry *e, pj_experiment_ticket *ticket, pj_error *err)
{
    if (x->stop) return pj_fail(err, PJ_E_UNAVAILABLE, "the server is shutting down");
    if (find(x, e->plan.name))
        return pj_fail(err, PJ_E_STATE, "the experiment %s is already queued or running",
                       e->plan.name);
    if (x->count >= x->options.limit)
        return pj_fail(err, PJ_E_FULL, "%u experiments are already queued", x->count);
    pj_status status = pj_experiment_claim(x->options.session, x->store, e->plan.name, err);
    if (status == PJ_OK) status = pj_experiment_store(x->store, &e->plan, err);
    /* a plan that was not stored yet has no owner */
    if (status == PJ_OK)
        status = pj_experiment_claim(x->options.session, x->store, e->plan.name, err);
    if (status == PJ_OK)
        status = pj_store_experiment_queue(x->store, e->plan.name, machine_of(x), err);
    if (status != PJ_OK) return status;
    experiments_append(x, e);
    e->live.progress.total = pj_plan_cells(&e->plan) * e->plan.repeat;
    e->live.progress.joules_per_token = e->live.progress.left_s = NAN;
    *ticket =
        (pj_experiment_ticket){.cells = pj_plan_cells(&e->plan), .total = e->live.progress.total};
    snprintf(ticket->name, sizeof ticket->name, "%s", e->plan.name);
    experiments_notify(e, "queued", NULL);
    return PJ_OK;
}

static pj_status queue_plan(pj_experiments *x, const pj_plan_request *asked,
                            pj_experiment_ticket *ticket, pj_error *err)
{
    const pj_session *session = x->options.session;
    pj_plan_request request = *asked;
    if (!x->store) return pj_fail(err, PJ_E_UNAVAILABLE, "this server does not store runs");
    request.power = session->power_requested;
    request.interval_ms = (double)session->power_env.interval_ns * 1e-6;
    request.measures_itself = true;
    entry *e = entry_new(x);
    if (!e) return pj_fail_memory(err, "an experiment");
    pthread_mutex_lock(&x->mutex);
    pj_status status = pj_plan_join_stored(x->store, &request, &e->arena, &e->plan, err);
    pthread_mutex_unlock(&x->mutex);
    if (status == PJ_OK) status = check_name(e->plan.name, err);
    if (status == PJ_OK)
        status = pj_experiment_check(&(pj_experiment_options){.plan = &e->plan,
                                                              .find = experiments_find_model,
                                                              .context = e},
                                     err);
    pthread_mutex_lock(&x->mutex);
    if (status == PJ_OK) status = enqueue(x, e, ticket, err);
    pthread_mutex_unlock(&x->mutex);
    if (status != PJ_OK) entry_free(e);
    return status;
}

pj_status pj_experiments_add(pj_experiments *x, const char *plan_json, bool *syntax,
                             pj_experiment_ticket *ticket, pj_error *err)
{
    json_t *tree = json_loads(plan_json, JSON_REJECT_DUPLICATES, NULL);
    *syntax = !tree;
    if (!tree) return pj_fail(err, PJ_E_INVALID, "the body is not a JSON plan");
    bool has_text = json_object_get(tree, "eval") != NULL;
    bool has_tasks = json_object_get(tree, "tasks") != NULL;
    bool has_round = json_object_get(tree, "round") != NULL;
    json_decref(tree);
    if (has_text || has_tasks)
        return pj_fail(err, PJ_E_INVALID,
                       "%s names a file, which is not allowed in a request; send the text as %s",
                       has_text ? "eval" : "tasks", has_text ? "eval_text" : "tasks_text");
    if (has_round) return pj_fail(err, PJ_E_INVALID, "round cannot be set; use resume?again=true");
    return queue_plan(x, &(pj_plan_request){.json = plan_json}, ticket, err);
}

pj_status pj_experiments_resume(pj_experiments *x, const char *name, bool again,
                                pj_experiment_ticket *ticket, pj_error *err)
{
    json_t *tree = json_pack("{s:s}", "name", name);
    char *text = tree ? json_dumps(tree, JSON_COMPACT) : NULL;
    json_decref(tree);
    if (!text) return pj_fail_memory(err, "an experiment");
    pj_plan_request request = {.json = text, .only_resumes = true, .again = again};
    pj_status status = queue_plan(x, &request, ticket, err);
    free(text);
    return status;
}

/* With the mutex held. *was_waiting: it had not begun. */
static void cancel_entry(pj_experiments *x, entry *e, bool *was_waiting)
{
    *was_waiting = strcmp(e->live.state, "queued") == 0;
    if (*was_waiting)
        experiments_end_entry(x, e, "cancelled", NULL);
    else
        atomic_store(&e->cancel, true);
}

/* With the mutex held: one of another server, which sees that it is no longer queued. */
static pj_status cancel_other(pj_experiments *x, const char *name, pj_error *err)
{
    char owner[PJ_UUID_BYTES] = "";
    if (x->store) pj_store_experiment_owner(x->store, name, owner, NULL);
    if (!pj_session_knows_owner(x->options.session, owner))
        return pj_fail(err, PJ_E_STATE, "the experiment %.200s is neither queued nor running",
                       name);
    return pj_store_experiment_set_state(x->store, name, "cancelled", NULL, err);
}

pj_status pj_experiments_cancel(pj_experiments *x, const char *name, bool *was_waiting,
                                pj_error *err)
{
    pj_status status = PJ_OK;
    pthread_mutex_lock(&x->mutex);
    entry *e = find(x, name);
    *was_waiting = false;
    if (e)
        cancel_entry(x, e, was_waiting);
    else
        status = cancel_other(x, name, err);
    pthread_mutex_unlock(&x->mutex);
    return status;
}

void pj_experiments_live(void *context, const char *name, pj_experiment_live *live)
{
    pj_experiments *x = context;
    pthread_mutex_lock(&x->mutex);
    const entry *e = find(x, name);
    *live = e ? e->live : (pj_experiment_live){0};
    pthread_mutex_unlock(&x->mutex);
}

/* ---- the worker ----------------------------------------------------------------------------- */

static void on_progress(void *context, const pj_experiment_progress *progress)
{
    entry *e = context;
    pthread_mutex_lock(&e->owner->mutex);
    e->live.progress = *progress;
    experiments_notify(e, "running", NULL);
    pthread_mutex_unlock(&e->owner->mutex);
}

static void experiments_on_begin(void *context, pj_profile_options *run)
{
    entry *e = context;
    e->hooks->begin(e->hooks->context, run, &e->cancel);
    pthread_mutex_lock(&e->owner->mutex);
    snprintf(e->live.run_id, sizeof e->live.run_id, "%s", run->run_id ? run->run_id : "");
    experiments_notify(e, "running", NULL);
    pthread_mutex_unlock(&e->owner->mutex);
}

static void experiments_on_end(void *context, pj_status status, const pj_profile_result *result,
                               const pj_error *err)
{
    entry *e = context;
    e->hooks->end(e->hooks->context, status, result, err);
    pthread_mutex_lock(&e->owner->mutex);
    e->live.run_id[0] = 0;
    pthread_mutex_unlock(&e->owner->mutex);
}

static pj_status open_entry(entry *e, pj_error *err)
{
    pj_experiments *x = e->owner;
    pj_experiment_options options = {.session = x->options.session,
                                     .slot = e->hooks->slot,
                                     .plan = &e->plan,
                                     .threads = x->options.threads,
                                     .is_private = x->options.is_private,
                                     .cancel = &e->cancel,
                                     .find = experiments_find_model,
                                     .begin = experiments_on_begin,
                                     .end = experiments_on_end,
                                     .progress = on_progress,
                                     .context = e};
    return pj_experiment_open(&options, &e->opened, err);
}

/* Takes the oldest one and marks it as running; NULL: none. */
static entry *experiments_take_first(pj_experiments *x)
{
    pthread_mutex_lock(&x->mutex);
    entry *e = x->stop ? NULL : x->first;
    if (e) e->live.state = "running";
    pthread_mutex_unlock(&x->mutex);
    return e;
}

/* When the server stops it stays queued. */
static void experiments_settle(pj_experiments *x, entry *e, pj_status status, const pj_error *err,
                               bool more)
{
    pthread_mutex_lock(&x->mutex);
    if (status == PJ_E_CANCELLED && !x->stop)
        experiments_end_entry(x, e, "cancelled", NULL);
    else if (status != PJ_OK && status != PJ_E_CANCELLED)
        experiments_end_entry(x, e, "failed", err->text);
    else if (status == PJ_OK && !more)
        experiments_end_entry(x, e, "completed", NULL);
    pthread_mutex_unlock(&x->mutex);
}

void pj_experiments_step(pj_experiments *x, const pj_experiments_hooks *hooks)
{
    pj_error err = {0};
    bool more = true;
    entry *e = experiments_take_first(x);
    if (!e) return;
    e->hooks = hooks;
    pj_status status = e->opened ? PJ_OK : open_entry(e, &err);
    if (status == PJ_OK && hooks->slot_was_used) pj_experiment_forget_warmth(e->opened);
    if (status == PJ_OK) status = pj_experiment_step(e->opened, &more, &err);
    experiments_settle(x, e, status, &err, more);
}

bool pj_experiments_wait(pj_experiments *x)
{
    pthread_mutex_lock(&x->mutex);
    bool waits = x->first && !x->stop;
    pthread_mutex_unlock(&x->mutex);
    return waits;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Whether it is queued in the database, where another server may have cancelled it. */
static bool is_queued(pj_experiments *x, const entry *e)
{
    pj_arena arena;
    const char *state = NULL, *error;
    pj_arena_init(&arena, 0);
    pj_status status =
        pj_store_experiment_get_state(x->store, e->plan.name, &arena, &state, &error, NULL);
    bool queued = status != PJ_OK || (state && strcmp(state, "queued") == 0);
    pj_arena_fini(&arena);
    return queued;
}

/* A queued one that belongs to no living process. An invalid plan, or one whose model no longer
 * exists, fails when it is started. */
static void experiments_take_row(void *context, const pj_experiment_row *row)
{
    pj_experiments *x = context;
    if (find(x, row->name) ||
        pj_session_knows_owner(x->options.session, row->owner ? row->owner : ""))
        return;
    entry *e = entry_new(x);
    if (!e) return;
    const char *name = pj_arena_strndup(&e->arena, row->name, strlen(row->name));
    if (!name || pj_plan_parse(row->plan, &e->arena, &e->plan, NULL) != PJ_OK) {
        entry_free(e);
        return;
    }
    e->plan.name = name;
    e->live.progress.total = pj_plan_cells(&e->plan) * e->plan.repeat;
    *x->taken_end = e;
    x->taken_end = &e->next;
}

/* With the mutex held: reads the rows to their end, then makes them this server's. */
static pj_status take_queued_rows(pj_experiments *x, pj_error *err)
{
    entry *next;
    x->taken = NULL;
    x->taken_end = &x->taken;
    pj_status status =
        pj_store_experiment_list_queued(x->store, machine_of(x), experiments_take_row, x, err);
    for (entry *e = x->taken; e; e = next) {
        next = e->next;
        e->next = NULL;
        if (pj_experiment_claim(x->options.session, x->store, e->plan.name, NULL) == PJ_OK)
            experiments_append(x, e);
        else
            entry_free(e);
    }
    return status;
}

bool pj_experiments_sync(pj_experiments *x)
{
    if (!x || !x->store) return false;
    pthread_mutex_lock(&x->mutex);
    uint32_t before = x->count;
    for (entry *e = x->first, *next; e && !x->stop; e = next) {
        bool was_waiting;
        next = e->next;
        if (!is_queued(x, e)) cancel_entry(x, e, &was_waiting);
    }
    if (!x->stop) take_queued_rows(x, NULL);
    bool more = x->count > before;
    pthread_mutex_unlock(&x->mutex);
    return more;
}

pj_status pj_experiments_open(const pj_experiments_options *options, pj_experiments **out,
                              pj_error *err)
{
    *out = NULL;
    pj_experiments *x = pj_alloc(1, sizeof *x);
    if (!x) return pj_fail_memory(err, "the experiments");
    x->options = *options;
    pthread_mutex_init(&x->mutex, NULL);
    pj_status status = PJ_OK;
    if (options->session->store) {
        pj_store_options store = {.path = pj_store_path(options->session->store)};
        status = pj_store_open(&store, &x->store, err);
        if (status == PJ_OK) status = take_queued_rows(x, err);
    }
    if (status == PJ_OK)
        *out = x;
    else
        pj_experiments_close(x);
    return status;
}

void pj_experiments_stop(pj_experiments *x)
{
    if (!x) return;
    pthread_mutex_lock(&x->mutex);
    x->stop = true;
    for (entry *e = x->first; e; e = e->next) atomic_store(&e->cancel, true);
    pthread_mutex_unlock(&x->mutex);
}

void pj_experiments_close(pj_experiments *x)
{
    if (!x) return;
    while (x->first) {
        entry *e = x->first;
        x->first = e->next;
        entry_free(e);
    }
    pj_store_close(x->store);
    pthread_mutex_destroy(&x->mutex);
    pj_free(x);
}
