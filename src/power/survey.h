/* All sources on this machine: state with reason and remedy, and for working ones their rails with
 * present readings. Printed by `perjoule sensors` and the API's sensors route. */
#ifndef PJ_POWER_SURVEY_H
#define PJ_POWER_SURVEY_H

#include "base/json.h"
#include "power/meter.h"

typedef struct pj_survey_rail {
    pj_rail rail;
    double power_mw; /* mean over the listening time, NAN: no reading */
    pj_rail_contact contact;
    int log; /* index of the rail whose log shapes this counter's energy, -1: none */
} pj_survey_rail;

typedef struct pj_survey_source {
    const pj_power_source *source;
    pj_source_report report;
    bool in_use;                             /* read by the caller's meter (pj_survey_options) */
    char disagreement[PJ_SOURCE_TEXT_BYTES]; /* warnings from opening it, "" for none */
    char still[256]; /* names of rails that were left out because they stand still, "" for none */
    uint32_t rail_count;
    pj_survey_rail rails[PJ_MAX_RAILS];
} pj_survey_source;

typedef struct pj_survey_options {
    const pj_power_env *env; /* NULL: from the environment */
    int64_t listen_ns;       /* in addition to what the sensors need */
    bool until_shown;        /* no longer than until every rail has shown a power */
    /* A --power list, and the names of the sources that the caller's open meter reads of it
     * (pj_meter_sources; NULL: there is no meter). Those, or all that the list names, are opened
     * with its arguments, also if they are used only when named. */
    const char *power, *used;
} pj_survey_options;

/* Probes all sources, opens those that work (including the estimate, which models this machine) and
 * reads them concurrently. Allocates *sources (pj_free). */
pj_status pj_survey(const pj_survey_options *options, pj_survey_source **sources, uint32_t *count,
                    pj_error *err);
/* What a rail's figures are made of: "counter every 100.000 ms on a grid, shape from the
 * driver's log of 20 ms, a read takes 2.6 ms (median 2.7, p95 8.1), ...". Returns `text`. */
const char *pj_survey_made_of(const pj_survey_source *source, uint32_t rail, char *text,
                              size_t bytes);
/* Why the rails in `still` are left out, a phrase for after their names. */
extern const char pj_survey_still_reason[];
/* "ready", "optional", "denied", "absent". */
const char *pj_source_state_name(pj_source_state state);
/* Writes the array of sources described in docs/api.md; `in_use` only where `options` names a
 * meter. */
void pj_survey_json(const pj_survey_options *options, const pj_survey_source *sources,
                    uint32_t count, pj_json *json);

#endif
