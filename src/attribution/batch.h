/*
 * Sharing the energy of a batch's steps between its sequences. A step reads every weight once for all
 * of them, and nothing measures one sequence apart, so the split is a rule (docs/measurement.md names
 * them):
 *   bytes   net energy of attention over the cached keys and values by the length of each sequence's
 *           context, which is what it read; everything else, idle power included, equally
 *   tokens  by the tokens that each sequence has in the step
 *   equal   equally between the sequences
 * Prefill goes by the length of each prompt under every rule.
 */
#ifndef PJ_ATTRIBUTION_BATCH_H
#define PJ_ATTRIBUTION_BATCH_H

#include "base/error.h"
#include "trace/run_data.h"

/* The first token row of every shared step holds the energy of the whole step; afterwards each row
 * has its share, in whole nanojoules that add up to the step. Sets the shares of the rows and the
 * run's batch_rule to the rule that was applied: `bytes` falls back to `equal` where prompt lengths
 * or the energy of attention are not known. `planted_idle_mw` is the simulated idle power, NAN:
 * nothing is simulated. */
pj_status pj_batch_share(pj_run_data *data, double planted_idle_mw, pj_error *err);

#endif
