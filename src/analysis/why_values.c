/* Whether parts computed the same values, by the statistics of their outputs. */
#include "analysis/why_impl.h"

#include <math.h>

/* Two types of 8 bits of mantissa round apart by so much; different values agree in five figures
 * by chance in no place, let alone in several. */
static const double rounded = 0.008, exact = 1e-5;

static bool close_to(float a, float b, double scale)
{
    return fabs((double)a - (double)b) <= scale;
}

static bool has_values(const pj_why_look *l)
{
    return isfinite(l->mean_abs) && isfinite(l->std) && isfinite(l->max_abs) && l->std > 0;
}

bool pj_why_looks_equal(const pj_why_look *a, const pj_why_look *b, double tolerance)
{
    if (!has_values(a) || !has_values(b)) return false;
    return close_to(a->mean_abs, b->mean_abs, tolerance * fmax(a->mean_abs, b->mean_abs)) &&
           close_to(a->std, b->std, tolerance * fmax(a->std, b->std)) &&
           close_to(a->max_abs, b->max_abs, tolerance * fmax(a->max_abs, b->max_abs)) &&
           (isnan(a->mean) || isnan(b->mean) ||
            close_to(a->mean, b->mean, tolerance * fmax(a->std, b->std))) &&
           (isnan(a->sparsity) || isnan(b->sparsity) ||
            close_to(a->sparsity, b->sparsity, 1e-6 + 2 * tolerance));
}

pj_why_likeness pj_why_parts_compare(const pj_why_part *a, const pj_why_part *b)
{
    pj_why_likeness l = {0};
    for (uint32_t i = 0; i < a->look_count; i++)
        for (uint32_t k = 0; k < b->look_count; k++) {
            const pj_why_look *x = &a->looks[i], *y = &b->looks[k];
            if (x->token != y->token || x->layer != y->layer) continue;
            l.compared++;
            l.equal += pj_why_looks_equal(x, y, rounded);
            l.exact += pj_why_looks_equal(x, y, exact);
            break;
        }
    return l;
}

bool pj_why_likeness_same(const pj_why_likeness *l)
{
    return l->compared >= 2 && 10 * l->equal >= 9 * l->compared;
}
