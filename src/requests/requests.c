/* Follows requests from their beginning to their stored run. */
#include "requests/requests.h"

#include "base/clock.h"
#include "base/thread.h"
#include "insight/insight.h"
#include "trace/run_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS          (20 * PJ_NS_PER_MS)
#define PATIENCE_NS      (3 * PJ_NS_PER_S)    /* maximum wait for a silent sensor */
#define OPEN_PATIENCE_NS (120 * PJ_NS_PER_S)  /* for the end of requests of unknown rate */
#define LEAST_STEP_NS    (100 * PJ_NS_PER_MS) /* between recorded shares of an open request */
#define SIMULATED_MW     30000.0 /* simulated load above idle while a request is in flight */
enum { PENDING_MAX_BYTES = 1 << 20 };

struct pj_request {
    pj_requests *owner;
    pj_request *next;
    pj_exchange *exchange;
    pj_ledger_entry *entry;
    void *user;
    char id[PJ_UUID_BYTES];
    int64_t begin_ns, end_ns, wall_ns;
    uint64_t tokens; /* output tokens passed to the ledger */
    bool has_ended, is_done, is_held;
    pj_ledger_figure final; /* set when it has ended */
    /* The spool that survives a kill: written by the metering thread. */
    pj_spool spool;
    bool has_spool, spool_failed;
    pj_buffer pending; /* records to be written to it */
    pj_buffer writing; /* being written, without the lock, while is_writing */
    bool is_writing;
    pj_request *next_writing;
    uint32_t serial, readings;
    int64_t last_token_ns;
    int64_t power_ns; /* end of the recorded share; 0: none */
    pj_request_warning warnings[PJ_REQUEST_WARNINGS];
    uint32_t warning_count;
};

struct pj_requests {
    pj_requests_options options;
    pj_request_origin origin;
    pj_rail rails[PJ_MAX_RAILS];
    double idle_mw[PJ_MAX_RAILS], idle_sd[PJ_MAX_RAILS]; /* 1 sigma relative to it */
    int16_t rail_of[PJ_MAX_RAILS]; /* the meter's index -> the ledger's, -1: not divided */
    pj_ledger *ledger;             /* NULL: no energy */
    bool metering;
    int64_t patience_ns;
    pthread_t metering_thread, storing_thread;
    bool has_metering_thread, has_storing_thread;
    pthread_mutex_t mutex; /* guards what follows, ledger and requests */
    pthread_cond_t changed;
    pj_request *open; /* all requests not yet freed */
    uint32_t waiting; /* number of ended requests not yet stored */
    bool stop_metering, stop_storing;
};

/* ---- rails to divide ------------------------------------------------------------------------ */

static bool is_log(const pj_rail *rails, uint32_t count, uint32_t r)
{
    int of = rails[r].parent;
    return of >= 0 && pj_rail_log_of(rails, count, (uint32_t)of) == (int)r;
}

/* Rails that are sample columns, without duplicate measurements, and the logs of counters, without
 * which a counter that is read every few seconds cannot tell requests apart. */
static void requests_choose_rails(pj_requests *q)
{
    uint32_t count = 0;
    const pj_rail *rails = pj_meter_rails(q->options.session->meter, &count);
    pj_baseline idle;
    bool has_idle = pj_session_idle_assumed(q->options.session, &idle);
    for (uint32_t r = 0; r < PJ_MAX_RAILS; r++) q->rail_of[r] = -1;
    for (uint32_t r = 0; r < count; r++) {
        if (rails[r].rail_class == PJ_RAIL_PLATFORM && !is_log(rails, count, r)) continue;
        uint32_t to = q->origin.rail_count++;
        q->rail_of[r] = (int16_t)to;
        q->rails[to] = rails[r];
        q->idle_mw[to] = has_idle && idle.rail_quiet[r] ? idle.mw[r] : NAN;
        q->idle_sd[to] = has_idle && idle.mw[r] > 0 ? idle.sd_mw[r] / idle.mw[r] : 0;
    }
    for (uint32_t r = 0; r < q->origin.rail_count; r++) {
        int parent = q->rails[r].parent;
        while (parent >= 0 && q->rail_of[parent] < 0) parent = rails[parent].parent;
        q->rails[r].parent = parent < 0 ? -1 : q->rail_of[parent];
    }
    q->origin.rails = q->rails;
}

static pj_status open_ledger(pj_requests *q, pj_error *err)
{
    pj_meter *meter = q->options.session->meter;
    q->origin.quality = PJ_UNAVAILABLE;
    if (!meter || q->options.no_power) return PJ_OK;
    requests_choose_rails(q);
    if (!q->origin.rail_count) return PJ_OK;
    q->ledger = pj_ledger_new(&(pj_ledger_options){.rails = q->rails,
                                                   .rail_count = q->origin.rail_count,
                                                   .idle_mw = q->idle_mw,
                                                   .rule = q->options.rule,
                                                   .weight_bytes = q->options.weight_bytes,
                                                   .context_bytes = q->options.context_bytes,
                                                   .keeps_all = q->options.keeps_all});
    if (!q->ledger) return pj_fail_memory(err, "the shares of requests");
    q->origin.quality = pj_meter_quality(meter);
    q->patience_ns = PATIENCE_NS + pj_meter_settle_ns(meter);
    q->origin.power_sources = pj_meter_sources(meter);
    if (*pj_meter_unread(meter)) q->origin.partial_rails = pj_meter_unread(meter);
    pj_status status = pj_meter_start(meter, err);
    q->metering = status == PJ_OK;
    return status;
}

/* ---- warnings ------------------------------------------------------------------------------- */

static void requests_warn(pj_request *r, int64_t t_ns, const char *code, const char *text)
{
    if (r->warning_count == PJ_REQUEST_WARNINGS) return;
    pj_request_warning *w = &r->warnings[r->warning_count++];
    w->t_ns = t_ns;
    snprintf(w->code, sizeof w->code, "%s", code);
    snprintf(w->text, sizeof w->text, "%s", text);
}

static void requests_warn_about_power(pj_request *r)
{
    const pj_session *s = r->owner->options.session;
    char text[PJ_ERROR_TEXT_BYTES];
    if (r->owner->ledger || (!s->meter && !r->owner->options.no_power)) return;
    snprintf(text, sizeof text, "energy is unavailable: %s Timing is complete",
             r->owner->options.no_power ? r->owner->options.no_power : pj_meter_remedy(s->meter));
    requests_warn(r, r->begin_ns, "power_unavailable", text);
}

/* Meter warnings belong to every open request. */
static void take_events(pj_requests *q)
{
    pj_meter_event event;
    char text[PJ_ERROR_TEXT_BYTES];
    while (pj_meter_next_event(q->options.session->meter, &event)) {
        pj_meter_event_text(q->options.session->meter, &event, text, sizeof text);
        for (pj_request *r = q->open; r; r = r->next)
            if (!r->has_ended) requests_warn(r, event.at_ns, pj_meter_event_code(event.kind), text);
    }
}

/* ---- the spool of an open request ----------------------------------------------------------- */

static void put_pending(pj_request *r, pj_record_type type, const void *payload, uint32_t bytes)
{
    uint32_t head[2] = {(uint32_t)type, bytes};
    if (r->pending.length + bytes + sizeof head > PENDING_MAX_BYTES) return;
    pj_buffer_append(&r->pending, head, sizeof head);
    pj_buffer_append(&r->pending, payload, bytes);
}

static void put_pending_json(pj_request *r, pj_record_type type, pj_json *json)
{
    const char *text = pj_json_whole(json);
    if (text) put_pending(r, type, text, (uint32_t)json->own.length);
    pj_json_close(json);
}

/* Tokens of open requests, at the resolution of chunks: the run is rebuilt when it ends. */
static void keep_tokens(pj_request *r, uint64_t before, int64_t at_ns)
{
    pj_phase phase = before ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL;
    int64_t begin_ns = before ? r->last_token_ns : r->begin_ns;
    if (at_ns <= begin_ns) at_ns = begin_ns + 1;
    pj_span span =
        pj_span_make(r->serial++, PJ_SPAN_TOKEN, (uint32_t)before, phase, begin_ns, at_ns);
    put_pending(r, PJ_RECORD_SPAN, &span, sizeof span);
    r->last_token_ns = at_ns;
}

/* The facts of a request at its begin, recorded by the calling thread. */
static void keep_facts(pj_request *r)
{
    pj_arena arena;
    pj_run_info info;
    pj_json json;
    const pj_ledger *ledger = r->owner->ledger;
    const char *rule = ledger ? pj_batch_rule_name(pj_ledger_rule(ledger)) : NULL;
    pj_arena_init(&arena, 0);
    if (pj_request_info(&r->owner->origin, r->exchange, r->id, r->wall_ns, rule, &arena, &info,
                        NULL) == PJ_OK) {
        pj_json_open(&json, PENDING_MAX_BYTES / 2);
        pj_run_info_write(&json, &info, r->begin_ns);
        put_pending_json(r, PJ_RECORD_INFO, &json);
    }
    pj_arena_fini(&arena);
}

static void keep_reading(pj_request *r, const pj_ledger_series *s, size_t point, uint32_t rail,
                         bool after_gap)
{
    if (isnan(s->mj[point * s->rail_count + rail])) return;
    pj_reading reading = pj_request_reading(s, point, rail, after_gap, r->readings++);
    put_pending(r, PJ_RECORD_READINGS, &reading, sizeof reading);
}

/* Whether the share has gaps after its recorded part. */
static bool has_gap(const pj_request *r, const pj_ledger_series *s, uint32_t rail)
{
    for (size_t i = s->count; i-- > 0 && s->t_ns[i] > r->power_ns;)
        if (isnan(s->mj[i * s->rail_count + rail])) return true;
    return false;
}

static void keep_rail(pj_request *r, uint32_t rail, int64_t until_ns)
{
    const pj_ledger *ledger = r->owner->ledger;
    double idle_mw =
        pj_ledger_idle_mj(ledger, r->entry, rail) / ((double)(until_ns - r->begin_ns) / 1e9);
    pj_json json;
    pj_rail share =
        pj_request_rail(&r->owner->origin, rail, pj_ledger_sd_mj(ledger, r->entry, rail));
    pj_json_open(&json, 1 << 16);
    pj_rail_write(&json, rail, &share, idle_mw, r->owner->idle_sd[rail] * idle_mw);
    put_pending_json(r, PJ_RECORD_RAIL, &json);
}

/* The share of an open request as far as it is final, in steps that grow with its age, because
 * many requests may be open for long; a kill loses an eighth at most. */
static void keep_power(pj_request *r)
{
    pj_ledger_series s = pj_ledger_series_of(r->owner->ledger, r->entry);
    int64_t until_ns = s.count ? s.t_ns[s.count - 1] : 0;
    int64_t known_ns = r->power_ns ? r->power_ns - r->begin_ns : 0;
    int64_t step_ns = known_ns / 8 > LEAST_STEP_NS ? known_ns / 8 : LEAST_STEP_NS;
    if (s.count < 2 || until_ns - r->begin_ns - known_ns < step_ns) return;
    for (uint32_t rail = 0; rail < s.rail_count; rail++) {
        keep_rail(r, rail, until_ns);
        if (!r->power_ns) keep_reading(r, &s, 0, rail, false);
        keep_reading(r, &s, s.count - 1, rail, has_gap(r, &s, rail));
    }
    r->power_ns = until_ns;
}

static void keep_powers(pj_requests *q)
{
    if (!q->options.session->spool_dir) return;
    for (pj_request *r = q->open; r; r = r->next)
        if (r->entry && !r->has_ended) keep_power(r);
}

static pj_status requests_open_spool(pj_request *r)
{
    const pj_session *s = r->owner->options.session;
    pj_status status =
        pj_spool_create(s->spool_dir, r->id, r->begin_ns, r->wall_ns, &r->spool, NULL);
    r->has_spool = status == PJ_OK;
    return status;
}

static void write_spool(pj_request *r)
{
    if (r->spool_failed) return;
    if (!r->has_spool && requests_open_spool(r) != PJ_OK) {
        r->spool_failed = true;
        return;
    }
    for (size_t at = 0; at + 8 <= r->writing.length;) {
        uint32_t head[2];
        memcpy(head, r->writing.data + at, sizeof head);
        pj_spool_append(&r->spool, (pj_record_type)head[0], r->writing.data + at + 8, head[1],
                        NULL);
        at += 8 + head[1];
    }
    pj_spool_flush(&r->spool, NULL);
}

/* The open requests that have records to be written. They are not freed while is_writing. */
static pj_request *take_pending(pj_requests *q)
{
    pj_request *first = NULL;
    if (!q->options.session->spool_dir) return NULL;
    for (pj_request *r = q->open; r; r = r->next) {
        if (r->has_ended || !r->pending.length) continue;
        pj_buffer empty = r->writing;
        r->writing = r->pending;
        r->pending = empty;
        r->is_writing = true;
        r->next_writing = first;
        first = r;
    }
    return first;
}

/* Called with the lock held, which is released while files are written, so that a slow disk does
 * not delay the proxy. */
static void write_spools(pj_requests *q)
{
    pj_request *first = take_pending(q);
    if (!first) return;
    pthread_mutex_unlock(&q->mutex);
    for (pj_request *r = first; r; r = r->next_writing) write_spool(r);
    pthread_mutex_lock(&q->mutex);
    for (pj_request *r = first; r; r = r->next_writing) {
        pj_buffer_clear(&r->writing);
        r->is_writing = false;
    }
}

/* ---- the metering thread -------------------------------------------------------------------- */

static void requests_read_meter(pj_requests *q)
{
    pj_reading readings[256];
    size_t count;
    while ((count = pj_meter_read(q->options.session->meter, readings, 256)) > 0)
        for (size_t i = 0; i < count; i++) {
            if (readings[i].rail >= PJ_MAX_RAILS || q->rail_of[readings[i].rail] < 0) continue;
            readings[i].rail = (uint16_t)q->rail_of[readings[i].rail];
            pj_ledger_read(q->ledger, &readings[i], NULL);
        }
}

/* The time up to which an ended request allows settling: its end, once the sensors have seen it (or
 * are silent for long) and the rates of all others in it are known (or stay unknown for long). */
static int64_t settles_until(const pj_requests *q, const pj_request *r, int64_t known_ns,
                             int64_t work_ns, int64_t now_ns)
{
    if (!r->has_ended || r->is_done) return INT64_MIN;
    if (now_ns > r->end_ns + OPEN_PATIENCE_NS + q->patience_ns) return r->end_ns;
    if (r->end_ns > known_ns && now_ns <= r->end_ns + q->patience_ns) return INT64_MIN;
    return r->end_ns < work_ns ? r->end_ns : work_ns;
}

/* Settles what is final. */
static void requests_settle(pj_requests *q, int64_t now_ns)
{
    int64_t known_ns = pj_ledger_known_ns(q->ledger, NULL);
    int64_t work_ns = pj_ledger_work_ns(q->ledger);
    int64_t until_ns = pj_ledger_certain_ns(q->ledger);
    for (pj_request *r = q->open; r; r = r->next) {
        int64_t ns = settles_until(q, r, known_ns, work_ns, now_ns);
        if (ns > until_ns) until_ns = ns;
    }
    if (until_ns != INT64_MIN) pj_ledger_settle(q->ledger, until_ns, NULL);
    if (!q->open)
        pj_ledger_start(q->ledger,
                        now_ns - q->patience_ns); /* bounds the memory of an idle proxy */
}

/* Simulated sensors show a load while requests are in flight. */
static void requests_show_activity(pj_requests *q)
{
    bool busy = false;
    for (const pj_request *r = q->open; r; r = r->next) busy |= !r->has_ended;
    pj_meter_set_activity(q->options.session->meter, busy ? SIMULATED_MW : 0);
}

static void *meter_requests(void *context)
{
    pj_requests *q = context;
    pthread_mutex_lock(&q->mutex);
    for (int64_t next_ns = pj_clock_ns(); !q->stop_metering; next_ns += TICK_NS) {
        int64_t now_ns = pj_clock_ns();
        if (next_ns < now_ns - TICK_NS) next_ns = now_ns;
        if (q->ledger) {
            requests_show_activity(q);
            requests_read_meter(q);
            take_events(q);
            requests_settle(q, now_ns);
            keep_powers(q);
            pj_ledger_estimate(q->ledger, now_ns);
        }
        write_spools(q);
        if (q->waiting) pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->mutex);
        pj_clock_sleep_until(next_ns + TICK_NS);
        pthread_mutex_lock(&q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* ---- the storing thread --------------------------------------------------------------------- */

static void unlink_request(pj_request *r)
{
    for (pj_request **at = &r->owner->open; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            return;
        }
}

static void free_request(pj_request *r)
{
    unlink_request(r);
    if (r->entry) pj_ledger_drop(r->owner->ledger, r->entry);
    if (r->has_spool) pj_spool_close(&r->spool, false);
    pj_buffer_fini(&r->pending);
    pj_buffer_fini(&r->writing);
    pj_exchange_free(r->exchange);
    pj_free(r);
}

static bool can_be_stored(const pj_request *r)
{
    return !r->is_writing && (!r->entry || !pj_ledger_of(r->owner->ledger, r->entry).provisional);
}

/* The earliest-ended request that can be stored. */
static pj_request *next_ready(pj_requests *q)
{
    pj_request *found = NULL;
    for (pj_request *r = q->open; r; r = r->next)
        if (r->has_ended && !r->is_done && can_be_stored(r) &&
            (!found || r->end_ns < found->end_ns))
            found = r;
    return found;
}

/* Copies a settled request's figures from the ledger. They are final, so that the run is built
 * without the lock. */
static pj_request_parts requests_collect(pj_request *r)
{
    const pj_requests *q = r->owner;
    pj_request_parts parts = {.origin = &q->origin,
                              .exchange = r->exchange,
                              .id = r->id,
                              .wall_ns = r->wall_ns,
                              .warnings = r->warnings,
                              .warning_count = r->warning_count};
    if (!r->entry) return parts;
    parts.allocation = pj_batch_rule_name(pj_ledger_rule(q->ledger));
    parts.series = pj_ledger_series_of(q->ledger, r->entry);
    for (uint32_t i = 0; i < q->origin.rail_count; i++) {
        parts.sd_mj[i] = pj_ledger_sd_mj(q->ledger, r->entry, i);
        parts.idle_mj[i] = pj_ledger_idle_mj(q->ledger, r->entry, i);
        parts.idle_sd_mj[i] = q->idle_sd[i] * parts.idle_mj[i];
    }
    r->final = pj_ledger_of(q->ledger, r->entry);
    parts.total_mj = r->final.total_mj;
    parts.is_shared = r->final.shared;
    return parts;
}

static void store(pj_request *r)
{
    pj_requests *q = r->owner;
    pj_store *store = q->options.session->store;
    pj_run_data data;
    pj_error err = {0};
    pj_request_parts parts = requests_collect(r);
    pthread_mutex_unlock(&q->mutex);
    pj_status status = pj_request_build(&parts, &data, &err);
    bool built = status == PJ_OK;
    if (built && store) {
        status = pj_store_save(store, &data, &err);
        if (status == PJ_OK) pj_insight_prepare(store, r->id);
    }
    if (r->has_spool) pj_spool_close(&r->spool, status == PJ_OK);
    err.status = status;
    if (q->options.done)
        q->options.done(q->options.context, r->user, r->exchange, built ? &data : NULL, &err);
    pj_run_data_fini(&data);
    pthread_mutex_lock(&q->mutex);
    r->has_spool = false;
    r->is_done = true;
    q->waiting--;
    if (!r->is_held) free_request(r);
    pthread_cond_broadcast(&q->changed);
}

static void *store_requests(void *context)
{
    pj_requests *q = context;
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        pj_request *r = next_ready(q);
        if (r)
            store(r);
        else if (q->stop_storing && !q->waiting)
            break;
        else
            pthread_cond_wait(&q->changed, &q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* ---- opening and closing -------------------------------------------------------------------- */

pj_status pj_requests_open(const pj_requests_options *options, pj_requests **out, pj_error *err)
{
    pj_requests *q = pj_alloc(1, sizeof *q);
    *out = NULL;
    if (!q) return pj_fail_memory(err, "the requests of a server");
    q->options = *options;
    q->origin = (pj_request_origin){.session = options->session,
                                    .engine = options->engine,
                                    .url = options->url,
                                    .model_name = options->model_name,
                                    .experiment_name = options->experiment_name,
                                    .cell_id = options->cell_id,
                                    .tags = options->tags,
                                    .concurrency = options->concurrency,
                                    .is_private = options->is_private};
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->changed, NULL);
    pj_recovery_pause(options->session->recovery);
    pj_status status = open_ledger(q, err);
    if (status == PJ_OK) {
        status = pj_thread_start(&q->metering_thread, "pj-requests", meter_requests, q, err);
        q->has_metering_thread = status == PJ_OK;
    }
    if (status == PJ_OK) {
        status = pj_thread_start(&q->storing_thread, "pj-store", store_requests, q, err);
        q->has_storing_thread = status == PJ_OK;
    }
    if (status != PJ_OK) {
        pj_requests_close(q);
        return status;
    }
    *out = q;
    return PJ_OK;
}

static void cancel_open(pj_requests *q)
{
    pthread_mutex_lock(&q->mutex);
    for (pj_request *r = q->open, *next; r; r = next) {
        next = r->next;
        if (r->has_ended) continue;
        pj_exchange_end(r->exchange, PJ_EXCHANGE_CANCELLED, "perjoule was stopped", pj_clock_ns());
        pthread_mutex_unlock(&q->mutex);
        pj_request_end(r, false);
        pthread_mutex_lock(&q->mutex);
        next = q->open; /* the list may have changed meanwhile */
    }
    pthread_mutex_unlock(&q->mutex);
}

static void requests_stop(pj_requests *q, bool *flag, pthread_t thread)
{
    pthread_mutex_lock(&q->mutex);
    *flag = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(thread, NULL);
}

void pj_requests_close(pj_requests *q)
{
    if (!q) return;
    cancel_open(q);
    if (q->has_storing_thread) requests_stop(q, &q->stop_storing, q->storing_thread);
    if (q->has_metering_thread) requests_stop(q, &q->stop_metering, q->metering_thread);
    while (q->open) free_request(q->open);
    if (q->metering) pj_meter_stop(q->options.session->meter);
    pj_recovery_resume(q->options.session->recovery);
    pj_ledger_free(q->ledger);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->mutex);
    pj_free(q);
}

void pj_requests_drain(pj_requests *q)
{
    pthread_mutex_lock(&q->mutex);
    while (q->waiting) pthread_cond_wait(&q->changed, &q->mutex);
    pthread_mutex_unlock(&q->mutex);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Estimates a text's tokens as a quarter of its bytes, until the server reports them. */
static double guess_tokens(size_t bytes)
{
    return (double)bytes / 4 + 1;
}

pj_request *pj_request_begin(pj_requests *q, pj_exchange *exchange, void *user)
{
    pj_request *r = pj_alloc(1, sizeof *r);
    if (!r) return NULL;
    r->owner = q;
    r->exchange = exchange;
    r->user = user;
    r->spool.fd = -1;
    r->begin_ns = exchange->sent_ns;
    r->wall_ns = pj_clock_wall_ns() - (pj_clock_ns() - r->begin_ns);
    r->final = (pj_ledger_figure){NAN, NAN, NAN, NAN, NAN, r->begin_ns, 0, false, false};
    pj_uuid7(r->id);
    pj_buffer_init(&r->pending, PENDING_MAX_BYTES);
    pj_buffer_init(&r->writing, PENDING_MAX_BYTES);
    requests_warn_about_power(r);
    if (q->options.session->spool_dir) keep_facts(r);
    pthread_mutex_lock(&q->mutex);
    if (q->ledger)
        r->entry =
            pj_ledger_enter(q->ledger, r->begin_ns, guess_tokens(exchange->asked.prompt_bytes));
    bool ok = !q->ledger || r->entry;
    if (ok) {
        r->next = q->open;
        q->open = r;
    }
    pthread_mutex_unlock(&q->mutex);
    if (ok) return r;
    pj_free(r);
    return NULL;
}

static void report_prompt(pj_request *r)
{
    pj_exchange_counts c = pj_exchange_count(r->exchange);
    pj_request_times t = pj_request_times_of(r->exchange);
    if (t.has_prefill) pj_ledger_waited(r->entry, t.prefill_ns);
    if (c.input >= 0)
        pj_ledger_prompt(r->entry, (double)(c.input - (c.cached > 0 ? c.cached : 0)),
                         (double)c.cached);
}

/* Passes the exchange's new figures to the ledger; called with the lock held. */
static void requests_advance(pj_request *r)
{
    uint64_t tokens = pj_exchange_tokens_so_far(r->exchange);
    int64_t at_ns = r->exchange->last_ns;
    if (tokens <= r->tokens) return;
    if (r->entry && !r->tokens) report_prompt(r);
    if (r->entry) pj_ledger_tokens(r->entry, at_ns, (double)(tokens - r->tokens));
    if (!r->has_ended) keep_tokens(r, r->tokens, at_ns);
    r->tokens = tokens;
}

void pj_request_progress(pj_request *r)
{
    if (pj_exchange_tokens_so_far(r->exchange) <= r->tokens) return;
    pthread_mutex_lock(&r->owner->mutex);
    requests_advance(r);
    pthread_mutex_unlock(&r->owner->mutex);
}

/* For an unstreamed response: its phases by the server's timings, if any, and all tokens. Estimates
 * so far took all of it for its prompt. */
static void advance_at_end(pj_request *r)
{
    pj_request_times t = pj_request_times_of(r->exchange);
    pj_exchange_counts c = pj_exchange_count(r->exchange);
    if (!r->entry || r->tokens || (!c.output && !t.is_one)) return;
    report_prompt(r);
    r->tokens = c.output ? c.output : pj_exchange_tokens_so_far(r->exchange);
    if (t.is_one) {
        pj_ledger_whole(r->entry,
                        c.output ? (double)c.output : guess_tokens(r->exchange->text.length));
    } else {
        pj_ledger_tokens(r->entry, t.first_ns, 1);
        if (c.output > 1) pj_ledger_tokens(r->entry, t.last_ns, (double)(c.output - 1));
    }
}

void pj_request_end(pj_request *r, bool holds)
{
    pj_requests *q = r->owner;
    pthread_mutex_lock(&q->mutex);
    r->has_ended = true;
    r->is_held = holds;
    r->end_ns = pj_request_times_of(r->exchange).end_ns;
    bool at_once = r->exchange->first_ns == r->exchange->last_ns;
    if (at_once) advance_at_end(r);
    requests_advance(r);
    if (r->entry) pj_ledger_leave(r->entry, r->end_ns);
    if (r->entry && at_once) pj_ledger_estimate(q->ledger, pj_clock_ns());
    q->waiting++;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

void pj_request_release(pj_request *r)
{
    pj_requests *q = r->owner;
    pthread_mutex_lock(&q->mutex);
    r->is_held = false;
    if (r->is_done) free_request(r);
    pthread_mutex_unlock(&q->mutex);
}

const char *pj_request_id(const pj_request *r)
{
    return r->id;
}

pj_ledger_figure pj_request_energy(pj_request *r, int64_t now_ns)
{
    pj_requests *q = r->owner;
    pj_ledger_figure f = r->final;
    pthread_mutex_lock(&q->mutex);
    if (r->is_done) {
        f = r->final;
    } else if (r->entry) {
        f = pj_ledger_now(q->ledger, r->entry,
                          r->has_ended && r->end_ns < now_ns ? r->end_ns : now_ns);
    }
    pthread_mutex_unlock(&q->mutex);
    /* as the run will have it: nothing is split that was not seen */
    pj_request_times t = pj_request_times_of(r->exchange);
    if (t.is_one) f.input_mj = NAN;
    if (t.is_one || t.last_ns == t.first_ns) f.output_mj = NAN;
    return f;
}

pj_source_quality pj_requests_quality(const pj_requests *q)
{
    return q->origin.quality;
}

void pj_requests_machine(pj_requests *q, int64_t begin_ns, int64_t end_ns, pj_curve_energy *energy)
{
    *energy = (pj_curve_energy){NAN, NAN, NAN, NAN, NAN, 0};
    if (!q->ledger) return;
    pthread_mutex_lock(&q->mutex);
    pj_ledger_machine(q->ledger, begin_ns, end_ns, energy);
    pthread_mutex_unlock(&q->mutex);
}

double pj_requests_divided_mj(pj_requests *q, int64_t *unknown_ns)
{
    *unknown_ns = 0;
    if (!q->ledger) return NAN;
    pthread_mutex_lock(&q->mutex);
    double mj = pj_ledger_divided_mj(q->ledger, unknown_ns);
    pthread_mutex_unlock(&q->mutex);
    return mj;
}
