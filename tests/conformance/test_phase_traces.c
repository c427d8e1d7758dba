/*
 * Phase detection in recorded power traces without tags (fixtures/nvml/traces): three graphics
 * cards whose load was switched at known times, seen by an external meter with a resolution of
 * 1 ms and, where its readings resolve the load, by the card's own sensor. Work is tagged decode,
 * the rest idle. Each recording is judged by a model that was trained on all others, and by the
 * prior, which must distinguish work from idle. The figures are printed.
 */
#include "judge.h"

#include "analysis/phases.h"
#include "base/clock.h"
#include "power/trace_file.h"

#include <math.h>

enum { MOST = 16384, RECORDINGS = 5 };

typedef struct recorded {
    const char *name;
    double t_ms[MOST], mw[MOST];
    uint8_t tag[MOST];
    size_t count;
} recorded;

static recorded all[RECORDINGS];

/* ---- files ---------------------------------------------------------------------------------- */

static char *read_whole(const char *folder, const char *file, size_t *bytes)
{
    char traces[PATH_MAX], of[PATH_MAX], path[PATH_MAX], *text;
    pj_error err;
    judge_join(traces, judge_folder("PJ_FIXTURES"), "nvml/traces");
    judge_join(of, traces, folder);
    judge_join(path, of, file);
    if (pj_file_read(path, 64 << 20, &text, bytes, &err) != PJ_OK) fail_msg("%s", err.text);
    return text;
}

/* Whether the load was on at a time; the file has each switching time twice. */
static void tag(const char *folder, recorded *r)
{
    size_t bytes, edges = 0;
    static double edge_ms[512];
    char *text = read_whole(folder, "timestamps.csv", &bytes), *line = text;
    while ((line = strchr(line, '\n')) != NULL && *++line) {
        double ms = strtod(line, NULL) * 1e-3;
        if (!(ms > 0) || (edges && edge_ms[edges - 1] == ms)) continue;
        assert_true(edges < 512);
        edge_ms[edges++] = ms;
    }
    edges -= edges % 2; /* the last time marks the end of the test, not a switch */
    for (size_t i = 0; i < r->count; i++) {
        size_t before = 0;
        while (before < edges && edge_ms[before] <= r->t_ms[i]) before++;
        r->tag[i] = before % 2 ? PJ_PHASE_DECODE : PJ_PHASE_IDLE;
    }
    pj_free(text);
}

/* unix_us,cables_w,slot_w: the card's power is the sum of both. */
static void read_meter(const char *folder, const char *name, recorded *r)
{
    size_t bytes;
    char *text = read_whole(folder, "external-meter-1ms.csv", &bytes);
    r->name = name;
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        double us, cables, slot;
        if (sscanf(line + 1, "%lf,%lf,%lf", &us, &cables, &slot) != 3) continue;
        assert_true(r->count < MOST);
        r->t_ms[r->count] = us * 1e-3;
        r->mw[r->count++] = (cables + slot) * 1e3;
    }
    pj_free(text);
    tag(folder, r);
}

/* The card's own readings without repeated polls. Their times are local; the time zone is found by
 * aligning them with the meter. */
static void read_sensor(const char *folder, const char *name, double meter_begin_ms, recorded *r)
{
    size_t bytes;
    pj_trace trace;
    pj_error err;
    char stamp[32], *text = read_whole(folder, "gpudata.csv", &bytes);
    int64_t ns;
    r->name = name;
    if (pj_trace_read_csv(text, bytes, name, &trace, &err) != PJ_OK) fail_msg("%s", err.text);
    snprintf(stamp, sizeof stamp, "%.23s", strchr(text, '\n') + 1);
    for (int i = 0; i < 10; i++)
        if (stamp[i] == '/') stamp[i] = '-';
    assert_true(pj_clock_parse_iso(stamp, &ns));
    double begin = (double)ns * 1e-6;
    begin -= round((begin - meter_begin_ms) / 1800e3) * 1800e3;
    for (size_t i = 0; i < trace.row_count && r->count < MOST; i++) {
        double mw = (double)trace.mw[i * trace.rail_count];
        if (!isfinite(mw) || (r->count && mw == r->mw[r->count - 1])) continue;
        r->t_ms[r->count] = begin + trace.t_ms[i];
        r->mw[r->count++] = mw;
    }
    pj_free(text);
    pj_trace_fini(&trace);
    tag(folder, r);
}

static int read_all(void **state)
{
    (void)state;
    const char *folder = getenv("PJ_FIXTURES");
    if (!folder || !folder[0]) return 0; /* the tests skip */
    read_meter("k40m-step", "Tesla K40m, a step of 6 s, meter", &all[0]);
    read_meter("4090-step", "RTX 4090, a step of 6 s, meter", &all[1]);
    read_meter("3090-50pct-duty", "RTX 3090, load of 52 ms on, 52 ms off, meter", &all[2]);
    read_sensor("k40m-step", "Tesla K40m, its sensor", all[0].t_ms[0], &all[3]);
    read_sensor("4090-step", "RTX 4090, its sensor", all[1].t_ms[0], &all[4]);
    return 0;
}

/* ---- judging -------------------------------------------------------------------------------- */

typedef struct score {
    double all, right, right_as_work, near_90, near_90_right;
} score;

static pj_phase_trace trace_of(const recorded *r, bool tagged)
{
    return (pj_phase_trace){r->t_ms, r->mw, r->count, NAN, tagged ? r->tag : NULL};
}

static void judge(const recorded *r, const pj_phase_model *model, score *s)
{
    static uint8_t phase[MOST];
    static double confidence[MOST];
    pj_phase_trace untagged = trace_of(r, false);
    *s = (score){0};
    assert_true(pj_phases_detect(&untagged, model, phase, confidence) > 0);
    for (size_t i = 0; i < r->count; i++) {
        bool right = phase[i] == r->tag[i], near = confidence[i] >= 0.85 && confidence[i] < 0.95;
        s->all++;
        s->right += right;
        s->right_as_work += (phase[i] == PJ_PHASE_PREFILL || phase[i] == PJ_PHASE_DECODE) ==
                            (r->tag[i] == PJ_PHASE_DECODE);
        s->near_90 += near;
        s->near_90_right += near && right;
    }
}

static void train_without(size_t left_out, pj_phase_model *model)
{
    pj_phase_trace traces[RECORDINGS];
    size_t count = 0;
    for (size_t i = 0; i < RECORDINGS; i++)
        if (i != left_out) traces[count++] = trace_of(&all[i], true);
    assert_true(pj_phase_model_train(traces, count, model));
}

static void recorded_phases_are_found(void **state)
{
    (void)state;
    judge_folder("PJ_FIXTURES");
    for (size_t i = 0; i < RECORDINGS; i++) {
        score s;
        pj_phase_model model;
        train_without(i, &model);
        judge(&all[i], &model, &s);
        printf("%s: %.0f samples, %.2f %% right", all[i].name, s.all, 100 * s.right / s.all);
        if (s.near_90 > 0)
            printf("; of %.0f at 90 %%, %.1f %% right", s.near_90,
                   100 * s.near_90_right / s.near_90);
        printf("\n");
        assert_true(s.right >= 0.95 * s.all);
    }
}

static void the_prior_tells_work_from_idle(void **state)
{
    pj_phase_model prior;
    (void)state;
    judge_folder("PJ_FIXTURES");
    pj_phase_model_prior(&prior);
    for (size_t i = 0; i < RECORDINGS; i++) {
        score s;
        judge(&all[i], &prior, &s);
        printf("%s, prior: %.2f %% of work and idle right\n", all[i].name,
               100 * s.right_as_work / s.all);
        assert_true(s.right_as_work >= 0.90 * s.all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_phases_are_found),
        cmocka_unit_test(the_prior_tells_work_from_idle),
    };
    return cmocka_run_group_tests(tests, read_all, NULL);
}
