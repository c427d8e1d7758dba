/* Gains that a user calibrated against a reference meter: a source's reading divided by the true
 * value, with the relative standard deviation of that figure. Stored one per line in a file of the
 * user ("rapl 1.02 0.01") and applied to the rails of that source. */
#ifndef PJ_POWER_GAIN_H
#define PJ_POWER_GAIN_H

#include "base/error.h"
#include "trace/rail.h"

/* "1.02", "1.02+-0.01" or "1.02±0.01"; *sd becomes relative to the gain, 0 where none is given. */
pj_status pj_gain_parse(const char *text, double *gain, double *sd, pj_error *err);

/* The file perjoule/gains in the user's configuration folder. False: there is no such folder. */
bool pj_gain_path(char *path, size_t bytes);
/* Stores "SOURCE=GAIN" for later runs, replacing that source's entry; the gain "none" removes
 * it. */
pj_status pj_gain_store(const char *assignment, pj_error *err);
/* Sets the stored gains of the rails' sources. An unreadable file changes nothing. */
void pj_gain_apply(pj_rail *rails, uint32_t count);

#endif
