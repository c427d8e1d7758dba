/* Texts of /sys: the whole input as every file of a machine with RAPL and hwmon. */
#include "base/file.h"
#include "base/memory.h"
#include "power/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[64];

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
                                    "/sys/class/hwmon/hwmon0/update_interval"};

static void remove_machine(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    if (system(command) != 0) abort();
}

static void make_machine(void)
{
    snprintf(root, sizeof root, "/tmp/pj-fuzz-XXXXXX");
    if (!mkdtemp(root)) abort();
    atexit(remove_machine);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", root, files[i]);
        *strrchr(path, '/') = 0;
        if (pj_dir_make(path, NULL) != PJ_OK) abort();
    }
}

/* The input is split at bytes 0xff: one part per file; further files get the last part. */
static void fill_machine(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
        size_t length = end ? (size_t)(end - data) : size;
        char path[256];
        snprintf(path, sizeof path, "%s%s", root, files[i]);
        FILE *f = fopen(path, "wb");
        if (!f) abort();
        fwrite(data, 1, length, f);
        fclose(f);
        if (end) size -= length + 1, data = end + 1;
    }
}

static void use_source(const char *name)
{
    const pj_power_source *s = pj_power_source_find(name, strlen(name));
    pj_power_env env = {.sysfs_root = root, .procfs_root = root};
    pj_reading readings[PJ_MAX_RAILS];
    pj_rail rails[PJ_MAX_RAILS];
    pj_error err;
    uint32_t count;
    void *state = pj_alloc(1, s->state_bytes);
    if (state && s->open(state, &env, "", &err) == PJ_OK) {
        uint32_t rail_count = s->rails(state, rails, PJ_MAX_RAILS);
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
    if (!root[0]) make_machine();
    if (size > 4096) return 0;
    fill_machine(data, size);
    use_source("rapl");
    use_source("hwmon");
    return 0;
}
