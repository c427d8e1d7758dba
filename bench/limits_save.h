/* Saves the limits of this machine that a benchmark measured (limits.h). */
#ifndef PJ_BENCH_LIMITS_SAVE_H
#define PJ_BENCH_LIMITS_SAVE_H

#include "base/error.h"
#include "engine/files/dtype.h"

#include <stdint.h>

typedef struct pj_machine_limits {
    uint32_t threads;
    double read_bytes_s;
    double operations_s[PJ_DTYPE_COUNT]; /* by type of the weights; 0: not measured */
} pj_machine_limits;

pj_status pj_machine_limits_save(const char *cpu, const pj_machine_limits *limits, pj_error *err);

#endif
