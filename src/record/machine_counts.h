/* Figures of a run that the machine itself counts, as differences between its begin and end: bytes
 * of memory traffic, and energy of this process. */
#ifndef PJ_RECORD_MACHINE_COUNTS_H
#define PJ_RECORD_MACHINE_COUNTS_H

#include "record/session.h"
#include "trace/run_data.h"

typedef struct pj_machine_counts {
    double read_bytes, written_bytes, process_mj; /* NAN: not counted here */
} pj_machine_counts;

pj_machine_counts pj_machine_counts_get(pj_session *session);
/* Sets the figures of the run since `begin`, unless they are set already. */
void pj_machine_counts_tell(pj_session *session, const pj_machine_counts *begin, pj_run_info *info);

#endif
