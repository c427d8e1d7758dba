/* perjoule gate: whether a command costs more joules than allowed, for pull requests. */
#include "analysis/ratio.h"
#include "base/shell.h"
#include "cli/gate_report.h"
#include "cli/inputs.h"
#include "cli/interrupt.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "insight/task_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GATE_EXIT_OVER = 1, GATE_EXIT_UNDECIDED = 4, GATE_USUAL_RUNS = 40 };

typedef struct gate_args {
    pj_text_list baselines;
    const char *baseline_command, *fail_over, *save, *junit, *markdown, *power, *db, *commit;
    double max_joules, allowed; /* NAN: no limit; the ratio to the baseline */
    int64_t runs, warmup;
    bool no_store, json;
} gate_args;

typedef struct gating {
    const gate_args *args;
    pj_gate_command sides[2]; /* of the baseline (text NULL: stored, or none), of the command */
    pj_gate_runs *runs;       /* [2] likewise */
    pj_gate_report report;
} gating;

enum { BASELINE, COMMAND_SIDE };

static bool is_compared(const gate_args *a)
{
    return a->baselines.count || a->baseline_command;
}

/* ---- criteria ---- */

static void gate_add(gating *g, const char *name, pj_gate_kind kind, double limit)
{
    pj_gate_criterion *c = &g->report.criteria[g->report.count++];
    c->name = name;
    c->gate = (pj_cost_gate){.kind = kind,
                             .limit = limit,
                             .stored = kind == PJ_GATE_STORED ? g->runs[BASELINE].count : 0,
                             .most = (uint32_t)g->args->runs};
}

static void plan_criteria(gating *g)
{
    const gate_args *a = g->args;
    pj_gate_report *r = &g->report;
    if (is_compared(a))
        gate_add(g, "baseline", a->baseline_command ? PJ_GATE_PAIRS : PJ_GATE_STORED, a->allowed);
    if (!isnan(a->max_joules)) gate_add(g, "limit", PJ_GATE_FIXED, a->max_joules);
    for (uint32_t i = 0; i < r->count; i++)
        pj_cost_gate_plan(&r->criteria[i].gate, PJ_LEVEL / r->count);
}

static pj_status choose_figure(gating *g, pj_error *err)
{
    const pj_gate_runs *a = &g->runs[BASELINE], *b = &g->runs[COMMAND_SIDE];
    g->report.figure = pj_gate_figure_of(a, b);
    bool tokens =
        a->count && (a->joules[PJ_GATE_TOKEN][0] > 0) != (b->joules[PJ_GATE_TOKEN][0] > 0);
    if (tokens)
        return pj_fail(err, PJ_E_INVALID,
                       "of baseline and command only one reports tokens: they "
                       "cannot be compared");
    if (g->report.figure == PJ_GATE_RUN && !isnan(g->args->max_joules))
        return pj_fail(err, PJ_E_INVALID,
                       "the command reports no tokens: --max-joules-per-token needs them");
    if (g->report.figure == PJ_GATE_FIGURES)
        return pj_fail(err, PJ_E_UNAVAILABLE, "no figure is available in all runs");
    return PJ_OK;
}

/* Over if any is, within if all are. */
static pj_gate_outcome judge_all(gating *g)
{
    pj_gate_report *r = &g->report;
    const double *a = g->runs[BASELINE].joules[r->figure];
    const double *b = g->runs[COMMAND_SIDE].joules[r->figure];
    bool over = false, within = true;
    for (uint32_t i = 0; i < r->count; i++) {
        pj_gate_outcome outcome =
            pj_cost_gate_judge(&r->criteria[i].gate, a, b, g->runs[COMMAND_SIDE].count);
        over |= outcome == PJ_GATE_OVER;
        within &= outcome == PJ_GATE_WITHIN;
    }
    return over ? PJ_GATE_OVER : within ? PJ_GATE_WITHIN : PJ_GATE_UNDECIDED;
}

static void look_at_all(gating *g)
{
    pj_gate_report *r = &g->report;
    const double *a = g->runs[BASELINE].joules[r->figure];
    const double *b = g->runs[COMMAND_SIDE].joules[r->figure];
    for (uint32_t i = 0; i < r->count; i++)
        r->criteria[i].look =
            pj_cost_gate_look(&r->criteria[i].gate, a, b, g->runs[COMMAND_SIDE].count);
}

/* ---- progress ---- */

/* When the spread becomes known, and again each time that it rests on twice as many runs: after how
 * many runs 95 of 100 gates would have found 5 % more. A stored baseline tells it at once. */
static void say_needed(const gating *g)
{
    const pj_gate_report *r = &g->report;
    const pj_gate_runs *a = &g->runs[BASELINE], *b = &g->runs[COMMAND_SIDE];
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_cost_gate *gate = &r->criteria[i].gate;
        bool is_stored = gate->kind == PJ_GATE_STORED, n_is_power = !(b->count & (b->count - 1));
        if (is_stored ? b->count != 1 : b->count < PJ_GATE_FIRST || !n_is_power) continue;
        double spread = is_stored ? pj_cost_spread(a->joules[r->figure], a->count)
                                  : pj_cost_gate_look(gate, a->joules[r->figure],
                                                      b->joules[r->figure], b->count)
                                        .spread;
        if (!(spread > 0)) continue;
        double most = pj_cost_spread_at_most(spread, (is_stored ? a->count : b->count) - 1.0);
        bool of_baseline = gate->kind != PJ_GATE_FIXED && gate->limit <= 1.04;
        uint32_t n = pj_cost_gate_needed(gate, most, of_baseline ? 1.05 / gate->limit : 1.05);
        char needed[64];
        if (n)
            snprintf(needed, sizeof needed, "takes at most %u of %u runs", n, gate->most);
        else
            snprintf(needed, sizeof needed, "may take more than %u runs", gate->most);
        pj_say(
            "single runs vary by %.2g %%, at most %.2g %%: to find a cost of 5 %% more than %s %s",
            100 * spread, 100 * most, of_baseline ? "the baseline" : "allowed", needed);
    }
}

static void say_runs(const gating *g)
{
    const pj_gate_runs *a = &g->runs[BASELINE], *b = &g->runs[COMMAND_SIDE];
    pj_gate_figure figure = g->report.figure;
    uint32_t last = b->count - 1;
    if (g->sides[BASELINE].text)
        pj_say("block %u: baseline %s, command %s %s", b->count,
               pj_energy_text(1e3 * a->joules[figure][last]).s,
               pj_energy_text(1e3 * b->joules[figure][last]).s, pj_gate_figure_per(figure));
    else
        pj_say("run %u: %s %s", b->count, pj_energy_text(1e3 * b->joules[figure][last]).s,
               pj_gate_figure_per(figure));
    if (g->report.outcome == PJ_GATE_UNDECIDED) say_needed(g);
}

/* ---- measuring ---- */

static pj_status measure_side(gating *g, int side, bool keep, pj_error *err)
{
    if (!g->sides[side].text) return PJ_OK;
    if (pj_interrupted) return pj_fail(err, PJ_E_CANCELLED, "interrupted");
    return pj_gate_measure(&g->sides[side], keep ? &g->runs[side] : NULL, err);
}

/* Both sides once; every other block begins with the command, so that drift favours neither. */
static pj_status measure_block(gating *g, uint32_t block, bool keep, pj_error *err)
{
    int first = block % 2 ? COMMAND_SIDE : BASELINE;
    pj_status status = measure_side(g, first, keep, err);
    return status == PJ_OK ? measure_side(g, 1 - first, keep, err) : status;
}

static pj_status measure_all(gating *g, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int64_t i = 0; i < g->args->warmup && status == PJ_OK; i++)
        status = measure_block(g, (uint32_t)i, false, err);
    for (uint32_t n = 0; n < g->args->runs && status == PJ_OK; n++) {
        status = measure_block(g, n, true, err);
        if (status == PJ_OK)
            status = pj_gate_comparable(&g->runs[BASELINE], &g->runs[COMMAND_SIDE], err);
        if (status == PJ_OK) status = choose_figure(g, err);
        if (status == PJ_OK && g->report.count) g->report.outcome = judge_all(g);
        if (status == PJ_OK) say_runs(g);
        if (g->report.outcome != PJ_GATE_UNDECIDED) break;
    }
    if (status == PJ_OK) look_at_all(g);
    return status;
}

/* ---- all of it ---- */

static pj_status read_baselines(gating *g, pj_error *err)
{
    const gate_args *a = g->args;
    pj_status status = PJ_OK;
    for (int i = 0; i < a->baselines.count && status == PJ_OK; i++)
        status = pj_gate_read(a->baselines.items[i], a->db, &g->runs[BASELINE], err);
    if (status == PJ_OK && a->baselines.count && g->runs[BASELINE].count < 2)
        status = pj_fail(err, PJ_E_INVALID,
                         "a baseline of one run has no spread: give a series (perjoule run "
                         "--repeat 20), several --baseline, or --baseline-command");
    return status;
}

/* Only if some command does not measure itself. */
static pj_status open_sensors(const pj_command *command, gating *g, pj_session **session,
                              pj_error *err)
{
    const gate_args *a = g->args;
    pj_session_options options = {
        .size = sizeof options, .power = a->power, .database = a->no_store ? "none" : a->db};
    bool needed = false;
    for (int i = 0; i < 2; i++) needed |= g->sides[i].text && !pj_gate_own_run(g->sides[i].text);
    pj_status status = needed ? pj_stored_session(command, &options, session, err) : PJ_OK;
    for (int i = 0; i < 2; i++) g->sides[i].session = *session;
    return status;
}

static pj_status write_reports(gating *g, pj_error *err)
{
    const gate_args *a = g->args;
    pj_gate_report *r = &g->report;
    pj_status status = PJ_OK;
    pj_json_out out;
    pj_gate_describe(r);
    if (a->json)
        pj_gate_write(r, pj_json_out_begin(&out));
    else
        pj_gate_print(r, stdout);
    if (a->json) status = pj_json_out_end(&out, PJ_OK, err);
    const char *actions = getenv("GITHUB_ACTIONS");
    if (actions && strcmp(actions, "true") == 0) pj_gate_annotate(r, a->json ? stderr : stdout);
    if (status == PJ_OK && a->junit) status = pj_gate_junit(r, a->junit, err);
    if (status == PJ_OK && a->markdown) status = pj_gate_markdown(r, a->markdown, err);
    return status;
}

/* Of a gate that failed or was interrupted. That it cannot be written is the lesser failure. */
static void write_failure(const gating *g, const pj_error *why)
{
    const gate_args *a = g->args;
    pj_error ignored = {0};
    if (a->junit) pj_gate_junit_failed(&g->report, why->text, a->junit, &ignored);
    if (a->markdown) pj_gate_markdown_failed(&g->report, why->text, a->markdown, &ignored);
}

static pj_status gate_execute(const pj_command *command, gating *g, pj_error *err)
{
    pj_session *session = NULL;
    const char *save = g->args->save;
    pj_status status = read_baselines(g, err);
    if (status == PJ_OK) plan_criteria(g);
    if (status == PJ_OK) status = open_sensors(command, g, &session, err);
    if (status == PJ_OK) pj_interrupt_catch();
    if (status == PJ_OK) status = measure_all(g, err);
    if (status != PJ_OK) write_failure(g, err);
    pj_stored_session_close(session);
    if (status == PJ_OK && g->report.count) status = write_reports(g, err);
    if (status == PJ_OK && save)
        status = pj_gate_save(save, g->report.command, &g->runs[COMMAND_SIDE], err);
    return status;
}

static int gate_code(const pj_command *command, const gating *g, pj_status status,
                     const pj_error *err)
{
    /* 1 says that it costs more, and nothing else */
    if (status != PJ_OK) {
        int code = pj_command_failed(command, err);
        return code == PJ_EXIT_FAILED ? PJ_EXIT_USAGE : code;
    }
    if (!g->report.count || g->report.outcome == PJ_GATE_WITHIN) return PJ_EXIT_OK;
    return g->report.outcome == PJ_GATE_OVER ? GATE_EXIT_OVER : GATE_EXIT_UNDECIDED;
}

static int gate_start(const pj_command *command, const gate_args *a, char **words,
                      const pj_child *blank)
{
    pj_error err = {0};
    pj_buffer text;
    pj_buffer_init(&text, 1 << 20);
    for (char **w = words; *w; w++) {
        if (w != words) pj_buffer_char(&text, ' ');
        pj_shell_word(&text, *w);
    }
    pj_gate_runs *runs = pj_alloc(2, sizeof *runs);
    gating g = {.args = a, .runs = runs};
    char commit_tag[sizeof PJ_TAG_COMMIT + PJ_SESSION_ID_MAX];
    snprintf(commit_tag, sizeof commit_tag, PJ_TAG_COMMIT "%s", a->commit ? a->commit : "");
    const pj_gate_command side = {
        .power = a->power, .db = a->no_store ? "none" : a->db, .blank = *blank};
    g.sides[BASELINE] = g.sides[COMMAND_SIDE] = side;
    g.sides[BASELINE].text = a->baseline_command;
    g.sides[COMMAND_SIDE].text = pj_buffer_get(&text);
    if (a->commit) g.sides[COMMAND_SIDE].commit_tag = commit_tag;
    g.report.command = pj_buffer_get(&text);
    g.report.baseline = a->baseline_command ? a->baseline_command : a->baselines.items[0];
    pj_status status = pj_buffer_status(&text, "a command", &err);
    if (status == PJ_OK && !runs) status = pj_fail_memory(&err, "runs");
    if (runs) g.report.a = &runs[BASELINE], g.report.b = &runs[COMMAND_SIDE];
    if (status == PJ_OK) status = gate_execute(command, &g, &err);
    int code = gate_code(command, &g, status, &err);
    pj_free(runs);
    pj_buffer_fini(&text);
    return code;
}

static pj_status gate_rule_share(const char *text, pj_error *err)
{
    double share = pj_share_parse(text), number = strtod(text, NULL);
    if (share >= 0 && share <= 10) return PJ_OK;
    if (isnan(share) && number >= 1 && number <= 1000)
        return pj_fail(err, PJ_E_INVALID, "must be a share: %.6g%% or %.6g", number, number / 100);
    return pj_fail(err, PJ_E_INVALID, "must be a fraction such as 3%% or 0.03, at most 1000%%");
}

/* What GitHub and GitLab say that they have checked out. */
static const char *commit_of_environment(void)
{
    static const char *const names[] = {"GITHUB_SHA", "CI_COMMIT_SHA"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *commit = getenv(names[i]);
        if (commit && pj_session_id_is_valid(commit)) return commit;
    }
    return NULL;
}

static int gate_check(const pj_command *command, gate_args *a)
{
    if (!a->commit) a->commit = commit_of_environment();
    a->allowed = 1 + pj_share_parse(a->fail_over);
    if (a->baselines.count && a->baseline_command)
        return pj_command_usage(command, "give --baseline or --baseline-command, not both");
    bool judges = is_compared(a) || !isnan(a->max_joules);
    if (!judges && !a->save)
        return pj_command_usage(command, "give what is allowed: --baseline, --baseline-command or "
                                         "--max-joules-per-token (or --save a baseline)");
    if (!judges && (a->junit || a->markdown || a->json))
        return pj_command_usage(command, "--save alone judges nothing that could be reported");
    return PJ_PARSE_GO_ON;
}

static int run_gate(const pj_command *command, int argc, char **argv)
{
    gate_args a = {.fail_over = "3%", .max_joules = NAN, .runs = GATE_USUAL_RUNS, .warmup = 1};
    const pj_option options[] = {
        {"baseline", 0, PJ_OPTION_LIST, &a.baselines, "BASELINE",
         "what it is compared with: a file written by --save, an exported run, a stored run (with "
         "its --repeat series) or an experiment of one setting; may be repeated"},
        {"baseline-command", 0, PJ_OPTION_TEXT, &a.baseline_command, "COMMAND",
         "run this beside it instead, in alternating blocks; a line for the shell"},
        {"fail-over", 0, PJ_OPTION_TEXT, &a.fail_over, "SHARE",
         "how much more than the baseline is allowed (3%)", .rule = gate_rule_share,
         .needs = "baseline baseline-command"},
        {"max-joules-per-token", 0, PJ_OPTION_DOUBLE, &a.max_joules, "J",
         "joules allowed per token", 1e-12, 1e12},
        {"runs", 0, PJ_OPTION_INT, &a.runs, "N", "runs of the command at most (40)", PJ_GATE_FIRST,
         PJ_GATE_RUNS},
        {"warmup", 0, PJ_OPTION_INT, &a.warmup, "N", "runs before, which do not count (1)", 0, 100},
        {"commit", 0, PJ_OPTION_TEXT, &a.commit, "SHA",
         "what the command was built from, a tag of its runs (default: $GITHUB_SHA, "
         "$CI_COMMIT_SHA); perjoule session --commits lists them",
         .rule = pj_rule_session},
        {"save", 0, PJ_OPTION_TEXT, &a.save, "FILE",
         "write the command's runs, to be the baseline of later gates", .rule = pj_rule_new_file},
        {"junit", 0, PJ_OPTION_TEXT, &a.junit, "FILE", "write the result as JUnit XML",
         .rule = pj_rule_new_file},
        {"markdown", 0, PJ_OPTION_TEXT, &a.markdown, "FILE",
         "write the result as Markdown, for a comment", .rule = pj_rule_new_file},
        PJ_OPTION_POWER(&a.power),
        PJ_OPTION_DB(&a.db),
        {"no-store", 0, PJ_OPTION_FLAG, &a.no_store, NULL, "keep no runs"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print the result as one JSON object"},
        {0}};
    int separator = 1, positional;
    pj_child blank = {0};
    pj_child_reserve(&blank);
    while (separator < argc && strcmp(argv[separator], "--") != 0) separator++;
    int code = pj_options_parse(command, options, separator, argv, &positional);
    if (code == PJ_PARSE_GO_ON && positional)
        code = pj_command_usage(command, "put -- before the command");
    if (code == PJ_PARSE_GO_ON && separator + 1 >= argc)
        code = pj_command_usage(command, "no command given: put it after --");
    if (code == PJ_PARSE_GO_ON) code = gate_check(command, &a);
    return code == PJ_PARSE_GO_ON ? gate_start(command, &a, argv + separator + 1, &blank) : code;
}

const pj_command pj_command_gate = {
    .name = "gate",
    .summary = "fail a pull request that costs more energy than allowed",
    .run = run_gate,
    .shows_progress = true,
    .usage = "[options] -- COMMAND [ARGUMENTS]",
    .text =
        "Runs the command again and again until it can tell whether it costs more than allowed, or "
        "says after --runs that it cannot. A command that begins with \"perjoule run\" is judged by "
        "joules per token, and so is a program that reports its tokens (see perjoule exec); any "
        "other program by the joules of a whole run. With --baseline-command both are run in "
        "alternating blocks, so that what changes with time affects both alike; a stored baseline "
        "must come from the same machine. However often the gate looks, at most 5 of 100 call a "
        "command that costs exactly what is allowed more costly, and at most 5 less; the interval "
        "is that by which it decides.\n\n"
        "Exit codes: 0 costs no more than allowed, 1 costs more, 4 undecided, 2 bad input or the "
        "command failed, 3 energy is unavailable, 130 interrupted. On GitHub (GITHUB_ACTIONS=true) "
        "it also prints an annotation.",
    .examples =
        "perjoule gate --baseline main.json -- perjoule run -m models/demo -n 400 \"The engineer\"\n"
        "perjoule gate --save main.json --runs 20 -- perjoule run -m models/demo -n 400 \"The "
        "engineer\"\n"
        "perjoule gate --baseline-command ./old/bench --fail-over 5% --junit gate.xml -- "
        "./new/bench\n"
        "perjoule gate --max-joules-per-token 0.5 -- perjoule run -m models/demo \"The engineer\"\n",
};
