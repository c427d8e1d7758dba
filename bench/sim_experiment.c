/* Opens a session on simulated sensors, runs the plan and reads its result. */
#include "bench/sim_experiment.h"

#include "base/memory.h"
#include "trace/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char pj_sim_parts_plan[] =
    "{\"name\":\"parts\",\"models\":[\"synthetic:smollm2-135m,layers=3\"],\"inputs\":[16],"
    "\"outputs\":[24],\"threads\":[1],\"repeat\":6,"
    "\"ablate\":[\"attention\",\"mlp\",\"head\",\"layers=1\"]}";

static pj_status read_view(pj_store *store, const char *name, json_t **view, pj_error *err)
{
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1 << 24);
    pj_json_init(&json, &out);
    pj_status status = pj_view_experiment(store, name, NULL, &json, err);
    if (status == PJ_OK) *view = json_loads(pj_buffer_get(&out), 0, NULL);
    if (status == PJ_OK && !*view) status = pj_fail_memory(err, "an experiment");
    pj_buffer_fini(&out);
    return status;
}

pj_status pj_sim_experiment_run(const char *plan_text, const char *database, uint64_t seed,
                                void (*end)(void *context, pj_status status,
                                            const pj_profile_result *result, const pj_error *err),
                                void *context, json_t **view, pj_error *err)
{
    char power[64];
    pj_session *session = NULL;
    pj_model_slot slot = {0};
    pj_arena arena;
    pj_plan *plan = pj_alloc(1, sizeof *plan);
    *view = NULL;
    pj_arena_init(&arena, 0);
    snprintf(power, sizeof power, "sim:period_ms=1,seed=%llu", (unsigned long long)seed);
    pj_session_options options = {.power = power, .database = database, .baseline_seconds = 0.05};
    pj_status status =
        plan ? pj_plan_parse(plan_text, &arena, plan, err) : pj_fail_memory(err, "a plan");
    if (status == PJ_OK) status = pj_session_open(&options, &session, err);
    pj_experiment_options experiment = {
        .session = session, .slot = &slot, .plan = plan, .end = end, .context = context};
    if (status == PJ_OK) status = pj_experiment_run(&experiment, err);
    if (status == PJ_OK) status = read_view(session->store, plan->name, view, err);
    pj_model_slot_close(&slot);
    pj_session_close(session);
    pj_arena_fini(&arena);
    pj_free(plan);
    return status;
}

static void count(const json_t *estimate, double planted, double *all, double *held)
{
    double lo = pj_member_number(estimate, "joules_per_token_lo");
    double hi = pj_member_number(estimate, "joules_per_token_hi");
    if (isnan(lo) || isnan(hi)) return;
    ++*all;
    *held += lo <= planted && planted <= hi;
}

void pj_sim_parts_judge(const json_t *view, pj_sim_parts_score *s)
{
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(view, "ablations"), i, part)
    {
        double planted = pj_member_number(part, "planted_joules_per_token");
        count(json_object_get(part, "difference"), planted, &s->difference, &s->difference_held);
        count(json_object_get(part, "attributed"), planted, &s->attributed, &s->attributed_held);
        s->too_short += strcmp(pj_member_text(part, "outcome"), "too_short") == 0;
    }
}
