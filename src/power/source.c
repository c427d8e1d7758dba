/* Helpers for power sources: paths below a configurable root, parsing sysfs numbers, reports. They
 * are separate from the table of sources (sources.c), which includes
 * every source, so that dependencies stay acyclic. */
#include "power/source.h"

#include <stdarg.h>
#include <stdio.h>

bool pj_power_path(char *out, size_t bytes, const char *root, const char *path)
{
    int length = snprintf(out, bytes, "%s%s", root ? root : "", path);
    return length >= 0 && (size_t)length < bytes;
}

bool pj_power_parse_u64(const char *text, size_t bytes, uint64_t *value)
{
    uint64_t number = 0;
    size_t i = 0;
    for (; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    if (i == 0) return false;
    if (i < bytes && text[i] != 0 && text[i] != '\n' && text[i] != ' ' && text[i] != '\t' &&
        text[i] != '\r')
        return false;
    *value = number;
    return true;
}

void pj_source_report_set(pj_source_report *report, pj_source_state state, const char *remedy,
                          const char *reason_format, ...)
{
    va_list args;
    report->state = state;
    va_start(args, reason_format);
    vsnprintf(report->reason, sizeof report->reason, reason_format, args);
    va_end(args);
    snprintf(report->remedy, sizeof report->remedy, "%s", remedy);
}
