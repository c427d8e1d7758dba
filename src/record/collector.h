/* The collector: the thread of a run that moves spans, readings and shares from their queues to the
 * spool and notifies live sinks. It wakes every 16 ms, or immediately while a queue fills up. */
#ifndef PJ_RECORD_COLLECTOR_H
#define PJ_RECORD_COLLECTOR_H

#include "record/live_feed.h"
#include "record/reading_hub.h"
#include "trace/recorder.h"
#include "trace/spool.h"

typedef struct pj_collector {
    pj_recorder *recorder;
    pj_reading_hub *hub;          /* NULL: none */
    pj_subscriber *subscriber;    /* of the reading hub */
    pj_live_feed *feed;           /* NULL: no live sink */
    const pj_progress *load;      /* of the model; NULL: none */
    pthread_mutex_t *spool_mutex; /* others append warnings and facts */
    pj_spool *spool;
    void (*on_event)(void *context, const pj_meter_event *event); /* sensors lost, ... */
    void (*on_spool_error)(void *context, const pj_error *err);
    void *context;
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    int64_t cpu_ns; /* CPU time used, valid after stop */
    pj_reading readings[512];
} pj_collector;

pj_status pj_collector_start(pj_collector *collector, pj_error *err);
void pj_collector_stop(pj_collector *collector); /* joins; may run twice */
/* One round on the calling thread; only while the thread is not running. */
void pj_collector_round(pj_collector *collector);

#endif
