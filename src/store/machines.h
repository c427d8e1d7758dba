/*
 * The machines that store in a database: the last heartbeat of each (table machine_states) and
 * figures of its runs. A machine is identified by the name stored with its runs ("CPU model ·
 * host").
 */
#ifndef PJ_STORE_MACHINES_H
#define PJ_STORE_MACHINES_H

#include "store/store.h"

/* A machine's heartbeat. */
typedef struct pj_machine_beat {
    const char *name, *version;
    const char *sensors;       /* names of the sources, "rapl,nvml"; "": none; NULL: unknown */
    pj_source_quality quality; /* of the energy */
    double drawn_mj;           /* since the previous heartbeat; NAN: unavailable */
    const char *throttle;      /* reasons, "power,thermal"; "": none; NULL: unknown */
} pj_machine_beat;

/* Stores a heartbeat, adds its energy to the day's sum (UTC), and measures the clock offset from
 * the server. */
pj_status pj_store_machine_beat(pj_store *store, const pj_machine_beat *beat, pj_error *err);

typedef bool pj_machine_is_live(void *context, const char *name);

/* Writes all machines that have runs or heartbeats, as an array. `is_live` tells whether a
 * machine's live stream can be watched through this program; NULL: none can. */
pj_status pj_view_machines(pj_store *store, pj_machine_is_live *is_live, void *context,
                           pj_json *json, pj_error *err);

#endif
