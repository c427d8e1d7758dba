/* Experiments as JSON, from the store alone. Forms: docs/api.md, "Experiments". */
#ifndef PJ_EXPERIMENT_EXPERIMENT_VIEW_H
#define PJ_EXPERIMENT_EXPERIMENT_VIEW_H

#include "base/ids.h"
#include "base/json.h"
#include "store/store.h"

typedef struct pj_experiment_progress {
    uint32_t done, total; /* runs; total: as many as there can be */
    uint32_t block, cell;
    char name[96];           /* of the cell */
    double joules_per_token; /* of the run that ended; NAN: unknown, or none has */
    double left_s;           /* estimated from the pace so far; NAN: unknown */
} pj_experiment_progress;

/* Progress of an experiment that is running or queued on a server. */
typedef struct pj_experiment_live {
    const char *state;               /* "queued" or "running"; NULL: neither */
    char run_id[PJ_UUID_BYTES];      /* of the run in progress; "": none */
    pj_experiment_progress progress; /* of a running one */
} pj_experiment_live;

/* Fills in the progress of the experiment of that name. */
typedef void pj_experiment_live_fn(void *context, const char *name, pj_experiment_live *live);

/* `live` NULL: nothing is running. */
pj_status pj_view_experiments(pj_store *store, pj_experiment_live_fn *live, void *context,
                              pj_json *json, pj_error *err);
pj_status pj_view_experiment(pj_store *store, const char *name, const pj_experiment_live *live,
                             pj_json *json, pj_error *err);

#endif
