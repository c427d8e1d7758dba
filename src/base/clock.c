/* Clocks over POSIX; macOS lacks clock_nanosleep, so sleeping there is relative. */
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * PJ_NS_PER_S + t.tv_nsec;
}

#ifdef __x86_64__
/*
 * clock_gettime takes 25 ns, because it serialises on earlier instructions; reading the time-stamp
 * counter takes 10 ns and does not wait. Where the kernel derives CLOCK_MONOTONIC from that counter
 * (having checked that it is invariant and synchronised across cores), each thread reads the
 * counter and recalibrates it against the clock every millisecond. The error, tens of nanoseconds,
 * comes from changes of the clock's rate in between and from reading both at one instant.
 */
typedef struct counter_clock {
    uint64_t ticks, valid; /* at the last calibration; for how many ticks it holds */
    int64_t ns;            /* the clock at that time */
    int64_t least;         /* lower bound of the next reading: a thread's time never goes back */
    uint64_t scale;        /* nanoseconds per tick, times 2^32; 0: unknown */
    uint64_t base_ticks;   /* with base_ns: an earlier calibration, to measure the scale */
    int64_t base_ns;
} counter_clock;

enum { UNKNOWN, SYSTEM, COUNTER };

static atomic_int clock_in_use = UNKNOWN;

/* PERJOULE_CLOCK=system: always clock_gettime. */
static int choose_clock(void)
{
    char source[16] = "";
    int saved = errno, choice = SYSTEM;
    const char *wanted = getenv("PERJOULE_CLOCK");
    int file = wanted && strcmp(wanted, "system") == 0
                   ? -1
                   : open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                          O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, source, sizeof source - 1) > 0 && strcmp(source, "tsc\n") == 0)
            choice = COUNTER;
        close(file);
    }
    atomic_store_explicit(&clock_in_use, choice, memory_order_relaxed);
    errno = saved;
    return choice;
}

static int64_t ns_of_ticks(const counter_clock *c, uint64_t ticks)
{
    return (int64_t)(ticks * c->scale >> 32);
}

/* Measures the scale over 1 ms at first, then over 100 ms, again and again. After a jump (the
 * machine was suspended or migrated) it is unknown until the next measurement. */
static void measure_scale(counter_clock *c)
{
    enum { FIRST_NS = 1000000, NEXT_NS = 100 * FIRST_NS, MOST_NS = 10 * NEXT_NS };
    int64_t passed_ns = c->ns - c->base_ns;
    if (passed_ns < (c->scale ? NEXT_NS : FIRST_NS)) return;
    double scale = (double)passed_ns / (double)(c->ticks - c->base_ticks) * 0x1p32;
    bool jumped = c->scale && fabs(scale / (double)c->scale - 1) > 0.001;
    bool measured = c->base_ns && c->ticks > c->base_ticks && passed_ns < MOST_NS && !jumped;
    c->scale = measured ? (uint64_t)scale : passed_ns < MOST_NS ? 0 : c->scale;
    c->base_ticks = c->ticks;
    c->base_ns = c->ns;
}

static int64_t relate_clocks(counter_clock *c)
{
    enum { VALID_NS = 1000000, INTERRUPTED = 400 /* ticks */ };
    uint64_t before = __builtin_ia32_rdtsc();
    int64_t now = read_clock(CLOCK_MONOTONIC);
    uint64_t after = __builtin_ia32_rdtsc(), passed = before - c->ticks;
    if (c->valid) { /* no reading was later than this */
        int64_t last = c->ns + ns_of_ticks(c, passed < c->valid ? passed : c->valid);
        if (last > c->least) c->least = last;
    }
    c->valid = 0;
    if (after - before < INTERRUPTED) {
        c->ticks = before + (after - before) / 2;
        c->ns = now;
        measure_scale(c);
        if (c->scale) c->valid = ((uint64_t)VALID_NS << 32) / c->scale;
    }
    return now > c->least ? now : c->least;
}

int64_t pj_clock_ns(void)
{
    static _Thread_local counter_clock here;
    int in_use = atomic_load_explicit(&clock_in_use, memory_order_relaxed);
    if (in_use == UNKNOWN) in_use = choose_clock();
    if (in_use == SYSTEM) return read_clock(CLOCK_MONOTONIC);
    uint64_t passed = __builtin_ia32_rdtsc() - here.ticks;
    if (__builtin_expect(passed >= here.valid, 0)) return relate_clocks(&here);
    int64_t now = here.ns + ns_of_ticks(&here, passed);
    return now > here.least ? now : here.least;
}
#else
int64_t pj_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}
#endif

int64_t pj_clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}
int64_t pj_clock_thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
int64_t pj_clock_process_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void pj_clock_sleep_until(int64_t monotonic_ns)
{
#ifdef __APPLE__
    for (int64_t left; (left = monotonic_ns - pj_clock_ns()) > 0;) {
        struct timespec t = {(time_t)(left / PJ_NS_PER_S), (long)(left % PJ_NS_PER_S)};
        nanosleep(&t, NULL);
    }
#else
    struct timespec t = {(time_t)(monotonic_ns / PJ_NS_PER_S), (long)(monotonic_ns % PJ_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
#endif
}

void pj_clock_format_iso(int64_t wall_ns, char text[32])
{
    time_t seconds = (time_t)(wall_ns / PJ_NS_PER_S);
    int ms = (int)(wall_ns % PJ_NS_PER_S / PJ_NS_PER_MS);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, 32, "%s.%03d+00:00", date, ms < 0 ? 0 : ms);
}

/* Days since 1970-01-01 of a proleptic Gregorian date (timegm is not POSIX). */
static int64_t days_from_civil(int64_t y, int m, int d)
{
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool parse_offset(const char *p, int *seconds)
{
    int h, m, used = 0;
    *seconds = 0;
    if (*p == 0 || strcmp(p, "Z") == 0 || strcmp(p, "z") == 0) return true;
    if (*p != '+' && *p != '-' && *p != ' ') return false; /* ' ': a '+' that a URL decoder ate */
    if (sscanf(p + 1, "%2d:%2d%n", &h, &m, &used) != 2 || p[1 + used] != 0) return false;
    *seconds = (h * 60 + m) * 60 * (*p == '-' ? -1 : 1);
    return h >= 0 && h < 24 && m >= 0 && m < 60;
}

bool pj_clock_parse_iso(const char *text, int64_t *wall_ns)
{
    int y, mo, d, h = 0, mi = 0, s = 0, used = 0, offset;
    int64_t fraction = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &y, &mo, &d, &used) != 3) return false;
    if (y < 1970 || y > 2261) return false; /* int64 nanoseconds end in 2262 */
    const char *p = text + used;
    if (*p == 'T' || *p == ' ') {
        if (sscanf(p + 1, "%2d:%2d:%2d%n", &h, &mi, &s, &used) != 3) return false;
        p += 1 + used;
        if (*p == '.') {
            int64_t unit = PJ_NS_PER_S;
            for (p++; *p >= '0' && *p <= '9'; p++)
                if (unit > 1) fraction += (*p - '0') * (unit /= 10);
        }
    }
    if (!parse_offset(p, &offset)) return false;
    if (mo < 1 || mo > 12 || d < 1 || d > 31 || h < 0 || h > 23 || mi < 0 || mi > 59 || s < 0 ||
        s > 60)
        return false;
    int64_t seconds = days_from_civil(y, mo, d) * 86400 + h * 3600 + mi * 60 + s - offset;
    *wall_ns = seconds * PJ_NS_PER_S + fraction;
    return true;
}
