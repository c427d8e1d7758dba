/* An experiment is run by one process at a time, of all that use its database on this machine. */
#ifndef PJ_EXPERIMENT_CLAIM_H
#define PJ_EXPERIMENT_CLAIM_H

#include "record/session.h"

/* Makes this process the owner of a stored experiment; does nothing when there is none of that
 * name. PJ_E_STATE: another process is, and lives. */
pj_status pj_experiment_claim(pj_session *session, pj_store *store, const char *name,
                              pj_error *err);
void pj_experiment_release(pj_session *session, pj_store *store, const char *name);

#endif
