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

/* A machine that has runs or heartbeats; texts NULL: unknown. */
typedef struct pj_machine_row {
    char *name, *sensors, *source, *throttle, *version; /* source: of the last run or heartbeat */
    char last_run[PJ_UUID_BYTES];                       /* "": none */
    int64_t runs, run_ns, beat_ns;                      /* wall times of the last run and beat */
    bool any_modelled_today;                            /* of the runs */
    double today_runs_mj, today_meter_mj, offset_ms, uncertainty_ms;
} pj_machine_row;

/* In the arena, the last one heard of first. */
pj_status pj_store_machines(pj_store *store, pj_arena *arena, pj_machine_row **rows,
                            uint32_t *count, pj_error *err);
/* Energy since midnight (UTC): as metered by the machine's server, else of its runs; NAN: unknown.
 */
static inline double pj_machine_today_mj(const pj_machine_row *m)
{
    return m->today_meter_mj == m->today_meter_mj ? m->today_meter_mj : m->today_runs_mj;
}
/* Of today's energy where there is any, else of the sensors. */
const char *pj_machine_source(const pj_machine_row *machine);

typedef struct pj_energy_today {
    double mj;    /* NAN: unknown */
    bool metered; /* all of the day's, by the machine's server; else that of its runs */
    bool modelled;
} pj_energy_today;

/* Of one machine, without looking at the runs of other days. */
pj_status pj_store_energy_today(pj_store *store, const char *machine, pj_energy_today *today,
                                pj_error *err);

typedef bool pj_machine_is_live(void *context, const char *name);

/* Writes them as an array. `is_live` returns whether a machine's live stream can be watched through
 * this program; NULL: none can. */
pj_status pj_view_machines(pj_store *store, pj_machine_is_live *is_live, void *context,
                           pj_json *json, pj_error *err);

#endif
