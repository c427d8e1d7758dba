/*
 * Runs side by side. Where both runs of a pair belong to --repeat series, whole runs are the
 * samples; otherwise the decode tokens of the two are, which are many but not independent: the p
 * values then say whether these two runs differ, not whether the next two will.
 */
#include "profile/insight.h"

#include "analysis/compare.h"

#include <math.h>
#include <string.h>

enum { MAX_TESTS = 64, MAX_COMPONENTS = 512 };

typedef struct side {
    pj_run_list one;
    const pj_run_info *info;
    pj_run_ratios ratios;
    pj_token_series tokens;
    pj_run_list series; /* runs of its --repeat series; fewer than 2: none */
    pj_component_sum *components;
    uint32_t component_count;
} side;

typedef struct test {
    const char *metric, *unit, *sample;
    uint32_t a, b;
    pj_comparison result;
    double adjusted;
} test;

typedef struct comparison {
    pj_arena arena;
    side sides[PJ_COMPARE_MAX];
    uint32_t count;
    test tests[MAX_TESTS];
    uint32_t test_count;
} comparison;

/* ---- figures of a run -------------------------------------------------------------------------
 */

typedef double figure_fn(const pj_run_info *info, const pj_run_ratios *r);

#define FIGURE(name, expression)                                        \
    static double name(const pj_run_info *info, const pj_run_ratios *r) \
    {                                                                   \
        (void)info;                                                     \
        (void)r;                                                        \
        return expression;                                              \
    }
FIGURE(total_energy, info->total_mj)
FIGURE(net_energy, info->net_mj)
FIGURE(duration, info->total_ms)
FIGURE(mean_power, r->mean_power_mw)
FIGURE(joules_per_token, r->joules_per_token)
FIGURE(joules_per_token_net, r->joules_per_token_net)
FIGURE(joules_per_input_token, r->joules_per_input_token)
FIGURE(joules_per_output_token, r->joules_per_output_token)
FIGURE(tokens_per_second, r->tokens_per_second)
FIGURE(prefill_speed, r->prefill_tokens_per_second)
FIGURE(tokens_per_joule, r->tokens_per_joule)
FIGURE(energy_delay, r->energy_delay_product)
FIGURE(request_energy, info->request_mj)
FIGURE(joules_per_typical_token, r->joules_per_token_typical)
FIGURE(per_million_parameters, r->mj_per_million_parameters)
FIGURE(per_million_active_parameters, r->mj_per_million_active_parameters)
#undef FIGURE

static const struct figure {
    const char *name, *unit, *better;
    figure_fn *get;
} figures[] = {
    {"total_energy_mj", "mJ", "lower", total_energy},
    {"net_energy_mj", "mJ", "lower", net_energy},
    {"total_duration_ms", "ms", "lower", duration},
    {"mean_power_mw", "mW", "lower", mean_power},
    {"joules_per_token", "J", "lower", joules_per_token},
    {"joules_per_token_net", "J", "lower", joules_per_token_net},
    {"joules_per_input_token", "J", "lower", joules_per_input_token},
    {"joules_per_output_token", "J", "lower", joules_per_output_token},
    {"tokens_per_second", "1/s", "higher", tokens_per_second},
    {"prefill_tokens_per_second", "1/s", "higher", prefill_speed},
    {"tokens_per_joule", "1/J", "higher", tokens_per_joule},
    {"energy_delay_product", "J s", "lower", energy_delay},
    {"request_energy_mj", "mJ", "lower", request_energy},
    {"joules_per_token_typical", "J", "lower", joules_per_typical_token},
    {"energy_per_million_parameters_mj", "mJ", "lower", per_million_parameters},
    {"energy_per_million_active_parameters_mj", "mJ", "lower", per_million_active_parameters},
};

enum { FIGURE_COUNT = sizeof figures / sizeof *figures };

static void write_list(pj_json *json, const char *key, const double *values, uint32_t count)
{
    pj_json_key(json, key);
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) pj_json_double(json, values[i]);
    pj_json_array_end(json);
}

static void write_figures(pj_json *json, const comparison *c)
{
    pj_json_key(json, "metrics");
    pj_json_array_begin(json);
    for (int f = 0; f < FIGURE_COUNT; f++) {
        double values[PJ_COMPARE_MAX], ratio[PJ_COMPARE_MAX], less[PJ_COMPARE_MAX],
            percent[PJ_COMPARE_MAX];
        for (uint32_t i = 0; i < c->count; i++) {
            values[i] = figures[f].get(c->sides[i].info, &c->sides[i].ratios);
            ratio[i] = values[0] != 0 ? values[i] / values[0] : NAN;
            less[i] = values[i] - values[0];
            percent[i] = (ratio[i] - 1) * 100;
        }
        pj_json_object_begin(json);
        pj_json_kv_string(json, "metric", figures[f].name);
        pj_json_kv_string(json, "unit", figures[f].unit);
        pj_json_kv_string(json, "better", figures[f].better);
        write_list(json, "values", values, c->count);
        write_list(json, "normalised", ratio, c->count);
        write_list(json, "difference", less, c->count);
        write_list(json, "difference_percent", percent, c->count);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void add_test(comparison *c, const char *metric, const char *unit, const char *sample,
                     uint32_t a, uint32_t b, const double *x, size_t n_x, const double *y,
                     size_t n_y, double *work)
{
    if (c->test_count == MAX_TESTS) return;
    test *t = &c->tests[c->test_count];
    *t = (test){metric, unit, sample, a, b, {0}, NAN};
    pj_compare(x, n_x, y, n_y, work, &t->result);
    if (t->result.n_a > 1 && t->result.n_b > 1) c->test_count++;
}

static pj_status test_tokens(comparison *c, uint32_t a, uint32_t b, pj_error *err)
{
    const pj_token_series *x = &c->sides[a].tokens, *y = &c->sides[b].tokens;
    double *work = pj_arena_alloc(&c->arena, (size_t)x->count + y->count + 1, sizeof *work);
    if (!work) return pj_fail_memory(err, "a comparison");
    add_test(c, "token_energy_mj", "mJ", "token", a, b, x->energy_mj, x->count, y->energy_mj,
             y->count, work);
    add_test(c, "token_duration_ms", "ms", "token", a, b, x->duration_ms, x->count, y->duration_ms,
             y->count, work);
    return PJ_OK;
}

static size_t figures_of_series(const pj_run_list *series, figure_fn *get, double *values)
{
    for (uint32_t i = 0; i < series->count; i++) {
        pj_run_ratios ratios;
        pj_run_ratios_get(&series->runs[i], &ratios);
        values[i] = get(&series->runs[i], &ratios);
    }
    return series->count;
}

static pj_status test_series(comparison *c, uint32_t a, uint32_t b, pj_error *err)
{
    static const int tested[] = {0, 2, 4, 7, 8}; /* indices of figures */
    const pj_run_list *x = &c->sides[a].series, *y = &c->sides[b].series;
    size_t n = (size_t)x->count + y->count;
    double *values = pj_arena_alloc(&c->arena, 2 * n, sizeof *values);
    if (!values) return pj_fail_memory(err, "a comparison");
    for (size_t i = 0; i < sizeof tested / sizeof *tested; i++) {
        const struct figure *f = &figures[tested[i]];
        size_t n_x = figures_of_series(x, f->get, values);
        size_t n_y = figures_of_series(y, f->get, values + n_x);
        add_test(c, f->name, f->unit, "run", a, b, values, n_x, values + n_x, n_y, values + n);
    }
    return PJ_OK;
}

static bool are_series(const side *x, const side *y)
{
    return x->series.count > 1 && y->series.count > 1 &&
           strcmp(x->info->repeat_group, y->info->repeat_group) != 0;
}

static pj_status run_tests(comparison *c, pj_error *err)
{
    double p[MAX_TESTS], adjusted[MAX_TESTS];
    pj_status status = PJ_OK;
    for (uint32_t a = 0; a < c->count; a++)
        for (uint32_t b = a + 1; b < c->count && status == PJ_OK; b++)
            status = are_series(&c->sides[a], &c->sides[b]) ? test_series(c, a, b, err)
                                                            : test_tokens(c, a, b, err);
    for (uint32_t i = 0; i < c->test_count; i++) p[i] = c->tests[i].result.welch_p;
    pj_holm(p, c->test_count, adjusted);
    for (uint32_t i = 0; i < c->test_count; i++) c->tests[i].adjusted = adjusted[i];
    return status;
}

static void write_test(pj_json *json, const test *t)
{
    const pj_comparison *r = &t->result;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "metric", t->metric);
    pj_json_kv_string(json, "unit", t->unit);
    pj_json_kv_uint(json, "a", t->a);
    pj_json_kv_uint(json, "b", t->b);
    pj_json_kv_string(json, "sample", t->sample);
    pj_json_kv_uint(json, "n_a", r->n_a);
    pj_json_kv_uint(json, "n_b", r->n_b);
    pj_json_kv_double(json, "mean_a", r->mean_a);
    pj_json_kv_double(json, "mean_b", r->mean_b);
    pj_json_kv_double(json, "sd_a", r->sd_a);
    pj_json_kv_double(json, "sd_b", r->sd_b);
    pj_json_kv_double(json, "difference", r->difference);
    pj_json_kv_double(json, "difference_lo", r->difference_lo);
    pj_json_kv_double(json, "difference_hi", r->difference_hi);
    pj_json_kv_double(json, "welch_t", r->welch_t);
    pj_json_kv_double(json, "welch_df", r->welch_df);
    pj_json_kv_double(json, "welch_p", r->welch_p);
    pj_json_kv_double(json, "mann_whitney_u", r->mann_whitney_u);
    pj_json_kv_double(json, "mann_whitney_p", r->mann_whitney_p);
    pj_json_kv_double(json, "hedges_g", r->hedges_g);
    pj_json_kv_double(json, "rank_biserial", r->rank_biserial);
    pj_json_kv_double(json, "p_adjusted", t->adjusted);
    pj_json_kv_bool(json, "significant", t->adjusted < 0.05);
    pj_json_object_end(json);
}

/* ---- components -------------------------------------------------------------------------------
 */

static const pj_component_sum *find_component(const side *s, const char *name)
{
    for (uint32_t i = 0; i < s->component_count; i++)
        if (strcmp(s->components[i].name, name) == 0) return &s->components[i];
    return NULL;
}

static void write_component(pj_json *json, const comparison *c, const char *name)
{
    double ms[PJ_COMPARE_MAX], mj[PJ_COMPARE_MAX];
    for (uint32_t i = 0; i < c->count; i++) {
        const pj_component_sum *sum = find_component(&c->sides[i], name);
        ms[i] = sum ? sum->time_ms : NAN;
        mj[i] = sum ? sum->energy_mj : NAN;
    }
    pj_json_object_begin(json);
    pj_json_kv_string(json, "component_name", name);
    write_list(json, "time_ms", ms, c->count);
    write_list(json, "energy_mj", mj, c->count);
    pj_json_object_end(json);
}

/* Those of the first run, hottest first, then what only later ones have. */
static void write_components(pj_json *json, const comparison *c)
{
    pj_json_key(json, "components");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < c->count; i++)
        for (uint32_t k = 0; k < c->sides[i].component_count; k++) {
            const char *name = c->sides[i].components[k].name;
            bool seen = false;
            for (uint32_t j = 0; j < i; j++) seen |= find_component(&c->sides[j], name) != NULL;
            if (!seen) write_component(json, c, name);
        }
    pj_json_array_end(json);
}

static void write_phases(pj_json *json, const comparison *c)
{
    double ms[2][PJ_COMPARE_MAX], mj[2][PJ_COMPARE_MAX];
    for (uint32_t i = 0; i < c->count; i++) {
        const pj_run_info *info = c->sides[i].info;
        ms[0][i] = info->prefill_ms;
        mj[0][i] = info->prefill_mj;
        ms[1][i] = info->decode_ms;
        mj[1][i] = info->decode_mj;
    }
    pj_json_key(json, "phases");
    pj_json_array_begin(json);
    for (int p = 0; p < 2; p++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "phase", p ? "decode" : "prefill");
        write_list(json, "duration_ms", ms[p], c->count);
        write_list(json, "energy_mj", mj[p], c->count);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static pj_status load_side(comparison *c, side *s, pj_store *store, const char *id, pj_error *err)
{
    char full[PJ_UUID_BYTES];
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK) status = pj_store_info(store, full, &s->one, err);
    if (status != PJ_OK) return status;
    s->info = s->one.runs;
    pj_run_ratios_get(s->info, &s->ratios);
    status = pj_view_token_series(store, full, &c->arena, &s->tokens, err);
    if (status == PJ_OK)
        status = pj_view_component_sums(store, full, &c->arena, &s->components, &s->component_count,
                                        err);
    if (status == PJ_OK && s->info->repeat_group)
        status = pj_store_list(
            store, &(pj_run_query){.repeat_group = s->info->repeat_group, .status = "completed"},
            &s->series, err);
    return status;
}

static void write_all(const comparison *c, const pj_cost_rates *rates, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_key(json, "runs");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < c->count; i++) pj_summary_write(json, c->sides[i].info, rates);
    pj_json_array_end(json);
    write_figures(json, c);
    pj_json_key(json, "tests");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < c->test_count; i++) write_test(json, &c->tests[i]);
    pj_json_array_end(json);
    write_phases(json, c);
    write_components(json, c);
    pj_json_object_end(json);
}

pj_status pj_insight_compare(pj_store *store, const char *const *ids, uint32_t count,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    if (count < 2 || count > PJ_COMPARE_MAX)
        return pj_fail(err, PJ_E_INVALID, "2 to %d runs can be compared, not %u", PJ_COMPARE_MAX,
                       count);
    comparison *c = pj_alloc(1, sizeof *c);
    if (!c) return pj_fail_memory(err, "a comparison");
    pj_arena_init(&c->arena, 0);
    c->count = count;
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < count && status == PJ_OK; i++)
        status = load_side(c, &c->sides[i], store, ids[i], err);
    if (status == PJ_OK) status = run_tests(c, err);
    if (status == PJ_OK) write_all(c, rates, json);
    for (uint32_t i = 0; i < count; i++) {
        pj_run_list_fini(&c->sides[i].one);
        pj_run_list_fini(&c->sides[i].series);
    }
    pj_arena_fini(&c->arena);
    pj_free(c);
    return status;
}
