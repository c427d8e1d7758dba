/* The conditions of a run as text: one line per device. */
#ifndef PJ_CLI_CONDITIONS_LINE_H
#define PJ_CLI_CONDITIONS_LINE_H

#include <stddef.h>

/* Formats the summary's object of conditions (JSON text), with `between` between devices; "" when
 * it is empty. */
void pj_conditions_line(const char *conditions_json, const char *between, char *text, size_t bytes);

#endif
