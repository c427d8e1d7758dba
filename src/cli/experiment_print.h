/* Prints the result of an experiment. */
#ifndef PJ_CLI_EXPERIMENT_PRINT_H
#define PJ_CLI_EXPERIMENT_PRINT_H

#include "experiment/experiment_view.h"

void pj_experiment_print(const pj_experiment_result *result);

#endif
