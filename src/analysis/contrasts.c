/* Chooses the tests of a family of pairs and corrects their p values. */
#include "analysis/contrasts.h"

#include "analysis/compare.h"
#include "base/memory.h"

#include <math.h>

static size_t count_tests(const pj_contrast *pairs, size_t count)
{
    size_t tests = 0;
    for (size_t i = 0; i < count; i++) tests += !isnan(pairs[i].ratio.welch_p);
    return tests;
}

/* Energies that are different quantities have a ratio but no test. */
static void pair_refuse(pj_ratio *r)
{
    r->p = r->welch_p = r->permutation_p = NAN;
    r->method = "none";
}

static void pairs_correct(pj_contrast *pairs, size_t count, double *work)
{
    double *p = work, *adjusted = work + count;
    for (size_t i = 0; i < count; i++) p[i] = pairs[i].ratio.p;
    pj_holm(p, count, adjusted);
    for (size_t i = 0; i < count; i++) {
        pairs[i].p = adjusted[i];
        pairs[i].different = adjusted[i] < PJ_LEVEL; /* false for NAN */
    }
}

void pj_contrasts_judge(pj_contrast *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pj_contrast *x = &pairs[i];
        pj_ratio_compare(x->a, x->n_a, x->b, x->n_b, x->gain_sd, &x->ratio);
        if (x->refused) pair_refuse(&x->ratio);
        x->p = NAN;
        x->different = false;
    }
    size_t tests = count_tests(pairs, count);
    for (size_t i = 0; i < count; i++) {
        pj_contrast *x = &pairs[i];
        x->ratio.pairs = tests;
        if (!isnan(x->ratio.welch_p) && !(x->gain_sd > 0))
            pj_ratio_permute(x->a, x->n_a, x->b, x->n_b, &x->ratio);
    }
    double *work = pj_alloc(2 * count + 1, sizeof *work);
    if (!work) return; /* nothing is then judged */
    pairs_correct(pairs, count, work);
    pj_free(work);
}
