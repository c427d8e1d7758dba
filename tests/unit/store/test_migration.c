/* Databases of earlier schemas, made by taking a new one apart, and where operations are kept. */
#include "../assertions.h"
#include "history.h"
#include "made_run.h"

#include "store/sql.h"
#include "store/sqlite.h"
#include "store/store.h"
#include "trace/disturbance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[64], path[96];
    pj_store *store;
} fixture;

static void open_again(fixture *f)
{
    pj_error err = {0};
    pj_store_close(f->store);
    f->store = NULL;
    if (pj_store_open(&(pj_store_options){.path = f->path}, &f->store, &err) != PJ_OK)
        fail_msg("%s", err.text);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-migration-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->path, sizeof f->path, "%s/test.db", f->folder);
    open_again(f);
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

static void do_sql(pj_store *store, const char *sql)
{
    pj_error err = {0};
    if (pj_sql_run(store, sql, &err) != PJ_OK) fail_msg("%s: %s", sql, err.text);
}

static int64_t request(pj_store *store, const char *sql)
{
    int64_t value = 0;
    pj_error err = {0};
    if (pj_sql_get_one_int(store, sql, NULL, -1, &value, &err) != PJ_OK) fail_msg("%s", err.text);
    return value;
}

enum { MOST_NAMES = 64 };

static int list_names(pj_store *store, const char *names, char found[MOST_NAMES][64])
{
    int count = 0;
    pj_error err = {0};
    pj_sql *sql = pj_sql_begin(store, names, &err);
    while (pj_sql_step(sql))
        snprintf(found[count++], sizeof *found, "%s", pj_sql_get_text(sql, 0, NULL));
    if (pj_sql_end(sql, &err) != PJ_OK) fail_msg("%s", err.text);
    return count;
}

/* Runs `then` for each row of `names`, "%s" in it replaced by the row's only text. */
static void for_each(pj_store *store, const char *names, const char *then)
{
    char found[MOST_NAMES][64], text[512];
    int count = list_names(store, names, found);
    for (int i = 0; i < count; i++) {
        size_t n = 0;
        for (const char *c = then; *c; c++)
            if (c[0] == '%' && c[1] == 's') {
                n += (size_t)snprintf(text + n, sizeof text - n, "%s", found[i]);
                c++;
            } else {
                text[n++] = *c;
            }
        text[n] = 0;
        do_sql(store, text);
    }
}

/* The database as version 1 would have left it, with operations in an order of their own: all
 * first ones of the components of a run, then all second ones. */
static void copy_known(pj_store *store, const char *table)
{
    char question[256], columns[2048], text[4608];
    pj_error err = {0};
    snprintf(question, sizeof question,
             "SELECT group_concat(name, ', ') FROM pragma_table_info('%s', 'main')", table);
    pj_sql *sql = pj_sql_begin(store, question, &err);
    columns[0] = 0;
    while (pj_sql_step(sql)) {
        const char *names = pj_sql_get_text(sql, 0, NULL);
        snprintf(columns, sizeof columns, "%s", names ? names : "");
    }
    if (pj_sql_end(sql, &err) != PJ_OK) fail_msg("%s", err.text);
    if (!columns[0]) return; /* a table that came later */
    snprintf(text, sizeof text, "INSERT INTO main.%s (%s) SELECT %s FROM old_%s", table, columns,
             columns, table);
    do_sql(store, text);
}

static void go_back_to_version_1(fixture *f)
{
    static const char tables[] = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    static const char published[] =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%_packed'"
        " UNION ALL SELECT name FROM sqlite_schema WHERE type = 'view' AND"
        " name IN ('layer_metrics', 'component_metrics', 'deep_operation_metrics')";
    static const char copied[] = "SELECT substr(name, 5) FROM sqlite_temp_schema";
    do_sql(f->store, "PRAGMA foreign_keys=OFF");
    for_each(f->store, published, "CREATE TEMP TABLE old_%s AS SELECT * FROM %s");
    for_each(f->store, "SELECT name FROM sqlite_schema WHERE type = 'trigger'", "DROP TRIGGER %s");
    for_each(f->store, "SELECT name FROM sqlite_schema WHERE type = 'view'", "DROP VIEW %s");
    for_each(f->store, tables, "DROP TABLE %s");
    do_sql(f->store, sqlite_history[0]);
    do_sql(f->store, "UPDATE old_deep_operation_metrics AS o SET id = -n.new_id FROM (SELECT"
                     "  p.id, r.first_id + row_number() OVER (PARTITION BY r.run_id ORDER BY"
                     "  p.rank, p.id) - 1 AS new_id FROM (SELECT id, row_number() OVER (PARTITION"
                     "  BY component_metric_id ORDER BY id) AS rank FROM"
                     "  old_deep_operation_metrics) p JOIN old_run_rows r ON r.table_name ="
                     "  'deep_operation_metrics' AND p.id BETWEEN r.first_id AND"
                     "  r.first_id + r.row_count - 1) AS n WHERE n.id = o.id;"
                     "UPDATE old_deep_operation_metrics SET id = -id;");
    char found[MOST_NAMES][64];
    int count = list_names(f->store, copied, found);
    for (int i = 0; i < count; i++) copy_known(f->store, found[i]);
    do_sql(f->store, "PRAGMA user_version=1");
}

static void save(fixture *f, const pj_run_data *run)
{
    pj_error err = {0};
    if (pj_store_save(f->store, run, &err) != PJ_OK) fail_msg("%s", err.text);
}

static void assert_stored(fixture *f, const pj_run_data *run)
{
    pj_run_data back = {0};
    pj_error err = {0};
    if (pj_store_load(f->store, run->info.id, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_runs_equal(run, &back);
    pj_run_data_fini(&back);
}

static void forget_energy(pj_energy *e)
{
    e->net_sd_mj = NAN;
    e->sd = e->net_sd = PJ_SD_UNKNOWN;
    e->upper_mj = NAN;
    e->absence = PJ_ABSENT_NOT;
}

/* What version 1 had no columns for. */
static void forget_later_figures(pj_run_data *d)
{
    pj_run_info *info = &d->info;
    info->net_sd_mj = info->upper_mj = info->request_net_sd_mj = info->model_load_sd_mj = NAN;
    info->typical_sd_mj = NAN;
    info->memory_read_bytes = info->memory_written_bytes = info->process_mj = NAN;
    info->thinking_tokens = info->thinking_mj = info->thinking_sd_mj = info->thinking_ms = NAN;
    info->tool_calls = NAN;
    info->total_sd = info->net_sd = info->typical_sd = PJ_SD_UNKNOWN;
    info->request_sd = info->request_net_sd = info->model_load_sd = PJ_SD_UNKNOWN;
    for (uint32_t i = 0; i < d->rail_energy_count; i++) {
        d->rail_energy[i].net_sd_mj = NAN;
        d->rail_energy[i].sd = d->rail_energy[i].net_sd = PJ_SD_UNKNOWN;
    }
    pj_disturbances_clear(info);
    for (uint32_t i = 0; i < d->component_count; i++) d->components[i].disturbed_ms = 0;
    for (uint32_t i = 0; i < d->class_count; i++) {
        d->classes[i].net_energy_mj = d->classes[i].net_energy_sd_mj = NAN;
        d->classes[i].energy_sd = d->classes[i].net_energy_sd = PJ_SD_UNKNOWN;
    }
    for (uint32_t i = 0; i < d->phase_count; i++) forget_energy(&d->phases[i].energy);
    for (uint32_t i = 0; i < d->section_count; i++) forget_energy(&d->sections[i].energy);
    for (uint32_t i = 0; i < d->token_count; i++) forget_energy(&d->tokens[i].energy);
    for (uint32_t i = 0; i < d->layer_count; i++) forget_energy(&d->layers[i].energy);
    for (uint32_t i = 0; i < d->component_count; i++) forget_energy(&d->components[i].energy);
    for (uint32_t i = 0; i < d->operation_count; i++) forget_energy(&d->operations[i].energy);
}

static void version_1_is_taken_along(void **state)
{
    enum { RUNS = 4 };
    fixture *f = *state;
    pj_run_data runs[RUNS];
    pj_error err = {0};
    for (uint32_t i = 0; i < RUNS; i++) {
        make_run(&(made_run){.seed = i + 1,
                             .tokens = 3 + i,
                             .layers = 2,
                             .samples = 9,
                             .depth = i == 2 ? PJ_DEPTH_MODULE : PJ_DEPTH_DEEP},
                 &runs[i]);
        runs[i].info.statistics_ms = NAN; /* nobody asked for it then */
        runs[i].info.cached_tokens = runs[i].info.monotonic_ms = NAN;
        for (uint32_t t = 0; t < runs[i].token_count; t++) runs[i].tokens[t].disturbed = -1;
        save(f, &runs[i]);
        forget_later_figures(&runs[i]);
    }
    assert_int_equal(pj_store_delete(f->store, runs[0].info.id, &err), PJ_OK); /* leaves a gap */
    go_back_to_version_1(f);
    assert_int_equal(request(f->store, "SELECT count(*) FROM pragma_table_info('component_metrics')"
                                       " WHERE name = 'first_operation_id'"),
                     0);
    assert_that(request(f->store, "SELECT count(*) FROM deep_operation_metrics a JOIN"
                                  " deep_operation_metrics b ON b.id = a.id + 1"
                                  " WHERE b.component_metric_id < a.component_metric_id"),
                >, 0);
    open_again(f);
    assert_int_equal(request(f->store, "PRAGMA user_version"), pj_sqlite_dialect.version);
    for (int i = 1; i < RUNS; i++) assert_stored(f, &runs[i]);
    assert_int_equal(request(f->store, "SELECT count(*) FROM profiling_runs WHERE"
                                       " joules_per_token = request_energy_mj / 1e3 / output_tokens"
                                       " AND joules_per_token_sd > 0 AND request_energy_mj > 0"),
                     RUNS - 1);
    assert_int_equal(request(f->store,
                             "SELECT count(*) FROM component_metrics c WHERE operation_count"
                             " <> (SELECT count(*) FROM deep_operation_metrics o"
                             "  WHERE o.component_metric_id = c.id)"),
                     0);
    assert_int_equal(request(f->store, "SELECT count(*) FROM conservation WHERE"
                                       " abs(whole_mj - parts_mj) > 1e-9 * abs(whole_mj)"),
                     0);
    assert_int_equal(request(f->store, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                     1);
    save(f, &runs[0]);
    for (int i = 0; i < RUNS; i++) {
        assert_stored(f, &runs[i]);
        assert_int_equal(pj_store_delete(f->store, runs[i].info.id, &err), PJ_OK);
        pj_run_data_fini(&runs[i]);
    }
    assert_int_equal(request(f->store, "SELECT count(*) FROM deep_operation_metrics"), 0);
}

/* Recorders may finish operations in any order: those of a component are stored together. */
/* A column that a row has and the database does not (a new statistic, a new figure of runs). */
/* A batch as version 1 kept it: what lies in a step, and the step's self energy, at its first
 * token. */
static void steps_of_batches_are_found(void **state)
{
    fixture *f = *state;
    pj_run_data run;
    make_run(&(made_run){.seed = 9, .tokens = 5, .layers = 2, .depth = PJ_DEPTH_DEEP}, &run);
    save(f, &run);
    go_back_to_version_1(f);
    do_sql(f->store,
           "UPDATE profiling_runs SET batch_size = 2;"
           "UPDATE layer_metrics SET token_id = token_id - 1 WHERE token_id IN (3, 5);"
           "UPDATE component_metrics SET token_id = token_id - 1 WHERE token_id IN (3, 5);"
           "UPDATE pipeline_sections SET token_id = token_id - 1 WHERE token_id IN (3, 5);"
           "UPDATE tokens SET position = position - 1, sequence = 1 WHERE id IN (3, 5);"
           "UPDATE tokens SET energy_mj = s.mj / 2, self_energy_mj = (tokens.sequence = 0) *"
           " s.self_mj FROM (SELECT position, sum(energy_mj) AS mj, sum(self_energy_mj) AS self_mj"
           "  FROM tokens WHERE id > 1 GROUP BY position) AS s"
           " WHERE tokens.id > 1 AND tokens.position = s.position;");
    open_again(f);
    assert_int_equal(request(f->store, "SELECT count(*) FROM tokens WHERE step_id IN (2, 4)"), 4);
    assert_int_equal(request(f->store, "SELECT count(*) FROM steps"), 3);
    assert_int_equal(request(f->store, "SELECT count(*) FROM conservation WHERE level = 'step'"),
                     2);
    assert_int_equal(request(f->store, "SELECT count(*) FROM conservation WHERE"
                                       " NOT abs(whole_mj - parts_mj) <= 1e-9 * abs(whole_mj)"),
                     0);
    assert_int_equal(request(f->store, "SELECT count(*) FROM tokens t JOIN layer_metrics l"
                                       " ON l.token_id = t.id WHERE t.step_id IS NOT NULL"),
                     0);
    assert_int_equal(request(f->store, "SELECT count(*) FROM layers_of_tokens WHERE token_id = 3"),
                     4);
    assert_int_equal(request(f->store, "SELECT batch_rule = 'equal' FROM profiling_runs"), 1);
    pj_run_data_fini(&run);
}

static void missing_columns_are_added(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    for_each(f->store,
             "SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT IN"
             " ('layer_metrics', 'deep_operation_metrics')",
             "DROP VIEW %s");
    do_sql(f->store, "ALTER TABLE component_metrics_packed DROP COLUMN activation_sparsity_code;"
                     "ALTER TABLE profiling_runs DROP COLUMN overhead_share");
    pj_store_close(f->store);
    f->store = NULL;
    pj_store_options options = {.path = f->path, .read_only = true};
    assert_int_equal(pj_store_open(&options, &f->store, &err), PJ_E_STATE);
    open_again(f);
    pj_run_data data;
    make_run(&(made_run){.seed = 3, .tokens = 4, .layers = 2}, &data);
    if (pj_store_save(f->store, &data, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_run_data back = {0};
    if (pj_store_load(f->store, data.info.id, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_runs_equal(&data, &back);
    pj_run_data_fini(&back);
    pj_run_data_fini(&data);
}

static void operations_of_a_component_lie_together(void **state)
{
    fixture *f = *state;
    pj_run_data run, mixed;
    made_run like = {.seed = 7, .tokens = 3, .layers = 2, .depth = PJ_DEPTH_DEEP};
    make_run(&like, &run);
    make_run(&like, &mixed);
    memcpy(mixed.info.id, run.info.id, sizeof run.info.id);
    mixed.info.created_wall_ns = run.info.created_wall_ns;
    uint32_t count = run.operation_count, at = 0;
    for (uint32_t step = 0; step < 5; step++) /* every fifth, in order within a component */
        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = i;
            while (first > 0 && run.operations[first - 1].component == run.operations[i].component)
                first--;
            uint32_t rank = i - first < 4 ? i - first : 4;
            if (rank == step) mixed.operations[at++] = run.operations[i];
        }
    assert_int_equal(at, count);
    assert_true(mixed.operations[count - 1].component != run.operations[count - 1].component ||
                mixed.operations[1].component != run.operations[1].component);
    save(f, &mixed);
    assert_stored(f, &run);
    assert_int_equal(request(f->store, "SELECT sum(operation_count) FROM component_metrics"),
                     count);
    assert_int_equal(request(f->store,
                             "SELECT count(*) FROM component_metrics c JOIN"
                             " deep_operation_metrics o ON o.id BETWEEN first_operation_id"
                             "  AND first_operation_id + operation_count - 1"
                             " WHERE o.component_metric_id <> c.id"),
                     0);
    /* Whoever deletes a part deletes what belongs to it. */
    do_sql(f->store, "DELETE FROM layer_metrics WHERE id = 2");
    assert_that(request(f->store, "SELECT count(*) FROM deep_operation_metrics"), <, count);
    assert_int_equal(request(f->store,
                             "SELECT count(*) FROM deep_operation_metrics WHERE"
                             " component_metric_id NOT IN (SELECT id FROM component_metrics)"),
                     0);
    pj_run_data_fini(&run);
    pj_run_data_fini(&mixed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(version_1_is_taken_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(steps_of_batches_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_columns_are_added, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operations_of_a_component_lie_together, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
