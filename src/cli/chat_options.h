/* --chat-set NAME=VALUE: variables for a chat template. */
#ifndef PJ_CLI_CHAT_OPTIONS_H
#define PJ_CLI_CHAT_OPTIONS_H

#include "cli/options.h"

/* One JSON object of all settings: a value that is valid JSON is used as it is (false, 3, [1]), any
 * other becomes a string. *variables is NULL without settings; the caller frees it (pj_free). */
pj_status pj_chat_variables(const pj_text_list *settings, char **variables, pj_error *err);

#endif
