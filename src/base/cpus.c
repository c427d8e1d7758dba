/* CPUs on Linux, from sysfs and control groups; elsewhere only their number. */
#include "base/cpus.h"

#include "base/control_group.h"
#include "base/file.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

int pj_cpu_allowed(int *cpus, int max)
{
    int count = 0;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &set)) continue;
            if (cpus && count < max) cpus[count] = cpu;
            count++;
        }
        if (count > 0) return count;
    }
#endif
    count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (count < 1) count = 1;
    for (int i = 0; cpus && i < count && i < max; i++) cpus[i] = i;
    return count;
}

/* ---- order ------------------------------------------------------------------------------ */

typedef struct placed_cpu {
    int cpu;
    int core;         /* the lowest CPU of its core */
    int before;       /* CPUs of the same core that come before it */
    double capacity;  /* relative to the fastest core's */
    double frequency; /* the highest; 0: unknown */
} placed_cpu;

static double cpu_figure(const char *root, int cpu, const char *name, double otherwise)
{
    char folder[PATH_BYTES];
    double value;
    snprintf(folder, sizeof folder, "%s/sys/devices/system/cpu/cpu%d", root, cpu);
    return pj_file_numbers(folder, name, &value, 1) == 1 && value >= 0 ? value : otherwise;
}

static int compare_placed(const void *a, const void *b)
{
    const placed_cpu *x = a, *y = b;
    if (x->before != y->before) return x->before < y->before ? -1 : 1;
    if (x->capacity != y->capacity) return x->capacity > y->capacity ? -1 : 1;
    if (x->frequency != y->frequency) return x->frequency > y->frequency ? -1 : 1;
    return x->cpu < y->cpu ? -1 : 1;
}

int pj_cpu_order(const char *root, int *cpus, int count)
{
    placed_cpu placed[PJ_CPUS_MAX];
    int cores = 0;
    for (int i = 0; i < count; i++) {
        placed_cpu *p = &placed[i];
        /* "0,64" or "0-1": a list begins with the lowest */
        double first = cpu_figure(root, cpus[i], "topology/core_cpus_list", -1);
        if (first < 0) first = cpu_figure(root, cpus[i], "topology/thread_siblings_list", cpus[i]);
        *p = (placed_cpu){.cpu = cpus[i],
                          .core = (int)first,
                          .capacity = cpu_figure(root, cpus[i], "cpu_capacity", 0),
                          .frequency = cpu_figure(root, cpus[i], "cpufreq/cpuinfo_max_freq", 0)};
        for (int j = 0; j < i; j++) p->before += placed[j].core == p->core;
        cores += p->before == 0;
    }
    qsort(placed, (size_t)count, sizeof *placed, compare_placed);
    for (int i = 0; i < count; i++) cpus[i] = placed[i].cpu;
    return cores;
}

/* ---- quota ------------------------------------------------------------------------------ */

/* The smaller of two limits, where 0 is none. */
static int smaller_quota(int a, int b)
{
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* Version 2: "QUOTA PERIOD" or "max PERIOD"; version 1: -1 is no limit. */
static void quota_of_group(const char *folder, bool second, void *context)
{
    double time[2]; /* quota, period */
    int *quota = context;
    bool known = second ? pj_file_numbers(folder, "cpu.max", time, 2) == 2
                        : pj_file_numbers(folder, "cpu.cfs_quota_us", &time[0], 1) == 1 &&
                              pj_file_numbers(folder, "cpu.cfs_period_us", &time[1], 1) == 1;
    if (known && time[0] > 0 && time[1] > 0)
        *quota = smaller_quota((int)ceil(time[0] / time[1]), *quota);
}

int pj_cpu_quota(const char *root)
{
    int quota = 0;
    pj_group_each(root, "cpu", quota_of_group, &quota);
    return quota;
}

int pj_cpu_places(int cpus[PJ_CPUS_MAX], int *cores)
{
    int count = pj_cpu_allowed(cpus, PJ_CPUS_MAX);
    if (count > PJ_CPUS_MAX) count = PJ_CPUS_MAX;
    *cores = pj_cpu_order("", cpus, count);
    return count;
}

int pj_cpu_threads(void)
{
    int cpus[PJ_CPUS_MAX], cores;
    pj_cpu_places(cpus, &cores);
    return smaller_quota(pj_cpu_quota(""), cores);
}

/* ---- cache ------------------------------------------------------------------------------ */

/* Linux: level and size of a cache of the first CPU. */
static bool described_cache(const char *root, int index, int *level, double *bytes)
{
    char path[PATH_BYTES], text[2][32] = {"", ""}, unit = 0;
    const char *const files[] = {"level", "size"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/%s", root, index,
                 files[i]);
        FILE *file = fopen(path, "r");
        bool whole = file && fgets(text[i], sizeof text[i], file);
        if (file) fclose(file);
        if (!whole) return false;
    }
    int fields = sscanf(text[1], "%lf%c", bytes, &unit);
    *bytes *= unit == 'K' ? 1024 : unit == 'M' ? 1 << 20 : unit == 'G' ? 1 << 30 : 1;
    return fields >= 1 && sscanf(text[0], "%d", level) == 1 && *bytes > 0;
}

/* The C library's answer comes last: under a hypervisor it was seen to be the sum of all caches of
 * the host. */
double pj_cpu_cache_bytes(const char *root)
{
    double last = 0, bytes;
    int last_level = 0, level;
    for (int i = 0; described_cache(root, i, &level, &bytes); i++)
        if (level >= last_level) last_level = level, last = bytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (last <= 0 && !*root) last = (double)sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (last <= 0 && !*root) last = (double)sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return last > 0 ? last : NAN;
}
