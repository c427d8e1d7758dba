/*
 * A report as HTML: the page that the dashboard's build makes for reports (ui/src/report.tsx), with
 * the responses of the API that its view requests inlined (ui/src/api/inlined.ts). A response above
 * the size limit is left out, with a note on the page.
 */
#include "report/report_forms.h"

#include "base/base64.h"
#include "base/clock.h"
#include "report/report_repeat.h"
#include "store/views.h"
#include "trace/json_member.h"

#include <perjoule.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ui/report.html as built, embedded by tools/embed.py; empty in a build without the dashboard. */
extern const char pj_report_page_html[], pj_report_page_html_end[];

static const char marker[] = "<!--perjoule-data-->";

enum {
    ANSWER_BYTES = 16 << 20,
    TOKENS = 20000,
    POWER_POINTS = 8000, /* readings, or extremes of buckets of a longer run */
    RAIL_POINTS = 4000,
    SECTIONS = 2500,     /* the page draws at most as many */
    CUBE_CELLS = 1 << 19 /* 2.8 MB each in base64 */
};

typedef struct page {
    pj_store *store;
    const char *id; /* of the run being written */
    pj_buffer all, one;
    pj_json out, json; /* write to `all` and to `one` */
    pj_status status;  /* of the first response that failed */
    bool no_cubes, no_tree, cut_tokens;
    pj_error *err;
} page;

static pj_json *page_begin(page *p)
{
    pj_buffer_clear(&p->one);
    pj_json_init(&p->json, &p->one);
    return &p->json;
}

/* Keeps the response just written under its path, unless it failed or is too large. */
static bool page_keep(page *p, pj_status status, const char *path, ...)
{
    char key[512];
    va_list list;
    if (p->status == PJ_OK) p->status = status;
    if (p->status != PJ_OK || !pj_json_finish(&p->json) || p->one.failed) return false;
    va_start(list, path);
    int used = p->id ? snprintf(key, sizeof key, "api/profiling/run/%s", p->id)
                     : snprintf(key, sizeof key, "api/profiling/");
    vsnprintf(key + used, sizeof key - (size_t)used, path, list);
    va_end(list);
    pj_json_key(&p->out, key);
    pj_json_raw(&p->out, pj_buffer_get(&p->one), p->one.length);
    return true;
}

static void page_keep_tree(page *p, const json_t *tree, const char *path)
{
    char *text = json_dumps(tree, JSON_COMPACT);
    page_begin(p);
    if (text) pj_json_raw(&p->json, text, strlen(text));
    page_keep(p, text ? PJ_OK : pj_fail_memory(p->err, "a report"), path);
    free(text);
}

static void page_keep_why(page *p, const json_t *why)
{
    char *text = json_dumps(why, JSON_COMPACT);
    page_begin(p);
    pj_json_object_begin(&p->json);
    pj_json_key(&p->json, "why");
    if (text) pj_json_raw(&p->json, text, strlen(text));
    pj_json_object_end(&p->json);
    page_keep(p, text ? PJ_OK : pj_fail_memory(p->err, "a report"), "compare/why");
    free(text);
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void page_base64(pj_json *json, const void *bytes, size_t count)
{
    pj_buffer text;
    pj_buffer_init(&text, ANSWER_BYTES);
    pj_buffer_char(&text, '"');
    pj_base64_write(&text, bytes, count);
    pj_buffer_char(&text, '"');
    pj_json_raw(json, pj_buffer_get(&text), text.length);
    pj_buffer_fini(&text);
}

static void page_cube(page *p, pj_metric metric)
{
    pj_buffer cube;
    pj_buffer_init(&cube, 64 + CUBE_CELLS * sizeof(float));
    pj_status status = pj_view_cube(p->store, p->id, metric, true, &cube, p->err);
    if (cube.failed) {
        p->no_cubes = true;
    } else {
        page_begin(p);
        page_base64(&p->json, pj_buffer_get(&cube), cube.length);
        page_keep(p, status, "/heatmap?format=f32&metric=%s&outside=1",
                  pj_metric_table[metric].name);
    }
    pj_buffer_fini(&cube);
}

/* Sums over the whole run or one of its phases ("": any). */
static void page_sums(page *p, const char *phase)
{
    char of[64] = "";
    pj_view_choice choice = {.token = PJ_ANY, .layer = PJ_ANY, .phase = *phase ? phase : NULL};
    if (*phase) snprintf(of, sizeof of, "&phase=%s", phase);
    for (int m = 0; m < PJ_METRIC_COUNT; m++) {
        if (!pj_metric_table[m].in_heatmap) continue;
        choice.metric = (pj_metric)m;
        page_keep(p, pj_view_heatmap(p->store, p->id, &choice, page_begin(p), p->err),
                  "/heatmap?metric=%s%s", pj_metric_table[m].name, of);
    }
    page_keep(p, pj_view_operations(p->store, p->id, &choice, page_begin(p), p->err),
              "/operations%s%s", *of ? "?" : "", *of ? of + 1 : "");
}

static void page_operations(page *p, const json_t *summary)
{
    size_t i;
    const json_t *c;
    pj_view_choice choice = {.token = PJ_ANY, .layer = PJ_ANY};
    json_array_foreach(json_object_get(summary, "components"), i, c)
    {
        choice.component = pj_member_text(c, "component_name");
        page_keep(p, pj_view_operations(p->store, p->id, &choice, page_begin(p), p->err),
                  "/operations?component=%s", choice.component);
    }
}

static void page_tree(page *p, pj_metric metric)
{
    for (uint32_t levels = 4; levels > 2; levels--) {
        if (page_keep(p, pj_view_tree(p->store, p->id, metric, levels, page_begin(p), p->err),
                      "/tree?metric=%s", pj_metric_table[metric].name))
            return;
        p->no_tree = true;
    }
}

static void page_power_and_tokens(page *p)
{
    pj_view_window window = {.limit = POWER_POINTS};
    page_keep(p, pj_view_power(p->store, p->id, &window, false, page_begin(p), p->err), "/power");
    page_keep(p, pj_view_tokens(p->store, p->id, 0, TOKENS, page_begin(p), p->err), "/tokens");
}

static void page_run(page *p, const pj_report_subject *s)
{
    pj_view_window sections = {.limit = SECTIONS}, rails = {.limit = RAIL_POINTS};
    bool energy = strcmp(pj_member_text(s->view, "energy_source"), "unavailable") != 0;
    double tokens = pj_member_number(json_object_get(s->view, "counts"), "tokens");
    p->id = s->ids[0];
    page_keep_tree(p, s->view, "/summary");
    page_keep_tree(p, s->advice, "/advice");
    page_power_and_tokens(p);
    page_keep(p, pj_view_pipeline(p->store, p->id, &sections, page_begin(p), p->err), "/pipeline");
    page_keep(p, pj_view_power(p->store, p->id, &rails, true, page_begin(p), p->err),
              "/power?rails=1");
    page_keep(p, pj_view_conditions(p->store, p->id, page_begin(p), p->err), "/conditions");
    page_keep(p,
              pj_view_run(p->store, p->id, &(pj_view_page){.include = "none"},
                          &PJ_COST_RATES_DEFAULT, page_begin(p), p->err),
              "?include=none");
    page_sums(p, "");
    page_sums(p, "prefill");
    page_sums(p, "decode");
    page_operations(p, s->view);
    page_tree(p, PJ_METRIC_TIME);
    if (energy) page_tree(p, PJ_METRIC_ENERGY);
    p->cut_tokens = tokens > TOKENS;
    p->no_cubes = p->cut_tokens;
    if (!p->no_cubes) page_cube(p, PJ_METRIC_TIME);
    if (!p->no_cubes && energy) page_cube(p, PJ_METRIC_ENERGY);
    p->id = NULL;
}

/* ---- the document --------------------------------------------------------------------------- */

static void page_answers(page *p, const pj_report_subject *s)
{
    pj_json_kv_object_begin(&p->out, "answers");
    if (s->experiment) {
        char path[600];
        snprintf(path, sizeof path, "experiments/%s", s->experiment);
        page_keep_tree(p, s->view, path);
    } else if (s->count == 1) {
        page_run(p, s);
    } else {
        page_keep_tree(p, s->view, "compare");
        if (s->why) page_keep_why(p, s->why);
        for (uint32_t i = 0; i < s->count; i++) {
            p->id = s->ids[i];
            page_power_and_tokens(p);
        }
    }
    pj_json_object_end(&p->out);
}

static void page_repeat(page *p, const pj_report_subject *s)
{
    pj_buffer lines;
    pj_buffer_init(&lines, ANSWER_BYTES);
    pj_report_repeat(s->view, &lines);
    pj_json_key(&p->out, "repeat");
    pj_json_string_n(&p->out, pj_buffer_get(&lines), lines.length);
    pj_buffer_fini(&lines);
}

static void page_left_out(page *p)
{
    pj_json_kv_array_begin(&p->out, "left_out");
    if (p->cut_tokens) pj_json_string(&p->out, "It holds the first 20,000 tokens of this run.");
    if (pj_store_leaves_out_disturbances(p->store)) pj_json_string(&p->out, PJ_REPORT_WITHOUT);
    if (p->no_cubes)
        pj_json_string(&p->out, "This run is too long to be narrowed to a range of tokens in this "
                                "file; the dashboard can.");
    if (p->no_tree)
        pj_json_string(&p->out,
                       "Single operations are too many for this file; sums of them are in it.");
    pj_json_array_end(&p->out);
}

static void page_write(page *p, const pj_report_subject *s)
{
    char now[32];
    pj_clock_format_iso(pj_clock_wall_ns(), now);
    pj_json_object_begin(&p->out);
    pj_json_kv_string(&p->out, "view",
                      s->experiment  ? "experiments"
                      : s->count > 1 ? "compare"
                                     : "analysis");
    pj_json_kv_array_begin(&p->out, "ids");
    for (uint32_t i = 0; i < s->count; i++) pj_json_string(&p->out, s->ids[i]);
    pj_json_array_end(&p->out);
    pj_json_kv_string(&p->out, "experiment", s->experiment);
    pj_json_kv_string(&p->out, "version", pj_version());
    pj_json_kv_string(&p->out, "created_at", now);
    page_repeat(p, s);
    page_answers(p, s);
    page_left_out(p);
    pj_json_object_end(&p->out);
    if (p->status == PJ_OK && !pj_json_finish(&p->out))
        p->status = pj_buffer_status(&p->all, "a report", p->err);
}

/* Escapes JSON for a script element: no text may end the element or a line of script. */
static void page_escape(const pj_buffer *json, pj_buffer *out)
{
    const char *at = pj_buffer_get(json), *end = at + json->length;
    for (const char *from = at; at < end; from = at) {
        while (at < end && *at != '<' && (unsigned char)*at != 0xe2) at++;
        pj_buffer_append(out, from, (size_t)(at - from));
        if (at == end) break;
        bool line = end - at > 2 &&
                    (memcmp(at, "\xe2\x80\xa8", 3) == 0 || memcmp(at, "\xe2\x80\xa9", 3) == 0);
        if (*at == '<')
            pj_buffer_text(out, "\\u003c");
        else if (line)
            pj_buffer_text(out, (unsigned char)at[2] == 0xa8 ? "\\u2028" : "\\u2029");
        else
            pj_buffer_char(out, *at);
        at += line ? 3 : 1;
    }
}

pj_status pj_report_page(pj_store *store, const pj_report_subject *subject, pj_buffer *out,
                         pj_error *err)
{
    size_t bytes = (size_t)(pj_report_page_html_end - pj_report_page_html);
    const char *data = bytes ? memmem(pj_report_page_html, bytes, marker, sizeof marker - 1) : NULL;
    if (!data)
        return pj_fail(
            err, PJ_E_UNSUPPORTED,
            "this build has no dashboard, which HTML reports are made of: write Markdown "
            "(--format md), or build with -Ddashboard=enabled");
    page p = {.store = store, .err = err};
    pj_buffer_init(&p.all, PJ_REPORT_MAX_BYTES);
    pj_buffer_init(&p.one, ANSWER_BYTES);
    pj_json_init(&p.out, &p.all);
    page_write(&p, subject);
    if (p.status == PJ_OK) {
        pj_buffer_append(out, pj_report_page_html, (size_t)(data - pj_report_page_html));
        pj_buffer_text(out, "<script type=\"application/json\" id=\"perjoule-data\">");
        page_escape(&p.all, out);
        pj_buffer_text(out, "</script>");
        data += sizeof marker - 1;
        pj_buffer_append(out, data, (size_t)(pj_report_page_html_end - data));
    }
    pj_buffer_fini(&p.all);
    pj_buffer_fini(&p.one);
    return p.status;
}
