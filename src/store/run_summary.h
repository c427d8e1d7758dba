/* The summary of a run as a JSON object, the same for the command line and the API: the columns of
 * its row (rows.c defines where each is shown), and ratios of them. */
#ifndef PJ_STORE_RUN_SUMMARY_H
#define PJ_STORE_RUN_SUMMARY_H

#include "base/json.h"
#include "trace/summary.h"

/* A complete object, or only its members for an object that the caller continues. `rates` NULL: the
 * defaults. */
void pj_summary_write(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates);
void pj_summary_write_members(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates);

/* A list of names with commas between them, as an array; NULL is an empty one. */
void pj_json_names(pj_json *json, const char *names);

#endif
