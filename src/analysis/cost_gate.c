/* Gates: estimates on logarithms, judged at the levels of planned looks. */
#include "analysis/cost_gate.h"

#include "analysis/compare.h"

#include <math.h>

/* The bounds are exact when the spread is known. It is estimated from the same runs, which inflates
 * errors by up to a quarter of the level; so much is held back
 * (tests/unit/analysis/test_cost_gate.c). */
static const double planned_share = 0.78, least_p = 1e-12;

typedef struct gate_estimate {
    double value, error, freedom; /* of the logarithm of the ratio */
    double spread;
} gate_estimate;

static pj_moments gate_moments(const double *x, uint32_t n)
{
    pj_moments m = {0};
    for (uint32_t i = 0; i < n; i++) pj_moments_add(&m, log(x[i]));
    return m;
}

static double gate_variance(const pj_moments *m)
{
    return m->n < 2 ? NAN : m->squares / (double)(m->n - 1);
}

static gate_estimate estimate_of_mean(const pj_moments *m, double runs_per_value)
{
    double variance = gate_variance(m);
    return (gate_estimate){m->mean, sqrt(variance / m->n), m->n - 1.0,
                           sqrt(variance / runs_per_value)};
}

static gate_estimate estimate_of_pairs(const double *a, const double *b, uint32_t n)
{
    pj_moments m = {0};
    for (uint32_t i = 0; i < n; i++) pj_moments_add(&m, log(b[i] / a[i]));
    return estimate_of_mean(&m, 2);
}

/* As Welch. */
static gate_estimate estimate_of_two(const pj_moments *a, const pj_moments *b)
{
    double va = gate_variance(a) / a->n, vb = gate_variance(b) / b->n, sum = va + vb;
    double freedom = sum * sum / (va * va / (a->n - 1.0) + vb * vb / (b->n - 1.0));
    return (gate_estimate){b->mean - a->mean, sqrt(sum), sum > 0 ? freedom : 1,
                           sqrt((a->squares + b->squares) / (a->n + b->n - 2.0))};
}

static gate_estimate gate_estimate_of(const pj_cost_gate *g, const double *a, const double *b,
                                      uint32_t n)
{
    if (g->kind == PJ_GATE_PAIRS) return estimate_of_pairs(a, b, n);
    pj_moments mb = gate_moments(b, n);
    if (g->kind == PJ_GATE_FIXED) return estimate_of_mean(&mb, 1);
    pj_moments ma = gate_moments(a, g->stored);
    return estimate_of_two(&ma, &mb);
}

void pj_cost_gate_plan(pj_cost_gate *g, double level)
{
    double information[PJ_LOOKS_MAX];
    uint32_t looks = g->most - PJ_GATE_FIRST + 1;
    /* As if a stored baseline were exact: where its spread is the lesser one, information grows so,
     * and where it grows less, looks are more alike than planned and err less. */
    for (uint32_t i = 0; i < looks; i++) information[i] = PJ_GATE_FIRST + i;
    for (uint32_t i = 0; i + 1 < PJ_GATE_FIRST; i++) g->p[i] = 0;
    pj_looks_plan(information, looks, planned_share * level, g->p + PJ_GATE_FIRST - 1);
}

static pj_gate_outcome judge_estimate(const pj_cost_gate *g, const gate_estimate *e, uint32_t n)
{
    double above = e->value - log(g->limit);
    if (n < PJ_GATE_FIRST || isnan(e->error)) return PJ_GATE_UNDECIDED;
    if (!(e->error > 0)) return above > 1e-12 ? PJ_GATE_OVER : PJ_GATE_WITHIN;
    double p = pj_student_two_sided(above / e->error, e->freedom) / 2;
    if (p > g->p[n - 1]) return PJ_GATE_UNDECIDED;
    return above > 0 ? PJ_GATE_OVER : PJ_GATE_WITHIN;
}

pj_gate_outcome pj_cost_gate_judge(const pj_cost_gate *g, const double *a, const double *b,
                                   uint32_t n)
{
    gate_estimate e = gate_estimate_of(g, a, b, n);
    return judge_estimate(g, &e, n);
}

/* Half the interval in standard errors. */
static double reach_at(const pj_cost_gate *g, uint32_t n, double freedom)
{
    return pj_student_quantile(1 - fmax(g->p[n - 1], least_p), freedom);
}

pj_cost_look pj_cost_gate_look(const pj_cost_gate *g, const double *a, const double *b, uint32_t n)
{
    gate_estimate e = gate_estimate_of(g, a, b, n);
    double reach = n < PJ_GATE_FIRST ? NAN : e.error > 0 ? e.error * reach_at(g, n, e.freedom) : 0;
    return (pj_cost_look){.outcome = judge_estimate(g, &e, n),
                          .ratio = n ? exp(e.value) : NAN,
                          .lo = exp(e.value - reach),
                          .hi = exp(e.value + reach),
                          .spread = e.spread};
}

double pj_cost_spread(const double *values, uint32_t n)
{
    pj_moments m = gate_moments(values, n);
    return sqrt(gate_variance(&m));
}

/* The 5 % quantile of chi-square as Wilson and Hilferty approximate it. */
double pj_cost_spread_at_most(double spread, double freedom)
{
    double v = 2 / (9 * freedom), root = 1 - v - 1.645 * sqrt(v);
    return spread / sqrt(root * root * root);
}

uint32_t pj_cost_gate_needed(const pj_cost_gate *g, double spread, double times)
{
    double stored = g->stored;
    for (uint32_t n = PJ_GATE_FIRST; n <= g->most; n++) {
        double variance = (g->kind == PJ_GATE_PAIRS ? 2.0 : 1.0) / n, freedom = n - 1.0;
        if (g->kind == PJ_GATE_STORED) {
            double of_n = 1 / ((double)n * n * (n - 1.0));
            variance += 1 / stored;
            freedom = variance * variance / (of_n + 1 / (stored * stored * (stored - 1)));
        }
        double distance = fabs(log(times)) / (spread * sqrt(variance));
        if (distance >= reach_at(g, n, freedom) + pj_student_quantile(0.96, freedom)) return n;
    }
    return 0;
}
