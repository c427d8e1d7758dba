/* What describes a command: --help, its man page, a table for shell completions. */
#ifndef PJ_CLI_HELP_H
#define PJ_CLI_HELP_H

#include "cli/options.h"

#include <stdio.h>

void pj_help_print(const pj_command *command, const pj_option *options);
void pj_help_print_man(const pj_command *command, const pj_option *options);
/* For shell completions: name, value name, choices and help, tab-separated. */
void pj_help_print_table(const pj_option *options);
/* The terminal's columns, but at most what reads well. */
int pj_help_width(FILE *out);

#endif
