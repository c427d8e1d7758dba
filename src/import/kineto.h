/*
 * Traces of PyTorch's profiler (Kineto JSON, in Chrome's trace event format): operators, kernels
 * and annotations with their times since 1970. `ts` and `dur` are microseconds; newer files give
 * the origin of `ts` in `baseTimeNanoseconds`, in older ones it is 1970.
 *
 * Files are untrusted: malformed events are skipped and counted, a truncated file or one without a
 * time origin is rejected, memory is bounded by the file's size.
 */
#ifndef PJ_IMPORT_KINETO_H
#define PJ_IMPORT_KINETO_H

#include "base/error.h"

typedef enum pj_kineto_kind {
    PJ_KINETO_RANGE,     /* user_annotation: record_function and steps of the profiler */
    PJ_KINETO_GPU_RANGE, /* gpu_user_annotation: the same, on the device */
    PJ_KINETO_OPERATION, /* cpu_op */
    PJ_KINETO_KERNEL     /* kernel, gpu_memcpy, gpu_memset */
} pj_kineto_kind;

typedef struct pj_kineto_event {
    int64_t begin_ns, end_ns; /* since 1970 */
    uint64_t thread;          /* thread or stream, of one process or device */
    uint32_t process;         /* number of the process, of kernels that of the device; 0: none */
    uint32_t name;            /* index in names */
    pj_kineto_kind kind;
} pj_kineto_event;

enum { PJ_KINETO_NAMES = 60000 };

typedef struct pj_kineto {
    pj_kineto_event *events;
    size_t count, capacity;
    char **names;
    uint32_t name_count;
    uint32_t *slots; /* hash table of names: index + 1; at most half full */
    uint32_t slot_count;
    uint64_t skipped;  /* malformed events */
    uint64_t unnamed;  /* events beyond the maximum number of names, which are named "other" */
    size_t of_kind[4]; /* number of events by kind */
} pj_kineto;

/* On failure the trace is empty. */
pj_status pj_kineto_read(const char *text, size_t bytes, pj_kineto *trace, pj_error *err);
void pj_kineto_fini(pj_kineto *trace); /* may run twice */

#endif
