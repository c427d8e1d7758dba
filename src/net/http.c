#include "net/http.h"

#include "base/json.h"
#include "base/memory.h"
#include "http/gzip.h"
#include "http/problem.h"
#include "net/coding.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { HELD_MAX_BYTES = 128 << 20, SMALL_BYTES = 64 << 10, COMPRESS_BYTES = 2 << 10 };

pj_http *pj_http_new(const char *raw_target)
{
    pj_http *http = pj_alloc(1, sizeof *http);
    if (!http) return NULL;
    http->raw_target = pj_strdup(raw_target);
    pj_arena_init(&http->arena, 1 << 20);
    pj_buffer_init(&http->body, PJ_BODY_MAX_BYTES);
    if (http->raw_target) return http;
    pj_http_free(http);
    return NULL;
}

void pj_http_free(pj_http *http)
{
    if (!http) return;
    pj_free(http->upgrade);
    pj_buffer_fini(&http->body);
    pj_arena_fini(&http->arena);
    pj_free(http->raw_target);
    pj_free(http);
}

const char *pj_http_header(const pj_http *http, const char *name)
{
    return MHD_lookup_connection_value(http->connection, MHD_HEADER_KIND, name);
}

/* ---- answers ------------------------------------------------------------------------------- */

static const char *const usual_headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
     "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
     "frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

void pj_http_add_header(pj_http *http, const char *name, const char *value)
{
    if (http->header_count == PJ_ANSWER_HEADERS) return;
    pj_http_own_header *header = &http->headers[http->header_count++];
    header->name = name;
    snprintf(header->value, sizeof header->value, "%s", value);
}

/* A header that an answer set itself stands. */
static void add_usual_header(const pj_http *http, struct MHD_Response *response, const char *name,
                             const char *value)
{
    for (int i = 0; i < http->header_count; i++)
        if (strcmp(http->headers[i].name, name) == 0) return;
    MHD_add_response_header(response, name, value);
}

enum MHD_Result pj_http_queue(pj_http *http, unsigned status, struct MHD_Response *response)
{
    if (!response) return MHD_NO;
    for (int i = 0; i < http->header_count; i++)
        MHD_add_response_header(response, http->headers[i].name, http->headers[i].value);
    for (size_t i = 0; i < sizeof usual_headers / sizeof *usual_headers; i++)
        add_usual_header(http, response, usual_headers[i][0], usual_headers[i][1]);
    if (status != 101) MHD_add_response_header(response, "Connection", "close"); /* see front.h */
    enum MHD_Result result = MHD_queue_response(http->connection, status, response);
    MHD_destroy_response(response);
    http->status = status;
    return result;
}

/* Answers that are in memory until their clients have read them are bounded together. */
typedef struct held_answer {
    char *text;
    size_t bytes;
} held_answer;

static _Atomic size_t held_bytes;

static void release_answer(void *context)
{
    held_answer *held = context;
    atomic_fetch_sub(&held_bytes, held->bytes);
    pj_free(held->text);
    pj_free(held);
}

/* False: too much is held; the text is freed. Small answers always fit. */
static bool hold_answer(held_answer **out, char *text, size_t bytes)
{
    held_answer *held = pj_alloc(1, sizeof *held);
    bool fits =
        atomic_fetch_add(&held_bytes, bytes) + bytes <= HELD_MAX_BYTES || bytes < SMALL_BYTES;
    if (held && fits) {
        *held = (held_answer){text, bytes};
        *out = held;
        return true;
    }
    atomic_fetch_sub(&held_bytes, bytes);
    pj_free(held);
    pj_free(text);
    return false;
}

bool pj_http_gzips(pj_http *http, const char *content_type)
{
    bool is_text = strncmp(content_type, "text/", 5) == 0 || strstr(content_type, "json");
    if (!is_text) return false;
    pj_http_add_header(http, "Vary", "Accept-Encoding");
    return pj_coding_takes_gzip(pj_http_header(http, "Accept-Encoding"));
}

/* In place of the text, its compressed form, if the client accepts that; answers of a packet or two
 * are not worth it. */
static bool compress_answer(pj_http *http, const char *content_type, char **text, size_t *bytes)
{
    char *packed;
    size_t packed_bytes;
    if (*bytes < COMPRESS_BYTES || !pj_http_gzips(http, content_type)) return false;
    if (pj_gzip_text(PJ_HTTP_GZIP_LEVEL, *text, *bytes, &packed, &packed_bytes, NULL) != PJ_OK)
        return false;
    pj_free(*text);
    *text = packed;
    *bytes = packed_bytes;
    return true;
}

enum MHD_Result pj_http_reply(pj_http *http, unsigned status, const char *content_type, char *text,
                              size_t bytes)
{
    held_answer *held;
    bool is_packed = compress_answer(http, content_type, &text, &bytes);
    if (!hold_answer(&held, text, bytes))
        return bytes < SMALL_BYTES
                   ? MHD_NO
                   : pj_http_problem(
                         http, 503,
                         "large responses are already being sent; try again in a moment");
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback_cls(bytes, text, release_answer, held);
    if (!response) {
        release_answer(held);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", content_type);
    if (is_packed) MHD_add_response_header(response, "Content-Encoding", "gzip");
    return pj_http_queue(http, status, response);
}

enum MHD_Result pj_http_reply_buffer(pj_http *http, unsigned status, const char *content_type,
                                     pj_buffer *buffer)
{
    size_t bytes = buffer->length;
    bool too_large = buffer->failed && buffer->max_bytes - bytes < (1 << 16);
    char *text = pj_buffer_take(buffer);
    if (text) return pj_http_reply(http, status, content_type, text, bytes);
    if (too_large)
        return pj_http_problem(http, 413,
                               "the response would exceed %d MB: request less with limit, "
                               "points or include, or use the export",
                               PJ_REPLY_MAX_BYTES >> 20);
    return pj_http_problem(http, 500, "the server does not have enough memory for this response");
}

enum MHD_Result pj_http_reply_empty(pj_http *http, unsigned status)
{
    return pj_http_queue(http, status,
                         MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result reply_problem(pj_http *http, unsigned status, const char *detail)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 16);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "type", "about:blank");
    pj_json_kv_string(&json, "title", pj_status_reason((int)status));
    pj_json_kv_uint(&json, "status", status);
    pj_json_kv_string(&json, "detail", detail);
    pj_json_object_end(&json);
    pj_json_finish(&json);
    size_t bytes = buffer.length;
    char *text = pj_buffer_take(&buffer);
    if (status == 429 || status == 503) pj_http_add_header(http, "Retry-After", "2");
    return text ? pj_http_reply(http, status, "application/problem+json", text, bytes) : MHD_NO;
}

enum MHD_Result pj_http_problem(pj_http *http, unsigned status, const char *format, ...)
{
    char detail[PJ_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    return reply_problem(http, status, detail);
}

enum MHD_Result pj_http_failure(pj_http *http, unsigned invalid, const pj_error *err)
{
    unsigned status = 500;
    switch (err->status) {
    case PJ_E_INVALID: status = invalid; break;
    case PJ_E_UNSUPPORTED: status = 422; break;
    case PJ_E_NOT_FOUND: status = 404; break;
    case PJ_E_STATE: status = 409; break;
    case PJ_E_FULL: status = 429; break;
    case PJ_E_UNAVAILABLE:
    case PJ_E_DENIED:
    case PJ_E_AGAIN: status = 503; break;
    default: break;
    }
    return reply_problem(http, status, err->text[0] ? err->text : "unknown error");
}

/* ---- checking the head --------------------------------------------------------------------- */

static bool changes_something(const char *method)
{
    return strcmp(method, "POST") == 0 || strcmp(method, "PATCH") == 0 ||
           strcmp(method, "DELETE") == 0;
}

static bool is_known_method(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 || changes_something(method);
}

const char *pj_http_session(const pj_http *http, const pj_gate *gate)
{
    char name[PJ_COOKIE_NAME_BYTES];
    if (!pj_gate_cookie_name(gate, name)) return NULL;
    return MHD_lookup_connection_value(http->connection, MHD_COOKIE_KIND, name);
}

static void *ip_of(struct sockaddr *a)
{
    if (a->sa_family == AF_INET) return &((struct sockaddr_in *)(void *)a)->sin_addr;
    return a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)(void *)a)->sin6_addr : NULL;
}

void pj_http_client(const pj_http *http, char text[PJ_HTTP_ADDRESS_BYTES])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(http->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    unsigned char bytes[16] = {0};
    const void *ip = info && info->client_addr ? ip_of(info->client_addr) : NULL;
    int family = ip ? info->client_addr->sa_family : AF_UNSPEC;
    if (ip) memcpy(bytes, ip, family == AF_INET ? 4 : 16);
    bool is_mapped = family == AF_INET6 && memcmp(bytes, mapped, sizeof mapped) == 0;
    if (family == AF_INET6 && !is_mapped) memset(bytes + 8, 0, 8);
    if (!ip || !inet_ntop(is_mapped ? AF_INET : family, is_mapped ? bytes + 12 : bytes, text,
                          PJ_HTTP_ADDRESS_BYTES))
        snprintf(text, PJ_HTTP_ADDRESS_BYTES, "local");
}

bool pj_http_is_closing(const pj_http *http)
{
    char byte;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(http->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info && recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* The token that the request gives; NULL: none. */
static const char *given_token(const pj_http *http, bool live)
{
    const char *authorization = pj_http_header(http, "Authorization");
    if (authorization) return authorization;
    return live ? pj_params_text(&http->target.params, "token") : NULL;
}

typedef struct claim {
    const pj_http *http;
    const pj_gate *gate;
    bool live;
} claim;

static bool is_token(const void *context)
{
    const claim *c = context;
    const pj_http *http = c->http;
    const char *authorization = pj_http_header(http, "Authorization");
    const pj_params *params = &http->target.params;
    const char *machine = pj_params_text(params, "machine");
    if (strcmp(http->target.path, "/ws/join") == 0)
        return pj_gate_join(c->gate, authorization, machine ? machine : "");
    return pj_gate_token(c->gate, authorization, c->live ? pj_params_text(params, "token") : NULL);
}

/* 0, or the status of a refusal. */
static unsigned check_token(const pj_http *http, const pj_gate *gate, bool live)
{
    char address[PJ_HTTP_ADDRESS_BYTES];
    claim c = {http, gate, live};
    if (!given_token(http, live) || !gate->sessions) return is_token(&c) ? 0 : 401;
    pj_http_client(http, address);
    return pj_sessions_check(gate->sessions, address, is_token, &c);
}

static bool has_session(const pj_http *http, const pj_gate *gate)
{
    return gate->sessions && strcmp(http->target.path, "/ws/join") != 0 &&
           pj_sessions_has(gate->sessions, pj_http_session(http, gate));
}

enum MHD_Result pj_http_too_many(pj_http *http)
{
    pj_http_add_header(http, "Retry-After", "3");
    return pj_http_problem(http, 429, "too many wrong tokens came from your address: wait");
}

static enum MHD_Result refuse_sender(pj_http *http, unsigned status)
{
    if (status == 429) return pj_http_too_many(http);
    pj_http_add_header(http, "WWW-Authenticate", "Bearer realm=\"perjoule\"");
    return pj_http_problem(http, 401,
                           "this server was started with --token: send it as Authorization: "
                           "Bearer TOKEN");
}

static enum MHD_Result check_sender(pj_http *http, const pj_gate *gate)
{
    const char *origin = pj_http_header(http, "Origin");
    bool live = strncmp(http->target.path, "/ws/", 4) == 0;
    http->host = http->target.authority ? http->target.authority : pj_http_header(http, "Host");
    if (!pj_gate_host(gate, http->host))
        return pj_http_problem(http, 403,
                               "the Host header does not name this server; open it "
                               "as http://localhost, or allow the name with --allow-host");
    if (origin && (live || changes_something(http->method)) &&
        !pj_gate_origin(gate, origin, http->host))
        return pj_http_problem(http, 403,
                               "cross-site request refused: the Origin header does not "
                               "match the Host header");
    /* The page itself is public: it prompts for the token. */
    bool open = strncmp(http->target.path, "/api/", 5) != 0 && !live &&
                strcmp(http->target.path, "/metrics") != 0;
    if (open || has_session(http, gate)) return MHD_YES;
    unsigned refusal = check_token(http, gate, live);
    return refusal ? refuse_sender(http, refusal) : MHD_YES;
}

enum MHD_Result pj_http_check_head(pj_http *http, const pj_gate *gate)
{
    pj_error err = {0};
    if (!is_known_method(http->method)) {
        pj_http_add_header(http, "Allow", "GET, HEAD, POST, PATCH, DELETE");
        return pj_http_problem(
            http, 405, "%s is not allowed, only GET, HEAD, POST, PATCH and DELETE", http->method);
    }
    if (pj_target_parse(http->raw_target, &http->target, &http->arena, &err))
        return pj_http_failure(http, 400, &err);
    return check_sender(http, gate);
}
