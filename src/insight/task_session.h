/* A session: the runs and requests of one task of an agent, and their sums. Pure. */
#ifndef PJ_INSIGHT_TASK_SESSION_H
#define PJ_INSIGHT_TASK_SESSION_H

#include "trace/run_data.h"

typedef struct pj_task_session {
    const char *id;
    uint32_t runs;
    uint32_t inside; /* of those inside a program's run, whose energy is in that one already */
    int64_t begin_ns, end_ns; /* wall time of the first begin and of the last end */
    uint64_t input_tokens, output_tokens;
    double mj, sd_mj; /* NAN: the energy of a run is unknown; errors are added up as if common */
    bool modelled, partial;
    double tool_calls;      /* NAN: of no run known */
    uint32_t calling_runs;  /* whose answers call tools */
    double calling_mj;      /* of these, without runs whose energy is unknown */
    double thinking_tokens; /* NAN: no run has marks */
} pj_task_session;

/* The session that a run belongs to; NULL: none. Not copied. */
const char *pj_run_session_id(const pj_run_info *run);
void pj_task_session_of(const char *id, const pj_run_info *const *runs, uint32_t count,
                        pj_task_session *session);

#endif
