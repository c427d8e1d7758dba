/* Views of whole runs: lists, one run with its rows, summary statistics. */
#include "base/json_document.h"
#include "base/median.h"
#include "store/run_summary.h"
#include "store/store_impl.h"
#include "store/view.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- lists ----------------------------------------------------------------------------------- */

/* A list of any length takes the memory of a page: a slow reader holds it for minutes. */
enum { LIST_PAGE = 200 };

static pj_status write_runs(pj_store *store, const pj_run_query *query, const char *ids,
                            size_t count, const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    pj_run_list list;
    pj_run_query page = {.sort = query->sort, .ascending = query->ascending, .ids = ids};
    page.id_count = page.limit = (uint32_t)(count < LIST_PAGE ? count : LIST_PAGE);
    pj_status status = pj_store_list(store, &page, &list, err);
    if (status != PJ_OK) return status;
    for (uint32_t i = 0; i < list.count; i++) pj_summary_write(json, &list.runs[i], rates);
    pj_run_list_fini(&list);
    return PJ_OK;
}

pj_status pj_view_runs_after(const pj_run_info *const *first, uint32_t first_count, pj_store *store,
                             const pj_run_query *query, const pj_cost_rates *rates, pj_json *json,
                             uint64_t *total, pj_error *err)
{
    pj_buffer ids;
    uint32_t limit = query->limit ? query->limit : PJ_QUERY_LIMIT;
    pj_buffer_init(&ids, (size_t)limit * PJ_UUID_BYTES + 1);
    pj_status status = pj_store_list_ids(store, query, &ids, total, err);
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < first_count; i++) pj_summary_write(json, first[i], rates);
    const char *end = ids.data + ids.length;
    for (const char *id = ids.data; status == PJ_OK && !json->failed && id < end;
         id += (size_t)LIST_PAGE * PJ_UUID_BYTES)
        status = write_runs(store, query, id, (size_t)(end - id) / PJ_UUID_BYTES, rates, json, err);
    pj_json_array_end(json);
    pj_buffer_fini(&ids);
    return status;
}

pj_status pj_view_runs(pj_store *store, const pj_run_query *query, const pj_cost_rates *rates,
                       pj_json *json, uint64_t *total, pj_error *err)
{
    return pj_view_runs_after(NULL, 0, store, query, rates, json, total, err);
}

enum { FACET_VALUES_MAX = 1000 };

/* Rows of (number of the facet, name, runs), ordered by the facet, as one array for each of `keys`.
 */
static pj_status write_facet_rows(pj_sql *sql, pj_json *json, const char *const *keys, int count,
                                  pj_error *err)
{
    bool more = pj_sql_step(sql);
    for (int i = 0; i < count; i++) {
        pj_json_kv_array_begin(json, keys[i]);
        for (int n = 0; more && pj_sql_get_int(sql, 0) == i; more = pj_sql_step(sql)) {
            if (n++ >= FACET_VALUES_MAX) continue;
            pj_json_object_begin(json);
            pj_json_kv_string(json, "name", pj_sql_get_text(sql, 1, NULL));
            pj_json_kv_int(json, "runs", pj_sql_get_int(sql, 2));
            pj_json_object_end(json);
        }
        pj_json_array_end(json);
    }
    return pj_sql_end(sql, err);
}

/* One pass over the runs, from an index where there is one (listed_runs in driver.h), counts each
 * combination of values; the facets are sums over the combinations. */
static pj_sql *begin_run_facets(pj_store *store, pj_error *err)
{
#define FACETS "model_name, experiment_name, engine, dtype, machine, status"
    enum { FACET_COUNT = 6 };
    static const char *const facets[FACET_COUNT] = {"model_name", "experiment_name", "engine",
                                                    "dtype",      "machine",         "status"};
    const char *listed = store->driver->listed_runs;
    char from[2048], text[8192];
    if (listed)
        snprintf(from, sizeof from,
                 "(SELECT " FACETS " FROM profiling_runs WHERE %s UNION ALL SELECT " FACETS
                 " FROM profiling_runs WHERE NOT %s) AS runs",
                 listed, listed);
    else
        snprintf(from, sizeof from, "profiling_runs");
    int n = snprintf(
        text, sizeof text,
        "WITH kinds AS (SELECT " FACETS ", count(*) AS runs FROM %s GROUP BY " FACETS ") ", from);
    for (int i = 0; i < FACET_COUNT; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%sSELECT %d, %s, CAST(sum(runs) AS bigint) FROM kinds WHERE %s IS NOT NULL"
                      " GROUP BY %s",
                      i ? " UNION ALL " : "", i, facets[i], facets[i], facets[i]);
    snprintf(text + n, sizeof text - (size_t)n, " ORDER BY 1, 3 DESC, 2");
#undef FACETS
    return pj_sql_begin(store, text, err);
}

pj_status pj_view_facets(pj_store *store, pj_json *json, pj_error *err)
{
    static const char *const keys[] = {"models", "experiments", "engines",
                                       "dtypes", "machines",    "statuses"};
    static const char *const tag_keys[] = {"tags"};
    static const char tags[] =
        "SELECT 0, tag, count(*) FROM run_tags GROUP BY tag ORDER BY 3 DESC, 2 LIMIT 1000";
    pj_json_object_begin(json);
    pj_status status = write_facet_rows(pj_sql_begin(store, tags, err), json, tag_keys, 1, err);
    if (status == PJ_OK)
        status = write_facet_rows(begin_run_facets(store, err), json, keys, 6, err);
    pj_json_object_end(json);
    return status;
}

/* ---- parts used by both the run and its summary ----------------------------------------- */

/* Columns of small tables that are shown under another name, or instead of which something else is.
 */
typedef struct shown_as {
    pj_table_id table;
    const char *column, *name, *select; /* select NULL: the column */
} shown_as;

static const shown_as renamed[] = {
    {PJ_TABLE_RAILS, "rail_index", "index", NULL},
    {PJ_TABLE_RAILS, "rail_name", "name", NULL},
    {PJ_TABLE_RAILS, "rail_class", "class", NULL},
    {PJ_TABLE_RAILS, "parent_index", "parent",
     "(SELECT rail_name FROM run_rails p WHERE p.run_id = run_rails.run_id AND p.rail_index ="
     " run_rails.parent_index)"},
    {PJ_TABLE_RAIL_ENERGY, "rail_index", "rail",
     "(SELECT rail_name FROM run_rails r WHERE r.run_id = run_rail_energy.run_id"
     " AND r.rail_index = run_rail_energy.rail_index)"},
    {PJ_TABLE_CLASSES, "class_name", "name", NULL},
};

static shown_as show_column(pj_table_id table, const char *column)
{
    shown_as shown = {table, column, column, column};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (renamed[i].table == table && strcmp(renamed[i].column, column) == 0) shown = renamed[i];
    if (!shown.select) shown.select = column;
    return shown;
}

/* All rows of a small table as objects. */
static pj_status views_run_write_rows(pj_run_view *view, pj_table_id id, const char *key,
                                      pj_error *err)
{
    char list[2048];
    int n = 0;
    const pj_row_table *table = &pj_tables[id];
    for (int i = 0; i < table->column_count; i++)
        n += snprintf(list + n, sizeof list - (size_t)n, "%s%s", i ? ", " : "",
                      show_column(id, table->columns[i].name).select);
    pj_sql *sql = pj_view_select(view, id, list, "ORDER BY id", err);
    pj_json *json = view->json;
    pj_json_kv_array_begin(json, key);
    while (pj_sql_step(sql)) {
        pj_json_object_begin(json);
        for (int i = 0; i < table->column_count; i++) {
            pj_json_key(json, show_column(id, table->columns[i].name).name);
            pj_row_write_value(json, sql, i, &table->columns[i], view->ranges);
        }
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return pj_sql_end(sql, err);
}

/* The events; null: not judged. Left out, they still say what was. */
static void write_disturbances(pj_run_view *view)
{
    const char *list = view->info->disturbances_json;
    pj_json_key(view->json, "disturbances");
    pj_json_document(view->json, list, list ? strlen(list) : 0);
}

static pj_status write_common(pj_run_view *view, pj_error *err)
{
    static const struct {
        const char *name;
        pj_table_id table;
    } counted[] = {{"samples", PJ_TABLE_SAMPLES},      {"phases", PJ_TABLE_PHASES},
                   {"sections", PJ_TABLE_SECTIONS},    {"tokens", PJ_TABLE_TOKENS},
                   {"layers", PJ_TABLE_LAYERS},        {"components", PJ_TABLE_COMPONENTS},
                   {"operations", PJ_TABLE_OPERATIONS}};
    pj_status status = pj_view_write_phases(view, &(pj_view_window){0}, false, err);
    write_disturbances(view);
    if (status == PJ_OK)
        status = views_run_write_rows(view, PJ_TABLE_RAIL_ENERGY, "rail_energy", err);
    if (status == PJ_OK) status = views_run_write_rows(view, PJ_TABLE_CLASSES, "classes", err);
    if (status == PJ_OK) status = views_run_write_rows(view, PJ_TABLE_WARNINGS, "warnings", err);
    pj_json_kv_object_begin(view->json, "counts");
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        pj_json_kv_uint(view->json, counted[i].name, view->ranges[counted[i].table].count);
    pj_json_object_end(view->json);
    return status;
}

/* ---- the whole run --------------------------------------------------------------------------- */

static bool is_included(const char *include, const char *name)
{
    size_t length = strlen(name);
    if (!include || !*include) return true;
    for (const char *at = include; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length])) return true;
    return false;
}

static pj_status write_page(pj_run_view *view, pj_table_id id, const pj_view_page *page,
                            pj_error *err)
{
    char columns[2048];
    pj_json *json = view->json;
    uint32_t limit = page->limit ? page->limit : 1000;
    uint64_t offset = page->offset < UINT32_MAX ? page->offset : UINT32_MAX;
    if (limit > 100000) limit = 100000;
    pj_table_list_columns(&pj_tables[id], "id", columns, sizeof columns);
    pj_json_kv_object_begin(json, pj_tables[id].name);
    pj_json_kv_uint(json, "total", view->ranges[id].count);
    pj_json_kv_uint(json, "offset", offset);
    pj_json_kv_uint(json, "limit", limit);
    pj_json_kv_array_begin(json, "rows");
    pj_sql *sql = pj_view_select(view, id, columns, "AND id >= ?3 ORDER BY id LIMIT ?4", err);
    pj_sql_int(sql, 3, view->ranges[id].first + (int64_t)offset);
    pj_sql_int(sql, 4, limit);
    while (pj_sql_step(sql)) {
        pj_json_object_begin(json);
        pj_row_write_members(json, sql, id, view->ranges);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
    return pj_sql_end(sql, err);
}

static pj_status views_run_write_run(pj_run_view *view, const pj_view_page *page,
                                     const pj_cost_rates *rates, pj_error *err)
{
    static const pj_table_id large[] = {PJ_TABLE_SAMPLES, PJ_TABLE_SECTIONS,   PJ_TABLE_TOKENS,
                                        PJ_TABLE_LAYERS,  PJ_TABLE_COMPONENTS, PJ_TABLE_OPERATIONS};
    pj_json *json = view->json;
    pj_json_object_begin(json);
    pj_summary_write_members(json, view->info, rates);
    pj_json_kv_string(json, "output_text", view->info->output_text);
    pj_json_key(json, "machine_info");
    const char *machine = view->info->machine_json;
    pj_json_document(json, machine, machine ? strlen(machine) : 0);
    pj_status status = views_run_write_rows(view, PJ_TABLE_RAILS, "rails", err);
    if (status == PJ_OK) status = write_common(view, err);
    for (size_t i = 0; i < sizeof large / sizeof *large && status == PJ_OK; i++)
        if (is_included(page->include, pj_tables[large[i]].name))
            status = write_page(view, large[i], page, err);
    pj_json_object_end(json);
    return status;
}

pj_status pj_view_run(pj_store *store, const char *id, const pj_view_page *page,
                      const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) status = views_run_write_run(&view, page, rates, err);
    return pj_view_close(&view, status);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Quantile by linear interpolation between order statistics (the usual definition). */
static double views_run_quantile(const double *sorted, uint32_t n, double q)
{
    double at = q * (n - 1);
    uint32_t low = (uint32_t)at;
    return low + 1 < n ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

/* Sorts the values; ignores NANs. */
static void write_statistics(pj_json *json, double *values, uint32_t count)
{
    static const struct {
        const char *name;
        double q;
    } points[] = {{"min", 0},   {"p5", 0.05},  {"q1", 0.25}, {"median", 0.5},
                  {"q3", 0.75}, {"p95", 0.95}, {"max", 1}};
    uint32_t n = 0;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!isnan(values[i])) values[n++] = values[i];
    for (uint32_t i = 0; i < n; i++) sum += values[i];
    double mean = n ? sum / n : NAN;
    for (uint32_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    if (n) pj_sort_doubles(values, n);
    pj_json_kv_uint(json, "n", n);
    pj_json_kv_double(json, "mean", mean);
    pj_json_kv_double(json, "sd", n > 1 ? sqrt(squares / (n - 1)) : NAN);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        pj_json_kv_double(json, points[i].name,
                          n ? views_run_quantile(values, n, points[i].q) : NAN);
}

static void write_named_statistics(pj_json *json, const char *key, double *values, uint32_t count)
{
    pj_json_kv_object_begin(json, key);
    write_statistics(json, values, count);
    pj_json_object_end(json);
}

static pj_status write_token_statistics(pj_run_view *view, pj_json *json, pj_error *err)
{
    pj_token_series s;
    pj_status status = pj_view_token_series(view->store, view->info->id, &view->one.arena, &s, err);
    if (status != PJ_OK) return status;
    double *power = pj_arena_alloc(&view->one.arena, s.count + 1, sizeof *power);
    if (!power) return pj_fail_memory(err, "statistics of tokens");
    for (uint32_t i = 0; i < s.count; i++)
        power[i] = s.duration_ms[i] > 0 ? s.energy_mj[i] * 1000 / s.duration_ms[i] : NAN;
    pj_json_object_begin(json);
    write_named_statistics(json, "duration_ms", s.duration_ms, s.count);
    write_named_statistics(json, "energy_mj", s.energy_mj, s.count);
    write_named_statistics(json, "power_mw", power, s.count);
    pj_json_object_end(json);
    return PJ_OK;
}

static pj_status write_power_statistics(pj_run_view *view, pj_json *json, pj_error *err)
{
    pj_power_series s;
    pj_status status = pj_view_power_series(view->store, view->info->id, &view->one.arena, &s, err);
    if (status != PJ_OK) return status;
    double *values = pj_arena_alloc(&view->one.arena, s.count + 1, sizeof *values);
    if (!values) return pj_fail_memory(err, "statistics of power");
    pj_json_array_begin(json);
    for (int p = 0; p < PJ_PHASE_COUNT; p++)
        for (int c = 0; c <= PJ_RAIL_TOTAL && s.count; c++) {
            uint32_t n = 0;
            for (uint32_t i = 0; i < s.count; i++)
                if (s.phase[i] == p && !isnan(s.columns[c][i])) values[n++] = s.columns[c][i];
            if (n == 0) continue;
            pj_json_object_begin(json);
            pj_json_kv_string(json, "phase", pj_phase_name((pj_phase)p));
            pj_json_kv_string(json, "column", pj_rail_class_column((pj_rail_class)c));
            write_statistics(json, values, n);
            pj_json_object_end(json);
        }
    pj_json_array_end(json);
    return PJ_OK;
}

typedef struct statistics {
    pj_run_view *view;
    pj_status (*write)(pj_run_view *view, pj_json *json, pj_error *err);
} statistics;

static pj_status make_statistics(void *context, pj_buffer *text, pj_error *err)
{
    const statistics *s = context;
    pj_json json;
    pj_json_init(&json, text);
    return s->write(s->view, &json, err);
}

/* Nothing but this answer needs them, so the text itself is kept. */
static pj_status write_kept(pj_run_view *view, const char *key, statistics s, pj_error *err)
{
    void *text;
    uint32_t bytes;
    pj_view_chart chart = {key, 1, make_statistics};
    pj_status status =
        pj_view_kept(view->store, view->info->id, &chart, &s, &view->one.arena, &text, &bytes, err);
    if (status != PJ_OK) return status;
    pj_json_key(view->json, key);
    pj_json_document(view->json, text, bytes);
    return PJ_OK;
}

/* ---- layers and components ------------------------------------------------------------------- */

static const char *const part_names[] = {"attention", "mlp", "other"};

static int part_of(const char *component)
{
    pj_part part = pj_component_part(component);
    return part == PJ_PART_ATTENTION ? 0 : part == PJ_PART_MLP ? 1 : 2;
}

typedef struct layer_nodes {
    pj_sum_node whole, parts[3]; /* by part_of */
} layer_nodes;

static double joules_or_nan(const pj_sum_node *n)
{
    return n->count ? pj_mj_of_nj(n->gross_nj) : NAN;
}

/* What is neither attention nor MLP, the layer's own time between its components included, so that
 * the three add up to the layer. */
static double other_joules(const layer_nodes *l)
{
    double attention = joules_or_nan(&l->parts[0]), mlp = joules_or_nan(&l->parts[1]);
    return joules_or_nan(&l->whole) - (isnan(attention) ? 0 : attention) - (isnan(mlp) ? 0 : mlp);
}

static pj_status sum_layers(pj_run_view *view, pj_arena *arena, pj_layer_sum **sums,
                            uint32_t *count, pj_error *err)
{
    pj_sum_nodes nodes;
    pj_status status = pj_view_load_nodes(view, &nodes, err);
    if (status != PJ_OK) return status;
    layer_nodes *layers = pj_arena_alloc(&view->one.arena, nodes.layer_count + 1, sizeof *layers);
    *sums = pj_arena_alloc(arena, nodes.layer_count + 1, sizeof **sums);
    if (!layers || !*sums) return pj_fail_memory(err, "the layers of a run");
    for (uint32_t i = 0; i < nodes.node_count; i++) {
        const pj_sum_node *n = &nodes.nodes[i];
        if (n->layer < 0 || n->operation != PJ_NO_NAME) continue;
        if (n->component == PJ_NO_NAME) {
            pj_node_merge(&layers[n->layer].whole, n);
            continue;
        }
        pj_node_merge(&layers[n->layer].parts[part_of(nodes.names[n->component])], n);
    }
    *count = nodes.layer_count;
    for (uint32_t l = 0; l < nodes.layer_count; l++) {
        const pj_sum_node *whole = &layers[l].whole, *parts = layers[l].parts;
        (*sums)[l] = (pj_layer_sum){whole->time_ms,
                                    whole->attention_ms,
                                    whole->mlp_ms,
                                    joules_or_nan(whole),
                                    joules_or_nan(&parts[0]),
                                    joules_or_nan(&parts[1]),
                                    other_joules(&layers[l]),
                                    whole->sd_mj,
                                    parts[0].sd_mj,
                                    parts[1].sd_mj};
    }
    return PJ_OK;
}

pj_status pj_view_layer_sums(pj_store *store, const char *id, pj_arena *arena, pj_layer_sum **sums,
                             uint32_t *count, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) status = sum_layers(&view, arena, sums, count, err);
    return pj_view_close(&view, status);
}

static pj_status write_layers(pj_run_view *view, pj_error *err)
{
    pj_json *json = view->json;
    pj_layer_sum *layers;
    uint32_t count;
    pj_status status = sum_layers(view, &view->one.arena, &layers, &count, err);
    if (status != PJ_OK) return status;
    pj_json_kv_array_begin(json, "layers");
    for (uint32_t l = 0; l < count; l++) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "layer", l);
        pj_json_kv_double(json, "time_ms", layers[l].time_ms);
        pj_json_kv_double(json, "attention_ms", layers[l].attention_ms);
        pj_json_kv_double(json, "mlp_ms", layers[l].mlp_ms);
        pj_json_kv_double(json, "energy_mj", layers[l].energy_mj);
        pj_json_kv_double(json, "energy_sd_mj", layers[l].energy_sd_mj);
        pj_json_kv_double(json, "attention_energy_mj", layers[l].attention_mj);
        pj_json_kv_double(json, "attention_energy_sd_mj", layers[l].attention_sd_mj);
        pj_json_kv_double(json, "mlp_energy_mj", layers[l].mlp_mj);
        pj_json_kv_double(json, "mlp_energy_sd_mj", layers[l].mlp_sd_mj);
        pj_json_kv_double(json, "other_energy_mj", layers[l].other_mj);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return PJ_OK;
}

/* Times between events that the host recorded too late are no basis for rates. */
static bool views_run_waits(const pj_run_info *info)
{
    json_t *settings = info->settings_json ? json_loads(info->settings_json, 0, NULL) : NULL;
    const char *how = json_string_value(json_object_get(settings, "module_times"));
    bool waits = how && strstr(how, "waiting for launches");
    json_decref(settings);
    return waits;
}

static void views_run_write_component(pj_json *json, const pj_component_sum *c, bool waits)
{
    double seconds = c->time_ms / 1e3;
    double rated_s = waits ? 0 : seconds;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "component_name", c->name);
    pj_json_kv_uint(json, "count", c->count);
    pj_json_kv_double(json, "time_ms", c->time_ms);
    pj_json_kv_double(json, "energy_mj", c->energy_mj);
    pj_json_kv_double(json, "energy_sd_mj", c->energy_sd_mj);
    pj_json_kv_double(json, "share", c->share);
    pj_json_kv_double(json, "power_mw", seconds > 0 ? c->energy_mj / seconds : NAN);
    pj_json_kv_double(json, "flops", c->flops);
    pj_json_kv_double(json, "bytes", c->bytes);
    pj_json_kv_double(json, "intensity", c->bytes > 0 ? c->flops / c->bytes : NAN);
    pj_json_kv_double(json, "gflops_per_s", rated_s > 0 ? c->flops / rated_s / 1e9 : NAN);
    pj_json_kv_double(json, "gbytes_per_s", rated_s > 0 ? c->bytes / rated_s / 1e9 : NAN);
    pj_json_kv_double(json, "pj_per_flop", c->flops > 0 ? c->energy_mj * 1e9 / c->flops : NAN);
    pj_json_kv_double(json, "pj_per_byte", c->bytes > 0 ? c->energy_mj * 1e9 / c->bytes : NAN);
    pj_json_kv_string(json, "part", part_names[part_of(c->name)]);
    pj_json_object_end(json);
}

static pj_status views_run_write_components(pj_run_view *view, pj_error *err)
{
    pj_component_sum *sums;
    uint32_t count;
    pj_status status =
        pj_view_component_sums(view->store, view->info->id, &view->one.arena, &sums, &count, err);
    if (status != PJ_OK) return status;
    pj_json_kv_array_begin(view->json, "components");
    bool waits = views_run_waits(view->info);
    for (uint32_t i = 0; i < count; i++) views_run_write_component(view->json, &sums[i], waits);
    pj_json_array_end(view->json);
    return PJ_OK;
}

pj_status pj_view_summary_members(pj_store *store, const char *id, const pj_cost_rates *rates,
                                  pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) {
        pj_summary_write_members(json, view.info, rates);
        status = write_common(&view, err);
    }
    if (status == PJ_OK)
        status =
            write_kept(&view, "token_statistics", (statistics){&view, write_token_statistics}, err);
    if (status == PJ_OK)
        status =
            write_kept(&view, "power_statistics", (statistics){&view, write_power_statistics}, err);
    if (status == PJ_OK) status = write_layers(&view, err);
    if (status == PJ_OK) status = views_run_write_components(&view, err);
    return pj_view_close(&view, status);
}
