/* Playing a recording from a later moment, used by the meter. */
#ifndef PJ_POWER_REPLAY_SOURCE_H
#define PJ_POWER_REPLAY_SOURCE_H

#include "power/source.h"

/* What the recording's first `duration_ns` hold, as if it had been played until now; it goes on
 * from there. `take` gets the readings in their order; their rails are the source's. Does nothing
 * once it is being played. Call it while the meter is stopped. */
pj_status pj_replay_skip(void *state, int64_t duration_ns,
                         pj_status (*take)(void *context, const pj_reading *reading, pj_error *err),
                         void *context, pj_error *err);

#endif
