/* The database: round trips, lists and filters, external faults. */
#include "../assertions.h"
#include "made_run.h"

#include "base/clock.h"
#include "base/file.h"
#include "store/driver.h"
#include "store/experiments.h"
#include "store/extras.h"
#include "store/queue.h"
#include "store/sql.h"
#include "store/store.h"
#include "store/usual_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[64], path[96];
    pj_store *store;
} fixture;

static pj_store *open_at(const char *path)
{
    pj_store *store = NULL;
    pj_error err = {0};
    if (pj_store_open(&(pj_store_options){.path = path, .driver = MADE_DRIVER}, &store, &err) !=
        PJ_OK)
        fail_msg("%s", err.text);
    return store;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-store-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->path, sizeof f->path, "%s/deeper/test.db", f->folder);
    f->store = open_at(f->path);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[200];
    pj_store_close(f->store);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int code = system(command);
    free(f);
    return code;
}

static void save(pj_store *store, const pj_run_data *data)
{
    pj_error err = {0};
    if (pj_store_save(store, data, &err) != PJ_OK) fail_msg("%s", err.text);
}

static void save_and_free(pj_store *store, const made_run *like)
{
    pj_run_data data;
    make_run(like, &data);
    save(store, &data);
    pj_run_data_fini(&data);
}

static int64_t request(pj_store *store, const char *sql)
{
    int64_t value = 0;
    pj_error err = {0};
    if (pj_sql_get_one_int(store, sql, NULL, -1, &value, &err) != PJ_OK) fail_msg("%s", err.text);
    return value;
}

static void assert_comes_back(pj_store *store, const made_run *like)
{
    pj_run_data data, back = {0};
    pj_error err = {0};
    make_run(like, &data);
    save(store, &data);
    if (pj_store_load(store, data.info.id, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_runs_equal(&data, &back);
    pj_run_data_fini(&data);
    pj_run_data_fini(&back);
}

static void runs_come_back_equal(void **state)
{
    fixture *f = *state;
    assert_comes_back(f->store, &(made_run){.seed = 1,
                                            .tokens = 5,
                                            .layers = 3,
                                            .samples = 100,
                                            .depth = PJ_DEPTH_DEEP,
                                            .tag = "a,\"b"});
    assert_comes_back(f->store, &(made_run){.seed = 2,
                                            .tokens = 9,
                                            .layers = 2,
                                            .samples = 10,
                                            .depth = PJ_DEPTH_MODULE,
                                            .experiment_name = "x"});
    assert_comes_back(f->store, &(made_run){.seed = 3, .tokens = 4});
    assert_comes_back(f->store, &(made_run){.seed = 4, .depth = PJ_DEPTH_DEEP});
    assert_comes_back(f->store, &(made_run){.seed = 5,
                                            .tokens = 3,
                                            .layers = 2,
                                            .no_energy = true,
                                            .depth = PJ_DEPTH_DEEP,
                                            .status = PJ_RUN_CANCELLED});
    assert_int_equal(request(f->store, "SELECT count(*) FROM profiling_runs"), 5);
}

static void unavailable_is_null_never_zero(void **state)
{
    fixture *f = *state;
    save_and_free(
        f->store,
        &(made_run){
            .seed = 5, .tokens = 3, .layers = 2, .no_energy = true, .depth = PJ_DEPTH_DEEP});
    assert_int_equal(request(f->store, "SELECT count(*) FROM deep_operation_metrics"), 3 * 2 * 18);
    assert_int_equal(request(f->store, "SELECT count(energy_mj) + count(planted_mj) +"
                                       " count(net_energy_mj) FROM deep_operation_metrics"),
                     0);
    assert_int_equal(request(f->store, "SELECT count(energy_mj) FROM tokens"), 0);
    assert_int_equal(request(f->store, "SELECT total_energy_mj IS NULL AND joules_per_token IS NULL"
                                       " AND tokens_per_second > 0 FROM profiling_runs"),
                     1);
}

static void replacing_leaves_one(void **state)
{
    fixture *f = *state;
    pj_run_data data;
    make_run(
        &(made_run){.seed = 1, .tokens = 5, .layers = 3, .samples = 100, .depth = PJ_DEPTH_DEEP},
        &data);
    save(f->store, &data);
    int64_t rows = request(f->store, "SELECT count(*) FROM deep_operation_metrics");
    save(f->store, &data);
    pj_run_data_fini(&data);
    assert_int_equal(request(f->store, "SELECT count(*) FROM deep_operation_metrics"), rows);
    assert_int_equal(request(f->store, "SELECT count(*) FROM profiling_runs"), 1);
}

static const char *const all_tables[] = {"profiling_runs",
                                         "power_samples",
                                         "pipeline_sections",
                                         "tokens",
                                         "layer_metrics",
                                         "component_metrics",
                                         "deep_operation_metrics",
                                         "run_rails",
                                         "run_rail_energy",
                                         "run_phases",
                                         "run_classes",
                                         "run_warnings",
                                         "run_conditions",
                                         "run_texts",
                                         "run_tags",
                                         "run_rows",
                                         "run_charts"};

static void assert_all_empty(pj_store *store)
{
    for (size_t i = 0; i < sizeof all_tables / sizeof *all_tables; i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", all_tables[i]);
        if (request(store, sql) != 0) fail_msg("%s still has rows", all_tables[i]);
    }
}

static void deleting_takes_all_rows(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    made_run like = {
        .seed = 1, .tokens = 5, .layers = 3, .samples = 100, .depth = PJ_DEPTH_DEEP, .tag = "t"};
    char id[PJ_UUID_BYTES];
    save_and_free(f->store, &like);
    assert_int_equal(pj_store_resolve(f->store, "last", id, &err), PJ_OK);
    save_and_free(f->store, &like);
    int64_t rows = request(f->store, "SELECT count(*) FROM deep_operation_metrics");
    assert_int_equal(pj_store_delete(f->store, id, &err), PJ_OK);
    assert_int_equal(request(f->store, "SELECT count(*) FROM deep_operation_metrics"), rows / 2);
    assert_int_equal(pj_store_delete(f->store, id, &err), PJ_E_NOT_FOUND);
    if (MADE_ON_SERVER) { /* which has no foreign keys */
        assert_int_equal(pj_store_resolve(f->store, "last", id, &err), PJ_OK);
        assert_int_equal(pj_store_delete(f->store, id, &err), PJ_OK);
        assert_all_empty(f->store);
        return;
    }
    /* A plain DELETE by another program cascades through the foreign keys. */
    assert_int_equal(pj_sql_run(f->store, "DELETE FROM profiling_runs", &err), PJ_OK);
    assert_int_equal(request(f->store, "SELECT count(*) FROM component_metrics"
                                       " WHERE layer_metric_id IS NOT NULL"),
                     0);
    assert_int_equal(pj_sql_run(f->store, "PRAGMA foreign_key_check", &err), PJ_OK);
    assert_all_empty(f->store);
}

static void parts_sum_to_the_whole(void **state)
{
    fixture *f = *state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        save_and_free(f->store, &(made_run){.seed = seed,
                                            .tokens = 6,
                                            .layers = 3,
                                            .depth = PJ_DEPTH_DEEP,
                                            .energy_factor = 1000});
    assert_that(request(f->store, "SELECT count(*) FROM conservation"), >, 4 * 6 * 3 * 11);
    assert_int_equal(request(f->store, "SELECT count(DISTINCT level) FROM conservation"), 5);
    assert_int_equal(request(f->store, "SELECT count(*) FROM conservation WHERE"
                                       " abs(whole_mj - parts_mj) > 1e-9 * abs(whole_mj)"),
                     0);
}

/* ---- lists ------------------------------------------------------------------------------------
 */

static pj_run_list list(pj_store *store, const pj_run_query *query)
{
    pj_run_list runs;
    pj_error err = {0};
    if (pj_store_list(store, query, &runs, &err) != PJ_OK) fail_msg("%s", err.text);
    return runs;
}

static uint64_t matches(pj_store *store, const pj_run_query *query)
{
    pj_run_list runs = list(store, query);
    uint64_t total = runs.total;
    if (!query->limit && !query->offset) assert_int_equal(runs.count, total);
    pj_run_list_fini(&runs);
    return total;
}

static void fill_for_lists(pj_store *store)
{
    static const char *const models[] = {"alpha", "beta"};
    for (uint64_t i = 0; i < 10; i++) {
        char prompt[40];
        snprintf(prompt, sizeof prompt, i == 3 ? "50%% of_it" : "Prompt number %d", (int)i);
        save_and_free(store,
                      &(made_run){.seed = i + 1,
                                  .tokens = 3 + (uint32_t)i,
                                  .prompt = prompt,
                                  .model_name = models[i % 2],
                                  .no_energy = i == 9,
                                  .tag = i % 3 == 0 ? "third" : NULL,
                                  .experiment_name = i < 4 ? "first" : NULL,
                                  .created_wall_ns = (1769860800 + (int64_t)i * 3600) * PJ_NS_PER_S,
                                  .status = i == 5 ? PJ_RUN_FAILED : PJ_RUN_COMPLETED});
    }
}

static void filters_find_what_they_name(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    fill_for_lists(store);
    const char *third[] = {"third"}, *both[] = {"third", "made"}, *none[] = {"third", "other"};
    assert_int_equal(matches(store, &(pj_run_query){0}), 10);
    assert_int_equal(matches(store, &(pj_run_query){.model = "alpha"}), 5);
    assert_int_equal(matches(store, &(pj_run_query){.experiment = "first"}), 4);
    assert_int_equal(matches(store, &(pj_run_query){.search = "NUMBER"}), 9);
    assert_int_equal(matches(store, &(pj_run_query){.search = "%"}), 1);
    assert_int_equal(matches(store, &(pj_run_query){.search = "of_"}), 1);
    assert_int_equal(matches(store, &(pj_run_query){.status = "failed"}), 1);
    assert_int_equal(matches(store, &(pj_run_query){.energy_source = "unavailable"}), 1);
    assert_int_equal(matches(store, &(pj_run_query){.tags = third, .tag_count = 1}), 4);
    assert_int_equal(matches(store, &(pj_run_query){.tags = both, .tag_count = 2}), 4);
    assert_int_equal(matches(store, &(pj_run_query){.tags = none, .tag_count = 2}), 0);
    assert_int_equal(matches(store, &(pj_run_query){.from = "2026-01-31T14:00:00"}), 8);
    assert_int_equal(matches(store, &(pj_run_query){.to = "2026-01-31T14:00:00"}), 2);
    assert_int_equal(matches(store, &(pj_run_query){.energy_mj = {.has_min = true}}), 9);
    assert_int_equal(matches(store, &(pj_run_query){.energy_mj = {.has_max = true}}), 0);
    assert_int_equal(matches(store, &(pj_run_query){.limit = 3, .offset = 8}), 10);
    assert_int_equal(matches(store, &(pj_run_query){.model = "beta", .limit = 3, .offset = 4}), 5);
    assert_int_equal(matches(store, &(pj_run_query){.model = "beta", .limit = 3, .offset = 80}), 5);
    pj_run_list runs;
    pj_error err;
    assert_int_equal(pj_store_list(store, &(pj_run_query){.from = "soon"}, &runs, &err),
                     PJ_E_INVALID);
}

/* A prompt of any length, or an absurd value of a stranger, does not take a list's memory. */
static void lists_have_the_beginnings_of_texts(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    enum { CHARACTERS = PJ_LIST_PROMPT_MAX + 5, LONG = 1200000 };
    char *text = calloc(1, LONG + 1);
    pj_error err;
    for (int i = 0; i < CHARACTERS; i++) memcpy(text + 2 * i, "\xc3\xa9", 2);
    save_and_free(store, &(made_run){.seed = 1, .tokens = 1, .prompt = text});
    pj_run_list runs = list(store, &(pj_run_query){0});
    assert_int_equal(strlen(runs.runs[0].prompt), 2 * PJ_LIST_PROMPT_MAX);
    assert_int_equal(memcmp(runs.runs[0].prompt, text, 2 * (size_t)PJ_LIST_PROMPT_MAX), 0);
    pj_run_list one;
    assert_int_equal(pj_store_info(store, runs.runs[0].id, &one, &err), PJ_OK);
    assert_string_equal(one.runs[0].prompt, text);
    pj_run_list_fini(&one);
    pj_run_list_fini(&runs);
    runs = list(store, &(pj_run_query){.whole_prompts = true});
    assert_string_equal(runs.runs[0].prompt, text);
    pj_run_list_fini(&runs);
    assert_int_equal(pj_sql_run(store, "UPDATE profiling_runs SET settings = '{}'", &err), PJ_OK);
    runs = list(store, &(pj_run_query){0});
    assert_string_equal(runs.runs[0].settings_json, "{}");
    pj_run_list_fini(&runs);
    memset(text, 'x', LONG);
    const pj_value huge = pj_value_text(text);
    assert_int_equal(pj_sql_change(store,
                                   "UPDATE profiling_runs SET failure = ?, settings = ?, tags = ?",
                                   PJ_VALUES(huge, huge, huge), &err),
                     PJ_OK);
    runs = list(store, &(pj_run_query){0});
    assert_int_equal(strlen(runs.runs[0].failure), PJ_LIST_PROMPT_MAX);
    assert_null(runs.runs[0].settings_json);
    assert_int_equal(runs.runs[0].tag_count, 0);
    pj_run_list_fini(&runs);
    free(text);
}

/* ---- retention --------------------------------------------------------------------------------
 */

static const char hour_bits[] =
    "SELECT coalesce(sum(1 << CAST((created_ns / 1000000000 - 1769860800) / 3600 AS INTEGER)), 0)"
    " FROM profiling_runs";

static int64_t hour(int64_t i)
{
    return (1769860800 + i * 3600) * PJ_NS_PER_S;
}

static void count_run(void *context, const char *id)
{
    assert_int_equal(strlen(id), PJ_UUID_BYTES - 1);
    ++*(int *)context;
}

/* How many the rule gives up, after checking that a dry run lists as many and deletes none. */
static int prune(pj_store *store, pj_prune rule)
{
    int listed = 0, deleted = 0;
    pj_error err = {0};
    int64_t before = request(store, hour_bits);
    rule.dry_run = true;
    assert_int_equal(pj_store_prune(store, &rule, count_run, &listed, &err), PJ_OK);
    assert_int_equal(request(store, hour_bits), before);
    rule.dry_run = false;
    assert_int_equal(pj_store_prune(store, &rule, count_run, &deleted, &err), PJ_OK);
    assert_int_equal(listed, deleted);
    return deleted;
}

/* Runs 0, 3, 6 and 9 of fill_for_lists have a tag besides "made", which all have. */
static void retention_keeps_the_newest_and_the_tagged(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    fill_for_lists(store);
    assert_int_equal(pj_sql_run(store, "DELETE FROM run_tags WHERE tag = 'made'", NULL), PJ_OK);
    assert_int_equal(request(store, hour_bits), 0x3ff);
    assert_int_equal(prune(store, (pj_prune){.before_ns = hour(0), .tagged = true}), 0);
    assert_int_equal(prune(store, (pj_prune){.before_ns = hour(2)}), 1);
    assert_int_equal(request(store, hour_bits), 0x3fd);
    /* the newest of all runs count, tagged or not: 9, 8, 7, 6, 5 */
    assert_int_equal(prune(store, (pj_prune){.before_ns = hour(9), .keep = 5}), 2);
    assert_int_equal(request(store, hour_bits), 0x3e9);
    assert_int_equal(prune(store, (pj_prune){.before_ns = INT64_MAX, .keep = 2}), 2);
    assert_int_equal(request(store, hour_bits), 0x349);
    assert_int_equal(prune(store, (pj_prune){.before_ns = hour(3), .tagged = true}), 1);
    assert_int_equal(request(store, hour_bits), 0x348);
    assert_int_equal(prune(store, (pj_prune){.before_ns = INT64_MAX, .keep = 100}), 0);
    assert_int_equal(prune(store, (pj_prune){.before_ns = INT64_MAX, .tagged = true}), 4);
    assert_all_empty(store);
}

static void retention_keeps_what_has_not_ended(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    pj_error err = {0};
    fill_for_lists(store);
    assert_int_equal(
        pj_sql_run(
            store,
            "INSERT INTO run_queue (id, queued_ns, request) SELECT id, 1, '{}' FROM profiling_runs"
            " ORDER BY created_ns LIMIT 1",
            &err),
        PJ_OK);
    assert_int_equal(pj_sql_run(store,
                                "UPDATE profiling_runs SET status = 'running' WHERE id ="
                                " (SELECT id FROM profiling_runs ORDER BY created_ns DESC LIMIT 1)",
                                &err),
                     PJ_OK);
    assert_int_equal(prune(store, (pj_prune){.before_ns = INT64_MAX, .tagged = true}), 8);
    assert_int_equal(request(store, hour_bits), 0x201);
}

static double figure(const pj_run_info *run, pj_run_sort sort)
{
    switch (sort) {
    case PJ_SORT_DATE: return (double)run->created_wall_ns;
    case PJ_SORT_DURATION: return run->total_ms;
    case PJ_SORT_ENERGY: return run->total_mj;
    case PJ_SORT_TOKENS_PER_SECOND: return (double)(run->output_tokens - 1) / run->decode_ms;
    case PJ_SORT_JOULES_PER_TOKEN: return run->total_mj / (double)run->output_tokens;
    case PJ_SORT_TYPICAL: return run->typical_token_mj;
    case PJ_SORT_COUNT: break;
    }
    return 0;
}

static void orders_hold_and_missing_comes_last(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    fill_for_lists(store);
    for (pj_run_sort sort = 0; sort < PJ_SORT_COUNT; sort++)
        for (int ascending = 0; ascending < 2; ascending++) {
            pj_run_list runs = list(store, &(pj_run_query){.sort = sort, .ascending = ascending});
            bool lacks = sort == PJ_SORT_ENERGY || sort == PJ_SORT_JOULES_PER_TOKEN ||
                         sort == PJ_SORT_TYPICAL;
            for (uint32_t i = 1; i < (lacks ? 9 : 10); i++) {
                double a = figure(&runs.runs[i - 1], sort), b = figure(&runs.runs[i], sort);
                assert_true(ascending ? a <= b : a >= b);
            }
            if (lacks) assert_int_equal(runs.runs[9].quality, PJ_UNAVAILABLE);
            pj_run_list_fini(&runs);
        }
}

static void ids_are_found_by_prefix(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    pj_error err = {0};
    char id[PJ_UUID_BYTES], found[PJ_UUID_BYTES];
    assert_int_equal(pj_store_resolve(store, "last", id, &err), PJ_E_NOT_FOUND);
    fill_for_lists(store);
    assert_int_equal(pj_store_resolve(store, "last", id, &err), PJ_OK);
    assert_int_equal(pj_store_resolve(store, id, found, &err), PJ_OK);
    assert_string_equal(id, found);
    char prefix[PJ_UUID_BYTES];
    memcpy(prefix, id, sizeof prefix);
    prefix[30] = 0;
    for (char *c = prefix; *c; c++) *c = *c >= 'a' && *c <= 'f' ? (char)(*c - 32) : *c;
    assert_int_equal(pj_store_resolve(store, prefix, found, &err), PJ_OK);
    assert_string_equal(id, found);
    prefix[6] = 0; /* all were made within a moment: they begin alike */
    assert_int_equal(pj_store_resolve(store, prefix, found, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "is ambiguous"));
    assert_int_equal(pj_store_resolve(store, "ab", found, &err), PJ_E_INVALID);
    assert_int_equal(pj_store_resolve(store, "%%%%%%", found, &err), PJ_E_INVALID);
    assert_int_equal(pj_store_resolve(store, "00000000", found, &err), PJ_E_NOT_FOUND);
}

static void runs_are_found_by_age(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    pj_error err = {0};
    char found[PJ_UUID_BYTES], spec[16];
    fill_for_lists(store);
    pj_run_list runs = list(store, &(pj_run_query){0});
    for (uint32_t i = 0; i < runs.count; i++) {
        snprintf(spec, sizeof spec, "last~%u", (unsigned)i);
        assert_int_equal(pj_store_resolve(store, spec, found, &err), PJ_OK);
        assert_string_equal(found, runs.runs[i].id);
    }
    snprintf(spec, sizeof spec, "last~%u", (unsigned)runs.count);
    assert_int_equal(pj_store_resolve(store, spec, found, &err), PJ_E_NOT_FOUND);
    assert_int_equal(pj_store_resolve(store, "last~998", found, &err), PJ_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "fewer than 999 runs"));
    pj_run_list_fini(&runs);
    const char *const bad[] = {"last~", "last~-1", "last~1x", "last1", "last~1234567890"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(pj_store_resolve(store, bad[i], found, &err), PJ_E_INVALID);
}

/* ---- the world around -------------------------------------------------------------------------
 */

static void assert_refused(const char *path, pj_status status, const char *word)
{
    pj_store *store;
    pj_error err = {0};
    assert_int_equal(
        pj_store_open(&(pj_store_options){.path = path, .driver = MADE_DRIVER}, &store, &err),
        status);
    assert_null(store);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not say \"%s\"", err.text, word);
    assert_null(strchr(err.text, '\n'));
}

static void other_files_are_refused(void **state)
{
    if (MADE_ON_SERVER) skip();
    fixture *f = *state;
    char path[128];
    pj_error err = {0};
    snprintf(path, sizeof path, "%s/other", f->folder);
    char text[4096];
    memset(text, 'x', sizeof text);
    assert_int_equal(pj_file_write(path, text, sizeof text, &err), PJ_OK);
    assert_refused(path, PJ_E_INVALID, "is not a perjoule database");
    assert_refused("/proc/version/x.db", PJ_E_IO, "");
    if (!pj_store_drivers[1]) assert_refused("postgresql://host/db", PJ_E_UNSUPPORTED, "SQLite");
    assert_int_equal(pj_sql_run(f->store, "PRAGMA user_version=99", &err), PJ_OK);
    assert_refused(f->path, PJ_E_UNSUPPORTED, "newer perjoule");
    assert_int_equal(pj_sql_run(f->store, "PRAGMA application_id=7", &err), PJ_OK);
    assert_refused(f->path, PJ_E_INVALID, "another program");
}

static void reading_only_needs_a_file(void **state)
{
    fixture *f = *state;
    pj_store *store;
    pj_error err = {0};
    char id[PJ_UUID_BYTES];
    pj_store_options options = {.path = f->path, .driver = MADE_DRIVER, .read_only = true};
    save_and_free(f->store, &(made_run){.seed = 1, .tokens = 3});
    assert_int_equal(pj_store_open(&options, &store, &err), PJ_OK);
    assert_int_equal(matches(store, &(pj_run_query){0}), 1);
    assert_int_equal(pj_store_resolve(store, "last", id, &err), PJ_OK);
    assert_int_equal(pj_store_delete(store, id, &err), PJ_E_DENIED);
    pj_store_close(store);
    options.path = "/nonexistent/x.db";
    if (!MADE_ON_SERVER) assert_int_equal(pj_store_open(&options, &store, &err), PJ_E_NOT_FOUND);
}

/* Names of clients become keys of JSON that others read. */
static void names_of_extras_are_made_fit_for_json(void **state)
{
    const pj_extra_row extras[] = {{"\"\xff\xc3\x01\\", PJ_EXTRA_SCALAR, 1.5},
                                   {"h\xc3\xb6he", PJ_EXTRA_SCALAR, 2}};
    pj_buffer buffer;
    pj_buffer_init(&buffer, 1 << 16);
    assert_true(pj_extras_write(&buffer, extras, 2));
    assert_string_equal(pj_buffer_get(&buffer), "{\"_____\":1.5,\"h\xc3\xb6he\":2}");
    pj_buffer_fini(&buffer);
}

/* A log needs a folder that may be written; a file without one is read where it lies. */
static void a_folder_for_reading_only_is_enough(void **state)
{
    if (MADE_ON_SERVER) skip();
    if (geteuid() == 0) {
        print_message("root may write into any folder\n");
        skip();
    }
    fixture *f = *state;
    pj_store *store;
    pj_error err = {0};
    char folder[4096], copy[4200], command[9000];
    snprintf(folder, sizeof folder, "%s.folder", f->path);
    snprintf(copy, sizeof copy, "%s/odd?name#%%41.db", folder);
    save_and_free(f->store, &(made_run){.seed = 1, .tokens = 3});
    assert_int_equal(pj_sql_run(f->store, "PRAGMA wal_checkpoint(TRUNCATE)", &err), PJ_OK);
    snprintf(command, sizeof command, "mkdir '%s' && cp '%s' '%s' && chmod 555 '%s'", folder,
             f->path, copy, folder);
    assert_int_equal(system(command), 0);
    pj_store_options options = {.path = copy, .driver = MADE_DRIVER, .read_only = true};
    pj_status status = pj_store_open(&options, &store, &err);
    if (status == PJ_OK) {
        assert_int_equal(matches(store, &(pj_run_query){0}), 1);
        pj_store_close(store);
    }
    snprintf(command, sizeof command, "chmod 755 '%s' && rm -r '%s'", folder, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(status, PJ_OK);
}

/* Overwrites a part of the file behind SQLite's back. */
static void damage(const char *path, long at, size_t count)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    for (size_t i = 0; i < count; i++) fputc(0xa5, file);
    fclose(file);
}

static void damaged_files_give_errors(void **state)
{
    if (MADE_ON_SERVER) skip();
    fixture *f = *state;
    pj_error err = {0};
    char id[PJ_UUID_BYTES];
    save_and_free(
        f->store,
        &(made_run){.seed = 1, .tokens = 20, .layers = 3, .samples = 1000, .depth = PJ_DEPTH_DEEP});
    assert_int_equal(pj_store_resolve(f->store, "last", id, &err), PJ_OK);
    struct stat info;
    for (int round = 0; round < 20; round++) {
        pj_store_close(f->store);
        assert_int_equal(stat(f->path, &info), 0);
        damage(f->path, 16384 + (long)round * (info.st_size - 16384) / 20, 700);
        f->store = NULL;
        if (pj_store_open(&(pj_store_options){.path = f->path, .driver = MADE_DRIVER}, &f->store,
                          &err) != PJ_OK)
            return;
        pj_run_data data = {0};
        pj_run_list runs;
        if (pj_store_load(f->store, id, &data, &err) == PJ_OK)
            pj_run_data_fini(&data);
        else
            assert_true(err.text[0]);
        if (pj_store_list(f->store, &(pj_run_query){0}, &runs, &err) == PJ_OK)
            pj_run_list_fini(&runs);
    }
}

static void lying_rows_give_errors(void **state)
{
    static const char *const lies[] = {
        "UPDATE run_rows SET row_count = 2000000000 WHERE table_name = 'tokens'",
        "UPDATE run_rows SET first_id = 9000000000000000000",
        "UPDATE layer_metrics SET token_id = 1000000",
        "UPDATE layer_metrics SET layer_index = 'x'",
        "UPDATE component_metrics SET component_name = NULL",
        "UPDATE deep_operation_metrics SET extra_metrics = '{\"a\": [[[['",
        "UPDATE deep_operation_metrics SET energy_mj = 1e300",
        "UPDATE tokens SET phase = 'lunch'",
        "UPDATE run_rail_energy SET rail_index = 60000",
        "UPDATE run_rails SET rail_name = printf('%.*c', 5000, 'x')",
        "UPDATE profiling_runs SET status = 12",
        "DELETE FROM tokens WHERE position = 2",
        "UPDATE run_rails SET rail_index = 7"};
    fixture *f = *state;
    pj_error err = {0};
    pj_run_data run, data = {0};
    make_run(
        &(made_run){.seed = 1, .tokens = 4, .layers = 2, .samples = 10, .depth = PJ_DEPTH_DEEP},
        &run);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        save(f->store, &run);
        if (!MADE_ON_SERVER)
            assert_int_equal(pj_sql_run(f->store, "PRAGMA foreign_keys=OFF", &err), PJ_OK);
        bool is_told = pj_sql_run(f->store, lies[i], &err) == PJ_OK;
        if (!is_told && MADE_ON_SERVER) continue; /* typed columns take no such lie */
        if (!is_told) fail_msg("%s", err.text);
        if (pj_store_load(f->store, run.info.id, &data, &err) == PJ_OK) fail_msg("%s", lies[i]);
        assert_null(strchr(err.text, '\n'));
    }
    pj_run_data_fini(&run);
}

static void a_full_disk_keeps_what_was_there(void **state)
{
    if (MADE_ON_SERVER) skip();
    fixture *f = *state;
    pj_error err = {0};
    save_and_free(f->store, &(made_run){.seed = 1, .tokens = 3});
    pj_store_close(f->store);
    f->store = NULL;
    pid_t child = fork();
    if (child == 0) { /* a limit on file size stands for a full disk */
        struct rlimit limit = {1 << 20, 1 << 20};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        pj_store *store = NULL;
        if (pj_store_open(&(pj_store_options){.path = f->path, .driver = MADE_DRIVER}, &store,
                          &err) != PJ_OK)
            _exit(3);
        pj_run_data data;
        make_run(&(made_run){.seed = 2, .tokens = 60, .layers = 8, .depth = PJ_DEPTH_DEEP}, &data);
        pj_status status = pj_store_save(store, &data, &err);
        _exit(status != PJ_OK && err.text[0] && !strchr(err.text, '\n') ? 0 : 4);
    }
    int code;
    waitpid(child, &code, 0);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    f->store = open_at(f->path);
    assert_int_equal(request(f->store, "SELECT count(*) FROM profiling_runs"), 1);
    assert_int_equal(
        request(f->store, "/* SQLite */ SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
        1);
}

static void many_processes_share_one_database(void **state)
{
    enum { PROCESSES = 4, RUNS = 6 };
    fixture *f = *state;
    pj_store_close(f->store);
    f->store = NULL;
    unlink(f->path); /* they also race to create it */
    pid_t children[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        if (children[p] != 0) continue;
        pj_error err = {0};
        for (int i = 0; i < RUNS; i++) {
            pj_store *store;
            pj_run_data data;
            if (pj_store_open(&(pj_store_options){.path = f->path, .driver = MADE_DRIVER}, &store,
                              &err) != PJ_OK) {
                fprintf(stderr, "%s\n", err.text);
                _exit(1);
            }
            make_run(&(made_run){.seed = (uint64_t)(p * 100 + i),
                                 .tokens = 5,
                                 .layers = 2,
                                 .depth = PJ_DEPTH_DEEP},
                     &data);
            if (pj_store_save(store, &data, &err) != PJ_OK) {
                fprintf(stderr, "%s\n", err.text);
                _exit(2);
            }
            pj_run_data_fini(&data);
            pj_store_close(store);
        }
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int code;
        waitpid(children[p], &code, 0);
        assert_true(WIFEXITED(code));
        assert_int_equal(WEXITSTATUS(code), 0);
    }
    f->store = open_at(f->path);
    assert_int_equal(request(f->store, "SELECT count(*) FROM profiling_runs"), PROCESSES * RUNS);
    assert_int_equal(request(f->store, "SELECT count(*) FROM deep_operation_metrics"),
                     PROCESSES * RUNS * 5 * 2 * 18);
    if (MADE_ON_SERVER) return;
    assert_int_equal(
        request(f->store, "/* SQLite */ SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
        1);
    assert_int_equal(
        request(f->store, "/* SQLite */ SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

static void failing_memory_is_an_error_not_a_crash(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    pj_run_data run;
    make_run(&(made_run){.seed = 1, .tokens = 3, .layers = 2, .samples = 9, .depth = PJ_DEPTH_DEEP},
             &run);
    save(f->store, &run);
    int failures = 0;
    bool has_failed = true; /* one of the allocations */
    for (uint64_t after = 0; has_failed && after < 400; after++) {
        pj_run_data data = {0};
        uint64_t before = pj_memory_count();
        pj_memory_fail_after((int64_t)after);
        pj_status saved = pj_store_save(f->store, &run, &err);
        uint64_t between = pj_memory_count();
        pj_memory_fail_after((int64_t)after);
        pj_status loaded = pj_store_load(f->store, run.info.id, &data, &err);
        has_failed = between - before > after || pj_memory_count() - between > after;
        pj_memory_fail_after(-1);
        if (loaded == PJ_OK) pj_run_data_fini(&data);
        failures += saved != PJ_OK || loaded != PJ_OK;
    }
    assert_that(failures, >, 0);
    pj_run_data back = {0};
    assert_int_equal(pj_store_load(f->store, run.info.id, &back, &err), PJ_OK);
    assert_runs_equal(&run, &back);
    pj_run_data_fini(&back);
    pj_run_data_fini(&run);
}

static void note_name(void *context, const pj_experiment_row *row)
{
    char *names = context;
    strcat(strcat(names, row->name), " ");
}

/* One database may hold what the servers of several machines are to do. */
static void queued_experiments_belong_to_a_machine(void **state)
{
    fixture *f = *state;
    static const char *const queued[][2] = {{"z", "one"}, {"b", "two"}, {"a", "one"}};
    pj_error err;
    char names[100] = "";
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pj_store_experiment_put(f->store, queued[i][0], "{}", &err), PJ_OK);
        assert_int_equal(pj_store_experiment_queue(f->store, queued[i][0], queued[i][1], &err),
                         PJ_OK);
    }
    assert_int_equal(pj_store_experiment_put(f->store, "begun by hand", "{}", &err), PJ_OK);
    pj_store_experiment_list_queued(f->store, "one", note_name, names, &err);
    assert_string_equal(names, "z a ");
    names[0] = 0;
    assert_int_equal(pj_store_experiment_set_state(f->store, "b", "failed", "why", &err), PJ_OK);
    pj_store_experiment_list_queued(f->store, "two", note_name, names, &err);
    assert_string_equal(names, "");
    /* as an earlier version left it */
    assert_int_equal(
        pj_sql_run(f->store, "UPDATE experiments SET machine = NULL WHERE name = 'z'", &err),
        PJ_OK);
    pj_store_experiment_list_queued(f->store, "two", note_name, names, &err);
    assert_string_equal(names, "z ");
}

/* Two servers see that a third is dead, and both have read that its row was its own. */
static void a_queued_run_has_one_heir(void **state)
{
    fixture *f = *state;
    pj_error err;
    char owner[PJ_UUID_BYTES];
    pj_queue_row row = {
        .id = "r", .request = "{}", .request_bytes = 2, .owner = "dead", .queued_ns = 1};
    assert_int_equal(pj_store_queue_put(f->store, &row, &err), PJ_OK);
    assert_int_equal(pj_store_queue_claim(f->store, "r", "dead", "heir", &err), PJ_OK);
    pj_store_queue_claim(f->store, "r", "dead", "late", &err);
    assert_int_equal(pj_store_queue_owner(f->store, "r", owner, &err), PJ_OK);
    assert_string_equal(owner, "heir");
    /* without an owner, as an earlier version left it */
    row = (pj_queue_row){.id = "s", .request = "{}", .request_bytes = 2, .queued_ns = 2};
    assert_int_equal(pj_store_queue_put(f->store, &row, &err), PJ_OK);
    assert_int_equal(pj_store_queue_claim(f->store, "s", NULL, "heir", &err), PJ_OK);
    pj_store_queue_claim(f->store, "s", NULL, "late", &err);
    assert_int_equal(pj_store_queue_owner(f->store, "s", owner, &err), PJ_OK);
    assert_string_equal(owner, "heir");
    /* an experiment alike */
    assert_int_equal(pj_store_experiment_put(f->store, "x", "{}", &err), PJ_OK);
    assert_int_equal(pj_store_experiment_claim(f->store, "x", "", "heir", &err), PJ_OK);
    pj_store_experiment_claim(f->store, "x", "", "late", &err);
    assert_int_equal(pj_store_experiment_owner(f->store, "x", owner, &err), PJ_OK);
    assert_string_equal(owner, "heir");
}

/* Else an engine's address is taken for a file's name by what keeps spools beside files. */
static void prefixes_of_engines_are_known(void **state)
{
    for (int i = 0; pj_store_drivers[i]; i++) {
        const char *const *prefix = pj_store_drivers[i]->prefixes;
        for (; prefix && *prefix; prefix++)
            if (!pj_store_is_server(*prefix))
                fail_msg("\"%s\" of %s is not in `addresses` of store/drivers.c", *prefix,
                         pj_store_drivers[i]->name);
    }
}

static double usual_prefill_ms(pj_store *store, const pj_run_info *like)
{
    pj_usual_times usual;
    pj_error err = {0};
    if (pj_store_usual_times(store, like, &usual, &err) != PJ_OK) fail_msg("%s", err.text);
    return usual.prefill_ms;
}

/* What loads the weights in another way, or computes on another device, takes another time. */
static void only_like_runs_say_what_is_usual(void **state)
{
    pj_store *store = ((fixture *)*state)->store;
    pj_run_data data;
    for (uint64_t seed = 1; seed <= PJ_DISTURBED_LEAST_RUNS; seed++) {
        make_run(&(made_run){.seed = seed, .tokens = 3, .model_name = "m"}, &data);
        data.info.prefill_ms = 100;
        data.info.prefill_disturbed.ms = 0;
        data.info.input_tokens = 10;
        data.info.dtype = "bf16", data.info.isa = "avx2", data.info.machine = "here";
        data.info.engine = "perjoule", data.info.threads = 2, data.info.batch_size = 1;
        data.info.settings_json = "{\"max_tokens\": 5, \"no_mmap\": true}";
        save(store, &data);
        if (seed < PJ_DISTURBED_LEAST_RUNS) pj_run_data_fini(&data);
    }
    pj_run_info like = data.info;
    assert_near(usual_prefill_ms(store, &like), 100, 1e-9);
    like.settings_json = "{\"no_mmap\": true, \"max_tokens\": 7}"; /* the latter does not matter */
    assert_near(usual_prefill_ms(store, &like), 100, 1e-9);
    like.settings_json = "{\"max_tokens\": 5}";
    assert_true(isnan(usual_prefill_ms(store, &like)));
    like.settings_json = NULL;
    assert_true(isnan(usual_prefill_ms(store, &like)));
    like.settings_json = data.info.settings_json;
    like.isa = "vulkan";
    assert_true(isnan(usual_prefill_ms(store, &like)));
    pj_run_data_fini(&data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_like_runs_say_what_is_usual),
        cmocka_unit_test(prefixes_of_engines_are_known),
        TEST(queued_experiments_belong_to_a_machine),
        TEST(a_queued_run_has_one_heir),
        TEST(runs_come_back_equal),
        TEST(unavailable_is_null_never_zero),
        TEST(replacing_leaves_one),
        TEST(deleting_takes_all_rows),
        TEST(parts_sum_to_the_whole),
        TEST(filters_find_what_they_name),
        TEST(lists_have_the_beginnings_of_texts),
        TEST(retention_keeps_the_newest_and_the_tagged),
        TEST(retention_keeps_what_has_not_ended),
        TEST(orders_hold_and_missing_comes_last),
        TEST(ids_are_found_by_prefix),
        TEST(runs_are_found_by_age),
        TEST(other_files_are_refused),
        TEST(reading_only_needs_a_file),
        TEST(a_folder_for_reading_only_is_enough),
        TEST(names_of_extras_are_made_fit_for_json),
        TEST(damaged_files_give_errors),
        TEST(lying_rows_give_errors),
        TEST(a_full_disk_keeps_what_was_there),
        TEST(many_processes_share_one_database),
        TEST(failing_memory_is_an_error_not_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
