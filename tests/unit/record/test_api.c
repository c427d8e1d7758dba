/* The public header as a program uses it: results, reasons, sizes of structs, bad arguments. */
#include <perjoule.h>

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../assertions.h"
#include <cmocka.h>

static char folder[64], database[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/perjoule-api-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(database, sizeof database, "%s/runs.db", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static pj_session *open_session(const char *power, const char *where)
{
    pj_session *session = NULL;
    pj_error err = {0};
    pj_session_options options = {
        .size = sizeof options, .power = power, .database = where, .baseline_seconds = 0.05};
    if (pj_session_open(&options, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    return session;
}

static pj_run *begin(pj_session *session)
{
    pj_run *run = NULL;
    pj_error err = {0};
    pj_run_options options = {.size = sizeof options, .prompt = "hello", .model_name = "mine"};
    if (pj_run_begin(session, &options, &run, &err) != PJ_OK) fail_msg("%s", err.text);
    return run;
}

static void wait_ms(int64_t ms)
{
    for (int64_t end = pj_clock_ns() + ms * 1000000; pj_clock_ns() < end;) {
    }
}

static void infer(pj_run *run)
{
    pj_lane *lane = pj_run_lane(run);
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
    wait_ms(60);
    pj_span_next(lane, NULL, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    wait_ms(120);
    pj_span_end(lane, NULL);
    pj_run_set_tokens(run, 4, 8);
}

static const pj_phase_result *phase_of(const pj_result *result, pj_phase phase)
{
    for (uint32_t i = 0; i < result->phase_count; i++)
        if (result->phases[i].phase == phase) return &result->phases[i];
    fail_msg("phase %d is missing", (int)phase);
    return NULL;
}

static void a_result_says_how_many_joules(void **state)
{
    (void)state;
    pj_session *session = open_session("sim", "none");
    pj_run *run = begin(session);
    char id[64];
    snprintf(id, sizeof id, "%s", pj_run_id(run));
    infer(run);
    pj_result r = {.size = sizeof r};
    pj_error err = {0};
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, &r, &err), PJ_OK);
    assert_string_equal(r.run_id, id);
    assert_int_equal(r.status, PJ_RUN_COMPLETED);
    assert_int_equal(r.energy_source, PJ_MODELLED);
    assert_false(r.is_stored);
    assert_that(r.total.mj, >, 0);
    assert_that(r.total.lo_mj, <, r.total.mj);
    assert_that(r.total.mj, <, r.total.hi_mj);
    assert_that(r.net.mj, <, r.total.mj);
    double sum = 0;
    for (uint32_t i = 0; i < r.phase_count; i++) sum += r.phases[i].gross.mj;
    assert_near(sum, r.total.mj, 1e-6 * r.total.mj);
    assert_that(phase_of(&r, PJ_PHASE_DECODE)->duration_ms, >=, 119);
    assert_that(phase_of(&r, PJ_PHASE_PREFILL)->gross.mj, >, 0);
    assert_that(r.joules_per_token, >, 0);
    assert_that(r.output_tokens, ==, 8);
    assert_that(r.input_tokens, ==, 4);
    json_t *json = json_loads(r.json, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "id")), id);
    double total = json_number_value(json_object_get(json_object_get(json, "total"), "mj"));
    assert_near(total, r.total.mj, 1e-6 * r.total.mj);
    assert_int_equal(json_array_size(json_object_get(json, "phases")), r.phase_count);
    json_decref(json);
    pj_result_fini(&r);
    pj_result_fini(&r);
    pj_session_close(session);
}

static void unavailable_energy_is_nan_never_zero(void **state)
{
    (void)state;
    pj_session *session = open_session("none", "none");
    pj_run *run = begin(session);
    infer(run);
    pj_result r = {.size = sizeof r};
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, &r, NULL), PJ_OK);
    assert_int_equal(r.energy_source, PJ_UNAVAILABLE);
    assert_true(isnan(r.total.mj) && isnan(r.total.lo_mj) && isnan(r.net.mj));
    assert_true(isnan(r.joules_per_token));
    assert_true(isnan(phase_of(&r, PJ_PHASE_DECODE)->gross.mj));
    assert_that(r.duration_ms, >, 100);
    json_t *json = json_loads(r.json, 0, NULL);
    assert_true(json_is_null(json_object_get(json_object_get(json, "total"), "mj")));
    json_decref(json);
    pj_result_fini(&r);
    pj_session_close(session);
}

static void a_failed_run_keeps_its_reason(void **state)
{
    (void)state;
    pj_session *session = open_session("none", database);
    pj_run *run = begin(session);
    pj_error err = {0};
    assert_int_equal(pj_run_fail(run, NULL, NULL, &err), PJ_E_INVALID);
    assert_int_equal(pj_run_fail(run, "", NULL, &err), PJ_E_INVALID);
    pj_run_facts facts = {.size = sizeof facts, .dtype = "q4_0", .model_json = "{\"layers\": 3}"};
    assert_int_equal(pj_run_describe(run, &facts, &err), PJ_OK);
    facts.model_json = "[]";
    assert_int_equal(pj_run_describe(run, &facts, &err), PJ_E_INVALID);
    pj_result r = {.size = sizeof r};
    assert_int_equal(pj_run_fail(run, "the GPU fell off the bus", &r, &err), PJ_OK);
    assert_int_equal(r.status, PJ_RUN_FAILED);
    assert_true(r.is_stored);
    json_t *json = json_loads(r.json, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "failure")),
                        "the GPU fell off the bus");
    assert_string_equal(json_string_value(json_object_get(json, "dtype")), "q4_0");
    json_decref(json);
    pj_result_fini(&r);
    pj_session_close(session);
}

#define ASSERT_REFUSED(call, wanted)              \
    do {                                          \
        pj_error refused = {0}, *err = &refused;  \
        assert_int_equal(call, wanted);           \
        assert_int_equal(refused.status, wanted); \
        assert_true(strlen(refused.text) > 10);   \
    } while (0)

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    pj_session *session = (void *)1;
    pj_run *run = (void *)1;
    ASSERT_REFUSED(pj_session_open(NULL, &session, err), PJ_E_INVALID);
    assert_null(session);
    ASSERT_REFUSED(pj_session_open(&(pj_session_options){0}, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_session_open(&(pj_session_options){.interval_ns = -1}, &session, err),
                   PJ_E_INVALID);
    ASSERT_REFUSED(pj_session_open(&(pj_session_options){.baseline_seconds = NAN}, &session, err),
                   PJ_E_INVALID);
    for (size_t size = 1; size < sizeof(pj_session_options); size++)
        if (size % sizeof size) /* half a pointer is none */
            ASSERT_REFUSED(
                pj_session_open(
                    &(pj_session_options){.size = size, .power = "none", .database = "none"},
                    &session, err),
                PJ_E_INVALID);
    static const char *const lists[] = {"rapll", "rapl,none", "sim:perid=3", "replay",
                                        "estimate:x"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        pj_error said = {0};
        pj_session_options options = {.power = lists[i], .database = "none"};
        assert_int_equal(pj_session_open(&options, &session, &said), PJ_E_INVALID);
        assert_null(session);
        /* words of the library's caller, who has no command line */
        assert_null(strstr(said.text, "--"));
        assert_null(strchr(said.text, '\n'));
    }
    session = open_session("none", "none");
    ASSERT_REFUSED(pj_run_begin(NULL, &(pj_run_options){0}, &run, err), PJ_E_INVALID);
    assert_null(run);
    ASSERT_REFUSED(pj_run_begin(session, NULL, &run, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_begin(session, &(pj_run_options){0}, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_begin(session, &(pj_run_options){.depth = (pj_depth)99}, &run, err),
                   PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_begin(session, &(pj_run_options){.settings_json = "no"}, &run, err),
                   PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_end(NULL, PJ_RUN_COMPLETED, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_fail(NULL, "why", NULL, err), PJ_E_INVALID);
    run = begin(session); /* a refusal left nothing open */
    ASSERT_REFUSED(pj_run_end(run, (pj_run_status)99, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_end(run, PJ_RUN_RUNNING, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_end(run, PJ_RUN_COMPLETED, &(pj_result){.size = 8}, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_run_describe(run, NULL, err), PJ_E_INVALID);
    assert_int_equal(pj_run_name(run, NULL), 0);
    pj_run_set_prompts(run, NULL, 3);
    uint32_t device = 7;
    pj_device_info nameless = {.size = sizeof nameless, .uuid = "GPU-1"};
    ASSERT_REFUSED(pj_device_declare(NULL, &nameless, &device, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_device_declare(run, NULL, &device, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_device_declare(run, &nameless, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_device_declare(run, &nameless, &device, err), PJ_E_INVALID);
    assert_int_equal(device, 0);
    ASSERT_REFUSED(pj_device_spans_add(NULL, 1, NULL, err), PJ_E_INVALID);
    ASSERT_REFUSED(pj_device_spans_add(run, 1, NULL, err), PJ_E_INVALID);
    pj_device_launch(NULL, NULL);
    pj_device_launch(pj_run_lane(run), NULL);
    assert_int_equal(pj_run_end(run, PJ_RUN_CANCELLED, NULL, NULL), PJ_OK);
    assert_null(pj_run_lane(NULL));
    assert_string_equal(pj_run_id(NULL), "");
    pj_run_set_prompts(NULL, NULL, 1);
    pj_run_set_tokens(NULL, 1, 1);
    pj_result_fini(NULL);
    pj_session_close(session);
    pj_session_close(NULL);
}

/* A program of an earlier version hands in less, one of a later version more. */
static void structs_of_other_versions_are_taken(void **state)
{
    (void)state;
    pj_session *session = open_session("none", "none");
    pj_run *run = NULL;
    pj_error failure = {0};
    struct {
        pj_run_options known;
        uint64_t later[4];
    } newer = {.known = {.size = sizeof newer, .prompt = "hello"}};
    assert_int_equal(pj_run_begin(session, &newer.known, &run, &failure), PJ_OK);
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, NULL, NULL), PJ_OK);
    newer.later[3] = 1;
    ASSERT_REFUSED(pj_run_begin(session, &newer.known, &run, err), PJ_E_UNSUPPORTED);
    /* Up to the prompt alone: what follows in memory is not read. */
    pj_run_options older = {
        .size = offsetof(pj_run_options, model_name), .prompt = "hello", .depth = (pj_depth)99};
    assert_int_equal(pj_run_begin(session, &older, &run, &failure), PJ_OK);
    struct {
        pj_result known;
        uint64_t later[4];
    } result = {.known = {.size = sizeof result}, .later = {7, 7, 7, 7}};
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, &result.known, NULL), PJ_OK);
    assert_int_equal(result.known.size, sizeof result);
    for (int i = 0; i < 4; i++) assert_int_equal(result.later[i], 0);
    pj_result_fini(&result.known);
    pj_session_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_says_how_many_joules),
        cmocka_unit_test(unavailable_energy_is_nan_never_zero),
        cmocka_unit_test(a_failed_run_keeps_its_reason),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(structs_of_other_versions_are_taken),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
