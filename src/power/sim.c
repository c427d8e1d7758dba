/* From truth to readings. The truth is a list of segments with a prefix sum of energy, so that the
 * mean over any window takes two binary searches. At each tick a sensor publishes the mean over its
 * window, delayed, with gain, noise and quantisation. The raw values then pass the same filter as
 * those of real sensors, so that resets, jumps and drop-outs are classified by the same code. */
#include "power/sim.h"

#include "base/buffer.h"
#include "base/interval.h"
#include "base/memory.h"
#include "base/random.h"
#include "power/filter.h"

#include <math.h>
#include <string.h>

/* ---- truth ---- */

typedef struct truth {
    const pj_sim_spec *spec;
    const pj_sim_segment *segments;
    size_t count;
    /* net energy of all earlier segments (prefix sum); NULL: recomputed each time */
    double *before_mj;
    double share;
} truth;

static double sim_seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static size_t segment_at(const truth *t, int64_t at_ns)
{
    return pj_first_after(t->segments, t->count, sizeof *t->segments, at_ns);
}

/* Net energy from the first segment to `at_ns`, summed over all rails. */
static double net_until(const truth *t, int64_t at_ns)
{
    size_t i = segment_at(t, at_ns);
    double mj = t->before_mj[i];
    if (i < t->count && t->segments[i].begin_ns < at_ns)
        mj += t->segments[i].net_mw * sim_seconds(at_ns - t->segments[i].begin_ns);
    return mj;
}

static double sim_energy_between(const truth *t, int64_t begin_ns, int64_t end_ns)
{
    double idle = t->spec->idle_mw * sim_seconds(end_ns - begin_ns);
    return t->share * (idle + net_until(t, end_ns) - net_until(t, begin_ns));
}

static double power_at(const truth *t, int64_t at_ns)
{
    size_t i = segment_at(t, at_ns);
    double net = i < t->count && t->segments[i].begin_ns <= at_ns ? t->segments[i].net_mw : 0;
    return t->share * (t->spec->idle_mw + net);
}

static pj_status truth_init(truth *t, const pj_sim_spec *spec, uint32_t rail,
                            const pj_sim_segment *segments, size_t count, pj_error *err)
{
    *t = (truth){spec, segments, count, NULL, spec->rails[rail].share};
    t->before_mj = pj_alloc(count + 1, sizeof *t->before_mj);
    if (!t->before_mj) return pj_fail_memory(err, "simulated sensors");
    for (size_t i = 0; i < count; i++)
        t->before_mj[i + 1] =
            t->before_mj[i] +
            segments[i].net_mw * sim_seconds(segments[i].end_ns - segments[i].begin_ns);
    return PJ_OK;
}

double pj_sim_truth_mj(const pj_sim_spec *spec, uint32_t rail, const pj_sim_segment *segments,
                       size_t count, int64_t begin_ns, int64_t end_ns)
{
    truth t = {spec, segments, count, NULL, 1};
    double net = 0;
    for (size_t i = segment_at(&t, begin_ns); i < count && segments[i].begin_ns < end_ns; i++) {
        const pj_sim_segment *g = &segments[i];
        net += g->net_mw * sim_seconds(pj_overlap_ns(g->begin_ns, g->end_ns, begin_ns, end_ns));
    }
    return spec->rails[rail].share * (spec->idle_mw * sim_seconds(end_ns - begin_ns) + net);
}

/* ---- a sensor at work ---- */

typedef struct sensor {
    truth truth;
    pj_random random;
    pj_filter filter;
    double charge_mw; /* state of a lagging sensor at lag_at_ns */
    int64_t lag_at_ns;
    double counter_mj;
    int64_t counted_ns; /* the counter includes the truth up to here */
    double shown;       /* last raw value */
    bool any_shown, was_reset, has_jumped;
    pj_buffer readings;
} sensor;

/* First-order lag over piecewise constant power: exact between segment edges. */
static double lagged_at(sensor *s, int64_t at_ns)
{
    double lag = sim_seconds(s->truth.spec->lag_ns);
    while (s->lag_at_ns < at_ns) {
        size_t i = segment_at(&s->truth, s->lag_at_ns);
        int64_t until = at_ns;
        if (i < s->truth.count) {
            const pj_sim_segment *g = &s->truth.segments[i];
            int64_t edge = g->begin_ns > s->lag_at_ns ? g->begin_ns : g->end_ns;
            until = edge < until ? edge : until;
        }
        double target = power_at(&s->truth, s->lag_at_ns);
        double left = exp(-sim_seconds(until - s->lag_at_ns) / lag);
        s->charge_mw = target + (s->charge_mw - target) * left;
        s->lag_at_ns = until;
    }
    return s->charge_mw;
}

static double window_power(sensor *s, int64_t end_ns)
{
    const pj_sim_spec *spec = s->truth.spec;
    if (spec->lag_ns > 0) return lagged_at(s, end_ns);
    int64_t window = spec->window_ns > 0 ? spec->window_ns : spec->period_ns;
    return sim_energy_between(&s->truth, end_ns - window, end_ns) / sim_seconds(window);
}

static double sim_noisy(sensor *s)
{
    double noise = s->truth.spec->noise;
    double factor = noise > 0 ? 1 + noise * pj_random_normal(&s->random) : 1;
    return factor > 0 ? factor * s->truth.spec->gain : 0;
}

static double counter_value(sensor *s, int64_t end_ns)
{
    const pj_sim_spec *spec = s->truth.spec;
    double step = spec->counter_sees_window
                      ? window_power(s, end_ns) * sim_seconds(end_ns - s->counted_ns)
                      : sim_energy_between(&s->truth, s->counted_ns, end_ns);
    step = step * sim_noisy(s) + spec->offset_mw * sim_seconds(end_ns - s->counted_ns);
    s->counter_mj += step > 0 ? step : 0;
    s->counted_ns = end_ns;
    double mj = s->counter_mj;
    if (spec->resolution > 0) mj = floor(mj / spec->resolution) * spec->resolution;
    if (spec->modulus_mj > 0) mj = fmod(mj, spec->modulus_mj);
    return mj * 1e3;
}

static double sim_power_value(sensor *s, int64_t end_ns)
{
    const pj_sim_spec *spec = s->truth.spec;
    double mw = window_power(s, end_ns) * sim_noisy(s) + spec->offset_mw;
    if (spec->resolution > 0) mw = round(mw / spec->resolution) * spec->resolution;
    return mw > 0 ? mw : 0;
}

/* One tick, `since_begin` after the begin of the run. */
static pj_status sim_tick(sensor *s, uint16_t rail, int64_t at_ns, int64_t since_begin,
                          pj_error *err)
{
    const pj_sim_spec *spec = s->truth.spec;
    pj_reading r = {.before_ns = at_ns, .after_ns = at_ns, .fresh_ns = at_ns, .rail = rail};
    if (spec->reports_window) r.window_ns = spec->window_ns;
    bool frozen = spec->freeze_begin_ns >= 0 && since_begin >= spec->freeze_begin_ns &&
                  since_begin < spec->freeze_end_ns;
    bool stays = frozen || (spec->duplicate > 0 && pj_random_unit(&s->random) < spec->duplicate);
    bool drops = spec->dropout > 0 && pj_random_unit(&s->random) < spec->dropout;
    if (spec->reset_ns >= 0 && since_begin >= spec->reset_ns && !s->was_reset) {
        s->was_reset = true;
        s->counter_mj = 0;
    }
    double value = spec->kind == PJ_RAIL_COUNTER ? counter_value(s, at_ns - spec->delay_ns)
                                                 : sim_power_value(s, at_ns - spec->delay_ns);
    if (stays && s->any_shown) {
        value = s->shown;
        r.fresh_ns = 0;
    } else if (spec->jump_ns >= 0 && since_begin >= spec->jump_ns && !s->has_jumped) {
        s->has_jumped = true;
        value += spec->jump_mw *
                 (spec->kind == PJ_RAIL_COUNTER ? sim_seconds(spec->period_ns) * 1e3 : 1);
    }
    s->shown = value;
    s->any_shown = true;
    r.value = value;
    if (drops) {
        r.status = PJ_READING_GAP;
        r.reason = PJ_REASON_UNSUPPORTED;
        r.fresh_ns = 0;
    }
    if (pj_filter_take(&s->filter, &r) && !pj_buffer_append(&s->readings, &r, sizeof r))
        return pj_fail_memory(err, "simulated readings");
    return PJ_OK;
}

/* A log is a sensor of power of its own: what is said of noise and faults is the counter's. */
static void sim_become_log(pj_sim_spec *spec)
{
    pj_random random = {spec->seed ^ 0x6c6f67};
    spec->kind = PJ_RAIL_INSTANT;
    spec->period_ns = spec->log_ns;
    for (uint32_t i = 0; i < spec->rail_count; i++)
        spec->rails[i].phase_ns = (int64_t)(pj_random_unit(&random) * (double)spec->log_ns);
    spec->window_ns = spec->log_window_ns;
    spec->delay_ns = spec->log_delay_ns;
    spec->lag_ns = 0;
    spec->jitter = spec->log_jitter;
    spec->gain *= spec->log_gain;
    spec->noise = spec->log_noise;
    spec->resolution = 1;
    spec->reset_ns = spec->jump_ns = spec->freeze_begin_ns = spec->freeze_end_ns = -1;
    spec->dropout = spec->duplicate = 0;
}

/* Reads a rail whose own settings are `spec`, from `lead_ns` before the run on. */
static pj_status sim_run_sensor(sensor *s, const pj_sim_spec *spec, uint32_t rail, int64_t begin_ns,
                                int64_t lead_ns, int64_t last_ns, pj_error *err)
{
    pj_status status = PJ_OK;
    int64_t first = begin_ns + spec->rails[rail].phase_ns % spec->period_ns -
                    lead_ns / spec->period_ns * spec->period_ns;
    s->counted_ns = first - spec->delay_ns - spec->period_ns;
    s->lag_at_ns = s->counted_ns;
    s->charge_mw = spec->rails[rail].share * spec->idle_mw;
    for (int64_t at = first; at < last_ns && status == PJ_OK; at += spec->period_ns) {
        double swing = spec->jitter > 0 ? spec->jitter * (2 * pj_random_unit(&s->random) - 1) : 0;
        int64_t jittered = at + (int64_t)(swing * (double)spec->period_ns);
        status = sim_tick(s, (uint16_t)rail, jittered, jittered - begin_ns, err);
    }
    return status;
}

pj_status pj_sim_read(const pj_sim_spec *spec, uint32_t rail, const pj_sim_segment *segments,
                      size_t count, int64_t begin_ns, int64_t end_ns, pj_reading **readings,
                      size_t *reading_count, pj_error *err)
{
    pj_rail rails[PJ_SIM_MAX_RAILS];
    sensor s = {.random = {spec->seed * 0x100000001b3u + rail}, .counter_mj = spec->start_mj};
    *readings = NULL;
    *reading_count = 0;
    if (rail >= pj_sim_rails(spec, rails, PJ_SIM_MAX_RAILS))
        return pj_fail(err, PJ_E_INVALID, "sim: rail %u does not exist", rail);
    pj_filter_init(&s.filter, &rails[rail]);
    pj_buffer_init(&s.readings, SIZE_MAX / 2);
    pj_sim_spec own = *spec;
    if (spec->rails[rail].is_log) sim_become_log(&own);
    pj_status status = truth_init(&s.truth, &own, rail, segments, count, err);
    int64_t lead = 2 * spec->period_ns + spec->window_ns; /* a log's as well: it explains steps */
    int64_t last = end_ns + spec->delay_ns + spec->window_ns + 2 * spec->period_ns;
    if (status == PJ_OK) status = sim_run_sensor(&s, &own, rail, begin_ns, lead, last, err);
    pj_free(s.truth.before_mj);
    if (status == PJ_OK && s.readings.length > 0) {
        *reading_count = s.readings.length / sizeof **readings;
        *readings = (pj_reading *)(void *)pj_buffer_take(&s.readings);
    }
    pj_buffer_fini(&s.readings);
    return status;
}
