/* The conditions that a report states: what temperature, clocks, load and throttling its runs had.
 */
#ifndef PJ_REPORT_REPORT_CONDITIONS_H
#define PJ_REPORT_REPORT_CONDITIONS_H

#include "report/document.h"
#include "store/store.h"

#include <jansson.h>

/* Of one run: means by device; NULL or no object: nothing is written. */
void pj_report_conditions(pj_document *d, const char *title, const json_t *conditions);
/* Of all runs of an experiment's cells: the machines, and the range of the runs' means by device.
 */
void pj_report_experiment_conditions(pj_document *d, pj_store *store, const json_t *view);

#endif
