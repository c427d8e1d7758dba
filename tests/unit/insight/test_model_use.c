/* What a run used of its model: a planted routing (lists of chosen experts in decode, shares of
 * experts in prefill) and a planted context come out of the stored run as counted by hand. */
#include "base/clock.h"
#include "insight/insight.h"
#include "record/run.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { EXPERTS = 4, LAYERS = 2, STEPS = 6, PROMPT = 200 };

static const char model[] =
    "{\"context\":220,\"window\":50,\"kv_bytes_per_token\":1000,\"kv_window_bytes_per_token\":400,"
    "\"experts\":4,\"experts_per_token\":2,\"parameters\":4e6,\"active_parameters\":2e6}";

/* Shares of the experts over the prompt, by layer. */
static const double of_prompt[LAYERS][EXPERTS] = {{0.5, 0.25, 0.25, 0}, {0.25, 0.25, 0.25, 0.25}};

/* Prefill gives shares, a decode step the two experts of its token: 0 and 1 in layer 0; 2 and,
 * alternately, 3 and 0 in layer 1. */
static uint32_t extras_of(pj_run *run, int step, uint32_t layer, pj_extra *e)
{
    uint32_t n = 0;
    e[n++] = (pj_extra){pj_run_name(run, "unique_experts"), PJ_EXTRA_SCALAR,
                        step    ? 2
                        : layer ? 4
                                : 3};
    if (step) {
        uint32_t name = pj_run_name(run, "expert");
        e[n++] = (pj_extra){name, 0, layer ? 2 : 0};
        e[n++] = (pj_extra){name, 1, layer ? (step % 2 ? 3 : 0) : 1};
    } else {
        uint32_t name = pj_run_name(run, "expert_load");
        for (uint32_t i = 0; i < EXPERTS; i++) e[n++] = (pj_extra){name, i, of_prompt[layer][i]};
    }
    return n;
}

static void record(pj_run *run)
{
    pj_lane *lane = pj_run_lane(run);
    uint32_t router = pj_run_name(run, "router");
    for (int step = 0; step <= STEPS; step++) {
        if (step < 2) pj_span_begin(lane, PJ_SPAN_PHASE, step ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL);
        pj_span_begin(lane, PJ_SPAN_TOKEN, (uint32_t)step);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            pj_extra e[1 + EXPERTS];
            uint32_t count = extras_of(run, step, layer, e);
            pj_span_begin(lane, PJ_SPAN_LAYER, layer);
            pj_span_begin(lane, PJ_SPAN_COMPONENT, router);
            pj_span_end(lane, &(pj_work){step ? 10 : 10 * PROMPT, 1, NULL, e, count});
            pj_span_end(lane, NULL);
        }
        pj_span_end(lane, NULL);
        if (step == 0 || step == STEPS) pj_span_end(lane, NULL);
    }
}

static json_t *summary_of(pj_store *store, const char *id)
{
    pj_error err = {0};
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1 << 24);
    pj_json_init(&json, &out);
    if (pj_insight_summary(store, id, NULL, &json, &err) != PJ_OK) fail_msg("%s", err.text);
    json_t *summary = json_loads(pj_buffer_get(&out), 0, NULL);
    pj_buffer_fini(&out);
    assert_non_null(summary);
    return summary;
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Calls `check` with the summary of a run that was recorded with these facts. */
static void with_run(const char *model_json, uint32_t generated, void (*check)(const json_t *))
{
    char folder[] = "/tmp/perjoule-use-test-XXXXXX", database[128], command[128], id[64];
    pj_session *session;
    pj_run *run;
    pj_run_data data;
    pj_error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(database, sizeof database, "%s/runs.db", folder);
    pj_session_options options = {.power = "none", .database = database, .baseline_seconds = -1};
    if (pj_session_open(&options, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_run_options begin = {.model_name = "planted", .engine = "test", .depth = PJ_DEPTH_MODULE};
    assert_int_equal(pj_run_begin(session, &begin, &run, &err), PJ_OK);
    pj_run_facts facts = {.size = sizeof facts, .model_json = model_json};
    assert_int_equal(pj_run_describe(run, &facts, &err), PJ_OK);
    snprintf(id, sizeof id, "%s", pj_run_id(run));
    record(run);
    pj_run_set_tokens(run, PROMPT, generated);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_run_data_fini(&data);
    json_t *summary = summary_of(session->store, id);
    check(json_object_get(summary, "model_use"));
    json_decref(summary);
    pj_session_close(session);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-6)) fail_msg("%.9g instead of %.9g", value, expected);
}

static void check_planted(const json_t *use)
{
    const json_t *e = json_object_get(use, "experts"), *c = json_object_get(use, "context");
    const json_t *load = json_object_get(e, "load");
    double all = PROMPT + STEPS;
    near(number(e, "per_step"), 2);
    near(number(e, "per_prefill"), 3.5);
    near(number(e, "per_step_even"), 2);
    near(number(e, "unused_share"), 1.0 / 8);
    assert_int_equal(json_array_size(load), LAYERS);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const double chosen[LAYERS][EXPERTS] = {{0.5, 0.5, 0, 0}, {0.25, 0, 0.5, 0.25}};
        assert_int_equal(json_array_size(json_array_get(load, layer)), EXPERTS);
        for (size_t i = 0; i < EXPERTS; i++)
            near(json_number_value(json_array_get(json_array_get(load, layer), i)),
                 (PROMPT * of_prompt[layer][i] + STEPS * chosen[layer][i]) / all);
    }
    /* the last of the generated tokens is in no cache; layers with a window keep 50 positions */
    near(number(c, "longest"), PROMPT + STEPS + 1);
    near(number(c, "share"), (PROMPT + STEPS + 1) / 220.0);
    near(number(c, "kv_megabytes"), (600 * (PROMPT + STEPS) + 400 * 50) / 1e6);
    assert_true(json_is_true(json_object_get(c, "nearly_full")));
}

static void planted_use_is_found(void **state)
{
    (void)state;
    with_run(model, STEPS + 1, check_planted);
}

static void check_nothing(const json_t *use)
{
    assert_true(json_is_object(use));
    assert_true(json_is_null(json_object_get(use, "experts")));
    assert_true(json_is_null(json_object_get(use, "context")));
}

static void unknown_facts_are_null(void **state)
{
    (void)state;
    with_run("{\"layers\":2}", STEPS + 1, check_nothing);
    with_run("{\"experts\":0,\"context\":0}", STEPS + 1, check_nothing);
    with_run("{\"experts\":\"many\",\"context\":null}", STEPS + 1, check_nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_use_is_found),
        cmocka_unit_test(unknown_facts_are_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
