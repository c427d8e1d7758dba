#include "serve/beats.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "store/machines.h"

#include <math.h>
#include <string.h>

/* A local file is updated less often than a server. */
enum { SERVER_PERIOD_S = 15, FILE_PERIOD_S = 60 };

struct pj_beats {
    pj_beats_options options;
    pj_store *store;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_stopping, succeeded;
    double reported_mj; /* of the machine, as of the last beat */
};

/* "power,thermal" of all devices; "" when none is throttled; NULL when none reports it. */
static const char *read_throttle(pj_session *session, char *text, size_t bytes)
{
    pj_condition rows[PJ_CONDITION_DEVICES];
    uint32_t known = 0, throttle = 0;
    if (!session->conditions) return NULL;
    pthread_mutex_lock(&session->conditions_mutex);
    uint32_t count = pj_conditions_read(session->conditions, rows);
    pthread_mutex_unlock(&session->conditions_mutex);
    for (uint32_t i = 0; i < count; i++) {
        known |= rows[i].throttle_known;
        throttle |= rows[i].throttle & rows[i].throttle_known;
    }
    pj_throttle_names(throttle, text, bytes);
    return known ? text : NULL;
}

static bool beats_report(pj_beats *b)
{
    double now_mj, now_mw;
    char throttle[64];
    pj_session *session = b->options.session;
    pj_store_options options = {
        .path = b->options.database, .may_be_away = true, .is_direct = true};
    if (!b->store && pj_store_open(&options, &b->store, NULL) != PJ_OK) return false;
    const pj_meter *meter = session->meter;
    pj_power_log_machine(b->options.log, pj_clock_ns(), &now_mj, &now_mw);
    double drawn_mj = now_mj - b->reported_mj;
    pj_machine_beat beat = {.name = session->machine.name,
                            .version = pj_version(),
                            .sensors = meter ? pj_meter_sources(meter) : "",
                            .quality = meter ? pj_meter_quality(meter) : PJ_UNAVAILABLE,
                            .drawn_mj = drawn_mj > 0 ? drawn_mj : NAN,
                            .throttle = read_throttle(session, throttle, sizeof throttle)};
    if (pj_store_machine_beat(b->store, &beat, NULL) != PJ_OK) return false;
    if (!isnan(now_mj)) b->reported_mj = now_mj;
    return true;
}

static void *beat_always(void *context)
{
    pj_beats *b = context;
    int64_t period_s = pj_store_is_server(b->options.database ? b->options.database : "")
                           ? SERVER_PERIOD_S
                           : FILE_PERIOD_S;
    pthread_mutex_lock(&b->mutex);
    while (!b->is_stopping) {
        pthread_mutex_unlock(&b->mutex);
        b->succeeded = beats_report(b);
        pthread_mutex_lock(&b->mutex);
        if (!b->is_stopping) pj_cond_wait_for(&b->changed, &b->mutex, period_s * PJ_NS_PER_S);
    }
    pthread_mutex_unlock(&b->mutex);
    if (b->succeeded) beats_report(b);
    pj_store_close(b->store);
    return NULL;
}

pj_status pj_beats_open(const pj_beats_options *options, pj_beats **beats, pj_error *err)
{
    pj_beats *b = pj_alloc(1, sizeof *b);
    if (!b) return pj_fail_memory(err, "the beats of this machine");
    b->options = *options;
    pthread_mutex_init(&b->mutex, NULL);
    pj_cond_init(&b->changed);
    pj_status status = pj_thread_start(&b->thread, "pj-beats", beat_always, b, err);
    if (status == PJ_OK)
        *beats = b;
    else
        pj_free(b);
    return status;
}

void pj_beats_close(pj_beats *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->mutex);
    b->is_stopping = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->mutex);
    pthread_cond_destroy(&b->changed);
    pj_free(b);
}
