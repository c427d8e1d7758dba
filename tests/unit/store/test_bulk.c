/* Rows inserted as pages: they were (counted), they equal rows inserted by statements in every
 * table and index, and rows that no page can hold are inserted by statement. */
#include "../assertions.h"
#include "made_run.h"

#include "store/record.h"
#include "store/sql.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* More than one group of pages in layers, components and operations. */
static const made_run large = {.seed = 3, .tokens = 141, .layers = 30, .depth = PJ_DEPTH_DEEP};

typedef struct fixture {
    char folder[64], path[96], other[96];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-bulk-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->path, sizeof f->path, "%s/bulk.db", f->folder);
    snprintf(f->other, sizeof f->other, "%s/other.db", f->folder);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int code = system(command);
    free(f);
    return code;
}

static pj_store *open_with(const char *path, bool without_pages)
{
    pj_store *store = NULL;
    pj_error err = {0};
    pj_store_options options = {.path = path, .by_statements = without_pages};
    if (pj_store_open(&options, &store, &err) != PJ_OK) fail_msg("%s", err.text);
    return store;
}

static pj_store *open_at(const char *path)
{
    return open_with(path, false);
}

static void run_sql(pj_store *store, const char *sql)
{
    pj_error err = {0};
    if (pj_sql_run(store, sql, &err) != PJ_OK) fail_msg("%s", err.text);
}

static int64_t ask(pj_store *store, const char *sql)
{
    int64_t value = 0;
    pj_error err = {0};
    if (pj_sql_get_one_int(store, sql, NULL, -1, &value, &err) != PJ_OK) fail_msg("%s", err.text);
    return value;
}

static void save(pj_store *store, const pj_run_data *data)
{
    pj_error err = {0};
    if (pj_store_save(store, data, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(ask(store, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
    assert_int_equal(
        ask(store, "SELECT count(*) FROM pragma_database_list WHERE name LIKE 'pages%'"), 0);
}

static void assert_comes_back(pj_store *store, const pj_run_data *data)
{
    pj_run_data back = {0};
    pj_error err = {0};
    if (pj_store_load(store, data->info.id, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_runs_equal(data, &back);
    pj_run_data_fini(&back);
}

/* An index that the store did not declare keeps a table from being inserted as pages. */
static void forbid_pages(pj_store *store)
{
    run_sql(store, "CREATE INDEX more_1 ON layer_metrics(layer_index);"
                   "CREATE INDEX more_2 ON component_metrics(class_id);"
                   "CREATE INDEX more_3 ON deep_operation_metrics(class_id)");
}

static uint64_t rows_of(const pj_run_data *data)
{
    return (uint64_t)data->layer_count + data->component_count + data->operation_count;
}

static void assert_tables_equal(fixture *f, pj_store *store)
{
    static const char *const tables[] = {"layer_metrics", "component_metrics",
                                         "deep_operation_metrics", "run_charts"};
    char text[400];
    snprintf(text, sizeof text, "ATTACH '%s' AS other", f->other);
    run_sql(store, text);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text,
                 "SELECT count(*) FROM (SELECT * FROM (SELECT * FROM main.%s EXCEPT SELECT * FROM"
                 " other.%s) UNION ALL SELECT * FROM (SELECT * FROM other.%s EXCEPT SELECT * FROM"
                 " main.%s))",
                 tables[i], tables[i], tables[i], tables[i]);
        assert_int_equal(ask(store, text), 0);
    }
    /* The records are of one size too: numbers are kept as SQLite keeps them. */
    assert_int_equal(
        ask(store, "SELECT (SELECT sum(length(quote(time_ms)) + length(quote(flops_estimate)))"
                   " FROM main.deep_operation_metrics) - (SELECT sum(length(quote(time_ms))"
                   " + length(quote(flops_estimate))) FROM other.deep_operation_metrics)"),
        0);
    run_sql(store, "DETACH other");
}

static void pages_hold_what_statements_insert(void **state)
{
    fixture *f = *state;
    pj_run_data data, second;
    make_run(&large, &data);
    make_run(&(made_run){.seed = 4,
                         .tokens = 141,
                         .layers = 30,
                         .depth = PJ_DEPTH_DEEP,
                         .no_energy = true,
                         .no_extras = true},
             &second);
    pj_store *other = open_with(f->other, true), *store = open_at(f->path);
    for (int i = 0; i < 2; i++) {
        const pj_run_data *run = i ? &second : &data;
        save(other, run);
        save(store, run);
        assert_comes_back(store, run);
    }
    assert_int_equal(pj_store_bulk_rows(other), 0);
    assert_int_equal(pj_store_bulk_rows(store), rows_of(&data) + rows_of(&second));
    pj_store_close(other);
    assert_tables_equal(f, store);
    pj_store_close(store);
    pj_run_data_fini(&data);
    pj_run_data_fini(&second);
}

static void an_index_of_somebody_else_is_kept_up(void **state)
{
    fixture *f = *state;
    pj_run_data data;
    make_run(&large, &data);
    pj_store *store = open_at(f->path);
    forbid_pages(store);
    save(store, &data);
    assert_int_equal(pj_store_bulk_rows(store), 0);
    assert_comes_back(store, &data);
    pj_store_close(store);
    pj_run_data_fini(&data);
}

static void pages_can_be_switched_off_from_outside(void **state)
{
    fixture *f = *state;
    pj_run_data data;
    make_run(&large, &data);
    setenv("PERJOULE_STORE_PAGES", "0", 1);
    pj_store *store = open_at(f->path);
    unsetenv("PERJOULE_STORE_PAGES");
    save(store, &data);
    assert_int_equal(pj_store_bulk_rows(store), 0);
    pj_store_close(store);
    pj_run_data_fini(&data);
}

/* As a client may record them: layers not in order, components without one, or in a step alone. */
static void rows_out_of_order_keep_their_indices(void **state)
{
    fixture *f = *state;
    pj_run_data data;
    make_run(&large, &data);
    for (uint32_t i = 0; i + 1 < data.layer_count; i += 2) {
        uint32_t token = data.layers[i].token;
        data.layers[i].token = data.layers[data.layer_count - 1 - i].token;
        data.layers[data.layer_count - 1 - i].token = token;
    }
    for (uint32_t i = 0; i < data.component_count; i += 3) {
        data.components[i].layer = i % 2 ? PJ_NO_PARENT : (i * 7919u) % data.layer_count;
        if (i % 5 == 0) data.components[i].token = PJ_NO_PARENT;
        if (i % 2) data.components[i].step = data.components[i].token; /* as in a batch */
        if (i % 7 == 0) data.components[i].section = PJ_NO_PARENT;
    }
    for (uint32_t i = 0; i < data.component_count; i++) /* in a step, but in no token or layer */
        if (i % 11 == 0 && data.token_count) {
            data.components[i].layer = data.components[i].token = PJ_NO_PARENT;
            data.components[i].step = i % data.token_count;
        }
    pj_store *store = open_at(f->path);
    save(store, &data);
    assert_comes_back(store, &data);
    pj_store_close(store);
    pj_run_data_fini(&data);
}

/* A record longer than a page is inserted by SQLite. */
static void a_row_that_is_too_long_goes_in_all_the_same(void **state)
{
    enum { ELEMENTS = 30000 };
    fixture *f = *state;
    pj_run_data data;
    make_run(&large, &data);
    pj_extra_row *extras =
        pj_arena_alloc(&data.arena, (size_t)data.extra_count + ELEMENTS, sizeof *extras);
    assert_non_null(extras);
    memcpy(extras, data.extras, data.extra_count * sizeof *extras);
    data.extras = extras;
    pj_operation_row *long_one = &data.operations[data.operation_count / 2];
    long_one->extra_begin = data.extra_count;
    long_one->extra_count = ELEMENTS;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        extras[data.extra_count++] = (pj_extra_row){"long", i, 0.25 * i};
    pj_store *store = open_at(f->path);
    save(store, &data);
    assert_comes_back(store, &data);
    assert_int_equal(ask(store, "SELECT count(*) FROM profiling_runs"), 1);
    pj_store_close(store);
    pj_run_data_fini(&data);
}

/* ---- numbers ------------------------------------------------------------------------------- */

static int64_t read_number(const unsigned char *bytes, uint32_t width)
{
    int64_t value = width && bytes[0] & 0x80 ? -1 : 0;
    for (uint32_t i = 0; i < width; i++) value = (int64_t)((uint64_t)value << 8 | bytes[i]);
    return value;
}

static void numbers_take_as_few_bytes_as_hold_them(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        unsigned char type;
        uint32_t width;
    } cases[] = {{0, 8, 0},
                 {1, 9, 0},
                 {-1, 1, 1},
                 {127, 1, 1},
                 {-128, 1, 1},
                 {128, 2, 2},
                 {-129, 2, 2},
                 {32767, 2, 2},
                 {32768, 3, 3},
                 {-8388608, 3, 3},
                 {8388608, 4, 4},
                 {INT32_MAX, 4, 4},
                 {INT32_MIN, 4, 4},
                 {(int64_t)INT32_MAX + 1, 5, 6},
                 {(INT64_C(1) << 47) - 1, 5, 6},
                 {-(INT64_C(1) << 47), 5, 6},
                 {INT64_C(1) << 47, 6, 8},
                 {INT64_MAX, 6, 8},
                 {INT64_MIN, 6, 8}};
    pj_row_record record = {0};
    pj_buffer_init(&record.body, 1 << 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_row_record_begin(&record);
        pj_row_record_int(&record, cases[i].value);
        assert_int_equal(record.types[0], cases[i].type);
        assert_int_equal(record.body.length, cases[i].width);
        if (cases[i].width)
            assert_that(read_number((const unsigned char *)record.body.data, cases[i].width), ==,
                        cases[i].value);
    }
    pj_row_record_begin(&record);
    pj_row_record_double(&record, 65536);
    pj_row_record_double(&record, 0.5);
    pj_row_record_double(&record, 0x1p50);
    pj_row_record_double(&record, __builtin_nan(""));
    assert_memory_equal(record.types, "\3\7\7\0", 4);
    assert_int_equal(record.body.length, 3 + 8 + 8);
    pj_buffer_fini(&record.body);
}

static void lengths_are_written_and_read_alike(void **state)
{
    (void)state;
    for (int shift = 0; shift < 64; shift++)
        for (int d = -1; d <= 1; d++) {
            uint64_t value = (UINT64_C(1) << shift) + (uint64_t)(int64_t)d, back = 0;
            unsigned char bytes[PJ_VARINT_BYTES];
            uint32_t count = pj_varint_write(bytes, value);
            for (uint32_t i = 0; i < count; i++)
                back = i == 8 ? back << 8 | bytes[i] : back << 7 | (bytes[i] & 0x7f);
            assert_that(back, ==, value);
            for (uint32_t i = 0; i + 1 < count; i++) assert_true(bytes[i] & 0x80);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_take_as_few_bytes_as_hold_them),
        cmocka_unit_test(lengths_are_written_and_read_alike),
        cmocka_unit_test_setup_teardown(pages_hold_what_statements_insert, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_index_of_somebody_else_is_kept_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pages_can_be_switched_off_from_outside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_out_of_order_keep_their_indices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_row_that_is_too_long_goes_in_all_the_same, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
