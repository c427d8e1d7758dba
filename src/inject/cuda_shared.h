/*
 * Memory that libperjoule-cuda.so shares with `perjoule exec`: the GPU work of the program's
 * processes, as CUPTI delivered it. perjoule creates it as a memfd, passes its path under /proc in
 * PERJOULE_CUDA_BUFFERS, and reads it while the processes write, so that work which was delivered
 * survives however a process ends. Pages that nobody writes take no memory.
 *
 * A process takes a slot for good and is the only one that writes it. `records` is a ring: the
 * process advances `written` after the record, perjoule advances `read`. Nothing waits: a record
 * that does not fit is counted. The program may write anything here, so perjoule checks it all.
 */
#ifndef PJ_INJECT_CUDA_SHARED_H
#define PJ_INJECT_CUDA_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    PJ_CUDA_PROCESSES = 64,
    PJ_CUDA_DEVICES = 32,
    PJ_CUDA_NAMES = 8192,
    PJ_CUDA_NAME_BYTES = 512,
    PJ_CUDA_RECORDS = 1 << 18, /* two seconds at 100,000 kernels per second */
    PJ_CUDA_LAUNCHES = 1 << 20 /* API calls whose threads are remembered */
};
#define PJ_CUDA_MAGIC UINT64_C(0x706a637564613031)

/* Finished work of a device: a kernel, a copy, the launch of a graph. */
typedef struct pj_cuda_record {
    int64_t begin_ns, end_ns; /* on CLOCK_MONOTONIC */
    uint32_t correlation;     /* of the API call that launched it */
    uint32_t name;            /* index of its name */
    uint32_t stream;
    uint32_t device; /* as CUPTI numbers them */
} pj_cuda_record;

/* An API call, at index correlation % PJ_CUDA_LAUNCHES; later calls overwrite it. */
typedef struct pj_cuda_launch {
    _Atomic uint64_t who; /* correlation << 32 | thread; 0: being written */
    _Atomic int64_t at_ns;
} pj_cuda_launch;

typedef struct pj_cuda_device {
    _Atomic uint32_t is_known;
    uint8_t uuid[16];
    char name[96];
} pj_cuda_device;

typedef enum pj_cuda_state {
    PJ_CUDA_FREE,
    PJ_CUDA_STARTING,
    PJ_CUDA_REFUSED, /* `problem` says why nothing is recorded */
    PJ_CUDA_RECORDING,
    PJ_CUDA_ENDED /* everything was handed over */
} pj_cuda_state;

typedef struct pj_cuda_process {
    _Atomic uint32_t state;          /* pj_cuda_state */
    _Atomic uint32_t wants_launches; /* set by perjoule: the program reports spans */
    uint32_t pid, version;           /* of CUPTI */
    uint32_t clock_error_ns;
    char problem[400];
    _Atomic uint64_t written, read; /* numbers of records */
    _Atomic uint64_t lost;          /* the ring was full */
    _Atomic uint64_t dropped;       /* by CUPTI, for lack of buffers */
    _Atomic uint64_t untimed;       /* without valid times */
    _Atomic uint32_t name_count;
    pj_cuda_device devices[PJ_CUDA_DEVICES];
    char names[PJ_CUDA_NAMES][PJ_CUDA_NAME_BYTES];
    pj_cuda_record records[PJ_CUDA_RECORDS];
    pj_cuda_launch launches[PJ_CUDA_LAUNCHES];
} pj_cuda_process;

/* The first page of the memory; slot i begins PJ_CUDA_PAGE + i * PJ_CUDA_SLOT bytes on. */
typedef struct pj_cuda_shared {
    uint64_t magic;
    uint32_t in_graphs;     /* nonzero: record the kernels inside graphs, too */
    _Atomic uint32_t taken; /* requested slots; those beyond PJ_CUDA_PROCESSES got none */
} pj_cuda_shared;

/* Both are multiples of the page sizes of all machines that have GPUs by CUDA (4 and 64 KiB). */
enum {
    PJ_CUDA_PAGE = 1 << 16,
    PJ_CUDA_SLOT = (int)((sizeof(pj_cuda_process) + PJ_CUDA_PAGE - 1) / PJ_CUDA_PAGE * PJ_CUDA_PAGE)
};
#define PJ_CUDA_BYTES (PJ_CUDA_PAGE + (int64_t)PJ_CUDA_PROCESSES * PJ_CUDA_SLOT)

#endif
