/* The vendor sources on machines made of files and stand-ins: fake sysfs trees, a fake NVML
 * library, a fake powermetrics. Faults are those that real machines show. */
#include "../assertions.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "power/meter.h"
#include "power/powermetrics_plist.h"
#include "power/source.h"
#include "power/trace_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64]; /* of the fake machine */

static void machine_begin(void)
{
    snprintf(root, sizeof root, "/tmp/pj-vendor-XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void machine_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "chmod -R u+rwX %s; rm -rf %s", root, root);
    assert_int_equal(system(command), 0);
}

static void put(const char *path, const char *text)
{
    char whole[512], folder[512];
    pj_error err;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%s", whole);
    *strrchr(folder, '/') = 0;
    assert_int_equal(pj_dir_make(folder, &err), PJ_OK);
    FILE *f = fopen(whole, "w"); /* in place: a kept-open descriptor sees the new text */
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void *open_source(const char *name, const pj_power_env *env, pj_status expected,
                         pj_error *err)
{
    const pj_power_source *s = pj_power_source_find(name, strlen(name));
    assert_non_null(s);
    void *state = pj_alloc(1, s->state_bytes);
    pj_source_report report = {0};
    assert_int_equal(s->open(state, env, "", &report), expected);
    if (expected == PJ_OK) return state;
    pj_fail(err, expected, "%s; %s", report.reason, report.remedy);
    assert_that(err->text[0], !=, 0);
    assert_false(strchr(err->text, '\n'));
    pj_free(state);
    return NULL;
}

static pj_source_report report_of(const pj_power_source *s, const pj_power_env *env)
{
    pj_source_report report = {0};
    void *state = pj_alloc(1, s->state_bytes);
    if (s->open(state, env, "", &report) == PJ_OK) s->close(state);
    pj_free(state);
    return report;
}

static void close_source(const char *name, void *state)
{
    const pj_power_source *s = pj_power_source_find(name, strlen(name));
    s->close(state);
    s->close(state);
    pj_free(state);
}

static uint32_t rails_of(const char *name, void *state, pj_rail *rails)
{
    return pj_power_source_find(name, strlen(name))->rails(state, rails);
}

static pj_status read_source(const char *name, void *state, pj_reading *readings, uint32_t *count)
{
    return pj_power_source_find(name, strlen(name))
        ->read(state, readings, PJ_SOURCE_READ_MAX, count);
}

static const pj_rail *rail_named(const pj_rail *rails, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rails[i].name, name) == 0) return &rails[i];
    fail_msg("no rail %s", name);
    return NULL;
}

/* ---- RAPL ------------------------------------------------------------------------------------ */

#define ZONE "/sys/class/powercap/intel-rapl:"

static void put_zone(const char *number, const char *name, const char *energy)
{
    char path[256];
    snprintf(path, sizeof path, ZONE "%s/name", number);
    put(path, name);
    snprintf(path, sizeof path, ZONE "%s/energy_uj", number);
    put(path, energy);
    snprintf(path, sizeof path, ZONE "%s/max_energy_range_uj", number);
    put(path, "262143328850\n");
}

static void rapl_nests_its_domains(void **state)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading readings[PJ_SOURCE_READ_MAX];
    uint32_t count, read;
    pj_error err;
    machine_begin();
    put_zone("0", "package-0\n", "1000000\n");
    put_zone("0:0", "core\n", "400000\n");
    put_zone("0:1", "dram\n", "70000\n");
    put_zone("1", "package-1\n", "2000000\n");
    put_zone("2", "psys\n", "9000000\n");
    put(ZONE "0/constraint_0_power_limit_uw", "125000000\n");
    put("/sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"); /* the same domain again */
    put("/sys/class/powercap/intel-rapl-mmio:0/energy_uj", "55\n");
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    void *s = open_source("rapl", &env, PJ_OK, &err);
    count = rails_of("rapl", s, rails);
    assert_int_equal(count, 5);
    const pj_rail *cpu0 = rail_named(rails, count, "cpu0"),
                  *core = rail_named(rails, count, "core0");
    const pj_rail *psys = rail_named(rails, count, "psys");
    assert_int_equal(cpu0->rail_class, PJ_RAIL_CPU);
    assert_ptr_equal(&rails[core->parent], cpu0);
    assert_ptr_equal(&rails[cpu0->parent], psys);
    assert_int_equal(psys->rail_class, PJ_RAIL_PLATFORM);
    assert_int_equal(rail_named(rails, count, "dram0")->rail_class, PJ_RAIL_DRAM);
    assert_that(cpu0->max_mw, ==, 125000);
    /* The modulus is one unit more than the range: 2^32 units of 61.035 uJ. */
    assert_near(cpu0->modulus_uj - 262143328850.0, 61.035, 0.01);
    assert_int_equal(read_source("rapl", s, readings, &read), PJ_OK);
    assert_int_equal(read, 5);
    assert_that(readings[cpu0 - rails].value, ==, 1000000);
    assert_that(readings[0].before_ns, <=, readings[0].after_ns);
    close_source("rapl", s);
    machine_end();
}

static void rapl_failures_are_gaps_never_zeros(void **state)
{
    static const char *const broken[] = {"", "\n", "N/A\n", "99999999999999999999999\n", "0x10\n"};
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t count;
    pj_error err;
    machine_begin();
    put_zone("0", "package-0\n", "1000000\n");
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    void *s = open_source("rapl", &env, PJ_OK, &err);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put(ZONE "0/energy_uj", broken[i]);
        assert_int_equal(read_source("rapl", s, r, &count), PJ_OK);
        assert_int_equal(r[0].status, PJ_READING_GAP);
        assert_int_equal(r[0].reason, PJ_REASON_NOT_A_NUMBER);
        assert_true(isnan(r[0].value));
    }
    put(ZONE "0/energy_uj", "1000061\n");
    read_source("rapl", s, r, &count);
    assert_int_equal(r[0].status, PJ_READING_OK);
    assert_that(r[0].value, ==, 1000061);
    close_source("rapl", s);
    machine_end();
}

static void rapl_says_what_is_missing(void **state)
{
    pj_source_report report;
    pj_error err;
    const pj_power_source *rapl = pj_power_source_find("rapl", 4);
    machine_begin();
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    report = report_of(rapl, &env);
    assert_int_equal(report.state, PJ_SOURCE_ABSENT);
    assert_non_null(strstr(report.remedy, "modprobe"));
    put("/proc/cpuinfo", "flags : fpu hypervisor avx\n");
    report = report_of(rapl, &env);
    assert_non_null(strstr(report.reason, "virtual machine"));
    put_zone("0", "package-0\n", "12\n");
    char path[256];
    snprintf(path, sizeof path, "%s" ZONE "0/energy_uj", root);
    if (geteuid() == 0) {
        /* root may read everything; a folder in the file's place fails for root too */
        unlink(path);
        mkdir(path, 0700);
        report = report_of(rapl, &env);
        assert_int_equal(report.state, PJ_SOURCE_ABSENT);
    } else {
        chmod(path, 0);
        report = report_of(rapl, &env);
        assert_int_equal(report.state, PJ_SOURCE_DENIED);
        assert_non_null(strstr(report.remedy, "chmod a+r"));
        open_source("rapl", &env, PJ_E_DENIED, &err);
    }
    machine_end();
}

/* ---- hwmon ----------------------------------------------------------------------------------- */

#define CHIP "/sys/class/hwmon/hwmon"

static void hwmon_takes_the_best_of_each_channel(void **state)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t count, read;
    pj_error err;
    machine_begin();
    put(CHIP "0/name", "amdgpu\n");
    put(CHIP "0/power1_average", "35000000\n");
    put(CHIP "0/power1_input", "36000000\n");
    put(CHIP "0/power1_label", "PPT\n");
    put(CHIP "0/power1_cap", "220000000\n");
    put(CHIP "1/name", "xe\n");
    put(CHIP "1/energy1_input", "123456\n");
    put(CHIP "1/energy1_label", "card\n");
    put(CHIP "1/energy2_input", "23456\n");
    put(CHIP "1/energy2_label", "pkg\n");
    put(CHIP "2/name", "ina3221\n");
    put(CHIP "2/in1_input", "19000\n");
    put(CHIP "2/curr1_input", "500\n");
    put(CHIP "2/in1_label", "VDD_IN\n");
    put(CHIP "2/in2_input", "5000\n");
    put(CHIP "2/curr2_input", "100\n");
    put(CHIP "2/in2_label", "VDD_CPU_CV\n");
    put(CHIP "2/in3_input", "5000\n");
    put(CHIP "2/curr3_input", "100\n");
    put(CHIP "2/in3_enable", "0\n"); /* switched off */
    put(CHIP "2/in7_input", "8\n");  /* sum of shunts: no current, no rail */
    put(CHIP "2/in7_label", "sum of shunt voltages\n");
    put(CHIP "2/update_interval", "35\n");
    put(CHIP "10/name", "amdgpu\n");
    put(CHIP "10/power1_input", "7000000\n");
    put(CHIP "11/name", "nvme\n"); /* temperature only */
    put(CHIP "11/temp1_input", "40000\n");
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    void *s = open_source("hwmon", &env, PJ_OK, &err);
    count = rails_of("hwmon", s, rails);
    assert_int_equal(count, 6);
    const pj_rail *ppt = rail_named(rails, count, "amdgpu-ppt");
    assert_int_equal(ppt->rail_class, PJ_RAIL_GPU);
    assert_that(ppt->max_mw, ==, 220000);
    assert_string_equal(ppt->field, "power1_average");
    const pj_rail *card = rail_named(rails, count, "xe-card"),
                  *pkg = rail_named(rails, count, "xe-pkg");
    assert_int_equal(card->kind, PJ_RAIL_COUNTER);
    assert_ptr_equal(&rails[pkg->parent], card);
    const pj_rail *in = rail_named(rails, count, "ina3221-vdd_in");
    assert_int_equal(in->rail_class, PJ_RAIL_TOTAL);
    assert_int_equal(in->window_ns, 35000000);
    assert_ptr_equal(&rails[rail_named(rails, count, "ina3221-vdd_cpu_cv")->parent], in);
    rail_named(rails, count, "amdgpu1-power1");
    assert_int_equal(read_source("hwmon", s, r, &read), PJ_OK);
    assert_that(r[ppt - rails].value, ==, 35000);
    assert_that(r[card - rails].value, ==, 123456);
    assert_near(r[in - rails].value, 9500, 1e-9);
    put(CHIP "2/curr1_input", "garbage\n");
    read_source("hwmon", s, r, &read);
    assert_int_equal(r[in - rails].status, PJ_READING_GAP);
    assert_true(isnan(r[in - rails].value));
    close_source("hwmon", s);
    machine_end();
}

static void hwmon_knows_grace(void **state)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_error err;
    machine_begin();
    put(CHIP "0/name", "power_meter\n");
    put(CHIP "0/power1_average", "300000000\n");
    put(CHIP "0/power1_label", "Module Power Socket 0\n");
    put(CHIP "1/name", "power_meter\n");
    put(CHIP "1/power1_average", "120000000\n");
    put(CHIP "1/power1_label", "Grace Power Socket 0\n");
    put(CHIP "2/name", "power_meter\n");
    put(CHIP "2/power1_average", "80000000\n");
    put(CHIP "2/power1_label", "CPU Power Socket 0\n");
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    void *s = open_source("hwmon", &env, PJ_OK, &err);
    assert_int_equal(rails_of("hwmon", s, rails), 3);
    assert_int_equal(rails[0].rail_class, PJ_RAIL_TOTAL);
    assert_int_equal(rails[1].rail_class, PJ_RAIL_CPU);
    assert_int_equal(rails[1].parent, 0);
    assert_int_equal(rails[2].parent, 1);
    close_source("hwmon", s);
    machine_end();
}

/* ---- NVML -------------------------------------------------------------------------------------
 */

static void *open_nvml(const char *behaviour, const char *visible, pj_status expected,
                       pj_error *err)
{
    const char *library = getenv("PJ_FAKE_NVML");
    if (!library) skip();
    setenv("FAKE_NVML", behaviour, 1);
    pj_power_env env = {.sysfs_root = "", .nvml_library = library, .visible_devices = visible};
    return open_source("nvml", &env, expected, err);
}

static void nvml_prefers_the_counter(void **state)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t count, read;
    pj_error err;
    void *s = open_nvml("gpus=2,memory", NULL, PJ_OK, &err);
    count = rails_of("nvml", s, rails);
    assert_int_equal(count, 6);
    assert_string_equal(rails[0].name, "gpu0");
    assert_int_equal(rails[0].kind, PJ_RAIL_COUNTER);
    assert_int_equal(rails[0].rail_class, PJ_RAIL_GPU);
    assert_that(rails[0].max_mw, ==, 400000);
    assert_string_equal(rails[1].name, "gpu0-instant");
    assert_int_equal(rails[1].parent, 0);
    assert_int_equal(rails[1].rail_class, PJ_RAIL_PLATFORM);
    assert_string_equal(rails[2].name, "gpu0-memory");
    assert_string_equal(rails[3].name, "gpu1");
    assert_int_equal(read_source("nvml", s, r, &read), PJ_OK);
    assert_int_equal(read, 6);
    double first = r[0].value;
    assert_that(first, >=, 5e12); /* uJ: beyond 32 bits */
    read_source("nvml", s, r, &read);
    assert_that(r[0].value, >, first);
    assert_that(r[1].value, ==, 150000);
    close_source("nvml", s);
}

/* One of two GPUs has no readings: its rail stays, so that totals are marked partial. */
static void an_unreadable_gpu_keeps_its_rail(void **state)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t read;
    pj_error err;
    void *s = open_nvml("gpus=2,mute=1", NULL, PJ_OK, &err);
    assert_int_equal(rails_of("nvml", s, rails), 3);
    assert_string_equal(rails[2].name, "gpu1");
    assert_int_equal(rails[2].rail_class, PJ_RAIL_GPU);
    assert_int_equal(read_source("nvml", s, r, &read), PJ_OK);
    assert_int_equal(read, 3);
    assert_int_equal(r[0].status, PJ_READING_OK);
    assert_int_equal(r[2].status, PJ_READING_LOST);
    assert_true(isnan(r[2].value));
    close_source("nvml", s);
}

/* No GPU can be read: none is a rail, but a total without them is partial. */
static void unreadable_gpus_are_missing_from_totals(void **state)
{
    if (!getenv("PJ_FAKE_NVML")) skip();
    setenv("FAKE_NVML", "gpus=1,mute=0", 1);
    pj_power_env env = {.sysfs_root = "", .nvml_library = getenv("PJ_FAKE_NVML")};
    pj_meter_options options = {.sources = "sim,nvml", .env = &env, .skip_characterise = true};
    pj_meter *meter;
    assert_int_equal(pj_meter_open(&options, &meter, NULL), PJ_OK);
    assert_string_equal(pj_meter_unread(meter), "gpu");
    pj_meter_close(meter);
}

static void power_limits_are_read(void **state)
{
    double limits[PJ_MAX_RAILS];
    pj_error err;
    machine_begin();
    put_zone("0", "package-0\n", "1000000\n");
    put_zone("0:0", "core\n", "400000\n");
    put(ZONE "0/constraint_0_power_limit_uw", "125000000\n");
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    void *s = open_source("rapl", &env, PJ_OK, &err);
    const pj_power_source *rapl = pj_power_source_find("rapl", 4);
    assert_int_equal(rapl->limits(s, limits), 2);
    assert_that(limits[0], ==, 125000);
    assert_true(isnan(limits[1]));
    put(ZONE "0/constraint_0_power_limit_uw", "95000000\n");
    rapl->limits(s, limits);
    assert_that(limits[0], ==, 95000);
    close_source("rapl", s);
    machine_end();
    s = open_nvml("gpus=1", NULL, PJ_OK, &err);
    const pj_power_source *nvml = pj_power_source_find("nvml", 4);
    assert_that(nvml->limits(s, limits), >=, 1);
    assert_that(limits[0], ==, 300000);
    setenv("FAKE_NVML", "gpus=1,limit=250000", 1);
    nvml->limits(s, limits);
    assert_that(limits[0], ==, 250000);
    setenv("FAKE_NVML", "gpus=1,nolimit", 1);
    nvml->limits(s, limits);
    assert_true(isnan(limits[0]));
    close_source("nvml", s);
}

static void nvml_falls_back_step_by_step(void **state)
{
    static const struct {
        const char *behaviour, *field;
        pj_rail_kind kind;
        pj_rail_scope scope;
    } steps[] = {
        {"nocounter", "field 186 scope 0", PJ_RAIL_INSTANT, PJ_SCOPE_BOARD},
        {"nocounter,noinstant", "field 185 scope 0", PJ_RAIL_AVERAGE, PJ_SCOPE_BOARD},
        {"nocounter,nofields", "power usage", PJ_RAIL_AVERAGE, PJ_SCOPE_BOARD},
        {"nocounter,nofields,arch=6", "power usage", PJ_RAIL_INSTANT, PJ_SCOPE_BOARD},
        {"modulescope", "field 186 scope 1", PJ_RAIL_INSTANT, PJ_SCOPE_MODULE},
        {"mig", "total energy, whole board (MIG)", PJ_RAIL_COUNTER, PJ_SCOPE_BOARD},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        pj_rail rails[PJ_MAX_RAILS];
        pj_error err;
        void *s = open_nvml(steps[i].behaviour, NULL, PJ_OK, &err);
        rails_of("nvml", s, rails);
        assert_string_equal(rails[0].field, steps[i].field);
        assert_int_equal(rails[0].kind, steps[i].kind);
        assert_int_equal(rails[0].scope, steps[i].scope);
        close_source("nvml", s);
    }
}

static void nvml_timing_follows_the_card(void **state)
{
    pj_rail rails[PJ_MAX_RAILS];
    pj_error err;
    void *s = open_nvml("nocounter,name=NVIDIA A100-SXM4-40GB", NULL, PJ_OK, &err);
    rails_of("nvml", s, rails);
    assert_int_equal(rails[0].period_ns, 100000000);
    assert_int_equal(rails[0].window_ns, 25000000);
    close_source("nvml", s);
    s = open_nvml("nocounter,noinstant,nofields,name=NVIDIA A100-SXM4-40GB", NULL, PJ_OK, &err);
    rails_of("nvml", s, rails);
    assert_int_equal(rails[0].kind, PJ_RAIL_INSTANT); /* GA100 has no average */
    close_source("nvml", s);
    s = open_nvml("nocounter,arch=5,name=Tesla V100", NULL, PJ_OK, &err);
    rails_of("nvml", s, rails);
    assert_int_equal(rails[0].period_ns, 20000000);
    assert_int_equal(rails[0].window_ns, 10000000);
    close_source("nvml", s);
    static const struct {
        const char *card;
        int64_t window_ns;
    } counters[] = {{"arch=5,name=Tesla V100", PJ_WINDOW_UNKNOWN},
                    {"arch=7,name=NVIDIA GeForce RTX 3090", 100000000},
                    {"arch=7,name=NVIDIA A100-SXM4-40GB", 25000000},
                    {"arch=9,name=NVIDIA H100", 100000000},
                    {"arch=10,name=NVIDIA B200", PJ_WINDOW_UNKNOWN}};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        s = open_nvml(counters[i].card, NULL, PJ_OK, &err);
        rails_of("nvml", s, rails);
        assert_int_equal(rails[0].kind, PJ_RAIL_COUNTER);
        assert_int_equal(rails[0].window_ns, counters[i].window_ns);
        close_source("nvml", s);
    }
}

static void nvml_faults_are_said(void **state)
{
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t count, gaps = 0;
    pj_error err;
    void *s = open_nvml("flaky=7", NULL, PJ_OK, &err);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(read_source("nvml", s, r, &count), PJ_OK);
        for (uint32_t k = 0; k < count; k++) {
            gaps += r[k].status == PJ_READING_GAP;
            if (r[k].status == PJ_READING_GAP) {
                assert_true(isnan(r[k].value));
                assert_int_equal(r[k].reason, PJ_REASON_UNSUPPORTED);
            }
        }
    }
    assert_that(gaps, >, 5);
    close_source("nvml", s);
    s = open_nvml("lost=40", NULL, PJ_OK, &err);
    pj_status status = PJ_OK;
    for (int i = 0; i < 50 && status == PJ_OK; i++) status = read_source("nvml", s, r, &count);
    assert_int_equal(status, PJ_E_LOST);
    assert_int_equal(r[0].status, PJ_READING_LOST);
    assert_true(isnan(r[0].value));
    close_source("nvml", s);
}

static void nvml_obeys_visible_devices(void **state)
{
    static const struct {
        const char *visible;
        uint32_t gpus;
        const char *first;
    } cases[] = {
        {"0,1", 2, "GPU-aaaa0000"},
        {"2", 1, "GPU-aaaa0002"},
        {"1,0", 2, "GPU-aaaa0001"},
        {"GPU-aaaa0001", 1, "GPU-aaaa0001"},
        {"1,9,0", 1, "GPU-aaaa0001"}, /* CUDA stops at what it does not know */
        {"MIG-GPU-aaaa0002-1111-2222-3333-444444444444/1/0", 1, "GPU-aaaa0002"},
        {"0,0", 1, "GPU-aaaa0000"},
    };
    pj_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_rail rails[PJ_MAX_RAILS];
        void *s = open_nvml("gpus=3,nocounter", cases[i].visible, PJ_OK, &err);
        assert_int_equal(rails_of("nvml", s, rails), cases[i].gpus);
        assert_memory_equal(rails[0].device, cases[i].first, strlen(cases[i].first));
        close_source("nvml", s);
    }
    open_nvml("gpus=3", "", PJ_E_UNAVAILABLE, &err);
    assert_non_null(strstr(err.text, "CUDA_VISIBLE_DEVICES"));
}

static void nvml_absence_has_a_remedy(void **state)
{
    pj_error err;
    pj_power_env env = {.sysfs_root = "", .nvml_library = "/nowhere/libnvidia-ml.so.1"};
    open_source("nvml", &env, PJ_E_UNAVAILABLE, &err);
    assert_non_null(strstr(err.text, "install the NVIDIA driver"));
    open_nvml("noinit", NULL, PJ_E_UNAVAILABLE, &err);
    assert_non_null(strstr(err.text, "modprobe nvidia"));
    open_nvml("gpus=0", NULL, PJ_E_UNAVAILABLE, &err);
    open_nvml("nocounter,nofields,nousage", NULL, PJ_E_UNAVAILABLE, &err);
}

/* ---- powermetrics ------------------------------------------------------------------------------
 */

static pj_power_env powermetrics_env(const char *mode, char *command, size_t bytes)
{
    const char *program = getenv("PJ_FAKE_POWERMETRICS");
    if (!program) skip();
    snprintf(command, bytes, "python3 %s %s", program, mode);
    return (pj_power_env){.sysfs_root = "", .powermetrics = command};
}

/* Reads until `wanted` readings came or the source is lost. */
static pj_status read_some(void *s, pj_reading *r, uint32_t wanted, uint32_t *total)
{
    int64_t until = pj_clock_ns() + 20 * PJ_NS_PER_S;
    *total = 0;
    while (*total < wanted && pj_clock_ns() < until) {
        uint32_t count;
        pj_status status = pj_power_source_find("powermetrics", 12)
                               ->read(s, r + *total, PJ_SOURCE_READ_MAX - *total, &count);
        *total += count;
        if (status != PJ_OK) return status;
        pj_clock_sleep_until(pj_clock_ns() + 5 * PJ_NS_PER_MS);
    }
    return PJ_OK;
}

static void powermetrics_gives_true_windows(void **state)
{
    char command[512];
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t total;
    pj_error err;
    pj_power_env env = powermetrics_env("apple", command, sizeof command);
    void *s = open_source("powermetrics", &env, PJ_OK, &err);
    assert_int_equal(rails_of("powermetrics", s, rails), 3);
    assert_string_equal(rails[0].name, "cpu");
    assert_string_equal(rails[2].name, "ane");
    assert_that(rails[0].resolution, ==, 10); /* 1 mJ over 100 ms */
    assert_int_equal(read_some(s, r, 6, &total), PJ_OK);
    assert_that(total, >=, 6);
    assert_near(r[0].value, 540, 1e-6);
    assert_int_equal(r[0].window_ns, 100000000);
    close_source("powermetrics", s);
    env = powermetrics_env("old", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    assert_int_equal(rails_of("powermetrics", s, rails), 5);
    assert_int_equal(rails[0].parent, 4); /* inside the package */
    close_source("powermetrics", s);
    env = powermetrics_env("gpu", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    assert_int_equal(rails_of("powermetrics", s, rails), 1);
    assert_string_equal(rails[0].name, "gpu");
    close_source("powermetrics", s);
    env = powermetrics_env("intel", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    read_some(s, r, 1, &total);
    assert_near(r[0].value, 12500, 1e-6);
    close_source("powermetrics", s);
}

static void powermetrics_survives_its_faults(void **state)
{
    char command[512];
    pj_reading r[PJ_SOURCE_READ_MAX];
    uint32_t total;
    pj_error err;
    pj_power_env env = powermetrics_env("dies", command, sizeof command);
    void *s = open_source("powermetrics", &env, PJ_OK, &err);
    assert_int_equal(read_some(s, r, 100, &total), PJ_E_LOST);
    assert_int_equal(total, 3); /* the sample after the one that told the rails */
    close_source("powermetrics", s);
    env = powermetrics_env("cut", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    assert_int_equal(read_some(s, r, 100, &total), PJ_E_LOST);
    assert_int_equal(total, 0);
    close_source("powermetrics", s);
    env = powermetrics_env("zero 10", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    assert_int_equal(read_some(s, r, 100, &total), PJ_E_LOST);
    assert_int_equal(total, 12); /* 5 of 10 had a length, the first told the rails */
    close_source("powermetrics", s);
    env = powermetrics_env("negative 3", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    read_some(s, r, 6, &total);
    assert_int_equal(r[0].status, PJ_READING_REJECTED);
    assert_true(isnan(r[0].value));
    assert_int_equal(r[1].status, PJ_READING_OK);
    close_source("powermetrics", s);
    env = powermetrics_env("crlf", command, sizeof command);
    s = open_source("powermetrics", &env, PJ_OK, &err);
    read_some(s, r, 3, &total);
    assert_near(r[0].value, 540, 1e-6);
    close_source("powermetrics", s);
    env = powermetrics_env("password", command, sizeof command);
    open_source("powermetrics", &env, PJ_E_DENIED, &err);
    assert_non_null(strstr(err.text, "perjoule setup --write powermetrics"));
    env = powermetrics_env("battery 3", command, sizeof command);
    open_source("powermetrics", &env, PJ_E_UNAVAILABLE, &err);
    env.powermetrics = "/nowhere/powermetrics";
    open_source("powermetrics", &env, PJ_E_UNAVAILABLE, &err);
}

static void plists_cut_anywhere_give_no_sample(void **state)
{
    static const char text[] = "<?xml version=\"1.0\"?><plist "
                               "version=\"1.0\"><dict><key>elapsed_ns</key><integer>525992000"
                               "</integer><key>processor</key><dict><key>cpu_energy</"
                               "key><integer>54</integer></dict></dict>"
                               "</plist>";
    pj_pm_sample sample;
    size_t bytes = sizeof text - 1;
    assert_int_equal(pj_pm_parse(text, bytes, &sample, NULL), PJ_OK);
    assert_near(sample.mw[PJ_PM_CPU], 102.66, 0.01);
    assert_true(isnan(sample.mw[PJ_PM_GPU]));
    for (size_t cut = 0; cut < bytes; cut++)
        assert_that(pj_pm_parse(text, cut, &sample, NULL), !=, PJ_OK);
    assert_int_equal(pj_pm_parse("\0\0\0", 3, &sample, NULL), PJ_E_AGAIN);
}

/* Wrapped as powermetrics wraps it; `body` is the content of the root dictionary. */
static pj_status parse_plist(const char *body, pj_pm_sample *sample)
{
    char text[4096];
    int bytes =
        snprintf(text, sizeof text,
                 "<?xml version=\"1.0\"?>\n<!DOCTYPE plist PUBLIC \"-//A//B\" \"http://c\">\n"
                 "<plist version=\"1.0\">\n<dict>%s</dict>\n</plist>\n",
                 body);
    return pj_pm_parse(text, (size_t)bytes, sample, NULL);
}

static void plists_are_read_as_xml(void **state)
{
    pj_pm_sample s;
    static const char *const malformed[] = {"<key>elapsed_ns</key>",
                                            "<key>elapsed_ns</key></dict>",
                                            "<integer>1</integer>",
                                            "<key>elapsed_ns</key><integer>1</real>",
                                            "<key>a</key><array><integer>1</integer>",
                                            "<key>elapsed_ns<integer>1</integer></key>",
                                            "loose text",
                                            "<key>elapsed_ns</key><integer>1<",
                                            "<key>a</key><string><![CDATA[</string>"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        assert_int_equal(parse_plist(malformed[i], &s), PJ_E_INVALID);
    assert_int_equal(
        parse_plist(
            "<!-- <key>elapsed_ns</key> --><key>x &amp; "
            "y</key><string>a<![CDATA[</dict>]]></string>"
            "<key>list</key><array><dict><key>elapsed_ns</key><integer>7</integer></dict><true/>"
            "</array><key>none</key><dict/><key>elapsed_ns</key> <integer> 0x3b9aca00\n</integer>"
            "<key>processor</key><dict><key>deeper</key><dict><key>cpu_power</key><real>9</real>"
            "</dict><key>cpu_power</key><real>2.5e2</real><key>gpu_power</key><string>7</string>"
            "<key>ane_power</key><integer>-1</integer></dict>"
            "<key>gpu</key><dict><key>gpu_energy</key><integer>30</integer></dict>",
            &s),
        PJ_OK);
    assert_int_equal(s.elapsed_ns, 1000000000);
    assert_that(s.mw[PJ_PM_CPU], ==, 250);
    assert_that(s.mw[PJ_PM_GPU], ==, 30);
    assert_true(isnan(s.mw[PJ_PM_ANE]) && s.rejected[PJ_PM_ANE]);
    assert_true(isnan(s.mw[PJ_PM_DRAM]) && !s.rejected[PJ_PM_DRAM]);
}

static void plists_nested_without_end_are_refused(void **state)
{
    enum { LEVELS = 100000 };
    char *text = pj_alloc(LEVELS, 32), *at = text;
    at += sprintf(at, "<plist><dict><key>a</key>");
    for (int i = 0; i < LEVELS; i++) at += sprintf(at, "<array>");
    pj_pm_sample sample;
    assert_int_equal(pj_pm_parse(text, (size_t)(at - text), &sample, NULL), PJ_E_INVALID);
    pj_free(text);
}

static void recorded_streams_are_replayed(void **state)
{
    const char *program = getenv("PJ_FAKE_POWERMETRICS");
    if (!program) skip();
    char command[512], *text;
    size_t bytes;
    pj_trace t;
    pj_error err;
    machine_begin();
    for (int cut = 0; cut < 2; cut++) {
        snprintf(command, sizeof command, "python3 %s %s > %s/stream", program,
                 cut ? "cut 3 1" : "old 3 1", root);
        assert_int_equal(system(command), 0);
        snprintf(command, sizeof command, "%s/stream", root);
        assert_int_equal(pj_file_read(command, 1 << 20, &text, &bytes, &err), PJ_OK);
        assert_int_equal(pj_trace_read_plist(text, bytes, "stream", &t, &err), PJ_OK);
        assert_int_equal(t.row_count, cut ? 1 : 3);
        assert_int_equal(t.skipped, cut);
        assert_int_equal(t.rail_count, cut ? 3 : 5);
        assert_near(t.t_ms[t.row_count - 1], 100 * (double)t.row_count, 1e-9);
        assert_near(t.mw[0], 540, 0.01f);
        pj_trace_fini(&t);
        pj_free(text);
    }
    assert_int_equal(pj_trace_read_plist("junk", 4, "junk", &t, &err), PJ_E_INVALID);
    machine_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rapl_nests_its_domains),
        cmocka_unit_test(rapl_failures_are_gaps_never_zeros),
        cmocka_unit_test(rapl_says_what_is_missing),
        cmocka_unit_test(hwmon_takes_the_best_of_each_channel),
        cmocka_unit_test(hwmon_knows_grace),
        cmocka_unit_test(nvml_prefers_the_counter),
        cmocka_unit_test(an_unreadable_gpu_keeps_its_rail),
        cmocka_unit_test(unreadable_gpus_are_missing_from_totals),
        cmocka_unit_test(power_limits_are_read),
        cmocka_unit_test(nvml_falls_back_step_by_step),
        cmocka_unit_test(nvml_timing_follows_the_card),
        cmocka_unit_test(nvml_faults_are_said),
        cmocka_unit_test(nvml_obeys_visible_devices),
        cmocka_unit_test(nvml_absence_has_a_remedy),
        cmocka_unit_test(powermetrics_gives_true_windows),
        cmocka_unit_test(powermetrics_survives_its_faults),
        cmocka_unit_test(plists_cut_anywhere_give_no_sample),
        cmocka_unit_test(plists_are_read_as_xml),
        cmocka_unit_test(plists_nested_without_end_are_refused),
        cmocka_unit_test(recorded_streams_are_replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
