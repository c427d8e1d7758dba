/* Markers of foreign programs: grammar, times, lanes, and what hostile lines come to. */
#include "../assertions.h"
#include "import/markers.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000

static pj_session *session;
static int64_t start_ns;

static int open_session(void **state)
{
    pj_session_options options = {
        .size = sizeof options, .power = "none", .database = "none", .baseline_seconds = -1};
    return pj_session_open(&options, &session, NULL);
}

static int close_session(void **state)
{
    pj_session_close(session);
    return 0;
}

static pj_markers *begin(pj_run **run)
{
    pj_markers *markers;
    pj_run_options options = {.size = sizeof options, .depth = PJ_DEPTH_DEEP};
    assert_int_equal(pj_run_begin(session, &options, run, NULL), PJ_OK);
    assert_int_equal(pj_markers_new(*run, &markers, NULL), PJ_OK);
    start_ns = pj_clock_ns();
    pj_clock_sleep_until(start_ns + 12 * MS);
    return markers;
}

/* `text` with every @T of whole milliseconds since the start replaced by its time. */
static void feed(pj_markers *markers, const char *text, size_t step)
{
    char whole[8192];
    size_t length = 0;
    for (const char *c = text; *c; c++) {
        if (*c != '~') {
            whole[length++] = *c;
            continue;
        }
        char *end;
        long ms = strtol(c + 1, &end, 10);
        length += (size_t)sprintf(whole + length, "%lld", (long long)(start_ns + ms * MS));
        c = end - 1;
    }
    for (size_t at = 0; at < length; at += step)
        pj_markers_feed(markers, whole + at, length - at < step ? length - at : step,
                        pj_clock_ns());
}

static pj_run_data end(pj_run *run, pj_markers *markers)
{
    pj_run_data data;
    pj_markers_finish(markers, pj_clock_ns());
    pj_markers_free(markers);
    assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, NULL), PJ_OK);
    return data;
}

static const char script[] =
    "@~1 begin section load\n@~2 end\n@~2 begin phase prefill\n@~2 begin token 0 Once\n"
    "@~2 begin layer 1\n@~2 begin component q_proj\n@~2 begin operation matmul\n@~3 end\n@~3 end\n"
    "@~3 end\n@~4 end\r\n@~4 end\n"
    "{\"event\": \"begin\", \"kind\": \"phase\", \"name\": \"decode\", \"t_ns\": ~4}\n"
    "{\"event\": \"begin\", \"kind\": \"token\", \"position\": 1, \"text\": \" upon\", \"t_ns\": "
    "~4}\n"
    "@~5-~6 #9 span section upload\n@~7 end\n@~8 end\ntokens 5 2\n";

static void lines_become_spans_wherever_they_are_cut(void **state)
{
    for (size_t step = 1; step < 40; step += 7) {
        pj_run *run;
        pj_markers *markers = begin(&run);
        feed(markers, script, step);
        assert_int_equal(pj_markers_count(markers).malformed, 0);
        pj_run_data d = end(run, markers);
        assert_int_equal(d.token_count, 2);
        assert_string_equal(d.tokens[1].text, " upon");
        assert_int_equal(d.layer_count, 1);
        assert_int_equal(d.layers[0].layer_index, 1);
        assert_int_equal(d.component_count, 1);
        assert_int_equal(d.operation_count, 1);
        assert_int_equal(d.info.input_tokens, 5);
        assert_int_equal(d.info.output_tokens, 2);
        assert_int_equal(d.section_count, 2);
        for (uint32_t i = 0; i < 2; i++) {
            const pj_section_row *s = &d.sections[i];
            bool load = strcmp(s->name, "load") == 0;
            assert_near(s->duration_ms, 1, 1e-9);
            assert_int_equal(d.phases[s->phase].phase,
                             load ? PJ_PHASE_PRE_INFERENCE : PJ_PHASE_DECODE);
        }
        double ms[PJ_PHASE_COUNT] = {0};
        for (uint32_t i = 0; i < d.phase_count; i++)
            ms[d.phases[i].phase] += d.phases[i].duration_ms;
        assert_near(ms[PJ_PHASE_PREFILL], 2, 1e-9);
        assert_near(ms[PJ_PHASE_DECODE], 4, 1e-9);
        assert_that(ms[PJ_PHASE_PRE_INFERENCE], >=, 2);
        assert_that(ms[PJ_PHASE_POST_INFERENCE], >=, 4);
        pj_run_data_fini(&d);
    }
}

static void threads_nest_apart(void **state)
{
    pj_run *run;
    pj_markers *markers = begin(&run);
    feed(markers,
         "@~1 #1 begin section a\n@~2 #2 begin section b\n@~3 #1 begin section inner\n@~4 #2 end\n"
         "@~5 #1 end\n@~6 #1 end\n",
         100);
    assert_int_equal(pj_markers_count(markers).malformed, 0);
    pj_run_data d = end(run, markers);
    assert_int_equal(d.section_count, 3);
    static const double expected[] = {5, 2, 2};
    static const char *const names[] = {"a", "b", "inner"};
    for (uint32_t i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            if (strcmp(d.sections[i].name, names[k]) == 0)
                assert_near(d.sections[i].duration_ms, expected[k], 1e-9);
    pj_run_data_fini(&d);
}

/* `phases`: of the run, as a row of names' first letters. */
static void expect_phases(const char *text, const char *phases)
{
    pj_run *run;
    pj_markers *markers = begin(&run);
    feed(markers, text, 100);
    assert_int_equal(pj_markers_count(markers).malformed, 0);
    pj_run_data d = end(run, markers);
    for (uint32_t i = 0; i < d.phase_count; i++) {
        const char *name = pj_phase_name(d.phases[i].phase);
        if (strcmp(name, "prefill") && strcmp(name, "decode")) continue;
        assert_int_equal(*name, *phases++);
    }
    assert_int_equal(*phases, 0);
    pj_run_data_fini(&d);
}

static void ranges_called_like_phases_are_phases(void **state)
{
    expect_phases("@~1 #7 begin section Prefill\n@~2 #7 begin section decode\n@~3 #7 end\n"
                  "@~4 #7 end\n@~5 #7 begin section decode\n@~6 #7 end\n",
                  "pd");
    expect_phases("@~1 begin phase prefill\n@~2 #7 begin section decode\n@~3 #7 end\n@~4 end\n",
                  "p");
    expect_phases("@~1 #7 begin section decoder\n@~2 #7 end\n@~3 #7 begin section x\n@~4 #7 end\n",
                  "");
}

static void facts_and_losses_are_kept(void **state)
{
    pj_run *run;
    pj_markers *markers = begin(&run);
    feed(markers,
         "fact engine  my engine\n#7 fact level fine\nfact layers 12\nlost 3\nlost 4\n"
         "{\"event\": \"fact\", \"name\": \"model\", \"value\": \"a b\"}\n"
         "{\"event\": \"fact\", \"name\": \"parameters\", \"value\": 7000000000}\n"
         "{\"event\": \"lost\", \"count\": 1}\n",
         7);
    const pj_markers_facts *f = pj_markers_fact(markers);
    assert_string_equal(f->engine, "my engine");
    assert_string_equal(f->level, "fine");
    assert_string_equal(f->model, "a b");
    assert_string_equal(f->architecture, "");
    assert_int_equal(f->layers, 12);
    assert_int_equal(f->parameters, UINT64_C(7000000000));
    assert_int_equal(pj_markers_count(markers).lost, 8);
    assert_int_equal(pj_markers_count(markers).malformed, 0);
    pj_run_data d = end(run, markers);
    assert_int_equal(d.warning_count >= 1, 1);
    pj_run_data_fini(&d);
}

static void nonsense_is_counted(void **state)
{
    static const char *const bad[] = {"hello",
                                      "begin",
                                      "begin phase",
                                      "begin phase idle",
                                      "begin phase nowhere",
                                      "begin layer x",
                                      "begin layer 3 x",
                                      "begin layer 40000",
                                      "begin token",
                                      "begin token -1",
                                      "begin section",
                                      "end",
                                      "end end",
                                      "tokens 1",
                                      "tokens 1 2 3",
                                      "span section x",
                                      "@ begin section x",
                                      "@1x begin section x",
                                      "#a begin section x",
                                      "begin sections x",
                                      "{",
                                      "[]",
                                      "fact",
                                      "fact engine",
                                      "fact colour red",
                                      "fact level middling",
                                      "fact level fine grained",
                                      "fact layers many",
                                      "fact layers 3 4",
                                      "lost",
                                      "lost x",
                                      "{\"event\": \"fact\", \"name\": \"model\", \"value\": 3}",
                                      "{\"event\": \"fact\", \"name\": \"layers\"}",
                                      "{\"event\": 3}",
                                      "{\"event\": \"begin\", \"kind\": \"token\"}",
                                      "tokens 99999999999999999999 1"};
    pj_run *run;
    pj_markers *markers = begin(&run);
    char line[128];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "%s\n", bad[i]);
        feed(markers, line, 1000);
        if (pj_markers_count(markers).malformed != i + 1) fail_msg("taken for good: %s", bad[i]);
    }
    for (int i = 0; i < 40; i++) { /* more lanes, and deeper, than are kept */
        snprintf(line, sizeof line, "#%d begin section a\n", i + 100);
        feed(markers, line, 1000);
        feed(markers, "begin section deep\n", 1000);
    }
    assert_that(pj_markers_count(markers).malformed, >, sizeof bad / sizeof *bad + 8 + 24);
    pj_run_data d = end(run, markers);
    bool said = false;
    for (uint32_t i = 0; i < d.warning_count; i++)
        said |= strcmp(d.warnings[i].code, "markers_ignored") == 0;
    assert_true(said);
    pj_run_data_fini(&d);
}

/* Times from the future, the past, and backwards. */
static void times_are_made_possible(void **state)
{
    pj_run *run;
    pj_markers *markers = begin(&run);
    feed(markers, "@~5 begin section a\n@~1 begin section b\n@9000000000000000000 end\n@5 end\n",
         1000);
    pj_run_data d = end(run, markers);
    assert_int_equal(d.section_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_that(d.sections[i].start_ms, >=, 0);
        assert_that(d.sections[i].duration_ms, >=, 0);
        assert_that(d.sections[i].start_ms + d.sections[i].duration_ms, <=, d.info.total_ms);
    }
    pj_run_data_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_spans_wherever_they_are_cut),
        cmocka_unit_test(threads_nest_apart),
        cmocka_unit_test(ranges_called_like_phases_are_phases),
        cmocka_unit_test(facts_and_losses_are_kept),
        cmocka_unit_test(nonsense_is_counted),
        cmocka_unit_test(times_are_made_possible),
    };
    return cmocka_run_group_tests(tests, open_session, close_session);
}
