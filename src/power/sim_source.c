/* The source "sim" during a run. The truth is known only after the run, so these readings are
 * provisional: idle power plus the activity announced by the profiler. They have the period,
 * window, delay, noise and quantisation of the specification, so that a dashboard behaves as with
 * such a sensor. */
#include "power/sim_source.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/thread.h"
#include "power/source.h"

#include <math.h>

enum { LOADS = 64 };

/* Power above idle from a time on. */
typedef struct load {
    int64_t from_ns;
    double mw;
} load;

typedef struct sim_state {
    pj_sim_spec spec;
    pthread_mutex_t mutex; /* guards the loads: the last ones, in a circle */
    load loads[LOADS];
    uint32_t load_count;
    int64_t next_ns;     /* tick that is due; 0: not started */
    int64_t next_log_ns; /* the same of logs */
    double counter_uj[PJ_SIM_MAX_RAILS];
    pj_random random;
} sim_state;

static const int64_t LONGEST_BACKLOG_NS = PJ_NS_PER_S;

const pj_sim_spec *pj_sim_source_spec(const void *state)
{
    return &((const sim_state *)state)->spec;
}

void pj_sim_source_set_activity(void *state, double net_mw)
{
    sim_state *s = state;
    pthread_mutex_lock(&s->mutex);
    double last_mw = s->load_count ? s->loads[(s->load_count - 1) % LOADS].mw : 0;
    if (net_mw != last_mw) s->loads[s->load_count++ % LOADS] = (load){pj_clock_ns(), net_mw};
    pthread_mutex_unlock(&s->mutex);
}

/* How much of what is shown at the end of a window, or at a time by a lagging sensor, is of the
 * time from `from_ns` to `until_ns`. */
static double weight_of(int64_t from_ns, int64_t until_ns, int64_t end_ns, int64_t window_ns,
                        int64_t lag_ns)
{
    if (lag_ns == 0) return (double)(until_ns - from_ns) / (double)window_ns;
    return exp((double)(until_ns - end_ns) / (double)lag_ns) -
           exp((double)(from_ns - end_ns) / (double)lag_ns);
}

/* Load as it is shown at `end_ns`; before the first one that is kept there was none. */
static double shown_load_mw(sim_state *s, int64_t end_ns, int64_t window_ns, int64_t lag_ns)
{
    double mw = 0;
    int64_t begin_ns = lag_ns > 0 ? INT64_MIN : end_ns - window_ns, until_ns = end_ns;
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < LOADS && i < s->load_count && until_ns > begin_ns; i++) {
        const load *one = &s->loads[(s->load_count - 1 - i) % LOADS];
        int64_t from_ns = one->from_ns > begin_ns ? one->from_ns : begin_ns;
        if (from_ns >= until_ns) continue;
        mw += one->mw * weight_of(from_ns, until_ns, end_ns, window_ns, lag_ns);
        until_ns = from_ns;
    }
    pthread_mutex_unlock(&s->mutex);
    return mw;
}

static void sim_describe(const pj_power_env *env, pj_source_report *report)
{
    pj_source_explain(report, PJ_OK, "--power sim", "simulated sensors, used only on request");
}

static pj_status sim_open(void *state, const pj_power_env *env, const char *argument,
                          pj_source_report *report)
{
    sim_state *s = state;
    pj_error err;
    pj_status status = pj_sim_parse(argument, &s->spec, &err);
    if (status != PJ_OK) return pj_source_explain(report, status, "", "%s", err.text);
    s->random.state = s->spec.seed;
    pthread_mutex_init(&s->mutex, NULL);
    for (uint32_t i = 0; i < s->spec.rail_count; i++) s->counter_uj[i] = s->spec.start_mj * 1e3;
    return PJ_OK;
}

static uint32_t sim_rails(const void *state, pj_rail *rails)
{
    return pj_sim_rails(pj_sim_source_spec(state), rails, PJ_MAX_RAILS);
}

static double stepped(double value, double step)
{
    return step > 0 ? floor(value / step) * step : value;
}

/* What a sensor sees over a window that ends at `end_ns`, or with a lag until then. */
static double power_of(sim_state *s, uint32_t rail, int64_t end_ns, int64_t window_ns,
                       int64_t lag_ns, double noise)
{
    const pj_sim_spec *spec = &s->spec;
    double net = shown_load_mw(s, end_ns, window_ns, lag_ns);
    double mw = spec->rails[rail].share * (spec->idle_mw + net) * spec->gain * (1 + noise);
    return mw + spec->offset_mw > 0 ? mw + spec->offset_mw : 0;
}

static double sim_source_value_of(sim_state *s, uint32_t rail)
{
    const pj_sim_spec *spec = &s->spec;
    bool counts = spec->kind == PJ_RAIL_COUNTER || spec->window_ns <= 0;
    double mw =
        power_of(s, rail, s->next_ns - spec->delay_ns, counts ? spec->period_ns : spec->window_ns,
                 spec->kind == PJ_RAIL_COUNTER ? 0 : spec->lag_ns,
                 spec->noise * pj_random_normal(&s->random));
    if (spec->kind != PJ_RAIL_COUNTER) return stepped(mw, spec->resolution);
    s->counter_uj[rail] += mw * (double)spec->period_ns * 1e-6;
    double uj = stepped(s->counter_uj[rail], spec->resolution * 1e3);
    return spec->modulus_mj > 0 ? fmod(uj, spec->modulus_mj * 1e3) : uj;
}

/* Missed readings are not caught up, but a counter keeps counting. */
static void skip_until(sim_state *s, int64_t now)
{
    for (uint32_t i = 0; i < s->spec.rail_count; i++)
        s->counter_uj[i] += power_of(s, i, now - s->spec.delay_ns, now - s->next_ns, 0, 0) *
                            (double)(now - s->next_ns) * 1e-6;
    s->next_ns = s->next_log_ns = now;
}

static uint32_t count_counters(const pj_sim_spec *spec)
{
    uint32_t count = 0;
    while (count < spec->rail_count && !spec->rails[count].is_log) count++;
    return count;
}

static pj_reading sim_source_reading(uint32_t rail, int64_t at_ns, double value)
{
    return (pj_reading){.before_ns = at_ns,
                        .after_ns = at_ns,
                        .fresh_ns = at_ns,
                        .value = value,
                        .rail = (uint16_t)rail};
}

/* Logs come before the counters whose steps they explain. */
static uint32_t read_logs(sim_state *s, int64_t now, uint32_t first, pj_reading *readings,
                          uint32_t max)
{
    const pj_sim_spec *spec = &s->spec;
    uint32_t count = 0, logs = spec->rail_count - first;
    for (; logs > 0 && s->next_log_ns <= now && count + logs <= max; s->next_log_ns += spec->log_ns)
        for (uint32_t i = first; i < spec->rail_count; i++) {
            double noise = spec->log_noise * pj_random_normal(&s->random);
            int64_t end_ns = s->next_log_ns - spec->log_delay_ns;
            int64_t window_ns = spec->log_window_ns > 0 ? spec->log_window_ns : spec->log_ns;
            double mw = spec->log_gain * power_of(s, i, end_ns, window_ns, 0, noise);
            readings[count++] = sim_source_reading(i, s->next_log_ns, stepped(mw, 1));
        }
    return count;
}

static pj_status sim_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    sim_state *s = state;
    int64_t now = pj_clock_ns();
    uint32_t counters = count_counters(&s->spec);
    if (s->next_ns == 0) s->next_ns = s->next_log_ns = now;
    if (now - s->next_ns > LONGEST_BACKLOG_NS) skip_until(s, now);
    *count = read_logs(s, now, counters, readings, max);
    for (; s->next_ns <= now && *count + counters <= max; s->next_ns += s->spec.period_ns)
        for (uint32_t i = 0; i < counters; i++)
            readings[(*count)++] = sim_source_reading(i, s->next_ns, sim_source_value_of(s, i));
    return PJ_OK;
}

const pj_power_source pj_source_sim = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "sim",
    .flags = PJ_SOURCE_STREAM | PJ_SOURCE_BY_NAME,
    .state_bytes = sizeof(sim_state),
    .open = sim_open,
    .describe = sim_describe,
    .rails = sim_rails,
    .read = sim_read,
};
