/* perjoule session: what one task of an agent cost, per tool call and per commit. */
#include "cli/git_commits.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "insight/task_session.h"
#include "store/store.h"
#include "trace/summary.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RUNS = 100000, LISTED_RUNS = 10000 };

typedef struct session_args {
    const char *id, *repository;
    bool commits, json;
} session_args;

/* ---- one session ----------------------------------------------------------------------------- */

static double per(double mj, double count)
{
    return count > 0 ? mj / count : NAN;
}

static const char *source_of(const pj_task_session *s)
{
    return isnan(s->mj) ? pj_quality_name(PJ_UNAVAILABLE)
                        : pj_quality_name(s->modelled ? PJ_MODELLED : PJ_MEASURED);
}

static void session_print_energy(const pj_task_session *s)
{
    pj_print(stdout, "  energy      %s%s%s",
             isnan(s->mj) ? "unavailable" : pj_interval_text(s->mj, s->sd_mj).s,
             !isnan(s->mj) && s->modelled ? ", modelled" : "",
             !isnan(s->mj) && s->partial ? ", partial" : "");
    if (s->inside)
        pj_print(stdout, "; %u of the runs are inside a program's run, counted once", s->inside);
    pj_print(stdout, "\n");
}

static void print_calls(const pj_task_session *s)
{
    if (isnan(s->tool_calls)) {
        pj_print(stdout, "  tool calls  unknown: no answer has any that is recognised\n");
        return;
    }
    pj_print(stdout, "  tool calls  %.0f", s->tool_calls);
    if (s->tool_calls > 0)
        pj_print(stdout, ": %s of the session each; %u request%s made them, with %s",
                 pj_or_dash(s->mj, pj_supported_text(per(s->mj, s->tool_calls),
                                                     per(s->sd_mj, s->tool_calls)))
                     .s,
                 s->calling_runs, s->calling_runs == 1 ? "" : "s", pj_energy_text(s->calling_mj).s);
    pj_print(stdout, "\n");
}

static void print_commits(const session_args *a, const pj_task_session *s, const pj_git_commits *c)
{
    pj_print(stdout, "  commits     %u", c->count);
    if (c->count)
        pj_print(
            stdout, ": %s of the session each",
            pj_or_dash(s->mj, pj_supported_text(per(s->mj, c->count), per(s->sd_mj, c->count))).s);
    if (c->by_trailer)
        pj_print(stdout, ", which name it (" PJ_GIT_TRAILER ")");
    else
        pj_print(stdout, ", of %s, from its begin until %d min after its end",
                 pj_safe(a->repository).s, PJ_GIT_GRACE_S / 60);
    pj_print(stdout, "\n");
}

static void session_print(const session_args *a, const pj_task_session *s, const pj_git_commits *c)
{
    char begin[32];
    pj_clock_format_iso(s->begin_ns, begin);
    pj_print(stdout, "%ssession %s%s: %u runs and requests in %s from %s\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), pj_safe(s->id).s, pj_style_off(stdout), s->runs,
             pj_time_text((double)(s->end_ns - s->begin_ns) / 1e6).s, begin);
    pj_print(stdout, "  tokens      %llu in, %llu out", (unsigned long long)s->input_tokens,
             (unsigned long long)s->output_tokens);
    if (!isnan(s->thinking_tokens)) pj_print(stdout, ", %.0f of thinking", s->thinking_tokens);
    pj_print(stdout, "\n");
    session_print_energy(s);
    print_calls(s);
    if (a->commits) print_commits(a, s, c);
}

static void write_commits(const pj_task_session *s, const pj_git_commits *c, pj_json *json)
{
    pj_json_kv_uint(json, "commits", c->count);
    pj_json_kv_string(json, "commits_by", c->by_trailer ? "trailer" : "time");
    pj_json_kv_double(json, "joules_per_commit", per(s->mj, c->count) / 1e3);
}

static void session_write(const pj_task_session *s, const pj_git_commits *c, pj_json *json)
{
    char text[32];
    pj_json_object_begin(json);
    pj_json_kv_string(json, "session", s->id);
    pj_json_kv_uint(json, "runs", s->runs);
    pj_json_kv_uint(json, "runs_inside_others", s->inside);
    pj_clock_format_iso(s->begin_ns, text);
    pj_json_kv_string(json, "begin", text);
    pj_clock_format_iso(s->end_ns, text);
    pj_json_kv_string(json, "end", text);
    pj_json_kv_uint(json, "input_tokens", s->input_tokens);
    pj_json_kv_uint(json, "output_tokens", s->output_tokens);
    pj_json_kv_double(json, "thinking_tokens", s->thinking_tokens);
    pj_json_kv_double(json, "energy_mj", s->mj);
    pj_json_kv_double(json, "energy_sd_mj", s->sd_mj);
    pj_json_kv_string(json, "energy_source", source_of(s));
    pj_json_kv_bool(json, "partial", s->partial);
    pj_json_kv_double(json, "tool_calls", s->tool_calls);
    pj_json_kv_double(json, "joules_per_tool_call", per(s->mj, s->tool_calls) / 1e3);
    pj_json_kv_uint(json, "calling_runs", s->calling_runs);
    pj_json_kv_double(json, "calling_runs_energy_mj", s->calling_mj);
    if (c) write_commits(s, c, json);
    pj_json_object_end(json);
}

/* `count` runs of the session. */
static pj_status show_one(const session_args *a, const pj_run_info *const *runs, uint32_t count,
                          pj_error *err)
{
    pj_task_session s;
    pj_git_commits commits;
    pj_json_out out;
    pj_task_session_of(a->id, runs, count, &s);
    pj_status status = PJ_OK;
    if (a->commits)
        status = pj_git_commits_of(a->repository, a->id, s.begin_ns / 1000000000,
                                   s.end_ns / 1000000000, &commits, err);
    if (status != PJ_OK) return status;
    if (!a->json) {
        session_print(a, &s, &commits);
        return PJ_OK;
    }
    session_write(&s, a->commits ? &commits : NULL, pj_json_out_begin(&out));
    return pj_json_out_end(&out, PJ_OK, err);
}

/* ---- all sessions ---------------------------------------------------------------------------- */

static void list_one(const pj_task_session *s, pj_json *json, int width)
{
    char begin[32];
    if (json) {
        session_write(s, NULL, json);
        return;
    }
    pj_clock_format_iso(s->begin_ns, begin);
    pj_print(stdout, "%-*s %5u %10llu  %s %6s  %.16s\n", width, pj_safe(s->id).s, s->runs,
             (unsigned long long)s->output_tokens,
             pj_padded(18, pj_or_dash(s->mj, pj_interval_text(s->mj, s->sd_mj))).s,
             pj_number_text("%.0f", s->tool_calls).s, begin);
}

/* Sessions in the order of their last run. `of` has room for the runs. */
static void list_sessions(const pj_run_list *list, const pj_run_info **of, pj_json *json)
{
    int width = 7;
    for (uint32_t i = 0; i < list->count; i++) {
        const char *id = pj_run_session_id(&list->runs[i]);
        if (id && (int)strlen(id) > width) width = (int)strlen(id);
    }
    if (!json)
        pj_print(stdout, "%s%-*s  runs output tok  %18s  calls  begin%s\n",
                 pj_style_on(stdout, PJ_STYLE_BOLD), width, "session", "energy",
                 pj_style_off(stdout));
    for (uint32_t i = 0; i < list->count; i++) {
        const char *id = pj_run_session_id(&list->runs[i]);
        uint32_t count = 0;
        bool listed = !id;
        for (uint32_t k = 0; k < i && !listed; k++) {
            const char *other = pj_run_session_id(&list->runs[k]);
            listed = other && strcmp(other, id) == 0;
        }
        for (uint32_t k = i; k < list->count && !listed; k++) {
            const char *other = pj_run_session_id(&list->runs[k]);
            if (other && strcmp(other, id) == 0) of[count++] = &list->runs[k];
        }
        pj_task_session s;
        if (!count) continue;
        pj_task_session_of(id, of, count, &s);
        list_one(&s, json, width);
    }
}

static pj_status show_sessions(const session_args *a, const pj_run_list *list,
                               const pj_run_info **of, pj_error *err)
{
    pj_json_out out;
    bool any = false;
    for (uint32_t i = 0; i < list->count; i++) any |= pj_run_session_id(&list->runs[i]) != NULL;
    if (!any && !a->json) {
        pj_print(stdout,
                 "no run belongs to a session: give --session ID to run, exec or attach, or "
                 "set PERJOULE_SESSION\n");
        return PJ_OK;
    }
    if (!a->json) {
        list_sessions(list, of, NULL);
        return PJ_OK;
    }
    pj_json *json = pj_json_out_begin(&out);
    pj_json_array_begin(json);
    list_sessions(list, of, json);
    pj_json_array_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static pj_status show_session(pj_store *store, void *context, pj_error *err)
{
    const session_args *a = context;
    char tag[sizeof PJ_TAG_SESSION + PJ_SESSION_ID_MAX];
    const char *const tags[] = {tag};
    pj_run_query query = {.limit = a->id ? MOST_RUNS : LISTED_RUNS};
    pj_run_list list = {0};
    if (a->id) {
        snprintf(tag, sizeof tag, PJ_TAG_SESSION "%s", a->id);
        query.tags = tags;
        query.tag_count = 1;
    }
    pj_status status = pj_store_list(store, &query, &list, err);
    const pj_run_info **of = pj_alloc(list.count + 1, sizeof *of);
    if (status == PJ_OK && !of) status = pj_fail_memory(err, "a session");
    for (uint32_t i = 0; of && i < list.count; i++) of[i] = &list.runs[i];
    if (status == PJ_OK && a->id && !list.count)
        status = pj_fail(err, PJ_E_NOT_FOUND, "no run belongs to the session %s", a->id);
    else if (status == PJ_OK && a->id)
        status = show_one(a, of, list.count, err);
    else if (status == PJ_OK)
        status = show_sessions(a, &list, of, err);
    pj_free(of);
    pj_run_list_fini(&list);
    return status;
}

static int run_session(const pj_command *command, int argc, char **argv)
{
    session_args a = {.repository = "."};
    const char *db = NULL;
    const pj_option options[] = {
        {"commits", 0, PJ_OPTION_FLAG, &a.commits, NULL,
         "count the task's commits: those whose trailer " PJ_GIT_TRAILER
         " names the session, else those made during it and 10 minutes after"},
        {"repository", 0, PJ_OPTION_TEXT, &a.repository, "DIR",
         "git repository of the commits (the current folder)", .rule = pj_rule_folder},
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&db),
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "one object; without ID an array"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1) return pj_command_usage(command, "name one session");
    a.id = positional ? argv[1] : NULL;
    if (a.id && !pj_session_id_is_valid(a.id))
        return pj_command_usage(command,
                                "a session has at most %d printable ASCII characters "
                                "without blanks",
                                PJ_SESSION_ID_MAX);
    if (a.commits && !a.id) return pj_command_usage(command, "--commits needs the ID of a session");
    return pj_stored_command(command, db, show_session, &a);
}

const pj_command pj_command_session = {
    .name = "session",
    .summary = "what a task of an agent cost, per tool call and per commit",
    .run = run_session,
    .usage = "[options] [ID]",
    .text =
        "Adds up the runs and requests that carry this session's id (--session, PERJOULE_SESSION, "
        "or the header X-Session-Id of requests through `perjoule attach`): tokens, joules with "
        "their 95 % interval, joules for each tool that the answers called, and for each commit. "
        "These are the session's whole joules divided by a number, no attribution. Without an ID: the "
        "sessions among the newest 10000 runs.",
    .examples = "perjoule session\n"
                "perjoule session fix-parser --commits --repository ~/src/parser\n"
                "perjoule session fix-parser --json\n",
};
