/* Contents of sysfs files: the input is split into the files of a machine with RAPL and hwmon. The
 * file system is simulated in memory: this file replaces src/power/sysfs_files.c, because system
 * calls would take nearly all of the time. */
#include "base/memory.h"
#include "power/source.h"
#include "power/sysfs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOT "/machine"

typedef struct part {
    const uint8_t *text;
    size_t bytes;
} part;

/* In the order of the input's parts; names in a folder are sorted, as pj_sysfs_list promises. */
static const char *const files[] = {"/sys/class/powercap/intel-rapl:0/name",
                                    "/sys/class/powercap/intel-rapl:0/energy_uj",
                                    "/sys/class/powercap/intel-rapl:0/max_energy_range_uj",
                                    "/sys/class/powercap/intel-rapl:0:0/name",
                                    "/sys/class/powercap/intel-rapl:0:0/energy_uj",
                                    "/sys/class/hwmon/hwmon0/name",
                                    "/sys/class/hwmon/hwmon0/energy1_input",
                                    "/sys/class/hwmon/hwmon0/energy1_label",
                                    "/sys/class/hwmon/hwmon0/power2_input",
                                    "/sys/class/hwmon/hwmon0/power2_cap",
                                    "/sys/class/hwmon/hwmon0/in3_input",
                                    "/sys/class/hwmon/hwmon0/curr3_input",
                                    "/sys/class/hwmon/hwmon0/update_interval",
                                    "/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw",
                                    "/sys/class/hwmon/hwmon0/power1_average",
                                    "/sys/class/hwmon/hwmon0/power1_average_interval",
                                    "/sys/class/hwmon/hwmon0/power2_label",
                                    "/sys/class/hwmon/hwmon0/in0_label",
                                    "/sys/class/hwmon/hwmon0/device/device",
                                    "/sys/class/hwmon/hwmon1/name",
                                    "/sys/class/hwmon/hwmon1/power1_input",
                                    "/sys/class/hwmon/hwmon1/power1_oem_info",
                                    "/proc/cpuinfo"};
enum { FILES = sizeof files / sizeof *files };
static part parts[FILES];
/* Files indexed by path length, because the sources ask for many that do not exist. Numbers from 1;
 * 0: end of the list. */
enum { LENGTHS = 96 };
static int of_length[LENGTHS], next_of_length[FILES];
static int opened; /* open files */

static void sort_by_length(void)
{
    for (int i = 0; i < FILES; i++) {
        size_t length = strlen(files[i]);
        next_of_length[i] = of_length[length];
        of_length[length] = i + 1;
    }
}

/* The input is split at bytes 0xff: one part per file; all further files share the last part. */
static void fill_machine(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < FILES; i++) {
        const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
        parts[i] = (part){data, end ? (size_t)(end - data) : size};
        if (end) size -= parts[i].bytes + 1, data = end + 1;
    }
}

/* ---- the functions of sysfs_files.c, in memory ----------------------------------------------- */

int pj_sysfs_open(const char *path)
{
    path += strlen(ROOT);
    size_t length = strlen(path);
    for (int i = length < LENGTHS ? of_length[length] : 0; i; i = next_of_length[i - 1])
        if (memcmp(files[i - 1], path, length) == 0) {
            opened++;
            return i - 1;
        }
    errno = ENOENT;
    return -1;
}

void pj_sysfs_close(int fd)
{
    if (fd >= 0 && (fd >= FILES || opened-- <= 0)) abort();
}

int64_t pj_sysfs_fetch(int fd, char *text, size_t bytes)
{
    if (fd < 0 || fd >= FILES) abort();
    size_t got = parts[fd].bytes < bytes ? parts[fd].bytes : bytes;
    if (got) memcpy(text, parts[fd].text, got);
    return (int64_t)got;
}

void pj_sysfs_link(const char *path, char *target, size_t bytes)
{
    target[0] = 0;
}

uint32_t pj_sysfs_list(const char *folder, const char *prefix, char (*names)[PJ_SYSFS_NAME_BYTES],
                       uint32_t max)
{
    folder += strlen(ROOT);
    size_t length = strlen(folder);
    uint32_t count = 0;
    for (int i = 0; i < FILES && count < max; i++) {
        const char *name = files[i] + length + 1;
        if (strncmp(files[i], folder, length) != 0 || files[i][length] != '/' ||
            strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        size_t bytes = strcspn(name, "/");
        bool known = false;
        for (uint32_t k = 0; k < count; k++)
            known |= strlen(names[k]) == bytes && memcmp(names[k], name, bytes) == 0;
        if (known || bytes >= PJ_SYSFS_NAME_BYTES) continue;
        memcpy(names[count], name, bytes);
        names[count++][bytes] = 0;
    }
    return count;
}

/* ---- the sources ---------------------------------------------------------------------------- */

static void use_source(const char *name)
{
    const pj_power_source *s = pj_power_source_find(name, strlen(name));
    /* not "/sys", so that rapl does not use the kernel's perf events */
    pj_power_env env = {.sysfs_root = ROOT, .procfs_root = ROOT};
    pj_reading readings[PJ_MAX_RAILS];
    pj_rail rails[PJ_MAX_RAILS];
    pj_source_report report = {0};
    uint32_t count;
    void *state = pj_alloc(1, s->state_bytes);
    if (state && s->open(state, &env, "", &report) == PJ_OK) {
        uint32_t rail_count = s->rails(state, rails);
        for (uint32_t i = 0; i < rail_count; i++)
            if (rails[i].parent >= (int)rail_count || rails[i].parent == (int)i) abort();
        if (s->read(state, readings, PJ_MAX_RAILS, &count) == PJ_OK)
            for (uint32_t i = 0; i < count; i++)
                if (readings[i].status != PJ_READING_OK && !isnan(readings[i].value)) abort();
        s->close(state);
    }
    pj_free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 4096) return 0;
    static bool sorted;
    if (!sorted) sort_by_length();
    sorted = true;
    fill_machine(data, size);
    use_source("rapl");
    use_source("hwmon");
    if (opened != 0) abort(); /* leaked file descriptor */
    return 0;
}
