/* Opens a session on simulated sensors, runs the plan and reads its result. */
#include "bench/sim_experiment.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

const char pj_sim_parts_plan[] =
    "{\"name\":\"parts\",\"models\":[\"synthetic:smollm2-135m,layers=3\"],\"inputs\":[16],"
    "\"outputs\":[24],\"threads\":[1],\"repeat\":6,"
    "\"ablate\":[\"attention\",\"mlp\",\"head\",\"layers=1\"]}";

pj_status pj_sim_experiment_run(const char *plan_text, const char *database, uint64_t seed,
                                void (*end)(void *context, pj_status status,
                                            const pj_profile_result *result, const pj_error *err),
                                void *context, pj_experiment_result **result, pj_error *err)
{
    char power[64];
    pj_session *session = NULL;
    pj_model_slot slot = {0};
    pj_arena arena;
    pj_plan *plan = pj_alloc(1, sizeof *plan);
    *result = NULL;
    pj_arena_init(&arena, 0);
    snprintf(power, sizeof power, "sim:period_ms=1,seed=%llu", (unsigned long long)seed);
    pj_session_options options = {.power = power, .database = database, .baseline_seconds = 0.05};
    pj_status status =
        plan ? pj_plan_parse(plan_text, &arena, plan, err) : pj_fail_memory(err, "a plan");
    if (status == PJ_OK) status = pj_session_open(&options, &session, err);
    pj_experiment_options experiment = {
        .session = session, .slot = &slot, .plan = plan, .end = end, .context = context};
    if (status == PJ_OK) status = pj_experiment_run(&experiment, err);
    if (status == PJ_OK)
        status = pj_experiment_result_get(session->store, plan->name, NULL, result, err);
    pj_model_slot_close(&slot);
    pj_session_close(session);
    pj_arena_fini(&arena);
    pj_free(plan);
    return status;
}

static void sim_experiment_count(const pj_estimate *e, double planted, double *all, double *held)
{
    if (isnan(e->lo) || isnan(e->hi)) return;
    ++*all;
    *held += e->lo <= planted && planted <= e->hi;
}

void pj_sim_parts_judge(const pj_experiment_result *result, pj_sim_parts_score *s)
{
    for (uint32_t i = 0; i < result->ablation_count; i++) {
        const pj_ablated_part *a = &result->ablations[i];
        sim_experiment_count(&a->cost.difference, a->planted, &s->difference, &s->difference_held);
        sim_experiment_count(&a->cost.attributed, a->planted, &s->attributed, &s->attributed_held);
        s->too_short += a->cost.outcome == PJ_PART_TOO_SHORT;
    }
}
