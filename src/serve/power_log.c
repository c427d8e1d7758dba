/*
 * Time is divided into seconds of the monotonic clock. Each second accumulates the energy of
 * intervals between readings and the time they cover; its power is the quotient. Intervals across a
 * boundary are split by time.
 *
 * The first counter value after sampling restarts (PJ_READING_RESET) continues from the previous
 * one if possible: the sensor keeps counting between a run and the idle server. A lower value means
 * that the counter was reset, and the time between is a gap.
 */
#include "serve/power_log.h"

#include "base/clock.h"
#include "base/memory.h"
#include "power/curve.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* Readings further apart than this and than three update periods have a gap between them. */
static const int64_t GAP_NS = 5 * PJ_NS_PER_S;
static const double PLAUSIBLE = 1.5; /* times the rail's maximum power */
enum { NOW_SECONDS = 3 };

typedef struct second {
    int64_t number; /* second of the monotonic clock */
    double energy_mj;
    int64_t covered_ns;
} second;

typedef struct rail_log {
    bool known;        /* there is a previous reading, and no gap since */
    int64_t last_ns;   /* of the last value, or for power of the last poll that repeated it */
    int64_t polled_ns; /* of the last successful poll */
    double last_value, energy_mj;
    second seconds[PJ_POWER_LOG_SECONDS + 1]; /* ring by number; one more for the current second */
} rail_log;

struct pj_power_log {
    pthread_mutex_t mutex;
    uint32_t rail_count;
    pj_rail rails[PJ_MAX_RAILS];
    rail_log *logs;
};

pj_power_log *pj_power_log_new(const pj_rail *rails, uint32_t count)
{
    pj_power_log *log = pj_alloc(1, sizeof *log);
    if (!log) return NULL;
    log->logs = pj_alloc(count ? count : 1, sizeof *log->logs);
    if (!log->logs) {
        pj_free(log);
        return NULL;
    }
    if (count) memcpy(log->rails, rails, count * sizeof *rails);
    log->rail_count = count;
    pthread_mutex_init(&log->mutex, NULL);
    return log;
}

void pj_power_log_free(pj_power_log *log)
{
    if (!log) return;
    pthread_mutex_destroy(&log->mutex);
    pj_free(log->logs);
    pj_free(log);
}

const pj_rail *pj_power_log_rails(const pj_power_log *log, uint32_t *count)
{
    *count = log->rail_count;
    return log->rails;
}

/* ---- taking -------------------------------------------------------------------------------- */

static second *second_of(rail_log *log, int64_t number)
{
    second *s = &log->seconds[number % (PJ_POWER_LOG_SECONDS + 1)];
    if (s->number != number) *s = (second){.number = number};
    return s;
}

static void power_log_add(rail_log *log, int64_t begin_ns, int64_t end_ns, double energy_mj)
{
    double power = energy_mj / (double)(end_ns - begin_ns);
    log->energy_mj += energy_mj;
    for (int64_t at = begin_ns; at < end_ns;) {
        int64_t number = at / PJ_NS_PER_S, until = (number + 1) * PJ_NS_PER_S;
        if (until > end_ns) until = end_ns;
        second *s = second_of(log, number);
        s->energy_mj += power * (double)(until - at);
        s->covered_ns += until - at;
        at = until;
    }
}

static int64_t time_of(const pj_reading *r)
{
    return r->fresh_ns > 0 ? r->fresh_ns : r->before_ns + (r->after_ns - r->before_ns) / 2;
}

/* Whether polling paused too long before `at_ns`. A sensor repeating its value is not a gap. */
static bool is_gap(const pj_rail *rail, const rail_log *log, int64_t at_ns)
{
    int64_t ns = at_ns - log->polled_ns;
    return ns > GAP_NS && ns > 3 * rail->period_ns;
}

/* An unchanged value: power continues; a counter has nothing new yet. */
static void power_log_repeat(const pj_rail *rail, rail_log *log, int64_t at_ns)
{
    if (!log->known || at_ns <= log->polled_ns) return;
    if (is_gap(rail, log, at_ns)) {
        log->known = false;
        return;
    }
    log->polled_ns = at_ns;
    if (rail->kind == PJ_RAIL_COUNTER || at_ns <= log->last_ns) return;
    double energy = log->last_value * (double)(at_ns - log->last_ns) / 1e9;
    if (rail->gain > 0) energy /= rail->gain;
    power_log_add(log, log->last_ns, at_ns, energy);
    log->last_ns = at_ns;
}

/* Energy between the previous reading and this one; NAN: unknown. */
static double power_log_energy_between(const pj_rail *rail, const rail_log *log,
                                       const pj_reading *r, int64_t ns)
{
    double s = (double)ns / 1e9;
    if (rail->kind != PJ_RAIL_COUNTER) return (log->last_value + r->value) / 2 * s;
    if (r->status != PJ_READING_RESET)
        return pj_counter_step(rail, log->last_value, r->value) / 1e3;
    double step_mj = (r->value - log->last_value) / 1e3;
    double most = rail->max_mw > 0 ? rail->max_mw : pj_rail_class_most_mw(rail->rail_class);
    return step_mj >= 0 && step_mj <= PLAUSIBLE * most * s ? step_mj : NAN;
}

static void power_log_take(const pj_rail *rail, rail_log *log, const pj_reading *r)
{
    if (r->status == PJ_READING_REJECTED) return;
    if (r->status == PJ_READING_REPEAT) {
        power_log_repeat(rail, log, r->before_ns + (r->after_ns - r->before_ns) / 2);
        return;
    }
    if (isnan(r->value) || r->status == PJ_READING_GAP || r->status == PJ_READING_LOST) {
        /* A counter keeps counting while it cannot be read; power is unknown meanwhile. */
        if (rail->kind != PJ_RAIL_COUNTER || r->status == PJ_READING_LOST) log->known = false;
        return;
    }
    int64_t at = time_of(r), ns = at - log->last_ns;
    if (log->known && ns <= 0) return;
    if (log->known && !is_gap(rail, log, at)) {
        double energy = power_log_energy_between(rail, log, r, ns);
        if (rail->gain > 0) energy /= rail->gain;
        if (energy >= 0) power_log_add(log, log->last_ns, at, energy);
    }
    log->known = true;
    log->last_ns = log->polled_ns = at;
    log->last_value = r->value;
}

void pj_power_log_take(pj_power_log *log, const pj_reading *readings, size_t count)
{
    pthread_mutex_lock(&log->mutex);
    for (size_t i = 0; i < count; i++) {
        uint32_t rail = readings[i].rail;
        if (rail < log->rail_count)
            power_log_take(&log->rails[rail], &log->logs[rail], &readings[i]);
    }
    pthread_mutex_unlock(&log->mutex);
}

/* ---- asking -------------------------------------------------------------------------------- */

double pj_power_log_energy_mj(pj_power_log *log, uint32_t rail)
{
    pthread_mutex_lock(&log->mutex);
    double energy = log->logs[rail].energy_mj;
    pthread_mutex_unlock(&log->mutex);
    return energy;
}

/* With the mutex held: mean power of `count` seconds from `first` on. */
static double power_log_mean_mw(const rail_log *log, int64_t first, int count)
{
    double energy_mj = 0;
    int64_t covered_ns = 0;
    for (int64_t n = first < 0 ? 0 : first; n < first + count; n++) {
        const second *s = &log->seconds[n % (PJ_POWER_LOG_SECONDS + 1)];
        if (s->number != n) continue;
        energy_mj += s->energy_mj;
        covered_ns += s->covered_ns;
    }
    return covered_ns > 0 ? energy_mj / ((double)covered_ns / 1e9) : NAN;
}

double pj_power_log_now_mw(pj_power_log *log, uint32_t rail, int64_t now_ns)
{
    pthread_mutex_lock(&log->mutex);
    int64_t present = now_ns / PJ_NS_PER_S;
    double power = power_log_mean_mw(&log->logs[rail], present - NOW_SECONDS + 1, NOW_SECONDS);
    pthread_mutex_unlock(&log->mutex);
    return power;
}

void pj_power_log_machine(pj_power_log *log, int64_t now_ns, double *energy_mj, double *power_mw)
{
    double mj[PJ_MAX_RAILS], mw[PJ_MAX_RAILS];
    uint32_t count = log ? log->rail_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        mj[i] = pj_power_log_energy_mj(log, i);
        mw[i] = pj_power_log_now_mw(log, i, now_ns);
    }
    *energy_mj = count ? pj_rail_column_sum(log->rails, count, mj, PJ_RAIL_TOTAL) : NAN;
    *power_mw = count ? pj_rail_column_sum(log->rails, count, mw, PJ_RAIL_TOTAL) : NAN;
}

int64_t pj_power_log_history(pj_power_log *log, uint32_t rail, int64_t now_ns, double *power_mw,
                             uint32_t count)
{
    int64_t end = now_ns / PJ_NS_PER_S;
    pthread_mutex_lock(&log->mutex);
    for (uint32_t i = 0; i < count; i++)
        power_mw[i] = power_log_mean_mw(&log->logs[rail], end - count + i, 1);
    pthread_mutex_unlock(&log->mutex);
    return end * PJ_NS_PER_S;
}
