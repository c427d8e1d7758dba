/* Makes a report in the requested form. */
#include "report/report.h"

#include "experiment/experiment_view.h"
#include "insight/advice.h"
#include "insight/explained.h"
#include "report/report_forms.h"

static pj_status report_view(pj_store *store, const pj_report_subject *s, pj_json *json,
                             pj_error *err)
{
    if (s->experiment) return pj_view_experiment(store, s->experiment, NULL, json, err);
    if (s->count > 1) return pj_insight_compare(store, s->ids, s->count, NULL, json, err);
    return pj_insight_summary(store, s->ids[0], NULL, json, err);
}

typedef enum member { VIEW, ADVICE, WHY } member;

static pj_status report_read(pj_store *store, const pj_report_subject *s, member which,
                             json_t **tree, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, PJ_REPORT_MAX_BYTES);
    pj_json_init(&json, &buffer);
    pj_status status = which == ADVICE ? pj_insight_advice(store, s->ids[0], NULL, &json, err)
                       : which == WHY  ? pj_insight_why(store, s->ids, &json, err)
                                       : report_view(store, s, &json, err);
    if (status == PJ_OK) {
        *tree = json_loadb(pj_buffer_get(&buffer), buffer.length, 0, NULL);
        if (!*tree) status = pj_fail_memory(err, "a report");
    }
    pj_buffer_fini(&buffer);
    return status;
}

pj_status pj_report_make(pj_store *store, const pj_report_request *request, pj_buffer *out,
                         pj_error *err)
{
    char texts[PJ_COMPARE_MAX][PJ_UUID_BYTES];
    const char *ids[PJ_COMPARE_MAX];
    json_t *view = NULL, *advice = NULL, *why = NULL;
    pj_report_subject s = {.ids = ids,
                           .experiment = request->experiment,
                           .without = pj_store_leaves_out_disturbances(store)};
    pj_status status = PJ_OK;
    if (!request->experiment && (request->count < 1 || request->count > PJ_COMPARE_MAX))
        return pj_fail(err, PJ_E_INVALID, "a report covers 1 to %d runs or an experiment",
                       PJ_COMPARE_MAX);
    for (s.count = 0; !s.experiment && s.count < request->count && status == PJ_OK; s.count++) {
        status = pj_store_resolve(store, request->ids[s.count], texts[s.count], err);
        ids[s.count] = texts[s.count];
    }
    if (status == PJ_OK) status = report_read(store, &s, VIEW, &view, err);
    if (status == PJ_OK && s.count == 1) status = report_read(store, &s, ADVICE, &advice, err);
    if (status == PJ_OK && s.count == 2) status = report_read(store, &s, WHY, &why, err);
    s.view = view;
    s.advice = advice;
    s.why = json_object_get(why, "why");
    if (status == PJ_OK && request->html)
        status = pj_report_page(store, &s, out, err);
    else if (status == PJ_OK)
        pj_report_markdown(&s, out);
    json_decref(view);
    json_decref(advice);
    json_decref(why);
    return status == PJ_OK ? pj_buffer_status(out, "a report", err) : status;
}
