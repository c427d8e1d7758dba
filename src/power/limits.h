/*
 * Power limits and clocks of this machine's devices, and setting them: GPUs through NVML (power
 * limit, locked clock) and amdgpu's hwmon files (power1_cap), the CPU through powercap (RAPL) and
 * cpufreq. A limit of the CPU is one for all of its packages or cores. Whoever sets one arms a
 * guard (limit_guard.h) first, which sets the former values again whatever happens.
 */
#ifndef PJ_POWER_LIMITS_H
#define PJ_POWER_LIMITS_H

#include "base/buffer.h"
#include "power/nvml_watch.h"
#include "power/source.h"

enum { PJ_LIMITS_MAX = 48, PJ_LIMIT_TEXT_BYTES = 96, PJ_LIMIT_PATH_BYTES = 384 };

typedef enum pj_limit_what {
    PJ_LIMIT_POWER = 0, /* milliwatts */
    PJ_LIMIT_CLOCK      /* megahertz, an upper bound */
} pj_limit_what;

/* A file that a limit is written to, with what it held when the limits were found. */
typedef struct pj_limit_file {
    char path[PJ_LIMIT_PATH_BYTES];
    int64_t former;
} pj_limit_file;

typedef struct pj_limit {
    pj_limit_what what;
    char device[PJ_LIMIT_TEXT_BYTES]; /* "cpu", "gpu0", "amdgpu": as in a run's conditions */
    char name[PJ_LIMIT_TEXT_BYTES];   /* of the device, as its driver spells it; "": unknown */
    double now;                       /* NAN: none is set, or it cannot be read */
    double usual, least, most;        /* default and bounds; NAN: unknown */
    bool settable;
    char reason[PJ_SOURCE_TEXT_BYTES]; /* why it is not */
    /* files; 0: NVML, whose device is `uuid` */
    uint32_t file_begin, file_count;
    double unit; /* what one unit of the file is */
    char uuid[PJ_LIMIT_TEXT_BYTES];
} pj_limit;

typedef struct pj_limits {
    const pj_power_env *env;
    pj_nvml_watch *nvml; /* NULL: no NVIDIA GPUs */
    pj_limit items[PJ_LIMITS_MAX];
    uint32_t count;
    pj_limit_file *files;
    size_t file_count, file_capacity;
} pj_limits;

/* Reads only. `env` is kept. */
pj_status pj_limits_find(const pj_power_env *env, pj_limits *limits, pj_error *err);
void pj_limits_close(pj_limits *limits); /* may run twice */

/* Sets and reads back; fails where the device did not take it. */
pj_status pj_limit_set(const pj_limits *limits, const pj_limit *limit, double value, pj_error *err);
/* Sets what was in force when the limits were found. */
pj_status pj_limit_restore(const pj_limits *limits, const pj_limit *limit, pj_error *err);
/* The shell command that does the same as pj_limit_set, or, for NAN, as pj_limit_restore. */
void pj_limit_command(const pj_limits *limits, const pj_limit *limit, double value, pj_buffer *out);

pj_status pj_limit_file_write(const char *path, int64_t value, pj_error *err);

#endif
