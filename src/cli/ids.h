/* Token ids on the command line: "1,2,3". */
#ifndef PJ_CLI_IDS_H
#define PJ_CLI_IDS_H

#include "base/error.h"

/* Separators are commas and white space. The caller frees *ids (pj_free). */
pj_status pj_ids_parse(const char *text, int32_t **ids, uint32_t *count, pj_error *err);

#endif
