/*
 * perjoule bench server: the cost of live readers, for a run and for themselves. During runs whose
 * engine is pinned to one core, the load on other cores changes several times per second:
 *
 *   - the readers are connected, but get no messages,
 *   - a thousand WebSocket readers get all messages, served from another core,
 *   - that other core adds numbers in registers: the cost of any load beside a run on this machine
 *     (shared clocks, shared cores), which is not due to the server.
 *
 * The recorder and the sampler of the run are on the other core in all cases. On a shared machine
 * memory speed varies by a tenth from second to second. Therefore stages are short, and each stage
 * with load is compared with the two idle stages around it. The messages received by every reader
 * are counted and their sequence numbers checked.
 */
#include "net/server.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/json.h"
#include "base/thread.h"
#include "bench/ratio.h"
#include "bench/readers.h"
#include "cli/options.h"
#include "generate/find_model.h"
#include "generate/generate.h"
#include "net/live_json.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum {
    WAIT_S = 60,
    SETTLE_NS = 150 * 1000 * 1000, /* after a change, until the pipes have drained */
    MEASURE_NS = 250 * 1000 * 1000
};

typedef enum beside { NOTHING, READERS, ARITHMETIC, WAYS } beside;

/* Stages with load; an idle stage precedes and follows each. */
static const beside order[] = {READERS, READERS, ARITHMETIC};

enum { ORDER_COUNT = sizeof order / sizeof *order };

typedef struct pace { /* milliseconds per token */
    double wall, cpu;
} pace;

typedef struct comparison { /* one row each */
    int64_t count;
    double wall[2][PJ_BENCH_ROUNDS_MAX], cpu[2][PJ_BENCH_ROUNDS_MAX]; /* without, with */
} comparison;

typedef struct server_bench {
    const char *model, *power;
    int64_t readers, deaf, rounds, tokens;
    bool text, json;
    /* the two cores; the same if there is only one */
    int run_cpu, serve_cpu;
    pj_hub *hub;
    pj_live_json *live;
    pj_server *server;
    pj_session *session;
    pj_live_sink sink; /* active only during the readers' stages */
    pj_model_slot slot;
    pj_profile_options options;
    pj_bench_readers *reader_set;
    pj_status status; /* of the run's thread */
    pj_error err;
    /* state of the engine's thread */
    uint32_t turn; /* index into order[] */
    bool settled;
    int64_t change_ns, begin_ns, begin_cpu_ns;
    uint32_t stage_tokens, stages; /* of the stage; number of complete stages of the run */
    pace before, with;             /* of the stages before the current one */
    comparison compared[WAYS];
    _Atomic int way; /* current load on the other core */
    _Atomic bool ends;
    pj_bench_readers_report total;
    pj_hub_stats sent;
    double read_s;
    uint32_t runs;
    bool all_told;
    size_t memory_kb;
} server_bench;

/* ---- background load ---- */

static void *server_add(void *context)
{
    server_bench *b = context;
    volatile uint64_t sum = 1;
    pj_thread_pin(b->serve_cpu);
    while (!atomic_load(&b->ends))
        if (atomic_load(&b->way) == ARITHMETIC)
            for (int i = 0; i < 100000; i++) sum = sum * 3 + 1;
        else
            pj_clock_sleep_until(pj_clock_ns() + 5 * PJ_NS_PER_MS);
    return NULL;
}

static const pj_live_sink *sink_of(const server_bench *b)
{
    return pj_live_json_sink(b->live);
}

static bool has_readers(const server_bench *b)
{
    return atomic_load(&b->way) == READERS;
}

static void server_on_begin(void *context, const pj_live_run *run)
{
    sink_of(context)->run_begin(sink_of(context)->context, run);
}

static void server_on_model(void *context, const pj_live_run *run)
{
    sink_of(context)->run_model(sink_of(context)->context, run);
}

static void server_on_end(void *context, const char *run_id, const pj_live_end *end)
{
    sink_of(context)->run_end(sink_of(context)->context, run_id, end);
}

static void server_on_power(void *context, const char *run_id, const pj_live_power *samples,
                            uint32_t count)
{
    if (has_readers(context))
        sink_of(context)->power(sink_of(context)->context, run_id, samples, count);
}

static void server_on_section_start(void *context, const char *run_id,
                                    const pj_live_section *section)
{
    if (has_readers(context))
        sink_of(context)->section_start(sink_of(context)->context, run_id, section);
}

static void server_on_section_end(void *context, const char *run_id, const pj_live_section *section)
{
    if (has_readers(context))
        sink_of(context)->section_end(sink_of(context)->context, run_id, section);
}

static void on_token(void *context, const char *run_id, const pj_live_token *token)
{
    if (has_readers(context)) sink_of(context)->token(sink_of(context)->context, run_id, token);
}

static void server_on_parts(void *context, const char *run_id, const pj_live_part *parts,
                            uint32_t count)
{
    if (has_readers(context))
        sink_of(context)->parts(sink_of(context)->context, run_id, parts, count);
}

static pj_live_sink gated_sink(server_bench *b)
{
    return (pj_live_sink){.version = PJ_LIVE_SINK_VERSION,
                          .context = b,
                          .run_begin = server_on_begin,
                          .run_model = server_on_model,
                          .power = server_on_power,
                          .section_start = server_on_section_start,
                          .section_end = server_on_section_end,
                          .token = on_token,
                          .parts = server_on_parts,
                          .run_end = server_on_end};
}

/* ---- stages, on the engine's thread ---- */

static bool server_is_done(const server_bench *b)
{
    return b->compared[READERS].count == b->rounds;
}

static void begin_stage(server_bench *b, beside way, int64_t now)
{
    if (has_readers(b) && b->change_ns) b->read_s += (double)(now - b->change_ns) / 1e9;
    atomic_store(&b->way, (int)way);
    b->change_ns = now;
    b->settled = false;
}

static void server_compare(server_bench *b, beside way, pace after)
{
    comparison *c = &b->compared[way];
    if (c->count == PJ_BENCH_ROUNDS_MAX) return;
    c->wall[0][c->count] = (b->before.wall + after.wall) / 2;
    c->cpu[0][c->count] = (b->before.cpu + after.cpu) / 2;
    c->wall[1][c->count] = b->with.wall;
    c->cpu[1][c->count++] = b->with.cpu;
}

/* Stages of a run alternate: idle, load, idle, load, ... */
static void server_end_stage(server_bench *b, int64_t now)
{
    pace p = {(double)(now - b->begin_ns) / 1e6 / b->stage_tokens,
              (double)(pj_clock_thread_cpu_ns() - b->begin_cpu_ns) / 1e6 / b->stage_tokens};
    bool something = b->stages++ % 2;
    if (something) {
        b->with = p;
        begin_stage(b, NOTHING, now);
        return;
    }
    if (b->stages > 1) server_compare(b, order[b->turn++ % ORDER_COUNT], p);
    b->before = p;
    begin_stage(b, server_is_done(b) ? NOTHING : order[b->turn % ORDER_COUNT], now);
}

static void server_note_token(void *context, const pj_generated *token)
{
    server_bench *b = context;
    int64_t now = pj_clock_ns();
    if (server_is_done(b)) return;
    b->stage_tokens++;
    if (!b->settled && now - b->change_ns >= SETTLE_NS) {
        b->settled = true;
        b->begin_ns = now;
        b->begin_cpu_ns = pj_clock_thread_cpu_ns();
        b->stage_tokens = 0;
    } else if (b->settled && now - b->begin_ns >= MEASURE_NS)
        server_end_stage(b, now);
}

static pj_status server_run_once(server_bench *b, pj_error *err)
{
    pj_profile_result result = {0};
    pj_status status = pj_bench_readers_renew_deaf(b->reader_set, err);
    b->stages = 0;
    begin_stage(b, NOTHING, pj_clock_ns());
    if (status == PJ_OK)
        status = pj_profile_generate(b->session, &b->slot, &b->options, &result, err);
    begin_stage(b, NOTHING, pj_clock_ns());
    b->all_told &= pj_bench_readers_wait(b->reader_set, ++b->runs, WAIT_S * PJ_NS_PER_S);
    pj_profile_result_fini(&result);
    if (status == PJ_OK && b->stages < 3)
        return pj_fail(err, PJ_E_INVALID,
                       "a run of %lld tokens is too short to compare; ask for more "
                       "with --tokens",
                       (long long)b->tokens);
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

static pj_status measure_runs(server_bench *b, pj_error *err)
{
    pthread_t adder;
    uint32_t deaf_every = b->deaf ? (uint32_t)(100 / b->deaf) : 0;
    pj_hub_stats before;
    pj_status status =
        pj_bench_readers_open(pj_server_port(b->server), (uint32_t)b->readers, deaf_every, !b->text,
                              b->serve_cpu, &b->reader_set, err);
    if (status == PJ_OK) status = pj_thread_start(&adder, "pj-adder", server_add, b, err);
    if (status != PJ_OK) return status;
    pj_clock_sleep_until(pj_clock_ns() + 500 * PJ_NS_PER_MS); /* until all are admitted */
    pj_hub_get_stats(b->hub, &before);
    while (!server_is_done(b) && status == PJ_OK) status = server_run_once(b, err);
    /* the hub updates its figures with a delay */
    pj_clock_sleep_until(pj_clock_ns() + 300 * PJ_NS_PER_MS);
    pj_hub_get_stats(b->hub, &b->sent);
    b->sent.sent -= before.sent;
    b->sent.cpu_ns -= before.cpu_ns;
    b->memory_kb = resident_kb();
    atomic_store(&b->ends, true);
    pthread_join(adder, NULL);
    return status;
}

static void *server_work(void *context)
{
    server_bench *b = context;
    static const int32_t ids[16] = {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61};
    char path[4096];
    pj_thread_pin(b->run_cpu);
    pj_prompt prompt = {.ids = ids, .id_count = 16};
    b->status = pj_model_find(b->model, NULL, path, sizeof path, &b->err);
    b->options = (pj_profile_options){
        .engine = {.model = path, .threads = 1, .no_tokenizer = true},
        .request.prompts = &prompt,
        .request.prompt_count = 1,
        .request.max_tokens = (uint32_t)b->tokens,
        .request.ignore_eos = true,
        .request.sampling = PJ_SAMPLING_GREEDY,
        .depth = PJ_DEPTH_MODULE,
        .request.on_token = server_note_token,
        .request.context = b,
    };
    pj_session_options opening = {.power = b->power, .database = "none", .baseline_seconds = -1};
    if (b->status == PJ_OK) b->status = pj_session_open(&opening, &b->session, &b->err);
    b->sink = gated_sink(b);
    if (b->status == PJ_OK) pj_session_add_sink(b->session, &b->sink, NULL);
    if (b->status == PJ_OK) b->status = measure_runs(b, &b->err);
    pj_bench_readers_close(b->reader_set, &b->total);
    pj_session_close(b->session);
    pj_model_slot_close(&b->slot);
    return NULL;
}

/* ---- results ---- */

static bool all_delivered(const server_bench *b)
{
    const pj_bench_readers_report *r = &b->total;
    return b->all_told && r->least == r->most && !r->gaps && !r->disordered && !r->cut &&
           r->ended == (r->readers - r->deaf) * b->runs;
}

static double hub_cpu_s_per_million(const server_bench *b)
{
    return (double)b->sent.cpu_ns / 1e9 / ((double)b->sent.sent / 1e6);
}

static const char *const way_names[WAYS] = {"nothing", "readers", "arithmetic"};

static void server_print_row(const comparison *c, const char *name)
{
    printf("  %-12s%8lld", name, (long long)c->count);
    for (int cpu = 0; cpu < 2; cpu++) {
        const double(*ms)[PJ_BENCH_ROUNDS_MAX] = cpu ? c->cpu : c->wall;
        pj_bench_ratio r = pj_bench_compare(ms[1], ms[0], c->count);
        printf("%*.2f / %.2f ms%10.4f (%.4f to %.4f)", cpu ? 10 : 8,
               pj_bench_median(ms[1], c->count), pj_bench_median(ms[0], c->count), r.median, r.low,
               r.high);
    }
    putchar('\n');
}

static void server_print_table(const server_bench *b)
{
    const pj_bench_readers_report *t = &b->total;
    printf("%s on core %d, %u readers (%u deaf, %s frames) on core %d\n\n", b->model, b->run_cpu,
           t->readers, t->deaf, b->text ? "JSON" : "binary", b->serve_cpu);
    printf("  %-12s%8s%20s%28s%20s%28s\n", "load", "times", "per token / without", "ratio (95 %)",
           "processor time", "ratio (95 %)");
    for (int way = READERS; way < WAYS; way++)
        if (b->compared[way].count) server_print_row(&b->compared[way], way_names[way]);
    printf("\n  messages  %llu to %u readers, %.0f per second, %.0f bytes each, %s\n",
           (unsigned long long)t->messages, t->readers - t->deaf, (double)t->messages / b->read_s,
           (double)t->bytes / (double)t->messages,
           all_delivered(b) ? "all delivered, in order" : "NOT all delivered");
    printf("  hub       %.2f CPU s per million messages, %.0f MB resident\n",
           hub_cpu_s_per_million(b), (double)b->memory_kb / 1024);
}

static void server_print_json(const server_bench *b)
{
    const pj_bench_readers_report *t = &b->total;
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 16);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "model_name", b->model);
    pj_json_kv_uint(&json, "readers", t->readers);
    pj_json_kv_uint(&json, "deaf", t->deaf);
    pj_json_kv_bool(&json, "binary", !b->text);
    for (int way = READERS; way < WAYS; way++) {
        const comparison *c = &b->compared[way];
        if (!c->count) continue;
        pj_json_key(&json, way_names[way]);
        pj_json_object_begin(&json);
        pj_json_kv_int(&json, "times", c->count);
        pj_json_kv_double(&json, "token_ms", pj_bench_median(c->wall[1], c->count));
        pj_json_kv_double(&json, "token_cpu_ms", pj_bench_median(c->cpu[1], c->count));
        pj_bench_write_ratio(&json, "time_ratio",
                             pj_bench_compare(c->wall[1], c->wall[0], c->count));
        pj_bench_write_ratio(&json, "cpu_ratio", pj_bench_compare(c->cpu[1], c->cpu[0], c->count));
        pj_json_object_end(&json);
    }
    pj_json_kv_uint(&json, "messages", t->messages);
    pj_json_kv_uint(&json, "gaps", t->gaps);
    pj_json_kv_bool(&json, "all_delivered", all_delivered(b));
    pj_json_kv_double(&json, "messages_per_s", (double)t->messages / b->read_s);
    pj_json_kv_double(&json, "bytes_per_message", (double)t->bytes / (double)t->messages);
    pj_json_kv_double(&json, "hub_cpu_s_per_million", hub_cpu_s_per_million(b));
    pj_json_kv_double(&json, "resident_mb", (double)b->memory_kb / 1024);
    pj_json_object_end(&json);
    pj_json_finish(&json);
    printf("%s\n", pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

/* ---- the command ---- */

static pj_status server_measure(server_bench *b, pj_error *err)
{
    static const pj_service nothing = {0}; /* only the live stream is needed */
    int cpus[PJ_CPUS_MAX], cores;
    pthread_t runner;
    int count = pj_cpu_places(cpus, &cores);
    b->run_cpu = cpus[0];
    b->serve_cpu = count > 1 ? cpus[1] : cpus[0];
    pj_thread_confine(b->serve_cpu);                      /* hub, server, collector and samplers */
    pj_file_limit_raise(2 * (uint64_t)b->readers + 1024); /* both ends of each socket */
    pj_status status = pj_live_json_open(&b->live, err);
    pj_hub_options hub = {.hello = pj_live_json_hello, .context = b->live};
    if (status == PJ_OK) status = pj_hub_open(&hub, &b->hub, err);
    if (status != PJ_OK) return status;
    pj_live_json_attach(b->live, b->hub);
    status =
        pj_server_open(&(pj_server_options){.service = &nothing, .hub = b->hub}, &b->server, err);
    if (status == PJ_OK) status = pj_thread_start(&runner, "pj-run", server_work, b, err);
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
                       .rounds = 60,
                       .tokens = 500,
                       .all_told = true};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &b.model, "MODEL", "model (synthetic:smollm2-135m)"},
        {"readers", 0, PJ_OPTION_INT, &b.readers, "N", "WebSocket readers (1000)", 1, 16000},
        {"deaf", 0, PJ_OPTION_INT, &b.deaf, "PERCENT", "share of them that never read (0)", 0, 50},
        {"text", 0, PJ_OPTION_FLAG, &b.text, NULL, "JSON only, no binary frames"},
        {"rounds", 0, PJ_OPTION_INT, &b.rounds, "N", "comparisons with readers, 1.2 s each (60)", 1,
         PJ_BENCH_ROUNDS_MAX, .old_letter = 'r'},
        {"tokens", 'n', PJ_OPTION_INT, &b.tokens, "N", "new tokens per run (500)", 2, 100000},
        {"power", 0, PJ_OPTION_TEXT, &b.power, "LIST", "power sources to sample meanwhile (sim)",
         .rule = pj_rule_power},
        {"json", 0, PJ_OPTION_FLAG, &b.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    pj_status status = server_measure(&b, &err);
    if (status == PJ_OK) (b.json ? server_print_json : server_print_table)(&b);
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
    .text =
        "Runs a model on one core, alternately with nothing else running, with WebSocket readers that are "
        "served from another core, and with that core busy in its registers; prints the ratios of "
        "times with their 95 % intervals, whether every reader got every message, and the CPU time "
        "per million messages.",
    .examples = "perjoule bench server\nperjoule bench server --readers 200 --deaf 20 --text\n",
};
