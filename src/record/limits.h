/*
 * Peak performance of this machine and of its other devices as last measured by `perjoule bench
 * kernels`: memory read bandwidth and operations per second by weight type. Kept in the user's data
 * folder, one file per machine and device, and copied into the description of the machine or device
 * that each later run carries: the ceilings of its roofline chart.
 */
#ifndef PJ_RECORD_LIMITS_H
#define PJ_RECORD_LIMITS_H

#include "base/json.h"

/* `what`: the processor's name, or a device's UUID or name. */
pj_status pj_limits_path(const char *what, char *path, size_t bytes, pj_error *err);
/* The object of docs/api.md as text, to be freed with free(). NULL: not measured. */
char *pj_limits_kept(const char *what);
/* Writes the member "limits": that object, or null. */
void pj_machine_limits_write(const char *cpu, pj_json *json);

#endif
