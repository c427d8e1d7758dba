/* The machine's fingerprint, stored with every run and part of the key of calibrations. */
#ifndef PJ_RECORD_MACHINE_H
#define PJ_RECORD_MACHINE_H

#include "base/memory.h"
#include "trace/rail.h"

typedef struct pj_machine {
    const char *name;     /* "AMD EPYC 9B45 · host" */
    const char *json;     /* cpu, cores, memory, os, host, limits, sensors */
    char fingerprint[17]; /* hex; equal for equal hardware and operating system */
} pj_machine;

enum { PJ_CPU_NAME_BYTES = 128 };

/* The CPU model's name, or the architecture. */
void pj_machine_cpu(const char *procfs, char cpu[PJ_CPU_NAME_BYTES]);
/* Strings are in the arena. `procfs` is the prefix of /proc (usually ""). */
pj_status pj_machine_read(const char *procfs, const pj_rail *rails, uint32_t rail_count,
                          pj_arena *arena, pj_machine *machine, pj_error *err);

#endif
