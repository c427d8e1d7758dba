/* Memory from /proc and control groups (Linux) or from task_info (macOS). */
#include "base/process.h"

#include "base/control_group.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <unistd.h>

bool pj_process_memory_get(pj_process_memory *memory)
{
    task_vm_info_data_t info;
    mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
    *memory = (pj_process_memory){0};
    if (task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&info, &count) != KERN_SUCCESS)
        return false;
    memory->resident_bytes = info.resident_size;
    memory->anonymous_bytes = info.internal;
    memory->file_bytes = info.external;
    return true;
}

double pj_memory_limit(const char *root)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    (void)root;
    return pages > 0 && size > 0 ? (double)pages * (double)size : NAN;
}

double pj_memory_available(const char *root)
{
    (void)root;
    return NAN;
}

pj_status pj_process_path(char *path, size_t bytes, pj_error *err)
{
    uint32_t size = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    if (_NSGetExecutablePath(path, &size) == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the path of this program is longer than %zu bytes", bytes);
}

#else
#include <unistd.h>

/* "RssAnon:     1234 kB" */
static bool read_kilobytes(const char *text, const char *name, uint64_t *bytes)
{
    const char *line = strstr(text, name);
    if (!line) return false;
    char *end;
    line += strlen(name);
    unsigned long long value = strtoull(line, &end, 10);
    *bytes += value * 1024;
    return end != line;
}

bool pj_process_memory_get(pj_process_memory *memory)
{
    enum { MAX_STATUS_BYTES = 1 << 20 };
    char *text;
    size_t bytes;
    *memory = (pj_process_memory){0};
    if (pj_file_read("/proc/self/status", MAX_STATUS_BYTES, &text, &bytes, NULL) != PJ_OK)
        return false;
    /* files in tmpfs count as files, although the kernel counts them as shared memory */
    bool known = read_kilobytes(text, "\nRssAnon:", &memory->anonymous_bytes) &&
                 read_kilobytes(text, "\nRssFile:", &memory->file_bytes) &&
                 read_kilobytes(text, "\nRssShmem:", &memory->file_bytes);
    pj_free(text);
    if (known)
        memory->resident_bytes = memory->anonymous_bytes + memory->file_bytes;
    else
        *memory = (pj_process_memory){0};
    return known;
}

/* ---- memory that is left ------------------------------------------------------------------- */

enum { MOST_STATISTICS_BYTES = 1 << 16, PATH_BYTES = 1024 };

/* Sums some values of a file of lines "NAME VALUE"; false if there is no such file. */
static bool sum_statistics(const char *folder, const char *file, const char *const *names,
                           double unit, double *sum)
{
    char path[PATH_BYTES], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (pj_file_read(path, MOST_STATISTICS_BYTES, &text, &bytes, NULL) != PJ_OK) return false;
    for (; *names; names++)
        for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
            if (strncmp(line, *names, strlen(*names)) == 0)
                *sum += unit * strtod(line + strlen(*names), NULL);
    pj_free(text);
    return true;
}

static double system_memory(const char *root, const char *const *names)
{
    double sum = 0;
    return sum_statistics(root, "proc/meminfo", names, 1024, &sum) && sum > 0 ? sum : NAN;
}

static bool group_limit(const char *folder, bool second, double *limit)
{
    const char *name = second ? "memory.max" : "memory.limit_in_bytes";
    return pj_file_numbers(folder, name, limit, 1) == 1; /* "max" is none */
}

static void bound_limit(const char *folder, bool second, void *context)
{
    double *least = context, limit;
    if (group_limit(folder, second, &limit)) *least = fmin(*least, limit);
}

typedef struct memory_left {
    double bytes, swap;
} memory_left;

/* What a group may still take of a limit; NAN: there is none. */
static double group_left(const char *folder, const char *limit_file, const char *used_file)
{
    double limit, used;
    if (pj_file_numbers(folder, limit_file, &limit, 1) != 1 || /* "max" is none */
        pj_file_numbers(folder, used_file, &used, 1) != 1)
        return NAN;
    return fmax(0, limit - used);
}

/* A group is charged for caches, which are reclaimed before anything is killed. Version 1 limits
 * memory and swap together. */
static void bound_available(const char *folder, bool second, void *context)
{
    static const char *const first[] = {"total_inactive_file ", "total_active_file ", NULL};
    static const char *const later[] = {"inactive_file ", "active_file ", "slab_reclaimable ",
                                        NULL};
    memory_left *left = context;
    double caches = 0, swap = left->swap;
    sum_statistics(folder, "memory.stat", second ? later : first, 1, &caches);
    if (second) {
        swap = fmin(swap, group_left(folder, "memory.swap.max", "memory.swap.current"));
        double memory = group_left(folder, "memory.max", "memory.current");
        left->bytes = fmin(left->bytes, memory + caches + swap);
        return;
    }
    double memory = group_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
    double both = group_left(folder, "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes");
    left->bytes = fmin(left->bytes, fmin(memory + swap, both) + caches);
}

/* Swap on a disk: compressed memory (zram) is not more of it. */
static double swap_left(const char *root)
{
    char path[PATH_BYTES], name[64], *text;
    size_t bytes;
    double sum = 0, size, used;
    snprintf(path, sizeof path, "%s/proc/swaps", root);
    if (pj_file_read(path, MOST_STATISTICS_BYTES, &text, &bytes, NULL) != PJ_OK) return 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
        if (sscanf(line, "/%63s %*s %lf %lf", name, &size, &used) == 3 && !strstr(name, "zram"))
            sum += 1024 * (size - used);
    pj_free(text);
    return sum;
}

/* What ZFS caches, which MemAvailable leaves out. */
static double zfs_cache(const char *root)
{
    char path[PATH_BYTES], *text;
    size_t bytes;
    double all = 0, kept = 0, value;
    snprintf(path, sizeof path, "%s/proc/spl/kstat/zfs/arcstats", root);
    if (pj_file_read(path, MOST_STATISTICS_BYTES, &text, &bytes, NULL) != PJ_OK) return 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        if (sscanf(line, "size %*s %lf", &value) == 1) all = value;
        if (sscanf(line, "c_min %*s %lf", &value) == 1) kept = value;
    }
    pj_free(text);
    return fmax(0, all - kept);
}

double pj_memory_limit(const char *root)
{
    static const char *const all[] = {"MemTotal:", NULL};
    double limit = system_memory(root, all);
    pj_group_each(root, "memory", bound_limit, &limit);
    return limit;
}

double pj_memory_available(const char *root)
{
    static const char *const available[] = {"MemAvailable:", NULL};
    memory_left left = {.bytes = system_memory(root, available), .swap = swap_left(root)};
    left.bytes += left.swap + zfs_cache(root);
    pj_group_each(root, "memory", bound_available, &left);
    return left.bytes;
}

pj_status pj_process_path(char *path, size_t bytes, pj_error *err)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes);
    if (length < 0) return pj_fail_errno(err, errno, "cannot find the path of this program");
    if ((size_t)length >= bytes)
        return pj_fail(err, PJ_E_INVALID, "the path of this program is longer than %zu bytes",
                       bytes);
    path[length] = 0;
    return PJ_OK;
}

#endif

pj_status pj_process_sibling(const char *name, char *path, size_t bytes, pj_error *err)
{
    pj_status status = pj_process_path(path, bytes, err);
    if (status != PJ_OK) return status;
    char *slash = strrchr(path, '/');
    size_t left = bytes - (slash ? (size_t)(slash + 1 - path) : bytes);
    if (strlen(name) >= left)
        return pj_fail(err, PJ_E_INVALID, "the path of %s is longer than %zu bytes", name, bytes);
    strcpy(slash + 1, name);
    return PJ_OK;
}
