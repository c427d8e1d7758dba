/* What `run` says first: joules per token, tokens per second, the parts, and at most a dozen lines
 * more. Everything else is in run_report.h and in `perjoule show`. */
#ifndef PJ_CLI_RUN_ANSWER_H
#define PJ_CLI_RUN_ANSWER_H

#include "cli/run_report.h"

/* Joules per token with their interval, tokens per second: two lines, wrapped at the width of
 * `out`. */
void pj_run_answer_print_headline(FILE *out, const pj_run_data *data);
void pj_run_answer_print(FILE *out, const pj_run_data *data);
/* "demo bf16, avx512 kernels, 2 threads, depth module, completed"; the kernels only if wanted. */
void pj_run_settings_text(const pj_run_data *data, bool with_kernels, char *text, size_t bytes);
/* The same for repeated runs: means over them. `last` is one of them, for what they share. */
void pj_series_answer_print(FILE *out, const pj_series *series, const pj_run_data *last);

#endif
