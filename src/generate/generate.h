/* A profiled run of perjoule's own engine, from prompt to finished run: shared by `run`, the server
 * and the benchmarks. The model stays open in a slot, so that the next run of the same model does
 * not reload it. */
#ifndef PJ_GENERATE_GENERATE_H
#define PJ_GENERATE_GENERATE_H

#include "generate/model_slot.h"
#include "record/experiment_cell.h"
#include "record/run.h"
#include "trace/generation_request.h"

typedef struct pj_profile_result {
    pj_generate_result generated;
    pj_run_data data; /* the finished run; empty when it could not be built */
    char run_id[PJ_UUID_BYTES];
    pj_run_status run_status;
    bool stored;
} pj_profile_result;

typedef struct pj_profile_options {
    pj_engine_options engine;
    /* The generation request. Its context is that of all callbacks; `run`, `without` and
     * `in_pre_inference` are set by the run. */
    pj_generate_request request;
    bool sampling_from_model; /* take the model's defaults instead of request.sampling */
    pj_batch_rule batch_rule; /* how the energy of shared steps is split between sequences */
    pj_depth depth;
    const char *const *tags; /* NULL-terminated, or NULL */
    const char *experiment_name;
    const char *settings_json; /* settings as requested; NULL: made from these options */
    const char *repeat_group;  /* "": first run of a new group; NULL: no group */
    uint32_t repeat_index;
    uint32_t warmup;                   /* number of unrecorded runs before this one */
    const pj_experiment_cell *cell_id; /* NULL: not part of an experiment */
    const char *ablate; /* a part of the model to leave out (engine/model/ablation.h), or NULL */
    const char *run_id; /* a UUIDv7 assigned when the run was queued; NULL: a new one */
    void (*on_run)(void *context, const char *run_id); /* the run has begun; or NULL */
    /* The figures are known and not yet stored; or NULL. */
    void (*on_result)(void *context, const pj_profile_result *result);
} pj_profile_options;

/* Copies everything in a request except its prompt into options. Texts and lists are borrowed from
 * the request, which must outlive the options. The sampling must still pass pj_sampling_check. */
void pj_profile_options_set(pj_profile_options *options, const pj_generation_request *request);

/* Runs it. The result is filled as far as possible whatever the status; the caller must finish it.
 * PJ_E_CANCELLED: the run was cancelled and stored. Failure to store the run is returned as well,
 * unless an earlier step failed. */
pj_status pj_profile_generate(pj_session *session, pj_model_slot *slot,
                              const pj_profile_options *options, pj_profile_result *result,
                              pj_error *err);
void pj_profile_result_fini(pj_profile_result *result); /* may run twice */

/* The same generation without recording a run; for --depth off and the benchmarks. */
pj_status pj_profile_bare(pj_model_slot *slot, const pj_profile_options *options,
                          pj_generate_result *result, pj_error *err);

#endif
