/* Has an open model answer tasks: what a setting that saves energy costs in quality. */
#ifndef PJ_EXPERIMENT_SCORING_H
#define PJ_EXPERIMENT_SCORING_H

#include "analysis/tasks.h"
#include "engine/generation/engine.h"

/* Writes '1' for each task that is solved and '0' for each other into `outcomes` (`count` + 1
 * bytes). Answers are written greedily; nothing is recorded. `name` (of the file) is for error
 * messages, `cancel` may be NULL. */
pj_status pj_tasks_score(pj_engine *engine, const pj_tasks *tasks, const char *name,
                         const _Atomic bool *cancel, char *outcomes, pj_error *err);

#endif
