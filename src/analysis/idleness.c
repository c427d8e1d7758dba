/* Keeping a model loaded or loading it again. */
#include "analysis/idleness.h"

#include <math.h>

void pj_idleness_judge(const pj_moments *load_mj, const pj_moments *keep_mw, pj_idleness *r)
{
    *r = (pj_idleness){.load_mj = pj_mean_of(load_mj, false),
                       .keep_mw = pj_mean_of(keep_mw, true),
                       .breakeven_s = NAN,
                       .breakeven = {NAN, NAN}};
    r->keep_is_certain = r->keep_mw.lo > 0; /* false for NAN */
    if (!(r->keep_mw.value > 0) || !(r->load_mj.value > 0)) return;
    if (r->keep_mw.n > 1 && !r->keep_is_certain) return;
    r->breakeven_s = r->load_mj.value / r->keep_mw.value;
    r->breakeven.lo = r->load_mj.lo / r->keep_mw.hi;
    r->breakeven.hi = r->load_mj.hi / r->keep_mw.lo;
}

void pj_idle_history_of(const pj_use_span *spans, size_t count, const pj_idleness *idleness,
                        pj_idle_history *h)
{
    *h = (pj_idle_history){0};
    double keep_mw = idleness->keep_mw.value, limit_ms = idleness->breakeven_s * 1e3;
    double until_ms = count ? spans[0].begin_ms : 0;
    if (isnan(limit_ms)) h->saved_mj = NAN;
    for (size_t i = 0; i < count; i++) {
        double gap_ms = spans[i].begin_ms - until_ms;
        if (gap_ms > 0) h->idle_ms += gap_ms;
        if (gap_ms > limit_ms) { /* it idled up to the limit, and was loaded again */
            h->unloads++;
            h->saved_mj += keep_mw * (gap_ms - limit_ms) / 1e3 - idleness->load_mj.value;
        }
        until_ms = fmax(until_ms, spans[i].end_ms);
    }
    h->whole_ms = count ? until_ms - spans[0].begin_ms : 0;
}
