/* Reading the log, and placing its values on the monotonic clock. */
#include "power/nvml_log.h"

#include "base/clock.h"

#include <stdlib.h>

enum { NVML_LOG_POWER = 0, US = 1000 };
/* The two clocks drift by less between two calls; a larger difference is a clock that was set. */
static const int64_t CLOCK_SET_NS = 5 * PJ_NS_PER_MS;
static const int64_t AHEAD_NS = PJ_NS_PER_MS; /* rounding of stamps */
static const int64_t USUAL_GAP_NS = 20 * PJ_NS_PER_MS;
static const int64_t LONGEST_GAP_NS = 100 * PJ_NS_PER_MS;

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

static bool log_is_new(const nvml_log *log, int64_t at_ns, int64_t now_ns)
{
    return at_ns > log->last_ns && at_ns <= now_ns + AHEAD_NS;
}

/* Whether a value that comes `gap_ns` after the one before it, by the offset of that one, was
 * stamped after the clock was set: its distance is then the usual one by the new offset. */
static bool log_was_set_before(const nvml_log *log, int64_t gap_ns, int64_t moved_ns)
{
    int64_t usual = log->gap_ns > 0 ? log->gap_ns : USUAL_GAP_NS;
    return llabs(gap_ns - moved_ns - usual) < llabs(gap_ns - usual);
}

/* Where the wall clock was set since the last call, stamps from before that follow the old offset,
 * which is then moved. A value that fits neither is dropped: returns 0. */
static int64_t log_time_ns(nvml_log *log, unsigned long long stamp_us, int64_t offset_ns,
                           int64_t now_ns)
{
    int64_t at = (int64_t)stamp_us * US - log->offset_ns, moved = offset_ns - log->offset_ns;
    bool drifts = llabs(moved) <= CLOCK_SET_NS;
    bool was_set = !drifts && log_was_set_before(log, at - log->last_ns, moved);
    if (drifts || was_set || !log_is_new(log, at, now_ns)) {
        if (!log_is_new(log, at - moved, now_ns)) return 0;
        log->offset_ns = offset_ns;
        at -= moved;
    }
    return at;
}

/* The first value that is new. After the clock was set, stamps do not tell that, but the driver
 * returns values in the order in which it made them: those after the last one of the call before.
 */
static unsigned log_first_new(const nvml_log *log, const nvml_sample *samples, unsigned count)
{
    for (unsigned i = count; i > 0; i--)
        if (samples[i - 1].timestamp_us == log->seen_us) return i;
    return 0;
}

static double sample_number(int type, const nvml_value *v)
{
    return type == 0 ? v->d : type == 3 ? (double)v->ull : type == 2 ? (double)v->ul : v->ui;
}

/* The stamp after which all values are new. After the clock was set there is none: all of the log
 * is wanted, until stamps are higher than any from before. */
static unsigned long long log_since(const nvml_log *log, int64_t offset_ns)
{
    bool was_set = log->offset_ns != 0 && llabs(offset_ns - log->offset_ns) > CLOCK_SET_NS;
    return was_set || log->seen_us < log->highest_us ? 0 : log->seen_us;
}

nvml_return nvml_log_read(const nvml_api *a, nvml_device device, nvml_log *log, uint16_t rail,
                          pj_reading *readings, uint32_t max, uint32_t *count)
{
    nvml_sample samples[NVML_LOG_MOST];
    unsigned n = NVML_LOG_MOST;
    int type = 1;
    *count = 0;
    int64_t offset = wall_offset_ns(), before = pj_clock_ns();
    nvml_return status =
        a->samples(device, NVML_LOG_POWER, log_since(log, offset), &type, &n, samples);
    int64_t after = pj_clock_ns();
    if (status == NVML_NOT_FOUND) return NVML_OK; /* nothing new */
    if (status != NVML_OK) return status;
    if (log->offset_ns == 0) log->offset_ns = offset;
    if (n > NVML_LOG_MOST) n = NVML_LOG_MOST;
    for (unsigned i = log_first_new(log, samples, n); i < n && *count < max; i++) {
        int64_t at = log_time_ns(log, samples[i].timestamp_us, offset, after);
        if (at == 0) continue;
        readings[(*count)++] = (pj_reading){.rail = rail,
                                            .before_ns = before,
                                            .after_ns = after,
                                            .fresh_ns = at,
                                            .value = sample_number(type, &samples[i].value)};
        int64_t gap = at - log->last_ns;
        if (gap < LONGEST_GAP_NS) log->gap_ns = gap;
        log->last_ns = at;
        log->seen_us = samples[i].timestamp_us;
        if (log->seen_us > log->highest_us) log->highest_us = log->seen_us;
    }
    log->offset_ns = offset;
    return NVML_OK;
}
