/* perjoule sensors: lists the power sensors of this machine, and what is missing for others. */
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/terminal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "power/poll.h"
#include "power/survey.h"
#include "trace/summary.h"

#include <stdio.h>

static pj_style style_of(pj_source_state state)
{
    return state == PJ_SOURCE_USABLE   ? PJ_STYLE_GREEN
           : state == PJ_SOURCE_DENIED ? PJ_STYLE_YELLOW
                                       : PJ_STYLE_DIM;
}

static void print_rail(const pj_survey_source *s, uint32_t rail)
{
    char label[64], made_of[256];
    const pj_survey_rail *r = &s->rails[rail];
    pj_text period = {"unknown"};
    if (r->rail.period_ns > 0) period = pj_time_text((double)r->rail.period_ns * 1e-6);
    snprintf(label, sizeof label, "%s%s", r->rail.parent >= 0 ? "  " : "", r->rail.name);
    pj_print(stdout, "    %-16s %s   %-8s %-8s %-8s every %s %s%s%s\n", label,
             pj_padded(12, pj_power_text(r->power_mw)).s, pj_rail_kind_name(r->rail.kind),
             pj_rail_scope_name(r->rail.scope), pj_quality_name(r->rail.quality),
             pj_padded(-8, period).s, pj_style_on(stdout, PJ_STYLE_DIM), r->rail.field,
             pj_style_off(stdout));
    bool tells =
        r->rail.grid_ns > 0 || r->rail.log_ns > 0 || pj_cost_is_high(&r->rail, r->contact.cost_ns);
    if (tells)
        pj_print(stdout, "        %s\n", pj_survey_made_of(s, rail, made_of, sizeof made_of));
}

static void print_source(const pj_survey_source *s)
{
    pj_print(stdout, "%s%-14s%s %s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), s->source->name,
             pj_style_off(stdout), pj_style_on(stdout, style_of(s->report.state)),
             pj_source_state_name(s->report.state), pj_style_off(stdout));
    for (uint32_t i = 0; i < s->rail_count; i++) print_rail(s, i);
    if (s->still[0]) pj_print(stdout, "    %s %s\n", s->still, pj_survey_still_reason);
    if (s->report.reason[0]) pj_print(stdout, "    %s\n", s->report.reason);
    if (s->report.remedy[0]) pj_print(stdout, "    -> %s\n", s->report.remedy);
    if (s->disagreement[0]) pj_print(stdout, "    ! %s\n", s->disagreement);
}

static int sensors_print_json(const pj_command *command, const pj_survey_options *options,
                              const pj_survey_source *sources, uint32_t count)
{
    pj_json_out out;
    pj_error err;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_key(json, "sources");
    pj_survey_json(options, sources, count, json);
    pj_json_object_end(json);
    pj_status status = pj_json_out_end(&out, PJ_OK, &err);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

static int run_sensors(const pj_command *command, int argc, char **argv)
{
    bool json = false;
    enum { LISTEN_MS = 500 };
    pj_survey_options survey = {0};
    const pj_option options[] = {
        PJ_OPTION_POWER(&survey.power),
        {"duration", 0, PJ_OPTION_SECONDS, &survey.listen_ns, "S",
         "measuring time for the current power (until each rail has shown one, at "
         "most 500ms)",
         1e6, 1e12, .old_letter = 'd'},
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    survey.until_shown = survey.listen_ns == 0;
    if (survey.until_shown) survey.listen_ns = LISTEN_MS * PJ_NS_PER_MS;
    pj_survey_source *sources;
    uint32_t count;
    pj_error err;
    if (pj_survey(&survey, &sources, &count, &err) != PJ_OK)
        return pj_command_failed(command, &err);
    if (json)
        code = sensors_print_json(command, &survey, sources, count);
    else {
        for (uint32_t i = 0; i < count; i++) print_source(&sources[i]);
        code = PJ_EXIT_OK;
    }
    pj_free(sources);
    return code;
}

const pj_command pj_command_sensors = {
    .name = "sensors",
    .summary = "list power sources: state, rails, reading, remedy",
    .run = run_sensors,
    .usage = "[options]",
    .text =
        "Lists every power source with its state: ready; denied (it is here, but permission is "
        "missing); absent; optional (works, but is used only when named in --power). For each "
        "that works: its rails, their present power, what kind of reading they are, and the "
        "update period as measured here; where reads are dear, or a counter or log has times of "
        "its own, what the figures are made of; rails that stand still. For each that does not: the reason and the exact "
        "remedy.",
    .examples = "perjoule sensors\nperjoule sensors --json\n",
};
