/* Clocks over POSIX; macOS lacks clock_nanosleep, so sleeping there is relative. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * PJ_NS_PER_S + t.tv_nsec;
}

int64_t pj_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}
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
