/* The result that a finished run returns to the program that recorded it. */
#ifndef PJ_RECORD_RESULT_H
#define PJ_RECORD_RESULT_H

#include "trace/run_data.h"

/* Checks the size member of the caller's struct. */
pj_status pj_result_check(const pj_result *result, pj_error *err);
/* Fills the caller's struct up to its stated size. For a run that could not be built (no arena) all
 * energies are unavailable. */
void pj_result_fill(pj_result *result, const pj_run_data *data, bool stored);

#endif
