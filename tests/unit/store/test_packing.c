/* Packed rows: the views give what was saved, for values that have codes and for those that have
 * none; rows can be changed through them; a missing view is made anew. */
#include "../assertions.h"
#include "made_run.h"

#include "base/random.h"
#include "store/extras.h"
#include "store/rows.h"
#include "store/sql.h"
#include "store/store.h"
#include "trace/statistics.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const pj_table_id packed[] = {PJ_TABLE_LAYERS, PJ_TABLE_COMPONENTS, PJ_TABLE_OPERATIONS};
enum { PACKED = sizeof packed / sizeof *packed };

typedef struct fixture {
    char folder[64], path[96];
    pj_store *store;
    pj_run_data run;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pj_error err = {0};
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-packing-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->path, sizeof f->path, "%s/test.db", f->folder);
    if (pj_store_open(&(pj_store_options){.path = f->path}, &f->store, &err) != PJ_OK) return -1;
    make_run(&(made_run){.seed = 5, .tokens = 6, .layers = 3, .depth = PJ_DEPTH_DEEP}, &f->run);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[200];
    pj_run_data_fini(&f->run);
    pj_store_close(f->store);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int code = system(command);
    free(f);
    return code;
}

static void do_sql(fixture *f, const char *text)
{
    pj_error err = {0};
    if (pj_sql_run(f->store, text, &err) != PJ_OK) fail_msg("%s: %s", text, err.text);
}

static double ask(fixture *f, const char *text)
{
    pj_error err = {0};
    pj_sql *sql = pj_sql_begin(f->store, text, &err);
    double value = pj_sql_step(sql) ? pj_sql_get_double(sql, 0) : NAN;
    if (pj_sql_end(sql, &err) != PJ_OK) fail_msg("%s: %s", text, err.text);
    return value;
}

static void save(fixture *f)
{
    pj_error err = {0};
    if (pj_store_save(f->store, &f->run, &err) != PJ_OK) fail_msg("%s", err.text);
}

static pj_status open_again(fixture *f, pj_error *err)
{
    pj_store_close(f->store);
    f->store = NULL;
    return pj_store_open(&(pj_store_options){.path = f->path}, &f->store, err);
}

/* ---- odd values ---------------------------------------------------------------------------- */

static void spoil(pj_random *random, const pj_column *column, unsigned char *at)
{
    static const float floats[] = {0,     -0.0F,   1e-30F,  1.8189894e-12F, 1.7e-12F,
                                   -3.5F, 1.6e7F,  1.7e7F,  3e38F,          FLT_TRUE_MIN,
                                   0.1F,  -1e-20F, 1e-3F,   1.0F,           -16777216.0F,
                                   NAN,   2.0F,    -2.5e30F};
    static const double times[] = {0, 1e-9, 0.1 + 1e-13, 1e12, 1.0 / 3, 123.456789, -4, 9e15};
    static const int64_t energies[] = {0, 1, -5, (int64_t)1 << 50, 999999, -((int64_t)1 << 51)};
    static const char *const names[] = {"q_proj", "\xff\xfe",
                                        "a name of more than forty bytes, which"
                                        " no cache of short ones has",
                                        "o_proj", "\xce\xbc"};
    uint32_t which = (uint32_t)(pj_random_unit(random) * 1000);
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_STAT_FLOAT:
        memcpy(at, &floats[which % (sizeof floats / sizeof *floats)], sizeof *floats);
        break;
    case PJ_COLUMN_DOUBLE:
        memcpy(at, &times[which % (sizeof times / sizeof *times)], sizeof *times);
        break;
    case PJ_COLUMN_NJ:
        memcpy(at, &energies[which % (sizeof energies / sizeof *energies)], sizeof *energies);
        break;
    case PJ_COLUMN_TEXT:
        memcpy(at, &names[which % (sizeof names / sizeof *names)], sizeof *names);
        break;
    default: break;
    }
}

/* Half of the values of packed rows. */
static void spoil_rows(pj_run_data *run)
{
    pj_random random = {17};
    for (int p = 0; p < PACKED; p++) {
        const pj_row_table *table = &pj_tables[packed[p]];
        for (uint32_t i = 0; i < pj_table_rows(run, packed[p]); i++)
            for (int c = 0; c < table->column_count; c++) {
                unsigned char *row =
                    (unsigned char *)(uintptr_t)pj_table_row(run, packed[p], i, NULL);
                if (pj_random_unit(&random) < 0.5)
                    spoil(&random, &table->columns[c], row + table->columns[c].offset);
            }
    }
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void assert_value(const pj_row_table *table, const pj_column *column, uint32_t row,
                         const pj_value *got, const pj_value *want)
{
    bool same = got->type == want->type;
    if (same && want->type == PJ_VALUE_DOUBLE)
        same = got->number == want->number;
    else if (same && want->type == PJ_VALUE_TEXT)
        same = got->bytes == want->bytes && memcmp(got->text, want->text, got->bytes) == 0;
    if (!same)
        fail_msg("row %u of %s.%s is %.17g (type %d), not %.17g (type %d)", row, table->name,
                 column->name, got->number, got->type, want->number, want->type);
}

static void assert_view_gives(fixture *f, pj_table_id id)
{
    const pj_row_table *table = &pj_tables[id];
    char columns[2048], text[2200], scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    pj_error err = {0};
    pj_value got, want;
    uint32_t row = 0;
    pj_table_list_columns(table, "id", columns, sizeof columns);
    snprintf(text, sizeof text, "SELECT %s FROM %s ORDER BY id", columns, table->name);
    pj_sql *sql = pj_sql_begin(f->store, text, &err);
    for (; pj_sql_step(sql); row++)
        for (int c = 0; c < table->column_count; c++) {
            const pj_column *column = &table->columns[c];
            if (column->type == PJ_COLUMN_REFERENCE || column->type == PJ_COLUMN_EXTRAS) continue;
            pj_sql_get_value(sql, c + 1, &got);
            pj_column_get(table, column, pj_table_row(&f->run, id, row, scratch), &want);
            assert_value(table, column, row, &got, &want);
        }
    if (pj_sql_end(sql, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(row, pj_table_rows(&f->run, id));
    assert_that(row, >, 0);
}

static void odd_values_come_back(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    pj_run_data back = {0};
    spoil_rows(&f->run);
    save(f);
    for (int p = 0; p < PACKED; p++) assert_view_gives(f, packed[p]);
    if (pj_store_load(f->store, f->run.info.id, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    for (int p = 0; p < PACKED; p++) {
        const pj_row_table *table = &pj_tables[packed[p]];
        for (uint32_t i = 0; i < pj_table_rows(&f->run, packed[p]); i++)
            for (int c = 0; c < table->column_count; c++) {
                const pj_column *column = &table->columns[c];
                pj_value got, want;
                if (column->type == PJ_COLUMN_EXTRAS) continue;
                pj_column_get(table, column, pj_table_row(&back, packed[p], i, NULL), &got);
                pj_column_get(table, column, pj_table_row(&f->run, packed[p], i, NULL), &want);
                assert_value(table, column, i, &got, &want);
            }
    }
    pj_run_data_fini(&back);
}

/* Otherwise nothing would be smaller. */
static void usual_values_have_codes(void **state)
{
    fixture *f = *state;
    save(f);
    assert_int_equal(ask(f, "SELECT count(*) FROM component_metrics_packed WHERE"
                            " typeof(time_ms_code) = 'real' OR"
                            " typeof(energy_mj_code) = 'real' OR"
                            " typeof(energy_sd_mj_code) = 'real' OR"
                            " typeof(activation_mean_code) = 'real'"),
                     0);
    assert_int_equal(ask(f, "SELECT count(*) FROM deep_operation_metrics_packed WHERE"
                            " typeof(net_energy_mj_code) <> 'integer'"),
                     0);
}

/* ---- extra figures -------------------------------------------------------------------------- */

static const float odd_figures[] = {0,           -0.0F, 1e-30F,     1.8189894e-12F, -3.5F,
                                    1.6e7F,      0.1F,  1e-3F,      0.0009765625F,  0.125F,
                                    16777215.0F, 4,     -1e-7F,     0.9999999F,     1.0000001F,
                                    3e38F,       NAN,   8388608.0F, 1e-9F,          0.3333333F};

static void spoil_extras(pj_run_data *run)
{
    pj_random random = {23};
    for (uint32_t i = 0; i < run->extra_count; i++) {
        uint32_t which = (uint32_t)(pj_random_unit(&random) * 100);
        if (which < sizeof odd_figures / sizeof *odd_figures)
            run->extras[i].value = (double)odd_figures[which];
        else
            run->extras[i].value = (double)(float)exp(20 * pj_random_unit(&random) - 15);
    }
}

/* Numbers are those that were saved; the text of a figure may differ. */
static void assert_extras(const fixture *f, const pj_operation_row *row, const char *text)
{
    pj_extra_list list = {0};
    pj_arena arena;
    pj_arena_init(&arena, 0);
    assert_true(pj_extras_read(text, strlen(text), &list, &arena));
    assert_int_equal(list.count, row->extra_count);
    for (uint32_t i = 0; i < row->extra_count; i++) {
        const pj_extra_row *want = &f->run.extras[row->extra_begin + i];
        uint32_t k = 0;
        while (k < list.count &&
               (list.rows[k].index != want->index || strcmp(list.rows[k].name, want->name) != 0))
            k++;
        assert_that(k, <, list.count);
        float got = (float)list.rows[k].value, value = (float)want->value;
        if (got != value && !(isnan(got) && isnan(value)))
            fail_msg("%s is %.9g, not %.9g: %s", want->name, (double)got, (double)value, text);
    }
    pj_free(list.rows);
    pj_arena_fini(&arena);
}

static uint32_t assert_extras_of(fixture *f, const char *select)
{
    pj_error err = {0};
    uint32_t found = 0;
    pj_sql *sql = pj_sql_begin(f->store, select, &err);
    for (uint32_t row = 0; pj_sql_step(sql); row++) {
        const char *text = pj_sql_get_text(sql, 0, NULL);
        if (!text) continue;
        assert_extras(f, &f->run.operations[row], text);
        found++;
    }
    if (pj_sql_end(sql, &err) != PJ_OK) fail_msg("%s", err.text);
    return found;
}

static void extras_come_back(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    pj_run_data back = {0};
    spoil_extras(&f->run);
    save(f);
    uint32_t rows = assert_extras_of(f, "SELECT extra_metrics FROM deep_operation_metrics"
                                        " ORDER BY id");
    assert_that(rows, >, 10);
    double packed_rows = ask(f, "SELECT count(*) FROM deep_operation_metrics_packed WHERE"
                                " typeof(extra_metrics) = 'blob'");
    assert_that(packed_rows, >, 5);
    assert_that(packed_rows, <, rows); /* some figures have no packed form */
    if (pj_store_load(f->store, f->run.info.id, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(back.extra_count, f->run.extra_count);
    pj_run_data_fini(&back);
}

static void fill_texts(fixture *f, uint32_t count)
{
    for (uint32_t i = (uint32_t)ask(f, "SELECT count(*) FROM packed_texts"); i < count; i++) {
        pj_error err = {0};
        char text[32];
        const char code[] = {(char)(i < 128 ? i : 128 | i >> 8), (char)(i & 255)};
        snprintf(text, sizeof text, "text %u", i);
        const pj_value blob = pj_value_bytes(PJ_VALUE_BLOB, code, i < 128 ? 1 : 2);
        if (pj_sql_change(f->store, "INSERT INTO packed_texts VALUES (?, ?)",
                          PJ_VALUES(blob, pj_value_text(text)), &err) != PJ_OK)
            fail_msg("%s", err.text);
    }
}

/* Every text is stored once; rows keep those for which no code is left. */
static void texts_are_stored_once(void **state)
{
    fixture *f = *state;
    save(f);
    assert_int_equal(ask(f, "SELECT count(*) FROM component_metrics_packed WHERE"
                            " typeof(component_name) <> 'blob' OR length(component_name) <> 1"),
                     0);
    double texts = ask(f, "SELECT count(*) FROM packed_texts");
    f->run.info.id[0] = f->run.info.id[0] == '1' ? '2' : '1';
    save(f);
    assert_near(ask(f, "SELECT count(*) FROM packed_texts"), texts, 0);
    fill_texts(f, 4095);
    f->run.components[0].name = "a new name";
    f->run.components[1].name = "another one";
    f->run.info.id[0] = '3';
    save(f);
    assert_near(ask(f, "SELECT count(*) FROM packed_texts"), 4096, 0);
    assert_near(ask(f, "SELECT count(*) FROM component_metrics WHERE component_name ="
                       " 'another one'"),
                1, 0);
    assert_near(ask(f, "SELECT count(*) FROM component_metrics_packed WHERE component_name ="
                       " 'another one'"),
                1, 0);
}

/* A transaction that failed takes its texts back. */
static void failed_saves_leave_no_codes(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    do_sql(f, "CREATE TRIGGER refuse BEFORE INSERT ON deep_operation_metrics_packed BEGIN"
              " SELECT raise(ABORT, 'refused'); END");
    assert_int_not_equal(pj_store_save(f->store, &f->run, &err), PJ_OK);
    assert_near(ask(f, "SELECT count(*) FROM packed_texts"), 0, 0);
    do_sql(f, "DROP TRIGGER refuse");
    do_sql(f, "INSERT INTO packed_texts VALUES (x'00', 'of another process')");
    save(f);
    for (int p = 0; p < PACKED; p++) assert_view_gives(f, packed[p]);
}

/* A failure to store a text is one of the whole run. */
static void texts_that_cannot_be_stored_fail_the_run(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    do_sql(f, "CREATE TRIGGER refuse BEFORE INSERT ON packed_texts WHEN NEW.code = x'03' BEGIN"
              " SELECT raise(ROLLBACK, 'refused'); END");
    assert_int_not_equal(pj_store_save(f->store, &f->run, &err), PJ_OK);
    if (!strstr(err.text, "refused")) fail_msg("%s", err.text);
    assert_near(ask(f, "SELECT count(*) FROM layer_metrics_packed"), 0, 0);
    assert_near(ask(f, "SELECT count(*) FROM component_metrics_packed"), 0, 0);
    do_sql(f, "DROP TRIGGER refuse");
    save(f);
    assert_view_gives(f, PJ_TABLE_COMPONENTS);
}

static void assert_damaged(fixture *f, const char *damage)
{
    pj_error err = {0};
    pj_run_data back = {0};
    do_sql(f, damage);
    if (open_again(f, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(pj_store_load(f->store, f->run.info.id, &back, &err), PJ_E_INVALID);
    if (!strstr(err.text, f->path) || !strstr(err.text, "damaged")) fail_msg("%s", err.text);
    pj_run_data_fini(&back);
}

static void codes_of_nothing_are_damage(void **state)
{
    fixture *f = *state;
    save(f);
    do_sql(f, "CREATE TABLE kept AS SELECT * FROM packed_texts");
    double last = ask(f, "SELECT count(*) FROM kept");
    static const char *const damages[] = {
        "DELETE FROM packed_texts WHERE code = x'02'",
        "UPDATE packed_texts SET text = NULL WHERE code = x'02'",
        "UPDATE packed_texts SET text = 7 WHERE code = x'02'",
        "UPDATE packed_texts SET text = printf('%.5000c', 'x') WHERE code = x'02'",
        "UPDATE packed_texts SET text = text || '~' WHERE instr(text, '~')",
        "UPDATE packed_texts SET text = replace(text, '~', '') WHERE instr(text, '~')",
        "DELETE FROM packed_texts"};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        assert_damaged(f, damages[i]);
        do_sql(f, "DELETE FROM packed_texts; INSERT INTO packed_texts SELECT * FROM kept");
    }
    /* A gap is never filled, since rows may have its code. */
    do_sql(f, "DELETE FROM packed_texts WHERE code = x'02';"
              "INSERT INTO packed_texts VALUES (5, 'no code'), ('x', 'none either'), (x'', '')");
    f->run.info.id[0] = f->run.info.id[0] == '1' ? '2' : '1';
    f->run.components[0].name = "a new name";
    save(f);
    assert_near(ask(f, "SELECT count(*) FROM packed_texts WHERE code = x'02'"), 0, 0);
    assert_that(ask(f, "SELECT count(*) FROM packed_texts"), >, last);
    assert_near(ask(f, "SELECT count(*) FROM component_metrics WHERE component_name ="
                       " 'a new name'"),
                1, 0);
}

/* ---- changes through the views --------------------------------------------------------------- */

static void views_can_be_changed(void **state)
{
    fixture *f = *state;
    save(f);
    double self = ask(f, "SELECT self_energy_mj FROM component_metrics WHERE id = 4");
    double net_sd = ask(f, "SELECT net_energy_sd_mj FROM component_metrics WHERE id = 4");
    double others = ask(f, "SELECT sum(energy_mj) FROM component_metrics WHERE id <> 4");
    do_sql(f, "UPDATE component_metrics SET energy_mj = 5, energy_sd_mj = 2, component_name = 'x'"
              " WHERE id = 4");
    assert_near(ask(f, "SELECT energy_mj FROM component_metrics WHERE id = 4"), 5, 0);
    assert_near(ask(f, "SELECT energy_sd_mj FROM component_metrics WHERE id = 4"), 2, 0);
    assert_near(ask(f, "SELECT component_name = 'x' FROM component_metrics WHERE id = 4"), 1, 0);
    assert_near(ask(f, "SELECT self_energy_mj FROM component_metrics WHERE id = 4"), self, 0);
    assert_near(ask(f, "SELECT net_energy_sd_mj FROM component_metrics WHERE id = 4"), net_sd, 0);
    assert_near(ask(f, "SELECT sum(energy_mj) FROM component_metrics WHERE id <> 4"), others, 0);

    double count = ask(f, "SELECT count(*) FROM layer_metrics");
    do_sql(f, "INSERT INTO layer_metrics (id, token_id, layer_index, total_time_ms, energy_mj,"
              " method) VALUES (9000, 1, 7, 2, 3.25, 'fit')");
    assert_near(ask(f, "SELECT count(*) FROM layer_metrics"), count + 1, 0);
    assert_near(ask(f, "SELECT total_time_ms + energy_mj FROM layer_metrics WHERE id = 9000"), 5.25,
                0);
    assert_near(ask(f, "SELECT method = 'fit' FROM layer_metrics WHERE id = 9000"), 1, 0);
    /* Integers that are given are no codes, and columns have the type that they are declared with.
     */
    do_sql(f, "UPDATE layer_metrics SET self_energy_mj = 7, energy_mj = '4.5' WHERE id = 9000");
    assert_near(ask(f, "SELECT self_energy_mj FROM layer_metrics WHERE id = 9000"), 7, 0);
    assert_near(ask(f, "SELECT count(*) FROM layer_metrics WHERE id = 9000 AND energy_mj > '4'"), 1,
                0);
    do_sql(f, "DELETE FROM layer_metrics WHERE id = 9000");
    assert_near(ask(f, "SELECT count(*) FROM layer_metrics"), count, 0);
    do_sql(f, "DELETE FROM profiling_runs");
    assert_near(ask(f, "SELECT count(*) FROM layer_metrics"), 0, 0);
    assert_near(ask(f, "SELECT count(*) FROM deep_operation_metrics"), 0, 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void a_missing_view_is_made_anew(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    save(f);
    do_sql(f, "DROP VIEW layer_metrics");
    if (open_again(f, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_view_gives(f, PJ_TABLE_LAYERS);
}

/* Version 20 had neither codes of texts nor packed figures. */
static void version_20_is_read(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    save(f);
    do_sql(f, "CREATE TABLE texts_20 AS SELECT id, component_name, method FROM component_metrics;"
              "CREATE TABLE extras_20 AS SELECT id, operation_name, extra_metrics FROM"
              " deep_operation_metrics;"
              "UPDATE component_metrics_packed SET component_name = t.component_name,"
              " method = t.method FROM texts_20 t WHERE t.id = component_metrics_packed.id;"
              "UPDATE deep_operation_metrics_packed SET operation_name = t.operation_name,"
              " extra_metrics = t.extra_metrics FROM extras_20 t"
              " WHERE t.id = deep_operation_metrics_packed.id;"
              "DROP TABLE texts_20; DROP TABLE extras_20; DROP VIEW component_metrics;"
              "DROP VIEW deep_operation_metrics; DROP VIEW layer_metrics;"
              "UPDATE layer_metrics_packed SET method = 'fit'; DROP TABLE packed_texts;"
              "PRAGMA user_version=20");
    do_sql(f, "UPDATE component_metrics_packed SET component_name = x'8181' WHERE id = 2");
    f->run.components[1].name = "\x81\x81";
    if (open_again(f, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_near(ask(f, "SELECT count(*) FROM component_metrics_packed WHERE"
                       " typeof(component_name) = 'blob'"),
                0, 0);
    assert_view_gives(f, PJ_TABLE_COMPONENTS);
    assert_view_gives(f, PJ_TABLE_OPERATIONS);
    assert_that(assert_extras_of(f, "SELECT extra_metrics FROM deep_operation_metrics"
                                    " ORDER BY id"),
                >, 10);
    f->run.info.id[0] = f->run.info.id[0] == '1' ? '2' : '1';
    save(f);
    assert_that(ask(f, "SELECT count(*) FROM packed_texts"), >, 5);
}

/* What is not known of a newer version is no reason to drop it. */
static void a_newer_version_is_named_first(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    do_sql(f, "CREATE VIEW of_the_future AS SELECT 1; PRAGMA user_version=999");
    assert_int_equal(open_again(f, &err), PJ_E_UNSUPPORTED);
    if (!strstr(err.text, "newer")) fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(odd_values_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(usual_values_have_codes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(extras_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_are_stored_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failed_saves_leave_no_codes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_that_cannot_be_stored_fail_the_run, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(codes_of_nothing_are_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(version_20_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(views_can_be_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_view_is_made_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_newer_version_is_named_first, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
