/* perjoule serve: one process that runs models, streams live events, and serves dashboard and
 * API. */
#include "cli/exec_child.h"
#include "cli/options.h"
#include "cli/secrets.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "engine/generation/devices.h"
#include "net/server.h"
#include "serve/beats.h"
#include "serve/join.h"
#include "serve/otlp.h"
#include "serve/service.h"
#include "store/outbox.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct serve_args {
    const char *host, *models, *device, *token, *token_file, *otlp, *join, *join_token_file;
    int64_t port, queue, threads;
    pj_session_options session;
    pj_text_list allow_origin, allow_host, otlp_names, join_token;
    pj_secrets token_secret, join_secrets;
    bool open, is_private;
} serve_args;

typedef struct serve_state {
    pj_serve serve;
    pj_service service;
    pj_session *session;
    pj_pusher *pusher; /* transfers the outbox; NULL: none */
    pj_beats *beats;
    pj_otlp *otlp; /* NULL: no telemetry is sent */
    pj_join *join; /* NULL: --join was not given */
    pj_hub *hub;
    pj_server *server;
} serve_state;

/* ---- signals ---- */

static int stop_pipe[2] = {-1, -1}; /* from the handler to the stopper */
static int go_pipe[2] = {-1, -1};   /* from the stopper to the main thread */

enum { STOP_WITHIN_MS = 900 };

static void serve_on_signal(int number)
{
    static volatile sig_atomic_t again;
    int kept = errno;
    if (again) _exit(PJ_EXIT_INTERRUPTED); /* the second time: at once; the spool stays */
    again = 1;
    ssize_t n = write(stop_pipe[1], "s", 1);
    (void)n;
    errno = kept;
}

/* Stopping may take long while a model is being opened or a run stored. Their events are in the
 * spool, so nothing is lost by exiting after a deadline. */
static void *stop_in_time(void *context)
{
    char byte;
    while (read(stop_pipe[0], &byte, 1) < 0 && errno == EINTR) continue;
    if (write(go_pipe[1], "s", 1) < 0) _exit(PJ_EXIT_OK);
    pj_clock_sleep_until(pj_clock_ns() + STOP_WITHIN_MS * PJ_NS_PER_MS);
    static const char text[] = "perjoule serve: stopped at once; a run in progress is "
                               "recovered from its spool at the next start\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    _exit(PJ_EXIT_OK);
}

static pj_status serve_catch_signals(pj_error *err)
{
    struct sigaction action = {.sa_handler = serve_on_signal, .sa_flags = SA_RESTART};
    pthread_t stopper;
    if (pipe(stop_pipe) != 0 || pipe(go_pipe) != 0)
        return pj_fail_errno(err, errno, "cannot create a pipe");
    pj_status status = pj_thread_start(&stopper, "pj-stop", stop_in_time, NULL, err);
    if (status != PJ_OK) return status;
    pthread_detach(stopper);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return PJ_OK;
}

static void wait_for_signal(void)
{
    struct pollfd wait = {.fd = go_pipe[0], .events = POLLIN};
    while (poll(&wait, 1, -1) < 0 && errno == EINTR) continue;
}

/* ---- the browser ---- */

/* Why no browser can be started, or NULL. */
static const char *no_browser(const char *command)
{
    char path[4096];
    if (!pj_program_find(command, path, sizeof path) || access(path, X_OK) != 0)
        return "no browser was found on this machine";
#ifndef __APPLE__
    const char *x11 = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
    if (!(x11 && *x11) && !(wayland && *wayland)) return "no display is available for a browser";
#endif
    return NULL;
}

/* The command is a constant, the address our own. */
static void open_browser(const char *url, unsigned port)
{
#ifdef __APPLE__
    const char *command = "open";
#else
    const char *command = "xdg-open";
#endif
    const char *missing = no_browser(command);
    if (missing) {
        pj_print(stdout,
                 "%s: open %s in one. From another machine: ssh -L %u:127.0.0.1:%u HOST, and open "
                 "http://127.0.0.1:%u/ there\n",
                 missing, url, port, port, port);
        fflush(stdout);
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            FILE *silent = freopen("/dev/null", "w", stderr);
            if (silent) execlp(command, command, url, (char *)NULL);
        }
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
}

/* ---- starting and stopping ---- */

static void queue_changed(void *context, uint32_t waiting)
{
    pj_live_json_set_queue(context, waiting);
}

static void serve_say(const char *text)
{
    pj_say("perjoule serve: %s", text);
}

extern const pj_command pj_command_serve;

static pj_status start_work(serve_state *s, const serve_args *a, pj_error *err)
{
    pj_status status = pj_stored_session(&pj_command_serve, &a->session, &s->session, err);
    if (status != PJ_OK) return status;
    s->serve.meter = s->session->meter;
    if (s->session->store)
        s->session->recovery =
            pj_recovery_stay(s->session->recovery, pj_store_path(s->session->store));
    s->serve.recovery = s->session->recovery;
    s->serve.address = s->session->store ? pj_store_path(s->session->store) : "";
    s->pusher = pj_pusher_start(s->serve.address);
    status = pj_session_add_sink(s->session, pj_live_json_sink(s->serve.live), err);
    if (status != PJ_OK) return status;
    if (s->session->meter) {
        status = pj_idle_meter_open(s->session->meter, &s->serve.idle_meter, err);
        if (status != PJ_OK) return status;
    }
    if (s->session->store) {
        pj_beats_options beats = {.database = s->serve.address,
                                  .session = s->session,
                                  .log = pj_idle_meter_log(s->serve.idle_meter)};
        status = pj_beats_open(&beats, &s->beats, err);
        if (status != PJ_OK) return status;
    }
    if (a->otlp) {
        pj_otlp_options otlp = {.url = a->otlp,
                                .host = s->session->machine.name,
                                .renames = a->otlp_names.items,
                                .service = &s->service,
                                .log = pj_idle_meter_log(s->serve.idle_meter),
                                .say = serve_say};
        status = pj_otlp_open(&otlp, &s->otlp, err);
        if (status == PJ_OK) status = pj_session_add_sink(s->session, pj_otlp_sink(s->otlp), err);
        if (status != PJ_OK) return status;
    }
    pj_experiments_options experiments = {.session = s->session,
                                          .models = a->models,
                                          .limit = (uint32_t)a->queue,
                                          .threads = (uint32_t)a->threads,
                                          .is_private = a->is_private,
                                          .live = s->serve.live};
    status = pj_experiments_open(&experiments, &s->serve.experiments, err);
    if (status != PJ_OK) return status;
    pj_run_queue_options queue = {.session = s->session,
                                  .idle = s->serve.idle_meter,
                                  .experiments = s->serve.experiments,
                                  .limit = (uint32_t)a->queue,
                                  .threads = (uint32_t)a->threads,
                                  .is_private = a->is_private,
                                  .changed = queue_changed,
                                  .context = s->serve.live};
    status = pj_run_queue_open(&queue, &s->serve.queue, err);
    return status == PJ_OK && s->otlp ? pj_otlp_start(s->otlp, err) : status;
}

static pj_status start_live(serve_state *s, pj_error *err)
{
    pj_status status = pj_live_json_open(&s->serve.live, err);
    if (status != PJ_OK) return status;
    pj_hub_options hub = {.hello = pj_live_json_hello, .context = s->serve.live};
    status = pj_hub_open(&hub, &s->hub, err);
    if (status == PJ_OK) pj_live_json_attach(s->serve.live, s->hub);
    return status;
}

static pj_status serve_start(serve_state *s, const serve_args *a, pj_error *err)
{
    pj_serve_init(&s->serve);
    s->serve.database = a->session.database;
    s->serve.models = a->models;
    s->serve.device = a->device;
    s->serve.power = a->session.power;
    s->serve.queue_limit = (uint32_t)a->queue;
    pj_serve_service(&s->serve, &s->service);
    pj_file_limit_raise(PJ_HUB_READERS_MAX +
                        4096); /* live readers, and requests with their descriptors */
    pj_status status = start_live(s, err);
    if (status == PJ_OK) status = pj_relay_open(&s->serve.relay, err);
    if (status == PJ_OK) status = start_work(s, a, err);
    if (status != PJ_OK) return status;
    pj_server_options server = {.host = a->host,
                                .port = (uint16_t)a->port,
                                .token = a->token,
                                .join_tokens = a->join ? NULL : a->join_secrets.items,
                                .say = serve_say,
                                .extra_hosts = a->allow_host.items,
                                .extra_origins = a->allow_origin.items,
                                .service = &s->service,
                                .hub = s->hub,
                                .relay = s->serve.relay};
    status = pj_server_open(&server, &s->server, err);
    if (status != PJ_OK || !a->join) return status;
    pj_join_options join = {.url = a->join,
                            .token = a->join_secrets.count ? a->join_secrets.items[0] : a->token,
                            .machine = s->session->machine.name,
                            .hub = s->hub,
                            .say = serve_say};
    return pj_join_open(&join, &s->join, err);
}

/* Stops runs first: the current one is cancelled and stored, and readers get its events before
 * their connections close. */
static void serve_stop(serve_state *s)
{
    pj_beats_close(s->beats);
    pj_pusher_stop(s->pusher);
    if (s->serve.queue) pj_run_queue_stop(s->serve.queue);
    pj_join_close(s->join);
    pj_server_close(s->server);
    pj_relay_close(s->serve.relay);
    pj_hub_close(s->hub);
    pj_otlp_close(s->otlp);
    pj_run_queue_close(s->serve.queue);
    pj_experiments_close(s->serve.experiments);
    pj_idle_meter_close(s->serve.idle_meter);
    if (s->session) s->session->hurried = true;
    pj_session_close(s->session);
    pj_live_json_close(s->serve.live);
    pj_serve_fini(&s->serve);
}

/* The page opens on the newest run, if there is one. */
static void add_newest_run(pj_store *store, char *url, size_t bytes)
{
    char id[PJ_UUID_BYTES];
    size_t used = strlen(url);
    if (store && pj_store_resolve(store, "last", id, NULL) == PJ_OK)
        snprintf(url + used, bytes - used, "?view=analysis&run=%s", id);
}

static void print_address(const serve_state *s, const serve_args *a)
{
    char url[400];
    const char *host = a->host ? a->host : "127.0.0.1";
    bool v6 = strchr(host, ':') != NULL;
    snprintf(url, sizeof url, "http://%s%.200s%s:%u/", v6 ? "[" : "", host, v6 ? "]" : "",
             pj_server_port(s->server));
    pj_print(stdout, "perjoule %s listens on %s\n", pj_version(), url);
    if (s->session->store)
        pj_print(stdout, "runs are stored in %s\n", pj_store_path(s->session->store));
    if (s->session->store) pj_say_waiting(pj_store_path(s->session->store));
    uint32_t rails = 0;
    if (s->session->meter) pj_meter_rails(s->session->meter, &rails);
    if (s->session->meter && rails == 0)
        pj_print(stdout, "power: unavailable. %s\n", pj_meter_remedy(s->session->meter));
    else if (s->session->meter)
        pj_print(stdout, "power: %s (%s)\n", pj_meter_sources(s->session->meter),
                 pj_meter_quality(s->session->meter) == PJ_MEASURED ? "measured" : "modelled");
    fflush(stdout);
    if (a->open) {
        add_newest_run(s->session->store, url, sizeof url);
        open_browser(url, pj_server_port(s->server));
    }
}

/* Secrets of the command line and files; those of the environment have been taken already. */
static pj_status take_secrets(serve_args *a, pj_error *err)
{
    const char *sent = getenv("PERJOULE_JOIN_TOKEN");
    if (sent && *sent && !a->join_token.count && !a->join_token_file)
        a->join_token.items[a->join_token.count++] = sent;
    pj_status status = pj_secrets_open(&a->join_token, a->join_token_file, &a->join_secrets, err);
    if (status == PJ_OK && a->join && a->join_secrets.count > 1)
        status = pj_fail(err, PJ_E_INVALID, "with --join, one --join-token is sent: %d were given",
                         a->join_secrets.count);
    if (status != PJ_OK || !a->token_file) return status;
    status = pj_secrets_open(NULL, a->token_file, &a->token_secret, err);
    if (status == PJ_OK) a->token = pj_secrets_only(&a->token_secret, a->token_file, err);
    return a->token ? status : PJ_E_INVALID;
}

static void warn_of_secrets(const serve_args *a)
{
    const char *token = getenv("PERJOULE_TOKEN");
    if (a->token && a->token != token) pj_secrets_warn("--token", "--token-file or PERJOULE_TOKEN");
    if (a->join_token.count)
        pj_secrets_warn("--join-token", "--join-token-file or PERJOULE_JOIN_TOKEN");
    if (pj_secrets_in_url(a->otlp) && a->otlp != getenv("PERJOULE_OTLP"))
        pj_secrets_warn("--otlp", "PERJOULE_OTLP");
}

/* Blocks of this size are mapped and given back when they are freed. glibc's own limit grows to the
 * largest block that was freed (at most 32 MB): the heaps of threads then keep the holes of runs
 * and answers, a third of the memory of a server that has worked for a while. */
static void return_large_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

static int serve_execute(const pj_command *command, serve_args *a)
{
    pj_error err = {0};
    return_large_blocks();
    serve_state *s = pj_alloc(1, sizeof *s);
    pj_status status = s ? take_secrets(a, &err) : pj_fail_memory(&err, "the server");
    if (status == PJ_OK) status = pj_device_check(a->device, &err);
    if (status == PJ_OK) status = serve_catch_signals(&err);
    if (status == PJ_OK) status = serve_start(s, a, &err);
    if (status == PJ_OK) {
        print_address(s, a);
        wait_for_signal();
        pj_say("perjoule serve: stopping");
    }
    if (s) serve_stop(s);
    pj_free(s);
    pj_secrets_close(&a->token_secret);
    pj_secrets_close(&a->join_secrets);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

/* ---- the command ---- */

static int run_serve(const pj_command *command, int argc, char **argv)
{
    serve_args a = {.port = 8000,
                    .queue = 16,
                    .token = getenv("PERJOULE_TOKEN"),
                    .otlp = getenv("PERJOULE_OTLP")};
    const pj_option options[] = {
        {"host", 0, PJ_OPTION_TEXT, &a.host, "ADDRESS",
         "address to listen on (127.0.0.1); others require --token"},
        {"port", 0, PJ_OPTION_INT, &a.port, "N", "port (8000); 0 takes a free one and prints it", 0,
         65535, .old_letter = 'p'},
        {"db", 0, PJ_OPTION_TEXT, &a.session.database, "FILE", "database of runs",
         .rule = pj_rule_database},
        {"models", 0, PJ_OPTION_TEXT, &a.models, "DIR",
         "folder of models ($PERJOULE_MODELS, else ./models)", .rule = pj_rule_folder},
        PJ_OPTION_DEVICE(&a.device),
        PJ_OPTION_POWER(&a.session.power),
        PJ_OPTION_INTERVAL(&a.session.interval_ns, 0, "sampling interval, e.g. 10ms"),
        {"token", 0, PJ_OPTION_TEXT, &a.token, "SECRET",
         "require this token for every request ($PERJOULE_TOKEN)", .excludes = "token-file"},
        {"token-file", 0, PJ_OPTION_TEXT, &a.token_file, "FILE",
         "read the token from a file, which other users cannot see as they can a command line",
         .rule = pj_rule_file},
        {"queue", 0, PJ_OPTION_INT, &a.queue, "N", "maximum number of queued runs (16)", 1,
         PJ_QUEUE_MAX},
        {"threads", 't', PJ_OPTION_INT, &a.threads, "N", "threads of the engine (one per core)", 1,
         256},
        {"private", 0, PJ_OPTION_FLAG, &a.is_private, NULL,
         "store a hash, length and simple features of prompts and outputs, not the texts"},
        {"join", 0, PJ_OPTION_TEXT, &a.join, "URL",
         "allow watching this machine's live stream through that server",
         .rule = pj_rule_server_or_tls},
        {"join-token", 0, PJ_OPTION_LIST, &a.join_token, "SECRET",
         "with --join: token sent to that server ($PERJOULE_JOIN_TOKEN, else --token); without: "
         "SECRET or NAME=SECRET that any machine or machine NAME must join with; may be repeated"},
        {"join-token-file", 0, PJ_OPTION_TEXT, &a.join_token_file, "FILE",
         "read join tokens from a file, one per line", .rule = pj_rule_file},
        {"otlp", 0, PJ_OPTION_TEXT, &a.otlp, "URL",
         "send metrics and a span per run to this OpenTelemetry collector ($PERJOULE_OTLP)",
         .rule = pj_otlp_check_url},
        {"otlp-name", 0, PJ_OPTION_LIST, &a.otlp_names, "OLD=NEW",
         "send a metric or attribute under another name, e.g. hw.energy=acme.energy; may be "
         "repeated",
         .rule = pj_otlp_check_rename, .needs = "otlp $PERJOULE_OTLP"},
        {"open", 0, PJ_OPTION_FLAG, &a.open, NULL, "open the newest run in the browser"},
        {"allow-host", 0, PJ_OPTION_LIST, &a.allow_host, "NAME",
         "accept requests for this host name, e.g. that of a proxy; may be repeated",
         .rule = pj_rule_host},
        {"allow-origin", 0, PJ_OPTION_LIST, &a.allow_origin, "ORIGIN",
         "accept requests from pages of this origin, for developing the dashboard; may be "
         "repeated",
         .rule = pj_rule_origin},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    if (a.token && !a.token[0]) a.token = NULL;
    if (a.otlp && !a.otlp[0]) a.otlp = NULL;
    warn_of_secrets(&a);
    return serve_execute(command, &a);
}

const pj_command pj_command_serve = {
    .name = "serve",
    .summary = "serve the dashboard, the API and the live stream",
    .run = run_serve,
    .shows_progress = true,
    .usage = "[options]",
    .text =
        "Listens on 127.0.0.1:8000: the dashboard at /, the API under /api, live messages at "
        "/ws/profiling, Prometheus metrics at /metrics. Requested runs are queued; a run in "
        "progress when the server stops is cancelled and stored.\n\n"
        "Only this machine can reach it unless --host is given; then every request needs "
        "the token. There is no TLS: across a network, use an SSH tunnel or a TLS proxy "
        "(with --allow-host for the proxy's name).\n\n"
        "On a server of a fleet, --db names the PostgreSQL database that all machines write to; "
        "each machine runs its own perjoule serve --db ... --join with the address of that server, "
        "and can then be watched there. An unwatched machine keeps one idle connection. With "
        "--join-token on that server machines join with such a token, which opens nothing else, "
        "and no longer with --token; a token that is left out is revoked at the next start.",
    .examples = "perjoule serve --open\n"
                "perjoule serve --port 0 --power sim --db /tmp/try.db\n"
                "PERJOULE_TOKEN=secret perjoule serve --host 0.0.0.0\n"
                "perjoule serve --db postgresql://bench01@db.lab/perjoule --join "
                "http://fleet.lab:8000 --otlp http://otel.lab:4318\n",
};
