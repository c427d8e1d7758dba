/* Figures of sides side by side, the tests of their differences, and the sentences that state their
 * results. */
#include "insight/side_tests.h"

#include "analysis/verdict.h"

#include <math.h>
#include <string.h>

/* Figures that are tested between groups of runs, the primary one first. */
static const char *const tested[] = {"joules_per_token", "total_energy_mj", "total_duration_ms",
                                     "joules_per_output_token", "tokens_per_second"};
enum { TESTED = sizeof tested / sizeof *tested };

/* ---- which pairs ---------------------------------------------------------------------------- */

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

/* Energies that are not the same quantity have figures, and no test tells them apart. */
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

static void adjust(pj_sides *s, double *work)
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

pj_status pj_sides_test(pj_sides *s, pj_error *err)
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
    adjust(s, work);
    return PJ_OK;
}

static void write_test(pj_json *json, const pj_side_test *t)
{
    const pj_comparison *r = &t->result;
    const struct {
        const char *name;
        double value;
    } figures[] = {{"mean_a", r->mean_a},
                   {"mean_b", r->mean_b},
                   {"sd_a", r->sd_a},
                   {"sd_b", r->sd_b},
                   {"difference", r->difference},
                   {"difference_lo", r->difference_lo},
                   {"difference_hi", r->difference_hi},
                   {"ratio", t->ratio.ratio},
                   {"ratio_lo", t->ratio.lo},
                   {"ratio_hi", t->ratio.hi},
                   {"welch_t", r->welch_t},
                   {"welch_df", r->welch_df},
                   {"welch_p", r->welch_p},
                   {"mann_whitney_u", r->mann_whitney_u},
                   {"mann_whitney_p", r->mann_whitney_p},
                   {"permutation_p", t->ratio.permutation_p},
                   {"hedges_g", r->hedges_g},
                   {"rank_biserial", r->rank_biserial},
                   {"p", t->ratio.p},
                   {"p_adjusted", t->adjusted}};
    pj_json_object_begin(json);
    pj_json_kv_string(json, "metric", t->metric);
    pj_json_kv_string(json, "unit", t->unit);
    pj_json_kv_uint(json, "a", t->a);
    pj_json_kv_uint(json, "b", t->b);
    pj_json_kv_string(json, "sample", t->sample);
    pj_json_kv_uint(json, "n_a", r->n_a);
    pj_json_kv_uint(json, "n_b", r->n_b);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        pj_json_kv_double(json, figures[i].name, figures[i].value);
    pj_json_kv_string(json, "method", t->ratio.method);
    pj_json_kv_bool(json, "significant", t->adjusted < PJ_LEVEL);
    pj_json_object_end(json);
}

void pj_sides_write_tests(const pj_sides *s, pj_json *json)
{
    pj_json_key(json, "tests");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < s->test_count; i++) write_test(json, &s->tests[i]);
    pj_json_array_end(json);
}

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct mean {
    uint32_t n;
    double value, sd, lo, hi;
} mean;

static mean mean_of(const pj_side *side, uint32_t figure, double *work)
{
    mean m = {.sd = NAN, .lo = NAN, .hi = NAN};
    double squares = 0;
    uint32_t count = pj_side_values(side, figure, work);
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(work[i])) continue;
        double away = work[i] - m.value;
        m.value += away / ++m.n;
        squares += away * (work[i] - m.value);
    }
    if (m.n == 0) m.value = NAN;
    if (m.n > 1) {
        m.sd = sqrt(squares / (m.n - 1));
        double reach = pj_student_quantile(0.975, m.n - 1) * m.sd / sqrt(m.n);
        m.lo = m.value - reach;
        m.hi = m.value + reach;
    }
    return m;
}

typedef enum column { VALUE, RATIO, DIFFERENCE, PERCENT, SD, LO, HI, N, COLUMNS } column;

static double cell(const mean *m, const mean *first, column c)
{
    double ratio = first->value != 0 ? m->value / first->value : NAN;
    switch (c) {
    case VALUE: return m->value;
    case RATIO: return ratio;
    case DIFFERENCE: return m->value - first->value;
    case PERCENT: return (ratio - 1) * 100;
    case SD: return m->sd;
    case LO: return m->lo;
    case HI: return m->hi;
    default: return m->n;
    }
}

static uint32_t most_runs(const pj_sides *s)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->sides[i].run_count > most) most = s->sides[i].run_count;
    return most;
}

static void write_metric(const pj_sides *s, uint32_t figure, double *work, pj_json *json)
{
    static const char *const keys[COLUMNS] = {
        "values", "normalised", "difference", "difference_percent", "sd", "lo", "hi", "n"};
    mean means[PJ_SIDES_MAX];
    for (uint32_t i = 0; i < s->count; i++) means[i] = mean_of(&s->sides[i], figure, work);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "metric", pj_figures[figure].name);
    pj_json_kv_string(json, "unit", pj_figures[figure].unit);
    pj_json_kv_string(json, "better", pj_figures[figure].better);
    for (int c = 0; c < COLUMNS; c++) {
        pj_json_key(json, keys[c]);
        pj_json_array_begin(json);
        for (uint32_t i = 0; i < s->count; i++)
            pj_json_double(json, cell(&means[i], &means[0], (column)c));
        pj_json_array_end(json);
    }
    pj_json_object_end(json);
}

void pj_sides_write_metrics(const pj_sides *s, pj_json *json)
{
    double *work = pj_alloc(most_runs(s), sizeof *work);
    pj_json_key(json, "metrics");
    pj_json_array_begin(json);
    for (uint32_t f = 0; f < pj_figure_count && work; f++) write_metric(s, f, work, json);
    pj_json_array_end(json);
    pj_free(work);
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

/* How a side stands to the best one: tested and different, tested and not told apart, or without a
 * test (one run on each side has no spread). */
typedef enum standing { WORSE, TIED, UNTESTED } standing;

static standing standing_of(const pj_sides *s, uint32_t best, uint32_t other, const char *metric)
{
    uint32_t a = best < other ? best : other, b = best < other ? other : best;
    const pj_side_test *t = find_test(s, a, b, metric);
    if (!t || isnan(t->adjusted)) return UNTESTED;
    return t->adjusted < PJ_LEVEL ? WORSE : TIED;
}

static void write_standing(const pj_sides *s, const char *key, standing wanted, uint32_t best,
                           const char *metric, double *work, pj_json *json)
{
    uint32_t figure = pj_figure_find(metric);
    pj_json_key(json, key);
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < s->count; i++)
        if (i != best && !isnan(mean_of(&s->sides[i], figure, work).value) &&
            standing_of(s, best, i, metric) == wanted)
            pj_json_uint(json, i);
    pj_json_array_end(json);
}

static void write_one_best(const pj_sides *s, const char *title, const char *metric, double *work,
                           pj_json *json)
{
    uint32_t figure = pj_figure_find(metric), best = s->count;
    bool lower = strcmp(pj_figures[figure].better, "lower") == 0;
    double at = NAN;
    for (uint32_t i = 0; i < s->count; i++) {
        double value = mean_of(&s->sides[i], figure, work).value;
        if (isnan(value) || (best < s->count && (lower ? value >= at : value <= at))) continue;
        best = i;
        at = value;
    }
    if (best == s->count) return;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "title", title);
    pj_json_kv_string(json, "metric", metric);
    pj_json_kv_uint(json, "side", best);
    pj_json_kv_double(json, "value", at);
    write_standing(s, "tied_with", TIED, best, metric, work, json);
    write_standing(s, "untested", UNTESTED, best, metric, work, json);
    pj_json_object_end(json);
}

static bool are_comparable(const pj_sides *s)
{
    pj_likeness l = {0};
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->sides[i].run_count; k++)
            pj_likeness_add(&l, s->sides[i].runs[k]);
    return !pj_likeness_refusal(&l);
}

/* Among energies that are not the same quantity none is the least. */
void pj_sides_write_best(const pj_sides *s, pj_json *json)
{
    double *work = pj_alloc(most_runs(s), sizeof *work);
    bool comparable = are_comparable(s);
    pj_json_key(json, "best");
    pj_json_array_begin(json);
    if (work) {
        if (comparable) write_one_best(s, "most efficient", "joules_per_token", work, json);
        write_one_best(s, "fastest", "tokens_per_second", work, json);
        if (comparable) write_one_best(s, "lowest energy", "total_energy_mj", work, json);
    }
    pj_json_array_end(json);
    pj_free(work);
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
static void judge_single(const pj_side *x, const pj_side *y, pj_verdict_facts *f)
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

/* One side has a single run: there is a ratio, and nothing to test it with. */
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

static void judge_groups(const pj_sides *s, uint32_t a, uint32_t b, pj_verdict_facts *f)
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

static void write_verdict(const pj_sides *s, uint32_t a, uint32_t b, pj_json *json)
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
    pj_judgement judgement;
    char text[800];
    if (x->run_count == 1 && y->run_count == 1) {
        judge_single(x, y, &f);
        const pj_side_test *speed = find_test(s, a, b, "token_duration_ms");
        f.speed_differs = speed && speed->adjusted < PJ_LEVEL;
    } else {
        judge_groups(s, a, b, &f);
    }
    pj_verdict_write(&f, &judgement, text, sizeof text);
    bool single = judgement.outcome == PJ_OUTCOME_SINGLE;
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "a", a);
    pj_json_kv_uint(json, "b", b);
    pj_json_kv_string(json, "metric", tested[0]);
    pj_json_kv_string(json, "outcome", pj_outcome_name(judgement.outcome));
    pj_json_kv_string(json, "text", text);
    pj_json_kv_uint(json, "n_a", x->run_count);
    pj_json_kv_uint(json, "n_b", y->run_count);
    pj_json_kv_double(json, "ratio", f.ratio.ratio);
    pj_json_kv_double(json, "ratio_lo", single ? f.single_lo : f.ratio.lo);
    pj_json_kv_double(json, "ratio_hi", single ? f.single_hi : f.ratio.hi);
    pj_json_kv_double(json, "p", f.p);
    pj_json_kv_string(json, "method",
                      single && x->run_count == y->run_count ? "measurement" : f.ratio.method);
    pj_json_kv_double(json, "detectable_percent", 100 * judgement.detectable);
    pj_json_kv_double(json, "more_runs", judgement.more_runs);
    pj_json_kv_double(json, "more_runs_show_percent", 100 * judgement.target);
    pj_json_object_end(json);
}

pj_status pj_sides_write_verdicts(const pj_sides *s, pj_json *json, pj_error *err)
{
    (void)err;
    pj_json_key(json, "verdicts");
    pj_json_array_begin(json);
    for (uint32_t a = 0; a < s->count; a++)
        for (uint32_t b = a + 1; b < s->count; b++)
            if (is_tested(s, a, b)) write_verdict(s, a, b, json);
    pj_json_array_end(json);
    return PJ_OK;
}
