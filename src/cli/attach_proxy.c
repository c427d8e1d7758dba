/* `perjoule attach --listen`: the proxy, its requests, and who may use it. */
#include "cli/attach_client.h"

#include "attach/proxy.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cli/fold.h"
#include "cli/terminal.h"
#include "net/gate.h"
#include "profile/requests.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct proxying {
    const pj_attach_args *args;
    const pj_command *command;
    pj_remote_server server;
    pj_url place; /* the listening URL */
    int listener;
    pj_gate gate;
    pj_session *session;
    pj_requests *requests;
    uint32_t count, failed, unstored;
} proxying;

/* ---- access control ------------------------------------------------------------------------- */

static int admit(void *context, const char *host, const char *origin, const char *authorization,
                 const char *token, const char **detail)
{
    const proxying *x = context;
    if (!host || !pj_gate_host(&x->gate, host)) {
        *detail = "this name is none of the proxy's (--allow-host lets one in)";
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

/* ---- requests ---------------------------------------------------------------------------------
 */

static void *begin(void *context, pj_exchange *exchange)
{
    proxying *x = context;
    return pj_request_begin(x->requests, exchange, NULL);
}

static void progress(void *context, void *request)
{
    (void)context;
    pj_request_progress(request);
}

static void end(void *context, void *request, pj_exchange *exchange)
{
    (void)context;
    if (request)
        pj_request_end(request, true);
    else
        pj_exchange_free(exchange);
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
    double half = 1.96 * f.sd_mj;
    return (pj_proxy_energy){
        .total = f.total_mj / 1e3,
        .input = f.input_mj / 1e3,
        .output = f.output_mj / 1e3,
        .lo = fmax(0, f.total_mj - half) / 1e3,
        .hi = (f.total_mj + half) / 1e3,
        .source = pj_quality_name(known ? pj_requests_quality(x->requests) : PJ_UNAVAILABLE),
        .method = !known     ? NULL
                  : f.shared ? "allocated"
                             : "integrate",
        .provisional = f.provisional};
}

/* On the storing thread: one line per request. */
static void done(void *context, void *user, const pj_exchange *exchange, const pj_run_data *data,
                 const pj_error *err)
{
    proxying *x = context;
    char joules[32], time[32];
    (void)user;
    x->count++;
    x->failed += pj_exchange_result(exchange) != PJ_EXCHANGE_COMPLETED;
    if (err->status != PJ_OK) {
        x->unstored++;
        pj_say("perjoule attach: %s", err->text);
    }
    if (!data || x->args->json) return;
    pj_format_energy(data->info.total_mj, joules, sizeof joules);
    pj_format_time(data->info.total_ms, time, sizeof time);
    printf("%.8s  %-9s  %6llu in  %6llu out  %10s  %12s\n", data->info.id + 28,
           pj_run_status_name(data->info.status), (unsigned long long)data->info.input_tokens,
           (unsigned long long)data->info.output_tokens, time, joules);
    fflush(stdout);
}

/* ---- opening and closing ----------------------------------------------------------------------
 */

static pj_status open_gate(proxying *x, pj_error *err)
{
    const pj_attach_args *a = x->args;
    pj_status status = pj_url_parse_listen(a->listen, &x->place, err);
    if (status != PJ_OK) return status;
    x->gate = (pj_gate){.loopback = pj_host_is_loopback(x->place.host),
                        .host = x->place.host,
                        .token = a->token,
                        .extra_hosts = a->hosts.count ? a->hosts.items : NULL};
    if (!x->gate.loopback && !(a->token && *a->token))
        return pj_fail(err, PJ_E_INVALID,
                       "listening at %s lets others in: give a --token that they must send",
                       x->place.host);
    return pj_listen(&x->place, &x->listener, err);
}

static pj_status open_all(proxying *x, pj_error *err)
{
    const pj_attach_args *a = x->args;
    pj_error silent = {0};
    pj_status status = open_gate(x, err);
    if (status != PJ_OK) return status;
    /* The server may be started later; until then requests fail. */
    if (pj_server_find(&a->place, a->header_lines, &x->server, &silent) != PJ_OK)
        pj_say("perjoule attach: %s", silent.text);
    status = pj_attach_open_session(a, &x->session, err);
    if (status != PJ_OK) return status;
    pj_requests_options requests = pj_attach_requests(a, &x->server, x->session);
    requests.done = done;
    requests.context = x;
    return pj_requests_open(&requests, &x->requests, err);
}

static void say_ready(const proxying *x)
{
    char authority[PJ_URL_HOST_BYTES + 8];
    pj_url_authority(&x->place, authority, sizeof authority);
    if (x->args->no_power)
        pj_say("perjoule attach: energy is unavailable: %s", x->args->no_power);
    else if (pj_requests_quality(x->requests) == PJ_UNAVAILABLE && x->session->meter)
        pj_say("perjoule attach: energy is unavailable: %s", pj_meter_remedy(x->session->meter));
    printf("listening at http://%s, in front of %s (%s)\n", authority, x->args->url,
           x->server.engine);
    fflush(stdout);
}

static void print_end(const proxying *x, double divided_mj)
{
    char joules[32];
    if (x->args->json) {
        printf("{\"requests\": %u, \"failed\": %u, \"unstored\": %u, \"energy_mj\": ", x->count,
               x->failed, x->unstored);
        if (isnan(divided_mj))
            puts("null}");
        else
            printf("%.17g}\n", divided_mj);
        return;
    }
    pj_format_energy(divided_mj, joules, sizeof joules);
    printf("%u requests, %u failed, %s while any was in flight\n", x->count, x->failed, joules);
}

static pj_status serve(proxying *x, pj_error *err)
{
    pj_proxy_options options = {.url = &x->args->place,
                                .listener = x->listener,
                                .headers_only = x->args->headers_only,
                                .stop = &pj_attach_cancelled,
                                .hooks = {.context = x,
                                          .admit = admit,
                                          .is_own_token = is_own_token,
                                          .begin = begin,
                                          .progress = progress,
                                          .end = end,
                                          .release = release,
                                          .id = id,
                                          .energy = energy}};
    say_ready(x);
    pj_status status = pj_proxy_run(&options, err);
    pj_requests_drain(x->requests);
    print_end(x, pj_requests_divided_mj(x->requests));
    return status;
}

int pj_attach_proxy(const pj_command *command, const pj_attach_args *args)
{
    pj_error err = {0};
    proxying x = {.args = args, .command = command, .listener = -1};
    pj_status status = open_all(&x, &err);
    if (status == PJ_OK) status = serve(&x, &err);
    pj_requests_close(x.requests);
    pj_session_close(x.session);
    if (x.listener >= 0) close(x.listener);
    if (status == PJ_OK && x.unstored) return PJ_EXIT_FAILED;
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}
