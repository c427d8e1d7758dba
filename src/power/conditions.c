/* Conditions from kernel files. The CPU is one device: mean clock of its cores, its hottest sensor,
 * its utilisation. Each GPU with a hwmon folder is a device. Files are reopened on every read: once
 * per second that is cheap, and a device that disappears does no harm. */
#include "power/conditions.h"

#include "base/memory.h"
#include "power/busy.h"
#include "power/nvml_watch.h"
#include "power/sysfs.h"
#include "power/tdp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 512, MOST_CORES = 32, MOST_CHIPS = 64, MOST_SENSORS = 16, MOST_ZONES = 8 };

struct pj_conditions {
    const char *sysfs_root;
    const pj_power_env *env;
    pj_nvml_watch *nvml;
    double tdp_mw;
    pj_busy busy;
    char cores[2 * MOST_CORES][PJ_SYSFS_NAME_BYTES]; /* all, or an even sample of them */
    uint32_t core_count;
    int64_t throttled; /* the CPU's throttle count at the last read; -1: not reported */
};

/* ---- files ---- */

static int conditions_open(const pj_conditions *c, const char *folder, const char *file)
{
    return pj_sysfs_open_at("%s%s/%s", c->sysfs_root, folder, file);
}

static uint32_t conditions_list(const pj_conditions *c, const char *folder, const char *prefix,
                                char (*names)[PJ_SYSFS_NAME_BYTES], uint32_t max)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s%s", c->sysfs_root, folder) >= PATH_BYTES) return 0;
    return pj_sysfs_list(path, prefix, names, max);
}

static pj_condition blank(const char *device)
{
    pj_condition row = {.at_ns = pj_clock_ns(),
                        .temperature_c = NAN,
                        .clock_mhz = NAN,
                        .memory_clock_mhz = NAN,
                        .utilisation = NAN,
                        .power_limit_mw = NAN,
                        .tdp_mw = NAN};
    snprintf(row.device, sizeof row.device, "%s", device);
    return row;
}

static bool says_anything(const pj_condition *row)
{
    return !isnan(row->temperature_c) || !isnan(row->clock_mhz) || !isnan(row->utilisation) ||
           !isnan(row->power_limit_mw) || row->throttle_known;
}

/* ---- the processor ---- */

static void find_cores(pj_conditions *c)
{
    enum { MOST = 1024 };
    char(*all)[PJ_SYSFS_NAME_BYTES] = pj_alloc(MOST, sizeof *all);
    uint32_t count = all ? conditions_list(c, "/sys/devices/system/cpu", "cpu", all, MOST) : 0;
    uint32_t step = count > MOST_CORES ? count / MOST_CORES : 1;
    for (uint32_t i = 0; i < count && c->core_count < 2 * MOST_CORES; i += step)
        memcpy(c->cores[c->core_count++], all[i], sizeof *all);
    pj_free(all);
}

static bool core_number(const pj_conditions *c, uint32_t core, const char *file, int64_t *value)
{
    return pj_sysfs_number(
        pj_sysfs_open_at("%s/sys/devices/system/cpu/%s/%s", c->sysfs_root, c->cores[core], file),
        value);
}

static double clock_mhz(const pj_conditions *c)
{
    double sum = 0;
    int found = 0;
    for (uint32_t i = 0; i < c->core_count; i++) {
        int64_t khz;
        if (!core_number(c, i, "cpufreq/scaling_cur_freq", &khz) || khz <= 0) continue;
        sum += (double)khz * 1e-3;
        found++;
    }
    return found ? sum / found : NAN;
}

static double hottest_input(const pj_conditions *c, const char *folder, double hottest)
{
    for (int n = 1; n <= MOST_SENSORS; n++) {
        char file[32];
        int64_t millidegrees;
        snprintf(file, sizeof file, "temp%d_input", n);
        if (pj_sysfs_number(conditions_open(c, folder, file), &millidegrees) &&
            millidegrees > -100000 && millidegrees < 200000)
            hottest = fmax(hottest, (double)millidegrees * 1e-3); /* fmax ignores NAN */
    }
    return hottest;
}

/* Position of a name in the list; -1: it is not there. */
static int conditions_index_of(const char *name, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

static double processor_temperature(const pj_conditions *c)
{
    static const char *const chips[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal", NULL};
    char names[MOST_CHIPS][PJ_SYSFS_NAME_BYTES], folder[PATH_BYTES], name[64];
    double hottest = NAN;
    uint32_t count = conditions_list(c, "/sys/class/hwmon", "hwmon", names, MOST_CHIPS);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(folder, sizeof folder, "/sys/class/hwmon/%s", names[i]);
        if (pj_sysfs_text(conditions_open(c, folder, "name"), name, sizeof name) &&
            conditions_index_of(name, chips) >= 0)
            hottest = hottest_input(c, folder, hottest);
    }
    if (!isnan(hottest)) return hottest;
    count = conditions_list(c, "/sys/class/thermal", "thermal_zone", names, MOST_CHIPS);
    for (uint32_t i = 0; i < count; i++) {
        int64_t millidegrees;
        snprintf(folder, sizeof folder, "/sys/class/thermal/%s", names[i]);
        if (!pj_sysfs_text(conditions_open(c, folder, "type"), name, sizeof name) ||
            !(strstr(name, "cpu") || strstr(name, "x86_pkg") || strstr(name, "soc")))
            continue;
        if (pj_sysfs_number(conditions_open(c, folder, "temp"), &millidegrees) &&
            millidegrees < 200000)
            hottest = fmax(hottest, (double)millidegrees * 1e-3);
    }
    return hottest;
}

static double processor_limit(const pj_conditions *c)
{
    double sum = NAN;
    for (int zone = 0; zone < MOST_ZONES; zone++) {
        char folder[PATH_BYTES], name[64];
        int64_t uw;
        snprintf(folder, sizeof folder, "/sys/class/powercap/intel-rapl:%d", zone);
        if (pj_sysfs_text(conditions_open(c, folder, "name"), name, sizeof name) &&
            strncmp(name, "package", 7) == 0 &&
            pj_sysfs_number(conditions_open(c, folder, "constraint_0_power_limit_uw"), &uw) &&
            uw > 0)
            sum = (isnan(sum) ? 0 : sum) + (double)uw * 1e-3;
    }
    return sum;
}

/* The kernel counts how often a core or its package overheated. The sum over cores counts a package
 * more than once: only whether it grows matters. */
static int64_t throttle_count(const pj_conditions *c)
{
    int64_t sum = -1;
    for (uint32_t i = 0; i < c->core_count; i++) {
        int64_t core, package = 0;
        if (!core_number(c, i, "thermal_throttle/core_throttle_count", &core)) continue;
        core_number(c, i, "thermal_throttle/package_throttle_count", &package);
        sum = (sum < 0 ? 0 : sum) + core + package;
    }
    return sum;
}

static pj_condition processor(pj_conditions *c)
{
    pj_condition row = blank("cpu");
    pj_busy now;
    pj_busy_get(c->env, &now);
    row.utilisation = pj_busy_share(&c->busy, &now);
    c->busy = now;
    row.clock_mhz = clock_mhz(c);
    row.temperature_c = processor_temperature(c);
    row.power_limit_mw = processor_limit(c);
    row.tdp_mw = c->tdp_mw;
    int64_t throttled = throttle_count(c);
    row.throttle_known = throttled >= 0;
    if (throttled > c->throttled && c->throttled >= 0) row.throttle = PJ_THROTTLE_THERMAL;
    c->throttled = throttled;
    return row;
}

/* ---- GPUs of hwmon ---- */

static pj_condition gpu(const pj_conditions *c, const char *folder, const char *name, int order)
{
    char device[64], device_name[32];
    int64_t value;
    snprintf(device_name, sizeof device_name, order ? "%.16s%d" : "%.16s", name, order);
    pj_condition row = blank(device_name);
    row.temperature_c = hottest_input(c, folder, NAN);
    if (pj_sysfs_number(conditions_open(c, folder, "freq1_input"), &value))
        row.clock_mhz = (double)value * 1e-6;
    if (pj_sysfs_number(conditions_open(c, folder, "freq2_input"), &value))
        row.memory_clock_mhz = (double)value * 1e-6;
    if (pj_sysfs_number(conditions_open(c, folder, "power1_cap"), &value) && value > 0)
        row.power_limit_mw = (double)value * 1e-3;
    if (pj_sysfs_number(conditions_open(c, folder, "power1_cap_default"), &value) && value > 0)
        row.tdp_mw = (double)value * 1e-3;
    snprintf(device, sizeof device, "%.55s/device", folder);
    if (pj_sysfs_number(conditions_open(c, device, "gpu_busy_percent"), &value) && value >= 0 &&
        value <= 100)
        row.utilisation = (double)value / 100;
    return row;
}

static uint32_t gpus(const pj_conditions *c, pj_condition *rows, uint32_t max)
{
    static const char *const chips[] = {"amdgpu", "i915", "xe", "nouveau", NULL};
    char names[MOST_CHIPS][PJ_SYSFS_NAME_BYTES], folder[PATH_BYTES], name[64];
    int orders[4] = {0};
    uint32_t found = 0, count = conditions_list(c, "/sys/class/hwmon", "hwmon", names, MOST_CHIPS);
    for (uint32_t i = 0; i < count && found < max; i++) {
        snprintf(folder, sizeof folder, "/sys/class/hwmon/%.40s", names[i]);
        if (!pj_sysfs_text(conditions_open(c, folder, "name"), name, sizeof name)) continue;
        int kind = conditions_index_of(name, chips);
        if (kind < 0) continue;
        rows[found] = gpu(c, folder, name, orders[kind]++);
        found += says_anything(&rows[found]);
    }
    return found;
}

/* ---- all ---- */

pj_conditions *pj_conditions_open(const pj_power_env *env)
{
    pj_conditions *c = pj_alloc(1, sizeof *c);
    if (!c) return NULL;
    c->env = env;
    c->sysfs_root = env->sysfs_root ? env->sysfs_root : "";
    c->tdp_mw = pj_tdp_of_machine_mw(env);
    find_cores(c);
    c->throttled = throttle_count(c);
    c->nvml = pj_nvml_watch_open(env);
    pj_busy_get(env, &c->busy);
    return c;
}

void pj_conditions_close(pj_conditions *c)
{
    if (!c) return;
    pj_nvml_watch_close(c->nvml);
    pj_free(c);
}

uint32_t pj_conditions_read(pj_conditions *c, pj_condition rows[PJ_CONDITION_DEVICES])
{
    rows[0] = processor(c);
    uint32_t count = says_anything(&rows[0]);
    if (c->nvml) count += pj_nvml_watch_read(c->nvml, rows + count, PJ_CONDITION_DEVICES - count);
    return count + gpus(c, rows + count, PJ_CONDITION_DEVICES - count);
}
