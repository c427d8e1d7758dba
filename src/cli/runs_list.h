/* The list of `perjoule ls`: energy first, as many columns as the terminal has room for. */
#ifndef PJ_CLI_RUNS_LIST_H
#define PJ_CLI_RUNS_LIST_H

#include "base/error.h"
#include "store/store.h"

/* What may be listed, separated by blanks. */
extern const char *const pj_runs_list_columns;

/* `first`: `count` runs in front of the list's. `columns`: names separated by commas; NULL: those
 * that tell the runs apart, as far as they fit. */
pj_status pj_runs_list_print(const pj_run_list *list, const pj_run_info *const *first,
                             uint32_t count, const char *columns, pj_error *err);

#endif
