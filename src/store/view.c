/* Shared helpers of the views. */
#include "store/view.h"

#include "base/estimate.h"
#include "store/store_impl.h"

#include <stdio.h>
#include <string.h>

pj_status pj_view_open(pj_run_view *view, pj_store *store, const char *id, pj_json *json,
                       pj_error *err)
{
    char full[PJ_UUID_BYTES];
    *view = (pj_run_view){.store = store, .json = json};
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK) status = pj_store_info(store, full, &view->one, err);
    if (status == PJ_OK) status = pj_store_ranges(store, full, view->ranges, err);
    view->info = view->one.runs;
    return status;
}

pj_status pj_view_close(pj_run_view *view, pj_status status)
{
    pj_run_list_fini(&view->one);
    return status;
}

pj_sql *pj_view_select(pj_run_view *view, pj_table_id table, const char *columns, const char *rest,
                       pj_error *err)
{
    return pj_select_rows(view->store, view->info->id, table, view->ranges[table], columns, rest,
                          err);
}

void pj_view_head(pj_run_view *view, bool method)
{
    pj_json_kv_string(view->json, "run_id", view->info->id);
    pj_json_kv_string(view->json, "energy_source", pj_quality_name(view->info->quality));
    if (method) pj_json_kv_string(view->json, "method", pj_method_name(view->info->method));
}

void pj_json_kv_energies(pj_json *json, pj_sql *sql, int column)
{
    double mj = pj_sql_get_double(sql, column), sd = pj_sql_get_double(sql, column + 3);
    pj_json_kv_double(json, "energy_mj", mj);
    pj_json_kv_double(json, "net_energy_mj", pj_sql_get_double(sql, column + 1));
    pj_json_kv_double(json, "self_energy_mj", pj_sql_get_double(sql, column + 2));
    pj_json_key(json, "energy_sd_mj");
    pj_json_float(json, (float)sd);
    pj_bounds bounds = pj_bounds_of(mj, PJ_Z95 * sd);
    pj_json_key(json, "energy_lo_mj");
    pj_json_float(json, (float)bounds.lo);
    pj_json_key(json, "energy_hi_mj");
    pj_json_float(json, (float)bounds.hi);
    pj_json_kv_double(json, "planted_mj", pj_sql_get_double(sql, column + 4));
    pj_json_kv_string(json, "method", pj_sql_get_text(sql, column + 5, NULL));
    static const char *const rest[] = {
        "net_energy_sd_mj",      "energy_sd_random_mj",   "energy_sd_bias_mj", "energy_sd_gain_mj",
        "net_energy_sd_bias_mj", "net_energy_sd_gain_mj", "energy_upper_mj"};
    for (int i = 0; i < 7; i++) {
        pj_json_key(json, rest[i]);
        pj_json_float(json, (float)pj_sql_get_double(sql, column + 6 + i));
    }
    pj_json_kv_string(json, "unavailable_reason", pj_sql_get_text(sql, column + 13, NULL));
}

void pj_json_kv_disturbed(pj_json *json, pj_sql *sql, int column)
{
    pj_json_kv_double(json, "disturbed_ms", pj_sql_get_double(sql, column));
    pj_json_kv_double(json, "disturbed_energy_mj", pj_sql_get_double(sql, column + 1));
    pj_json_kv_double(json, "disturbed_net_energy_mj", pj_sql_get_double(sql, column + 2));
}

pj_sql *pj_chart_begin(pj_store *store, const char *id, const char *chart, const char **bytes,
                       size_t *count, pj_error *err)
{
    char without[96];
    *bytes = NULL;
    *count = 0;
    snprintf(without, sizeof without, "%s%s", chart,
             store->leaves_out ? PJ_WITHOUT_DISTURBANCES : "");
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT data FROM run_charts WHERE run_id = ?1 AND chart IN (?2, ?3)"
                               " ORDER BY chart DESC LIMIT 1",
                               err);
    pj_sql_text(sql, 1, id);
    pj_sql_text(sql, 2, chart);
    pj_sql_text(sql, 3, without);
    if (!pj_sql_step(sql)) return sql;
    *bytes = pj_sql_get_blob(sql, 0, count);
    if (!*bytes) *bytes = "";
    return sql;
}

pj_status pj_store_nodes(pj_store *store, const char *run_id, pj_arena *arena, pj_sum_nodes *nodes,
                         pj_error *err)
{
    const char *data;
    size_t bytes;
    *nodes = (pj_sum_nodes){0};
    pj_sql *sql = pj_chart_begin(store, run_id, "nodes", &data, &bytes, err);
    pj_status status = data ? pj_nodes_read(data, bytes, arena, nodes, err) : PJ_OK;
    return pj_sql_end_after(sql, status, err);
}

pj_status pj_view_load_nodes(pj_run_view *view, pj_sum_nodes *nodes, pj_error *err)
{
    return pj_store_nodes(view->store, view->info->id, &view->one.arena, nodes, err);
}

/* ---- rows ------------------------------------------------------------------------------------ */

void pj_row_write_value(pj_json *json, pj_sql *sql, int column, const pj_column *what,
                        const pj_row_range *ranges)
{
    pj_value value;
    pj_sql_get_value(sql, column, &value);
    if (value.type == PJ_VALUE_INT && what->type == PJ_COLUMN_REFERENCE)
        value.integer -= ranges[what->kind].first;
    pj_column_write(json, what, &value);
}

void pj_row_write_members(pj_json *json, pj_sql *sql, pj_table_id id, const pj_row_range *ranges)
{
    const pj_row_table *table = &pj_tables[id];
    pj_json_kv_int(json, "id", pj_sql_get_int(sql, 0) - ranges[id].first);
    for (int c = 0; c < table->column_count; c++) {
        pj_json_key(json, table->columns[c].name);
        pj_row_write_value(json, sql, c + 1, &table->columns[c], ranges);
    }
}

/* ---- cached results --------------------------------------------------------------------- */

/* Before the items: distinguishes an empty list from a missing chart, and other structs from these.
 */
typedef struct kept_header {
    char magic[4];
    uint32_t item_bytes;
} kept_header;

static const char kept_magic[4] = {'P', 'J', 'K', '1'};

/* False: the chart is missing or another one, or out of memory. */
static bool read_items(const pj_view_chart *chart, const char *data, size_t bytes, pj_arena *arena,
                       void **items, uint32_t *count)
{
    kept_header header;
    size_t item = chart->item_bytes;
    if (!data || bytes < sizeof header) return false;
    memcpy(&header, data, sizeof header);
    bytes -= sizeof header;
    if (memcmp(header.magic, kept_magic, sizeof kept_magic) != 0 || header.item_bytes != item ||
        bytes % item || bytes / item >= UINT32_MAX)
        return false;
    *count = (uint32_t)(bytes / item);
    *items = pj_arena_alloc(arena, *count + 1, item);
    if (*items) memcpy(*items, data + sizeof header, bytes);
    return *items != NULL;
}

/* On failure the result is merely recomputed next time. */
static void view_keep(pj_store *store, const char *id, const char *chart, const pj_buffer *made)
{
    if (pj_store_enter_run(store, id, NULL, NULL) != PJ_OK ||
        pj_sql_transaction(store, PJ_WRITE_RUN, NULL) != PJ_OK)
        return;
    const pj_value data = pj_value_bytes(PJ_VALUE_BLOB, made->data, made->length);
    pj_status status =
        pj_sql_change(store,
                      "INSERT INTO run_charts (run_id, chart, data) VALUES (?, ?, ?)"
                      " ON CONFLICT (run_id, chart) DO UPDATE SET data = excluded.data",
                      PJ_VALUES(pj_value_text(id), pj_value_text(chart), data), NULL);
    pj_sql_finish(store, status, NULL);
}

pj_status pj_view_kept(pj_store *store, const char *id, const pj_view_chart *chart, void *context,
                       pj_arena *arena, void **items, uint32_t *count, pj_error *err)
{
    kept_header header = {.item_bytes = (uint32_t)chart->item_bytes};
    pj_buffer made;
    const char *data;
    char name[64];
    size_t bytes;
    snprintf(name, sizeof name, "%s%s", chart->name,
             store->leaves_out ? PJ_WITHOUT_DISTURBANCES : "");
    pj_sql *sql = pj_chart_begin(store, id, name, &data, &bytes, NULL);
    bool found = read_items(chart, data, bytes, arena, items, count);
    pj_sql_end(sql, NULL);
    if (found) return PJ_OK;
    memcpy(header.magic, kept_magic, sizeof header.magic);
    pj_buffer_init(&made, 64 << 20);
    pj_buffer_append(&made, &header, sizeof header);
    pj_status status = chart->make(context, &made, err);
    if (status == PJ_OK) status = pj_buffer_status(&made, "the statistics of a run", err);
    if (status == PJ_OK && !read_items(chart, made.data, made.length, arena, items, count))
        status = pj_fail_memory(err, "the statistics of a run");
    if (status == PJ_OK) view_keep(store, id, name, &made);
    pj_buffer_fini(&made);
    return status;
}
