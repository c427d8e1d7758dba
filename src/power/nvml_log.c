/* Reading the log, and placing its values on the monotonic clock. */
#include "power/nvml_log.h"

#include "base/clock.h"

enum { NVML_LOG_POWER = 0, US = 1000 };
/* The two clocks drift by less between two calls; a larger difference is a clock that was set. */
static const int64_t CLOCK_SET_NS = 5 * PJ_NS_PER_MS;
static const int64_t AHEAD_NS = PJ_NS_PER_MS; /* rounding of stamps */

uint32_t nvml_log_capacity(const nvml_api *a, nvml_device device)
{
    int type = 0;
    unsigned count = 0;
    if (!a->samples) return 0;
    nvml_return status = a->samples(device, NVML_LOG_POWER, 0, &type, &count, NULL);
    return status == NVML_OK ? count : 0;
}

/* Wall clock minus monotonic clock; of several tries the one that nothing interrupted. */
static int64_t wall_offset_ns(void)
{
    int64_t best = INT64_MAX, offset = 0;
    for (int i = 0; i < 3; i++) {
        int64_t before = pj_clock_ns(), wall = pj_clock_wall_ns(), took = pj_clock_ns() - before;
        if (took >= best) continue;
        best = took;
        offset = wall - before - took / 2;
    }
    return offset;
}

/* Where the wall clock was set since the last call, stamps from before that follow the old offset.
 * A value that fits neither is dropped: returns 0. */
static int64_t log_time_ns(const nvml_log *log, unsigned long long stamp_us, int64_t offset_ns,
                           int64_t now_ns)
{
    const int64_t offsets[] = {offset_ns, log->offset_ns};
    for (int i = 0; i < 2; i++) {
        int64_t at = (int64_t)stamp_us * US - offsets[i];
        if (at > log->last_ns && at <= now_ns + AHEAD_NS) return at;
    }
    return 0;
}

static double sample_number(int type, const nvml_value *v)
{
    return type == 0 ? v->d : type == 3 ? (double)v->ull : type == 2 ? (double)v->ul : v->ui;
}

nvml_return nvml_log_read(const nvml_api *a, nvml_device device, nvml_log *log, uint16_t rail,
                          pj_reading *readings, uint32_t max, uint32_t *count)
{
    nvml_sample samples[NVML_LOG_MOST];
    unsigned n = NVML_LOG_MOST;
    int type = 1;
    int64_t offset = wall_offset_ns(), before = pj_clock_ns(), moved = offset - log->offset_ns;
    bool was_set = log->offset_ns != 0 && (moved > CLOCK_SET_NS || moved < -CLOCK_SET_NS);
    *count = 0;
    /* after the clock was set, all of the log: what is new cannot be told by its stamp */
    nvml_return status =
        a->samples(device, NVML_LOG_POWER, was_set ? 0 : log->seen_us, &type, &n, samples);
    int64_t after = pj_clock_ns();
    if (status == NVML_NOT_FOUND) return NVML_OK; /* nothing new */
    if (status != NVML_OK) return status;
    if (log->offset_ns == 0) log->offset_ns = offset;
    for (unsigned i = 0; i < n && i < NVML_LOG_MOST && *count < max; i++) {
        int64_t at = log_time_ns(log, samples[i].timestamp_us, offset, after);
        if (at == 0) continue;
        readings[(*count)++] = (pj_reading){.rail = rail,
                                            .before_ns = before,
                                            .after_ns = after,
                                            .fresh_ns = at,
                                            .value = sample_number(type, &samples[i].value)};
        log->last_ns = at;
        log->seen_us = samples[i].timestamp_us;
    }
    log->offset_ns = offset;
    return NVML_OK;
}
