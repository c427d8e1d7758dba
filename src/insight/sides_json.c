/* A comparison as JSON: docs/api.md, "Comparison". */
#include "insight/sides.h"

static void write_sides(const pj_sides *s, pj_json *json)
{
    enum { MOST_IDS = 100 };
    pj_json_kv_array_begin(json, "sides");
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_side *side = &s->sides[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", side->name);
        pj_json_kv_uint(json, "runs", side->run_count);
        pj_json_kv_uint(json, "left_out", side->left_out);
        char partial[128];
        pj_json_kv_string(json, "energy_source", pj_side_source(side));
        pj_json_kv_string(json, "partial", pj_side_partial(side, partial, sizeof partial));
        pj_json_kv_array_begin(json, "ids");
        for (uint32_t k = 0; k < side->run_count && k < MOST_IDS; k++)
            pj_json_string(json, side->runs[k]->id);
        pj_json_array_end(json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void sides_json_write_settings(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "differences");
    for (uint32_t d = 0; d < s->difference_count; d++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "setting", s->differences[d].setting);
        pj_json_kv_array_begin(json, "values");
        for (uint32_t i = 0; i < s->count; i++) pj_json_string(json, s->differences[d].values[i]);
        pj_json_array_end(json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "caveats");
    for (uint32_t i = 0; i < s->caveat_count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "code", s->caveats[i].code);
        pj_json_kv_string(json, "text", s->caveats[i].text);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_verdicts(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "verdicts");
    for (uint32_t i = 0; i < s->verdict_count; i++) {
        const pj_side_verdict *v = &s->verdicts[i];
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "a", v->a);
        pj_json_kv_uint(json, "b", v->b);
        pj_json_kv_string(json, "metric", pj_figures[s->primary].name);
        pj_json_kv_string(json, "outcome", pj_outcome_name(v->judgement.outcome));
        pj_json_kv_string(json, "text", v->text);
        pj_json_kv_uint(json, "n_a", s->sides[v->a].run_count);
        pj_json_kv_uint(json, "n_b", s->sides[v->b].run_count);
        pj_json_kv_double(json, "ratio", v->ratio);
        pj_json_kv_double(json, "ratio_lo", v->ratio_lo);
        pj_json_kv_double(json, "ratio_hi", v->ratio_hi);
        pj_json_kv_double(json, "p", v->p);
        pj_json_kv_string(json, "method", v->method);
        pj_json_kv_double(json, "detectable_percent", 100 * v->judgement.detectable);
        pj_json_kv_double(json, "more_runs", v->judgement.more_runs);
        pj_json_kv_double(json, "more_runs_show_percent", 100 * v->judgement.target);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_conclusions(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "conclusions");
    for (uint32_t i = 0; i < s->conclusion_count; i++) {
        const pj_side_conclusion *c = &s->conclusions[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "outcome", pj_outcome_name(c->outcome));
        pj_json_kv_string(json, "text", c->text);
        if (c->verdict < s->verdict_count)
            pj_json_kv_uint(json, "verdict", c->verdict);
        else
            pj_json_kv_null(json, "verdict");
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

typedef enum column { VALUE, RATIO, DIFFERENCE, PERCENT, SD, LO, HI, N, COLUMNS } column;

static double sides_json_cell(const pj_mean *m, const pj_mean *first, column c)
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

static void write_metric(const pj_sides *s, uint32_t figure, pj_json *json)
{
    static const char *const keys[COLUMNS] = {
        "values", "normalised", "difference", "difference_percent", "sd", "lo", "hi", "n"};
    pj_mean means[PJ_SIDES_MAX];
    for (uint32_t i = 0; i < s->count; i++) means[i] = pj_side_mean_of(&s->sides[i], figure);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "metric", pj_figures[figure].name);
    pj_json_kv_string(json, "unit", pj_figures[figure].unit);
    pj_json_kv_string(json, "better", pj_figures[figure].better);
    for (int c = 0; c < COLUMNS; c++) {
        pj_json_kv_array_begin(json, keys[c]);
        for (uint32_t i = 0; i < s->count; i++)
            pj_json_double(json, sides_json_cell(&means[i], &means[0], (column)c));
        pj_json_array_end(json);
    }
    pj_json_object_end(json);
}

static void write_metrics(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "metrics");
    for (uint32_t f = 0; f < pj_figure_count; f++) write_metric(s, f, json);
    pj_json_array_end(json);
}

static void write_test(pj_json *json, const pj_side_test *t)
{
    const pj_comparison *r = &t->result;
    const pj_ratio *ratio = &t->pair.ratio;
    double a = ratio->mean_a;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "metric", t->metric);
    pj_json_kv_string(json, "unit", t->unit);
    pj_json_kv_bool(json, "primary", t->primary);
    pj_json_kv_uint(json, "a", t->a);
    pj_json_kv_uint(json, "b", t->b);
    pj_json_kv_string(json, "sample", t->sample);
    pj_json_kv_uint(json, "n_a", r->n_a);
    pj_json_kv_uint(json, "n_b", r->n_b);
    pj_json_kv_double(json, "mean_a", a);
    pj_json_kv_double(json, "mean_b", ratio->mean_b);
    pj_json_kv_double(json, "sd_a", r->sd_a);
    pj_json_kv_double(json, "sd_b", r->sd_b);
    pj_json_kv_double(json, "difference", ratio->mean_b - a);
    pj_json_kv_double(json, "difference_lo", a * (ratio->lo - 1));
    pj_json_kv_double(json, "difference_hi", a * (ratio->hi - 1));
    pj_json_kv_double(json, "ratio", ratio->ratio);
    pj_json_kv_double(json, "ratio_lo", ratio->lo);
    pj_json_kv_double(json, "ratio_hi", ratio->hi);
    pj_json_kv_double(json, "welch_t", r->welch_t);
    pj_json_kv_double(json, "welch_df", r->welch_df);
    pj_json_kv_double(json, "welch_p", r->welch_p);
    pj_json_kv_double(json, "mann_whitney_u", r->mann_whitney_u);
    pj_json_kv_double(json, "mann_whitney_p", r->mann_whitney_p);
    pj_json_kv_double(json, "permutation_p", ratio->permutation_p);
    pj_json_kv_double(json, "hedges_g", r->hedges_g);
    pj_json_kv_double(json, "rank_biserial", r->rank_biserial);
    pj_json_kv_double(json, "p", ratio->p);
    pj_json_kv_double(json, "p_adjusted", t->pair.p);
    pj_json_kv_string(json, "method", ratio->method);
    pj_json_kv_bool(json, "significant", t->pair.different);
    pj_json_object_end(json);
}

static void write_tests(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "tests");
    for (uint32_t i = 0; i < s->test_count; i++) write_test(json, &s->tests[i]);
    pj_json_array_end(json);
}

static void write_standing(const pj_sides *s, const char *key, const pj_side_best *b, int standing,
                           pj_json *json)
{
    pj_json_kv_array_begin(json, key);
    for (uint32_t i = 0; i < s->count; i++)
        if ((int)b->standing[i] == standing) pj_json_uint(json, i);
    pj_json_array_end(json);
}

static void write_bests(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "best");
    for (uint32_t i = 0; i < s->best_count; i++) {
        const pj_side_best *b = &s->bests[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "title", b->title);
        pj_json_kv_string(json, "metric", b->metric);
        pj_json_kv_uint(json, "side", b->side);
        pj_json_kv_double(json, "value", b->value);
        write_standing(s, "tied_with", b, PJ_STANDING_TIED, json);
        write_standing(s, "untested", b, PJ_STANDING_UNTESTED, json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_term(pj_json *json, const pj_term *t)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "phase", *t->phase ? t->phase : NULL);
    pj_json_kv_string(json, "component", *t->name ? t->name : NULL);
    pj_json_kv_double(json, "mj_a", t->mj_a);
    pj_json_kv_double(json, "mj_b", t->mj_b);
    pj_json_kv_double(json, "ms_a", t->ms_a);
    pj_json_kv_double(json, "ms_b", t->ms_b);
    pj_json_kv_double(json, "difference_mj", t->difference);
    pj_json_kv_double(json, "by_time_mj", t->by_time);
    pj_json_kv_double(json, "by_power_mj", t->by_power);
    pj_json_kv_double(json, "sd_mj", t->sd_mj);
    pj_json_object_end(json);
}

static void write_terms(const pj_sides *s, pj_json *json)
{
    pj_json_kv_array_begin(json, "decomposition");
    for (uint32_t i = 0; i < s->term_count; i++) {
        const pj_side_terms *t = &s->terms[i];
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "a", 0);
        pj_json_kv_uint(json, "b", t->side);
        pj_json_kv_string(json, "unit", "mJ/token");
        pj_json_kv_double(json, "mj_per_token_a", t->mj_a);
        pj_json_kv_double(json, "mj_per_token_b", t->mj_b);
        pj_json_kv_double(json, "difference_mj", t->mj_b - t->mj_a);
        pj_json_kv_array_begin(json, "terms");
        for (uint32_t k = 0; k < t->count; k++) write_term(json, &t->terms[k]);
        pj_json_array_end(json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

void pj_sides_write(const pj_sides *s, pj_json *json)
{
    write_sides(s, json);
    sides_json_write_settings(s, json);
    write_verdicts(s, json);
    write_conclusions(s, json);
    write_metrics(s, json);
    write_tests(s, json);
    write_bests(s, json);
    write_terms(s, json);
}
