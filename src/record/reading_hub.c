/* The lock, the queues and the thread of a reading hub. */
#include "record/reading_hub.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

enum { READINGS_QUEUE = 1 << 14, EVENTS_QUEUE = 64, BATCH = 256 };
#define PULL_EVERY_NS (50 * PJ_NS_PER_MS)
/* maximum wait for a silent sensor: a dear counter is read every three seconds at least */
#define PATIENCE_NS  (5 * PJ_NS_PER_S)
#define LATENESS_NS  PJ_NS_PER_S /* allowed delay of a sampler on a busy machine */
#define SIMULATED_MW 20000.0     /* simulated load above idle, for each of several runs */

struct pj_reading_hub {
    pj_meter *meter;
    pj_share_rule rule;
    const pj_rail *rails;
    uint32_t rail_count;
    pthread_mutex_t mutex; /* guards what follows, and the meter */
    pj_division *division; /* NULL: the sensors are unused */
    pj_subscriber *subscribers;
    uint32_t users, windows, members, open_runs;
    double shared_ns; /* integral of 1 / number of runs over time */
    int64_t shared_at_ns;
    bool seen[PJ_MAX_RAILS]; /* the rail has had a value since the sensors were started */
    bool has_lost;           /* a rail is lost: do not wait for it */
    pthread_t thread;        /* pulls while windows are open */
    bool has_thread, closing;
    pthread_cond_t changed;
    pj_reading batch[BATCH];
};

int64_t pj_reading_hub_first_wait_ns(const pj_reading_hub *g)
{
    int64_t wait_ns = 50 * PJ_NS_PER_MS;
    for (uint32_t r = 0; r < g->rail_count; r++)
        if (wait_ns < 2 * g->rails[r].period_ns + g->rails[r].delay_ns)
            wait_ns = 2 * g->rails[r].period_ns + g->rails[r].delay_ns;
    return wait_ns < PJ_NS_PER_S ? wait_ns : PJ_NS_PER_S;
}

pj_reading_hub *pj_reading_hub_new(pj_meter *meter, pj_share_rule rule)
{
    pj_reading_hub *g = pj_alloc(1, sizeof *g);
    if (!g) return NULL;
    g->meter = meter;
    g->rule = rule;
    g->rails = pj_meter_rails(meter, &g->rail_count);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, NULL);
    return g;
}

void pj_reading_hub_free(pj_reading_hub *g)
{
    if (!g) return;
    pthread_mutex_lock(&g->mutex);
    g->closing = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->mutex);
    if (g->has_thread) pthread_join(g->thread, NULL);
    pj_division_free(g->division);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->mutex);
    pj_free(g);
}

bool pj_reading_hub_is_used(pj_reading_hub *g)
{
    pthread_mutex_lock(&g->mutex);
    bool used = g->users > 0;
    pthread_mutex_unlock(&g->mutex);
    return used;
}

/* ---- distributing (the lock is held) -------------------------------------------------------- */

static void reading_hub_distribute(pj_reading_hub *g)
{
    size_t count;
    pj_meter_event event;
    while ((count = pj_meter_read(g->meter, g->batch, BATCH)) > 0)
        for (size_t i = 0; i < count; i++) {
            const pj_reading *r = &g->batch[i];
            if (r->rail < PJ_MAX_RAILS && !isnan(r->value)) g->seen[r->rail] = true;
            g->has_lost |= r->status == PJ_READING_LOST;
            if (g->division) pj_division_read(g->division, r, NULL);
            for (pj_subscriber *subscriber = g->subscribers; subscriber;
                 subscriber = subscriber->next)
                pj_ring_write(&subscriber->readings, r);
        }
    while (pj_meter_next_event(g->meter, &event))
        for (pj_subscriber *subscriber = g->subscribers; subscriber; subscriber = subscriber->next)
            pj_ring_write(&subscriber->events, &event);
}

static void pull(pj_reading_hub *g, int64_t force_ns)
{
    int64_t now_ns = pj_clock_ns(), silent_ns = pj_meter_settle_ns(g->meter) + PATIENCE_NS;
    reading_hub_distribute(g);
    if (force_ns < now_ns - silent_ns) force_ns = now_ns - silent_ns;
    if (g->division) pj_division_settle(g->division, now_ns, force_ns);
}

void pj_reading_hub_pull(pj_reading_hub *g)
{
    pthread_mutex_lock(&g->mutex);
    pull(g, 0);
    pthread_mutex_unlock(&g->mutex);
}

/* Forgets the division when there are no users and no shares left to deliver. */
static void drop_division(pj_reading_hub *g)
{
    if (g->users > 0 || g->members > 0) return;
    pj_division_free(g->division);
    g->division = NULL;
}

/* The first user starts the sensors. */
static pj_status reading_hub_use(pj_reading_hub *g, pj_error *err)
{
    if (g->users > 0) {
        g->users++;
        return PJ_OK;
    }
    if (!g->division) g->division = pj_division_new(g->rails, g->rail_count, g->rule);
    if (!g->division) return pj_fail_memory(err, "the energy of a session");
    memset(g->seen, 0, sizeof g->seen);
    g->has_lost = false;
    pj_status status = pj_meter_start(g->meter, err);
    if (status == PJ_OK) {
        g->users = 1;
        return PJ_OK;
    }
    drop_division(g);
    return status;
}

/* The last user stops them; readings held back by coarsening are distributed. */
static void reading_hub_leave(pj_reading_hub *g, int64_t force_ns)
{
    pull(g, force_ns);
    if (--g->users > 0) return;
    pj_meter_stop(g->meter);
    pull(g, force_ns);
}

/* ---- runs ----------------------------------------------------------------------------------- */

pj_status pj_reading_hub_join(pj_reading_hub *g, pj_subscriber *subscriber, pj_error *err)
{
    pj_status status = pj_ring_init(&subscriber->readings, READINGS_QUEUE, sizeof(pj_reading), err);
    if (status == PJ_OK)
        status = pj_ring_init(&subscriber->events, EVENTS_QUEUE, sizeof(pj_meter_event), err);
    if (status != PJ_OK) return status;
    pthread_mutex_lock(&g->mutex);
    status = reading_hub_use(g, err);
    if (status == PJ_OK) {
        subscriber->joined = true;
        subscriber->next = g->subscribers;
        g->subscribers = subscriber;
    }
    pthread_mutex_unlock(&g->mutex);
    return status;
}

/* One sampler serves all open runs: each counts an equal part of its time. */
static void advance_shared_time(pj_reading_hub *g, int64_t at_ns)
{
    if (g->open_runs) g->shared_ns += (double)(at_ns - g->shared_at_ns) / g->open_runs;
    g->shared_at_ns = at_ns;
}

/* With several runs, simulated sensors are not driven by spans: their live readings are the
 * ground truth. */
static void reading_hub_show_activity(pj_reading_hub *g, int change)
{
    bool was_shared = g->open_runs > 1;
    g->open_runs = (uint32_t)((int)g->open_runs + change);
    if (g->open_runs > 1 || was_shared)
        pj_meter_set_activity(g->meter, SIMULATED_MW * g->open_runs);
}

int64_t pj_reading_hub_begin(pj_reading_hub *g, pj_subscriber *subscriber, double weight)
{
    pthread_mutex_lock(&g->mutex);
    int64_t at_ns = pj_clock_ns();
    subscriber->member = pj_division_enter(g->division, &at_ns, weight);
    if (subscriber->member) {
        g->members++;
        advance_shared_time(g, at_ns);
        subscriber->sampled_ns = -g->shared_ns;
        reading_hub_show_activity(g, 1);
        pj_meter_want_from(g->meter, at_ns);
    }
    pthread_mutex_unlock(&g->mutex);
    return subscriber->member ? at_ns : 0;
}

void pj_reading_hub_weigh(pj_reading_hub *g, pj_subscriber *subscriber, double weight)
{
    pthread_mutex_lock(&g->mutex);
    if (subscriber->member)
        pj_division_weigh(g->division, subscriber->member, pj_clock_ns(), weight);
    pthread_mutex_unlock(&g->mutex);
}

int64_t pj_reading_hub_end(pj_reading_hub *g, pj_subscriber *subscriber)
{
    pthread_mutex_lock(&g->mutex);
    int64_t at_ns = pj_clock_ns();
    if (subscriber->member) {
        pj_division_leave(g->division, subscriber->member, &at_ns);
        advance_shared_time(g, at_ns);
        subscriber->sampled_ns += g->shared_ns;
        reading_hub_show_activity(g, -1);
    }
    pthread_mutex_unlock(&g->mutex);
    return at_ns;
}

/* Up to when energies have to be known for those before `at_ns` to be final. Rails without any
 * value are not waited for. */
static int64_t reading_hub_needs_ns(const pj_reading_hub *g, int64_t at_ns)
{
    int64_t known_ns = pj_division_known_ns(g->division, g->seen);
    bool is_sure = known_ns < at_ns || pj_division_sure_ns(g->division) >= at_ns;
    return is_sure ? at_ns : known_ns + 1;
}

static bool is_known(const pj_reading_hub *g, int64_t at_ns)
{
    bool is_reached = pj_division_known_ns(g->division, g->seen) >= at_ns;
    return g->has_lost || (is_reached && reading_hub_needs_ns(g, at_ns) == at_ns);
}

/* Pulls until `is_done`, at most to `until_ns`. The lock is not held. */
static void pull_until(pj_reading_hub *g, bool (*is_done)(const pj_reading_hub *, int64_t),
                       int64_t at_ns, int64_t until_ns)
{
    for (bool done = false; !done && pj_clock_ns() < until_ns;) {
        pthread_mutex_lock(&g->mutex);
        pj_meter_want(g->meter, reading_hub_needs_ns(g, at_ns));
        pull(g, 0);
        done = is_done(g, at_ns);
        pthread_mutex_unlock(&g->mutex);
        if (!done) pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    }
}

/* The last readings before a time may be late on a busy machine. */
static void wait_until_known(pj_reading_hub *g, int64_t at_ns)
{
    pull_until(g, is_known, at_ns, at_ns + pj_meter_settle_ns(g->meter) + LATENESS_NS);
}

void pj_reading_hub_part(pj_reading_hub *g, pj_subscriber *subscriber, int64_t end_ns)
{
    if (subscriber->joined) wait_until_known(g, end_ns);
    pthread_mutex_lock(&g->mutex);
    if (subscriber->joined) {
        subscriber->joined = false;
        reading_hub_leave(g, end_ns);
        for (pj_subscriber **at = &g->subscribers; *at; at = &(*at)->next)
            if (*at == subscriber) {
                *at = subscriber->next;
                break;
            }
    }
    pthread_mutex_unlock(&g->mutex);
}

void pj_subscriber_fini(pj_reading_hub *g, pj_subscriber *subscriber)
{
    if (subscriber->joined) pj_reading_hub_part(g, subscriber, pj_reading_hub_end(g, subscriber));
    if (subscriber->member) {
        pthread_mutex_lock(&g->mutex);
        pj_division_drop(g->division, subscriber->member);
        subscriber->member = NULL;
        g->members--;
        drop_division(g);
        pthread_mutex_unlock(&g->mutex);
    }
    pj_ring_fini(&subscriber->readings);
    pj_ring_fini(&subscriber->events);
}

bool pj_reading_hub_next_share(pj_reading_hub *g, pj_subscriber *subscriber, pj_buffer *payload)
{
    pj_share_record record;
    const pj_share_energy *energies;
    if (!subscriber->member) return false;
    pthread_mutex_lock(&g->mutex);
    bool found = pj_division_next(subscriber->member, &record, &energies);
    if (found) {
        pj_buffer_clear(payload);
        pj_buffer_append(payload, &record, sizeof record);
        if (energies) pj_buffer_append(payload, energies, record.rail_count * sizeof *energies);
    }
    pthread_mutex_unlock(&g->mutex);
    return found;
}

bool pj_reading_hub_is_shared(pj_reading_hub *g, const pj_subscriber *subscriber)
{
    if (!subscriber->member) return false;
    pthread_mutex_lock(&g->mutex);
    bool shared = pj_division_is_shared(subscriber->member);
    pthread_mutex_unlock(&g->mutex);
    return shared;
}

/* ---- windows -------------------------------------------------------------------------------- */

static void *pull_for_windows(void *context)
{
    pj_reading_hub *g = context;
    pthread_mutex_lock(&g->mutex);
    while (!g->closing) {
        if (g->windows == 0) {
            pthread_cond_wait(&g->changed, &g->mutex);
            continue;
        }
        pull(g, 0);
        pthread_mutex_unlock(&g->mutex);
        pj_clock_sleep_until(pj_clock_ns() + PULL_EVERY_NS);
        pthread_mutex_lock(&g->mutex);
    }
    pthread_mutex_unlock(&g->mutex);
    return NULL;
}

/* Whether every rail has had a value. A log may have nothing new: it only follows its counter. */
static bool all_seen(const pj_reading_hub *g, int64_t at_ns)
{
    for (uint32_t r = 0; r < g->rail_count; r++)
        if (!g->seen[r] && g->rails[r].log_ns == 0) return false;
    return true;
}

/* The thread stays until the reading hub is freed, and sleeps while there are no windows. */
static pj_status reading_hub_add_window(pj_reading_hub *g, pj_error *err)
{
    pj_status status = reading_hub_use(g, err);
    if (status != PJ_OK) return status;
    g->windows++;
    pthread_cond_signal(&g->changed);
    if (g->has_thread) return PJ_OK;
    status = pj_thread_start(&g->thread, "pj-windows", pull_for_windows, g, err);
    g->has_thread = status == PJ_OK;
    if (g->has_thread) return PJ_OK;
    g->windows--;
    reading_hub_leave(g, 0);
    drop_division(g);
    return status;
}

pj_status pj_reading_hub_window_begin(pj_reading_hub *g, pj_reading_window *w, pj_error *err)
{
    pthread_mutex_lock(&g->mutex);
    pj_status status = reading_hub_add_window(g, err);
    pthread_mutex_unlock(&g->mutex);
    if (status != PJ_OK) return status;
    /* so that the curves cover the window from its begin */
    pull_until(g, all_seen, 0, pj_clock_ns() + pj_reading_hub_first_wait_ns(g));
    pthread_mutex_lock(&g->mutex);
    w->begin_ns = pj_clock_ns();
    w->window = pj_division_window_open(g->division, w->begin_ns);
    pj_meter_want_from(g->meter, w->begin_ns);
    pthread_mutex_unlock(&g->mutex);
    if (w->window) return PJ_OK;
    pj_reading_hub_window_drop(g, w);
    return pj_fail_memory(err, "a window");
}

/* The uncertainty of a rail that another contradicts is at least their disagreement. */
static void doubt_window(const pj_finding *finding, pj_curve_energy *e)
{
    double gain_sd_mj = finding->excess * fabs(e->energy_mj);
    if (!(gain_sd_mj > e->gain_sd_mj)) return;
    e->gain_sd_mj = gain_sd_mj;
    e->sd_mj = hypot(hypot(e->random_sd_mj, e->bias_sd_mj), gain_sd_mj);
}

static void check_window(const pj_reading_hub *g, pj_reading_window *w, pj_curve_energy *energies)
{
    pj_finding findings[PJ_FINDINGS_MAX];
    uint32_t count = w->window ? pj_division_window_check(g->division, w->window, findings) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (findings[i].substitute)
            energies[findings[i].rail] = energies[findings[i].substitute - 1];
        doubt_window(&findings[i], &energies[findings[i].rail]);
    }
    if (count == 0) return;
    w->warning_code = findings[0].code;
    memcpy(w->warning, findings[0].text, sizeof w->warning);
}

/* Forces the energy before a window's end to be final, but only after waiting for it, because runs
 * divide the same time. */
static void close_window(pj_reading_hub *g, pj_reading_window *w, pj_curve_energy *energies)
{
    int64_t force_ns = energies ? w->end_ns : 0;
    pthread_mutex_lock(&g->mutex);
    g->windows--;
    if (g->users == 1) pj_meter_stop(g->meter); /* what is being read belongs to the window */
    pull(g, force_ns);
    for (uint32_t r = 0; energies && r < g->rail_count; r++)
        pj_division_window_energy(g->division, w->window, r, &energies[r]);
    if (energies) check_window(g, w, energies);
    if (w->window) pj_division_window_close(g->division, w->window);
    w->window = NULL;
    reading_hub_leave(g, force_ns);
    drop_division(g);
    pthread_mutex_unlock(&g->mutex);
}

void pj_reading_hub_window_end(pj_reading_hub *g, pj_reading_window *w,
                               pj_curve_energy energies[PJ_MAX_RAILS])
{
    pthread_mutex_lock(&g->mutex);
    w->end_ns = pj_clock_ns();
    pj_division_window_stop(w->window, w->end_ns);
    pthread_mutex_unlock(&g->mutex);
    wait_until_known(g, w->end_ns);
    close_window(g, w, energies);
}

void pj_reading_hub_window_drop(pj_reading_hub *g, pj_reading_window *w)
{
    w->end_ns = pj_clock_ns();
    close_window(g, w, NULL);
}
