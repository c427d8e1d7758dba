/* Shared helpers of the views: the run being shown, rows as JSON, sums of a run. */
#ifndef PJ_STORE_VIEW_H
#define PJ_STORE_VIEW_H

#include "store/aggregate.h"
#include "store/rows.h"
#include "store/sql.h"
#include "store/views.h"
#include "trace/phases.h"

typedef struct pj_run_view {
    pj_store *store;
    pj_json *json;
    pj_run_list one;
    const pj_run_info *info;
    pj_row_range ranges[PJ_TABLE_COUNT];
} pj_run_view;

pj_status pj_view_open(pj_run_view *view, pj_store *store, const char *id, pj_json *json,
                       pj_error *err);
/* Also after a failed open; returns `status`. */
pj_status pj_view_close(pj_run_view *view, pj_status status);

/* pj_select_rows of the run's rows. */
pj_sql *pj_view_select(pj_run_view *view, pj_table_id table, const char *columns, const char *rest,
                       pj_error *err);
/* Writes run_id, energy_source, and method if requested: the head of every chart. */
void pj_view_head(pj_run_view *view, bool method);
/* PJ_ENERGY_COLUMNS from `column` on */
void pj_json_kv_energies(pj_json *json, pj_sql *sql, int column);
#define PJ_ENERGY_COLUMNS                                                           \
    "energy_mj, net_energy_mj, self_energy_mj, energy_sd_mj, planted_mj, method,"   \
    " net_energy_sd_mj, energy_sd_random_mj, energy_sd_bias_mj, energy_sd_gain_mj," \
    " net_energy_sd_bias_mj, net_energy_sd_gain_mj, energy_upper_mj, unavailable_reason"
enum { PJ_ENERGY_COLUMN_COUNT = 14 };
/* PJ_DISTURBED_COLUMNS from `column` on */
void pj_json_kv_disturbed(pj_json *json, pj_sql *sql, int column);
#define PJ_DISTURBED_COLUMNS "disturbed_ms, disturbed_energy_mj, disturbed_net_energy_mj"
enum { PJ_DISTURBED_COLUMN_COUNT = 3 };

/* Begins reading a stored chart, which the caller ends; *bytes NULL: there is none. */
pj_sql *pj_chart_begin(pj_store *store, const char *id, const char *chart, const char **bytes,
                       size_t *count, pj_error *err);
pj_status pj_view_load_nodes(pj_run_view *view, pj_sum_nodes *nodes, pj_error *err);

/* Writes all columns of a row as members of an object: "id" (index in the run), then the table's
 * columns, read from column 0 (id) of a "SELECT id, columns" in their order. */
void pj_row_write_members(pj_json *json, pj_sql *sql, pj_table_id id, const pj_row_range *ranges);
/* One of its values, of a column of the table. */
void pj_row_write_value(pj_json *json, pj_sql *sql, int column, const pj_column *what,
                        const pj_row_range *ranges);

pj_status pj_view_write_phases(pj_run_view *view, const pj_view_window *window, bool sections,
                               pj_error *err);

/* Statistic over the rows of a node, or metric of a node; NAN: unavailable. */
double pj_node_statistic(const pj_sum_node *node, pj_statistic statistic);
/* *phase is -1 for any; fails for an unknown name. */
pj_status pj_view_choose_phase(const pj_view_choice *choice, int *phase, pj_error *err);

#endif
