/* Recorded powermetrics streams as traces. The first pass counts samples and collects the rails,
 * the second fills the columns. A truncated document or one without a duration is skipped and
 * counted. */
#include "power/powermetrics_plist.h"
#include "power/trace_file.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const rail_names[PJ_PM_RAILS] = {"cpu", "gpu", "ane", "dram", "package"};
static const pj_rail_class rail_classes[PJ_PM_RAILS] = {PJ_RAIL_CPU, PJ_RAIL_GPU, PJ_RAIL_ANE,
                                                        PJ_RAIL_DRAM, PJ_RAIL_PLATFORM};

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

static void describe_rails(pj_trace *t, const bool *seen, double period_ms)
{
    int package = -1;
    for (int k = 0; k < PJ_PM_RAILS; k++) {
        if (!seen[k]) continue;
        pj_rail *rail = &t->rails[t->rail_count];
        *rail = (pj_rail){.rail_class = rail_classes[k],
                          .kind = PJ_RAIL_INSTANT,
                          .scope = k == PJ_PM_PACKAGE ? PJ_SCOPE_PACKAGE : PJ_SCOPE_DOMAIN,
                          .quality = PJ_MEASURED,
                          .parent = -1,
                          .period_ns = (int64_t)(period_ms * 1e6),
                          .resolution = period_ms > 0 ? 1e3 / period_ms : 0}; /* 1 mJ */
        snprintf(rail->name, sizeof rail->name, "%s", rail_names[k]);
        snprintf(rail->source, sizeof rail->source, "replay");
        snprintf(rail->device, sizeof rail->device, "powermetrics recording");
        snprintf(rail->field, sizeof rail->field, "%s_energy", rail_names[k]);
        if (k == PJ_PM_PACKAGE) package = (int)t->rail_count;
        t->rail_count++;
    }
    for (uint32_t i = 0; i < t->rail_count; i++)
        if ((int)i != package) t->rails[i].parent = package;
}

pj_status pj_trace_read_plist(const char *text, size_t bytes, const char *name, pj_trace *t,
                              pj_error *err)
{
    pj_pm_sample s;
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
    if (samples > 0) describe_rails(t, seen, sum_ms / (double)samples);
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
        uint32_t column = 0;
        for (int k = 0; k < PJ_PM_RAILS; k++) {
            if (!seen[k]) continue;
            t->mw[row * t->rail_count + column] = (float)s.mw[k];
            t->gap[row * t->rail_count + column++] = isnan(s.mw[k]);
        }
    }
    return PJ_OK;
}
