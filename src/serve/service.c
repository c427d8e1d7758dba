#include "serve/service.h"

#include "base/clock.h"
#include "experiment/experiment_view.h"
#include "generate/predict.h"
#include "generate/preflight.h"
#include "insight/advice.h"
#include "insight/explained.h"
#include "insight/insight.h"
#include "insight/laws.h"
#include "insight/task_session.h"
#include "report/report.h"
#include "serve/machine.h"
#include "store/export.h"
#include "store/machines.h"
#include "store/outbox.h"
#include "store/run_summary.h"
#include "store/views.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- connections to the database ------------------------------------------------------------ */

void pj_serve_init(pj_serve *serve)
{
    pthread_mutex_init(&serve->mutex, NULL);
    pthread_cond_init(&serve->returned, NULL);
}

void pj_serve_fini(pj_serve *serve)
{
    while (serve->idle_count > 0) pj_store_close(serve->idle[--serve->idle_count]);
    pthread_mutex_destroy(&serve->mutex);
    pthread_cond_destroy(&serve->returned);
}

static pj_status service_open_store(const pj_serve *serve, pj_store **store, pj_error *err)
{
    return pj_store_open(&(pj_store_options){.path = serve->database}, store, err);
}

/* For a connection that lasts as long as its reader takes. */
static pj_status open_small_store(const pj_serve *serve, pj_store **store, pj_error *err)
{
    pj_status status = service_open_store(serve, store, err);
    if (status == PJ_OK) pj_store_limit_cache(*store);
    return status;
}

/* Waits while all PJ_SERVE_STORES are in use, which also limits concurrent views. */
static pj_status take_store(pj_serve *serve, pj_store **store, pj_error *err)
{
    pthread_mutex_lock(&serve->mutex);
    while (serve->idle_count == 0 && serve->open_count == PJ_SERVE_STORES)
        pthread_cond_wait(&serve->returned, &serve->mutex);
    *store = serve->idle_count > 0 ? serve->idle[--serve->idle_count] : NULL;
    if (!*store) serve->open_count++;
    pthread_mutex_unlock(&serve->mutex);
    if (*store) return PJ_OK;
    pj_status status = service_open_store(serve, store, err);
    if (status == PJ_OK) return PJ_OK;
    pthread_mutex_lock(&serve->mutex);
    serve->open_count--;
    pthread_cond_signal(&serve->returned);
    pthread_mutex_unlock(&serve->mutex);
    return status;
}

static void give_store(pj_serve *serve, pj_store *store)
{
    pthread_mutex_lock(&serve->mutex);
    serve->idle[serve->idle_count++] = store;
    pthread_cond_signal(&serve->returned);
    pthread_mutex_unlock(&serve->mutex);
}

/* ---- runs ---------------------------------------------------------------------------------- */

static pj_status resolve(void *context, const char *text, char id[PJ_UUID_BYTES], pj_error *err)
{
    pj_serve *serve = context;
    pj_store *store;
    if (pj_run_queue_find(serve->queue, text, id)) return PJ_OK;
    const pj_run_info *leftover;
    pj_status status = take_store(serve, &store, err);
    if (status != PJ_OK) return status;
    status =
        pj_leftovers_resolve(pj_recovery_waiting(serve->recovery), store, text, id, &leftover, err);
    give_store(serve, store);
    if (!leftover) return status;
    if (pj_recovery_wait(serve->recovery, 0).done)
        return pj_fail(err, PJ_E_NOT_FOUND,
                       "run %s was interrupted and stays in its spool: perjoule check says why",
                       id);
    return pj_fail(err, PJ_E_AGAIN,
                   "run %s was interrupted and is being recovered; try again shortly", id);
}

static pj_cost_rates rates_of(const pj_params *params)
{
    pj_cost_rates rates = PJ_COST_RATES_DEFAULT;
    rates.usd_per_kwh = pj_params_number(params, "usd_per_kwh", rates.usd_per_kwh);
    rates.co2_g_per_kwh = pj_params_number(params, "g_per_kwh", rates.co2_g_per_kwh);
    return rates;
}

/* A run is stored and announced slightly before the queue releases it. */
static bool is_stored(pj_serve *serve, const char *id)
{
    char found[PJ_UUID_BYTES];
    pj_error err = {0};
    pj_store *store;
    if (take_store(serve, &store, &err) != PJ_OK) return false;
    pj_status status = pj_store_resolve(store, id, found, &err);
    give_store(serve, store);
    return status == PJ_OK && strcmp(found, id) == 0;
}

/* Of a killed run that is not recovered yet, by what its spool begins with. */
static bool service_take_leftover(pj_serve *serve, const char *id, pj_run_info *info)
{
    const pj_run_list *waiting = pj_recovery_waiting(serve->recovery);
    for (uint32_t i = 0; i < waiting->count; i++)
        if (strcmp(waiting->runs[i].id, id) == 0) {
            *info = waiting->runs[i];
            return true;
        }
    return false;
}

/* The summary of a waiting, running or leftover run contains only what was requested. True:
 * answered, or `status` is a failure. */
static bool view_unfinished(pj_serve *serve, const pj_view_request *r, const pj_cost_rates *rates,
                            pj_json *out, pj_status *status, pj_error *err)
{
    pj_run_info info;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    bool found = r->id &&
                 (pj_run_queue_info(serve->queue, r->id, &info, &arena) ||
                  service_take_leftover(serve, r->id, &info)) &&
                 !is_stored(serve, r->id);
    *status = PJ_OK;
    if (found && (r->view == PJ_VIEW_RUN || r->view == PJ_VIEW_SUMMARY))
        pj_summary_write(out, &info, rates);
    else if (found)
        *status =
            pj_fail(err, PJ_E_STATE,
                    "run %s has not ended yet, and its rows are stored at its end; live figures "
                    "are at /ws/profiling and /api/profiling/run/%s/live",
                    r->id, r->id);
    pj_arena_fini(&arena);
    return found;
}

static pj_status view_pending_runs(pj_serve *serve, const char *wanted, const pj_cost_rates *rates,
                                   pj_json *out, uint64_t *total)
{
    pj_arena arena;
    char ids[1 + PJ_QUEUE_MAX][PJ_UUID_BYTES];
    uint32_t count = pj_run_queue_list(serve->queue, ids, 1 + PJ_QUEUE_MAX);
    pj_arena_init(&arena, 0);
    pj_json_array_begin(out);
    for (uint32_t i = count; i-- > 0;) { /* newest first */
        pj_run_info info;
        if (!pj_run_queue_info(serve->queue, ids[i], &info, &arena) ||
            strcmp(pj_run_status_name(info.status), wanted) != 0)
            continue;
        pj_summary_write(out, &info, rates);
        ++*total;
    }
    pj_json_array_end(out);
    pj_arena_fini(&arena);
    return PJ_OK;
}

/* Converts parameters to a query; `tags` is storage for the tags. */
static pj_run_bounds bounds_of(const pj_params *params, const char *min, const char *max)
{
    return (pj_run_bounds){pj_params_text(params, min) != NULL, pj_params_text(params, max) != NULL,
                           pj_params_number(params, min, 0), pj_params_number(params, max, 0)};
}

static pj_run_query query_of(const pj_params *params, const char *tags[PJ_PARAMS_MAX])
{
    const char *sort = pj_params_text(params, "sort");
    pj_run_query query = {
        .search = pj_params_text(params, "search"),
        .model = pj_params_text(params, "model"),
        .experiment = pj_params_text(params, "experiment"),
        .status = pj_params_text(params, "status"),
        .repeat_group = pj_params_text(params, "repeat_group"),
        .energy_source = pj_params_text(params, "energy_source"),
        .from = pj_params_text(params, "from"),
        .to = pj_params_text(params, "to"),
        .tags = tags,
        .engine = pj_params_text(params, "engine"),
        .dtype = pj_params_text(params, "dtype"),
        .scope = pj_params_text(params, "scope"),
        .level = pj_params_text(params, "level"),
        .machine = pj_params_text(params, "machine"),
        .energy_mj = bounds_of(params, "min_energy_mj", "max_energy_mj"),
        .joules_per_token = bounds_of(params, "min_joules_per_token", "max_joules_per_token"),
        .joules_per_token_typical =
            bounds_of(params, "min_joules_per_token_typical", "max_joules_per_token_typical"),
        .sort = sort ? (pj_run_sort)pj_run_sort_parse(sort) : PJ_SORT_DATE,
        .ascending = pj_params_is(params, "order", "asc"),
        .limit = (uint32_t)pj_params_int(params, "limit", 0),
        .offset = (uint64_t)pj_params_int(params, "offset", 0),
    };
    for (uint32_t i = 0; i < params->count; i++)
        if (strcmp(params->items[i].name, "tag") == 0)
            tags[query.tag_count++] = params->items[i].value;
    return query;
}

static pj_status view_runs(pj_serve *serve, pj_store *store, const pj_params *params,
                           const pj_cost_rates *rates, pj_json *out, uint64_t *total, pj_error *err)
{
    const char *tags[PJ_PARAMS_MAX];
    pj_run_query query = query_of(params, tags);
    const pj_run_info **first = NULL;
    uint32_t count = 0;
    if (pj_leftovers_wanted(&query))
        first = pj_leftovers_unstored(pj_recovery_waiting(serve->recovery), store, &count);
    pj_status status = pj_view_runs_after(first, count, store, &query, rates, out, total, err);
    pj_free(first);
    return status;
}

static pj_view_choice service_choice_of(const pj_params *params)
{
    const char *metric = pj_params_text(params, "metric");
    return (pj_view_choice){
        .metric = metric ? (pj_metric)pj_metric_parse(metric) : PJ_METRIC_ENERGY,
        .token = pj_params_int(params, "token", PJ_ANY),
        .layer = (int32_t)pj_params_int(params, "layer", PJ_ANY),
        .component = pj_params_text(params, "component"),
        .phase = pj_params_text(params, "phase"),
    };
}

static pj_view_window service_window_of(const pj_params *params, const char *limit)
{
    return (pj_view_window){.phase = pj_params_text(params, "phase"),
                            .from_ms = pj_params_number(params, "from_ms", 0),
                            .to_ms = pj_params_number(params, "to_ms", 0),
                            .limit = (uint32_t)pj_params_int(params, limit, 0)};
}

static pj_span_window spans_of(const pj_params *params)
{
    return (pj_span_window){.from_ms = pj_params_number(params, "from_ms", 0),
                            .to_ms = pj_params_number(params, "to_ms", 0),
                            .deepest = pj_params_text(params, "level"),
                            .name = pj_params_text(params, "name"),
                            .limit = (uint32_t)pj_params_int(params, "limit", 0),
                            .is_grouped = pj_params_is(params, "group", "name")};
}

/* Splits "a,b[,c,d]" and resolves each id as the command line does. */
typedef struct id_list {
    char texts[PJ_COMPARE_MAX][PJ_UUID_BYTES];
    const char *ids[PJ_COMPARE_MAX];
    uint32_t count;
} id_list;

static pj_status service_read_ids(const pj_params *params, uint32_t least, id_list *list,
                                  pj_error *err)
{
    const char *text = pj_params_text(params, "ids");
    list->count = 0;
    for (const char *p = text ? text : ""; *p;) {
        size_t length = strcspn(p, ",");
        if (list->count == PJ_COMPARE_MAX || length == 0 || length >= sizeof list->texts[0]) {
            list->count = 0;
            break;
        }
        memcpy(list->texts[list->count], p, length);
        list->texts[list->count][length] = 0;
        list->ids[list->count] = list->texts[list->count];
        list->count++;
        p += length + (p[length] == ',');
    }
    if (list->count < least)
        return pj_fail(err, PJ_E_INVALID, "ids must be %u to %d run ids separated by commas", least,
                       PJ_COMPARE_MAX);
    return PJ_OK;
}

static pj_status view_compare(pj_store *store, const pj_params *params, const pj_cost_rates *rates,
                              pj_json *out, pj_error *err)
{
    id_list list;
    pj_status status = service_read_ids(params, 2, &list, err);
    if (status != PJ_OK) return status;
    return pj_insight_compare(store, list.ids, list.count, rates, out, err);
}

static pj_status view_why(pj_store *store, const pj_params *params, pj_json *out, pj_error *err)
{
    const char *const sides[2] = {pj_params_text(params, "a"), pj_params_text(params, "b")};
    if (!sides[0] || !sides[1])
        return pj_fail(err, PJ_E_INVALID,
                       "a and b must be ids of runs, each one or several "
                       "separated by commas");
    return pj_insight_why(store, sides, out, err);
}

static pj_status report(pj_store *store, const pj_params *params, pj_buffer *out, pj_error *err)
{
    id_list list = {0};
    pj_report_request request = {.experiment = pj_params_text(params, "experiment"),
                                 .html = !pj_params_is(params, "format", "md")};
    pj_status status = request.experiment ? PJ_OK : service_read_ids(params, 1, &list, err);
    request.ids = list.ids;
    request.count = list.count;
    return status == PJ_OK ? pj_report_make(store, &request, out, err) : status;
}

static pj_status view_groups(pj_store *store, const pj_params *params, pj_json *out, pj_error *err)
{
    const char *tags[PJ_PARAMS_MAX];
    pj_group_query query = {.runs = query_of(params, tags),
                            .by = pj_params_text(params, "by"),
                            .with_disturbed = pj_params_is(params, "disturbed", "keep")};
    if (!query.by) return pj_fail(err, PJ_E_INVALID, "by must name a field to group the runs by");
    return pj_insight_groups(store, &query, out, err);
}

static pj_status view_predict(const pj_serve *serve, pj_store *store, const pj_params *p,
                              pj_json *out, pj_error *err)
{
    char path[4096];
    pj_predict_query request = {.model = path,
                                .dtype = pj_params_text(p, "dtype"),
                                .input = (uint32_t)pj_params_int(p, "input", 0),
                                .output = (uint32_t)pj_params_int(p, "output", 0),
                                .batch = (uint32_t)pj_params_int(p, "batch", 1),
                                .map = pj_params_is(p, "map", "true")};
    if (!request.input || !request.output)
        return pj_fail(err, PJ_E_INVALID, "input and output must be numbers of tokens");
    pj_status status = pj_serve_find_model(serve->models, pj_params_text(p, "model"), request.dtype,
                                           path, sizeof path, err);
    return status == PJ_OK ? pj_insight_predict(store, &request, out, err) : status;
}

/* ---- changes of stored runs ----------------------------------------------------------------- */

static pj_status delete_run(pj_serve *serve, pj_store *store, const char *id, pj_error *err)
{
    pj_run_info info;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    bool unfinished = pj_run_queue_info(serve->queue, id, &info, &arena);
    pj_arena_fini(&arena);
    if (unfinished)
        return pj_fail(err, PJ_E_STATE, "run %s has not ended yet; cancel it first", id);
    return pj_store_delete(store, id, err);
}

/* The parameters add and remove, in their order. */
static pj_status retag(pj_store *store, const char *id, const pj_params *params, pj_json *out,
                       pj_error *err)
{
    pj_tag_change changes[PJ_PARAMS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < params->count; i++)
        if (params->items[i].value[0])
            changes[count++] = (pj_tag_change){.tag = params->items[i].value,
                                               .remove = !strcmp(params->items[i].name, "remove")};
    if (count == 0) return pj_fail(err, PJ_E_INVALID, "give add=TAG, remove=TAG, or both");
    pj_json_object_begin(out);
    pj_json_kv_string(out, "id", id);
    pj_json_key(out, "tags");
    pj_status status = pj_store_retag(store, id, changes, count, out, err);
    pj_json_object_end(out);
    return status;
}

static pj_status describe_run(pj_store *store, const char *id, const pj_params *params,
                              pj_json *out, pj_error *err)
{
    const char *name = pj_params_text(params, "name"), *note = pj_params_text(params, "note");
    if (!name && !note) return pj_fail(err, PJ_E_INVALID, "give name=TEXT, note=TEXT, or both");
    pj_run_list one = {0};
    pj_status status = pj_store_describe(store, id, name, note, err);
    if (status == PJ_OK) status = pj_store_info(store, id, &one, err);
    if (status != PJ_OK) return status;
    pj_json_object_begin(out);
    pj_json_kv_string(out, "id", id);
    pj_json_kv_string(out, "name", one.runs->name);
    pj_json_kv_string(out, "note", one.runs->note);
    pj_json_object_end(out);
    pj_run_list_fini(&one);
    return PJ_OK;
}

typedef struct pruned {
    pj_json *out;
    uint64_t count;
} pruned;

static void write_pruned(void *context, const char *id)
{
    pruned *p = context;
    p->count++;
    pj_json_string(p->out, id);
}

static pj_status prune(pj_store *store, const pj_params *params, bool operations, pj_json *out,
                       pj_error *err)
{
    const char *before = pj_params_text(params, "before");
    pj_prune rule = {.before_ns = INT64_MAX,
                     .keep = (uint32_t)pj_params_int(params, "keep", 0),
                     .tagged = pj_params_is(params, "tagged", "true"),
                     .dry_run = pj_params_is(params, "dry_run", "true"),
                     .operations = operations};
    pruned p = {.out = out};
    if (!before && !rule.keep)
        return pj_fail(err, PJ_E_INVALID, "give before=TIME, keep=N, or both");
    if (before) pj_clock_parse_iso(before, &rule.before_ns); /* checked by the route's rules */
    pj_json_object_begin(out);
    pj_json_kv_array_begin(out, "runs");
    pj_status status = pj_store_prune(store, &rule, write_pruned, &p, err);
    pj_json_array_end(out);
    pj_json_kv_uint(out, operations ? "compacted" : "deleted", rule.dry_run ? 0 : p.count);
    pj_json_kv_bool(out, "dry_run", rule.dry_run);
    pj_json_object_end(out);
    return status;
}

/* ---- views of stored runs ------------------------------------------------------------------- */

static bool service_is_live(void *relay, const char *name)
{
    return pj_relay_has(relay, name);
}

static pj_status view_stored(pj_serve *serve, pj_store *store, const pj_view_request *r,
                             const pj_cost_rates *rates, pj_json *out, uint64_t *total,
                             pj_error *err)
{
    const pj_params *p = r->params;
    pj_view_choice choice = service_choice_of(p);
    pj_view_window window;
    pj_span_window spans;
    pj_experiment_live live;
    switch (r->view) {
    case PJ_VIEW_RUNS: return view_runs(serve, store, p, rates, out, total, err);
    case PJ_VIEW_FACETS: return pj_view_facets(store, out, err);
    case PJ_VIEW_RUN:
        return pj_view_run(store, r->id,
                           &(pj_view_page){.include = pj_params_text(p, "include"),
                                           .limit = (uint32_t)pj_params_int(p, "limit", 0),
                                           .offset = (uint64_t)pj_params_int(p, "offset", 0)},
                           rates, out, err);
    case PJ_VIEW_COMPARE: return view_compare(store, p, rates, out, err);
    case PJ_VIEW_WHY: return view_why(store, p, out, err);
    case PJ_VIEW_EXPERIMENTS:
        return pj_view_experiments(store, pj_experiments_live, serve->experiments, out, err);
    case PJ_VIEW_EXPERIMENT:
        pj_experiments_live(serve->experiments, r->id, &live);
        return pj_view_experiment(store, r->id, &live, out, err);
    case PJ_VIEW_PREDICT: return view_predict(serve, store, p, out, err);
    case PJ_VIEW_LAWS: return pj_insight_laws(store, pj_params_text(p, "machine"), out, err);
    case PJ_VIEW_SESSIONS:
        return pj_insight_sessions(store, pj_params_text(p, "by"), pj_params_text(p, "id"), out,
                                   err);
    case PJ_VIEW_MACHINES: return pj_view_machines(store, service_is_live, serve->relay, out, err);
    case PJ_VIEW_GROUPS: return view_groups(store, p, out, err);
    case PJ_VIEW_SUMMARY: return pj_insight_summary(store, r->id, rates, out, err);
    case PJ_VIEW_ADVICE:
        return pj_insight_advice(
            store, r->id, &(pj_advice_options){pj_params_number(p, "g_per_kwh", NAN)}, out, err);
    case PJ_VIEW_PIPELINE:
        window = service_window_of(p, "limit");
        return pj_view_pipeline(store, r->id, &window, out, err);
    case PJ_VIEW_POWER:
        window = service_window_of(p, "points");
        return pj_view_power(store, r->id, &window, pj_params_is(p, "rails", "1"), out, err);
    case PJ_VIEW_CONDITIONS: return pj_view_conditions(store, r->id, out, err);
    case PJ_VIEW_SPANS: spans = spans_of(p); return pj_view_spans(store, r->id, &spans, out, err);
    case PJ_VIEW_TOKENS:
        return pj_view_tokens(store, r->id, (uint64_t)pj_params_int(p, "offset", 0),
                              (uint32_t)pj_params_int(p, "limit", 0), out, err);
    case PJ_VIEW_HEATMAP: return pj_view_heatmap(store, r->id, &choice, out, err);
    case PJ_VIEW_CUBE:
        return pj_view_cube(store, r->id, choice.metric, pj_params_is(p, "outside", "1"),
                            out->buffer, err);
    case PJ_VIEW_REPORT: return report(store, p, out->buffer, err);
    case PJ_VIEW_TREE:
        return pj_view_tree(store, r->id, choice.metric, (uint32_t)pj_params_int(p, "depth", 0),
                            out, err);
    case PJ_VIEW_OPERATIONS: return pj_view_operations(store, r->id, &choice, out, err);
    case PJ_RETAG_RUN: return retag(store, r->id, p, out, err);
    case PJ_DESCRIBE_RUN: return describe_run(store, r->id, p, out, err);
    case PJ_DELETE_RUN: return delete_run(serve, store, r->id, err);
    case PJ_PRUNE_RUNS:
    case PJ_COMPACT_RUNS: return prune(store, p, r->view == PJ_COMPACT_RUNS, out, err);
    default: return pj_fail(err, PJ_E_UNSUPPORTED, "this server has no such view yet");
    }
}

static pj_serve_sensors sensors_of(const pj_serve *serve)
{
    char running[1][PJ_UUID_BYTES];
    return (pj_serve_sensors){.power = serve->power,
                              .meter = serve->meter,
                              .busy = pj_run_queue_list(serve->queue, running, 1) > 0};
}

static pj_status view(void *context, const pj_view_request *r, pj_json *out, uint64_t *total,
                      pj_error *err)
{
    pj_serve *serve = context;
    pj_cost_rates rates = rates_of(r->params);
    pj_status status;
    pj_store *store;
    const char *wanted = r->view == PJ_VIEW_RUNS ? pj_params_text(r->params, "status") : NULL;
    if (wanted && (strcmp(wanted, "queued") == 0 || strcmp(wanted, "running") == 0))
        return view_pending_runs(serve, wanted, &rates, out, total);
    if (r->view == PJ_VIEW_MODELS) return pj_serve_write_models(serve->models, out, err);
    if (r->view == PJ_VIEW_SENSORS) {
        pj_serve_sensors sensors = sensors_of(serve);
        return pj_serve_write_sensors(&sensors, out, err);
    }
    if (r->view == PJ_VIEW_DEVICES) {
        pj_serve_sensors sensors = sensors_of(serve);
        pj_serve_write_devices(&sensors, out);
        return PJ_OK;
    }
    if (r->view == PJ_VIEW_POWER_NOW) {
        pj_serve_write_power_now(serve->meter, pj_idle_meter_log(serve->idle_meter),
                                 (uint32_t)pj_params_int(r->params, "seconds", 60), out);
        return PJ_OK;
    }
    if (r->view < PJ_RETAG_RUN && view_unfinished(serve, r, &rates, out, &status, err))
        return status;
    /* On a connection of its own: slow clients must not occupy the shared ones. */
    status = r->is_streamed ? open_small_store(serve, &store, err) : take_store(serve, &store, err);
    if (status != PJ_OK) return status;
    pj_store_leave_out_disturbances(store, pj_params_is(r->params, "disturbances", "leave"));
    status = view_stored(serve, store, r, &rates, out, total, err);
    pj_store_leave_out_disturbances(store, false);
    if (r->is_streamed)
        pj_store_close(store);
    else
        give_store(serve, store);
    return status;
}

static pj_status export_run(void *context, const char *id, const char *format,
                            bool without_disturbances, pj_export_write_fn *write,
                            void *write_context, pj_error *err)
{
    pj_store *store;
    pj_status status = open_small_store(context, &store, err);
    if (status != PJ_OK) return status;
    pj_store_leave_out_disturbances(store, without_disturbances);
    status = pj_store_export(store, id, (pj_export_format)pj_export_parse(format), write,
                             write_context, err);
    pj_store_close(store);
    return status;
}

/* ---- doing --------------------------------------------------------------------------------- */

/* The queue knows models by their path. */
static pj_status generate(void *context, const pj_generation_request *request,
                          char id[PJ_UUID_BYTES], uint32_t *position, pj_error *err)
{
    pj_serve *serve = context;
    char path[4096], draft[4096];
    pj_generation_request found = *request;
    pj_profile_options options = {0};
    pj_status status =
        pj_serve_find_model(serve->models, request->model, request->dtype, path, sizeof path, err);
    if (status != PJ_OK) return status;
    found.model = path;
    if (!found.device) found.device = serve->device;
    if (request->draft) {
        bool head = strcmp(request->draft, PJ_DRAFT_HEAD) == 0;
        if (!head)
            status =
                pj_serve_find_model(serve->models, request->draft, NULL, draft, sizeof draft, err);
        if (status != PJ_OK) return status;
        found.draft = head ? PJ_DRAFT_HEAD : draft;
    }
    pj_profile_options_set(&options, &found);
    pj_prompt prompt = {.text = request->prompt,
                        .bytes = request->prompt_bytes,
                        .ids = request->prompt_ids,
                        .id_count = request->prompt_id_count};
    options.request.prompts = &prompt;
    options.request.prompt_count = 1;
    status = pj_sampling_check(&options.request.sampling, err);
    /* Requests that cannot run are rejected now instead of being stored as failed runs later. */
    if (status == PJ_OK) status = pj_profile_preflight(&options, err);
    if (status != PJ_OK) return status;
    return pj_run_queue_add(serve->queue, &found, id, position, err);
}

static pj_status service_wait_for(void *context, const char *id, pj_json *out, pj_error *err)
{
    pj_serve *serve = context;
    pj_buffer object;
    pj_buffer_init(&object, 256 << 20);
    pj_status status = pj_run_queue_wait(serve->queue, id, &object, err);
    if (status == PJ_OK) pj_json_raw(out, pj_buffer_get(&object), object.length);
    pj_buffer_fini(&object);
    if (status == PJ_E_CANCELLED) err->status = PJ_E_STATE;
    return status;
}

static pj_status cancel(void *context, const char *id, bool *was_waiting, pj_error *err)
{
    pj_serve *serve = context;
    if (pj_run_queue_cancel(serve->queue, id, was_waiting, err) == PJ_OK) return PJ_OK;
    return pj_fail(err, PJ_E_STATE, "run %s has already ended",
                   id); /* the id was resolved, so the run is stored */
}

/* ---- experiments --------------------------------------------------------------------------- */

static void write_ticket(const pj_experiment_ticket *ticket, pj_json *out)
{
    pj_json_object_begin(out);
    pj_json_kv_string(out, "name", ticket->name);
    pj_json_kv_string(out, "state", "queued");
    pj_json_kv_uint(out, "cells", ticket->cells);
    pj_json_kv_uint(out, "total", ticket->total);
    pj_json_object_end(out);
}

static pj_status begin_experiment(void *context, const pj_experiment_request *r, pj_json *out,
                                  pj_error *err)
{
    pj_serve *serve = context;
    pj_experiment_ticket ticket;
    pj_status status =
        r->plan ? pj_experiments_add(serve->experiments, r->plan, r->syntax, &ticket, err)
                : pj_experiments_resume(serve->experiments, r->name, r->again, &ticket, err);
    if (status != PJ_OK) return status;
    pj_run_queue_wake(serve->queue);
    write_ticket(&ticket, out);
    return PJ_OK;
}

static pj_status cancel_experiment(void *context, const char *name, bool *was_waiting,
                                   pj_error *err)
{
    pj_serve *serve = context;
    return pj_experiments_cancel(serve->experiments, name, was_waiting, err);
}

/* ---- state and metrics ---------------------------------------------------------------------- */

/* A total is left out, because a sum over rails would count it twice. */
static bool is_listed(const pj_rail *rail, uint32_t count)
{
    return rail->rail_class != PJ_RAIL_TOTAL || count == 1;
}

/* Exactly the meter's rails: they are fixed for the server's lifetime. */
static void fill_rails(const pj_serve *serve, const pj_queue_totals *totals, pj_metrics *m)
{
    pj_power_log *log = pj_idle_meter_log(serve->idle_meter);
    uint32_t count = 0;
    const pj_rail *rails = log ? pj_power_log_rails(log, &count) : NULL;
    int64_t now = pj_clock_ns();
    for (uint32_t i = 0; i < count && m->rail_count < PJ_METRIC_RAILS; i++) {
        if (!is_listed(&rails[i], count)) continue;
        pj_metric_rail *rail = &m->rails[m->rail_count++];
        *rail = (pj_metric_rail){.class_name = pj_rail_class_name(rails[i].rail_class),
                                 .modelled = rails[i].quality != PJ_MEASURED,
                                 .power_mw = pj_power_log_now_mw(log, i, now),
                                 .drawn_mj = pj_power_log_energy_mj(log, i)};
        memcpy(rail->rail, rails[i].name, sizeof rail->rail);
        memcpy(rail->source, rails[i].source, sizeof rail->source);
        memcpy(rail->energy_mj, totals->energy_mj[i], sizeof rail->energy_mj);
    }
}

static void fill_sampler(const pj_serve *serve, pj_metrics *m)
{
    pj_meter_cost cost = {.cpu_share = NAN, .jitter_us = NAN};
    if (serve->meter) pj_meter_get_cost(serve->meter, &cost);
    m->sampler_cpu_share = cost.cpu_share;
    m->sampler_jitter_seconds = cost.jitter_us / 1e6;
    m->sampler_ticks = cost.ticks;
    m->sampler_missed = cost.missed;
    m->sampler_readings = cost.readings;
    m->sampler_lost = cost.lost;
}

static void metrics(void *context, pj_metrics *m)
{
    pj_serve *serve = context;
    pj_queue_totals totals;
    pj_run_queue_get_totals(serve->queue, &totals);
    fill_rails(serve, &totals, m);
    m->input_tokens = totals.input_tokens;
    m->output_tokens = totals.output_tokens;
    memcpy(m->runs, totals.runs, sizeof m->runs);
    m->run_seconds = totals.run_ms / 1e3;
    m->queued = totals.waiting;
    m->queue_limit = serve->queue_limit;
    memcpy(m->running, totals.running, sizeof m->running);
    m->waiting = pj_outbox_count(serve->address);
    fill_sampler(serve, m);
}

void pj_serve_service(pj_serve *serve, pj_service *service)
{
    *service = (pj_service){.context = serve,
                            .resolve = resolve,
                            .view = view,
                            .export_run = export_run,
                            .generate = generate,
                            .wait = service_wait_for,
                            .cancel = cancel,
                            .begin_experiment = begin_experiment,
                            .cancel_experiment = cancel_experiment,
                            .metrics = metrics};
}
