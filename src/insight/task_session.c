/* Adds up the runs of a session, each joule once. */
#include "insight/task_session.h"

#include "trace/run_data.h"

#include <math.h>
#include <string.h>

const char *pj_run_session_id(const pj_run_info *run)
{
    static const char begin[] = PJ_TAG_SESSION;
    for (uint32_t i = 0; i < run->tag_count; i++)
        if (strncmp(run->tags[i], begin, sizeof begin - 1) == 0)
            return run->tags[i] + sizeof begin - 1;
    return NULL;
}

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
    for (uint32_t i = 0; i < count; i++)
        if (runs[i] != run && is_program(runs[i]) && run->machine &&
            strcmp(runs[i]->machine, run->machine) == 0 &&
            run->created_wall_ns >= runs[i]->created_wall_ns && end_of(run) <= end_of(runs[i]))
            return true;
    return false;
}

static void add_energy(pj_task_session *s, const pj_run_info *run)
{
    s->mj += run->total_mj;
    s->sd_mj += run->total_sd_mj;
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

void pj_task_session_of(const char *id, const pj_run_info *const *runs, uint32_t count,
                        pj_task_session *s)
{
    *s = (pj_task_session){.id = id,
                           .runs = count,
                           .begin_ns = count ? INT64_MAX : 0,
                           .tool_calls = NAN,
                           .thinking_tokens = NAN};
    for (uint32_t i = 0; i < count; i++) {
        const pj_run_info *run = runs[i];
        if (run->created_wall_ns < s->begin_ns) s->begin_ns = run->created_wall_ns;
        if (end_of(run) > s->end_ns) s->end_ns = end_of(run);
        s->input_tokens += run->input_tokens;
        s->output_tokens += run->output_tokens;
        s->thinking_tokens = pj_add_known(s->thinking_tokens, run->thinking_tokens);
        add_calls(s, run);
        if (is_inside(run, runs, count))
            s->inside++;
        else
            add_energy(s, run);
    }
}
