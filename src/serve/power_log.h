/*
 * Energy of each rail since the server started, as a monotonic joule counter, and the mean power of
 * each of the last seconds.
 *
 * It receives all readings of a meter, whoever reads them: counters are differenced, power readings
 * integrated by the trapezoidal rule. If two readings are too far apart, or the rail failed in
 * between, the time is a gap: it adds nothing to the counter and has no power.
 *
 * Threads: every call from any thread.
 */
#ifndef PJ_SERVE_POWER_LOG_H
#define PJ_SERVE_POWER_LOG_H

#include "trace/rail.h"

#include <stddef.h>

enum { PJ_POWER_LOG_SECONDS = 300 };

typedef struct pj_power_log pj_power_log;

/* Copies the rails. NULL when out of memory. */
pj_power_log *pj_power_log_new(const pj_rail *rails, uint32_t count);
void pj_power_log_free(pj_power_log *log); /* NULL is allowed */
void pj_power_log_take(pj_power_log *log, const pj_reading *readings, size_t count);
const pj_rail *pj_power_log_rails(const pj_power_log *log, uint32_t *count); /* borrowed */

/* Energy since the log was created, without gaps. */
double pj_power_log_energy_mj(pj_power_log *log, uint32_t rail);
/* The machine's energy since then, and its power as below: sums over the rails of the total. NAN:
 * no log (NULL), or unknown. */
void pj_power_log_machine(pj_power_log *log, int64_t now_ns, double *energy_mj, double *power_mw);
/* Mean power of the seconds just before `now_ns`; NAN: unknown. */
double pj_power_log_now_mw(pj_power_log *log, uint32_t rail, int64_t now_ns);
/* Mean power of the `count` (at most PJ_POWER_LOG_SECONDS) full seconds before `now_ns`, oldest
 * first, NAN where unknown. Returns the clock at the end of the last one. */
int64_t pj_power_log_history(pj_power_log *log, uint32_t rail, int64_t now_ns, double *power_mw,
                             uint32_t count);

#endif
