/* Times of comparable runs. */
#include "store/usual_times.h"

#include "base/median.h"
#include "store/sql.h"
#include "trace/request.h"
#include "trace/summary.h"

enum { MOST_RUNS = 24 };

#define SAME(column) " AND coalesce(r." column ", '') = coalesce(CAST(? AS TEXT), '')"
static const char comparable_runs[] =
    "SELECT r.input_tokens, r.prefill_duration_ms - coalesce(r.prefill_disturbed_duration_ms, 0),"
    " (SELECT sum(s.duration_ms - coalesce(s.disturbed_ms, 0)) FROM pipeline_sections s"
    "  WHERE s.run_id = r.id AND s.section_name = '" PJ_SECTION_MODEL_LOAD "')"
    " FROM profiling_runs r WHERE r.status = 'completed' AND r.model_name = ?" SAME("dtype")
        SAME("engine") SAME("machine") SAME(
            "profiling_depth") " AND coalesce(r.threads, 0) = ? AND coalesce(r.batch_size, 0) = ?"
                               " ORDER BY r.created_ns DESC LIMIT 24";

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

pj_status pj_store_usual_times(pj_store *store, const pj_run_info *info, pj_usual_times *usual,
                               pj_error *err)
{
    times prefill = {.count = 0}, load = {.count = 0};
    double tokens = (double)info->input_tokens;
    *usual = PJ_USUAL_TIMES_UNKNOWN;
    if (!info->model_name) return PJ_OK;
    pj_sql *sql = pj_sql_begin(store, comparable_runs, err);
    pj_sql_text(sql, 1, info->model_name);
    pj_sql_text(sql, 2, info->dtype);
    pj_sql_text(sql, 3, info->engine);
    pj_sql_text(sql, 4, info->machine);
    pj_sql_text(sql, 5, pj_depth_name(info->depth));
    pj_sql_int(sql, 6, info->threads);
    pj_sql_int(sql, 7, info->batch_size);
    while (pj_sql_step(sql)) {
        double theirs = pj_sql_get_double(sql, 0);
        bool alike = theirs > 0 && tokens >= theirs / 2 && tokens <= 2 * theirs;
        if (alike) times_add(&prefill, pj_sql_get_double(sql, 1) * tokens / theirs);
        times_add(&load, pj_sql_get_double(sql, 2));
    }
    usual->prefill_ms = times_usual(&prefill);
    usual->model_load_ms = times_usual(&load);
    return pj_sql_end(sql, err);
}
