/* Compares figures of sides: tests of their differences, and sentences with the results. */
#include "insight/sides.h"

#include "base/estimate.h"

#include <math.h>
#include <string.h>

/* Figures that are tested between groups of runs beside the primary one, which comes first. */
static const char *const secondary[] = {"joules_per_token", "total_energy_mj", "total_duration_ms",
                                        "joules_per_output_token", "tokens_per_second"};
enum { TESTED = 1 + sizeof secondary / sizeof *secondary };

static uint32_t choose_primary(const pj_sides *s)
{
    bool all = true;
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->sides[i].run_count; k++)
            pj_note_typical(&all, s->sides[i].runs[k]);
    return pj_primary_figure(all);
}

/* Without a typical token, the first of the secondary figures is the primary one. */
static uint32_t figure_tested(const pj_sides *s, int metric)
{
    return metric ? pj_figure_find(secondary[metric - 1]) : s->primary;
}

/* All pairs of a few sides; of many, each against the first. */
static bool is_tested(const pj_sides *s, uint32_t a, uint32_t b)
{
    return a < b && (s->count <= 6 || a == 0);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* The calibration of two devices does not cancel in their ratio. */
static double gain_of(const pj_side *a, const pj_side *b)
{
    const pj_run_info *x = a->runs[0], *y = b->runs[0];
    if (x->machine && y->machine && strcmp(x->machine, y->machine) == 0) return 0;
    if (!x->machine && !y->machine) return 0;
    double ga = (double)x->total_sd.gain_mj / x->total_mj;
    double gb = (double)y->total_sd.gain_mj / y->total_mj;
    return hypot(isfinite(ga) ? ga : 0, isfinite(gb) ? gb : 0);
}

static bool is_energy(const char *unit)
{
    return strchr(unit, 'J') != NULL;
}

static void take_back(pj_side_test *t)
{
    t->result.welch_p = t->result.mann_whitney_p = NAN;
}

/* `pair` has the values and the gain. */
static void add_test(pj_sides *s, pj_side_test test, double *work)
{
    if (s->test_count == PJ_SIDE_TESTS) return;
    pj_side_test *t = &s->tests[s->test_count];
    pj_contrast *p = &test.pair;
    pj_compare(p->a, p->n_a, p->b, p->n_b, work, &test.result);
    p->refused = is_energy(test.unit) && pj_sides_refusal(&s->sides[test.a], &s->sides[test.b]);
    if (p->refused) take_back(&test);
    *t = test;
    if (t->result.n_a > 1 && t->result.n_b > 1) s->test_count++;
}

static pj_status test_tokens(pj_sides *s, bool energy, uint32_t a, uint32_t b, pj_error *err)
{
    const pj_token_series *x = &s->sides[a].tokens, *y = &s->sides[b].tokens;
    double *work = pj_arena_alloc(&s->arena, (size_t)x->count + y->count + 1, sizeof *work);
    if (!work) return pj_fail_memory(err, "a comparison");
    pj_side_test t = {energy ? "token_energy_mj" : "token_duration_ms",
                      energy ? "mJ" : "ms",
                      "token",
                      a,
                      b,
                      .pair = {.a = energy ? x->energy_mj : x->duration_ms,
                               .b = energy ? y->energy_mj : y->duration_ms,
                               .n_a = x->count,
                               .n_b = y->count}};
    if (energy) t.pair.gain_sd = gain_of(&s->sides[a], &s->sides[b]);
    add_test(s, t, work);
    return PJ_OK;
}

static pj_status test_runs(pj_sides *s, uint32_t figure, uint32_t a, uint32_t b, pj_error *err)
{
    const pj_side *x = &s->sides[a], *y = &s->sides[b];
    const pj_figure *f = &pj_figures[figure];
    size_t n = (size_t)x->run_count + y->run_count;
    double *values = pj_arena_alloc(&s->arena, 2 * n, sizeof *values);
    if (!values) return pj_fail_memory(err, "a comparison");
    pj_side_test t = {f->name, f->unit, "run", a, b, figure == s->primary};
    t.pair.a = values;
    t.pair.n_a = pj_side_values(x, figure, values);
    t.pair.b = values + t.pair.n_a;
    t.pair.n_b = pj_side_values(y, figure, values + t.pair.n_a);
    if (is_energy(f->unit)) t.pair.gain_sd = gain_of(x, y);
    add_test(s, t, values + n);
    return PJ_OK;
}

/* One metric of a pair: the runs' figures first, then the tokens' of single runs. */
static pj_status test_pair(pj_sides *s, int metric, uint32_t a, uint32_t b, pj_error *err)
{
    uint32_t x = s->sides[a].run_count, y = s->sides[b].run_count;
    bool again = metric > 0 && metric < TESTED && figure_tested(s, metric) == s->primary;
    if (again) return PJ_OK;
    if (metric < TESTED && x > 1 && y > 1) return test_runs(s, figure_tested(s, metric), a, b, err);
    if (metric >= TESTED && x == 1 && y == 1) return test_tokens(s, metric == TESTED, a, b, err);
    return PJ_OK;
}

/* Each metric's pairs are judged together, so that a metric does not cost another its power. */
static pj_status judge_from(pj_sides *s, uint32_t first, pj_error *err)
{
    uint32_t count = s->test_count - first;
    pj_contrast *pairs = pj_arena_alloc(&s->arena, (size_t)count + 1, sizeof *pairs);
    if (!pairs) return pj_fail_memory(err, "a comparison");
    for (uint32_t i = 0; i < count; i++) pairs[i] = s->tests[first + i].pair;
    pj_contrasts_judge(pairs, count);
    for (uint32_t i = 0; i < count; i++) s->tests[first + i].pair = pairs[i];
    return PJ_OK;
}

static pj_status test_pairs(pj_sides *s, pj_error *err)
{
    s->tests = pj_arena_alloc(&s->arena, PJ_SIDE_TESTS, sizeof *s->tests);
    if (!s->tests) return pj_fail_memory(err, "a comparison");
    for (int metric = 0; metric < TESTED + 2; metric++) {
        uint32_t first = s->test_count;
        pj_status status = PJ_OK;
        for (uint32_t a = 0; a < s->count; a++)
            for (uint32_t b = a + 1; b < s->count && status == PJ_OK; b++)
                if (is_tested(s, a, b)) status = test_pair(s, metric, a, b, err);
        if (status == PJ_OK) status = judge_from(s, first, err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

/* Relative errors of a run's figure without the calibration: all, and those that repeats share. */
static void own_errors(const pj_run_info *run, const pj_figure *f, double *all, double *shared)
{
    const char *at = (const char *)run;
    const pj_sd *sd = (const pj_sd *)(const void *)(at + f->sd);
    double energy = fabs(*(const double *)(const void *)(at + f->energy));
    *shared = (double)sd->bias_mj / energy;
    *all = hypot((double)sd->random_mj, (double)sd->bias_mj) / energy;
}

/* Adds the sensor's errors to the interval of a mean over runs. */
static void mean_add_sensor(pj_mean *mean, const pj_side *side, const pj_figure *f)
{
    double all = 0, shared = 0;
    if (!f->sd || !mean->n) return;
    own_errors(side->runs[0], f, &all, &shared);
    double own = PJ_Z95 * fabs(mean->value) * (mean->n > 1 ? shared : all);
    double spread = mean->n > 1 ? (mean->hi - mean->lo) / 2 : 0; /* as pj_bounds_of has it */
    if (!isfinite(own) || (mean->n == 1 && !(own > 0))) return;
    double half = hypot(spread, own);
    pj_bounds bounds = f->may_be_negative ? (pj_bounds){mean->value - half, mean->value + half}
                                          : pj_bounds_of(mean->value, half);
    mean->lo = bounds.lo;
    mean->hi = bounds.hi;
}

pj_mean pj_side_mean_of(const pj_side *side, uint32_t figure)
{
    pj_sample sample = {0};
    for (uint32_t i = 0; i < side->run_count; i++) {
        double value = pj_figure_of(side->runs[i], figure);
        if (isfinite(value)) pj_sample_add(&sample, value);
    }
    pj_mean mean = pj_sample_mean(&sample, pj_figures[figure].may_be_negative);
    mean_add_sensor(&mean, side, &pj_figures[figure]);
    return mean;
}

/* ---- the best ------------------------------------------------------------------------------- */

static const pj_side_test *find_test(const pj_sides *s, uint32_t a, uint32_t b, const char *metric)
{
    for (uint32_t i = 0; i < s->test_count; i++) {
        const pj_side_test *t = &s->tests[i];
        if (strcmp(t->metric, metric) == 0 && t->a == a && t->b == b) return t;
    }
    return NULL;
}

static int standing_of(const pj_sides *s, uint32_t best, uint32_t other, const char *metric)
{
    uint32_t a = best < other ? best : other, b = best < other ? other : best;
    const pj_side_test *t = find_test(s, a, b, metric);
    if (!t || isnan(t->pair.p)) return PJ_STANDING_UNTESTED;
    return t->pair.different ? PJ_STANDING_WORSE : PJ_STANDING_TIED;
}

static void find_best(pj_sides *s, const char *title, const char *metric)
{
    uint32_t figure = pj_figure_find(metric);
    bool lower = strcmp(pj_figures[figure].better, "lower") == 0;
    double values[PJ_SIDES_MAX];
    pj_side_best best = {title, metric, s->count, NAN, {PJ_STANDING_NONE}};
    for (uint32_t i = 0; i < s->count; i++) {
        values[i] = pj_side_mean_of(&s->sides[i], figure).value;
        double least = best.side < s->count ? values[best.side] : NAN;
        bool worse = lower ? values[i] >= least : values[i] <= least; /* false for NAN */
        if (!isnan(values[i]) && !worse) best.side = i;
    }
    if (best.side == s->count) return;
    best.value = values[best.side];
    for (uint32_t i = 0; i < s->count; i++)
        if (i != best.side && !isnan(values[i]))
            best.standing[i] = standing_of(s, best.side, i, metric);
    s->bests[s->best_count++] = best;
}

static bool are_comparable(const pj_sides *s)
{
    pj_likeness l = {0};
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->sides[i].run_count; k++)
            pj_likeness_add(&l, s->sides[i].runs[k]);
    return !pj_likeness_refusal(&l);
}

/* Energies that are different quantities have no minimum. */
static void find_bests(pj_sides *s)
{
    bool comparable = are_comparable(s);
    if (comparable) find_best(s, "most efficient", pj_figures[s->primary].name);
    find_best(s, "fastest", "tokens_per_second");
    if (comparable) find_best(s, "lowest energy", "total_energy_mj");
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* Relative standard deviation of a run's primary figure from its own measurement. */
static double own_spread(const pj_sides *s, const pj_run_info *info, bool with_gain)
{
    bool typical = s->primary == pj_primary_figure(true) && !isnan(info->typical_sd_mj);
    double mj = typical ? info->typical_token_mj : info->request_mj;
    double all = (typical ? info->typical_sd_mj : info->request_sd_mj) / mj;
    double gain = (double)(typical ? info->typical_sd.gain_mj : info->request_sd.gain_mj) / mj;
    if (!isfinite(gain) || with_gain) gain = 0;
    return sqrt(fmax(all * all - gain * gain, 0));
}

/* One run per side: the ratio's interval comes from the measurement uncertainties only. */
static void compare_single_runs(const pj_sides *s, const pj_side *x, const pj_side *y,
                                pj_verdict_facts *f)
{
    uint32_t speed = pj_figure_find("tokens_per_second");
    const pj_run_info *a = x->runs[0], *b = y->runs[0];
    bool two_devices = gain_of(x, y) > 0;
    double sd = hypot(own_spread(s, a, two_devices), own_spread(s, b, two_devices));
    double joules_a = pj_figure_of(a, s->primary), joules_b = pj_figure_of(b, s->primary);
    pj_ratio_compare(&joules_a, 1, &joules_b, 1, 0, &f->pair.ratio);
    f->speed_ratio = pj_figure_of(b, speed) / pj_figure_of(a, speed);
    pj_bounds bounds = pj_bounds_of(f->pair.ratio.ratio, PJ_Z95 * sd * f->pair.ratio.ratio);
    f->single_lo = bounds.lo;
    f->single_hi = bounds.hi;
}

/* One side has a single run: there is a ratio but no spread to test it with. */
static void ratio_without_test(const pj_side *x, const pj_side *y, uint32_t figure, pj_ratio *ratio)
{
    double *values = pj_alloc((size_t)x->run_count + y->run_count, sizeof *values);
    *ratio = (pj_ratio){.ratio = NAN, .lo = NAN, .hi = NAN, .p = NAN, .method = "none"};
    if (!values) return;
    size_t n = pj_side_values(x, figure, values), m = pj_side_values(y, figure, values + n);
    pj_ratio_compare(values, n, values + n, m, 0, ratio);
    pj_free(values);
}

static void compare_groups(const pj_sides *s, uint32_t a, uint32_t b, pj_verdict_facts *f)
{
    const pj_side_test *energy = find_test(s, a, b, pj_figures[s->primary].name);
    const pj_side_test *speed = find_test(s, a, b, "tokens_per_second");
    if (energy) {
        f->pair = energy->pair;
        f->mann_whitney_p = energy->result.mann_whitney_p;
    } else {
        ratio_without_test(&s->sides[a], &s->sides[b], s->primary, &f->pair.ratio);
    }
    if (speed) {
        f->speed_ratio = speed->pair.ratio.ratio;
        f->speed_differs = speed->pair.different;
    }
}

static void write_verdict(pj_sides *s, uint32_t a, uint32_t b)
{
    const pj_side *x = &s->sides[a], *y = &s->sides[b];
    pj_verdict_facts f = {.name_a = x->name,
                          .name_b = y->name,
                          .pair = {.p = NAN},
                          .single_lo = NAN,
                          .single_hi = NAN,
                          .mann_whitney_p = NAN,
                          .speed_ratio = NAN,
                          .refusal = pj_sides_refusal(x, y),
                          .per = s->primary == pj_primary_figure(true) ? "typical token" : NULL};
    pj_side_verdict *v = &s->verdicts[s->verdict_count++];
    if (x->run_count == 1 && y->run_count == 1) {
        compare_single_runs(s, x, y, &f);
        const pj_side_test *speed = find_test(s, a, b, "token_duration_ms");
        f.speed_differs = speed && speed->pair.different;
    } else {
        compare_groups(s, a, b, &f);
    }
    *v = (pj_side_verdict){.a = a, .b = b};
    pj_verdict_write(&f, &v->judgement, v->text, sizeof v->text);
    bool single = v->judgement.outcome == PJ_OUTCOME_SINGLE;
    v->ratio = f.pair.ratio.ratio;
    v->ratio_lo = single ? f.single_lo : f.pair.ratio.lo;
    v->ratio_hi = single ? f.single_hi : f.pair.ratio.hi;
    v->p = f.pair.p;
    v->method = single && x->run_count == y->run_count ? "measurement" : f.pair.ratio.method;
}

/* ---- conclusions ---------------------------------------------------------------------------- */

enum { TIES_BYTES = 8192 };

static void conclude_pair(pj_sides *s, uint32_t verdict)
{
    pj_side_verdict *v = &s->verdicts[verdict];
    s->conclusions[s->conclusion_count++] =
        (pj_side_conclusion){v->judgement.outcome, v->text, verdict};
}

/* Several pairs that are not distinguishable are one sentence. */
static pj_status conclude_ties(pj_sides *s, const pj_tied_pair *ties, uint32_t count, pj_error *err)
{
    const char *names[PJ_SIDES_MAX];
    char *text = pj_arena_alloc(&s->arena, TIES_BYTES, 1);
    if (!text) return pj_fail_memory(err, "a comparison");
    for (uint32_t i = 0; i < s->count; i++) names[i] = s->sides[i].name;
    pj_verdict_write_ties(ties, count, names, s->count, text, TIES_BYTES);
    s->conclusions[s->conclusion_count++] =
        (pj_side_conclusion){PJ_OUTCOME_INDISTINGUISHABLE, text, s->verdict_count};
    return PJ_OK;
}

static pj_status conclude(pj_sides *s, pj_error *err)
{
    pj_tied_pair ties[PJ_SIDE_VERDICTS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->verdict_count; i++) {
        const pj_side_verdict *v = &s->verdicts[i];
        if (v->judgement.outcome == PJ_OUTCOME_INDISTINGUISHABLE)
            ties[count++] = (pj_tied_pair){v->a, v->b, v->judgement};
    }
    for (uint32_t i = 0; i < s->verdict_count; i++)
        if (count == 1 || s->verdicts[i].judgement.outcome != PJ_OUTCOME_INDISTINGUISHABLE)
            conclude_pair(s, i);
    return count > 1 ? conclude_ties(s, ties, count, err) : PJ_OK;
}

pj_status pj_sides_test(pj_sides *s, pj_error *err)
{
    s->primary = choose_primary(s);
    pj_status status = test_pairs(s, err);
    if (status != PJ_OK) return status;
    find_bests(s);
    for (uint32_t a = 0; a < s->count; a++)
        for (uint32_t b = a + 1; b < s->count; b++)
            if (is_tested(s, a, b)) write_verdict(s, a, b);
    return conclude(s, err);
}
