/* What a run spent between reasoning marks, as text. */
#ifndef PJ_CLI_THINKING_LINE_H
#define PJ_CLI_THINKING_LINE_H

#include "cli/terminal.h"
#include "trace/run_data.h"

/* "80 of 100 tokens in 3.2 s, 12.3 ± 0.4 J, 78 % of the request"; "": no reasoning mark was seen.
 */
pj_text pj_thinking_line(const pj_run_info *info);

#endif
