/* IOReport over a stand-in that has the channels of several chips. */
#include "../assertions.h"
#include "base/memory.h"
#include "power/ioreport_channels.h"
#include "power/memory_traffic.h"
#include "power/meter.h"
#include "power/process_energy.h"
#include "power/source.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const pj_power_source pj_source_ioreport;

typedef struct machine {
    pj_power_env env;
    void *state, *library;
    pj_rail rails[PJ_MAX_RAILS];
    uint32_t count;
    pj_source_report report;
} machine;

static pj_status machine_open(machine *m, const char *behaviour)
{
    *m = (machine){.env = {.sysfs_root = "/nonexistent",
                           .procfs_root = "/nonexistent",
                           .nvml_library = "/nonexistent",
                           .powermetrics = "/nonexistent/powermetrics",
                           .ioreport_library = getenv("PJ_FAKE_IOREPORT")}};
    assert_non_null(m->env.ioreport_library);
    setenv("FAKE_IOREPORT", behaviour, 1);
    m->library = dlopen(m->env.ioreport_library, RTLD_NOW);
    assert_non_null(m->library);
    m->state = pj_alloc(1, pj_source_ioreport.state_bytes);
    pj_status status = pj_source_ioreport.open(m->state, &m->env, "", &m->report);
    if (status == PJ_OK) m->count = pj_source_ioreport.rails(m->state, m->rails);
    return status;
}

/* Everything that was made has been released. */
static void machine_close(machine *m)
{
    if (m->count) pj_source_ioreport.close(m->state);
    pj_source_ioreport.close(m->state); /* may run twice */
    pj_free(m->state);
    int (*live)(void) = (int (*)(void))dlsym(m->library, "fake_ioreport_live");
    assert_int_equal(live(), 0);
    dlclose(m->library); /* reads are counted from 0 again */
}

static int rail_of(const machine *m, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (strcmp(m->rails[i].name, name) == 0) return (int)i;
    return -1;
}

static void assert_names(const machine *m, const char *expected)
{
    char names[512] = "";
    for (uint32_t i = 0; i < m->count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? " " : "", m->rails[i].name);
    }
    assert_string_equal(names, expected);
}

static pj_status machine_read(machine *m, pj_reading *readings)
{
    uint32_t count = 0;
    pj_status status = pj_source_ioreport.read(m->state, readings, PJ_MAX_RAILS, &count);
    if (status == PJ_OK) assert_int_equal(count, m->count);
    return status;
}

static double value_of(const machine *m, const pj_reading *readings, const char *name)
{
    int rail = rail_of(m, name);
    assert_true(rail >= 0);
    return readings[rail].value;
}

/* Energy of one read's step, microjoules. */
static double step_of(machine *m, const char *name)
{
    pj_reading first[PJ_MAX_RAILS], second[PJ_MAX_RAILS];
    assert_int_equal(machine_read(m, first), PJ_OK);
    assert_int_equal(machine_read(m, second), PJ_OK);
    return value_of(m, second, name) - value_of(m, first, name);
}

static void every_chip_has_its_rails(void **state)
{
    static const struct {
        const char *chip, *rails;
    } chips[] = {
        /* no memory energy: missing, not 0; numbered ECPU0 and PCPU3 are cores */
        {"chip=m1", "cpu cpu-e cpu-p gpu-sram ane gpu"},
        {"chip=m2", "cpu cpu-e cpu-p0 cpu-p1 gpu-sram ane dram dram-channels dram-controllers gpu"},
        /* its ANE has counted nothing since boot */
        {"chip=m4", "cpu cpu-e cpu-p0 cpu-p1 gpu-sram dram dram-channels dram-controllers gpu"},
        {"chip=m5max", "cpu cpu-m0 cpu-m1 cpu-p ane dram dram-channels dram-controllers gpu"},
        {"chip=m1ultra", "cpu cpu-die0-e cpu-die0-p1 cpu-die1-e gpu-sram ane dram gpu"},
        {"chip=m6", "gpu"},
    };
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        machine m;
        assert_int_equal(machine_open(&m, chips[i].chip), PJ_OK);
        assert_names(&m, chips[i].rails);
        for (uint32_t r = 0; r < m.count; r++) {
            assert_int_equal(m.rails[r].kind, PJ_RAIL_COUNTER);
            assert_int_equal(m.rails[r].period_ns, 0); /* measured, not believed */
            bool part = strncmp(m.rails[r].name, "cpu-", 4) == 0;
            if (part) assert_string_equal(m.rails[m.rails[r].parent].name, "cpu");
            if (strcmp(m.rails[r].name, "gpu-sram") == 0)
                assert_string_equal(m.rails[m.rails[r].parent].name, "gpu");
        }
        machine_close(&m);
    }
}

static void units_are_each_channels_own(void **state)
{
    static const char *const ways[] = {"chip=m2", "chip=m2,labels"};
    for (int i = 0; i < 2; i++) {
        machine m;
        assert_int_equal(machine_open(&m, ways[i]), PJ_OK);
        assert_near(step_of(&m, "cpu"), 500e3, 1e-3);     /* mJ */
        assert_near(step_of(&m, "gpu"), 12345.678, 1e-3); /* nJ */
        assert_near(m.rails[rail_of(&m, "gpu")].resolution, 1e-3, 1e-12);
        machine_close(&m);
    }
}

static void nothing_is_counted_twice(void **state)
{
    machine m;
    assert_int_equal(machine_open(&m, "chip=m1ultra"), PJ_OK);
    assert_near(step_of(&m, "cpu"), 550e3, 1e-3); /* both dies */
    assert_near(step_of(&m, "ane"), 16e3, 1e-3);
    assert_near(step_of(&m, "dram"), 130e3, 1e-3);
    double values[PJ_MAX_RAILS];
    for (uint32_t i = 0; i < m.count; i++) values[i] = 1000;
    /* cpu + gpu + ane + dram: neither clusters nor the GPU's SRAM again */
    assert_near(pj_rail_column_sum(m.rails, m.count, values, PJ_RAIL_TOTAL), 4000, 1e-9);
    machine_close(&m);

    assert_int_equal(machine_open(&m, "chip=m6"), PJ_OK); /* no GPU Energy: its parts */
    assert_near(step_of(&m, "gpu"), 12e3, 1e-3);
    machine_close(&m);

    assert_int_equal(machine_open(&m, "chip=m2"), PJ_OK);
    for (uint32_t i = 0; i < m.count; i++) values[i] = 1000;
    assert_near(pj_rail_column_sum(m.rails, m.count, values, PJ_RAIL_DRAM), 3000, 1e-9);
    machine_close(&m);
}

static void failures_are_gaps_never_zeros(void **state)
{
    machine m;
    pj_reading readings[PJ_MAX_RAILS];
    assert_int_equal(machine_open(&m, "chip=m2,gap=2,odd=3"), PJ_OK); /* opening reads once */
    assert_int_equal(machine_read(&m, readings), PJ_E_IO);
    assert_int_equal(machine_read(&m, readings), PJ_OK);
    assert_int_equal(readings[rail_of(&m, "cpu")].status, PJ_READING_GAP);
    assert_true(isnan(value_of(&m, readings, "cpu")));
    assert_int_equal(readings[rail_of(&m, "gpu")].status, PJ_READING_OK);
    assert_int_equal(machine_read(&m, readings), PJ_OK);
    assert_that(value_of(&m, readings, "cpu"), >, 0);
    machine_close(&m);
}

static void refusals_are_said(void **state)
{
    static const struct {
        const char *behaviour, *reason;
    } cases[] = {
        {"chip=m2,refuse=Energy Model", "refuses a subscription to Energy Model"},
        {"chip=none", "has no group Energy Model"},
        {"chip=m2,gap=1", "have no values"},
    };
    machine m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(machine_open(&m, cases[i].behaviour), PJ_E_UNAVAILABLE);
        assert_non_null(strstr(m.report.reason, cases[i].reason));
        machine_close(&m);
    }
    assert_int_equal(machine_open(&m, "chip=m2,refusepart"), PJ_OK); /* then all of it */
    assert_near(step_of(&m, "cpu"), 500e3, 1e-3);
    machine_close(&m);

    pj_power_env env = {.ioreport_library = "/nowhere/libIOReport.dylib"};
    pj_source_report report = {0};
    void *nothing = pj_alloc(1, pj_source_ioreport.state_bytes);
    assert_int_equal(pj_source_ioreport.open(nothing, &env, "", &report), PJ_E_UNAVAILABLE);
    assert_non_null(strstr(report.reason, "there is no /nowhere/libIOReport.dylib"));
    pj_free(nothing);
}

/* A reset is seen as one, and a slow channel's repeats as repeats. */
static void cadences_are_the_channels_own(void **state)
{
    machine m;
    pj_reading readings[PJ_MAX_RAILS];
    double cpu[6], gpu[6];
    assert_int_equal(machine_open(&m, "chip=m5max,slow"), PJ_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(machine_read(&m, readings), PJ_OK);
        cpu[i] = value_of(&m, readings, "cpu");
        gpu[i] = value_of(&m, readings, "gpu");
        if (i > 0) assert_near(gpu[i] - gpu[i - 1], 12345.678, 1e-3);
    }
    int changes = 0;
    for (int i = 1; i < 6; i++) changes += cpu[i] > cpu[i - 1];
    assert_int_equal(changes, 2);
    assert_near(cpu[5] - cpu[0], 2 * 3 * 500e3, 1e-3);
    machine_close(&m);
}

static void names_are_told_apart_by_rule(void **state)
{
    static const char all[][PJ_IOREPORT_NAME_BYTES] = {"PCPU1", "PCPU1DTL00", "PCPU2",
                                                       "PCPU2_SRAM"};
    static const struct {
        const char *name;
        pj_ioreport_kind kind;
    } names[] = {
        {"DIE_3_CPU Energy", PJ_IOREPORT_CPU_DIE},
        {"PCPU1", PJ_IOREPORT_CLUSTER},
        {"PCPU2", PJ_IOREPORT_OTHER},
        {"DIE_x_PCPU", PJ_IOREPORT_OTHER},
        {"ECPM", PJ_IOREPORT_OTHER},
        {"PCPU010", PJ_IOREPORT_OTHER},
        {"DIE_1_PACC0_CPU", PJ_IOREPORT_CLUSTER},
        {"DIE_1_PACC0_CPU3_SRAM", PJ_IOREPORT_OTHER},
        {"ANEXL0", PJ_IOREPORT_OTHER},
        {"GPU_CS", PJ_IOREPORT_OTHER},
        {"", PJ_IOREPORT_OTHER},
        {"DRAM", PJ_IOREPORT_DRAM},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(pj_ioreport_energy_kind(names[i].name, all, 4), names[i].kind);
    assert_int_equal(pj_ioreport_traffic_kind("DIE1 DCS WR"), PJ_IOREPORT_WRITTEN);
    assert_int_equal(pj_ioreport_traffic_kind("ANE0 DCS RD"), PJ_IOREPORT_OTHER);
    assert_near(pj_ioreport_microjoules(3ull << 56, ""), 1e6, 1e-9);
    assert_true(isnan(pj_ioreport_microjoules(4ull << 56, ""))); /* another quantity */
    assert_true(isnan(pj_ioreport_microjoules(0, "bananas")));
    assert_near(pj_ioreport_microjoules(0, "\302\265J"), 1, 1e-9);
}

/* With IOReport powermetrics is not even started, unless it is named. */
static void powermetrics_is_the_spare(void **state)
{
    machine m;
    pj_meter *meter;
    pj_error err;
    pj_meter_options options = {.skip_characterise = true, .env = &m.env, .sources = "auto"};
    assert_int_equal(machine_open(&m, "chip=m4"), PJ_OK);
    m.env.powermetrics = "/bin/echo sudo: a password is required";
    assert_int_equal(pj_meter_open(&options, &meter, &err), PJ_OK);
    assert_string_equal(pj_meter_sources(meter), "ioreport");
    assert_string_equal(pj_meter_unread(meter), "");
    pj_meter_event event;
    assert_false(pj_meter_next_event(meter, &event));
    pj_meter_close(meter);

    options.sources = "ioreport,powermetrics";
    assert_int_equal(pj_meter_open(&options, &meter, &err), PJ_OK);
    assert_true(pj_meter_next_event(meter, &event)); /* named, and cannot be used: said */
    pj_meter_close(meter);
    machine_close(&m);

    assert_int_equal(machine_open(&m, "chip=m6"), PJ_OK); /* the CPU has no channel there */
    options.sources = "auto";
    assert_int_equal(pj_meter_open(&options, &meter, &err), PJ_OK);
    assert_string_equal(pj_meter_unread(meter), "cpu");
    pj_meter_close(meter);
    machine_close(&m);
}

static void traffic_is_counted_where_the_chip_lets(void **state)
{
    static const struct {
        const char *behaviour;
        double read_bytes, written_bytes; /* per read; 0: not counted */
    } chips[] = {
        {"chip=m1", 4096, 1024},
        {"chip=m4", 4096, 512}, /* of both dies */
        {"chip=m1,refuse=AMC Stats", 0, 0},
        {"chip=m1,odd=1", 0, 0}, /* listed, but no counts */
        {"chip=m5max", 0, 0},
        {"chip=m6", 0, 0},
    };
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        machine m;
        double a[2], b[2];
        assert_int_equal(machine_open(&m, "chip=none"), PJ_E_UNAVAILABLE);
        setenv("FAKE_IOREPORT", chips[i].behaviour, 1);
        pj_memory_traffic *t = pj_memory_traffic_open(&m.env);
        assert_int_equal(t != NULL, chips[i].read_bytes > 0);
        if (t) {
            pj_memory_traffic_read(t, &a[0], &a[1]);
            pj_memory_traffic_read(t, &b[0], &b[1]);
            assert_near(b[0] - a[0], chips[i].read_bytes, 1e-9);
            assert_near(b[1] - a[1], chips[i].written_bytes, 1e-9);
        }
        pj_memory_traffic_close(t);
        machine_close(&m);
    }
}

static void a_process_has_the_energy_that_the_system_says(void **state)
{
    machine m;
    assert_int_equal(machine_open(&m, "chip=m2,process=2500000"), PJ_OK);
    assert_near(pj_process_energy_mj(&m.env, 7), 2.5, 1e-9);
    assert_near(pj_process_energy_mj(&m.env, 7), 5, 1e-9);
    assert_true(isnan(pj_process_energy_mj(&m.env, 0))); /* refused */
    setenv("FAKE_IOREPORT", "chip=m2", 1);
    assert_true(isnan(pj_process_energy_mj(&m.env, 7))); /* an Intel Mac says 0 */
    m.env.ioreport_library = NULL;
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chip_has_its_rails),
        cmocka_unit_test(units_are_each_channels_own),
        cmocka_unit_test(nothing_is_counted_twice),
        cmocka_unit_test(failures_are_gaps_never_zeros),
        cmocka_unit_test(refusals_are_said),
        cmocka_unit_test(cadences_are_the_channels_own),
        cmocka_unit_test(names_are_told_apart_by_rule),
        cmocka_unit_test(powermetrics_is_the_spare),
        cmocka_unit_test(traffic_is_counted_where_the_chip_lets),
        cmocka_unit_test(a_process_has_the_energy_that_the_system_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
