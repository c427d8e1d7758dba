/* What all parts have in common: other numbers of tokens or of sequences that share steps, a
 * device's clock, a slower machine. */
#include "analysis/why_impl.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double same_work = 0.02;      /* relative, of FLOPs and bytes */
static const double other_clock = 0.03;    /* relative */
static const double other_throttle = 0.05; /* of the time */
static const double least_pace = 0.05;     /* relative, of all parts' time */
static const double agreement = 0.08;      /* of a part with the rest, relative */

/* ---- lengths -------------------------------------------------------------------------------- */

static void scale_from(pj_why_row *row, double time, double power)
{
    row->from.ms *= time;
    row->from.ms_variance *= time * time;
    row->from.calm_ms *= time;
    row->from.calm_variance *= time * time;
    row->from.mj *= time * power;
    row->from.mj_variance *= time * power * time * power;
}

static pj_bounds bounds_of(double mj, double variance)
{
    double half = PJ_Z95 * sqrt(variance);
    return (pj_bounds){mj - half, mj + half};
}

static bool matters(const pj_why *why, double mj)
{
    return fabs(mj) >= PJ_WHY_LEAST * why->request_a_mj;
}

/* Of the rows of some phases: `factor` times the work per output token, in `calls` times the calls.
 */
static void scale_phases(pj_why *why, uint32_t phases, double factor, double calls,
                         pj_why_common found)
{
    double mj = 0, variance = 0;
    for (uint32_t i = 0; i < why->row_count; i++) {
        pj_why_row *row = &why->rows[i];
        if (!(phases >> row->phase & 1)) continue;
        mj += row->from.mj * (factor - 1);
        variance += row->from.mj_variance * (factor - 1) * (factor - 1);
        scale_from(row, factor, 1);
        row->from.calls *= calls;
        row->from.flops *= factor;
        row->from.bytes *= factor;
    }
    found.kind = PJ_WHY_LENGTH;
    found.explained_mj = mj;
    found.explained = bounds_of(mj, variance);
    found.time_factor = factor;
    found.power_factor = 1;
    found.clock_a_mhz = found.clock_b_mhz = found.throttled_a = found.throttled_b = NAN;
    bool is_certain = found.explained.lo * found.explained.hi > 0;
    if (matters(why, mj) && is_certain) why->commons[why->common_count++] = found;
}

/* Prefill's share in a token's energy grows with the prompt and falls with the answer; that of what
 * happens once before and after the steps falls with the answer. */
static void find_length(pj_why *why, const pj_why_context *c)
{
    double a = c->a->input_tokens / c->a->output_tokens,
           b = c->b->input_tokens / c->b->output_tokens;
    double fewer = c->a->output_tokens / c->b->output_tokens;
    if (why->per_run) return;
    if (a > 0 && b > 0 && fabs(b / a - 1) >= 0.01)
        scale_phases(why, 1u << PJ_PHASE_PREFILL, b / a, fewer, (pj_why_common){0});
    if (fabs(fewer - 1) >= 0.01)
        scale_phases(why, 1u << PJ_PHASE_PRE_INFERENCE | 1u << PJ_PHASE_POST_INFERENCE, fewer,
                     fewer, (pj_why_common){.around_steps = true});
}

/* ---- scatter ------------------------------------------------------------------------------- */

static double side_variance(const pj_why_side *s, double spread)
{
    double slowed = pj_why_slowed_sd(s, s->ms), single = s->pace_sd * s->pace_sd + slowed * slowed;
    return spread * spread / s->runs + (s->runs == 1 ? single : 0);
}

/* Relative, of a common factor of times. */
static double pace_variance(const pj_why_context *c)
{
    return side_variance(c->a, c->spread_a) + side_variance(c->b, c->spread_b);
}

/* ---- batches -------------------------------------------------------------------------------- */

/* Sequences that share a step share its calls and weights, but not its arithmetic: what a part
 * should then cost is not known. So the difference of the parts that both sides have is one thing,
 * but for calls that repeat values. */
static void scale_batch(pj_why_row *row)
{
    pj_why_amount *from = &row->from, *b = &row->b;
    double single_a = from->calls - row->repeated_a, single_b = b->calls - row->repeated_b;
    double calls = from->calls * single_b / single_a; /* B's if it repeated as many as A */
    double share = single_a > 0 && single_b > 0 ? calls / b->calls : 1;
    double time = share * b->ms / from->ms;
    scale_from(row, time, share * b->mj / (from->mj * time));
    from->calm_ms = share * b->calm_ms;
    row->repeated_a *= single_a > 0 && single_b > 0 ? single_b / single_a : 1;
    from->calls = share * b->calls;
    from->flops = share * b->flops;
    from->bytes = share * b->bytes;
}

/* Whether the sides' batches differ, or the requests that share the machine: nothing else is then
 * told of all parts alike. */
static bool find_batch(pj_why *why, const pj_why_context *c)
{
    double mj = 0, ms_a = 0, ms_b = 0, mj_a = 0, mj_b = 0, variance = 0;
    bool of_requests = c->a->batch == c->b->batch;
    if (of_requests && c->a->at_a_time == c->b->at_a_time) return false;
    for (uint32_t i = 0; i < why->row_count; i++) {
        pj_why_row *row = &why->rows[i];
        bool in_steps = row->phase == PJ_PHASE_PREFILL || row->phase == PJ_PHASE_DECODE;
        if (!in_steps || !(row->from.mj > 0) || !(row->b.mj > 0)) continue;
        double before = row->from.mj;
        ms_a += row->from.ms;
        mj_a += before;
        variance += row->from.mj_variance + row->b.mj_variance;
        scale_batch(row);
        mj += row->from.mj - before;
        ms_b += row->from.ms;
        mj_b += row->from.mj;
    }
    variance += mj_a * mj_a * side_variance(c->a, c->spread_a) +
                mj_b * mj_b * side_variance(c->b, c->spread_b);
    pj_why_common found = {.kind = PJ_WHY_BATCH,
                           .explained_mj = mj,
                           .explained = bounds_of(mj, variance),
                           .time_factor = ms_b / ms_a,
                           .power_factor = mj_b / ms_b / (mj_a / ms_a),
                           .batch_a = of_requests ? c->a->at_a_time : c->a->batch,
                           .batch_b = of_requests ? c->b->at_a_time : c->b->batch,
                           .of_requests = of_requests};
    bool is_certain = found.explained.lo * found.explained.hi > 0;
    if (matters(why, mj) && is_certain) why->commons[why->common_count++] = found;
    if (matters(why, mj) && !is_certain) why->unsure = found;
    return true;
}

/* ---- pace ----------------------------------------------------------------------------------- */

typedef struct weighted {
    double ratio, weight;
} weighted;

static int by_ratio(const void *x, const void *y)
{
    double a = ((const weighted *)x)->ratio, b = ((const weighted *)y)->ratio;
    return (a > b) - (a < b);
}

static double weighted_median(weighted *items, uint32_t count)
{
    double all = 0, sum = 0;
    qsort(items, count, sizeof *items, by_ratio);
    for (uint32_t i = 0; i < count; i++) all += items[i].weight;
    for (uint32_t i = 0; i < count; i++)
        if ((sum += items[i].weight) >= all / 2) return items[i].ratio;
    return NAN;
}

static bool is_near(double a, double b)
{
    return isnan(a) || isnan(b) || fabs(a - b) <= same_work * fmax(fabs(a), fabs(b));
}

/* Rows that do the same on both sides. */
static bool is_same_work(const pj_why_row *r)
{
    return r->match == PJ_WHY_BY_NAME && !r->is_gap && !r->whole && r->from.calm_ms > 0 &&
           r->b.calm_ms > 0 && r->from.mj > 0 && r->b.mj > 0 &&
           is_near(r->from.calls, r->b.calls) && is_near(r->from.flops, r->b.flops) &&
           is_near(r->from.bytes, r->b.bytes);
}

/* One large part does not speak for all. */
static const double most_weight = 0.2;

typedef struct pace {
    double time, power;   /* typical ratios of B to A */
    double agreeing, all; /* energy of rows with that ratio of times; of all rows */
} pace;

static bool pace_of(const pj_why *why, pace *p)
{
    weighted *times = pj_alloc(why->row_count + 1, sizeof *times);
    weighted *powers = pj_alloc(why->row_count + 1, sizeof *powers);
    uint32_t n = 0;
    double all = 0;
    *p = (pace){NAN, NAN, 0, 0};
    for (uint32_t i = 0; i < why->row_count; i++)
        if (!why->rows[i].is_gap) all += why->rows[i].from.mj;
    for (uint32_t i = 0; times && powers && i < why->row_count; i++) {
        const pj_why_row *r = &why->rows[i];
        double weight = fmin(r->from.mj, most_weight * all);
        if (r->is_gap) continue; /* waiting has no pace */
        p->all += weight;
        if (!is_same_work(r)) continue;
        times[n] = (weighted){r->b.calm_ms / r->from.calm_ms, weight};
        powers[n++] = (weighted){r->b.mj / r->b.ms / (r->from.mj / r->from.ms), weight};
    }
    if (n) {
        p->time = weighted_median(times, n);
        p->power = weighted_median(powers, n);
    }
    for (uint32_t i = 0; i < n; i++)
        if (fabs(times[i].ratio / p->time - 1) <= agreement) p->agreeing += times[i].weight;
    pj_free(times);
    pj_free(powers);
    return n > 0 && p->time > 0 && p->power > 0;
}

/* A device whose clock, or share of time with a throttled clock, differs in the way that the times
 * do. */
static bool find_clock(const pj_why_context *c, const pace *p, pj_why_common *found)
{
    for (uint32_t i = 0; i < c->a->device_count; i++)
        for (uint32_t k = 0; k < c->b->device_count; k++) {
            const pj_device_conditions *a = &c->a->devices[i], *b = &c->b->devices[k];
            if (strcmp(a->device, b->device) != 0) continue;
            double clock = b->clock_mhz / a->clock_mhz - 1;
            double throttled = b->throttled_share - a->throttled_share;
            bool slower = clock < -other_clock || throttled > other_throttle;
            bool faster = clock > other_clock || throttled < -other_throttle;
            if (p->time > 1 + same_work ? !slower : p->time < 1 - same_work ? !faster : true)
                continue;
            *found = (pj_why_common){.kind = PJ_WHY_CLOCK,
                                     .clock_a_mhz = a->clock_mhz,
                                     .clock_b_mhz = b->clock_mhz,
                                     .throttled_a = a->throttled_share,
                                     .throttled_b = b->throttled_share};
            snprintf(found->device, sizeof found->device, "%s", a->device);
            return true;
        }
    return false;
}

/* All parts of one program on one machine took longer alike. */
static bool is_pace(const pj_why_context *c, const pace *p)
{
    return strcmp(c->a->engine, c->b->engine) == 0 && strcmp(c->a->machine, c->b->machine) == 0 &&
           fabs(p->time - 1) > fmax(least_pace, 3.3 * sqrt(pace_variance(c))) &&
           p->agreeing > 0.7 * p->all;
}

/* What makes all parts of one program quicker or slower, and is known of both sides. */
static void name_settings(const pj_why_context *c, char *text, size_t bytes)
{
    const pj_why_side *a = c->a, *b = c->b;
    const struct {
        const char *title;
        bool differs;
    } of[] = {{"threads", a->threads && b->threads && a->threads != b->threads},
              {"type of weights", a->dtype[0] && b->dtype[0] && strcmp(a->dtype, b->dtype) != 0},
              {"instruction set", a->isa[0] && b->isa[0] && strcmp(a->isa, b->isa) != 0}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].differs && used < bytes)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", of[i].title);
}

static bool is_scaled(const pj_why_row *r)
{
    return !r->is_gap && r->match != PJ_WHY_ALONE;
}

void pj_why_find_common(pj_why *why, const pj_why_context *c)
{
    pace p;
    pj_why_common found = {
        .clock_a_mhz = NAN, .clock_b_mhz = NAN, .throttled_a = NAN, .throttled_b = NAN};
    find_length(why, c);
    if (find_batch(why, c) || !pace_of(why, &p)) return;
    if (!find_clock(c, &p, &found)) found.kind = is_pace(c, &p) ? PJ_WHY_PACE : PJ_WHY_NOTHING;
    double mj = 0, variance = 0, factor = p.time * p.power;
    for (uint32_t i = 0; i < why->row_count; i++) {
        const pj_why_row *r = &why->rows[i];
        if (!is_scaled(r)) continue;
        mj += r->from.mj;
        variance += factor * factor * r->from.mj_variance + r->b.mj_variance;
    }
    found.explained_mj = mj * (factor - 1);
    found.explained =
        bounds_of(found.explained_mj, variance + mj * factor * mj * factor * pace_variance(c));
    if (!found.kind || !matters(why, found.explained_mj)) return;
    if (found.kind == PJ_WHY_PACE) name_settings(c, found.settings, sizeof found.settings);
    found.time_factor = p.time;
    found.power_factor = p.power;
    for (uint32_t i = 0; i < why->row_count; i++)
        if (is_scaled(&why->rows[i])) scale_from(&why->rows[i], p.time, p.power);
    why->commons[why->common_count++] = found;
}
