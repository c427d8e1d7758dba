/*
 * What keeping a model loaded costs against loading it again. Keeping costs the power by which the
 * idle machine with the model exceeds the idle machine without it; loading costs its energy. Their
 * ratio is the break-even: a model that idles longer had better been unloaded. Pure.
 */
#ifndef PJ_ANALYSIS_IDLENESS_H
#define PJ_ANALYSIS_IDLENESS_H

#include "analysis/compare.h"
#include "base/estimate.h"

typedef struct pj_idleness {
    pj_mean load_mj, keep_mw; /* n 0: unknown */
    bool keep_is_certain;     /* its interval excludes zero */
    double breakeven_s;       /* NAN: unknown, or keeping is not told from costing nothing */
    pj_bounds breakeven;      /* NAN: fewer than two values of either */
} pj_idleness;

void pj_idleness_judge(const pj_moments *load_mj, const pj_moments *keep_mw, pj_idleness *result);

/* When the model was used: intervals in ms, by their begins; they may overlap. */
typedef struct pj_use_span {
    double begin_ms, end_ms;
} pj_use_span;

typedef struct pj_idle_history {
    double whole_ms, idle_ms; /* from the first begin to the last end */
    uint32_t unloads;         /* gaps longer than the break-even */
    /* by which a server that unloads after the break-even would have used less than one that keeps
     * the model; negative: more. NAN: the break-even is unknown. */
    double saved_mj;
} pj_idle_history;

void pj_idle_history_of(const pj_use_span *spans, size_t count, const pj_idleness *idleness,
                        pj_idle_history *history);

#endif
