/* The --power list, recorded traces, the model of CPU power, and what a meter does with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "../virtual_clock.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "power/meter.h"
#include "power/sim.h"
#include "power/tdp.h"
#include "power/trace_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256]; /* fresh, removed by the tear-down */

static const char *file_with(const char *name, const char *text)
{
    static char path[512];
    assert_true(pj_path_join(path, sizeof path, folder, name));
    assert_int_equal(pj_file_write(path, text, strlen(text), NULL), PJ_OK);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/pj-sources-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[400];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* ---- the list --------------------------------------------------------------------------- */

static void lists(void **state)
{
    pj_power_list list;
    (void)state;
    assert_int_equal(pj_power_list_parse("none", &list, NULL), PJ_OK);
    assert_int_equal(list.count, 0);
    assert_int_equal(pj_power_list_parse("auto", &list, NULL), PJ_OK);
    assert_false(list.named);
    for (uint32_t i = 0; i < list.count; i++)
        assert_false(list.choices[i].source->flags & PJ_SOURCE_BY_NAME);
    assert_int_equal(
        pj_power_list_parse("sim:period_ms=10,q_proj=45000,estimate:full_w=10,idle_w=1,"
                            "replay:a,b.csv",
                            &list, NULL),
        PJ_OK);
    assert_int_equal(list.count, 3);
    assert_true(list.named);
    assert_string_equal(list.choices[0].argument, "period_ms=10,q_proj=45000");
    assert_string_equal(list.choices[1].argument, "full_w=10,idle_w=1");
    assert_string_equal(list.choices[2].argument, "a,b.csv");
    assert_int_equal(pj_power_list_parse("estimate,auto", &list, NULL), PJ_OK);
    assert_string_equal(list.choices[0].source->name, "estimate");
}

static void bad_lists(void **state)
{
    static const char *const bad[] = {"", "bogus", "sim,sim", "estimate,bogus", ",", "none,sim"};
    pj_power_list list;
    pj_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(pj_power_list_parse(bad[i], &list, &err), PJ_E_INVALID);
    char longer[PJ_POWER_ARGUMENT_BYTES + 100];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    memcpy(longer, "sim:", 4);
    assert_int_equal(pj_power_list_parse(longer, &list, &err), PJ_E_INVALID);
}

static void secrets_of_lists(void **state)
{
    static const char *const cases[][2] = {
        {"auto", "auto"},
        {"perjoule:http://lab:8000,token=s3:cr=t,rapl", "perjoule:http://lab:8000,token=***,rapl"},
        {"perjoule:http://lab/token=a,token=b", "perjoule:http://lab/token=a,token=***"},
        {"sim:token=x", "sim:token=***"},
    };
    char text[100], narrow[12];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_power_list_public(cases[i][0], text, sizeof text);
        assert_string_equal(text, cases[i][1]);
    }
    pj_power_list_public("rapl,sim:token=secret", narrow, sizeof narrow);
    assert_null(strstr(narrow, "sec"));
    assert_true(pj_power_is_remote("rapl,perjoule:http://lab"));
    assert_false(pj_power_is_remote("replay:perjoule:a.csv"));
    assert_false(pj_power_is_remote("auto"));
}

/* ---- traces ----------------------------------------------------------------------------- */

static void our_traces(void **state)
{
    static const char text[] = "\xef\xbb\xbftimestamp_ms,cpu_mw,gpu0_mw,total_mw,phase\r\n"
                               "1000,10000,20000,30000,idle\r\n"
                               "1100,11000,,31000,prefill\n"
                               "1200,12000,N/A,inf,decode\n"
                               "1150,9,9,9,back in time\n"
                               "garbage\n"
                               "1300,0x10,20000,1e400,decode\n"
                               "1400,13000,21000,34";
    pj_trace t;
    (void)state;
    assert_int_equal(pj_trace_read_csv(text, sizeof text - 1, "t", &t, NULL), PJ_OK);
    assert_int_equal(t.rail_count, 3);
    assert_int_equal(t.row_count, 4);
    assert_int_equal(t.skipped, 3);
    assert_int_equal(t.rails[0].rail_class, PJ_RAIL_CPU);
    assert_int_equal(t.rails[1].rail_class, PJ_RAIL_GPU);
    assert_int_equal(t.rails[0].parent, 2);
    assert_int_equal(t.rails[0].period_ns, 100 * PJ_NS_PER_MS);
    assert_int_equal(t.rails[0].quality, PJ_MEASURED);
    assert_that(t.t_ms[0], ==, 0);
    assert_that(t.t_ms[3], ==, 300);
    assert_that(t.mw[0], ==, 10000);
    assert_true(isnan(t.mw[1 * 3 + 1]));
    assert_true(isnan(t.mw[2 * 3 + 1]));
    assert_false(t.gap[1 * 3 + 1]); /* empty: this row is not for it */
    assert_true(t.gap[2 * 3 + 1]);  /* it says that there is none */
    assert_true(isnan(t.mw[2 * 3 + 2]) && isnan(t.mw[3 * 3]));
    pj_trace_fini(&t);
    static const char modelled[] = "timestamp_ms,cpu_mw,phase,quality\n1,2,idle,modelled\n";
    assert_int_equal(pj_trace_read_csv(modelled, sizeof modelled - 1, "t", &t, NULL), PJ_OK);
    assert_int_equal(t.rails[0].quality, PJ_MODELLED);
    pj_trace_fini(&t);
}

static void logs_of_nvidia_smi(void **state)
{
    static const char text[] =
        "timestamp, power.draw [W], utilization.gpu [%], power.draw.average [W]\n"
        "2026/01/01 00:00:00.000, [N/A], 5 %, 61.00 W\n"
        "2026/01/01 00:00:00.100, 61.20 W, 5 %, [Unknown Error]\n"
        "2026/01/01 00:00:00.1\n";
    pj_trace t;
    (void)state;
    assert_int_equal(pj_trace_read_csv(text, sizeof text - 1, "t", &t, NULL), PJ_OK);
    assert_int_equal(t.rail_count, 2);
    assert_int_equal(t.row_count, 2);
    assert_true(t.polled);
    assert_string_equal(t.rails[0].name, "gpu0");
    assert_int_equal(t.rails[1].kind, PJ_RAIL_AVERAGE);
    assert_true(isnan(t.mw[0]) && t.gap[0]);
    assert_near((double)t.mw[2], 61200, 0.01);
    assert_that(t.t_ms[1], ==, 100);
    pj_trace_fini(&t);
    /* A log of one GPU may name it; rows of several must not pass for readings of one. */
    static const char one[] = "timestamp, index, power.draw [W]\n"
                              "2026/01/01 00:00:00.000, 1, 61.00 W\n"
                              "2026/01/01 00:00:00.100, 1, 62.00 W\n";
    static const char two[] = "timestamp, index, power.draw [W]\n"
                              "2026/01/01 00:00:00.000, 0, 61.00 W\n"
                              "2026/01/01 00:00:00.001, 1, 300.00 W\n";
    pj_error err;
    assert_int_equal(pj_trace_read_csv(one, sizeof one - 1, "t", &t, &err), PJ_OK);
    assert_int_equal(t.row_count, 2);
    pj_trace_fini(&t);
    assert_int_equal(pj_trace_read_csv(two, sizeof two - 1, "t", &t, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "several GPUs"));
    assert_null(t.t_ms);
}

/* Each file by its columns; powers in milliwatts. */
static void traces_of_other_tools(void **state)
{
    static const struct {
        const char *text, *rail;
        pj_rail_class rail_class;
        double t_ms, mw, window_ms; /* of the last row */
        pj_source_quality quality;
    } files[] = {
        /* our export: the quality of its run is elsewhere */
        {"id,run_id,timestamp_ms,cpu_power_mw,gpu_power_mw,total_power_mw,phase,phase_confidence\n"
         "1,01a2,2.5,19581,,19581,idle,0.75\n2,01a2,12.5,49178.2,,49178.2,decode,1\n",
         "cpu", PJ_RAIL_CPU, 10, 49178.2, 0, PJ_MODELLED},
        /* Zeus: powers */
        {"Time,Power\n2021-09-30 22:59:13.234,37.5\n2021-09-30 22:59:13.334,38.5\n", "gpu0",
         PJ_RAIL_GPU, 100, 38500, 0, PJ_MEASURED},
        {"time,power0,power1\n1695000000.25,60,70\n1695000000.50,61,71\n", "gpu0", PJ_RAIL_GPU, 250,
         61000, 0, PJ_MEASURED},
        /* Zeus: windows of energy; one that lies in another is left out */
        {"start_time,window_name,elapsed_time,gpu0_energy\n100,a,2,500\n101,inner,0.5,200\n"
         "102.5,b,4,1000\n",
         "gpu0", PJ_RAIL_GPU, 4500, 250000, 4000, PJ_MEASURED},
        /* nvidia-smi dmon -s p -o DT */
        {"#Date       Time        gpu    pwr  gtemp  mtemp\n"
         "#YYYYMMDD   HH:MM:SS    Idx      W      C      C\n"
         " 20230101   12:00:00      0     45     30      -\n"
         " 20230101   12:00:01      0     46     30      -\n",
         "gpu0", PJ_RAIL_GPU, 1000, 46000, 0, PJ_MEASURED},
        {"unix_us,total_w\n1688840907417245,112.5\n1688840907418245,114\n", "total", PJ_RAIL_TOTAL,
         1, 114000, 0, PJ_MEASURED},
        /* powermetrics without --format plist */
        {"Machine model: Macmini9,1\n\n"
         "*** Sampled system activity (Sun Feb 28 00:17:04 2021 -0800) (1005.03ms elapsed) ***\n\n"
         "cpu 0 frequency: 1177 MHz\nCPU Power: 23 mW\nGPU Power: 1 mW\n\n"
         "*** Sampled system activity (Sun Feb 28 00:17:05 2021 -0800) (1000.00ms elapsed) ***\n\n"
         "CPU Power: 4321 mW\nGPU Power: 2 mW\n**** GPU usage ****\nGPU Power: 2 mW\n",
         "cpu", PJ_RAIL_CPU, 2005.03, 4321, 1000, PJ_MEASURED}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        pj_trace t;
        pj_error err;
        const char *text = files[i].text;
        if (pj_trace_read(text, strlen(text), "t", &t, &err) != PJ_OK)
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(t.row_count, 2);
        assert_string_equal(t.rails[0].name, files[i].rail);
        assert_int_equal(t.rails[0].rail_class, files[i].rail_class);
        assert_int_equal(t.rails[0].quality, files[i].quality);
        assert_near(t.t_ms[1], files[i].t_ms, 1e-3);
        assert_near((double)t.mw[t.rail_count], files[i].mw, 1e-2);
        if (files[i].window_ms > 0) assert_near((double)t.window_ms[1], files[i].window_ms, 1e-3);
        assert_true(pj_rail_in_column(t.rails, t.rail_count, 0, PJ_RAIL_TOTAL) ||
                    t.rails[0].parent >= 0);
        pj_trace_fini(&t);
    }
}

/* What is missing is named, with what there is. */
static void traces_without_a_column(void **state)
{
    static const struct {
        const char *text, *missing, *found;
    } files[] = {{"dataset,power_limit,average_power\nc,100,9\n", "column of times", "power_limit"},
                 {"timestamp_ms,phase\n1,idle\n", "column of power", "timestamp_ms, phase"},
                 {"start_time,gpu0_energy\n1,2\n", "column of durations", "gpu0_energy"},
                 {"# gpu    pwr\n# Idx W\n 0 45\n", "nvidia-smi dmon -o DT", "gpu, pwr"}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        pj_trace t;
        pj_error err;
        const char *text = files[i].text;
        assert_int_equal(pj_trace_read(text, strlen(text), "t", &t, &err), PJ_E_INVALID);
        assert_non_null(strstr(err.text, files[i].missing));
        assert_non_null(strstr(err.text, files[i].found));
    }
}

static void hopeless_traces(void **state)
{
    static const char *const bad[] = {"",
                                      "\n\n\n",
                                      "a,b\n1,2\n",
                                      "timestamp_ms,phase\n1,idle\n",
                                      "cpu_mw\n1\n",
                                      "timestamp_ms,cpu_mw\n",
                                      "timestamp_ms,_mw\n1,2\n",
                                      "timestamp_ms,cpu_mw\nx,y\n"};
    pj_error err;
    pj_trace t;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pj_trace_read_csv(bad[i], strlen(bad[i]), "t", &t, &err), PJ_E_INVALID);
        assert_null(t.t_ms);
    }
}

static void traces_without_memory(void **state)
{
    static const char text[] = "timestamp_ms,cpu_mw\n1,2\n2,3\n";
    (void)state;
    for (int n = 0; n < 3; n++) {
        pj_trace t;
        pj_memory_fail_after(n);
        assert_int_equal(pj_trace_read_csv(text, sizeof text - 1, "t", &t, NULL), PJ_E_NO_MEMORY);
        pj_memory_fail_after(-1);
    }
}

/* ---- meters ----------------------------------------------------------------------------- */

static pj_meter *open_meter(const char *sources, pj_power_env *env)
{
    pj_meter *meter;
    pj_error err;
    pj_meter_options options = {.sources = sources, .env = env};
    if (pj_meter_open(&options, &meter, &err) != PJ_OK) fail_msg("%s: %s", sources, err.text);
    return meter;
}

static pj_status refusal(const char *sources, pj_power_env *env)
{
    pj_meter *meter;
    pj_error err = {0};
    pj_meter_options options = {.sources = sources, .env = env};
    pj_status status = pj_meter_open(&options, &meter, &err);
    assert_null(meter);
    assert_that(strlen(err.text), >, 10);
    return status;
}

static void meters_without_power(void **state)
{
    pj_power_env env = {.sysfs_root = folder,
                        .procfs_root = folder,
                        .nvml_library = "/nonexistent",
                        .powermetrics = "/nonexistent/powermetrics"};
    pj_baseline baseline;
    pj_meter_cost cost;
    (void)state;
    pj_meter *meter = open_meter("auto", &env);
    assert_int_equal(pj_meter_quality(meter), PJ_UNAVAILABLE);
    assert_non_null(strstr(pj_meter_remedy(meter), "perjoule sensors"));
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    assert_int_equal(pj_meter_baseline(meter, 1000000, &baseline, NULL), PJ_OK);
    assert_true(isnan(baseline.mw[0]));
    pj_meter_get_cost(meter, &cost);
    pj_meter_close(meter);
    assert_int_equal(refusal("estimate", &env), PJ_E_UNAVAILABLE); /* there is no /proc/stat here */
    assert_int_equal(refusal("replay:/nonexistent.csv", &env), PJ_E_NOT_FOUND);
    assert_int_equal(refusal("sim:bogus", &env), PJ_E_INVALID);
    assert_int_equal(refusal("estimate:full_w=5,idle_w=9", &env), PJ_E_INVALID);
}

/* One source that cannot be used does not stop the others, and says why. */
static void others_go_on(void **state)
{
    pj_power_env env = {.sysfs_root = folder, .procfs_root = folder};
    pj_meter_event event;
    char text[600];
    (void)state;
    pj_meter *meter = open_meter("estimate,sim", &env);
    assert_string_equal(pj_meter_sources(meter), "sim");
    assert_int_equal(pj_meter_quality(meter), PJ_MODELLED);
    assert_true(pj_meter_next_event(meter, &event));
    assert_int_equal(event.kind, PJ_METER_SOURCE_SKIPPED);
    pj_meter_event_text(meter, &event, text, sizeof text);
    assert_non_null(strstr(text, "procfs"));
    pj_meter_close(meter);
    /* A source that "auto" does not find was not asked for, so nothing is reported. */
    env.nvml_library = env.powermetrics = "/nonexistent/powermetrics";
    meter = open_meter("auto,sim", &env);
    assert_string_equal(pj_meter_sources(meter), "sim");
    assert_false(pj_meter_next_event(meter, &event));
    pj_meter_close(meter);
}

static void estimate_follows_utilisation(void **state)
{
    char path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/proc", folder);
    assert_int_equal(pj_dir_make(path, NULL), PJ_OK);
    file_with("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\n");
    file_with("proc/cpuinfo", "processor : 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\n");
    pj_power_env env = {.sysfs_root = folder, .procfs_root = folder};
    pj_meter *meter = open_meter("estimate:full_w=100,idle_w=20", &env);
    pj_reading reading = {0};
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    int64_t until = pj_clock_ns() + 10 * PJ_NS_PER_S;
    pj_clock_sleep_until(pj_clock_ns() + 150 * PJ_NS_PER_MS);
    file_with("proc/stat", "cpu  150 0 150 900 0 0 0 0 0 0\n"); /* 100 of 200 ticks busy */
    while (pj_meter_read(meter, &reading, 1) == 0 && pj_clock_ns() < until)
        pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    /* the file is replaced by renaming, so an open descriptor may still see the first */
    assert_true(reading.after_ns == 0 || fabs(reading.value - 60e3) < 1);
    pj_meter_close(meter);
}

static void tdp_by_whole_words(void **state)
{
    (void)state;
    assert_null(pj_tdp_find("AMD EPYC"));
    assert_that(pj_tdp_find("AMD EPYC 7763 64-Core Processor")->watts, ==, 280);
    assert_that(pj_tdp_find("AMD Ryzen 7 7800X3D 8-Core Processor")->watts, ==, 120);
    assert_string_equal(pj_tdp_find("Apple M2 Max")->model, "Apple M2 Max");
    assert_string_equal(pj_tdp_find("Apple M2")->model, "Apple M2");
    assert_null(pj_tdp_find("Intel(R) Xeon(R) Platinum 84801 CPU"));
}

/* A recording played back has the energy it was recorded with. */
static void replay_gives_back_the_energy(void **state)
{
    char text[4096] = "timestamp_ms,cpu_mw,phase\n";
    (void)state;
    for (int i = 0; i <= 30; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%d,%d,idle\n", 500 + i * 20,
                 i < 15 ? 10000 : 50000);
    }
    char list[600];
    snprintf(list, sizeof list, "replay:%s", file_with("trace.csv", text));
    pj_power_env env = {.sysfs_root = "", .procfs_root = ""};
    pj_meter *meter = open_meter(list, &env);
    uint32_t rail_count;
    pj_curve *curve = pj_curve_new(pj_meter_rails(meter, &rail_count));
    pj_meter_event event = {0};
    assert_int_equal(rail_count, 1);
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    while (event.kind != PJ_METER_SOURCE_LOST) { /* the end of the recording */
        pj_reading reading;
        if (!pj_meter_next_event(meter, &event)) event.kind = PJ_METER_FROZEN;
        while (pj_meter_read(meter, &reading, 1) == 1) pj_curve_add(curve, &reading, NULL);
        pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    }
    int64_t begin, end;
    assert_true(pj_curve_span(curve, &begin, &end));
    assert_near(end - begin, 620 * PJ_NS_PER_MS, PJ_NS_PER_MS);
    double mj = pj_curve_energy_mj(curve, end - 600 * PJ_NS_PER_MS, end);
    assert_near(mj, (14 * 10000 + 16 * 50000) * 0.02, 1);
    pj_curve_free(curve);
    pj_meter_close(meter);
}

/* On a busy machine the sampler's thread may begin late; starting waits for its first reading. */
static void meters_start_with_a_reading(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        pj_reading reading;
        pj_meter *meter = open_meter("sim:idle_mw=20000", &(pj_power_env){0});
        assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
        int64_t started_ns = pj_clock_ns();
        pj_meter_stop(meter);
        assert_int_equal(pj_meter_read(meter, &reading, 1), 1);
        assert_that(reading.after_ns, <=, started_ns);
        pj_meter_close(meter);
    }
}

/* A counter that nobody read for a while has counted meanwhile. */
static void counters_count_on_unread(void **state)
{
    enum { UNREAD_MS = 1100 };
    pj_reading readings[2];
    uint32_t count;
    (void)state;
    const pj_power_source *source = pj_power_source_find("sim", 3);
    void *sim = pj_alloc(1, source->state_bytes);
    assert_non_null(sim);
    assert_int_equal(
        source->open(sim, NULL, "idle_mw=30000,noise=0.2,resolution_mj=0", &(pj_source_report){0}),
        PJ_OK);
    source->read(sim, &readings[0], 1, &count);
    assert_int_equal(count, 1);
    pj_clock_sleep_until(readings[0].after_ns + UNREAD_MS * PJ_NS_PER_MS);
    source->read(sim, &readings[1], 1, &count);
    assert_int_equal(count, 1);
    double ms = (double)(readings[1].after_ns - readings[0].after_ns) * 1e-6;
    assert_that(ms, >=, UNREAD_MS - 1);
    assert_near((readings[1].value - readings[0].value) / ms / 30e3, 1, 0.02);
    pj_free(sim);
}

/* A lagging sensor shows a load late, also while it is simulated live: the curve, which undoes the
 * lag, has the energy of the load and no more. So has that of a counter with a log. */
static void a_live_load_has_its_energy(void **state)
{
    static const char *const lists[] = {"sim:preset=nvml-kepler2,idle_mw=10000",
                                        "sim:preset=nvml-fermi,idle_mw=10000",
                                        "sim:preset=nvml-h200,idle_mw=10000"};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        uint32_t count;
        pj_curve *curves[2];
        pj_meter *meter = open_meter(lists[i], &(pj_power_env){0});
        const pj_rail *rails = pj_meter_rails(meter, &count);
        assert_that(count, <=, 2);
        for (uint32_t r = 0; r < count; r++) curves[r] = pj_curve_new(&rails[r]);
        pj_curves_link(curves, rails, count);
        assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
        pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_S);
        int64_t begin_ns = pj_clock_ns();
        pj_meter_set_activity(meter, 30000);
        pj_clock_sleep_until(begin_ns + PJ_NS_PER_S);
        int64_t end_ns = pj_clock_ns();
        pj_meter_set_activity(meter, 0);
        pj_clock_sleep_until(end_ns + PJ_NS_PER_S);
        assert_int_equal(pj_meter_fill(meter, curves, NULL), PJ_OK);
        double mj = pj_curve_energy_mj(curves[0], begin_ns - 500 * PJ_NS_PER_MS,
                                       end_ns + 500 * PJ_NS_PER_MS);
        assert_near(mj / (20e3 + 30e3 * (double)(end_ns - begin_ns) * 1e-9), 1, 0.01);
        while (count) pj_curve_free(curves[--count]);
        pj_meter_close(meter);
    }
}

/* A meter over simulated sensors: idle power, columns, activity. */
static void simulated_meter(void **state)
{
    pj_power_env env = {.sysfs_root = "", .procfs_root = ""};
    pj_baseline baseline;
    uint32_t count;
    (void)state;
    pj_meter *meter = open_meter("sim:rails=cpu+gpu,share=0.25+0.75,idle_mw=20000,total=1", &env);
    const pj_rail *rails = pj_meter_rails(meter, &count);
    assert_int_equal(count, 3);
    assert_non_null(pj_meter_sim(meter));
    assert_true(pj_rail_in_column(rails, count, 0, PJ_RAIL_CPU));
    assert_false(pj_rail_in_column(rails, count, 0, PJ_RAIL_TOTAL)); /* it has a rail of its own */
    assert_true(pj_rail_in_column(rails, count, 2, PJ_RAIL_TOTAL));
    assert_that(pj_meter_settle_ns(meter), >, 0);
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    assert_int_equal(pj_meter_baseline(meter, 300 * PJ_NS_PER_MS, &baseline, NULL), PJ_OK);
    assert_near(baseline.mw[0], 5000, 50);
    assert_near(baseline.mw[2], 20000, 200);
    pj_meter_set_activity(meter, 30000);
    pj_clock_sleep_until(pj_clock_ns() + 100 * PJ_NS_PER_MS);
    assert_int_equal(pj_meter_baseline(meter, 200 * PJ_NS_PER_MS, &baseline, NULL), PJ_OK);
    assert_near(baseline.mw[2], 50000, 500);
    pj_meter_close(meter);
}

int main(void)
{
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(bad_lists),
        cmocka_unit_test(secrets_of_lists),
        cmocka_unit_test(our_traces),
        cmocka_unit_test(logs_of_nvidia_smi),
        cmocka_unit_test(traces_of_other_tools),
        cmocka_unit_test(traces_without_a_column),
        cmocka_unit_test(hopeless_traces),
        cmocka_unit_test(traces_without_memory),
        cmocka_unit_test(meters_without_power),
        cmocka_unit_test(others_go_on),
        cmocka_unit_test(estimate_follows_utilisation),
        cmocka_unit_test(tdp_by_whole_words),
        cmocka_unit_test(replay_gives_back_the_energy),
        cmocka_unit_test(simulated_meter),
        cmocka_unit_test(a_live_load_has_its_energy),
        cmocka_unit_test(meters_start_with_a_reading),
        cmocka_unit_test(counters_count_on_unread),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
