/* The collector's loop. */
#include "record/collector.h"

#include "base/clock.h"
#include "base/thread.h"

enum { ROUND_NS = 16 * 1000 * 1000 };

static void collector_unlock(pj_collector *c, pj_status status, const pj_error *err)
{
    pthread_mutex_unlock(c->spool_mutex);
    if (status != PJ_OK) c->on_spool_error(c->context, err);
}

static void collector_append(pj_collector *c, pj_record_type type, const void *data, size_t bytes)
{
    pj_error err = {0};
    pthread_mutex_lock(c->spool_mutex);
    collector_unlock(c, pj_spool_append(c->spool, type, data, bytes, &err), &err);
}

static void collector_take_record(void *context, const pj_record *record)
{
    pj_collector *c = context;
    pj_error err = {0};
    pthread_mutex_lock(c->spool_mutex);
    collector_unlock(c, pj_spool_append_record(c->spool, record, &err), &err);
    if (c->feed) pj_live_feed_record(c->feed, record);
}

static void collector_take_readings(pj_collector *c)
{
    size_t count;
    pj_reading_hub_pull(c->hub);
    while ((count = pj_ring_read(&c->subscriber->readings, c->readings,
                                 sizeof c->readings / sizeof *c->readings)) > 0) {
        collector_append(c, PJ_RECORD_READINGS, c->readings, count * sizeof *c->readings);
        if (c->feed) pj_live_feed_readings(c->feed, c->readings, count);
    }
    pj_meter_event event;
    while (pj_ring_read(&c->subscriber->events, &event, 1)) c->on_event(c->context, &event);
}

static void collector_take_shares(pj_collector *c)
{
    pj_buffer payload;
    pj_buffer_init(&payload, 1 << 16);
    while (pj_reading_hub_next_share(c->hub, c->subscriber, &payload))
        collector_append(c, PJ_RECORD_SHARE, payload.data, payload.length);
    pj_buffer_fini(&payload);
}

void pj_collector_round(pj_collector *c)
{
    if (c->hub) {
        collector_take_readings(c); /* first, so that live tokens have their power */
        collector_take_shares(c);
    }
    pj_recorder_drain(c->recorder, collector_take_record, c);
    pj_error err = {0};
    pthread_mutex_lock(c->spool_mutex);
    collector_unlock(c, pj_spool_flush(c->spool, &err), &err);
    if (c->feed) pj_live_feed_flush(c->feed);
}

static void collector_report_context(pj_collector *c)
{
    if (!c->feed) return;
    pj_context context = pj_recorder_context(c->recorder);
    pj_live_feed_context(c->feed, &context, pj_clock_ns());
    if (c->load) pj_live_feed_load(c->feed, c->load, pj_clock_ns());
}

static void *collector_collect(void *context)
{
    pj_collector *c = context;
    int64_t due = pj_clock_ns();
    while (!atomic_load_explicit(&c->stop, memory_order_acquire)) {
        pj_collector_round(c);
        collector_report_context(c);
        if (pj_recorder_is_busy(c->recorder)) continue;
        due += ROUND_NS;
        int64_t now = pj_clock_ns();
        if (due < now) due = now + ROUND_NS / 4; /* after an overrun, catch up gradually */
        pj_clock_sleep_until(due);
    }
    pj_collector_round(c);
    c->cpu_ns = pj_clock_thread_cpu_ns();
    return NULL;
}

pj_status pj_collector_start(pj_collector *c, pj_error *err)
{
    atomic_store(&c->stop, false);
    pj_status status = pj_thread_start(&c->thread, "pj-collector", collector_collect, c, err);
    c->running = status == PJ_OK;
    return status;
}

void pj_collector_stop(pj_collector *c)
{
    if (!c->running) return;
    atomic_store_explicit(&c->stop, true, memory_order_release);
    pthread_join(c->thread, NULL);
    c->running = false;
}
