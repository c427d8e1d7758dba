/* Clocks. All times are monotonic int64 nanoseconds; wall time only records when a run happened. */
#ifndef PJ_BASE_CLOCK_H
#define PJ_BASE_CLOCK_H

#include <perjoule/base.h>

#define PJ_NS_PER_S  1000000000LL
#define PJ_NS_PER_MS 1000000LL

int64_t pj_clock_wall_ns(void); /* nanoseconds since 1970, UTC */
/* Returns at once when the time has passed. */
void pj_clock_sleep_until(int64_t monotonic_ns);
/* CPU time of the calling thread, for self-reported overhead. */
int64_t pj_clock_thread_cpu_ns(void);
int64_t pj_clock_process_cpu_ns(void); /* of all its threads */
/* "2026-01-31T12:34:56.789+00:00"; `text` holds at least 32 bytes. Milliseconds, because Python
 * before 3.11 reads only three or six fraction digits. */
void pj_clock_format_iso(int64_t wall_ns, char text[32]);
/* Reads that form, and dates without a time or offset (UTC then); false for anything else. */
bool pj_clock_parse_iso(const char *text, int64_t *wall_ns);

#endif
