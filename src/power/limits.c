/* Finding and setting power limits and clocks. */
#include "power/limits.h"

#include "base/memory.h"
#include "power/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ZONES    "/sys/class/powercap"
#define POLICIES "/sys/devices/system/cpu/cpufreq"
#define HWMON    "/sys/class/hwmon"

enum { FIRST_NAMES = 256 };

/* ---- files ---- */

static bool number_at(const char *folder, const char *file, int64_t *value)
{
    return pj_sysfs_number(pj_sysfs_open_at("%s/%s", folder, file), value);
}

static double scaled_at(const char *folder, const char *file, double unit)
{
    int64_t value;
    return number_at(folder, file, &value) && value > 0 ? (double)value * unit : NAN;
}

static pj_limit *limit_add(pj_limits *l, pj_limit_what what, const char *device, double unit)
{
    if (l->count == PJ_LIMITS_MAX) return NULL;
    pj_limit *limit = &l->items[l->count++];
    *limit = (pj_limit){.what = what,
                        .now = NAN,
                        .usual = NAN,
                        .least = NAN,
                        .most = NAN,
                        .settable = true,
                        .file_begin = (uint32_t)l->file_count,
                        .unit = unit};
    snprintf(limit->device, sizeof limit->device, "%s", device);
    return limit;
}

/* Adds a file to the limit that was added last; one that cannot be read is left alone. */
static void limit_add_file(pj_limits *l, pj_limit *limit, const char *folder, const char *file)
{
    pj_limit_file *files = pj_grow(l->files, l->file_count, &l->file_capacity, sizeof *l->files);
    if (!files) return;
    l->files = files;
    pj_limit_file *f = &files[l->file_count];
    int length = snprintf(f->path, sizeof f->path, "%s/%s", folder, file);
    if (length < 0 || (size_t)length >= sizeof f->path || !number_at(folder, file, &f->former) ||
        f->former <= 0)
        return;
    l->file_count++;
    limit->file_count++;
    double now = (double)f->former * limit->unit;
    if (isnan(limit->now) || now > limit->now) limit->now = now;
    if (limit->settable && access(f->path, W_OK) != 0) {
        limit->settable = false;
        snprintf(limit->reason, sizeof limit->reason, "%s cannot be written: %s", f->path,
                 errno == EACCES ? "it takes root" : strerror(errno));
    }
}

/* Drops the limit that was added last if it has no file. */
static void keep_if_any(pj_limits *l)
{
    if (!l->items[l->count - 1].file_count) l->count--;
}

/* ---- the CPU ---- */

/* The long-term limit of every package, and the short-term one, which would let a short run exceed
 * it. "intel-rapl:N" only: a zone of intel-rapl-mmio is the same package through another register.
 */
static void find_packages(pj_limits *l)
{
    char folder[PJ_LIMIT_PATH_BYTES], zone[PJ_LIMIT_PATH_BYTES + 80], name[PJ_SYSFS_NAME_BYTES];
    char names[FIRST_NAMES][PJ_SYSFS_NAME_BYTES];
    if (!pj_power_path(folder, sizeof folder, l->env->sysfs_root, ZONES)) return;
    pj_limit *limit = limit_add(l, PJ_LIMIT_POWER, "cpu", 1e-3);
    if (!limit) return;
    uint32_t count = pj_sysfs_list(folder, "intel-rapl:", names, FIRST_NAMES);
    for (uint32_t i = 0; i < count; i++) {
        int64_t enabled = 1;
        if (strchr(names[i] + strlen("intel-rapl:"), ':')) continue; /* a part of a package */
        snprintf(zone, sizeof zone, "%s/%s", folder, names[i]);
        if (!pj_sysfs_text(pj_sysfs_open_at("%s/name", zone), name, sizeof name) ||
            strncmp(name, "package", 7) != 0)
            continue;
        limit_add_file(l, limit, zone, "constraint_0_power_limit_uw");
        double long_term = limit->now;
        limit_add_file(l, limit, zone, "constraint_1_power_limit_uw");
        limit->now = long_term;
        limit->usual = scaled_at(zone, "constraint_0_max_power_uw", limit->unit);
        if (number_at(zone, "enabled", &enabled) && !enabled && limit->settable) {
            limit->settable = false;
            snprintf(limit->reason, sizeof limit->reason,
                     "%.300s is not enabled: the firmware's limit is in force", zone);
        }
    }
    limit->most = fmax(limit->now, limit->usual);
    keep_if_any(l);
}

static void find_cores(pj_limits *l)
{
    char folder[PJ_LIMIT_PATH_BYTES], policy[PJ_LIMIT_PATH_BYTES + 80];
    char names[FIRST_NAMES][PJ_SYSFS_NAME_BYTES];
    if (!pj_power_path(folder, sizeof folder, l->env->sysfs_root, POLICIES)) return;
    pj_limit *limit = limit_add(l, PJ_LIMIT_CLOCK, "cpu", 1e-3);
    if (!limit) return;
    uint32_t count = pj_sysfs_list(folder, "policy", names, FIRST_NAMES);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(policy, sizeof policy, "%s/%s", folder, names[i]);
        limit_add_file(l, limit, policy, "scaling_max_freq");
        double least = scaled_at(policy, "cpuinfo_min_freq", limit->unit);
        double most = scaled_at(policy, "cpuinfo_max_freq", limit->unit);
        limit->least = fmin(limit->least, least);
        limit->most = fmax(limit->most, most);
    }
    limit->usual = limit->most;
    keep_if_any(l);
}

/* ---- GPUs ---- */

/* Named and numbered as in a run's conditions: "amdgpu", "amdgpu1", ... */
static void find_amd(pj_limits *l)
{
    char folder[PJ_LIMIT_PATH_BYTES], chip[PJ_LIMIT_PATH_BYTES + 80], name[PJ_SYSFS_NAME_BYTES];
    char names[FIRST_NAMES][PJ_SYSFS_NAME_BYTES], device[PJ_LIMIT_TEXT_BYTES];
    uint32_t number = 0;
    if (!pj_power_path(folder, sizeof folder, l->env->sysfs_root, HWMON)) return;
    uint32_t count = pj_sysfs_list(folder, "hwmon", names, FIRST_NAMES);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(chip, sizeof chip, "%s/%s", folder, names[i]);
        if (!pj_sysfs_text(pj_sysfs_open_at("%s/name", chip), name, sizeof name) ||
            strcmp(name, "amdgpu") != 0)
            continue;
        if (number)
            snprintf(device, sizeof device, "amdgpu%u", number);
        else
            snprintf(device, sizeof device, "amdgpu");
        number++;
        pj_limit *limit = limit_add(l, PJ_LIMIT_POWER, device, 1e-3);
        if (!limit) return;
        limit_add_file(l, limit, chip, "power1_cap");
        limit->usual = scaled_at(chip, "power1_cap_default", limit->unit);
        limit->least = scaled_at(chip, "power1_cap_min", limit->unit);
        limit->most = fmax(scaled_at(chip, "power1_cap_max", limit->unit), limit->now);
        keep_if_any(l);
    }
}

static void find_nvidia(pj_limits *l)
{
    uint32_t count = l->nvml ? pj_nvml_watch_count(l->nvml) : 0;
    for (uint32_t i = 0; i < count; i++) {
        char device[PJ_LIMIT_TEXT_BYTES];
        snprintf(device, sizeof device, "gpu%u", i);
        for (pj_limit_what what = PJ_LIMIT_POWER; what <= PJ_LIMIT_CLOCK; what++) {
            pj_nvml_limit found = {0};
            bool power = what == PJ_LIMIT_POWER;
            if (!(power ? pj_nvml_power_limit : pj_nvml_clock_limit)(l->nvml, i, &found)) continue;
            pj_limit *limit = limit_add(l, what, device, 1);
            if (!limit) return;
            limit->now = found.now, limit->usual = found.usual;
            limit->least = found.least, limit->most = found.most;
            snprintf(limit->name, sizeof limit->name, "%s", found.name);
            snprintf(limit->uuid, sizeof limit->uuid, "%s", found.uuid);
            limit->settable = found.settable;
            if (!found.settable)
                snprintf(limit->reason, sizeof limit->reason,
                         "the driver has no call that sets it");
            else if (geteuid() != 0 && !l->env->nvml_library) {
                limit->settable = false;
                snprintf(limit->reason, sizeof limit->reason, "setting it takes root");
            }
        }
    }
}

pj_status pj_limits_find(const pj_power_env *env, pj_limits *l, pj_error *err)
{
    *l = (pj_limits){.env = env};
    l->nvml = pj_nvml_watch_open(env);
    find_nvidia(l);
    find_amd(l);
    find_packages(l);
    find_cores(l);
    if (l->count) return PJ_OK;
    pj_limits_close(l);
    return pj_fail(err, PJ_E_UNAVAILABLE,
                   "this machine shows no power limit and no clock that could be set (NVML, "
                   "amdgpu, powercap, cpufreq)");
}

void pj_limits_close(pj_limits *l)
{
    pj_nvml_watch_close(l->nvml);
    pj_free(l->files);
    *l = (pj_limits){0};
}

/* ---- setting ---- */

pj_status pj_limit_file_write(const char *path, int64_t value, pj_error *err)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%" PRId64 "\n", value);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC); /* sysfs has no rename */
    if (fd < 0) return pj_fail_errno(err, errno, "cannot write %s", path);
    ssize_t written = write(fd, text, (size_t)length);
    int error = errno;
    close(fd);
    if (written == length) return PJ_OK;
    return pj_fail_errno(err, written < 0 ? error : EIO, "cannot write %s", path);
}

static const pj_limit_file *files_of(const pj_limits *l, const pj_limit *limit)
{
    return l->files + limit->file_begin;
}

/* In force now; NAN: unknown. */
static double limit_now(const pj_limits *l, const pj_limit *limit)
{
    if (!limit->file_count)
        return limit->what == PJ_LIMIT_POWER ? pj_nvml_power_now(l->nvml, limit->uuid) : NAN;
    int64_t value;
    const char *path = files_of(l, limit)[0].path;
    return pj_sysfs_number(pj_sysfs_open_at("%s", path), &value) ? (double)value * limit->unit
                                                                 : NAN;
}

static const char *unit_name(const pj_limit *limit)
{
    return limit->what == PJ_LIMIT_POWER ? "mW" : "MHz";
}

pj_status pj_limit_set(const pj_limits *l, const pj_limit *limit, double value, pj_error *err)
{
    pj_status status = PJ_OK;
    if (!limit->file_count) {
        status = limit->what == PJ_LIMIT_POWER
                     ? pj_nvml_power_set(l->nvml, limit->uuid, value, err)
                     : pj_nvml_clock_set(l->nvml, limit->uuid, value, err);
    } else {
        const pj_limit_file *files = files_of(l, limit);
        for (uint32_t i = 0; i < limit->file_count && status == PJ_OK; i++)
            status = pj_limit_file_write(files[i].path, llround(value / limit->unit), err);
    }
    double now = limit_now(l, limit);
    if (status != PJ_OK || isnan(now) || fabs(now / value - 1) < 0.01) return status;
    return pj_fail(err, PJ_E_UNAVAILABLE,
                   "%s did not take a limit of %.0f %s: %.0f are in force (locked by the firmware, "
                   "or out of its bounds)",
                   limit->device, value, unit_name(limit), now);
}

pj_status pj_limit_restore(const pj_limits *l, const pj_limit *limit, pj_error *err)
{
    if (!limit->file_count)
        return limit->what == PJ_LIMIT_POWER
                   ? pj_nvml_power_set(l->nvml, limit->uuid, limit->now, err)
                   : pj_nvml_clock_set(l->nvml, limit->uuid, NAN, err);
    pj_status status = PJ_OK;
    const pj_limit_file *files = files_of(l, limit);
    for (uint32_t i = 0; i < limit->file_count; i++) { /* also after a failure */
        pj_status one = pj_limit_file_write(files[i].path, files[i].former, err);
        if (one != PJ_OK) status = one;
    }
    return status;
}

/* ---- as commands ---- */

/* "echo 80000000 | sudo tee A B >/dev/null": files of one value share a command. */
static void file_commands(const pj_limits *l, const pj_limit *limit, double value, pj_buffer *out)
{
    const pj_limit_file *files = files_of(l, limit);
    for (uint32_t i = 0; i < limit->file_count;) {
        int64_t number = isnan(value) ? files[i].former : llround(value / limit->unit);
        pj_buffer_printf(out, "%secho %" PRId64 " | sudo tee", i ? "; " : "", number);
        for (bool same = true; i < limit->file_count && same; i++) {
            pj_buffer_printf(out, " %s", files[i].path);
            same = !isnan(value) || (i + 1 < limit->file_count && files[i + 1].former == number);
        }
        pj_buffer_text(out, " >/dev/null");
    }
}

void pj_limit_command(const pj_limits *l, const pj_limit *limit, double value, pj_buffer *out)
{
    bool reset = isnan(value);
    if (limit->file_count)
        file_commands(l, limit, value, out);
    else if (limit->what == PJ_LIMIT_POWER)
        pj_buffer_printf(out, "sudo nvidia-smi -i %s -pl %.0f", limit->uuid,
                         (reset ? limit->now : value) / 1e3);
    else if (reset)
        pj_buffer_printf(out, "sudo nvidia-smi -i %s -rgc", limit->uuid);
    else
        pj_buffer_printf(out, "sudo nvidia-smi -i %s -lgc 0,%.0f", limit->uuid, value);
}
