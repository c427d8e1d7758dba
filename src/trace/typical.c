/* The median of the undisturbed decode tokens. Definition: docs/measurement.md. */
#include "trace/typical.h"

#include "base/median.h"
#include "base/memory.h"
#include "trace/disturbance.h"

#include <math.h>
#include <string.h>

/* ---- the run -------------------------------------------------------------------------------- */

/* Tokens that are reported at once have no duration of their own, and no energy. */
static bool is_typical(const pj_run_data *d, const pj_token_row *t)
{
    return t->phase < d->phase_count && d->phases[t->phase].phase == PJ_PHASE_DECODE &&
           t->duration_ms >= PJ_LEAST_STEP_MS && t->disturbed <= 0 &&
           t->energy.gross_nj != PJ_NJ_UNKNOWN;
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
    double scatter = pj_median_sd(mj, count, steps, mj + most);
    pj_sd sensor = sensor_of(d);
    typical->mj = pj_median(mj, count);
    typical->sd = pj_sd_scaled(&sensor, typical->mj);
    if (!isnan(scatter)) typical->sd.random_mj = hypotf(typical->sd.random_mj, (float)scatter);
    pj_free(mj);
    return PJ_OK;
}
