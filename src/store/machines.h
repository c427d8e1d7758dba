/*
 * Machines that store in a database: what each of them last said of itself (the table
 * machine_states), beside what its runs say. A machine is known by the name that its runs carry
 * ("CPU model · host").
 */
#ifndef PJ_STORE_MACHINES_H
#define PJ_STORE_MACHINES_H

#include "store/store.h"

/* What a machine says of itself every now and then. */
typedef struct pj_machine_beat {
    const char *name, *version;
    const char *sensors;       /* names of the sources, "rapl,nvml"; "": none; NULL: unknown */
    pj_source_quality quality; /* of the energy */
    double drawn_mj;           /* since its last beat; NAN: unavailable */
    const char *throttle;      /* reasons, "power,thermal"; "": none; NULL: unknown */
} pj_machine_beat;

/* Stores it, adds the energy to that of the day (UTC), and compares the machine's clock with the
 * server's. */
pj_status pj_store_machine_beat(pj_store *store, const pj_machine_beat *beat, pj_error *err);

typedef bool pj_machine_is_live(void *context, const char *name);

/* Writes all machines that have runs or said something of themselves, as an array. `is_live` tells
 * whether a machine's live stream can be watched through this program; NULL: none. */
pj_status pj_view_machines(pj_store *store, pj_machine_is_live *is_live, void *context,
                           pj_json *json, pj_error *err);

#endif
