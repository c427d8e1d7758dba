/* What two devices recorded of the same passes at depth deep. */
#ifndef PJ_TESTS_DEEP_PARITY_H
#define PJ_TESTS_DEEP_PARITY_H

#include "record/run.h"

/* Components equal in order, layer, work, statistics and extras; operations equal in name and
 * parent, in their statistics and extras, but for the differences that docs/engine.md names. */
void assert_same_at_depth_deep(const pj_run_data *cpu, const pj_run_data *gpu, const char *where);

#endif
