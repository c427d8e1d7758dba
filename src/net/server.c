#include "net/server.h"

#include "net/front.h"
#include "net/routes.h"

#include "base/clock.h"
#include "base/memory.h"
#include "http/socket.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 1024, /* further ones are refused before libmicrohttpd sees them: */
    TOKEN_MIN_BYTES = 16,   /* off loopback */
    LIBRARY_MAX = 2 * CONNECTIONS_MAX, /* 0.9.75 to 0.9.77 deadlock at their own limit */
    CONNECTION_MEMORY_BYTES = 32 << 10,
    TIMEOUT_S = 20,
    STACK_BYTES = 512 << 10,
    REQUEST_S = 40, /* for a whole request to arrive; libmicrohttpd ends only silent connections */
    GRACE_MS = 1500 /* for answers in progress when the server closes */
};

/* A connection. */
typedef struct slot {
    bool used;
    int fd;
    int64_t since_ns; /* its request has been incomplete since then; 0: it is complete */
} slot;

struct pj_server {
    pj_routes routes;
    pj_turns turns;
    pthread_mutex_t mutex; /* guards the slots */
    slot slots[CONNECTIONS_MAX];
    struct MHD_Daemon *daemon;
    pj_front *front; /* NULL: connections come by pj_server_add only */
    uint16_t port;
    _Atomic int handed;    /* connections that libmicrohttpd has, or is about to take */
    _Atomic int answering; /* requests being answered */
};

/* ---- connections --------------------------------------------------------------------------- */

/* When few places are left, a new connection replaces the one whose request has been incomplete for
 * longest, so that slow ones keep nobody out. An eighth stays free, because a connection that is
 * cut off takes a moment to go: it is only shut down, as libmicrohttpd owns the descriptor. */
static void server_make_room(pj_server *server)
{
    slot *longest = NULL;
    if (atomic_load(&server->handed) < CONNECTIONS_MAX - CONNECTIONS_MAX / 8) return;
    for (slot *s = server->slots; s < server->slots + CONNECTIONS_MAX; s++)
        if (s->used && s->since_ns && (!longest || s->since_ns < longest->since_ns)) longest = s;
    if (!longest) return;
    shutdown(longest->fd, SHUT_RDWR);
    longest->since_ns = 0;
}

static void server_take_slot(pj_server *server, struct MHD_Connection *connection, void **out)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (slot *s = server->slots; s < server->slots + CONNECTIONS_MAX && info; s++) {
        if (s->used) continue;
        *s = (slot){true, info->connect_fd, pj_clock_ns()};
        *out = s;
        return;
    }
}

static void server_on_connection(void *context, struct MHD_Connection *connection, void **out,
                                 enum MHD_ConnectionNotificationCode code)
{
    pj_server *server = context;
    pthread_mutex_lock(&server->mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        server_take_slot(server, connection, out);
    else if (*out)
        *(slot *)*out = (slot){0};
    pthread_mutex_unlock(&server->mutex);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) atomic_fetch_sub(&server->handed, 1);
}

/* The connection's request, its only one, is complete: the answer may take its time. */
static void server_note_complete(pj_server *server, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context) return;
    pthread_mutex_lock(&server->mutex);
    ((slot *)info->socket_context)->since_ns = 0;
    pthread_mutex_unlock(&server->mutex);
}

/* ---- one request --------------------------------------------------------------------------- */

static void *server_begin_request(void *context, const char *raw_target,
                                  struct MHD_Connection *connection)
{
    return pj_http_new(raw_target);
}

static void server_end_request(void *context, struct MHD_Connection *connection, void **request,
                               enum MHD_RequestTerminationCode code)
{
    pj_server *server = context;
    pj_http *http = *request;
    if (http && http->answering) atomic_fetch_sub(&server->answering, 1);
    pj_http_free(http);
    *request = NULL;
}

/* An answer may take as long as a run, during which the connection is not idle; setting the timeout
 * also restarts it. */
static enum MHD_Result answer(pj_server *server, pj_http *http)
{
    http->answering = true;
    atomic_fetch_add(&server->answering, 1);
    server_note_complete(server, http->connection);
    MHD_set_connection_option(http->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    enum MHD_Result result = pj_routes_answer(&server->routes, http);
    MHD_set_connection_option(http->connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)TIMEOUT_S);
    return result;
}

/* Called by libmicrohttpd for the head, for each piece of the body, and once at the end. */
static enum MHD_Result server_take_request(void *context, struct MHD_Connection *connection,
                                           const char *url, const char *method, const char *version,
                                           const char *upload, size_t *upload_bytes, void **request)
{
    pj_server *server = context;
    pj_http *http = *request;
    if (!http) return MHD_NO;
    if (!http->connection) {
        http->connection = connection;
        http->method = method;
        http->begin_ns = pj_clock_ns();
        /* A good request is not answered yet, which libmicrohttpd would consider premature. */
        return pj_http_check_head(http, &server->routes.gate);
    }
    if (*upload_bytes > 0) {
        if (pj_clock_ns() - http->begin_ns > REQUEST_S * PJ_NS_PER_S) return MHD_NO;
        /* Excess input is read and discarded, so that the answer reaches the client. */
        if (!http->status) pj_buffer_append(&http->body, upload, *upload_bytes);
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (http->status) return MHD_YES;
    if (http->body.failed)
        return pj_http_problem(http, 413, "the body is larger than %d bytes", PJ_BODY_MAX_BYTES);
    return answer(server, http);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* The library's log is about misbehaving clients: not worth keeping. */
static void ignore_log(void *context, const char *format, va_list args) {}

static struct MHD_Daemon *start_daemon(pj_server *server, bool is_polled)
{
    unsigned flags = MHD_ALLOW_UPGRADE | MHD_USE_ITC | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET;
    if (!is_polled)
        flags |= MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, server_take_request, server, MHD_OPTION_EXTERNAL_LOGGER, ignore_log,
        NULL, MHD_OPTION_URI_LOG_CALLBACK, server_begin_request, server,
        MHD_OPTION_NOTIFY_COMPLETED, server_end_request, server, MHD_OPTION_NOTIFY_CONNECTION,
        server_on_connection, server, MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIBRARY_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_END);
}

/* Hands a connection to libmicrohttpd, which then owns the descriptor, whatever it makes of it;
 * false: there are too many. */
static bool server_pass_on(void *context, int fd, const struct sockaddr *address, socklen_t bytes)
{
    pj_server *server = context;
    pthread_mutex_lock(&server->mutex);
    server_make_room(server);
    pthread_mutex_unlock(&server->mutex);
    if (atomic_fetch_add(&server->handed, 1) >= CONNECTIONS_MAX) {
        atomic_fetch_sub(&server->handed, 1);
        return false;
    }
    if (MHD_add_connection(server->daemon, fd, address, bytes) != MHD_YES)
        atomic_fetch_sub(&server->handed, 1);
    return true;
}

static pj_status check_secrets(const char *token, const char *const *join_tokens, pj_error *err)
{
    if (strlen(token) < TOKEN_MIN_BYTES)
        return pj_fail(
            err, PJ_E_INVALID,
            "a token that other machines can try must have at least %d characters, not %zu",
            TOKEN_MIN_BYTES, strlen(token));
    for (; join_tokens && *join_tokens; join_tokens++)
        if (strlen(pj_join_token_secret(*join_tokens)) < TOKEN_MIN_BYTES)
            return pj_fail(err, PJ_E_INVALID, "a join token must have at least %d characters",
                           TOKEN_MIN_BYTES);
    return PJ_OK;
}

pj_status pj_server_open(const pj_server_options *options, pj_server **out, pj_error *err)
{
    *out = NULL;
    const char *host = options->host ? options->host : "127.0.0.1";
    bool loopback = pj_host_is_loopback(host);
    int listener = -1;
    pj_url address = {.port = options->port};
    snprintf(address.host, sizeof address.host, "%s", host);
    if (!loopback && !(options->token && options->token[0]))
        return pj_fail(err, PJ_E_INVALID,
                       "on %s this server is reachable from other machines: give --token "
                       "SECRET, or leave out --host",
                       host);
    pj_server *server = pj_alloc(1, sizeof *server);
    if (!server) return pj_fail_memory(err, "the server");
    server->routes = (pj_routes){.service = options->service,
                                 .hub = options->hub,
                                 .relay = options->relay,
                                 .say = options->say,
                                 .turns = &server->turns,
                                 .gate = {.loopback = loopback,
                                          .host = host,
                                          .token = options->token,
                                          .join_tokens = options->join_tokens,
                                          .extra_hosts = options->extra_hosts,
                                          .extra_origins = options->extra_origins}};
    pthread_mutex_init(&server->mutex, NULL);
    pj_turns_init(&server->turns);
    pj_status status = loopback ? PJ_OK : check_secrets(options->token, options->join_tokens, err);
    if (status == PJ_OK)
        status = pj_sessions_open(options->say, &server->routes.gate.sessions, err);
    if (status == PJ_OK && !options->no_listen) status = pj_listen(&address, &listener, err);
    if (status == PJ_OK) {
        server->port = (uint16_t)address.port;
        server->daemon = start_daemon(server, options->is_polled);
        if (!server->daemon)
            status = pj_fail(err, PJ_E_INTERNAL, "the HTTP server could not be started");
    }
    if (status == PJ_OK && listener >= 0)
        status = pj_front_open(listener, server_pass_on, server, &server->front, err);
    else if (listener >= 0)
        close(listener);
    if (status == PJ_OK)
        *out = server;
    else
        pj_server_close(server);
    return status;
}

/* Refuses new connections; small answers in progress are still completed. */
static void finish_answers(pj_server *server)
{
    int64_t end_ns = pj_clock_ns() + GRACE_MS * PJ_NS_PER_MS;
    pj_front_close(server->front);
    server->front = NULL;
    while (atomic_load(&server->answering) > 0 && pj_clock_ns() < end_ns)
        pj_clock_sleep_until(pj_clock_ns() + 5 * PJ_NS_PER_MS);
}

void pj_server_close(pj_server *server)
{
    if (!server) return;
    pj_turns_close(&server->turns);
    if (server->daemon) {
        finish_answers(server);
        MHD_stop_daemon(server->daemon);
    }
    pj_front_close(server->front);
    pj_sessions_close(server->routes.gate.sessions);
    pj_turns_fini(&server->turns);
    pthread_mutex_destroy(&server->mutex);
    pj_free(server);
}

uint16_t pj_server_port(const pj_server *server)
{
    return server->port;
}

pj_status pj_server_add(pj_server *server, int fd, pj_error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (server_pass_on(server, fd, (struct sockaddr *)&address, sizeof address)) return PJ_OK;
    close(fd);
    return pj_fail(err, PJ_E_FULL, "the server accepts no more connections");
}

void pj_server_poll(pj_server *server)
{
    MHD_run(server->daemon);
}
