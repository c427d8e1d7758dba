/* Prints a comparison. */
#ifndef PJ_CLI_COMPARE_PRINT_H
#define PJ_CLI_COMPARE_PRINT_H

#include "insight/insight.h"

void pj_compare_print(const pj_compared *comparison);

#endif
