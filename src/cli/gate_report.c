/* Reports of a gate. */
#include "cli/gate_report.h"

#include "analysis/compare.h"
#include "base/file.h"
#include "cli/terminal.h"

#include <math.h>
#include <string.h>

enum { REPORT_BYTES = 1 << 20 };

static const struct {
    const char *name, *title, *annotation;
} outcomes[] = {
    [PJ_GATE_UNDECIDED] = {"undecided", "undecided whether it costs more than allowed", "warning"},
    [PJ_GATE_WITHIN] = {"within", "costs no more than allowed", "notice"},
    [PJ_GATE_OVER] = {"over", "costs more than allowed", "error"}};

/* ---- sentences ---- */

static pj_text joules_text(double joules)
{
    return pj_energy_text(1e3 * joules);
}

static pj_text ratio_text(double ratio)
{
    return pj_number_text("%.4g", ratio);
}

static void describe_one(const pj_gate_report *r, pj_gate_criterion *c)
{
    const pj_cost_look *look = &c->look;
    const char *per = pj_gate_figure_per(r->figure);
    char interval[80] = "", quantity[128], runs[64], hint[128] = "", partial[512] = "";
    pj_text (*figure)(double) = c->gate.kind == PJ_GATE_FIXED ? joules_text : ratio_text;
    if (!isnan(look->lo))
        snprintf(interval, sizeof interval, " (%s to %s)", figure(look->lo).s, figure(look->hi).s);
    if (c->gate.kind == PJ_GATE_FIXED) {
        snprintf(quantity, sizeof quantity, "%s", per);
        snprintf(runs, sizeof runs, "%u runs", r->b->count);
    } else {
        snprintf(quantity, sizeof quantity, "times the baseline's joules %s", per);
        snprintf(runs, sizeof runs, "%u runs against %u", r->b->count, r->a->count);
    }
    if (look->outcome == PJ_GATE_UNDECIDED)
        snprintf(hint, sizeof hint, "; single runs vary by %.2g %%: allow more --runs%s",
                 100 * look->spread,
                 c->gate.kind == PJ_GATE_STORED ? ", or a baseline of more runs" : "");
    bool is_partial = pj_gate_partial(&r->b->energy, partial, sizeof partial);
    snprintf(c->text, sizeof c->text, "%s: %s%s %s, allowed %s; %s, %s%s%s%s",
             outcomes[look->outcome].title, figure(look->ratio).s, interval, quantity,
             figure(c->gate.limit).s, runs, r->b->energy.source, is_partial ? ", partial: " : "",
             partial, hint);
}

void pj_gate_describe(pj_gate_report *r)
{
    for (uint32_t i = 0; i < r->count; i++) describe_one(r, &r->criteria[i]);
}

static bool on_another_machine(const pj_gate_report *r)
{
    return r->a->machine[0] && r->b->machine[0] && strcmp(r->a->machine, r->b->machine) != 0;
}

void pj_gate_print(const pj_gate_report *r, FILE *out)
{
    for (uint32_t i = 0; i < r->count; i++) pj_print(out, "%s\n", r->criteria[i].text);
    if (on_another_machine(r))
        pj_say("the baseline was measured on another machine (%s): it tells little about this one",
               pj_safe(r->a->machine).s);
    if (r->b->disturbed)
        pj_say("%u of %u runs were disturbed by other load", r->b->disturbed, r->b->count);
}

/* ---- annotations ---- */

/* GitHub reads the message up to the end of the line, with these characters escaped. */
static void annotation_text(pj_buffer *out, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '%': pj_buffer_text(out, "%25"); break;
        case '\r': pj_buffer_text(out, "%0D"); break;
        case '\n': pj_buffer_text(out, "%0A"); break;
        default: pj_buffer_char(out, *text);
        }
}

void pj_gate_annotate(const pj_gate_report *r, FILE *out)
{
    pj_buffer text;
    pj_buffer_init(&text, REPORT_BYTES);
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_gate_criterion *c = &r->criteria[i];
        pj_buffer_printf(&text, "::%s title=Energy::", outcomes[c->look.outcome].annotation);
        annotation_text(&text, c->text);
        pj_buffer_char(&text, '\n');
    }
    fputs(pj_buffer_get(&text), out);
    pj_buffer_fini(&text);
}

void pj_gate_annotate_failed(const char *why, FILE *out)
{
    pj_buffer text;
    pj_buffer_init(&text, REPORT_BYTES);
    pj_buffer_text(&text, "::error title=Energy::not judged: ");
    annotation_text(&text, why);
    pj_buffer_char(&text, '\n');
    fputs(pj_buffer_get(&text), out);
    pj_buffer_fini(&text);
}

/* ---- JSON ---- */

void pj_gate_write(const pj_gate_report *r, pj_json *json)
{
    char partial[512];
    pj_json_object_begin(json);
    pj_json_kv_string(json, "outcome", outcomes[r->outcome].name);
    pj_json_kv_string(json, "metric", pj_gate_figure_name(r->figure));
    pj_json_kv_string(json, "energy_source", r->b->energy.source);
    pj_json_kv_string(json, "partial", pj_gate_partial(&r->b->energy, partial, sizeof partial));
    pj_json_kv_string(json, "command", r->command);
    pj_json_kv_string(json, "baseline", r->baseline);
    pj_json_kv_uint(json, "runs", r->b->count);
    pj_json_kv_uint(json, "baseline_runs", r->a->count);
    pj_json_kv_uint(json, "disturbed_runs", r->b->disturbed);
    pj_json_kv_array_begin(json, "criteria");
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_gate_criterion *c = &r->criteria[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", c->name);
        pj_json_kv_string(json, "outcome", outcomes[c->look.outcome].name);
        pj_json_kv_string(json, "text", c->text);
        pj_json_kv_double(json, "value", c->look.ratio);
        pj_json_kv_double(json, "lo", c->look.lo);
        pj_json_kv_double(json, "hi", c->look.hi);
        pj_json_kv_double(json, "allowed", c->gate.limit);
        pj_json_kv_double(json, "spread", c->look.spread);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- files ---- */

static pj_status report_save(pj_buffer *text, const char *path, pj_error *err)
{
    pj_status status = pj_buffer_status(text, "a report", err);
    if (status == PJ_OK) status = pj_file_write(path, text->data, text->length, err);
    pj_buffer_fini(text);
    return status;
}

static void xml_text(pj_buffer *out, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '&': pj_buffer_text(out, "&amp;"); break;
        case '<': pj_buffer_text(out, "&lt;"); break;
        case '>': pj_buffer_text(out, "&gt;"); break;
        case '"': pj_buffer_text(out, "&quot;"); break;
        default: /* other control characters are not allowed in XML */
            pj_buffer_char(out, (unsigned char)*text < ' ' ? ' ' : *text);
        }
}

static uint32_t count_outcome(const pj_gate_report *r, pj_gate_outcome outcome)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++) n += r->criteria[i].look.outcome == outcome;
    return n;
}

/* The number of test cases, and how many of them failed, were skipped, or could not be run. */
static void junit_begin(pj_buffer *out, uint32_t tests, uint32_t failed, uint32_t skipped,
                        uint32_t errors)
{
    pj_buffer_printf(out,
                     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
                     "  <testsuite name=\"energy\" tests=\"%u\" failures=\"%u\" errors=\"%u\" "
                     "skipped=\"%u\">\n",
                     tests, failed, errors, skipped);
}

static void junit_case(pj_buffer *out, const char *name, const char *command)
{
    pj_buffer_printf(out, "    <testcase classname=\"perjoule.gate\" name=\"%s: ", name);
    xml_text(out, command);
    pj_buffer_text(out, "\">\n");
}

static pj_status junit_end(pj_buffer *out, const char *path, pj_error *err)
{
    pj_buffer_text(out, "  </testsuite>\n</testsuites>\n");
    return report_save(out, path, err);
}

pj_status pj_gate_junit_failed(const pj_gate_report *r, const char *why, const char *path,
                               pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, REPORT_BYTES);
    junit_begin(&out, 1, 0, 0, 1);
    junit_case(&out, "measured", r->command);
    pj_buffer_text(&out, "      <error message=\"");
    xml_text(&out, why);
    pj_buffer_text(&out, "\"/>\n    </testcase>\n");
    return junit_end(&out, path, err);
}

/* What of the runs is not in a sentence. */
static void add_disturbed(pj_buffer *out, const pj_gate_report *r)
{
    if (r->b->disturbed)
        pj_buffer_printf(out, "%u of %u runs were disturbed by other load", r->b->disturbed,
                         r->b->count);
}

pj_status pj_gate_junit(const pj_gate_report *r, const char *path, pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, REPORT_BYTES);
    junit_begin(&out, r->count, count_outcome(r, PJ_GATE_OVER), count_outcome(r, PJ_GATE_UNDECIDED),
                0);
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_gate_criterion *c = &r->criteria[i];
        pj_gate_outcome outcome = c->look.outcome;
        const char *element = outcome == PJ_GATE_OVER        ? "failure"
                              : outcome == PJ_GATE_UNDECIDED ? "skipped"
                                                             : NULL;
        junit_case(&out, c->name, r->command);
        if (element) {
            pj_buffer_printf(&out, "      <%s message=\"", element);
            xml_text(&out, c->text);
            pj_buffer_text(&out, "\"/>\n");
        }
        pj_buffer_text(&out, "      <system-out>");
        xml_text(&out, c->text);
        if (r->b->disturbed) pj_buffer_text(&out, "; ");
        add_disturbed(&out, r);
        pj_buffer_text(&out, "</system-out>\n    </testcase>\n");
    }
    return junit_end(&out, path, err);
}

/* A command as code within a cell: bars would end the cell, backticks the code. */
static void markdown_code(pj_buffer *out, const char *text)
{
    pj_buffer_text(out, "<code>");
    for (; *text; text++) switch (*text) {
        case '&': pj_buffer_text(out, "&amp;"); break;
        case '<': pj_buffer_text(out, "&lt;"); break;
        case '|': pj_buffer_text(out, "&#124;"); break;
        case '`': pj_buffer_text(out, "&#96;"); break;
        case '*': pj_buffer_text(out, "&#42;"); break;
        case '_': pj_buffer_text(out, "&#95;"); break;
        case '@': pj_buffer_text(out, "&#64;"); break;
        default: pj_buffer_char(out, (unsigned char)*text < ' ' ? ' ' : *text);
        }
    pj_buffer_text(out, "</code>");
}

/* The geometric mean of the runs and its 95 % interval. */
static void markdown_row(pj_buffer *out, const char *side, const char *text,
                         const pj_gate_runs *runs, pj_gate_figure figure)
{
    pj_sample sample = {0};
    for (uint32_t i = 0; i < runs->count; i++) pj_sample_add(&sample, runs->joules[figure][i]);
    pj_mean mean = pj_sample_mean(&sample, false);
    pj_buffer_printf(out, "| %s: ", side);
    markdown_code(out, text);
    pj_buffer_printf(out, " | %u | %.4g", runs->count, mean.value);
    if (isfinite(mean.lo)) pj_buffer_printf(out, " (%.4g to %.4g)", mean.lo, mean.hi);
    pj_buffer_text(out, " |\n");
}

pj_status pj_gate_markdown(const pj_gate_report *r, const char *path, pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, REPORT_BYTES);
    pj_buffer_printf(&out, "### Energy: %s\n\n", outcomes[r->outcome].title);
    for (uint32_t i = 0; i < r->count; i++)
        pj_buffer_printf(&out, "- %s: %s\n", r->criteria[i].name, r->criteria[i].text);
    if (r->b->disturbed) pj_buffer_text(&out, "- ");
    add_disturbed(&out, r);
    pj_buffer_printf(&out, "%s\n| side | runs | J %s (%s) |\n|---|---:|---:|\n",
                     r->b->disturbed ? "\n" : "", pj_gate_figure_per(r->figure),
                     r->b->energy.source);
    if (r->baseline) markdown_row(&out, "baseline", r->baseline, r->a, r->figure);
    markdown_row(&out, "command", r->command, r->b, r->figure);
    return report_save(&out, path, err);
}

/* The reason may quote what a command or a file holds. */
pj_status pj_gate_markdown_failed(const pj_gate_report *r, const char *why, const char *path,
                                  pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, REPORT_BYTES);
    pj_buffer_text(&out, "### Energy: not judged\n\n- command: ");
    markdown_code(&out, r->command);
    pj_buffer_text(&out, "\n- reason: ");
    markdown_code(&out, why);
    pj_buffer_char(&out, '\n');
    return report_save(&out, path, err);
}
