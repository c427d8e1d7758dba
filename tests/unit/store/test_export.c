/* Exports: JSON comes back equal, traces nest, flame graphs hold all the energy. */
#include "../assertions.h"
#include "../sanitized.h"
#include "made_run.h"

#include "store/export.h"
#include "store/rows.h"
#include "store/store.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[64];
    pj_store *store;
    pj_run_data run;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    char path[96];
    pj_error err = {0};
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-export-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(path, sizeof path, "%s/test.db", f->folder);
    if (pj_store_open(&(pj_store_options){.path = path, .driver = MADE_DRIVER}, &f->store, &err) !=
        PJ_OK)
        return -1;
    make_run(&(made_run){.seed = 3,
                         .tokens = 8,
                         .layers = 3,
                         .samples = 300,
                         .tag = "t",
                         .depth = PJ_DEPTH_DEEP},
             &f->run);
    if (pj_store_save(f->store, &f->run, &err) != PJ_OK) return -1;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[100];
    pj_store_close(f->store);
    pj_run_data_fini(&f->run);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int code = system(command);
    free(f);
    return code;
}

static bool collect(void *context, const char *bytes, size_t count)
{
    return pj_buffer_append(context, bytes, count);
}

static pj_buffer export_run(pj_store *store, pj_export_format format)
{
    pj_buffer out;
    pj_error err = {0};
    pj_buffer_init(&out, 1u << 28);
    if (pj_store_export(store, "last", format, collect, &out, &err) != PJ_OK)
        fail_msg("%s", err.text);
    return out;
}

static json_t *export_json(pj_store *store, pj_export_format format)
{
    pj_buffer out = export_run(store, format);
    json_error_t where;
    json_t *tree = json_loadb(out.data, out.length, JSON_REJECT_DUPLICATES, &where);
    if (!tree) fail_msg("%s at %d", where.text, where.position);
    pj_buffer_fini(&out);
    return tree;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is no number", key);
    return json_number_value(value);
}

/* What JSON cannot hold: bytes that are no UTF-8. */
static void make_texts_valid(pj_run_data *run)
{
    for (uint32_t i = 0; i < run->token_count; i++)
        if (strcmp(run->tokens[i].text, "\xe2\x82") == 0)
            run->tokens[i].text = "\xef\xbf\xbd\xef\xbf\xbd";
}

/* The run that was stored last: export, import and export again. */
static void assert_comes_back(pj_store *store, pj_run_data *run)
{
    pj_buffer out = export_run(store, PJ_EXPORT_JSON);
    pj_run_data back = {0};
    pj_error err = {0};
    if (pj_import_json(out.data, out.length, &back, &err) != PJ_OK) fail_msg("%s", err.text);
    make_texts_valid(run);
    assert_runs_equal(run, &back);
    assert_int_equal(pj_store_save(store, &back, &err), PJ_OK);
    pj_buffer again = export_run(store, PJ_EXPORT_JSON);
    assert_int_equal(out.length, again.length);
    assert_memory_equal(out.data, again.data, out.length);
    pj_buffer_fini(&out);
    pj_buffer_fini(&again);
    pj_run_data_fini(&back);
}

static void json_comes_back_equal(void **state)
{
    fixture *f = *state;
    assert_comes_back(f->store, &f->run);
}

/* ---- long runs ------------------------------------------------------------------------------ */

/* One row more than four blocks have, so that the last block of samples has one. */
static void store_long_run(fixture *f, pj_depth depth)
{
    pj_error err = {0};
    pj_run_data_fini(&f->run);
    make_run(
        &(made_run){
            .seed = 5, .tokens = 8, .layers = 3, .samples = 16385, .tag = "t", .depth = depth},
        &f->run);
    if (pj_store_save(f->store, &f->run, &err) != PJ_OK) fail_msg("%s", err.text);
}

static void long_runs_come_back_from_blocks(void **state)
{
    fixture *f = *state;
    store_long_run(f, PJ_DEPTH_DEEP);
    assert_comes_back(f->store, &f->run);
}

/* The columns of a short run's rows, in each of their forms. */
static void blocks_hold_what_rows_do(void **state)
{
    fixture *f = *state;
    json_t *short_run = export_json(f->store, PJ_EXPORT_JSON), *value;
    store_long_run(f, PJ_DEPTH_MODULE);
    json_t *long_run = export_json(f->store, PJ_EXPORT_JSON);
    const char *name;
    assert_int_equal(json_integer_value(json_object_get(short_run, "version")), 1);
    assert_int_equal(json_integer_value(json_object_get(long_run, "version")), 2);
    json_t *row = json_array_get(json_object_get(short_run, "layer_metrics"), 0);
    json_t *block = json_array_get(json_object_get(long_run, "layer_metrics"), 0);
    json_object_foreach(row, name, value)
        assert_true(strcmp(name, "id") == 0 || json_object_get(block, name));
    assert_int_equal(json_integer_value(json_object_get(block, "rows")), f->run.layer_count);
    assert_true(json_is_null(json_object_get(block, "disturbed_ms")));
    assert_int_equal(json_array_size(json_object_get(block, "layer_index")), f->run.layer_count);
    json_t *floats = json_object_get(block, "energy_sd_mj");
    assert_int_equal(json_string_length(json_object_get(floats, "float32")),
                     (f->run.layer_count * sizeof(float) + 2) / 3 * 4);
    json_t *component = json_array_get(json_object_get(long_run, "component_metrics"), 0);
    json_t *twin = json_object_get(component, "self_energy_mj");
    assert_string_equal(json_string_value(json_object_get(twin, "as")), "energy_mj");
    json_t *samples = json_object_get(long_run, "power_samples");
    assert_int_equal(json_array_size(samples), 5);
    assert_int_equal(number(json_array_get(samples, 4), "rows"), 1);
    assert_null(json_object_get(json_array_get(json_object_get(long_run, "run_rails"), 0), "rows"));
    json_decref(short_run);
    json_decref(long_run);
}

static void cut_and_twisted_files_are_refused(void **state)
{
    fixture *f = *state;
    pj_buffer out = export_run(f->store, PJ_EXPORT_JSON);
    enum { CLOSENESS = PJ_SANITIZED ? 8 : 40 }; /* of cuts, relative to where they are */
    pj_run_data back = {0};
    pj_error err = {0};
    for (size_t cut = 0; cut < out.length; cut += 1 + cut / CLOSENESS) {
        assert_int_equal(pj_import_json(out.data, cut, &back, &err), PJ_E_INVALID);
        assert_null(strchr(err.text, '\n'));
    }
    for (size_t at = 0; at < out.length; at += 1 + at / CLOSENESS) {
        char kept = out.data[at];
        out.data[at] = (char)(kept ^ 0x15);
        if (pj_import_json(out.data, out.length, &back, &err) == PJ_OK) pj_run_data_fini(&back);
        out.data[at] = kept;
    }
    pj_buffer_fini(&out);
}

/* ---- what an import refuses ------------------------------------------------------------------ */

/* Imports `tree` with `column` of `row` replaced, which must fail in one line that names it. */
static void assert_refused(json_t *tree, json_t *row, const char *column, json_t *value)
{
    json_t *kept = json_incref(json_object_get(row, column));
    pj_run_data back = {0};
    pj_error err = {0};
    json_object_set_new(row, column, value);
    char *text = json_dumps(tree, JSON_COMPACT);
    if (pj_import_json(text, strlen(text), &back, &err) == PJ_OK)
        fail_msg("%s is accepted: %.200s", column, strstr(text, column));
    if (!strstr(err.text, column) || strchr(err.text, '\n'))
        fail_msg("%s is not named: %s", column, err.text);
    pj_run_data_fini(&back);
    free(text);
    json_object_set_new(row, column, kept);
}

static bool is_whole(const char *column)
{
    static const char *const names[] = {"threads",  "batch_size",    "input_tokens", "repeat_index",
                                        "position", "output_tokens", "layer_index",  "sequence"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], column) == 0) return true;
    return false;
}

/* A member that no export has is named and refused, not dropped: it may be data of a newer version.
 */
static void refuse_unknown_member(json_t *tree, json_t *object)
{
    pj_run_data back = {0};
    pj_error err = {0};
    json_object_set_new(object, "later_column", json_real(1));
    char *text = json_dumps(tree, JSON_COMPACT);
    if (pj_import_json(text, strlen(text), &back, &err) == PJ_OK)
        fail_msg("an unknown member is accepted");
    if (!strstr(err.text, "later_column") || strchr(err.text, '\n'))
        fail_msg("the unknown member is not named: %s", err.text);
    pj_run_data_fini(&back);
    free(text);
    json_object_del(object, "later_column");
}

/* With the first row of every table: what is wrong in it is found before a missing row is. */
static json_t *export_first_rows(pj_store *store)
{
    json_t *tree = export_json(store, PJ_EXPORT_JSON), *part;
    const char *name;
    json_object_foreach(tree, name, part) while (json_array_size(part) > 1)
        json_array_remove(part, json_array_size(part) - 1);
    return tree;
}

static void unknown_members_are_refused(void **state)
{
    fixture *f = *state;
    json_t *tree = export_first_rows(f->store), *copy = json_copy(tree), *part;
    const char *name;
    refuse_unknown_member(tree, tree);
    json_object_foreach(copy, name, part)
    {
        if (json_is_object(part)) refuse_unknown_member(tree, part);
        if (json_array_size(part)) refuse_unknown_member(tree, json_array_get(part, 0));
    }
    json_decref(copy);
    json_decref(tree);
}

/* No column takes a value of another type, nor a number that cannot be. */
static void refuse_each_column(json_t *tree, json_t *row)
{
    const char *column;
    json_t *value, *columns = json_copy(row);
    json_object_foreach(columns, column, value)
    {
        if (strcmp(column, "rail_index") == 0 || strcmp(column, "id") == 0) continue;
        if (json_is_number(value)) assert_refused(tree, row, column, json_real(-1e300));
        if (json_is_number(value) && is_whole(column))
            assert_refused(tree, row, column, json_real(1.5));
        if (json_is_string(value)) assert_refused(tree, row, column, json_integer(5));
        if (json_is_array(value) || json_is_object(value))
            assert_refused(tree, row, column, json_integer(-1));
    }
    json_decref(columns);
}

static void columns_are_strict(void **state)
{
    fixture *f = *state;
    json_t *tree = export_first_rows(f->store), *part;
    const char *name;
    json_object_foreach(tree, name, part)
    {
        if (json_is_object(part)) refuse_each_column(tree, part);
        if (json_array_size(part)) refuse_each_column(tree, json_array_get(part, 0));
    }
    json_decref(tree);
}

static void what_no_block_can_be_is_refused(void **state)
{
    fixture *f = *state;
    store_long_run(f, PJ_DEPTH_MODULE);
    json_t *tree = export_first_rows(f->store);
    json_t *block = json_array_get(json_object_get(tree, "layer_metrics"), 0);
    json_t *rail = json_array_get(json_object_get(tree, "run_rails"), 0);
    assert_refused(tree, block, "rows", json_integer(0));
    assert_refused(tree, block, "rows", json_integer(INT64_MAX));
    assert_refused(tree, block, "rows", json_integer(f->run.layer_count + 1));
    assert_refused(tree, block, "layer_index", json_pack("[i]", 1));
    assert_refused(tree, block, "layer_index", json_integer(-1));
    assert_refused(tree, block, "energy_sd_mj", json_string("AAAA"));
    assert_refused(tree, block, "energy_sd_mj", json_pack("{s:s}", "float32", "AAAA"));
    assert_refused(tree, block, "energy_sd_mj", json_pack("{s:i}", "float32", 5));
    assert_refused(tree, block, "energy_sd_mj", json_object());
    assert_refused(tree, block, "energy_mj", json_pack("{s:s}", "as", "start_ms"));
    assert_refused(tree, block, "start_ms", json_pack("{s:s}", "as", "method"));
    assert_refused(tree, block, "energy_sd_mj", json_real(-1));
    assert_refused(tree, tree, "layer_metrics", json_pack("[{s:i, s:i}]", "rows", 5, "step_id", 0));
    refuse_unknown_member(tree, block);
    assert_refused(tree, rail, "rows", json_integer(1));
    json_object_del(rail, "rows");
    assert_refused(tree, block, "id", json_integer(0));
    json_decref(tree);
}

/* Perfetto's rule: on one thread an event nests in another or lies beside it. */
static void traces_nest(void **state)
{
    fixture *f = *state;
    json_t *trace = export_json(f->store, PJ_EXPORT_TRACE);
    json_t *events = json_object_get(trace, "traceEvents");
    size_t i, spans = 0, powers = 0, totals = 0;
    json_t *e;
    double end[1000] = {0};
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph"));
        assert_non_null(ph);
        if (*ph == 'C') {
            bool is_total = json_object_get(json_object_get(e, "args"), "total_w");
            assert_string_equal(json_string_value(json_object_get(e, "name")),
                                is_total ? "total power" : "power");
            if (is_total)
                totals++;
            else
                powers++;
        }
        if (*ph != 'X') continue;
        int tid = (int)number(e, "tid");
        double start = number(e, "ts");
        assert_that(start, >=, end[tid] - 0.01);
        end[tid] = start + number(e, "dur");
        spans++;
    }
    assert_int_equal(powers, f->run.samples.count);
    assert_int_equal(totals, f->run.samples.count);
    assert_that(number(json_object_get(trace, "otherData"), "monotonic_ms"), ==,
                f->run.info.monotonic_ms);
    assert_int_equal(spans, f->run.phase_count + f->run.section_count + f->run.token_count +
                                f->run.layer_count + f->run.component_count +
                                f->run.operation_count);
    json_decref(trace);
}

static void flame_graphs_hold_all_the_energy(void **state)
{
    fixture *f = *state;
    json_t *file = export_json(f->store, PJ_EXPORT_SPEEDSCOPE);
    json_t *profile = json_array_get(json_object_get(file, "profiles"), 0);
    json_t *samples = json_object_get(profile, "samples");
    json_t *weights = json_object_get(profile, "weights");
    size_t frames = json_array_size(json_object_get(json_object_get(file, "shared"), "frames"));
    assert_int_equal(json_array_size(samples), json_array_size(weights));
    double sum = 0;
    size_t i, j;
    json_t *w, *stack, *frame;
    json_array_foreach(weights, i, w) sum += json_number_value(w);
    json_array_foreach(samples, i, stack) json_array_foreach(stack, j, frame)
        assert_that((size_t)json_integer_value(frame), <, frames);
    assert_near(sum, f->run.info.total_mj * 1e3, 1e-9 * sum);
    assert_near(sum, number(profile, "endValue"), 1e-9 * sum);
    json_decref(file);
    pj_buffer folded = export_run(f->store, PJ_EXPORT_FOLDED);
    assert_non_null(strstr(folded.data, "decode;layer 2;attention;softmax "));
    pj_buffer_fini(&folded);
}

/* Walks the archive by its local headers and checks sizes and checksums. */
static void zips_are_whole(void **state)
{
    fixture *f = *state;
    pj_buffer out = export_run(f->store, PJ_EXPORT_CSV);
    const unsigned char *d = (const unsigned char *)out.data;
    size_t at = 0, files = 0, rows = 0;
    unsigned char *plain = malloc(1 << 22);
    while (at + 30 < out.length && memcmp(d + at, "PK\3\4", 4) == 0) {
        size_t name = d[at + 26];
        bool operations = memcmp(d + at + 30, "deep_operation", 14) == 0;
        z_stream z = {.next_in = (Bytef *)(uintptr_t)(d + at + 30 + name),
                      .avail_in = (uInt)(out.length - at - 30 - name),
                      .next_out = plain,
                      .avail_out = 1 << 22};
        assert_int_equal(inflateInit2(&z, -15), Z_OK);
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        at += 30 + name + z.total_in;
        uint32_t descriptor[4];
        memcpy(descriptor, d + at, sizeof descriptor);
        assert_int_equal(descriptor[1], crc32(0, plain, (uInt)z.total_out));
        assert_int_equal(descriptor[2], z.total_in);
        assert_int_equal(descriptor[3], z.total_out);
        for (size_t i = 0; i < z.total_out && operations; i++) rows += plain[i] == '\n';
        inflateEnd(&z);
        at += 16;
        files++;
    }
    assert_memory_equal(d + at, "PK\1\2", 4);
    assert_memory_equal(d + out.length - 22, "PK\5\6", 4);
    assert_int_equal(files, PJ_TABLE_COUNT + 1); /* and the run itself */
    assert_int_equal(rows, f->run.operation_count + 1);
    free(plain);
    pj_buffer_fini(&out);
}

static bool stop_early(void *context, const char *bytes, size_t count)
{
    int *left = context;
    return (*left)-- > 0;
}

static void a_reader_that_leaves_ends_the_export(void **state)
{
    fixture *f = *state;
    for (pj_export_format format = 0; format < PJ_EXPORT_COUNT; format++)
        for (int pieces = 0; pieces < 3; pieces++) {
            int left = pieces;
            pj_error err = {0};
            pj_status status = pj_store_export(f->store, "last", format, stop_early, &left, &err);
            if (left < 0) assert_int_equal(status, PJ_E_IO);
        }
    pj_error err;
    assert_int_equal(pj_store_export(f->store, "ffffffff", PJ_EXPORT_JSON, collect, NULL, &err),
                     PJ_E_NOT_FOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#if defined(TEST_STRICT_DRIVER) || defined(TEST_SERVER_DRIVER)
enum { OTHER_ENGINE = 1 };
#else
enum { OTHER_ENGINE = 0 };
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(json_comes_back_equal),
        TEST(long_runs_come_back_from_blocks),
        TEST(blocks_hold_what_rows_do),
        TEST(what_no_block_can_be_is_refused),
        TEST(traces_nest),
        TEST(flame_graphs_hold_all_the_energy),
        TEST(zips_are_whole),
        TEST(a_reader_that_leaves_ends_the_export),
    };
    const struct CMUnitTest refusals[] = {
        /* of files, whatever engine they were written from */
        TEST(cut_and_twisted_files_are_refused),
        TEST(unknown_members_are_refused),
        TEST(columns_are_strict),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return OTHER_ENGINE ? failed : failed + cmocka_run_group_tests(refusals, NULL, NULL);
}
