/* Keeps what a command prints within the terminal's width. */
#ifndef PJ_CLI_FOLD_H
#define PJ_CLI_FOLD_H

#include <stdio.h>

/* From here on standard output is collected; pj_fold_end prints it. Does nothing in a pipe or file.
 * Not for commands whose output is watched as it comes. */
void pj_fold_begin(void);
void pj_fold_end(void); /* may run without a beginning */

/* Prints text with no line wider than `width` columns: a row of a table (columns separated by two or
 * more blanks) is cut, a sentence is continued on the next line under its own indentation. JSON is
 * left alone. */
void pj_fold_text(FILE *out, const char *text, int width);

#endif
