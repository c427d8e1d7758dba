/*
 * Energy of inference in the formats of others: CycloneDX 1.7, SPDX 3.0.1, SCI (ISO/IEC 21031) per
 * token, the EU's model documentation form, InferenceX. Runs with equal settings are one
 * measurement. What is unknown is null, or left out where the format has no null.
 */
#ifndef PJ_REPORT_EXCHANGE_H
#define PJ_REPORT_EXCHANGE_H

#include "base/json.h"
#include "store/store.h"
#include "trace/summary.h"

typedef enum pj_exchange_format {
    PJ_EXCHANGE_CYCLONEDX = 0,
    PJ_EXCHANGE_SPDX,
    PJ_EXCHANGE_SCI,
    PJ_EXCHANGE_EU,
    PJ_EXCHANGE_INFERENCEX,
    PJ_EXCHANGE_COUNT
} pj_exchange_format;

int pj_exchange_parse(const char *name); /* "cyclonedx", ...; -1: none of them */

/* What the runs do not know. NAN: unknown. */
typedef struct pj_exchange_terms {
    double g_per_kwh;      /* carbon intensity of the electricity */
    bool g_is_default;     /* nobody gave it */
    double pue;            /* energy of the facility / of the machine */
    double embodied_kg;    /* CO2 equivalent of making the machine, and of disposing of it */
    double lifetime_years; /* over which it is spread */
} pj_exchange_terms;

typedef struct pj_exchange_request {
    const char *const *ids; /* runs, or */
    uint32_t count;
    const char *experiment;
    pj_exchange_format format;
    pj_exchange_terms terms;
} pj_exchange_request;

pj_status pj_exchange_write(pj_store *store, const pj_exchange_request *request, pj_json *json,
                            pj_error *err);

#endif
