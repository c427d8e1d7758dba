/* A line on the terminal that says how long a command has worked without a word, from one second
 * on: "perjoule check: 3 s". The first thing that the command prints ends it. */
#ifndef PJ_CLI_PATIENCE_H
#define PJ_CLI_PATIENCE_H

#include "base/progress.h"

/* Does nothing unless standard error is a terminal. `name` is kept until the end. */
void pj_patience_begin(const char *name);
void pj_patience_end(void); /* may run twice, and without a begin */
/* Says what is waited for, until the progress is complete: "perjoule run: loading the model, 40 %,
 * 3 s". Both stay valid until the end. */
void pj_patience_for(const char *what, const pj_progress *progress);
/* Something else is shown for now: the line is removed, and comes back after a second. */
void pj_patience_pause(void);

#endif
