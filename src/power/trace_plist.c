/* Recorded powermetrics output as traces, property lists and text. The first pass counts samples
 * and collects the rails, the second fills the columns. A truncated document or one without a
 * duration is skipped and counted. */
#include "power/powermetrics_plist.h"
#include "power/trace_file.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- text ---- */

static const char text_mark[] = "*** Sampled system activity";

/* "CPU Power: 54 mW"; Intel Macs: "...package power (CPUs+GT+SA): 4.50W". */
static void trace_plist_take_line(const char *line, size_t bytes, pj_pm_sample *s)
{
    static const struct {
        const char *name;
        pj_pm_rail rail;
    } named[] = {{"CPU Power: ", PJ_PM_CPU},
                 {"Clusters Total Power: ", PJ_PM_CPU},
                 {"GPU Power: ", PJ_PM_GPU},
                 {"ANE Power: ", PJ_PM_ANE},
                 {"DRAM Power: ", PJ_PM_DRAM},
                 {"Package Power: ", PJ_PM_PACKAGE},
                 {"Intel energy model derived package power (CPUs+GT+SA): ", PJ_PM_CPU}};
    char cell[96], *end;
    snprintf(cell, sizeof cell, "%.*s", (int)(bytes < sizeof cell ? bytes : sizeof cell - 1), line);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        size_t length = strlen(named[i].name);
        if (strncmp(cell, named[i].name, length) != 0) continue;
        double value = strtod(cell + length, &end);
        bool milli = strncmp(end, " mW", 3) == 0 || strncmp(end, "mW", 2) == 0;
        if (end == cell + length || !(value >= 0 && value < 1e9)) return;
        s->mw[named[i].rail] = milli ? value : value * 1e3;
    }
}

/* "*** Sampled system activity (...) (1005.03ms elapsed) ***" and what follows it. False at the
 * end. */
static bool trace_plist_next_text(const char **text, size_t *bytes, pj_pm_sample *s,
                                  size_t *skipped)
{
    *s = (pj_pm_sample){0};
    for (int k = 0; k < PJ_PM_RAILS; k++) s->mw[k] = NAN;
    bool found = false;
    while (*bytes > 0) {
        const char *end = memchr(*text, '\n', *bytes);
        size_t length = end ? (size_t)(end - *text) : *bytes;
        bool mark =
            length > sizeof text_mark && memcmp(*text, text_mark, sizeof text_mark - 1) == 0;
        if (mark && s->elapsed_ns > 0) return true; /* of the next sample */
        if (mark) {
            char line[128];
            snprintf(line, sizeof line, "%.*s", (int)(length < 127 ? length : 127), *text);
            const char *elapsed = strrchr(line, '(');
            double ms = elapsed ? strtod(elapsed + 1, NULL) : 0;
            s->elapsed_ns = ms > 0 && ms < 1e9 ? (int64_t)(ms * 1e6) : 0;
            *skipped += s->elapsed_ns == 0;
        } else if (s->elapsed_ns > 0) {
            trace_plist_take_line(*text, length, s);
        }
        found = s->elapsed_ns > 0;
        *text += length + (end != NULL);
        *bytes -= length + (end != NULL);
    }
    return found;
}

/* ---- traces ---- */

typedef bool next_sample_fn(const char **text, size_t *bytes, pj_pm_sample *sample,
                            size_t *skipped);

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

static pj_status trace_plist_read(next_sample_fn *next, const char *text, size_t bytes,
                                  const char *name, pj_trace *t, pj_error *err)
{
    pj_pm_sample s;
    pj_pm_rail kinds[PJ_PM_RAILS];
    bool seen[PJ_PM_RAILS] = {false};
    const char *at = text;
    size_t left = bytes, samples = 0, skipped = 0;
    double sum_ms = 0;
    *t = (pj_trace){.origin_unix_ms = NAN};
    while (next(&at, &left, &s, &t->skipped)) {
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
    while (next(&at, &left, &s, &skipped)) {
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

pj_status pj_trace_read_plist(const char *text, size_t bytes, const char *name, pj_trace *t,
                              pj_error *err)
{
    return trace_plist_read(trace_plist_next_sample, text, bytes, name, t, err);
}

pj_status pj_trace_read_powermetrics(const char *text, size_t bytes, const char *name, pj_trace *t,
                                     pj_error *err)
{
    return trace_plist_read(trace_plist_next_text, text, bytes, name, t, err);
}
