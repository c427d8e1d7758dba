/*
 * One meter for several users: each open run gets every reading in a queue of its own, windows get
 * the energy between two moments, and the energy of concurrent runs is divided
 * (attribution/division.h). The sensors run while there is any user.
 *
 * Any user may drain the meter's rings, under a lock, which copies their content to every queue.
 * Collectors do so every 16 ms; while only windows are open, a thread of the gauge does.
 *
 * Threads: any, but each tap from one at a time.
 */
#ifndef PJ_RECORD_GAUGE_H
#define PJ_RECORD_GAUGE_H

#include "attribution/division.h"
#include "base/buffer.h"
#include "base/ring.h"
#include "power/meter.h"

#include <pthread.h>

typedef struct pj_gauge pj_gauge;

/* One run's queue of readings and events. Zeroed before the first use. */
typedef struct pj_tap {
    struct pj_tap *next;
    pj_ring readings, events; /* of pj_reading, pj_meter_event */
    pj_division_member *member;
    double sampled_ns; /* set when the run has ended: its share of the sampling time */
    bool joined;
} pj_tap;

/* NULL when out of memory. While there are users, only the gauge may use the meter. */
pj_gauge *pj_gauge_new(pj_meter *meter, pj_share_rule rule);
void pj_gauge_free(pj_gauge *gauge); /* NULL is allowed */
bool pj_gauge_is_used(pj_gauge *gauge);

/* Starts the sensors if they do not run yet. */
pj_status pj_gauge_join(pj_gauge *gauge, pj_tap *tap, pj_error *err);
/* Mark the begin and end of the run's time, and return it. Begin returns 0 when out of memory. */
int64_t pj_gauge_begin(pj_gauge *gauge, pj_tap *tap, double weight);
void pj_gauge_weigh(pj_gauge *gauge, pj_tap *tap, double weight);
int64_t pj_gauge_end(pj_gauge *gauge, pj_tap *tap);
/* Ends the delivery of readings; queues and shares can still be read. The last user stops the
 * sensors. */
void pj_gauge_part(pj_gauge *gauge, pj_tap *tap, int64_t end_ns);
void pj_tap_fini(pj_gauge *gauge, pj_tap *tap); /* leaves first if necessary; may run twice */

void pj_gauge_pull(pj_gauge *gauge);
size_t pj_tap_read(pj_tap *tap, pj_reading *readings, size_t max);
bool pj_tap_next_event(pj_tap *tap, pj_meter_event *event);
uint64_t pj_tap_lost(const pj_tap *tap);
/* The payload of the next PJ_RECORD_SHARE for the run's spool; false: there is none now. */
bool pj_gauge_next_share(pj_gauge *gauge, pj_tap *tap, pj_buffer *payload);
bool pj_gauge_is_shared(pj_gauge *gauge, const pj_tap *tap);

/* ---- windows -------------------------------------------------------------------------------- */

typedef struct pj_gauge_window {
    pj_division_window *window;
    int64_t begin_ns, end_ns;
} pj_gauge_window;

pj_status pj_gauge_window_begin(pj_gauge *gauge, pj_gauge_window *window, pj_error *err);
/* Waits until the sensors have covered the end, returns energies by rail, and frees the window. */
void pj_gauge_window_end(pj_gauge *gauge, pj_gauge_window *window,
                         pj_curve_energy energies[PJ_MAX_RAILS]);
void pj_gauge_window_drop(pj_gauge *gauge,
                          pj_gauge_window *window); /* frees the window without a result */

#endif
