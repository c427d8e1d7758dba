/* Which rows of each table belong to a run: run_rows names them by first id and count. Rows without
 * disturbances are the same rows with their disturbed parts subtracted. */
#include "store/schema.h"
#include "store/store_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

pj_status pj_store_ranges(pj_store *store, const char *run_id, pj_row_range *ranges, pj_error *err)
{
    memset(ranges, 0, PJ_TABLE_COUNT * sizeof *ranges);
    pj_sql *sql = pj_sql_begin(
        store, "SELECT table_name, first_id, row_count FROM run_rows WHERE run_id = ?", err);
    pj_sql_text(sql, 1, run_id);
    while (pj_sql_step(sql)) {
        const char *name = pj_sql_get_text(sql, 0, NULL);
        int64_t first = pj_sql_get_int(sql, 1), count = pj_sql_get_int(sql, 2);
        if (!name || first < 1 || count < 0 || count >= UINT32_MAX ||
            first > INT64_MAX - UINT32_MAX)
            continue;
        for (int t = 0; t < PJ_TABLE_COUNT; t++)
            if (strcmp(pj_tables[t].name, name) == 0)
                ranges[t] = (pj_row_range){first, (uint32_t)count};
    }
    return pj_sql_end(sql, err);
}

/* The highest N of the parameters ?N, at least 2. */
static int last_parameter(const char *text)
{
    int last = 2;
    while ((text = strchr(text, '?')))
        if (*++text > '0' + last && *text <= '9') last = *text - '0';
    return last;
}

/* ---- rows without disturbances ---- */

/* What remains of a row's deviations and truth, of its time, of a component, of an operation. */
#define OF_ENERGY    "(1 - coalesce(disturbed_energy_mj / nullif(energy_mj, 0), 0))"
#define OF_RAIL      "(1 - coalesce(disturbed_mj / nullif(gross_mj, 0), 0))"
#define OF_TIME      "(1 - coalesce(disturbed_ms / nullif(total_time_ms, 0), 0))"
#define OF_COMPONENT "(1 - coalesce(disturbed_ms / nullif(time_ms, 0), 0))"
#define OF_OPERATION                                                                             \
    "(1 - coalesce((SELECT c.disturbed_ms / nullif(c.time_ms, 0) FROM component_metrics c WHERE" \
    " c.id = component_metric_id), 0))"

/* How a column's value is found: less another one, or times what remains. */
typedef struct without_rule {
    pj_table_id table; /* PJ_TABLE_COUNT: all but components and operations */
    const char *column, *less, *times;
} without_rule;

static const without_rule rules[] = {
    {PJ_TABLE_RAIL_ENERGY, "gross_mj", "coalesce(disturbed_mj, 0)", NULL},
    {PJ_TABLE_RAIL_ENERGY, "net_mj", "coalesce(disturbed_net_mj, 0)", NULL},
    {PJ_TABLE_RAIL_ENERGY, "idle_mj", "coalesce(disturbed_mj - disturbed_net_mj, 0)", NULL},
    {PJ_TABLE_RAIL_ENERGY, "sd_", NULL, OF_RAIL},
    {PJ_TABLE_RAIL_ENERGY, "net_sd_", NULL, OF_RAIL},
    {PJ_TABLE_COMPONENTS, "time_ms", NULL, OF_COMPONENT},
    {PJ_TABLE_COMPONENTS, "energy_", NULL, OF_COMPONENT},
    {PJ_TABLE_COMPONENTS, "net_energy_", NULL, OF_COMPONENT},
    {PJ_TABLE_COMPONENTS, "self_energy_", NULL, OF_COMPONENT},
    {PJ_TABLE_COMPONENTS, "planted_", NULL, OF_COMPONENT},
    {PJ_TABLE_OPERATIONS, "time_ms", NULL, OF_OPERATION},
    {PJ_TABLE_OPERATIONS, "energy_", NULL, OF_OPERATION},
    {PJ_TABLE_OPERATIONS, "net_energy_", NULL, OF_OPERATION},
    {PJ_TABLE_OPERATIONS, "planted_", NULL, OF_OPERATION},
    {PJ_TABLE_LAYERS, "attention_time_ms", NULL, OF_TIME},
    {PJ_TABLE_LAYERS, "mlp_time_ms", NULL, OF_TIME},
    {PJ_TABLE_LAYERS, "total_time_ms", "coalesce(disturbed_ms, 0)", NULL},
    {PJ_TABLE_COUNT, "duration_ms", "coalesce(disturbed_ms, 0)", NULL},
    {PJ_TABLE_COUNT, "time_ms", "coalesce(disturbed_ms, 0)", NULL},
    {PJ_TABLE_COUNT, "energy_mj", "coalesce(disturbed_energy_mj, 0)", NULL},
    {PJ_TABLE_COUNT, "net_energy_mj", "coalesce(disturbed_net_energy_mj, 0)", NULL},
    {PJ_TABLE_COUNT, "self_energy_mj", "coalesce(disturbed_self_energy_mj, 0)", NULL},
    {PJ_TABLE_COUNT, "energy_sd_", NULL, OF_ENERGY},
    {PJ_TABLE_COUNT, "net_energy_sd_", NULL, OF_ENERGY},
    {PJ_TABLE_COUNT, "planted_", NULL, OF_ENERGY},
};

/* A name that ends in "_" is the beginning of several. */
static const without_rule *without_rule_of(int table, const char *column)
{
    bool own = table == PJ_TABLE_COMPONENTS || table == PJ_TABLE_OPERATIONS ||
               table == PJ_TABLE_RAIL_ENERGY;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const without_rule *r = &rules[i];
        size_t length = strlen(r->column);
        bool all = r->column[length - 1] != '_';
        if ((int)r->table != table && (own || r->table != PJ_TABLE_COUNT)) continue;
        if (all ? strcmp(r->column, column) == 0 : strncmp(r->column, column, length) == 0)
            return r;
    }
    return NULL;
}

static const pj_schema_table *schema_table_of(int table)
{
    const pj_schema_table *t = pj_schema_tables;
    while (t->rows != &pj_tables[table]) t++;
    return t;
}

/* A statement, which needs no memory. */
typedef struct statement {
    char text[16384];
    size_t bytes;
} statement;

__attribute__((format(printf, 2, 3))) static void statement_add(statement *s, const char *format,
                                                                ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->text + s->bytes, sizeof s->text - s->bytes, format, args);
    va_end(args);
    size_t left = sizeof s->text - s->bytes - 1;
    s->bytes += n > 0 && (size_t)n < left ? (size_t)n : left;
}

static void write_column_without(statement *out, int table, const pj_schema_column *column)
{
    const char *name = column->name;
    const without_rule *rule = without_rule_of(table, name);
    statement_add(out, ", ");
    if (strncmp(name, "disturbed_", 10) == 0)
        statement_add(out, "CAST(NULL AS double precision) AS %s", name);
    else if (rule && rule->less)
        statement_add(out, "%s - %s AS %s", name, rule->less, name);
    else if (rule)
        statement_add(out, "%s * %s AS %s", name, rule->times, name);
    else
        statement_add(out, "%s", name);
}

static bool table_has_disturbed(const pj_row_table *table)
{
    if (table == &pj_tables[PJ_TABLE_OPERATIONS]) return true;
    for (int c = 0; c < table->column_count; c++)
        if (strncmp(table->columns[c].name, "disturbed_", 10) == 0) return true;
    return false;
}

/* What rows are selected from: the table, or it without disturbances. */
static void write_from(statement *out, const pj_store *store, int table)
{
    const pj_row_table *rows = &pj_tables[table];
    pj_schema_column column;
    if (!store->leaves_out || !table_has_disturbed(rows)) {
        statement_add(out, "%s", rows->name);
        return;
    }
    statement_add(out, "(SELECT id%s",
                  rows->has_run_id || store->driver->is_remote ? ", run_id" : "");
    for (int i = 0; pj_schema_column_get(schema_table_of(table), i, &column); i++)
        write_column_without(out, table, &column);
    statement_add(out, " FROM %s) AS %s", rows->name, rows->name);
}

/* Rows as a whole are faster unpacked here than by the view. */
static bool is_read_packed(const pj_store *store, int table, const char *columns)
{
    char all[2048];
    if (store->leaves_out || !pj_schema_is_packed(store->driver->dialect, schema_table_of(table)))
        return false;
    pj_table_list_columns(&pj_tables[table], "id", all, sizeof all);
    return strcmp(columns, all) == 0;
}

static void write_packed(statement *out, const pj_store *store, int table)
{
    const pj_schema_table *schema = schema_table_of(table);
    pj_schema_column column;
    char name[64];
    statement_add(out, "id");
    for (int i = pj_schema_own_columns(schema); pj_schema_column_get(schema, i, &column); i++)
        statement_add(out, ", %s",
                      pj_schema_stored_column(store->driver->dialect, schema, &column, name));
    statement_add(out, " FROM %s", pj_tables[table].packed);
}

pj_sql *pj_select_rows(pj_store *store, const char *run_id, int table, pj_row_range range,
                       const char *columns, const char *rest, pj_error *err)
{
    statement text = {.bytes = 0};
    int parameter = last_parameter(rest) + 1;
    bool by_run = store->driver->is_remote;
    pj_packer *packed = is_read_packed(store, table, columns) ? pj_packer_of(store, table) : NULL;
    statement_add(&text, "SELECT ");
    if (packed) {
        write_packed(&text, store, table);
    } else {
        statement_add(&text, "%s FROM ", columns);
        write_from(&text, store, table);
    }
    statement_add(&text, " WHERE id BETWEEN ?1 AND ?2 ");
    if (by_run) statement_add(&text, "AND run_id = ?%d ", parameter);
    statement_add(&text, "%s", rest);
    pj_sql *sql = pj_sql_begin(store, text.text, err);
    if (sql && packed) sql->packer = packed, sql->unpack = pj_unpack;
    if (by_run) pj_sql_text(sql, parameter, run_id);
    pj_sql_int(sql, 1, range.first);
    pj_sql_int(sql, 2, range.first + range.count - 1);
    return sql;
}
