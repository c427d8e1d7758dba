/* CPUs and memory that a process may use, from folders as Linux shows them. */
#include "../assertions.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/process.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static char root[32];

static int make_root(void **state)
{
    snprintf(root, sizeof root, "/tmp/perjoule-cpus-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Writes a file below the root, and the folders above it. */
static void __attribute__((format(printf, 2, 3))) put(const char *text, const char *format, ...)
{
    char path[400];
    pj_error err;
    int used = snprintf(path, sizeof path, "%s/", root);
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, sizeof path - (size_t)used, format, args);
    va_end(args);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(pj_dir_make(path, &err), PJ_OK);
    *slash = '/';
    assert_int_equal(pj_file_write(path, text, strlen(text), &err), PJ_OK);
}

#define SYSFS_CPU "sys/devices/system/cpu/cpu%d/"

/* Orders CPUs 0 to count - 1. */
static int order(int *cpus, int count)
{
    for (int i = 0; i < count; i++) cpus[i] = i;
    return pj_cpu_order(root, cpus, count);
}

static void assert_order(const int *cpus, const int *expected, int count)
{
    for (int i = 0; i < count; i++) assert_int_equal(cpus[i], expected[i]);
}

static void every_core_comes_before_a_second_thread(void **state)
{
    int cpus[4];
    /* nothing known: as they are numbered, each a core */
    assert_int_equal(order(cpus, 4), 4);
    assert_order(cpus, (int[]){0, 1, 2, 3}, 4);
    /* threads of a core numbered next to each other, by the older name of the list */
    for (int i = 0; i < 4; i++)
        put(i < 2 ? "0-1\n" : "2-3\n", SYSFS_CPU "topology/thread_siblings_list", i);
    assert_int_equal(order(cpus, 4), 2);
    assert_order(cpus, (int[]){0, 2, 1, 3}, 4);
    /* half of all CPUs apart */
    for (int i = 0; i < 4; i++)
        put(i % 2 ? "1,3\n" : "0,2\n", SYSFS_CPU "topology/core_cpus_list", i);
    assert_int_equal(order(cpus, 4), 2);
    assert_order(cpus, (int[]){0, 1, 2, 3}, 4);
    /* only second threads are allowed, and one pair */
    int some[] = {2, 3, 1};
    assert_int_equal(pj_cpu_order(root, some, 3), 2);
    assert_order(some, (int[]){2, 3, 1}, 3);
}

/* Two fast cores of two threads each, two slow ones; the second fast core boosts higher. */
static void faster_cores_come_first(void **state)
{
    static const char *const cores[] = {"0", "1", "2-3", "2-3", "4-5", "4-5"};
    static const char *const highest[] = {"3800000", "3800000", "5000000",
                                          "5000000", "5200000", "5200000"};
    int cpus[6];
    for (int i = 0; i < 6; i++) {
        put(cores[i], SYSFS_CPU "topology/core_cpus_list", i);
        put(highest[i], SYSFS_CPU "cpufreq/cpuinfo_max_freq", i);
    }
    assert_int_equal(order(cpus, 6), 4);
    assert_order(cpus, (int[]){4, 2, 0, 1, 5, 3}, 6);
    /* the kernel's capacity says more than a frequency */
    for (int i = 0; i < 6; i++) put(i < 2 ? "1024\n" : "500\n", SYSFS_CPU "cpu_capacity", i);
    assert_int_equal(order(cpus, 6), 4);
    assert_order(cpus, (int[]){0, 1, 4, 2, 5, 3}, 6);
    /* not understood: as if it were not there */
    for (int i = 0; i < 6; i++) put("fast\n", SYSFS_CPU "cpu_capacity", i);
    assert_int_equal(order(cpus, 6), 4);
    assert_order(cpus, (int[]){4, 2, 0, 1, 5, 3}, 6);
}

static void quotas_of_the_second_version_bind(void **state)
{
    assert_int_equal(pj_cpu_quota(root), 0);
    put("0::/\n", "proc/self/cgroup"); /* a container's own root */
    assert_int_equal(pj_cpu_quota(root), 0);
    put("max 100000\n", "sys/fs/cgroup/cpu.max");
    assert_int_equal(pj_cpu_quota(root), 0);
    put("250000 100000\n", "sys/fs/cgroup/cpu.max");
    assert_int_equal(pj_cpu_quota(root), 3);
    put("0::/pods/one\n", "proc/self/cgroup");
    assert_int_equal(pj_cpu_quota(root), 3); /* of the group above */
    put("50000 100000\n", "sys/fs/cgroup/pods/one/cpu.max");
    assert_int_equal(pj_cpu_quota(root), 1);
    put("max 100000\n", "sys/fs/cgroup/pods/one/cpu.max");
    put("200000 100000\n", "sys/fs/cgroup/pods/cpu.max");
    assert_int_equal(pj_cpu_quota(root), 2);
    put("none\n", "sys/fs/cgroup/pods/cpu.max");
    assert_int_equal(pj_cpu_quota(root), 3);
}

static void quotas_of_the_first_version_bind(void **state)
{
    put("9:cpuset:/\n5:cpuacct,cpu:/docker/abc\n0::/\n", "proc/self/cgroup");
    assert_int_equal(pj_cpu_quota(root), 0);
    put("-1\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    put("100000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us");
    assert_int_equal(pj_cpu_quota(root), 0);
    put("400000\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    assert_int_equal(pj_cpu_quota(root), 4); /* mounted as the root of a container */
    put("150000\n", "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us");
    put("100000\n", "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us");
    assert_int_equal(pj_cpu_quota(root), 2);
    put("9:cpuset:/\n5:cpuacct:/docker/abc\n", "proc/self/cgroup"); /* no limit of time */
    assert_int_equal(pj_cpu_quota(root), 0);
}

static void threads_are_at_least_one_and_on_allowed_cpus(void **state)
{
    int threads = pj_cpu_threads();
    assert_that(threads, >=, 1);
    assert_that(threads, <=, pj_cpu_allowed(NULL, 0));
}

static void describe_cache(int index, const char *level, const char *size)
{
    put(level, "sys/devices/system/cpu/cpu0/cache/index%d/level", index);
    put(size, "sys/devices/system/cpu/cpu0/cache/index%d/size", index);
}

static void the_last_cache_is_one_instance(void **state)
{
    assert_true(isnan(pj_cpu_cache_bytes(root)));
    describe_cache(0, "1\n", "32K\n");
    describe_cache(1, "2\n", "1024K\n");
    assert_true(pj_cpu_cache_bytes(root) == 1 << 20);
    describe_cache(2, "3\n", "32M\n");
    assert_true(pj_cpu_cache_bytes(root) == 32 << 20);
    describe_cache(3, "4\n", "much\n"); /* not understood: as if it were not there */
    assert_true(pj_cpu_cache_bytes(root) == 32 << 20);
}

static void memory_is_what_the_groups_leave(void **state)
{
    assert_true(isnan(pj_memory_limit(root)) && isnan(pj_memory_available(root)));
    put("MemTotal:     1000 kB\nMemFree:  100 kB\nMemAvailable:   600 kB\nSwapFree:      0 kB\n",
        "proc/meminfo");
    assert_near(pj_memory_limit(root), 1000 * 1024, 0);
    assert_near(pj_memory_available(root), 600 * 1024, 0);
    put("0::/pods/one\n", "proc/self/cgroup");
    put("max\n", "sys/fs/cgroup/pods/one/memory.max");
    put("300000\n", "sys/fs/cgroup/pods/one/memory.current");
    assert_near(pj_memory_available(root), 600 * 1024, 0);
    /* of the group above, less what it uses, but for the page cache */
    put("500000\n", "sys/fs/cgroup/pods/memory.max");
    put("400000\n", "sys/fs/cgroup/pods/memory.current");
    put("anon 90000\nfile 310000\ninactive_file 30000\nactive_file 10000\n",
        "sys/fs/cgroup/pods/memory.stat");
    assert_near(pj_memory_limit(root), 500000, 0);
    assert_near(pj_memory_available(root), 140000, 0);
    /* swap on a disk, as far as the group has some; what ZFS would give back */
    put("Filename Type Size Used Priority\n/dev/zram0 partition 4000 0 100\n"
        "/dev/sda2 partition 60 10 -2\n",
        "proc/swaps");
    assert_near(pj_memory_available(root), 140000 + 50 * 1024, 0);
    put("30000\n", "sys/fs/cgroup/pods/memory.swap.max");
    put("20000\n", "sys/fs/cgroup/pods/memory.swap.current");
    assert_near(pj_memory_available(root), 150000, 0);
    put("0\n", "sys/fs/cgroup/pods/memory.swap.max");
    put("600000\n", "sys/fs/cgroup/pods/memory.current"); /* the limit was lowered */
    assert_near(pj_memory_available(root), 40000, 0);
    put("0::/\n", "proc/self/cgroup");
    assert_near(pj_memory_available(root), 650 * 1024, 0);
    put("p1 6 0x01 1\nname type data\nc 4 900000\nc_min 4 20000\nsize 4 80000\n",
        "proc/spl/kstat/zfs/arcstats");
    assert_near(pj_memory_available(root), 650 * 1024 + 60000, 0);
}

static void memory_of_the_first_version(void **state)
{
    put("MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapFree: 0 kB\n", "proc/meminfo");
    put("4:memory:/docker/abc\n3:cpuset:/\n", "proc/self/cgroup");
    put("9223372036854771712\n", "sys/fs/cgroup/memory/memory.limit_in_bytes");
    put("1000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes");
    assert_near(pj_memory_limit(root), 1000 * 1024, 0);
    assert_near(pj_memory_available(root), 600 * 1024, 0);
    put("200000\n", "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes");
    put("150000\n", "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes");
    put("cache 70000\ntotal_inactive_file 20000\ntotal_active_file 5000\n",
        "sys/fs/cgroup/memory/docker/abc/memory.stat");
    assert_near(pj_memory_limit(root), 200000, 0);
    assert_near(pj_memory_available(root), 75000, 0);
    put("/dev/sda2 partition 60 10 -2\n", "proc/swaps");
    assert_near(pj_memory_available(root), 75000 + 50 * 1024, 0);
    put("210000\n", "sys/fs/cgroup/memory/docker/abc/memory.memsw.limit_in_bytes");
    put("155000\n", "sys/fs/cgroup/memory/docker/abc/memory.memsw.usage_in_bytes");
    assert_near(pj_memory_available(root), 80000, 0);
}

/* What this machine says of itself. */
static void memory_of_this_machine(void **state)
{
    double limit = pj_memory_limit(""), available = pj_memory_available("");
    assert_that(limit, >, 0);
    if (!isnan(available)) assert_that(available, >, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_core_comes_before_a_second_thread),
        TEST(faster_cores_come_first),
        TEST(quotas_of_the_second_version_bind),
        TEST(quotas_of_the_first_version_bind),
        TEST(the_last_cache_is_one_instance),
        TEST(memory_is_what_the_groups_leave),
        TEST(memory_of_the_first_version),
        cmocka_unit_test(memory_of_this_machine),
        cmocka_unit_test(threads_are_at_least_one_and_on_allowed_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
