/* The tables of a database, and their statements for an engine. */
#include "store/schema.h"

#include <stdio.h>
#include <string.h>

#define ROWS_OF(table_id) .run = "run_id", .rows = &pj_tables[table_id]
#define NEEDED            true, NULL

/* clang-format off */
const pj_schema_table pj_schema_tables[] = {
    {"profiling_runs", "id", "id", NULL, &pj_run_table,
     {{"id", PJ_SQL_TEXT, NEEDED}, {"created_at", PJ_SQL_TEXT, NEEDED}, {"tags", PJ_SQL_TEXT},
      {"tokens_per_second", PJ_SQL_REAL}, {"joules_per_token", PJ_SQL_REAL},
      {"joules_per_token_sd", PJ_SQL_REAL}}},
    {"run_texts", "run_id", "run_id", .columns = {
      {"output_text", PJ_SQL_TEXT}, {"machine_info", PJ_SQL_TEXT}}},
    {"run_tags", "run_id", "tag, run_id", .columns = {{"tag", PJ_SQL_TEXT, NEEDED}}},
    {"run_rows", "run_id", "run_id, table_name", .columns = {
      {"table_name", PJ_SQL_TEXT, NEEDED}, {"first_id", PJ_SQL_INTEGER, NEEDED},
      {"row_count", PJ_SQL_INTEGER, NEEDED}}},
    {"run_charts", "run_id", .unique = "run_id, chart", .columns = {
      {"chart", PJ_SQL_TEXT, NEEDED}, {"data", PJ_SQL_BYTES, NEEDED}}},
    {"run_rails", ROWS_OF(PJ_TABLE_RAILS), .columns = {{"power_mw", PJ_SQL_BYTES}}},
    {"power_samples", ROWS_OF(PJ_TABLE_SAMPLES)},
    {"run_rail_energy", ROWS_OF(PJ_TABLE_RAIL_ENERGY)},
    {"run_phases", ROWS_OF(PJ_TABLE_PHASES)},
    {"run_classes", ROWS_OF(PJ_TABLE_CLASSES)},
    {"tokens", ROWS_OF(PJ_TABLE_TOKENS)},
    {"pipeline_sections", ROWS_OF(PJ_TABLE_SECTIONS)},
    {"layer_metrics", ROWS_OF(PJ_TABLE_LAYERS)},
    {"component_metrics", ROWS_OF(PJ_TABLE_COMPONENTS), .columns = {
      {"first_operation_id", PJ_SQL_INTEGER}, {"operation_count", PJ_SQL_INTEGER}}},
    {"deep_operation_metrics", ROWS_OF(PJ_TABLE_OPERATIONS)},
    {"run_warnings", ROWS_OF(PJ_TABLE_WARNINGS)},
    {"run_conditions", ROWS_OF(PJ_TABLE_CONDITIONS)},
    {"experiments", .key = "name", .columns = {
      {"name", PJ_SQL_TEXT, NEEDED}, {"created_ns", PJ_SQL_INTEGER, NEEDED},
      {"plan", PJ_SQL_TEXT, NEEDED}, {"losses", PJ_SQL_TEXT}, {"state", PJ_SQL_TEXT},
      {"queued_ns", PJ_SQL_INTEGER}, {"error", PJ_SQL_TEXT},
      {"machine", PJ_SQL_TEXT}, /* whose server is to run a queued one */
      {"owner", PJ_SQL_TEXT} /* the process that runs it */}},
    {"run_queue", .key = "id", .columns = {
      {"id", PJ_SQL_TEXT, NEEDED}, {"queued_ns", PJ_SQL_INTEGER, NEEDED},
      {"request", PJ_SQL_TEXT, NEEDED}, {"owner", PJ_SQL_TEXT}, {"cancelled", PJ_SQL_INTEGER}}},
    {"machine_states", .key = "name", .columns = {
      {"name", PJ_SQL_TEXT, NEEDED}, {"seen_ns", PJ_SQL_INTEGER, NEEDED}, {"version", PJ_SQL_TEXT},
      {"sensors", PJ_SQL_TEXT}, {"energy_source", PJ_SQL_TEXT}, {"day", PJ_SQL_TEXT},
      {"energy_mj", PJ_SQL_REAL}, {"throttle", PJ_SQL_TEXT}, {"clock_offset_ms", PJ_SQL_REAL},
      {"clock_uncertainty_ms", PJ_SQL_REAL}}},
    {NULL},
};
/* clang-format on */

/* ---- columns ------------------------------------------------------------------------------- */

pj_sql_type pj_column_stored_as(const pj_column *column)
{
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_LIST:
    case PJ_COLUMN_JSON:
    case PJ_COLUMN_NAME:
    case PJ_COLUMN_EXTRAS:
    case PJ_COLUMN_ARRAY_NAME: return PJ_SQL_TEXT;
    case PJ_COLUMN_DOUBLE:
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_NJ:
    case PJ_COLUMN_SOME:
    case PJ_COLUMN_SOME_NJ:
    case PJ_COLUMN_NS:
    case PJ_COLUMN_STAT_FLOAT: return PJ_SQL_REAL;
    default: return PJ_SQL_INTEGER;
    }
}

int pj_schema_own_columns(const pj_schema_table *table)
{
    int count = 0;
    while (count < PJ_SCHEMA_COLUMNS && table->columns[count].name) count++;
    return count;
}

bool pj_schema_column_get(const pj_schema_table *table, int number, pj_schema_column *column)
{
    int own = pj_schema_own_columns(table);
    if (number < own) {
        *column = table->columns[number];
        return true;
    }
    number -= own;
    if (!table->rows || number >= table->rows->column_count) return false;
    const pj_column *of_row = &table->rows->columns[number];
    *column = (pj_schema_column){of_row->name, pj_column_stored_as(of_row), of_row->required,
                                 of_row->is_owner ? pj_tables[of_row->kind].name : NULL,
                                 pj_code_of(of_row)};
    return true;
}

const char *pj_schema_stored_table(const pj_dialect *dialect, const char *name)
{
    for (int t = 0; t < PJ_TABLE_COUNT && dialect->packs_since; t++)
        if (pj_tables[t].packed && strcmp(pj_tables[t].name, name) == 0) return pj_tables[t].packed;
    return name;
}

bool pj_schema_is_packed(const pj_dialect *dialect, const pj_schema_table *table)
{
    return dialect->packs_since && table->rows && table->rows->packed;
}

const char *pj_schema_stored_column(const pj_dialect *dialect, const pj_schema_table *table,
                                    const pj_schema_column *column, char text[64])
{
    bool is_coded = pj_schema_is_packed(dialect, table) && pj_code_is_number(column->code);
    snprintf(text, 64, "%s%s", column->name, is_coded ? PJ_CODE_SUFFIX : "");
    return text;
}

/* ---- statements ---------------------------------------------------------------------------- */

/* Codes have no type: a value of any is stored as it is. */
static void schema_write_column(pj_buffer *out, const pj_dialect *dialect,
                                const pj_schema_table *table, const pj_schema_column *column)
{
    char name[64];
    bool is_first = pj_buffer_get(out)[out->length - 1] == '(';
    bool is_coded = pj_schema_is_packed(dialect, table) && pj_code_is_number(column->code);
    pj_buffer_printf(out, "%s%s", is_first ? "" : ", ",
                     pj_schema_stored_column(dialect, table, column, name));
    if (!is_coded) pj_buffer_printf(out, " %s", dialect->types[column->type]);
    if (column->required) pj_buffer_text(out, " NOT NULL");
    if (column->owner && dialect->has_foreign_keys)
        pj_buffer_printf(out, " REFERENCES %s(id) ON DELETE CASCADE",
                         pj_schema_stored_table(dialect, column->owner));
}

static bool has_run_id(const pj_dialect *dialect, const pj_schema_table *table)
{
    return table->run && strcmp(table->run, "run_id") == 0 &&
           (!table->rows || table->rows->has_run_id || dialect->has_run_everywhere);
}

void pj_schema_write_table(pj_buffer *out, const pj_dialect *dialect, const pj_schema_table *table)
{
    static const pj_schema_column run_id = {"run_id", PJ_SQL_TEXT, true, "profiling_runs"};
    pj_schema_column column;
    pj_buffer_printf(out, "CREATE TABLE %s (", pj_schema_stored_table(dialect, table->name));
    if (!table->key) pj_buffer_printf(out, "id %s", dialect->id_type);
    if (has_run_id(dialect, table)) schema_write_column(out, dialect, table, &run_id);
    for (int i = 0; pj_schema_column_get(table, i, &column); i++)
        schema_write_column(out, dialect, table, &column);
    dialect->end_table(out, table);
}

void pj_schema_write_packed_view(pj_buffer *out, const pj_dialect *dialect,
                                 const pj_schema_table *table)
{
    if (pj_schema_is_packed(dialect, table)) dialect->write_packed(out, table);
}

/* Which every engine has, where they are missing. */
static void schema_write_indices(pj_buffer *out, const pj_dialect *dialect)
{
    static const char *const indices[][3] = {
        {"tags_by_run", "run_tags", "(run_id)"},
        {"rails_by_run", "run_rails", "(run_id)"},
        {"rail_energy_by_run", "run_rail_energy", "(run_id)"},
        {"phases_by_run", "run_phases", "(run_id)"},
        {"classes_by_run", "run_classes", "(run_id)"},
        {"warnings_by_run", "run_warnings", "(run_id)"},
        {"conditions_by_run", "run_conditions", "(run_id)"},
        {"tokens_by_run", "tokens", "(run_id)"},
        {"tokens_by_phase", "tokens", "(phase_id)"},
        {"sections_by_run", "pipeline_sections", "(run_id)"},
        {"sections_by_phase", "pipeline_sections", "(phase_id)"},
        {"sections_by_token", "pipeline_sections", "(token_id) WHERE token_id IS NOT NULL"},
        {"sections_by_step", "pipeline_sections", "(step_id) WHERE step_id IS NOT NULL"},
        {"layers_by_token", "layer_metrics", "(token_id)"},
        {"layers_by_step", "layer_metrics", "(step_id) WHERE step_id IS NOT NULL"},
        {"components_by_layer", "component_metrics",
         "(layer_metric_id) WHERE layer_metric_id IS NOT NULL"},
        {"components_outside", "component_metrics", "(token_id) WHERE layer_metric_id IS NULL"},
        {"components_of_sections", "component_metrics",
         "(section_id) WHERE layer_metric_id IS NULL"
         " AND token_id IS NULL AND step_id IS NULL"},
        {"components_of_steps", "component_metrics",
         "(step_id) WHERE layer_metric_id IS NULL"
         " AND step_id IS NOT NULL"},
    };
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++)
        pj_buffer_printf(out, "CREATE INDEX IF NOT EXISTS %s ON %s%s;", indices[i][0],
                         pj_schema_stored_table(dialect, indices[i][1]), indices[i][2]);
}

void pj_schema_write_rest(pj_buffer *out, const pj_dialect *dialect, int64_t version)
{
    schema_write_indices(out, dialect);
    dialect->write_after(out, version);
    for (const pj_schema_table *table = pj_schema_tables; table->name; table++)
        pj_schema_write_packed_view(out, dialect, table);
    for (const pj_schema_view *view = pj_schema_views; view->name; view++)
        dialect->write_view(out, view->name, view->select);
}

void pj_schema_write(pj_buffer *out, const pj_dialect *dialect)
{
    dialect->write_before(out, 0);
    for (const pj_schema_table *table = pj_schema_tables; table->name; table++)
        pj_schema_write_table(out, dialect, table);
    pj_schema_write_rest(out, dialect, 0);
}
