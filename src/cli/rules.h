/* What the values of options must be. Each refuses a value, and says why, before the command has
 * opened, started or stored anything; options.c puts the option and the value in front. */
#ifndef PJ_CLI_RULES_H
#define PJ_CLI_RULES_H

#include "base/error.h"

/* Files and folders: to be read, or written. "-" is standard input or output where the rule says
 * so. */
pj_status pj_rule_file(const char *path, pj_error *err);
pj_status pj_rule_file_or_input(const char *path, pj_error *err);
pj_status pj_rule_new_file(const char *path, pj_error *err);
pj_status pj_rule_new_file_or_output(const char *path, pj_error *err);
pj_status pj_rule_folder(const char *path, pj_error *err);
pj_status pj_rule_database(const char *path, pj_error *err);

/* Addresses. */
pj_status pj_rule_server(const char *url, pj_error *err);
pj_status pj_rule_server_or_tls(const char *url, pj_error *err);
pj_status pj_rule_listen(const char *address, pj_error *err);
pj_status pj_rule_host(const char *name, pj_error *err);
pj_status pj_rule_origin(const char *origin, pj_error *err);

pj_status pj_rule_time(const char *text, pj_error *err); /* a date or time */
pj_status pj_rule_age(const char *text, pj_error *err);
pj_status pj_rule_counts(const char *list, pj_error *err);     /* "1,2": whole numbers */
pj_status pj_rule_ids(const char *list, pj_error *err);        /* of tokens */
pj_status pj_rule_assignment(const char *text, pj_error *err); /* "NAME=VALUE" */
pj_status pj_rule_power(const char *list, pj_error *err);      /* sources that exist */
pj_status pj_rule_session(const char *id, pj_error *err);
pj_status pj_rule_bias(const char *text, pj_error *err); /* "ID=NUMBER" of --logit-bias */

/* The variables of the environment that are perjoule's own. */
pj_status pj_rules_check_environment(pj_error *err);

#endif
