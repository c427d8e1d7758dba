/* Helpers for power sources: paths below a configurable root, parsing sysfs numbers, reports,
 * polling. They are separate from the table of sources (sources.c), so that dependencies stay
 * acyclic. */
#include "power/source.h"

#include <math.h>
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

pj_status pj_source_explain(pj_source_report *report, pj_status status, const char *remedy,
                            const char *reason_format, ...)
{
    va_list args;
    report->state = status == PJ_OK         ? PJ_SOURCE_OPTIONAL
                    : status == PJ_E_DENIED ? PJ_SOURCE_DENIED
                                            : PJ_SOURCE_ABSENT;
    va_start(args, reason_format);
    vsnprintf(report->reason, sizeof report->reason, reason_format, args);
    va_end(args);
    snprintf(report->remedy, sizeof report->remedy, "%s", remedy);
    return status;
}

void pj_source_fail_reading(pj_reading *r, pj_status status)
{
    bool gone = status == PJ_E_NOT_FOUND || status == PJ_E_LOST;
    r->value = NAN;
    r->status = gone ? PJ_READING_LOST : status == PJ_E_AGAIN ? PJ_READING_OK : PJ_READING_GAP;
    r->reason = gone                                             ? PJ_REASON_GONE
                : status == PJ_E_INVALID || status == PJ_E_AGAIN ? PJ_REASON_NOT_A_NUMBER
                : status == PJ_E_DENIED                          ? PJ_REASON_DENIED
                : status == PJ_E_UNSUPPORTED                     ? PJ_REASON_UNSUPPORTED
                                                                 : PJ_REASON_IO;
}

uint32_t pj_source_poll(void *state, uint32_t rail_count, pj_source_read_fn *read,
                        pj_reading *readings)
{
    for (uint32_t i = 0; i < rail_count; i++) {
        pj_reading *r = &readings[i];
        *r = (pj_reading){.rail = (uint16_t)i, .before_ns = pj_clock_ns()};
        pj_status status = read(state, i, &r->value);
        r->after_ns = pj_clock_ns();
        if (status != PJ_OK) pj_source_fail_reading(r, status);
    }
    return rail_count;
}
