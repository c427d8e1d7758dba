/* Compares figures of sides: tests of their differences, and sentences with the results. */
#include "insight/sides.h"

#include <math.h>
#include <string.h>

/* Figures that are tested between groups of runs, the primary one first. */
static const char *const tested[] = {"joules_per_token", "total_energy_mj", "total_duration_ms",
                                     "joules_per_output_token", "tokens_per_second"};
enum { TESTED = sizeof tested / sizeof *tested };

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

/* Energies that are different quantities have figures but no test. */
static void take_back(pj_side_test *t)
{
    t->result.welch_p = t->result.mann_whitney_p = NAN;
    t->ratio.p = t->ratio.welch_p = t->ratio.permutation_p = NAN;
    t->ratio.method = "none";
}

static void add_test(pj_sides *s, pj_side_test test, const double *x, size_t n_x, const double *y,
                     size_t n_y, double gain, double *work)
{
    if (s->test_count == PJ_SIDE_TESTS) return;
    pj_side_test *t = &s->tests[s->test_count];
    *t = test;
    pj_compare(x, n_x, y, n_y, work, &t->result);
    pj_ratio_compare(x, n_x, y, n_y, gain, &t->ratio);
    t->adjusted = NAN;
    if (is_energy(test.unit) && pj_sides_refusal(&s->sides[test.a], &s->sides[test.b]))
        take_back(t);
    if (t->result.n_a > 1 && t->result.n_b > 1) s->test_count++;
}

static pj_status test_tokens(pj_sides *s, uint32_t a, uint32_t b, pj_error *err)
{
    const pj_token_series *x = &s->sides[a].tokens, *y = &s->sides[b].tokens;
    double *work = pj_arena_alloc(&s->arena, (size_t)x->count + y->count + 1, sizeof *work);
    if (!work) return pj_fail_memory(err, "a comparison");
    double gain = gain_of(&s->sides[a], &s->sides[b]);
    add_test(s, (pj_side_test){"token_energy_mj", "mJ", "token", a, b}, x->energy_mj, x->count,
             y->energy_mj, y->count, gain, work);
    add_test(s, (pj_side_test){"token_duration_ms", "ms", "token", a, b}, x->duration_ms, x->count,
             y->duration_ms, y->count, 0, work);
    return PJ_OK;
}

static pj_status test_runs(pj_sides *s, uint32_t a, uint32_t b, pj_error *err)
{
    const pj_side *x = &s->sides[a], *y = &s->sides[b];
    size_t n = (size_t)x->run_count + y->run_count;
    double *values = pj_arena_alloc(&s->arena, 2 * n, sizeof *values);
    if (!values) return pj_fail_memory(err, "a comparison");
    for (int i = 0; i < TESTED; i++) {
        uint32_t f = pj_figure_find(tested[i]);
        size_t n_x = pj_side_values(x, f, values), n_y = pj_side_values(y, f, values + n_x);
        bool energy = is_energy(pj_figures[f].unit);
        add_test(s, (pj_side_test){pj_figures[f].name, pj_figures[f].unit, "run", a, b}, values,
                 n_x, values + n_x, n_y, energy ? gain_of(x, y) : 0, values + n);
    }
    return PJ_OK;
}

static void adjust_p_values(pj_sides *s, double *work)
{
    double *p = work, *adjusted = work + s->test_count;
    for (uint32_t i = 0; i < s->test_count; i++) p[i] = s->tests[i].ratio.p;
    pj_holm(p, s->test_count, adjusted);
    for (uint32_t i = 0; i < s->test_count; i++) s->tests[i].adjusted = adjusted[i];
    /* The primary figure is corrected for the number of pairs only. */
    for (uint32_t i = 0; i < s->test_count; i++)
        p[i] = strcmp(s->tests[i].metric, tested[0]) == 0 ? s->tests[i].ratio.p : NAN;
    pj_holm(p, s->test_count, adjusted);
    for (uint32_t i = 0; i < s->test_count; i++) s->tests[i].primary_p = adjusted[i];
}

static pj_status test_pairs(pj_sides *s, pj_error *err)
{
    s->tests = pj_arena_alloc(&s->arena, PJ_SIDE_TESTS, sizeof *s->tests);
    double *work = pj_arena_alloc(&s->arena, 2 * PJ_SIDE_TESTS, sizeof *work);
    if (!s->tests || !work) return pj_fail_memory(err, "a comparison");
    for (uint32_t a = 0; a < s->count; a++)
        for (uint32_t b = a + 1; b < s->count; b++) {
            const pj_side *x = &s->sides[a], *y = &s->sides[b];
            if (!is_tested(s, a, b)) continue;
            pj_status status = PJ_OK;
            if (x->run_count > 1 && y->run_count > 1)
                status = test_runs(s, a, b, err);
            else if (x->run_count == 1 && y->run_count == 1)
                status = test_tokens(s, a, b, err);
            if (status != PJ_OK) return status;
        }
    adjust_p_values(s, work);
    return PJ_OK;
}

pj_side_mean pj_side_mean_of(const pj_side *side, uint32_t figure)
{
    pj_side_mean m = {.sd = NAN, .lo = NAN, .hi = NAN};
    pj_moments moments = {0};
    for (uint32_t i = 0; i < side->run_count; i++) {
        double value = pj_figure_of(side->runs[i], figure);
        if (isfinite(value)) pj_moments_add(&moments, value);
    }
    m.n = moments.n;
    m.value = m.n ? moments.mean : NAN;
    if (m.n > 1) {
        m.sd = sqrt(moments.squares / (m.n - 1));
        double reach = pj_student_quantile(0.975, m.n - 1) * m.sd / sqrt(m.n);
        m.lo = m.value - reach;
        m.hi = m.value + reach;
    }
    return m;
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
    if (!t || isnan(t->adjusted)) return PJ_STANDING_UNTESTED;
    return t->adjusted < PJ_LEVEL ? PJ_STANDING_WORSE : PJ_STANDING_TIED;
}

static void find_best(pj_sides *s, const char *title, const char *metric)
{
    uint32_t figure = pj_figure_find(metric);
    bool lower = strcmp(pj_figures[figure].better, "lower") == 0;
    double values[PJ_SIDES_MAX];
    pj_side_best best = {title, metric, s->count, NAN, {PJ_STANDING_NONE}};
    for (uint32_t i = 0; i < s->count; i++) {
        values[i] = pj_side_mean_of(&s->sides[i], figure).value;
        bool worse =
            best.side < s->count && (lower ? values[i] >= best.value : values[i] <= best.value);
        if (isnan(values[i]) || worse) continue;
        best.side = i;
        best.value = values[i];
    }
    if (best.side == s->count) return;
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
    if (comparable) find_best(s, "most efficient", "joules_per_token");
    find_best(s, "fastest", "tokens_per_second");
    if (comparable) find_best(s, "lowest energy", "total_energy_mj");
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* Relative standard deviation of a run's joules per token from its own measurement. */
static double own_spread(const pj_run_info *info, bool with_gain)
{
    double gain = (double)info->total_sd.gain_mj / info->total_mj;
    double all = info->request_sd_mj / info->request_mj;
    if (!isfinite(gain) || with_gain) gain = 0;
    return sqrt(fmax(all * all - gain * gain, 0));
}

/* One run per side: the ratio's interval comes from the measurement uncertainties only. */
static void compare_single_runs(const pj_side *x, const pj_side *y, pj_verdict_facts *f)
{
    pj_run_ratios rx, ry;
    pj_run_ratios_get(x->runs[0], &rx);
    pj_run_ratios_get(y->runs[0], &ry);
    bool two_devices = gain_of(x, y) > 0;
    double sd = hypot(own_spread(x->runs[0], two_devices), own_spread(y->runs[0], two_devices));
    pj_ratio_compare(&rx.joules_per_token, 1, &ry.joules_per_token, 1, 0, &f->ratio);
    f->speed_ratio = ry.tokens_per_second / rx.tokens_per_second;
    f->single_lo = f->ratio.ratio * exp(-1.96 * sd);
    f->single_hi = f->ratio.ratio * exp(1.96 * sd);
}

/* One side has a single run: there is a ratio but no spread to test it with. */
static void ratio_without_test(const pj_side *x, const pj_side *y, pj_ratio *ratio)
{
    uint32_t figure = pj_figure_find(tested[0]);
    double *values = pj_alloc((size_t)x->run_count + y->run_count, sizeof *values);
    *ratio = (pj_ratio){.ratio = NAN, .lo = NAN, .hi = NAN, .p = NAN, .method = "none"};
    if (!values) return;
    size_t n = pj_side_values(x, figure, values), m = pj_side_values(y, figure, values + n);
    pj_ratio_compare(values, n, values + n, m, 0, ratio);
    pj_free(values);
}

static void compare_groups(const pj_sides *s, uint32_t a, uint32_t b, pj_verdict_facts *f)
{
    const pj_side_test *energy = find_test(s, a, b, tested[0]);
    const pj_side_test *speed = find_test(s, a, b, "tokens_per_second");
    if (energy) {
        f->ratio = energy->ratio;
        f->p = energy->primary_p;
        f->mann_whitney_p = energy->result.mann_whitney_p;
    } else {
        ratio_without_test(&s->sides[a], &s->sides[b], &f->ratio);
    }
    if (speed) {
        f->speed_ratio = speed->ratio.ratio;
        f->speed_differs = speed->adjusted < PJ_LEVEL;
    }
}

static void write_verdict(pj_sides *s, uint32_t a, uint32_t b)
{
    const pj_side *x = &s->sides[a], *y = &s->sides[b];
    pj_verdict_facts f = {.name_a = x->name,
                          .name_b = y->name,
                          .p = NAN,
                          .single_lo = NAN,
                          .single_hi = NAN,
                          .mann_whitney_p = NAN,
                          .speed_ratio = NAN,
                          .refusal = pj_sides_refusal(x, y)};
    pj_side_verdict *v = &s->verdicts[s->verdict_count++];
    if (x->run_count == 1 && y->run_count == 1) {
        compare_single_runs(x, y, &f);
        const pj_side_test *speed = find_test(s, a, b, "token_duration_ms");
        f.speed_differs = speed && speed->adjusted < PJ_LEVEL;
    } else {
        compare_groups(s, a, b, &f);
    }
    *v = (pj_side_verdict){.a = a, .b = b};
    pj_verdict_write(&f, &v->judgement, v->text, sizeof v->text);
    bool single = v->judgement.outcome == PJ_OUTCOME_SINGLE;
    v->ratio = f.ratio.ratio;
    v->ratio_lo = single ? f.single_lo : f.ratio.lo;
    v->ratio_hi = single ? f.single_hi : f.ratio.hi;
    v->p = f.p;
    v->method = single && x->run_count == y->run_count ? "measurement" : f.ratio.method;
}

pj_status pj_sides_test(pj_sides *s, pj_error *err)
{
    pj_status status = test_pairs(s, err);
    if (status != PJ_OK) return status;
    find_bests(s);
    for (uint32_t a = 0; a < s->count; a++)
        for (uint32_t b = a + 1; b < s->count; b++)
            if (is_tested(s, a, b)) write_verdict(s, a, b);
    return PJ_OK;
}
