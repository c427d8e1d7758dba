/* Views over time: pipeline, power, tokens. */
#include "store/view.h"

#include <math.h>
#include <string.h>

/* ---- pipeline -------------------------------------------------------------------------------- */

static void write_power_of(pj_json *json, double mj, double ms)
{
    pj_json_kv_double(json, "power_mw", ms > 0 ? mj * 1000 / ms : NAN);
}

/* In J s. */
static void write_delay_of(pj_json *json, double mj, double ms)
{
    pj_json_kv_double(json, "energy_delay_product", mj * ms / 1e6);
}

enum { SECTION_SUMS_MAX = 4096 };

/* Without energies, whose self part tells, it is known of the engine's sections. */
static bool has_components(const char *name, double energy_mj, double self_mj)
{
    static const char *const of_components[] = {"layers", "embedding", "final_norm", "lm_head"};
    if (!isnan(energy_mj)) return self_mj < energy_mj * (1 - 1e-6);
    for (size_t i = 0; name && i < sizeof of_components / sizeof *of_components; i++)
        if (strcmp(name, of_components[i]) == 0) return true;
    return false;
}

static pj_status read_section_sums(pj_run_view *view, pj_arena *arena, pj_section_sum **sums,
                                   uint32_t *count, pj_error *err)
{
    pj_row_range phases = view->ranges[PJ_TABLE_PHASES];
    *count = 0;
    *sums = pj_arena_alloc(arena, SECTION_SUMS_MAX, sizeof **sums);
    if (!*sums) return pj_fail_memory(err, "the sections of a run");
    pj_sql *sql =
        pj_view_select(view, PJ_TABLE_SECTIONS,
                       "phase_id, section_name, count(*), sum(duration_ms), sum(energy_mj),"
                       " sum(energy_sd_random_mj * energy_sd_random_mj), sum(energy_sd_bias_mj),"
                       " sum(self_energy_mj), sum(coalesce(disturbed_ms, 0)),"
                       " sum(coalesce(disturbed_energy_mj, 0)), sum(net_energy_mj),"
                       " sum(coalesce(disturbed_net_energy_mj, 0))",
                       "GROUP BY phase_id, section_name ORDER BY phase_id, min(start_ms)", err);
    while (*count < SECTION_SUMS_MAX && pj_sql_step(sql)) {
        size_t bytes;
        const char *name = pj_sql_get_text(sql, 1, &bytes);
        pj_section_sum *sum = &(*sums)[*count];
        *sum = (pj_section_sum){
            .phase = (uint32_t)(pj_sql_get_int(sql, 0) - phases.first),
            .count = (uint32_t)pj_sql_get_int(sql, 2),
            .name = name ? pj_arena_strndup(arena, name, bytes) : NULL,
            .duration_ms = pj_sql_get_double(sql, 3),
            .energy_mj = pj_sql_get_double(sql, 4),
            .energy_sd_mj = hypot(sqrt(pj_sql_get_double(sql, 5)), pj_sql_get_double(sql, 6)),
            .own_ms = NAN,
            .own_mj = NAN,
            .own_net_mj = NAN};
        if (!has_components(sum->name, sum->energy_mj, pj_sql_get_double(sql, 7))) {
            sum->own_ms = sum->duration_ms - pj_sql_get_double(sql, 8);
            sum->own_mj = sum->energy_mj - pj_sql_get_double(sql, 9);
            sum->own_net_mj = pj_sql_get_double(sql, 10) - pj_sql_get_double(sql, 11);
        }
        *count += sum->name != NULL;
    }
    return pj_sql_end(sql, err);
}

pj_status pj_view_section_sums(pj_store *store, const char *id, pj_arena *arena,
                               pj_section_sum **sums, uint32_t *count, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) status = read_section_sums(&view, arena, sums, count, err);
    return pj_view_close(&view, status);
}

static void write_section_sums(pj_json *json, const pj_section_sum *sums, uint32_t count,
                               uint32_t phase)
{
    uint64_t sections = 0;
    pj_json_kv_array_begin(json, "section_totals");
    for (uint32_t i = 0; i < count; i++) {
        if (sums[i].phase != phase) continue;
        pj_json_object_begin(json);
        pj_json_kv_string(json, "section_name", sums[i].name);
        pj_json_kv_uint(json, "count", sums[i].count);
        pj_json_kv_double(json, "duration_ms", sums[i].duration_ms);
        pj_json_kv_double(json, "energy_mj", sums[i].energy_mj);
        pj_json_kv_double(json, "own_ms", sums[i].own_ms);
        pj_json_kv_double(json, "own_energy_mj", sums[i].own_mj);
        pj_json_kv_double(json, "own_net_energy_mj", sums[i].own_net_mj);
        pj_json_object_end(json);
        sections += sums[i].count;
    }
    pj_json_array_end(json);
    pj_json_kv_uint(json, "section_count", sections);
}

static void write_optional(pj_json *json, const char *key, pj_sql *sql, int column)
{
    pj_json_kv_optional(json, key, pj_sql_get_type(sql, column) != PJ_VALUE_NULL,
                        pj_sql_get_int(sql, column));
}

/* A reference to a token, or to the first token of a shared step, by index. */
static void write_token_index(pj_run_view *view, pj_sql *sql, int column, const char *key)
{
    pj_json_kv_optional(view->json, key, pj_sql_get_type(sql, column) != PJ_VALUE_NULL,
                        pj_sql_get_int(sql, column) - view->ranges[PJ_TABLE_TOKENS].first);
}

static void write_section(pj_run_view *view, pj_sql *sql)
{
    pj_json *json = view->json;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "section_name", pj_sql_get_text(sql, 0, NULL));
    write_token_index(view, sql, 1, "token");
    pj_json_kv_double(json, "start_ms", pj_sql_get_double(sql, 2));
    pj_json_kv_double(json, "end_ms", pj_sql_get_double(sql, 3));
    pj_json_kv_double(json, "duration_ms", pj_sql_get_double(sql, 4));
    pj_json_kv_energies(json, sql, 5);
    pj_json_kv_disturbed(json, sql, 5 + PJ_ENERGY_COLUMN_COUNT);
    write_power_of(json, pj_sql_get_double(sql, 5), pj_sql_get_double(sql, 4));
    write_optional(json, "device", sql, 5 + PJ_ENERGY_COLUMN_COUNT + PJ_DISTURBED_COLUMN_COUNT);
    pj_json_object_end(json);
}

static pj_status write_sections(pj_run_view *view, int64_t phase_id, const pj_view_window *window,
                                uint32_t *left, pj_error *err)
{
    bool whole = window->from_ms == 0 && window->to_ms == 0;
    pj_sql *sql =
        pj_view_select(view, PJ_TABLE_SECTIONS,
                       "section_name, token_id, start_ms, end_ms, duration_ms, " PJ_ENERGY_COLUMNS
                       ", " PJ_DISTURBED_COLUMNS ", device",
                       "AND phase_id = ?3 AND end_ms >= ?4 AND start_ms <= ?5"
                       " ORDER BY start_ms LIMIT ?6",
                       err);
    pj_sql_int(sql, 3, phase_id);
    pj_sql_double(sql, 4, whole ? -INFINITY : window->from_ms);
    pj_sql_double(sql, 5, whole ? INFINITY : window->to_ms);
    pj_sql_int(sql, 6, *left);
    pj_json_kv_array_begin(view->json, "sections");
    while (pj_sql_step(sql)) {
        write_section(view, sql);
        (*left)--;
    }
    pj_json_array_end(view->json);
    return pj_sql_end(sql, err);
}

static void views_time_write_phase(pj_run_view *view, pj_sql *sql)
{
    pj_json *json = view->json;
    double start = pj_sql_get_double(sql, 2), ms = pj_sql_get_double(sql, 3);
    pj_json_kv_string(json, "phase", pj_sql_get_text(sql, 1, NULL));
    pj_json_kv_double(json, "start_ms", start);
    pj_json_kv_double(json, "end_ms", start + ms);
    pj_json_kv_double(json, "duration_ms", ms);
    pj_json_kv_energies(json, sql, 4);
    pj_json_kv_disturbed(json, sql, 4 + PJ_ENERGY_COLUMN_COUNT);
    write_power_of(json, pj_sql_get_double(sql, 4), ms);
    write_delay_of(json, pj_sql_get_double(sql, 4), ms);
}

static bool is_wanted(const pj_view_window *window, pj_sql *sql)
{
    const char *phase = pj_sql_get_text(sql, 1, NULL);
    return !window->phase || (phase && strcmp(phase, window->phase) == 0);
}

pj_status pj_view_write_phases(pj_run_view *view, const pj_view_window *window, bool sections,
                               pj_error *err)
{
    pj_section_sum *sums;
    uint32_t count, left = window->limit ? window->limit : 500;
    if (left > 20000) left = 20000;
    pj_status status = read_section_sums(view, &view->one.arena, &sums, &count, err);
    if (status != PJ_OK) return status;
    pj_sql *sql = pj_view_select(view, PJ_TABLE_PHASES,
                                 "id, phase, start_ms, duration_ms, " PJ_ENERGY_COLUMNS
                                 ", " PJ_DISTURBED_COLUMNS,
                                 "ORDER BY id", err);
    pj_json_kv_array_begin(view->json, "phases");
    while (status == PJ_OK && pj_sql_step(sql)) {
        int64_t id = pj_sql_get_int(sql, 0);
        pj_json_object_begin(view->json);
        views_time_write_phase(view, sql);
        write_section_sums(view->json, sums, count,
                           (uint32_t)(id - view->ranges[PJ_TABLE_PHASES].first));
        if (sections && is_wanted(window, sql))
            status = write_sections(view, id, window, &left, err);
        pj_json_object_end(view->json);
    }
    pj_json_array_end(view->json);
    return pj_sql_end_after(sql, status, err);
}

pj_status pj_view_pipeline(pj_store *store, const char *id, const pj_view_window *window,
                           pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) {
        pj_json_object_begin(json);
        pj_view_head(&view, false);
        pj_json_kv_double(json, "total_duration_ms", view.info->total_ms);
        status = pj_view_write_phases(&view, window, true, err);
        pj_json_object_end(json);
    }
    return pj_view_close(&view, status);
}

/* ---- power ----------------------------------------------------------------------------------- */

typedef struct power_table {
    pj_power_series series;
    float *confidence;
    uint32_t first; /* index of the first sample in the window */
} power_table;

static bool views_time_make_room(power_table *p, uint32_t capacity, pj_arena *arena)
{
    pj_power_series *s = &p->series;
    s->t_ms = pj_arena_alloc(arena, capacity, sizeof *s->t_ms);
    s->phase = pj_arena_alloc(arena, capacity, 1);
    p->confidence = pj_arena_alloc(arena, capacity, sizeof *p->confidence);
    bool good = s->t_ms && s->phase && p->confidence;
    for (int c = 0; c <= PJ_RAIL_TOTAL && good; c++) {
        s->columns[c] = pj_arena_alloc(arena, capacity, sizeof(double));
        good = s->columns[c] != NULL;
    }
    return good;
}

/* All samples of the run, or those in the window. */
static pj_status views_time_read_power(pj_run_view *view, const pj_view_window *window,
                                       pj_arena *arena, power_table *p, pj_error *err)
{
    *p = (power_table){0};
    bool whole = !window || (window->from_ms == 0 && window->to_ms == 0);
    uint32_t capacity = view->ranges[PJ_TABLE_SAMPLES].count;
    if (capacity == 0) return PJ_OK;
    pj_sql *sql = pj_view_select(view, PJ_TABLE_SAMPLES, "count(*)", "", err);
    if (pj_sql_step(sql) && pj_sql_get_int(sql, 0) < capacity)
        capacity = (uint32_t)pj_sql_get_int(sql, 0);
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK || capacity == 0) return status;
    if (!views_time_make_room(p, capacity, arena)) return pj_fail_memory(err, "the power samples");
    sql = pj_view_select(view, PJ_TABLE_SAMPLES,
                         "timestamp_ms, cpu_power_mw, gpu_power_mw, ane_power_mw, dram_power_mw,"
                         " total_power_mw, phase, phase_confidence",
                         "ORDER BY id", err);
    pj_power_series *s = &p->series;
    for (uint32_t row = 0; s->count < capacity && pj_sql_step(sql); row++) {
        double t = pj_sql_get_double(sql, 0);
        if (!whole && (t < window->from_ms || t > window->to_ms)) continue;
        if (s->count == 0) p->first = row;
        s->t_ms[s->count] = t;
        for (int c = 0; c <= PJ_RAIL_TOTAL; c++)
            s->columns[c][s->count] = pj_sql_get_double(sql, c + 1);
        const char *name = pj_sql_get_text(sql, 6, NULL);
        int phase = name ? pj_phase_parse(name) : -1;
        s->phase[s->count] = (uint8_t)(phase < 0 ? 0 : phase);
        p->confidence[s->count++] = (float)pj_sql_get_double(sql, 7);
    }
    return pj_sql_end(sql, err);
}

/* Min-max thinning: two rows per bucket of `bucket` samples (one row if it is 1). */
typedef struct thinning {
    uint32_t count, bucket;
} thinning;

static uint32_t views_time_rows_of(const thinning *t)
{
    if (t->bucket == 1) return t->count;
    return (t->count + t->bucket - 1) / t->bucket * 2;
}

/* The sample whose time represents an output row. */
static uint32_t sample_of(const thinning *t, uint32_t row)
{
    if (t->bucket == 1) return row;
    uint32_t begin = row / 2 * t->bucket, end = begin + t->bucket;
    if (end > t->count) end = t->count;
    return row % 2 ? (begin + end) / 2 : begin;
}

static void bucket_extremes(const double *values, uint32_t begin, uint32_t end, double pair[2])
{
    uint32_t low = begin, high = begin;
    for (uint32_t i = begin; i < end; i++) {
        if (isnan(values[i])) continue;
        if (isnan(values[low]) || values[i] < values[low]) low = i;
        if (isnan(values[high]) || values[i] > values[high]) high = i;
    }
    pair[0] = values[low < high ? low : high];
    pair[1] = values[low < high ? high : low];
}

static void write_thinned(pj_json *json, const double *values, const thinning *t)
{
    pj_json_array_begin(json);
    for (uint32_t begin = 0; begin < t->count; begin += t->bucket) {
        double pair[2];
        if (t->bucket == 1) {
            pj_json_float(json, (float)values[begin]);
            continue;
        }
        uint32_t end = begin + t->bucket < t->count ? begin + t->bucket : t->count;
        bucket_extremes(values, begin, end, pair);
        pj_json_float(json, (float)pair[0]);
        pj_json_float(json, (float)pair[1]);
    }
    pj_json_array_end(json);
}

/* The mean of each bucket; what its extremes lie around. */
static void write_means(pj_json *json, const double *values, const thinning *t)
{
    pj_json_array_begin(json);
    for (uint32_t begin = 0; begin < t->count; begin += t->bucket) {
        uint32_t end = begin + t->bucket < t->count ? begin + t->bucket : t->count, n = 0;
        double sum = 0;
        for (uint32_t i = begin; i < end; i++) {
            if (isnan(values[i])) continue;
            sum += values[i];
            n++;
        }
        pj_json_float(json, n ? (float)(sum / n) : NAN);
    }
    pj_json_array_end(json);
}

static bool views_time_is_empty(const double *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isnan(values[i])) return false;
    return true;
}

static void write_axis(pj_json *json, const power_table *p, const thinning *t)
{
    uint32_t rows = views_time_rows_of(t);
    pj_json_kv_array_begin(json, "phase_names");
    for (int i = 0; i < PJ_PHASE_COUNT; i++) pj_json_string(json, pj_phase_name((pj_phase)i));
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "t_ms");
    for (uint32_t i = 0; i < rows; i++) pj_json_double(json, p->series.t_ms[sample_of(t, i)]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "phase");
    for (uint32_t i = 0; i < rows; i++) pj_json_int(json, p->series.phase[sample_of(t, i)]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "phase_confidence");
    for (uint32_t i = 0; i < rows; i++) pj_json_float(json, p->confidence[sample_of(t, i)]);
    pj_json_array_end(json);
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++) {
        pj_json_key(json, pj_rail_class_column((pj_rail_class)c));
        if (views_time_is_empty(p->series.columns[c], t->count))
            pj_json_null(json);
        else
            write_thinned(json, p->series.columns[c], t);
    }
    if (t->bucket == 1) return;
    pj_json_kv_object_begin(json, "means");
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++) {
        if (views_time_is_empty(p->series.columns[c], t->count)) continue;
        pj_json_key(json, pj_rail_class_column((pj_rail_class)c));
        write_means(json, p->series.columns[c], t);
    }
    pj_json_object_end(json);
}

static pj_status views_time_write_rails(pj_run_view *view, const power_table *p, const thinning *t,
                                        bool series, pj_error *err)
{
    pj_json *json = view->json;
    double *values = pj_arena_alloc(&view->one.arena, t->count + 1, sizeof *values);
    if (!values) return pj_fail_memory(err, "the power samples");
    pj_sql *sql = pj_view_select(view, PJ_TABLE_RAILS,
                                 "rail_name, rail_class, source, quality, baseline_mw, power_mw",
                                 "ORDER BY id", err);
    pj_json_kv_array_begin(json, "rails");
    while (pj_sql_step(sql)) {
        size_t bytes = 0;
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", pj_sql_get_text(sql, 0, NULL));
        pj_json_kv_string(json, "class", pj_sql_get_text(sql, 1, NULL));
        pj_json_kv_string(json, "source", pj_sql_get_text(sql, 2, NULL));
        pj_json_kv_string(json, "quality", pj_sql_get_text(sql, 3, NULL));
        pj_json_kv_double(json, "baseline_mw", pj_sql_get_double(sql, 4));
        const char *blob = series ? pj_sql_get_blob(sql, 5, &bytes) : NULL;
        if (blob && t->count && bytes / sizeof(double) >= (size_t)p->first + t->count) {
            memcpy(values, blob + p->first * sizeof(double), t->count * sizeof(double));
            pj_json_key(json, "power_mw");
            write_thinned(json, values, t);
        }
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return pj_sql_end(sql, err);
}

static pj_status write_phase_spans(pj_run_view *view, pj_error *err)
{
    pj_json *json = view->json;
    pj_sql *sql =
        pj_view_select(view, PJ_TABLE_PHASES, "phase, start_ms, duration_ms", "ORDER BY id", err);
    pj_json_kv_array_begin(json, "phases");
    while (pj_sql_step(sql)) {
        double start = pj_sql_get_double(sql, 1);
        pj_json_object_begin(json);
        pj_json_kv_string(json, "phase", pj_sql_get_text(sql, 0, NULL));
        pj_json_kv_double(json, "start_ms", start);
        pj_json_kv_double(json, "end_ms", start + pj_sql_get_double(sql, 2));
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    return pj_sql_end(sql, err);
}

static pj_status views_time_write_power(pj_run_view *view, const pj_view_window *window, bool rails,
                                        pj_error *err)
{
    power_table p;
    uint32_t points = window->limit ? window->limit : 2000;
    if (points < 2) points = 2;
    pj_status status = views_time_read_power(view, window, &view->one.arena, &p, err);
    if (status != PJ_OK) return status;
    thinning t = {p.series.count, 1};
    if (t.count > points) t.bucket = (t.count + points / 2 - 1) / (points / 2);
    pj_json_object_begin(view->json);
    pj_view_head(view, false);
    pj_json_kv_uint(view->json, "samples_total", view->ranges[PJ_TABLE_SAMPLES].count);
    pj_json_kv_uint(view->json, "samples_in_range", t.count);
    pj_json_kv_uint(view->json, "bucket_samples", t.bucket);
    write_axis(view->json, &p, &t);
    status = views_time_write_rails(view, &p, &t, rails, err);
    if (status == PJ_OK) status = write_phase_spans(view, err);
    pj_json_object_end(view->json);
    return status;
}

pj_status pj_view_power(pj_store *store, const char *id, const pj_view_window *window, bool rails,
                        pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) status = views_time_write_power(&view, window, rails, err);
    return pj_view_close(&view, status);
}

pj_status pj_view_power_series(pj_store *store, const char *id, pj_arena *arena,
                               pj_power_series *series, pj_error *err)
{
    pj_run_view view;
    power_table p = {0};
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) status = views_time_read_power(&view, NULL, arena, &p, err);
    *series = p.series;
    return pj_view_close(&view, status);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static pj_status energy_before(pj_run_view *view, uint64_t offset, double *mj, pj_error *err)
{
    *mj = 0;
    if (offset == 0) return PJ_OK;
    pj_sql *sql = pj_view_select(view, PJ_TABLE_TOKENS, "total(energy_mj)", "AND id < ?3", err);
    pj_sql_int(sql, 3, view->ranges[PJ_TABLE_TOKENS].first + (int64_t)offset);
    if (pj_sql_step(sql)) *mj = pj_sql_get_double(sql, 0);
    return pj_sql_end(sql, err);
}

/* Columns of a token after its energies. */
enum {
    POWER = 8 + PJ_ENERGY_COLUMN_COUNT,
    DISTURBED,
    STEP,
    CONTEXT_TOKENS,
    SHARE,
    CONTEXT_SHARE,
    DISTURBED_PART
};

static void write_token(pj_run_view *view, pj_sql *sql, double *cumulative)
{
    pj_json *json = view->json;
    size_t bytes;
    double mj = pj_sql_get_double(sql, 8), ms = pj_sql_get_double(sql, 7);
    if (!isnan(mj)) *cumulative += mj;
    pj_json_object_begin(json);
    pj_json_kv_int(json, "token", pj_sql_get_int(sql, 0) - view->ranges[PJ_TABLE_TOKENS].first);
    pj_json_kv_int(json, "position", pj_sql_get_int(sql, 1));
    pj_json_kv_int(json, "sequence", pj_sql_get_int(sql, 2));
    write_optional(json, "token_id", sql, 3);
    const char *text = pj_sql_get_text(sql, 4, &bytes);
    pj_json_key(json, "text");
    if (text)
        pj_json_string_n(json, text, bytes);
    else
        pj_json_null(json);
    pj_json_kv_string(json, "phase", pj_sql_get_text(sql, 5, NULL));
    pj_json_kv_double(json, "start_ms", pj_sql_get_double(sql, 6));
    pj_json_kv_double(json, "duration_ms", ms);
    pj_json_kv_energies(json, sql, 8);
    write_delay_of(json, mj, ms);
    pj_json_kv_double(json, "power_snapshot_mw", pj_sql_get_double(sql, POWER));
    pj_json_kv_double(json, "cumulative_energy_mj", isnan(mj) ? NAN : *cumulative);
    if (pj_sql_get_type(sql, DISTURBED) == PJ_VALUE_NULL)
        pj_json_kv_null(json, "disturbed");
    else
        pj_json_kv_bool(json, "disturbed", pj_sql_get_int(sql, DISTURBED) != 0);
    pj_json_kv_disturbed(json, sql, DISTURBED_PART);
    write_token_index(view, sql, STEP, "step");
    write_optional(json, "context_tokens", sql, CONTEXT_TOKENS);
    pj_json_kv_double(json, "share", pj_sql_get_double(sql, SHARE));
    pj_json_kv_double(json, "context_share", pj_sql_get_double(sql, CONTEXT_SHARE));
    pj_json_object_end(json);
}

static pj_status write_tokens(pj_run_view *view, uint64_t offset, uint32_t limit, pj_error *err)
{
    pj_json *json = view->json;
    double cumulative;
    if (offset > UINT32_MAX) offset = UINT32_MAX;
    pj_status status = energy_before(view, offset, &cumulative, err);
    if (status != PJ_OK) return status;
    pj_json_object_begin(json);
    pj_view_head(view, false);
    pj_json_kv_uint(json, "total", view->ranges[PJ_TABLE_TOKENS].count);
    pj_json_kv_uint(json, "offset", offset);
    pj_sql *sql = pj_view_select(view, PJ_TABLE_TOKENS,
                                 "id, position, sequence, vocabulary_id, text, phase, start_ms,"
                                 " duration_ms, " PJ_ENERGY_COLUMNS
                                 ", power_snapshot_mw, disturbed, step_id, context_tokens,"
                                 " share, context_share, " PJ_DISTURBED_COLUMNS,
                                 "AND id >= ?3 ORDER BY id LIMIT ?4", err);
    pj_sql_int(sql, 3, view->ranges[PJ_TABLE_TOKENS].first + (int64_t)offset);
    pj_sql_int(sql, 4, limit ? limit : 10000);
    pj_json_kv_array_begin(json, "tokens");
    while (pj_sql_step(sql)) write_token(view, sql, &cumulative);
    pj_json_array_end(json);
    pj_json_object_end(json);
    return pj_sql_end(sql, err);
}

pj_status pj_view_tokens(pj_store *store, const char *id, uint64_t offset, uint32_t limit,
                         pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) status = write_tokens(&view, offset, limit, err);
    return pj_view_close(&view, status);
}

static pj_status read_token_series(pj_run_view *view, pj_arena *arena, pj_token_series *series,
                                   pj_error *err)
{
    uint32_t capacity = view->ranges[PJ_TABLE_TOKENS].count;
    int64_t first = view->ranges[PJ_TABLE_TOKENS].first, rows = 0;
    pj_sql *sql = pj_view_select(view, PJ_TABLE_TOKENS, "count(*)", "", err);
    if (pj_sql_step(sql)) rows = pj_sql_get_int(sql, 0);
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK || rows == 0) return status;
    if (rows < capacity) capacity = (uint32_t)rows;
    series->token = pj_arena_alloc(arena, capacity, sizeof *series->token);
    series->start_ms = pj_arena_alloc(arena, capacity, sizeof(double));
    series->duration_ms = pj_arena_alloc(arena, capacity, sizeof(double));
    series->energy_mj = pj_arena_alloc(arena, capacity, sizeof(double));
    series->energy_sd_mj = pj_arena_alloc(arena, capacity, sizeof(double));
    if (!series->token || !series->start_ms || !series->duration_ms || !series->energy_mj ||
        !series->energy_sd_mj)
        return pj_fail_memory(err, "the tokens of a run");
    sql = pj_view_select(view, PJ_TABLE_TOKENS,
                         "min(id), min(start_ms), max(duration_ms), sum(energy_mj),"
                         " sum(energy_sd_mj)",
                         "AND phase = 'decode' GROUP BY position ORDER BY min(id)", err);
    while (series->count < capacity && pj_sql_step(sql)) {
        uint32_t i = series->count++;
        series->token[i] = (uint32_t)(pj_sql_get_int(sql, 0) - first);
        series->start_ms[i] = pj_sql_get_double(sql, 1);
        series->duration_ms[i] = pj_sql_get_double(sql, 2);
        series->energy_mj[i] = pj_sql_get_double(sql, 3);
        series->energy_sd_mj[i] = pj_sql_get_double(sql, 4);
    }
    return pj_sql_end(sql, err);
}

pj_status pj_view_token_series(pj_store *store, const char *id, pj_arena *arena,
                               pj_token_series *series, pj_error *err)
{
    pj_run_view view;
    *series = (pj_token_series){0};
    pj_status status = pj_view_open(&view, store, id, NULL, err);
    if (status == PJ_OK) status = read_token_series(&view, arena, series, err);
    return pj_view_close(&view, status);
}

/* ---- clocks --------------------------------------------------------------------------------- */

enum { CLOCK_READINGS = 1 << 16 };

/* The token that is running at a time; count: none. */
static uint32_t token_at(const pj_token_series *tokens, double t_ms)
{
    uint32_t lo = 0, hi = tokens->count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (tokens->start_ms[mid] + tokens->duration_ms[mid] < t_ms)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < tokens->count && tokens->start_ms[lo] <= t_ms ? lo : tokens->count;
}

pj_status pj_view_token_clocks(pj_store *store, const char *id, pj_arena *arena,
                               const pj_token_series *tokens, double **share, pj_error *err)
{
    double *found = pj_arena_alloc(arena, tokens->count + 1, sizeof *found);
    uint32_t rows = 0;
    *share = NULL;
    if (!found) return pj_fail_memory(err, "the clocks of a run");
    for (uint32_t i = 0; i < tokens->count; i++) found[i] = NAN;
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT c.t_ms, c.clock_mhz / m.usual FROM run_conditions c"
                               " JOIN (SELECT device, avg(clock_mhz) AS usual FROM run_conditions"
                               "  WHERE run_id = ? AND clock_mhz > 0 GROUP BY device) m"
                               " ON m.device = c.device WHERE c.run_id = ? AND c.clock_mhz > 0"
                               " ORDER BY c.t_ms",
                               err);
    pj_sql_text(sql, 1, id);
    pj_sql_text(sql, 2, id);
    while (rows < CLOCK_READINGS && pj_sql_step(sql)) {
        uint32_t at = token_at(tokens, pj_sql_get_double(sql, 0));
        double clock = pj_sql_get_double(sql, 1);
        rows++;
        if (at < tokens->count && !(found[at] < clock)) found[at] = clock;
    }
    if (rows) *share = found;
    return pj_sql_end(sql, err);
}
