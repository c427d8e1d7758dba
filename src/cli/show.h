/* Prints a stored run for people. */
#ifndef PJ_CLI_SHOW_H
#define PJ_CLI_SHOW_H

#include "cli/show_table.h"
#include "insight/advice.h"
#include "insight/insight.h"

/* A run with what is shown of it; an overview shows everything but the layers. */
typedef struct pj_show_run {
    pj_run_data data; /* phases, warnings, or tokens */
    pj_section_sum *sections;
    pj_run_insight insight;
    pj_component_sum *components;
    pj_layer_sum *layers;
    uint32_t section_count, component_count, layer_count;
} pj_show_run;

/* `limit`: of rows; a line says how many are hidden. */
void pj_show_overview(const pj_show_run *run, const pj_cost_rates *rates);
/* A run that waits for its recovery, by what its spool begins with. */
void pj_show_interrupted(const pj_run_info *info);
void pj_show_phases(const pj_show_run *run);
void pj_show_layers(const pj_show_run *run, uint32_t limit);
void pj_show_components(const pj_show_run *run, uint32_t limit);
void pj_show_tokens(const pj_run_data *run, uint32_t limit);
void pj_show_hidden(uint32_t count, uint32_t limit);
void pj_show_sparkline(const pj_run_data *run);
void pj_show_heatmap(const pj_heatmap *map, pj_metric metric);
void pj_show_advice(const pj_advice_list *advice);   /* every recommendation in full */
void pj_show_findings(const pj_advice_list *advice); /* the three most important, one line each */

/* Components or operations one by one. Start from a choice and a limit. */
typedef struct pj_show_parts {
    const pj_view_choice *choice;
    uint32_t limit, count;
    pj_show_table table;
} pj_show_parts;
void pj_show_part(void *parts, const pj_part_figures *part);

#endif
