/* Idle power: the median over slices of a quiet window, with a robust spread, so that one wake-up
 * of a background service does not matter. Whether the window was quiet is checked, not assumed: by
 * the CPU time of the whole machine, by its GPUs' own utilisation, and by comparing the two
 * halves. */
#include "power/meter_impl.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "power/busy.h"
#include "power/replay_source.h"
#include "power/sim_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SLICES = 40, MIN_SLICES = 3 };
static const int64_t SLICE_NS = 50 * PJ_NS_PER_MS;
/* Busy share of all processors, or of a GPU: a desktop at rest stays below it. */
static const double QUIET_BUSY = 0.05, QUIET_DRIFT = 0.05;

/* ---- median of slices ---- */

static double median(const double *values, int count)
{
    double sorted[MAX_SLICES];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    return pj_median(sorted, (size_t)count);
}

/* Mean power of equal slices, where the curve knows the window. */
static int slice_powers(const pj_curve *curve, int64_t begin_ns, int64_t end_ns, double *mw)
{
    int64_t known_begin, known_end, period = pj_curve_rail(curve)->period_ns;
    if (!pj_curve_span(curve, &known_begin, &known_end)) return 0;
    if (begin_ns < known_begin) begin_ns = known_begin;
    if (end_ns > known_end) end_ns = known_end;
    int64_t slice = period > SLICE_NS ? period : SLICE_NS, length = end_ns - begin_ns;
    if (length <= 0) return 0;
    int64_t slices = length / slice, found = 0;
    slices = slices > MAX_SLICES ? MAX_SLICES : slices < 1 ? 1 : slices;
    for (int64_t i = 0; i < slices; i++) {
        int64_t from = begin_ns + length * i / slices, to = begin_ns + length * (i + 1) / slices;
        double mj = pj_curve_energy_mj(curve, from, to);
        if (!isnan(mj)) mw[found++] = mj / ((double)(to - from) * 1e-9);
    }
    return (int)found;
}

static bool rail_baseline(const pj_curve *curve, int64_t begin_ns, int64_t end_ns, double *mw,
                          double *sd_mw)
{
    double powers[MAX_SLICES], off[MAX_SLICES];
    int count = slice_powers(curve, begin_ns, end_ns, powers);
    *mw = median(powers, count);
    *sd_mw = NAN;
    if (count == 0) return true;
    for (int i = 0; i < count; i++) off[i] = fabs(powers[i] - *mw);
    *sd_mw = 1.4826 * median(off, count);
    if (count < MIN_SLICES) *sd_mw = fmax(*sd_mw, QUIET_DRIFT * *mw);
    double drift = median(powers, count / 2) - median(powers + count / 2, count - count / 2);
    bool steady = count < 2 || fabs(drift) <= QUIET_DRIFT * *mw + 3 * *sd_mw;
    if (!steady) *sd_mw = hypot(*sd_mw, drift); /* either half may be the idle one */
    return steady;
}

/* Simulated and recorded power does not depend on this machine's load. */
static bool looks_at_machine(const pj_rail *rail)
{
    return strcmp(rail->source, "sim") != 0 && strcmp(rail->source, "replay") != 0;
}

void pj_baseline_compute(const pj_curve *const *curves, uint32_t rail_count, int64_t begin_ns,
                         int64_t end_ns, double busy_share, pj_baseline *baseline)
{
    *baseline = (pj_baseline){.busy_share = busy_share,
                              .rail_count = rail_count,
                              .quiet = true,
                              .begin_ns = begin_ns,
                              .end_ns = end_ns};
    for (uint32_t i = 0; i < PJ_MAX_RAILS; i++) {
        baseline->mw[i] = baseline->sd_mw[i] = NAN;
        baseline->rail_quiet[i] = true;
        if (i >= rail_count || !curves[i]) continue;
        bool steady =
            rail_baseline(curves[i], begin_ns, end_ns, &baseline->mw[i], &baseline->sd_mw[i]);
        bool busy = looks_at_machine(pj_curve_rail(curves[i])) && busy_share >= QUIET_BUSY;
        baseline->rail_quiet[i] = !busy;
        baseline->quiet = baseline->quiet && steady && !busy;
    }
}

void pj_baseline_note_gpu(pj_baseline *baseline, const pj_rail *rails, const char *device,
                          double share)
{
    if (!(share >= QUIET_BUSY)) return;
    for (uint32_t i = 0; i < baseline->rail_count; i++) {
        if (!pj_rail_is_gpu(&rails[i], device) || !looks_at_machine(&rails[i])) continue;
        baseline->quiet = false;
        int at = (int)i;
        for (int hops = 0; at >= 0 && hops < PJ_MAX_RAILS; hops++, at = rails[at].parent)
            baseline->rail_quiet[at] = false;
        if (baseline->busy_gpu[0] && share <= baseline->gpu_share) continue;
        snprintf(baseline->busy_gpu, sizeof baseline->busy_gpu, "%s", device);
        baseline->gpu_share = share;
    }
}

bool pj_baseline_text(const pj_baseline *baseline, char *text, size_t bytes)
{
    char gpu[64] = "", processors[64] = "";
    bool busy = false, both = baseline->busy_share >= QUIET_BUSY && baseline->busy_gpu[0];
    for (uint32_t i = 0; i < baseline->rail_count; i++) busy |= !baseline->rail_quiet[i];
    if (!busy) return false;
    if (baseline->busy_gpu[0])
        snprintf(gpu, sizeof gpu, "%s was %.0f %% busy", baseline->busy_gpu,
                 baseline->gpu_share * 100);
    if (baseline->busy_share >= QUIET_BUSY)
        snprintf(processors, sizeof processors, "its processors were %.0f %% busy",
                 baseline->busy_share * 100);
    snprintf(text, bytes,
             "The machine was not idle while its idle power was measured (%s%s%s): net figures are "
             "unavailable.",
             processors, both ? ", " : "", gpu);
    return true;
}

/* ---- before and after ---- */

static double middle_ns(const pj_baseline *b)
{
    return 0.5 * ((double)b->begin_ns + (double)b->end_ns);
}

/* Where idle power may have moved from one level to another at any time, its mean is anywhere
 * between them: a uniform distribution, around its middle or seen from one end. */
static void idle_between(const pj_baseline *before, const pj_baseline *after, uint32_t rail,
                         double share, pj_baseline *idle)
{
    double moved_mw = after->mw[rail] - before->mw[rail];
    double off = after->rail_quiet[rail] ? hypot(1 / sqrt(12), share - 0.5) : 1 / sqrt(3);
    const pj_baseline *known = isnan(before->mw[rail]) ? after : before;
    idle->rail_quiet[rail] =
        before->rail_quiet[rail] && (known == before || idle->rail_quiet[rail]);
    idle->mw[rail] = known->mw[rail];
    idle->sd_mw[rail] = known->sd_mw[rail];
    if (isnan(moved_mw)) return;
    if (after->rail_quiet[rail]) {
        idle->mw[rail] += share * moved_mw;
        idle->sd_mw[rail] = fmax(before->sd_mw[rail], after->sd_mw[rail]);
    }
    idle->sd_mw[rail] = hypot(idle->sd_mw[rail], off * moved_mw);
}

void pj_baseline_between(const pj_baseline *before, const pj_baseline *after, const pj_rail *rails,
                         int64_t begin_ns, int64_t end_ns, bool is_loaded, pj_baseline *idle)
{
    double apart_ns = middle_ns(after) - middle_ns(before);
    double share = (0.5 * ((double)begin_ns + (double)end_ns) - middle_ns(before)) / apart_ns;
    *idle = *after;
    share = apart_ns > 0 ? fmin(fmax(share, 0), 1) : 0.5;
    for (uint32_t i = 0; i < after->rail_count; i++)
        if (!is_loaded || rails[i].rail_class != PJ_RAIL_GPU || !(after->mw[i] > before->mw[i]))
            idle_between(before, after, i, share, idle);
}

int pj_baseline_moved(const pj_baseline *before, const pj_baseline *after)
{
    int most = -1;
    for (uint32_t i = 0; i < after->rail_count; i++) {
        double moved = fabs(after->mw[i] - before->mw[i]);
        double least = fmax(3 * hypot(before->sd_mw[i], after->sd_mw[i]), 0.1 * before->mw[i]);
        if (!(moved > least)) continue;
        if (most < 0 || moved > fabs(after->mw[most] - before->mw[most])) most = (int)i;
    }
    return most;
}

/* ---- without listening ---- */

static bool is_only(const pj_meter *meter, const char *source)
{
    return meter->sampler_count == 1 && strcmp(meter->samplers[0]->source->name, source) == 0;
}

bool pj_meter_is_simulated(const pj_meter *meter)
{
    return is_only(meter, "sim");
}

bool pj_meter_is_recorded(const pj_meter *meter)
{
    return is_only(meter, "replay");
}

typedef struct idle_curves {
    const pj_power_sampler *sampler;
    pj_curve *curves[PJ_MAX_RAILS];
} idle_curves;

static pj_status take_idle(void *context, const pj_reading *reading, pj_error *err)
{
    idle_curves *c = context;
    int rail = c->sampler->kept[reading->rail];
    pj_reading own = *reading;
    if (rail < 0) return PJ_OK;
    own.rail = (uint16_t)rail;
    return pj_curve_add(c->curves[rail], &own, err);
}

/* What the sensors would show of the machine at rest, without the faults that a run is given. */
static pj_status simulate_idle(idle_curves *c, int64_t begin_ns, int64_t end_ns, pj_error *err)
{
    pj_sim_spec spec = *pj_sim_source_spec(c->sampler->state);
    pj_status status = PJ_OK;
    spec.reset_ns = spec.freeze_begin_ns = spec.freeze_end_ns = spec.jump_ns = -1;
    spec.dropout = spec.duplicate = 0;
    for (uint32_t i = 0; i < c->sampler->rail_count && status == PJ_OK; i++) {
        pj_reading *readings = NULL;
        size_t count = 0;
        status = pj_sim_read(&spec, i, NULL, 0, begin_ns, end_ns, &readings, &count, err);
        for (size_t k = 0; k < count && status == PJ_OK; k++) {
            readings[k].rail = (uint16_t)i;
            status = take_idle(c, &readings[k], err);
        }
        pj_free(readings);
    }
    return status;
}

static pj_status new_curves(const pj_meter *meter, pj_curve **curves, pj_error *err)
{
    for (uint32_t i = 0; i < meter->rail_count; i++)
        if (!(curves[i] = pj_curve_new(&meter->rails[i]))) return pj_fail_memory(err, "a baseline");
    pj_curves_link(curves, meter->rails, meter->rail_count);
    return PJ_OK;
}

static void free_curves(const pj_meter *meter, pj_curve **curves)
{
    for (uint32_t i = 0; i < meter->rail_count; i++) pj_curve_free(curves[i]);
}

static pj_status finish_curves(const pj_meter *meter, pj_curve **curves, pj_error *err)
{
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < meter->rail_count && status == PJ_OK; i++)
        status = pj_curve_finish(curves[i], err);
    return status;
}

pj_status pj_meter_baseline_at_once(pj_meter *meter, int64_t duration_ns, pj_baseline *baseline,
                                    pj_error *err)
{
    idle_curves c = {.sampler = meter->samplers[0]};
    int64_t end_ns = pj_clock_ns(), begin_ns = end_ns - duration_ns;
    pj_status status = new_curves(meter, c.curves, err);
    if (status == PJ_OK && pj_meter_is_simulated(meter))
        status = simulate_idle(&c, begin_ns, end_ns, err);
    else if (status == PJ_OK)
        status = pj_replay_skip(c.sampler->state, duration_ns, take_idle, &c, err);
    if (status == PJ_OK) status = finish_curves(meter, c.curves, err);
    if (status == PJ_OK)
        pj_baseline_compute((const pj_curve *const *)c.curves, meter->rail_count, begin_ns, end_ns,
                            NAN, baseline);
    free_curves(meter, c.curves);
    return status;
}

/* ---- listening ---- */

static pj_status listen_until(pj_meter *meter, pj_curve *const *curves, int64_t until_ns,
                              pj_error *err)
{
    for (;;) {
        pj_status status = pj_meter_fill(meter, curves, err);
        int64_t now = pj_clock_ns();
        if (status != PJ_OK || now >= until_ns) return status;
        pj_clock_sleep_until(until_ns - now < 10 * PJ_NS_PER_MS ? until_ns
                                                                : now + 10 * PJ_NS_PER_MS);
    }
}

/* Whether what was busy so far is too much for the whole window, however quiet the rest of it is:
 * twice as much as is allowed, because the system counts in ticks. */
static bool is_spoilt(const pj_meter *meter, const pj_busy *before, int64_t begin_ns,
                      int64_t end_ns)
{
    pj_busy now;
    pj_busy_get(&meter->env, &now);
    double passed = (double)(pj_clock_ns() - begin_ns) / (double)(end_ns - begin_ns);
    return pj_busy_share(before, &now) * passed >= 2 * QUIET_BUSY;
}

/* Until `*end_ns`, or until the machine has been too busy, which is then its end. */
static pj_status listen_while_quiet(pj_meter *meter, pj_curve *const *curves, const pj_busy *before,
                                    int64_t begin_ns, int64_t *end_ns, pj_error *err)
{
    const int64_t step_ns = 100 * PJ_NS_PER_MS;
    for (int64_t at_ns = begin_ns + step_ns;; at_ns += step_ns) {
        bool is_last = at_ns >= *end_ns;
        pj_status status = listen_until(meter, curves, is_last ? *end_ns : at_ns, err);
        if (status != PJ_OK || is_last) return status;
        if (!is_spoilt(meter, before, begin_ns, *end_ns)) continue;
        *end_ns = pj_clock_ns();
        return PJ_OK;
    }
}

pj_status pj_meter_baseline(pj_meter *meter, int64_t duration_ns, pj_baseline *baseline,
                            pj_error *err)
{
    pj_curve *curves[PJ_MAX_RAILS] = {0};
    pj_reading discarded[64];
    pj_busy before, after;
    while (pj_meter_read(meter, discarded, 64) > 0) {
    }
    pj_status status = new_curves(meter, curves, err);
    if (status != PJ_OK) goto done;
    pj_busy_get(&meter->env, &before);
    int64_t begin = pj_clock_ns(), end = begin + duration_ns;
    pj_meter_want(meter, begin);
    status = listen_while_quiet(meter, curves, &before, begin, &end, err);
    if (status != PJ_OK) goto done;
    pj_busy_get(&meter->env, &after);
    pj_meter_want(meter, end);
    status = listen_until(meter, curves, end + pj_meter_settle_ns(meter), err);
    if (status == PJ_OK) status = finish_curves(meter, curves, err);
    if (status == PJ_OK)
        pj_baseline_compute((const pj_curve *const *)curves, meter->rail_count, begin, end,
                            pj_busy_share(&before, &after), baseline);
done:
    free_curves(meter, curves);
    return status;
}
