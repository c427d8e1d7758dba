/*
 * One meter for several users: each open run receives every reading in its own queue, windows get
 * the energy between two times, and the energy of concurrent runs is divided
 * (attribution/division.h). The sensors run while there is any user.
 *
 * Any user may drain the meter's rings into all queues, under a lock.
 * Collectors do so every 16 ms; while only windows are open, a thread of the reading hub does.
 *
 * Threads: any, but each subscriber from one at a time.
 */
#ifndef PJ_RECORD_READING_HUB_H
#define PJ_RECORD_READING_HUB_H

#include "attribution/division.h"
#include "base/buffer.h"
#include "base/ring.h"
#include "power/meter.h"

#include <pthread.h>

typedef struct pj_reading_hub pj_reading_hub;

/* One run's queue of readings and events. Zeroed before the first use. */
typedef struct pj_subscriber {
    struct pj_subscriber *next;
    pj_ring readings, events; /* of pj_reading, pj_meter_event */
    pj_division_member *member;
    double sampled_ns; /* set when the run has ended: its share of the sampling time */
    bool joined;
} pj_subscriber;

/* NULL when out of memory. While there are users, only the reading hub may use the meter. */
pj_reading_hub *pj_reading_hub_new(pj_meter *meter, pj_share_rule rule);
void pj_reading_hub_free(pj_reading_hub *hub); /* NULL is allowed */
bool pj_reading_hub_is_used(pj_reading_hub *hub);

/* How long to wait for a first value of every rail: two periods and the delay, at most a second. */
int64_t pj_reading_hub_first_wait_ns(const pj_reading_hub *hub);

/* Starts the sensors if necessary. */
pj_status pj_reading_hub_join(pj_reading_hub *hub, pj_subscriber *subscriber, pj_error *err);
/* Mark the begin and end of the run's time, and return it. Begin returns 0 when out of memory. */
int64_t pj_reading_hub_begin(pj_reading_hub *hub, pj_subscriber *subscriber, double weight);
void pj_reading_hub_weigh(pj_reading_hub *hub, pj_subscriber *subscriber, double weight);
int64_t pj_reading_hub_end(pj_reading_hub *hub, pj_subscriber *subscriber);
/* Ends the delivery of readings; queues and shares can still be read. The last user stops the
 * sensors. */
void pj_reading_hub_part(pj_reading_hub *hub, pj_subscriber *subscriber, int64_t end_ns);
void pj_subscriber_fini(pj_reading_hub *hub,
                        pj_subscriber *subscriber); /* leaves first if necessary; may run twice */

void pj_reading_hub_pull(pj_reading_hub *hub);
/* The payload of the next PJ_RECORD_SHARE for the run's spool; false: none yet. */
bool pj_reading_hub_next_share(pj_reading_hub *hub, pj_subscriber *subscriber, pj_buffer *payload);
bool pj_reading_hub_is_shared(pj_reading_hub *hub, const pj_subscriber *subscriber);

/* ---- windows -------------------------------------------------------------------------------- */

typedef struct pj_reading_window {
    pj_division_window *window;
    int64_t begin_ns, end_ns;
    const char *warning_code; /* of the first thing that its rails contradict each other in; NULL */
    char warning[PJ_FINDING_TEXT_BYTES];
} pj_reading_window;

pj_status pj_reading_hub_window_begin(pj_reading_hub *hub, pj_reading_window *window,
                                      pj_error *err);
/* Waits until the sensors have covered the end, returns energies by rail, and frees the window. */
void pj_reading_hub_window_end(pj_reading_hub *hub, pj_reading_window *window,
                               pj_curve_energy energies[PJ_MAX_RAILS]);
void pj_reading_hub_window_drop(pj_reading_hub *hub,
                                pj_reading_window *window); /* frees the window without a result */

#endif
