/* Samples one source: a thread that reads it on an absolute schedule, classifies the readings, and
 * passes them on through a ring. Internal to the meter. */
#ifndef PJ_POWER_SAMPLER_H
#define PJ_POWER_SAMPLER_H

#include "base/ring.h"
#include "base/thread.h"
#include "power/coarsen.h"
#include "power/contact.h"
#include "power/filter.h"
#include "power/poll.h"

enum { PJ_LATENESS_BUCKETS = 128 };
enum { PJ_LOGGED = 128 }; /* two ticks of a card, of several cards */

typedef struct pj_power_sampler {
    const pj_power_source *source;
    const pj_power_env *env; /* of the meter */
    const char *argument;
    void *state;
    bool open, restarted;
    uint16_t index;              /* of the source in the meter */
    uint32_t rail_count;         /* of the source, including those not kept */
    pj_rail rails[PJ_MAX_RAILS]; /* as the source gave them */
    int16_t kept[PJ_MAX_RAILS];  /* index in the meter, or -1: a better source provides it */
    bool unstated[PJ_MAX_RAILS]; /* the source does not state an update period */
    pj_rail_contact contacts[PJ_MAX_RAILS];
    uint64_t dead;    /* bit mask of counters that stood still while they were watched */
    uint64_t renamed; /* of rails that the source calls otherwise: another took its place */
    pj_filter filters[PJ_MAX_RAILS];
    pj_coarsen coarsen[PJ_MAX_RAILS];
    pj_poll polls[PJ_MAX_RAILS];
    pj_reading early[PJ_MAX_RAILS]; /* of counters whose log has not reached them yet */
    pj_reading last[PJ_MAX_RAILS];  /* of costly counters, as passed on */
    pj_reading logged[PJ_LOGGED];   /* newest readings of logs, in turn */
    uint32_t logged_count;
    uint64_t resumed;     /* bit mask of rails that go on from `last` and `logged` */
    uint64_t early_rails; /* bit mask of those that wait */
    int64_t interval_ns;  /* between polls */
    int64_t pace_ns;      /* minimum between polls; set while the thread does not run */
    pj_reading scratch[PJ_SOURCE_READ_MAX];

    pj_ring readings; /* of pj_reading */
    pj_ring events;   /* of pj_meter_event */
    pthread_t thread;
    bool running;
    _Atomic int64_t wanted_ns; /* the time whose energy someone waits for; 0: none */
    _Atomic int64_t from_ns;   /* a time from which someone wants it; 0: none */
    _Atomic bool stop, begun;  /* begun: the first tick of this start is over */
    int64_t started_ns;
    uint32_t sequence;
    int64_t last_tick_ns, sleep_offset_ns;
    int64_t limits_due_ns; /* when power limits are read next; 0: at once */
    uint32_t limit_count;  /* number of known limits; 0: not read yet in this run */
    double limits_mw[PJ_MAX_RAILS];

    /* cost of sampling; written by the thread, read by anyone */
    _Atomic int64_t cpu_ns, call_ns, elapsed_ns;
    _Atomic uint64_t ticks, missed, passed;
    _Atomic uint32_t lateness[PJ_LATENESS_BUCKETS]; /* by quarter octaves above 100 ns */
} pj_power_sampler;

/* The caller has filled source, env, argument, index, rails, kept, filters and interval, and opened
 * the source. Allocates the rings. */
pj_status pj_power_sampler_init(pj_power_sampler *sampler, pj_error *err);
void pj_power_sampler_fini(pj_power_sampler *sampler); /* stops, closes the source; may run twice */
pj_status pj_power_sampler_start(pj_power_sampler *sampler, pj_error *err);
/* Returns when the first read is over, a second or so later at most: from then on energy is known.
 */
void pj_power_sampler_await_first(const pj_power_sampler *sampler);
void pj_power_sampler_stop(pj_power_sampler *sampler); /* may run twice */
/* Someone waits for the energy up to `at_ns`: rails that are read rarely are read as soon as it has
 * been published. May be called again until it is known; from any thread. */
void pj_power_sampler_want(pj_power_sampler *sampler, int64_t at_ns);
/* Someone wants it from `at_ns` on: where no log shows what is within a tick, the next one is read.
 */
void pj_power_sampler_want_from(pj_power_sampler *sampler, int64_t at_ns);
/* One tick: reads, classifies, passes on. Called by the thread; tests and the characterisation call
 * it directly. False: the source is lost for good. */
bool pj_power_sampler_tick(pj_power_sampler *sampler);
/* The given quantile of lateness, in ns. */
double pj_lateness_quantile(const uint64_t counts[PJ_LATENESS_BUCKETS], double quantile);

#endif
