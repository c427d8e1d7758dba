/* Text that is broken between words to fit a width. */
#ifndef PJ_CLI_WRAP_H
#define PJ_CLI_WRAP_H

#include <stdio.h>

/* Wraps text at `width` columns; the first line begins at column `at`, the others at `indent`.
 * Empty lines, and the line breaks of indented lines (examples), are kept. Ends the line. */
void pj_print_wrapped(FILE *out, const char *text, int at, int indent, int width);
/* Columns of a text on the screen: without styles, and with one for each character of UTF-8. */
int pj_columns_of(const char *text, int bytes);

#endif
