/* Commands that reproduce the subject of a report, with comments. Private to report*.c. */
#ifndef PJ_REPORT_REPORT_REPEAT_H
#define PJ_REPORT_REPORT_REPEAT_H

#include "base/buffer.h"

#include <jansson.h>

/* Appends lines. `view`: a run's summary, a comparison or an experiment. */
void pj_report_repeat(const json_t *view, pj_buffer *out);

#endif
