/* The place of a run in an experiment (profile/experiment.h), kept in the run's settings. */
#ifndef PJ_PROFILE_PLACE_H
#define PJ_PROFILE_PLACE_H

#include "base/json.h"
#include "trace/run_data.h"

typedef struct pj_profile_place {
    uint32_t cell, block, round;
} pj_profile_place;

/* Members of the settings' object; nothing for NULL. */
void pj_profile_place_write(const pj_profile_place *place, pj_json *json);
/* False: the run belongs to no cell of any plan. */
bool pj_profile_place_of(const pj_run_info *info, pj_profile_place *place);

#endif
