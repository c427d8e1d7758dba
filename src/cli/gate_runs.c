/* Runs of a gate: their figures, and commands that are run to get them. */
#include "cli/gate_runs.h"

#include "base/shell.h"
#include "cli/gate_runs_impl.h"
#include "cli/interrupt.h"
#include "trace/rail.h"
#include "trace/summary.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const struct {
    const char *name, *per;
} figures[PJ_GATE_FIGURES] = {{"joules_per_token_typical", "per typical token"},
                              {"joules_per_token", "per token"},
                              {"joules_per_run", "per run"}};

static const char nothing[] = "none"; /* missing */

const char *pj_gate_figure_name(pj_gate_figure figure)
{
    return figures[figure].name;
}

const char *pj_gate_figure_per(pj_gate_figure figure)
{
    return figures[figure].per;
}

static bool all_have(const pj_gate_runs *runs, int figure)
{
    for (uint32_t i = 0; i < runs->count; i++)
        if (!(runs->joules[figure][i] > 0)) return false;
    return true;
}

pj_gate_figure pj_gate_figure_of(const pj_gate_runs *a, const pj_gate_runs *b)
{
    int figure = 0;
    while (figure < PJ_GATE_FIGURES && !(all_have(a, figure) && all_have(b, figure))) figure++;
    return (pj_gate_figure)figure;
}

/* ---- adding runs ---- */

static pj_status gate_same(const char *first, const char *now, const char *what, pj_error *err)
{
    if (!first[0] || !now[0] || strcmp(first, now) == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "runs cannot be compared: the %s of the energy is %s in one and %s in another",
                   what, first, now);
}

static pj_status gate_same_energy(const pj_gate_energy *a, const pj_gate_energy *b, pj_error *err)
{
    pj_status status = gate_same(a->source, b->source, "source", err);
    if (status == PJ_OK && strcmp(a->source, pj_quality_name(PJ_MODELLED)) == 0)
        status = gate_same(a->power, b->power, "model", err);
    if (status == PJ_OK) status = gate_same(a->scope, b->scope, "scope", err);
    if (status == PJ_OK) status = gate_same(a->rails, b->rails, "list of rails", err);
    if (status == PJ_OK) status = gate_same(a->missing, b->missing, "list of missing rails", err);
    return status;
}

const char *pj_gate_partial(const pj_gate_energy *e, char *text, size_t bytes)
{
    if (!e->missing[0] || strcmp(e->missing, nothing) == 0) return NULL;
    pj_partial_text(e->rails, e->missing, text, bytes);
    return text;
}

pj_status pj_gate_comparable(const pj_gate_runs *a, const pj_gate_runs *b, pj_error *err)
{
    return gate_same_energy(&a->energy, &b->energy, err);
}

/* A run that counts twice would make the spread look smaller than it is. */
static bool gate_has(const pj_gate_runs *runs, const char *id)
{
    for (uint32_t i = 0; i < runs->count && id[0]; i++)
        if (strcmp(runs->ids[i], id) == 0) return true;
    return false;
}

pj_status pj_gate_add(pj_gate_runs *runs, const pj_gate_run *run, pj_error *err)
{
    if (!(run->joules[PJ_GATE_RUN] > 0))
        return pj_fail(err, PJ_E_UNAVAILABLE, "the energy of a run is unavailable: %s",
                       pj_absence_text(run->absence));
    if (gate_has(runs, run->id))
        return pj_fail(err, PJ_E_INVALID, "run %.18s is given twice", run->id);
    pj_status status = gate_same_energy(&runs->energy, &run->energy, err);
    if (status != PJ_OK) return status;
    if (!runs->count) {
        runs->energy = run->energy;
        memcpy(runs->machine, run->machine, sizeof runs->machine);
    }
    if (runs->count == PJ_GATE_RUNS)
        return pj_fail(err, PJ_E_INVALID, "a baseline has more than %d runs", PJ_GATE_RUNS);
    for (int i = 0; i < PJ_GATE_FIGURES; i++) runs->joules[i][runs->count] = run->joules[i];
    memcpy(runs->ids[runs->count], run->id, sizeof run->id);
    runs->count++;
    runs->disturbed += run->disturbed;
    return PJ_OK;
}

pj_gate_run pj_gate_run_of(const pj_run_info *info)
{
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    pj_gate_run run = {
        .joules = {ratios.joules_per_token_typical, ratios.joules_per_token, info->total_mj * 1e-3},
        .prefill_joules = ratios.joules_per_input_token,
        .decode_joules = ratios.joules_per_output_token,
        .prefill_speed = ratios.prefill_tokens_per_second,
        .decode_speed = ratios.tokens_per_second,
        .request_ms = info->request_ms,
        .output_tokens = (double)info->output_tokens,
        .total_ms = info->total_ms,
        .disturbed = pj_run_is_disturbed(info)};
    pj_gate_energy *e = &run.energy;
    snprintf(e->source, sizeof e->source, "%s", pj_quality_name(info->quality));
    snprintf(e->power, sizeof e->power, "%s", info->power_sources ? info->power_sources : "");
    snprintf(e->scope, sizeof e->scope, "%s", info->scope ? info->scope : "machine");
    snprintf(e->rails, sizeof e->rails, "%s", info->total_rails ? info->total_rails : "");
    snprintf(e->missing, sizeof e->missing, "%s",
             info->partial_rails ? info->partial_rails : nothing);
    snprintf(run.id, sizeof run.id, "%s", info->id);
    snprintf(run.machine, sizeof run.machine, "%s", info->machine ? info->machine : "");
    snprintf(run.absence, sizeof run.absence, "%s", pj_absence_name(info->absence));
    return run;
}

double pj_gate_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

void pj_gate_text(const json_t *object, const char *name, char *text, size_t bytes)
{
    const char *value = json_string_value(json_object_get(object, name));
    snprintf(text, bytes, "%s", value ? value : "");
}

/* ---- `perjoule run` ---- */

const char *pj_gate_own_run(const char *command)
{
    size_t first = strcspn(command, " \t\n'\"\\;&|<>()$`");
    const char *name = command + first, *end = name;
    while (name > command && name[-1] != '/') name--;
    if (end - name != 8 || strncmp(name, "perjoule", 8) != 0) return NULL;
    end += strspn(end, " \t");
    return strncmp(end, "run", 3) == 0 && strchr(" \t", end[3]) ? end + 3 : NULL;
}

/* A list of rails as they are stored: "cpu,gpu0". */
static void join_rails(const json_t *rails, char *text, size_t bytes)
{
    size_t i, used = 0;
    json_t *rail;
    text[0] = 0;
    json_array_foreach(rails, i, rail) if (used < bytes) used +=
        (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "",
                         json_is_string(rail) ? json_string_value(rail) : "");
}

static pj_status read_summary(const char *text, size_t bytes, pj_gate_run *out, pj_error *err)
{
    json_error_t where;
    json_t *summary = json_loadb(text, bytes, JSON_ALLOW_NUL, &where);
    if (!json_is_object(summary) || json_object_get(summary, "statistics")) {
        json_decref(summary);
        return pj_fail(err, PJ_E_INVALID,
                       "the command did not print one run as JSON: leave out "
                       "--repeat, and options that print anything else");
    }
    pj_gate_run run = {.joules = {pj_gate_number(summary, "joules_per_token_typical"),
                                  pj_gate_number(summary, "joules_per_token"),
                                  pj_gate_number(summary, "total_energy_mj") * 1e-3},
                       .prefill_joules = pj_gate_number(summary, "joules_per_input_token"),
                       .decode_joules = pj_gate_number(summary, "joules_per_output_token"),
                       .prefill_speed = pj_gate_number(summary, "prefill_tokens_per_second"),
                       .decode_speed = pj_gate_number(summary, "tokens_per_second"),
                       .request_ms = pj_gate_number(summary, "request_duration_ms"),
                       .output_tokens = pj_gate_number(summary, "output_tokens"),
                       .total_ms = pj_gate_number(summary, "total_duration_ms"),
                       .disturbed = pj_gate_number(summary, "disturbed_share") > 0.1};
    pj_gate_text(summary, "id", run.id, sizeof run.id);
    pj_gate_text(summary, "energy_source", run.energy.source, sizeof run.energy.source);
    pj_gate_text(summary, "power_sources", run.energy.power, sizeof run.energy.power);
    pj_gate_text(summary, "scope", run.energy.scope, sizeof run.energy.scope);
    pj_gate_text(summary, "machine", run.machine, sizeof run.machine);
    pj_gate_text(summary, "unavailable_reason", run.absence, sizeof run.absence);
    join_rails(json_object_get(summary, "total_rails"), run.energy.rails, sizeof run.energy.rails);
    join_rails(json_object_get(summary, "partial_rails"), run.energy.missing,
               sizeof run.energy.missing);
    if (!run.energy.missing[0]) snprintf(run.energy.missing, sizeof run.energy.missing, nothing);
    json_decref(summary);
    *out = run;
    return PJ_OK;
}

static pj_status gate_ended(const char *command, int exit_code, pj_error *err)
{
    if (pj_interrupted) return pj_fail(err, PJ_E_CANCELLED, "interrupted");
    if (exit_code == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the command failed with exit code %d: %.300s", exit_code,
                   command);
}

/* Its options precede the user's, which win. */
static const char *tag_of(const pj_gate_command *c)
{
    return c->tag ? c->tag : "gate";
}

static pj_status run_own(const pj_gate_command *c, const char *options, pj_gate_run *run,
                         pj_error *err)
{
    pj_buffer text, out;
    pj_buffer_init(&text, 1 << 20);
    pj_buffer_init(&out, 256 << 20);
    pj_buffer_append(&text, c->text, (size_t)(options - c->text));
    pj_buffer_printf(&text, " --json --tag %s", tag_of(c));
    if (c->commit_tag) pj_buffer_text(&text, " --tag "), pj_shell_word(&text, c->commit_tag);
    if (c->power) pj_buffer_text(&text, " --power "), pj_shell_word(&text, c->power);
    if (c->db) pj_buffer_text(&text, " --db "), pj_shell_word(&text, c->db);
    pj_buffer_text(&text, options);
    pj_status status = pj_buffer_status(&text, "a command", err);
    FILE *pipe = status == PJ_OK ? popen(text.data, "r") : NULL;
    if (status == PJ_OK && !pipe) status = pj_fail_errno(err, errno, "cannot start a shell");
    for (size_t n = 1; pipe && n && pj_buffer_reserve(&out, 1 << 16); out.length += n)
        n = fread(out.data + out.length, 1, 1 << 16, pipe);
    int ended = pipe ? pclose(pipe) : 0;
    if (status == PJ_OK) status = pj_buffer_status(&out, "the command's output", err);
    if (status == PJ_OK)
        status =
            gate_ended(c->text, WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended), err);
    if (status == PJ_OK && run) status = read_summary(pj_buffer_get(&out), out.length, run, err);
    pj_buffer_fini(&text);
    pj_buffer_fini(&out);
    return status;
}

/* ---- other programs ---- */

static pj_status run_program(const pj_gate_command *c, pj_gate_run *run, pj_error *err)
{
    const char *const tags[] = {tag_of(c), c->commit_tag, NULL};
    pj_buffer text;
    pj_buffer_init(&text, 1 << 20);
    pj_buffer_printf(&text, "exec >/dev/null; %s", c->text);
    char shell[] = "sh", option[] = "-c";
    char *words[] = {shell, option, text.data, NULL};
    pj_exec_run r = {.session = c->session,
                     .child = c->blank,
                     .request = {.tags = tags, .depth = PJ_DEPTH_OFF, .llama = true}};
    r.child.words = words;
    pj_status status = pj_buffer_status(&text, "a command", err);
    if (status == PJ_OK) status = pj_child_find(&r.child, err);
    if (status == PJ_OK) status = pj_exec_begin(&r, err);
    if (status == PJ_OK) status = pj_exec_measure(&r, err);
    if (status == PJ_OK && r.child.signal == SIGINT)
        status = pj_fail(err, PJ_E_CANCELLED, "interrupted");
    if (status == PJ_OK) status = gate_ended(c->text, r.child.exit_code, err);
    if (status == PJ_OK && run) *run = pj_gate_run_of(&r.data.info);
    pj_exec_close(&r);
    pj_buffer_fini(&text);
    return status;
}

pj_status pj_gate_run_once(const pj_gate_command *c, pj_gate_run *run, pj_error *err)
{
    const char *options = pj_gate_own_run(c->text);
    return options ? run_own(c, options, run, err) : run_program(c, run, err);
}

pj_status pj_gate_measure(const pj_gate_command *c, pj_gate_runs *runs, pj_error *err)
{
    pj_gate_run run;
    pj_gate_command warm_up = *c;
    warm_up.commit_tag = NULL; /* what does not count is no cost of a commit */
    pj_status status =
        runs ? pj_gate_run_once(c, &run, err) : pj_gate_run_once(&warm_up, NULL, err);
    return status == PJ_OK && runs ? pj_gate_add(runs, &run, err) : status;
}
