/*
 * The recorder of one run: buffers the spans of all threads until the collector drains them. Each
 * thread has a lane: a stack of open spans, the context they form, and a ring of records with one
 * consumer. Recording costs a clock reading and a copy into the ring; it never locks, allocates or
 * waits. When a ring is full the span is lost and counted.
 *
 * Records in the ring have the form they have in the spool (trace/spool.h), except for the
 * checksum.
 *
 * Threads: a lane belongs to its thread; a mutex guards names and the list of lanes and is taken
 * only to register one; only the collector thread calls pj_recorder_drain.
 */
#ifndef PJ_TRACE_RECORDER_H
#define PJ_TRACE_RECORDER_H

#include "base/memory.h"
#include "trace/device.h"
#include "trace/span.h"
#include "trace/spool.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PJ_MAX_OPEN_SPANS = 16, PJ_MAX_LANES = 1024, PJ_MAX_NAMES = 65535 };

/* A device's lane, which threads use one at a time. */
typedef struct pj_device_lane {
    pj_lane *lane;
    pthread_mutex_t mutex;
} pj_device_lane;

typedef struct pj_recorder {
    uint64_t generation; /* unique in the process: detects a stale pointer */
    int64_t begun_ns;
    pj_depth depth;
    _Atomic uint64_t context; /* phase, section, token, layer open somewhere in the run */
    _Atomic(pj_lane *) lanes; /* newest first; only grows until fini */
    _Atomic uint32_t lane_count;
    pthread_mutex_t mutex; /* guards what follows, and registration of lanes */
    pj_arena arena;        /* the texts of names */
    const char **names;    /* [name_count + 1], [0] unused */
    uint32_t name_count, name_capacity;
    uint32_t *slots; /* hash table of name ids, 0: free; size a power of two */
    uint32_t slot_count;
    uint32_t names_drained;
    pj_device_lane devices[PJ_MAX_DEVICES]; /* by number; that of the host is not used */
    _Atomic uint32_t device_count;          /* the host included */
    uint32_t lane_bytes; /* ring size of the first lane; others have a quarter of it */
} pj_recorder;

/* `lane_bytes` 0: the default (4 MiB, a quarter of a second of the densest known recording). */
pj_status pj_recorder_init(pj_recorder *recorder, pj_depth depth, uint32_t lane_bytes,
                           pj_error *err);
void pj_recorder_fini(
    pj_recorder *recorder); /* may run twice; after all threads have stopped recording */
pj_lane *pj_recorder_lane(pj_recorder *recorder);
/* A lane that belongs to no thread: its creator may use it from one thread at a time. */
pj_lane *pj_recorder_new_lane(pj_recorder *recorder);
/* A lane for the spans of a device. */
pj_lane *pj_recorder_new_device_lane(pj_recorder *recorder, uint32_t device);
/* Makes room for the spans of one more device; its number. 0: out of memory or of numbers. One
 * thread at a time. */
uint32_t pj_recorder_add_device(pj_recorder *recorder);
pj_status pj_recorder_add_device_spans(pj_recorder *recorder, uint32_t device,
                                       const pj_device_batch *batch, pj_error *err);
uint32_t pj_recorder_name(pj_recorder *recorder, const char *name);

/* The run's current context, for display: read without a lock, hence approximate. */
typedef struct pj_context {
    pj_phase phase;
    int32_t token, layer; /* -1: none is open */
} pj_context;

pj_context pj_recorder_context(const pj_recorder *recorder);

/* Calls `take` for each record, header included, in the order of each lane; a name comes before the
 * first record that uses it. A record is valid until the call returns. `take` may name things
 * and add devices, or wait for a thread that does: no lock is held meanwhile. */
typedef void pj_record_fn(void *context, const pj_record *record);
void pj_recorder_drain(pj_recorder *recorder, pj_record_fn *take, void *context);
/* True when some ring is fuller than a quarter: the collector should not sleep. */
bool pj_recorder_is_busy(const pj_recorder *recorder);
/* Ends all open spans as unfinished. Only after all threads have stopped recording. */
void pj_recorder_close_open(pj_recorder *recorder);

typedef struct pj_recorder_counts {
    uint64_t spans;         /* recorded, not counting begins and texts */
    uint64_t lost;          /* no room in the ring */
    uint64_t misused;       /* violated the rules of nesting, or too deep */
    uint64_t statistics_ns; /* computing statistics, as the recording threads reported */
} pj_recorder_counts;
pj_recorder_counts pj_recorder_count(const pj_recorder *recorder); /* any thread, approximate */

#endif
