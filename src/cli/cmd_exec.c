/*
 * perjoule exec: the energy of any program and of what it starts, as a stored run. The sensors
 * observe the whole machine before, during and after the program's run; idle power measured before
 * is subtracted for the net figure. The program keeps its terminal, signals, output and exit code;
 * phases that it reports arrive as markers (import/markers.h). Our own output goes to standard
 * error or, with --json, to standard output at the end.
 */
#include "cli/exec_run.h"
#include "cli/options.h"
#include "cli/stored.h"
#include "cli/terminal.h"

#include "insight/insight.h"
#include "store/run_summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct exec_args {
    pj_session_options session;
    const char *depth;
    pj_text_list tags;
    double baseline_s;
    bool no_store, json;
} exec_args;

/* ---- the report ---- */

static double run_seconds(const pj_exec_run *e)
{
    return e->data.info.total_ms * 1e-3;
}

static double process_mj(const pj_exec_run *e)
{
    return e->data.info.net_mj * pj_exec_cpu_share(e);
}

static const pj_rail_energy *rail_figure(const pj_exec_run *e, uint32_t rail)
{
    for (uint32_t i = 0; i < e->data.rail_energy_count; i++)
        if (e->data.rail_energy[i].rail == rail && e->data.rail_energy[i].phase == PJ_PHASE_COUNT)
            return &e->data.rail_energy[i];
    return NULL;
}

static pj_rail_energy total_figure(const pj_exec_run *e)
{
    const pj_run_info *info = &e->data.info;
    return (pj_rail_energy){.gross_mj = info->total_mj,
                            .idle_mj = info->idle_mj,
                            .net_mj = info->net_mj,
                            .sd_mj = info->total_sd_mj,
                            .net_sd_mj = info->net_sd_mj,
                            .sd = info->total_sd,
                            .net_sd = info->net_sd};
}

static double sd_without_gain(const pj_sd *sd)
{
    return hypot((double)sd->random_mj, (double)sd->bias_mj);
}

static void exec_print_figure(const char *name, const pj_rail_energy *f, double run_s)
{
    pj_text net = {""};
    if (!isnan(f->net_mj)) net = pj_signed_text(f->net_mj, sd_without_gain(&f->net_sd));
    pj_print(stderr, "  %-20s %s", name,
             pj_padded(20, pj_interval_text(f->gross_mj, sd_without_gain(&f->sd))).s);
    if (!isnan(f->gross_mj))
        pj_print(stderr, " %s %s", pj_padded(20, net).s,
                 pj_padded(10, pj_power_text(f->gross_mj / run_s)).s);
    fputc('\n', stderr);
}

static bool exec_has_total_rail(const pj_exec_run *e)
{
    for (uint32_t i = 0; i < e->data.rail_count; i++)
        if (e->data.rails[i].rail_class == PJ_RAIL_TOTAL) return true;
    return false;
}

static void print_rails(const pj_exec_run *e)
{
    const pj_run_info *info = &e->data.info;
    double run_s = run_seconds(e), gain = 0;
    pj_print(stderr, "  %-20s %20s %20s %10s\n", "rail", "gross, 95 %", "net, 95 %", "mean");
    for (uint32_t i = 0; i < e->data.rail_count; i++) {
        const pj_rail_energy *f = rail_figure(e, i);
        if (!f) continue;
        exec_print_figure(e->data.rails[i].name, f, run_s);
        if (f->gross_mj > 0) gain = fmax(gain, (double)f->sd.gain_mj / f->gross_mj);
    }
    pj_rail_energy total = total_figure(e);
    if (!exec_has_total_rail(e) && (e->data.rail_count > 1 || info->partial_rails))
        exec_print_figure("total", &total, run_s);
    pj_gain_of_rows_print(stderr, "  ", gain);
    if (info->partial_rails) {
        char text[600];
        pj_partial_text(info->total_rails, info->partial_rails, text, sizeof text);
        pj_print(stderr, isnan(info->total_mj) ? "  no total: %s\n" : "  partial: %s\n", text);
    }
    if (info->quality == PJ_MODELLED)
        pj_print(stderr, "  These figures are modelled, not measured.\n");
}

/* Only for programs that wrote markers. */
static void exec_print_phases(const pj_exec_run *e)
{
    if (pj_markers_count(e->markers).events == 0) return;
    pj_print(stderr, "  %-20s %12s %20s\n", "phase", "time", "gross, 95 %");
    for (pj_phase p = PJ_PHASE_IDLE; p < PJ_PHASE_COUNT; p++) {
        double ms = 0, mj = 0, sd_mj = 0;
        bool found = false;
        for (uint32_t i = 0; i < e->data.phase_count; i++) {
            if (e->data.phases[i].phase != p) continue;
            found = true;
            ms += e->data.phases[i].duration_ms;
            mj += pj_mj_of_nj(e->data.phases[i].energy.gross_nj);
            sd_mj = hypot(sd_mj, (double)e->data.phases[i].energy.sd_mj);
        }
        if (!found) continue;
        pj_print(stderr, "  %-20s %s %s\n", pj_phase_name(p), pj_padded(12, pj_time_text(ms)).s,
                 pj_padded(20, pj_interval_text(mj, sd_mj)).s);
    }
}

static void print_process(const pj_exec_run *e)
{
    if (isnan(process_mj(e))) return;
    pj_print(stderr,
             "  the program's share: %.0f %% of the processors' busy time, %s net (modelled)\n",
             100 * pj_exec_cpu_share(e),
             pj_supported_text(process_mj(e), e->data.info.net_sd_mj * pj_exec_cpu_share(e)).s);
}

static bool is_shown(const char *code)
{
    /* these are shown in the table */
    return strcmp(code, "power_unavailable") != 0 && strcmp(code, "run_failed") != 0;
}

static void exec_print_table(const pj_exec_run *e)
{
    const pj_run_info *info = &e->data.info;
    pj_print(stderr, "\nperjoule exec: %s took %s (CPU time %s), exit code %d\n", e->child.words[0],
             pj_time_text(info->total_ms).s, pj_time_text(e->child.cpu_s * 1e3).s,
             e->child.exit_code);
    if (e->data.rail_count == 0) {
        const char *remedy = e->session->meter
                                 ? pj_meter_remedy(e->session->meter)
                                 : "Power measurement is switched off (--power none); "
                                   "leave the option out to use the machine's sensors.";
        pj_print(stderr, "  energy: unavailable. %s\n", remedy);
    } else {
        print_rails(e);
        print_process(e);
    }
    exec_print_phases(e);
    for (uint32_t i = 0; i < e->data.warning_count; i++)
        if (is_shown(e->data.warnings[i].code))
            pj_print(stderr, "  %s\n", e->data.warnings[i].text);
    if (e->store_problem[0])
        pj_print(stderr, "  not stored: %s\n", e->store_problem);
    else if (e->session->store)
        pj_print(stderr, "  stored as %s\n", info->id);
}

static void figure_json(pj_json *json, const pj_rail_energy *f, double run_s)
{
    pj_json_kv_double(json, "gross_mj", f->gross_mj);
    pj_json_kv_double(json, "sd_mj", f->sd_mj);
    pj_json_kv_double(json, "idle_mj", f->idle_mj);
    pj_json_kv_double(json, "net_mj", f->net_mj);
    pj_json_kv_double(json, "net_sd_mj", f->net_sd_mj);
    pj_json_kv_double(json, "mean_mw", f->gross_mj / run_s);
}

static void rails_json(const pj_exec_run *e, pj_json *json)
{
    pj_json_kv_array_begin(json, "rails");
    for (uint32_t i = 0; i < e->data.rail_count; i++) {
        const pj_rail *rail = &e->data.rails[i];
        const pj_rail_energy *f = rail_figure(e, i);
        if (!f) continue;
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", rail->name);
        pj_json_kv_string(json, "source", rail->source);
        pj_json_kv_string(json, "class", pj_rail_class_name(rail->rail_class));
        pj_json_kv_string(json, "quality", pj_quality_name(rail->quality));
        figure_json(json, f, run_seconds(e));
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void warnings_json(const pj_exec_run *e, pj_json *json)
{
    pj_json_kv_array_begin(json, "warnings");
    for (uint32_t i = 0; i < e->data.warning_count; i++)
        pj_json_string(json, e->data.warnings[i].text);
    if (e->store_problem[0]) pj_json_string(json, e->store_problem);
    pj_json_array_end(json);
}

static pj_status exec_print_json(const pj_exec_run *e, pj_error *err)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    const pj_run_info *info = &e->data.info;
    const pj_baseline *idle = pj_session_idle(e->session);
    pj_rail_energy total = total_figure(e);
    pj_json_object_begin(json);
    pj_exec_command_json(e, json);
    pj_exec_cpu_json(e, json);
    pj_json_kv_double(json, "process_net_mj", process_mj(e));
    pj_json_kv_string(json, "process_energy_source",
                      isnan(process_mj(e)) ? "unavailable" : "modelled");
    pj_json_kv_object_begin(json, "total");
    figure_json(json, &total, run_seconds(e));
    pj_json_object_end(json);
    rails_json(e, json);
    if (idle && idle->rail_count) pj_json_kv_bool(json, "baseline_quiet", idle->quiet);
    pj_json_kv_bool(json, "stored", e->session->store && !e->store_problem[0]);
    warnings_json(e, json);
    pj_json_kv_double(json, "duration_ms", info->total_ms);
    pj_summary_write_members(json, info, NULL);
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

/* ---- all of it ---- */

/* Measures even if the database cannot be written. */
static pj_status open_session(pj_exec_run *e, const exec_args *a, pj_error *err)
{
    pj_session_options options = a->session;
    options.baseline_seconds = pj_baseline_seconds(a->baseline_s);
    pj_status status = pj_session_open(&options, &e->session, err);
    if (status == PJ_OK) e->session->stored = pj_insight_prepare;
    if (status == PJ_OK) e->session->listens_after = true;
    if (status == PJ_OK || options.database) return status;
    options.database = "none";
    pj_error without = {0};
    if (pj_session_open(&options, &e->session, &without) != PJ_OK) return status;
    e->session->listens_after = true;
    memcpy(e->store_problem, err->text, sizeof e->store_problem);
    return PJ_OK;
}

static int exec_execute(const pj_command *command, const exec_args *a, pj_exec_run *e)
{
    pj_error err = {0};
    pj_status status = pj_child_find(&e->child, &err);
    if (status == PJ_OK) status = open_session(e, a, &err);
    if (status == PJ_OK) status = pj_exec_begin(e, &err);
    if (status == PJ_OK) status = pj_exec_measure(e, &err);
    int code = status == PJ_OK || e->child.exit_code ? e->child.exit_code : pj_exit_code(status);
    if (status == PJ_OK && !a->json) exec_print_table(e);
    if (status == PJ_OK && a->json) status = exec_print_json(e, &err);
    if (status != PJ_OK) pj_command_failed(command, &err);
    pj_stored_session_close(e->session);
    pj_exec_close(e);
    return code;
}

static int run_exec(const pj_command *command, int argc, char **argv)
{
    exec_args a = {.session = {.size = sizeof a.session}, .baseline_s = NAN}; /* NAN: the default */
    pj_exec_run e = {0};
    pj_exec_request *request = &e.request;
    const char *session_id = NULL;
    const pj_option options[] = {
        PJ_OPTION_POWER(&a.session.power),
        PJ_OPTION_INTERVAL(&a.session.interval_ns, 'i', "sampling interval (each source's own)"),
        PJ_OPTION_BASELINE(&a.baseline_s, 'b'),
        {"depth", 'd', PJ_OPTION_CHOICE, &a.depth, "DEPTH",
         "how deep markers are recorded: off (phases, sections, tokens), module (components, GPU "
         "kernels; default) or deep (operations, kernels in CUDA graphs)",
         .choices = "off module deep"},
        {"engine", 0, PJ_OPTION_TEXT, &request->engine, "NAME",
         "name of the engine that runs (exec)"},
        {"model", 'm', PJ_OPTION_TEXT, &request->model, "NAME", "name of the model that it runs"},
        {"tag", 0, PJ_OPTION_LIST, &a.tags, "TAG", "a tag to find the run by; may be repeated"},
        PJ_OPTION_SESSION(&session_id),
        {"experiment", 0, PJ_OPTION_TEXT, &request->experiment, "NAME",
         "the experiment it belongs to"},
        PJ_OPTION_DB(&a.session.database),
        {"llama", 0, PJ_OPTION_FLAG, &request->llama, NULL,
         "also record llama.cpp programs started by the program (a script, for example)"},
        {"no-store", 0, PJ_OPTION_FLAG, &a.no_store, NULL, "keep nothing"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL,
         "one JSON object on standard output, at the end"},
        {0}};
    int separator = 1, positional;
    pj_child_reserve(&e.child);
    while (separator < argc && strcmp(argv[separator], "--") != 0) separator++;
    int code = pj_options_parse(command, options, separator, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional)
        return pj_command_usage(command, "put -- before the program: perjoule exec -- %s", argv[1]);
    if (separator + 1 >= argc)
        return pj_command_usage(command, "no program given: put it after --");
    pj_session_option(session_id);
    e.child.words = argv + separator + 1;
    if (a.no_store) a.session.database = "none";
    request->tags = a.tags.items;
    request->depth = a.depth ? (pj_depth)pj_depth_parse(a.depth) : PJ_DEPTH_MODULE;
    return exec_execute(command, &a, &e);
}

const pj_command pj_command_exec = {
    .name = "exec",
    .summary = "energy of any program and what it starts",
    .run = run_exec,
    .shows_progress = true,
    .usage = "[options] -- PROGRAM [ARGUMENTS]",
    .text =
        "Measures idle power for a second, runs the program, stores the run and prints the energy "
        "of every rail while the program ran: gross, and net of idle, each with its 95 % interval. "
        "Power sensors see the whole machine or a whole device, so everything else that runs "
        "meanwhile counts too; the program's share, estimated from CPU time, is printed as well "
        "and is modelled. The program keeps its terminal, its output and its signals, and its exit "
        "code becomes perjoule's (128 + signal when it was killed, 127 when there is no such "
        "program, 126 when it cannot be run). Without sensors the program runs too and the energy "
        "is unavailable. The table goes to standard error; --json prints an object to standard "
        "output.\n\n"
        "A program can report its phases, sections and tokens to get their energies: it writes "
        "lines such as \"begin phase prefill\", \"begin section load\", \"begin token 3\" and "
        "\"end\" to the descriptor whose number is in PERJOULE_MARKERS. docs/formats.md has the "
        "whole grammar.\n\n"
        "For a program linked with llama.cpp's shared library, the prompt, generated tokens, "
        "layers and their parts are recorded without changing it; with --depth deep every "
        "operation, with --depth off nothing below a token, which does not slow it down.",
    .examples =
        "perjoule exec -- make -j8\nperjoule exec --json -- python3 train.py > energy.json\n"
        "perjoule exec --power estimate --baseline 0 -- gzip -k big.tar\n"
        "perjoule exec -- sh -c 'echo begin phase decode >&$PERJOULE_MARKERS; sleep 1'\n",
};
