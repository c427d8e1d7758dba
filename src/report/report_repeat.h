/* How to repeat what a report is about: the commands, the version, the instruction set. */
#ifndef PJ_REPORT_REPORT_REPEAT_H
#define PJ_REPORT_REPORT_REPEAT_H

#include "report/document.h"

#include <jansson.h>

void pj_report_repeat_run(pj_document *d, const json_t *run);
/* `view`: of an experiment, with its plan. */
void pj_report_repeat_experiment(pj_document *d, const json_t *view);

#endif
