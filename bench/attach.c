/*
 * perjoule bench attach: overhead of the proxy of `perjoule attach --listen`. A server and a client
 * in this process communicate directly, through a relay that copies bytes unexamined,
 * and through the proxy. Added latency of a request: difference of the median durations, measured
 * alternately. Streams are sent as fast as they are taken, then paced: all chunks at once, as
 * engines with continuous batching send them, and evenly spread. CPU cost per chunk: time of the
 * proxy's thread over the number of chunks. Delay per chunk: difference of the median transit times
 * of paced chunks. Simulated sensors are read and every request is recorded, as in real use;
 * nothing is stored.
 */
#include "attach/client.h"
#include "attach/proxy.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/thread.h"
#include "bench/relay.h"
#include "cli/options.h"
#include "requests/requests.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_REQUESTS = 2000, CHUNK_TEXT = 512, PEERS_MAX = 1024, PACED_CHUNKS = 40 };
#define PACE_NS (50 * PJ_NS_PER_MS) /* between the chunks of a paced stream */

typedef enum pace { UNPACED = 0, TOGETHER, SPREAD, PACES } pace;
typedef enum way { DIRECT = 0, RELAYED, PROXIED, WAYS } way;

/* Transit times of the chunks of paced streams, and the CPU time of the thread between. */
typedef struct delays {
    double *us; /* [streams * PACED_CHUNKS] */
    uint32_t count;
    double cpu_us; /* per chunk */
} delays;

typedef struct bench {
    int64_t requests, chunks, streams;
    bool json;
    int server, listener, relay_listener;
    pj_url server_url, proxy_url, relay_url;
    _Atomic bool stop;
    pace pace;
    pthread_t server_thread, proxy_thread, relay_thread;
    pj_session *session;
    pj_requests *recorder;
    int64_t proxy_cpu_ns, relay_cpu_ns; /* CPU time of their threads, set at their end */
    pj_bench_relay relay;
    pj_proxy_options options;
    double direct_us[MOST_REQUESTS], through_us[MOST_REQUESTS];
    delays delays[PACES][WAYS];
    double chunk_us, direct_stream_ms, through_stream_ms;
} bench;

/* ---- the server ---- */

typedef struct peer {
    int fd;
    char in[4096];
    size_t have;
    int64_t left;    /* chunks of a stream still to be sent */
    int64_t next_ns; /* when the next one is due */
} peer;

static bool send_chunk(const peer *p, const char *data)
{
    char text[CHUNK_TEXT];
    int n = snprintf(text, sizeof text, "%zx\r\n%s\r\n", strlen(data), data);
    return pj_bench_send(p->fd, text, (size_t)n);
}

/* The text of a piece is the time at which it is sent. */
static bool send_piece(peer *p)
{
    static const char form[] =
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" %lld\"},"
        "\"finish_reason\":null}]}\n\n";
    char piece[CHUNK_TEXT / 2];
    static const char usage[] = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,"
                                "\"completion_tokens\":9}}\n\ndata: [DONE]\n\n";
    snprintf(piece, sizeof piece, form, (long long)pj_clock_ns());
    p->next_ns += PACE_NS;
    if (--p->left > 0) return send_chunk(p, piece);
    return send_chunk(p, usage) && pj_bench_send(p->fd, "0\r\n\r\n", 5);
}

/* When the first paced chunk of a connection is due: on a common grid, or at evenly spread
 * offsets. */
static int64_t first_due(const bench *b, uint32_t index)
{
    int64_t now_ns = pj_clock_ns(), grid_ns = now_ns - now_ns % PACE_NS + PACE_NS;
    if (b->pace == UNPACED) return now_ns;
    return b->pace == TOGETHER ? grid_ns : grid_ns + PACE_NS * (int64_t)index / b->streams;
}

static bool begin_answer(const bench *b, peer *p, uint32_t index)
{
    static const char whole[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 113\r\n\r\n"
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\"}}],"
        "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}";
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    bool stream = strstr(p->in, "\"stream\"") != NULL;
    p->have = 0;
    p->left = !stream ? 0 : b->pace ? PACED_CHUNKS + 1 : b->chunks;
    p->next_ns = first_due(b, index);
    return stream ? pj_bench_send(p->fd, head, strlen(head))
                  : pj_bench_send(p->fd, whole, strlen(whole));
}

/* False: the peer has disconnected. */
static bool listen_to(const bench *b, peer *p, uint32_t index)
{
    ssize_t n = recv(p->fd, p->in + p->have, sizeof p->in - 1 - p->have, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    p->have += (size_t)n;
    p->in[p->have] = 0;
    const char *end = strstr(p->in, "\r\n\r\n"), *length = strstr(p->in, "Content-Length: ");
    if (!end || !length) return p->have < sizeof p->in - 1;
    if (p->have < (size_t)(end + 4 - p->in) + strtoul(length + 16, NULL, 10)) return true;
    return begin_answer(b, p, index);
}

static void *attach_serve(void *context)
{
    static peer peers[PEERS_MAX];
    static struct pollfd polls[PEERS_MAX + 1];
    bench *b = context;
    uint32_t count = 0;
    while (!atomic_load(&b->stop)) {
        bool busy = false;
        for (uint32_t i = 0; i < count; i++) {
            polls[i] = (struct pollfd){.fd = peers[i].fd, .events = POLLIN};
            busy |= peers[i].left > 0;
        }
        polls[count] = (struct pollfd){.fd = b->server, .events = POLLIN};
        poll(polls, count + 1, busy ? b->pace != UNPACED : 20);
        int64_t now_ns = b->pace ? pj_clock_ns() : INT64_MAX;
        bool more = polls[count].revents & POLLIN;
        for (uint32_t i = count; i-- > 0;) {
            bool ok = !polls[i].revents || listen_to(b, &peers[i], i);
            if (ok && peers[i].left > 0 && now_ns >= peers[i].next_ns) ok = send_piece(&peers[i]);
            if (ok) continue;
            close(peers[i].fd);
            peers[i] = peers[--count];
        }
        for (int fd; more && count < PEERS_MAX && (fd = pj_accept(b->server)) >= 0;)
            peers[count++] = (peer){.fd = fd};
    }
    while (count) close(peers[--count].fd);
    return NULL;
}

/* ---- the proxy ---- */

static int attach_admit(void *context, const char *host, const char *origin,
                        const char *authorization, const char *token, const char **detail)
{
    return 0;
}

static bool attach_is_own_token(void *context, const char *authorization)
{
    return false;
}

static void *attach_begin(void *context, pj_exchange *exchange)
{
    return pj_request_begin(((bench *)context)->recorder, exchange, NULL);
}

static void attach_progress(void *context, void *request)
{
    pj_request_progress(request);
}

static void attach_end(void *context, void *request, pj_exchange *exchange)
{
    if (request)
        pj_request_end(request, true);
    else
        pj_exchange_free(exchange);
}

static void attach_release(void *context, void *request)
{
    pj_request_release(request);
}

static const char *attach_id(void *context, void *request)
{
    return pj_request_id(request);
}

static pj_proxy_energy attach_energy(void *context, void *request, int64_t now_ns)
{
    pj_ledger_figure f = pj_request_energy(request, now_ns);
    return (pj_proxy_energy){f.total_mj, f.input_mj, f.output_mj, f.total_mj,
                             f.total_mj, "modelled", "allocated", f.provisional};
}

static void *run_proxy(void *context)
{
    bench *b = context;
    pj_proxy_run(&b->options, NULL);
    b->proxy_cpu_ns = pj_clock_thread_cpu_ns();
    return NULL;
}

static void *run_relay(void *context)
{
    bench *b = context;
    pj_bench_relay_run(&b->relay);
    b->relay_cpu_ns = pj_clock_thread_cpu_ns();
    return NULL;
}

static pj_status start_relay(bench *b, pj_error *err)
{
    pj_url_parse_listen("127.0.0.1:0", &b->relay_url, err);
    pj_status status = pj_listen(&b->relay_url, &b->relay_listener, err);
    b->relay =
        (pj_bench_relay){.to = &b->server_url, .listener = b->relay_listener, .stop = &b->stop};
    if (status != PJ_OK) return status;
    return pj_thread_start(&b->relay_thread, "pj-bench-relay", run_relay, b, err);
}

static pj_status start_proxy(bench *b, pj_error *err)
{
    atomic_store(&b->stop, false);
    pj_url_parse_listen("127.0.0.1:0", &b->proxy_url, err);
    pj_status status = start_relay(b, err);
    if (status == PJ_OK) status = pj_listen(&b->proxy_url, &b->listener, err);
    if (status != PJ_OK) return status;
    b->options = (pj_proxy_options){.url = &b->server_url,
                                    .listener = b->listener,
                                    .stop = &b->stop,
                                    .hooks = {b, attach_admit, attach_is_own_token, attach_begin,
                                              attach_progress, attach_end, attach_release,
                                              attach_id, attach_energy}};
    status = pj_thread_start(&b->server_thread, "pj-bench-server", attach_serve, b, err);
    if (status == PJ_OK)
        status = pj_thread_start(&b->proxy_thread, "pj-bench-proxy", run_proxy, b, err);
    return status;
}

static void stop_proxy(bench *b)
{
    atomic_store(&b->stop, true);
    pthread_join(b->proxy_thread, NULL);
    pthread_join(b->relay_thread, NULL);
    pthread_join(b->server_thread, NULL);
    close(b->listener);
    close(b->relay_listener);
}

/* ---- the client ---- */

typedef struct load {
    const char *body;
    double *us;       /* [requests] */
    double *delay_us; /* [most_delays] of chunks */
    uint32_t delays, most_delays;
    int64_t begun_ns;
    uint32_t done;
} load;

static const char *load_body(void *context, uint32_t index, size_t *bytes)
{
    const load *l = context;
    *bytes = strlen(l->body);
    return l->body;
}

static void *load_begin(void *context, uint32_t index, pj_exchange *exchange)
{
    ((load *)context)->begun_ns = pj_clock_ns();
    return exchange;
}

/* A chunk's text ends with the time at which it was sent. */
static void attach_load_progress(void *context, void *request)
{
    load *l = context;
    int64_t now_ns = pj_clock_ns();
    const char *last = l->delay_us ? strrchr(pj_exchange_text(request), ' ') : NULL;
    if (!last || l->delays >= l->most_delays) return;
    l->delay_us[l->delays++] = (double)(now_ns - strtoll(last, NULL, 10)) / 1e3;
}

static void load_end(void *context, void *request, pj_exchange *exchange)
{
    load *l = context;
    if (l->us && exchange->outcome == PJ_EXCHANGE_COMPLETED)
        l->us[l->done++] = (double)(pj_clock_ns() - l->begun_ns) / 1e3;
    pj_exchange_free(exchange);
}

static pj_status attach_put_load(const pj_url *url, const char *body, uint32_t requests,
                                 uint32_t concurrency, load *l, pj_error *err)
{
    pj_client_options options = {
        .url = url,
        .path = "/v1/chat/completions",
        .requests = requests,
        .concurrency = concurrency,
        .hooks = {l, load_body, load_begin, attach_load_progress, load_end}};
    l->body = body;
    return pj_client_run(&options, err);
}

static const char whole_body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
static const char stream_body[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"stream\":true}";

/* Alternating, so that other load affects both alike. */
static pj_status measure_requests(bench *b, pj_error *err)
{
    load direct = {.us = b->direct_us}, through = {.us = b->through_us};
    pj_status status = PJ_OK;
    enum { AT_A_TIME = 10 };
    for (int64_t i = 0; i < b->requests && status == PJ_OK; i += AT_A_TIME) {
        status = attach_put_load(&b->server_url, whole_body, AT_A_TIME, 1, &direct, err);
        if (status == PJ_OK)
            status = attach_put_load(&b->proxy_url, whole_body, AT_A_TIME, 1, &through, err);
    }
    if (status == PJ_OK && (direct.done < b->requests || through.done < b->requests))
        status = pj_fail(err, PJ_E_INTERNAL, "some requests of the bench failed");
    return status;
}

static pj_status measure_streams(bench *b, pj_error *err)
{
    load l = {0};
    int64_t begun_ns = pj_clock_ns();
    pj_status status = attach_put_load(&b->server_url, stream_body, (uint32_t)b->streams,
                                       (uint32_t)b->streams, &l, err);
    b->direct_stream_ms = (double)(pj_clock_ns() - begun_ns) / 1e6;
    begun_ns = pj_clock_ns();
    if (status == PJ_OK)
        status = attach_put_load(&b->proxy_url, stream_body, (uint32_t)b->streams,
                                 (uint32_t)b->streams, &l, err);
    b->through_stream_ms = (double)(pj_clock_ns() - begun_ns) / 1e6;
    return status;
}

static pj_status measure_delay(bench *b, const pj_url *url, delays *d, pj_error *err)
{
    load l = {.most_delays = (uint32_t)b->streams * PACED_CHUNKS};
    d->us = l.delay_us = pj_alloc(l.most_delays, sizeof *l.delay_us);
    if (!l.delay_us) return pj_fail_memory(err, "the bench");
    pj_status status =
        attach_put_load(url, stream_body, (uint32_t)b->streams, (uint32_t)b->streams, &l, err);
    d->count = l.delays;
    if (status == PJ_OK && !l.delays)
        status = pj_fail(err, PJ_E_INTERNAL, "some streams of the bench failed");
    return status;
}

static pj_status measure_delays(bench *b, pace paced, pj_error *err)
{
    const pj_url *urls[WAYS] = {&b->server_url, &b->relay_url, &b->proxy_url};
    delays *d = b->delays[paced];
    pj_requests_drain(b->recorder); /* wait until earlier requests are stored, which would delay the
                                       chunks measured next */
    b->pace = paced;
    pj_status status = start_proxy(b, err);
    if (status != PJ_OK) return status;
    for (int w = 0; w < WAYS && status == PJ_OK; w++)
        status = measure_delay(b, urls[w], &d[w], err);
    stop_proxy(b);
    d[RELAYED].cpu_us = (double)b->relay_cpu_ns / 1e3 / (double)(PACED_CHUNKS * b->streams);
    d[PROXIED].cpu_us = (double)b->proxy_cpu_ns / 1e3 / (double)(PACED_CHUNKS * b->streams);
    return status;
}

static pj_status attach_measure(bench *b, pj_error *err)
{
    pj_url_parse_listen("127.0.0.1:0", &b->server_url, err);
    pj_status status = pj_listen(&b->server_url, &b->server, err);
    pj_session_options session = {.power = "sim", .database = "none", .baseline_seconds = -1};
    if (status == PJ_OK) status = pj_session_open(&session, &b->session, err);
    pj_requests_options recorder = {.session = b->session, .engine = "bench", .url = "bench"};
    if (status == PJ_OK) status = pj_requests_open(&recorder, &b->recorder, err);
    if (status == PJ_OK) status = start_proxy(b, err);
    if (status != PJ_OK) return status;
    status = measure_requests(b, err);
    stop_proxy(b);
    if (status == PJ_OK) status = start_proxy(b, err);
    if (status != PJ_OK) return status;
    status = measure_streams(b, err);
    stop_proxy(b);
    b->chunk_us = (double)b->proxy_cpu_ns / 1e3 / (double)(b->chunks * b->streams);
    if (status == PJ_OK) status = measure_delays(b, TOGETHER, err);
    return status == PJ_OK ? measure_delays(b, SPREAD, err) : status;
}

/* ---- the report ---- */

static double attach_quantile(double *us, int64_t count, double q)
{
    pj_sort_doubles(us, (size_t)count);
    return us[(int64_t)(q * (double)(count - 1))];
}

static void print_paced(bench *b, pace paced, const char *name)
{
    delays *d = b->delays[paced];
    double direct = attach_quantile(d[DIRECT].us, d[DIRECT].count, 0.5);
    printf("%-9s %.1f us on the way direct; through a relay %.1f us later, %.2f us of processor "
           "time; through the proxy %.1f us later, %.2f us\n",
           name, direct, attach_quantile(d[RELAYED].us, d[RELAYED].count, 0.5) - direct,
           d[RELAYED].cpu_us, attach_quantile(d[PROXIED].us, d[PROXIED].count, 0.5) - direct,
           d[PROXIED].cpu_us);
}

static void write_paced(bench *b, pace paced, const char *name, pj_json *json)
{
    delays *d = b->delays[paced];
    double direct = attach_quantile(d[DIRECT].us, d[DIRECT].count, 0.5);
    pj_json_key(json, name);
    pj_json_object_begin(json);
    pj_json_kv_double(json, "direct_us", direct);
    pj_json_kv_double(json, "relay_added_us",
                      attach_quantile(d[RELAYED].us, d[RELAYED].count, 0.5) - direct);
    pj_json_kv_double(json, "relay_cpu_us", d[RELAYED].cpu_us);
    pj_json_kv_double(json, "added_us",
                      attach_quantile(d[PROXIED].us, d[PROXIED].count, 0.5) - direct);
    pj_json_kv_double(json, "cpu_us", d[PROXIED].cpu_us);
    pj_json_object_end(json);
}

static void attach_print_text(bench *b, double direct, double through, double slow)
{
    printf("request   direct %8.1f us   through the proxy %8.1f us   added %8.1f us (95th "
           "percentile %.1f us)\n",
           direct, through, through - direct, slow);
    printf("chunk     %.2f us of processor time (%lld streams of %lld chunks; %.0f ms direct, "
           "%.0f ms through)\n",
           b->chunk_us, (long long)b->streams, (long long)b->chunks, b->direct_stream_ms,
           b->through_stream_ms);
    printf("%lld streams with a chunk every %d ms, all at once and evenly spread:\n",
           (long long)b->streams, (int)(PACE_NS / PJ_NS_PER_MS));
    print_paced(b, TOGETHER, "at once");
    print_paced(b, SPREAD, "spread");
}

static void print_attach(bench *b)
{
    double direct = attach_quantile(b->direct_us, b->requests, 0.5);
    double through = attach_quantile(b->through_us, b->requests, 0.5);
    double slow = attach_quantile(b->through_us, b->requests, 0.95) -
                  attach_quantile(b->direct_us, b->requests, 0.95);
    pj_buffer buffer;
    pj_json json;
    if (!b->json) {
        attach_print_text(b, direct, through, slow);
        return;
    }
    pj_buffer_init(&buffer, 1 << 16);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_double(&json, "request_direct_us", direct);
    pj_json_kv_double(&json, "request_through_us", through);
    pj_json_kv_double(&json, "request_added_us", through - direct);
    pj_json_kv_double(&json, "request_added_p95_us", slow);
    pj_json_kv_double(&json, "chunk_cpu_us", b->chunk_us);
    write_paced(b, TOGETHER, "paced_at_once", &json);
    write_paced(b, SPREAD, "paced_spread", &json);
    pj_json_kv_int(&json, "streams", b->streams);
    pj_json_kv_int(&json, "chunks", b->chunks);
    pj_json_object_end(&json);
    if (pj_json_finish(&json)) puts(pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

static int run_bench_attach(const pj_command *command, int argc, char **argv)
{
    pj_error err = {0};
    bench *b = pj_alloc(1, sizeof *b);
    if (!b) {
        pj_fail_memory(&err, "the bench");
        return pj_command_failed(command, &err);
    }
    b->requests = 500;
    b->chunks = 500;
    b->streams = 20;
    b->server = b->listener = -1;
    const pj_option options[] = {
        {"requests", 'r', PJ_OPTION_INT, &b->requests, "N", "requests each way (500)", 10,
         MOST_REQUESTS - 10},
        {"streams", 0, PJ_OPTION_INT, &b->streams, "N", "streams at once (20)", 1, 500,
         .old_letter = 's'},
        {"chunks", 0, PJ_OPTION_INT, &b->chunks, "N", "chunks of a stream (500)", 10, 100000,
         .old_letter = 'c'},
        {"json", 0, PJ_OPTION_FLAG, &b->json, NULL, "print one JSON object"},
        {0}};
    int positional, code = pj_options_parse(command, options, argc, argv, &positional);
    if (code == PJ_PARSE_GO_ON) {
        b->requests -= b->requests % 10;
        pj_status status = attach_measure(b, &err);
        if (status == PJ_OK) print_attach(b);
        for (int i = 0; i < PACES * WAYS; i++) pj_free(b->delays[i / WAYS][i % WAYS].us);
        pj_requests_close(b->recorder);
        pj_session_close(b->session);
        if (b->server >= 0) close(b->server);
        code = status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
    }
    pj_free(b);
    return code;
}

const pj_command pj_bench_attach = {
    .name = "bench attach",
    .summary = "latency that the proxy adds to requests and chunks",
    .run = run_bench_attach,
    .usage = "[options]",
    .text = "A server and a client in this process talk to each other directly and through the "
            "proxy of `perjoule attach --listen`, in turns, with simulated sensors and without a "
            "database. Prints the median time of a small request both ways, the processor time "
            "of the proxy's thread per chunk of a stream, and how much later a chunk comes, with "
            "a relay that only copies bytes for comparison.",
    .examples = "perjoule bench attach\nperjoule bench attach --streams 200 --chunks 200 --json\n",
};
