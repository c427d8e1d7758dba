/* Views based on the sums of a run: heatmap, cube, tree, operations, components. */
#include "store/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double pj_node_statistic(const pj_sum_node *n, pj_statistic statistic)
{
    if (statistic >= PJ_STATISTIC_SHOWN || n->stats_count == 0) return NAN;
    double value = n->statistics[statistic];
    return pj_statistics[statistic].aggregate == PJ_AGGREGATE_MEAN ? value / n->stats_count : value;
}

static double node_metric(const pj_sum_node *n, pj_metric metric)
{
    double mj = pj_mj_of_nj(n->gross_nj);
    switch (metric) {
    case PJ_METRIC_TIME: return n->time_ms;
    case PJ_METRIC_ENERGY: return mj;
    case PJ_METRIC_POWER: return n->time_ms > 0 ? mj * 1000 / n->time_ms : NAN;
    case PJ_METRIC_ENTROPY: return n->entropy_count ? n->entropy_sum / n->entropy_count : NAN;
    case PJ_METRIC_FLOPS: return n->flops;
    case PJ_METRIC_BYTES: return n->bytes;
    default: return pj_node_statistic(n, pj_metric_statistic(metric));
    }
}

pj_status pj_view_choose_phase(const pj_view_choice *choice, int *phase, pj_error *err)
{
    *phase = choice->phase ? pj_phase_parse(choice->phase) : -1;
    if (choice->phase && *phase < 0)
        return pj_fail(err, PJ_E_INVALID, "unknown phase %s (use one of %s)", choice->phase,
                       PJ_PHASE_CHOICES);
    return PJ_OK;
}

/* ---- planes ---------------------------------------------------------------------------------- */

typedef struct plane_view {
    uint32_t tokens, layers, components; /* layers excludes the one outside; 0: nothing stored */
    const char **names;
    const float *values; /* of one token, or of all */
} plane_view;

static pj_status read_component_names(pj_run_view *view, plane_view *plane, pj_error *err)
{
    pj_status status = PJ_OK;
    const char *blob;
    size_t bytes;
    pj_sql *sql = pj_chart_begin(view->store, view->info->id, "components", &blob, &bytes, err);
    char *copy = pj_arena_strndup(&view->one.arena, blob ? blob : "", bytes);
    plane->names = pj_arena_alloc(&view->one.arena, bytes + 1, sizeof *plane->names);
    if (!copy || !plane->names) status = pj_fail_memory(err, "the heatmap of a run");
    for (size_t at = 0; status == PJ_OK && at < bytes; at += strlen(copy + at) + 1)
        plane->names[plane->components++] = copy + at;
    return pj_sql_end_after(sql, status, err);
}

static pj_status check_plane(const pj_plane_header *header, size_t bytes, uint32_t components,
                             pj_error *err)
{
    size_t cells;
    if (memcmp(header->magic, "PJCUBE1", 8) == 0 && header->layers > 0 &&
        header->components == components &&
        !pj_mul_overflows((size_t)header->layers * header->components, header->tokens, &cells) &&
        cells <= SIZE_MAX / 8 && bytes == sizeof *header + cells * sizeof(float))
        return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "the stored heatmap of a run is damaged: export and import "
                   "it to recreate it");
}

/* Reads the plane of one token (PJ_ANY: of all). If the plane was not stored, values stays NULL. */
static pj_status read_plane(pj_run_view *view, pj_metric which, int64_t token, plane_view *plane,
                            pj_error *err)
{
    pj_plane_header header = {0};
    const char *blob;
    size_t bytes;
    pj_sql *sql = pj_chart_begin(view->store, view->info->id, pj_metric_table[which].plane, &blob,
                                 &bytes, err);
    if (!blob) return pj_sql_end(sql, err);
    if (bytes >= sizeof header) memcpy(&header, blob, sizeof header);
    pj_status status = check_plane(&header, bytes, plane->components, err);
    if (status == PJ_OK && token != PJ_ANY && token >= header.tokens)
        status = pj_fail(err, PJ_E_NOT_FOUND, "the run has no token %lld (0 to %u)",
                         (long long)token, header.tokens - 1);
    if (status != PJ_OK) return pj_sql_end_after(sql, status, err);
    size_t matrix = (size_t)header.layers * header.components;
    size_t cells = token == PJ_ANY ? matrix * header.tokens : matrix;
    size_t skip = token == PJ_ANY ? 0 : matrix * (size_t)token;
    float *copy = pj_arena_alloc(&view->one.arena, cells + 1, sizeof *copy);
    if (copy)
        memcpy(copy, blob + sizeof header + skip * sizeof *copy, cells * sizeof *copy);
    else
        status = pj_fail_memory(err, "the heatmap of a run");
    plane->values = copy;
    plane->tokens = header.tokens;
    plane->layers = header.layers - 1;
    return pj_sql_end_after(sql, status, err);
}

/* Power is computed from energy and time. */
static pj_status read_metric_plane(pj_run_view *view, pj_metric metric, int64_t token,
                                   plane_view *plane, pj_error *err)
{
    if (pj_metric_table[metric].plane) return read_plane(view, metric, token, plane, err);
    if (metric != PJ_METRIC_POWER)
        return pj_fail(err, PJ_E_INVALID, "there is no heatmap of %s",
                       pj_metric_table[metric].name);
    plane_view time = *plane;
    pj_status status = read_plane(view, PJ_METRIC_TIME, token, &time, err);
    if (status == PJ_OK) status = read_plane(view, PJ_METRIC_ENERGY, token, plane, err);
    if (status != PJ_OK || !plane->values || !time.values) return status;
    size_t cells =
        (size_t)(plane->layers + 1) * plane->components * (token == PJ_ANY ? plane->tokens : 1);
    float *power = pj_arena_alloc(&view->one.arena, cells + 1, sizeof *power);
    if (!power) return pj_fail_memory(err, "the heatmap of a run");
    for (size_t i = 0; i < cells; i++)
        power[i] = time.values[i] > 0 ? plane->values[i] * 1000 / time.values[i] : NAN;
    plane->values = power;
    return PJ_OK;
}

/* Components that occur inside layers; taken from the sums, so that every token and metric has the
 * same columns. */
static pj_status find_inside(pj_run_view *view, const char *const *names, uint32_t count,
                             bool **inside, uint32_t *layers, pj_error *err)
{
    pj_sum_nodes nodes;
    pj_status status = pj_view_load_nodes(view, &nodes, err);
    if (status != PJ_OK) return status;
    *layers = nodes.layer_count;
    *inside = pj_arena_alloc(&view->one.arena, count + 1, sizeof **inside);
    if (!*inside) return pj_fail_memory(err, "the heatmap of a run");
    for (uint32_t i = 0; i < nodes.node_count; i++) {
        const pj_sum_node *n = &nodes.nodes[i];
        if (n->layer < 0 || n->component == PJ_NO_NAME || n->operation != PJ_NO_NAME) continue;
        for (uint32_t c = 0; c < count; c++)
            if (strcmp(names[c], nodes.names[n->component]) == 0) (*inside)[c] = true;
    }
    return PJ_OK;
}

/* The cube's columns are those of the JSON heatmap: components that some layer has; with what lies
 * outside, its `all_components`. */
static void append_cube(pj_buffer *out, const plane_view *plane, const bool *inside, bool outside)
{
    uint32_t columns = 0;
    for (uint32_t c = 0; c < plane->components; c++) columns += inside[c];
    if (outside) columns = plane->components;
    pj_plane_header header = {"PJCUBE1", plane->tokens, plane->layers + outside, columns, 0};
    pj_buffer_append(out, &header, sizeof header);
    if (outside) { /* as it is stored */
        size_t cells = (size_t)plane->tokens * (plane->layers + 1) * columns;
        if (plane->values) pj_buffer_append(out, plane->values, cells * sizeof(float));
        return;
    }
    for (uint32_t t = 0; t < plane->tokens; t++)
        for (uint32_t l = 0; l < plane->layers; l++) {
            size_t row = ((size_t)t * (plane->layers + 1) + l) * plane->components;
            for (uint32_t c = 0; c < plane->components; c++)
                if (inside[c]) pj_buffer_append(out, plane->values + row + c, sizeof(float));
        }
}

pj_status pj_view_cube(pj_store *store, const char *id, pj_metric metric, bool outside,
                       pj_buffer *out, pj_error *err)
{
    pj_run_view view;
    plane_view plane = {0};
    bool *inside = NULL;
    uint32_t layers;
    bool without = pj_store_leaves_out_disturbances(store);
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    pj_store_leave_out_disturbances(store, true);
    if (status == PJ_OK) status = read_component_names(&view, &plane, err);
    if (status == PJ_OK) status = read_metric_plane(&view, metric, PJ_ANY, &plane, err);
    pj_store_leave_out_disturbances(store, without);
    if (status == PJ_OK)
        status = find_inside(&view, plane.names, plane.components, &inside, &layers, err);
    if (status == PJ_OK) {
        append_cube(out, &plane, inside, outside);
        status = pj_buffer_status(out, "the heatmap of a run", err);
    }
    return pj_view_close(&view, status);
}

/* ---- heatmap --------------------------------------------------------------------------------- */

static pj_status matrix_of_token(pj_run_view *view, const pj_view_choice *choice, pj_heatmap *m,
                                 pj_error *err)
{
    plane_view plane = {.names = m->names, .components = m->components};
    pj_status status = read_metric_plane(view, choice->metric, choice->token, &plane, err);
    if (status != PJ_OK || !plane.values) return status;
    m->layers = plane.layers;
    size_t cells = (size_t)(m->layers + 1) * m->components;
    m->values = pj_arena_alloc(&view->one.arena, cells + 1, sizeof(double));
    if (!m->values) return pj_fail_memory(err, "the heatmap of a run");
    for (size_t i = 0; i < cells; i++) m->values[i] = (double)plane.values[i];
    return PJ_OK;
}

static pj_status matrix_of_sums(pj_run_view *view, const pj_view_choice *choice, pj_heatmap *m,
                                pj_error *err)
{
    pj_sum_nodes nodes;
    int phase;
    pj_status status = pj_view_choose_phase(choice, &phase, err);
    if (status == PJ_OK) status = pj_view_load_nodes(view, &nodes, err);
    if (status != PJ_OK || nodes.node_count == 0) return status;
    m->layers = nodes.layer_count;
    size_t cells = (size_t)(m->layers + 1) * m->components;
    uint32_t *column = pj_arena_alloc(&view->one.arena, nodes.name_count + 1, sizeof *column);
    pj_sum_node *sums = pj_arena_alloc(&view->one.arena, cells + 1, sizeof *sums);
    m->values = pj_arena_alloc(&view->one.arena, cells + 1, sizeof(double));
    if (!column || !sums || !m->values) return pj_fail_memory(err, "the heatmap of a run");
    for (uint32_t i = 0; i < nodes.name_count; i++)
        for (column[i] = 0; column[i] < m->components; column[i]++)
            if (strcmp(m->names[column[i]], nodes.names[i]) == 0) break;
    for (uint32_t i = 0; i < nodes.node_count; i++) {
        const pj_sum_node *n = &nodes.nodes[i];
        if (n->component == PJ_NO_NAME || (phase >= 0 && n->phase != phase)) continue;
        uint32_t row = n->layer < 0 ? m->layers : (uint32_t)n->layer;
        if (column[n->component] >= m->components) continue;
        pj_sum_node *cell = &sums[(size_t)row * m->components + column[n->component]];
        /* From operations only figures recorded nowhere else: entropy of attention. */
        if (n->operation == PJ_NO_NAME) {
            pj_node_merge(cell, n);
        } else if (n->entropy_count) {
            cell->entropy_count += n->entropy_count;
            cell->entropy_sum += n->entropy_sum;
        }
    }
    for (size_t i = 0; i < cells; i++)
        m->values[i] =
            sums[i].count || sums[i].entropy_count ? node_metric(&sums[i], choice->metric) : NAN;
    return PJ_OK;
}

static double heatmap_value(const pj_heatmap *m, uint32_t layer, uint32_t component)
{
    return m->values ? m->values[(size_t)layer * m->components + component] : NAN;
}

static void find_extremes(pj_heatmap *m)
{
    m->min = m->max = NAN;
    for (uint32_t l = 0; l < m->layers; l++)
        for (uint32_t c = 0; c < m->components; c++) {
            if (!m->inside[c]) continue;
            m->min = fmin(m->min, heatmap_value(m, l, c));
            m->max = fmax(m->max, heatmap_value(m, l, c));
        }
}

static void write_values(pj_json *json, const pj_heatmap *m)
{
    pj_json_kv_array_begin(json, "values");
    for (uint32_t l = 0; l < m->layers; l++) {
        pj_json_array_begin(json);
        for (uint32_t c = 0; c < m->components; c++)
            if (m->inside[c]) pj_json_float(json, (float)heatmap_value(m, l, c));
        pj_json_array_end(json);
    }
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "outside");
    for (uint32_t c = 0; c < m->components; c++) {
        double value = heatmap_value(m, m->layers, c);
        if (isnan(value)) continue;
        pj_json_object_begin(json);
        pj_json_kv_string(json, "component", m->names[c]);
        pj_json_kv_double(json, "value", value);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_kv_double(json, "min", m->min);
    pj_json_kv_double(json, "max", m->max);
}

static void write_heatmap(const pj_heatmap *m, const pj_view_choice *choice, pj_json *json)
{
    pj_json_object_begin(json);
    pj_view_head(&(pj_run_view){.json = json, .info = m->run.runs}, true);
    pj_json_kv_string(json, "metric", pj_metric_table[choice->metric].name);
    pj_json_kv_string(json, "unit", pj_metric_table[choice->metric].unit);
    pj_json_kv_string(json, "aggregate", pj_metric_table[choice->metric].aggregate);
    pj_json_kv_optional(json, "token", choice->token != PJ_ANY, choice->token);
    pj_json_kv_string(json, "phase", choice->phase);
    pj_json_kv_uint(json, "tokens", m->tokens);
    pj_json_kv_array_begin(json, "layers");
    for (uint32_t l = 0; l < m->layers; l++) pj_json_uint(json, l);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "components");
    for (uint32_t c = 0; c < m->components; c++)
        if (m->inside[c]) pj_json_string(json, m->names[c]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "all_components");
    for (uint32_t c = 0; c < m->components; c++) pj_json_string(json, m->names[c]);
    pj_json_array_end(json);
    write_values(json, m);
    pj_json_object_end(json);
}

pj_status pj_heatmap_get(pj_store *store, const char *id, const pj_view_choice *choice,
                         pj_heatmap *m, pj_error *err)
{
    pj_run_view view;
    plane_view names = {0};
    *m = (pj_heatmap){.min = NAN, .max = NAN};
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK && !pj_metric_table[choice->metric].in_heatmap)
        status = pj_fail(err, PJ_E_INVALID, "there is no heatmap of %s",
                         pj_metric_table[choice->metric].name);
    if (status == PJ_OK) status = read_component_names(&view, &names, err);
    m->names = names.names;
    m->components = names.components;
    m->tokens = view.ranges[PJ_TABLE_TOKENS].count;
    if (status == PJ_OK)
        status = find_inside(&view, m->names, m->components, &m->inside, &m->layers, err);
    if (status == PJ_OK)
        status = choice->token == PJ_ANY ? matrix_of_sums(&view, choice, m, err)
                                         : matrix_of_token(&view, choice, m, err);
    if (status == PJ_OK) find_extremes(m);
    m->run = view.one;
    if (status != PJ_OK) pj_heatmap_fini(m);
    return status;
}

void pj_heatmap_fini(pj_heatmap *m)
{
    pj_run_list_fini(&m->run);
}

pj_status pj_view_heatmap(pj_store *store, const char *id, const pj_view_choice *choice,
                          pj_json *json, pj_error *err)
{
    pj_heatmap map;
    pj_status status = pj_heatmap_get(store, id, choice, &map, err);
    if (status == PJ_OK) write_heatmap(&map, choice, json);
    pj_heatmap_fini(&map);
    return status;
}

/* ---- tree ------------------------------------------------------------------------------------ */

typedef struct tree {
    pj_run_view *view;
    pj_sum_nodes nodes; /* without disturbances, which are a child of their phase */
    pj_metric metric;
    uint32_t levels;
} tree;

/* Children of a phase (at level 2 below the run): its layers, and components outside. Of a layer:
 * its components. Of a component: its operations. */
static bool is_child(const pj_sum_node *parent, const pj_sum_node *n, uint32_t level)
{
    if (n->phase != parent->phase) return false;
    if (level == 2)
        return n->operation == PJ_NO_NAME &&
               (n->layer < 0 ? n->component != PJ_NO_NAME : n->component == PJ_NO_NAME);
    if (n->layer != parent->layer) return false;
    if (parent->component == PJ_NO_NAME)
        return n->component != PJ_NO_NAME && n->operation == PJ_NO_NAME;
    return n->component == parent->component && n->operation != PJ_NO_NAME;
}

static double children_sum(const tree *t, const pj_sum_node *parent, uint32_t level)
{
    int64_t nj = 0;
    double sum = 0;
    for (uint32_t i = 0; i < t->nodes.node_count; i++) {
        const pj_sum_node *n = &t->nodes.nodes[i];
        if (!is_child(parent, n, level)) continue;
        pj_nj_add(&nj, n->gross_nj);
        double value = node_metric(n, t->metric);
        bool by_parts = isnan(value) && n->operation == PJ_NO_NAME && t->metric >= PJ_METRIC_FLOPS;
        if (by_parts) value = children_sum(t, n, level + 1);
        sum += isnan(value) ? 0 : value;
    }
    return t->metric == PJ_METRIC_ENERGY ? pj_mj_of_nj(nj) : sum;
}

static void write_node(const tree *t, const pj_sum_node *node, uint32_t level);

static void write_children(const tree *t, const pj_sum_node *parent, uint32_t level)
{
    pj_json *json = t->view->json;
    bool any = level == 2; /* a phase's array is its caller's, for the disturbed part */
    if (level > t->levels) return;
    for (uint32_t i = 0; i < t->nodes.node_count; i++) {
        const pj_sum_node *n = &t->nodes.nodes[i];
        if (!is_child(parent, n, level)) continue;
        if (!any) {
            pj_json_kv_array_begin(json, "children");
        }
        any = true;
        write_node(t, n, level);
    }
    if (any && level > 2) pj_json_array_end(json);
}

static void write_figures(const tree *t, double value, double ms, double mj, double covered)
{
    pj_json *json = t->view->json;
    pj_json_kv_double(json, "value", value);
    pj_json_kv_double(json, "time_ms", ms);
    pj_json_kv_double(json, "energy_mj", mj);
    pj_json_kv_double(json, "self", value - covered);
}

static void write_node(const tree *t, const pj_sum_node *n, uint32_t level)
{
    pj_json *json = t->view->json;
    char name[32];
    pj_json_object_begin(json);
    bool layer = n->component == PJ_NO_NAME, operation = n->operation != PJ_NO_NAME;
    snprintf(name, sizeof name, "layer %d", (int)n->layer);
    pj_json_kv_string(json, "kind", layer ? "layer" : operation ? "operation" : "component");
    pj_json_kv_string(json, "name",
                      layer ? name : t->nodes.names[operation ? n->operation : n->component]);
    if (!operation) {
        pj_json_kv_optional(json, "layer", n->layer >= 0, n->layer);
    }
    pj_json_kv_uint(json, "count", n->count);
    double value = node_metric(n, t->metric);
    double covered = operation ? 0 : children_sum(t, n, level + 1);
    if (isnan(value) && t->metric >= PJ_METRIC_FLOPS)
        value = covered; /* known for its parts only */
    write_figures(t, value, n->time_ms, pj_mj_of_nj(n->gross_nj), covered);
    if (!operation) write_children(t, n, level + 1);
    pj_json_object_end(json);
}

/* FLOPs and bytes are recorded on parts only; a phase's are their sum. */
static double phase_value(const tree *t, const pj_sum_node *key, double ms, double mj)
{
    if (t->metric == PJ_METRIC_TIME) return ms;
    return t->metric == PJ_METRIC_ENERGY ? mj : children_sum(t, key, 2);
}

/* The disturbed part of a phase, by the tree's metric; 0: none, or another metric. */
static double tree_disturbed(const tree *t, double ms, double mj)
{
    double value = t->metric == PJ_METRIC_TIME ? ms : t->metric == PJ_METRIC_ENERGY ? mj : 0;
    return value > 0 ? value : 0;
}

static void write_disturbed(const tree *t, double ms, double mj)
{
    pj_json *json = t->view->json;
    double value = tree_disturbed(t, ms, mj);
    if (value == 0) return;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", "disturbed");
    pj_json_kv_string(json, "name", "disturbed");
    write_figures(t, value, ms, mj, value);
    pj_json_object_end(json);
}

static void views_sums_write_phase(const tree *t, pj_sql *sql)
{
    pj_json *json = t->view->json;
    const char *name = pj_sql_get_text(sql, 0, NULL);
    double ms = pj_sql_get_double(sql, 1), mj = pj_sql_get_double(sql, 2);
    double disturbed_ms = pj_sql_get_double(sql, 4), disturbed_mj = pj_sql_get_double(sql, 5);
    int phase = name ? pj_phase_parse(name) : -1;
    pj_sum_node key = {.phase = (uint8_t)phase};
    double disturbed = tree_disturbed(t, disturbed_ms, disturbed_mj);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", "phase");
    pj_json_kv_string(json, "name", name);
    write_figures(t, phase_value(t, &key, ms, mj), ms, mj, children_sum(t, &key, 2) + disturbed);
    pj_json_kv_array_begin(json, "children");
    if (t->levels >= 2) {
        write_children(t, &key, 2);
        write_disturbed(t, disturbed_ms, disturbed_mj);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static pj_status views_sums_write_phases(const tree *t, pj_error *err)
{
    pj_json *json = t->view->json;
    pj_sql *sql = pj_view_select(t->view, PJ_TABLE_PHASES,
                                 "phase, sum(duration_ms), sum(energy_mj), min(id),"
                                 " sum(disturbed_ms), sum(disturbed_energy_mj)",
                                 "GROUP BY phase ORDER BY min(id)", err);
    pj_json_kv_array_begin(json, "children");
    while (pj_sql_step(sql)) views_sums_write_phase(t, sql);
    pj_json_array_end(json);
    return pj_sql_end(sql, err);
}

static pj_status phase_sums(pj_run_view *view, double *ms, double *mj, pj_error *err)
{
    pj_sql *sql =
        pj_view_select(view, PJ_TABLE_PHASES, "sum(duration_ms), sum(energy_mj)", "", err);
    *ms = *mj = NAN;
    if (pj_sql_step(sql)) {
        *ms = pj_sql_get_double(sql, 0);
        *mj = pj_sql_get_double(sql, 1);
    }
    return pj_sql_end(sql, err);
}

static pj_status views_sums_write_tree(tree *t, pj_error *err)
{
    pj_json *json = t->view->json;
    const pj_run_info *info = t->view->info;
    double ms, mj, all = 0;
    pj_status status = phase_sums(t->view, &ms, &mj, err);
    for (int p = 0; p < PJ_PHASE_COUNT && t->metric >= PJ_METRIC_FLOPS; p++)
        all += children_sum(t, &(pj_sum_node){.phase = (uint8_t)p}, 2);
    pj_json_object_begin(json);
    pj_view_head(t->view, true);
    pj_json_kv_string(json, "metric", pj_metric_table[t->metric].name);
    pj_json_kv_string(json, "unit", pj_metric_table[t->metric].unit);
    pj_json_kv_object_begin(json, "root");
    pj_json_kv_string(json, "kind", "run");
    pj_json_kv_string(json, "name", "run");
    if (t->metric == PJ_METRIC_TIME)
        write_figures(t, info->total_ms, info->total_ms, info->total_mj, ms);
    else if (t->metric == PJ_METRIC_ENERGY)
        write_figures(t, info->total_mj, info->total_ms, info->total_mj, mj);
    else
        write_figures(t, all, info->total_ms, info->total_mj, all);
    if (status == PJ_OK) status = views_sums_write_phases(t, err);
    pj_json_object_end(json);
    pj_json_object_end(json);
    return status;
}

pj_status pj_view_tree(pj_store *store, const char *id, pj_metric metric, uint32_t levels,
                       pj_json *json, pj_error *err)
{
    pj_run_view view;
    tree t = {.view = &view, .metric = metric, .levels = levels ? levels : 4};
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK && !pj_metric_table[metric].in_tree)
        status = pj_fail(err, PJ_E_INVALID, "a tree has no %s (one of %s)",
                         pj_metric_table[metric].name, PJ_TREE_CHOICES);
    if (status == PJ_OK) status = pj_view_load_nodes(&view, &t.nodes, err);
    if (status == PJ_OK) status = views_sums_write_tree(&t, err);
    return pj_view_close(&view, status);
}
