/* Prints a table of runs (insight/run_table.h). */
#ifndef PJ_CLI_RUNS_TABLE_H
#define PJ_CLI_RUNS_TABLE_H

#include "base/json.h"
#include "insight/run_table.h"

/* Markdown; on a terminal that is too narrow without what the name of a model tells. */
void pj_runs_table_print(const pj_run_table *table);
pj_status pj_runs_table_csv(const pj_run_table *table, pj_error *err);
void pj_runs_table_write(const pj_run_table *table, pj_json *json); /* an array of rows */

#endif
