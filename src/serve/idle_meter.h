/* Runs the session's meter between runs, at a low rate, so that the server always knows the
 * machine's power. Runs and the idle server share one meter: no sensor is opened twice. A run takes
 * the meter (pause), samples at its own rate, and returns it (resume); its readings reach the log
 * through the meter's subscriber. */
#ifndef PJ_SERVE_IDLE_METER_H
#define PJ_SERVE_IDLE_METER_H

#include "power/meter.h"
#include "serve/power_log.h"

typedef struct pj_idle_meter pj_idle_meter;

/* `meter` is borrowed and must not be running. Starts sampling. */
pj_status pj_idle_meter_open(pj_meter *meter, pj_idle_meter **idle, pj_error *err);
void pj_idle_meter_close(pj_idle_meter *idle); /* no run may be in progress; NULL is allowed */
/* From one thread, alternately. NULL is allowed. */
void pj_idle_meter_pause(pj_idle_meter *idle);
void pj_idle_meter_resume(pj_idle_meter *idle);
pj_power_log *pj_idle_meter_log(const pj_idle_meter *idle); /* borrowed; NULL for NULL */

#endif
