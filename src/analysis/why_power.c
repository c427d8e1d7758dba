/*
 * A part that draws more power, seen by a sensor that measures the phase well and its parts badly.
 * Attribution then spreads the difference over several parts, none of which is certain; but the
 * sum of the differences is. Which single part explains it? Each is a hypothesis: it has the whole
 * difference and the others have none. Another is that all parts have it in proportion. One that is
 * at least 19 times as likely as all the others together is named.
 */
#include "analysis/why_impl.h"

#include "base/estimate.h"

#include <math.h>

static const double same_power = 0.005; /* relative standard deviation of a run's power */
static const double most_power = 2;     /* a part's change: at most its power again */
static const double certain = 0.95;

static bool is_comparable(const pj_why_row *r, uint8_t phase)
{
    return r->phase == phase && r->from.ms > 0 && r->b.ms > 0 && r->from.mj > 0;
}

static double sd_of_power(const pj_why_row *r)
{
    return r->b.ms *
           hypot(sqrt(r->from.mj_variance) / r->from.ms, sqrt(r->b.mj_variance) / r->b.ms);
}

/* Of the phase's difference: what the sensor makes of the request, and what varies from run to
 * run. */
static double sd_of_phase(const pj_why *why, const pj_why_context *c)
{
    double a = c->a->runs, b = c->b->runs;
    double runs =
        same_power * same_power *
        (why->request_a_mj * why->request_a_mj / a + why->request_b_mj * why->request_b_mj / b);
    return sqrt(c->a->request_variance / (a * a) + c->b->request_variance / (b * b) + runs);
}

/* How badly the attributed differences fit if each part has `of` its share, chi squared; `alone`
 * NULL: all parts in proportion. */
static double misfit(const pj_why *why, uint8_t phase, double change, const pj_why_row *alone)
{
    double all = 0, sum = 0;
    for (uint32_t i = 0; i < why->row_count; i++)
        if (is_comparable(&why->rows[i], phase)) all += why->rows[i].from.mj;
    for (uint32_t i = 0; i < why->row_count; i++) {
        const pj_why_row *r = &why->rows[i];
        if (!is_comparable(r, phase)) continue;
        double expected = alone ? (r == alone ? change : 0) : change * r->from.mj / all;
        double z = (r->split.power - expected) / sd_of_power(r);
        sum += z * z;
    }
    return sum;
}

static bool may_explain(const pj_why_row *r, uint8_t phase, double change)
{
    double factor = 1 + change / r->from.mj;
    return is_comparable(r, phase) && !r->is_gap && *r->name && factor <= most_power &&
           factor >= 1 / most_power;
}

/* The row that explains the change; NULL: several may. */
static pj_why_row *only_explanation(pj_why *why, uint8_t phase, double change)
{
    double in_proportion = misfit(why, phase, change, NULL), least = in_proportion, sum = 0;
    pj_why_row *best = NULL;
    for (uint32_t i = 0; i < why->row_count; i++) {
        pj_why_row *r = &why->rows[i];
        double chi = may_explain(r, phase, change) ? misfit(why, phase, change, r) : INFINITY;
        if (chi >= least) continue;
        least = chi;
        best = r;
    }
    if (!best || !isfinite(least)) return NULL;
    for (uint32_t i = 0; i < why->row_count; i++)
        if (may_explain(&why->rows[i], phase, change))
            sum += exp((least - misfit(why, phase, change, &why->rows[i])) / 2);
    sum += exp((least - in_proportion) / 2);
    return 1 / sum >= certain ? best : NULL;
}

/* What is compared as a whole is judged like that. */
static bool is_judged(const pj_why *why, uint8_t phase)
{
    for (uint32_t i = 0; i < why->row_count; i++)
        if (why->rows[i].phase == phase && (why->rows[i].kind || why->rows[i].whole)) return true;
    return false;
}

/* Of several phases the largest. */
static void keep_unplaced(pj_why *why, uint8_t phase, double change, double sd)
{
    if (fabs(change) <= fabs(why->unplaced_mj)) return;
    why->unplaced_mj = change;
    why->unplaced_sd_mj = sd;
    why->unplaced_phase = phase;
}

void pj_why_find_hotter(pj_why *why, const pj_why_context *c)
{
    double sd = sd_of_phase(why, c);
    if (why->common_count) return;
    for (uint8_t phase = 0; phase < PJ_PHASE_COUNT; phase++) {
        double change = pj_why_power_of_phase(why, phase);
        bool is_certain =
            fabs(change) >= PJ_WHY_LEAST * why->request_a_mj && fabs(change) > PJ_Z95 * sd;
        if (!is_certain || is_judged(why, phase)) continue;
        pj_why_row *row = only_explanation(why, phase, change);
        if (!row) {
            keep_unplaced(why, phase, change, sd);
            continue;
        }
        row->kind = PJ_WHY_POWER;
        row->explained_mj = change;
        row->explained = (pj_bounds){change - PJ_Z95 * sd, change + PJ_Z95 * sd};
    }
}
