/* Predictions for a model from the runs of this machine. Form of the JSON: docs/api.md. */
#ifndef PJ_GENERATE_PREDICT_H
#define PJ_GENERATE_PREDICT_H

#include "base/json.h"
#include "store/store.h"

typedef struct pj_predict_ask {
    const char *model;  /* as -m; NULL: the demo model */
    const char *models; /* folder of models, NULL: the usual one */
    const char *dtype;  /* NULL: as stored */
    uint32_t input, output, batch;
    bool map; /* also a map over the range of lengths in the data */
} pj_predict_ask;

/* Without enough data the figures are null and `refusal` is the reason. */
pj_status pj_insight_predict(pj_store *store, const pj_predict_ask *ask, pj_json *json,
                             pj_error *err);

#endif
