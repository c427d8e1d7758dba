/* A look at the power of all sensors. */
#include "power/now.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "power/containment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Between two reads of a counter: RAPL's are updated every millisecond. */
static const int64_t BETWEEN_NS = 20 * PJ_NS_PER_MS;

/* What a thread works on: static, because a late one outlives the look. */
typedef struct look {
    const pj_power_source *source;
    const pj_power_env *env;
    const char *argument;
    pj_rail rails[PJ_MAX_RAILS];
    uint32_t count;
    double mw[PJ_MAX_RAILS];
    bool done, usable;
} look;

static look looks[PJ_POWER_LIST_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished;

/* The last good reading of each rail. */
static void last_readings(const look *l, void *state, pj_reading *last)
{
    pj_reading *readings = pj_alloc(PJ_SOURCE_READ_MAX, sizeof *readings);
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->count; i++) last[i] = (pj_reading){.status = PJ_READING_GAP};
    if (!readings || l->source->read(state, readings, PJ_SOURCE_READ_MAX, &count) != PJ_OK)
        count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (readings[i].status == PJ_READING_OK && readings[i].rail < l->count)
            last[readings[i].rail] = readings[i];
    pj_free(readings);
}

static double power_between(const pj_rail *rail, const pj_reading *a, const pj_reading *b)
{
    if (rail->kind != PJ_RAIL_COUNTER && b->status != PJ_READING_OK) b = a;
    if (b->status != PJ_READING_OK) return NAN;
    if (rail->kind != PJ_RAIL_COUNTER) return b->value;
    double ns = (double)(b->after_ns - a->after_ns), uj = b->value - a->value;
    bool moved = a->status == PJ_READING_OK && uj > 0 && ns > 0;
    return moved ? uj * 1e6 / ns : NAN;
}

/* A counter that is updated too rarely has the power that the same device reports beside it. */
static void fill_slow_counters(look *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (!isnan(l->mw[i]) || l->rails[i].kind != PJ_RAIL_COUNTER) continue;
        for (uint32_t k = 0; k < l->count && isnan(l->mw[i]); k++)
            if (k != i && l->rails[k].kind != PJ_RAIL_COUNTER &&
                l->rails[k].scope == l->rails[i].scope &&
                strcmp(l->rails[k].device, l->rails[i].device) == 0)
                l->mw[i] = l->mw[k];
    }
}

static void look_at(look *l)
{
    pj_reading first[PJ_MAX_RAILS], second[PJ_MAX_RAILS];
    pj_source_report report = {0};
    void *state = pj_alloc(1, l->source->state_bytes);
    if (!state) return;
    if (l->source->open(state, l->env, l->argument, &report) == PJ_OK) {
        l->count = l->source->rails(state, l->rails);
        last_readings(l, state, first);
        pj_clock_sleep_until(pj_clock_ns() + BETWEEN_NS);
        last_readings(l, state, second);
        for (uint32_t i = 0; i < l->count; i++)
            l->mw[i] = power_between(&l->rails[i], &first[i], &second[i]);
        fill_slow_counters(l);
        l->usable = true;
        if (l->source->close) l->source->close(state);
    }
    pj_free(state);
}

static void *look_thread(void *context)
{
    look *l = context;
    look_at(l);
    pthread_mutex_lock(&lock);
    l->done = true;
    pthread_cond_signal(&finished);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void now_add(pj_power_now *now, const look *l)
{
    uint32_t first = now->count;
    for (uint32_t i = 0; i < l->count && now->count < PJ_MAX_RAILS; i++) {
        pj_rail *rail = &now->rails[now->count];
        *rail = l->rails[i];
        if (rail->parent >= 0) rail->parent += (int)first;
        now->modelled |= rail->quality == PJ_MODELLED;
        now->mw[now->count++] = l->mw[i];
    }
}

static void now_wait(uint32_t count, int64_t until_ns)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count;) {
        int64_t left_ns = until_ns - pj_clock_ns();
        if (looks[i].done)
            i++;
        else if (left_ns <= 0 || !pj_cond_wait_for(&finished, &lock, left_ns))
            break;
    }
    pthread_mutex_unlock(&lock);
}

pj_status pj_power_now_read(const pj_power_env *env, const char *list, int64_t within_ns,
                            pj_power_now *now, pj_error *err)
{
    enum {
        NEVER = PJ_SOURCE_REMOTE | PJ_SOURCE_ONCE,
        BY_NAME = PJ_SOURCE_STREAM | PJ_SOURCE_MODEL | PJ_SOURCE_BY_NAME
    };
    static pj_power_list chosen;
    int64_t until_ns = pj_clock_ns() + within_ns;
    uint32_t count = 0;
    *now = (pj_power_now){.total_mw = NAN};
    pj_status status = pj_power_list_parse(list ? list : pj_power_default(), &chosen, err);
    if (status != PJ_OK) return status;
    pj_cond_init(&finished);
    for (uint32_t i = 0; i < chosen.count; i++) {
        const pj_power_choice *c = &chosen.choices[i];
        pthread_t thread;
        if (list && (c->source->flags & NEVER))
            return pj_fail(err, PJ_E_INVALID,
                           "--power %s: only sensors of this machine can be read for a moment",
                           c->source->name);
        if ((c->source->flags & NEVER) || ((c->source->flags & BY_NAME) && !(list && c->by_name)))
            continue;
        look *l = &looks[count];
        *l = (look){.source = c->source, .env = env, .argument = c->argument};
        if (pj_thread_start(&thread, "pj-now", look_thread, l, NULL) != PJ_OK) continue;
        pthread_detach(thread);
        count++;
    }
    now_wait(count, until_ns);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        if (looks[i].done && looks[i].usable) now_add(now, &looks[i]);
        if (!looks[i].done)
            snprintf(now->late + strlen(now->late), sizeof now->late - strlen(now->late), "%s%s",
                     now->late[0] ? "," : "", looks[i].source->name);
    }
    pthread_mutex_unlock(&lock);
    pj_rails_contain(now->rails, now->count);
    if (!now->late[0])
        now->total_mw = pj_rail_column_sum(now->rails, now->count, now->mw, PJ_RAIL_TOTAL);
    return PJ_OK;
}
