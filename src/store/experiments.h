/* Plans of experiments, by name. Their runs carry the name, and cell, block and round in settings.
 */
#ifndef PJ_STORE_EXPERIMENTS_H
#define PJ_STORE_EXPERIMENTS_H

#include "store/store.h"

/* Stores a plan (a JSON object), or replaces the one of that name. */
pj_status pj_store_experiment_put(pj_store *store, const char *name, const char *plan,
                                  pj_error *err);
/* The plan and what it costs in quality (experiment/quality.h), in the arena. PJ_E_NOT_FOUND: there
 * is none of that name. */
pj_status pj_store_experiment_get(pj_store *store, const char *name, pj_arena *arena,
                                  const char **plan, const char **quality, pj_error *err);
/* `quality`: a JSON object (column `losses`). */
pj_status pj_store_experiment_set_quality(pj_store *store, const char *name, const char *quality,
                                          pj_error *err);
/* Queues it for the server on `machine`: its state is "queued" until it has ended, even
 * if the server restarts. */
pj_status pj_store_experiment_queue(pj_store *store, const char *name, const char *machine,
                                    pj_error *err);
/* Gives it to `owner` (NULL: to nobody) if it still belongs to `from` ("": to nobody). Of several
 * processes that try, one succeeds; which one, the owner says. */
pj_status pj_store_experiment_claim(pj_store *store, const char *name, const char *from,
                                    const char *owner, pj_error *err);
pj_status pj_store_experiment_owner(pj_store *store, const char *name, char owner[PJ_UUID_BYTES],
                                    pj_error *err);
/* The state it ended with: "completed", "cancelled", or "failed" with a reason. NULL: begun and not
 * ended. */
pj_status pj_store_experiment_set_state(pj_store *store, const char *name, const char *state,
                                        const char *error, pj_error *err);
pj_status pj_store_experiment_get_state(pj_store *store, const char *name, pj_arena *arena,
                                        const char **state, const char **error, pj_error *err);
typedef struct pj_experiment_row {
    const char *name, *plan, *state, *error, *owner; /* the last three NULL: none */
    int64_t created_ns;
} pj_experiment_row;
typedef void pj_experiment_fn(void *context, const pj_experiment_row *row);
/* All, newest first. */
pj_status pj_store_experiment_list(pj_store *store, pj_experiment_fn *take, void *context,
                                   pj_error *err);
/* Those that this machine is to run, in the order in which they were queued. */
pj_status pj_store_experiment_list_queued(pj_store *store, const char *machine,
                                          pj_experiment_fn *take, void *context, pj_error *err);

#endif
