/*
 * Splitting the energy of a batch's steps between its sequences. A step reads every weight once for
 * all of them and no sensor measures sequences separately, so the split is a convention
 * (docs/measurement.md):
 *   bytes   net energy of attention over the KV cache in proportion to each sequence's context
 *           length, which is what it read; everything else, idle power included, equally
 *   tokens  in proportion to the tokens that each sequence has in the step
 *   equal   equally between the sequences
 * Prefill is split by prompt length under every rule.
 */
#ifndef PJ_ATTRIBUTION_BATCH_H
#define PJ_ATTRIBUTION_BATCH_H

#include "base/error.h"
#include "trace/run_data.h"

/* On entry the first token row of every shared step holds the energy of the whole step; on return
 * each row has its share, in integer nanojoules that add up to the step. Sets the shares of the
 * rows, and the run's batch_rule to the rule that was applied: `bytes` falls back to `equal` where
 * prompt lengths or the energy of attention are unknown. `planted_idle_mw` is the simulated idle
 * power, NAN: no simulation. */
pj_status pj_batch_share(pj_run_data *data, double planted_idle_mw, pj_error *err);

#endif
