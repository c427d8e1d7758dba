/* Imports an exported run. Every row, or block of rows, is a tree of its own, so that a run of a
 * gigabyte never becomes one in memory. The input is untrusted: columns accept only values of their
 * type and range, members that this version does not know are refused by name rather than dropped,
 * and references are checked once all rows are read. */
#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/memory.h"
#include "store/export.h"
#include "store/schema.h"
#include "trace/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TAGS = 4096, MAX_ROWS = 1 << 28 };

/* A member of a row or a block. */
typedef struct import_member {
    const json_t *value;
    enum { MEMBER_OF_ALL, MEMBER_ARRAY, MEMBER_FLOATS } form; /* how it is given to the rows */
    size_t at;                                                /* of the first float */
} import_member;

typedef struct importing {
    pj_json_scan scan;
    pj_run_data *data;
    pj_extra_list extras;
    pj_buffer text;                          /* of a value that is an object */
    import_member members[PJ_TABLE_COLUMNS]; /* of the row or block that is being read */
    pj_buffer floats;                        /* decoded, of a block */
    uint32_t capacity[PJ_TABLE_COUNT];
    json_t *series[PJ_MAX_RAILS]; /* power_mw of each rail */
    bool has_format, has_version, has_run, has_request;
    pj_error *err;
} importing;

static size_t import_position(const importing *im)
{
    return (size_t)(im->scan.at - im->scan.start);
}

static pj_status import_json_bad(importing *im, const char *what)
{
    return pj_fail(im->err, PJ_E_INVALID, "not a run exported by perjoule: %s (at byte %zu)", what,
                   import_position(im));
}

/* NULL: there is no valid value. */
static json_t *import_take_tree(importing *im)
{
    return pj_json_scan_tree(&im->scan, JSON_REJECT_DUPLICATES);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Numbers in their shortest form, like the export: an imported run must be exported to the same
 * bytes. (json_dumps writes 17 digits.) */
static void import_json_write_tree(pj_json *out, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        pj_json_object_begin(out);
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            pj_json_key(out, key);
            import_json_write_tree(out, item);
        }
        pj_json_object_end(out);
        break;
    case JSON_ARRAY:
        pj_json_array_begin(out);
        json_array_foreach(value, i, item) import_json_write_tree(out, item);
        pj_json_array_end(out);
        break;
    case JSON_STRING:
        pj_json_string_n(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER: pj_json_int(out, json_integer_value(value)); break;
    case JSON_REAL: pj_json_double(out, json_real_value(value)); break;
    case JSON_TRUE:
    case JSON_FALSE: pj_json_bool(out, json_is_true(value)); break;
    default: pj_json_null(out);
    }
}

/* The value is valid until the next one. False: out of memory, or nested deeper than a column may
 * be. */
static bool dump_tree(importing *im, const json_t *value, pj_value *v)
{
    pj_json out;
    pj_buffer_clear(&im->text);
    pj_json_init(&out, &im->text);
    import_json_write_tree(&out, value);
    *v = pj_value_bytes(PJ_VALUE_TEXT, im->text.data, im->text.length);
    return pj_json_finish(&out);
}

static bool to_value(importing *im, const json_t *from, const pj_column *column, pj_value *v)
{
    *v = (pj_value){0};
    if (!from || json_is_null(from)) return true;
    if (column->type == PJ_COLUMN_JSON || column->type == PJ_COLUMN_EXTRAS)
        return json_is_object(from) && dump_tree(im, from, v);
    if (json_is_string(from))
        *v = pj_value_bytes(PJ_VALUE_TEXT, json_string_value(from), json_string_length(from));
    else if (json_is_integer(from))
        *v = pj_value_int(json_integer_value(from));
    else if (json_is_real(from))
        *v = pj_value_double(json_real_value(from));
    else if (json_is_boolean(from))
        *v = pj_value_int(json_is_true(from));
    else
        return false;
    return true;
}

/* Ranges follow from the unit in a column's name; the first match counts. Net energies may be
 * negative (less than idle), and times may precede the start of the run by up to a day or so. */
typedef struct value_range {
    const char *ending;
    double least, most;
} value_range;

static bool import_json_ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), end = strlen(ending);
    return length >= end && strcmp(name + length - end, ending) == 0;
}

static const value_range *import_json_range_of(const char *name)
{
    static const value_range ranges[] = {
        {"_sd_mj", 0, 1e18},
        {"net_energy_mj", -1e18, 1e18},
        {"net_mj", -1e18, 1e18},
        {"difference_mj", -1e18, 1e18},
        {"_mj", -1e-3, 1e18}, /* rounding may make a part slightly negative */
        {"_mw", -1e-3, 1e15},
        {"start_ms", -1e8, 1e15},
        {"end_ms", -1e8, 1e15},
        {"timestamp_ms", -1e8, 1e15},
        {"t_ms", -1e8, 1e15},
        {"_ms", 0, 1e15},
        {"_us", 0, 1e18},
        {"created_ns", 0, 4.2e18},
        {"sparsity", 0, 1},
        {"_confidence", 0, 1},
        {"disturbed_share", 0, 1 + 1e-9},
        {"data_share", 0, 1},
        {"share", 0, 1e4}, /* of one processor, of a context */
        {"_tokens", 0, 1e15},
        {"parameters", 0, 1e18},
        {"flops", 0, 1e30},
        {"bytes", 0, 1e30},
        {"_estimate", 0, 1e30},
        {"_mhz", 0, 1e9},
        {"_c", -274, 1e4},
        {"utilisation", 0, 1e4},
        {"gain_sd", 0, 1e3},
        {"resolution", 0, 1e18},
        {"_uj", 0, 1e30},
        {"_sd", 0, 1e30},
        {"pj_per_flop", -1e15, 1e15},
        {"pj_per_byte", -1e15, 1e15},
        {"_interval", 0, 1e30},
        {"_calibrated", 0, 1e30},
        {"_gap", -1e9, 1e9},
        {"signed_mean", -1e39, 1e39},
        {"_mean", 0, 1e39},
        {"_std", 0, 1e39},
        {"_max", 0, 1e39},
        {"_count", 0, 1e15},
        {"condition_number", 0, 1e308},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (import_json_ends_with(name, ranges[i].ending)) return &ranges[i];
    return NULL;
}

static pj_status check_range(importing *im, const pj_row_table *table, const pj_column *column,
                             const pj_value *v)
{
    double number = v->type == PJ_VALUE_INT ? (double)v->integer : v->number;
    const value_range *allowed = import_json_range_of(column->name);
    if (v->type != PJ_VALUE_INT && v->type != PJ_VALUE_DOUBLE) return PJ_OK;
    if (!isfinite(number))
        return pj_fail(im->err, PJ_E_INVALID, "%s.%s is not a number", table->name, column->name);
    if (pj_column_stored_as(column) == PJ_SQL_INTEGER && number != floor(number))
        return pj_fail(im->err, PJ_E_INVALID, "%s.%s is %.16g, not an integer (at byte %zu)",
                       table->name, column->name, number, import_position(im));
    if (!allowed || (number >= allowed->least && number <= allowed->most)) return PJ_OK;
    return pj_fail(im->err, PJ_E_INVALID,
                   "%s.%s is %.16g, which is outside %.16g to %.16g (at byte %zu)", table->name,
                   column->name, number, allowed->least, allowed->most, import_position(im));
}

/* What an exported run and its rows have besides the columns of their table. */
static bool is_beside_columns(const pj_row_table *table, const char *name)
{
    static const char *const of_run[] = {"created_at", "tags", "output_text", "machine_info"};
    if (strcmp(name, "id") == 0) return true;
    if (table == &pj_tables[PJ_TABLE_RAILS]) return strcmp(name, "power_mw") == 0;
    for (size_t i = 0; table == &pj_run_table && i < sizeof of_run / sizeof *of_run; i++)
        if (strcmp(name, of_run[i]) == 0) return true;
    return false;
}

static bool is_column(const pj_row_table *table, const char *name)
{
    for (int c = 0; c < table->column_count; c++)
        if (strcmp(name, table->columns[c].name) == 0) return true;
    return false;
}

static pj_status unknown_member(importing *im, const char *table, const char *name)
{
    return pj_fail(im->err, PJ_E_INVALID,
                   "%s%.64s is not a member of an exported run (at byte %zu); a newer perjoule may "
                   "have written the file",
                   table, name, import_position(im));
}

/* `columns`: how many of the members are columns, so that a row without others costs no search. */
static pj_status import_json_check_members(importing *im, const pj_row_table *table,
                                           const json_t *object, size_t columns, bool is_block)
{
    const char *name;
    json_t *value;
    char prefix[64];
    if (json_object_size(object) == columns) return PJ_OK;
    snprintf(prefix, sizeof prefix, "%s.", table->name);
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        bool is_beside = is_block ? strcmp(name, "rows") == 0 : is_beside_columns(table, name);
        if (!is_beside && !is_column(table, name)) return unknown_member(im, prefix, name);
    }
    return PJ_OK;
}

/* The member of an earlier column, which has the same values. */
static pj_status take_twin(importing *im, const pj_row_table *table, import_member *member,
                           const char *name)
{
    int number = (int)(member - im->members);
    for (int c = 0; c < number; c++) {
        if (strcmp(table->columns[c].name, name) != 0) continue;
        *member = im->members[c];
        return PJ_OK;
    }
    return pj_fail(im->err, PJ_E_INVALID,
                   "%s.%s is as %.64s, which is no column before it (at byte %zu)", table->name,
                   table->columns[number].name, name, import_position(im));
}

/* Finds how a block gives a column to its rows. Memory stays proportional to the text. */
static pj_status spread(importing *im, const pj_row_table *table, const pj_column *column,
                        import_member *member, uint32_t rows)
{
    size_t count = json_array_size(member->value), bytes = rows * sizeof(float);
    const char *twin = json_string_value(json_object_get(member->value, "as"));
    if (twin && column->type != PJ_COLUMN_EXTRAS) return take_twin(im, table, member, twin);
    if (json_is_array(member->value)) {
        member->form = MEMBER_ARRAY;
        if (count == rows) return PJ_OK;
        return pj_fail(im->err, PJ_E_INVALID, "%s.%s has %zu values for %u rows (at byte %zu)",
                       table->name, column->name, count, rows, import_position(im));
    }
    if (!pj_column_is_float(column) || !json_is_object(member->value)) return PJ_OK;
    const json_t *text = json_object_get(member->value, "float32");
    size_t length = json_string_length(text);
    member->form = MEMBER_FLOATS;
    member->at = im->floats.length;
    if (length < bytes || json_object_size(member->value) != 1 ||
        !pj_buffer_reserve(&im->floats, bytes) ||
        !pj_base64_read(json_string_value(text), length, im->floats.data + member->at, bytes))
        return pj_fail(im->err, PJ_E_INVALID, "%s.%s is not %u floats in base64 (at byte %zu)",
                       table->name, column->name, rows, import_position(im));
    im->floats.length += bytes;
    return PJ_OK;
}

/* `rows`: of a block; 0: the object is a row. */
static pj_status take_members(importing *im, const pj_row_table *table, const json_t *object,
                              uint32_t rows)
{
    size_t present = json_object_get(object, rows ? "rows" : "id") != NULL;
    pj_status status = PJ_OK;
    bool is_counted = rows == 0;
    pj_buffer_clear(&im->floats);
    for (int c = 0; c < table->column_count && status == PJ_OK; c++) {
        import_member *member = &im->members[c];
        *member = (import_member){.value = json_object_get(object, table->columns[c].name)};
        present += member->value != NULL;
        if (rows) status = spread(im, table, &table->columns[c], member, rows);
        is_counted |= member->form != MEMBER_OF_ALL;
    }
    if (status == PJ_OK && !is_counted)
        return pj_fail(im->err, PJ_E_INVALID,
                       "%s has a block without a column of one value per row (at byte %zu)",
                       table->name, import_position(im));
    return status == PJ_OK ? import_json_check_members(im, table, object, present, rows > 0)
                           : status;
}

static bool member_value(importing *im, const import_member *member, const pj_column *column,
                         uint32_t row, pj_value *value)
{
    float number;
    if (member->form == MEMBER_FLOATS) {
        memcpy(&number, im->floats.data + member->at + row * sizeof number, sizeof number);
        *value = pj_value_double((double)number);
        return true;
    }
    bool is_array = member->form == MEMBER_ARRAY;
    return to_value(im, is_array ? json_array_get(member->value, row) : member->value, column,
                    value);
}

/* Of the members taken. */
static pj_status set_columns(importing *im, const pj_row_table *table, uint32_t number, void *row)
{
    for (int c = 0; c < table->column_count; c++) {
        const pj_column *column = &table->columns[c];
        pj_value value;
        bool good = member_value(im, &im->members[c], column, number, &value);
        pj_status status = good ? check_range(im, table, column, &value) : PJ_OK;
        if (status != PJ_OK) return status;
        if (!good || !pj_column_set(table, column, row, &value, &im->data->arena, &im->extras))
            return pj_fail(im->err, PJ_E_INVALID,
                           "%s.%s has an invalid value (at byte "
                           "%zu)",
                           table->name, column->name, import_position(im));
    }
    return PJ_OK;
}

/* Absent, or powers and nulls. */
static bool is_series(const json_t *series)
{
    size_t i;
    const json_t *value;
    if (!series || json_is_null(series)) return true;
    const value_range *allowed = import_json_range_of("power_mw");
    json_array_foreach(series, i, value)
    {
        double mw = json_number_value(value);
        if (json_is_null(value)) continue;
        if (!json_is_number(value) || mw < allowed->least || mw > allowed->most) return false;
    }
    return json_is_array(series);
}

static pj_status make_room(importing *im, pj_table_id id)
{
    uint32_t count = pj_table_rows(im->data, id);
    if (count != im->capacity[id]) return PJ_OK;
    uint32_t wanted = id == PJ_TABLE_RAILS ? PJ_MAX_RAILS : count ? count * 2 : 16;
    if (count >= MAX_ROWS || wanted == count) return import_json_bad(im, "there are too many rows");
    if (!pj_rows_make_room(im->data, id, wanted))
        return pj_fail_memory(im->err, "the imported run");
    im->capacity[id] = wanted;
    return PJ_OK;
}

/* Number `number` of the rows whose members were taken. */
static pj_status import_json_add_row(importing *im, pj_table_id id, uint32_t number)
{
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    pj_status status = make_room(im, id);
    if (status != PJ_OK) return status;
    memset(scratch, 0, sizeof scratch);
    status = set_columns(im, &pj_tables[id], number, scratch);
    if (status == PJ_OK && !pj_rows_put(im->data, id, pj_table_rows(im->data, id), scratch))
        return import_json_bad(im, "a rail is out of order");
    return status;
}

static pj_status add_block(importing *im, pj_table_id id, const json_t *object)
{
    json_int_t rows = json_integer_value(json_object_get(object, "rows"));
    if (!pj_table_is_exported_in_blocks(id)) {
        char table[64];
        snprintf(table, sizeof table, "%s.", pj_tables[id].name);
        return unknown_member(im, table, "rows");
    }
    if (rows < 1 || rows > MAX_ROWS) return import_json_bad(im, "a block has no number of rows");
    pj_status status = take_members(im, &pj_tables[id], object, (uint32_t)rows);
    for (uint32_t i = 0; i < rows && status == PJ_OK; i++) status = import_json_add_row(im, id, i);
    return status;
}

static pj_status add_rows(importing *im, pj_table_id id, const json_t *object)
{
    uint32_t count = pj_table_rows(im->data, id);
    const json_t *id_value = json_object_get(object, "id");
    if (!json_is_object(object)) return import_json_bad(im, "a row is not an object");
    if (json_object_get(object, "rows")) return add_block(im, id, object);
    if (id_value && !(json_is_integer(id_value) && json_integer_value(id_value) == count))
        return pj_fail(im->err, PJ_E_INVALID, "%s.id must count the rows from 0 (at byte %zu)",
                       pj_tables[id].name, import_position(im));
    pj_status status = take_members(im, &pj_tables[id], object, 0);
    if (status == PJ_OK) status = import_json_add_row(im, id, 0);
    if (status == PJ_OK && id == PJ_TABLE_RAILS) {
        json_t *series = json_object_get(object, "power_mw");
        if (!is_series(series))
            return pj_fail(im->err, PJ_E_INVALID,
                           "run_rails.power_mw is not an array of powers (at byte %zu)",
                           import_position(im));
        if (json_is_array(series)) im->series[count] = json_incref(series);
    }
    return status;
}

static pj_status read_table(importing *im, pj_table_id id)
{
    pj_status status = PJ_OK;
    if (pj_json_scan_peek(&im->scan) != '[') return import_json_bad(im, "a table is not an array");
    if (pj_table_rows(im->data, id)) return import_json_bad(im, "a table occurs twice");
    pj_json_scan_enter(&im->scan, '[');
    while (status == PJ_OK && pj_json_scan_next(&im->scan, '[')) {
        json_t *row = import_take_tree(im);
        if (row) status = add_rows(im, id, row);
        json_decref(row);
    }
    return status;
}

/* ---- the run itself -------------------------------------------------------------------------- */

static const char *import_json_copy_text(importing *im, const json_t *value)
{
    if (!json_is_string(value)) return NULL;
    return pj_arena_strndup(&im->data->arena, json_string_value(value), json_string_length(value));
}

static bool is_uuid(const char *text)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (!text || strlen(text) != sizeof form - 1) return false;
    for (int i = 0; form[i]; i++)
        if (!strchr(form[i] == '-' ? "-" : "0123456789abcdef", text[i])) return false;
    return true;
}

static pj_status import_json_read_tags(importing *im, const json_t *list)
{
    pj_run_info *info = &im->data->info;
    size_t count = json_array_size(list);
    if (list && !json_is_null(list) && !json_is_array(list))
        return pj_fail(im->err, PJ_E_INVALID, "profiling_run.tags must be an array of strings");
    if (count > MAX_TAGS) return import_json_bad(im, "there are too many tags");
    const char **tags = pj_arena_alloc(&im->data->arena, count + 1, sizeof *tags);
    if (!tags) return pj_fail_memory(im->err, "the imported run");
    for (size_t i = 0; i < count; i++)
        if (!(tags[i] = import_json_copy_text(im, json_array_get(list, i))))
            return import_json_bad(im, "tags must be strings");
    info->tags = tags;
    info->tag_count = (uint32_t)count;
    return PJ_OK;
}

/* "created_at" repeats created_ns; an invalid or different time shows that the file was
 * modified. */
static pj_status check_created(importing *im, const json_t *object)
{
    const json_t *value = json_object_get(object, "created_at");
    int64_t wall_ns, stated_ns = im->data->info.created_wall_ns;
    if (!value || json_is_null(value)) return PJ_OK;
    if (!json_is_string(value) || !pj_clock_parse_iso(json_string_value(value), &wall_ns))
        return pj_fail(im->err, PJ_E_INVALID, "profiling_run.created_at is not an ISO 8601 time");
    if (stated_ns && (wall_ns > stated_ns + PJ_NS_PER_S || wall_ns < stated_ns - PJ_NS_PER_S))
        return pj_fail(im->err, PJ_E_INVALID,
                       "profiling_run.created_at and created_ns are different times");
    return PJ_OK;
}

static pj_status import_json_read_run(importing *im)
{
    json_t *object = import_take_tree(im);
    pj_run_info *info = &im->data->info;
    const char *id = json_string_value(json_object_get(object, "id"));
    pj_status status = PJ_OK;
    if (im->has_run || !is_uuid(id)) {
        json_decref(object);
        return import_json_bad(im, "the run has no id");
    }
    im->has_run = true;
    memcpy(info->id, id, PJ_UUID_BYTES);
    im->has_request = json_object_get(object, "request_energy_mj") != NULL;
    status = take_members(im, &pj_run_table, object, 0);
    if (status == PJ_OK) status = set_columns(im, &pj_run_table, 0, info);
    if (status == PJ_OK) status = check_created(im, object);
    if (status == PJ_OK) status = import_json_read_tags(im, json_object_get(object, "tags"));
    if (status == PJ_OK) {
        const json_t *machine = json_object_get(object, "machine_info");
        pj_value dump;
        if (machine && !json_is_null(machine) && !json_is_object(machine))
            status = pj_fail(im->err, PJ_E_INVALID, "profiling_run.machine_info is not an object");
        const json_t *output = json_object_get(object, "output_text");
        info->output_text = import_json_copy_text(im, output);
        if (output && !json_is_null(output) && !info->output_text)
            status = pj_fail(im->err, PJ_E_INVALID, "profiling_run.output_text must be a string");
        if (json_is_object(machine) && dump_tree(im, machine, &dump))
            info->machine_json = pj_arena_strndup(&im->data->arena, dump.text, dump.bytes);
    }
    json_decref(object);
    return status;
}

static pj_status import_json_check_version(importing *im, const json_t *value)
{
    im->has_version = json_is_integer(value);
    if (!im->has_version) return import_json_bad(im, "its version must be an integer");
    if (json_integer_value(value) == 1 || json_integer_value(value) == 2) return PJ_OK;
    return pj_fail(
        im->err, PJ_E_UNSUPPORTED,
        "the run was exported in version %lld of the format, but this perjoule reads versions 1 "
        "and 2: update it",
        (long long)json_integer_value(value));
}

/* What is neither the run nor one of its tables. */
static pj_status read_other(importing *im, const char *key)
{
    json_t *value = import_take_tree(im);
    if (!value) return import_json_bad(im, "a value is not JSON");
    const char *text = json_string_value(value);
    pj_status status = PJ_OK;
    if (strcmp(key, "format") == 0)
        im->has_format = text && strcmp(text, "perjoule-run") == 0;
    else if (strcmp(key, "version") == 0)
        status = import_json_check_version(im, value);
    else if (strcmp(key, "generator") != 0)
        status = unknown_member(im, "", key);
    else if (!text)
        status = import_json_bad(im, "its generator must be a string");
    json_decref(value);
    return status;
}

static pj_status import_json_read_member(importing *im, const char *name)
{
    if (strcmp(name, "profiling_run") == 0) return import_json_read_run(im);
    for (int t = 0; t < PJ_TABLE_COUNT; t++)
        if (strcmp(name, pj_tables[t].name) == 0) return read_table(im, t);
    return read_other(im, name);
}

static pj_status import_json_read_members(importing *im)
{
    pj_status status = PJ_OK;
    pj_json_text key;
    pj_json_scan_enter(&im->scan, '{');
    while (status == PJ_OK && pj_json_scan_member(&im->scan, &key)) {
        char name[80]; /* longer names are unknown whatever they end in */
        snprintf(name, sizeof name, "%.*s", key.bytes < sizeof name ? (int)key.bytes : 79,
                 key.text);
        status = import_json_read_member(im, name);
    }
    if (status == PJ_OK) pj_json_scan_end(&im->scan);
    if (pj_json_scan_failed(&im->scan)) return import_json_bad(im, im->scan.problem);
    if (status != PJ_OK || (im->has_format && im->has_version && im->has_run)) return status;
    return import_json_bad(im, "its format, its version or its run is missing");
}

static pj_status take_series(importing *im)
{
    pj_run_data *data = im->data;
    uint32_t count = data->samples.count;
    for (uint32_t r = 0; r < data->rail_count; r++) {
        const json_t *list = im->series[r];
        if (!list || json_array_size(list) != count || count == 0) continue;
        double *mw = data->samples.mw[r] = pj_arena_alloc(&data->arena, count, sizeof *mw);
        if (!mw) return pj_fail_memory(im->err, "the imported run");
        for (uint32_t i = 0; i < count; i++) {
            const json_t *value = json_array_get(list, i);
            mw[i] = json_is_number(value) ? json_number_value(value) : NAN;
        }
    }
    return PJ_OK;
}

pj_status pj_import_json(const char *text, size_t bytes, pj_run_data *data, pj_error *err)
{
    importing im = {.data = data, .err = err};
    pj_buffer_init(&im.text, 64u << 20);
    pj_buffer_init(&im.floats, bytes);
    pj_json_scan_init(&im.scan, text, bytes);
    pj_run_data_fini(data);
    pj_arena_init(&data->arena, 0);
    pj_status status = import_json_read_members(&im);
    if (status == PJ_OK) status = take_series(&im);
    if (status == PJ_OK) status = pj_extras_take(&im.extras, data, err);
    if (status == PJ_OK) pj_rows_complete(data);
    if (status == PJ_OK) status = pj_rows_check(data, err);
    if (status == PJ_OK && !im.has_request) status = pj_request_figures(data, NULL, err);
    for (int r = 0; r < PJ_MAX_RAILS; r++) json_decref(im.series[r]);
    pj_buffer_fini(&im.text);
    pj_buffer_fini(&im.floats);
    pj_free(im.extras.rows);
    pj_json_scan_fini(&im.scan);
    if (status != PJ_OK) pj_run_data_fini(data);
    return status;
}
