/* `perjoule attach --listen`: the proxy, its requests, and who may use it. */
#include "cli/attach_client.h"

#include "attach/proxy.h"
#include "base/file.h"
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "net/gate.h"
#include "requests/request_totals.h"
#include "requests/requests.h"
#include "serve/otlp.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { PROXY_TOKEN_MIN_BYTES = 16 /* off loopback */ };

typedef struct proxying {
    const pj_attach_args *args;
    const pj_command *command;
    pj_remote_server server;
    pj_url address; /* the listening URL */
    int listener;
    pj_gate gate;
    pj_session *session;
    pj_requests *requests;
    pj_request_totals *totals;
    pj_energy_fields fields; /* of every answer */
    pj_service service;      /* gives telemetry its metrics */
    pj_otlp *otlp;           /* NULL: no telemetry is sent */
    uint32_t count, failed, unstored;
    char partial[256]; /* rails missing from the totals, in words */
} proxying;

/* ---- access control ---- */

static int admit(void *context, const char *host, const char *origin, const char *authorization,
                 const char *token, const char **detail)
{
    const proxying *x = context;
    if (!host || !pj_gate_host(&x->gate, host)) {
        *detail = "the Host header does not name the proxy (--allow-host allows another name)";
        return 421;
    }
    if (origin && !pj_gate_origin(&x->gate, origin, host)) {
        *detail = "pages of other sites may not use the proxy";
        return 403;
    }
    if (!pj_gate_token(&x->gate, authorization, NULL) && !pj_gate_token(&x->gate, NULL, token)) {
        *detail = "the proxy's token is missing: send X-Perjoule-Token";
        return 401;
    }
    return 0;
}

static bool is_own_token(void *context, const char *authorization)
{
    const proxying *x = context;
    return x->gate.token && pj_gate_token(&x->gate, authorization, NULL);
}

/* ---- requests ---- */

static void *proxy_begin_request(void *context, pj_exchange *exchange)
{
    proxying *x = context;
    pj_request *request = pj_request_begin(x->requests, exchange, NULL);
    if (request) pj_request_totals_begin(x->totals);
    return request;
}

static void progress(void *context, void *request)
{
    (void)context;
    pj_request_progress(request);
}

static void proxy_end_request(void *context, void *request, pj_exchange *exchange)
{
    const proxying *x = context;
    if (!request) {
        pj_exchange_free(exchange);
        return;
    }
    pj_request_totals_end(x->totals);
    pj_request_end(request, true);
}

static void release(void *context, void *request)
{
    (void)context;
    pj_request_release(request);
}

static const char *id(void *context, void *request)
{
    (void)context;
    return pj_request_id(request);
}

static pj_proxy_energy energy(void *context, void *request, int64_t now_ns)
{
    const proxying *x = context;
    pj_ledger_figure f = pj_request_energy(request, now_ns);
    bool known = !isnan(f.total_mj);
    pj_bounds bounds = pj_bounds_of(f.total_mj, PJ_Z95 * f.sd_mj);
    return (pj_proxy_energy){
        .total = f.total_mj / 1e3,
        .input = f.input_mj / 1e3,
        .output = f.output_mj / 1e3,
        .lo = bounds.lo / 1e3,
        .hi = bounds.hi / 1e3,
        .source = pj_quality_name(known ? pj_requests_quality(x->requests) : PJ_UNAVAILABLE),
        .method = !known     ? NULL
                  : f.shared ? "allocated"
                             : "integrate",
        .provisional = f.provisional};
}

static void metrics(void *context, pj_buffer *out)
{
    const proxying *x = context;
    int64_t unknown_ns;
    double mj = pj_requests_divided_mj(x->requests, &unknown_ns);
    pj_request_totals_write(x->totals, unknown_ns && !(mj > 0) ? NAN : mj, out);
}

static void telemetry_metrics(void *context, pj_metrics *out)
{
    const proxying *x = context;
    pj_request_totals_metrics(x->totals, out);
}

static void proxy_say(const char *text)
{
    pj_say("perjoule attach: %s", text);
}

static void send_span(const proxying *x, const pj_run_data *data)
{
    const pj_live_sink *sink = x->otlp ? pj_otlp_sink(x->otlp) : NULL;
    const pj_live_end end = {.status = data->info.status, .data = data};
    if (sink) sink->run_end(sink->context, data->info.id, &end);
}

/* On the storing thread: one line per request. */
static void proxy_request_done(void *context, void *user, const pj_exchange *exchange,
                               const pj_run_data *data, const pj_error *err)
{
    proxying *x = context;
    char input[24] = "-", output[24] = "-";
    (void)user;
    x->count++;
    x->failed += exchange->outcome != PJ_EXCHANGE_COMPLETED;
    if (err->status != PJ_OK) {
        x->unstored++;
        pj_say("perjoule attach: %s", err->text);
    }
    pj_request_totals_add(x->totals, exchange, data);
    if (!data) return;
    send_span(x, data);
    const pj_run_info *info = &data->info;
    bool known = !isnan(info->total_mj);
    if (known && info->partial_rails)
        pj_partial_text(info->total_rails, info->partial_rails, x->partial, sizeof x->partial);
    if (x->args->json) return;
    if (info->input_tokens)
        snprintf(input, sizeof input, "%llu", (unsigned long long)info->input_tokens);
    if (info->output_tokens || !pj_exchange_count(exchange).approximate)
        snprintf(output, sizeof output, "%llu", (unsigned long long)info->output_tokens);
    pj_print(stdout, "%.18s  %-9s %5s in %5s out %9s %10s%s%s\n", info->id,
             pj_run_status_name(info->status), input, output, pj_time_text(info->total_ms).s,
             pj_energy_text(info->total_mj).s,
             known && info->quality == PJ_MODELLED ? " modelled" : "",
             known && info->partial_rails ? " partial" : "");
    fflush(stdout);
}

/* ---- opening and closing ---- */

static pj_status open_gate(proxying *x, pj_error *err)
{
    const pj_attach_args *a = x->args;
    pj_status status = pj_url_parse_listen(a->listen, &x->address, err);
    if (status != PJ_OK) return status;
    x->gate = (pj_gate){.loopback = pj_host_is_loopback(x->address.host),
                        .host = x->address.host,
                        .token = a->token,
                        .extra_hosts = a->hosts.count ? a->hosts.items : NULL};
    if (!x->gate.loopback && a->token && strlen(a->token) < PROXY_TOKEN_MIN_BYTES)
        return pj_fail(
            err, PJ_E_INVALID,
            "a token that other machines can try must have at least %d characters, not %zu",
            PROXY_TOKEN_MIN_BYTES, strlen(a->token));
    if (!x->gate.loopback && !(a->token && *a->token))
        return pj_fail(err, PJ_E_INVALID,
                       "%s is reachable from other machines: give a --token that clients must send",
                       x->address.host);
    return pj_listen(&x->address, &x->listener, err);
}

static pj_status open_telemetry(proxying *x, pj_error *err)
{
    const pj_attach_args *a = x->args;
    if (!a->otlp) return PJ_OK;
    x->service = (pj_service){.context = x, .metrics = telemetry_metrics};
    const pj_otlp_options otlp = {.url = a->otlp,
                                  .host = x->session->machine.name,
                                  .renames = a->otlp_names.items,
                                  .service = &x->service,
                                  .say = proxy_say};
    pj_status status = pj_otlp_open(&otlp, &x->otlp, err);
    return status == PJ_OK ? pj_otlp_start(x->otlp, err) : status;
}

static pj_status proxy_open_all(proxying *x, pj_error *err)
{
    const pj_attach_args *a = x->args;
    pj_error silent = {0};
    pj_status status = open_gate(x, err);
    for (int i = 0; i < a->fields.count && status == PJ_OK; i++)
        status = pj_energy_fields_add(&x->fields, a->fields.items[i], err);
    if (status != PJ_OK) return status;
    x->totals = pj_request_totals_new();
    if (!x->totals) return pj_fail_memory(err, "the requests' figures");
    /* The server may be started later; until then requests fail. */
    if (pj_server_find(&a->address, a->header_lines, &x->server, &silent) != PJ_OK)
        pj_say("perjoule attach: %s", silent.text);
    status = pj_stored_session(x->command, &a->session, &x->session, err);
    if (status != PJ_OK) return status;
    status = open_telemetry(x, err);
    if (status != PJ_OK) return status;
    pj_requests_options requests = pj_attach_requests(a, &x->server, x->session);
    requests.done = proxy_request_done;
    requests.context = x;
    return pj_requests_open(&requests, &x->requests, err);
}

static void print_ready(const proxying *x)
{
    char authority[PJ_URL_AUTHORITY_BYTES];
    pj_url_authority(&x->address, authority, sizeof authority);
    if (x->args->recorded.no_power)
        pj_say("perjoule attach: energy is unavailable: %s", x->args->recorded.no_power);
    else if (pj_requests_quality(x->requests) == PJ_UNAVAILABLE && x->session->meter)
        pj_say("perjoule attach: energy is unavailable: %s", pj_meter_remedy(x->session->meter));
    pj_print(stdout, "listening on http://%s, forwarding to %s (%s)\n", authority, x->args->url,
             x->server.engine);
    fflush(stdout);
}

static void print_end_json(const proxying *x, double mj, double unknown_ms,
                           pj_source_quality quality)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "requests", x->count);
    pj_json_kv_uint(json, "failed", x->failed);
    pj_json_kv_uint(json, "unstored", x->unstored);
    pj_json_kv_string(json, "energy_source", pj_quality_name(quality));
    pj_json_kv_double(json, "energy_mj", unknown_ms > 0 ? NAN : mj);
    pj_json_kv_double(json, "unknown_ms", unknown_ms);
    pj_json_kv_string(json, "partial", x->partial[0] ? x->partial : NULL);
    pj_json_object_end(json);
    pj_json_out_end(&out, PJ_OK, NULL);
}

/* Energy while any request was in flight; a sensor may have been silent for a part of it. */
static void print_end(const proxying *x)
{
    int64_t unknown_ns;
    double mj = pj_requests_divided_mj(x->requests, &unknown_ns);
    if (unknown_ns && !(mj > 0)) mj = NAN;
    pj_source_quality quality = isnan(mj) ? PJ_UNAVAILABLE : pj_requests_quality(x->requests);
    if (x->args->json) {
        print_end_json(x, mj, (double)unknown_ns / 1e6, quality);
        return;
    }
    pj_print(stdout, "%u requests, %u failed, %s%s while any was in flight", x->count, x->failed,
             isnan(mj) ? "energy unavailable" : pj_energy_text(mj).s,
             quality == PJ_MODELLED ? " (modelled)" : "");
    if (unknown_ns && !isnan(mj))
        pj_print(stdout, ", excluding %s in which a sensor gave no reading",
                 pj_time_text((double)unknown_ns / 1e6).s);
    if (x->partial[0]) pj_print(stdout, "\npartial: %s", x->partial);
    putchar('\n');
}

static pj_status proxy_serve(proxying *x, pj_error *err)
{
    pj_proxy_options options = {.url = &x->args->address,
                                .listener = x->listener,
                                .headers_only = x->args->headers_only,
                                .fields = &x->fields,
                                .stop = &pj_interrupted,
                                .hooks = {.context = x,
                                          .admit = admit,
                                          .is_own_token = is_own_token,
                                          .begin = proxy_begin_request,
                                          .progress = progress,
                                          .end = proxy_end_request,
                                          .release = release,
                                          .id = id,
                                          .energy = energy,
                                          .metrics = metrics}};
    pj_file_limit_raise(PJ_PROXY_FILES + 100); /* and for what is stored meanwhile */
    print_ready(x);
    pj_status status = pj_proxy_run(&options, err);
    pj_requests_drain(x->requests);
    print_end(x);
    return status;
}

int pj_attach_proxy(const pj_command *command, const pj_attach_args *args)
{
    pj_error err = {0};
    proxying x = {.args = args, .command = command, .listener = -1};
    pj_status status = proxy_open_all(&x, &err);
    if (status == PJ_OK) status = proxy_serve(&x, &err);
    pj_requests_close(x.requests);
    pj_otlp_close(x.otlp);
    pj_request_totals_free(x.totals);
    pj_session_close(x.session);
    if (x.listener >= 0) close(x.listener);
    if (status == PJ_OK && x.unstored) return PJ_EXIT_FAILED;
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}
