/* Reads the recordings and counts. */
#include "bench/recorded_phases.h"

#include "analysis/phases.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "power/trace_file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16384, RECORDINGS = PJ_RECORDED_TRACES, MOST_EDGES = 512, MOST_BYTES = 64 << 20 };

typedef struct recorded {
    const char *name;
    double t_ms[MOST], mw[MOST];
    uint8_t tag[MOST];
    size_t count;
} recorded;

typedef struct scoring {
    const char *folder;
    recorded all[RECORDINGS];
    uint8_t phase[MOST];
    double confidence[MOST];
} scoring;

/* ---- files ---- */

static pj_status read_whole(const scoring *j, const char *of, const char *file, char **text,
                            size_t *bytes, pj_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/%s", j->folder, of, file);
    return pj_file_read(path, MOST_BYTES, text, bytes, err);
}

/* Tags readings by whether the load was on. */
static pj_status tag(const scoring *j, const char *of, recorded *r, pj_error *err)
{
    size_t bytes, edges = 0;
    double edge_ms[MOST_EDGES];
    char *text;
    pj_status status = read_whole(j, of, "timestamps.csv", &text, &bytes, err);
    if (status != PJ_OK) return status;
    for (char *line = strchr(text, '\n'); line && edges < MOST_EDGES;
         line = strchr(line + 1, '\n')) {
        double ms = strtod(line + 1, NULL) * 1e-3;
        if (ms > 0 && !(edges && edge_ms[edges - 1] == ms)) edge_ms[edges++] = ms;
    }
    pj_free(text);
    edges -= edges % 2; /* the last time marks the end of the test, not a switch */
    for (size_t i = 0; i < r->count; i++) {
        size_t before = 0;
        while (before < edges && edge_ms[before] <= r->t_ms[i]) before++;
        r->tag[i] = before % 2 ? PJ_PHASE_DECODE : PJ_PHASE_IDLE;
    }
    return PJ_OK;
}

/* unix_us,cables_w,slot_w: the card's power is the sum of both. */
static pj_status recorded_phases_read_meter(const scoring *j, const char *of, const char *name,
                                            recorded *r, pj_error *err)
{
    size_t bytes;
    char *text;
    pj_status status = read_whole(j, of, "external-meter-1ms.csv", &text, &bytes, err);
    if (status != PJ_OK) return status;
    r->name = name;
    for (char *line = strchr(text, '\n'); line && r->count < MOST; line = strchr(line + 1, '\n')) {
        double us, cables, slot;
        if (sscanf(line + 1, "%lf,%lf,%lf", &us, &cables, &slot) != 3) continue;
        r->t_ms[r->count] = us * 1e-3;
        r->mw[r->count++] = (cables + slot) * 1e3;
    }
    pj_free(text);
    return tag(j, of, r, err);
}

/* The wall time of the first row, in a time zone that is found by aligning it with the meter. */
static double begin_of(const char *text, double meter_begin_ms)
{
    char stamp[32];
    const char *row = strchr(text, '\n');
    int64_t ns;
    snprintf(stamp, sizeof stamp, "%.23s", row ? row + 1 : "");
    for (int i = 0; i < 10 && stamp[i]; i++)
        if (stamp[i] == '/') stamp[i] = '-';
    if (!pj_clock_parse_iso(stamp, &ns)) return NAN;
    double begin = (double)ns * 1e-6;
    return begin - round((begin - meter_begin_ms) / 1800e3) * 1800e3;
}

/* The card's own readings without repeated polls. */
static pj_status read_sensor(const scoring *j, const char *of, const char *name,
                             double meter_begin_ms, recorded *r, pj_error *err)
{
    size_t bytes;
    pj_trace trace;
    char *text;
    pj_status status = read_whole(j, of, "gpudata.csv", &text, &bytes, err);
    if (status != PJ_OK) return status;
    r->name = name;
    double begin = begin_of(text, meter_begin_ms);
    status = pj_trace_read_csv(text, bytes, name, &trace, err);
    for (size_t i = 0; status == PJ_OK && i < trace.row_count && r->count < MOST; i++) {
        double mw = (double)trace.mw[i * trace.rail_count];
        if (!isfinite(mw) || (r->count && mw == r->mw[r->count - 1])) continue;
        r->t_ms[r->count] = begin + trace.t_ms[i];
        r->mw[r->count++] = mw;
    }
    if (status == PJ_OK) pj_trace_fini(&trace);
    pj_free(text);
    return status == PJ_OK ? tag(j, of, r, err) : status;
}

static pj_status recorded_phases_read_all(scoring *j, pj_error *err)
{
    recorded *all = j->all;
    pj_status status = recorded_phases_read_meter(j, "k40m-step",
                                                  "Tesla K40m, a step of 6 s, meter", &all[0], err);
    if (status == PJ_OK)
        status = recorded_phases_read_meter(j, "4090-step", "RTX 4090, a step of 6 s, meter",
                                            &all[1], err);
    if (status == PJ_OK)
        status = recorded_phases_read_meter(
            j, "3090-50pct-duty", "RTX 3090, load of 52 ms on, 52 ms off, meter", &all[2], err);
    if (status == PJ_OK)
        status =
            read_sensor(j, "k40m-step", "Tesla K40m, its sensor", all[0].t_ms[0], &all[3], err);
    if (status == PJ_OK)
        status = read_sensor(j, "4090-step", "RTX 4090, its sensor", all[1].t_ms[0], &all[4], err);
    return status;
}

/* ---- judging ---- */

static pj_phase_trace trace_of(const recorded *r, bool tagged)
{
    return (pj_phase_trace){r->t_ms, r->mw, r->count, NAN, tagged ? r->tag : NULL};
}

static bool is_work(uint8_t phase)
{
    return phase == PJ_PHASE_PREFILL || phase == PJ_PHASE_DECODE;
}

static void recorded_phases_judge(scoring *j, const recorded *r, const pj_phase_model *model,
                                  bool prior, pj_recorded_score *s)
{
    pj_phase_trace untagged = trace_of(r, false);
    pj_phases_detect(&untagged, model, j->phase, j->confidence);
    for (size_t i = 0; i < r->count; i++) {
        bool right = j->phase[i] == r->tag[i];
        bool near = j->confidence[i] >= 0.85 && j->confidence[i] < 0.95;
        if (prior) {
            s->prior_right += is_work(j->phase[i]) == is_work(r->tag[i]);
            continue;
        }
        s->all++;
        s->right += right;
        s->near_90 += near;
        s->near_90_right += near && right;
    }
}

static bool score_one(scoring *j, size_t at, pj_recorded_score *s)
{
    pj_phase_trace traces[RECORDINGS];
    pj_phase_model model;
    size_t count = 0;
    *s = (pj_recorded_score){.name = j->all[at].name};
    for (size_t i = 0; i < RECORDINGS; i++)
        if (i != at) traces[count++] = trace_of(&j->all[i], true);
    if (!pj_phase_model_train(traces, count, &model)) return false;
    recorded_phases_judge(j, &j->all[at], &model, false, s);
    pj_phase_model_prior(&model);
    recorded_phases_judge(j, &j->all[at], &model, true, s);
    return true;
}

pj_status pj_recorded_phases_judge(const char *folder, pj_recorded_score scores[PJ_RECORDED_TRACES],
                                   pj_error *err)
{
    scoring *j = pj_alloc(1, sizeof *j);
    if (!j) return pj_fail_memory(err, "recordings");
    j->folder = folder;
    pj_status status = recorded_phases_read_all(j, err);
    for (size_t i = 0; i < RECORDINGS && status == PJ_OK; i++)
        if (!score_one(j, i, &scores[i])) status = pj_fail_memory(err, "recordings");
    pj_free(j);
    return status;
}
