/* The machine fingerprint, from /proc and uname. Unreadable members are null. */
#include "record/machine.h"

#include "base/cpus.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "record/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The value after "KEY<white space>:" or "KEY=" in a multi-line text; "" when absent. */
static void find_value(const char *text, const char *key, char separator, char *value, size_t bytes)
{
    size_t length = strlen(key);
    value[0] = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, key, length) != 0) continue;
        const char *at = line + length + strspn(line + length, " \t");
        if (*at++ != separator) continue;
        at += strspn(at, " \t\"");
        int n = (int)strcspn(at, "\n\"");
        snprintf(value, bytes, "%.*s", n, at);
        return;
    }
}

static void machine_read_value(const char *root, const char *path, const char *key, char separator,
                               char *value, size_t bytes)
{
    char full[4096], *text = NULL;
    size_t length;
    value[0] = 0;
    if ((size_t)snprintf(full, sizeof full, "%s%s", root, path) >= sizeof full) return;
    if (pj_file_read(full, 4 << 20, &text, &length, NULL) != PJ_OK) return;
    find_value(text, key, separator, value, bytes);
    pj_free(text);
}

static double memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (double)pages * (double)size : NAN;
}

static void write_sensors(pj_json *json, const pj_rail *rails, uint32_t count)
{
    pj_json_kv_array_begin(json, "rails");
    for (uint32_t i = 0; i < count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", rails[i].name);
        pj_json_kv_string(json, "source", rails[i].source);
        pj_json_kv_string(json, "device", rails[i].device);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

void pj_machine_cpu(const char *procfs, char cpu[PJ_CPU_NAME_BYTES])
{
    struct utsname kernel = {0};
    machine_read_value(procfs, "/proc/cpuinfo", "model name", ':', cpu, PJ_CPU_NAME_BYTES);
    uname(&kernel);
    if (!cpu[0]) snprintf(cpu, PJ_CPU_NAME_BYTES, "%s", kernel.machine);
}

pj_status pj_machine_read(const char *procfs, const pj_rail *rails, uint32_t rail_count,
                          pj_arena *arena, pj_machine *machine, pj_error *err)
{
    char cpu[PJ_CPU_NAME_BYTES], os[128], text[512];
    struct utsname kernel = {0};
    pj_machine_cpu(procfs, cpu);
    machine_read_value("", "/etc/os-release", "PRETTY_NAME", '=', os, sizeof os);
    uname(&kernel);
    if (!os[0]) snprintf(os, sizeof os, "%s", kernel.sysname);

    uint64_t hash = pj_hash64(0, cpu, strlen(cpu));
    hash = pj_hash64(hash, os, strlen(os));
    for (uint32_t i = 0; i < rail_count; i++)
        hash = pj_hash64(hash, rails[i].device, strlen(rails[i].device));
    snprintf(machine->fingerprint, sizeof machine->fingerprint, "%016llx",
             (unsigned long long)hash);

    pj_json json;
    pj_json_open(&json, 1 << 20);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "cpu", cpu);
    pj_json_kv_string(&json, "architecture", kernel.machine);
    pj_json_kv_int(&json, "cpus_online", sysconf(_SC_NPROCESSORS_ONLN));
    pj_json_kv_int(&json, "cpus_allowed", pj_cpu_allowed(NULL, 0));
    pj_json_kv_double(&json, "memory_bytes", memory_bytes());
    pj_json_kv_double(&json, "cache_bytes", pj_cpu_cache_bytes(""));
    pj_json_kv_string(&json, "os", os);
    pj_json_kv_string(&json, "kernel", kernel.release);
    pj_json_kv_string(&json, "host", kernel.nodename);
    pj_json_kv_string(&json, "fingerprint", machine->fingerprint);
    pj_machine_limits_write(cpu, &json);
    write_sensors(&json, rails, rail_count);
    pj_json_object_end(&json);
    snprintf(text, sizeof text, "%s · %s", cpu, kernel.nodename);
    machine->name = pj_arena_strndup(arena, text, strlen(text));
    machine->json = pj_json_keep(&json, arena);
    return machine->name && machine->json ? PJ_OK
                                          : pj_fail_memory(err, "the machine's description");
}
