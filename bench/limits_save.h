/* Saves the limits of this machine or of a device that a benchmark measured (limits.h). */
#ifndef PJ_BENCH_LIMITS_SAVE_H
#define PJ_BENCH_LIMITS_SAVE_H

#include "base/error.h"
#include "engine/files/dtype.h"

#include <stdint.h>

typedef struct pj_machine_limits {
    uint32_t threads; /* 0: of a device */
    double read_bytes_s;
    double operations_s[PJ_DTYPE_COUNT]; /* by type of the weights; 0: not measured */
} pj_machine_limits;

/* `what`: as in pj_limits_path(). Types that were not measured keep what an earlier call saved. */
pj_status pj_machine_limits_save(const char *what, const pj_machine_limits *limits, pj_error *err);

#endif
