/* Fits a command's output to the terminal's width. */
#ifndef PJ_CLI_FOLD_H
#define PJ_CLI_FOLD_H

#include <stdbool.h>
#include <stdio.h>

/* Collects what is written to `stream` (stdout or stderr) from now on; pj_fold_end prints it. Does
 * nothing in a pipe or file, nor while another stream is collected. Not around live output. */
void pj_fold_begin(FILE *stream);
/* The same for a command whose lines come slowly: each is printed as soon as it is complete. */
void pj_fold_lines_begin(FILE *stream);
/* Ends either; may be called without. Says so when rows of fold_lines were truncated. */
void pj_fold_end(void);

/* A message on standard error; continues on further lines where the terminal is narrow. */
__attribute__((format(printf, 1, 2))) void pj_say(const char *format, ...);
/* Rewrites the terminal's current line with one that is live, truncated to its width. */
__attribute__((format(printf, 2, 3))) void pj_live_line(FILE *terminal, const char *format, ...);

#endif
