/* Detects impossible requests before anything is measured, so that no failed run is stored. */
#ifndef PJ_GENERATE_PREFLIGHT_H
#define PJ_GENERATE_PREFLIGHT_H

#include "generate/generate.h"

/* Reads headers and configurations, no weights; tokenises only prompts that may be too long.
 * Requests that pass may still fail in the engine. */
pj_status pj_profile_preflight(const pj_profile_options *options, pj_error *err);

#endif
