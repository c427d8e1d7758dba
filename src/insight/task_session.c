/* Adds up the runs of a session, each joule once. */
#include "insight/task_session.h"

#include "base/clock.h"
#include "base/memory.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double OVERLAP = 0.01; /* less of a run is what clocks leave open */
enum { MOST_RUNS = 100000, LISTED_RUNS = 10000 };

const char *pj_run_tagged(const pj_run_info *run, const char *begins)
{
    size_t bytes = strlen(begins);
    for (uint32_t i = 0; i < run->tag_count; i++)
        if (strncmp(run->tags[i], begins, bytes) == 0) return run->tags[i] + bytes;
    return NULL;
}

/* ---- one ---- */

static int64_t end_of(const pj_run_info *run)
{
    return run->created_wall_ns + (int64_t)(isnan(run->total_ms) ? 0 : run->total_ms * 1e6);
}

static bool is_program(const pj_run_info *run)
{
    return run->engine && strcmp(run->engine, "exec") == 0 && run->machine;
}

/* Whether a run was part of a program's that was measured too: its energy is in that already. */
static bool is_inside(const pj_run_info *run, const pj_run_info *const *runs, uint32_t count)
{
    for (uint32_t i = 0; i < count && run->machine; i++)
        if (runs[i] != run && is_program(runs[i]) && strcmp(runs[i]->machine, run->machine) == 0 &&
            run->created_wall_ns >= runs[i]->created_wall_ns && end_of(run) <= end_of(runs[i]))
            return true;
    return false;
}

static int earlier_first(const void *x, const void *y)
{
    const pj_run_info *a = *(const pj_run_info *const *)x, *b = *(const pj_run_info *const *)y;
    if (a->created_wall_ns != b->created_wall_ns)
        return a->created_wall_ns < b->created_wall_ns ? -1 : 1;
    return end_of(a) == end_of(b) ? 0 : end_of(a) > end_of(b) ? -1 : 1;
}

/* Of whose machine the sensors measured all, not a share of it. */
static bool is_whole_machine(const pj_run_info *run)
{
    return run->machine && strcmp(pj_run_scope(run), "machine") == 0 &&
           run->method != PJ_METHOD_ALLOCATED && !isnan(run->total_mj);
}

/* Where runs of a machine have reached that are counted already. */
typedef struct reach {
    const char *machine;
    int64_t until_ns;
} reach;
enum { MOST_MACHINES = 16 };

static reach *reach_of(reach *reaches, const char *machine)
{
    for (int i = 0; i < MOST_MACHINES; i++) {
        if (!reaches[i].machine) reaches[i] = (reach){machine, INT64_MIN};
        if (strcmp(reaches[i].machine, machine) == 0) return &reaches[i];
    }
    return NULL;
}

/* The part of a run's time that no earlier run of the machine has; those are sorted by begin. */
static double part_alone(const pj_run_info *run, reach *reaches)
{
    reach *r = is_whole_machine(run) ? reach_of(reaches, run->machine) : NULL;
    int64_t begin = run->created_wall_ns, end = end_of(run);
    if (!r || end <= begin) return 1;
    int64_t from = r->until_ns > begin ? r->until_ns : begin;
    if (end > r->until_ns) r->until_ns = end;
    return from < end ? (double)(end - from) / (double)(end - begin) : 0;
}

static void add_energy(pj_task_session *s, const pj_run_info *run, double part)
{
    if (isnan(run->total_mj)) {
        s->unknown++;
        s->partial = true;
        return;
    }
    s->mj = pj_add_known(s->mj, part * run->total_mj);
    s->sd_mj = pj_add_known(s->sd_mj, part * run->total_sd_mj);
    s->overlapping += part < 1 - OVERLAP;
    s->modelled |= run->quality == PJ_MODELLED;
    s->partial |= run->partial_rails != NULL;
}

static void add_calls(pj_task_session *s, const pj_run_info *run)
{
    s->tool_calls = pj_add_known(s->tool_calls, run->tool_calls);
    if (!(run->tool_calls > 0)) return;
    s->calling_runs++;
    if (!isnan(run->total_mj)) s->calling_mj += run->total_mj;
}

void pj_task_session_of(const char *id, const pj_run_info **runs, uint32_t count,
                        pj_task_session *s)
{
    *s = (pj_task_session){.id = id,
                           .runs = count,
                           .begin_ns = count ? INT64_MAX : 0,
                           .mj = NAN,
                           .sd_mj = NAN,
                           .tool_calls = NAN,
                           .thinking_tokens = NAN};
    bool programs = false; /* without them none is inside another */
    reach reaches[MOST_MACHINES] = {{NULL, 0}};
    if (count) qsort(runs, count, sizeof *runs, earlier_first);
    for (uint32_t i = 0; i < count; i++) programs |= is_program(runs[i]);
    for (uint32_t i = 0; i < count; i++) {
        const pj_run_info *run = runs[i];
        if (run->created_wall_ns < s->begin_ns) s->begin_ns = run->created_wall_ns;
        if (end_of(run) > s->end_ns) s->end_ns = end_of(run);
        s->input_tokens += run->input_tokens;
        s->output_tokens += run->output_tokens;
        s->thinking_tokens = pj_add_known(s->thinking_tokens, run->thinking_tokens);
        add_calls(s, run);
        if (programs && is_inside(run, runs, count))
            s->inside++;
        else
            add_energy(s, run, part_alone(run, reaches));
    }
}

double pj_task_session_per(double mj, double count)
{
    return count > 0 ? mj / count : NAN;
}

/* ---- all ---- */

typedef struct member {
    const char *id;
    uint32_t at; /* in the list */
} member;

static int member_order(const void *x, const void *y)
{
    const member *a = x, *b = y;
    int order = strcmp(a->id, b->id);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

static int newest_first(const void *x, const void *y)
{
    const pj_task_session *a = x, *b = y;
    if (a->end_ns != b->end_ns) return a->end_ns < b->end_ns ? 1 : -1;
    return strcmp(a->id, b->id);
}

/* `members` is sorted by id; `of` has room for as many. */
static void add_up(pj_task_sessions *s, const member *members, uint32_t count,
                   const pj_run_info **of)
{
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && strcmp(members[end].id, members[begin].id) == 0; end++)
            of[end - begin] = &s->list.runs[members[end].at];
        pj_task_session_of(members[begin].id, of, end - begin, &s->entries[s->count++]);
    }
    if (s->count) qsort(s->entries, s->count, sizeof *s->entries, newest_first);
}

static pj_status divide_list(pj_task_sessions *s, const char *begins, pj_error *err)
{
    uint32_t count = 0;
    member *members = pj_alloc((size_t)s->list.count + 1, sizeof *members);
    const pj_run_info **of = pj_alloc((size_t)s->list.count + 1, sizeof *of);
    s->entries = pj_alloc((size_t)s->list.count + 1, sizeof *s->entries);
    bool room = members && of && s->entries;
    for (uint32_t i = 0; i < s->list.count && room; i++) {
        const char *id = pj_run_tagged(&s->list.runs[i], begins);
        if (id) members[count++] = (member){id, i};
    }
    if (count) qsort(members, count, sizeof *members, member_order);
    if (room) add_up(s, members, count, of);
    pj_free(members);
    pj_free(of);
    return room ? PJ_OK : pj_fail_memory(err, "sessions");
}

pj_status pj_task_sessions_get(pj_store *store, const pj_task_query *query,
                               pj_task_sessions *sessions, pj_error *err)
{
    char tag[sizeof PJ_TAG_SESSION + PJ_SESSION_ID_MAX];
    const char *const tags[] = {tag};
    pj_run_query runs = {.limit = query->id ? MOST_RUNS : LISTED_RUNS};
    *sessions = (pj_task_sessions){0};
    if (query->id) {
        snprintf(tag, sizeof tag, "%s%s", query->begins, query->id);
        runs.tags = tags;
        runs.tag_count = 1;
    }
    pj_status status = pj_store_list(store, &runs, &sessions->list, err);
    if (status == PJ_OK) status = divide_list(sessions, query->begins, err);
    if (status == PJ_OK && query->id && !sessions->count)
        status = pj_fail(err, PJ_E_NOT_FOUND, "no run belongs to the %.*s %s",
                         (int)strlen(query->begins) - 1, query->begins, query->id);
    return status;
}

void pj_task_sessions_fini(pj_task_sessions *sessions)
{
    pj_free(sessions->entries);
    pj_run_list_fini(&sessions->list);
}

/* ---- as JSON ---- */

void pj_task_session_write_members(const pj_task_session *s, const char *by, pj_json *json)
{
    char text[32];
    const char *source = pj_quality_name(isnan(s->mj)  ? PJ_UNAVAILABLE
                                         : s->modelled ? PJ_MODELLED
                                                       : PJ_MEASURED);
    pj_json_kv_string(json, by, s->id);
    pj_json_kv_uint(json, "runs", s->runs);
    pj_json_kv_uint(json, "runs_inside_others", s->inside);
    pj_json_kv_uint(json, "runs_overlapping", s->overlapping);
    pj_json_kv_uint(json, "runs_without_energy", s->unknown);
    pj_clock_format_iso(s->begin_ns, text);
    pj_json_kv_string(json, "begin", text);
    pj_clock_format_iso(s->end_ns, text);
    pj_json_kv_string(json, "end", text);
    pj_json_kv_uint(json, "input_tokens", s->input_tokens);
    pj_json_kv_uint(json, "output_tokens", s->output_tokens);
    pj_json_kv_double(json, "thinking_tokens", s->thinking_tokens);
    pj_json_kv_double(json, "energy_mj", s->mj);
    pj_json_kv_double(json, "energy_sd_mj", s->sd_mj);
    pj_json_kv_string(json, "energy_source", source);
    pj_json_kv_bool(json, "partial", s->partial);
    pj_json_kv_double(json, "tool_calls", s->tool_calls);
    pj_json_kv_double(json, "joules_per_tool_call",
                      pj_task_session_per(s->mj, s->tool_calls) / 1e3);
    pj_json_kv_uint(json, "calling_runs", s->calling_runs);
    pj_json_kv_double(json, "calling_runs_energy_mj", s->calling_mj);
}

pj_status pj_insight_sessions(pj_store *store, const char *by, const char *id, pj_json *json,
                              pj_error *err)
{
    pj_task_sessions sessions;
    bool commits = by && strcmp(by, "commit") == 0;
    if (by && !commits && strcmp(by, "session") != 0)
        return pj_fail(err, PJ_E_INVALID, "by must be session or commit");
    pj_task_query query = {.begins = commits ? PJ_TAG_COMMIT : PJ_TAG_SESSION, .id = id};
    if (id && !pj_session_id_is_valid(id))
        return pj_fail(err, PJ_E_INVALID, "id must have " PJ_SESSION_ID_RULE);
    pj_status status = pj_task_sessions_get(store, &query, &sessions, err);
    if (status == PJ_OK) pj_json_array_begin(json);
    for (uint32_t i = 0; i < sessions.count && status == PJ_OK; i++) {
        pj_json_object_begin(json);
        pj_task_session_write_members(&sessions.entries[i], commits ? "commit" : "session", json);
        pj_json_object_end(json);
    }
    if (status == PJ_OK) pj_json_array_end(json);
    pj_task_sessions_fini(&sessions);
    return status;
}
