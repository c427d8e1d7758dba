/* Whether one model can be the draft model of another (speculation.h). */
#ifndef PJ_GENERATION_DRAFT_CHECK_H
#define PJ_GENERATION_DRAFT_CHECK_H

#include "engine/generation/engine_internal.h"

/* The error names the reason. `head`: of the target's own head, before it is opened. */
pj_status pj_draft_check_head(const pj_engine *target, pj_error *err);
pj_status pj_draft_check(const pj_engine *target, const pj_engine *draft, pj_error *err);

#endif
