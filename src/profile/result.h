/* What a finished run gives back to the program that recorded it. */
#ifndef PJ_PROFILE_RESULT_H
#define PJ_PROFILE_RESULT_H

#include "trace/run_data.h"

/* Whether the caller's struct has a size that can be filled. */
pj_status pj_result_check(const pj_result *result, pj_error *err);
/* Fills as much of the caller's struct as it says it has. A run that could not be built (no arena)
 * leaves all energies unavailable. */
void pj_result_fill(pj_result *result, const pj_run_data *data, bool stored);

#endif
