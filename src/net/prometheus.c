/* The Prometheus exposition: base units (joules, watts, seconds), `_total` on counters, and labels
 * of low cardinality only (rails, phases, statuses). Every series exists from the first scrape to
 * the last, counters from 0, because Prometheus sees no increase in a series that first appears
 * with its full value. A rail that cannot be read has power NaN; 0 W would be wrong.
 */
#include "net/prometheus.h"

#include "base/decimal.h"
#include "trace/summary.h"

#include <math.h>

void pj_prometheus_head(pj_buffer *out, const char *name, const char *type, const char *help)
{
    pj_buffer_printf(out, "# HELP perjoule_%s %s\n# TYPE perjoule_%s %s\n", name, help, name, type);
}

void pj_prometheus_value(pj_buffer *out, double number)
{
    char text[PJ_DECIMAL_BYTES];
    if (isnan(number)) {
        pj_buffer_text(out, " NaN\n");
        return;
    }
    size_t length = pj_decimal_double(number, text);
    pj_buffer_char(out, ' ');
    pj_buffer_append(out, text, length);
    pj_buffer_char(out, '\n');
}

static void single(pj_buffer *out, const char *name, const char *type, const char *help,
                   double number)
{
    pj_prometheus_head(out, name, type, help);
    pj_buffer_printf(out, "perjoule_%s", name);
    pj_prometheus_value(out, number);
}

/* Rail names come from sensors: quotes and backslashes must be escaped in the label. */
void pj_prometheus_label(pj_buffer *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') pj_buffer_char(out, '\\');
        pj_buffer_char(out, *p == '\n' ? ' ' : *p);
    }
}

/* A rail's labels are constant for the server's lifetime. */
static void rail_line(pj_buffer *out, const char *name, const pj_metric_rail *rail,
                      const char *phase, double number)
{
    pj_buffer_printf(out, "perjoule_%s{rail=\"", name);
    pj_prometheus_label(out, rail->rail);
    pj_buffer_text(out, "\",source=\"");
    pj_prometheus_label(out, rail->source);
    if (phase)
        pj_buffer_printf(out, "\",phase=\"%s", phase);
    else
        pj_buffer_printf(out, "\",class=\"%s", rail->class_name);
    pj_buffer_printf(out, "\",quality=\"%s\"}", rail->modelled ? "modelled" : "measured");
    pj_prometheus_value(out, number);
}

static void rail_power(const pj_metrics *m, pj_buffer *out)
{
    pj_prometheus_head(out, "rail_power_watts", "gauge",
                       "Mean power of a rail over the last seconds, NaN while it cannot be read.");
    for (uint32_t i = 0; i < m->rail_count; i++)
        rail_line(out, "rail_power_watts", &m->rails[i], NULL, m->rails[i].power_mw / 1e3);
}

static void rail_joules(const pj_metrics *m, pj_buffer *out)
{
    pj_prometheus_head(
        out, "rail_joules_total", "counter",
        "Energy that a rail has drawn since the server started, with or without a run.");
    for (uint32_t i = 0; i < m->rail_count; i++)
        rail_line(out, "rail_joules_total", &m->rails[i], NULL, m->rails[i].drawn_mj / 1e3);
}

static void prometheus_rail_energy(const pj_metrics *m, pj_buffer *out)
{
    pj_prometheus_head(out, "energy_joules_total", "counter",
                       "Energy of the runs of this process, idle power included.");
    for (uint32_t i = 0; i < m->rail_count; i++)
        for (int phase = 0; phase < PJ_PHASE_COUNT; phase++)
            rail_line(out, "energy_joules_total", &m->rails[i], pj_phase_name((pj_phase)phase),
                      m->rails[i].energy_mj[phase] / 1e3);
}

static void prometheus_work(const pj_metrics *m, pj_buffer *out)
{
    pj_prometheus_head(out, "tokens_total", "counter", "Tokens of this process's runs.");
    pj_buffer_printf(out, "perjoule_tokens_total{kind=\"input\"} %llu\n",
                     (unsigned long long)m->input_tokens);
    pj_buffer_printf(out, "perjoule_tokens_total{kind=\"output\"} %llu\n",
                     (unsigned long long)m->output_tokens);
    pj_prometheus_head(out, "runs_total", "counter", "Runs of this process that have ended.");
    for (int i = 1; i < PJ_METRIC_STATUSES; i++)
        pj_buffer_printf(out, "perjoule_runs_total{status=\"%s\"} %llu\n",
                         pj_run_status_name((pj_run_status)i), (unsigned long long)m->runs[i]);
    single(out, "run_seconds_total", "counter", "Time spent in runs.", m->run_seconds);
    single(out, "queue_length", "gauge", "Queued runs.", m->queued);
    single(out, "queue_limit", "gauge", "Maximum number of queued runs.", m->queue_limit);
    single(out, "runs_waiting", "gauge", "Runs not yet transferred to the database server.",
           (double)m->waiting);
    single(out, "run_active", "gauge", "1 while a run is in progress.", m->running[0] != 0);
}

static void sampler(const pj_metrics *m, pj_buffer *out)
{
    single(out, "sampler_ticks_total", "counter", "Number of sensor polls.",
           (double)m->sampler_ticks);
    single(out, "sampler_missed_ticks_total", "counter",
           "Polls skipped because an earlier one took too long.", (double)m->sampler_missed);
    single(out, "sampler_readings_total", "counter", "Readings taken from sensors.",
           (double)m->sampler_readings);
    single(out, "sampler_lost_readings_total", "counter",
           "Readings lost because a buffer was full.", (double)m->sampler_lost);
    single(out, "sampler_cpu_ratio", "gauge", "CPU time of the sampler per second.",
           m->sampler_cpu_share);
    single(out, "sampler_jitter_seconds", "gauge", "Median lateness of a poll.",
           m->sampler_jitter_seconds);
}

static void hub_figures(const pj_hub *hub, pj_buffer *out)
{
    pj_hub_stats stats;
    pj_hub_get_stats(hub, &stats);
    single(out, "live_readers", "gauge", "WebSocket readers.", stats.readers);
    single(out, "live_messages_total", "counter", "Live messages published.",
           (double)stats.published);
    single(out, "live_messages_sent_total", "counter", "Live messages sent, over all readers.",
           (double)stats.sent);
    single(out, "live_messages_skipped_total", "counter", "Live messages skipped for slow readers.",
           (double)stats.skipped);
    single(out, "live_readers_dropped_total", "counter",
           "Readers disconnected because they did not read.", (double)stats.dropped);
}

void pj_prometheus_write(const pj_metrics *m, const pj_hub *hub, pj_buffer *out)
{
    pj_prometheus_head(out, "build_info", "gauge", "Version of the server.");
    pj_buffer_printf(out, "perjoule_build_info{version=\"%s\"} 1\n", pj_version());
    rail_power(m, out);
    rail_joules(m, out);
    prometheus_rail_energy(m, out);
    prometheus_work(m, out);
    sampler(m, out);
    hub_figures(hub, out);
}
