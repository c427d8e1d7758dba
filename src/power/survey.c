/* Opens one meter per working source and reads all of them at once, so that the survey takes as
 * long as the slowest sensor, not the sum. */
#include "power/survey.h"

#include "base/clock.h"
#include "base/memory.h"
#include "trace/summary.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct listener {
    pj_meter *meter;
    pj_curve *curves[PJ_MAX_RAILS];
} listener;

/* ---- words ---- */

const char *pj_source_state_name(pj_source_state state)
{
    static const char *const names[] = {"ready", "denied", "absent", "optional"};
    return (unsigned)state < 4 ? names[state] : "unknown";
}

const char pj_survey_still_reason[] =
    "left out: no movement while watched, as in a virtual machine whose host passes nothing on";

/* Appends to a phrase; what does not fit is cut. */
static void phrase_add(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void phrase_add(char *text, size_t bytes, const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(text);
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

static double ms_of(int64_t ns)
{
    return (double)ns * 1e-6;
}

static void phrase_add_rate(char *text, size_t bytes, const pj_rail *rail)
{
    bool is_log = rail->log_ns > 0;
    const char *what = is_log ? "the driver's log of power" : pj_rail_kind_name(rail->kind);
    if (rail->grid_ns > 0)
        phrase_add(text, bytes, "%s every %.3f ms on a grid", what, ms_of(rail->grid_ns));
    else if (rail->period_ns > 0)
        phrase_add(text, bytes, "%s about every %.3g ms", what, ms_of(rail->period_ns));
    else
        phrase_add(text, bytes, "%s, period unknown", what);
    if (is_log) phrase_add(text, bytes, ", which reaches back %.2g s", ms_of(rail->log_ns) * 1e-3);
}

const char *pj_survey_made_of(const pj_survey_source *s, uint32_t rail, char *text, size_t bytes)
{
    const pj_survey_rail *r = &s->rails[rail];
    const pj_rail_contact *c = &r->contact;
    text[0] = 0;
    phrase_add_rate(text, bytes, &r->rail);
    if (r->log >= 0)
        phrase_add(text, bytes, ", shape from the driver's log of %.3g ms",
                   ms_of(s->rails[r->log].rail.period_ns));
    if (c->cost_ns > 0)
        phrase_add(text, bytes, ", a read takes %.2g ms (median %.2g, p95 %.2g)", ms_of(c->cost_ns),
                   ms_of(c->cost_p50_ns), ms_of(c->cost_p95_ns));
    if (isfinite(c->disagreement))
        phrase_add(text, bytes, ", within %.1f %% of the device's power", 100 * c->disagreement);
    return text;
}

/* ---- listening ---- */

/* A rail has shown its power after one of its periods, or this. */
static const int64_t SHOWN_NS = 20 * PJ_NS_PER_MS;

static void listener_close(listener *l)
{
    for (uint32_t i = 0; i < PJ_MAX_RAILS; i++) pj_curve_free(l->curves[i]);
    pj_meter_close(l->meter);
    *l = (listener){0};
}

/* For a recording only the rails are listed: its first moments are not the present. */
static pj_status open_listener(listener *l, pj_survey_source *s, const pj_power_env *env,
                               const char *argument, pj_error *err)
{
    pj_error why = {0};
    char sources[32 + PJ_POWER_ARGUMENT_BYTES];
    snprintf(sources, sizeof sources, "%s%s%s", s->source->name, argument[0] ? ":" : "", argument);
    pj_meter_options options = {.sources = sources, .env = env, .report = &s->report};
    pj_status status = pj_meter_open(&options, &l->meter, &why);
    if (status == PJ_OK && !(s->source->flags & PJ_SOURCE_ONCE))
        status = pj_meter_start(l->meter, &why);
    if (status == PJ_E_NO_MEMORY) return pj_fail_memory(err, "a survey of power sources");
    if (status != PJ_OK) {
        listener_close(l);
        if (!s->report.reason[0] || s->report.state == PJ_SOURCE_OPTIONAL)
            pj_source_explain(&s->report, status, "", "%s", why.text);
        return PJ_OK;
    }
    const pj_rail *rails = pj_meter_rails(l->meter, &s->rail_count);
    for (uint32_t i = 0; i < s->rail_count; i++) {
        s->rails[i] = (pj_survey_rail){rails[i], NAN, *pj_meter_contact(l->meter, i),
                                       pj_rail_log_of(rails, s->rail_count, i)};
        if (!(l->curves[i] = pj_curve_new(&rails[i])))
            return pj_fail_memory(err, "a survey of power sources");
    }
    snprintf(s->still, sizeof s->still, "%s", pj_meter_still(l->meter));
    pj_curves_link(l->curves, rails, s->rail_count);
    pj_meter_event event;
    while (pj_meter_next_event(l->meter, &event))
        if (event.kind == PJ_METER_DISAGREES)
            pj_meter_event_text(l->meter, &event, s->disagreement, sizeof s->disagreement);
    return PJ_OK;
}

/* Whether every rail has shown a power, and for long enough that it says something. */
static bool have_all_shown(const listener *listeners, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const listener *l = &listeners[i];
        for (uint32_t k = 0; l->meter && k < PJ_MAX_RAILS && l->curves[k]; k++) {
            int64_t begin, end, period_ns = pj_curve_rail(l->curves[k])->period_ns;
            int64_t least_ns = period_ns > SHOWN_NS ? period_ns : SHOWN_NS;
            if (!pj_curve_span(l->curves[k], &begin, &end) || end - begin < least_ns) return false;
        }
    }
    return true;
}

static pj_status listen_to_all(listener *listeners, uint32_t count, const pj_survey_options *o,
                               pj_error *err)
{
    int64_t listen_ns = o->listen_ns;
    int64_t longest = -1;
    for (uint32_t i = 0; i < count; i++) {
        int64_t settle = listeners[i].meter ? pj_meter_settle_ns(listeners[i].meter) : -1;
        longest = settle > longest ? settle : longest;
    }
    int64_t until = longest >= 0 ? pj_clock_ns() + listen_ns + longest : 0;
    for (;;) {
        for (uint32_t i = 0; i < count; i++) {
            const listener *l = &listeners[i];
            pj_status status = l->meter ? pj_meter_fill(l->meter, l->curves, err) : PJ_OK;
            if (status != PJ_OK) return status;
        }
        int64_t now = pj_clock_ns();
        for (uint32_t i = 0; i < count && now >= until - longest; i++)
            if (listeners[i].meter) pj_meter_want(listeners[i].meter, until - longest);
        if (now >= until || (o->until_shown && have_all_shown(listeners, count))) return PJ_OK;
        pj_clock_sleep_until(until - now > 20 * PJ_NS_PER_MS ? now + 20 * PJ_NS_PER_MS : until);
    }
}

static void take_powers(const listener *l, pj_survey_source *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        int64_t begin, end;
        if (!l->curves[i] || !pj_curve_span(l->curves[i], &begin, &end)) continue;
        double mj = pj_curve_energy_mj(l->curves[i], begin, end);
        s->rails[i].power_mw = mj / ((double)(end - begin) * 1e-9);
    }
}

/* ---- all ---- */

/* The choice of a source in the list; NULL: it is not in it. */
static const pj_power_choice *choice_of(const pj_power_list *list, const pj_power_source *source)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->choices[i].source == source) return &list->choices[i];
    return NULL;
}

/* A source that is used only when named is described, and a model also opened. `used`: NULL without
 * a meter. */
static pj_status survey_look_at(pj_survey_source *s, listener *l, const pj_power_list *list,
                                const pj_power_list *used, const pj_power_env *env, pj_error *err)
{
    const pj_power_choice *choice = choice_of(list, s->source);
    s->in_use = used && choice_of(used, s->source);
    bool named = used ? s->in_use : choice && list->named;
    bool describes = s->source->describe && !named;
    if (describes) s->source->describe(env, &s->report);
    if (describes && !(s->source->flags & PJ_SOURCE_MODEL)) return PJ_OK;
    return open_listener(l, s, env, named && choice ? choice->argument : "", err);
}

pj_status pj_survey(const pj_survey_options *options, pj_survey_source **sources, uint32_t *count,
                    pj_error *err)
{
    pj_power_env own;
    pj_power_list list = {0}, used = {0};
    const pj_power_env *env = options->env ? options->env : &own;
    uint32_t n = 0;
    if (!options->env) pj_power_env_get(&own);
    while (pj_power_sources[n]) n++;
    *count = n;
    *sources = pj_alloc(n, sizeof **sources);
    listener *listeners = pj_alloc(n, sizeof *listeners);
    pj_status status = PJ_OK;
    if (!*sources || !listeners) status = pj_fail_memory(err, "a survey of power sources");
    if (status == PJ_OK && options->power) status = pj_power_list_parse(options->power, &list, err);
    if (status == PJ_OK && options->used && options->used[0])
        status = pj_power_list_parse(options->used, &used, err);
    for (uint32_t i = 0; i < n && status == PJ_OK; i++) {
        (*sources)[i].source = pj_power_sources[i];
        status = survey_look_at(&(*sources)[i], &listeners[i], &list, options->used ? &used : NULL,
                                env, err);
    }
    if (status == PJ_OK) status = listen_to_all(listeners, n, options, err);
    for (uint32_t i = 0; listeners && i < n; i++) {
        if (status == PJ_OK) take_powers(&listeners[i], &(*sources)[i]);
        listener_close(&listeners[i]);
    }
    pj_free(listeners);
    if (status == PJ_OK) return PJ_OK;
    pj_free(*sources);
    *sources = NULL;
    return status;
}

/* ---- JSON ---- */

static void text_or_null(pj_json *json, const char *key, const char *text)
{
    pj_json_kv_string(json, key, text[0] ? text : NULL);
}

static void ms_or_null(pj_json *json, const char *key, int64_t ns)
{
    pj_json_kv_double(json, key, ns > 0 ? (double)ns * 1e-6 : NAN);
}

static void rail_json(const pj_survey_source *s, uint32_t index, pj_json *json)
{
    const pj_survey_rail *r = &s->rails[index];
    char made_of[256];
    const pj_rail *rail = &r->rail;
    bool counter = rail->kind == PJ_RAIL_COUNTER;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", rail->name);
    pj_json_kv_string(json, "class", pj_rail_class_name(rail->rail_class));
    pj_json_kv_string(json, "kind", pj_rail_kind_name(rail->kind));
    pj_json_kv_string(json, "scope", pj_rail_scope_name(rail->scope));
    pj_json_kv_string(json, "quality", pj_quality_name(rail->quality));
    text_or_null(json, "device", rail->device);
    text_or_null(json, "field", rail->field);
    pj_json_kv_string(json, "parent", rail->parent >= 0 ? s->rails[rail->parent].rail.name : NULL);
    pj_json_kv_double(json, "power_mw", r->power_mw);
    ms_or_null(json, "period_ms", rail->period_ns);
    ms_or_null(json, "grid_ms", rail->grid_ns);
    ms_or_null(json, "log_ms", rail->log_ns);
    pj_json_kv_string(json, "shape", r->log >= 0 ? s->rails[r->log].rail.name : NULL);
    ms_or_null(json, "read_ms", r->contact.cost_ns);
    ms_or_null(json, "read_p50_ms", r->contact.cost_p50_ns);
    ms_or_null(json, "read_p95_ms", r->contact.cost_p95_ns);
    pj_json_kv_double(json, "disagreement", r->contact.disagreement);
    pj_json_kv_string(json, "made_of", pj_survey_made_of(s, index, made_of, sizeof made_of));
    ms_or_null(json, "window_ms", rail->window_ns);
    pj_json_kv_double(json, "delay_ms", (double)rail->delay_ns * 1e-6);
    pj_json_kv_double(json, counter ? "resolution_mj" : "resolution_mw",
                      rail->resolution > 0 ? rail->resolution * (counter ? 1e-3 : 1) : NAN);
    pj_json_kv_double(json, "max_mw", rail->max_mw > 0 ? rail->max_mw : NAN);
    pj_json_object_end(json);
}

static void source_json(const pj_survey_source *s, bool with_use, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", s->source->name);
    pj_json_kv_string(json, "state", pj_source_state_name(s->report.state));
    if (with_use) pj_json_kv_bool(json, "in_use", s->in_use);
    text_or_null(json, "reason", s->report.reason);
    text_or_null(json, "remedy", s->report.remedy);
    text_or_null(json, "warning", s->disagreement);
    text_or_null(json, "left_out", s->still);
    text_or_null(json, "left_out_reason", s->still[0] ? pj_survey_still_reason : "");
    pj_json_key(json, "rails");
    pj_json_array_begin(json);
    for (uint32_t k = 0; k < s->rail_count; k++) rail_json(s, k, json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

void pj_survey_json(const pj_survey_options *options, const pj_survey_source *sources,
                    uint32_t count, pj_json *json)
{
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) source_json(&sources[i], options->used != NULL, json);
    pj_json_array_end(json);
}
