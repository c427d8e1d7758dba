/*
 * What this machine can do at most, as `perjoule bench kernels` last measured it: memory read and
 * operations a second by weight type. Kept in the user's data folder, one file a machine, and
 * copied into the description of the machine that each later run carries: the roof of its roofline.
 */
#ifndef PJ_PROFILE_LIMITS_H
#define PJ_PROFILE_LIMITS_H

#include "base/json.h"
#include "llm/dtype.h"

typedef struct pj_machine_limits {
    uint32_t threads;
    double read_bytes_s;
    double operations_s[PJ_DTYPE_COUNT]; /* by type of the weights; 0: not measured */
} pj_machine_limits;

pj_status pj_machine_limits_save(const char *cpu, const pj_machine_limits *limits, pj_error *err);
/* Writes the member "limits": the object of docs/api.md, or null where nothing was measured. */
void pj_machine_limits_write(const char *cpu, pj_json *json);

#endif
