/*
 * Work of devices that a program's driver reports one by one: kernels, copies. It is put into the
 * spans of the program that launched it, and packed, since there may be 100,000 per second:
 *
 * - At every instant the work that runs on a device shares that instant equally. So each piece of
 *   work has a share of the device's time, and shares add up to the time in which the device was
 *   busy, however many queues it has.
 * - Work is cut into packets: at most 5 ms of a device's time, ending where the device is idle for
 *   100 µs. In a packet, the shares of all work of one name, queue and launching span are added up.
 *   They become a section for the queue, in the span that launched them, with a component for each
 *   name. Within a packet they lie one after another, in the order in which they began.
 *
 * A packet with one piece of work has that work's own times. With each million spans that a run
 * has, both limits double, up to 80 ms. Work may be reported seconds late; what is later than that
 * becomes a packet of its own. One thread at a time.
 */
#ifndef PJ_IMPORT_DEVICE_WORK_H
#define PJ_IMPORT_DEVICE_WORK_H

#include "import/markers.h"

typedef struct pj_work_piece {
    int64_t begin_ns, end_ns;
    uint32_t device;              /* of the run */
    uint32_t name, queue;         /* names of the run */
    uint32_t source, correlation; /* for the caller: which launch */
} pj_work_piece;

/* Looks a launch up. False: not known, or not yet. */
typedef bool pj_launch_finder(void *context, uint32_t source, uint32_t correlation,
                              uint32_t *thread, int64_t *at_ns);

typedef struct pj_device_work pj_device_work;

pj_status pj_device_work_new(pj_run *run, const pj_markers *markers, pj_launch_finder *find,
                             void *context, int64_t clock_error_ns, pj_device_work **work,
                             pj_error *err);
void pj_device_work_add(pj_device_work *work, const pj_work_piece *piece);
/* Records what is complete by now. `is_last`: everything. */
void pj_device_work_settle(pj_device_work *work, int64_t now_ns, bool is_last);
/* Pieces that could not be kept: no memory, or too much at one time. */
uint64_t pj_device_work_lost(const pj_device_work *work);
void pj_device_work_free(pj_device_work *work); /* NULL is allowed */

#endif
