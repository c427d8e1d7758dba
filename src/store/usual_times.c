/* Times of comparable runs. */
#include "store/usual_times.h"

#include "base/median.h"
#include "store/sql.h"
#include "trace/request.h"
#include "trace/summary.h"

#include <jansson.h>
#include <string.h>

enum { MOST_RUNS = 24 }; /* of each kind, among the newest 240 of this model */

/* Settings on which these times depend, besides the columns below. */
static const char *const deciding_settings[] = {"no_mmap", "device", "draft_model", "draft_tokens"};

#define SAME(column) " AND coalesce(r." column ", '') = coalesce(CAST(? AS TEXT), '')"
static const char comparable_runs[] =
    "SELECT r.input_tokens, r.prefill_duration_ms - coalesce(r.prefill_disturbed_duration_ms, 0),"
    " (SELECT sum(s.duration_ms - coalesce(s.disturbed_ms, 0)) FROM pipeline_sections s"
    "  WHERE s.run_id = r.id AND s.section_name = '" PJ_SECTION_MODEL_LOAD "'), r.settings"
    " FROM profiling_runs r WHERE r.status = 'completed' AND r.model_name = ?" SAME("dtype")
        SAME("engine") SAME("machine") SAME("profiling_depth")
            SAME("isa") " AND coalesce(r.threads, 0) = ? AND coalesce(r.batch_size, 0) = ?"
                        " ORDER BY r.created_ns DESC LIMIT 240";

typedef struct times {
    double values[MOST_RUNS];
    size_t count;
} times;

static void times_add(times *t, double value)
{
    if (value > 0 && t->count < MOST_RUNS) t->values[t->count++] = value;
}

static double times_usual(times *t)
{
    return t->count < PJ_DISTURBED_LEAST_RUNS ? NAN : pj_median(t->values, t->count);
}

/* "cpu" is what no device stands for. */
static const json_t *deciding(const json_t *settings, const char *name)
{
    const json_t *value = json_object_get(settings, name);
    const char *text = json_string_value(value);
    return text && strcmp(text, "cpu") == 0 ? NULL : value;
}

static bool same_settings(const json_t *a, const char *text, size_t bytes)
{
    json_t *b = text ? json_loadb(text, bytes, JSON_ALLOW_NUL, NULL) : NULL;
    bool same = true;
    for (size_t i = 0; i < sizeof deciding_settings / sizeof *deciding_settings; i++) {
        const json_t *of_a = deciding(a, deciding_settings[i]);
        const json_t *of_b = deciding(b, deciding_settings[i]);
        same = same && (of_a || of_b ? json_equal(of_a, of_b) : true);
    }
    json_decref(b);
    return same;
}

pj_status pj_store_usual_times(pj_store *store, const pj_run_info *info, pj_usual_times *usual,
                               pj_error *err)
{
    times prefill = {.count = 0}, load = {.count = 0};
    double tokens = (double)info->input_tokens;
    *usual = PJ_USUAL_TIMES_UNKNOWN;
    if (!info->model_name) return PJ_OK;
    json_t *settings =
        info->settings_json ? json_loads(info->settings_json, JSON_ALLOW_NUL, NULL) : NULL;
    pj_sql *sql = pj_sql_begin(store, comparable_runs, err);
    pj_sql_text(sql, 1, info->model_name);
    pj_sql_text(sql, 2, info->dtype);
    pj_sql_text(sql, 3, info->engine);
    pj_sql_text(sql, 4, info->machine);
    pj_sql_text(sql, 5, pj_depth_name(info->depth));
    pj_sql_text(sql, 6, info->isa);
    pj_sql_int(sql, 7, info->threads);
    pj_sql_int(sql, 8, info->batch_size);
    while (pj_sql_step(sql)) {
        size_t bytes = 0;
        const char *of_theirs = pj_sql_get_text(sql, 3, &bytes);
        if (!same_settings(settings, of_theirs, bytes)) continue;
        double theirs = pj_sql_get_double(sql, 0);
        bool alike = theirs > 0 && tokens >= theirs / 2 && tokens <= 2 * theirs;
        if (alike) times_add(&prefill, pj_sql_get_double(sql, 1) * tokens / theirs);
        times_add(&load, pj_sql_get_double(sql, 2));
    }
    json_decref(settings);
    usual->prefill_ms = times_usual(&prefill);
    usual->model_load_ms = times_usual(&load);
    return pj_sql_end(sql, err);
}
