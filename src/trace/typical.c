/* The median of the undisturbed decode tokens. Definition: docs/measurement.md. */
#include "trace/typical.h"

#include "base/estimate.h"
#include "base/median.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- scatter -------------------------------------------------------------------------------- */

/* The slope per value between the medians of the first and the last third, which a few outliers
 * do not bend: energy grows with the context, and growth is not scatter. */
static double typical_slope(const double *values, size_t count, double *work)
{
    size_t third = count / 3;
    if (third < 3) return 0;
    for (size_t i = 0; i < third; i++) work[i] = values[i];
    double first = pj_median(work, third);
    for (size_t i = 0; i < third; i++) work[i] = values[count - third + i];
    return (pj_median(work, third) - first) / (double)(count - third);
}

/* Neighbours that share a sensor window err together, so that values stay above or below the
 * median for long. Of `count` independent values, about half change sides from one to the next;
 * the share of changes seen says how many are independent. */
static double independent_of(const double *residuals, size_t count, double middle, size_t steps)
{
    size_t changes = 0, sided = 0;
    int last = 0;
    for (size_t i = 0; i < count; i++) {
        int side = (residuals[i] > middle) - (residuals[i] < middle);
        if (!side) continue;
        sided++;
        changes += last && side != last;
        last = side;
    }
    double most = (double)(steps < count ? steps : count);
    if (sided < 12) return most;
    double usual = ((double)sided - 1) / 2;
    /* Up to two deviations fewer changes are chance. */
    double seen = (double)changes + 2 * sqrt(usual / 2);
    return fmax(fmin(most, most * seen / usual), 4);
}

/* Of an ascending list, between two values where the rank is between them. */
static double value_at(const double *sorted, size_t count, double rank)
{
    double at = fmin(fmax(rank, 0), (double)(count - 1));
    size_t below = (size_t)at;
    if (below + 1 >= count) return sorted[count - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

/* The standard deviation of a median from how values scatter around their trend: half the interval
 * between the order statistics that hold it with 95 %, over 1.96. `values` in the order in which
 * they were taken, `steps` of them independent at most (rows of a batch share a step); `work` has
 * room for twice as many. NAN for fewer than two. */
static double typical_scatter(const double *values, size_t count, size_t steps, double *work)
{
    if (count < 2) return NAN;
    double slope = typical_slope(values, count, work);
    double middle_index = (double)(count - 1) / 2;
    for (size_t i = 0; i < count; i++) work[i] = values[i] - slope * ((double)i - middle_index);
    double *sorted = work + count;
    for (size_t i = 0; i < count; i++) sorted[i] = work[i];
    double middle = pj_median(sorted, count);
    double n = independent_of(work, count, middle, steps);
    /* Ranks n / 2 -+ 0.98 sqrt(n), as shares of the list. */
    double reach = (PJ_Z95 / 2 * sqrt(n) + 0.5) / n * (double)count;
    double width = value_at(sorted, count, middle_index + reach) -
                   value_at(sorted, count, middle_index - reach);
    /* Below five values even the extremes do not hold the median with 95 %: 2 values hold it with
     * 50 %, 3 with 75 %, 4 with 88 %. */
    static const double widened[] = {0, 0, 9, 3.2, 1.8};
    double widen = n < 5 ? widened[(size_t)n] : 1;
    return width / 2 / PJ_Z95 * widen;
}

/* ---- the run -------------------------------------------------------------------------------- */

static bool is_typical(const pj_run_data *d, const pj_token_row *t)
{
    return t->phase < d->phase_count && d->phases[t->phase].phase == PJ_PHASE_DECODE &&
           t->disturbed <= 0 && t->energy.gross_nj != PJ_NJ_UNKNOWN;
}

/* Returns their number; *steps: of the steps that they are in. */
static size_t list_tokens(const pj_run_data *d, double *mj, size_t *steps)
{
    size_t count = 0;
    const pj_token_row *last = NULL;
    *steps = 0;
    for (uint32_t i = 0; i < d->token_count; i++) {
        const pj_token_row *t = &d->tokens[i];
        if (!is_typical(d, t)) continue;
        mj[count++] = pj_mj_of_nj(t->energy.gross_nj);
        *steps += !last || last->position != t->position || last->phase != t->phase;
        last = t;
    }
    return count;
}

/* The relative errors of the sensor: those of the decode phases' sum. */
static pj_sd sensor_of(const pj_run_data *d)
{
    pj_sd sum = {0, 0, 0};
    double mj = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        const pj_phase_row *p = &d->phases[i];
        if (p->phase != PJ_PHASE_DECODE) continue;
        mj += pj_mj_of_nj(p->energy.gross_nj);
        sum = pj_sd_add(&sum, &p->energy.sd);
    }
    return mj > 0 ? pj_sd_scaled(&sum, 1 / mj) : PJ_SD_UNKNOWN;
}

/* Whether the answer of a server came as a whole: its tokens are equal shares of decode, which say
 * nothing of a single one. */
static bool came_at_once(const pj_run_data *d)
{
    enum { LEAST = 2 };
    const double rounding_ms = 1e-5;
    double shortest = INFINITY, longest = 0;
    uint32_t count = 0;
    bool has_prompt = false;
    if (!d->info.scope || strcmp(d->info.scope, "request") != 0) return false;
    for (uint32_t i = 0; i < d->phase_count; i++)
        has_prompt |= d->phases[i].phase == PJ_PHASE_PREFILL;
    for (uint32_t i = 0; i < d->token_count; i++) {
        const pj_token_row *t = &d->tokens[i];
        if (t->phase >= d->phase_count || d->phases[t->phase].phase != PJ_PHASE_DECODE) continue;
        shortest = fmin(shortest, t->duration_ms);
        longest = fmax(longest, t->duration_ms);
        count++;
    }
    return count && (!has_prompt || (count >= LEAST && longest - shortest < rounding_ms));
}

pj_status pj_typical_get(const pj_run_data *d, pj_typical *typical, pj_error *err)
{
    *typical = (pj_typical){NAN, PJ_SD_UNKNOWN};
    if (came_at_once(d)) return PJ_OK;
    size_t steps, most = (size_t)d->token_count + 1;
    double *mj = pj_alloc(3 * most, sizeof *mj);
    if (!mj) return pj_fail_memory(err, "the tokens of a run");
    size_t count = list_tokens(d, mj, &steps);
    double scatter = typical_scatter(mj, count, steps, mj + most);
    pj_sd sensor = sensor_of(d);
    typical->mj = pj_median(mj, count);
    typical->sd = pj_sd_scaled(&sensor, typical->mj);
    if (!isnan(scatter)) typical->sd.random_mj = hypotf(typical->sd.random_mj, (float)scatter);
    pj_free(mj);
    return PJ_OK;
}
