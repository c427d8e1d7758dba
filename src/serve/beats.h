/* Tells the database every now and then that this machine is there: version, sensors, the energy
 * that its always-on meter has counted since the last time, throttling, and how its clock compares
 * with that of the database's server. One row per machine (store/machines.h). */
#ifndef PJ_SERVE_BEATS_H
#define PJ_SERVE_BEATS_H

#include "profile/session.h"
#include "serve/power_log.h"

typedef struct pj_beats pj_beats;

typedef struct pj_beats_options {
    const char *database;
    pj_session *session; /* its machine, meter and conditions; borrowed */
    pj_power_log *log;   /* NULL: no meter */
} pj_beats_options;

/* Starts the thread. A database that is away is tried again at the next beat, and the energy is
 * added then. */
pj_status pj_beats_open(const pj_beats_options *options, pj_beats **beats, pj_error *err);
/* After a last beat, if the one before succeeded. NULL is allowed. */
void pj_beats_close(pj_beats *beats);

#endif
