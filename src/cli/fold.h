/* Fits a command's output to the terminal's width. */
#ifndef PJ_CLI_FOLD_H
#define PJ_CLI_FOLD_H

#include <stdio.h>

/* Collects standard output from now on; pj_fold_end prints it. Does nothing in a pipe or file. Not
 * for commands with live output. */
void pj_fold_begin(void);
void pj_fold_end(void); /* may be called without pj_fold_begin */

/* Prints text with no line wider than `width` columns: a table row (columns separated by two or
 * more blanks) is truncated, a sentence continues on the next line with its own indentation. JSON
 * is left unchanged. */
void pj_fold_text(FILE *out, const char *text, int width);

#endif
