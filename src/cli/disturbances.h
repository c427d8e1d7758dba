/* Disturbances of a run as lines of text. */
#ifndef PJ_CLI_DISTURBANCES_H
#define PJ_CLI_DISTURBANCES_H

#include "trace/disturbance.h"

#include <stdio.h>

/* What they cost, and the dearest of them with their causes; nothing if there are none. Each line
 * begins with `first` or `next`. */
void pj_print_disturbances(FILE *out, const pj_run_info *info, const char *first, const char *next);

#endif
