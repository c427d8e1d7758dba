/* Windows of the public interface: sums over rails, an upper bound if the sensors are too slow. */
#include "record/result.h"
#include "record/session.h"
#include "trace/uncertainty.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct pj_open_window {
    pj_session *session;
    pj_open_window *next; /* of the session */
    pj_reading_window readings;
    bool has_readings;
};

/* ---- beginning ------------------------------------------------------------------------------ */

static void window_forget(pj_open_window *w)
{
    pj_session *s = w->session;
    pthread_mutex_lock(&s->mutex);
    for (pj_open_window **at = &s->open_windows; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    pthread_mutex_unlock(&s->mutex);
    pj_free(w);
}

static void window_drop(pj_open_window *w)
{
    if (w->has_readings) pj_reading_hub_window_drop(w->session->hub, &w->readings);
    window_forget(w);
}

pj_status pj_window_begin(pj_session *session, pj_open_window **out, pj_error *err)
{
    if (!out) return pj_fail(err, PJ_E_INVALID, "pj_window_begin: window is NULL");
    *out = NULL;
    if (!session) return pj_fail(err, PJ_E_INVALID, "pj_window_begin: session is NULL");
    pj_open_window *w = pj_alloc(1, sizeof *w);
    if (!w) return pj_fail_memory(err, "a window");
    w->session = session;
    pthread_mutex_lock(&session->mutex);
    w->next = session->open_windows;
    session->open_windows = w;
    session->drop_window = window_drop;
    pthread_mutex_unlock(&session->mutex);
    if (session->hub) {
        pj_status status = pj_reading_hub_window_begin(session->hub, &w->readings, err);
        w->has_readings = status == PJ_OK;
        if (status == PJ_E_NO_MEMORY) {
            window_forget(w);
            return status;
        }
    }
    if (!w->has_readings)
        w->readings.begin_ns = pj_clock_ns(); /* energy is unavailable, time is not */
    *out = w;
    return PJ_OK;
}

/* ---- figures -------------------------------------------------------------------------------- */

static const pj_joules_mj unknown = {NAN, NAN, NAN};

/* A figure may be as uncertain as a tick of the sensor at each end; it is missing only where
 * nothing was read. */
static bool is_seen(const pj_curve_energy *e)
{
    return !isnan(e->energy_mj);
}

typedef struct window_sum {
    double mj, random_var, bias_mj, gain_mj;
    double idle_mj, idle_sd_mj; /* NAN: a baseline is unknown */
    double upper_mj;            /* NAN: a rail has no bound */
    uint32_t seen, missing;     /* of the rails of the total */
} window_sum;

static void window_add_rail(window_sum *sum, const pj_baseline *idle, uint32_t rail,
                            const pj_rail *r, const pj_curve_energy *e, int64_t ns)
{
    double seconds = (double)ns * 1e-9, most_mj = r->max_mw > 0 ? r->max_mw * seconds : NAN;
    bool has_idle = idle && idle->rail_quiet[rail];
    bool seen = is_seen(e);
    sum->upper_mj += seen ? fmin(most_mj, e->energy_mj + PJ_NORMAL_95 * e->sd_mj) : most_mj;
    sum->missing += !seen;
    if (!seen) return;
    sum->seen++;
    sum->mj += e->energy_mj;
    sum->random_var += e->random_sd_mj * e->random_sd_mj;
    sum->bias_mj += e->bias_sd_mj;
    sum->gain_mj += e->gain_sd_mj;
    sum->idle_mj += has_idle ? idle->mw[rail] * seconds : NAN;
    sum->idle_sd_mj += has_idle ? idle->sd_mw[rail] * seconds : NAN;
}

static void fill_total(pj_window_result *r, const window_sum *sum, const pj_session *s)
{
    double sd = sqrt(sum->random_var + sum->bias_mj * sum->bias_mj + sum->gain_mj * sum->gain_mj);
    if (!sum->seen) {
        if (sum->missing) r->total_upper_mj = sum->upper_mj;
        return;
    }
    r->energy_source = pj_meter_quality(s->meter);
    r->is_partial = sum->missing > 0 || *pj_meter_unread(s->meter);
    r->total = pj_gross_with_interval(sum->mj, sd);
    r->total_random_mj = PJ_NORMAL_95 * hypot(sqrt(sum->random_var), sum->bias_mj);
    r->total_gain_mj = PJ_NORMAL_95 * sum->gain_mj;
    double net = sum->mj - sum->idle_mj, gain = sum->mj > 0 ? sum->gain_mj * net / sum->mj : 0;
    double net_sd = sqrt(sum->random_var + sum->bias_mj * sum->bias_mj + gain * gain +
                         sum->idle_sd_mj * sum->idle_sd_mj);
    /* less than an idle machine: idle power has changed since it was measured */
    if (!(net < -2 * net_sd)) r->net = pj_with_interval(net, net_sd);
}

static void window_fill(pj_window_result *r, const pj_open_window *w,
                        const pj_curve_energy *energies)
{
    const pj_session *s = w->session;
    window_sum sum = {0};
    pj_baseline idle;
    bool has_idle = pj_session_idle_assumed(s, &idle);
    uint32_t count = 0;
    const pj_rail *rails = pj_meter_rails(s->meter, &count);
    int64_t ns = w->readings.end_ns - w->readings.begin_ns;
    for (uint32_t i = 0; i < count && i < PJ_WINDOW_RAILS; i++) {
        pj_window_rail *out = &r->rails[r->rail_count++];
        bool seen = is_seen(&energies[i]);
        snprintf(out->name, sizeof out->name, "%s", rails[i].name);
        out->gross =
            seen ? pj_gross_with_interval(energies[i].energy_mj, energies[i].sd_mj) : unknown;
        if (pj_rail_in_column(rails, count, i, PJ_RAIL_TOTAL))
            window_add_rail(&sum, has_idle ? &idle : NULL, i, &rails[i], &energies[i], ns);
    }
    fill_total(r, &sum, s);
}

/* ---- ending --------------------------------------------------------------------------------- */

enum { SIZE_FIRST = offsetof(pj_window_result, total_random_mj) };

pj_status pj_window_end(pj_open_window *w, pj_window_result *result, pj_error *err)
{
    pj_curve_energy energies[PJ_MAX_RAILS];
    if (!w) return pj_fail(err, PJ_E_INVALID, "pj_window_end: window is NULL");
    if (!result) {
        window_drop(w);
        return PJ_OK;
    }
    size_t size = result->size ? result->size : SIZE_FIRST;
    if (size < SIZE_FIRST || size > 1 << 16)
        return pj_fail(err, PJ_E_INVALID, "the result has a size of %zu bytes: set it with sizeof",
                       result->size);
    pj_window_result all = {.size = result->size,
                            .total = unknown,
                            .net = unknown,
                            .total_upper_mj = NAN,
                            .total_random_mj = NAN,
                            .total_gain_mj = NAN};
    if (w->has_readings)
        pj_reading_hub_window_end(w->session->hub, &w->readings, energies);
    else
        w->readings.end_ns = pj_clock_ns();
    all.duration_ms = (double)(w->readings.end_ns - w->readings.begin_ns) / 1e6;
    if (w->has_readings) window_fill(&all, w, energies);
    all.warning_code = w->readings.warning_code;
    memcpy(all.warning, w->readings.warning, sizeof all.warning);
    memset(result, 0, size);
    memcpy(result, &all, size < sizeof all ? size : sizeof all);
    window_forget(w);
    return PJ_OK;
}

_Static_assert(sizeof(((pj_window_result *)0)->warning) == PJ_FINDING_TEXT_BYTES, "texts fit");
_Static_assert(PJ_WINDOW_RAILS >= PJ_MAX_RAILS, "every rail has a place");
_Static_assert(sizeof(((pj_window_rail *)0)->name) >= PJ_RAIL_NAME_BYTES, "names fit");
