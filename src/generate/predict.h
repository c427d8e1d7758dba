/* Predictions for a model from the runs of this machine. Form of the JSON: docs/api.md. */
#ifndef PJ_GENERATE_PREDICT_H
#define PJ_GENERATE_PREDICT_H

#include "base/json.h"
#include "insight/known_runs.h"
#include "store/store.h"

typedef struct pj_predict_query {
    const char *model;  /* as -m; NULL: the demo model */
    const char *models; /* folder of models, NULL: the usual one */
    const char *dtype;  /* NULL: as stored */
    uint32_t input, output, batch;
    bool map; /* also a map over the range of lengths in the data */
} pj_predict_query;

enum { PJ_MAP_LENGTHS = 16 };

/* Energy per output token over input and output lengths: powers of two between the shortest and
 * the longest in the data. */
typedef struct pj_length_map {
    uint32_t inputs[PJ_MAP_LENGTHS], outputs[PJ_MAP_LENGTHS], input_count, output_count;
    double joules[PJ_MAP_LENGTHS][PJ_MAP_LENGTHS]; /* by input, output; NAN: not predicted */
    uint32_t least_input, least_output;            /* 0: none of them is predicted */
    double least;
} pj_length_map;

typedef struct pj_request_prediction {
    pj_predict_query request;
    char path[4096]; /* of the model */
    pj_known_runs known;
    pj_prediction figures; /* NAN with a refusal; its nearest runs are indices into `known` */
    double joules_per_token;
    char refusal[320]; /* why nothing is predicted; "": predicted */
    pj_length_map map; /* if requested */
} pj_request_prediction;

pj_status pj_request_predict(pj_store *store, const pj_predict_query *request,
                             pj_request_prediction *p, pj_error *err);
void pj_request_prediction_fini(pj_request_prediction *p); /* also after a failure */
void pj_request_prediction_write(const pj_request_prediction *p, pj_json *json);

/* Both at once. Without enough data the figures are null and `refusal` is the reason. */
pj_status pj_insight_predict(pj_store *store, const pj_predict_query *request, pj_json *json,
                             pj_error *err);

#endif
