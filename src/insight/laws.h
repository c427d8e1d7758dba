/* How energy per token follows size, shape, batch and length in this machine's runs, by power laws
 * over runs that are equal in everything else. Form of the JSON: docs/api.md. */
#ifndef PJ_INSIGHT_LAWS_H
#define PJ_INSIGHT_LAWS_H

#include "base/json.h"
#include "store/store.h"

/* `machine` NULL: this one. A law that the runs do not support has a refusal instead of figures. */
pj_status pj_insight_laws(pj_store *store, const char *machine, pj_json *json, pj_error *err);

#endif
