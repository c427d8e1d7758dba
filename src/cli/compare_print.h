/* The comparison of runs or groups as text, from its JSON (docs/api.md, "Comparison"). */
#ifndef PJ_CLI_COMPARE_PRINT_H
#define PJ_CLI_COMPARE_PRINT_H

#include <jansson.h>

void pj_compare_print(const json_t *view);

#endif
