/* A session: the runs and requests of one task of an agent, or of one commit that gates measured,
 * and their sums. */
#ifndef PJ_INSIGHT_TASK_SESSION_H
#define PJ_INSIGHT_TASK_SESSION_H

#include "base/json.h"
#include "store/store.h"
#include "trace/run_data.h"

/* Begins the tag of runs that a gate made of one commit, as PJ_TAG_SESSION does for a task. */
#define PJ_TAG_COMMIT "commit="

/* What follows such a beginning in a run's tags; NULL: no tag has it. Not copied. */
const char *pj_run_tagged(const pj_run_info *run, const char *begins);

typedef struct pj_task_session {
    const char *id;
    uint32_t runs;
    uint32_t inside; /* of those inside a program's run, whose energy is in that one already */
    /* Of those whose sensors saw the machine while another's did: of that time one counts. */
    uint32_t overlapping;
    int64_t begin_ns, end_ns; /* wall time of the first begin and of the last end */
    uint64_t input_tokens, output_tokens;
    double mj, sd_mj; /* NAN: that of no run is known; errors are added up as if common */
    uint32_t unknown; /* runs without an energy, which are not in it: the session's is partial */
    bool modelled, partial;
    double tool_calls;      /* NAN: of no run known */
    uint32_t calling_runs;  /* whose answers call tools */
    double calling_mj;      /* of these, without runs whose energy is unknown */
    double thinking_tokens; /* NAN: no run has marks */
} pj_task_session;

/* Pure; sorts the runs. */
void pj_task_session_of(const char *id, const pj_run_info **runs, uint32_t count,
                        pj_task_session *session);
double pj_task_session_per(double mj, double count); /* NAN: count is 0 or unknown */

/* Sessions in the order of their last run. */
typedef struct pj_task_sessions {
    pj_run_list list;         /* their runs, and those without a session */
    pj_task_session *entries; /* ids are in the list */
    uint32_t count;
} pj_task_sessions;

typedef struct pj_task_query {
    const char *begins; /* what sessions are told apart by: PJ_TAG_SESSION or PJ_TAG_COMMIT */
    const char *id;     /* only this one; NULL: those among the newest runs */
} pj_task_query;

/* No session named `id` is a failure. */
pj_status pj_task_sessions_get(pj_store *store, const pj_task_query *query,
                               pj_task_sessions *sessions, pj_error *err);
void pj_task_sessions_fini(pj_task_sessions *sessions); /* also after a failure */

/* The members of one as JSON, within an object; `by` names the first: "session" or "commit". */
void pj_task_session_write_members(const pj_task_session *session, const char *by, pj_json *json);
/* The answer of /sessions: an array. `by` NULL: "session". */
pj_status pj_insight_sessions(pj_store *store, const char *by, const char *id, pj_json *json,
                              pj_error *err);

#endif
