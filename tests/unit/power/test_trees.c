/* Machines as trees of files: which rails each has, what contains what, and that a total is the sum
 * of all that counts or none. RAPL counters move as they are read, as the kernel's do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "../virtual_clock.h"
#include "base/clock.h"
#include "base/file.h"
#include "power/checks.h"
#include "power/conditions.h"
#include "power/containment.h"
#include "power/meter.h"
#include "power/tdp.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The program's own file operations, but for those that tell a counter from a file. */
#define pj_sysfs_open  open_file
#define pj_sysfs_fetch fetch_file
#include "power/sysfs_files.c"
#undef pj_sysfs_open
#undef pj_sysfs_fetch

#define COUNTER_RANGE_UJ 262143328850.0

int pj_sysfs_open(const char *path);
int64_t pj_sysfs_fetch(int fd, char *text, size_t bytes);

static char folder[256];

static void file_with(const char *name, const char *text)
{
    char path[600], parent[600];
    assert_true(pj_path_join(path, sizeof path, folder, name));
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    assert_int_equal(pj_dir_make(parent, NULL), PJ_OK);
    assert_int_equal(pj_file_write(path, text, strlen(text), NULL), PJ_OK);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/pj-trees-XXXXXX",
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

/* ---- counters that move ------------------------------------------------------------------------
 */

typedef struct moving {
    char path[600];
    double watts;
    int64_t step_ms; /* between its updates */
} moving;

static moving counters[8];
static uint32_t counter_count;
static int counter_of_fd[1024]; /* plus 1; 0: another file */

int pj_sysfs_open(const char *path)
{
    int fd = open_file(path);
    if (fd < 0 || fd >= 1024) return fd;
    counter_of_fd[fd] = 0;
    for (uint32_t i = 0; i < counter_count; i++)
        if (strcmp(path, counters[i].path) == 0) counter_of_fd[fd] = (int)i + 1;
    return fd;
}

int64_t pj_sysfs_fetch(int fd, char *text, size_t bytes)
{
    if (fd >= 1024 || !counter_of_fd[fd]) return fetch_file(fd, text, bytes);
    const moving *m = &counters[counter_of_fd[fd] - 1];
    int64_t updated_ms = pj_clock_ns() / PJ_NS_PER_MS / m->step_ms * m->step_ms;
    double uj = 1e3 * m->watts * (double)updated_ms;
    return snprintf(text, bytes, "%.0f\n", fmod(uj, COUNTER_RANGE_UJ));
}

static void zone(const char *path, const char *name, double watts)
{
    char file[400], range[40];
    snprintf(file, sizeof file, "sys/class/powercap/%s/name", path);
    file_with(file, name);
    snprintf(file, sizeof file, "sys/class/powercap/%s/max_energy_range_uj", path);
    snprintf(range, sizeof range, "%.0f\n", COUNTER_RANGE_UJ);
    file_with(file, range);
    snprintf(file, sizeof file, "sys/class/powercap/%s/energy_uj", path);
    file_with(file, "1000000\n");
    moving *m = &counters[counter_count++];
    m->watts = watts;
    m->step_ms = 1;
    snprintf(m->path, sizeof m->path, "%s/%s", folder, file);
}

/* ---- what a machine draws ---------------------------------------------------------------------
 */

typedef struct machine {
    pj_meter *meter;
    const pj_rail *rails;
    uint32_t count;
    double mw[PJ_MAX_RAILS];
    size_t points[PJ_MAX_RAILS]; /* samples of each rail */
    int64_t span_ns;
    char events[4096];
    pj_finding findings[PJ_FINDINGS_MAX];
    uint32_t finding_count;
} machine;

static pj_power_env env_here(void)
{
    return (pj_power_env){.sysfs_root = folder,
                          .procfs_root = folder,
                          .nvml_library = "/nonexistent",
                          .powermetrics = "/nonexistent/powermetrics"};
}

/* Listens for `ms` with all that is needed before and after, as a run does. */
static machine listen_to(const char *sources, int64_t interval_ns, int64_t ms)
{
    machine m = {0};
    pj_error err;
    pj_power_env env = env_here();
    env.interval_ns = interval_ns;
    /* to wait for the updates of values that stand still would take 3 s each time */
    pj_meter_options options = {
        .sources = sources, .env = &env, .skip_characterise = interval_ns == 0};
    pj_curve *curves[PJ_MAX_RAILS] = {0};
    if (pj_meter_open(&options, &m.meter, &err) != PJ_OK) fail_msg("%s: %s", sources, err.text);
    m.rails = pj_meter_rails(m.meter, &m.count);
    for (uint32_t i = 0; i < m.count; i++) curves[i] = pj_curve_new(&m.rails[i]);
    assert_int_equal(pj_meter_start(m.meter, NULL), PJ_OK);
    pj_clock_sleep_until(pj_clock_ns() + 150 * PJ_NS_PER_MS + 2 * interval_ns);
    int64_t begin = pj_clock_ns(), end = begin + ms * PJ_NS_PER_MS;
    pj_clock_sleep_until(end + pj_meter_settle_ns(m.meter));
    pj_meter_stop(m.meter);
    pj_reading reading;
    while (pj_meter_read(m.meter, &reading, 1) == 1)
        assert_int_equal(pj_curve_add(curves[reading.rail], &reading, NULL), PJ_OK);
    for (uint32_t i = 0; i < m.count; i++) {
        pj_curve_finish(curves[i], NULL);
        m.mw[i] = pj_curve_energy_mj(curves[i], begin, end) / ((double)(end - begin) * 1e-9);
        m.points[i] = pj_curve_points(curves[i], begin, end, NULL, 0);
    }
    m.finding_count =
        pj_rails_check(m.rails, m.count, (const pj_curve *const *)curves, begin, end, m.findings);
    for (uint32_t i = 0; i < m.count; i++) pj_curve_free(curves[i]);
    m.span_ns = end - begin;
    pj_meter_event event;
    while (pj_meter_next_event(m.meter, &event)) {
        char text[1024];
        pj_meter_event_text(m.meter, &event, text, sizeof text);
        size_t used = strlen(m.events);
        snprintf(m.events + used, sizeof m.events - used, "%s\n", text);
    }
    return m;
}

static double column(const machine *m, pj_rail_class c)
{
    return pj_rail_column_sum(m->rails, m->count, m->mw, c);
}

static int rail_named(const machine *m, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (strcmp(m->rails[i].name, name) == 0) return (int)i;
    fail_msg("there is no rail %s", name);
    return -1;
}

static void near(double is, double wanted_w)
{
    if (!(fabs(is - wanted_w * 1e3) <= 0.05 * wanted_w * 1e3)) /* also when it is NAN */
        fail_msg("%.1f W instead of %.1f W", is * 1e-3, wanted_w);
}

static void fresh_machine(void)
{
    remove_folder(NULL);
    make_folder(NULL);
    counter_count = 0;
}

static void amdgpu(const char *hwmon, const char *watts, const char *pci_id)
{
    char file[200], text[40];
    snprintf(file, sizeof file, "sys/class/hwmon/%s/name", hwmon);
    file_with(file, "amdgpu\n");
    snprintf(file, sizeof file, "sys/class/hwmon/%s/power1_average", hwmon);
    snprintf(text, sizeof text, "%s000000\n", watts);
    file_with(file, text);
    snprintf(file, sizeof file, "sys/class/hwmon/%s/power1_label", hwmon);
    file_with(file, "PPT\n");
    snprintf(file, sizeof file, "sys/class/hwmon/%s/device/device", hwmon);
    if (pci_id) file_with(file, pci_id);
}

/* ---- machines ----------------------------------------------------------------------------------
 */

/* A GPU whose idle reading never changes is not a dead sensor: its power and the total are
 * known. */
static void idle_gpu(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    amdgpu("hwmon3", "95", NULL);
    static const int64_t intervals[] = {0, 20 * PJ_NS_PER_MS, 50 * PJ_NS_PER_MS};
    for (int i = 0; i < 3; i++) {
        machine m = listen_to("rapl,hwmon", intervals[i], 400);
        near(column(&m, PJ_RAIL_CPU), 45);
        near(column(&m, PJ_RAIL_GPU), 95);
        near(column(&m, PJ_RAIL_TOTAL), 140);
        assert_string_equal(m.events, "");
        for (uint32_t r = 0; r < m.count && i; r++) {
            double wanted = (double)m.span_ns / (double)intervals[i];
            assert_that(m.rails[r].period_ns, ==, intervals[i]);
            if (!(fabs((double)m.points[r] - wanted) <= 0.5 * wanted))
                fail_msg("%s has %zu samples, not %.0f", m.rails[r].name, m.points[r], wanted);
        }
        pj_meter_close(m.meter);
    }
}

/* On an APU the GPU's package power holds the processor: 35 W are 35 W, not 65 W. */
static void apu(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 30);
    zone("intel-rapl:0:0", "core\n", 12);
    amdgpu("hwmon4", "35", NULL);
    file_with("sys/class/hwmon/hwmon4/in0_label", "vddgfx\n");
    file_with("sys/class/hwmon/hwmon4/in1_label", "vddnb\n");
    machine m = listen_to("rapl,hwmon", 0, 300);
    near(column(&m, PJ_RAIL_TOTAL), 35);
    near(column(&m, PJ_RAIL_CPU), 30);
    assert_true(isnan(column(&m, PJ_RAIL_GPU))); /* nothing measures the GPU alone */
    assert_int_equal(m.rails[rail_named(&m, "cpu")].parent, rail_named(&m, "amdgpu-ppt"));
    pj_meter_close(m.meter);
    m = listen_to("hwmon", 0, 300); /* without RAPL it is still the whole package */
    near(column(&m, PJ_RAIL_TOTAL), 35);
    pj_meter_close(m.meter);
}

/* Of two dies the first reports for both, the second reads zero. */
static void two_dies(void **state)
{
    (void)state;
    static const char *const ids[] = {"0x7408\n", "0x740c\n", NULL};
    for (int i = 0; i < 3; i++) {
        fresh_machine();
        zone("intel-rapl:0", "package-0\n", 100);
        amdgpu("hwmon3", "420", ids[i]);
        amdgpu("hwmon4", "0", ids[i]);
        amdgpu("hwmon5", "380", ids[i]);
        amdgpu("hwmon6", "0", ids[i]);
        machine m = listen_to("auto", 0, 300);
        near(column(&m, PJ_RAIL_GPU), 800);
        near(column(&m, PJ_RAIL_TOTAL), 900);
        assert_string_equal(m.events, "");
        if (ids[i]) {
            assert_int_equal(m.rails[rail_named(&m, "amdgpu1-ppt")].parent,
                             rail_named(&m, "amdgpu-ppt"));
            assert_int_equal(m.rails[rail_named(&m, "amdgpu3-ppt")].parent,
                             rail_named(&m, "amdgpu2-ppt"));
        }
        pj_meter_close(m.meter);
    }
}

/* A GPU that gives no power, as one that sleeps, is missing from the total; an APU's is in its
 * processor's. */
static void silent_gpu(void **state)
{
    (void)state;
    enum { ALONE, BESIDE_ANOTHER, IN_AN_APU, CASES };
    for (int i = 0; i < CASES; i++) {
        fresh_machine();
        zone("intel-rapl:0", "package-0\n", 100);
        amdgpu("hwmon3", "95", NULL);
        file_with("sys/class/hwmon/hwmon3/power1_average", "");
        if (i == BESIDE_ANOTHER) amdgpu("hwmon4", "60", NULL);
        if (i == IN_AN_APU) file_with("sys/class/hwmon/hwmon3/in1_label", "vddnb\n");
        machine m = listen_to("auto", 0, 300);
        assert_string_equal(m.events, "");
        assert_string_equal(pj_meter_unread(m.meter), i == ALONE ? "gpu" : "");
        near(column(&m, PJ_RAIL_CPU), 100);
        if (i == BESIDE_ANOTHER) {
            near(m.mw[rail_named(&m, "amdgpu1-ppt")], 60);
            assert_true(isnan(m.mw[rail_named(&m, "amdgpu-ppt")]));
            assert_true(isnan(column(&m, PJ_RAIL_GPU)));
            assert_true(isnan(column(&m, PJ_RAIL_TOTAL)));
        }
        pj_meter_close(m.meter);
    }
}

static void power_meter(const char *place, const char *name, const char *label_file,
                        const char *label, const char *watts)
{
    char file[200], text[40];
    snprintf(file, sizeof file, "sys/class/hwmon/%s/name", place);
    file_with(file, name);
    snprintf(file, sizeof file, "sys/class/hwmon/%s/%s", place, label_file);
    file_with(file, label);
    snprintf(file, sizeof file, "sys/class/hwmon/%s/power1_average", place);
    snprintf(text, sizeof text, "%s000000\n", watts);
    file_with(file, text);
    snprintf(file, sizeof file, "sys/class/hwmon/%s/power1_average_interval", place);
    file_with(file, "50\n");
}

/* Grace Hopper with two sockets: the module holds everything, whatever the layout. */
static void grace_hopper(void **state)
{
    (void)state;
    static const char *const watts[2][4] = {{"600", "150", "90", "30"}, {"500", "140", "80", "20"}};
    static const char *const words[] = {"Module Power Socket", "Grace Power Socket",
                                        "CPU Power Socket", "SysIO Power Socket"};
    for (int layout = 0; layout < 4; layout++) {
        fresh_machine();
        for (int socket = 0; socket < 2; socket++)
            for (int k = 0; k < 4; k++) {
                char place[64], label[64];
                snprintf(place, sizeof place, "hwmon%d%s", socket * 4 + k,
                         layout % 2 ? "/device" : "");
                snprintf(label, sizeof label, "%s %d\n", words[k], socket);
                power_meter(place, layout < 2 ? "power_meter\n" : "acpi_power_meter\n",
                            layout < 2 ? "power1_oem_info" : "power1_label", label,
                            watts[socket][k]);
            }
        machine m = listen_to("auto", 0, 300);
        assert_int_equal(m.count, 8);
        near(column(&m, PJ_RAIL_CPU), 290);
        near(column(&m, PJ_RAIL_TOTAL), 1100);
        for (uint32_t r = 0; r < m.count; r++) { /* each inside something of its own socket */
            if (m.rails[r].parent < 0) continue;
            double own = m.mw[r], above = m.mw[m.rails[r].parent];
            assert_that(own, <, above);
            bool first = fabs(own - 150e3) < 1 || fabs(own - 90e3) < 1 || fabs(own - 30e3) < 1;
            assert_near(above,
                        (fabs(own - 150e3) < 1   ? 600e3
                         : fabs(own - 140e3) < 1 ? 500e3
                         : first                 ? 150e3
                                                 : 140e3),
                        1);
        }
        pj_meter_close(m.meter);
    }
}

/* Grace alone has no module: its sockets are the processors. */
static void grace(void **state)
{
    (void)state;
    fresh_machine();
    power_meter("hwmon0/device", "power_meter\n", "power1_oem_info", "Grace Power Socket 0\n",
                "150");
    power_meter("hwmon1/device", "power_meter\n", "power1_oem_info", "CPU Power Socket 0\n", "90");
    power_meter("hwmon2", "power_meter\n", "power1_oem_info", "Grace Power Socket 1\n", "140");
    machine m = listen_to("auto", 0, 200);
    near(column(&m, PJ_RAIL_CPU), 290);
    near(column(&m, PJ_RAIL_TOTAL), 290);
    pj_meter_close(m.meter);
}

/* Two sockets with memory, cores inside, and a platform rail that counts for nothing. */
static void two_sockets(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 120);
    zone("intel-rapl:0:0", "dram\n", 20);
    zone("intel-rapl:1", "package-1\n", 80);
    zone("intel-rapl:1:0", "dram\n", 10);
    zone("intel-rapl:2", "psys\n", 400);
    machine m = listen_to("rapl", 0, 300);
    near(column(&m, PJ_RAIL_CPU), 200);
    near(column(&m, PJ_RAIL_DRAM), 30);
    near(column(&m, PJ_RAIL_TOTAL), 230);
    pj_meter_close(m.meter);
}

/* A package whose counter cannot be read is a rail without readings, so that a total lacks it by
 * name; what is inside a package is not in totals and may be left out. */
static void unreadable_socket(void **state)
{
    char path[400];
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 120);
    file_with("sys/class/powercap/intel-rapl:0:0/name", "core\n");
    file_with("sys/class/powercap/intel-rapl:1/name", "package-1\n");
    snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:1/energy_uj", folder);
    assert_int_equal(mkdir(path, 0700), 0); /* not even root can read a folder as a file */
    machine m = listen_to("rapl", 0, 300);
    assert_int_equal(m.count, 2);
    near(m.mw[rail_named(&m, "cpu0")], 120);
    assert_true(isnan(m.mw[rail_named(&m, "cpu1")]));
    pj_meter_close(m.meter);
}

/* An energy counter that stands still, as a GPU's does that is switched off, has used nothing. */
static void standing_counter(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    file_with("sys/class/hwmon/hwmon1/name", "i915\n");
    file_with("sys/class/hwmon/hwmon1/energy1_input", "123456789\n");
    for (int64_t ms = 200; ms <= 1600; ms *= 8) { /* shorter and longer than a second */
        machine m = listen_to("auto", 0, ms);
        assert_that(column(&m, PJ_RAIL_GPU), ==, 0);
        near(column(&m, PJ_RAIL_TOTAL), 45);
        pj_meter_close(m.meter);
    }
}

static void standing_zone(const char *path, const char *name)
{
    char file[400];
    snprintf(file, sizeof file, "sys/class/powercap/%s/name", path);
    file_with(file, name);
    snprintf(file, sizeof file, "sys/class/powercap/%s/max_energy_range_uj", path);
    file_with(file, "262143328850\n");
    snprintf(file, sizeof file, "sys/class/powercap/%s/energy_uj", path);
    file_with(file, "123456789\n");
}

/* A virtual machine's counter that never moves is absent: in no total, without an event, waited for
 * by nothing; the total says that the processor is missing. */
static void dead_counter(void **state)
{
    (void)state;
    fresh_machine();
    standing_zone("intel-rapl:0", "psys\n");
    amdgpu("hwmon3", "95", NULL);
    machine m = listen_to("auto", 20 * PJ_NS_PER_MS, 400);
    near(column(&m, PJ_RAIL_TOTAL), 95);
    assert_string_equal(m.events, "");
    assert_string_equal(pj_meter_sources(m.meter), "hwmon");
    assert_string_equal(pj_meter_unread(m.meter), "cpu");
    assert_that(pj_meter_settle_ns(m.meter), <, 500 * PJ_NS_PER_MS);
    pj_meter_close(m.meter);

    pj_power_env env = env_here();
    pj_source_report report = {0};
    pj_meter_options options = {.sources = "rapl", .env = &env, .report = &report};
    pj_error err;
    assert_int_not_equal(pj_meter_open(&options, &m.meter, &err), PJ_OK);
    assert_non_null(strstr(report.reason, "psys has not moved for a second"));

    zone("intel-rapl:1", "package-0\n", 45); /* beside one that moves */
    m = listen_to("auto", 20 * PJ_NS_PER_MS, 400);
    near(column(&m, PJ_RAIL_TOTAL), 140);
    assert_string_equal(m.events, "");
    assert_string_equal(pj_meter_unread(m.meter), "");
    for (uint32_t i = 0; i < m.count; i++) assert_null(strstr(m.rails[i].name, "psys"));
    pj_meter_close(m.meter);
}

/* Opens the meter; returns how long that took, and which rails were left out. */
static int64_t opening_ns(const pj_power_env *env, char *still, size_t bytes)
{
    pj_meter *meter;
    pj_error err = {0};
    int64_t begin = pj_clock_ns();
    pj_meter_options options = {.sources = "rapl", .env = env};
    if (pj_meter_open(&options, &meter, &err) != PJ_OK) fail_msg("%s", err.text);
    snprintf(still, bytes, "%s", pj_meter_still(meter));
    pj_meter_close(meter);
    return pj_clock_ns() - begin;
}

/* Counters that stood still are watched once a day, and when their value has changed. */
static void dead_counters_are_remembered(void **state)
{
    (void)state;
    char still[256], cache[300];
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    standing_zone("intel-rapl:1", "psys\n");
    snprintf(cache, sizeof cache, "%s/cache", folder);
    pj_power_env env = env_here();
    env.cache_folder = cache;
    assert_that(opening_ns(&env, still, sizeof still), >, PJ_NS_PER_S);
    assert_string_equal(still, "psys");
    for (int i = 0; i < 3; i++) {
        assert_that(opening_ns(&env, still, sizeof still), <, 100 * PJ_NS_PER_MS);
        assert_string_equal(still, "psys");
    }
    /* it has counted in between */
    file_with("sys/class/powercap/intel-rapl:1/energy_uj", "123456999\n");
    assert_that(opening_ns(&env, still, sizeof still), >, PJ_NS_PER_S);
    assert_that(opening_ns(&env, still, sizeof still), <, 100 * PJ_NS_PER_MS);
    /* a day later */
    pj_clock_sleep_until(pj_clock_ns() + 25 * 3600 * PJ_NS_PER_S);
    assert_that(opening_ns(&env, still, sizeof still), >, PJ_NS_PER_S);
    /* it moves */
    zone("intel-rapl:1", "psys\n", 60);
    opening_ns(&env, still, sizeof still);
    assert_string_equal(still, "");
    assert_that(opening_ns(&env, still, sizeof still), <, 100 * PJ_NS_PER_MS);
}

/* A counter that ticks more rarely than once a second is not dead: at the latest at the second
 * start, which sees that it has moved, and from then on its stillness means nothing. */
static void slow_counter(void **state)
{
    (void)state;
    char still[256], cache[300];
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    zone("intel-rapl:1", "package-1\n", 60);
    counters[1].step_ms = 3100;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    pj_power_env env = env_here();
    env.cache_folder = cache;
    opening_ns(&env, still, sizeof still);
    pj_clock_sleep_until(pj_clock_ns() + 4 * PJ_NS_PER_S);
    opening_ns(&env, still, sizeof still);
    assert_string_equal(still, "");
    assert_that(opening_ns(&env, still, sizeof still), <, 100 * PJ_NS_PER_MS);
    assert_string_equal(still, "");

    pj_meter *meter;
    pj_meter_event event;
    pj_meter_options options = {.sources = "rapl", .env = &env};
    assert_int_equal(pj_meter_open(&options, &meter, NULL), PJ_OK);
    assert_near((double)pj_meter_period_ns(meter) * 1e-6, 3100, 150);
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    pj_clock_sleep_until(pj_clock_ns() + 20 * PJ_NS_PER_S);
    pj_meter_stop(meter);
    while (pj_meter_next_event(meter, &event)) fail_msg("event %d", event.kind);
    pj_meter_close(meter);
}

/* A second source of one domain counts for nothing, and does not make the first one fail. */
static void one_domain_two_sources(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    file_with("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\n");
    file_with("sys/class/hwmon/hwmon1/name", "fam15h_power\n");
    file_with("sys/class/hwmon/hwmon1/power1_input", "60000000\n");
    machine m = listen_to("auto", 0, 300);
    near(column(&m, PJ_RAIL_TOTAL), 45);
    assert_string_equal(m.events, "");
    pj_meter_close(m.meter);
    m = listen_to("rapl,estimate,sim", 0, 300);
    near(column(&m, PJ_RAIL_TOTAL), 45);
    assert_null(strstr(m.events, "failed"));
    assert_null(strstr(m.events, "is lost"));
    assert_non_null(strstr(m.events, "estimate"));
    assert_string_equal(pj_meter_sources(m.meter), "rapl");
    pj_meter_close(m.meter);
}

/* A second of equal rows, ten per second. */
static void recording(const char *name, const char *header, const char *cells)
{
    char text[4096];
    int used = snprintf(text, sizeof text, "%s\n", header);
    for (int row = 0; row <= 10; row++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%d,%s\n", row * 100, cells);
    file_with(name, text);
}

/* Recordings: "gpu" beside "gpu0" and "gpu1" is their sum; packages may be numbered. */
static void recordings(void **state)
{
    (void)state;
    char list[600];
    fresh_machine();
    recording("a.csv", "timestamp_ms,cpu0_mw,cpu1_mw,core0_mw,gpu_mw,gpu0_mw,gpu1_mw",
              "20000,10000,5000,300000,200000,100000");
    snprintf(list, sizeof list, "replay:%s/a.csv", folder);
    machine m = listen_to(list, 0, 100);
    near(column(&m, PJ_RAIL_CPU), 30);
    near(column(&m, PJ_RAIL_GPU), 300);
    near(column(&m, PJ_RAIL_TOTAL), 330);
    pj_meter_close(m.meter);
    /* Implausible power is rejected and reported once. */
    recording("b.csv", "timestamp_ms,cpu_mw,gpu_mw", "19000000,100000");
    snprintf(list, sizeof list, "replay:%s/b.csv", folder);
    m = listen_to(list, 0, 200);
    assert_true(isnan(column(&m, PJ_RAIL_CPU)));
    near(column(&m, PJ_RAIL_GPU), 100);
    assert_true(isnan(column(&m, PJ_RAIL_TOTAL))); /* it is no total without the processor */
    const char *first = strstr(m.events, "implausible");
    assert_non_null(first);
    assert_null(strstr(first + 1, "implausible"));
    pj_meter_close(m.meter);
}

/* Cores or a package alone are not the CPU: a total beside them lacks it, and says so. */
static void recorded_parts(void **state)
{
    (void)state;
    static const struct {
        const char *columns, *unread, *text;
    } cases[] = {{"core_mw,dram_mw", "cpu", "DRAM only, CPU missing"},
                 {"package_mw,core_mw", "cpu", "CPU missing"},
                 {"psys_mw,cpu_mw", "", ""},
                 {"core_mw,total_mw", "", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[100], list[600], names[64], text[100];
        fresh_machine();
        snprintf(header, sizeof header, "timestamp_ms,%s", cases[i].columns);
        recording("c.csv", header, "30000,5000");
        snprintf(list, sizeof list, "replay:%s/c.csv", folder);
        pj_power_env env = env_here();
        pj_meter *meter;
        pj_meter_options options = {.sources = list, .env = &env};
        assert_int_equal(pj_meter_open(&options, &meter, NULL), PJ_OK);
        assert_string_equal(pj_meter_unread(meter), cases[i].unread);
        uint32_t count;
        const pj_rail *rails = pj_meter_rails(meter, &count);
        uint64_t counts = 0;
        for (uint32_t r = 0; r < count; r++)
            if (pj_rail_in_column(rails, count, r, PJ_RAIL_TOTAL)) counts |= 1ull << r;
        pj_rail_names(rails, count, counts, names, sizeof names);
        pj_partial_text(names, pj_meter_unread(meter), text, sizeof text);
        if (cases[i].text[0]) assert_string_equal(text, cases[i].text);
        pj_meter_close(meter);
    }
}

/* ---- checks ------------------------------------------------------------------------------------
 */

static const pj_finding *finding(const machine *m, const char *code)
{
    for (uint32_t i = 0; i < m->finding_count; i++)
        if (strcmp(m->findings[i].code, code) == 0) return &m->findings[i];
    print_error("there is no finding %s among %u\n", code, m->finding_count);
    abort();
}

/* Cores above their package, and a second source that says otherwise: each one finding. */
static void contradictions(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    zone("intel-rapl:0:0", "core\n", 60);
    file_with("sys/class/hwmon/hwmon1/name", "fam15h_power\n");
    file_with("sys/class/hwmon/hwmon1/power1_input", "80000000\n");
    machine m = listen_to("auto", 0, 1100);
    assert_int_equal(m.finding_count, 2);
    const pj_finding *f = finding(&m, "children_exceed_rail");
    double parts, own;
    assert_int_equal(
        sscanf(f->text, "The parts of cpu draw %lf W, more than its own %lf W", &parts, &own), 2);
    near(parts * 1e3, 60);
    near(own * 1e3, 45);
    assert_near(f->excess, 1.0 / 3, 0.05);
    assert_string_equal(m.rails[f->rail].name, "cpu");
    f = finding(&m, "sources_disagree");
    assert_non_null(strstr(f->text, "80 W"));
    assert_string_equal(m.rails[f->rail].name, "cpu");
    near(column(&m, PJ_RAIL_TOTAL), 45);
    pj_meter_close(m.meter);
}

/* Consistent rails give no finding. */
static void nothing_to_find(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 60);
    zone("intel-rapl:0:0", "core\n", 45);
    zone("intel-rapl:1", "package-1\n", 50); /* equal ones may be one sensor */
    amdgpu("hwmon3", "95", NULL);
    amdgpu("hwmon4", "95", NULL); /* two idle cards may stand at one figure */
    machine m = listen_to("auto", 0, 1100);
    if (m.finding_count) fail_msg("%s", m.findings[0].text);
    assert_string_equal(m.events, "");
    near(column(&m, PJ_RAIL_TOTAL), 300);
    pj_meter_close(m.meter);
}

/* A rail of made readings: of power every 20 ms, or of a counter. */
static pj_curve *made_curve(const pj_rail *rail, double (*watts)(int64_t ms), int64_t to_ms)
{
    pj_curve *curve = pj_curve_new(rail);
    bool counter = rail->kind == PJ_RAIL_COUNTER;
    double uj = 1e9;
    for (int64_t ms = 0; ms <= to_ms; ms += 20) {
        if (ms) uj += watts(ms) * 20e3;
        pj_reading reading = {.before_ns = ms * PJ_NS_PER_MS,
                              .after_ns = ms * PJ_NS_PER_MS,
                              .fresh_ns = ms * PJ_NS_PER_MS,
                              .value = counter ? uj : watts(ms) * 1e3,
                              .status = ms ? PJ_READING_OK : PJ_READING_RESET};
        assert_int_equal(pj_curve_add(curve, &reading, NULL), PJ_OK);
    }
    assert_int_equal(pj_curve_finish(curve, NULL), PJ_OK);
    return curve;
}

static double moving_w(int64_t ms)
{
    return 90 + (double)(ms / 20 % 7);
}
static double stopping_w(int64_t ms) /* a counter's steps */
{
    return ms <= 4000 ? moving_w(ms) : 0;
}
static double pausing_w(int64_t ms) /* off every other half second, and at the end */
{
    return ms / 500 % 2 || ms > 5000 ? 0 : moving_w(ms);
}
static double frozen_w(int64_t ms)
{
    return moving_w(ms <= 3000 ? ms : 3000);
}
static double resting_w(int64_t ms) /* ends at its idle power */
{
    return ms <= 3000 ? moving_w(ms) : 20;
}

/* Where no update period is stated, a sensor that stops may be one of a device that is off: the
 * energy stays, with a warning and an interval that holds what may be missing. */
static void stopped_sensors(void **state)
{
    (void)state;
    static const struct {
        pj_rail_kind kind;
        double (*watts)(int64_t ms);
        const char *code, *words;
        double excess;
    } cases[] = {{PJ_RAIL_COUNTER, moving_w, NULL, NULL, 0},
                 {PJ_RAIL_COUNTER, stopping_w, "counter_still", "last 2 s, after 93 W", 0.5},
                 {PJ_RAIL_COUNTER, pausing_w, NULL, NULL, 0},
                 {PJ_RAIL_INSTANT, moving_w, NULL, NULL, 0},
                 {PJ_RAIL_INSTANT, frozen_w, "sensor_still", "93 W for the last 3", 0.016},
                 {PJ_RAIL_INSTANT, resting_w, NULL, NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_finding findings[PJ_FINDINGS_MAX];
        pj_rail rail = {.name = "amdgpu-ppt",
                        .source = "hwmon",
                        .rail_class = PJ_RAIL_GPU,
                        .kind = cases[i].kind,
                        .scope = PJ_SCOPE_BOARD,
                        .quality = PJ_MEASURED,
                        .parent = -1,
                        .period_ns = 20 * PJ_NS_PER_MS};
        pj_curve *curve = made_curve(&rail, cases[i].watts, 6000);
        const pj_curve *const curves[] = {curve};
        uint32_t found = pj_rails_check(&rail, 1, curves, 0, 6 * PJ_NS_PER_S, findings);
        if (found != (cases[i].code != NULL)) fail_msg("case %zu: %s", i, findings[0].text);
        if (found) {
            assert_string_equal(findings[0].code, cases[i].code);
            if (!strstr(findings[0].text, cases[i].words)) fail_msg("%s", findings[0].text);
            assert_near(findings[0].excess, cases[i].excess, 0.05 * cases[i].excess);
        }
        pj_curve_free(curve);
    }
}

/* A source that is lost between runs, and cannot be opened for the next one, is one event. */
static void lost_is_said_once(void **state)
{
    (void)state;
    fresh_machine();
    zone("intel-rapl:0", "package-0\n", 45);
    amdgpu("hwmon3", "95", NULL);
    pj_meter *meter;
    pj_error err;
    pj_power_env env = env_here();
    pj_meter_options options = {.sources = "auto", .env = &env, .skip_characterise = true};
    if (pj_meter_open(&options, &meter, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    char path[600];
    snprintf(path, sizeof path, "%s/sys/class/hwmon/hwmon3/power1_average", folder);
    assert_int_equal(truncate(path, 0), 0); /* of the open file */
    pj_reading r = {0};
    for (int looks = 0; looks < 20000 && r.status != PJ_READING_LOST; looks++)
        if (pj_meter_read(meter, &r, 1) == 0) pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    assert_int_equal(r.status, PJ_READING_LOST);
    pj_meter_stop(meter);
    assert_int_equal(pj_meter_start(meter, NULL), PJ_OK);
    pj_meter_stop(meter);
    pj_meter_event event;
    int lost = 0;
    while (pj_meter_next_event(meter, &event)) lost += event.kind == PJ_METER_SOURCE_LOST;
    assert_int_equal(lost, 1);
    pj_meter_close(meter);
}

/* A chain of parents ends; a rail within itself would be counted nowhere. */
static void parents_end(void **state)
{
    (void)state;
    pj_rail rails[3] = {{.parent = -1}, {.parent = 0}, {.parent = 1}};
    assert_int_equal(pj_rails_misplaced(rails, 3), -1);
    rails[0].parent = 0;
    assert_int_equal(pj_rails_misplaced(rails, 3), 0);
    rails[0].parent = 2;
    assert_int_equal(pj_rails_misplaced(rails, 3), 0);
    rails[0].parent = -1;
    rails[1].parent = 3;
    assert_int_equal(pj_rails_misplaced(rails, 3), 1);
}

/* A baseline taken on a busy machine is not idle power, except for simulated rails. */
static void busy_baseline(void **state)
{
    (void)state;
    pj_rail rails[] = {{.name = "cpu", .source = "rapl", .parent = -1, .period_ns = PJ_NS_PER_MS},
                       {.name = "cpu", .source = "sim", .parent = -1, .period_ns = PJ_NS_PER_MS}};
    const pj_curve *curves[2];
    for (int r = 0; r < 2; r++) {
        pj_curve *curve = pj_curve_new(&rails[r]);
        for (int64_t ms = 1; ms <= 1000; ms++) {
            pj_reading reading = {.before_ns = ms * PJ_NS_PER_MS,
                                  .after_ns = ms * PJ_NS_PER_MS,
                                  .fresh_ns = ms * PJ_NS_PER_MS,
                                  .value = (double)ms * 45e3,
                                  .status = ms > 1 ? PJ_READING_OK : PJ_READING_RESET};
            pj_curve_add(curve, &reading, NULL);
        }
        curves[r] = curve;
    }
    static const double busy[] = {0.01, 0.6};
    for (int i = 0; i < 2; i++) {
        pj_baseline b;
        char text[256];
        pj_baseline_compute(curves, 2, 2 * PJ_NS_PER_MS, PJ_NS_PER_S, busy[i], &b);
        assert_near(b.mw[0], 45000, 100);
        assert_int_equal(b.rail_quiet[0], i == 0);
        assert_true(b.rail_quiet[1]);
        assert_int_equal(pj_baseline_text(&b, text, sizeof text), i == 1);
        if (i) assert_non_null(strstr(text, "60 % busy"));
    }
    for (int r = 0; r < 2; r++) pj_curve_free((pj_curve *)(uintptr_t)curves[r]);
}

/* A GPU that works for somebody else makes its own idle power unknown, and that of a module that
 * contains it; not that of the CPU. */
static void busy_gpu(void **state)
{
    (void)state;
    const pj_rail rails[] = {
        {.name = "cpu", .source = "rapl", .rail_class = PJ_RAIL_CPU, .parent = -1},
        {.name = "module", .source = "hwmon", .rail_class = PJ_RAIL_TOTAL, .parent = -1},
        {.name = "gpu1", .source = "nvml", .rail_class = PJ_RAIL_GPU, .parent = 1},
        {.name = "gpu11", .source = "nvml", .rail_class = PJ_RAIL_GPU, .parent = -1},
        {.name = "amdgpu-ppt", .source = "hwmon", .rail_class = PJ_RAIL_GPU, .parent = -1},
        {.name = "gpu1-replay", .source = "replay", .rail_class = PJ_RAIL_GPU, .parent = -1}};
    const pj_curve *none[6] = {0};
    pj_baseline b;
    char text[256];
    pj_baseline_compute(none, 6, 0, PJ_NS_PER_S, 0.01, &b);
    pj_baseline_note_gpu(&b, rails, "gpu1", NAN);
    pj_baseline_note_gpu(&b, rails, "gpu1", 0.04);
    assert_true(b.quiet);
    assert_false(pj_baseline_text(&b, text, sizeof text));
    pj_baseline_note_gpu(&b, rails, "gpu1", 0.8);
    pj_baseline_note_gpu(&b, rails, "amdgpu", 0.2);
    static const bool quiet[] = {true, false, false, true, false, true};
    for (int i = 0; i < 6; i++) assert_int_equal(b.rail_quiet[i], quiet[i]);
    assert_false(b.quiet);
    assert_true(pj_baseline_text(&b, text, sizeof text));
    assert_non_null(strstr(text, "(gpu1 was 80 % busy)"));
}

/* Idle power between two baselines: on the line, with both ends inside the interval. */
static void idle_power_between_baselines(void **state)
{
    (void)state;
    const pj_rail rails[] = {{.name = "cpu", .rail_class = PJ_RAIL_CPU, .parent = -1},
                             {.name = "gpu0", .rail_class = PJ_RAIL_GPU, .parent = -1},
                             {.name = "dram", .rail_class = PJ_RAIL_DRAM, .parent = -1},
                             {.name = "ane", .rail_class = PJ_RAIL_ANE, .parent = -1}};
    const int64_t s = PJ_NS_PER_S;
    pj_baseline before = {.begin_ns = 0, .end_ns = s, .rail_count = 4}, idle;
    pj_baseline after = {.begin_ns = 4 * s, .end_ns = 5 * s, .rail_count = 4};
    for (int i = 0; i < 4; i++) {
        before.rail_quiet[i] = after.rail_quiet[i] = true;
        before.mw[i] = 20e3;
        after.mw[i] = 50e3;
        before.sd_mw[i] = after.sd_mw[i] = 10;
    }
    after.rail_quiet[2] = false;
    after.mw[3] = after.sd_mw[3] = NAN;
    assert_int_equal(pj_baseline_moved(&before, &before), -1);
    assert_true(pj_baseline_moved(&before, &after) >= 0);
    pj_baseline_between(&before, &after, rails, 2 * s, 3 * s, true, &idle);
    assert_near(idle.mw[0], 35e3, 1);
    assert_that(1.96 * idle.sd_mw[0], >, 15e3);
    assert_that(1.96 * idle.sd_mw[0], <, 18e3);
    assert_near(idle.mw[1], 50e3, 1); /* the model in its memory */
    assert_near(idle.sd_mw[1], 10, 1);
    assert_near(idle.mw[2], 20e3, 1);
    assert_that(1.96 * idle.sd_mw[2], >, 30e3);
    assert_near(idle.mw[3], 20e3, 1);
    assert_near(idle.sd_mw[3], 10, 1);
    pj_baseline_between(&before, &after, rails, 1 * s, 2 * s, false, &idle);
    assert_near(idle.mw[1], 27.5e3, 1);
    assert_that(idle.mw[1] + 2 * idle.sd_mw[1], >, 50e3);
    before.rail_quiet[0] = false;
    pj_baseline_between(&before, &after, rails, 1 * s, 2 * s, false, &idle);
    assert_false(idle.rail_quiet[0]);
}

/* ---- conditions --------------------------------------------------------------------------------
 */

static const pj_condition *condition(const pj_condition *rows, uint32_t count, const char *device)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rows[i].device, device) == 0) return &rows[i];
    print_error("%s reports nothing\n", device);
    abort();
}

static bool about(double is, double wanted)
{
    return fabs(is - wanted) < 1e-6 * fabs(wanted);
}

static void conditions(void **state)
{
    (void)state;
    pj_condition rows[PJ_CONDITION_DEVICES];
    char words[64];
    fresh_machine();
    pj_power_env env = env_here();
    env.nvml_library = getenv("PJ_FAKE_NVML");
    setenv("FAKE_NVML", "gpus=2,limit=310000,reasons=100", 1); /* power cap, both thermal reasons */
    file_with("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\n");
    file_with("proc/cpuinfo", "processor : 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\n");
    file_with("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2000000\n");
    file_with("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3000000\n");
    file_with("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "7\n");
    file_with("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "3\n");
    file_with("sys/class/hwmon/hwmon0/name", "k10temp\n");
    file_with("sys/class/hwmon/hwmon0/temp1_input", "61500\n");
    file_with("sys/class/hwmon/hwmon0/temp2_input", "48000\n");
    file_with("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    file_with("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "225000000\n");
    amdgpu("hwmon3", "95", NULL);
    file_with("sys/class/hwmon/hwmon3/temp1_input", "72000\n");
    file_with("sys/class/hwmon/hwmon3/freq1_input", "1500000000\n");
    file_with("sys/class/hwmon/hwmon3/power1_cap", "250000000\n");
    file_with("sys/class/hwmon/hwmon3/device/gpu_busy_percent", "37\n");
    pj_conditions *c = pj_conditions_open(&env);
    file_with("proc/stat", "cpu  150 0 150 900 0 0 0 0 0 0\n"); /* 100 of 200 ticks */
    file_with("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "8\n");
    uint32_t count = pj_conditions_read(c, rows);
    const pj_condition *r = condition(rows, count, "cpu");
    assert_true(about(r->clock_mhz, 2500) && about(r->temperature_c, 61.5));
    assert_true(about(r->utilisation, 0.5) && about(r->power_limit_mw, 225000));
    assert_true(about(r->tdp_mw, 280000));
    assert_that(r->throttle, ==, PJ_THROTTLE_THERMAL);
    r = condition(rows, count, "amdgpu");
    assert_true(about(r->temperature_c, 72) && about(r->clock_mhz, 1500));
    assert_true(about(r->utilisation, 0.37) && about(r->power_limit_mw, 250000));
    if (env.nvml_library) {
        r = condition(rows, count, "gpu1");
        assert_true(about(r->temperature_c, 61) && about(r->clock_mhz, 1980));
        assert_true(about(r->power_limit_mw, 310000) && about(r->tdp_mw, 350000));
        pj_throttle_names(r->throttle, words, sizeof words);
        assert_string_equal(words, "power,thermal");
    }
    count = pj_conditions_read(c, rows); /* nothing grew too hot since */
    assert_int_equal(condition(rows, count, "cpu")->throttle, 0);
    /* any core may be the hot one */
    file_with("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4\n");
    count = pj_conditions_read(c, rows);
    assert_int_equal(condition(rows, count, "cpu")->throttle, PJ_THROTTLE_THERMAL);
    pj_conditions_close(c);
    unsetenv("FAKE_NVML");
    char cpuinfo[16384] = ""; /* two sockets of 64 cores, one thread each */
    for (int i = 0; i < 128; i++)
        snprintf(cpuinfo + strlen(cpuinfo), sizeof cpuinfo - strlen(cpuinfo),
                 "processor : %d\nmodel name\t: AMD EPYC 7763 64-Core Processor\n"
                 "physical id\t: %d\n",
                 i, i / 64);
    file_with("proc/cpuinfo", cpuinfo);
    assert_true(about(pj_tdp_of_machine_mw(&env), 560000));
    fresh_machine(); /* a machine that reports nothing has no conditions */
    env.nvml_library = "/nonexistent";
    c = pj_conditions_open(&env);
    assert_int_equal(pj_conditions_read(c, rows), 0);
    pj_conditions_close(c);
}

int main(void)
{
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_gpu),
        cmocka_unit_test(apu),
        cmocka_unit_test(two_dies),
        cmocka_unit_test(grace_hopper),
        cmocka_unit_test(grace),
        cmocka_unit_test(two_sockets),
        cmocka_unit_test(unreadable_socket),
        cmocka_unit_test(standing_counter),
        cmocka_unit_test(dead_counter),
        cmocka_unit_test(dead_counters_are_remembered),
        cmocka_unit_test(slow_counter),
        cmocka_unit_test(one_domain_two_sources),
        cmocka_unit_test(recordings),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(nothing_to_find),
        cmocka_unit_test(parents_end),
        cmocka_unit_test(busy_baseline),
        cmocka_unit_test(busy_gpu),
        cmocka_unit_test(idle_power_between_baselines),
        cmocka_unit_test(recorded_parts),
        cmocka_unit_test(silent_gpu),
        cmocka_unit_test(stopped_sensors),
        cmocka_unit_test(lost_is_said_once),
        cmocka_unit_test(conditions),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
