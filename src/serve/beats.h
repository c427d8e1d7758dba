/* Periodic heartbeats of this machine in the database: version, sensors, the energy counted by its
 * always-on meter since the last beat, throttling, and the offset of its clock from the database
 * server's. One row per machine (store/machines.h). */
#ifndef PJ_SERVE_BEATS_H
#define PJ_SERVE_BEATS_H

#include "record/session.h"
#include "serve/power_log.h"

typedef struct pj_beats pj_beats;

typedef struct pj_beats_options {
    const char *database;
    pj_session *session; /* provides machine, meter and conditions; borrowed */
    pj_power_log *log;   /* NULL: no meter */
} pj_beats_options;

/* Starts the thread. When the database is unreachable, the next beat retries and includes the
 * energy. */
pj_status pj_beats_open(const pj_beats_options *options, pj_beats **beats, pj_error *err);
/* Sends a last beat if the previous one succeeded. NULL is allowed. */
void pj_beats_close(pj_beats *beats);

#endif
