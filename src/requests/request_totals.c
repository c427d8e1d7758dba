#include "requests/request_totals.h"

#include "base/memory.h"
#include "net/prometheus.h"
#include "trace/summary.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PAIRS = 128 };

typedef struct pair_totals {
    char model[128], client[PJ_EXCHANGE_CLIENT_MAX_BYTES + 1];
    uint64_t ended[PJ_METRIC_STATUSES]; /* by pj_run_status */
    uint64_t input_tokens, cached_tokens, output_tokens, unmeasured;
    double joules[2], seconds; /* measured, modelled */
} pair_totals;

struct pj_request_totals {
    pthread_mutex_t mutex;
    pair_totals pairs[PAIRS + 1]; /* the last one is for others */
    uint32_t count;
    uint32_t in_flight;
};

pj_request_totals *pj_request_totals_new(void)
{
    pj_request_totals *t = pj_alloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->mutex, NULL);
    snprintf(t->pairs[PAIRS].model, sizeof t->pairs[PAIRS].model, "other");
    snprintf(t->pairs[PAIRS].client, sizeof t->pairs[PAIRS].client, "other");
    return t;
}

void pj_request_totals_free(pj_request_totals *t)
{
    if (!t) return;
    pthread_mutex_destroy(&t->mutex);
    pj_free(t);
}

void pj_request_totals_begin(pj_request_totals *t)
{
    pthread_mutex_lock(&t->mutex);
    t->in_flight++;
    pthread_mutex_unlock(&t->mutex);
}

void pj_request_totals_end(pj_request_totals *t)
{
    pthread_mutex_lock(&t->mutex);
    t->in_flight--;
    pthread_mutex_unlock(&t->mutex);
}

static pair_totals *find_pair(pj_request_totals *t, const char *model, const char *client)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (strcmp(t->pairs[i].model, model) == 0 && strcmp(t->pairs[i].client, client) == 0)
            return &t->pairs[i];
    if (t->count == PAIRS) return &t->pairs[PAIRS];
    pair_totals *p = &t->pairs[t->count++];
    snprintf(p->model, sizeof p->model, "%s", model);
    snprintf(p->client, sizeof p->client, "%s", client);
    return p;
}

static pj_run_status status_of(const pj_exchange *x)
{
    return x->outcome == PJ_EXCHANGE_COMPLETED   ? PJ_RUN_COMPLETED
           : x->outcome == PJ_EXCHANGE_CANCELLED ? PJ_RUN_CANCELLED
                                                 : PJ_RUN_FAILED;
}

void pj_request_totals_add(pj_request_totals *t, const pj_exchange *x, const pj_run_data *data)
{
    const pj_run_info *info = data ? &data->info : NULL;
    const char *model = info && info->model_name ? info->model_name : x->asked.model;
    char name[sizeof t->pairs[0].model];
    snprintf(name, sizeof name, "%s", model); /* as long as it is kept */
    pthread_mutex_lock(&t->mutex);
    pair_totals *p = find_pair(t, name, x->asked.client);
    p->ended[info ? info->status : status_of(x)]++;
    if (info) {
        p->input_tokens += info->input_tokens;
        p->output_tokens += info->output_tokens;
        if (info->cached_tokens > 0) p->cached_tokens += (uint64_t)info->cached_tokens;
        if (info->total_ms > 0) p->seconds += info->total_ms / 1e3;
    }
    if (info && !isnan(info->total_mj))
        p->joules[info->quality == PJ_MODELLED] += info->total_mj / 1e3;
    else
        p->unmeasured++;
    pthread_mutex_unlock(&t->mutex);
}

/* ---- the exposition ---- */

static bool is_used(const pj_request_totals *t, uint32_t i)
{
    return i < t->count ||
           (i == PAIRS && t->pairs[i].ended[PJ_RUN_COMPLETED] + t->pairs[i].ended[PJ_RUN_FAILED] +
                                  t->pairs[i].ended[PJ_RUN_CANCELLED] >
                              0);
}

static void line(const char *name, const pair_totals *p, const char *key, const char *word,
                 double number, pj_buffer *out)
{
    pj_buffer_printf(out, "perjoule_%s{model=\"", name);
    pj_prometheus_label(out, p->model);
    pj_buffer_text(out, "\",client=\"");
    pj_prometheus_label(out, p->client);
    if (key) pj_buffer_printf(out, "\",%s=\"%s", key, word);
    pj_buffer_text(out, "\"}");
    pj_prometheus_value(out, number);
}

static void write_requests(const pair_totals *p, pj_buffer *out)
{
    static const pj_run_status statuses[] = {PJ_RUN_COMPLETED, PJ_RUN_FAILED, PJ_RUN_CANCELLED};
    for (int i = 0; i < 3; i++)
        line("requests_total", p, "status", pj_run_status_name(statuses[i]),
             (double)p->ended[statuses[i]], out);
}

static void write_tokens(const pair_totals *p, pj_buffer *out)
{
    line("request_tokens_total", p, "kind", "input", (double)p->input_tokens, out);
    line("request_tokens_total", p, "kind", "cached", (double)p->cached_tokens, out);
    line("request_tokens_total", p, "kind", "output", (double)p->output_tokens, out);
}

static void write_joules(const pair_totals *p, pj_buffer *out)
{
    line("request_joules_total", p, "quality", "measured", p->joules[0], out);
    line("request_joules_total", p, "quality", "modelled", p->joules[1], out);
}

static void write_seconds(const pair_totals *p, pj_buffer *out)
{
    line("request_seconds_total", p, NULL, NULL, p->seconds, out);
}

static void write_unmeasured(const pair_totals *p, pj_buffer *out)
{
    line("requests_without_energy_total", p, NULL, NULL, (double)p->unmeasured, out);
}

static void write_family(const pj_request_totals *t, const char *name, const char *help,
                         void (*write)(const pair_totals *p, pj_buffer *out), pj_buffer *out)
{
    pj_prometheus_head(out, name, "counter", help);
    for (uint32_t i = 0; i <= PAIRS; i++)
        if (is_used(t, i)) write(&t->pairs[i], out);
}

void pj_request_totals_write(pj_request_totals *t, double machine_mj, pj_buffer *out)
{
    pthread_mutex_lock(&t->mutex);
    pj_prometheus_head(out, "build_info", "gauge", "Version of the proxy.");
    pj_buffer_printf(out, "perjoule_build_info{version=\"%s\"} 1\n", pj_version());
    write_family(t, "requests_total", "Requests that have ended.", write_requests, out);
    write_family(t, "request_tokens_total",
                 "Tokens of requests; cached ones are among the input tokens.", write_tokens, out);
    write_family(t, "request_joules_total",
                 "Energy of requests, idle power included; shared by rule while several are in "
                 "flight.",
                 write_joules, out);
    write_family(t, "requests_without_energy_total", "Ended requests whose energy is unknown.",
                 write_unmeasured, out);
    write_family(t, "request_seconds_total", "Time from sending a request to its last byte.",
                 write_seconds, out);
    pj_prometheus_head(out, "requests_in_flight", "gauge", "Requests without a complete answer.");
    pj_buffer_printf(out, "perjoule_requests_in_flight %u\n", t->in_flight);
    pj_prometheus_head(out, "requests_machine_joules_total", "counter",
                       "Energy of the machine while any request was in flight.");
    pj_buffer_text(out, "perjoule_requests_machine_joules_total");
    pj_prometheus_value(out, machine_mj / 1e3);
    pthread_mutex_unlock(&t->mutex);
}

void pj_request_totals_metrics(pj_request_totals *t, pj_metrics *metrics)
{
    *metrics = (pj_metrics){.sampler_cpu_share = NAN, .sampler_jitter_seconds = NAN};
    pthread_mutex_lock(&t->mutex);
    for (uint32_t i = 0; i <= PAIRS; i++) {
        const pair_totals *p = &t->pairs[i];
        metrics->input_tokens += p->input_tokens;
        metrics->output_tokens += p->output_tokens;
        metrics->run_seconds += p->seconds;
        for (int s = 0; s < PJ_METRIC_STATUSES; s++) metrics->runs[s] += p->ended[s];
    }
    pthread_mutex_unlock(&t->mutex);
}
