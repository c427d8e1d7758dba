/*
 * perjoule bench server: what live readers cost a run, and what they cost themselves. One run after
 * another goes on, its engine pinned to one core; in turn nobody listens, or a thousand WebSocket
 * readers are served from another core, where the run's recorder and its sampler are in both cases.
 * Ratios of times within a round say what the readers cost the run; the messages that each reader
 * got are counted and their numbers checked.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/thread.h"
#include "cli/bench_taps.h"
#include "cli/options.h"
#include "net/live_json.h"
#include "net/server.h"
#include "profile/find_model.h"
#include "profile/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_ROUNDS = 200, WAIT_S = 60 };

typedef struct server_bench {
    const char *model, *power;
    int64_t readers, deaf, rounds, tokens;
    bool text, json;
    /* the two cores; the same where there is one */
    int run_cpu, serve_cpu;
    pj_hub *hub;
    pj_live_json *live;
    pj_server *server;
    pj_status status; /* of the run's thread */
    pj_error err;
    double alone_ms[MAX_ROUNDS], watched_ms[MAX_ROUNDS];         /* wall time of a run's passes */
    double alone_cpu_ms[MAX_ROUNDS], watched_cpu_ms[MAX_ROUNDS]; /* CPU time of its thread */
    pj_taps_report total;
    uint64_t hub_sent;
    double hub_cpu_s, watched_s;
    bool all_delivered;
    size_t memory_kb;
} server_bench;

/* ---- one run ------------------------------------------------------------------------------- */

typedef struct timed {
    double wall_ms, cpu_ms;
} timed;

static pj_status run_once(pj_session *session, pj_model_slot *slot,
                          const pj_profile_options *options, timed *t, pj_error *err)
{
    pj_profile_result result;
    int64_t cpu_ns = pj_clock_thread_cpu_ns();
    pj_status status = pj_profile_generate(session, slot, options, &result, err);
    t->cpu_ms = (double)(pj_clock_thread_cpu_ns() - cpu_ns) / 1e6;
    t->wall_ms = (double)(result.generated.prefill_ns + result.generated.decode_ns) / 1e6;
    pj_profile_result_fini(&result);
    return status;
}

static size_t resident_kb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void add_report(server_bench *b, const pj_taps_report *r)
{
    pj_taps_report *total = &b->total;
    total->readers = r->readers;
    total->deaf = r->deaf;
    total->messages += r->messages;
    total->bytes += r->bytes;
    total->gaps += r->gaps;
    total->disordered += r->disordered;
    total->cut += r->cut;
    total->cpu_s += r->cpu_s;
    if (r->least != r->most || r->gaps || r->disordered || r->cut ||
        r->ended != r->readers - r->deaf)
        b->all_delivered = false;
}

static pj_status run_watched(server_bench *b, pj_session *session, pj_model_slot *slot,
                             const pj_profile_options *options, timed *t, pj_error *err)
{
    pj_taps *taps;
    pj_taps_report report;
    pj_hub_stats before, after;
    uint32_t deaf_every = b->deaf ? (uint32_t)(100 / b->deaf) : 0;
    pj_status status = pj_taps_open(pj_server_port(b->server), (uint32_t)b->readers, deaf_every,
                                    !b->text, b->serve_cpu, &taps, err);
    if (status != PJ_OK) return status;
    pj_clock_sleep_until(pj_clock_ns() + 300 * PJ_NS_PER_MS); /* all are admitted */
    pj_hub_get_stats(b->hub, &before);
    int64_t begin_ns = pj_clock_ns();
    status = run_once(session, slot, options, t, err);
    if (status == PJ_OK && !pj_taps_wait(taps, WAIT_S * PJ_NS_PER_S)) b->all_delivered = false;
    b->watched_s += (double)(pj_clock_ns() - begin_ns) / 1e9;
    pj_clock_sleep_until(pj_clock_ns() + 300 * PJ_NS_PER_MS); /* the hub's own figures follow */
    pj_hub_get_stats(b->hub, &after);
    b->memory_kb = resident_kb();
    pj_taps_close(taps, &report);
    add_report(b, &report);
    b->hub_sent += after.sent - before.sent;
    b->hub_cpu_s += (double)(after.cpu_ns - before.cpu_ns) / 1e9;
    return status;
}

/* Everybody is gone before the next run is timed. */
static void wait_for_silence(const server_bench *b)
{
    pj_hub_stats stats;
    do {
        pj_clock_sleep_until(pj_clock_ns() + 20 * PJ_NS_PER_MS);
        pj_hub_get_stats(b->hub, &stats);
    } while (stats.readers > 0);
}

static pj_status run_rounds(server_bench *b, pj_session *session, pj_model_slot *slot,
                            const pj_profile_options *options, pj_error *err)
{
    timed t;
    pj_status status = run_once(session, slot, options, &t, err); /* caches and pages */
    for (int64_t round = 0; round < b->rounds && status == PJ_OK; round++)
        for (int k = 0; k < 2 && status == PJ_OK; k++) {
            bool watched = (round + k) % 2;
            status = watched ? run_watched(b, session, slot, options, &t, err)
                             : run_once(session, slot, options, &t, err);
            (watched ? b->watched_ms : b->alone_ms)[round] = t.wall_ms;
            (watched ? b->watched_cpu_ms : b->alone_cpu_ms)[round] = t.cpu_ms;
            wait_for_silence(b);
        }
    return status;
}

static void *work(void *context)
{
    server_bench *b = context;
    static const int32_t ids[16] = {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61};
    char path[4096];
    pj_model_slot slot = {0};
    pj_session *session = NULL;
    pj_thread_pin(b->run_cpu);
    pj_prompt prompt = {.ids = ids, .id_count = 16};
    b->status = pj_model_find(b->model, NULL, path, sizeof path, &b->err);
    pj_profile_options options = {
        .engine = {.model = path, .threads = 1, .no_tokenizer = true},
        .prompts = &prompt,
        .prompt_count = 1,
        .max_tokens = (uint32_t)b->tokens,
        .ignore_eos = true,
        .sampling = PJ_SAMPLING_GREEDY,
        .depth = PJ_DEPTH_MODULE,
    };
    pj_session_options opening = {.power = b->power, .database = "none", .baseline_seconds = -1};
    if (b->status == PJ_OK) b->status = pj_session_open(&opening, &session, &b->err);
    if (b->status == PJ_OK) {
        pj_session_set_sink(session, pj_live_json_sink(b->live));
        b->status = run_rounds(b, session, &slot, &options, &b->err);
    }
    pj_session_close(session);
    pj_model_slot_close(&slot);
    return NULL;
}

/* ---- results ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double median_ratio(const double *with, const double *without, int64_t rounds)
{
    double ratios[MAX_ROUNDS];
    for (int64_t i = 0; i < rounds; i++) ratios[i] = with[i] / without[i];
    return median(ratios, rounds);
}

/* What the machine does besides only ever adds time: the fastest of each says what the work takes.
 */
static double fastest_ratio(const double *with, const double *without, int64_t rounds)
{
    double a = INFINITY, b = INFINITY;
    for (int64_t i = 0; i < rounds; i++) {
        a = fmin(a, with[i]);
        b = fmin(b, without[i]);
    }
    return a / b;
}

static void print_results(const server_bench *b)
{
    const pj_taps_report *t = &b->total;
    int64_t n = b->rounds;
    double wall = median_ratio(b->watched_ms, b->alone_ms, n),
           fastest = fastest_ratio(b->watched_ms, b->alone_ms, n),
           cpu = median_ratio(b->watched_cpu_ms, b->alone_cpu_ms, n),
           each = b->hub_cpu_s / ((double)b->hub_sent / 1e6);
    pj_buffer buffer;
    pj_json json;
    if (!b->json) {
        printf(
            "%s on core %d, %u readers (%u deaf, %s frames) served from core %d, %lld rounds\n\n",
            b->model, b->run_cpu, t->readers, t->deaf, b->text ? "JSON" : "binary", b->serve_cpu,
            (long long)n);
        printf(
            "  run with readers / without   %.4f (median of rounds)   %.4f (fastest)   %.4f (CPU "
            "time)\n",
            wall, fastest, cpu);
        printf("  messages                     %llu to %u readers, %.0f a second, %s\n",
               (unsigned long long)t->messages, t->readers - t->deaf,
               (double)t->messages / b->watched_s,
               b->all_delivered ? "all delivered, in order" : "NOT all delivered");
        printf("  hub                          %.2f CPU s a million messages, %.0f MB resident\n",
               each, (double)b->memory_kb / 1024);
        return;
    }
    pj_buffer_init(&buffer, 1 << 16);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "model_name", b->model);
    pj_json_kv_uint(&json, "readers", t->readers);
    pj_json_kv_uint(&json, "deaf", t->deaf);
    pj_json_kv_bool(&json, "binary", !b->text);
    pj_json_kv_int(&json, "rounds", n);
    pj_json_kv_double(&json, "ratio_median", wall);
    pj_json_kv_double(&json, "ratio_fastest", fastest);
    pj_json_kv_double(&json, "ratio_cpu", cpu);
    pj_json_kv_uint(&json, "messages", t->messages);
    pj_json_kv_uint(&json, "gaps", t->gaps);
    pj_json_kv_bool(&json, "all_delivered", b->all_delivered);
    pj_json_kv_double(&json, "messages_per_s", (double)t->messages / b->watched_s);
    pj_json_kv_double(&json, "hub_cpu_s_per_million", each);
    pj_json_kv_double(&json, "resident_mb", (double)b->memory_kb / 1024);
    pj_json_object_end(&json);
    pj_json_finish(&json);
    printf("%s\n", pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

/* ---- the command --------------------------------------------------------------------------- */

static pj_status measure(server_bench *b, pj_error *err)
{
    static const pj_service nothing = {0}; /* only the live stream is asked for */
    int cpus[2];
    pthread_t runner;
    int count = pj_cpu_allowed(cpus, 2);
    b->run_cpu = cpus[0];
    b->serve_cpu = count > 1 ? cpus[1] : cpus[0];
    pj_thread_confine(b->serve_cpu); /* hub, server, and what records the run */
    pj_status status = pj_live_json_open(&b->live, err);
    pj_hub_options hub = {.hello = pj_live_json_hello, .context = b->live};
    if (status == PJ_OK) status = pj_hub_open(&hub, &b->hub, err);
    if (status != PJ_OK) return status;
    pj_live_json_attach(b->live, b->hub);
    status =
        pj_server_open(&(pj_server_options){.service = &nothing, .hub = b->hub}, &b->server, err);
    if (status == PJ_OK) status = pj_thread_start(&runner, "pj-run", work, b, err);
    if (status != PJ_OK) return status;
    pthread_join(runner, NULL);
    *err = b->err;
    return b->status;
}

static int run_server(const pj_command *command, int argc, char **argv)
{
    static server_bench b; /* large; a process runs one command */
    pj_error err = {0};
    b = (server_bench){.model = "synthetic:smollm2-135m",
                       .power = "sim",
                       .readers = 1000,
                       .rounds = 7,
                       .tokens = 60,
                       .all_delivered = true};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &b.model, "MODEL", "model (synthetic:smollm2-135m)"},
        {"readers", 0, PJ_OPTION_INT, &b.readers, "N", "WebSocket readers (1000)", 1, 16000},
        {"deaf", 0, PJ_OPTION_INT, &b.deaf, "PERCENT", "share of them that never read (0)", 0, 50},
        {"text", 0, PJ_OPTION_FLAG, &b.text, NULL, "JSON only, no binary frames"},
        {"rounds", 'r', PJ_OPTION_INT, &b.rounds, "N", "rounds (7)", 1, MAX_ROUNDS},
        {"tokens", 'n', PJ_OPTION_INT, &b.tokens, "N", "new tokens a run (60)", 2, 100000},
        {"power", 0, PJ_OPTION_TEXT, &b.power, "LIST", "power sources to sample meanwhile (sim)"},
        {"json", 0, PJ_OPTION_FLAG, &b.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "it takes no arguments");
    pj_status status = measure(&b, &err);
    if (status == PJ_OK) print_results(&b);
    pj_server_close(b.server);
    pj_hub_close(b.hub);
    pj_live_json_close(b.live);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_bench_server = {
    .name = "bench server",
    .summary = "what a thousand live readers cost a run",
    .run = run_server,
    .usage = "[options]",
    .text = "Runs a model on one core, in turn without and with WebSocket readers that are served "
            "from another core, and prints the ratio of times, whether every reader got every "
            "message, and the CPU time that a million messages take.",
    .examples = "perjoule bench server\nperjoule bench server --readers 200 --deaf 20 --text\n",
};
