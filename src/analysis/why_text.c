/* Findings in words. */
#include "analysis/why.h"

#include "base/estimate.h"

#include <math.h>
#include <stdio.h>

const char *pj_why_kind_name(pj_why_kind kind)
{
    static const char *const names[PJ_WHY_KIND_COUNT] = {
        "none", "repeated", "copy",   "conversion", "extra", "calls", "batch", "type",
        "work", "length",   "kernel", "time",       "power", "gap",   "clock", "pace"};
    return (unsigned)kind < PJ_WHY_KIND_COUNT ? names[kind] : "unknown";
}

const char *pj_why_match_name(pj_why_match match)
{
    static const char *const names[] = {"name", "values", "role", "alone"};
    return (unsigned)match <= PJ_WHY_ALONE ? names[match] : "unknown";
}

/* "1.8 times"; `to` / `from` per call where calls are known. */
static double ratio_per_call(double from, double from_calls, double to, double to_calls)
{
    bool known = from_calls > 0 && to_calls > 0;
    return known ? to / to_calls / (from / from_calls) : to / from;
}

/* Decimal places for two significant digits of a small ratio, and two of others. */
static int places(double ratio)
{
    return ratio > 1e-9 && ratio < 0.1 ? 1 - (int)floor(log10(ratio)) : 2;
}

static void text_alone(const pj_why_row *r, char *text, size_t bytes)
{
    const char *only = r->b.ms > 0 ? "only in B" : "only in A";
    const char *equals = r->equals ? r->equals : "";
    if (r->kind == PJ_WHY_REPEATED)
        snprintf(text, bytes, "%s: computes the values of %s again", only, equals);
    else if (r->kind == PJ_WHY_COPY)
        snprintf(text, bytes, "%s: moves the values of %s unchanged", only, equals);
    else if (r->kind == PJ_WHY_CONVERSION)
        snprintf(text, bytes, "%s: moves the values of %s, rounded", only, equals);
    else
        snprintf(text, bytes, "%s", only);
}

static const char *per(bool run)
{
    return run ? "" : " per token";
}

static void text_calls(const pj_why_row *r, char *text, size_t bytes)
{
    snprintf(
        text, bytes, "%.4g calls%s instead of %.4g%s", r->b.calls, per(r->per_run), r->from.calls,
        r->kind == PJ_WHY_REPEATED ? r->b.calls > r->from.calls ? ": B computes equal values again"
                                                                : ": A computes equal values again"
                                   : "");
}

static void text_amount(const pj_why_row *r, char *text, size_t bytes)
{
    double more = ratio_per_call(r->from.bytes, r->from.calls, r->b.bytes, r->b.calls);
    double flops = ratio_per_call(r->from.flops, r->from.calls, r->b.flops, r->b.calls);
    double ms = ratio_per_call(r->from.ms, r->from.calls, r->b.ms, r->b.calls);
    const char *values = r->same_values == 1 ? " and equal values" : "";
    if (r->kind == PJ_WHY_TYPE)
        snprintf(text, bytes,
                 "%.*f times the bytes for the same FLOPs%s, in %.*f times the time: another type",
                 places(more), more, values, places(ms), ms);
    else
        snprintf(text, bytes,
                 "%.*f times the FLOPs and %.*f times the bytes, in %.*f times the time",
                 places(flops), flops, places(more), more, places(ms), ms);
}

static void text_power(const pj_why_row *r, char *text, size_t bytes)
{
    double from = r->from.mj / r->from.ms;
    /* where the phase's total says more of the part than its own share of it */
    double to = (r->b.mj + r->explained_mj - r->split.power) / r->b.ms;
    if (r->whole)
        snprintf(text, bytes, "%.3g W instead of %.3g W", to, from);
    else
        snprintf(text, bytes, "%s kernel: %.3g W instead of %.3g W for the same work",
                 to > from ? "hotter" : "cooler", to, from);
}

/* Before its first and after its last step a program may well compute: it starts, loads and ends.
 */
static void text_gap(const pj_why_row *r, char *text, size_t bytes)
{
    const char *when = r->phase == PJ_PHASE_PRE_INFERENCE    ? "before the first step:"
                       : r->phase == PJ_PHASE_POST_INFERENCE ? "after the last step:"
                                                             : "nothing computes for";
    if (r->per_run && r->phase == PJ_PHASE_PRE_INFERENCE)
        when = "in no part:"; /* it has no steps */
    snprintf(text, bytes, "%s %.3g ms%s instead of %.3g", when, r->b.ms, per(r->per_run),
             r->from.ms);
}

void pj_why_row_text(const pj_why_row *r, char *text, size_t bytes)
{
    double ms = ratio_per_call(r->from.ms, r->from.calls, r->b.ms, r->b.calls);
    switch (r->kind) {
    case PJ_WHY_REPEATED:
        if (r->match != PJ_WHY_ALONE) {
            text_calls(r, text, bytes);
            return;
        }
        /* fall through */
    case PJ_WHY_COPY:
    case PJ_WHY_CONVERSION:
    case PJ_WHY_EXTRA: text_alone(r, text, bytes); return;
    case PJ_WHY_CALLS: text_calls(r, text, bytes); return;
    case PJ_WHY_TYPE:
    case PJ_WHY_WORK: text_amount(r, text, bytes); return;
    case PJ_WHY_LENGTH:
        snprintf(text, bytes, "%s",
                 r->match != PJ_WHY_ALONE ? "another length of the context"
                 : r->b.ms > 0            ? "only in B: A has one output token, which prefill gives"
                               : "only in A: B has one output token, which prefill gives");
        return;
    case PJ_WHY_KERNEL:
        snprintf(text, bytes, "%s kernel: %.*f times the time for the same work%s",
                 ms > 1 ? "slower" : "faster", places(ms), ms,
                 r->same_values == 1 ? " and equal values" : "");
        return;
    case PJ_WHY_TIME:
        snprintf(text, bytes, "%.*f times the time: %.3g ms%s instead of %.3g", places(ms), ms,
                 r->b.ms, per(r->per_run), r->from.ms);
        return;
    case PJ_WHY_POWER: text_power(r, text, bytes); return;
    case PJ_WHY_GAP: text_gap(r, text, bytes); return;
    default: snprintf(text, bytes, "not certain"); return;
    }
}

static void text_clock(const pj_why_common *c, char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "clock of %s", c->device);
    if (fabs(c->clock_b_mhz - c->clock_a_mhz) >= 1 && n < bytes) /* false: unknown */
        n += (size_t)snprintf(text + n, bytes - n, ": %.0f MHz instead of %.0f", c->clock_b_mhz,
                              c->clock_a_mhz);
    if (isfinite(c->throttled_a) && isfinite(c->throttled_b) &&
        c->throttled_a + c->throttled_b > 0 && n < bytes)
        n += (size_t)snprintf(text + n, bytes - n,
                              ", throttled for %.0f %% of the time instead of "
                              "%.0f %%",
                              100 * c->throttled_b, 100 * c->throttled_a);
    if (n < bytes)
        snprintf(text + n, bytes - n, "; parts take %.*f times the time at %.*f times the power",
                 places(c->time_factor), c->time_factor, places(c->power_factor), c->power_factor);
}

static void text_sharing(const pj_why_common *c, char *text, size_t bytes)
{
    char a[16] = "several", b[16] = "several";
    if (c->batch_a > 0) snprintf(a, sizeof a, "%.0f", c->batch_a);
    if (c->batch_b > 0) snprintf(b, sizeof b, "%.0f", c->batch_b);
    snprintf(text, bytes, "%s: %s instead of %s",
             c->of_requests ? "requests at a time" : "sequences that share a step", b, a);
}

const char *pj_why_common_phase(const pj_why_common *c)
{
    return c->kind == PJ_WHY_LENGTH && !c->around_steps ? pj_phase_name(PJ_PHASE_PREFILL) : NULL;
}

const char *pj_why_common_part(const pj_why_common *c)
{
    return c->around_steps ? "around the steps" : "all parts";
}

void pj_why_common_text(const pj_why_common *c, char *text, size_t bytes)
{
    char sharing[96];
    text_sharing(c, sharing, sizeof sharing);
    if (c->around_steps)
        snprintf(text, bytes, "what happens once is shared by %.*f times the output tokens",
                 places(1 / c->time_factor), 1 / c->time_factor);
    else if (c->kind == PJ_WHY_LENGTH)
        snprintf(text, bytes, "%.*f times the prompt tokens per output token",
                 places(c->time_factor), c->time_factor);
    else if (c->kind == PJ_WHY_BATCH)
        snprintf(text, bytes, "%s; other changes of these parts are in this", sharing);
    else if (c->kind == PJ_WHY_CLOCK)
        text_clock(c, text, bytes);
    else
        snprintf(
            text, bytes, "all parts alike take %.*f times the time at %.*f times the power; %s%s",
            places(c->time_factor), c->time_factor, places(c->power_factor), c->power_factor,
            c->settings[0] ? "the sides differ in " : "no condition that was recorded says why",
            c->settings);
}

static void text_unsure(const pj_why_common *c, bool per_run, char *text, size_t bytes)
{
    char sharing[96];
    text_sharing(c, sharing, sizeof sharing);
    snprintf(text, bytes,
             "%s: together %+.3g mJ%s (%.3g to %.3g), which is not certain; more runs, or an idle "
             "machine, tell",
             sharing, c->explained_mj, per(per_run), c->explained.lo, c->explained.hi);
}

bool pj_why_unplaced_text(const pj_why *why, char *text, size_t bytes)
{
    double mj = why->unplaced_mj, half = PJ_Z95 * why->unplaced_sd_mj;
    if (why->unsure.kind) text_unsure(&why->unsure, why->per_run, text, bytes);
    if (mj == 0) return why->unsure.kind;
    snprintf(text, bytes,
             "%s takes %.3g mJ %s%s (%.3g to %.3g) at the same time, by power, and the "
             "sensor does not tell which part: compare runs of 100 tokens and more, or several",
             pj_phase_name((pj_phase)why->unplaced_phase), fabs(mj), mj > 0 ? "more" : "less",
             per(why->per_run), fabs(mj) - half, fabs(mj) + half);
    return true;
}
