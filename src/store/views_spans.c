/* Single spans in a window of time: layers, components and operations, as columns or summed by
 * name. A run may have millions, in almost any order of time (a device's follow the span that
 * launched them), so the rows are divided into blocks whose bounds in time are kept with the run's
 * charts: a window reads the blocks that it touches. Times and energies are as they were, with
 * disturbances. */
#include "store/view.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK_ROWS = 512,
    FEW_ROWS = 8 * BLOCK_ROWS, /* read without blocks */
    MOST_NAMES = 4096,
    MOST_GROUPS = 16384,
    DEFAULT_LIMIT = 5000
};

/* Name of what exceeds these. */
#define OTHERS "other names"

typedef enum span_level { LAYER, COMPONENT, OPERATION, LEVELS } span_level;

/* Columns of a query. */
enum { ID, NAME, START, DURATION, ENERGY, NET, SELF, SD, NET_SD, DEVICE, TOKEN, PARENT };

static const struct span_source {
    pj_table_id table;
    const char *level, *columns, *bounds, *inside;
} sources[LEVELS] = {
    [LAYER] = {PJ_TABLE_LAYERS, "layer",
               "id, layer_index, start_ms, total_time_ms, energy_mj, net_energy_mj, self_energy_mj,"
               " energy_sd_mj, net_energy_sd_mj, device, coalesce(token_id, step_id), NULL",
               "start_ms, start_ms + total_time_ms",
               "AND start_ms <= ?3 AND start_ms + total_time_ms >= ?4 ORDER BY id"},
    [COMPONENT] = {PJ_TABLE_COMPONENTS, "component",
                   "id, component_name, start_ms, time_ms, energy_mj, net_energy_mj,"
                   " self_energy_mj, energy_sd_mj, net_energy_sd_mj, device,"
                   " coalesce(token_id, step_id), layer_metric_id",
                   "start_ms, start_ms + time_ms",
                   "AND start_ms <= ?3 AND start_ms + time_ms >= ?4 ORDER BY id"},
    [OPERATION] = {PJ_TABLE_OPERATIONS, "operation",
                   "id, operation_name, start_ms, time_ms, energy_mj, net_energy_mj, energy_mj,"
                   " energy_sd_mj, net_energy_sd_mj, device, NULL, component_metric_id",
                   "start_ms, start_ms + time_ms",
                   "AND start_ms <= ?3 AND start_ms + time_ms >= ?4 ORDER BY id"},
};

/* What is known of a row to those below it; everything + 1, 0: unknown. */
typedef struct span_place {
    uint32_t name, layer, token;
} span_place;

typedef struct span_row {
    span_place place; /* its own name */
    uint32_t component;
    double start_ms, duration_ms, energy_mj, net_mj, self_mj, sd_mj, net_sd_mj;
    int64_t device; /* -1: none */
} span_row;

typedef struct span_group {
    span_level level;
    uint32_t name, component, count;
    double time_ms, energy_mj, net_mj, self_mj, sd_mj, net_sd_mj;
} span_group;

typedef struct span_search {
    pj_run_view *view;
    const pj_span_window *window;
    const char *names[MOST_NAMES];
    uint32_t name_count, last_name;
    span_place *places[LEVELS]; /* [row of the table] */
    span_row *rows;             /* of one level */
    uint32_t limit, count;
    uint64_t total;
    span_group *groups;
    uint32_t group_count, last_group;
} span_search;

/* ---- blocks ---- */

typedef struct span_block {
    uint32_t level, first, count, reserved;
    double from_ms, to_ms;
} span_block;

static pj_status make_blocks_of(pj_run_view *view, span_level level, pj_buffer *out, pj_error *err)
{
    span_block block = {.level = level, .from_ms = INFINITY, .to_ms = -INFINITY};
    pj_sql *sql =
        pj_view_select(view, sources[level].table, sources[level].bounds, "ORDER BY id", err);
    while (pj_sql_step(sql)) {
        block.from_ms = fmin(block.from_ms, pj_sql_get_double(sql, 0));
        block.to_ms = fmax(block.to_ms, pj_sql_get_double(sql, 1));
        if (++block.count < BLOCK_ROWS) continue;
        pj_buffer_append(out, &block, sizeof block);
        block = (span_block){.level = level,
                             .first = block.first + BLOCK_ROWS,
                             .from_ms = INFINITY,
                             .to_ms = -INFINITY};
    }
    if (block.count) pj_buffer_append(out, &block, sizeof block);
    return pj_sql_end(sql, err);
}

static pj_status make_blocks(void *context, pj_buffer *out, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int level = 0; level < LEVELS && status == PJ_OK; level++)
        status = make_blocks_of(context, (span_level)level, out, err);
    return status;
}

/* ---- names ---- */

/* The name's number; they come around in the same order, so the next one is tried first. */
static uint32_t number_of(span_search *s, const char *name)
{
    for (uint32_t i = 0; i < s->name_count; i++) {
        uint32_t at = (s->last_name + 1 + i) % s->name_count;
        if (strcmp(s->names[at], name) == 0) return s->last_name = at;
    }
    if (s->name_count == MOST_NAMES) return s->last_name = MOST_NAMES - 1;
    if (s->name_count == MOST_NAMES - 1) name = OTHERS;
    const char *kept = pj_arena_strndup(&s->view->one.arena, name, strlen(name));
    s->names[s->name_count] = kept ? kept : OTHERS;
    return s->last_name = s->name_count++;
}

/* ---- rows ---- */

static span_place *place_of(const span_search *s, span_level level, int64_t id)
{
    const pj_row_range *range = &s->view->ranges[sources[level].table];
    return s->places[level] && id >= range->first && id < range->first + range->count
               ? &s->places[level][id - range->first]
               : NULL;
}

static span_row row_of(span_search *s, span_level level, pj_sql *sql)
{
    span_row row = {.start_ms = pj_sql_get_double(sql, START),
                    .duration_ms = pj_sql_get_double(sql, DURATION),
                    .energy_mj = pj_sql_get_double(sql, ENERGY),
                    .net_mj = pj_sql_get_double(sql, NET),
                    .self_mj = pj_sql_get_double(sql, SELF),
                    .sd_mj = pj_sql_get_double(sql, SD),
                    .net_sd_mj = pj_sql_get_double(sql, NET_SD),
                    .device = -1};
    const pj_row_range *tokens = &s->view->ranges[PJ_TABLE_TOKENS];
    const char *name = pj_sql_get_text(sql, NAME, NULL);
    if (pj_sql_get_type(sql, DEVICE) != PJ_VALUE_NULL) row.device = pj_sql_get_int(sql, DEVICE);
    if (level == LAYER) row.place.layer = (uint32_t)pj_sql_get_int(sql, NAME) + 1;
    if (pj_sql_get_type(sql, PARENT) != PJ_VALUE_NULL) {
        const span_place *parent =
            place_of(s, (span_level)(level - 1), pj_sql_get_int(sql, PARENT));
        if (parent) row.place = *parent;
        if (parent && level == OPERATION) row.component = parent->name;
    }
    if (pj_sql_get_type(sql, TOKEN) != PJ_VALUE_NULL) {
        int64_t token = pj_sql_get_int(sql, TOKEN) - tokens->first;
        if (token >= 0 && token < tokens->count) row.place.token = (uint32_t)token + 1;
    }
    if (level != LAYER) row.place.name = number_of(s, name ? name : "") + 1;
    span_place *own = place_of(s, level, pj_sql_get_int(sql, ID));
    if (own) *own = row.place;
    return row;
}

static span_group *group_of(span_search *s, span_level level, uint32_t name, uint32_t component)
{
    for (uint32_t i = 0; i < s->group_count; i++) {
        uint32_t at = (s->last_group + 1 + i) % s->group_count;
        const span_group *g = &s->groups[at];
        if (g->level == level && g->name == name && g->component == component)
            return &s->groups[s->last_group = at];
    }
    if (s->group_count == MOST_GROUPS) return &s->groups[MOST_GROUPS - 1];
    if (s->group_count == MOST_GROUPS - 1) {
        level = OPERATION;
        name = number_of(s, OTHERS) + 1;
        component = 0;
    }
    s->groups[s->group_count] = (span_group){.level = level, .name = name, .component = component};
    return &s->groups[s->last_group = s->group_count++];
}

/* The part of the span inside the window. */
static double part_inside(const pj_span_window *w, const span_row *row)
{
    double from = fmax(w->from_ms, row->start_ms);
    double to = fmin(w->to_ms, row->start_ms + row->duration_ms);
    return row->duration_ms > 0 ? fmax(0, to - from) / row->duration_ms : 1;
}

static void add_to_group(span_search *s, span_level level, const span_row *row)
{
    uint32_t name = level == LAYER ? row->place.layer : row->place.name;
    span_group *g = group_of(s, level, name, row->component);
    double part = part_inside(s->window, row);
    g->count++;
    g->time_ms += part * row->duration_ms;
    g->energy_mj += part * row->energy_mj;
    g->net_mj += part * row->net_mj;
    g->self_mj += part * row->self_mj;
    g->sd_mj += part * row->sd_mj; /* one sensor, one power model: as if fully correlated */
    g->net_sd_mj += part * row->net_sd_mj;
}

static void add_row(span_search *s, span_level level, const span_row *row)
{
    const char *name = s->window->name;
    if (name && level == LAYER) return; /* layers have numbers */
    if (name && !strcasestr(s->names[row->place.name - 1], name)) return;
    s->total++;
    if (s->window->is_grouped)
        add_to_group(s, level, row);
    else if (s->count < s->limit)
        s->rows[s->count++] = *row;
}

static pj_status read_rows(span_search *s, span_level level, pj_row_range range, pj_error *err)
{
    pj_sql *sql = pj_select_rows(s->view->store, s->view->info->id, (int)sources[level].table,
                                 range, sources[level].columns, sources[level].inside, err);
    pj_sql_double(sql, 3, s->window->to_ms);
    pj_sql_double(sql, 4, s->window->from_ms);
    while (pj_sql_step(sql)) {
        span_row row = row_of(s, level, sql);
        add_row(s, level, &row);
    }
    return pj_sql_end(sql, err);
}

/* The level's rows in the window; neighbouring blocks are read at once. */
static pj_status read_level(span_search *s, span_level level, const span_block *blocks,
                            uint32_t block_count, pj_error *err)
{
    const pj_row_range all = s->view->ranges[sources[level].table];
    pj_row_range range = {all.first, 0};
    pj_status status = PJ_OK;
    s->count = 0;
    s->total = 0;
    if (!blocks) return all.count ? read_rows(s, level, all, err) : PJ_OK;
    for (uint32_t i = 0; i < block_count && status == PJ_OK; i++) {
        const span_block *b = &blocks[i];
        /* What was compacted is gone. */
        if (b->level != (uint32_t)level || b->first + b->count > all.count) continue;
        if (b->to_ms < s->window->from_ms || b->from_ms > s->window->to_ms) continue;
        if (range.count && range.first + range.count == all.first + b->first) {
            range.count += b->count;
            continue;
        }
        if (range.count) status = read_rows(s, level, range, err);
        range = (pj_row_range){all.first + b->first, b->count};
    }
    return status == PJ_OK && range.count ? read_rows(s, level, range, err) : status;
}

/* ---- the answer ---- */

#define WRITE_NUMBERS(key, member)                                                         \
    pj_json_kv_array_begin(json, key);                                                     \
    for (uint32_t i = 0; i < s->count; i++) pj_json_float(json, (float)s->rows[i].member); \
    pj_json_array_end(json)

/* Of values + 1; 0: null. */
#define WRITE_KNOWN(key, member)                       \
    pj_json_kv_array_begin(json, key);                 \
    for (uint32_t i = 0; i < s->count; i++)            \
        if (s->rows[i].member)                         \
            pj_json_uint(json, s->rows[i].member - 1); \
        else                                           \
            pj_json_null(json);                        \
    pj_json_array_end(json)

static void write_level(const span_search *s, span_level level)
{
    pj_json *json = s->view->json;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "level", sources[level].level);
    pj_json_kv_uint(json, "total", s->total);
    WRITE_KNOWN("name", place.name);
    pj_json_kv_array_begin(json, "start_ms");
    for (uint32_t i = 0; i < s->count; i++) pj_json_double(json, s->rows[i].start_ms);
    pj_json_array_end(json);
    WRITE_NUMBERS("duration_ms", duration_ms);
    WRITE_NUMBERS("energy_mj", energy_mj);
    WRITE_NUMBERS("net_energy_mj", net_mj);
    WRITE_NUMBERS("self_energy_mj", self_mj);
    WRITE_NUMBERS("energy_sd_mj", sd_mj);
    WRITE_NUMBERS("net_energy_sd_mj", net_sd_mj);
    WRITE_KNOWN("token", place.token);
    WRITE_KNOWN("layer", place.layer);
    WRITE_KNOWN("component", component);
    pj_json_kv_array_begin(json, "device");
    for (uint32_t i = 0; i < s->count; i++)
        if (s->rows[i].device >= 0)
            pj_json_int(json, s->rows[i].device);
        else
            pj_json_null(json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static void write_group(const span_search *s, const span_group *g)
{
    pj_json *json = s->view->json;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "level", sources[g->level].level);
    if (g->level == LAYER)
        pj_json_kv_null(json, "name");
    else
        pj_json_kv_string(json, "name", s->names[g->name - 1]);
    pj_json_kv_string(json, "component", g->component ? s->names[g->component - 1] : NULL);
    pj_json_kv_optional(json, "layer", g->level == LAYER, (int64_t)g->name - 1);
    pj_json_kv_uint(json, "count", g->count);
    pj_json_kv_double(json, "time_ms", g->time_ms);
    pj_json_kv_double(json, "energy_mj", g->energy_mj);
    pj_json_kv_double(json, "net_energy_mj", g->net_mj);
    pj_json_kv_double(json, "self_energy_mj", g->self_mj);
    pj_json_kv_double(json, "energy_sd_mj", g->sd_mj);
    pj_json_kv_double(json, "net_energy_sd_mj", g->net_sd_mj);
    pj_json_object_end(json);
}

static bool make_room(span_search *s)
{
    pj_arena *arena = &s->view->one.arena;
    for (int level = LAYER; level < OPERATION; level++) {
        uint32_t count = s->view->ranges[sources[level].table].count;
        if (count && !(s->places[level] = pj_arena_alloc(arena, count, sizeof **s->places)))
            return false;
    }
    s->rows = pj_arena_alloc(arena, s->limit, sizeof *s->rows);
    s->groups = pj_arena_alloc(arena, MOST_GROUPS, sizeof *s->groups);
    return s->rows && s->groups;
}

static pj_status choose_blocks(pj_run_view *view, const span_block **blocks, uint32_t *count,
                               pj_error *err)
{
    static const pj_view_chart chart = {"span_blocks", sizeof(span_block), make_blocks};
    uint64_t rows = 0;
    void *items = NULL;
    for (int level = 0; level < LEVELS; level++) rows += view->ranges[sources[level].table].count;
    *blocks = NULL;
    *count = 0;
    if (rows <= FEW_ROWS) return PJ_OK;
    pj_status status = pj_view_kept(view->store, view->info->id, &chart, view, &view->one.arena,
                                    &items, count, err);
    *blocks = items;
    return status;
}

static pj_status write_spans(span_search *s, pj_error *err)
{
    const span_block *blocks;
    uint32_t block_count;
    pj_json *json = s->view->json;
    pj_status status = choose_blocks(s->view, &blocks, &block_count, err);
    if (status != PJ_OK) return status;
    if (!make_room(s)) return pj_fail_memory(err, "the spans of a run");
    pj_json_object_begin(json);
    pj_view_head(s->view, true);
    pj_json_kv_array_begin(json, "levels");
    for (int level = 0; level < LEVELS && status == PJ_OK; level++) {
        if (level > LAYER && s->window->deepest &&
            strcmp(sources[level - 1].level, s->window->deepest) == 0)
            break;
        status = read_level(s, (span_level)level, blocks, block_count, err);
        if (!s->window->is_grouped) write_level(s, (span_level)level);
    }
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "groups");
    for (uint32_t i = 0; i < s->group_count; i++) write_group(s, &s->groups[i]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "names");
    for (uint32_t i = 0; i < s->name_count; i++) pj_json_string(json, s->names[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
    return status;
}

pj_status pj_view_spans(pj_store *store, const char *id, const pj_span_window *window,
                        pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) {
        span_search *s = pj_arena_alloc(&view.one.arena, 1, sizeof *s);
        pj_span_window all = *window;
        if (!(all.to_ms > all.from_ms)) all.from_ms = -INFINITY, all.to_ms = INFINITY;
        if (!s) {
            status = pj_fail_memory(err, "the spans of a run");
        } else {
            *s = (span_search){.view = &view,
                               .window = &all,
                               .limit = window->limit ? window->limit : DEFAULT_LIMIT};
            status = write_spans(s, err);
        }
    }
    return pj_view_close(&view, status);
}
