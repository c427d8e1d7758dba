/* Compares a run with the prediction from earlier runs and with published figures. JSON:
 * docs/api.md, "summary". */
#ifndef PJ_INSIGHT_OUTLOOK_H
#define PJ_INSIGHT_OUTLOOK_H

#include "base/json.h"
#include "store/store.h"

/* The members `predicted` and `published` of an open object. */
pj_status pj_outlook_write(pj_store *store, const char *id, pj_json *json, pj_error *err);

#endif
