/* The result that a finished run returns to the program that recorded it. */
#ifndef PJ_RECORD_RESULT_H
#define PJ_RECORD_RESULT_H

#include "base/estimate.h"
#include "trace/run_data.h"

#define PJ_NORMAL_95 PJ_Z95 /* half width of a 95 % interval in standard deviations */

static inline pj_joules_mj pj_with_interval(double mj, double sd_mj)
{
    return (pj_joules_mj){mj, mj - PJ_NORMAL_95 * sd_mj, mj + PJ_NORMAL_95 * sd_mj};
}

/* Of gross energy, which is never negative. */
static inline pj_joules_mj pj_gross_with_interval(double mj, double sd_mj)
{
    pj_bounds bounds = pj_bounds_of(mj, PJ_NORMAL_95 * sd_mj);
    return (pj_joules_mj){mj, bounds.lo, bounds.hi};
}

/* Checks the size member of the caller's struct. */
pj_status pj_result_check(const pj_result *result, pj_error *err);
/* Fills the caller's struct up to its stated size. For a run that could not be built (no arena) all
 * energies are unavailable. */
void pj_result_fill(pj_result *result, const pj_run_data *data, bool stored);

#endif
