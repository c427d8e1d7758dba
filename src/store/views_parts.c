/* Views of components and operations: of one token from its rows, of the whole run from the
 * sums. */
#include "base/json_document.h"
#include "store/store_impl.h"
#include "store/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums over all tokens -------------------------------------------------------------------- */

typedef struct part {
    const char *component, *operation;
    pj_sum_node sum;
    uint32_t *members; /* indices of the nodes summed */
} part;

typedef struct part_list {
    part *parts;
    uint32_t count;
} part_list;

static bool is_chosen(const pj_sum_nodes *nodes, const pj_sum_node *n, const pj_view_choice *choice,
                      int phase)
{
    return n->component != PJ_NO_NAME && (phase < 0 || n->phase == phase) &&
           (choice->layer == PJ_ANY || n->layer == choice->layer) &&
           (!choice->component || strcmp(nodes->names[n->component], choice->component) == 0);
}

/* Sums the chosen nodes by component and operation (`operations`), or by component. */
static pj_status views_parts_gather(pj_arena *arena, const pj_sum_nodes *nodes,
                                    const pj_view_choice *choice, int phase, bool operations,
                                    part_list *list, pj_error *err)
{
    list->parts = pj_arena_alloc(arena, nodes->node_count + 1, sizeof *list->parts);
    uint32_t *members = pj_arena_alloc(arena, nodes->node_count + 1, sizeof *members);
    if (!list->parts || !members) return pj_fail_memory(err, "the components of a run");
    list->count = 0;
    for (uint32_t i = 0; i < nodes->node_count; i++) {
        const pj_sum_node *n = &nodes->nodes[i];
        if ((n->operation != PJ_NO_NAME) != operations || !is_chosen(nodes, n, choice, phase))
            continue;
        const char *component = nodes->names[n->component];
        const char *operation = operations ? nodes->names[n->operation] : NULL;
        part *p = list->parts, *end = p + list->count;
        while (p < end && (p->component != component || p->operation != operation)) p++;
        if (p == end) *p = (part){.component = component, .operation = operation}, list->count++;
        pj_node_merge(&p->sum, n);
        members[i] = (uint32_t)(p - list->parts) + 1;
    }
    for (uint32_t p = 0; p < list->count; p++) list->parts[p].members = members;
    return PJ_OK;
}

/* Scalar extras, averaged over the rows that have them. */
static void write_mean_extras(pj_buffer *text, const pj_sum_nodes *nodes, const part_list *list,
                              uint32_t which)
{
    pj_json json;
    struct {
        uint32_t name, count;
        double sum;
    } means[64];
    uint32_t count = 0;
    const uint32_t *members = list->parts[which].members;
    for (uint32_t i = 0; i < nodes->node_count; i++) {
        if (members[i] != which + 1) continue;
        for (uint32_t e = nodes->nodes[i].first_extra; e; e = nodes->extras[e - 1].next) {
            const pj_extra_sum *extra = &nodes->extras[e - 1];
            uint32_t m = 0;
            while (m < count && means[m].name != extra->name) m++;
            if (m == 64) continue;
            if (m == count) {
                means[count].name = extra->name;
                means[count].count = 0;
                means[count++].sum = 0;
            }
            means[m].count += extra->count;
            means[m].sum += extra->sum;
        }
    }
    pj_buffer_clear(text);
    pj_json_init(&json, text);
    pj_json_object_begin(&json);
    for (uint32_t m = count; m-- > 0;) {
        pj_json_key(&json, nodes->names[means[m].name]);
        pj_json_float(&json, (float)(means[m].sum / means[m].count));
    }
    pj_json_object_end(&json);
}

/* At most: that of the gross energy, and of idle power for as long, of which the run's net energy
 * has no more than is uncertain in it. */
static double net_sd_of_sum(const pj_sum_node *n, const pj_run_info *info)
{
    return hypot(n->sd_mj, info->net_sd_mj * n->time_ms / info->total_ms);
}

static pj_part_figures figures_of_sum(const part *p, const pj_run_info *info,
                                      const pj_buffer *extras)
{
    const pj_sum_node *n = &p->sum;
    pj_part_figures f = {.component = p->component,
                         .operation = p->operation,
                         .layer = PJ_ANY,
                         .count = n->count,
                         .time_ms = n->time_ms,
                         .energy_mj = pj_mj_of_nj(n->gross_nj),
                         .net_energy_mj = pj_mj_of_nj(n->net_nj),
                         .self_energy_mj = pj_mj_of_nj(n->self_nj),
                         .energy_sd_mj = n->sd_mj,
                         .net_energy_sd_mj = net_sd_of_sum(n, info),
                         .planted_mj = pj_mj_of_nj(n->planted_nj),
                         .flops = n->flops,
                         .bytes = n->bytes,
                         .extras = pj_buffer_get(extras),
                         .extras_bytes = extras->length};
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++)
        f.statistics[s] = pj_node_statistic(n, (pj_statistic)s);
    return f;
}

static pj_status each_sum(pj_run_view *view, const pj_view_choice *choice, bool operations,
                          pj_part_fn *each, void *context, pj_error *err)
{
    pj_sum_nodes nodes;
    part_list list = {0};
    pj_buffer extras;
    int phase;
    pj_status status = pj_view_choose_phase(choice, &phase, err);
    if (status == PJ_OK) status = pj_view_load_nodes(view, &nodes, err);
    if (status == PJ_OK)
        status =
            views_parts_gather(&view->one.arena, &nodes, choice, phase, operations, &list, err);
    pj_buffer_init(&extras, 1 << 20);
    for (uint32_t i = 0; i < list.count && status == PJ_OK; i++) {
        write_mean_extras(&extras, &nodes, &list, i);
        pj_part_figures figures = figures_of_sum(&list.parts[i], view->info, &extras);
        each(context, &figures);
    }
    pj_buffer_fini(&extras);
    return status;
}

/* ---- rows of one token ----------------------------------------------------------------------- */

/* Component rows of token ?1, filtered by layer ?2 and name ?3 unless NULL. For a shared step, the
 * token's part: the fraction `s` of everything, plus `x` of the net energy of attention. */
/* clang-format off */
#define ROWS_OF_TOKEN(join, layer, layer_is)                                                     \
    "SELECT c.*, 1 - CAST(?5 AS double precision) * coalesce(c.disturbed_ms /"                   \
    " nullif(c.time_ms, 0), 0) AS remains, " layer " AS layer_index, CASE WHEN t.step_id IS NULL THEN 1 ELSE t.share END"  \
    " AS s, CASE WHEN t.step_id IS NULL OR c.component_name <> 'attention' THEN 0 ELSE"          \
    " t.context_share - t.share END AS x FROM tokens t JOIN " join " WHERE t.id = ?1 AND"        \
    " t.run_id = ?4 AND "                                                                        \
    layer_is " AND (CAST(?3 AS TEXT) IS NULL OR c.component_name = CAST(?3 AS TEXT))"
#define LAYER_IS(layer)                                                                          \
    "(CAST(?2 AS BIGINT) IS NULL OR " layer " = CAST(?2 AS BIGINT))"
#define IN_LAYER(of)                                                                             \
    ROWS_OF_TOKEN("layer_metrics l ON " of "/*RUN l=t*/ JOIN component_metrics c ON"             \
                  " c.layer_metric_id = l.id/*RUN c=l*/", "l.layer_index", LAYER_IS("l.layer_index"))
#define OUTSIDE(of)                                                                              \
    ROWS_OF_TOKEN("component_metrics c ON " of " AND c.layer_metric_id IS NULL/*RUN c=t*/",      \
                  "CAST(NULL AS BIGINT)",                                                        \
                  LAYER_IS("-1"))
#define COMPONENTS_OF_TOKEN                                                                      \
    "WITH chosen AS (" IN_LAYER("l.token_id = t.id") " UNION ALL "                               \
    IN_LAYER("l.step_id = t.step_id") " UNION ALL " OUTSIDE("c.token_id = t.id") " UNION ALL "   \
    OUTSIDE("c.step_id = t.step_id") ") "
/* The token's fraction of a row's energy. `remains`: without its disturbance, if ?5 is 1. */
#define RATIO(of) \
    "remains * (s + x * coalesce(" of "net_energy_mj / nullif(" of "energy_mj, 0), 1))"

#define SELECTED(ID, member, type, name, aggregate, unit, label, table, prefix) \
    ", " table PJ_STATISTIC_NAME_##type(prefix, name)

/* Columns as read by figures_of_row: FIRST_STATISTIC and later ones come from the table. */
enum { EXTRAS = 10, SELF_ENERGY, NET_SD, FIRST_STATISTIC };
static const char component_rows[] = COMPONENTS_OF_TOKEN
    "SELECT component_name, NULL, layer_index, time_ms * remains, energy_mj * " RATIO("") ","
    " net_energy_mj * remains * (s + x), energy_sd_mj * " RATIO("") ", planted_mj * " RATIO("") ","
    " flops_estimate, bytes_estimate, extra_metrics, self_energy_mj * " RATIO("") ","
    " net_energy_sd_mj * remains * (s + x)"
    PJ_SHOWN_STATISTICS(SELECTED, "", PJ_ACTIVATION) " FROM chosen ORDER BY id";
static const char operation_rows[] = COMPONENTS_OF_TOKEN
    "SELECT c.component_name, o.operation_name, c.layer_index, o.time_ms * remains, o.energy_mj * "
    RATIO("o.") ", o.net_energy_mj * remains * (s + x), o.energy_sd_mj * " RATIO("o.") ","
    " o.planted_mj * " RATIO("o.") ", o.flops_estimate, o.bytes_estimate,"
    " o.extra_metrics, NULL, o.net_energy_sd_mj * remains * (s + x)" PJ_SHOWN_STATISTICS(SELECTED, "o.", PJ_TENSOR)
    " FROM chosen c CROSS JOIN deep_operation_metrics o ON o.id BETWEEN c.first_operation_id AND"
    " c.first_operation_id + c.operation_count - 1/*RUN o=c*/ ORDER BY o.id";
/* clang-format on */

static pj_part_figures figures_of_row(pj_sql *sql, bool operation)
{
    pj_part_figures f = {.component = pj_sql_get_text(sql, 0, NULL),
                         .operation = operation ? pj_sql_get_text(sql, 1, NULL) : NULL,
                         .layer = -1,
                         .count = 1,
                         .time_ms = pj_sql_get_double(sql, 3),
                         .energy_mj = pj_sql_get_double(sql, 4),
                         .net_energy_mj = pj_sql_get_double(sql, 5),
                         .energy_sd_mj = pj_sql_get_double(sql, 6),
                         .planted_mj = pj_sql_get_double(sql, 7),
                         .flops = pj_sql_get_double(sql, 8),
                         .bytes = pj_sql_get_double(sql, 9),
                         .self_energy_mj = pj_sql_get_double(sql, SELF_ENERGY),
                         .net_energy_sd_mj = pj_sql_get_double(sql, NET_SD)};
    if (pj_sql_get_type(sql, 2) != PJ_VALUE_NULL) f.layer = (int32_t)pj_sql_get_int(sql, 2);
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++)
        f.statistics[s] = pj_sql_get_double(sql, FIRST_STATISTIC + s);
    f.extras = pj_sql_get_text(sql, EXTRAS, &f.extras_bytes);
    return f;
}

static pj_status each_row(pj_run_view *view, const pj_view_choice *choice, bool operations,
                          pj_part_fn *each, void *context, pj_error *err)
{
    pj_row_range tokens = view->ranges[PJ_TABLE_TOKENS];
    if (choice->token < 0 || choice->token >= tokens.count)
        return pj_fail(err, PJ_E_NOT_FOUND, "the run has no token %lld", (long long)choice->token);
    pj_sql *sql = pj_sql_begin(view->store, operations ? operation_rows : component_rows, err);
    pj_sql_int(sql, 1, tokens.first + choice->token);
    if (choice->layer != PJ_ANY) pj_sql_int(sql, 2, choice->layer);
    pj_sql_text(sql, 3, choice->component);
    pj_sql_text(sql, 4, view->info->id);
    pj_sql_double(sql, 5, view->store->leaves_out ? 1 : 0);
    while (pj_sql_step(sql)) {
        pj_part_figures figures = figures_of_row(sql, operations);
        each(context, &figures);
    }
    return pj_sql_end(sql, err);
}

/* ---- the views ------------------------------------------------------------------------------- */

static pj_status each_part(pj_run_view *view, const pj_view_choice *choice, bool operations,
                           pj_part_fn *each, void *context, pj_error *err)
{
    return choice->token == PJ_ANY ? each_sum(view, choice, operations, each, context, err)
                                   : each_row(view, choice, operations, each, context, err);
}

pj_status pj_view_each_part(pj_store *store, const char *id, const pj_view_choice *choice,
                            bool operations, pj_part_fn *each, void *context, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) status = each_part(&view, choice, operations, each, context, err);
    return pj_view_close(&view, status);
}

static void views_parts_write_part(void *context, const pj_part_figures *f)
{
    pj_json *json = context;
    bool sum = f->layer == PJ_ANY;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "component_name", f->component);
    if (f->operation) pj_json_kv_string(json, "operation_name", f->operation);
    if (f->layer == -1) pj_json_kv_null(json, "layer_index");
    if (f->layer >= 0) pj_json_kv_int(json, "layer_index", f->layer);
    pj_json_kv_uint(json, "count", f->count);
    pj_json_kv_double(json, "time_ms", f->time_ms);
    pj_json_kv_double(json, "energy_mj", f->energy_mj);
    pj_json_kv_double(json, "net_energy_mj", f->net_energy_mj);
    pj_json_kv_double(json, "energy_sd_mj", f->energy_sd_mj);
    pj_json_kv_double(json, "net_energy_sd_mj", f->net_energy_sd_mj);
    pj_json_kv_double(json, "planted_mj", f->planted_mj);
    pj_json_kv_double(json, "flops", f->flops);
    pj_json_kv_double(json, "bytes", f->bytes);
    if (!f->operation) pj_json_kv_double(json, "self_energy_mj", f->self_energy_mj);
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++) {
        pj_json_key(json, f->operation ? pj_statistics[s].tensor : pj_statistics[s].activation);
        if (sum)
            pj_json_double(json, f->statistics[s]);
        else
            pj_json_float(json, (float)f->statistics[s]); /* as it is stored */
    }
    pj_json_key(json, "extra_metrics");
    pj_json_document(json, f->extras ? f->extras : "{}", f->extras ? f->extras_bytes : 2);
    pj_json_object_end(json);
}

static void write_choice(pj_run_view *view, const pj_view_choice *choice)
{
    pj_json *json = view->json;
    pj_json_kv_optional(json, "layer", choice->layer != PJ_ANY, choice->layer);
    pj_json_kv_string(json, "component", choice->component);
    pj_json_kv_optional(json, "token", choice->token != PJ_ANY, choice->token);
    pj_json_kv_string(json, "phase", choice->phase);
}

pj_status pj_view_operations(pj_store *store, const char *id, const pj_view_choice *choice,
                             pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) {
        pj_json_object_begin(json);
        pj_view_head(&view, true);
        write_choice(&view, choice);
        for (int operations = 0; operations < 2 && status == PJ_OK; operations++) {
            pj_json_kv_array_begin(json, operations ? "operations" : "components");
            status = each_part(&view, choice, operations, views_parts_write_part, json, err);
            pj_json_array_end(json);
        }
        pj_json_object_end(json);
    }
    return pj_view_close(&view, status);
}

/* ---- components of a run --------------------------------------------------------------------- */

static int by_heat(const void *a, const void *b)
{
    const pj_component_sum *x = a, *y = b;
    double p = isnan(x->energy_mj) ? x->time_ms : x->energy_mj;
    double q = isnan(y->energy_mj) ? y->time_ms : y->energy_mj;
    return (p < q) - (p > q);
}

pj_status pj_view_component_sums(pj_store *store, const char *id, pj_arena *arena,
                                 pj_component_sum **sums, uint32_t *count, pj_error *err)
{
    static const pj_view_choice all = {.token = PJ_ANY, .layer = PJ_ANY};
    pj_run_view view;
    pj_sum_nodes nodes;
    part_list list = {0};
    double whole = NAN;
    *sums = NULL;
    *count = 0;
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) status = pj_view_load_nodes(&view, &nodes, err);
    if (status == PJ_OK)
        status = views_parts_gather(&view.one.arena, &nodes, &all, -1, false, &list, err);
    if (status == PJ_OK) {
        *sums = pj_arena_alloc(arena, list.count + 1, sizeof **sums);
        if (!*sums) status = pj_fail_memory(err, "the components of a run");
        whole = isnan(view.info->total_mj) || view.info->quality == PJ_UNAVAILABLE
                    ? view.info->total_ms
                    : view.info->total_mj;
    }
    for (uint32_t i = 0; i < list.count && status == PJ_OK; i++) {
        const part *p = &list.parts[i];
        const char *name = pj_arena_strndup(arena, p->component, strlen(p->component));
        if (!name) status = pj_fail_memory(err, "the components of a run");
        double mj = pj_mj_of_nj(p->sum.gross_nj), heat = isnan(mj) ? p->sum.time_ms : mj;
        (*sums)[i] = (pj_component_sum){
            name,         p->sum.count, p->sum.time_ms, mj,
            p->sum.sd_mj, p->sum.flops, p->sum.bytes,   whole > 0 ? heat / whole : NAN};
        *count = i + 1;
    }
    if (status == PJ_OK && *count) qsort(*sums, *count, sizeof **sums, by_heat);
    return pj_view_close(&view, status);
}
