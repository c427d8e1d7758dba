/* The cheapest setting of a sweep. */
#include "analysis/sweep.h"

#include "base/median.h"
#include "base/random.h"

#include <math.h>

enum { RESAMPLES = 2000 };

void pj_sweep_order(uint32_t settings, uint32_t block, uint32_t *order)
{
    for (uint32_t i = 0; i < settings; i++) {
        uint32_t at = block % 2 ? settings - 1 - i : i;
        order[at] = i % 2 ? i / 2 : settings - 1 - i / 2;
    }
}

static bool is_complete(const pj_sweep *s)
{
    if (s->settings < 2 || s->blocks < PJ_SWEEP_LEAST_BLOCKS) return false;
    for (uint32_t i = 0; i < s->settings; i++)
        for (uint32_t b = 0; b < s->blocks; b++)
            if (!(s->joules[i][b] > 0) || !(s->speed[i][b] > 0)) return false;
    return true;
}

/* Mean logarithm of the blocks in `picked`. */
static double mean_log(const double *values, const uint32_t *picked, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += log(values[picked[i]]);
    return sum / count;
}

static uint32_t cheapest(const pj_sweep *s, double most_loss, const uint32_t *picked)
{
    uint32_t best = s->settings - 1;
    double reference = mean_log(s->speed[best], picked, s->blocks);
    double least = mean_log(s->joules[best], picked, s->blocks);
    for (uint32_t i = 0; i < s->settings - 1; i++) {
        double joules = mean_log(s->joules[i], picked, s->blocks);
        double speed = mean_log(s->speed[i], picked, s->blocks);
        if (joules >= least || speed - reference < log1p(-most_loss)) continue;
        least = joules;
        best = i;
    }
    return best;
}

static void resample(const pj_sweep *s, double most_loss, pj_sweep_result *r)
{
    double chosen[RESAMPLES];
    uint32_t same = 0, picked[PJ_SWEEP_BLOCKS];
    pj_random random = {1};
    for (int i = 0; i < RESAMPLES; i++) {
        for (uint32_t b = 0; b < s->blocks; b++)
            picked[b] = (uint32_t)(pj_random_u64(&random) % s->blocks);
        uint32_t best = cheapest(s, most_loss, picked);
        same += best == r->best;
        chosen[i] = s->setting[best];
    }
    pj_sort_doubles(chosen, RESAMPLES);
    r->chosen_share = (double)same / RESAMPLES;
    r->lo = chosen[RESAMPLES / 40];
    r->hi = chosen[RESAMPLES - 1 - RESAMPLES / 40];
}

static double mean_of(const double *values, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += log(values[i]);
    return exp(sum / count);
}

void pj_sweep_judge(const pj_sweep *s, double most_loss, pj_sweep_result *r)
{
    uint32_t blocks[PJ_SWEEP_BLOCKS], last = s->settings - 1;
    for (uint32_t b = 0; b < s->blocks; b++) blocks[b] = b;
    *r = (pj_sweep_result){.known = is_complete(s)};
    for (uint32_t i = 0; i < s->settings; i++) {
        pj_sweep_point *p = &r->points[i];
        const pj_blocked joules[] = {{s->joules[last], blocks, s->blocks},
                                     {s->joules[i], blocks, s->blocks}};
        const pj_blocked speed[] = {{s->speed[last], blocks, s->blocks},
                                    {s->speed[i], blocks, s->blocks}};
        p->joules = mean_of(s->joules[i], s->blocks);
        p->speed = mean_of(s->speed[i], s->blocks);
        pj_ratio_paired(&joules[0], &joules[1], &p->cost);
        pj_ratio_paired(&speed[0], &speed[1], &p->pace);
        p->fast_enough = p->pace.ratio >= 1 - most_loss;
    }
    if (!r->known) return;
    r->best = cheapest(s, most_loss, blocks);
    const pj_ratio *cost = &r->points[r->best].cost;
    r->saves = r->best != last && cost->ratio < 1 && cost->p * last < PJ_LEVEL;
    resample(s, most_loss, r);
}
