/* Progress of an operation, written by the thread that does it and read by any other: `done` of
 * `total` steps. Total 0: unknown. */
#ifndef PJ_BASE_PROGRESS_H
#define PJ_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct pj_progress {
    _Atomic uint32_t done, total;
} pj_progress;

#endif
