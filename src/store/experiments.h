/* Plans of experiments, by name. Their runs carry the name, and cell, block and round in settings.
 */
#ifndef PJ_STORE_EXPERIMENTS_H
#define PJ_STORE_EXPERIMENTS_H

#include "store/store.h"

/* Stores a plan (a JSON object), or replaces the one of that name. */
pj_status pj_store_experiment_put(pj_store *store, const char *name, const char *plan,
                                  pj_error *err);
/* The plan and the losses, in the arena. PJ_E_NOT_FOUND: there is none of that name. */
pj_status pj_store_experiment_get(pj_store *store, const char *name, pj_arena *arena,
                                  const char **plan, const char **losses, pj_error *err);
/* `losses`: a JSON object by cell. */
pj_status pj_store_experiment_set_losses(pj_store *store, const char *name, const char *losses,
                                         pj_error *err);
typedef void pj_experiment_fn(void *context, const char *name, int64_t created_ns,
                              const char *plan);
pj_status pj_store_experiment_list(pj_store *store, pj_experiment_fn *take, void *context,
                                   pj_error *err);

#endif
