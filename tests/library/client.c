/* The public header in strict C11 and in C++17: the same program is compiled as both. Records with
 * packed spans, then again without any sensor, where energies must be NaN and never 0. */
#include <perjoule.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            return 1;                                               \
        }                                                           \
    } while (0)

static void burn(long ms)
{
    int64_t until = pj_clock_ns() + ms * 1000000;
    while (pj_clock_ns() < until) {
    }
}

static int record(const char *power, pj_result *result)
{
    pj_session *session = NULL;
    pj_run *run = NULL;
    pj_error err;
    pj_session_options how;
    pj_run_options what;
    pj_packed_span span;
    pj_span_batch batch;
    memset(&err, 0, sizeof err);
    memset(&how, 0, sizeof how);
    memset(&what, 0, sizeof what);
    memset(&span, 0, sizeof span);
    memset(&batch, 0, sizeof batch);
    how.size = sizeof how;
    how.power = power;
    how.database = "none";
    how.baseline_seconds = 0.1;
    CHECK(pj_session_open(&how, &session, &err) == PJ_OK);
    what.size = sizeof what;
    what.model_name = "client";
    CHECK(pj_run_begin(session, &what, &run, &err) == PJ_OK);
    span.begin_ns = pj_clock_ns();
    burn(200);
    span.end_ns = pj_clock_ns();
    span.kind = PJ_SPAN_PHASE;
    span.id = PJ_PHASE_DECODE;
    span.layer = -1;
    batch.size = sizeof batch;
    batch.spans = &span;
    batch.span_count = 1;
    CHECK(pj_spans_add(pj_run_lane(run), &batch, &err) == PJ_OK);
    pj_run_set_tokens(run, 1, 2);
    CHECK(pj_run_end(run, PJ_RUN_COMPLETED, result, &err) == PJ_OK);
    pj_session_close(session);
    return 0;
}

/* Two concurrent runs inside a window, then a window without sensors. */
static int divide(void)
{
    pj_session *session = NULL;
    pj_run *runs[2] = {NULL, NULL};
    pj_open_window *window = NULL;
    pj_error err;
    pj_session_options how;
    pj_run_options what;
    pj_window_result result;
    int i;
    memset(&err, 0, sizeof err);
    memset(&how, 0, sizeof how);
    memset(&what, 0, sizeof what);
    memset(&result, 0, sizeof result);
    how.size = sizeof how;
    how.power = "sim:period_ms=5";
    how.database = "none";
    how.baseline_seconds = 0.1;
    how.share_rule = "weight";
    what.size = sizeof what;
    result.size = sizeof result;
    CHECK(pj_session_open(&how, &session, &err) == PJ_OK);
    CHECK(pj_window_begin(session, &window, &err) == PJ_OK);
    for (i = 0; i < 2; i++) {
        what.weight = i ? 3 : 1;
        CHECK(pj_run_begin(session, &what, &runs[i], &err) == PJ_OK);
    }
    CHECK(pj_run_set_weight(runs[0], 2, &err) == PJ_OK);
    burn(200);
    for (i = 0; i < 2; i++) CHECK(pj_run_end(runs[i], PJ_RUN_COMPLETED, NULL, &err) == PJ_OK);
    CHECK(pj_window_end(window, &result, &err) == PJ_OK);
    CHECK(result.energy_source == PJ_MODELLED && result.total.lo_mj < result.total.mj);
    CHECK(result.rail_count > 0 && result.duration_ms >= 200);
    CHECK(result.total_random_mj > 0 && result.total_gain_mj > 0);
    CHECK(hypot(result.total_random_mj, result.total_gain_mj) >
          0.99 * (result.total.hi_mj - result.total.mj));
    pj_session_close(session);
    how.power = "none";
    CHECK(pj_session_open(&how, &session, &err) == PJ_OK);
    CHECK(pj_window_begin(session, &window, &err) == PJ_OK);
    CHECK(pj_window_end(window, &result, &err) == PJ_OK);
    CHECK(isnan(result.total.mj) && isnan(result.total_random_mj) && result.rail_count == 0);
    pj_session_close(session);
    return 0;
}

int main(void)
{
    pj_result result;
    memset(&result, 0, sizeof result);
    result.size = sizeof result;
    if (record("sim", &result)) return 1;
    CHECK(result.energy_source == PJ_MODELLED && result.total.mj > 0);
    CHECK(result.phase_count >= 1 && result.json && strstr(result.json, "\"total\""));
    pj_result_fini(&result);
    if (record("none", &result)) return 1;
    CHECK(result.energy_source == PJ_UNAVAILABLE && isnan(result.total.mj) && isnan(result.net.mj));
    CHECK(isnan(result.joules_per_token) && result.duration_ms >= 200);
    pj_result_fini(&result);
    return divide();
}
