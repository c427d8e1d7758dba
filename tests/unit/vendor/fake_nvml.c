/*
 * A stand-in for NVIDIA's management library, built by the tests as a shared library. The variable
 * FAKE_NVML sets its behaviour, as comma-separated options:
 *
 *   gpus=N, arch=N, name=TEXT   how many GPUs (1), their architecture (7: Ampere), their name
 *   nocounter, noinstant, nousage, nofields   what is not supported
 *   memory                      field 185 with scope 2 works
 *   modulescope                 only scope 1 works
 *   mute=N                      GPU N supports none of them
 *   mig                         MIG is on
 *   lost=N, flaky=N, zero=N     GPU_IS_LOST from the Nth reading on; every Nth not supported; every
 *                               Nth power reading 0
 *   noinit                      init fails with "driver not loaded"
 *   resetat=N                   the counter starts anew at the Nth reading
 *   wave                        a card as of 2023: power is 125 W, and 705 W for the first 310 ms
 * of each 730 ms of CLOCK_MONOTONIC; the counter ticks every 100 ms, field 186 sees 25 of 100 ms,
 * field 185 a second, and there is a log of 20 ms reasons=N, noconditions     clock throttle
 * reasons as a bitmap; nothing but power is reported
 *   denied                      limits can be read only
 *
 * A power limit that is set is kept in the file FAKE_NVML_LIMIT, one of the clock in the file
 * FAKE_NVML_CLOCK, for all processes; without these variables, setting is not permitted.
 *
 * The counter rises by 1000 mJ per reading from 5,000,000,000 mJ; power is 150,000 mW.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

typedef struct field {
    unsigned int id, scope;
    long long timestamp, latency;
    int type, status;
    unsigned long long value;
} field;

typedef struct sample {
    unsigned long long stamp_us, value;
} sample;

static int readings;

static const char *option(const char *name)
{
    static _Thread_local char text[512];
    char *rest = NULL;
    const char *all = getenv("FAKE_NVML");
    snprintf(text, sizeof text, "%s", all ? all : "");
    size_t length = strlen(name);
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strncmp(word, name, length) != 0) continue;
        if (word[length] == '=') return word + length + 1;
        if (word[length] == 0) return "1";
    }
    return NULL;
}

static int number(const char *name, int otherwise)
{
    const char *text = option(name);
    return text ? atoi(text) : otherwise;
}

static unsigned index_of(void *device);

static int trouble(void *device)
{
    readings++;
    if (option("mute") && index_of(device) == (unsigned)number("mute", 0)) return 3;
    if (option("lost") && readings >= number("lost", 0)) return 15;
    if (option("flaky") && readings % number("flaky", 1) == 0) return 3;
    return 0;
}

/* ---- wave ---- */

enum { MS = 1000000, TICK = 100 * MS, LOG_STEP = 20 * MS, LOG_VALUES = 119 };

static long long wave_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Energy from 0 to `at`, mJ. */
static double wave_mj(long long at)
{
    long long whole = at / (730 * MS), rest = at % (730 * MS), on = 310 * MS;
    double busy = (double)whole * (double)on + (double)(rest < on ? rest : on);
    return (125e3 * (double)at + 580e3 * busy) * 1e-9;
}

static unsigned wave_mw(long long end, long long window)
{
    return (unsigned)((wave_mj(end) - wave_mj(end - window)) * 1e9 / (double)window);
}

static long long wave_tick(long long step)
{
    return wave_clock(CLOCK_MONOTONIC) / step * step;
}

static unsigned power(void)
{
    if (option("wave")) return wave_mw(wave_tick(TICK), 1000ll * MS);
    return option("zero") && readings % number("zero", 1) == 0 ? 0 : 150000;
}

static unsigned long long energy(void)
{
    int since = readings;
    if (option("wave")) return (unsigned long long)wave_mj(wave_tick(TICK));
    if (option("resetat") && readings >= number("resetat", 0))
        return 1000ull * (unsigned)(since - number("resetat", 0));
    return 5000000000ull + 1000ull * (unsigned)since;
}

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API const char *nvmlErrorString(int);
API int nvmlDeviceGetCount_v2(unsigned *);
API int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
API int nvmlDeviceGetUUID(void *, char *, unsigned);
API int nvmlDeviceGetName(void *, char *, unsigned);
API int nvmlDeviceGetArchitecture(void *, unsigned *);
API int nvmlDeviceGetMigMode(void *, unsigned *, unsigned *);
API int nvmlDeviceGetPowerManagementLimitConstraints(void *, unsigned *, unsigned *);
API int nvmlDeviceGetEnforcedPowerLimit(void *, unsigned *);
API int nvmlDeviceGetTotalEnergyConsumption(void *, unsigned long long *);
API int nvmlDeviceGetPowerUsage(void *, unsigned *);
API int nvmlDeviceGetFieldValues(void *, int, field *);
API int nvmlDeviceGetSamples(void *, int, unsigned long long, int *, unsigned *, sample *);
API int nvmlSystemGetDriverVersion(char *, unsigned);
API int nvmlDeviceGetTemperature(void *, int, unsigned *);
API int nvmlDeviceGetClockInfo(void *, int, unsigned *);
API int nvmlDeviceGetUtilizationRates(void *, unsigned *);
API int nvmlDeviceGetPowerManagementDefaultLimit(void *, unsigned *);
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *, unsigned long long *);

API int nvmlDeviceGetPowerManagementLimit(void *, unsigned *);
API int nvmlDeviceGetMaxClockInfo(void *, int, unsigned *);
API int nvmlDeviceSetPowerManagementLimit(void *, unsigned);
API int nvmlDeviceSetGpuLockedClocks(void *, unsigned, unsigned);
API int nvmlDeviceResetGpuLockedClocks(void *);

int nvmlInit_v2(void)
{
    return option("noinit") ? 9 : 0;
}
int nvmlShutdown(void)
{
    return 0;
}
const char *nvmlErrorString(int code)
{
    return code == 9 ? "Driver Not Loaded" : "Some Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)number("gpus", 1);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static char handles[16];
    *device = &handles[index];
    return 0;
}

static unsigned index_of(void *device)
{
    void *first;
    nvmlDeviceGetHandleByIndex_v2(0, &first);
    return (unsigned)((char *)device - (char *)first);
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes)
{
    snprintf(text, bytes, "GPU-%08x-1111-2222-3333-444444444444", 0xaaaa0000u + index_of(device));
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned bytes)
{
    const char *name = option("name");
    snprintf(text, bytes, "%s", name ? name : "Fake GPU");
    return 0;
}

int nvmlDeviceGetArchitecture(void *device, unsigned *arch)
{
    *arch = (unsigned)number("arch", 7);
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    *now = *pending = option("mig") != NULL;
    return 0;
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most)
{
    *least = 100000;
    *most = option("wave") ? 700000 : 400000;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw)
{
    *mw = (unsigned)number("limit", 300000);
    return option("nolimit") ? 3 : 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    int status = trouble(device);
    if (option("nocounter") || option("modulescope")) return 3;
    *mj = energy();
    return status;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw)
{
    int status = trouble(device);
    if (option("nousage") || option("modulescope")) return 3;
    *mw = power();
    return status;
}

int nvmlDeviceGetFieldValues(void *device, int count, field *fields)
{
    if (option("nofields")) return 13;
    for (int i = 0; i < count; i++) {
        field *f = &fields[i];
        int status = trouble(device);
        unsigned right_scope = option("modulescope") ? 1 : 0;
        f->type = 1;
        f->value = power();
        f->status = status ? status : f->scope == right_scope ? 0 : 3;
        if (f->id == 186 && option("noinstant")) f->status = 3;
        if (f->id == 186 && option("wave")) f->value = wave_mw(wave_tick(TICK), 25ll * MS);
        if (f->id == 185 && f->scope == 2 && option("memory")) f->status = status, f->value = 43000;
        if (f->id == 83) {
            f->type = 3;
            f->value = energy();
            if (status || option("nocounter") || option("modulescope")) f->status = 3;
        }
    }
    return 0;
}

/* The log, oldest first, stamped with the wall clock. */
int nvmlDeviceGetSamples(void *device, int kind, unsigned long long seen_us, int *type,
                         unsigned *count, sample *samples)
{
    unsigned room = *count, n = 0;
    if (!option("wave") || kind != 0) return 3;
    long long offset = wave_clock(CLOCK_REALTIME) - wave_clock(CLOCK_MONOTONIC);
    long long last = wave_tick(LOG_STEP);
    *type = 1;
    *count = LOG_VALUES;
    if (!samples) return 0;
    for (long long at = last - (LOG_VALUES - 1) * (long long)LOG_STEP; at <= last; at += LOG_STEP) {
        unsigned long long stamp = (unsigned long long)((at + offset) / 1000);
        if (stamp > seen_us + 1000 && n < room)
            samples[n++] = (sample){stamp, wave_mw(at, 25ll * MS)};
    }
    *count = n;
    return n > 0 ? 0 : 6;
}

int nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    snprintf(text, bytes, "590.48");
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = 60 + index_of(device);
    return option("noconditions") ? 3 : 0;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    *mhz = which == 2 ? 2619 : 1980;
    return option("noconditions") ? 3 : 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    rates[0] = 93;
    rates[1] = 40;
    return option("noconditions") ? 3 : 0;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *mw)
{
    *mw = 350000;
    return option("noconditions") ? 3 : 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = (unsigned long long)number("reasons", 0);
    return option("noconditions") ? 3 : 0;
}

/* ---- limits ---- */

static int keep(const char *variable, unsigned value)
{
    const char *path = getenv(variable);
    FILE *file = path && !option("denied") ? fopen(path, "w") : NULL;
    if (!file) return 4;
    fprintf(file, "%u\n", value);
    return fclose(file) == 0 ? 0 : 4;
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *mw)
{
    const char *path = getenv("FAKE_NVML_LIMIT");
    FILE *file = path ? fopen(path, "r") : NULL;
    *mw = (unsigned)number("limit", 300000);
    if (!file) return option("nolimit") ? 3 : 0;
    int found = fscanf(file, "%u", mw);
    fclose(file);
    return found == 1 ? 0 : 3;
}

int nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *mhz)
{
    *mhz = which == 2 ? 2619 : 1980;
    return option("noconditions") ? 3 : 0;
}

int nvmlDeviceSetPowerManagementLimit(void *device, unsigned mw)
{
    if (mw < 100000 || mw > 400000) return 2;
    return keep("FAKE_NVML_LIMIT", mw);
}

int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most)
{
    return keep("FAKE_NVML_CLOCK", most);
}

int nvmlDeviceResetGpuLockedClocks(void *device)
{
    return keep("FAKE_NVML_CLOCK", 0);
}
