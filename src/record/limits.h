/*
 * Peak performance of this machine as last measured by `perjoule bench kernels`: memory read
 * bandwidth and operations per second by weight type. Kept in the user's data folder, one file per
 * machine, and copied into the description of the machine that each later run carries: the ceilings
 * of its roofline chart.
 */
#ifndef PJ_RECORD_LIMITS_H
#define PJ_RECORD_LIMITS_H

#include "base/json.h"

pj_status pj_machine_limits_path(const char *cpu, char *path, size_t bytes, pj_error *err);
/* Writes the member "limits": the object of docs/api.md, or null if not measured. */
void pj_machine_limits_write(const char *cpu, pj_json *json);

#endif
