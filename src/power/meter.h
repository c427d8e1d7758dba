/*
 * The meter: all sources of one --power list, opened, sampled by one thread each, and read as one
 * stream of readings. It knows rails and time, not phases or tokens.
 *
 *     pj_meter_open(&options, &meter, &err);        characterises sensors, <= 3 s, mostly cached
 *     pj_meter_start(meter, &err);                  starts the sampler threads
 *     pj_meter_baseline(meter, ...)                 optional; idle power, cold or resident
 *     ... one collector thread calls pj_meter_read() and pj_meter_next_event() regularly ...
 *     wait pj_meter_settle_ns() after the last span, so that slow sensors have seen it
 *     pj_meter_stop(meter); drain once more; pj_meter_close(meter);
 *
 * Each source has its own thread and ring, so that a slow driver never delays a fast one.
 * pj_meter_read, _next_event and _baseline may be called by one consumer thread at a time, the rest
 * by the thread that opened the meter. Without a usable source a meter has no rails and everything
 * else still works; pj_meter_remedy then says what to do.
 */
#ifndef PJ_POWER_METER_H
#define PJ_POWER_METER_H

#include "power/contact.h"
#include "power/curve.h"
#include "power/source.h"

typedef struct pj_meter pj_meter;

typedef struct pj_meter_options {
    const char *sources;      /* the --power list; NULL: pj_power_default() */
    const pj_power_env *env;  /* NULL: from the environment; copied, its strings borrowed */
    bool skip_characterise;   /* trust the sensors' declarations */
    pj_source_report *report; /* why the last unusable source is so; NULL: not wanted */
} pj_meter_options;

/* PJ_E_INVALID for a list that cannot be parsed or a wrong argument (file, key);
 * PJ_E_UNAVAILABLE or PJ_E_DENIED when sources were named and none works. "auto" without a
 * usable source succeeds. */
pj_status pj_meter_open(const pj_meter_options *options, pj_meter **meter, pj_error *err);
void pj_meter_close(pj_meter *meter); /* NULL is allowed; stops first */

/* Borrowed; fixed from open to close. A reading's `rail` is an index into it. */
const pj_rail *pj_meter_rails(const pj_meter *meter, uint32_t *count);
pj_source_quality pj_meter_quality(const pj_meter *meter); /* the worst of its rails */
const char *pj_meter_sources(const pj_meter *meter);       /* "rapl,nvml"; "" when none works */
/* Rails that the machine has and that would count, but that may not be read: "cpu"; "" for none. */
const char *pj_meter_unread(const pj_meter *meter);
/* What first contact with a rail measured; zeros and NAN without it. */
const pj_rail_contact *pj_meter_contact(const pj_meter *meter, uint32_t rail);
/* Names of the rails of working sources that were left out because they stand still; "" for none.
 */
const char *pj_meter_still(const pj_meter *meter);
/* One or two sentences: why there is no power reading and what to do; "" when there are rails. */
const char *pj_meter_remedy(const pj_meter *meter);

/* Returns when every source has been read once, or a second or so later. */
pj_status pj_meter_start(pj_meter *meter, pj_error *err);
void pj_meter_stop(pj_meter *meter); /* joins the threads; may run twice; start may follow again */

/* Takes up to `max` readings from the rings. They are in time order per rail, not across
 * sources. */
size_t pj_meter_read(pj_meter *meter, pj_reading *readings, size_t max);
/* Adds the readings that wait in the rings to the curves, which are by rail. */
pj_status pj_meter_fill(pj_meter *meter, pj_curve *const *curves, pj_error *err);
/* Callback for every reading taken from the rings, called in the thread that takes them; NULL:
 * none. Set it while no thread reads. */
typedef void pj_meter_subscriber_fn(void *context, const pj_reading *readings, size_t count);
void pj_meter_subscribe(pj_meter *meter, pj_meter_subscriber_fn *subscriber, void *context);
/* Minimum interval between polls from the next start on; 0: as opened. Saves CPU time between
 * runs. */
void pj_meter_set_pace(pj_meter *meter, int64_t pace_ns);
/* Asks for the energy up to `at_ns` as soon as the sensors have published it: some are read rarely,
 * because a read of them is dear. May be repeated until it is known. */
void pj_meter_want(pj_meter *meter, int64_t at_ns);
/* Says that energy is wanted from `at_ns` on: a counter is read when its next value is published,
 * or, where it goes on from before, its log, which shows what is within a tick. */
void pj_meter_want_from(pj_meter *meter, int64_t at_ns);
/* How long sampling must continue after the end of an interval until its energy is known. */
int64_t pj_meter_settle_ns(const pj_meter *meter);
/* For how long after a change of load trailing averages still contain what was before. */
int64_t pj_meter_memory_ns(const pj_meter *meter);
/* The longest update period of its rails. */
int64_t pj_meter_period_ns(const pj_meter *meter);

/* ---- events ---- */

typedef enum pj_meter_event_kind {
    PJ_METER_SOURCE_RESTARTED = 0,
    PJ_METER_SOURCE_LOST,
    PJ_METER_RAIL_LOST,
    PJ_METER_FROZEN,         /* value: how long, ns */
    PJ_METER_THAWED,         /* a frozen rail moves again */
    PJ_METER_RESET,          /* a counter restarted */
    PJ_METER_REJECTED,       /* first implausible value of a rail; value: the raw value */
    PJ_METER_DISAGREES,      /* counter vs. power of one device; value: relative difference */
    PJ_METER_REPEATED,       /* value: number of further, suppressed events of this rail */
    PJ_METER_PERIOD_CHANGED, /* value: the new update period, ns */
    PJ_METER_SUSPENDED,      /* the machine or this process was suspended; value: ns */
    PJ_METER_LIMIT_CHANGED,  /* the device's power limit; value: the new one, milliwatts */
    PJ_METER_SOURCE_SKIPPED, /* a named source that cannot be used; text says why */
    PJ_METER_EVENT_COUNT
} pj_meter_event_kind;

typedef struct pj_meter_event {
    int64_t at_ns;
    double value;
    pj_meter_event_kind kind;
    uint16_t source; /* index in the order of pj_meter_sources */
    uint16_t rail;   /* index, or UINT16_MAX: the source as a whole */
} pj_meter_event;

bool pj_meter_next_event(pj_meter *meter, pj_meter_event *event);
/* A code for storage ("source_lost") and one sentence for people, whose length is returned. */
const char *pj_meter_event_code(pj_meter_event_kind kind);
int pj_meter_event_text(const pj_meter *meter, const pj_meter_event *event, char *text,
                        size_t bytes);

/* ---- cost of sampling ---- */

typedef struct pj_meter_cost {
    double cpu_share;        /* CPU time of all sampler threads / time since start */
    double jitter_us;        /* median lateness of a tick */
    double jitter_p99_us;    /* 99th percentile */
    double call_us;          /* mean duration of a read call */
    uint64_t ticks, missed;  /* missed: skipped because an earlier tick took too long */
    uint64_t readings, lost; /* lost: rings were full */
} pj_meter_cost;

void pj_meter_get_cost(const pj_meter *meter, pj_meter_cost *cost);

/* ---- idle power ---- */

typedef enum pj_baseline_kind {
    PJ_BASELINE_COLD = 0, /* before a model is loaded */
    PJ_BASELINE_RESIDENT  /* loaded, nothing running */
} pj_baseline_kind;

typedef struct pj_baseline {
    double busy_share;             /* of all CPUs during the window, NAN: unknown */
    bool quiet;                    /* nothing was busy, and no rail drifted (drift widens its sd) */
    bool rail_quiet[PJ_MAX_RAILS]; /* the machine was idle, or the rail does not depend on it */
    char busy_gpu[24];             /* the GPU that was most busy with other work, "" for none */
    double gpu_share;              /* how busy it was */
    int64_t begin_ns, end_ns;      /* when it was measured */
    uint32_t rail_count;
    double mw[PJ_MAX_RAILS];    /* median power, NAN: unknown */
    double sd_mw[PJ_MAX_RAILS]; /* 1 sigma of that figure as a baseline (robust spread) */
} pj_baseline;

/* Measures for `duration_ns` (the meter must be started) and discards the readings; ends as soon as
 * the machine has been too busy for it. */
pj_status pj_meter_baseline(pj_meter *meter, int64_t duration_ns, pj_baseline *baseline,
                            pj_error *err);
/* Whether its only source is simulated or a recording. */
bool pj_meter_is_simulated(const pj_meter *meter);
bool pj_meter_is_recorded(const pj_meter *meter);
/* The idle power of such a meter, which must be stopped: a simulated machine at rest; the beginning
 * of a recording, which goes on from there as if it had been played. Nobody waits for either. */
pj_status pj_meter_baseline_at_once(pj_meter *meter, int64_t duration_ns, pj_baseline *baseline,
                                    pj_error *err);
/* Idle power kept for the next process on this machine, by the meter's rails (idle_store.c). Only
 * what was quiet is kept. Loads it if it is at most `most_ns` old. */
void pj_baseline_keep(const pj_meter *meter, const pj_baseline *baseline);
bool pj_baseline_kept(const pj_meter *meter, int64_t most_ns, pj_baseline *baseline);
/* Sets the share of the window for which a GPU was busy (by the device's name in conditions; NAN:
 * unknown). If it was not idle, the idle power of its rail, and of rails that contain it, is not
 * known. */
void pj_baseline_note_gpu(pj_baseline *baseline, const pj_rail *rails, const char *device,
                          double share);
/* Why net figures based on it are unavailable, in one sentence; false: they are available. */
bool pj_baseline_text(const pj_baseline *baseline, char *text, size_t bytes);
/* The same from curves filled elsewhere; busy_share as measured by power/busy.h. */
void pj_baseline_compute(const pj_curve *const *curves, uint32_t rail_count, int64_t begin_ns,
                         int64_t end_ns, double busy_share, pj_baseline *baseline);
/* Idle power from `begin_ns` to `end_ns`, between two baselines: on the line between them,
 * uncertain by a change at any time in between. Where the machine was busy after it, the first one
 * stands, uncertain by all of the difference; where it was busy before, nothing is known. A model
 * that is in memory since `before` adds to a GPU's idle power from then on, which is no drift
 * (`is_loaded`). */
void pj_baseline_between(const pj_baseline *before, const pj_baseline *after, const pj_rail *rails,
                         int64_t begin_ns, int64_t end_ns, bool is_loaded, pj_baseline *idle);
/* The rail whose idle power changed most between them, if by more than its scatter and a tenth;
 * -1: none. */
int pj_baseline_moved(const pj_baseline *before, const pj_baseline *after);

/* ---- simulated sensors ---- */

/* The specification when `sim` is among the sources, else NULL; see power/sim.h. Rails of source
 * "sim" give provisional readings during the run; pj_sim_read gives the final ones. */
const struct pj_sim_spec *pj_meter_sim(const pj_meter *meter);
/* Sets the power above idle shown by provisional simulated readings. Any thread. */
void pj_meter_set_activity(pj_meter *meter, double net_mw);

#endif
