/* The result of an experiment as text, from its JSON (docs/api.md, "Experiments"). */
#ifndef PJ_CLI_EXPERIMENT_PRINT_H
#define PJ_CLI_EXPERIMENT_PRINT_H

#include <jansson.h>

void pj_experiment_print(const json_t *view);

#endif
