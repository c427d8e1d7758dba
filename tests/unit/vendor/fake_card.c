/* The stand-in of fake_card.h. */
#include "fake_card.h"

#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define US  INT64_C(1000)
#define MS  INT64_C(1000000)

typedef struct value {
    unsigned long long bits;
} value;

typedef struct field {
    unsigned int id, scope;
    long long timestamp, latency;
    int type, status;
    value v;
} field;

typedef struct sample {
    unsigned long long stamp_us;
    value v;
} sample;

enum { PHASE_MS = 61, COUNTER_DELAY_MS = 6, LOG_MS = 20, LOG_WINDOW_MS = 25 };
enum { LOGGED = 119, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

API extern fake_card_state fake_card;
fake_card_state fake_card;
static unsigned long long stamps[LOGGED]; /* by the value's number, as stamped when it was made */
static int64_t newest;                    /* number of the newest value that is stamped */

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API const char *nvmlErrorString(int);
API int nvmlDeviceGetCount_v2(unsigned *);
API int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
API int nvmlDeviceGetUUID(void *, char *, unsigned);
API int nvmlSystemGetDriverVersion(char *, unsigned);
API int nvmlDeviceGetName(void *, char *, unsigned);
API int nvmlDeviceGetArchitecture(void *, unsigned *);
API int nvmlDeviceGetPowerManagementLimitConstraints(void *, unsigned *, unsigned *);
API int nvmlDeviceGetTotalEnergyConsumption(void *, unsigned long long *);
API int nvmlDeviceGetFieldValues(void *, int, field *);
API int nvmlDeviceGetSamples(void *, int, unsigned long long, int *, unsigned *, sample *);

/* A repeatable number in 0..1. */
static double chance(int64_t i)
{
    uint64_t x = (uint64_t)i * 0xd1342543de82ef95u + 0x632be59bd9b4e019u;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    return (double)((x ^ x >> 30) >> 11) * 0x1p-53;
}

static int64_t tick_ms(void)
{
    return fake_card.tick_ms > 0 ? fake_card.tick_ms : 100;
}

static void call_takes(double ms)
{
    int64_t ns = (int64_t)((ms > fake_card.call_ms ? ms : fake_card.call_ms) * 1e6);
    fake_card.calls_ns += ns;
    fake_card.sleep_until(fake_card.now_ns() + ns);
}

static double mean_mw(int64_t end_ns, int64_t window_ns)
{
    double joules = fake_card.joules(end_ns) - fake_card.joules(end_ns - window_ns);
    return joules / ((double)window_ns * 1e-9) * 1e3;
}

static int64_t log_time(int64_t i)
{
    return i * LOG_MS * MS + (int64_t)((chance(i) - 0.5) * 12e6);
}

int nvmlInit_v2(void)
{
    return fake_card.now_ns ? 0 : 9;
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == NOT_SUPPORTED ? "Not Supported" : "Some Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &fake_card;
    return index == 0 ? 0 : 2;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes)
{
    (void)device;
    snprintf(text, bytes, "GPU-cccc0000-1111-2222-3333-%012u", fake_card.serial);
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    snprintf(text, bytes, "580.%u", fake_card.driver);
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned bytes)
{
    (void)device;
    snprintf(text, bytes, "Fake Card");
    return 0;
}

int nvmlDeviceGetArchitecture(void *device, unsigned *arch)
{
    (void)device;
    *arch = 9;
    return 0;
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most)
{
    (void)device;
    *least = 200000;
    *most = 700000;
    return 0;
}

/* When the energy was drawn that the counter shows from a tick on. */
static int64_t counted_until(int64_t tick)
{
    return tick * tick_ms() * MS + PHASE_MS * MS - COUNTER_DELAY_MS * MS;
}

/* A counter whose sensor sees only the last 25 ms before each tick. */
static double blind_joules(int64_t tick)
{
    static int64_t counted;
    static double joules = 5e6;
    if (counted == 0) counted = tick;
    for (; counted < tick; counted++)
        joules += mean_mw(counted_until(counted + 1), LOG_WINDOW_MS * MS) * 1e-3 * tick_ms() * 1e-3;
    return joules;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    (void)device;
    if (fake_card.has_no_counter) return NOT_SUPPORTED;
    double luck = chance(++fake_card.counter_reads);
    call_takes(luck < 0.05 ? 17 : 2.6 + 0.9 * luck);
    int64_t now = fake_card.now_ns();
    if (fake_card.stops_ns > 0 && now > fake_card.stops_ns) now = fake_card.stops_ns;
    int64_t tick = (now - PHASE_MS * MS) / (tick_ms() * MS);
    double joules = fake_card.is_blind ? blind_joules(tick) : fake_card.joules(counted_until(tick));
    *mj = (unsigned long long)(joules * 1e3);
    return 0;
}

/* Instant power, published about every 103 ms. */
int nvmlDeviceGetFieldValues(void *device, int count, field *fields)
{
    (void)device;
    fake_card.field_reads++;
    for (int i = 0; i < count; i++) {
        int64_t now = fake_card.now_ns();
        fields[i].status = fields[i].id == 186 && fields[i].scope == 0 ? 0 : NOT_SUPPORTED;
        fields[i].type = 1;
        fields[i].timestamp = fake_card.wall_ns() / US;
        fields[i].v.bits =
            (unsigned)mean_mw(now / (103 * MS) * 103 * MS - 10 * MS, LOG_WINDOW_MS * MS);
    }
    return 0;
}

int nvmlDeviceGetSamples(void *device, int kind, unsigned long long since_us, int *type,
                         unsigned *count, sample *samples)
{
    (void)device;
    if (kind != 0 || fake_card.has_no_log) return NOT_SUPPORTED;
    fake_card.log_reads++;
    *type = 1;
    if (!samples) {
        *count = LOGGED;
        return 0;
    }
    call_takes(1.8);
    int64_t now = fake_card.now_ns(), offset = fake_card.wall_ns() - now;
    int64_t last = now / (LOG_MS * MS) + 1;
    unsigned n = 0;
    while (log_time(last) > now) last--;
    if (newest < last - LOGGED) newest = last - LOGGED;
    while (newest < last) {
        newest++;
        stamps[newest % LOGGED] = (unsigned long long)((log_time(newest) + offset) / US);
    }
    for (int64_t i = last - LOGGED + 1; i <= last && n < *count; i++) {
        if (stamps[i % LOGGED] <= since_us) continue;
        samples[n].stamp_us = stamps[i % LOGGED];
        samples[n++].v.bits = (unsigned)mean_mw(log_time(i) - 5 * MS / 2, LOG_WINDOW_MS * MS);
    }
    *count = n;
    return n ? 0 : NOT_FOUND;
}
