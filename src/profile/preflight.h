/* What can be known to be impossible before anything is measured, so that no failed run is stored. */
#ifndef PJ_PROFILE_PREFLIGHT_H
#define PJ_PROFILE_PREFLIGHT_H

#include "profile/generate.h"

/* Reads headers and configurations, no weights; tokenizes only prompts that may be too long. The
 * engine has the last word: what passes here may still fail there. */
pj_status pj_profile_preflight(const pj_profile_options *options, pj_error *err);

#endif
