/*
 * The driver's log of a GPU's power: the last two seconds or so, a value every 20 ms, each with its
 * own time. The log is stamped with the wall clock, which may be set at any moment; times are
 * returned on the monotonic clock.
 */
#ifndef PJ_POWER_NVML_LOG_H
#define PJ_POWER_NVML_LOG_H

#include "power/nvml_api.h"
#include "trace/rail.h"

enum { NVML_LOG_MOST = 256 }; /* values of one call */

typedef struct nvml_log {
    unsigned long long seen_us;    /* wall clock of the newest value */
    unsigned long long highest_us; /* that was seen */
    int64_t last_ns;               /* the same on the monotonic clock */
    int64_t offset_ns; /* wall clock minus monotonic clock at the last call; 0: none yet */
    int64_t gap_ns;    /* between the last two values; 0: unknown */
} nvml_log;

/* How many values the log holds at most; 0: the device keeps none. */
uint32_t nvml_log_capacity(const nvml_api *api, nvml_device device);
/* Values since the last call, oldest first. */
nvml_return nvml_log_read(const nvml_api *api, nvml_device device, nvml_log *log, uint16_t rail,
                          pj_reading *readings, uint32_t max, uint32_t *count);

#endif
