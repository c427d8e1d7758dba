/* perjoule bench store: time to store a large run and to compute its charts. First a real run (32
 * layers, 1000 tokens, deep), from its last token until it is in the database: rows, attribution,
 * sums. Then saving alone, of a synthetic run of the same size, compared with plain inserts of
 * equally wide rows in the same database engine, interleaved. */
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "bench/folder.h"
#include "bench/store_run.h"
#include "bench/store_writers.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "generate/find_model.h"
#include "generate/generate.h"
#include "insight/insight.h"
#include "insight/known_runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- measuring ---- */

typedef struct bench {
    int64_t tokens, layers, runs;
    const char *model;        /* of the real run; NULL: synthetic */
    const char *server;       /* address of a database server; NULL: SQLite */
    int64_t writers, seconds; /* concurrent writers; 0: none */
    char path[256], real_path[256];
    int64_t last_token_ns;
    pj_store *store;
    pj_json *json; /* NULL: a table */
} bench;

static double seconds_since(int64_t begin_ns)
{
    return (double)(pj_clock_ns() - begin_ns) * 1e-9;
}

static void store_report(bench *b, const char *name, double value, const char *unit,
                         const char *note)
{
    if (b->json)
        pj_json_kv_double(b->json, name, value);
    else
        printf("%-32s %10.4g %-4s %s\n", name, value, unit, note);
}

static double file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (double)info.st_size : NAN;
}

/* On a server: directly, then as another run through the local outbox, as for a user's. */
static pj_status bench_save_on_server(bench *b, pj_run_data *run, pj_error *err)
{
    pj_store *store = NULL;
    int64_t begin = pj_clock_ns();
    pj_status status = pj_store_save(b->store, run, err);
    if (status == PJ_OK)
        store_report(b, "save_seconds", seconds_since(begin), "s",
                     "the whole run, one transaction");
    if (status == PJ_OK)
        status = pj_store_open(&(pj_store_options){.path = b->server}, &store, err);
    pj_uuid7(run->info.id);
    begin = pj_clock_ns();
    if (status == PJ_OK) status = pj_store_save(store, run, err);
    if (status == PJ_OK)
        store_report(b, "save_with_outbox_seconds", seconds_since(begin), "s",
                     "another, saved on this machine first, on the server, and deleted here");
    pj_store_close(store);
    return status;
}

static pj_status bench_save(bench *b, pj_error *err)
{
    pj_run_data run;
    if (!pj_bench_make_run(&run, 1, (uint32_t)b->tokens, (uint32_t)b->layers, 50000))
        return pj_fail_memory(err, "the synthetic run");
    double rows = (double)run.layer_count + run.component_count + run.operation_count;
    store_report(b, "rows", rows, "", "layers, components, operations");
    store_report(b, "operations", run.operation_count, "", "");
    double raw = 0, best = INFINITY, cpu = INFINITY;
    pj_status status = PJ_OK;
    if (b->server) {
        status = bench_save_on_server(b, &run, err);
        pj_run_data_fini(&run);
        return status;
    }
    for (int round = 0; round < 2 && status == PJ_OK; round++) {
        double seconds;
        status = pj_store_measure_inserts(b->path, (uint64_t)rows, &seconds, err);
        raw = round ? fmin(raw, seconds) : seconds;
        int64_t begin = pj_clock_ns(), cpu_begin = pj_clock_thread_cpu_ns();
        if (status == PJ_OK) status = pj_store_save(b->store, &run, err);
        best = fmin(best, seconds_since(begin));
        cpu = fmin(cpu, (double)(pj_clock_thread_cpu_ns() - cpu_begin) * 1e-9);
    }
    if (status == PJ_OK) {
        store_report(b, "save_seconds", best, "s", "the whole run, one transaction, durable");
        store_report(b, "save_cpu_seconds", cpu, "s", "of which CPU time");
        store_report(b, "raw_cpu_seconds", raw, "s",
                     "CPU time of plain inserts of as many rows of 20 columns");
        store_report(b, "save_to_raw", cpu / raw, "", "ratio of CPU times in this process");
        char log[300];
        snprintf(log, sizeof log, "%s-wal", b->path);
        store_report(b, "database_mb", fmax(file_bytes(b->path), file_bytes(log)) / 1e6, "MB",
                     "with its log, which is no larger");
    }
    pj_run_data_fini(&run);
    return status;
}

typedef pj_status chart_fn(pj_store *store, pj_json *json, pj_error *err);

static pj_status chart_heatmap(pj_store *store, pj_json *json, pj_error *err)
{
    pj_view_choice choice = {.metric = PJ_METRIC_ENERGY, .token = PJ_ANY, .layer = PJ_ANY};
    return pj_view_heatmap(store, "last", &choice, json, err);
}
static pj_status chart_token_heatmap(pj_store *store, pj_json *json, pj_error *err)
{
    pj_view_choice choice = {.metric = PJ_METRIC_POWER, .token = 2, .layer = PJ_ANY};
    return pj_view_heatmap(store, "last", &choice, json, err);
}
static pj_status chart_cube(pj_store *store, pj_json *json, pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, 1u << 30);
    pj_status status = pj_view_cube(store, "last", PJ_METRIC_ENERGY, false, &out, err);
    pj_buffer_fini(&out);
    pj_json_null(json);
    return status;
}
static pj_status chart_tree(pj_store *store, pj_json *json, pj_error *err)
{
    return pj_view_tree(store, "last", PJ_METRIC_ENERGY, 0, json, err);
}
static pj_status chart_operations(pj_store *store, pj_json *json, pj_error *err)
{
    pj_view_choice choice = {.token = PJ_ANY, .layer = 3, .component = "attention"};
    return pj_view_operations(store, "last", &choice, json, err);
}
static pj_status chart_power(pj_store *store, pj_json *json, pj_error *err)
{
    return pj_view_power(store, "last", &(pj_view_window){0}, false, json, err);
}
static pj_status chart_tokens(pj_store *store, pj_json *json, pj_error *err)
{
    return pj_view_tokens(store, "last", 0, 0, json, err);
}
static pj_status chart_pipeline(pj_store *store, pj_json *json, pj_error *err)
{
    return pj_view_pipeline(store, "last", &(pj_view_window){0}, json, err);
}
static pj_status chart_summary(pj_store *store, pj_json *json, pj_error *err)
{
    return pj_insight_summary(store, "last", NULL, json, err);
}

/* The median of five. */
static pj_status time_chart(bench *b, const char *name, chart_fn *chart, pj_error *err)
{
    double times[5];
    pj_status status = PJ_OK;
    for (int i = 0; i < 5 && status == PJ_OK; i++) {
        pj_buffer out;
        pj_json json;
        pj_buffer_init(&out, 1u << 30);
        pj_json_init(&json, &out);
        int64_t begin = pj_clock_ns();
        status = chart(b->store, &json, err);
        double t = seconds_since(begin) * 1e3;
        pj_buffer_fini(&out);
        int at = i;
        for (; at > 0 && times[at - 1] > t; at--) times[at] = times[at - 1];
        times[at] = t;
    }
    if (status == PJ_OK) store_report(b, name, times[2], "ms", "");
    return status;
}

static pj_status bench_charts(bench *b, pj_error *err)
{
    static const struct {
        const char *name;
        chart_fn *chart;
    } charts[] = {{"summary_ms", chart_summary},
                  {"pipeline_ms", chart_pipeline},
                  {"power_ms", chart_power},
                  {"tokens_ms", chart_tokens},
                  {"heatmap_ms", chart_heatmap},
                  {"token_heatmap_ms", chart_token_heatmap},
                  {"cube_ms", chart_cube},
                  {"tree_ms", chart_tree},
                  {"operations_ms", chart_operations}};
    pj_status status = PJ_OK;
    for (size_t i = 0; i < sizeof charts / sizeof *charts && status == PJ_OK; i++)
        status = time_chart(b, charts[i].name, charts[i].chart, err);
    return status;
}

static pj_status list_page(pj_store *store, pj_json *json, pj_error *err)
{
    uint64_t total;
    return pj_view_runs(store, &(pj_run_query){.limit = 50}, NULL, json, &total, err);
}
static pj_status list_sorted(pj_store *store, pj_json *json, pj_error *err)
{
    uint64_t total;
    return pj_view_runs(
        store, &(pj_run_query){.sort = PJ_SORT_JOULES_PER_TOKEN, .ascending = true, .limit = 50},
        NULL, json, &total, err);
}
static pj_status list_filtered(pj_store *store, pj_json *json, pj_error *err)
{
    uint64_t total;
    return pj_view_runs(
        store,
        &(pj_run_query){.search = "JOULE", .model = "phi-2", .sort = PJ_SORT_ENERGY, .limit = 50},
        NULL, json, &total, err);
}
static pj_status list_searched(pj_store *store, pj_json *json, pj_error *err)
{
    uint64_t total;
    return pj_view_runs(store, &(pj_run_query){.search = "no such words", .limit = 50}, NULL, json,
                        &total, err);
}

/* Every run of the database is in one of the groups. */
static pj_status group_all(pj_store *store, pj_json *json, pj_error *err)
{
    return pj_insight_groups(store, &(pj_group_query){.by = "dtype"}, json, err);
}
/* The query that a prediction is fitted from. */
static pj_status gather_known(pj_store *store, pj_json *json, pj_error *err)
{
    pj_known_runs known;
    pj_status status =
        pj_known_runs_load(store, &(pj_known_query){.machine = "machine"}, &known, err);
    pj_known_runs_fini(&known);
    return status;
}

static pj_status bench_lists(bench *b, pj_error *err)
{
    pj_status status = PJ_OK;
    int64_t begin = pj_clock_ns();
    for (int64_t i = 0; i < b->runs && status == PJ_OK; i++) {
        pj_run_data run;
        if (!pj_bench_make_run(&run, (uint64_t)i + 2, 2, 0, 0))
            return pj_fail_memory(err, "a synthetic run");
        status = pj_store_save(b->store, &run, err);
        pj_run_data_fini(&run);
    }
    if (status != PJ_OK) return status;
    store_report(b, "small_runs", (double)b->runs, "", "runs for the lists below");
    store_report(b, "small_run_save_ms", seconds_since(begin) * 1e3 / (double)b->runs, "ms",
                 "each");
    status = time_chart(b, "list_newest_ms", list_page, err);
    if (status == PJ_OK) status = time_chart(b, "list_sorted_ms", list_sorted, err);
    if (status == PJ_OK) status = time_chart(b, "list_filtered_sorted_ms", list_filtered, err);
    if (status == PJ_OK) status = time_chart(b, "list_search_nothing_ms", list_searched, err);
    if (status == PJ_OK) status = time_chart(b, "compare_groups_ms", group_all, err);
    if (status == PJ_OK) status = time_chart(b, "prediction_gathers_ms", gather_known, err);
    return status;
}

/* ---- a real run ---- */

static void store_note_run(void *context, const char *run_id)
{
    pj_bench_folder_note_run(((bench *)context)->real_path, run_id);
}

static void store_note_token(void *context, const pj_generated *token)
{
    (void)token;
    ((bench *)context)->last_token_ns = pj_clock_ns();
}

static pj_status run_really(bench *b, pj_session *session, pj_model_slot *slot, pj_error *err)
{
    static const int32_t ids[] = {1, 2, 3, 4};
    const pj_prompt prompt = {.ids = ids, .id_count = 4};
    char name[96], path[4096];
    pj_profile_result result;
    snprintf(name, sizeof name, "synthetic:smollm2-360m,layers=%lld", (long long)b->layers);
    pj_status status = pj_model_find(b->model ? b->model : name, NULL, path, sizeof path, err);
    if (status != PJ_OK) return status;
    pj_profile_options options = {.engine = {.model = path, .no_tokenizer = true},
                                  .request.prompts = &prompt,
                                  .request.prompt_count = 1,
                                  .request.max_tokens = (uint32_t)b->tokens,
                                  .request.ignore_eos = true,
                                  .request.sampling = PJ_SAMPLING_GREEDY,
                                  .depth = PJ_DEPTH_DEEP,
                                  .on_run = store_note_run,
                                  .request.on_token = store_note_token,
                                  .request.context = b};
    status = pj_profile_generate(session, slot, &options, &result, err);
    if (status == PJ_OK) {
        double seconds = seconds_since(b->last_token_ns);
        store_report(b, "real_operations", result.data.operation_count, "",
                     "of a run of the engine");
        store_report(b, "last_token_to_kept_seconds", seconds, "s",
                     "attributed, durable in the database, ready to show");
    }
    pj_profile_result_fini(&result);
    return status;
}

/* With simulated sensors, whose readings are also computed at the end, unlike real ones. */
static pj_status bench_real(bench *b, pj_error *err)
{
    pj_session *session = NULL;
    pj_model_slot slot = {0};
    pj_session_options options = {.database = b->real_path, .power = "sim", .baseline_seconds = -1};
    pj_status status = pj_session_open(&options, &session, err);
    if (status == PJ_OK) status = run_really(b, session, &slot, err);
    int64_t begin_ns = pj_clock_ns();
    pj_session_close(session);
    if (status == PJ_OK) {
        store_report(b, "close_seconds", seconds_since(begin_ns), "s",
                     "checkpointing the log into the database, at process exit");
        store_report(b, "real_database_mb", file_bytes(b->real_path) / 1e6, "MB", "then");
    }
    pj_model_slot_close(&slot);
    return status;
}

/* ---- the command ---- */

static pj_status open_folder(bench *b, const char *folder_option, pj_error *err)
{
    char yardstick[300];
    pj_status status = pj_bench_folder_open(folder_option, err);
    if (status != PJ_OK) return status;
    pj_bench_folder_database("bench.db", b->path, sizeof b->path);
    pj_bench_folder_database("bench.db.yardstick", yardstick, sizeof yardstick);
    pj_bench_folder_database("real.db", b->real_path, sizeof b->real_path);
    return PJ_OK;
}

static pj_status open_server(bench *b, pj_error *err)
{
    pj_run_list list = {0};
    if (!pj_store_is_server(b->server))
        return pj_fail(err, PJ_E_INVALID,
                       "--db takes the address of a server; for SQLite leave it "
                       "out (see --folder)");
    pj_status status =
        pj_store_open(&(pj_store_options){.path = b->server, .is_direct = true}, &b->store, err);
    if (status == PJ_OK) status = pj_store_list(b->store, &(pj_run_query){.limit = 1}, &list, err);
    bool is_empty = list.total == 0;
    pj_run_list_fini(&list);
    if (status != PJ_OK || is_empty) return status;
    return pj_fail(
        err, PJ_E_STATE,
        "the benchmark fills a database with synthetic runs, but %s already contains runs: "
        "create an empty one for it",
        b->server);
}

static pj_status store_measure(bench *b, pj_error *err)
{
    pj_status status = PJ_OK;
    if (b->server) {
        status = open_server(b, err);
    } else {
        status = bench_real(b, err);
        if (status == PJ_OK)
            status = pj_store_open(&(pj_store_options){.path = b->path}, &b->store, err);
    }
    if (status == PJ_OK) status = bench_save(b, err);
    if (status == PJ_OK) status = bench_charts(b, err);
    if (status == PJ_OK && b->runs) status = bench_lists(b, err);
    if (status != PJ_OK || !b->writers) return status;
    pj_bench_writers writers = {.database = b->server ? b->server : b->path,
                                .count = (uint32_t)b->writers,
                                .seconds = (double)b->seconds};
    status = pj_bench_writers_run(&writers, err);
    if (status != PJ_OK) return status;
    store_report(b, "writers", (double)b->writers, "", "connections that stored at the same time");
    store_report(b, "writers_seconds", writers.seconds, "s", "");
    store_report(b, "writers_saved", (double)writers.saved, "",
                 "runs, a tenth of them replaced once");
    store_report(b, "writers_failed", (double)writers.failed, "",
                 "refused, locked out or deadlocked");
    store_report(b, "writers_lost", (double)writers.lost, "", "saved, but missing afterwards");
    store_report(b, "writers_slowest_ms", writers.slowest_ms, "ms", "the longest save");
    return PJ_OK;
}

static void store_finish(bench *b, pj_status status, bool keep)
{
    if (keep && status == PJ_OK && !b->json && !b->server) printf("stored in %s\n", b->path);
    if (keep && b->json) pj_json_kv_string(b->json, "database", b->server ? b->server : b->path);
    pj_store_close(b->store);
    if (!b->server && (!keep || status != PJ_OK)) pj_bench_folder_remove();
}

static int run_bench_store(const pj_command *command, int argc, char **argv)
{
    bench b = {.tokens = 1000, .layers = 32, .runs = 10000, .seconds = 60};
    const char *folder_option = NULL;
    bool as_json = false, keep = false;
    const pj_option options[] = {
        {"tokens", 'n', PJ_OPTION_INT, &b.tokens, "N", "tokens of the large run", 2, 1e5},
        {"layers", 0, PJ_OPTION_INT, &b.layers, "N", "layers of its model", 1, 1000},
        {"model", 'm', PJ_OPTION_TEXT, &b.model, "MODEL",
         "of the real run (a synthetic smollm2-360m with those layers)"},
        {"runs", 0, PJ_OPTION_INT, &b.runs, "N", "small runs to list", 0, 1e6},
        {"db", 0, PJ_OPTION_TEXT, &b.server, "URL",
         "measure this PostgreSQL database instead; it must be empty, and the runs stay there"},
        {"writers", 0, PJ_OPTION_INT, &b.writers, "N", "then store from N connections at once", 1,
         500},
        {"seconds", 0, PJ_OPTION_INT, &b.seconds, "N", "for this long (60)", 1, 86400,
         .needs = "writers"},
        {"folder", 0, PJ_OPTION_TEXT, &folder_option, "DIR",
         "where the database is made (default $TMPDIR or /tmp)", .rule = pj_rule_folder,
         .excludes = "db"},
        {"keep", 0, PJ_OPTION_FLAG, &keep, NULL, "keep the database and print its path"},
        {"json", 0, PJ_OPTION_FLAG, &as_json, NULL, "one object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    pj_json_out out;
    pj_error err = {0};
    pj_status status = b.server ? PJ_OK : open_folder(&b, folder_option, &err);
    b.json = as_json ? pj_json_out_begin(&out) : NULL;
    if (as_json) pj_json_object_begin(b.json);
    if (status == PJ_OK) status = store_measure(&b, &err);
    store_finish(&b, status, keep);
    if (as_json) {
        pj_json_object_end(b.json);
        status = pj_json_out_end(&out, status, &err);
    }
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_bench_store = {
    .name = "bench store",
    .summary = "storing a large run, its charts, and lists of many runs",
    .run = run_bench_store,
    .usage = "[options]",
    .text = "Makes a database in a temporary folder. Runs a model of 32 layers for 1000 tokens at "
            "depth deep and prints how long after the last token everything was stored; stores a "
            "synthetic run of that size, compared with as many plain inserts in the same "
            "process; computes all its charts; then lists 10,000 runs.\n"
            "With --db it measures the same on a PostgreSQL server, without the real run; with "
            "--writers\nit then stores small runs from many connections at once and counts what "
            "was lost.",
    .examples = "perjoule bench store\nperjoule bench store --tokens 100 --runs 1000 --json\n"
                "perjoule bench store --db postgresql://db.lab/scratch --runs 100000 --writers 20 "
                "--seconds 600\n",
};
