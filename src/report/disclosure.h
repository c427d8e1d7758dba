/*
 * Energy of inference in the formats of others: CycloneDX 1.7, SPDX 3.0.1, SCI (ISO/IEC 21031) per
 * token, the EU's model documentation form, InferenceX. Runs with equal settings are one
 * measurement. What is unknown is null, or left out where the format has no null.
 */
#ifndef PJ_REPORT_DISCLOSURE_H
#define PJ_REPORT_DISCLOSURE_H

#include "base/json.h"
#include "store/store.h"
#include "trace/summary.h"

typedef enum pj_disclosure_format {
    PJ_DISCLOSURE_CYCLONEDX = 0,
    PJ_DISCLOSURE_SPDX,
    PJ_DISCLOSURE_SCI,
    PJ_DISCLOSURE_EU,
    PJ_DISCLOSURE_INFERENCEX,
    PJ_DISCLOSURE_COUNT
} pj_disclosure_format;

int pj_disclosure_parse(const char *name); /* "cyclonedx", ...; -1: none of them */

/* What the runs do not know. NAN: unknown. */
typedef struct pj_disclosure_terms {
    double g_per_kwh;      /* carbon intensity of the electricity */
    bool g_is_default;     /* nobody gave it */
    double pue;            /* energy of the facility / of the machine */
    double embodied_kg;    /* CO2 equivalent of making the machine, and of disposing of it */
    double lifetime_years; /* over which it is spread */
} pj_disclosure_terms;

typedef struct pj_disclosure_request {
    const char *const *ids; /* runs, or */
    uint32_t count;
    const char *experiment;
    pj_disclosure_format format;
    pj_disclosure_terms terms;
} pj_disclosure_request;

pj_status pj_disclosure_write(pj_store *store, const pj_disclosure_request *request, pj_json *json,
                              pj_error *err);

#endif
