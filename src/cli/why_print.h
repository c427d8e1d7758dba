/* Prints why one side costs more than another. */
#ifndef PJ_CLI_WHY_PRINT_H
#define PJ_CLI_WHY_PRINT_H

#include "insight/explained.h"

void pj_why_print(const pj_explained *explained);

#endif
