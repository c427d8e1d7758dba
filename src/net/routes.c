#include "net/routes.h"

#include "net/handshake.h"
#include "net/page.h"
#include "net/prometheus.h"
#include "net/stream.h"

#include "trace/phases.h"
#include "trace/statistics.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A JSON document that is being written. */
typedef struct written {
    pj_json json;
    pj_error err;
    unsigned status;  /* when it succeeds; 204: there is no document */
    unsigned invalid; /* when it fails with PJ_E_INVALID */
    const char *type; /* content type */
} written;

typedef struct route route;

/* A request on its route. */
typedef struct visit {
    const pj_routes *routes;
    const route *route;
    pj_http *http;
    const char *id; /* what {id} matched; "": the path has none */
} visit;

typedef enum MHD_Result route_answer(const visit *v);
typedef pj_status route_write(const visit *v, written *out);

struct route {
    const char *method;
    const char *path; /* "{id}" matches a run, or the name of an experiment */
    route_write *write;
    pj_view view;
    const pj_param_rule *rules;
    route_answer *answer; /* instead of `write`: anything but a document */
};

/* ---- parameters ---------------------------------------------------------------------------- */

#define RATES                                   \
    {"usd_per_kwh", PJ_PARAM_NUMBER, 0, 1000},  \
    {                                           \
        "g_per_kwh", PJ_PARAM_NUMBER, 0, 100000 \
    }
/* Whether figures are with or without disturbances. */
#define DISTURBED                                           \
    {                                                       \
        "disturbances", PJ_PARAM_CHOICE, 0, 0, "leave|keep" \
    }
#define ENERGY_SOURCES "measured|modelled|unavailable"

static const pj_param_rule runs_rules[] = {
    {"search"},
    {"model"},
    {"experiment"},
    {"status", PJ_PARAM_CHOICE, 0, 0, "queued|running|completed|failed|cancelled|interrupted"},
    {"tag", PJ_PARAM_TEXT, 0, 0, NULL, true},
    {"from", PJ_PARAM_TIME},
    {"to", PJ_PARAM_TIME},
    {"energy_source", PJ_PARAM_CHOICE, 0, 0, ENERGY_SOURCES},
    {"min_energy_mj", PJ_PARAM_NUMBER},
    {"max_energy_mj", PJ_PARAM_NUMBER},
    {"engine"},
    {"scope", PJ_PARAM_CHOICE, 0, 0, "machine|process|request"},
    {"level", PJ_PARAM_CHOICE, 0, 0, "coarse|fine"},
    {"dtype"},
    {"machine"},
    {"min_joules_per_token", PJ_PARAM_NUMBER},
    {"max_joules_per_token", PJ_PARAM_NUMBER},
    {"min_joules_per_token_typical", PJ_PARAM_NUMBER},
    {"max_joules_per_token_typical", PJ_PARAM_NUMBER},
    {"repeat_group"},
    {"sort", PJ_PARAM_CHOICE, 0, 0,
     "date|duration|energy|tokens_per_second|joules_per_token|joules_per_token_typical"},
    {"order", PJ_PARAM_CHOICE, 0, 0, "desc|asc"},
    {"limit", PJ_PARAM_INT, 1, 10000},
    {"offset", PJ_PARAM_INT, 0, 1e15},
    RATES,
    DISTURBED,
    {0}};
static const pj_param_rule prune_rules[] = {{"before", PJ_PARAM_TIME},
                                            {"keep", PJ_PARAM_INT, 0, 1e9},
                                            {"tagged", PJ_PARAM_CHOICE, 0, 0, "true|false"},
                                            {"dry_run", PJ_PARAM_CHOICE, 0, 0, "true|false"},
                                            {0}};
static const pj_param_rule retag_rules[] = {
    {"add", PJ_PARAM_TEXT, 0, 0, NULL, true}, {"remove", PJ_PARAM_TEXT, 0, 0, NULL, true}, {0}};
static const pj_param_rule describe_rules[] = {{"name"}, {"note"}, {0}};
static const pj_param_rule rates_rules[] = {RATES, DISTURBED, {0}};
static const pj_param_rule advice_rules[] = {
    {"g_per_kwh", PJ_PARAM_NUMBER, 0, 100000}, DISTURBED, {0}};
static const pj_param_rule run_rules[] = {{"include"},
                                          {"limit", PJ_PARAM_INT, 1, 100000},
                                          {"offset", PJ_PARAM_INT, 0, 1e15},
                                          RATES,
                                          DISTURBED,
                                          {0}};
static const pj_param_rule pipeline_rules[] = {{"phase", PJ_PARAM_CHOICE, 0, 0, PJ_PHASE_CHOICES},
                                               {"from_ms", PJ_PARAM_NUMBER},
                                               {"to_ms", PJ_PARAM_NUMBER},
                                               {"limit", PJ_PARAM_INT, 0, 20000},
                                               DISTURBED,
                                               {0}};
static const pj_param_rule power_now_rules[] = {{"seconds", PJ_PARAM_INT, 1, 300}, {0}};
static const pj_param_rule power_rules[] = {{"points", PJ_PARAM_INT, 2, 200000},
                                            {"from_ms", PJ_PARAM_NUMBER},
                                            {"to_ms", PJ_PARAM_NUMBER},
                                            {"rails", PJ_PARAM_CHOICE, 0, 0, "0|1"},
                                            {0}};
static const pj_param_rule spans_rules[] = {
    {"from_ms", PJ_PARAM_NUMBER},
    {"to_ms", PJ_PARAM_NUMBER},
    {"level", PJ_PARAM_CHOICE, 0, 0, "layer|component|operation"},
    {"name"},
    {"group", PJ_PARAM_CHOICE, 0, 0, "name"},
    {"limit", PJ_PARAM_INT, 1, 20000},
    {0}};
static const pj_param_rule tokens_rules[] = {
    {"limit", PJ_PARAM_INT, 1, 1000000}, {"offset", PJ_PARAM_INT, 0, 1e15}, DISTURBED, {0}};
static const pj_param_rule heatmap_rules[] = {{"metric", PJ_PARAM_CHOICE, 0, 0, PJ_HEATMAP_CHOICES},
                                              {"token", PJ_PARAM_INT, 0, 4e9},
                                              {"phase", PJ_PARAM_CHOICE, 0, 0, PJ_PHASE_CHOICES},
                                              {"format", PJ_PARAM_CHOICE, 0, 0, "json|f32"},
                                              {"outside", PJ_PARAM_CHOICE, 0, 0, "0|1"},
                                              DISTURBED,
                                              {0}};
static const pj_param_rule tree_rules[] = {{"metric", PJ_PARAM_CHOICE, 0, 0, PJ_TREE_CHOICES},
                                           {"depth", PJ_PARAM_INT, 1, 4},
                                           DISTURBED,
                                           {0}};
static const pj_param_rule operations_rules[] = {{"layer", PJ_PARAM_INT, -1, 1e6},
                                                 {"component"},
                                                 {"token", PJ_PARAM_INT, 0, 4e9},
                                                 {"phase", PJ_PARAM_CHOICE, 0, 0, PJ_PHASE_CHOICES},
                                                 DISTURBED,
                                                 {0}};
static const pj_param_rule compare_rules[] = {{"ids"}, RATES, DISTURBED, {0}};
static const pj_param_rule why_rules[] = {{"a"}, {"b"}, DISTURBED, {0}};
static const pj_param_rule groups_rules[] = {
    {"by"},
    {"search"},
    {"model"},
    {"experiment"},
    {"tag", PJ_PARAM_TEXT, 0, 0, NULL, true},
    {"from", PJ_PARAM_TIME},
    {"to", PJ_PARAM_TIME},
    {"energy_source", PJ_PARAM_CHOICE, 0, 0, ENERGY_SOURCES},
    {"engine"},
    {"dtype"},
    {"machine"},
    {"disturbed", PJ_PARAM_CHOICE, 0, 0, "leave|keep"},
    DISTURBED,
    {0}};
static const pj_param_rule predict_rules[] = {{"model"},
                                              {"dtype"},
                                              {"input", PJ_PARAM_INT, 1, 1e7},
                                              {"output", PJ_PARAM_INT, 1, 1e7},
                                              {"batch", PJ_PARAM_INT, 1, 65536},
                                              {"map", PJ_PARAM_CHOICE, 0, 0, "true|false"},
                                              DISTURBED,
                                              {0}};
static const pj_param_rule sessions_rules[] = {
    {"by", PJ_PARAM_CHOICE, 0, 0, "session|commit"}, {"id"}, DISTURBED, {0}};
static const pj_param_rule laws_rules[] = {{"machine"}, DISTURBED, {0}};
static const pj_param_rule experiment_rules[] = {DISTURBED, {0}};
static const pj_param_rule report_rules[] = {
    {"ids"}, {"experiment"}, {"format", PJ_PARAM_CHOICE, 0, 0, "html|md"}, DISTURBED, {0}};
static const pj_param_rule resume_rules[] = {{"again", PJ_PARAM_CHOICE, 0, 0, "true|false"}, {0}};
static const pj_param_rule export_rules[] = {
    {"format", PJ_PARAM_CHOICE, 0, 0, "json|csv|trace|speedscope|folded"}, DISTURBED, {0}};
static const pj_param_rule live_rules[] = {{"from", PJ_PARAM_INT, 0, 9e15}, {0}};
static const pj_param_rule socket_rules[] = {{"run_id"},
                                             {"binary", PJ_PARAM_CHOICE, 0, 0, "0|1"},
                                             {"from", PJ_PARAM_INT, 0, 9e15},
                                             {"token"},
                                             {"machine"},
                                             {0}};
static const pj_param_rule join_rules[] = {{"machine"}, {0}};

/* ---- documents ----------------------------------------------------------------------------- */

static bool reads_all_runs(pj_view view)
{
    switch (view) {
    case PJ_VIEW_WHY:
    case PJ_VIEW_GROUPS:
    case PJ_VIEW_REPORT:
    case PJ_VIEW_SESSIONS:
    case PJ_VIEW_PREDICT:
    case PJ_VIEW_LAWS:
    case PJ_VIEW_ADVICE: return true;
    default: return false;
    }
}

static pj_status write_in_turn(const visit *v, route_write *write, written *out)
{
    if (!reads_all_runs(v->route->view)) return write(v, out);
    bool has_waited;
    if (!pj_turns_take(v->routes->turns, &has_waited))
        return pj_fail(&out->err, PJ_E_AGAIN,
                       "%d requests that read all runs wait already; try again in a moment",
                       PJ_TURNS_WAITING);
    pj_status status = has_waited && pj_http_is_closing(v->http)
                           ? pj_fail(&out->err, PJ_E_IO, "the client is gone")
                           : write(v, out);
    pj_turns_give(v->routes->turns);
    return status;
}

static enum MHD_Result answer_written(const visit *v, route_write *write)
{
    pj_buffer buffer;
    written out = {.status = 200, .invalid = 400, .type = "application/json"};
    pj_buffer_init(&buffer, PJ_REPLY_MAX_BYTES);
    pj_json_init(&out.json, &buffer);
    if (write_in_turn(v, write, &out) != PJ_OK) {
        pj_buffer_fini(&buffer);
        return pj_http_failure(v->http, out.invalid, &out.err);
    }
    if (out.status == 204) {
        pj_buffer_fini(&buffer);
        return pj_http_reply_empty(v->http, out.status);
    }
    pj_json_finish(&out.json);
    return pj_http_reply_buffer(v->http, out.status, out.type, &buffer);
}

static pj_status write_health(const visit *v, written *out)
{
    pj_metrics state = {0};
    pj_json *json = &out->json;
    v->routes->service->metrics(v->routes->service->context, &state);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "status", "ok");
    pj_json_kv_string(json, "version", pj_version());
    pj_json_kv_uint(json, "queue", state.queued);
    pj_json_kv_string(json, "running", state.running[0] ? state.running : NULL);
    pj_json_kv_uint(json, "waiting", state.waiting);
    pj_json_object_end(json);
    return PJ_OK;
}

static pj_status write_openapi(const visit *v, written *out)
{
    pj_buffer_append(out->json.buffer, pj_openapi_json, pj_openapi_json_bytes);
    return PJ_OK;
}

static pj_status write_metrics(const visit *v, written *out)
{
    pj_metrics metrics = {0};
    v->routes->service->metrics(v->routes->service->context, &metrics);
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    pj_prometheus_write(&metrics, v->routes->hub, out->json.buffer);
    return PJ_OK;
}

static void add_total(pj_http *http, uint64_t total)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)total);
    pj_http_add_header(http, "X-Total-Count", text);
}

static pj_status write_view(const visit *v, written *out)
{
    const pj_service *service = v->routes->service;
    pj_view_request request = {v->route->view, v->id, &v->http->target.params};
    uint64_t total = 0;
    pj_status status = service->view(service->context, &request, &out->json, &total, &out->err);
    if (v->route->view == PJ_DELETE_RUN) out->status = 204;
    if (v->route->view == PJ_VIEW_RUNS) add_total(v->http, total);
    return status;
}

static pj_status write_report(const visit *v, written *out)
{
    pj_status status = write_view(v, out);
    if (status != PJ_OK) return status;
    /* A single file: its own policy allows only its own script and style, by their hashes. */
    pj_http_add_header(v->http, "Content-Security-Policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                       "img-src data: blob:; frame-ancestors 'none'");
    out->type = pj_params_is(&v->http->target.params, "format", "md")
                    ? "text/markdown; charset=utf-8"
                    : "text/html; charset=utf-8";
    return PJ_OK;
}

/* The JSON of single tokens, or the cube of all. */
static pj_status write_heatmap(const visit *v, written *out)
{
    const route cube = {.view = PJ_VIEW_CUBE};
    if (!pj_params_is(&v->http->target.params, "format", "f32")) return write_view(v, out);
    pj_status status = write_view(&(visit){v->routes, &cube, v->http, v->id}, out);
    out->type = "application/octet-stream";
    if (status != PJ_OK || !out->json.buffer->failed) return status;
    out->invalid = 413;
    return pj_fail(&out->err, PJ_E_INVALID,
                   "the cube of this run is larger than %d MB: ask for single tokens",
                   PJ_REPLY_MAX_BYTES >> 20);
}

/* ---- streams ------------------------------------------------------------------------------- */

typedef struct stream_request {
    const pj_service *service;
    pj_view view;
    char id[PJ_UUID_BYTES], format[16];
    pj_params params;
    pj_arena arena; /* the parameters' texts */
    uint64_t total; /* of a list; the producer's until it first writes */
} stream_request;

static void free_stream_request(void *context)
{
    stream_request *query = context;
    pj_arena_fini(&query->arena);
    pj_free(query);
}

/* Takes the request's arena along, because libmicrohttpd may end the request before the producer
 * notices. */
static stream_request *new_stream_request(const pj_service *service, const route *r, pj_http *http,
                                          const char *id)
{
    stream_request *query = pj_alloc(1, sizeof *query);
    if (!query) return NULL;
    query->service = service;
    query->view = r->view;
    snprintf(query->id, sizeof query->id, "%s", id);
    query->params = http->target.params;
    query->arena = http->arena;
    http->arena = (pj_arena){0};
    return query;
}

static pj_status produce_view(void *context, void *stream, pj_error *err)
{
    stream_request *query = context;
    pj_view_request request = {query->view, query->id, &query->params, true};
    pj_buffer block;
    pj_json json;
    pj_buffer_init(&block, 4 << 20);
    pj_json_init_stream(&json, &block, pj_stream_write, stream);
    pj_status status =
        query->service->view(query->service->context, &request, &json, &query->total, err);
    if (status == PJ_OK && !pj_json_finish(&json))
        status = pj_fail(err, PJ_E_CANCELLED, "the client has disconnected");
    pj_buffer_fini(&block);
    return status;
}

static pj_status produce_export(void *context, void *stream, pj_error *err)
{
    const stream_request *query = context;
    return query->service->export_run(query->service->context, query->id, query->format,
                                      pj_params_is(&query->params, "disturbances", "leave"),
                                      pj_stream_write, stream, err);
}

/* A whole run may be large: streamed in constant memory. */
static enum MHD_Result answer_whole_run(const visit *v)
{
    stream_request *query = new_stream_request(v->routes->service, v->route, v->http, v->id);
    if (!query) return MHD_NO;
    return pj_stream_reply(
        v->http, &(pj_stream_source){produce_view, query, free_stream_request, "application/json"});
}

static void add_list_headers(void *context, pj_http *http)
{
    add_total(http, ((const stream_request *)context)->total);
}

/* And so may a list; a short one does without a connection of its own. */
static enum MHD_Result answer_runs(const visit *v)
{
    enum { SHORT = 200, DEFAULT = 1000 };
    if (pj_params_int(&v->http->target.params, "limit", DEFAULT) <= SHORT)
        return answer_written(v, write_view);
    stream_request *query = new_stream_request(v->routes->service, v->route, v->http, "");
    if (!query) return MHD_NO;
    return pj_stream_reply(v->http, &(pj_stream_source){produce_view, query, free_stream_request,
                                                        "application/json", add_list_headers});
}

static enum MHD_Result answer_export(const visit *v)
{
    static const struct {
        const char *format, *type, *ending;
    } kinds[] = {{"json", "application/json", "json"},
                 {"csv", "application/zip", "zip"},
                 {"trace", "application/json", "trace.json"},
                 {"speedscope", "application/json", "speedscope.json"},
                 {"folded", "text/plain; charset=utf-8", "folded.txt"}};
    const char *format = pj_params_text(&v->http->target.params, "format");
    size_t k = 0;
    /* already checked to be one of these */
    while (format && strcmp(kinds[k].format, format) != 0) k++;
    stream_request *query = new_stream_request(v->routes->service, v->route, v->http, v->id);
    if (!query) return MHD_NO;
    snprintf(query->format, sizeof query->format, "%s", kinds[k].format);
    char name[128];
    snprintf(name, sizeof name, "attachment; filename=\"perjoule-%s.%s\"", v->id, kinds[k].ending);
    pj_http_add_header(v->http, "Content-Disposition", name);
    return pj_stream_reply(
        v->http, &(pj_stream_source){produce_export, query, free_stream_request, kinds[k].type});
}

/* ---- the live stream ----------------------------------------------------------------------- */

static pj_status write_live(const visit *v, written *out)
{
    pj_hub_write_messages(v->routes->hub, v->id,
                          (uint64_t)pj_params_int(&v->http->target.params, "from", 0),
                          out->json.buffer);
    return PJ_OK;
}

static enum MHD_Result answer_socket(const visit *v)
{
    const pj_params *params = &v->http->target.params;
    const char *run = pj_params_text(params, "run_id");
    pj_reader_options options = {
        .binary = pj_params_is(params, "binary", "1"),
        .resume = pj_params_text(params, "from") != NULL,
        .from = (uint64_t)pj_params_int(params, "from", 0),
    };
    if (run && strlen(run) >= sizeof options.run_id)
        return pj_http_problem(v->http, 400, "run_id must be the full id of a run");
    if (run) snprintf(options.run_id, sizeof options.run_id, "%s", run);
    const char *machine = pj_params_text(params, "machine");
    pj_error err = {0};
    pj_hub *hub = v->routes->hub;
    if (machine && !v->routes->relay)
        return pj_http_problem(v->http, 404, "no machines can join this server");
    if (machine && !(hub = pj_relay_watch(v->routes->relay, machine, &err)))
        return pj_http_failure(v->http, 400, &err);
    return pj_handshake_reply(v->http, hub, &options);
}

static void report_refused_join(const visit *v, const char *machine, const pj_error *why)
{
    char text[1024], address[PJ_HTTP_ADDRESS_BYTES];
    pj_http_client(v->http, address);
    snprintf(text, sizeof text, "refused a machine that joins as %.200s, from %s: %s", machine,
             address, why->text);
    if (v->routes->say) v->routes->say(text);
}

static enum MHD_Result answer_join(const visit *v)
{
    const char *machine = pj_params_text(&v->http->target.params, "machine");
    if (!v->routes->relay) return pj_http_problem(v->http, 404, "no machines can join this server");
    const char *key = pj_http_header(v->http, "X-Perjoule-Machine-Key");
    if (!machine) machine = "";
    if (!key) key = "";
    pj_error err = {0};
    if (pj_relay_may_join(v->routes->relay, machine, key, &err) == PJ_OK)
        return pj_handshake_join(v->http, v->routes->relay, machine, key);
    report_refused_join(v, machine, &err);
    return pj_http_failure(v->http, 400, &err);
}

/* ---- sessions of the page -------------------------------------------------------------------- */

enum { COOKIE_BYTES = 160 };

/* No Path attribute: the browser then uses the folder of this address, which behind a reverse proxy
 * is the one the page is served from. */
static void set_session_cookie(pj_http *http, const char *name, const char *id)
{
    const char *origin = pj_http_header(http, "Origin");
    bool secure = origin && strncasecmp(origin, "https://", 8) == 0;
    char text[COOKIE_BYTES];
    snprintf(text, sizeof text, "%s=%s; HttpOnly; SameSite=Strict%s%s", name, id,
             secure ? "; Secure" : "", id[0] ? "" : "; Max-Age=0");
    pj_http_add_header(http, "Set-Cookie", text);
}

static enum MHD_Result begin_session(const visit *v, const char *name)
{
    char id[PJ_SECRET_BYTES];
    if (!pj_sessions_begin(v->routes->gate.sessions, id))
        return pj_http_problem(v->http, 503, "the system gives no random numbers");
    set_session_cookie(v->http, name, id);
    return pj_http_reply_empty(v->http, 204);
}

static bool is_login_token(const void *context)
{
    const visit *v = context;
    const char *token = pj_buffer_get(&v->http->body);
    return token && pj_gate_token(&v->routes->gate, NULL, token);
}

static enum MHD_Result answer_login(const visit *v)
{
    char name[PJ_COOKIE_NAME_BYTES], address[PJ_HTTP_ADDRESS_BYTES];
    const pj_gate *gate = &v->routes->gate;
    if (!pj_gate_cookie_name(gate, name)) return pj_http_reply_empty(v->http, 204);
    pj_http_client(v->http, address);
    unsigned refusal = pj_sessions_check(gate->sessions, address, is_login_token, v);
    if (!refusal) return begin_session(v, name);
    if (refusal == 429) return pj_http_too_many(v->http);
    return pj_http_problem(v->http, 401,
                           "wrong token: give the one that perjoule serve was started with");
}

static enum MHD_Result answer_logout(const visit *v)
{
    char name[PJ_COOKIE_NAME_BYTES];
    const pj_gate *gate = &v->routes->gate;
    if (pj_gate_cookie_name(gate, name)) {
        pj_sessions_end(gate->sessions, pj_http_session(v->http, gate));
        set_session_cookie(v->http, name, "");
    }
    return pj_http_reply_empty(v->http, 204);
}

/* ---- runs and experiments ------------------------------------------------------------------ */

/* Queues a run; with "wait" the answer is its result. */
static pj_status generate(const pj_service *service, const pj_generation_request *query,
                          written *out)
{
    char id[PJ_UUID_BYTES] = "";
    uint32_t position = 0;
    pj_json *json = &out->json;
    pj_status status = service->generate(service->context, query, id, &position, &out->err);
    if (status != PJ_OK) return status;
    if (query->wait) return service->wait(service->context, id, json, &out->err);
    out->status = 202;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "run_id", id);
    pj_json_kv_string(json, "status", "queued");
    pj_json_kv_uint(json, "position", position);
    pj_json_object_end(json);
    return PJ_OK;
}

static pj_status write_generate(const visit *v, written *out)
{
    pj_generation_request query;
    bool syntax;
    pj_arena arena;
    pj_arena_init(&arena, 16 << 20);
    pj_status status = pj_generation_request_parse(
        pj_buffer_get(&v->http->body), v->http->body.length, &query, &arena, &syntax, &out->err);
    out->invalid = status != PJ_OK && syntax ? 400 : 422;
    if (status == PJ_OK) status = generate(v->routes->service, &query, out);
    pj_arena_fini(&arena);
    return status;
}

static pj_status write_stopped(const char *key, const char *id, const char *state_key,
                               bool was_waiting, written *out)
{
    out->status = 202;
    pj_json_object_begin(&out->json);
    pj_json_kv_string(&out->json, key, id);
    /* A running one may still complete by itself, so its final status is unknown here. */
    pj_json_kv_string(&out->json, state_key, was_waiting ? "cancelled" : "stopping");
    pj_json_object_end(&out->json);
    return PJ_OK;
}

static pj_status write_cancel(const visit *v, written *out)
{
    const pj_service *service = v->routes->service;
    bool was_waiting = false;
    pj_status status = service->cancel(service->context, v->id, &was_waiting, &out->err);
    return status == PJ_OK ? write_stopped("run_id", v->id, "status", was_waiting, out) : status;
}

static pj_status write_stop(const visit *v, written *out)
{
    const pj_service *service = v->routes->service;
    bool was_waiting = false;
    pj_status status = service->cancel_experiment(service->context, v->id, &was_waiting, &out->err);
    return status == PJ_OK ? write_stopped("name", v->id, "state", was_waiting, out) : status;
}

static pj_status write_experiment(const visit *v, written *out)
{
    const pj_service *service = v->routes->service;
    bool syntax = false, resumes = v->id[0];
    pj_experiment_request request = {.plan = resumes ? NULL : pj_buffer_get(&v->http->body),
                                     .syntax = &syntax,
                                     .name = v->id,
                                     .again =
                                         pj_params_is(&v->http->target.params, "again", "true")};
    if (!resumes && strlen(request.plan) != v->http->body.length)
        return pj_fail(&out->err, PJ_E_INVALID, "the body is not a JSON plan");
    out->status = 202;
    pj_status status = service->begin_experiment(service->context, &request, &out->json, &out->err);
    out->invalid = syntax ? 400 : 422;
    return status;
}

/* ---- the table ----------------------------------------------------------------------------- */

#define API "/api/profiling/"

static const route table[] = {
    {"GET", API "runs", NULL, PJ_VIEW_RUNS, runs_rules, answer_runs},
    {"GET", API "facets", write_view, PJ_VIEW_FACETS},
    {"GET", API "compare", write_view, PJ_VIEW_COMPARE, compare_rules},
    {"GET", API "compare/why", write_view, PJ_VIEW_WHY, why_rules},
    {"GET", API "compare/groups", write_view, PJ_VIEW_GROUPS, groups_rules},
    {"GET", API "experiments", write_view, PJ_VIEW_EXPERIMENTS},
    {"POST", API "experiments", write_experiment},
    {"GET", API "experiments/{id}", write_view, PJ_VIEW_EXPERIMENT, experiment_rules},
    {"POST", API "experiments/{id}/cancel", write_stop, PJ_VIEW_EXPERIMENT},
    {"POST", API "experiments/{id}/resume", write_experiment, PJ_VIEW_EXPERIMENT, resume_rules},
    {"GET", API "report", write_report, PJ_VIEW_REPORT, report_rules},
    {"GET", API "predict", write_view, PJ_VIEW_PREDICT, predict_rules},
    {"GET", API "laws", write_view, PJ_VIEW_LAWS, laws_rules},
    {"GET", API "sessions", write_view, PJ_VIEW_SESSIONS, sessions_rules},
    {"GET", API "machines", write_view, PJ_VIEW_MACHINES},
    {"GET", API "models", write_view, PJ_VIEW_MODELS},
    {"GET", API "sensors", write_view, PJ_VIEW_SENSORS},
    {"GET", API "devices", write_view, PJ_VIEW_DEVICES},
    {"GET", API "power/now", write_view, PJ_VIEW_POWER_NOW, power_now_rules},
    {"POST", API "generate", write_generate},
    {"GET", API "run/{id}", NULL, PJ_VIEW_RUN, run_rules, answer_whole_run},
    {"PATCH", API "run/{id}", write_view, PJ_DESCRIBE_RUN, describe_rules},
    {"DELETE", API "run/{id}", write_view, PJ_DELETE_RUN},
    {"DELETE", API "runs", write_view, PJ_PRUNE_RUNS, prune_rules},
    {"POST", API "compact", write_view, PJ_COMPACT_RUNS, prune_rules},
    {"POST", API "run/{id}/cancel", write_cancel},
    {"POST", API "run/{id}/tags", write_view, PJ_RETAG_RUN, retag_rules},
    {"GET", API "run/{id}/conditions", write_view, PJ_VIEW_CONDITIONS},
    {"GET", API "run/{id}/summary", write_view, PJ_VIEW_SUMMARY, rates_rules},
    {"GET", API "run/{id}/advice", write_view, PJ_VIEW_ADVICE, advice_rules},
    {"GET", API "run/{id}/pipeline", write_view, PJ_VIEW_PIPELINE, pipeline_rules},
    {"GET", API "run/{id}/power", write_view, PJ_VIEW_POWER, power_rules},
    {"GET", API "run/{id}/spans", write_view, PJ_VIEW_SPANS, spans_rules},
    {"GET", API "run/{id}/tokens", write_view, PJ_VIEW_TOKENS, tokens_rules},
    {"GET", API "run/{id}/heatmap", write_heatmap, PJ_VIEW_HEATMAP, heatmap_rules},
    {"GET", API "run/{id}/tree", write_view, PJ_VIEW_TREE, tree_rules},
    {"GET", API "run/{id}/operations", write_view, PJ_VIEW_OPERATIONS, operations_rules},
    {"GET", API "run/{id}/live", write_live, 0, live_rules},
    {"GET", API "export/{id}", NULL, 0, export_rules, answer_export},
    {"GET", "/ws/profiling", NULL, 0, socket_rules, answer_socket},
    {"GET", "/ws/join", NULL, 0, join_rules, answer_join},
    {"POST", "/session", NULL, 0, NULL, answer_login},
    {"DELETE", "/session", NULL, 0, NULL, answer_logout},
    {"GET", "/healthz", write_health},
    {"GET", "/metrics", write_metrics},
    {"GET", "/api/openapi.json", write_openapi},
};

enum { ROUTE_COUNT = sizeof table / sizeof *table, ID_TEXT_BYTES = 1024 };

/* Whether the path matches the route; extracts {id}. */
static bool path_fits(const char *form, const char *path, char id[ID_TEXT_BYTES])
{
    const char *hole = strstr(form, "{id}");
    id[0] = 0;
    if (!hole) return strcmp(form, path) == 0;
    size_t head = (size_t)(hole - form);
    if (strncmp(form, path, head) != 0) return false;
    size_t length = strcspn(path + head, "/");
    if (length == 0 || length >= ID_TEXT_BYTES || strcmp(hole + 4, path + head + length) != 0)
        return false;
    memcpy(id, path + head, length);
    id[length] = 0;
    return true;
}

static bool method_fits(const route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
}

static enum MHD_Result wrong_method(pj_http *http, const char *allowed)
{
    pj_http_add_header(http, "Allow", allowed);
    return pj_http_problem(http, 405, "%s is not allowed, only %s", http->method, allowed);
}

static enum MHD_Result answer_route(const pj_routes *routes, const route *r, pj_http *http,
                                    const char *id_text)
{
    char id[PJ_UUID_BYTES] = "";
    pj_error err = {0};
    visit v = {routes, r, http, id};
    if (pj_params_check(&http->target.params, r->rules, &err))
        return pj_http_failure(http, 400, &err);
    if (r->view == PJ_VIEW_EXPERIMENT)
        v.id = id_text;
    else if (id_text[0]) {
        pj_status status = routes->service->resolve(routes->service->context, id_text, id, &err);
        bool is_leftover = (status == PJ_E_AGAIN || status == PJ_E_NOT_FOUND) && id[0];
        bool enough = is_leftover && r->view == PJ_VIEW_RUN; /* its facts are known */
        if (status != PJ_OK && !enough) return pj_http_failure(http, 404, &err);
    }
    return r->answer ? r->answer(&v) : answer_written(&v, r->write);
}

enum MHD_Result pj_routes_answer(const pj_routes *routes, pj_http *http)
{
    char id[ID_TEXT_BYTES], allowed[64] = "";
    for (int i = 0; i < ROUTE_COUNT; i++) {
        if (!path_fits(table[i].path, http->target.path, id)) continue;
        if (method_fits(&table[i], http->method)) return answer_route(routes, &table[i], http, id);
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "", table[i].method);
    }
    if (allowed[0]) return wrong_method(http, allowed);
    if (!method_fits(&(route){.method = "GET"}, http->method)) return wrong_method(http, "GET");
    if (strncmp(http->target.path, "/api/", 5) == 0)
        return pj_http_problem(http, 404, "there is no %.200s; see /api/openapi.json",
                               http->target.path);
    return pj_page_reply(http);
}
