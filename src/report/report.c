/* Reports from the JSON that the API returns, so that the numbers agree. */
#include "report/report.h"

#include "experiment/experiment_view.h"
#include "insight/advice.h"
#include "insight/insight.h"
#include "report/report_parts.h"
#include "trace/json_member.h"

#include <stdio.h>

typedef pj_status make_fn(pj_store *store, const pj_report_ask *ask, pj_json *json, pj_error *err);

static pj_status make_summary(pj_store *store, const pj_report_ask *ask, pj_json *json,
                              pj_error *err)
{
    return pj_insight_summary(store, ask->ids[0], NULL, json, err);
}

static pj_status make_advice(pj_store *store, const pj_report_ask *ask, pj_json *json,
                             pj_error *err)
{
    return pj_insight_advice(store, ask->ids[0], NULL, json, err);
}

static pj_status make_comparison(pj_store *store, const pj_report_ask *ask, pj_json *json,
                                 pj_error *err)
{
    return pj_insight_compare(store, ask->ids, ask->count, NULL, json, err);
}

static pj_status make_experiment(pj_store *store, const pj_report_ask *ask, pj_json *json,
                                 pj_error *err)
{
    return pj_view_experiment(store, ask->experiment, NULL, json, err);
}

static bool has_groups(const json_t *view)
{
    size_t i;
    const json_t *side;
    bool any = false;
    json_array_foreach(json_object_get(view, "sides"), i, side) any |=
        pj_member_number(side, "runs") > 1;
    return any;
}

static pj_status get_tree(pj_store *store, const pj_report_ask *ask, make_fn *make, json_t **tree,
                          pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1u << 28);
    pj_json_init(&json, &buffer);
    pj_status status = make(store, ask, &json, err);
    if (status == PJ_OK) {
        *tree = json_loadb(pj_buffer_get(&buffer), buffer.length, 0, NULL);
        if (!*tree) status = pj_fail_memory(err, "a report");
    }
    pj_buffer_fini(&buffer);
    return status;
}

pj_status pj_report_make(pj_store *store, const pj_report_ask *ask, pj_buffer *out, pj_error *err)
{
    json_t *view = NULL, *advice = NULL;
    pj_document d;
    char title[300];
    make_fn *make = ask->experiment  ? make_experiment
                    : ask->count > 1 ? make_comparison
                                     : make_summary;
    if (!ask->experiment && (ask->count < 1 || ask->count > PJ_COMPARE_MAX))
        return pj_fail(err, PJ_E_INVALID, "a report is of 1 to %d runs or an experiment",
                       PJ_COMPARE_MAX);
    pj_status status = get_tree(store, ask, make, &view, err);
    if (status == PJ_OK && make == make_summary)
        status = get_tree(store, ask, make_advice, &advice, err);
    if (status == PJ_OK) {
        if (ask->experiment)
            snprintf(title, sizeof title, "Experiment %.200s", ask->experiment);
        else if (ask->count > 1)
            snprintf(title, sizeof title, "Comparison of %u %s", ask->count,
                     has_groups(view) ? "groups of runs" : "runs");
        else
            snprintf(title, sizeof title, "Energy of %.100s, run %.36s",
                     pj_member_text(view, "model_name"), pj_member_text(view, "id"));
        pj_document_begin(&d, out, ask->html, title);
        if (ask->experiment)
            pj_report_experiment(&d, store, view);
        else if (ask->count > 1)
            pj_report_comparison(&d, view);
        else
            status = pj_report_run(&d, store, view, advice, err);
        pj_document_end(&d);
    }
    json_decref(view);
    json_decref(advice);
    return status == PJ_OK ? pj_buffer_status(out, "a report", err) : status;
}
