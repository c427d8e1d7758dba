/* Prints views of a run for people, from the views' JSON (docs/api.md). */
#ifndef PJ_CLI_SHOW_H
#define PJ_CLI_SHOW_H

#include <jansson.h>

void pj_show_overview(const json_t *summary);
void pj_show_phases(const json_t *summary);
void pj_show_layers(const json_t *summary);
void pj_show_components(const json_t *summary);
void pj_show_tokens(const json_t *tokens);
void pj_show_sparkline(const json_t *tokens);
void pj_show_operations(const json_t *operations);
void pj_show_some_components(const json_t *operations); /* of a layer, a token, ... */
void pj_show_heatmap(const json_t *heatmap);
void pj_show_advice(const json_t *advice);   /* every recommendation in full */
void pj_show_findings(const json_t *advice); /* the three most important, one line each */

#endif
