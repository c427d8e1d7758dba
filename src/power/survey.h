/*
 * Every source there is on this machine: its state with reason and remedy, and for those that work
 * their rails with what they show now. What `perjoule sensors` and the API's sensors route print.
 */
#ifndef PJ_POWER_SURVEY_H
#define PJ_POWER_SURVEY_H

#include "base/json.h"
#include "power/meter.h"

typedef struct pj_survey_rail {
    pj_rail rail;
    double power_mw; /* mean of the listening time, NAN: nothing came */
} pj_survey_rail;

typedef struct pj_survey_source {
    const pj_power_source *source;
    pj_source_report report;
    bool in_use;                             /* the one who asks reads it (pj_survey_options) */
    char disagreement[PJ_SOURCE_TEXT_BYTES]; /* warnings of the opening, "" for none */
    uint32_t rail_count;
    pj_survey_rail rails[PJ_MAX_RAILS];
} pj_survey_source;

typedef struct pj_survey_options {
    const pj_power_env *env; /* NULL: from the environment */
    int64_t listen_ns;       /* beyond what the sensors need */
    /* Of the meter that the one who asks has open, if any: its --power list and the names of the
     * sources it reads (pj_meter_sources). They are opened with the arguments of that list, also
     * those that are used only when named. */
    const char *power, *used;
} pj_survey_options;

/* Probes all sources, opens those that work (the estimate too, which is a model of this machine)
 * and listens to them together. Allocates *sources (pj_free). */
pj_status pj_survey(const pj_survey_options *options, pj_survey_source **sources, uint32_t *count,
                    pj_error *err);
/* "ready", "optional", "denied", "absent". */
const char *pj_source_state_name(pj_source_state state);
/* The array of sources as docs/api.md says; `in_use` only where `options` names a meter. */
void pj_survey_json(const pj_survey_options *options, const pj_survey_source *sources,
                    uint32_t count, pj_json *json);

#endif
