/* perjoule session: what one task of an agent cost, per tool call and per commit, and what commits
 * cost that gates measured. */
#include "cli/git_commits.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "insight/task_session.h"
#include "store/store.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct session_args {
    const char *id, *repository;
    bool commits, json;
} session_args;

/* ---- one session ----------------------------------------------------------------------------- */

/* Lines are printed whole, so that they are broken between words. */
static void session_print_energy(const pj_task_session *s)
{
    char more[320] = "";
    size_t used = 0;
    if (s->unknown && !isnan(s->mj))
        used = (size_t)snprintf(more, sizeof more, ": without %u run%s whose energy is unknown",
                                s->unknown, s->unknown == 1 ? "" : "s");
    if (s->inside)
        used += (size_t)snprintf(more + used, sizeof more - used,
                                 "; %u of the runs %s inside a program's run, counted once",
                                 s->inside, s->inside == 1 ? "is" : "are");
    if (s->overlapping)
        snprintf(more + used, sizeof more - used,
                 "; %u of the runs overlap%s others, the machine's energy of that time counts once",
                 s->overlapping, s->overlapping == 1 ? "s" : "");
    pj_print(stdout, "  energy      %s%s%s%s\n",
             isnan(s->mj) ? "unavailable" : pj_interval_text(s->mj, s->sd_mj).s,
             !isnan(s->mj) && s->modelled ? ", modelled" : "",
             !isnan(s->mj) && s->partial ? ", partial" : "", more);
}

/* The session's energy divided by a number, with its interval. */
static pj_text session_each(const pj_task_session *s, double count)
{
    return pj_or_dash(s->mj, pj_interval_text(pj_task_session_per(s->mj, count),
                                              pj_task_session_per(s->sd_mj, count)));
}

static const char *session_mark(const pj_task_session *s)
{
    return !isnan(s->mj) && s->modelled ? "~" : " ";
}

static void print_calls(const pj_task_session *s)
{
    if (isnan(s->tool_calls))
        pj_print(stdout, "  tool calls  unknown: no answer has any that is recognised\n");
    else if (s->tool_calls > 0)
        pj_print(stdout,
                 "  tool calls  %.0f: %s of the session each; %u request%s made them, with %s\n",
                 s->tool_calls, session_each(s, s->tool_calls).s, s->calling_runs,
                 s->calling_runs == 1 ? "" : "s", pj_energy_text(s->calling_mj).s);
    else
        pj_print(stdout, "  tool calls  0\n");
}

static void print_commits(const session_args *a, const pj_task_session *s, const pj_git_commits *c)
{
    char each[160] = "";
    if (c->count)
        snprintf(each, sizeof each, ": %s of the session each", session_each(s, c->count).s);
    if (c->by_trailer)
        pj_print(stdout, "  commits     %u%s, which name it (" PJ_GIT_TRAILER ")\n", c->count,
                 each);
    else
        pj_print(stdout, "  commits     %u%s, of %s, from its begin until %d min after its end\n",
                 c->count, each, pj_safe(a->repository).s, PJ_GIT_GRACE_S / 60);
}

static void session_print(const session_args *a, const pj_task_session *s, const pj_git_commits *c)
{
    char begin[32];
    pj_clock_format_iso(s->begin_ns, begin);
    pj_print(stdout, "%ssession %s%s: %u %s in %s from %s\n", pj_style_on(stdout, PJ_STYLE_BOLD),
             pj_safe(s->id).s, pj_style_off(stdout), s->runs,
             s->runs == 1 ? "run or request" : "runs and requests",
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
    pj_json_kv_double(json, "joules_per_commit", pj_task_session_per(s->mj, c->count) / 1e3);
}

static pj_status show_one(const session_args *a, const pj_task_session *s, pj_error *err)
{
    pj_git_commits commits;
    pj_json_out out;
    pj_status status = PJ_OK;
    if (a->commits)
        status = pj_git_commits_of(a->repository, a->id, s->begin_ns / 1000000000,
                                   s->end_ns / 1000000000, &commits, err);
    if (status != PJ_OK) return status;
    if (!a->json) {
        session_print(a, s, &commits);
        return PJ_OK;
    }
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_task_session_write_members(s, "session", json);
    if (a->commits) write_commits(s, &commits, json);
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

/* ---- all sessions, or all commits that gates measured ---------------------------------------- */

static void list_one(const pj_task_session *s, bool commits, int width)
{
    char begin[32];
    pj_clock_format_iso(s->begin_ns, begin);
    pj_text each = pj_padded(8, pj_number_text("%.0f", s->tool_calls));
    if (commits) each = pj_padded(18, session_each(s, s->runs - s->unknown));
    pj_print(stdout, "%-*s %5u %10llu  %s%s %s%s %.16s\n", width, pj_safe(s->id).s, s->runs,
             (unsigned long long)s->output_tokens,
             pj_padded(18, pj_or_dash(s->mj, pj_interval_text(s->mj, s->sd_mj))).s, session_mark(s),
             each.s, commits ? session_mark(s) : " ", begin);
}

static void list_all(const session_args *a, const pj_task_sessions *sessions)
{
    int width = 7;
    for (uint32_t i = 0; i < sessions->count; i++)
        if ((int)strlen(sessions->entries[i].id) > width)
            width = (int)strlen(sessions->entries[i].id);
    if (!sessions->count) {
        pj_print(stdout, a->commits
                             ? "no run belongs to a commit: give perjoule gate --commit SHA\n"
                             : "no run belongs to a session: give --session ID to run, exec "
                               "or attach, or set PERJOULE_SESSION\n");
        return;
    }
    bool modelled = false;
    uint32_t unknown = 0;
    pj_print(stdout, "%s%-*s  runs output tok  %18s  %*s  begin%s\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), width, a->commits ? "commit" : "session", "energy",
             a->commits ? 18 : 8, a->commits ? "per run" : "calls", pj_style_off(stdout));
    for (uint32_t i = 0; i < sessions->count; i++) {
        list_one(&sessions->entries[i], a->commits, width);
        modelled |= sessions->entries[i].modelled;
        unknown += sessions->entries[i].unknown;
    }
    if (modelled) pj_print(stdout, "~ modelled, not measured\n");
    if (unknown)
        pj_print(stdout, "left out of energies: %u run%s whose energy is unknown\n", unknown,
                 unknown == 1 ? "" : "s");
}

/* ---- the command ----------------------------------------------------------------------------- */

static pj_status show_session(pj_store *store, void *context, pj_error *err)
{
    const session_args *a = context;
    bool commits = a->commits && !a->id;
    const pj_task_query query = {.begins = commits ? PJ_TAG_COMMIT : PJ_TAG_SESSION, .id = a->id};
    pj_task_sessions sessions;
    pj_json_out out;
    if (a->json && !a->id) {
        pj_json *json = pj_json_out_begin(&out);
        pj_status status = pj_insight_sessions(store, commits ? "commit" : NULL, NULL, json, err);
        return pj_json_out_end(&out, status, err);
    }
    pj_status status = pj_task_sessions_get(store, &query, &sessions, err);
    if (status == PJ_OK && a->id)
        status = show_one(a, &sessions.entries[0], err);
    else if (status == PJ_OK)
        list_all(a, &sessions);
    pj_task_sessions_fini(&sessions);
    return status;
}

static int run_session(const pj_command *command, int argc, char **argv)
{
    session_args a = {.repository = "."};
    const char *db = NULL;
    const pj_option options[] = {
        {"commits", 0, PJ_OPTION_FLAG, &a.commits, NULL,
         "count the task's commits: those whose trailer " PJ_GIT_TRAILER
         " names the session, else those made during it and 10 minutes after. Without an ID: a row "
         "for each commit that perjoule gate measured"},
        {"repository", 0, PJ_OPTION_TEXT, &a.repository, "DIR",
         "git repository of the commits (the current folder)", .rule = pj_rule_folder,
         .needs = "commits"},
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
        return pj_command_usage(command, "a session has " PJ_SESSION_ID_RULE);
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
                "perjoule session fix-parser --json\n"
                "perjoule session --commits\n",
};
