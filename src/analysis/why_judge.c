/* Splits each row's difference and names what explains it. */
#include "analysis/why_impl.h"

#include <math.h>
#include <string.h>

static const double other_amount = 0.02; /* relative: smaller changes of bytes and FLOPs are none */
static const double level = 0.05;        /* of false names in a comparison */

/* ---- splitting ------------------------------------------------------------------------------ */

/* Of a change of time, what is in proportion to the change of an amount: at most all of it, and
 * nothing if the time changed the other way. */
static double due_to(double change, double in_proportion)
{
    if (in_proportion > 0) return fmin(fmax(change, 0), in_proportion);
    return fmax(fmin(change, 0), in_proportion);
}

/* The relative change of an amount per call; 0: none, or unknown. */
static double change_of(double from, double calls_from, double to, double calls_to)
{
    if (!(from > 0) || !(to > 0)) return 0;
    bool known = calls_from > 0 && calls_to > 0;
    double ratio = known ? to / calls_to / (from / calls_from) : to / from;
    return fabs(ratio - 1) > other_amount ? ratio - 1 : 0;
}

/* Milliseconds of the change of time: more calls, then more work in each, then the rest. */
typedef struct time_split {
    double calls, flops, bytes, rest;
    double expected; /* B's time with A's time per call */
} time_split;

static time_split split_time(const pj_why_row *r, double ms_a, double ms_b)
{
    const pj_why_amount *a = &r->from, *b = &r->b;
    time_split t = {.expected = ms_a};
    if (a->calls > 0 && b->calls > 0) t.expected = ms_a / a->calls * b->calls;
    t.calls = t.expected - ms_a;
    double change = ms_b - t.expected;
    t.flops = due_to(change, t.expected * change_of(a->flops, a->calls, b->flops, b->calls));
    t.bytes = due_to(change - t.flops,
                     t.expected * change_of(a->bytes, a->calls, b->bytes, b->calls) - t.flops);
    t.rest = change - t.flops - t.bytes;
    return t;
}

/* ---- certainty ------------------------------------------------------------------------------ */

typedef struct cause {
    pj_why_kind kind;
    double mj, sd;
    double ms; /* of time; 0: a cause in power alone */
    double z;  /* of what changed, time or power, in standard deviations; INFINITY: counted */
} cause;

/* Power over both sides, which small parts know better together than alone. */
static double mean_power(const pj_why_row *r, double *sd)
{
    double ms = r->from.ms + r->b.ms;
    *sd = sqrt(r->from.mj_variance + r->b.mj_variance) / ms;
    return (r->from.mj + r->b.mj) / ms;
}

static cause cause_of_time(const pj_why_row *r, pj_why_kind kind, double ms, double ms_sd,
                           bool counted)
{
    double power_sd, power = mean_power(r, &power_sd);
    return (cause){kind, power * ms, hypot(power * ms_sd, power_sd * ms), ms,
                   counted ? INFINITY : fabs(ms) / ms_sd};
}

/* A stall draws another power: what is not divided does not tell it from the rest. */
static cause cause_of_power(const pj_why_row *r, double mj)
{
    const pj_why_amount *a = &r->from, *b = &r->b;
    double sd = b->ms * hypot(sqrt(a->mj_variance) / a->ms, sqrt(b->mj_variance) / b->ms);
    double power_sd, power = mean_power(r, &power_sd);
    if (r->whole) sd = hypot(sd, power * sqrt(a->calm_variance + b->calm_variance));
    return (cause){PJ_WHY_POWER, mj, sd, 0, fabs(mj) / sd};
}

/* Parts that are large enough to be named: each is tested in time and in power. */
static double tests_of(const pj_why *why)
{
    double n = 0;
    for (uint32_t i = 0; i < why->row_count; i++)
        n += why->rows[i].is_gap ||
             fmax(why->rows[i].from.mj, why->rows[i].b.mj) >= PJ_WHY_LEAST * why->request_a_mj;
    return fmax(2 * n, 1);
}

/* Waiting draws little: a gap matters by its time as well. */
static bool is_long_gap(const pj_why *why, const cause *of)
{
    double ms = 0;
    for (uint32_t i = 0; i < why->row_count; i++) ms += why->rows[i].from.ms;
    return of->kind == PJ_WHY_GAP && fabs(of->ms) >= PJ_WHY_LEAST * ms;
}

static bool is_certain(const pj_why *why, const pj_why_context *c, const cause *of)
{
    bool matters =
        fabs(of->mj) >= PJ_WHY_LEAST * why->request_a_mj && fabs(of->mj) > PJ_Z95 * of->sd;
    if (!matters && !is_long_gap(why, of)) return false;
    return isinf(of->z) || pj_student_two_sided(of->z, c->freedom) * tests_of(why) < level;
}

static void name_row(const pj_why *why, const pj_why_context *c, const cause *causes, size_t count,
                     pj_why_row *row)
{
    const cause *most = NULL;
    for (size_t i = 0; i < count; i++)
        if (is_certain(why, c, &causes[i]) && (!most || fabs(causes[i].mj) > fabs(most->mj)))
            most = &causes[i];
    if (!most) return;
    row->kind = most->kind;
    row->explained_mj = most->mj;
    row->explained = (pj_bounds){most->mj - PJ_Z95 * most->sd, most->mj + PJ_Z95 * most->sd};
}

/* ---- kinds ---------------------------------------------------------------------------------- */

/* A part that one side has alone. Equal values without arithmetic are moved ones; a side with one
 * output token decodes none. */
static pj_why_kind kind_of_alone(const pj_why_row *r, const pj_why_context *c)
{
    const pj_why_amount *of = r->b.ms > 0 ? &r->b : &r->a;
    const pj_why_side *other = r->b.ms > 0 ? c->a : c->b;
    if (r->phase == PJ_PHASE_DECODE && !r->per_run && other->output_tokens <= other->batch)
        return PJ_WHY_LENGTH;
    if (!r->equals) return PJ_WHY_EXTRA;
    if (of->flops > 0) return PJ_WHY_REPEATED;
    return r->equals_exactly ? PJ_WHY_COPY : PJ_WHY_CONVERSION;
}

static pj_why_kind kind_of_calls(const pj_why_row *r)
{
    double more = r->b.calls - r->from.calls, repeats = r->repeated_b - r->repeated_a;
    if (more * repeats > 0 && fabs(repeats) >= 0.5 * fabs(more)) return PJ_WHY_REPEATED;
    return PJ_WHY_CALLS;
}

static pj_why_kind kind_of_amount(const pj_why_row *r, const pj_why_context *c, bool of_bytes)
{
    bool other_length =
        c->a->input_tokens != c->b->input_tokens || c->a->output_tokens != c->b->output_tokens;
    double flops = change_of(r->from.flops, r->from.calls, r->b.flops, r->b.calls);
    if (other_length && (strncmp(r->name, "attention", 9) == 0 || strcmp(r->name, "indexer") == 0))
        return PJ_WHY_LENGTH;
    return of_bytes && flops == 0 && !r->whole ? PJ_WHY_TYPE : PJ_WHY_WORK;
}

static pj_why_kind kind_of_rest(const pj_why_row *r)
{
    return r->is_gap ? PJ_WHY_GAP : r->whole ? PJ_WHY_TIME : PJ_WHY_KERNEL;
}

static void judge_alone(const pj_why *why, const pj_why_context *c, pj_why_row *row)
{
    cause only = {kind_of_alone(row, c), row->difference_mj,
                  sqrt(row->a.mj_variance + row->b.mj_variance), row->b.ms - row->a.ms, INFINITY};
    if (row->is_gap) only.kind = PJ_WHY_GAP;
    row->split.calls = row->difference_mj;
    name_row(why, c, &only, 1, row);
}

double pj_why_power_of_phase(const pj_why *why, uint8_t phase)
{
    double sum = 0;
    for (uint32_t i = 0; i < why->row_count; i++) {
        const pj_why_row *r = &why->rows[i];
        double ignored;
        if (r->phase == phase && r->from.ms > 0 && r->b.ms > 0)
            sum += r->b.mj - r->from.mj - mean_power(r, &ignored) * (r->b.ms - r->from.ms);
    }
    return sum;
}

/* What the mean and the calm time agree in: the lesser change; none if they contradict. */
static double lesser(double a, double b)
{
    return a * b <= 0 ? 0 : fabs(a) < fabs(b) ? a : b;
}

static void judge_both(const pj_why *why, const pj_why_context *c, pj_why_row *row)
{
    const pj_why_amount *from = &row->from, *b = &row->b;
    time_split t = split_time(row, from->ms, b->ms);
    time_split calm = split_time(row, from->calm_ms, b->calm_ms);
    double phase_power = pj_why_power_of_phase(why, row->phase);
    double ignored, power = mean_power(row, &ignored);
    double per_call = t.expected / from->ms, squared = per_call * per_call;
    double change_sd = sqrt(from->ms_variance * squared + b->ms_variance);
    double rest = lesser(t.rest, calm.rest);
    double rest_sd = sqrt(from->calm_variance * squared + b->calm_variance);
    double counted_sd = sqrt(row->from.ms_variance) / row->from.ms;
    row->split =
        (pj_why_split){power * t.calls, power * t.bytes, power * t.flops, power * t.rest, 0};
    row->split.power = row->b.mj - row->from.mj - power * (row->b.ms - row->from.ms);
    bool is_real =
        phase_power * row->split.power > 0 && fabs(phase_power) >= 0.5 * fabs(row->split.power);
    if (from->once || b->once) is_real = false; /* it may have waited as well as worked */
    const cause causes[] = {
        cause_of_time(row, kind_of_rest(row), rest, rest_sd, false),
        cause_of_time(row, kind_of_calls(row), t.calls, counted_sd * fabs(t.calls), true),
        cause_of_time(row, kind_of_amount(row, c, true), t.bytes, change_sd, true),
        cause_of_time(row, kind_of_amount(row, c, false), t.flops, change_sd, true),
        cause_of_power(row, is_real ? row->split.power : 0)};
    name_row(why, c, causes, row->is_gap ? 1 : sizeof causes / sizeof *causes, row);
}

/* Of a single run: how much of a part's energy the scatter of its time may be. */
static double scatter_of(const pj_why_side *s, const pj_why_amount *a, double power)
{
    return s->runs > 1 ? 0 : power * power * fmax(a->ms_variance, a->calm_variance);
}

/* Standard deviation of the difference from `from` to B. */
static double sd_from(const pj_why_context *c, const pj_why_amount *from, const pj_why_amount *b)
{
    double power = (from->mj + b->mj) / (from->ms + b->ms);
    return sqrt(from->mj_variance + b->mj_variance + scatter_of(c->a, from, power) +
                scatter_of(c->b, b, power));
}

static pj_bounds within(double mj, double half)
{
    return (pj_bounds){mj - half, mj + half};
}

static void find_intervals(const pj_why *why, const pj_why_context *c, pj_why_row *row)
{
    const pj_why_amount *from = why->common_count ? &row->from : &row->a;
    double most = pj_student_quantile(1 - level / tests_of(why) / 2, c->freedom);
    row->bounds = within(row->difference_mj, PJ_Z95 * sd_from(c, &row->a, &row->b));
    row->left_mj = row->b.mj - from->mj;
    row->left = within(row->left_mj, most * sd_from(c, from, &row->b));
}

void pj_why_judge(pj_why *why, const pj_why_context *c)
{
    for (uint32_t i = 0; i < why->row_count; i++) {
        pj_why_row *row = &why->rows[i];
        if (row->from.ms > 0 && row->b.ms > 0)
            judge_both(why, c, row);
        else
            judge_alone(why, c, row);
        find_intervals(why, c, row);
    }
}
