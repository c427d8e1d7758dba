#include "experiment/experiment_claim.h"

#include "store/experiments.h"

#include <string.h>

pj_status pj_experiment_claim(pj_session *session, pj_store *store, const char *name, pj_error *err)
{
    char owner[PJ_UUID_BYTES];
    const char *self = NULL;
    pj_status status = pj_session_owner(session, &self, err);
    if (status != PJ_OK || !self) return status;
    status = pj_store_experiment_owner(store, name, owner, err);
    if (status == PJ_OK && strcmp(owner, self) != 0 && !pj_session_knows_owner(session, owner)) {
        status = pj_store_experiment_claim(store, name, owner, self, err);
        if (status == PJ_OK) status = pj_store_experiment_owner(store, name, owner, err);
    }
    if (status != PJ_OK || !owner[0] || strcmp(owner, self) == 0) return status;
    return pj_fail(err, PJ_E_STATE,
                   "the experiment %.200s is already queued or running in another"
                   " process that uses this database",
                   name);
}

void pj_experiment_release(pj_session *session, pj_store *store, const char *name)
{
    const char *self = NULL;
    if (pj_session_owner(session, &self, NULL) == PJ_OK && self)
        pj_store_experiment_claim(store, name, self, NULL, NULL);
}
