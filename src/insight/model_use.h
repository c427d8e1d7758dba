/* How a run used its model: the experts that its steps read and how evenly they were loaded, the
 * size of its key-value cache and its share of the context. JSON: docs/api.md, "summary". */
#ifndef PJ_INSIGHT_MODEL_USE_H
#define PJ_INSIGHT_MODEL_USE_H

#include "base/json.h"
#include "store/model_use.h"
#include "store/store.h"

/* Share of the context beyond which a run warns about its limit. */
#define PJ_CONTEXT_NEARLY_FULL 0.9

/* NAN: unknown. */
typedef struct pj_context_use {
    double limit;    /* maximum number of positions of the model */
    double longest;  /* positions of the longest sequence, prompt and generated text */
    double share;    /* longest / limit */
    double kv_bytes; /* of keys and values of all sequences at the end */
    double kv_bytes_per_token;
} pj_context_use;

typedef struct pj_expert_use {
    double experts, per_token; /* of a layer; experts 0 or NAN: the model has none */
    double per_step;           /* experts of a layer that a decode step read, mean */
    double per_step_even;      /* the same for a router that draws experts at random */
    double per_prefill;        /* mean of the prefill passes */
    double entropy;            /* routing_entropy_normalised, mean over decode */
    double balance;            /* load_balance, mean over all passes */
} pj_expert_use;

pj_status pj_context_use_get(pj_store *store, const pj_run_info *info, pj_context_use *use,
                             pj_error *err);
pj_status pj_expert_use_get(pj_store *store, const pj_run_info *info, pj_expert_use *use,
                            pj_error *err);

typedef struct pj_model_use {
    pj_context_use context;
    pj_expert_use experts;
    pj_expert_load load;      /* in the arena */
    double variation, unused; /* of the load: deviation over mean, share of unused experts */
} pj_model_use;

static inline bool pj_model_use_has_experts(const pj_model_use *use)
{
    return use->experts.experts > 0;
}

pj_status pj_model_use_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                           pj_model_use *use, pj_error *err);
/* An object: `experts` (null: the model has none) and `context` (null: unknown). */
void pj_model_use_write(const pj_model_use *use, pj_json *json);

#endif
