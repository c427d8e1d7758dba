/* The source "replay:FILE": a recorded trace played on the run's clock, starting at the first read.
 * When the recording ends its rails are lost, and energy after that is unknown. */
#include "power/replay_source.h"

#include "base/file.h"
#include "base/memory.h"
#include "power/trace_file.h"

#include <math.h>
#include <string.h>

typedef struct replay_state {
    pj_trace trace;
    size_t next;      /* row */
    int64_t begin_ns; /* when row 0 is due; 0: not started */
} replay_state;

static pj_status replay_open(void *state, const pj_power_env *env, const char *argument,
                             pj_source_report *report)
{
    replay_state *s = state;
    pj_error err;
    char *text = NULL;
    size_t bytes = 0;
    if (!argument[0])
        return pj_source_explain(report, PJ_E_INVALID, "",
                                 "replay: give the recorded trace, for example replay:FILE.csv");
    pj_status status = pj_file_read(argument, PJ_TRACE_MAX_BYTES, &text, &bytes, &err);
    if (status == PJ_OK) status = pj_trace_read(text, bytes, argument, &s->trace, &err);
    pj_free(text);
    return status == PJ_OK ? PJ_OK : pj_source_explain(report, status, "", "%s", err.text);
}

static void replay_close(void *state)
{
    pj_trace_fini(&((replay_state *)state)->trace);
}

static void replay_describe(const pj_power_env *env, pj_source_report *report)
{
    pj_source_explain(
        report, PJ_OK,
        "record one with perjoule top --record FILE.csv, then --power replay:FILE.csv",
        "plays a recorded trace, used only on request");
}

static uint32_t replay_rails(const void *state, pj_rail *rails)
{
    const pj_trace *t = &((const replay_state *)state)->trace;
    memcpy(rails, t->rails, t->rail_count * sizeof *rails);
    return t->rail_count;
}

static void make_reading(const pj_trace *t, size_t row, uint32_t rail, int64_t at_ns,
                         pj_reading *reading)
{
    double window_ms = t->window_ms ? (double)t->window_ms[row]
                       : t->polled  ? 0
                       : row > 0    ? t->t_ms[row] - t->t_ms[row - 1]
                                    : 0;
    bool unavailable = t->gap[row * t->rail_count + rail]; /* "N/A": no reading, no error */
    *reading = (pj_reading){.before_ns = at_ns,
                            .after_ns = at_ns,
                            .rail = (uint16_t)rail,
                            .reason = unavailable ? PJ_REASON_NOT_A_NUMBER : PJ_REASON_NONE,
                            .fresh_ns = t->polled ? 0 : at_ns,
                            .window_ns = (int64_t)(window_ms * 1e6),
                            .value = (double)t->mw[row * t->rail_count + rail]};
}

/* An empty cell is not a row for its rail. */
static bool has_reading(const pj_trace *t, size_t row, uint32_t rail)
{
    size_t cell = row * t->rail_count + rail;
    return !isnan(t->mw[cell]) || t->gap[cell];
}

static pj_status replay_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    replay_state *s = state;
    const pj_trace *t = &s->trace;
    int64_t now = pj_clock_ns();
    *count = 0;
    if (s->begin_ns == 0) s->begin_ns = now;
    for (; s->next < t->row_count && *count + t->rail_count <= max; s->next++) {
        int64_t at_ns = s->begin_ns + (int64_t)(t->t_ms[s->next] * 1e6);
        if (at_ns > now) return PJ_OK;
        for (uint32_t rail = 0; rail < t->rail_count; rail++) {
            if (!has_reading(t, s->next, rail)) continue;
            make_reading(t, s->next, rail, at_ns, &readings[(*count)++]);
        }
    }
    return s->next >= t->row_count && *count == 0 ? PJ_E_LOST : PJ_OK;
}

pj_status pj_replay_skip(void *state, int64_t duration_ns,
                         pj_status (*take)(void *context, const pj_reading *reading, pj_error *err),
                         void *context, pj_error *err)
{
    replay_state *s = state;
    const pj_trace *t = &s->trace;
    pj_status status = PJ_OK;
    if (s->begin_ns != 0) return PJ_OK;
    s->begin_ns = pj_clock_ns() - duration_ns;
    for (; s->next < t->row_count && status == PJ_OK; s->next++) {
        int64_t at_ns = s->begin_ns + (int64_t)(t->t_ms[s->next] * 1e6);
        if (at_ns > s->begin_ns + duration_ns) break;
        for (uint32_t rail = 0; rail < t->rail_count && status == PJ_OK; rail++) {
            pj_reading reading;
            if (!has_reading(t, s->next, rail)) continue;
            make_reading(t, s->next, rail, at_ns, &reading);
            status = take(context, &reading, err);
        }
    }
    return status;
}

const pj_power_source pj_source_replay = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "replay",
    .flags = PJ_SOURCE_STREAM | PJ_SOURCE_BY_NAME | PJ_SOURCE_ONCE,
    .state_bytes = sizeof(replay_state),
    .open = replay_open,
    .describe = replay_describe,
    .rails = replay_rails,
    .read = replay_read,
    .close = replay_close,
};
