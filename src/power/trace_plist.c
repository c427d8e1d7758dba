/* Recorded powermetrics streams as traces. The first pass counts samples and collects the rails,
 * the second fills the columns. A truncated document or one without a duration is skipped and
 * counted. */
#include "power/powermetrics_plist.h"
#include "power/trace_file.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* The next sample of the stream; false at its end. Skipped documents are counted. */
static bool trace_plist_next_sample(const char **text, size_t *bytes, pj_pm_sample *sample,
                                    size_t *skipped)
{
    while (*bytes > 0) {
        const char *nul = memchr(*text, 0, *bytes);
        size_t length = nul ? (size_t)(nul - *text) + 1 : *bytes;
        pj_status status = pj_pm_parse(*text, length, sample, NULL);
        *text += length;
        *bytes -= length;
        if (status == PJ_OK) return true;
        if (status != PJ_E_AGAIN) (*skipped)++;
    }
    return false;
}

/* Describes the rails that were seen and returns how many there are. */
static uint32_t describe_rails(pj_trace *t, const bool *seen, double period_ms,
                               pj_pm_rail kinds[PJ_PM_RAILS])
{
    uint32_t count = 0;
    for (int k = 0; k < PJ_PM_RAILS; k++)
        if (seen[k]) kinds[count++] = (pj_pm_rail)k;
    pj_pm_describe(kinds, count, "replay", "powermetrics recording", t->rails);
    for (uint32_t i = 0; i < count; i++) {
        t->rails[i].period_ns = (int64_t)(period_ms * 1e6);
        t->rails[i].resolution = period_ms > 0 ? 1e3 / period_ms : 0; /* 1 mJ */
    }
    return count;
}

pj_status pj_trace_read_plist(const char *text, size_t bytes, const char *name, pj_trace *t,
                              pj_error *err)
{
    pj_pm_sample s;
    pj_pm_rail kinds[PJ_PM_RAILS];
    bool seen[PJ_PM_RAILS] = {false};
    const char *at = text;
    size_t left = bytes, samples = 0, skipped = 0;
    double sum_ms = 0;
    *t = (pj_trace){.origin_unix_ms = NAN};
    while (trace_plist_next_sample(&at, &left, &s, &t->skipped)) {
        for (int k = 0; k < PJ_PM_RAILS; k++) seen[k] |= !isnan(s.mw[k]);
        sum_ms += (double)s.elapsed_ns * 1e-6;
        samples++;
    }
    if (samples > 0) t->rail_count = describe_rails(t, seen, sum_ms / (double)samples, kinds);
    if (t->rail_count == 0) {
        pj_trace_fini(t);
        return pj_fail(err, PJ_E_INVALID, "%s contains no powermetrics sample with power", name);
    }
    t->t_ms = pj_alloc(samples, sizeof *t->t_ms);
    t->window_ms = pj_alloc(samples, sizeof *t->window_ms);
    t->mw = pj_alloc(samples * t->rail_count, sizeof *t->mw);
    t->gap = pj_alloc(samples * t->rail_count, sizeof *t->gap);
    if (!t->t_ms || !t->window_ms || !t->mw || !t->gap) {
        pj_trace_fini(t);
        return pj_fail_memory(err, "a recorded trace");
    }
    double end_ms = 0;
    at = text;
    left = bytes;
    while (trace_plist_next_sample(&at, &left, &s, &skipped)) {
        size_t row = t->row_count++;
        end_ms += (double)s.elapsed_ns * 1e-6; /* a value covers the time up to its row */
        t->t_ms[row] = end_ms;
        t->window_ms[row] = (float)((double)s.elapsed_ns * 1e-6);
        for (uint32_t i = 0; i < t->rail_count; i++) {
            t->mw[row * t->rail_count + i] = (float)s.mw[kinds[i]];
            t->gap[row * t->rail_count + i] = isnan(s.mw[kinds[i]]);
        }
    }
    return PJ_OK;
}
