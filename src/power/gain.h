/*
 * Gains that a user calibrated against a meter: what a source reads divided by what is true, with
 * the relative standard deviation of that figure. Kept one per line in a file of the user's
 * ("rapl 1.02 0.01") and applied to the rails of that source.
 */
#ifndef PJ_POWER_GAIN_H
#define PJ_POWER_GAIN_H

#include "base/error.h"
#include "trace/rail.h"

/* "1.02", "1.02+-0.01" or "1.02±0.01"; *sd becomes relative to the gain, 0 where none is given. */
pj_status pj_gain_parse(const char *text, double *gain, double *sd, pj_error *err);

/* The file: PERJOULE_GAINS, else perjoule/gains in the user's folder of configurations. False:
 * there is no such folder. */
bool pj_gain_path(char *path, size_t bytes);
/* Remembers "SOURCE=GAIN" for later runs, in place of what was known of that source; a gain of
 * "none" forgets it. */
pj_status pj_gain_store(const char *assignment, pj_error *err);
/* Puts what is known of their sources into rails. A file that cannot be read changes nothing. */
void pj_gain_apply(pj_rail *rails, uint32_t count);

#endif
