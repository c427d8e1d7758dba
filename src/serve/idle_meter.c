/* A thread runs the meter at one reading per second and drains its rings. The mutex is held
 * whenever the meter is used; pause stops the meter (within 50 ms) and empties its rings, so that a
 * run starts with a clean meter. */
#include "serve/idle_meter.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

static const int64_t PACE_NS = PJ_NS_PER_S;
static const long LOOK_NS = 250 * 1000 * 1000L; /* how often the rings are drained */

struct pj_idle_meter {
    pj_meter *meter;
    pj_power_log *log;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, sampling, paused, stop;
};

static void subscriber(void *context, const pj_reading *readings, size_t count)
{
    pj_power_log_take(context, readings, count);
}

/* The subscriber has already logged the readings; events of idle sensors concern no run. */
static void idle_meter_drain(pj_idle_meter *idle)
{
    pj_reading readings[64];
    pj_meter_event event;
    while (pj_meter_read(idle->meter, readings, 64) > 0) continue;
    while (pj_meter_next_event(idle->meter, &event)) continue;
}

static void stop_sampling(pj_idle_meter *idle)
{
    if (!idle->sampling) return;
    pj_meter_stop(idle->meter);
    idle_meter_drain(idle);
    pj_meter_set_pace(idle->meter, 0);
    idle->sampling = false;
}

static void sample(pj_idle_meter *idle)
{
    if (!idle->sampling) {
        pj_meter_set_pace(idle->meter, PACE_NS);
        pj_meter_set_activity(idle->meter, 0);
        idle->sampling = pj_meter_start(idle->meter, NULL) == PJ_OK;
    }
    if (idle->sampling) idle_meter_drain(idle);
}

static void *idle_main(void *context)
{
    pj_idle_meter *idle = context;
    pthread_mutex_lock(&idle->mutex);
    while (!idle->stop) {
        if (idle->paused) {
            pthread_cond_wait(&idle->changed, &idle->mutex);
            continue;
        }
        sample(idle);
        pj_cond_wait_for(&idle->changed, &idle->mutex, LOOK_NS);
    }
    stop_sampling(idle);
    pthread_mutex_unlock(&idle->mutex);
    return NULL;
}

pj_status pj_idle_meter_open(pj_meter *meter, pj_idle_meter **out, pj_error *err)
{
    uint32_t count;
    const pj_rail *rails = pj_meter_rails(meter, &count);
    pj_idle_meter *idle = pj_alloc(1, sizeof *idle);
    *out = idle;
    if (!idle) return pj_fail_memory(err, "the meter between runs");
    idle->meter = meter;
    pthread_mutex_init(&idle->mutex, NULL);
    pj_cond_init(&idle->changed);
    idle->log = pj_power_log_new(rails, count);
    if (!idle->log) return pj_fail_memory(err, "the log of power");
    pj_meter_subscribe(meter, subscriber, idle->log);
    if (!count) return PJ_OK;
    pj_status status = pj_thread_start(&idle->thread, "pj-idle-power", idle_main, idle, err);
    idle->started = status == PJ_OK;
    return status;
}

void pj_idle_meter_close(pj_idle_meter *idle)
{
    if (!idle) return;
    pthread_mutex_lock(&idle->mutex);
    idle->stop = true;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->mutex);
    if (idle->started) pthread_join(idle->thread, NULL);
    pj_meter_subscribe(idle->meter, NULL, NULL);
    pthread_mutex_destroy(&idle->mutex);
    pthread_cond_destroy(&idle->changed);
    pj_power_log_free(idle->log);
    pj_free(idle);
}

void pj_idle_meter_pause(pj_idle_meter *idle)
{
    if (!idle) return;
    pthread_mutex_lock(&idle->mutex);
    idle->paused = true;
    stop_sampling(idle);
    pthread_mutex_unlock(&idle->mutex);
}

void pj_idle_meter_resume(pj_idle_meter *idle)
{
    if (!idle) return;
    pthread_mutex_lock(&idle->mutex);
    idle->paused = false;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->mutex);
}

pj_power_log *pj_idle_meter_log(const pj_idle_meter *idle)
{
    return idle ? idle->log : NULL;
}
