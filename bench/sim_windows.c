#include "bench/sim_windows.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "power/sim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SEGMENTS = 16384, MOST_RUNS = 1000, BANDS = 4 };
#define LONG_NS (60 * 1000 * PJ_NS_PER_MS)

static const char *const load_names[PJ_LOAD_COUNT] = {"steps", "bursts"};
static const double band_ms[BANDS][2] = {{30, 100}, {100, 300}, {300, 1000}, {1000, 10000}};

static const struct {
    const char *name, *sim;
} sensors[] = {
    {"power, 100 ms", "kind=power,period_ms=100,noise=0.0005"},
    {"sees 25 of 100 ms", "kind=power,period_ms=100,window_ms=25,noise=0.001"},
    {"sees 10 of 20 ms", "kind=power,period_ms=20,window_ms=10,noise=0.001"},
    {"average of 1 s", "kind=power,period_ms=100,window_ms=1000,noise=0.0005"},
    {"power, lag of 50 ms", "kind=power,period_ms=15,lag_ms=50,noise=0.0005"},
    {"counter, 1 ms", "kind=counter,period_ms=1,resolution_mj=0.061"},
    {"counter, 100 ms", "kind=counter,period_ms=100,resolution_mj=1"},
};

typedef struct world {
    pj_sim_spec spec;
    pj_sim_segment *segments;
    size_t count;
} world;

static void hold(world *w, int64_t *at_ns, double ms, double mw)
{
    int64_t end_ns = *at_ns + (int64_t)(ms * 1e6);
    if (w->count < MOST_SEGMENTS) w->segments[w->count++] = (pj_sim_segment){*at_ns, end_ns, mw};
    *at_ns = end_ns;
}

static double between(pj_random *random, double low, double high)
{
    return low + pj_random_unit(random) * (high - low);
}

/* A load that switches with a period of its own, a little irregularly. */
static void burst(world *w, pj_random *random, int64_t *at_ns, double ms, double mw)
{
    double half_ms = 5 * pow(40, pj_random_unit(random));
    for (double done = 0; done < ms; done += half_ms) {
        bool on = fmod(done / half_ms, 2) < 1;
        hold(w, at_ns, half_ms * between(random, 0.95, 1.05), on ? mw : 0);
    }
}

static void make_load(world *w, pj_sim_load load, uint64_t seed)
{
    pj_random random = {seed * 77 + 5};
    int64_t at_ns = 0;
    while (at_ns < LONG_NS) {
        hold(w, &at_ns, between(&random, 1000, 3000), 0);
        hold(w, &at_ns, between(&random, 1000, 3000), between(&random, 50e3, 300e3));
        double ms = between(&random, 1000, 3000), mw = between(&random, 50e3, 300e3);
        if (load == PJ_LOAD_BURSTS)
            burst(w, &random, &at_ns, ms, mw);
        else
            hold(w, &at_ns, ms, mw);
    }
}

static double true_mj(const void *context, int64_t begin_ns, int64_t end_ns)
{
    const world *w = context;
    return pj_sim_truth_mj(&w->spec, 0, w->segments, w->count, begin_ns, end_ns);
}

static pj_status read_curve(const world *w, pj_curve **curve, pj_error *err)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading *readings = NULL;
    size_t count = 0;
    pj_sim_rails(&w->spec, rails, PJ_MAX_RAILS);
    pj_status status =
        pj_sim_read(&w->spec, 0, w->segments, w->count, 0, LONG_NS, &readings, &count, err);
    *curve = pj_curve_new(&rails[0]);
    if (status == PJ_OK && !*curve) status = pj_fail_memory(err, "an energy curve");
    for (size_t i = 0; status == PJ_OK && i < count; i++)
        status = pj_curve_add(*curve, &readings[i], err);
    if (status == PJ_OK) status = pj_curve_finish(*curve, err);
    pj_free(readings);
    return status;
}

pj_status pj_sim_windows_judge(const char *sensor, pj_sim_load load, const double length_ms[2],
                               uint64_t seed, pj_window_score *score, pj_error *err)
{
    char text[256];
    world w = {.segments = pj_alloc(MOST_SEGMENTS, sizeof *w.segments)};
    pj_curve *curve = NULL;
    snprintf(text, sizeof text, "%s,idle_mw=60000,seed=%llu", sensor, (unsigned long long)seed);
    pj_status status = w.segments ? PJ_OK : pj_fail_memory(err, "a simulated load");
    if (status == PJ_OK) status = pj_sim_parse(text, &w.spec, err);
    if (status == PJ_OK) {
        make_load(&w, load, seed);
        status = read_curve(&w, &curve, err);
    }
    int64_t margin = 2000 * PJ_NS_PER_MS;
    pj_window_load judged = {true_mj, NULL, &w, margin, LONG_NS - margin};
    if (status == PJ_OK && !pj_window_score_judge(curve, &judged, length_ms, seed, score))
        status = pj_fail_memory(err, "the scores of a bench");
    pj_curve_free(curve);
    pj_free(w.segments);
    return status;
}

/* ---- the table ---- */

static double median_of(const pj_window_score *scores, int64_t runs, size_t member)
{
    double values[MOST_RUNS];
    for (int64_t i = 0; i < runs; i++)
        memcpy(&values[i], (const char *)&scores[i] + member, sizeof(double));
    return pj_median(values, (size_t)runs);
}

static void sim_windows_print(const pj_window_score *scores, int64_t runs, const char *name,
                              const char *load, const double band[2], pj_json *json)
{
    double p95 = median_of(scores, runs, offsetof(pj_window_score, p95));
    double width = median_of(scores, runs, offsetof(pj_window_score, half_width));
    double needed = median_of(scores, runs, offsetof(pj_window_score, needed)), covered = 0;
    for (int64_t i = 0; i < runs; i++) covered += scores[i].covered / (double)runs;
    if (!json) {
        printf("%-20s %-7s %5.0f to %5.0f ms  %6.2g %%  %6.2g %%  %5.1f %%  %5.2f\n", name, load,
               band[0], band[1], 100 * p95, 100 * width, 100 * covered, needed);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", name);
    pj_json_kv_string(json, "load", load);
    pj_json_kv_double(json, "shortest_ms", band[0]);
    pj_json_kv_double(json, "longest_ms", band[1]);
    pj_json_kv_double(json, "error_p95", p95);
    pj_json_kv_double(json, "half_width", width);
    pj_json_kv_double(json, "coverage", covered);
    pj_json_kv_double(json, "needed", needed);
    pj_json_object_end(json);
}

pj_status pj_bench_windows(int64_t runs, int64_t seed, const char *only, pj_json *json,
                           pj_error *err)
{
    pj_status status = PJ_OK;
    if (runs > MOST_RUNS) runs = MOST_RUNS;
    pj_window_score *scores = pj_alloc((size_t)runs, sizeof *scores);
    if (!scores) return pj_fail_memory(err, "the scores of a bench");
    if (!json)
        printf("%-20s %-7s %-17s  %8s  %8s  %7s  %6s\n", "sensor", "load", "windows", "p95",
               "+-95 %", "covered", "needed");
    for (size_t i = 0; i < sizeof sensors / sizeof *sensors; i++) {
        if (only && !strstr(sensors[i].name, only)) continue;
        for (int l = 0; l < PJ_LOAD_COUNT; l++)
            for (int b = 0; b < BANDS && status == PJ_OK; b++) {
                for (int64_t r = 0; r < runs && status == PJ_OK; r++)
                    status = pj_sim_windows_judge(sensors[i].sim, (pj_sim_load)l, band_ms[b],
                                                  (uint64_t)(seed + r), &scores[r], err);
                if (status == PJ_OK)
                    sim_windows_print(scores, runs, sensors[i].name, load_names[l], band_ms[b],
                                      json);
            }
    }
    pj_free(scores);
    return status;
}
