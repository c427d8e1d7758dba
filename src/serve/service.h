/* Implements the server's backend (net/service.h): views and exports from the store, runs through
 * the queue, models and sensors of this machine. A pool of database connections serves the request
 * threads, as a connection belongs to one thread at a time. */
#ifndef PJ_SERVE_SERVICE_H
#define PJ_SERVE_SERVICE_H

#include "net/live_json.h"
#include "net/relay.h"
#include "net/service.h"
#include "record/recover.h"
#include "serve/experiments.h"
#include "serve/idle_meter.h"
#include "serve/queue.h"

enum { PJ_SERVE_STORES = 8 };

typedef struct pj_serve {
    const char *database, *models, *power, *device;
    const char *address;       /* that the name of the database stands for */
    const pj_meter *meter;     /* used for runs; NULL: none */
    pj_idle_meter *idle_meter; /* samples between runs; NULL: --power none */
    pj_run_queue *queue;
    pj_experiments *experiments;
    pj_live_json *live;
    pj_recovery *recovery; /* of runs that a former server left; NULL: none */
    pj_relay *relay;       /* live streams of other machines */
    uint32_t queue_limit;
    pthread_mutex_t mutex; /* guards the pool */
    pthread_cond_t returned;
    pj_store *idle[PJ_SERVE_STORES];
    uint32_t idle_count, open_count;
} pj_serve;

void pj_serve_init(pj_serve *serve);
void pj_serve_fini(pj_serve *serve); /* once no request is being answered */
/* Borrowed; its context is `serve`. */
void pj_serve_service(pj_serve *serve, pj_service *service);

#endif
